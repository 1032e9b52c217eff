//! What can go wrong in the store, and what a caller can do about it.

use std::{io, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::ids::CopyId;

/// Errors of the store.
///
/// Being short of memory is none of them: requests wait or go to disk. What the layers above heal: [`Corrupt`],
/// [`Lost`] and [`NotFound`] (another copy, or the task runs again). What ends a job: [`DiskFull`] and [`TooLarge`].
/// The rest are mistakes of the caller or of the set-up. All are cheap to clone, since one fault may fail many waits.
///
/// [`Corrupt`]: StoreError::Corrupt
/// [`Lost`]: StoreError::Lost
/// [`NotFound`]: StoreError::NotFound
/// [`DiskFull`]: StoreError::DiskFull
/// [`TooLarge`]: StoreError::TooLarge
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The memory budget cannot hold the fixed reserves of the executors.
    #[error("a memory budget of {given} bytes is too small: {smallest} bytes are the least that works")]
    BudgetTooSmall {
        /// Bytes that were given.
        given: u64,
        /// The smallest budget that is accepted with the same options.
        smallest: u64,
    },
    /// There is no such sealed object here.
    #[error("object {0} is not in this store")]
    NotFound(CopyId),
    /// The object has fewer parts than were asked for.
    #[error("object {object} has {count} parts, parts {from}..{to} were asked for")]
    NoSuchPart {
        /// The object.
        object: CopyId,
        /// First part asked for.
        from: u32,
        /// End of the parts asked for.
        to: u32,
        /// How many parts it has.
        count: u32,
    },
    /// The object is shorter than the range that was asked for.
    #[error("object {object} has {span} bytes, {bytes} bytes from {offset} were asked for")]
    OutOfRange {
        /// The object.
        object: CopyId,
        /// Where the range begins.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Length of the object.
        span: u64,
    },
    /// An object of this id is sealed already, with other content.
    #[error("object {0} exists already with other content")]
    Conflict(CopyId),
    /// More bytes at once than the whole budget has; read it as a stream instead.
    #[error("{need} bytes are needed at once, the memory budget has {capacity}; read large arguments as a stream")]
    TooLarge {
        /// Bytes needed at one time.
        need: u64,
        /// Bytes there are when everything else is gone.
        capacity: u64,
    },
    /// Scratch memory, or memory beside the region, is not to be had now: spill instead.
    #[error("{bytes} bytes of memory are not to be had now ({free} are)")]
    Denied {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that were free.
        free: u64,
    },
    /// More memory beside the region than this store can ever grant.
    #[error(
        "{bytes} bytes of memory beside the region are more than can ever be granted here: {most} bytes are the most"
    )]
    NeverGranted {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that can be granted when nobody else has any.
        most: u64,
    },
    /// Memory is full, and so many outputs are written to disk at once that no page of the executors' reserve is left to
    /// lend to another process; where the store is, an output goes to disk all the same.
    #[error("the executors' reserve has no {bytes} bytes left to lend: too many outputs are being written")]
    ReserveExhausted {
        /// Bytes asked for.
        bytes: u64,
    },
    /// A part is longer than its writer had announced.
    #[error("part {part} of object {object} was announced with at most {announced} bytes, more were written")]
    PartTooLong {
        /// The object being written.
        object: CopyId,
        /// Number of the part.
        part: u32,
        /// What `begin_part` was told.
        announced: u64,
    },
    /// Bytes written while no part was begun, a part begun twice, or ended twice.
    #[error("writer of object {object} was used out of order: {what}")]
    WriterMisused {
        /// The object being written.
        object: CopyId,
        /// What was expected.
        what: &'static str,
    },
    /// No spill directory can take more.
    #[error("no spill directory can take {needed} bytes more: {}", describe(.dirs))]
    DiskFull {
        /// Bytes that had to be written.
        needed: u64,
        /// Every directory with what became of it: its state or error, and the bytes free in it.
        dirs: Vec<DirState>,
    },
    /// A request to a disk failed.
    #[error("{op} {}: {source}", .path.display())]
    Disk {
        /// What was tried: "open", "read", "lock" and so on.
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// Bytes that came back from disk or from another node are not those that were written; that copy is dropped.
    #[error("object {object} part {part} is corrupt in {} at offset {offset}", .file.display())]
    Corrupt {
        /// The object.
        object: CopyId,
        /// The first part whose checksum does not fit.
        part: u32,
        /// The spill file, or "transfer" for bytes of another node.
        file: PathBuf,
        /// Where in that file the part begins.
        offset: u64,
    },
    /// The only copy was lost with its disk.
    #[error("object {object} was lost: {reason}")]
    Lost {
        /// The object.
        object: CopyId,
        /// Why.
        reason: String,
    },
    /// A fill got fewer or more bytes than its parts have.
    #[error("a fill of object {object} ended after {got} of {expected} bytes")]
    Incomplete {
        /// The object.
        object: CopyId,
        /// Bytes that arrived.
        got: u64,
        /// Bytes of all its parts.
        expected: u64,
    },
    /// The operating system gives no more memory.
    #[error("no memory for {bytes} bytes of the region: {source}")]
    Region {
        /// Bytes asked for.
        bytes: u64,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// Another process uses this node's directory.
    #[error("{} is in use by another process", .0.display())]
    DirectoryLocked(PathBuf),
    /// What the store of another process said, where it fits none of the others.
    #[error("{0}")]
    Lender(String),
    /// The wait was given up: the store closed or the ticket was dropped.
    #[error("the wait was cancelled")]
    Cancelled,
}

/// State of one spill directory, for errors and reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirState {
    /// The directory.
    pub path: PathBuf,
    /// Why it is out of use; `None` while it is used.
    pub retired: Option<String>,
    /// Bytes free in its file system when this was written.
    pub free_bytes: u64,
}

