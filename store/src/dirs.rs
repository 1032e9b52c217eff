//! The node's directory below each spill directory: made when first needed, locked, removed at the end unless there are
//! files to be kept.
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
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use tracing::{info, warn};

use crate::{
    disk::{Disk, DiskFile},
    error::StoreError,
    index::Index,
    table::FileId,
};

const LOCK: &str = "lock";
const NODE: &str = "node";
const TEMPORARY: &str = "temporary";
/// Goes behind everything else: what was not removed any more when a process was killed is found by the next one.
const LAST: [&str; 2] = [LOCK, TEMPORARY];

/// All of them.
pub(crate) struct Dirs {
    pub disk: Arc<dyn Disk>,
    pub keep: bool,
    dirs: Vec<NodeDir>,
    handles: Mutex<BTreeMap<FileId, Arc<Handle>>>,
    /// With more files than this, those that nobody uses are closed before another one is opened.
    open_max: usize,
    buffered: AtomicBool,
    /// Descriptors were short once: said so once.
    was_short: AtomicBool,
    /// Where a thread waits that finds no free descriptor.
    short: (Mutex<()>, Condvar),
}

/// Out of descriptors, an open is tried so often, after a pause each: 10 s in all.
const SHORT_TRIES: u32 = 100;
const SHORT_PAUSE: Duration = Duration::from_millis(100);

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

/// A file that is never synced again once a sync of it failed: after the error the system holds the bytes for clean, and
/// the next sync says that all is well.
struct Distrusted {
    inside: Arc<dyn DiskFile>,
    /// Held while it is synced, so that the one thread that is told of the error is not overtaken by another.
    failed: Mutex<Option<(io::ErrorKind, String)>>,
}

impl DiskFile for Distrusted {
    fn write_at(&self, offset: u64, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.inside.write_at(offset, buffers)
    }

    fn read_at(&self, offset: u64, buffers: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        self.inside.read_at(offset, buffers)
    }

    fn sync(&self) -> io::Result<()> {
        let mut failed = self.failed.lock();
        if let Some((kind, text)) = &*failed {
            return Err(io::Error::new(*kind, format!("an earlier sync failed: {text}")));
        }
        self.inside.sync().inspect_err(|error| *failed = Some((error.kind(), error.to_string())))
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.inside.truncate(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.inside.len()
    }

    fn is_direct(&self) -> bool {
        self.inside.is_direct()
    }
}

/// A file, opened when first used, and again after it was closed for want of descriptors.
#[derive(Default)]
struct Handle(Mutex<Opened>);

#[derive(Default)]
struct Opened {
    file: Option<Arc<Distrusted>>,
    /// This process made it.
    made: bool,
}

impl Opened {
    /// Closes it unless it is in use; what a failed sync said must not be forgotten.
    fn close(&mut self) {
        self.file.take_if(|file| Arc::strong_count(file) == 1 && file.failed.lock().is_none());
    }
}

/// Half of the descriptors that this process may have: inputs, outputs and sockets are others', who cannot close what is
/// held here.
fn open_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |files| usize::try_from(files / 2).unwrap_or(usize::MAX))
}

impl Dirs {
    pub fn new(disk: Arc<dyn Disk>, spill_dirs: &[PathBuf], node: &str, keep: bool) -> Dirs {
        let dirs = spill_dirs
            .iter()
            .map(|dir| NodeDir { path: dir.join(node), node: node.to_owned(), open: Mutex::new(None) })
            .collect();
        Dirs {
            disk,
            keep,
            dirs,
            handles: Mutex::default(),
            open_max: open_max(),
            buffered: AtomicBool::new(false),
            was_short: AtomicBool::new(false),
            short: Default::default(),
        }
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.dirs.iter().map(|dir| dir.path.clone()).collect()
    }

    /// Makes and locks a directory, once.
    pub fn prepare(&self, dir: usize) -> Result<(), StoreError> {
        let mut open = self.dirs[dir].open.lock();
        if open.is_none() {
            *open = Some(self.make(dir, None)?);
        }
        Ok(())
    }

