//! The folder of a job's output, from the claim to the manifest, on any file system.
//!
//! [`claim`](OutputFolder::claim), then work, then [`commit`](OutputFolder::commit) or [`withdraw`](OutputFolder::withdraw). Each
//! may be stopped anywhere and be called again, by another process as well, and attempts of one job may be in each other's way.
//! What stands in the folder, whatever has it: `_exobus.claim` from before work begins until the end ([`Claim`]); files under their
//! names from the commit on, and not before; `_exobus.json`, with which the folder is whole ([`Manifest`]).

mod claim;
mod format;
mod manifest;

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use exobus_store::JobId;

pub(crate) use claim::FORMAT as CLAIM_FORMAT;
pub use claim::{CLAIM, Claim, Claimant, LockState, Met, Standing};
pub use format::Format;
pub(crate) use manifest::FORMAT as MANIFEST_FORMAT;
pub use manifest::{MANIFEST, Manifest, ManifestFile, ManifestWriter, Schema};

use crate::{FileError, IoBuffer, Location, OutputFile, Planned, Token, WriteFile, is_inside, says_value};

/// The folder, as one job sees it.
#[derive(Debug)]
pub struct OutputFolder {
    job: JobId,
    backend: Box<dyn FolderBackend>,
}

/// What became of the wish for a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It is the job's.
    Now,
    /// Another job's, which is over: it is to be said that it is taken over, and done so with this job's verdict.
    Over(JobId),
    /// Another job's of this cluster, which knows whether that is over.
    Ask(JobId),
}

/// What is known of a job that may have claimed a folder: whether it is over.
pub type Verdict = Option<(JobId, bool)>;

/// What was made, and what it is: a program, and the schema of its rows.
pub type Made<'a> = (&'a str, &'a Schema);

/// Calls what it is given for the token of every file of a folder, in the order of their rows, as often as it is called.
pub type Tokens<'a> = &'a dyn Fn(&mut dyn FnMut(&Token) -> Result<(), FileError>) -> Result<(), CommitError>;

/// What a file system owes for a folder that a job writes to. The promises of [`OutputFolder`] are its.
///
/// Where it has no names that can change, an attempt's file is an upload that is not completed until the commit, and its token says which;
/// the claim and the manifest are put on the condition that nothing has their name; and what a job that has withdrawn began can be
/// completed by nobody.
pub trait FolderBackend: fmt::Debug + Send + Sync {
    /// As [`OutputFolder::claim`].
    ///
    /// # Errors
    /// As there.
    fn claim(&self, claimant: &Claimant<'_>, verdict: Verdict) -> Result<Claimed, FileError>;

    /// As [`OutputFolder::lock`].
    fn lock(&self) -> Option<ClaimLock>;

    /// As [`OutputFolder::reopen`].
    ///
    /// # Errors
    /// As there.
    fn reopen(&self) -> Result<(), FileError>;

    /// As [`OutputFolder::is_closed`].
    ///
    /// # Errors
    /// As there.
    fn is_closed(&self) -> Result<bool, FileError>;

    /// As [`OutputFolder::working_place`].
    fn working_place(&self) -> Location;

    /// As [`OutputFolder::begin`].
    ///
    /// # Errors
    /// As there.
    fn begin(&self, name: &str, attempt: &str, planned: Planned) -> Result<Arc<dyn WriteFile>, FileError>;

    /// As [`OutputFolder::abort`].
    ///
    /// # Errors
    /// As there.
    fn abort(&self, token: &Token) -> Result<(), FileError>;

    /// As [`OutputFolder::commit`].
    ///
    /// # Errors
    /// As there.
    fn commit(&self, attempt: &str, made: Made<'_>, tokens: Tokens<'_>) -> Result<(), CommitError>;

    /// As [`OutputFolder::withdraw`].
    ///
    /// # Errors
    /// As there.
    fn withdraw(&self, lock: Option<ClaimLock>) -> Result<(), FileError>;
}

/// What stops a commit.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A file, or the folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// Who gives the tokens; it knows why.
    #[error("the tokens end early")]
    Tokens,
}

/// Shows others that the process of a job lives, as long as it is held and that does. The file system knows how.
pub struct ClaimLock {
    _held: Box<dyn Any + Send>,
}

impl ClaimLock {
    /// The lock that ends when `held` is dropped.
    pub fn of(held: impl Any + Send) -> Self {
        Self { _held: Box::new(held) }
    }
}

