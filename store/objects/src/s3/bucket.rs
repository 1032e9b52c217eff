//! Buckets, and the requests that are made of an object in one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use exobus_files::{Access, FileError, FileStatus, Location, is_hidden};
use futures::StreamExt as _;
use http::{HeaderValue, header};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectStore as _, ObjectStoreExt as _, PutMode, PutMultipartOptions,
    PutOptions, PutPayload, RetryConfig, UpdateVersion,
};

use crate::client::{Client, on_condition};
use crate::credentials::{Profile, refused};
use crate::failure::failed;
use crate::read::{self, ObjectFile};
use crate::runtime::wait_for;
use crate::settings::server;
use crate::{S3Keys, Settings};

/// The user metadata that names the note of the upload that an object was.
const NOTE: &str = "exobus-note";
const BUCKET_BYTES_MAX: usize = 63;
const KEY_BYTES_MAX: usize = 1024;
/// Buckets that are remembered.
const BUCKETS_MAX: usize = 1000;

/// The buckets of an endpoint, as one holder of keys sees them.
#[derive(Debug)]
pub(super) struct Buckets {
    settings: Settings,
    client: Client,
    keys: OnceLock<AwsCredentialProvider>,
    known: Mutex<BTreeMap<String, Store>>,
}

/// What an object is.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Its length and version.
    pub(super) status: FileStatus,
    /// The note of the upload that it was.
    pub(super) note: Option<String>,
    /// Its ETag.
    pub(super) tag: Option<String>,
}

/// The bytes of a small object, and its ETag.
pub(super) type Small = (Vec<u8>, Option<String>);

/// A bucket.
#[derive(Clone, Debug)]
struct Store {
    store: AmazonS3,
    /// The same, which removes objects one by one: conditions are of one object.
    single: AmazonS3,
}

/// An object, or what the keys of objects begin with.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    store: AmazonS3,
    /// See [`Store`].
    single: AmazonS3,
    location: Location,
    key: Path,
}

impl Buckets {
    pub(super) fn new(settings: Settings, client: Client) -> Self {
        Self { settings, client, keys: OnceLock::new(), known: Mutex::default() }
    }

    pub(super) fn object(&self, location: &Location) -> Result<Object, FileError> {
        let wrong = |expected| FileError::WrongKind { path: location.to_path_buf(), expected };
        let text = location.as_os_str().to_str().ok_or_else(|| wrong("URL that is text"))?;
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let is_of_bucket = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let is_bucket = bucket.len() <= BUCKET_BYTES_MAX && bucket.bytes().all(is_of_bucket);
        if !is_bucket || bucket.starts_with('.') || bucket.is_empty() {
            return Err(wrong("URL of a bucket (s3://bucket/key)"));
        }
        // Two ways to write one key would have the rights of two tenants.
        if key.len() > KEY_BYTES_MAX || key.starts_with('/') || key.contains("//") {
            return Err(wrong("key of an object: 1 to 1024 bytes, with names between its slashes"));
        }
        let key = Path::parse(key).map_err(|_| wrong("key of an object, which has names between its slashes"))?;
        let Store { store, single } = self.bucket(bucket).map_err(|error| failed(location, "look at", &error))?;
        Ok(Object { store, single, location: location.clone(), key })
    }

    fn bucket(&self, name: &str) -> object_store::Result<Store> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = known.get(name) {
            return Ok(store.clone());
        }
        let mut builder = self.builder(name).map_err(|reason| refused(&reason))?;
        if let Some(keys) = self.keys.get() {
            builder = builder.with_credentials(keys.clone());
        }
        let store = builder.clone().build()?;
        let keys = self.keys.get_or_init(|| store.credentials().clone());
        let single = builder.with_credentials(keys.clone()).with_disable_bulk_delete(true).build()?;
        let store = Store { store, single };
        // Jobs choose the names.
        if known.len() >= BUCKETS_MAX {
            known.clear();
        }
        known.insert(name.to_owned(), store.clone());
        Ok(store)
    }

    /// Endpoint, region and keys for a bucket, as configured or else as the AWS tools find them.
    fn builder(&self, bucket: &str) -> Result<AmazonS3Builder, String> {
        let Settings { s3_endpoint, s3_region, s3_path_style, s3_keys, .. } = &self.settings;
        let (builder, profile) = with_keys(s3_keys)?;
        let environment = AmazonS3Builder::from_env();
        let of_environment = |key: AmazonS3ConfigKey| environment.get_config_value(&key);
        let of_profile = |key: &str| profile.as_ref().and_then(|profile| profile.get(key)).map(str::to_owned);
        let endpoint = s3_endpoint.clone().or_else(|| of_environment(AmazonS3ConfigKey::S3Endpoint));
        let endpoint =
            endpoint.or_else(|| of_environment(AmazonS3ConfigKey::Endpoint)).or_else(|| of_profile("endpoint_url"));
        let region = s3_region.clone().or_else(|| of_environment(AmazonS3ConfigKey::Region));
        let region =
            region.or_else(|| of_environment(AmazonS3ConfigKey::DefaultRegion)).or_else(|| of_profile("region"));
        // No certificate of Amazon's is for a host of several names before its own.
        let path_style = s3_path_style.unwrap_or(endpoint.is_some() || bucket.contains('.'));
        let builder = builder
            .with_bucket_name(bucket)
            .with_region(region.unwrap_or_else(|| "us-east-1".to_owned()))
            .with_virtual_hosted_style_request(!path_style)
            // Whether an endpoint has TLS says its URL. Other clients look at this here for a sign of services that give keys.
            .with_allow_http(false)
            // The client repeats.
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .with_http_connector(self.client.to_configured());
        let Some(endpoint) = endpoint else { return Ok(builder) };
        let Some((scheme, host)) = server(&endpoint) else {
            return Err("the endpoint that is configured is no URL of a server (http://127.0.0.1:9000)".to_owned());
        };
        // The library takes an endpoint as it is where buckets are names of hosts.
        let endpoint = if path_style { format!("{scheme}://{host}") } else { format!("{scheme}://{bucket}.{host}") };
        Ok(builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint))
    }
}

