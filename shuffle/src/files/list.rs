//! The files of an input, in their order, and the input as one row of bytes: those of all files, one behind the other.
//!
//! A job may have a hundred thousand files: a list holds each path once, without what consecutive files share, and takes
//! some ten bytes for each file besides its name. *Pages* of it go to the tasks that read files, as objects, so that what a
//! task is told is numbers: from which byte of the input to which ([`FileList::parts`] finds the files).

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::input::strides;
use super::{Chunk, InputFile};
use exobus_files::ALIGNMENT;

/// Files smaller than this are read several by one task, as many as come to so many bytes, and are never cut.
pub const SMALL_FILE_BYTES: u64 = 1 << 20;
/// Fewer files are read together when their entries in the list take as much: what a task is given of the list is bounded.
const GROUP_LIST_BYTES: u64 = 4 << 20;
/// A page ends with the group of files in which it gets as large as this.
const PAGE_LIST_BYTES: u64 = 64 << 10;
/// What an entry takes besides its name.
const ENTRY_BYTES: u64 = 14;

/// See the module. Empty files are in it, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileList {
    /// What paths begin with, up to the last `/`, and the first file of those that follow each other and share it.
    folders: Vec<(ByteBuf, u32)>,
    /// The rest of all paths, one behind the other, and where each ends.
    names: ByteBuf,
    name_ends: Vec<u64>,
    /// Where the first file begins in the input, and where each ends.
    start: u64,
    ends: Vec<u64>,
}

/// What of one file is in a range of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The file.
    pub file: InputFile,
    /// Where the file begins in the input.
    pub file_start: u64,
    /// Bytes of the file.
    pub range: Range<u64>,
}

/// Consecutive files that are not divided among pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Bytes of the input.
    pub range: Range<u64>,
    /// Whether it is one large file, which is cut; otherwise one task reads all of them.
    pub is_cut: bool,
}

impl FileList {
    /// Adds a file.
    pub fn push(&mut self, path: &Path, bytes: u64) {
        let path = path.as_os_str().as_bytes();
        let (folder, name) = path.split_at(path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1));
        if self.folders.last().is_none_or(|(last, _)| last != folder) {
            self.folders.push((ByteBuf::from(folder), self.ends.len() as u32));
        }
        self.names.extend_from_slice(name);
        self.name_ends.push(self.names.len() as u64);
        self.ends.push(self.end() + bytes);
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.end() - self.start
    }

    /// Where its first file begins in the input: 0 unless it is a page.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// File `index`.
    ///
    /// # Panics
    /// There is none.
    pub fn get(&self, index: usize) -> InputFile {
        let range = self.range(index);
        InputFile { path: self.path(index), bytes: range.end - range.start }
    }

    /// All files.
    pub fn iter(&self) -> impl Iterator<Item = InputFile> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Where in the input file `index` is.
    fn range(&self, index: usize) -> Range<u64> {
        let start = if index == 0 { self.start } else { self.ends[index - 1] };
        start..self.ends[index]
    }

    fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(self.start)
    }

    fn path(&self, index: usize) -> PathBuf {
        let folder = self.folders.partition_point(|(_, first)| *first as usize <= index) - 1;
        let name = self.name_range(index);
        let mut path = self.folders[folder].0.to_vec();
        path.extend_from_slice(&self.names[name]);
        OsStr::from_bytes(&path).into()
    }

    fn name_range(&self, index: usize) -> Range<usize> {
        let start = if index == 0 { 0 } else { self.name_ends[index - 1] };
        start as usize..self.name_ends[index] as usize
    }

    /// The file that holds byte `at` of the input: never an empty one.
    fn index_of(&self, at: u64) -> usize {
        self.ends.partition_point(|end| *end <= at)
    }

    /// What is in a range of the input, file by file; empty files are left out.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = FilePart> {
        (self.index_of(range.start)..self.len())
            .map_while(move |index| {
                let file = self.range(index);
                (file.start < range.end).then(|| {
                    let (from, to) = (file.start.max(range.start), file.end.min(range.end));
                    (index, file.start, from - file.start..to - file.start)
                })
            })
            .filter(|(_, _, range)| !range.is_empty())
            .map(|(index, file_start, range)| FilePart { file: self.get(index), file_start, range })
    }

    /// The files in the order of the list, a large one by itself, small ones with as many of those behind them as one task
    /// reads. Decided by the list alone; empty files are in no group.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups = Vec::new();
        let mut open: Option<(Range<u64>, u64)> = None;
        for index in 0..self.len() {
            let file = self.range(index);
            let bytes = file.end - file.start;
            if bytes == 0 {
                continue;
            }
            let is_cut = bytes >= SMALL_FILE_BYTES;
            if is_cut {
                groups.extend(open.take().map(|(range, _)| Group { range, is_cut: false }));
                groups.push(Group { range: file, is_cut });
                continue;
            }
            let (mut range, listed) = open.take().unwrap_or((file.start..file.start, 0));
            range.end = file.end;
            let listed = listed + self.entry_bytes(index);
            if range.end - range.start >= SMALL_FILE_BYTES || listed >= GROUP_LIST_BYTES {
                groups.push(Group { range, is_cut });
            } else {
                open = Some((range, listed));
            }
        }
        groups.extend(open.map(|(range, _)| Group { range, is_cut: false }));
        groups
    }

    /// The group with byte `at` of the input.
    ///
    /// # Panics
    /// There is no such byte.
    pub fn group_at(&self, at: u64) -> Group {
        let groups = self.groups();
        let index = groups.partition_point(|group| group.range.end <= at);
        groups[index].clone()
    }

    /// What each task reads where files are cut into chunks of about `chunk_bytes`, as [`chunks`](super::chunks) cuts them:
    /// ranges of the input, a chunk of a large file or a group of small ones.
    pub fn chunks(&self, chunk_bytes: u64) -> Vec<Range<u64>> {
        let mut chunks = Vec::new();
        for Group { range, is_cut } in self.groups() {
            if is_cut {
                let strides = strides(range.end - range.start, chunk_bytes);
                chunks.extend(strides.map(|chunk| range.start + chunk.start..range.start + chunk.end));
            } else {
                chunks.push(range);
            }
        }
        chunks
    }

    fn entry_bytes(&self, index: usize) -> u64 {
        self.name_range(index).len() as u64 + ENTRY_BYTES
    }

    /// The list in pages of some size, each with whole groups. Each is a list whose files are where they are in the input.
    pub fn pages(&self) -> impl Iterator<Item = FileList> {
        let mut groups = self.groups().into_iter().peekable();
        std::iter::from_fn(move || {
            let first = self.index_of(groups.peek()?.range.start);
            let (mut files, mut listed) = (first..first, 0);
            while listed < PAGE_LIST_BYTES
                && let Some(group) = groups.next()
            {
                let end = self.index_of(group.range.end - 1) + 1;
                listed += (files.end..end).map(|index| self.entry_bytes(index)).sum::<u64>();
                files.end = end;
            }
            Some(self.slice(files))
        })
    }

    fn slice(&self, files: Range<usize>) -> FileList {
        let mut slice = FileList { start: self.range(files.start).start, ..FileList::default() };
        for index in files {
            let file = self.get(index);
            slice.push(&file.path, file.bytes);
        }
        slice
    }
}

