//! A file that is read and written by direct I/O as long as everything is aligned and the file system takes it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{ALIGNMENT, FileError};

/// An open file and its name. Requests may come from several threads at once.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    path: PathBuf,
}

impl DirectFile {
    /// Opens a file to be read.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> Result<DirectFile, FileError> {
        DirectFile::with(path, OpenOptions::new().read(true))
    }

    /// Creates a file to be written and read, or empties the one that is there.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path) -> Result<DirectFile, FileError> {
        DirectFile::with(path, OpenOptions::new().read(true).write(true).create(true).truncate(true))
    }

    fn with(path: &Path, options: &mut OpenOptions) -> Result<DirectFile, FileError> {
        let opened = match options.custom_flags(OFlags::DIRECT.bits() as i32).open(path) {
            // Some file systems have no direct I/O; a few say so only when asked to read or write.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                options.custom_flags(0).open(path)
            }
            opened => opened,
        };
        let file = opened.map_err(|error| FileError::io(path, "open", 0, error))?;
        Ok(DirectFile { file, path: path.to_path_buf() })
    }

    /// Reads from `offset` until `buffer` holds at least `needed` bytes; more than that is read where the file goes on.
    ///
    /// # Errors
    /// [`FileError::EndedEarly`] when the file has fewer bytes.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8], needed: usize) -> Result<(), FileError> {
        let mut done = 0;
        while done < needed {
            let at = offset + done as u64;
            self.buffered_unless_aligned(at, &buffer[done..]);
            match self.file.read_at(&mut buffer[done..], at) {
                Ok(0) => {
                    let expected = offset + needed as u64;
                    return Err(FileError::EndedEarly { path: self.path.clone(), offset: at, expected });
                }
                Ok(read) => done += read,
                Err(error) => self.go_on(error, "read", at)?,
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// What the system says, a full disk for one.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            self.buffered_unless_aligned(at, &bytes[done..]);
            match self.file.write_at(&bytes[done..], at) {
                Ok(0) => {
                    return Err(FileError::io(&self.path, "write", at, io::ErrorKind::WriteZero.into()));
                }
                Ok(written) => done += written,
                Err(error) => self.go_on(error, "write", at)?,
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
            Err(error) => Err(FileError::io(&self.path, "reserve space", bytes, error.into())),
        }
    }

    /// Gives the file its length: the last block was written whole.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_len(&self, bytes: u64) -> Result<(), FileError> {
        self.file.set_len(bytes).map_err(|error| FileError::io(&self.path, "set the length", bytes, error))
    }

    /// Returns when the data is on the disk.
    ///
    /// # Errors
    /// What the system says.
    pub fn sync(&self) -> Result<(), FileError> {
        self.file.sync_data().map_err(|error| FileError::io(&self.path, "sync", 0, error))
    }

    /// A request that direct I/O cannot do (the rest of a short read or write) is done through the page cache, and so is
    /// all that follows: rare, and correct.
    fn buffered_unless_aligned(&self, offset: u64, bytes: &[u8]) {
        let aligned = offset.is_multiple_of(ALIGNMENT as u64)
            && bytes.len().is_multiple_of(ALIGNMENT)
            && bytes.as_ptr().addr().is_multiple_of(ALIGNMENT);
        if !aligned {
            self.leave_direct();
        }
    }

    /// Switches to buffered I/O; true when the file was direct before.
    fn leave_direct(&self) -> bool {
        match rustix::fs::fcntl_getfl(&self.file) {
            Ok(flags) if flags.contains(OFlags::DIRECT) => {
                rustix::fs::fcntl_setfl(&self.file, flags.difference(OFlags::DIRECT)).is_ok()
            }
            _ => false,
        }
    }

    /// Decides whether a request is repeated after `error`.
    fn go_on(&self, error: io::Error, operation: &'static str, offset: u64) -> Result<(), FileError> {
        let refused = error.raw_os_error() == Some(Errno::INVAL.raw_os_error());
        if error.kind() == io::ErrorKind::Interrupted || (refused && self.leave_direct()) {
            return Ok(());
        }
        Err(FileError::io(&self.path, operation, offset, error))
    }
}