impl fmt::Debug for ClaimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimLock")
    }
}

impl OutputFolder {
    /// The folder for the output of `job`.
    ///
    /// # Errors
    /// [`FileError::UnknownScheme`].
    pub fn new(folder: impl Into<Location>, job: JobId) -> Result<Self, FileError> {
        let folder = folder.into();
        Ok(Self { job, backend: folder.system()?.output_folder(&folder, job)? })
    }

    /// The job.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Where files of attempts are until the commit: what a job must have the right to write to, besides the folder.
    pub fn working_place(&self) -> Location {
        self.backend.working_place()
    }

    /// Makes the folder if it is not there, claims it, and sees that it is empty. Doing it again changes nothing. A folder that is whole with
    /// the job's output is the job's, too: it is run from its beginning, and will find that it has committed.
    ///
    /// `verdict`: a job that may have claimed it, and whether that is over, as was found out since the last call.
    ///
    /// # Errors
    /// Whatever it is, a job that does not try again withdraws.
    /// [`FileError::Claimed`]: another job's that runs, can be gone on with, or of which nothing is known;
    /// [`FileError::NotEmpty`], [`FileError::WrongKind`], or what the system says, a missing permission for one.
    pub fn claim(&self, claimant: &Claimant<'_>, verdict: Verdict) -> Result<Claimed, FileError> {
        self.backend.claim(claimant, verdict)
    }

    /// Shows others that the process of the job lives, as long as the lock is held. `None`: the file system has no locks, or the
    /// claim is not the job's.
    pub fn lock(&self) -> Option<ClaimLock> {
        self.backend.lock()
    }

    /// Has the job write files again, where it has committed: its log may have lost that with the servers and the host that noted
    /// it; then a later run does its last tasks again, writes the same files again, and puts them away when it commits again. In a
    /// folder that is not whole nothing is made.
    ///
    /// # Errors
    /// What the system says.
    pub fn reopen(&self) -> Result<(), FileError> {
        self.backend.reopen()
    }

    /// Whether the job has committed, and writes there no more.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_closed(&self) -> Result<bool, FileError> {
        self.backend.is_closed()
    }

    /// Begins the file `name`, which may be in folders of this one (`day=1/part-00000`), to be written through `buffers`, as [`OutputFile`] does. `attempt` tells attempts at the same file apart; what an earlier
    /// life of the same attempt left is replaced. `bytes_hint`: how long it will be, as in [`Planned::bytes`].
    ///
    /// # Errors
    /// The folder is not there or not writable; the disk is full.
    ///
    /// # Panics
    /// There is no buffer, one is shorter than [`ALIGNMENT`](crate::ALIGNMENT), the name [leads elsewhere](crate::is_inside), or that of the attempt has a `/`.
    pub fn create(
        &self,
        name: &str,
        attempt: &str,
        buffers: Vec<IoBuffer>,
        bytes_hint: u64,
    ) -> Result<OutputFile, FileError> {
        let planned = Planned { bytes: bytes_hint, request_bytes: OutputFile::request_bytes(&buffers) };
        Ok(OutputFile::new(self.begin(name, attempt, planned)?, name, buffers))
    }

    /// As [`create`](Self::create), for who writes requests itself and makes the token.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn begin(&self, name: &str, attempt: &str, planned: Planned) -> Result<Arc<dyn WriteFile>, FileError> {
        assert!(is_inside(name) && !attempt.contains('/'), "names inside a directory: {name:?}, {attempt:?}");
        assert!(!attempt.contains('.'), "the name ends where the attempt begins: {attempt:?}");
        self.backend.begin(name, attempt, planned)
    }

    /// Removes a finished file that will not be committed. Doing it again changes nothing; after the commit, only what was left of the attempt
    /// goes.
    ///
    /// # Errors
    /// What the system says.
    pub fn abort(&self, token: &Token) -> Result<(), FileError> {
        self.backend.abort(token)
    }

    /// Gives all files their final names, writes the manifest, and gives the claim back. `attempt` tells attempts at it apart;
    /// `each` calls what it is given for every file, in the order of their rows, as often as it is called. Doing it again
    /// changes nothing.
    ///
    /// # Errors
    /// [`FileError::Foreign`]: somebody else has put something there, which stays; [`FileError::ClaimLost`]; what `each` and the system say. Some
    /// files may have their names then: the job withdraws, or commits again.
    pub fn commit<E: From<FileError>>(
        &self,
        attempt: &str,
        made: Made<'_>,
        each: impl Fn(&mut dyn FnMut(&Token) -> Result<(), FileError>) -> Result<(), E>,
    ) -> Result<(), E> {
        let failure = RefCell::new(None);
        let tokens = |take: &mut dyn FnMut(&Token) -> Result<(), FileError>| {
            each(take).map_err(|error| {
                failure.replace(Some(error));
                CommitError::Tokens
            })
        };
        match self.backend.commit(attempt, made, &tokens) {
            Ok(()) => Ok(()),
            Err(CommitError::File(error)) => Err(error.into()),
            Err(CommitError::Tokens) => Err(failure.take().expect("who gives the tokens has said why")),
        }
    }

    /// Gives the folder back as it was: nothing of the job stays in it, unless its output is whole. Doing it again changes
    /// nothing; what a job that is over does has no effect on others. `lock`: that of the claim, where the caller has it.
    ///
    /// # Errors
    /// What the system says.
    pub fn withdraw(&self, lock: Option<ClaimLock>) -> Result<(), FileError> {
        self.backend.withdraw(lock)
    }
}

