//! A file as readers see it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use exobus_files::{ALIGNMENT, Access, AlignedBuffer, FileStatus, FileSystem, Location, ReadFile};

use super::folders::{FolderColumns, folder_columns};
use super::{NamedTypes, SourceError};

/// A file of a table in a list.
#[derive(Clone, Debug)]
pub struct ListedFile {
    /// Where it is.
    pub location: Location,
    /// Its length and version.
    pub status: FileStatus,
    /// In how many folders it is below what was named, as [`visit_table_files`](exobus_files::visit_table_files) says: these may be columns.
    pub below: usize,
}

/// A file of a table, as it was when it was listed.
#[derive(Clone)]
pub struct InputFile {
    name: Arc<str>,
    file: Arc<dyn ReadFile>,
    status: FileStatus,
    /// How many of its folders may be columns.
    below: usize,
}

impl InputFile {
    /// An open file, with the length and version that it was listed with.
    ///
    /// # Errors
    /// It is another one by now; what the file system says.
    pub fn new(file: Arc<dyn ReadFile>, listed: FileStatus) -> Result<Self, SourceError> {
        file.check(listed)?;
        let name = file.location().to_string().into();
        Ok(Self { name, file, status: listed, below: 0 })
    }

    /// The same, of whose path the last so many folders may be columns.
    #[must_use]
    pub fn below(self, folders: usize) -> Self {
        Self { below: folders, ..self }
    }

    /// The columns of these types that its folders are.
    pub(crate) fn folder_columns(&self, types: &NamedTypes) -> Result<FolderColumns, SourceError> {
        folder_columns(&self.file.location().to_path_buf(), self.below, types)
    }

    /// Opens a file and takes it as it is now.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(files: &dyn FileSystem, location: &Location) -> Result<Self, SourceError> {
        let file = files.open(location, Access::Ranges)?;
        let status = file.status()?;
        Self::new(file, status)
    }

    /// Opens a file that was listed with this length and version.
    ///
    /// # Errors
    /// As of [`new`](Self::new).
    pub fn listed(location: &Location, status: FileStatus) -> Result<Self, SourceError> {
        Self::new(location.open(Access::Ranges)?, status)
    }

    /// What errors call it.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        self.status.bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// What the file system says; a file that ends before the range does.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), SourceError> {
        let needed = bytes.len();
        self.file.read_at(offset, bytes, needed)?;
        Ok(())
    }

    /// Reads a range that is read once, past the page cache unless the file was opened for reading through it. It begins at the byte of that number in the memory that is returned, which is up to two
    /// [`ALIGNMENT`]s longer.
    ///
    /// # Errors
    /// As of [`read_at`](Self::read_at).
    pub fn read_once(&self, range: Range<u64>) -> Result<(AlignedBuffer, usize), SourceError> {
        let from = range.start / ALIGNMENT as u64 * ALIGNMENT as u64;
        let needed = (range.end - from) as usize;
        let mut buffer = AlignedBuffer::new(needed.next_multiple_of(ALIGNMENT));
        self.file.read_at(from, &mut buffer, needed)?;
        Ok((buffer, (range.start - from) as usize))
    }

    /// Sees that the file is the one that was listed: whoever has read all that it wants asks at last (law 9).
    ///
    /// # Errors
    /// [`FileError::Changed`](exobus_files::FileError::Changed); what the file system says.
    pub fn check(&self) -> Result<(), SourceError> {
        Ok(self.file.check(self.status)?)
    }
}

impl fmt::Debug for InputFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InputFile({}, {} bytes)", self.name, self.len())
    }
}