/// See [`StoreError::is_shortage`].
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

fn describe(dirs: &[DirState]) -> String {
    if dirs.is_empty() {
        return "there is none".to_owned();
    }
    let one = |dir: &DirState| {
        format!(
            "{} ({} bytes free, {})",
            dir.path.display(),
            dir.free_bytes,
            dir.retired.as_deref().unwrap_or("in use")
        )
    };
    dirs.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl StoreError {
    /// Whether trying the same again later, or with another copy, may work.
    pub fn retry_helps(&self) -> bool {
        matches!(
            self,
            StoreError::NotFound(_)
                | StoreError::Denied { .. }
                | StoreError::ReserveExhausted { .. }
                | StoreError::Corrupt { .. }
                | StoreError::Lost { .. }
                | StoreError::Incomplete { .. }
                | StoreError::Disk { .. }
                | StoreError::Lender(_)
                | StoreError::Cancelled
        )
    }

    /// Whether the object is not here, or not as it was: it has to come from somewhere else, or be made again.
    pub fn is_lost(&self) -> bool {
        matches!(
            self,
            StoreError::NotFound(_)
                | StoreError::Corrupt { .. }
                | StoreError::Lost { .. }
                | StoreError::Incomplete { .. }
                | StoreError::Disk { .. }
        )
    }

    /// Whether the caller made a mistake (as opposed to the machine failing).
    pub fn is_callers_fault(&self) -> bool {
        matches!(
            self,
            StoreError::BudgetTooSmall { .. }
                | StoreError::NoSuchPart { .. }
                | StoreError::OutOfRange { .. }
                | StoreError::Conflict(_)
                | StoreError::TooLarge { .. }
                | StoreError::NeverGranted { .. }
                | StoreError::PartTooLong { .. }
                | StoreError::WriterMisused { .. }
                | StoreError::DirectoryLocked(_)
        )
    }

    /// Whether this process has run out of something (descriptors, memory of the kernel): says nothing of the disk or of
    /// what is on it.
    pub(crate) fn is_shortage(&self) -> bool {
        matches!(self, StoreError::Disk { source, .. } if is_shortage(source))
    }

    pub(crate) fn disk(op: &'static str, path: &std::path::Path, source: io::Error) -> StoreError {
        StoreError::Disk { op, path: path.to_owned(), source: Arc::new(source) }
    }
}
