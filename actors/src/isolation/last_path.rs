//! [`LastPath`]: which path a function used last, noted where the node finds it when the process is gone.
//!
//! The parameters of a task that reads files may be numbers, and its process may die of any of these files. A note is a short write
//! to a file in memory that both sides have open; a message would wake the node for each of ten thousand small files.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};

/// A note is in one page, which a process that is killed has written or has not.
const NOTE_BYTES: usize = 4096;
/// How long the path is comes before it, little-endian.
const LENGTH_BYTES: usize = 4;

/// See the module. Each side has one, of the same file.
#[derive(Debug)]
pub(super) struct LastPath(File);

impl LastPath {
    /// Without a path.
    pub(super) fn new() -> io::Result<Self> {
        Ok(memfd_create("exobus-last-path", MemfdFlags::CLOEXEC)?.into())
    }

    /// Notes a path. What the system says is for nobody: without the note the death of the process is told all the same.
    pub(super) fn note(&self, path: &Path) {
        let path = path.as_os_str().as_bytes();
        // The system opens no longer ones.
        let path = &path[..path.len().min(NOTE_BYTES - LENGTH_BYTES)];
        let note = [&(path.len() as u32).to_le_bytes(), path].concat();
        let _ = self.0.write_all_at(&note, 0);
    }

    /// There is none from now on.
    pub(super) fn clear(&self) {
        self.note(Path::new(""));
    }

    /// What was noted last, if anything was.
    pub(super) fn read(&self) -> Option<String> {
        let mut note = [0; NOTE_BYTES];
        let bytes = self.0.read_at(&mut note, 0).ok()?;
        let (length, path) = note[..bytes].split_first_chunk::<LENGTH_BYTES>()?;
        // The other side may have written anything.
        let path = path.get(..u32::from_le_bytes(*length) as usize)?;
        (!path.is_empty()).then(|| String::from_utf8_lossy(path).into_owned())
    }
}

impl From<OwnedFd> for LastPath {
    fn from(file: OwnedFd) -> Self {
        Self(file.into())
    }
}

impl AsFd for LastPath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_side_reads_the_last_path_as_long_as_it_is() {
        let here = LastPath::new().unwrap();
        let there = LastPath::from(here.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(here.read(), None);
        for path in ["/in/a folder/part-00001", "/in/part-2", &format!("/{}", "x".repeat(3000)), "p"] {
            there.note(Path::new(path));
            assert_eq!(here.read().as_deref(), Some(path));
        }
        there.note(Path::new(&"y".repeat(9000)));
        assert_eq!(here.read().unwrap().len(), NOTE_BYTES - LENGTH_BYTES);
        here.clear();
        assert_eq!(here.read(), None);
    }

    #[test]
    fn a_process_that_writes_nonsense_has_noted_nothing() {
        let note = LastPath::new().unwrap();
        note.0.write_all_at(&[255; 100], 0).unwrap();
        assert_eq!(note.read(), None);
        note.0.set_len(3).unwrap();
        assert_eq!(note.read(), None);
    }
}
