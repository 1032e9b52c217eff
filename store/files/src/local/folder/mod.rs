//! The folder of a job's output on this machine.
//!
//! ```text
//! out/_exobus.claim        which job writes here; made exclusively before work begins, removed last
//! out/.exobus-<job>/       the job's temporaries: nobody else's are ever there, and all of them are
//! out/part-00000 ...       given their names by the commit, which replaces nothing
//! out/day=1/part-00000 ... the same in folders, which the commit makes; temporaries are in folders of these names, too
//! out/_exobus.json         the manifest: the folder is whole when it stands there
//! ```
//!
//! Each step may be stopped anywhere and be done again, by another process as well, and attempts of one job may be in each other's way:
//!
//! - A part gets its name by a link to its temporary, which stays until the manifest stands. So who finds a name taken sees
//!   whether it is by the job's own file: the two names are of one file, or the file has the length and the hash of the token. (It
//!   has, under another temporary name, when the task that wrote it ran again; and where there are no links, files are renamed.)
//! - Everything that gets a name, a folder in the folder too, gets it out of the job's folder of temporaries. Who withdraws renames that folder first: from then
//!   on no attempt, however late, places anything, least of all the manifest.
//! - A claim is made by one attempt, out of a file that no other one writes to, and is the job's until that is over: who finds it the job's
//!   goes on with it, and no attempt at a claim removes anything of the job's, whatever it finds. Only who withdraws does.
//! - A claim is removed, and taken over, by who has its lock; the process of the job has it as long as that runs.
//! - What is not the job's is never removed and never replaced. Names that begin with `_` or `.` are never input; any other
//!   name that is not the job's fails the commit, when it begins and again before the manifest is placed.

mod directory;
mod lock;
#[cfg(test)]
pub(super) mod tests;
mod withdraw;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exobus_store::JobId;

use super::place::{Placed, is_same, place};
use super::small::write_new;
use super::write::{AttemptFile, sync_dir, temporary_name};
use crate::folder::CLAIM_FORMAT;
use crate::{
    CLAIM, Claim, ClaimLock, Claimant, Claimed, CommitError, ContentHash, FileError, FolderBackend, Location,
    LockState, MANIFEST, Made, Manifest, ManifestWriter, Met, Planned, Standing, Token, Tokens, Verdict, WriteFile,
    output::folders_of,
};
use directory::{is_empty_but, make_dir, make_dirs, make_folder, remove_dir, remove_file, visible_names};
pub(super) use lock::lock;

/// What the folders of temporaries are called, before the job.
const TEMPORARIES: &str = ".exobus-";
/// A folder is looked at so often while others change it: tasks that still run may begin files in it, two jobs may want it.
const LOOKS_MAX: usize = 100;

/// The folder, as one job sees it.
#[derive(Clone, Debug)]
pub(super) struct LocalFolder {
    path: PathBuf,
    job: JobId,
}

/// Marks a place where the process may be killed; tests do so at each.
fn step() -> Result<(), FileError> {
    #[cfg(test)]
    tests::step()?;
    Ok(())
}

impl LocalFolder {
    /// The folder `path` for the output of `job`.
    pub(super) fn new(path: &Path, job: JobId) -> Self {
        Self { path: path.to_owned(), job }
    }

    /// Where the job writes its files.
    fn temporaries(&self) -> PathBuf {
        self.path.join(format!("{TEMPORARIES}{}", self.job))
    }

    /// The same when the job has given up, so that nobody finds it.
    fn withdrawn(&self) -> PathBuf {
        self.path.join(format!("{TEMPORARIES}{}.withdrawn", self.job))
    }

    fn failed(&self, operation: &'static str) -> impl Fn(io::Error) -> FileError {
        let path = self.path.clone();
        move |error| FileError::io(&path, operation, 0, error)
    }

