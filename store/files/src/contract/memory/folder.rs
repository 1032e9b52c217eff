//! The folder of a job's output where nothing can be renamed.
//!
//! - A file of an attempt is an upload, which the commit completes; its token has the number of the upload.
//! - The claim is put where nothing is; who takes it over replaces it on the condition that it is still the one that was read.
//! - The manifest is an upload, too. A commit begins it, *then* sees that the claim is the job's, and then completes; who withdraws takes the
//!   claim away, *then* aborts all uploads of the job: so what a late commit completes is there no more.

use std::io;
use std::sync::Arc;

use exobus_store::JobId;

use super::{Bucket, MemoryFiles, PutNew, key};
use crate::{
    CLAIM, Claim, ClaimLock, Claimant, Claimed, CommitError, ContentHash, FileError, FolderBackend, Location, MANIFEST,
    Made, Manifest, ManifestWriter, Met, Planned, Token, Tokens, Verdict, WriteFile, WriteRequest,
};

/// The folder, as one job sees it.
#[derive(Debug)]
pub(super) struct MemoryFolder {
    files: MemoryFiles,
    folder: Location,
    job: JobId,
}

/// Refuses a folder in which anything is but a claim.
pub(super) fn is_empty(bucket: &Bucket, folder: &Location) -> Result<(), FileError> {
    match bucket.names(folder).into_keys().find(|name| name != CLAIM) {
        Some(found) => Err(FileError::NotEmpty { path: folder.to_path_buf(), found }),
        None => Ok(()),
    }
}

impl MemoryFolder {
    pub(super) fn new(files: MemoryFiles, folder: Location, job: JobId) -> Self {
        Self { files, folder, job }
    }

    fn own_claim(&self) -> Result<Option<Claim>, FileError> {
        Ok(Claim::read(&self.folder)?.filter(|claim| claim.job == self.job))
    }

