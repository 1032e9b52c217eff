//! Files of web servers, by their URLs: read only, since nothing else is the same on all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use exobus_files::{
    Access, Entries, FileError, FileSystem, FolderBackend, Kind, Location, Planned, ReadFile, WriteFile,
};
use exobus_store::JobId;
use object_store::http::{HttpBuilder, HttpStore};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, RetryConfig};

use crate::client::Client;
use crate::failure::failed;
use crate::read::{self, ObjectFile};
use crate::runtime::wait_for;

/// Servers that are remembered.
const SERVERS_MAX: usize = 1000;
/// A longer URL is none.
const URL_BYTES_MAX: usize = 8192;

/// The file system of `http://` and `https://`. Clones share connections.
#[derive(Clone, Debug)]
pub(crate) struct WebFiles {
    client: Client,
    /// By scheme and host.
    servers: Arc<Mutex<BTreeMap<String, Arc<HttpStore>>>>,
}

impl WebFiles {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, servers: Arc::default() }
    }

    /// The server of a URL, and the path on it.
    fn file(&self, location: &Location) -> Result<(Arc<dyn ObjectStore>, Path), FileError> {
        let wrong = |expected| FileError::WrongKind { path: location.to_path_buf(), expected };
        let text = location.as_os_str().to_str().ok_or_else(|| wrong("URL that is text"))?;
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("URL"))?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if text.len() > URL_BYTES_MAX || host.is_empty() || text.contains(|letter: char| letter.is_control()) {
            return Err(wrong("URL of a file"));
        }
        if host.contains('@') {
            return Err(wrong("URL without a name and a password, which a log would show"));
        }
        if rest.contains(['?', '#']) {
            return Err(wrong("URL without a query"));
        }
        // Escapes in it are those of the URL.
        let path = Path::from_url_path(path).map_err(|_| wrong("URL of a file"))?;
        let server = format!("{}://{host}", scheme.to_ascii_lowercase());
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = servers.get(&server) {
            return Ok((store.clone(), path));
        }
        let builder = HttpBuilder::new().with_url(&server).with_http_connector(self.client.to_named());
        let builder = builder.with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() });
        let store = Arc::new(builder.build().map_err(|error| failed(location, "look at", &error))?);
        // Jobs choose the names.
        if servers.len() >= SERVERS_MAX {
            servers.clear();
        }
        servers.insert(server, store.clone());
        Ok((store, path))
    }
}

/// A server is asked for files, and for nothing else.
fn read_only(location: &Location) -> FileError {
    FileError::ReadOnly { path: location.to_path_buf() }
}

impl FileSystem for WebFiles {
    fn look_up(&self, location: &Location) -> Result<Kind, FileError> {
        let (store, path) = self.file(location)?;
        let found = wait_for(async move { store.head(&path).await });
        let meta = found.map_err(|error| failed(location, "look up", &error))?;
        Ok(Kind::File(read::status_of(&meta)))
    }

    /// Web servers do not say what they have: nothing is a folder, and a pattern matches nothing.
    fn list(&self, folder: &Location) -> Result<Entries, FileError> {
        Err(FileError::WrongKind { path: folder.to_path_buf(), expected: "URL of one file: web servers list none" })
    }

    fn open(&self, file: &Location, access: Access) -> Result<Arc<dyn ReadFile>, FileError> {
        let (store, path) = self.file(file)?;
        Ok(ObjectFile::open(store, (file.clone(), path), access)?)
    }

    fn read_small(&self, _file: &Location, _bytes_max: u64) -> Result<Option<Vec<u8>>, FileError> {
        // Claims and manifests are of folders, which there are none.
        Ok(None)
    }

    fn create_new(&self, file: &Location, _planned: Planned) -> Result<Arc<dyn WriteFile>, FileError> {
        Err(read_only(file))
    }

    fn output_folder(&self, folder: &Location, _job: JobId) -> Result<Box<dyn FolderBackend>, FileError> {
        Err(read_only(folder))
    }

    fn check_output_folder(&self, folder: &Location) -> Result<(), FileError> {
        Err(read_only(folder))
    }
}
