//! What can go wrong with a file. Every error names the file; where it has one, the offset.

use std::io;
use std::path::{Path, PathBuf};

/// A failure of a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused or failed.
    #[error("{}: {operation} at offset {offset}: {source}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// Byte offset in the file; 0 where the operation is about the whole file.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The disk, or the user's share of it, is full.
    #[error("{}: disk full at offset {offset}", path.display())]
    DiskFull {
        /// Which file.
        path: PathBuf,
        /// Byte offset of the write that did not fit.
        offset: u64,
    },
    /// A record file does not end with a whole record.
    #[error("{}: truncated record file: {bytes} bytes, the record at offset {offset} is incomplete", path.display())]
    Truncated {
        /// Which file.
        path: PathBuf,
        /// Length of the file in bytes.
        bytes: u64,
        /// Byte offset of the incomplete record.
        offset: u64,
    },
    /// A file ended before the range that was to be read: it was cut after it had been listed.
    #[error("{}: ends at offset {offset}, {expected} bytes were there when it was listed", path.display())]
    EndedEarly {
        /// Which file.
        path: PathBuf,
        /// Byte offset of the end.
        offset: u64,
        /// Byte offset of the end of the range.
        expected: u64,
    },
    /// An output is there already.
    #[error("{}: exists already", path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// An output directory holds something.
    #[error("{}: directory is not empty (it holds {found:?})", path.display())]
    NotEmpty {
        /// Which directory.
        path: PathBuf,
        /// Name of one thing in it.
        found: String,
    },
    /// An input directory holds no files.
    #[error("{}: no files in this directory", path.display())]
    NoFiles {
        /// Which directory.
        path: PathBuf,
    },
    /// A path is neither a regular file nor a directory, or not the one of the two that is needed.
    #[error("{}: not a {expected}", path.display())]
    WrongKind {
        /// Which path.
        path: PathBuf,
        /// What was needed.
        expected: &'static str,
    },
}

/// Whether this process, or the system, has run out of descriptors, threads or memory: others give some back.
fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN))
}

impl FileError {
    /// Wraps an error of the system; a full disk becomes [`FileError::DiskFull`].
    pub(crate) fn io(path: &Path, operation: &'static str, offset: u64, source: io::Error) -> FileError {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FileError::DiskFull { path, offset },
            io::ErrorKind::AlreadyExists => FileError::Exists { path },
            _ => FileError::Io { path, operation, offset, source },
        }
    }

    /// Whether what the user gave is at fault (a path, a broken file), rather than the machine.
    pub fn is_bad_input(&self) -> bool {
        match self {
            FileError::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory
            ),
            FileError::DiskFull { .. } => false,
            _ => true,
        }
    }

    /// Whether the same call may succeed later, with nobody changing its arguments.
    pub fn retry_is_of_use(&self) -> bool {
        match self {
            FileError::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::Interrupted | io::ErrorKind::TimedOut) || is_shortage(source)
            }
            FileError::DiskFull { .. } => true,
            _ => false,
        }
    }
}
