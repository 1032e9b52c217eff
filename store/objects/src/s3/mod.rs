//! Objects of S3 as files: keys are paths, and what keys begin with, up to a `/`, are folders.

mod bucket;
mod folder;
mod note;
mod upload;

use std::ffi::OsString;
use std::io;
use std::sync::Arc;

use exobus_files::{
    Access, CLAIM, Claim, Entries, Entry, FileError, FileStatus, FileSystem, FolderBackend, Kind, Location, Planned,
    ReadFile, WriteFile, is_hidden,
};
use exobus_store::JobId;

use self::bucket::Buckets;
use self::folder::S3Folder;
use self::upload::Upload;
use crate::client::Client;
use crate::{S3Keys, Settings};

/// The file system of `s3://`. Clones share connections and keys.
#[derive(Clone, Debug)]
pub(crate) struct S3Files(Arc<Seen>);

/// What is seen with whose rights.
#[derive(Debug)]
struct Seen {
    /// What is below these buckets and keys, the longer ones first.
    of_profiles: Vec<(String, Buckets)>,
    others: Buckets,
}

impl S3Files {
    pub(crate) fn new(settings: &Settings, client: &Client) -> Self {
        let buckets = |keys: S3Keys| Buckets::new(Settings { s3_keys: keys, ..settings.clone() }, client.clone());
        let of_profile =
            |(url, profile): (&String, &String)| (place(url).to_owned(), buckets(S3Keys::Profile(profile.clone())));
        let mut of_profiles: Vec<_> = settings.s3_profiles.iter().map(of_profile).collect();
        of_profiles.sort_by_key(|(url, _)| std::cmp::Reverse(url.len()));
        Self(Arc::new(Seen { of_profiles, others: buckets(settings.s3_keys.clone()) }))
    }

    fn object(&self, location: &Location) -> Result<bucket::Object, FileError> {
        let name = location.display();
        let is_below =
            |of: &str| place(&name).strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let of_profile = self.0.of_profiles.iter().find(|(of, _)| is_below(of));
        of_profile.map_or(&self.0.others, |(_, buckets)| buckets).object(location)
    }
}

/// Bucket and key of a URL, however its scheme is written.
fn place(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, place)| place).trim_end_matches('/')
}

/// Whether something in a folder of output is a job's own business: what others have begun and left.
fn is_of_jobs(name: &str) -> bool {
    name.starts_with(folder::NOTES)
}

/// Refuses a folder in which anything is but a claim.
fn is_empty(folder: &bucket::Object) -> Result<(), FileError> {
    // The claim, and what jobs have left that are over.
    let found = folder.names()?.into_keys().find(|name| name != CLAIM && !is_of_jobs(name));
    found.map_or(Ok(()), |found| Err(FileError::NotEmpty { path: folder.location().to_path_buf(), found }))
}

impl FileSystem for S3Files {
    fn look_up(&self, location: &Location) -> Result<Kind, FileError> {
        let object = self.object(location)?;
        match object.status_if_there()? {
            Some(found) => Ok(Kind::File(found.status)),
            None if object.has_any_below()? => Ok(Kind::Folder),
            None => Err(object.is_missing()),
        }
    }

    fn list(&self, folder: &Location) -> Result<Entries, FileError> {
        let names = self.object(folder)?.names()?.into_iter().filter(|(name, _)| !is_hidden(name.as_ref()));
        let at = folder.clone();
        let entry = move |(name, (status, is_folder)): (String, (Option<FileStatus>, bool))| match (status, is_folder) {
            (Some(_), true) => {
                let both =
                    io::Error::new(io::ErrorKind::InvalidData, "an object has this name, and a folder has it, too");
                Err(FileError::io(at.join(name), "list", 0, both))
            }
            (status, _) => Ok(Entry { name: OsString::from(name), kind: status.map_or(Kind::Folder, Kind::File) }),
        };
        Ok(Box::new(names.map(entry)))
    }

    fn open(&self, file: &Location, access: Access) -> Result<Arc<dyn ReadFile>, FileError> {
        Ok(self.object(file)?.open(access)?)
    }

    fn read_small(&self, file: &Location, bytes_max: u64) -> Result<Option<Vec<u8>>, FileError> {
        Ok(self.object(file)?.small(bytes_max)?.map(|(bytes, _)| bytes))
    }

    fn create_new(&self, file: &Location, planned: Planned) -> Result<Arc<dyn WriteFile>, FileError> {
        let object = self.object(file)?;
        if file.file_name().is_none() {
            return Err(FileError::WrongKind { path: file.to_path_buf(), expected: "name of a file" });
        }
        match self.is_there(file)? {
            true => Err(FileError::Exists { path: file.to_path_buf() }),
            false => Ok(Arc::new(Upload::begin(object, planned, None)?)),
        }
    }

    fn write_bytes(&self) -> u64 {
        upload::PART_BYTES_MIN
    }

    fn output_folder(&self, folder: &Location, job: JobId) -> Result<Box<dyn FolderBackend>, FileError> {
        Ok(Box::new(S3Folder::new(self.object(folder)?, job)))
    }

    fn check_output_folder(&self, folder: &Location) -> Result<(), FileError> {
        let Some(claim) = Claim::read(folder)? else { return is_empty(&self.object(folder)?) };
        let standing = claim.standing(folder);
        Err(FileError::Claimed { path: folder.to_path_buf(), claim: Box::new(claim), standing })
    }
}
