//! A disk in memory: for simulation, and for tests that are about something else.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IoSlice, IoSliceMut},
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{Disk, DiskFile};

type Content = Arc<Mutex<Vec<u8>>>;

#[derive(Debug, Default)]
struct Tree {
    files: BTreeMap<PathBuf, Content>,
    locked: BTreeSet<PathBuf>,
}

/// See the module. Clones share the files, so a clone is what a restarted process finds.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    tree: Arc<Mutex<Tree>>,
}

impl MemoryDisk {
    /// Empty.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// Paths of all files, in order.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.tree.lock().files.keys().cloned().collect()
    }

    /// Flips a bit of a file, counted from its start.
    ///
    /// # Panics
    /// There is no such file, or it is shorter.
    pub fn flip(&self, path: &Path, bit: u64) {
        let content = self.content(path).expect("a file of this disk");
        content.lock()[(bit / 8) as usize] ^= 1 << (bit % 8);
    }

    /// What is in a file.
    ///
    /// # Panics
    /// There is no such file.
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        self.content(path).expect("a file of this disk").lock().clone()
    }

    fn content(&self, path: &Path) -> io::Result<Content> {
        self.tree.lock().files.get(path).cloned().ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Disk for MemoryDisk {
    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, path: &Path, _bytes_hint: u64) -> io::Result<Arc<dyn DiskFile>> {
        let mut tree = self.tree.lock();
        if tree.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let content = Content::default();
        tree.files.insert(path.to_owned(), content.clone());
        Ok(Arc::new(MemoryFile(content)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(MemoryFile(self.content(path)?)))
    }

    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.tree.lock().files.remove(path).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn remove_dir(&self, dir: &Path, _last: &[&str]) -> io::Result<()> {
        self.tree.lock().files.retain(|path, _| !path.starts_with(dir));
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let tree = self.tree.lock();
        let entries = tree.files.keys().filter_map(|path| path.strip_prefix(dir).ok()?.components().next());
        Ok(entries.map(|entry| dir.join(entry)).collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.content(path)?.lock().clone())
    }

    fn write_small(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.tree.lock().files.insert(path.to_owned(), Arc::new(Mutex::new(content.to_vec())));
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        if !self.tree.lock().locked.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Lock { tree: self.tree.clone(), path: path.to_owned() }))
    }

    fn free_bytes(&self, _dir: &Path) -> u64 {
        u64::MAX
    }

    fn index_dir(&self, _dir: &Path) -> Option<PathBuf> {
        None
    }
}

struct Lock {
    tree: Arc<Mutex<Tree>>,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.tree.lock().locked.remove(&self.path);
    }
}

struct MemoryFile(Content);

impl DiskFile for MemoryFile {
    fn write_at(&self, offset: u64, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut content = self.0.lock();
        let mut at = offset as usize;
        for buffer in buffers {
            let end = at + buffer.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[at..end].copy_from_slice(buffer);
            at = end;
        }
        Ok(at - offset as usize)
    }

    fn read_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let content = self.0.lock();
        let mut rest = content.get(offset as usize..).unwrap_or_default();
        let mut read = 0;
        for buffer in buffers {
            let count = buffer.len().min(rest.len());
            let (now, later) = rest.split_at(count);
            buffer[..count].copy_from_slice(now);
            (rest, read) = (later, read + count);
        }
        Ok(read)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.lock().resize(bytes as usize, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn is_direct(&self) -> bool {
        true
    }
}
