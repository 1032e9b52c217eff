//! What a file system owes.

use std::ffi::OsString;
use std::fmt::{self, Debug};
use std::io;
use std::sync::Arc;

use exobus_store::JobId;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::{FileError, FolderBackend, IoBuffer, Location, LockState};

/// Files in folders, whether these are folders or what names begin with.
pub trait FileSystem: Debug + Send + Sync {
    /// What is there; links are followed.
    ///
    /// # Errors
    /// [`FileError::Io`] of kind `NotFound`: nothing is. What the system says.
    fn look_up(&self, location: &Location) -> Result<Kind, FileError>;

    /// What is in a folder, in the order of names by their bytes, but for what is [hidden](crate::is_hidden), and not what is in
    /// folders in it. Each file is looked up when it is come to; links are not followed. Where folders are what names begin with, one that is not
    /// there has nothing in it.
    ///
    /// # Errors
    /// What the system says, of the folder or of a file. An iterator has no more after an error.
    fn list(&self, folder: &Location) -> Result<Entries, FileError>;

    /// Opens a file to be read.
    ///
    /// # Errors
    /// What the system says; `NotFound` where nothing is.
    fn open(&self, file: &Location, access: Access) -> Result<Arc<dyn ReadFile>, FileError>;

    /// Whether anything has this name; a link is something, wherever it leads.
    ///
    /// # Errors
    /// What the system says.
    fn is_there(&self, location: &Location) -> Result<bool, FileError> {
        match self.look_up(location) {
            Ok(_) => Ok(true),
            Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The bytes of a small file of exobus's own, or the first `bytes_max` of them; `None`: nothing is there. Links are not followed, and
    /// nothing is waited for, whatever somebody has put there.
    ///
    /// # Errors
    /// It is no file; what the system says.
    fn read_small(&self, file: &Location, bytes_max: u64) -> Result<Option<Vec<u8>>, FileError>;

    /// Begins a file that no job's folder has: it gets its name when it is [finished](WriteFile::finish), and replaces nothing then.
    ///
    /// # Errors
    /// [`FileError::Exists`]; [`FileError::WrongKind`]: that is no name of a file; what the system says.
    fn create_new(&self, file: &Location, planned: Planned) -> Result<Arc<dyn WriteFile>, FileError>;

    /// A folder that a job writes to; nothing is done yet.
    ///
    /// # Errors
    /// It is none of this file system.
    fn output_folder(&self, folder: &Location, job: JobId) -> Result<Box<dyn FolderBackend>, FileError>;

    /// As [`check_output_folder`](crate::check_output_folder).
    ///
    /// # Errors
    /// As there.
    fn check_output_folder(&self, folder: &Location) -> Result<(), FileError>;

    /// How long the requests are, in bytes, that files are written with best; 0: as they come. Shorter ones are put together, in memory that
    /// nobody has granted.
    fn write_bytes(&self) -> u64 {
        0
    }

    /// Tries to lock the claim on a folder, whose ever that is.
    ///
    /// # Errors
    /// There is no claim; what the system says.
    fn lock_claim(&self, _folder: &Location) -> Result<LockState, FileError> {
        Ok(LockState::Unknown)
    }
}

/// One of the requests that make up a file, from front to back.
pub struct WriteRequest {
    /// Which one.
    pub index: u32,
    /// Where in the file its bytes begin.
    pub offset: u64,
    /// How many of the buffer's bytes these are: its first ones. What is behind them may be written, too, and is cut off at the end.
    pub used: usize,
    /// Memory of who writes, which is given back. Direct where the offset, and address and length of the buffer, are multiples of
    /// [`ALIGNMENT`](crate::ALIGNMENT).
    pub buffer: IoBuffer,
}

impl fmt::Debug for WriteRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, offset, used, .. } = self;
        let mut text = f.debug_struct("WriteRequest");
        text.field("index", index).field("offset", offset).field("used", used).finish_non_exhaustive()
    }
}

