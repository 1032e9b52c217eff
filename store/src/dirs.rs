//! The node's directory below each spill directory: made when first needed, locked, removed at the end.
//!
//! ```text
//! <spill_dir>/<node>/lock                 held by the process that uses the directory
//! <spill_dir>/<node>/node                 name of the node, and how often it was started with this directory
//! <spill_dir>/<node>/<stamp>-<n>.spill    spill files
//! <spill_dir>/<node>/index/               index of the spill files, can be rebuilt
//! <spill_dir>/<node>/temporary            says that nobody will come back for the files
//! ```

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use tracing::{info, warn};

use crate::{
    disk::{Disk, DiskFile},
    error::StoreError,
    index::Index,
    spill,
    table::FileId,
};

const LOCK: &str = "lock";
const NODE: &str = "node";
const TEMPORARY: &str = "temporary";

/// All of them.
pub(crate) struct Dirs {
    pub disk: Arc<dyn Disk>,
    pub keep: bool,
    dirs: Vec<NodeDir>,
    handles: Mutex<BTreeMap<FileId, Arc<Handle>>>,
}

struct NodeDir {
    path: PathBuf,
    node: String,
    open: Mutex<Option<OpenDir>>,
}

struct OpenDir {
    _lock: Box<dyn Send + Sync>,
    /// How often the node was started with this directory, this time included.
    starts: u64,
    index: Option<Arc<Index>>,
}

/// A file, opened when first used.
#[derive(Default)]
struct Handle(Mutex<Option<Arc<dyn DiskFile>>>);

impl Dirs {
    pub fn new(disk: Arc<dyn Disk>, spill_dirs: &[PathBuf], node: &str, keep: bool) -> Dirs {
        let dirs = spill_dirs
            .iter()
            .map(|dir| NodeDir { path: dir.join(node), node: node.to_owned(), open: Mutex::new(None) })
            .collect();
        Dirs { disk, keep, dirs, handles: Mutex::default() }
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.dirs.iter().map(|dir| dir.path.clone()).collect()
    }

