//! The file of segments that did not fit into memory. It has no name, so nothing is left of it whatever happens.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use exobus_shuffle::files::{DirectFile, FileError};

use super::store::Store;

/// Disk space is claimed in steps of this many bytes.
const RESERVE_BYTES: u64 = 1 << 30;

/// Segments on disk, one behind the other.
pub(super) struct SpillFile {
    file: DirectFile,
    next: AtomicU64,
    reserved: Mutex<u64>,
}

/// A file on the disk of `directory` that is gone when it is closed.
pub(crate) fn nameless(directory: &Path) -> Result<DirectFile, FileError> {
    let path = directory.join(".nameless.tmp");
    let file = DirectFile::create(&path)?;
    std::fs::remove_file(&path).map_err(|source| FileError::Io {
        path,
        operation: "take away the name of",
        offset: 0,
        source,
    })?;
    Ok(file)
}

impl SpillFile {
    /// A new file on the disk of `directory`.
    pub(super) fn create(directory: &Path) -> Result<SpillFile, FileError> {
        Ok(SpillFile { file: nameless(directory)?, next: AtomicU64::new(0), reserved: Mutex::new(0) })
    }

    /// Bytes that were ever written.
    pub(super) fn bytes(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Writes what `store` wants on disk, until nothing will come any more.
    pub(super) fn write_all(&self, store: &Store<'_>) {
        while let Some((bucket, segment)) = store.next_to_write() {
            let offset = self.next.fetch_add(store.segment_bytes(), Ordering::Relaxed);
            let written = self.reserve(offset + store.segment_bytes());
            match written.and_then(|()| self.file.write_at(offset, segment)) {
                Ok(()) => store.written(bucket, segment, offset),
                Err(error) => return store.fail(error.into()),
            }
        }
    }

    /// Reads what `store` wants in memory, until there is no more.
    pub(super) fn load_all(&self, store: &Store<'_>) {
        loop {
            match store.next_to_load() {
                Ok(Some((bucket, offset, segment))) => match self.file.read_at(offset, segment, segment.len()) {
                    Ok(_) => store.loaded(bucket, segment),
                    Err(error) => return store.fail(error.into()),
                },
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn reserve(&self, bytes: u64) -> Result<(), FileError> {
        let mut reserved = self.reserved.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if bytes > *reserved {
            *reserved = bytes.next_multiple_of(RESERVE_BYTES);
            self.file.reserve(*reserved)?;
        }
        Ok(())
    }
}
