//! The list of the files of a table.

use std::sync::Arc;

use exobus_files::{FileStatus, Location};

use crate::jobs::described::{DescribedFile, DescribedSplit};
use crate::sources::{MemoryBudget, MemoryDenied, Reservation};

/// What a file takes in a list beside its path and its splits: its place there, twice as the list grows, its name in the folder that is listed, and what an allocator adds.
const FILE_BYTES: u64 = 2 * size_of::<DescribedFile>() as u64 + 64;
/// What a split takes, as the list of a file's splits grows.
const SPLIT_BYTES: u64 = 2 * size_of::<DescribedSplit>() as u64;
/// What a run takes, as the list of a split's runs grows, with a share of that list.
const RUN_BYTES: u64 = 2 * size_of::<u64>() as u64 + size_of::<Vec<u64>>() as u64;
/// What files, splits and runs are as they are written, with the names of their fields.
const WRITTEN_FILE_BYTES: u64 = 128;
const WRITTEN_SPLIT_BYTES: u64 = 96;
const WRITTEN_RUN_BYTES: u64 = 10;
const WRITTEN_EXTENT_BYTES: u64 = 20;

/// Files of a table, in their order, and the memory that they take.
pub(in crate::jobs) struct FileList {
    pub(in crate::jobs) files: Vec<DescribedFile>,
    memory: Reservation,
}

impl FileList {
    pub(in crate::jobs) fn new(budget: &Arc<dyn MemoryBudget>) -> Self {
        Self { files: Vec::new(), memory: Reservation::none(budget) }
    }

    /// Of files that were listed before.
    pub(super) fn of(files: Vec<DescribedFile>, budget: &Arc<dyn MemoryBudget>) -> Result<Self, MemoryDenied> {
        let bytes = files.iter().map(|file| file_bytes(file) + splits_bytes(file)).sum();
        Ok(Self { files, memory: Reservation::of(budget, bytes)? })
    }

    /// Adds a file, of which no splits are known.
    pub(in crate::jobs) fn push(
        &mut self,
        location: &Location,
        status: FileStatus,
        below: usize,
    ) -> Result<(), MemoryDenied> {
        let file = DescribedFile {
            path: location.to_path_buf(),
            status,
            below,
            splits: Vec::new(),
            runs: Vec::new(),
            extents: Vec::new(),
        };
        self.memory.resize(self.memory.bytes() + file_bytes(&file))?;
        self.files.push(file);
        Ok(())
    }

    /// The files, and the memory that they take, to which that of their splits is added.
    pub(super) fn parts(&mut self) -> (&mut [DescribedFile], &mut Reservation) {
        (&mut self.files, &mut self.memory)
    }
}

/// Memory for these files as they are written.
pub(in crate::jobs) fn written(
    files: &[DescribedFile],
    budget: &Arc<dyn MemoryBudget>,
) -> Result<Reservation, MemoryDenied> {
    let of_splits = |file: &DescribedFile| WRITTEN_SPLIT_BYTES * file.splits.len() as u64;
    let of_file = |file: &DescribedFile| {
        let of_columns = WRITTEN_EXTENT_BYTES * file.extents.len() as u64;
        WRITTEN_FILE_BYTES + of_splits(file) + WRITTEN_RUN_BYTES * runs(file) + of_columns
    };
    // What is written grows by doubling.
    let bytes: u64 = files.iter().map(|file| 2 * (of_file(file) + path_bytes(file))).sum();
    Reservation::of(budget, bytes)
}

/// Of the splits of a file and their runs.
pub(super) fn splits_bytes(file: &DescribedFile) -> u64 {
    SPLIT_BYTES * file.splits.len() as u64 + RUN_BYTES * runs(file)
}

/// How many runs all splits of a file have.
fn runs(file: &DescribedFile) -> u64 {
    file.runs.iter().map(|of_split| of_split.len() as u64).sum()
}

/// Of a file without its splits; its name is in the list of its folder, too.
fn file_bytes(file: &DescribedFile) -> u64 {
    FILE_BYTES + 2 * path_bytes(file)
}

fn path_bytes(file: &DescribedFile) -> u64 {
    file.path.as_os_str().len() as u64
}

#[cfg(test)]
mod tests {
    use exobus_files::Version;

    use super::*;
    use crate::sources::FixedBudget;

    #[test]
    fn a_list_takes_no_more_memory_than_it_has_asked_for() {
        let fixed = Arc::new(FixedBudget::new(64 << 10));
        let budget: Arc<dyn MemoryBudget> = fixed.clone();
        let mut list = FileList::new(&budget);
        let status = FileStatus { bytes: 1, version: Version::of(&[]) };
        let denied = (0..10_000).find_map(|number| {
            list.push(&Location::new(format!("/a folder/part-{number:05}.parquet")), status, 3).err()
        });
        assert!(denied.is_some(), "10 000 files are not listed in 64 KiB");
        let taken: usize = list.files.capacity() * size_of::<DescribedFile>()
            + list.files.iter().map(|file| file.path.capacity()).sum::<usize>();
        assert!(list.files.len() > 100 && taken as u64 <= fixed.used_bytes(), "{taken} of {}", fixed.used_bytes());

        let split = DescribedSplit { value_bytes: u64::MAX, rows: Some(u64::MAX), state: None, is_left_out: false };
        let mut files = std::mem::take(&mut list.files);
        drop(list);
        files.truncate(20);
        for file in &mut files {
            (file.splits, file.runs) = (vec![split; 3], vec![vec![u64::MAX; 4]; 3]);
            file.extents = vec![Some((0.1, 0.2)); 5];
        }
        let mut again = FileList::of(files, &budget).unwrap();
        let (files, _) = again.parts();
        let bytes = rmp_serde::to_vec_named(&files).unwrap();
        assert!(bytes.capacity() as u64 <= written(files, &budget).unwrap().bytes());
        drop(again);
        assert_eq!(fixed.used_bytes(), 0);
    }
}