/// Bytes of scratch that it takes to read so much of the input, as [`FileList::chunks`] cuts it.
pub(crate) fn scratch_bytes(chunk: &Range<u64>) -> u64 {
    (chunk.end - chunk.start).next_multiple_of(ALIGNMENT as u64)
}

impl FilePart {
    /// As a chunk.
    pub(crate) fn chunk(self) -> Chunk {
        Chunk { path: self.file.path, offset: self.range.start, bytes: self.range.end - self.range.start }
    }
}

impl FromIterator<InputFile> for FileList {
    fn from_iter<I: IntoIterator<Item = InputFile>>(files: I) -> Self {
        let mut list = Self::default();
        files.into_iter().for_each(|file| list.push(&file.path, file.bytes));
        list
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Files of these lengths, in three folders, one of them given by a name alone.
    fn list(lengths: &[u64]) -> (FileList, Vec<InputFile>) {
        let file = |(index, bytes): (usize, &u64)| {
            let folder = ["", "in/", "/data/more files/\u{fc}/"][index / 7 % 3];
            InputFile { path: format!("{folder}part-{index:05}").into(), bytes: *bytes }
        };
        let files: Vec<InputFile> = lengths.iter().enumerate().map(file).collect();
        (files.iter().cloned().collect(), files)
    }

    fn lengths() -> impl Strategy<Value = Vec<u64>> {
        let length = prop_oneof![Just(0), 1..2_000u64, 1..SMALL_FILE_BYTES, SMALL_FILE_BYTES..10 * SMALL_FILE_BYTES];
        proptest::collection::vec(length, 0..60)
    }

    proptest! {
        #[test]
        fn a_list_gives_back_its_files(lengths in lengths()) {
            let (list, files) = list(&lengths);
            prop_assert_eq!(list.iter().collect::<Vec<_>>(), &files[..]);
            prop_assert_eq!((list.len(), list.bytes()), (files.len(), lengths.iter().sum()));
            let wire = rmp_serde::to_vec_named(&list).unwrap();
            prop_assert_eq!(rmp_serde::from_slice::<FileList>(&wire).unwrap(), list);
        }

        #[test]
        fn groups_cover_every_byte_once_in_order_and_small_files_whole(lengths in lengths()) {
            let (list, files) = list(&lengths);
            let groups = list.groups();
            let mut covered = Vec::new();
            let mut at = 0;
            for group in &groups {
                prop_assert_eq!(group.range.start, at);
                at = group.range.end;
                let parts: Vec<FilePart> = list.parts(group.range.clone()).collect();
                prop_assert!(parts.iter().all(|part| part.range == (0..part.file.bytes)), "{:?}", parts);
                prop_assert_eq!(group.is_cut, parts.iter().any(|part| part.file.bytes >= SMALL_FILE_BYTES));
                prop_assert!(!group.is_cut || parts.len() == 1);
                covered.extend(parts.into_iter().map(|part| part.file));
            }
            let expected: Vec<InputFile> = files.into_iter().filter(|file| file.bytes > 0).collect();
            prop_assert_eq!(covered, expected);
            // A group is small where a large file follows, or nothing.
            let small = |pair: &[Group]| pair[0].range.end - pair[0].range.start < SMALL_FILE_BYTES && !pair[1].is_cut;
            prop_assert!(!groups.windows(2).any(small), "{:?}", groups);
            prop_assert!(groups.iter().all(|group| group.is_cut || group.range.end - group.range.start < 2 * SMALL_FILE_BYTES));
        }

        #[test]
        fn a_page_has_whole_groups_and_finds_what_the_list_finds(lengths in lengths(), name_bytes in 1..9_000usize) {
            let file = |(index, bytes): (usize, &u64)| InputFile {
                path: format!("in/{}{index}", "x".repeat(name_bytes)).into(),
                bytes: *bytes,
            };
            let list: FileList = lengths.iter().enumerate().map(file).collect();
            let mut groups = list.groups().into_iter().peekable();
            for page in list.pages() {
                let mut in_page = 0;
                while let Some(group) = groups.next_if(|group| group.range.end <= page.end()) {
                    let found: Vec<FilePart> = page.parts(group.range.clone()).collect();
                    prop_assert_eq!(found, list.parts(group.range).collect::<Vec<_>>());
                    in_page += 1;
                }
                prop_assert!(in_page > 0);
            }
            prop_assert!(groups.next().is_none());
        }
    }

    #[test]
    fn a_hundred_thousand_files_of_one_record_are_ten_groups_and_their_list_is_small() {
        let folder = "/srv/data/a folder with a longer name/2026";
        let files = (0..100_000).map(|n| InputFile { path: format!("{folder}/record-{n:06}").into(), bytes: 100 });
        let list: FileList = files.collect();
        assert_eq!(list.groups().len(), 10);
        let wire = rmp_serde::to_vec_named(&list).unwrap();
        assert!(wire.len() < 30 * list.len(), "{} bytes", wire.len());
        let largest = list.pages().map(|page| rmp_serde::to_vec_named(&page).unwrap().len()).max().unwrap();
        assert!(largest < 400 << 10, "{largest} bytes");
    }

    #[test]
    fn chunks_are_those_of_each_file_unless_it_is_small() {
        let (list, files) = list(&[3 * SMALL_FILE_BYTES, 100, 300, 0, 5 * SMALL_FILE_BYTES, SMALL_FILE_BYTES]);
        let of_files = super::super::chunks(&files, 2_000_000);
        let chunks = list.chunks(2_000_000);
        let found = chunks.iter().flat_map(|chunk| list.parts(chunk.clone())).map(FilePart::chunk);
        assert_eq!(found.collect::<Vec<_>>(), of_files);
        assert_eq!(chunks.len(), of_files.len() - 1, "the two small ones are one");
        for chunk in &chunks {
            let parts = list.parts(chunk.clone()).map(FilePart::chunk);
            assert!(parts.into_iter().all(|part| scratch_bytes(chunk) >= part.scratch_bytes() as u64), "{chunk:?}");
        }
    }

    #[test]
    fn files_of_next_to_nothing_are_grouped_by_what_their_names_take() {
        let files = (0..400_000).map(|n| InputFile { path: format!("{n:050}").into(), bytes: 1 });
        let groups = files.collect::<FileList>().groups();
        assert_eq!(groups.len(), 7, "{} bytes in the first", groups[0].range.end);
    }

    #[test]
    fn the_parts_of_a_range_are_cut_where_it_begins_and_ends() {
        let (list, files) = list(&[100, 0, 50, 200, 0]);
        let parts: Vec<FilePart> = list.parts(30..160).collect();
        let part = |file: usize, file_start, range| FilePart { file: files[file].clone(), file_start, range };
        assert_eq!(parts, [part(0, 0, 30..100), part(2, 100, 0..50), part(3, 150, 0..10)]);
        assert_eq!(list.parts(350..350).count(), 0);
    }
}
