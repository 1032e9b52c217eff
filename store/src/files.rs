//! Which spill files there are, what lives in them, and which directories can be used: pure bookkeeping.
//!
//! A file is appended to by the spiller (one *current* file per directory, requests in flight at several offsets) or
//! by one writer that found no memory (it borrows a file, so that its bytes lie together). Full files get a footer.
//! A file whose last block was freed is deleted; one that takes more blocks, when the store has no object left. A file of which a write failed is *broken*: it is never appended
//! to, synced or given a footer again; what had been acknowledged in it is still read, against its checksums. Its
//! directory is out of use: for good, unless it was merely full or removed; then until something in it was deleted.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    alloc::PAGE,
    error::{StoreError, is_shortage},
    ids::CopyId,
    spill::FILE_BYTES,
    table::{FileId, Place},
};

/// Why a directory takes no more files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// What the disk said.
    pub text: String,
    /// It is full, or the process has run out of something, or somebody has removed it: nothing is wrong with the disk.
    pub passes: bool,
}

impl Trouble {
    /// `text`: the error with what was tried.
    pub fn new(text: &impl fmt::Display, error: &io::Error) -> Trouble {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let removed = error.kind() == io::ErrorKind::NotFound;
        Trouble { text: text.to_string(), passes: full || removed || is_shortage(error) }
    }
}

impl From<&io::Error> for Trouble {
    fn from(error: &io::Error) -> Trouble {
        Trouble::new(error, error)
    }
}

impl From<&StoreError> for Trouble {
    fn from(error: &StoreError) -> Trouble {
        match error {
            StoreError::Disk { source, .. } => Trouble::new(error, source),
            other => Trouble { text: other.to_string(), passes: false },
        }
    }
}

#[cfg(test)]
impl From<&str> for Trouble {
    fn from(text: &str) -> Trouble {
        Trouble { text: text.to_owned(), passes: false }
    }
}

/// What becomes of a file next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Takes more.
    Open,
    /// Takes no more; its footer is written once the last write is done.
    Full,
    /// Its footer is being written.
    Closing,
    /// Has its footer.
    Closed,
    /// A write failed.
    Broken,
    /// Is being deleted.
    Gone,
}

/// Where a block of a file belongs, for its footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRef {
    pub object: CopyId,
    /// Where its bytes begin in the object.
    pub start: u64,
    /// Where they begin in the file.
    pub offset: u64,
}

/// One spill file.
#[derive(Debug)]
pub(crate) struct File {
    pub dir: usize,
    pub path: Arc<Path>,
    pub status: Status,
    /// Where the next append goes; the size, once closed.
    pub end: u64,
    /// Blocks that somebody may still read, and their bytes.
    pub live: u64,
    pub live_bytes: u64,
    /// Writes under way, a borrowing writer included.
    writes: u32,
    /// All blocks that were ever written, until the footer is.
    pub blocks: Vec<BlockRef>,
    /// Whether anything was ever written to it that could be read again.
    useful: bool,
}

#[derive(Debug)]
struct Dir {
    path: PathBuf,
    retired: Option<Trouble>,
    current: Option<FileId>,
    /// Open files that a writer gave back.
    idle: Vec<FileId>,
}

/// What has to be done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileWork {
    /// Write the footer.
    Close(FileId),
    /// Delete it.
    Unlink(FileId),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Files {
    dirs: Vec<Dir>,
    files: BTreeMap<FileId, File>,
    next_file: FileId,
    next_dir: usize,
    /// Makes names different from those of earlier processes.
    stamp: u64,
    bytes: u64,
}

impl Files {
    /// `dirs`: where files go, in turn. `stamp`: different for each process, later ones larger.
    pub fn new(dirs: Vec<PathBuf>, stamp: u64) -> Files {
        let dirs = dirs
            .into_iter()
            .map(|path| Dir { path, retired: None, current: None, idle: Vec::new() })
            .collect::<Vec<_>>();
        Files { dirs, files: BTreeMap::new(), next_file: 0, next_dir: 0, stamp, bytes: 0 }
    }

    pub fn get(&self, file: FileId) -> &File {
        &self.files[&file]
    }

