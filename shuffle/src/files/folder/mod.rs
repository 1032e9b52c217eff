//! The folder of a job's output, from the claim to the manifest.
//!
//! ```text
//! out/_exobus.claim        which job writes here; made exclusively before work begins, removed last
//! out/.exobus-<job>/       the job's temporaries: nobody else's are ever there, and all of them are
//! out/part-00000 ...       given their names by the commit, which replaces nothing
//! out/_exobus.json         the manifest: the folder is whole when it stands there
//! ```
//!
//! [`claim`](OutputFolder::claim), then work, then [`commit`](OutputFolder::commit) or [`withdraw`](OutputFolder::withdraw). Each
//! may be stopped anywhere and be called again, by another process as well, and attempts of one job may be in each other's way:
//!
//! - A part gets its name by a link to its temporary, which stays until the manifest stands. So who finds a name taken sees
//!   whether it is by the job's own file: the two names are of one file, or the file has the length and the hash of the token. (It
//!   has, under another temporary name, when the task that wrote it ran again; and where there are no links, files are renamed.)
//! - Everything that gets a name gets it out of the job's folder of temporaries. Who withdraws renames that folder first: from then
//!   on no attempt, however late, places anything, least of all the manifest.
//! - A claim is made by one attempt, out of a file that no other one writes to, and is the job's until that is over: who finds it the job's
//!   goes on with it, and no attempt at a claim removes anything of the job's, whatever it finds. Only who withdraws does.
//! - A claim is removed, and taken over, by who has its lock; the process of the job has it as long as that runs.
//! - What is not the job's is never removed and never replaced. Names that begin with `_` or `.` are never input; any other
//!   name that is not the job's fails the commit, when it begins and again before the manifest is placed.

mod claim;
mod format;
mod manifest;
mod place;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use exobus_actors::futures::Home;
use exobus_actors::ids::JobId;

pub use claim::{CLAIM, Claim, ClaimLock, Standing};
pub use manifest::{MANIFEST, Manifest, ManifestFile, Schema};
pub use place::{Placed, place};

use super::FileError;
use super::content_hash::ContentHash;
use super::output::{Token, sync_dir};
use claim::Lock;
use format::write_new;
use manifest::ManifestWriter;
use place::is_same;

/// What the folders of temporaries are called, before the job.
const TEMPORARIES: &str = ".exobus-";
/// A folder is looked at so often while others change it: tasks that still run may begin files in it, two jobs may want it.
const LOOKS_MAX: usize = 100;

/// The folder, as one job sees it.
#[derive(Clone, Debug)]
pub struct OutputFolder {
    path: PathBuf,
    job: JobId,
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

/// Marks a place where the process may be killed; tests do so at each.
fn step() -> Result<(), FileError> {
    #[cfg(test)]
    tests::step()?;
    Ok(())
}

impl OutputFolder {
    /// The folder `path` for the output of `job`.
    pub fn new(path: &Path, job: JobId) -> Self {
        Self { path: path.to_owned(), job }
    }

    /// Where the job writes its files.
    pub fn temporaries(&self) -> PathBuf {
        self.path.join(format!("{TEMPORARIES}{}", self.job))
    }

    /// The job.
    pub(crate) fn job(&self) -> JobId {
        self.job
    }

    /// The same when the job has given up, so that nobody finds it.
    fn withdrawn(&self) -> PathBuf {
        self.path.join(format!("{TEMPORARIES}{}.withdrawn", self.job))
    }