    /// Makes and locks a directory, once.
    pub fn prepare(&self, dir: usize) -> Result<(), StoreError> {
        let NodeDir { path, node, open } = &self.dirs[dir];
        let mut open = open.lock();
        if open.is_some() {
            return Ok(());
        }
        self.disk.create_dir(path).map_err(|error| StoreError::disk("create", path, error))?;
        let lock = self.disk.lock(&path.join(LOCK)).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => StoreError::DirectoryLocked(path.clone()),
            _ => StoreError::disk("lock", path, error),
        })?;
        let starts = if self.keep {
            let before = self.disk.read_small(&path.join(NODE)).unwrap_or_default();
            let starts = String::from_utf8_lossy(&before).lines().nth(1).and_then(|line| line.parse::<u64>().ok());
            starts.unwrap_or(0) + 1
        } else {
            self.disk
                .write_small(&path.join(TEMPORARY), b"")
                .map_err(|error| StoreError::disk("write", &path.join(TEMPORARY), error))?;
            1
        };
        self.disk
            .write_small(&path.join(NODE), format!("{node}\n{starts}\n").as_bytes())
            .map_err(|error| StoreError::disk("write", &path.join(NODE), error))?;
        *open = Some(OpenDir { _lock: lock, starts, index: None });
        Ok(())
    }

    /// The most starts that any directory remembers.
    pub fn starts(&self) -> u64 {
        self.dirs.iter().filter_map(|dir| dir.open.lock().as_ref().map(|open| open.starts)).max().unwrap_or(1)
    }

    /// Spill files that are in a directory now.
    pub fn spill_files(&self, dir: usize) -> Result<Vec<PathBuf>, StoreError> {
        let path = &self.dirs[dir].path;
        let mut files = self.disk.list(path).map_err(|error| StoreError::disk("list", path, error))?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "spill"));
        files.sort();
        Ok(files)
    }

    /// The index of a prepared directory, opened when first asked for; `None` where none is kept. `damaged` hears of
    /// one that was set aside.
    pub fn index(&self, dir: usize, damaged: impl FnOnce(&Path, String)) -> Option<Arc<Index>> {
        if !self.keep {
            return None;
        }
        let mut open = self.dirs[dir].open.lock();
        let open = open.as_mut()?;
        if open.index.is_none() {
            let place = self.disk.index_dir(&self.dirs[dir].path)?;
            let opened = Index::open(&place);
            if let Some(reason) = opened.damage {
                damaged(&self.dirs[dir].path, reason);
            }
            open.index = opened.index.map(Arc::new);
        }
        open.index.clone()
    }

    /// A file to write, made when it is not there.
    pub fn create(&self, file: FileId, dir: usize, path: &Path, bytes: u64) -> Result<Arc<dyn DiskFile>, StoreError> {
        self.handle(file, || {
            self.prepare(dir)?;
            let hint = bytes.max(spill::FILE_BYTES + spill::REQUEST_BYTES);
            self.disk.create(path, hint).map_err(|error| StoreError::disk("create", path, error))
        })
    }

    /// Whether some open file is written through the page cache.
    pub fn buffered(&self) -> bool {
        let handles: Vec<Arc<Handle>> = self.handles.lock().values().cloned().collect();
        handles.iter().any(|handle| handle.0.lock().as_ref().is_some_and(|file| !file.is_direct()))
    }

    /// A file to read.
    pub fn open(&self, file: FileId, path: &Path) -> Result<Arc<dyn DiskFile>, StoreError> {
        self.handle(file, || self.disk.open(path).map_err(|error| StoreError::disk("open", path, error)))
    }

    fn handle(
        &self,
        file: FileId,
        open: impl FnOnce() -> Result<Arc<dyn DiskFile>, StoreError>,
    ) -> Result<Arc<dyn DiskFile>, StoreError> {
        let handle = self.handles.lock().entry(file).or_default().clone();
        let mut opened = handle.0.lock();
        match &*opened {
            Some(file) => Ok(file.clone()),
            None => Ok(opened.insert(open()?).clone()),
        }
    }

    /// Deletes a file; what is read from it goes on.
    pub fn unlink(&self, file: FileId, dir: usize, path: &Path) {
        self.handles.lock().remove(&file);
        match self.disk.remove(path) {
            Ok(()) => {}
            // Its first write failed before it was made.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => warn!(path = %path.display(), %error, "spill file cannot be deleted"),
        }
        if let Some(index) = self.dirs[dir].open.lock().as_ref().and_then(|open| open.index.clone()) {
            index.remove(path);
        }
    }

    /// Removes everything that this process made, unless it is to be kept.
    pub fn remove(&self) {
        self.handles.lock().clear();
        for dir in &self.dirs {
            let mut open = dir.open.lock();
            if open.is_none() {
                continue;
            }
            if !self.keep
                && let Err(error) = self.disk.remove_dir(&dir.path)
            {
                warn!(path = %dir.path.display(), %error, "spill directory cannot be removed");
            }
            // Index and lock end here: the lock after the files are gone.
            *open = None;
        }
    }

    /// Deletes what killed processes left in the spill directories and nobody will come back for.
    pub fn sweep(&self, spill_dirs: &[PathBuf]) {
        for sibling in spill_dirs.iter().flat_map(|dir| self.disk.list(dir).unwrap_or_default()) {
            if self.dirs.iter().any(|dir| dir.path == sibling)
                || self.disk.read_small(&sibling.join(TEMPORARY)).is_err()
            {
                continue;
            }
            // Only with the lock: its process is gone.
            if let Ok(_lock) = self.disk.lock(&sibling.join(LOCK)) {
                info!(path = %sibling.display(), "removing spill files that a killed process left");
                let _ = self.disk.remove_dir(&sibling);
            }
        }
    }
}
