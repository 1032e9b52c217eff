//! Small files that say what a folder is: how they are read and written.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::FileError;

/// Reads a file, or its first `bytes_max` bytes; `None` when it is not there.
pub(super) fn read_small(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, FileError> {
    match bytes(path, bytes_max) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::io(path, "read", 0, error)),
    }
}

fn bytes(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Whatever somebody has put there: no link is followed, and nobody is waited for who opens the other end of a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a file that is not there yet, and returns when it is on the disk. One that is there may be anybody's, under another name as well:
/// that is an error.
pub(super) fn write_new(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), FileError> {
    let failed = |error| FileError::io(path, "write", 0, error);
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
    let mut buffered = io::BufWriter::new(&file);
    write(&mut buffered).map_err(failed)?;
    buffered.flush().map_err(failed)?;
    drop(buffered);
    file.sync_all().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A draft may have got its final name meanwhile, under which others read it.
    #[test]
    fn a_file_that_is_there_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("draft");
        let write = |text: &'static str| write_new(&path, |to| to.write_all(text.as_bytes()));
        write("first").unwrap();
        assert!(write("second").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
    }
}
