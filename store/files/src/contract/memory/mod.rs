//! A file system as object stores are, in memory: whole objects under keys, put on the condition that nothing is there; uploads that nobody
//! sees before they are completed. It has no folders, no second names, no locks, and nothing in it is ever given another name.

mod folder;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use exobus_store::JobId;

use self::folder::MemoryFolder;
use crate::{
    Access, Claim, Entries, Entry, FileError, FileStatus, FileSystem, FolderBackend, IoBuffer, Kind, Location, Planned,
    ReadFile, Version, WriteFile, WriteRequest, is_hidden,
};

/// See the module. Clones are the same file system.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles(Arc<Mutex<Bucket>>);

/// What is there.
#[derive(Debug, Default)]
struct Bucket {
    /// By their names, which are whole locations.
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<u64, Upload>,
    /// Counts objects and uploads.
    made: u64,
}

#[derive(Clone, Debug)]
struct Object {
    bytes: Arc<Vec<u8>>,
    /// Rises with each object.
    etag: u64,
    /// Whose upload it was; `None`: no job's.
    job: Option<JobId>,
}

#[derive(Debug)]
struct Upload {
    key: String,
    job: Option<JobId>,
    pieces: BTreeMap<u32, Vec<u8>>,
}

/// What became of a conditional put.
#[derive(Debug, PartialEq, Eq)]
enum PutNew {
    Done,
    Taken,
    /// There is no such upload (any more).
    Gone,
}

impl MemoryFiles {
    /// Puts an object, in place of what is there.
    pub fn put(&self, file: &Location, bytes: &[u8]) {
        self.bucket().put(key(file), bytes.to_vec(), None);
    }

    /// How many objects there are, and how many uploads that were neither completed nor aborted.
    pub fn count(&self) -> (usize, usize) {
        let bucket = self.bucket();
        (bucket.objects.len(), bucket.uploads.len())
    }

    /// The same of what is below a folder.
    pub fn count_below(&self, folder: &Location) -> (usize, usize) {
        let (prefix, bucket) = (format!("{}/", key(folder)), self.bucket());
        let objects = bucket.objects.keys().filter(|key| key.starts_with(&prefix)).count();
        (objects, bucket.uploads.values().filter(|upload| upload.key.starts_with(&prefix)).count())
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn object(&self, file: &Location) -> Result<Object, FileError> {
        let object = self.bucket().objects.get(&key(file)).cloned();
        object.ok_or_else(|| FileError::io(file, "get", 0, io::ErrorKind::NotFound.into()))
    }

    /// Begins an upload.
    fn begin(&self, file: &Location, job: Option<JobId>) -> MemoryUpload {
        let mut bucket = self.bucket();
        bucket.made += 1;
        let upload = bucket.made;
        bucket.uploads.insert(upload, Upload { key: key(file), job, pieces: BTreeMap::new() });
        drop(bucket);
        MemoryUpload {
            files: self.clone(),
            location: file.clone(),
            upload,
            ended: Mutex::new(false),
            completes: job.is_none(),
        }
    }
}

impl Bucket {
    fn put(&mut self, key: String, bytes: Vec<u8>, job: Option<JobId>) {
        self.made += 1;
        self.objects.insert(key, Object { bytes: Arc::new(bytes), etag: self.made, job });
    }

    /// Makes an object of an upload, where nothing is.
    fn complete(&mut self, upload: u64) -> PutNew {
        match self.uploads.get(&upload) {
            None => return PutNew::Gone,
            Some(upload) if self.objects.contains_key(&upload.key) => return PutNew::Taken,
            Some(_) => {}
        }
        let Upload { key, job, pieces } = self.uploads.remove(&upload).expect("it is there");
        self.put(key, pieces.into_values().flatten().collect(), job);
        PutNew::Done
    }

    /// The names in a folder, hidden ones too, and which of them are folders.
    fn names(&self, folder: &Location) -> BTreeMap<String, bool> {
        let prefix = format!("{}/", key(folder));
        let keys = self.objects.range(prefix.clone()..).map_while(|(key, _)| key.strip_prefix(&prefix));
        keys.map(|rest| rest.split_once('/').map_or((rest.to_owned(), false), |(name, _)| (name.to_owned(), true)))
            .collect()
    }

    /// The names in a folder that would be input.
    fn visible_names(&self, folder: &Location) -> BTreeSet<String> {
        self.names(folder).into_keys().filter(|name| !is_hidden(name.as_ref())).collect()
    }

    /// The same of files, and of those in folders in it, behind the names of these.
    fn visible_files(&self, folder: &Location) -> BTreeSet<String> {
        let prefix = format!("{}/", key(folder));
        let keys = self.objects.range(prefix.clone()..).map_while(|(key, _)| key.strip_prefix(&prefix));
        let is_visible = |name: &&str| name.split('/').all(|part| !is_hidden(part.as_ref()));
        keys.filter(is_visible).map(str::to_owned).collect()
    }
}

impl Object {
    fn status(&self) -> FileStatus {
        FileStatus { bytes: self.bytes.len() as u64, version: Version::of(&self.etag.to_le_bytes()) }
    }
}

fn key(location: &Location) -> String {
    location.as_os_str().to_str().expect("names of objects are texts").trim_end_matches('/').to_owned()
}

impl FileSystem for MemoryFiles {
    fn look_up(&self, location: &Location) -> Result<Kind, FileError> {
        let bucket = self.bucket();
        match bucket.objects.get(&key(location)) {
            Some(object) => Ok(Kind::File(object.status())),
            None if !bucket.names(location).is_empty() => Ok(Kind::Folder),
            None => Err(FileError::io(location, "look up", 0, io::ErrorKind::NotFound.into())),
        }
    }

