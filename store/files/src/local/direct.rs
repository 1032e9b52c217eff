//! A file that is read and written by direct I/O as long as everything is aligned and the file system takes it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::{ALIGNMENT, FileError, FileStatus, Location, ReadFile};

/// An open file and its name. Requests may come from several threads at once.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    location: Location,
    /// Whether it may be direct still: a file that is not is not asked at each request.
    direct: AtomicBool,
}

impl DirectFile {
    /// Opens a file to be read.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> Result<DirectFile, FileError> {
        DirectFile::with(path, OpenOptions::new().read(true))
    }

    /// Opens a file to be read through the page cache.
    ///
    /// # Errors
    /// What the system says.
    pub fn open_cached(path: &Path) -> Result<DirectFile, FileError> {
        let opened = File::open(path).map_err(|error| FileError::io(path, "open", 0, error));
        Ok(DirectFile { file: opened?, location: path.into(), direct: AtomicBool::new(false) })
    }

    /// Creates a file to be written and read, or empties the one that is there.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path) -> Result<DirectFile, FileError> {
        DirectFile::with(path, OpenOptions::new().read(true).write(true).create(true).truncate(true))
    }

    fn with(path: &Path, options: &mut OpenOptions) -> Result<DirectFile, FileError> {
        let (opened, direct) = match options.custom_flags(OFlags::DIRECT.bits() as i32).open(path) {
            // Some file systems have no direct I/O; a few say so only when asked to read or write.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                (options.custom_flags(0).open(path), false)
            }
            opened => (opened, true),
        };
        let file = opened.map_err(|error| FileError::io(path, "open", 0, error))?;
        Ok(DirectFile { file, location: path.into(), direct: AtomicBool::new(direct) })
    }

    /// Whether it is the file that another one is, too.
    pub(super) fn is_the_file(&self, other: &DirectFile) -> bool {
        let of = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
        of(&self.file).is_some_and(|this| of(&other.file) == Some(this))
    }

    /// As [`ReadFile::read_at`].
    ///
    /// # Errors
    /// As there.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8], needed: usize) -> Result<usize, FileError> {
        assert!(needed <= buffer.len(), "{needed} bytes into a buffer of {}", buffer.len());
        let mut done = 0;
        while done < needed {
            let at = offset + done as u64;
            let direct = self.direct_if_aligned(at, &buffer[done..]);
            match self.file.read_at(&mut buffer[done..], at) {
                Ok(0) => {
                    let expected = offset + needed as u64;
                    return Err(FileError::EndedEarly { path: self.location.to_path_buf(), offset: at, expected });
                }
                Ok(read) => done += read,
                Err(error) => self.go_on(error, ("read", at), direct)?,
            }
        }
        Ok(done)
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// What the system says, a full disk for one.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let direct = self.direct_if_aligned(at, &bytes[done..]);
            match self.file.write_at(&bytes[done..], at) {
                Ok(0) => {
                    return Err(FileError::io(self.location.clone(), "write", at, io::ErrorKind::WriteZero.into()));
                }
                Ok(written) => done += written,
                Err(error) => self.go_on(error, ("write", at), direct)?,
            }
        }
        Ok(())
    }

    /// Claims disk space for `bytes` bytes, so that a full disk shows now and parallel writes do not extend the file one
    /// after the other. Not every file system can; then nothing happens.
    ///
    /// # Errors
    /// A full disk.
    pub fn reserve(&self, bytes: u64) -> Result<(), FileError> {
        if bytes == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            Err(error) => Err(FileError::io(self.location.clone(), "reserve space", bytes, error.into())),
        }
    }

    /// Gives the file its length: the last block was written whole.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_len(&self, bytes: u64) -> Result<(), FileError> {
        self.file.set_len(bytes).map_err(|error| FileError::io(self.location.clone(), "set the length", bytes, error))
    }

    /// Returns when the data is on the disk.
    ///
    /// # Errors
    /// What the system says.
    pub fn sync(&self) -> Result<(), FileError> {
        self.file.sync_data().map_err(|error| FileError::io(self.location.clone(), "sync", 0, error))
    }

    /// Whether a request is direct. One that direct I/O cannot do (the rest of a short read or write) is done through the page cache, and so is
    /// all that follows: rare, and correct.
    fn direct_if_aligned(&self, offset: u64, bytes: &[u8]) -> bool {
        if !is_aligned(offset, bytes) {
            self.leave_direct();
        }
        self.direct.load(Ordering::Acquire)
    }

    /// Switches to buffered I/O, for good.
    fn leave_direct(&self) {
        if self.direct.load(Ordering::Acquire) {
            if let Ok(flags) = rustix::fs::fcntl_getfl(&self.file) {
                // Where that fails the next request is refused, and says why.
                let _ = rustix::fs::fcntl_setfl(&self.file, flags.difference(OFlags::DIRECT));
            }
            self.direct.store(false, Ordering::Release);
        }
    }

    /// Decides whether a request is repeated after `error`; `direct`: it was.
    fn go_on(&self, error: io::Error, (operation, offset): (&'static str, u64), direct: bool) -> Result<(), FileError> {
        if direct && error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) {
            self.leave_direct();
            return Ok(());
        }
        match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(FileError::io(self.location.clone(), operation, offset, error)),
        }
    }
}

/// Whether direct I/O can do a request.
pub(super) fn is_aligned(offset: u64, bytes: &[u8]) -> bool {
    offset.is_multiple_of(ALIGNMENT as u64)
        && bytes.len().is_multiple_of(ALIGNMENT)
        && bytes.as_ptr().addr().is_multiple_of(ALIGNMENT)
}

impl ReadFile for DirectFile {
    fn location(&self) -> &Location {
        &self.location
    }

    fn status(&self) -> Result<FileStatus, FileError> {
        let metadata =
            self.file.metadata().map_err(|error| FileError::io(self.location.clone(), "look up", 0, error))?;
        Ok(super::status(&metadata))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], needed: usize) -> Result<usize, FileError> {
        DirectFile::read_at(self, offset, buffer, needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some file systems take a file to be direct and refuse what is asked of it then, of several threads at once.
    #[test]
    fn every_request_that_was_direct_when_it_was_refused_is_repeated_and_no_other_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = DirectFile::create(&folder.path().join("file")).unwrap();
        let refused = || Errno::INVAL.into();
        for _ in 0..2 {
            file.go_on(refused(), ("read", 0), true).unwrap();
            assert!(!file.direct_if_aligned(0, &[]), "for good");
        }
        assert!(file.go_on(refused(), ("read", 0), false).is_err());
        file.go_on(io::ErrorKind::Interrupted.into(), ("read", 0), false).unwrap();
    }
}