    fn is_whole(&self) -> Result<bool, FileError> {
        match Manifest::maker(&self.folder) {
            Ok(maker) => Ok(maker == Some(self.job)),
            Err(FileError::Damaged { .. } | FileError::Version { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Looks at the folder and claims it, where nobody has; `None`: somebody came between.
    fn try_claim(&self, claimant: &Claimant<'_>, verdict: Verdict) -> Result<Option<Claimed>, FileError> {
        let at = key(&self.folder.join(CLAIM));
        let there = self.files.bucket().objects.get(&at).map(|object| object.etag);
        let mut other = None;
        match Claim::read(&self.folder)? {
            Some(claim) if claim.job == self.job => return Ok(Some(Claimed::Now)),
            Some(claim) => match claim.met(claimant.cluster, verdict, claim.standing(&self.folder)) {
                Met::TakeOver => other = Some(Self::new(self.files.clone(), self.folder.clone(), claim.job)),
                Met::Answer(answer) => return Ok(Some(answer)),
                Met::Refused(standing) => {
                    let (path, claim) = (self.folder.to_path_buf(), Box::new(claim));
                    return Err(FileError::Claimed { path, claim, standing });
                }
            },
            None if self.is_whole()? => return Ok(Some(Claimed::Now)),
            None => is_empty(&self.files.bucket(), &self.folder)?,
        }
        let mut bytes = Vec::new();
        let claim = Claim::new(self.job, claimant, false);
        claim.write(&mut bytes).map_err(|error| FileError::io(&self.folder, "claim", 0, error))?;
        // Before, as a job that is stopped here does it again; and after, as its files may have grown until the claim was another's.
        other.iter().for_each(Self::remove_files);
        // As it was when it was read, or absent as it was then.
        let mut bucket = self.files.bucket();
        if bucket.objects.get(&at).map(|object| object.etag) != there {
            return Ok(None);
        }
        bucket.put(at, bytes, None);
        drop(bucket);
        other.iter().for_each(Self::remove_files);
        is_empty(&self.files.bucket(), &self.folder)?;
        Ok(Some(Claimed::Now))
    }

    /// Aborts all uploads of the job, and removes what it has completed, unless the folder is whole.
    fn remove_files(&self) {
        let is_whole = self.is_whole().unwrap_or(true);
        let prefix = format!("{}/", key(&self.folder));
        let mut bucket = self.files.bucket();
        bucket.uploads.retain(|_, upload| upload.job != Some(self.job) || !upload.key.starts_with(&prefix));
        if !is_whole {
            bucket.objects.retain(|key, object| object.job != Some(self.job) || !key.starts_with(&prefix));
        }
    }

    fn remove_claim(&self) -> Result<(), FileError> {
        if self.own_claim()?.is_some() {
            self.files.bucket().objects.remove(&key(&self.folder.join(CLAIM)));
        }
        Ok(())
    }

    fn foreign(&self, name: &str) -> FileError {
        FileError::Foreign { path: self.folder.join(name).to_path_buf(), job: self.job }
    }

    /// Sees that nothing has a name in the folder but files of these tokens; all that are there by now.
    fn has_only_own(&self, tokens: Tokens<'_>) -> Result<(), CommitError> {
        let mut found = self.files.bucket().visible_files(&self.folder);
        tokens(&mut |token| {
            if found.contains(&token.name) && self.is_placed(token) {
                found.remove(&token.name);
            }
            Ok(())
        })?;
        found.pop_first().map_or(Ok(()), |name| Err(self.foreign(&name).into()))
    }

    /// Whether the file is there, of whatever attempt.
    fn is_placed(&self, token: &Token) -> bool {
        let object = self.files.object(&self.folder.join(&token.name));
        object.is_ok_and(|object| ContentHash::of_blocks(0, &object.bytes) == token.hash)
    }

    fn place(&self, token: &Token) -> Result<(), FileError> {
        let upload = u64::from_str_radix(&token.temporary, 16).unwrap_or(0);
        let placed = self.files.bucket().complete(upload);
        match placed {
            PutNew::Done => Ok(()),
            PutNew::Taken | PutNew::Gone if self.is_placed(token) => Ok(()),
            PutNew::Taken => Err(self.foreign(&token.name)),
            PutNew::Gone => {
                let file = self.folder.join(&token.name);
                Err(FileError::io(file, "commit", 0, io::ErrorKind::NotFound.into()))
            }
        }
    }

    fn commit_once(&self, made: Made<'_>, tokens: Tokens<'_>) -> Result<(), CommitError> {
        if self.files.bucket().objects.contains_key(&key(&self.folder.join(MANIFEST))) {
            return Err(self.foreign(MANIFEST).into());
        }
        let failed = |error| FileError::io(self.folder.join(MANIFEST), "write", 0, error);
        let mut bytes = Vec::new();
        let mut manifest = ManifestWriter::begin(&mut bytes, self.job, made).map_err(failed)?;
        tokens(&mut |token| manifest.add(&token.listed()).map_err(failed))?;
        manifest.end().map_err(failed)?;
        let manifest = self.files.begin(&self.folder.join(MANIFEST), Some(self.job));
        let used = bytes.len();
        manifest.write(WriteRequest { index: 0, offset: 0, used, buffer: Box::new(bytes) }).1?;
        if self.own_claim()?.is_none() {
            let now = Claim::read(&self.folder)?.map(Box::new);
            return Err(FileError::ClaimLost { path: self.folder.to_path_buf(), job: self.job, now }.into());
        }
        self.has_only_own(tokens)?;
        tokens(&mut |token| self.place(token))?;
        self.has_only_own(tokens)?;
        let placed = self.files.bucket().complete(manifest.upload);
        match placed {
            PutNew::Done => Ok(()),
            _ if self.is_whole()? => Ok(()),
            PutNew::Taken => Err(self.foreign(MANIFEST).into()),
            PutNew::Gone => {
                Err(FileError::ClaimLost { path: self.folder.to_path_buf(), job: self.job, now: None }.into())
            }
        }
    }

    /// The folder is whole: sees that it is so with what this run of the job has made.
    fn is_the_same(&self, tokens: Tokens<'_>) -> Result<(), CommitError> {
        let mut listed = Manifest::read(&self.folder)?.map(|manifest| manifest.files).unwrap_or_default().into_iter();
        let differs = |name: &str| FileError::Differs { path: self.folder.join(name).to_path_buf(), job: self.job };
        tokens(&mut |token| if listed.next() == Some(token.listed()) { Ok(()) } else { Err(differs(&token.name)) })?;
        listed.next().map_or(Ok(()), |_| Err(differs(MANIFEST).into()))
    }
}

impl FolderBackend for MemoryFolder {
    fn claim(&self, claimant: &Claimant<'_>, verdict: Verdict) -> Result<Claimed, FileError> {
        loop {
            if let Some(claimed) = self.try_claim(claimant, verdict)? {
                return Ok(claimed);
            }
        }
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
        self.folder.clone()
    }

    fn begin(&self, name: &str, _attempt: &str, _planned: Planned) -> Result<Arc<dyn WriteFile>, FileError> {
        Ok(Arc::new(self.files.begin(&self.folder.join(name), Some(self.job))))
    }

    fn abort(&self, token: &Token) -> Result<(), FileError> {
        let upload = u64::from_str_radix(&token.temporary, 16).unwrap_or(0);
        self.files.bucket().uploads.remove(&upload);
        Ok(())
    }

    fn commit(&self, _attempt: &str, made: Made<'_>, tokens: Tokens<'_>) -> Result<(), CommitError> {
        match self.is_whole()? {
            true => self.is_the_same(tokens)?,
            false => self.commit_once(made, tokens)?,
        }
        self.remove_files();
        Ok(self.remove_claim()?)
    }

    fn withdraw(&self, _lock: Option<ClaimLock>) -> Result<(), FileError> {
        self.remove_claim()?;
        self.remove_files();
        Ok(())
    }
}