    pub fn count(&self) -> u64 {
        self.files.len() as u64
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Directories with the reason why they are out of use, if they are.
    pub fn dirs(&self) -> impl Iterator<Item = (&Path, Option<&str>)> {
        self.dirs.iter().map(|dir| (dir.path.as_path(), dir.retired.as_ref().map(|trouble| trouble.text.as_str())))
    }

    /// Whether anything can be written.
    pub fn usable(&self) -> bool {
        self.dirs.iter().any(|dir| dir.retired.is_none())
    }

    /// Whether another directory can take what this one takes now.
    pub fn can_do_without(&self, dir: usize) -> bool {
        self.dirs.iter().enumerate().any(|(nth, other)| nth != dir && other.retired.is_none())
    }

    /// Room for `bytes` of the spiller in the next directory's current file; a write is under way from now on.
    pub fn place(&mut self, bytes: u64) -> Option<Place> {
        let dir = self.turn()?;
        let file = match self.dirs[dir].current {
            Some(file) => file,
            None => {
                let file = self.create(dir);
                self.dirs[dir].current = Some(file);
                file
            }
        };
        let offset = self.append(file, bytes);
        let entry = self.files.get_mut(&file).expect("the current file exists");
        entry.writes += 1;
        if entry.end >= FILE_BYTES {
            entry.status = Status::Full;
            self.dirs[dir].current = None;
        }
        Some(Place { file, offset })
    }

    /// A file that only the caller appends to until it gives it back.
    pub fn borrow(&mut self) -> Option<FileId> {
        let dir = self.turn()?;
        let file = match self.dirs[dir].idle.pop() {
            Some(file) => file,
            None => self.create(dir),
        };
        self.files.get_mut(&file).expect("an idle file exists").writes += 1;
        Some(file)
    }

    /// Room at the end of a borrowed file; `bytes` are rounded up to pages.
    pub fn append(&mut self, file: FileId, bytes: u64) -> u64 {
        let entry = self.files.get_mut(&file).expect("a file that is written exists");
        let offset = entry.end;
        let bytes = bytes.next_multiple_of(PAGE);
        entry.end += bytes;
        self.bytes += bytes;
        offset
    }

    /// Ends a borrow.
    pub fn give_back(&mut self, file: FileId) -> Option<FileWork> {
        let entry = self.files.get_mut(&file).expect("a borrowed file exists");
        if entry.status == Status::Open {
            if entry.end >= FILE_BYTES {
                entry.status = Status::Full;
            } else {
                self.dirs[entry.dir].idle.push(file);
            }
        }
        self.write_ended(file)
    }

    /// A write of the spiller ended, well or badly.
    pub fn write_ended(&mut self, file: FileId) -> Option<FileWork> {
        self.files.get_mut(&file).expect("a written file exists").writes -= 1;
        self.next_work(file)
    }

    /// A block in the file is what an object has on disk from now on.
    pub fn add_live(&mut self, place: Place, bytes: u64, object: CopyId, start: u64) {
        let entry = self.files.get_mut(&place.file).expect("a written file exists");
        entry.live += 1;
        entry.useful = true;
        entry.live_bytes += bytes;
        if entry.status != Status::Closed {
            entry.blocks.push(BlockRef { object, start, offset: place.offset });
        }
    }

    /// What is there belongs to an object that is called otherwise from now on. A footer that was written says what it says.
    pub fn rename(&mut self, place: Place, object: CopyId) {
        let entry = self.files.get_mut(&place.file).expect("a file with live blocks exists");
        if let Some(block) = entry.blocks.iter_mut().find(|block| block.offset == place.offset) {
            block.object = object;
        }
    }

    /// Whether nothing becomes of the file any more: it has its footer, or never will.
    pub fn is_settled(&self, file: FileId) -> bool {
        matches!(self.files[&file].status, Status::Closed | Status::Broken)
    }

    /// Nobody needs that block any more.
    pub fn drop_live(&mut self, place: Place, bytes: u64) -> Option<FileWork> {
        let entry = self.files.get_mut(&place.file).expect("a file with live blocks exists");
        entry.live -= 1;
        entry.live_bytes -= bytes;
        self.next_work(place.file)
    }

    /// A write to a file of this directory failed: nothing is written there any more. What is to be done with its
    /// files; `None`: the directory was out of use already.
    pub fn retire(&mut self, dir: usize, trouble: Trouble) -> Option<Vec<FileWork>> {
        if let Some(known) = &mut self.dirs[dir].retired {
            known.passes &= trouble.passes;
            return None;
        }
        self.dirs[dir].retired = Some(trouble);
        self.dirs[dir].current = None;
        self.dirs[dir].idle.clear();
        for file in self.files.values_mut().filter(|file| file.dir == dir) {
            if matches!(file.status, Status::Open | Status::Full) {
                file.status = Status::Broken;
            }
        }
        let broken: Vec<FileId> =
            self.files.iter().filter(|(_, file)| file.status == Status::Broken).map(|(id, _)| *id).collect();
        Some(broken.into_iter().filter_map(|file| self.next_work(file)).collect())
    }

    /// The footer was written (`Some(size)`) or could not be.
    pub fn closed(&mut self, file: FileId, size: Option<u64>) -> Option<FileWork> {
        let entry = self.files.get_mut(&file).expect("a closing file exists");
        entry.status = if size.is_some() { Status::Closed } else { Status::Broken };
        entry.blocks = Vec::new();
        if let Some(size) = size {
            self.bytes = self.bytes - entry.end + size;
            entry.end = size;
        }
        self.next_work(file)
    }

    /// A closed file that an earlier process left.
    pub fn adopt(&mut self, dir: usize, path: &Path, size: u64) -> FileId {
        let file = self.next_file;
        self.next_file += 1;
        self.files.insert(
            file,
            File {
                dir,
                path: path.into(),
                status: Status::Closed,
                end: size,
                live: 0,
                live_bytes: 0,
                writes: 0,
                blocks: Vec::new(),
                useful: true,
            },
        );
        self.bytes += size;
        file
    }

    /// Closed files without a live block.
    pub fn empty_files(&mut self) -> Vec<FileWork> {
        let files: Vec<FileId> = self.files.keys().copied().collect();
        files.into_iter().filter_map(|file| self.next_work(file)).collect()
    }

    /// Files that take no more blocks now: when everything open is to get its footer.
    pub fn finish_all(&mut self) -> Vec<FileWork> {
        for dir in &mut self.dirs {
            dir.current = None;
            dir.idle.clear();
        }
        let open: Vec<FileId> =
            self.files.iter().filter(|(_, file)| file.status == Status::Open).map(|(id, _)| *id).collect();
        for file in &open {
            self.files.get_mut(file).expect("listed just now").status = Status::Full;
        }
        open.into_iter().filter_map(|file| self.next_work(file)).collect()
    }

    /// Deletes open files that have no block and are not being written: when nothing is left that would soon be spilled, what
    /// was set aside on the disk is given back.
    pub fn give_up_unused(&mut self) -> Vec<FileWork> {
        let unused = |file: &File| file.status == Status::Open && file.live == 0 && file.writes == 0;
        let unused: Vec<FileId> = self.files.iter().filter(|(_, file)| unused(file)).map(|(id, _)| *id).collect();
        for dir in &mut self.dirs {
            dir.current.take_if(|file| unused.contains(file));
            dir.idle.retain(|file| !unused.contains(file));
        }
        for file in &unused {
            self.files.get_mut(file).expect("listed just now").status = Status::Full;
        }
        unused.into_iter().filter_map(|file| self.next_work(file)).collect()
    }

    fn turn(&mut self) -> Option<usize> {
        let count = self.dirs.len();
        let dir =
            (0..count).map(|step| (self.next_dir + step) % count).find(|dir| self.dirs[*dir].retired.is_none())?;
        self.next_dir = dir + 1;
        Some(dir)
    }

    fn create(&mut self, dir: usize) -> FileId {
        let file = self.next_file;
        self.next_file += 1;
        let path = self.dirs[dir].path.join(format!("{:013x}-{file:08}.spill", self.stamp));
        self.files.insert(
            file,
            File {
                dir,
                path: path.into(),
                status: Status::Open,
                end: 0,
                live: 0,
                live_bytes: 0,
                writes: 0,
                blocks: Vec::new(),
                useful: false,
            },
        );
        file
    }

    fn next_work(&mut self, file: FileId) -> Option<FileWork> {
        let entry = self.files.get_mut(&file)?;
        if entry.writes > 0 || matches!(entry.status, Status::Closing | Status::Gone) {
            return None;
        }
        if entry.live == 0 && entry.status != Status::Open {
            entry.status = Status::Gone;
            self.bytes -= entry.end;
            return Some(FileWork::Unlink(file));
        }
        if entry.status == Status::Full {
            entry.status = Status::Closing;
            return Some(FileWork::Close(file));
        }
        None
    }

    /// The file was deleted. The directory that takes files again for it: what was in the way may have been its bytes. A
    /// file that never took any proves nothing.
    pub fn forget(&mut self, file: FileId) -> Option<usize> {
        let file = self.files.remove(&file)?;
        if file.useful && self.restore(file.dir) { Some(file.dir) } else { None }
    }

    /// Directories that were full when they were written to last.
    pub fn full(&self) -> Vec<usize> {
        let full = |dir: &Dir| dir.retired.as_ref().is_some_and(|trouble| trouble.passes);
        self.dirs.iter().enumerate().filter(|(_, dir)| full(dir)).map(|(nth, _)| nth).collect()
    }

    /// Takes a directory into use again that was full; `false`: it was not, or is broken.
    pub fn restore(&mut self, dir: usize) -> bool {
        self.dirs[dir].retired.take_if(|trouble| trouble.passes).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dirs: &[&str]) -> Files {
        Files::new(dirs.iter().map(PathBuf::from).collect(), 1)
    }

    #[test]
    fn a_full_file_is_closed_after_its_last_write_and_deleted_after_its_last_block() {
        let mut files = files(&["a"]);
        let first = files.place(FILE_BYTES - PAGE).unwrap();
        let second = files.place(100).unwrap();
        assert_eq!((first.file, second), (second.file, Place { file: first.file, offset: FILE_BYTES - PAGE }));
        assert_ne!(files.place(1).unwrap().file, first.file);
        files.add_live(first, 10, CopyId::new(1, 1), 0);
        assert_eq!(files.write_ended(first.file), None);
        assert_eq!(files.write_ended(first.file), Some(FileWork::Close(first.file)));
        assert_eq!(files.drop_live(first, 10), None, "not while its footer is written");
        assert_eq!(files.closed(first.file, Some(FILE_BYTES + 3 * PAGE)), Some(FileWork::Unlink(first.file)));
    }

    #[test]
    fn a_borrowed_file_is_nobody_elses() {
        let mut files = files(&["a"]);
        let mine = files.borrow().unwrap();
        assert_ne!(files.borrow().unwrap(), mine);
        assert_ne!(files.place(1).unwrap().file, mine);
        assert_eq!((files.append(mine, 1), files.append(mine, 1)), (0, PAGE));
        assert_eq!(files.give_back(mine), None);
        assert_eq!(files.borrow(), Some(mine));
    }

    #[test]
    fn unused_files_are_given_up_and_those_in_use_stay() {
        let mut files = files(&["a"]);
        let live = files.place(100).unwrap();
        files.add_live(live, 100, CopyId::new(1, 1), 0);
        let [unused, borrowed] = [(); 2].map(|()| files.borrow().unwrap());
        assert_eq!(files.give_back(unused), None);
        assert_eq!(files.give_up_unused(), [FileWork::Unlink(unused)]);
        assert_eq!(files.write_ended(live.file), None);
        assert_eq!(files.drop_live(live, 100), None, "it takes more");
        assert_eq!(files.give_up_unused(), [FileWork::Unlink(live.file)]);
        assert_eq!(files.give_up_unused(), []);
        assert_eq!(files.give_back(borrowed), None);
        assert_eq!(files.borrow(), Some(borrowed));
        files.give_back(borrowed);
        assert_eq!(files.give_up_unused(), [FileWork::Unlink(borrowed)]);
        assert!(![unused, borrowed, live.file].contains(&files.place(1).unwrap().file));
        assert!(![unused, borrowed, live.file].contains(&files.borrow().unwrap()));
    }

    #[test]
    fn directories_take_turns_until_they_are_retired() {
        let mut files = files(&["a", "b"]);
        let next_dir = |files: &mut Files| {
            let file = files.place(1).unwrap().file;
            files.get(file).dir
        };
        assert_eq!([0; 4].map(|_| next_dir(&mut files)), [0, 1, 0, 1]);
        assert_eq!(files.retire(0, "EIO".into()), Some(vec![]), "its writes are still under way");
        assert_eq!(files.retire(0, "again".into()), None);
        assert_eq!(files.write_ended(0), None);
        assert_eq!(files.write_ended(0), Some(FileWork::Unlink(0)), "nothing of it is of use");
        assert_eq!(files.forget(0), None, "what failed stays out of use");
        assert_eq!(next_dir(&mut files), 1);
        assert!(files.retire(1, "EIO".into()).is_some());
        assert_eq!(files.place(1), None);
        assert_eq!(files.borrow(), None);
        assert!(!files.usable());
    }

    #[test]
    fn a_full_directory_is_used_again_when_something_in_it_was_deleted() {
        let mut files = files(&["a"]);
        let full = || Trouble { text: "full".into(), passes: true };
        let place = files.place(1).unwrap();
        files.write_ended(place.file);
        files.add_live(place, 1, CopyId::new(1, 1), 0);
        // What was never written frees nothing.
        let borrowed = files.borrow().unwrap();
        assert_eq!(files.retire(0, full()), Some(vec![]));
        assert_eq!(files.give_back(borrowed), Some(FileWork::Unlink(borrowed)));
        assert_eq!((files.forget(borrowed), files.usable(), files.full()), (None, false, vec![0]));
        assert_eq!(files.drop_live(place, 1), Some(FileWork::Unlink(place.file)));
        assert_eq!((files.forget(place.file), files.usable(), files.full()), (Some(0), true, vec![]));
        // Full and broken is broken.
        files.retire(0, full());
        files.retire(0, "EIO".into());
        assert!(!files.restore(0) && files.full().is_empty());
    }
}
