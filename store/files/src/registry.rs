//! Which file system has what: the local one every path, the others what has their scheme.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::{Access, FileError, FileSystem, LocalFiles, Location, ReadFile};

static LOCAL: LazyLock<Arc<LocalFiles>> = LazyLock::new(Arc::default);
/// Of the process: tasks are functions that are known by their names, and what they read and write is named in their parameters.
static OTHERS: RwLock<BTreeMap<String, Arc<dyn FileSystem>>> = RwLock::new(BTreeMap::new());

/// Has `system` answer for URLs of this scheme, in all of the process, from now on; who was registered for it before is replaced.
///
/// # Panics
/// It is `file`, which is the local file system's.
pub fn register(scheme: &str, system: Arc<dyn FileSystem>) {
    assert!(!scheme.eq_ignore_ascii_case("file"), "files of this machine have their file system");
    let mut others = OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    others.insert(scheme.to_ascii_lowercase(), system);
}

impl Location {
    /// The file system that has it.
    ///
    /// # Errors
    /// [`FileError::UnknownScheme`].
    pub fn system(&self) -> Result<Arc<dyn FileSystem>, FileError> {
        let Some(scheme) = self.scheme() else { return Ok(LOCAL.clone()) };
        let others = OTHERS.read().unwrap_or_else(PoisonError::into_inner);
        match others.get(&scheme.to_ascii_lowercase()) {
            Some(system) => Ok(system.clone()),
            None => {
                let known = std::iter::once("file").chain(others.keys().map(String::as_str));
                let known = known.collect::<Vec<_>>().join(", ");
                Err(FileError::UnknownScheme { path: self.to_path_buf(), scheme: scheme.to_owned(), known })
            }
        }
    }

    /// Opens the file to be read.
    ///
    /// # Errors
    /// [`FileError::UnknownScheme`]; those of [`FileSystem::open`].
    pub fn open(&self, access: Access) -> Result<Arc<dyn ReadFile>, FileError> {
        self.system()?.open(self, access)
    }
}