/// Looks whether a folder can be written to: it is not there, or empty, and no job that is not over has claimed it. Changes nothing.
///
/// # Errors
/// As [`OutputFolder::claim`].
pub fn check_output_folder(folder: impl Into<Location>) -> Result<(), FileError> {
    let folder = folder.into();
    folder.system()?.check_output_folder(&folder)
}

/// Refuses folders that jobs are writing to, and looks at each once where folders follow each other as they do in a list.
#[derive(Debug, Default)]
pub(crate) struct ClaimCheck {
    /// The last folder that was looked at and those above it that were, each behind those in it.
    looked_at: Vec<Location>,
}

impl ClaimCheck {
    /// Refuses a folder that a job is writing to: the job has claimed it, or one whose folders of values (`day=1`) it is in, and the manifest does not stand there yet.
    ///
    /// # Errors
    /// [`FileError::Unfinished`]; what the system says.
    pub(crate) fn look_at(&mut self, folder: &Location) -> Result<(), FileError> {
        self.next(folder).iter().try_for_each(refuse_unfinished)
    }

    /// Which folders a job would have claimed that writes to this one, but for those that were looked at for the last one.
    fn next(&mut self, folder: &Location) -> Vec<Location> {
        let (mut next, mut above) = (Vec::new(), Some(folder.clone()));
        let known = loop {
            let Some(here) = above else { break self.looked_at.len() };
            if let Some(known) = self.looked_at.iter().position(|other| *other == here) {
                break known;
            }
            let parent =
                here.to_path_buf().parent().filter(|_| here.file_name().is_some_and(says_value)).map(Location::from);
            next.push(here);
            above = parent;
        };
        self.looked_at.splice(..known, next.iter().cloned());
        next
    }
}

/// Refuses a folder that a job has claimed and not committed.
fn refuse_unfinished(folder: &Location) -> Result<(), FileError> {
    let system = folder.system()?;
    // The claim goes after the manifest has come.
    if system.is_there(&folder.join(CLAIM))? && system.look_up(&folder.join(MANIFEST)).is_err() {
        let claim = Claim::read(folder.clone())?.map(Box::new);
        return Err(FileError::Unfinished { path: folder.to_path_buf(), claim });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_of_a_folder_is_looked_for_once_however_many_folders_are_in_it() {
        let mut check = ClaimCheck::default();
        let mut next = |folder: &str| {
            let next = check.next(&Location::new(folder));
            next.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(next("/in/t"), ["/in/t"]);
        assert_eq!(next("/in/t/day=1"), ["/in/t/day=1"]);
        assert_eq!(next("/in/t/day=1/at=x"), ["/in/t/day=1/at=x"]);
        assert_eq!(next("/in/t/day=2/at=x"), ["/in/t/day=2/at=x", "/in/t/day=2"]);
        assert_eq!(next("/in/t/day=2/at=y"), ["/in/t/day=2/at=y"]);
        assert_eq!(next("/in/t/day=2/at=y"), [""; 0]);
        assert_eq!(next("/in/u/day=2"), ["/in/u/day=2", "/in/u"]);
        assert_eq!(next("/in/t"), ["/in/t"], "only what is above the last one is known");
    }
}