    /// Looks at the folder and claims it, where nobody has; `None`: somebody came between.
    fn try_claim(
        &self,
        claimant: &Claimant<'_>,
        verdict: Verdict,
        made_folder: bool,
    ) -> Result<Option<Claimed>, FileError> {
        let refuse = |claim: Claim, standing| {
            let (path, claim) = (self.path.clone(), Box::new(claim));
            Err(FileError::Claimed { path, claim, standing })
        };
        let mut taken_over = None;
        match Claim::read(&self.path)? {
            Some(claim) if claim.job == self.job => return self.claimed().map(Some),
            Some(claim) => match claim.met(claimant.cluster, verdict, claim.standing(&self.path)) {
                Met::TakeOver => taken_over = Some(claim),
                Met::Answer(answer) => return Ok(Some(answer)),
                Met::Refused(standing) => return refuse(claim, standing),
            },
            None if self.is_whole()? => return self.claimed().map(Some),
            None => self.is_empty()?,
        }
        step()?;
        make_dir(&self.temporaries())?;
        // A name of its own: a draft of another attempt may be the claim by now.
        let (draft, place_to) = (self.temporaries().join(format!("claim.{}", JobId::new())), self.path.join(CLAIM));
        let claim = Claim::new(self.job, claimant, made_folder);
        write_new(&draft, |to| claim.write(to))?;
        step()?;
        match taken_over {
            Some(old) => match lock(&self.path) {
                Ok(LockState::Held) => return refuse(old, Standing::Runs),
                Ok(_) if Claim::read(&self.path)?.is_none_or(|now| now.job != old.job) => return Ok(None),
                Ok(_locked) => {
                    Self::new(&self.path, old.job).withdraw_files()?;
                    step()?;
                    fs::rename(&draft, &place_to).map_err(self.failed("take over"))?;
                }
                // It is gone by now.
                Err(_) => return Ok(None),
            },
            None => match place(&draft, &place_to).map_err(self.failed("claim"))? {
                Placed::Now => {}
                // Somebody was faster, another attempt of the job for one.
                Placed::Taken => return Ok(None),
            },
        }
        step()?;
        match self.is_empty() {
            // Another attempt was so much faster that the job has committed.
            Err(_) if self.is_whole()? => self.remove_claim(true)?,
            empty => empty?,
        }
        self.claimed().map(Some)
    }

    /// The folder is the job's.
    fn claimed(&self) -> Result<Claimed, FileError> {
        make_dir(&self.temporaries())?;
        sync_dir(&self.path)?;
        Ok(Claimed::Now)
    }

    fn is_empty(&self) -> Result<(), FileError> {
        is_empty_but(&self.path, |name| name == CLAIM || name.starts_with(TEMPORARIES))
    }