/// Whose rights are used, and what the profile says that was asked.
fn with_keys(keys: &S3Keys) -> Result<(AmazonS3Builder, Option<Profile>), String> {
    let named = match keys {
        S3Keys::Given { id, secret } => {
            let builder = AmazonS3Builder::new().with_access_key_id(id).with_secret_access_key(secret);
            return Ok((builder, None));
        }
        S3Keys::Profile(name) => Some(name.as_str()),
        S3Keys::Found => None,
    };
    // Whose profile is named has its keys and no others, least of all those of the machine.
    let builder = if named.is_some() { AmazonS3Builder::new() } else { AmazonS3Builder::from_env() };
    let variable = std::env::var("AWS_PROFILE").ok();
    let name = named.or(variable.as_deref()).unwrap_or("default");
    let profile = Profile::read(name);
    let keys = profile.as_ref().map(Profile::keys).transpose();
    let keys = keys.map_err(|reason| format!("profile {name:?}: {reason}"))?.flatten();
    let in_environment = [AmazonS3ConfigKey::AccessKeyId, AmazonS3ConfigKey::WebIdentityTokenFile];
    let has_some = in_environment.iter().any(|key| builder.get_config_value(key).is_some());
    match (keys, named) {
        (Some(keys), _) if !has_some => Ok((builder.with_credentials(Arc::new(keys)), profile)),
        (None, Some(name)) if profile.is_none() => {
            Err(format!("profile {name:?} is in no file of the AWS tools of this process"))
        }
        (None, Some(name)) => Err(format!("profile {name:?} has no keys")),
        _ => Ok((builder, profile)),
    }
}

impl Object {
    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// The object `name` below this one.
    pub(super) fn join(&self, name: &str) -> Self {
        // As it is: the library would write some letters otherwise.
        let key = Path::parse(format!("{}{name}", self.prefix())).unwrap_or_else(|_| self.key.clone().join(name));
        Self { store: self.store.clone(), single: self.single.clone(), location: self.location.join(name), key }
    }

    fn failed(&self, operation: &'static str) -> impl Fn(Error) -> FileError {
        let location = self.location.clone();
        move |error| failed(&location, operation, &error)
    }

    /// What it is now.
    pub(super) fn status(&self) -> Result<Found, FileError> {
        // That of the empty key would be the bucket's.
        if self.key.as_ref().is_empty() {
            return Err(self.is_missing());
        }
        let (store, key) = (self.store.clone(), self.key.clone());
        let found = wait_for(async move {
            let head = GetOptions { head: true, ..GetOptions::default() };
            let result = store.get_opts(&key, head).await?;
            let note = result.attributes.get(&Attribute::Metadata(NOTE.into())).map(|note| note.to_string());
            Ok((result.meta, note))
        });
        let (meta, note) = found.map_err(self.failed("look up"))?;
        Ok(Found { status: read::status_of(&meta), note, tag: meta.e_tag })
    }

    /// Opens it to be read.
    pub(super) fn open(&self, access: Access) -> Result<Arc<ObjectFile>, FileError> {
        if self.key.as_ref().is_empty() {
            return Err(FileError::WrongKind { path: self.location.to_path_buf(), expected: "file" });
        }
        ObjectFile::open(Arc::new(self.store.clone()), (self.location.clone(), self.key.clone()), access)
    }