    /// Makes and locks a directory anew that was removed from under this process. What was open in it is read on.
    fn remake(&self, dir: usize) -> Result<(), StoreError> {
        let NodeDir { path, open, .. } = &self.dirs[dir];
        let mut open = open.lock();
        // Another thread may have made it meanwhile.
        if self.disk.read_small(&path.join(NODE)).is_err() {
            let starts = open.as_ref().map(|open| open.starts);
            warn!(path = %path.display(), "spill directory was removed, making it again");
            *open = Some(self.make(dir, starts)?);
        }
        Ok(())
    }

    /// `starts`: as many as are known.
    fn make(&self, dir: usize, starts: Option<u64>) -> Result<OpenDir, StoreError> {
        let NodeDir { path, node, .. } = &self.dirs[dir];
        self.disk.create_dir(path).map_err(|error| StoreError::disk("create", path, error))?;
        let lock = self.disk.lock(&path.join(LOCK)).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => StoreError::DirectoryLocked(path.clone()),
            _ => StoreError::disk("lock", path, error),
        })?;
        let starts = if self.keep {
            // Of a process that kept nothing: others would sweep what this one keeps.
            let _ = self.disk.remove(&path.join(TEMPORARY));
            let before = self.disk.read_small(&path.join(NODE)).unwrap_or_default();
            let before = String::from_utf8_lossy(&before).lines().nth(1).and_then(|line| line.parse::<u64>().ok());
            starts.unwrap_or(before.unwrap_or(0) + 1)
        } else {
            self.disk
                .write_small(&path.join(TEMPORARY), b"")
                .map_err(|error| StoreError::disk("write", &path.join(TEMPORARY), error))?;
            1
        };
        self.disk
            .write_small(&path.join(NODE), format!("{node}\n{starts}\n").as_bytes())
            .map_err(|error| StoreError::disk("write", &path.join(NODE), error))?;
        Ok(OpenDir { _lock: lock, starts, index: None })
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

    /// A file to write, made when it is not there, with so many bytes of the disk set aside for it.
    pub fn create(
        &self,
        file: FileId,
        dir: usize,
        path: &Path,
        bytes_hint: u64,
    ) -> Result<Arc<dyn DiskFile>, StoreError> {
        self.handle(file, |made| {
            if made {
                return self.reopen(path);
            }
            self.prepare(dir)?;
            let created = match self.disk.create(path, bytes_hint) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => match self.remake(dir) {
                    Ok(()) => self.disk.create(path, bytes_hint),
                    // It may be there another time.
                    Err(_) => Err(error),
                },
                created => created,
            };
            created.map_err(|error| StoreError::disk("create", path, error))
        })
        .inspect(|_| self.made(file))
    }

    fn made(&self, file: FileId) {
        let handle = self.handles.lock().get(&file).cloned();
        if let Some(handle) = handle {
            handle.0.lock().made = true;
        }
    }

    fn reopen(&self, path: &Path) -> Result<Arc<dyn DiskFile>, StoreError> {
        self.disk.reopen(path).map_err(|error| StoreError::disk("open", path, error))
    }

    /// Whether some file was opened that is written through the page cache.
    pub fn buffered(&self) -> bool {
        self.buffered.load(Ordering::Relaxed)
    }

    /// Where there are no free descriptors, closes files that nobody uses just now, and tries again for a while: others
    /// give some back, too.
    fn when_short<T>(&self, file: FileId, mut open: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut tries = 0;
        loop {
            match open() {
                Err(error) if error.is_shortage() && tries < SHORT_TRIES => {
                    if tries == 0 && !self.was_short.swap(true, Ordering::Relaxed) {
                        warn!(%error, "no free descriptor, closing spill files that are not in use");
                    }
                    tries += 1;
                    if !self.close_unused(file) {
                        self.short.1.wait_for(&mut self.short.0.lock(), SHORT_PAUSE);
                    }
                }
                other => return other,
            }
        }
    }

    /// Closes all files that nobody uses, but `not` that one, which the caller has locked; whether there were any.
    fn close_unused(&self, not: FileId) -> bool {
        let handles: Vec<_> = self.handles.lock().iter().map(|(file, handle)| (*file, handle.clone())).collect();
        let mut closed = false;
        for (_, handle) in handles.iter().filter(|(file, _)| *file != not) {
            // One that is locked is being opened.
            if let Some(mut opened) = handle.0.try_lock() {
                let was_open = opened.file.is_some();
                opened.close();
                closed |= was_open && opened.file.is_none();
            }
        }
        closed
    }

    /// A file to read.
    pub fn open(&self, file: FileId, path: &Path) -> Result<Arc<dyn DiskFile>, StoreError> {
        self.handle(file, |made| {
            if made {
                // It may be written to again.
                return self.reopen(path);
            }
            self.disk.open(path).map_err(|error| StoreError::disk("open", path, error))
        })
    }

    fn handle(
        &self,
        file: FileId,
        mut open: impl FnMut(bool) -> Result<Arc<dyn DiskFile>, StoreError>,
    ) -> Result<Arc<dyn DiskFile>, StoreError> {
        let handle = self.handles.lock().entry(file).or_default().clone();
        let mut opened = handle.0.lock();
        if let Some(file) = &opened.file {
            return Ok(file.clone());
        }
        if self.handles.lock().len() > self.open_max {
            self.close_unused(file);
        }
        let made = opened.made;
        let inside = self.when_short(file, || open(made))?;
        self.buffered.fetch_or(!inside.is_direct(), Ordering::Relaxed);
        Ok(opened.file.insert(Arc::new(Distrusted { inside, failed: Mutex::default() })).clone())
    }

    /// Deletes a file; what is read from it goes on.
    pub fn unlink(&self, file: FileId, dir: usize, path: &Path) {
        self.handles.lock().remove(&file);
        // Its descriptor is free unless somebody reads it still.
        self.short.1.notify_all();
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

    /// Removes everything that this process made, but spill files that are to be kept and what belongs to them.
    pub fn remove(&self) {
        self.handles.lock().clear();
        for (number, dir) in self.dirs.iter().enumerate() {
            let Some(opened) = &mut *dir.open.lock() else { continue };
            opened.index = None;
            let empty = || self.spill_files(number).is_ok_and(|files| files.is_empty());
            if (!self.keep || empty())
                && let Err(error) = self.disk.remove_dir(&dir.path, &LAST)
            {
                warn!(path = %dir.path.display(), %error, "spill directory cannot be removed");
            }
        }
        // Locks end when the files are gone.
        self.dirs.iter().for_each(|dir| drop(dir.open.lock().take()));
    }

    /// Deletes what killed processes left in the spill directories and nobody will come back for.
    pub fn sweep(&self, spill_dirs: &[PathBuf]) {
        for sibling in spill_dirs.iter().flat_map(|dir| self.disk.list(dir).unwrap_or_default()) {
            if self.dirs.iter().any(|dir| dir.path == sibling) {
                self.sweep_own(&sibling);
                continue;
            }
            if self.disk.read_small(&sibling.join(TEMPORARY)).is_err() {
                continue;
            }
            // Only with the lock: its process is gone.
            if let Ok(_lock) = self.disk.lock(&sibling.join(LOCK)) {
                info!(path = %sibling.display(), "removing spill files that a killed process left");
                let _ = self.disk.remove_dir(&sibling, &LAST);
            }
        }
    }

    /// Deletes what an earlier process of this node left, if nothing is to be kept: it may be long until this one spills. Who
    /// the node is, and its index, stay.
    fn sweep_own(&self, own: &Path) {
        let left = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "spill");
        if !self.keep
            && let Ok(_lock) = self.disk.lock(&own.join(LOCK))
        {
            for file in self.disk.list(own).unwrap_or_default().iter().filter(|path| left(path)) {
                // What cannot be removed now is looked at when the directory is used.
                let _ = self.disk.remove(file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Fault, FaultyDisk, MemoryDisk, Op};

    fn dirs(disk: &FaultyDisk) -> Dirs {
        Dirs::new(Arc::new(disk.clone()), &["/spill".into()], "n1", false)
    }

    #[test]
    fn what_is_left_of_a_directory_is_swept_wherever_its_sweeper_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let (spill, dead) = (folder.path().to_owned(), folder.path().join("dead"));
        let names = ["0-1.spill", "0-2.spill", LOCK, NODE, TEMPORARY];
        // Behind the mark comes only the directory itself: an empty one is left alone, since it may be a stranger's.
        for killed_behind in 0..=names.len() {
            std::fs::create_dir_all(dead.join("index")).unwrap();
            for file in names {
                std::fs::write(dead.join(file), "left").unwrap();
            }
            let disk = crate::disk::RealDisk::new();
            let order = crate::disk::last_behind(disk.list(&dead).unwrap(), &LAST);
            assert_eq!((order[4].clone(), order[5].clone()), (dead.join(LOCK), dead.join(TEMPORARY)));
            for path in &order[..killed_behind] {
                if path.is_dir() { std::fs::remove_dir(path) } else { std::fs::remove_file(path) }.unwrap();
            }
            let dirs = Dirs::new(Arc::new(disk), std::slice::from_ref(&spill), "n1", false);
            dirs.sweep(std::slice::from_ref(&spill));
            assert!(!dead.exists(), "killed behind {killed_behind}");
        }
    }

    #[test]
    fn a_file_of_which_a_sync_failed_is_never_synced_again() {
        let disk = FaultyDisk::new(Arc::new(MemoryDisk::new()));
        let dirs = dirs(&disk);
        let file = dirs.create(1, 0, Path::new("/spill/n1/a.spill"), 1).unwrap();
        disk.fail(Op::Sync, 0, Fault::Errno(5));
        assert!(file.sync().is_err());
        // The disk itself would say that all is well now.
        let again = dirs.create(1, 0, Path::new("/spill/n1/a.spill"), 1).unwrap().sync().unwrap_err();
        assert!(again.to_string().contains("an earlier sync failed"), "{again}");
        assert_eq!((disk.seen(Op::Sync), disk.fired()), (1, 1));
        dirs.create(2, 0, Path::new("/spill/n1/b.spill"), 1).unwrap().sync().unwrap();
    }

    #[test]
    fn without_a_free_descriptor_an_open_is_tried_again() {
        let disk = FaultyDisk::new(Arc::new(MemoryDisk::new()));
        let dirs = dirs(&disk);
        for nth in 0..3 {
            disk.fail(Op::Create, nth, Fault::Errno(24));
        }
        dirs.create(1, 0, Path::new("/spill/n1/a.spill"), 1).unwrap();
        assert_eq!((disk.seen(Op::Create), disk.fired()), (4, 3));
        // Files that nobody uses are closed for it, and opened again when they are used, also to be written.
        let used = dirs.create(3, 0, Path::new("/spill/n1/c.spill"), 1).unwrap();
        disk.fail(Op::Create, 0, Fault::Errno(24));
        dirs.create(4, 0, Path::new("/spill/n1/d.spill"), 1).unwrap();
        let open = |file: FileId| dirs.handles.lock()[&file].0.lock().file.is_some();
        assert!(!open(1) && open(3), "what is in use stays open");
        drop(used);
        let again = dirs.create(1, 0, Path::new("/spill/n1/a.spill"), 1).unwrap();
        again.write_at(0, &[io::IoSlice::new(&[7; 4096])]).unwrap();
        disk.fail(Op::Create, 0, Fault::Errno(5));
        assert!(dirs.create(2, 0, Path::new("/spill/n1/b.spill"), 1).is_err(), "what is broken is not tried again");
    }
}