    fn failed(&self, operation: &'static str) -> impl Fn(io::Error) -> FileError {
        let path = self.path.clone();
        move |error| FileError::io(&path, operation, 0, error)
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
    pub fn claim(&self, program: &str, home: &Home, verdict: Option<(JobId, bool)>) -> Result<Claimed, FileError> {
        let made_folder = make_folder(&self.path)?;
        for _ in 0..LOOKS_MAX {
            let refuse = |claim: Claim, standing| {
                let (path, claim) = (self.path.clone(), Box::new(claim));
                Err(FileError::Claimed { path, claim, standing })
            };
            let mut taken_over = None;
            match Claim::read(&self.path)? {
                Some(claim) if claim.job == self.job => return self.claimed(),
                Some(claim) => match (verdict, claim.standing(&self.path)) {
                    (_, Standing::Runs) => return refuse(claim, Standing::Runs),
                    (Some((job, true)), _) if job == claim.job => taken_over = Some(claim),
                    (Some((job, false)), _) if job == claim.job => return refuse(claim, Standing::Runs),
                    (_, Standing::Over) => return Ok(Claimed::Over(claim.job)),
                    (_, Standing::OnCluster) if claim.cluster == home.cluster => return Ok(Claimed::Ask(claim.job)),
                    (_, standing) => return refuse(claim, standing),
                },
                None if self.is_whole()? => return self.claimed(),
                None => self.is_empty()?,
            }
            step()?;
            make_dir(&self.temporaries())?;
            // A name of its own: a draft of another attempt may be the claim by now.
            let (draft, place_to) = (self.temporaries().join(format!("claim.{}", JobId::new())), self.path.join(CLAIM));
            let claim = Claim::new(self.job, program, home, made_folder);
            write_new(&draft, |to| claim.write(to))?;
            step()?;
            match taken_over {
                Some(old) => match claim::lock(&self.path) {
                    Ok(Lock::Held) => return refuse(old, Standing::Runs),
                    Ok(_) if Claim::read(&self.path)?.is_none_or(|now| now.job != old.job) => continue,
                    Ok(_locked) => {
                        Self::new(&self.path, old.job).withdraw_files()?;
                        step()?;
                        fs::rename(&draft, &place_to).map_err(self.failed("take over"))?;
                    }
                    // It is gone by now.
                    Err(_) => continue,
                },
                None => match place(&draft, &place_to).map_err(self.failed("claim"))? {
                    Placed::Now => {}
                    // Somebody was faster, another attempt of the job for one.
                    Placed::Taken => continue,
                },
            }
            step()?;
            match self.is_empty() {
                // Another attempt was so much faster that the job has committed.
                Err(_) if self.is_whole()? => self.remove_claim(true)?,
                empty => empty?,
            }
            return self.claimed();
        }
        Err(FileError::io(&self.path, "claim", 0, io::Error::other("others claim it and give it back all the time")))
    }

    /// The folder is the job's.
    fn claimed(&self) -> Result<Claimed, FileError> {
        make_dir(&self.temporaries())?;
        sync_dir(&self.path)?;
        Ok(Claimed::Now)
    }

    /// Makes what the job writes to again, where it has committed: its log may have lost that with the servers and the host that noted
    /// it; then a later run does its last tasks again, writes the same files again, and puts them away when it commits again. In a
    /// folder that is not whole nothing is made.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn reopen(&self) -> Result<(), FileError> {
        if !self.temporaries().exists() && self.is_whole()? {
            make_dir(&self.temporaries())?;
        }
        Ok(())
    }

    fn is_empty(&self) -> Result<(), FileError> {
        is_empty_but(&self.path, |name| name == CLAIM || name.starts_with(TEMPORARIES))
    }

    /// Shows others that the process of the job lives, as long as the lock is held. `None`: the file system has no locks, or the
    /// claim is not the job's.
    pub fn lock(&self) -> Option<ClaimLock> {
        match self.locked() {
            Ok(Some(Lock::Ours(lock))) => self.own_claim().is_ok_and(|claim| claim.is_some()).then_some(lock),
            _ => None,
        }
    }

