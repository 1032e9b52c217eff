//! The folder of a job's output in a bucket, where nothing can be renamed and nothing locked.
//!
//! ```text
//! out/_exobus.claim       put on the condition that there is none; replaced on the condition that it is the one that was read
//! out/.exobus-<job>/<id>  a note of each upload of the job: which one it is, and what file it will be
//! out/part-00000 ...      uploads, which the commit completes on the condition that nothing has the name
//! out/_exobus.json        the manifest, an upload, too: the folder is whole when it is completed
//! ```
//!
//! Each step may be the last, and may be done again by another process as well.
//!
//! - Who begins or ends a file writes its note, *then* sees that the claim is the job's, and gives the upload up where it is not. Who withdraws removes the claim, *then*
//!   gives up all uploads of which there are notes. So no upload is begun that nobody gives up.
//! - A commit begins the manifest, *then* sees that the claim is the job's, *then* completes. Who takes files back gives manifests up first, *then* sees whether the folder is
//!   whole, *then* removes files. So who completes late finds no upload, and what is whole loses nothing.
//! - Whoever finds a claim its own does what follows a claim: an attempt may have ended in between.
//! - An object names the note of the upload that it was: what the job has completed is known by that, and what it has not completed is never removed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use exobus_files::{
    CLAIM, Claim, ClaimLock, Claimant, Claimed, CommitError, ContentHash, FileError, FolderBackend, IoBuffer, Location,
    MANIFEST, Made, Manifest, ManifestWriter, Met, Planned, Token, Tokens, Verdict, WriteFile, WriteRequest,
};
use exobus_store::JobId;

use super::bucket::{Completed, Object};
use super::note::Note;
use super::upload::Upload;
use crate::runtime::wait_for;