    /// The lock of the claim, whose ever that is; `None`: there is none.
    fn locked(&self) -> Result<Option<LockState>, FileError> {
        for _ in 0..LOOKS_MAX {
            match lock(&self.path) {
                // Who looks how it stands with the job holds it for a moment.
                Ok(LockState::Held) => std::thread::yield_now(),
                Ok(lock) => return Ok(Some(lock)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(self.failed("lock the claim")(error)),
            }
        }
        Ok(Some(LockState::Held))
    }

    /// The claim, if it is the job's.
    fn own_claim(&self) -> Result<Option<Claim>, FileError> {
        Ok(Claim::read(&self.path)?.filter(|claim| claim.job == self.job))
    }

    /// Whether the job has committed.
    fn is_whole(&self) -> Result<bool, FileError> {
        match Manifest::maker(&self.path) {
            Ok(maker) => Ok(maker == Some(self.job)),
            // What the job writes it can read.
            Err(FileError::Damaged { .. } | FileError::Version { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn commit_once(&self, attempt: &str, made: Made<'_>, each: Tokens<'_>) -> Result<(), CommitError> {
        if self.is_whole()? {
            return self.commit_again(each);
        }
        if self.own_claim()?.is_none() {
            return Err(self.claim_lost()?.into());
        }
        if self.path.join(MANIFEST).symlink_metadata().is_ok() && !self.is_whole()? {
            return Err(self.foreign(MANIFEST).into());
        }
        let read = self.has_only_own(each)?;
        let draft = self.temporaries().join("manifest");
        self.write_manifest(&draft, attempt, made, each)?;
        step()?;
        let (mut read, mut folder) = (read.into_iter(), String::new());
        each(&mut |token| {
            let next = folders_of(&token.name).next_back().unwrap_or_default();
            let is_new = folder != next;
            if is_new {
                self.sync_folders(&std::mem::replace(&mut folder, next.to_owned()))?;
            }
            // What was read has its name, and need not be read once more.
            let has_name = read.next() == Some(true);
            self.place_in_folders(token, (is_new, !has_name), attempt)?;
            step()
        })?;
        self.sync_folders(&folder)?;
        sync_dir(&self.path)?;
        self.has_no_other_names(each)?;
        step()?;
        match place(&draft, &self.path.join(MANIFEST)).map_err(self.failed("place the manifest")) {
            Ok(Placed::Now) => {}
            // Another attempt was faster.
            _ if self.is_whole()? => {}
            Ok(Placed::Taken) => return Err(self.foreign(MANIFEST).into()),
            Err(error) => return Err(error.into()),
        }
        step()?;
        sync_dir(&self.path)?;
        step()?;
        Ok(self.finish()?)
    }

    /// The folder is whole: sees that it is so with what this run of the job has made.
    fn commit_again(&self, each: Tokens<'_>) -> Result<(), CommitError> {
        let mut listed = Manifest::read(&self.path)?.map(|manifest| manifest.files).unwrap_or_default().into_iter();
        let differs = |name: &str| FileError::Differs { path: self.path.join(name), job: self.job };
        each(&mut |token| if listed.next() == Some(token.listed()) { Ok(()) } else { Err(differs(&token.name)) })?;
        if listed.next().is_some() {
            return Err(differs(MANIFEST).into());
        }
        Ok(self.finish()?)
    }

    /// Puts away what was needed until the folder was whole.
    fn finish(&self) -> Result<(), FileError> {
        self.remove_temporaries()?;
        step()?;
        // Whoever took the claim of a whole folder over would find that it is not empty.
        self.remove_claim(true)?;
        sync_dir(&self.path)
    }

    fn write_manifest(&self, draft: &Path, attempt: &str, made: Made<'_>, each: Tokens<'_>) -> Result<(), CommitError> {
        // Another attempt may write one, too; each gets its name when it is whole, and they are the same.
        let own = draft.with_extension(attempt);
        // It may have been killed and be here again.
        remove_file(&own)?;
        let mut failure = None;
        let failed = |error| FileError::io(&own, "write", 0, error);
        write_new(&own, |to| {
            let mut manifest = ManifestWriter::begin(to, self.job, made)?;
            failure = each(&mut |token| manifest.add(&token.listed()).map_err(failed)).err();
            manifest.end()
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        step()?;
        Ok(fs::rename(&own, draft).map_err(failed)?)
    }

    /// Gives a file its name, and the folders that it is in theirs, where that is needed.
    fn place_in_folders(&self, token: &Token, (folders, file): (bool, bool), attempt: &str) -> Result<(), FileError> {
        let place = |folders: bool| {
            if folders {
                self.place_folders(&token.name, attempt)?;
            }
            if file { self.place_file(token) } else { Ok(()) }
        };
        match (place(folders), folders_of(&token.name).next_back()) {
            // Who withdraws late removes folders of the names that it had, as long as nothing is in them, whoever has made them. Once it has, it is over.
            (Err(FileError::Io { source, .. }), Some(folder))
                if source.kind() == io::ErrorKind::NotFound && !self.path.join(folder).exists() =>
            {
                place(true)
            }
            (placed, _) => placed,
        }
    }

    /// Makes sure that the folders are there that a file of this name is in.
    fn place_folders(&self, name: &str, attempt: &str) -> Result<(), FileError> {
        for folder in folders_of(name) {
            let (draft, target) = (self.temporaries().join(format!("folder.{attempt}")), self.path.join(folder));
            let is_there = || fs::symlink_metadata(&target).is_ok_and(|metadata| metadata.is_dir());
            if is_there() {
                continue;
            }
            make_dir(&draft)?;
            step()?;
            match fs::rename(&draft, &target) {
                Ok(()) => {}
                // Another attempt was faster.
                Err(_) if is_there() => {}
                Err(_) if fs::symlink_metadata(&target).is_ok() => return Err(self.foreign(folder)),
                Err(error) => return Err(FileError::io(&target, "commit", 0, error)),
            }
            step()?;
        }
        Ok(())
    }

    /// Returns when the names in a folder, and those of folders that it is in, are on the disk.
    fn sync_folders(&self, folder: &str) -> Result<(), FileError> {
        let itself = Some(folder).filter(|folder| !folder.is_empty());
        folders_of(folder).chain(itself).try_for_each(|folder| sync_dir(&self.path.join(folder)))
    }

    fn place_file(&self, token: &Token) -> Result<(), FileError> {
        let (temporary, target) = (self.temporaries().join(&token.temporary), self.path.join(&token.name));
        match fs::symlink_metadata(&temporary) {
            Ok(metadata) if metadata.len() != token.bytes => {
                let reason = format!("it has {} bytes, and {} were written", metadata.len(), token.bytes);
                return Err(FileError::Damaged { path: temporary, reason });
            }
            _ => {}
        }
        match place(&temporary, &target) {
            Ok(Placed::Now) => Ok(()),
            // An attempt before this one may have renamed it, or given the name to what another attempt at the part had written.
            Ok(Placed::Taken) if is_file_of(&target, token.bytes, token.hash)? => Ok(()),
            Ok(Placed::Taken) => Err(self.foreign(&token.name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match is_file_of(&target, token.bytes, token.hash)? {
                    true => Ok(()),
                    false => Err(FileError::io(&temporary, "commit", 0, error)),
                }
            }
            Err(error) => Err(FileError::io(&target, "commit", 0, error)),
        }
    }

    /// Makes sure that all names in the folder that would be input are those of files which an attempt before this one has placed. Which
    /// files were read for that, in the order of `each`: none of those that are left out at the end.
    fn has_only_own(&self, each: Tokens<'_>) -> Result<Vec<bool>, CommitError> {
        let (mut found, mut read) = (visible_names(&self.path)?, Vec::new());
        if found.is_empty() {
            return Ok(read);
        }
        let temporaries = self.temporaries();
        each(&mut |token| {
            let (is_there, target) = (found.contains(token.name.as_str()), self.path.join(&token.name));
            let is_link =
                is_there && is_same(&temporaries.join(&token.temporary), &target).map_err(self.failed("look up"))?;
            let is_read = is_there && !is_link && is_file_of(&target, token.bytes, token.hash)?;
            if is_link || is_read {
                found.remove(token.name.as_str());
            }
            // In which nothing is yet.
            for folder in folders_of(&token.name) {
                found.remove(folder);
            }
            read.push(is_read);
            Ok(())
        })?;
        match found.pop_first() {
            None => Ok(read),
            Some(name) => Err(self.foreign(&name).into()),
        }
    }

    /// Whether all names in the folder that would be input are those of files which the job has placed.
    fn has_no_other_names(&self, each: Tokens<'_>) -> Result<(), CommitError> {
        let mut found = visible_names(&self.path)?;
        each(&mut |token| {
            found.remove(token.name.as_str());
            Ok(())
        })?;
        found.pop_first().map_or(Ok(()), |name| Err(self.foreign(&name).into()))
    }

    fn foreign(&self, name: &str) -> FileError {
        FileError::Foreign { path: self.path.join(name), job: self.job }
    }

    fn claim_lost(&self) -> Result<FileError, FileError> {
        let now = Claim::read(&self.path)?.map(Box::new);
        Ok(FileError::ClaimLost { path: self.path.clone(), job: self.job, now })
    }

    fn remove_temporaries(&self) -> Result<(), FileError> {
        remove_dir(&self.temporaries())
    }

    /// Removes the claim if it is the job's, and the folder if it was made for the job and nothing is in it. `locked`: nobody takes the folder
    /// over meanwhile.
    fn remove_claim(&self, locked: bool) -> Result<(), FileError> {
        let Some(claim) = self.own_claim()? else { return Ok(()) };
        step()?;
        let lock = if locked { None } else { self.locked()? };
        match lock {
            // Who has it may be a host of the job that is frozen, or that does not know yet that the job was taken from it; or it is
            // somebody who takes the folder over, and does not need this claim.
            Some(LockState::Held | LockState::Unknown) => self.take_claim_away()?,
            // As it is while nobody else can change it.
            None | Some(LockState::Ours(_)) if self.own_claim()?.is_some() => remove_file(&self.path.join(CLAIM))?,
            None | Some(LockState::Ours(_)) => return Ok(()),
        }
        step()?;
        if claim.made_folder {
            // Unless there is something in it.
            let _ = fs::remove_dir(&self.path);
        }
        Ok(())
    }

    /// Removes the claim where its lock cannot be had: whose it is, is looked at under a name that nobody else knows, and one that became
    /// another's meanwhile gets its own name again.
    fn take_claim_away(&self) -> Result<(), FileError> {
        let (claim, away) = (self.path.join(CLAIM), self.path.join(format!("{TEMPORARIES}{}.claim", self.job)));
        match fs::rename(&claim, &away) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed.map_err(self.failed("withdraw"))?,
        }
        if CLAIM_FORMAT.read::<Claim>(&Location::from(&away))?.is_some_and(|claim| claim.job != self.job) {
            place(&away, &claim).map_err(self.failed("give the claim back"))?;
        }
        remove_file(&away)
    }
}

/// As [`crate::check_output_folder`].
pub(super) fn check_output_folder(path: &Path) -> Result<(), FileError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(FileError::io(path, "look up", 0, error)),
        Ok(metadata) if !metadata.is_dir() => {
            return Err(FileError::WrongKind { path: path.to_owned(), expected: "directory" });
        }
        Ok(_) => {}
    }
    let Some(claim) = Claim::read(path)? else {
        return is_empty_but(path, |name| name.starts_with(TEMPORARIES));
    };
    match claim.standing(path) {
        // That job's files go before anything is written.
        Standing::Over => Ok(()),
        standing => Err(FileError::Claimed { path: path.to_owned(), claim: Box::new(claim), standing }),
    }
}

impl FolderBackend for LocalFolder {
    fn claim(&self, claimant: &Claimant<'_>, verdict: Verdict) -> Result<Claimed, FileError> {
        let made_folder = make_folder(&self.path)?;
        for _ in 0..LOOKS_MAX {
            if let Some(claimed) = self.try_claim(claimant, verdict, made_folder)? {
                return Ok(claimed);
            }
        }
        let others = io::Error::other("others claim it and give it back all the time");
        Err(FileError::io(&self.path, "claim", 0, others))
    }

    fn lock(&self) -> Option<ClaimLock> {
        match self.locked() {
            Ok(Some(LockState::Ours(lock))) => self.own_claim().is_ok_and(|claim| claim.is_some()).then_some(lock),
            _ => None,
        }
    }

    fn reopen(&self) -> Result<(), FileError> {
        if self.is_closed()? {
            make_dir(&self.temporaries())?;
        }
        Ok(())
    }

    fn is_closed(&self) -> Result<bool, FileError> {
        Ok(!self.temporaries().exists() && self.is_whole()?)
    }

    fn working_place(&self) -> Location {
        self.temporaries().into()
    }

    fn begin(&self, name: &str, attempt: &str, planned: Planned) -> Result<Arc<dyn WriteFile>, FileError> {
        let temporaries = self.temporaries();
        if let Some(folders) = folders_of(name).next_back() {
            make_dirs(&temporaries, folders)?;
        }
        Ok(Arc::new(AttemptFile::begin(&temporaries, &temporary_name(name, attempt), None, planned.bytes)?))
    }

    fn abort(&self, token: &Token) -> Result<(), FileError> {
        remove_file(&self.temporaries().join(&token.temporary))
    }

    fn commit(&self, attempt: &str, made: Made<'_>, tokens: Tokens<'_>) -> Result<(), CommitError> {
        match self.commit_once(attempt, made, tokens) {
            // A host from which the job was taken may have committed meanwhile.
            Err(_) if self.is_whole()? => self.commit_again(tokens),
            committed => committed,
        }
    }

    fn withdraw(&self, lock: Option<ClaimLock>) -> Result<(), FileError> {
        self.withdraw_files()?;
        step()?;
        self.remove_claim(lock.is_some())
    }
}

/// Whether a file is the one that was written.
fn is_file_of(path: &Path, bytes: u64, hash: ContentHash) -> Result<bool, FileError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() == bytes => {
            #[cfg(test)]
            tests::READ.set(tests::READ.get() + 1);
            Ok(ContentHash::of_file(path)? == hash)
        }
        _ => Ok(false),
    }
}
