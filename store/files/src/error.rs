//! What can go wrong with a file. Every error names the file; where it has one, the offset.

use std::io;
use std::path::PathBuf;

use crate::Location;

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
    /// A file is not the one that was listed: somebody has written to it, or put another one in its place.
    #[error("{}: it was changed after it had been listed: start again when nobody writes to it", path.display())]
    Changed {
        /// Which file.
        path: PathBuf,
    },
    /// An output is there already.
    #[error("{}: exists already", path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// A URL has a scheme that no file system is registered for.
    #[error("{}: there are no files of scheme {scheme} here; known are paths and {known}", path.display())]
    UnknownScheme {
        /// The URL.
        path: PathBuf,
        /// Its scheme.
        scheme: String,
        /// The schemes that are known, with commas between them.
        known: String,
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
    pub fn io(file: impl Into<Location>, operation: &'static str, offset: u64, source: io::Error) -> FileError {
        let path = file.into().to_path_buf();
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

    /// Whether what is in a file is at fault.
    pub fn is_about_data(&self) -> bool {
        matches!(self, FileError::EndedEarly { .. } | FileError::Changed { .. })
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