/// What is known of a file that begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// How long it will be, in bytes, where that is known, else 0: room for it is taken at once where there can be, so that a full disk
    /// shows early.
    pub bytes: u64,
    /// How long each of its requests is, in bytes, but for the last one.
    pub request_bytes: u64,
}

/// What is in a folder.
pub type Entries = Box<dyn Iterator<Item = Result<Entry, FileError>> + Send>;

/// How a file is going to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// In large requests whose offset, length and memory are multiples of [`ALIGNMENT`](crate::ALIGNMENT): past the page cache. Any
    /// other request is answered as well, and makes the file a [`Cached`](Access::Cached) one.
    Direct,
    /// As it comes: small requests, or one behind the other.
    Cached,
    /// Ranges anywhere: requests whose offset, length and memory are multiples of [`ALIGNMENT`](crate::ALIGNMENT) go past the page cache, and all
    /// others through it.
    Ranges,
}

/// An open file. Requests may come from several threads at once.
pub trait ReadFile: Debug + Send + Sync {
    /// Where it is.
    fn location(&self) -> &Location;

    /// Its length and version, as they are now. Bytes that were read belong to a version which was the same before and after.
    ///
    /// # Errors
    /// What the system says.
    fn status(&self) -> Result<FileStatus, FileError>;

    /// Reads from byte `offset` on until `buffer` holds at least `needed` bytes; how many it holds then. Where the file goes on, there may be
    /// more. What of the buffer is behind them may have been written to.
    ///
    /// # Errors
    /// [`FileError::EndedEarly`]: the file has fewer bytes. What the system says.
    ///
    /// # Panics
    /// The buffer is shorter.
    fn read_at(&self, offset: u64, buffer: &mut [u8], needed: usize) -> Result<usize, FileError>;

    /// Sees that it is the file that was listed (law 9).
    ///
    /// # Errors
    /// [`FileError::Changed`]; those of [`status`](Self::status).
    fn check(&self, listed: FileStatus) -> Result<(), FileError> {
        match self.status()? == listed {
            true => Ok(()),
            false => Err(FileError::Changed { path: self.location().to_path_buf() }),
        }
    }
}

/// A file that is being written, under an attempt's own name. Requests may come from several threads at once. Of one that is dropped unfinished
/// nothing stays.
pub trait WriteFile: Debug + Send + Sync {
    /// Where it is until it is committed, for errors.
    fn location(&self) -> &Location;

    /// Writes one of the requests that make up the file; the buffer comes back, that one or another of its length. Requests that are under way may be done
    /// in any order.
    ///
    /// # Errors
    /// [`FileError::DiskFull`]; what the system says.
    fn write(&self, request: WriteRequest) -> (IoBuffer, Result<(), FileError>);

    /// Ends the file, of so many bytes, when all requests are done; what a [`Token`](crate::Token) calls it, equally long for all attempts at a
    /// file. It is on the disk then, and so is that name: the log of a job that says so is, too, and must not say more than a power cut
    /// leaves.
    ///
    /// # Errors
    /// What the system says.
    fn finish(&self, bytes: u64) -> Result<String, FileError>;
}

/// Something in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the folder.
    pub name: OsString,
    /// What it is.
    pub kind: Kind,
}

/// What there is under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File(FileStatus),
    /// A folder.
    Folder,
    /// A link, which was not followed: [`look_up`](FileSystem::look_up) says what it leads to.
    Link,
    /// Something that is never input: a pipe, a device.
    Other,
}

/// Length and version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStatus {
    /// Length in bytes.
    pub bytes: u64,
    /// Differs for contents that differ, as far as the file system knows.
    pub version: Version,
}

/// What tells a file from what is there after a change: a hash of what the file system has for that. Of local files: inode, length,
/// and time of the last change in ns; of objects: their ETag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version(u64, u64);

impl Version {
    /// The version that is known by these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let hash = XxHash3_128::oneshot(bytes);
        Self((hash >> 64) as u64, hash as u64)
    }
}