/// What the folders of notes are called, before the job.
pub(super) const NOTES: &str = ".exobus-";
const CLAIM_BYTES_MAX: u64 = 64 << 10;
/// Files that are placed before more tokens are asked for.
const BATCH: usize = 1000;
/// Threads that wait for answers.
const AT_ONCE: usize = 16;
/// A claim is looked at so often while others put theirs.
const LOOKS_MAX: u32 = 50;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Does something for each, several at a time; the first failure ends it.
fn at_once<T: Sync>(all: &[T], work: impl Fn(&T) -> Result<(), FileError> + Sync) -> Result<(), FileError> {
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let lock = || failure.lock().unwrap_or_else(PoisonError::into_inner);
    let run = || {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| lock().is_none()) {
            if let Err(error) = work(one) {
                lock().get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..all.len().min(AT_ONCE) {
            // Without a thread the others do its share.
            if thread::Builder::new().name("objects".to_owned()).spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// The folder, as one job sees it.
#[derive(Debug)]
pub(super) struct S3Folder {
    folder: Object,
    notes: Object,
    job: JobId,
}

/// What a commit has placed.
#[derive(Default)]
struct Placed {
    /// The ETags of files by their names, where they are known.
    tags: BTreeMap<String, String>,
    /// The notes of their uploads.
    notes: Vec<String>,
}

impl S3Folder {
    pub(super) fn new(folder: Object, job: JobId) -> Self {
        let notes = folder.join(&format!("{NOTES}{job}"));
        Self { folder, notes, job }
    }

    fn location(&self) -> &Location {
        self.folder.location()
    }

    /// The claim, and the ETag that it has.
    fn claim_there(&self) -> Result<Option<(Claim, Option<String>)>, FileError> {
        let there = self.folder.join(CLAIM).small(CLAIM_BYTES_MAX)?;
        there.map(|(bytes, tag)| Ok((Claim::decode(&bytes)?, tag))).transpose()
    }

    fn is_claimed(&self) -> Result<bool, FileError> {
        Ok(self.claim_there()?.is_some_and(|(claim, _)| claim.job == self.job))
    }

    fn is_whole(&self) -> Result<bool, FileError> {
        match Manifest::maker(self.location()) {
            Ok(maker) => Ok(maker == Some(self.job)),
            Err(FileError::Damaged { .. } | FileError::Version { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the job may begin and end files there: it is the job's, or the job has committed, may not know it, and writes again.
    fn is_written_to(&self) -> Result<bool, FileError> {
        Ok(self.is_claimed()? || self.is_whole()?)
    }

    fn claim_is_lost(&self) -> FileError {
        let now = Claim::read(self.location()).ok().flatten().map(Box::new);
        FileError::ClaimLost { path: self.location().to_path_buf(), job: self.job, now }
    }

    /// Looks at the folder and claims it, where nobody has; `None`: somebody came between.
    fn try_claim(&self, claimant: &Claimant<'_>, verdict: Verdict) -> Result<Option<Claimed>, FileError> {
        let tag_there = match self.claim_there()? {
            Some((claim, _)) if claim.job == self.job => return self.claimed().map(Some),
            Some((claim, tag)) => match claim.met(claimant.cluster, verdict, claim.standing(self.location())) {
                Met::TakeOver => match tag {
                    Some(tag) => Some(tag),
                    None => return Err(self.failed("take over", "the store gives its objects no ETags")),
                },
                Met::Answer(answer) => return Ok(Some(answer)),
                Met::Refused(standing) => {
                    let (path, claim) = (self.location().to_path_buf(), Box::new(claim));
                    return Err(FileError::Claimed { path, claim, standing });
                }
            },
            None if self.is_whole()? => return self.claimed().map(Some),
            None => {
                super::is_empty(&self.folder)?;
                None
            }
        };
        let mut bytes = Vec::new();
        let claim = Claim::new(self.job, claimant, false);
        claim.write(&mut bytes).map_err(|error| FileError::io(self.location(), "claim", 0, error))?;
        match self.folder.join(CLAIM).put_if(bytes, tag_there)? {
            true => self.claimed().map(Some),
            false => Ok(None),
        }
    }

    /// The folder is the job's, since now or since an attempt that may have ended here: what others have left goes, and nothing else is there.
    fn claimed(&self) -> Result<Claimed, FileError> {
        for name in self.folder.names()?.into_keys() {
            let other = name.strip_prefix(NOTES).and_then(|job| job.parse().ok()).filter(|job| *job != self.job);
            if let Some(other) = other {
                Self::new(self.folder.clone(), other).remove_files()?;
            }
        }
        match super::is_empty(&self.folder) {
            // The job has committed, maybe by another attempt which was so much faster.
            Err(_) if self.is_whole()? => {}
            // Another attempt of it is committing: it has its own files only, as that one sees to.
            Err(FileError::NotEmpty { .. }) if self.has_notes()? => {}
            empty => empty?,
        }
        Ok(Claimed::Now)
    }

    fn has_notes(&self) -> Result<bool, FileError> {
        self.notes.has_any_below()
    }

    fn failed(&self, operation: &'static str, reason: &str) -> FileError {
        FileError::io(self.location(), operation, 0, std::io::Error::other(reason))
    }

    /// Gives up all uploads of the job, and removes what it has completed, unless the folder is whole.
    fn remove_files(&self) -> Result<(), FileError> {
        let ids: Vec<String> = self.notes.names()?.into_keys().collect();
        let notes = Mutex::<Vec<(String, Note)>>::default();
        at_once(&ids, |id| {
            if let Some(note) = Note::read(&self.notes, id)? {
                notes.lock().unwrap_or_else(PoisonError::into_inner).push((id.clone(), note));
            }
            Ok(())
        })?;
        let notes = notes.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Manifests first: from then on the folder is whole, or no commit makes it so.
        let (manifests, files): (Vec<_>, Vec<_>) = notes.into_iter().partition(|(_, note)| note.name == MANIFEST);
        let give_up = |(_, note): &(String, Note)| self.folder.join(&note.name).abort(&note.upload);
        at_once(&manifests, give_up)?;
        let is_whole = self.is_whole()?;
        at_once(&files, |(id, note)| {
            let object = self.folder.join(&note.name);
            object.abort(&note.upload)?;
            match object.status_if_of(id)?.filter(|_| !is_whole) {
                Some(found) => object.delete_if(found.tag),
                None => Ok(()),
            }
        })?;
        self.notes.delete_all(ids)
    }

    fn remove_claim(&self) -> Result<(), FileError> {
        match self.claim_there()? {
            Some((claim, tag)) if claim.job == self.job => self.folder.join(CLAIM).delete_if(tag),
            _ => Ok(()),
        }
    }

    fn foreign(&self, name: &str) -> FileError {
        FileError::Foreign { path: self.folder.join(name).location().to_path_buf(), job: self.job }
    }

    /// Sees that nothing has a name in the folder but files of these tokens; `placed`: the ETags that those have that were placed just now.
    fn has_only_own(&self, tokens: Tokens<'_>, placed: &BTreeMap<String, String>) -> Result<(), CommitError> {
        let mut found = self.folder.visible_below()?;
        // Who has taken the folder over, or back, has begun to remove what was placed.
        if placed.keys().any(|name| !found.contains_key(name)) {
            return Err(self.claim_is_lost().into());
        }
        found.retain(|name, tag| tag.is_none() || placed.get(name) != tag.as_ref());
        if found.is_empty() {
            return Ok(());
        }
        let mut there = Vec::new();
        tokens(&mut |token| {
            if found.contains_key(&token.name) {
                there.push(token.clone());
            }
            Ok(())
        })?;
        let own = Mutex::<Vec<String>>::default();
        at_once(&there, |token| {
            if self.is_placed(token)? {
                own.lock().unwrap_or_else(PoisonError::into_inner).push(token.name.clone());
            }
            Ok(())
        })?;
        for name in own.into_inner().unwrap_or_else(PoisonError::into_inner) {
            found.remove(&name);
        }
        found.pop_first().map_or(Ok(()), |(name, _)| Err(self.foreign(&name).into()))
    }

    /// Whether the file is there, of whatever attempt.
    fn is_placed(&self, token: &Token) -> Result<bool, FileError> {
        let object = self.folder.join(&token.name);
        let Some(found) = object.status_if_there()?.filter(|found| found.status.bytes == token.bytes) else {
            return Ok(false);
        };
        // That of another attempt at the task has the same bytes: what is known of a task may be lost after its file was placed.
        Ok(found.note.as_ref() == Some(&token.temporary) || ContentHash::of_file(object.location())? == token.hash)
    }

    /// Completes the upload of a file; its ETag, where that is known.
    fn place(&self, token: &Token) -> Result<Option<String>, FileError> {
        let object = self.folder.join(&token.name);
        let note = Note::read(&self.notes, &token.temporary)?;
        let completed = match &note {
            Some(note) => object.complete(&note.upload, note.parts.clone())?,
            None => Completed::Gone,
        };
        match completed {
            Completed::Done(tag) => Ok(tag),
            _ if self.is_placed(token)? => {
                note.map_or(Ok(()), |note| object.abort(&note.upload))?;
                Ok(None)
            }
            Completed::Taken => Err(self.foreign(&token.name)),
            Completed::Gone if !self.is_claimed()? => Err(self.claim_is_lost()),
            Completed::Gone => Err(object.upload_is_gone()),
        }
    }

    /// Completes the uploads of all files, many at a time.
    fn place_all(&self, tokens: Tokens<'_>) -> Result<Placed, CommitError> {
        let placed = Mutex::<Placed>::default();
        let place = |token: &Token| {
            let tag = self.place(token)?;
            let mut placed = placed.lock().unwrap_or_else(PoisonError::into_inner);
            placed.notes.push(token.temporary.clone());
            if let Some(tag) = tag {
                placed.tags.insert(token.name.clone(), tag);
            }
            Ok(())
        };
        let mut batch = Vec::new();
        tokens(&mut |token| {
            batch.push(token.clone());
            match batch.len() < BATCH {
                true => Ok(()),
                false => at_once(&std::mem::take(&mut batch), place),
            }
        })?;
        at_once(&batch, place)?;
        Ok(placed.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn commit_once(&self, made: Made<'_>, tokens: Tokens<'_>) -> Result<(), CommitError> {
        let manifest_at = self.folder.join(MANIFEST);
        if manifest_at.status_if_there()?.is_some() {
            return Err(self.foreign(MANIFEST).into());
        }
        let failed = |error| FileError::io(manifest_at.location(), "write", 0, error);
        let mut bytes = Vec::new();
        let mut manifest = ManifestWriter::begin(&mut bytes, self.job, made).map_err(failed)?;
        tokens(&mut |token| manifest.add(&token.listed()).map_err(failed))?;
        manifest.end().map_err(failed)?;
        let used = bytes.len();
        let planned = Planned { bytes: used as u64, request_bytes: used as u64 };
        let manifest = Upload::begin(manifest_at.clone(), planned, Some((self.notes.clone(), MANIFEST)))?;
        manifest.write(WriteRequest { index: 0, offset: 0, used, buffer: Box::new(bytes) }).1?;
        if !self.is_claimed()? {
            return Err(self.claim_is_lost().into());
        }
        self.has_only_own(tokens, &BTreeMap::new())?;
        let placed = self.place_all(tokens)?;
        self.has_only_own(tokens, &placed.tags)?;
        let id = manifest.finish(used as u64)?;
        let Some(note) = Note::read(&self.notes, &id)? else { return Err(self.claim_is_lost().into()) };
        match manifest_at.complete(&note.upload, note.parts)? {
            Completed::Done(_) => {}
            _ if self.is_whole()? => {}
            Completed::Taken => return Err(self.foreign(MANIFEST).into()),
            Completed::Gone => return Err(self.claim_is_lost().into()),
        }
        // Their uploads are no more, so that nothing need be looked at.
        Ok(self.notes.delete_all(placed.notes)?)
    }

    /// The folder is whole: sees that it is so with what this run of the job has made.
    fn is_the_same(&self, tokens: Tokens<'_>) -> Result<(), CommitError> {
        let manifest = Manifest::read(self.location())?;
        let mut listed = manifest.map(|manifest| manifest.files).unwrap_or_default().into_iter();
        let differs =
            |name: &str| FileError::Differs { path: self.folder.join(name).location().to_path_buf(), job: self.job };
        tokens(&mut |token| if listed.next() == Some(token.listed()) { Ok(()) } else { Err(differs(&token.name)) })?;
        listed.next().map_or(Ok(()), |_| Err(differs(MANIFEST).into()))
    }
}

/// A file of the job.
#[derive(Debug)]
struct FolderFile {
    upload: Upload,
    folder: S3Folder,
}

impl WriteFile for FolderFile {
    fn location(&self) -> &Location {
        self.upload.location()
    }

    fn write(&self, request: WriteRequest) -> (IoBuffer, Result<(), FileError>) {
        self.upload.write(request)
    }

    fn finish(&self, bytes: u64) -> Result<String, FileError> {
        let id = self.upload.finish(bytes)?;
        // Its note may be written once more after the job has withdrawn, and looked at all notes.
        if !self.folder.is_written_to()? {
            self.upload.give_up()?;
            return Err(self.folder.claim_is_lost());
        }
        Ok(id)
    }
}

impl FolderBackend for S3Folder {
    fn claim(&self, claimant: &Claimant<'_>, verdict: Verdict) -> Result<Claimed, FileError> {
        for look in 0..LOOKS_MAX {
            if let Some(claimed) = self.try_claim(claimant, verdict)? {
                return Ok(claimed);
            }
            // Others want it, too.
            let wait = LOOK_AGAIN.mul_f64(f64::from(look + 1) * rand::random::<f64>());
            wait_for(async move { tokio::time::sleep(wait).await });
        }
        Err(self.failed("claim", "the claim is another one each time that it is looked at"))
    }

    fn lock(&self) -> Option<ClaimLock> {
        None
    }

    fn reopen(&self) -> Result<(), FileError> {
        Ok(())
    }

    /// Uploads can be begun at any time.
    fn is_closed(&self) -> Result<bool, FileError> {
        Ok(false)
    }

    fn working_place(&self) -> Location {
        self.location().clone()
    }

    fn begin(&self, name: &str, _attempt: &str, planned: Planned) -> Result<Arc<dyn WriteFile>, FileError> {
        let upload = Upload::begin(self.folder.join(name), planned, Some((self.notes.clone(), name)))?;
        // Dropped, it is given up.
        match self.is_written_to()? {
            true => Ok(Arc::new(FolderFile { upload, folder: Self::new(self.folder.clone(), self.job) })),
            false => Err(self.claim_is_lost()),
        }
    }

    fn abort(&self, token: &Token) -> Result<(), FileError> {
        let Some(note) = Note::read(&self.notes, &token.temporary)? else { return Ok(()) };
        let object = self.folder.join(&note.name);
        object.abort(&note.upload)?;
        // Who takes back what was placed finds it by its note.
        if object.status_if_of(&token.temporary)?.is_some() {
            return Ok(());
        }
        self.notes.join(&token.temporary).delete_if(None)
    }

    fn commit(&self, _attempt: &str, made: Made<'_>, tokens: Tokens<'_>) -> Result<(), CommitError> {
        let committed = if self.is_whole()? { None } else { Some(self.commit_once(made, tokens)) };
        match committed {
            Some(Ok(())) => {}
            // Another attempt at it may have been faster, at each step.
            Some(Err(error)) if matches!(error, CommitError::Tokens) || !self.is_whole()? => return Err(error),
            _ => self.is_the_same(tokens)?,
        }
        self.remove_files()?;
        Ok(self.remove_claim()?)
    }

    fn withdraw(&self, _lock: Option<ClaimLock>) -> Result<(), FileError> {
        self.remove_claim()?;
        self.remove_files()
    }
}
