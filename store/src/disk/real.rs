//! Files of the operating system, by direct I/O where the file system allows it.
//!
//! On the reference machine buffered writes reach 0.45 GB/s and direct ones 1.9 GB/s. Room is set aside ahead with
//! `fallocate`, size included: writes within the size of a file go on in parallel, while writes that extend it lock it
//! (4 MiB requests of 2 threads on ext4: 1.7 GB/s with, 1.3 GB/s without).

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{FallocateFlags, FlockOperation, Mode, OFlags},
    io::Errno,
};
use tracing::warn;

use super::{Disk, DiskFile, last_behind};

/// The disk of this machine.
#[derive(Debug, Default)]
pub struct RealDisk {
    /// Direct I/O was refused once: said so once.
    warned: AtomicBool,
}

impl RealDisk {
    /// Holds nothing.
    pub fn new() -> RealDisk {
        RealDisk::default()
    }

    fn open_with(&self, path: &Path, flags: OFlags) -> io::Result<Arc<dyn DiskFile>> {
        let flags = flags | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        // tmpfs and some network file systems refuse; a file opened for creation may exist already then.
        match rustix::fs::open(path, flags | OFlags::DIRECT, mode) {
            Ok(file) => Ok(Arc::new(RealFile { file, direct: true })),
            Err(Errno::INVAL) => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    warn!(path = %path.display(), "file system refuses direct i/o, spilling through the page cache");
                }
                let file = match rustix::fs::open(path, flags, mode) {
                    Err(Errno::EXIST) => rustix::fs::open(path, flags - OFlags::EXCL, mode)?,
                    other => other?,
                };
                Ok(Arc::new(RealFile { file, direct: false }))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }

    fn create(&self, path: &Path, bytes_hint: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.open_with(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        if bytes_hint > 0 {
            // When the disk has no room for so much, the writes will say what it has no room for. A file that was made is
            // not to fail for want of a second descriptor.
            if let Ok(handle) = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
                let _ = rustix::fs::fallocate(&handle, FallocateFlags::empty(), 0, bytes_hint);
            }
        }
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(path, OFlags::RDONLY)
    }

    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(path, OFlags::RDWR)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path, last: &[&str]) -> io::Result<()> {
        let gone = |result: io::Result<()>| match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        for path in last_behind(self.list(dir)?, last) {
            let is_dir = std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
            gone(if is_dir { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) })?;
        }
        gone(std::fs::remove_dir(dir))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        match std::fs::read_dir(dir) {
            Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn write_small(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        std::fs::write(path, content)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
            let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            // Who held it before may have removed it: then it is not what others find there.
            let (held, there) = (rustix::fs::fstat(&file)?, rustix::fs::stat(path));
            if there.is_ok_and(|there| (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)) {
                return Ok(Box::new(file));
            }
        }
    }

    fn free_bytes(&self, dir: &Path) -> u64 {
        // The directory may not exist yet; its file system is that of the nearest parent that does.
        let existing = dir.ancestors().find(|path| path.exists());
        let stat = existing.and_then(|path| rustix::fs::statvfs(path).ok());
        stat.map_or(0, |stat| stat.f_bavail * stat.f_frsize)
    }

    fn index_dir(&self, dir: &Path) -> Option<PathBuf> {
        Some(dir.join("index"))
    }
}

#[derive(Debug)]
struct RealFile {
    file: OwnedFd,
    direct: bool,
}

impl DiskFile for RealFile {
    fn write_at(&self, offset: u64, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::pwritev(&self.file, buffers, offset))?)
    }

    fn read_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::preadv(&self.file, buffers, offset))?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.file, bytes)?)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.file)?.st_size as u64)
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}