    /// Its bytes, or the first `bytes_max` of them, and its ETag; `None`: it is not there.
    pub(super) fn small(&self, bytes_max: u64) -> Result<Option<Small>, FileError> {
        let (store, key) = (self.store.clone(), self.key.clone());
        let read = move || {
            let (store, key) = (store.clone(), key.clone());
            wait_for(async move {
                let result = store.get(&key).await?;
                let (tag, mut bytes) = (result.meta.e_tag.clone(), Vec::new());
                let mut body = result.into_stream();
                while let Some(piece) = body.next().await.transpose()? {
                    let room = (bytes_max as usize).saturating_sub(bytes.len());
                    bytes.extend_from_slice(&piece[..piece.len().min(room)]);
                    if piece.len() >= room {
                        break;
                    }
                }
                Ok::<_, Error>((bytes, tag))
            })
        };
        match read::again_if_broken(read) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("read")(error)),
        }
    }

    /// Puts a small object, where nothing is or in place of the version that has this ETag; `false`: it is otherwise.
    pub(super) fn put_if(&self, bytes: Vec<u8>, tag: Option<String>) -> Result<bool, FileError> {
        let mode = match tag {
            None => PutMode::Create,
            tag => PutMode::Update(UpdateVersion { e_tag: tag, version: None }),
        };
        match self.put_as(bytes, mode) {
            Ok(()) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failed("write")(error)),
        }
    }

    /// Puts a small object, in place of what is there.
    pub(super) fn put(&self, bytes: Vec<u8>) -> Result<(), FileError> {
        self.put_as(bytes, PutMode::Overwrite).map_err(self.failed("write"))
    }

    fn put_as(&self, bytes: Vec<u8>, mode: PutMode) -> Result<(), Error> {
        let (store, key) = (self.store.clone(), self.key.clone());
        wait_for(async move {
            let options = PutOptions { mode, ..PutOptions::default() };
            store.put_opts(&key, PutPayload::from(bytes), options).await.map(drop)
        })
    }

    /// Removes it; where an ETag is given, on the condition that it has that. It need not be there.
    pub(super) fn delete_if(&self, tag: Option<String>) -> Result<(), FileError> {
        let (store, key) = (self.single.clone(), self.key.clone());
        let tag = tag.and_then(|tag| HeaderValue::from_str(&tag).ok());
        let deleted = wait_for(async move {
            match tag {
                Some(tag) => on_condition(header::IF_MATCH, tag, store.delete(&key)).await,
                None => store.delete(&key).await,
            }
        });
        match deleted {
            Ok(()) | Err(Error::NotFound { .. } | Error::Precondition { .. }) => Ok(()),
            Err(error) => Err(self.failed("remove")(error)),
        }
    }

    /// Removes all of these names below it, which need not be there.
    pub(super) fn delete_all(&self, names: Vec<String>) -> Result<(), FileError> {
        if names.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = names.into_iter().map(|name| Ok(self.join(&name).key)).collect();
        let store = self.store.clone();
        let deleted = wait_for(async move {
            let mut deleted = store.delete_stream(futures::stream::iter(keys).boxed());
            while let Some(one) = deleted.next().await {
                match one {
                    Ok(_) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        });
        deleted.map_err(self.failed("remove files of"))
    }

    /// The names in a folder, hidden ones too: what is known of the file that has it, and whether a folder has it.
    pub(super) fn names(&self) -> Result<BTreeMap<String, (Option<FileStatus>, bool)>, FileError> {
        let mut names = BTreeMap::<String, (Option<FileStatus>, bool)>::new();
        let prefix = self.prefix();
        self.pages(Some("/"), None, |result| {
            for folder in result.common_prefixes {
                names.entry(folder.filename().unwrap_or_default().to_owned()).or_default().1 = true;
            }
            for object in result.objects {
                // Some tools put an empty object where a folder is: it has no name in it.
                if let Some(name) = object.location.as_ref().strip_prefix(&prefix).filter(|name| !name.is_empty()) {
                    names.entry(name.to_owned()).or_default().0 = Some(read::status_of(&object));
                }
            }
            true
        })?;
        Ok(names)
    }

    /// The names of all objects below a folder, with those of the folders in it, of which none is hidden, and their ETags.
    pub(super) fn visible_below(&self) -> Result<BTreeMap<String, Option<String>>, FileError> {
        let (mut names, prefix) = (BTreeMap::new(), self.prefix());
        self.pages(None, None, |result| {
            let below = result
                .objects
                .into_iter()
                .filter_map(|object| Some((object.location.as_ref().strip_prefix(&prefix)?.to_owned(), object.e_tag)));
            let is_visible = |name: &str| !name.is_empty() && name.split('/').all(|part| !is_hidden(part.as_ref()));
            names.extend(below.filter(|(name, _)| is_visible(name)));
            true
        })?;
        Ok(names)
    }

    pub(super) fn has_any_below(&self) -> Result<bool, FileError> {
        let mut any = false;
        self.pages(None, Some(1), |result| {
            any |= !result.objects.is_empty();
            !any
        })?;
        Ok(any)
    }

    fn prefix(&self) -> String {
        if self.key.as_ref().is_empty() { String::new() } else { format!("{}/", self.key) }
    }

    /// Calls `take` for each page of the list of what is below it, until that says that it has enough.
    fn pages(
        &self,
        delimiter: Option<&'static str>,
        max_keys: Option<usize>,
        mut take: impl FnMut(object_store::ListResult) -> bool,
    ) -> Result<(), FileError> {
        let mut page_token = None;
        loop {
            let (store, prefix, token) = (self.store.clone(), self.prefix(), page_token.take());
            let delimiter = delimiter.map(Into::into);
            let options = PaginatedListOptions { delimiter, max_keys, page_token: token, ..Default::default() };
            let page = wait_for(async move {
                let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
                store.list_paginated(prefix.as_deref(), options).await
            });
            let page = page.map_err(self.failed("list"))?;
            page_token = page.page_token;
            if !take(page.result) || page_token.is_none() {
                return Ok(());
            }
        }
    }

    /// Begins an upload, which nobody sees; what it becomes will name this note.
    pub(super) fn begin_upload(&self, note: &str) -> Result<String, FileError> {
        let (store, key) = (self.store.clone(), self.key.clone());
        let attributes = Attributes::from_iter([(Attribute::Metadata(NOTE.into()), note.to_owned())]);
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let begun = wait_for(async move { store.create_multipart_opts(&key, options).await });
        begun.map_err(self.failed("begin an upload of"))
    }

    /// Uploads part `index`, from 0 on, of these bytes one behind the other; what the completion calls it.
    pub(super) fn upload_part(&self, upload: &str, index: u32, bytes: Vec<Bytes>) -> Result<String, FileError> {
        let (store, key, upload) = (self.store.clone(), self.key.clone(), upload.to_owned());
        let payload = PutPayload::from_iter(bytes);
        let done = wait_for(async move { store.put_part(&key, &upload, index as usize, payload).await });
        match done {
            Ok(part) => Ok(part.content_id),
            Err(error) => Err(self.failed("upload to")(error)),
        }
    }

    /// Makes an object of an upload, where nothing is.
    pub(super) fn complete(&self, upload: &str, parts: Vec<String>) -> Result<Completed, FileError> {
        let (store, key, upload) = (self.store.clone(), self.key.clone(), upload.to_owned());
        let parts = parts.into_iter().map(|content_id| PartId { content_id }).collect();
        let done = wait_for(async move {
            let complete = store.complete_multipart(&key, &upload, parts);
            on_condition(header::IF_NONE_MATCH, HeaderValue::from_static("*"), complete).await
        });
        match done {
            Ok(done) => Ok(Completed::Done(done.e_tag)),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Completed::Taken),
            Err(Error::NotFound { .. }) => Ok(Completed::Gone),
            Err(error) => Err(self.failed("complete the upload of")(error)),
        }
    }

    /// The upload that it was to be is not there.
    pub(super) fn upload_is_gone(&self) -> FileError {
        FileError::io(&self.location, "complete the upload of", 0, std::io::ErrorKind::NotFound.into())
    }

    /// Nothing is there.
    pub(super) fn is_missing(&self) -> FileError {
        FileError::io(&self.location, "look up", 0, std::io::ErrorKind::NotFound.into())
    }

    /// As [`status`](Self::status); `None`: nothing is there.
    pub(super) fn status_if_there(&self) -> Result<Option<Found>, FileError> {
        match self.status() {
            Ok(found) => Ok(Some(found)),
            Err(FileError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What it is, where it was the upload that has this note.
    pub(super) fn status_if_of(&self, note: &str) -> Result<Option<Found>, FileError> {
        Ok(self.status_if_there()?.filter(|found| found.note.as_deref() == Some(note)))
    }

    /// Gives an upload up. It need not be there.
    pub(super) fn abort(&self, upload: &str) -> Result<(), FileError> {
        let (store, key, upload) = (self.store.clone(), self.key.clone(), upload.to_owned());
        match wait_for(async move { store.abort_multipart(&key, &upload).await }) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("give up the upload of")(error)),
        }
    }
}

/// What became of an upload that was to be completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Completed {
    /// The object, with this ETag.
    Done(Option<String>),
    /// Something has its name.
    Taken,
    /// There is no such upload: it was given up, or is an object already.
    Gone,
}