    /// The lock of the claim, whose ever that is; `None`: there is none.
    fn locked(&self) -> Result<Option<Lock>, FileError> {
        for _ in 0..LOOKS_MAX {
            match claim::lock(&self.path) {
                // Who looks how it stands with the job holds it for a moment.
                Ok(Lock::Held) => std::thread::yield_now(),
                Ok(lock) => return Ok(Some(lock)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(self.failed("lock the claim")(error)),
            }
        }
        Ok(Some(Lock::Held))
    }

    /// The claim, if it is the job's.
    fn own_claim(&self) -> Result<Option<Claim>, FileError> {
        Ok(Claim::read(&self.path)?.filter(|claim| claim.job == self.job))
    }

    /// Whether the job has committed.
    pub(crate) fn is_whole(&self) -> Result<bool, FileError> {
        match Manifest::maker(&self.path) {
            Ok(maker) => Ok(maker == Some(self.job)),
            // What the job writes it can read.
            Err(FileError::Damaged { .. } | FileError::Version { .. }) => Ok(false),
            Err(error) => Err(error),
        }
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
        (program, schema): (&str, &Schema),
        each: impl Fn(&mut dyn FnMut(&Token) -> Result<(), FileError>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.commit_once(attempt, (program, schema), &each) {
            // A host from which the job was taken may have committed meanwhile.
            Err(_) if self.is_whole()? => self.commit_again(&each),
            committed => committed,
        }
    }

    fn commit_once<E: From<FileError>>(
        &self,
        attempt: &str,
        (program, schema): (&str, &Schema),
        each: &impl Fn(&mut dyn FnMut(&Token) -> Result<(), FileError>) -> Result<(), E>,
    ) -> Result<(), E> {
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
        self.write_manifest(&draft, attempt, (program, schema), each)?;
        step()?;
        let mut read = read.into_iter();
        each(&mut |token| {
            // What was read has its name, and need not be read once more.
            if read.next() != Some(true) {
                self.place_file(token)?;
            }
            step()
        })?;
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
    fn commit_again<E: From<FileError>>(
        &self,
        each: &impl Fn(&mut dyn FnMut(&Token) -> Result<(), FileError>) -> Result<(), E>,
    ) -> Result<(), E> {
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

    fn write_manifest<E: From<FileError>>(
        &self,
        draft: &Path,
        attempt: &str,
        (program, schema): (&str, &Schema),
        each: &impl Fn(&mut dyn FnMut(&Token) -> Result<(), FileError>) -> Result<(), E>,
    ) -> Result<(), E> {
        // Another attempt may write one, too; each gets its name when it is whole, and they are the same.
        let own = draft.with_extension(attempt);
        // It may have been killed and be here again.
        remove_file(&own)?;
        let mut failure = None;
        let failed = |error| FileError::io(&own, "write", 0, error);
        write_new(&own, |to| {
            let mut manifest = ManifestWriter::begin(to, self.job, program, schema)?;
            failure = each(&mut |token| manifest.add(&token.listed()).map_err(failed)).err();
            manifest.end()
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        step()?;
        Ok(fs::rename(&own, draft).map_err(failed)?)
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
    fn has_only_own<E: From<FileError>>(
        &self,
        each: &impl Fn(&mut dyn FnMut(&Token) -> Result<(), FileError>) -> Result<(), E>,
    ) -> Result<Vec<bool>, E> {
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
            read.push(is_read);
            Ok(())
        })?;
        match found.pop_first() {
            None => Ok(read),
            Some(name) => Err(self.foreign(&name).into()),
        }
    }

    /// Whether all names in the folder that would be input are those of files which the job has placed.
    fn has_no_other_names<E: From<FileError>>(
        &self,
        each: &impl Fn(&mut dyn FnMut(&Token) -> Result<(), FileError>) -> Result<(), E>,
    ) -> Result<(), E> {
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

    /// Gives the folder back as it was: nothing of the job stays in it, unless its output is whole. Doing it again changes
    /// nothing; what a job that is over does has no effect on others. `lock`: that of the claim, where the caller has it.
    ///
    /// # Errors
    /// What the system says.
    pub fn withdraw(&self, lock: Option<ClaimLock>) -> Result<(), FileError> {
        self.withdraw_files()?;
        step()?;
        self.remove_claim(lock.is_some())
    }

    /// Removes the job's files, but for the claim.
    fn withdraw_files(&self) -> Result<(), FileError> {
        let (temporaries, withdrawn) = (self.temporaries(), self.withdrawn());
        // What was begun before is ended first: the name has to be free.
        for from in [None, Some(&temporaries)] {
            match from.map_or(Ok(()), |from| fs::rename(from, &withdrawn)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                renamed => renamed.map_err(self.failed("withdraw"))?,
            }
            step()?;
            self.remove_placed(&withdrawn)?;
            step()?;
            remove_dir(&withdrawn)?;
        }
        Ok(())
    }

    /// Removes the files that were given their names before the job withdrew.
    fn remove_placed(&self, withdrawn: &Path) -> Result<(), FileError> {
        // Nobody can place a manifest any more.
        if !withdrawn.exists() || self.is_whole()? {
            return Ok(());
        }
        let mut left = visible_names(&self.path)?;
        let failed = self.failed("withdraw");
        for entry in fs::read_dir(withdrawn).map_err(&failed)? {
            let name = entry.map_err(&failed)?.file_name();
            let Some((of, _attempt)) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
            if left.contains(of) && is_same(&withdrawn.join(&name), &self.path.join(of)).map_err(&failed)? {
                remove_file(&self.path.join(of))?;
                step()?;
                left.remove(of);
            }
        }
        // Only where files are renamed is any of those that are left the job's.
        let Some(draft) = manifest::FORMAT.read::<Manifest>(&withdrawn.join("manifest"))?.filter(|_| !left.is_empty())
        else {
            return Ok(());
        };
        for file in draft.files.iter().filter(|file| left.contains(&file.name)) {
            let path = self.path.join(&file.name);
            if is_file_of(&path, file.bytes, file.hash)? {
                remove_file(&path)?;
            }
        }
        Ok(())
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
            Some(Lock::Held | Lock::Unknown) => self.take_claim_away()?,
            // As it is while nobody else can change it.
            None | Some(Lock::Ours(_)) if self.own_claim()?.is_some() => remove_file(&self.path.join(CLAIM))?,
            None | Some(Lock::Ours(_)) => return Ok(()),
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
        if claim::FORMAT.read::<Claim>(&away)?.is_some_and(|claim| claim.job != self.job) {
            place(&away, &claim).map_err(self.failed("give the claim back"))?;
        }
        remove_file(&away)
    }
}

/// Looks whether a folder can be written to: it is not there, or empty, and no job that is not over has claimed it. Changes nothing.
///
/// # Errors
/// As [`OutputFolder::claim`].
pub fn check_output_folder(path: &Path) -> Result<(), FileError> {
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

/// Refuses a folder that a job is writing to: it has claimed it, and the manifest does not stand there yet.
pub(super) fn check_input_folder(path: &Path) -> Result<(), FileError> {
    match path.join(CLAIM).symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(FileError::io(path, "look up", 0, error)),
        Ok(_) => {}
    }
    // The claim goes after the manifest has come.
    if path.join(MANIFEST).exists() {
        return Ok(());
    }
    Err(FileError::Unfinished { path: path.to_owned(), claim: Claim::read(path)?.map(Box::new) })
}

/// Makes sure that a folder is there; true when it was made.
fn make_folder(path: &Path) -> Result<bool, FileError> {
    let failed = |operation| move |error| FileError::io(path, operation, 0, error);
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => {
            return Err(FileError::WrongKind { path: path.to_path_buf(), expected: "directory" });
        }
        Ok(_) => {
            // An attempt before this one may have made it, and ended there. Who may not read the parent did not.
            let _ = path.parent().map(sync_dir);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_there = |folder: &Path| folder.as_os_str().is_empty() || folder.exists();
            let new: Vec<&Path> = path.ancestors().take_while(|folder| !is_there(folder)).collect();
            fs::create_dir_all(path).map_err(failed("create the directory"))?;
            // As with files: what a log says to be there has to be.
            new.into_iter().filter_map(Path::parent).try_for_each(sync_dir)?;
            return Ok(true);
        }
        Err(error) => return Err(failed("look up")(error)),
    }
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|error| failed("write to the directory")(error.into()))?;
    Ok(false)
}

fn make_dir(path: &Path) -> Result<(), FileError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(FileError::io(path, "create the directory", 0, error))
        }
        _ => Ok(()),
    }
}

fn is_empty_but(path: &Path, excepted: impl Fn(&str) -> bool) -> Result<(), FileError> {
    let failed = |error| FileError::io(path, "list", 0, error);
    let mut found: Option<String> = None;
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        // Always the same one of several.
        if !excepted(&name) && found.as_ref().is_none_or(|found| name < *found) {
            found = Some(name);
        }
    }
    found.map_or(Ok(()), |found| Err(FileError::NotEmpty { path: path.to_path_buf(), found }))
}

/// The names in a folder that would be input.
fn visible_names(path: &Path) -> Result<BTreeSet<String>, FileError> {
    let names = super::input::visible_names(path)?;
    Ok(names.into_iter().map(|name| name.to_string_lossy().into_owned()).collect())
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

fn remove_file(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::io(path, "remove", 0, error)),
        _ => Ok(()),
    }
}

/// Removes a folder of temporaries, in which tasks that still run may begin files meanwhile.
fn remove_dir(path: &Path) -> Result<(), FileError> {
    let mut last = io::Error::from(io::ErrorKind::DirectoryNotEmpty);
    for _ in 0..LOOKS_MAX {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => return Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => {
                last = error
            }
            Err(error) => return Err(FileError::io(path, "remove", 0, error)),
        }
    }
    Err(FileError::io(path, "remove", 0, last))
}
