//! What can go wrong with a file. Every error names the file; where it has one, the offset.

use std::io;
use std::path::{Path, PathBuf};

use exobus_store::JobId;

use crate::Location;
use crate::folder::{Claim, Standing};

/// A failure of a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused or failed.
    #[error("{}: {operation}{}: {source}", path.display(), at(*offset))]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// Byte offset in the file; 0, which is not said, where the operation begins there or is about the whole file.
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
    /// A file is compressed: what is in it can be read only by somebody who unpacks it first.
    #[error("{}: is a {format} file; unpack it first", path.display())]
    Compressed {
        /// Which file.
        path: PathBuf,
        /// The format: "gzip".
        format: &'static str,
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
    /// An output directory holds something.
    #[error("{}: directory is not empty (it holds {found:?})", path.display())]
    NotEmpty {
        /// Which directory.
        path: PathBuf,
        /// Name of one thing in it.
        found: String,
    },
    /// Another job has claimed an output directory.
    #[error("{}: claimed by {}, {}", path.display(), claim.describe(), claim.advice(path, *standing))]
    Claimed {
        /// Which directory.
        path: PathBuf,
        /// What the claim says.
        claim: Box<Claim>,
        /// How it stands with that job.
        standing: Standing,
    },
    /// The claim on an output directory is not the job's any more.
    #[error(
        "{}: the claim of job {job} is gone, {}", path.display(),
        now.as_ref().map_or("and nobody has claimed it since".to_owned(), |now| format!("that of {} is there", now.describe()))
    )]
    ClaimLost {
        /// Which directory.
        path: PathBuf,
        /// Whose claim it was.
        job: JobId,
        /// The claim that is there now.
        now: Option<Box<Claim>>,
    },
    /// A run of a job has committed, and a later one of the same job, which did not know that, has made something else.
    #[error("{}: an earlier run of job {job} has committed it, and this one has made another: a function of the job is not deterministic", path.display())]
    Differs {
        /// Which file, or the manifest where there are others.
        path: PathBuf,
        /// The job.
        job: JobId,
    },
    /// Somebody has put something into the output directory of a job while that ran.
    #[error("{}: not of job {job}, which writes to this directory: it was put there meanwhile, and is left alone", path.display())]
    Foreign {
        /// What was found.
        path: PathBuf,
        /// The job.
        job: JobId,
    },
    /// An input directory is the output of a job that has not committed it.
    #[error(
        "{}: not whole: {} writes there or has not finished; --partial reads what is there", path.display(),
        claim.as_ref().map_or("a job".to_owned(), |claim| claim.describe())
    )]
    Unfinished {
        /// Which directory.
        path: PathBuf,
        /// What the claim says.
        claim: Option<Box<Claim>>,
    },
    /// A file has a name that no input has.
    #[error("{}: files whose names begin with _ or . are never input", path.display())]
    NotInput {
        /// Which file.
        path: PathBuf,
    },
    /// A file is not what it was written as.
    #[error("{}: damaged: {reason}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file was written by another version of exobus.
    #[error(
        "{}: it is of format {found}, and this exobus reads format {known}: use the exobus that wrote it, or remove it",
        path.display()
    )]
    Version {
        /// Which file.
        path: PathBuf,
        /// The version that it has.
        found: u64,
        /// The version that is known.
        known: u64,
    },
    /// An input directory holds no files.
    #[error("{}: no files in this directory{}", path.display(), within(path, folder.as_deref()))]
    NoFiles {
        /// Which directory.
        path: PathBuf,
        /// Name of a directory in it, which may have some: files are those of the directory alone.
        folder: Option<String>,
    },
    /// A link leads to a folder and has a name that says the value of a column: what is behind it would not be read.
    #[error(
        "{}: a link to a folder that says the value of a column, and links are not followed there: name the folders that are meant by a pattern, which follows them, or say --hive false, so that folders are no columns",
        path.display()
    )]
    LinkToValues {
        /// The link.
        path: PathBuf,
    },
    /// A folder that says no value is in one that says the value of a column: what is in it would not be read.
    #[error(
        "{}: a folder that says no value of a column, in one that does, and is not looked into: move it away, or name the files that are meant by a pattern, as '{}' does",
        path.display(), path.parent().unwrap_or(path).join("*/*").display()
    )]
    WithoutValue {
        /// The inner folder.
        path: PathBuf,
    },
    /// Nothing is named as a pattern says.
    #[error("{}: no file has such a name, and `*`, `?`, `[...]` and `**` in it match none", path.display())]
    NoMatch {
        /// The pattern.
        path: PathBuf,
    },
    /// A name that nothing has could be a pattern, and is none.
    #[error("{}: no file has this name, and {part:?} is no pattern: {reason}", path.display())]
    Pattern {
        /// The name.
        path: PathBuf,
        /// The part of it that is wrong.
        part: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A path is neither a regular file nor a directory, or not the one of the two that is needed.
    #[error("{}: not a {expected}", path.display())]
    WrongKind {
        /// Which path.
        path: PathBuf,
        /// What was needed.
        expected: &'static str,
    },
    /// Nothing can be written there.
    #[error("{}: web servers are read only", path.display())]
    ReadOnly {
        /// The URL.
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

/// What is to be said of the files in folders of a directory without files.
fn within(directory: &Path, folder: Option<&str>) -> String {
    let pattern = |end: &str| directory.join(end).display().to_string();
    folder.map_or(String::new(), |folder| {
        let (all, some) = (pattern("**"), pattern("**/*.csv"));
        format!(", but folders ({folder:?}): '{all}' stands for all files in these, '{some}' for those of such names")
    })
}

fn at(offset: u64) -> String {
    if offset == 0 { String::new() } else { format!(" at offset {offset}") }
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
        matches!(
            self,
            FileError::Truncated { .. }
                | FileError::EndedEarly { .. }
                | FileError::Changed { .. }
                | FileError::Compressed { .. }
        )
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