    fn list(&self, folder: &Location) -> Result<Entries, FileError> {
        let bucket = self.bucket();
        let entry = |name: String| match bucket.objects.get(&key(&folder.join(&name))) {
            Some(object) => Entry { name: name.into(), kind: Kind::File(object.status()) },
            None => Entry { name: name.into(), kind: Kind::Folder },
        };
        let entries: Vec<_> = bucket.visible_names(folder).into_iter().map(entry).map(Ok).collect();
        Ok(Box::new(entries.into_iter()))
    }

    fn open(&self, file: &Location, _access: Access) -> Result<Arc<dyn ReadFile>, FileError> {
        let object = self.object(file)?;
        Ok(Arc::new(MemoryFile { files: self.clone(), location: file.clone(), etag: object.etag }))
    }

    fn read_small(&self, file: &Location, bytes_max: u64) -> Result<Option<Vec<u8>>, FileError> {
        let object = self.bucket().objects.get(&key(file)).cloned();
        Ok(object.map(|object| object.bytes[..object.bytes.len().min(bytes_max as usize)].to_vec()))
    }

    fn create_new(&self, file: &Location, _planned: Planned) -> Result<Arc<dyn WriteFile>, FileError> {
        match self.is_there(file)? {
            true => Err(FileError::Exists { path: file.to_path_buf() }),
            false => Ok(Arc::new(self.begin(file, None))),
        }
    }

    fn output_folder(&self, folder: &Location, job: JobId) -> Result<Box<dyn FolderBackend>, FileError> {
        Ok(Box::new(MemoryFolder::new(self.clone(), folder.clone(), job)))
    }

    fn check_output_folder(&self, folder: &Location) -> Result<(), FileError> {
        let Some(claim) = Claim::read(folder)? else { return folder::is_empty(&self.bucket(), folder) };
        let standing = claim.standing(folder);
        Err(FileError::Claimed { path: folder.to_path_buf(), claim: Box::new(claim), standing })
    }
}

/// An object that is read on the condition that it is still the same.
#[derive(Debug)]
struct MemoryFile {
    files: MemoryFiles,
    location: Location,
    etag: u64,
}

impl ReadFile for MemoryFile {
    fn location(&self) -> &Location {
        &self.location
    }

    fn status(&self) -> Result<FileStatus, FileError> {
        Ok(self.files.object(&self.location)?.status())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], needed: usize) -> Result<usize, FileError> {
        assert!(needed <= buffer.len(), "{needed} bytes into a buffer of {}", buffer.len());
        let object = self.files.object(&self.location)?;
        if object.etag != self.etag {
            return Err(FileError::Changed { path: self.location.to_path_buf() });
        }
        let bytes = &object.bytes[object.bytes.len().min(offset as usize)..];
        if bytes.len() < needed {
            let (offset, expected) = (offset.max(object.bytes.len() as u64), offset + needed as u64);
            return Err(FileError::EndedEarly { path: self.location.to_path_buf(), offset, expected });
        }
        let read = bytes.len().min(buffer.len());
        buffer[..read].copy_from_slice(&bytes[..read]);
        Ok(read)
    }
}

/// An upload of several pieces.
#[derive(Debug)]
struct MemoryUpload {
    files: MemoryFiles,
    location: Location,
    upload: u64,
    ended: Mutex<bool>,
    /// Whether it becomes an object at its end; what a job uploads does so at the commit.
    completes: bool,
}

impl WriteFile for MemoryUpload {
    fn location(&self) -> &Location {
        &self.location
    }

    fn write(&self, request: WriteRequest) -> (IoBuffer, Result<(), FileError>) {
        let WriteRequest { index, offset, used, buffer } = request;
        let written = match self.files.bucket().uploads.get_mut(&self.upload) {
            Some(upload) => {
                upload.pieces.insert(index, buffer[..used].to_vec());
                Ok(())
            }
            None => Err(FileError::io(&self.location, "upload", offset, io::ErrorKind::NotFound.into())),
        };
        (buffer, written)
    }

    fn finish(&self, bytes: u64) -> Result<String, FileError> {
        let mut bucket = self.files.bucket();
        let uploaded =
            bucket.uploads.get(&self.upload).map(|upload| upload.pieces.values().map(Vec::len).sum::<usize>());
        if uploaded.is_some_and(|uploaded| uploaded as u64 != bytes) {
            let reason = format!("{uploaded:?} bytes were uploaded, not {bytes}");
            return Err(FileError::Damaged { path: self.location.to_path_buf(), reason });
        }
        match self.completes.then(|| bucket.complete(self.upload)) {
            Some(PutNew::Taken) => return Err(FileError::Exists { path: self.location.to_path_buf() }),
            Some(PutNew::Gone) => {
                return Err(FileError::io(&self.location, "complete", 0, io::ErrorKind::NotFound.into()));
            }
            Some(PutNew::Done) | None => {}
        }
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        Ok(format!("{:016x}", self.upload))
    }
}

impl Drop for MemoryUpload {
    fn drop(&mut self) {
        if !*self.ended.get_mut().unwrap_or_else(PoisonError::into_inner) {
            self.files.bucket().uploads.remove(&self.upload);
        }
    }
}
