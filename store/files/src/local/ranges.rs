//! A file of which ranges are read, large ones by direct I/O and small ones through the page cache.

use std::path::Path;
use std::sync::OnceLock;

use super::direct::{DirectFile, is_aligned};
use crate::{FileError, FileStatus, Location, ReadFile};

/// An open file. Requests may come from several threads at once.
#[derive(Debug)]
pub(super) struct RangesFile {
    cached: DirectFile,
    /// The same file, opened again when the first large range is read; `None`: its name is another file's by now, or it cannot be opened again.
    direct: OnceLock<Option<DirectFile>>,
}

impl RangesFile {
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        Ok(Self { cached: DirectFile::open_cached(path)?, direct: OnceLock::new() })
    }

    /// Which of the two answers a request.
    fn of(&self, offset: u64, buffer: &[u8]) -> &DirectFile {
        let direct = is_aligned(offset, buffer).then(|| self.direct.get_or_init(|| self.again()).as_ref());
        direct.flatten().unwrap_or(&self.cached)
    }

    fn again(&self) -> Option<DirectFile> {
        let opened = DirectFile::open(self.cached.location().as_path()?).ok()?;
        opened.is_the_file(&self.cached).then_some(opened)
    }
}

impl ReadFile for RangesFile {
    fn location(&self) -> &Location {
        self.cached.location()
    }

    fn status(&self) -> Result<FileStatus, FileError> {
        self.cached.status()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], needed: usize) -> Result<usize, FileError> {
        self.of(offset, buffer).read_at(offset, buffer, needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALIGNMENT, AlignedBuffer};

    /// What was opened first is what is read, whatever is put under its name.
    #[test]
    fn a_file_that_takes_the_name_is_not_read_for_the_one_that_was_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        std::fs::write(&path, [1; ALIGNMENT]).unwrap();
        std::fs::write(&other, [2; ALIGNMENT]).unwrap();
        let file = RangesFile::open(&path).unwrap();
        std::fs::rename(&other, &path).unwrap();
        let mut buffer = AlignedBuffer::new(ALIGNMENT);
        assert_eq!(file.read_at(0, &mut buffer, ALIGNMENT).unwrap(), ALIGNMENT);
        assert!(buffer.iter().all(|byte| *byte == 1) && file.direct.get().unwrap().is_none());
        let again = RangesFile::open(&path).unwrap();
        assert_eq!(again.read_at(0, &mut buffer, ALIGNMENT).unwrap(), ALIGNMENT);
        assert!(buffer.iter().all(|byte| *byte == 2) && again.direct.get().unwrap().is_some());
    }
}
