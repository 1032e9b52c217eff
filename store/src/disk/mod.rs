//! What the store asks of a disk, the real one, one in memory, and one that misbehaves on purpose.

mod faulty;
mod memory;
mod real;

use std::{
    io::{self, IoSlice, IoSliceMut},
    path::{Path, PathBuf},
    sync::Arc,
};

pub use faulty::{Fault, FaultyDisk, Op};
pub use memory::MemoryDisk;
pub use real::RealDisk;

/// Unit of direct I/O here: file offsets, lengths and memory addresses are multiples of it.
pub const BLOCK_BYTES: u64 = 4096;

/// A disk: makes, opens, lists and removes files.
///
/// Implementers owe: errors are the operating system's (`ENOSPC`, `EIO` and so on); nothing is retried; a file that was
/// removed stays readable through handles opened before.
pub trait Disk: Send + Sync + 'static {
    /// Makes a directory and its parents; fine when it exists.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes a new file, an error when it exists. About `bytes_hint` bytes will be written to it, so room for them may
    /// be set aside; that this fails is no error.
    fn create(&self, path: &Path, bytes_hint: u64) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file that this process made and closed, for reading and writing.
    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Removes a file; an error when there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with all that is in it, and files of these names after everything else, in their order: what is
    /// left when the process is killed meanwhile has them still. Fine when there is no such directory or file.
    fn remove_dir(&self, dir: &Path, last: &[&str]) -> io::Result<()>;

    /// Full paths of what is in a directory, in any order; none when there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;

    /// Whole content of a small file.
    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Makes or replaces a small file.
    fn write_small(&self, path: &Path, content: &[u8]) -> io::Result<()>;

    /// Takes a lock file for as long as the answer lives; `WouldBlock` when another process has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;

    /// Bytes free in the file system of a directory, for messages.
    fn free_bytes(&self, dir: &Path) -> u64;

    /// Where an index in `sled` may keep its files, `None` where there is no real file system.
    fn index_dir(&self, dir: &Path) -> Option<PathBuf>;
}

/// One file. All methods can be called from several threads at once.
pub trait DiskFile: Send + Sync {
    /// Writes buffers one after the other; may write less than all, never nothing without an error. Offset, lengths
    /// and addresses are multiples of [`BLOCK_BYTES`].
    fn write_at(&self, offset: u64, buffers: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Reads buffers one after the other; less only at the end of the file. Aligned as for writing.
    fn read_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Waits until what was written would survive a power cut. After an error the file is never synced again.
    fn sync(&self) -> io::Result<()>;

    /// Cuts or extends the file.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Its length.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Whether writes go past the page cache. If not, only [`DiskFile::sync`] tells whether they arrived.
    fn is_direct(&self) -> bool;
}

/// Files of these names behind all others, in their order.
pub(crate) fn last_behind(mut paths: Vec<PathBuf>, last: &[&str]) -> Vec<PathBuf> {
    paths.sort_by_key(|path| path.file_name().and_then(|name| last.iter().position(|last| name == *last)));
    paths
}

/// Writes all of the buffers, going on after short writes.
///
/// # Errors
/// As [`DiskFile::write_at`]; `WriteZero` when it makes no progress.
pub(crate) fn write_all_at(file: &dyn DiskFile, mut offset: u64, buffers: &[&[u8]]) -> io::Result<()> {
    // No more than the kernel takes at once.
    const BUFFERS_MAX: usize = 1024;
    let mut rest: Vec<&[u8]> = buffers.iter().copied().filter(|buffer| !buffer.is_empty()).rev().collect();
    while !rest.is_empty() {
        let slices: Vec<IoSlice<'_>> = rest.iter().rev().take(BUFFERS_MAX).map(|buffer| IoSlice::new(buffer)).collect();
        // A direct write cannot go on in the middle of a block: what was begun is written again.
        let mut written = file.write_at(offset, &slices)? as u64 / BLOCK_BYTES * BLOCK_BYTES;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        offset += written;
        while written > 0 {
            let buffer = rest.pop().expect("no more is written than there was");
            if (buffer.len() as u64) > written {
                rest.push(&buffer[written as usize..]);
                break;
            }
            written -= buffer.len() as u64;
        }
    }
    Ok(())
}

/// Fills all of the buffers, going on after short reads.
///
/// # Errors
/// As [`DiskFile::read_at`]; `UnexpectedEof` when the file ends before.
pub(crate) fn read_all_at(file: &dyn DiskFile, mut offset: u64, buffers: &mut [&mut [u8]]) -> io::Result<()> {
    const BUFFERS_MAX: usize = 1024;
    let (mut first, mut within) = (0, 0);
    while first < buffers.len() {
        if buffers[first].len() == within {
            (first, within) = (first + 1, 0);
            continue;
        }
        let mut slices: Vec<IoSliceMut<'_>> = Vec::with_capacity((buffers.len() - first).min(BUFFERS_MAX));
        for (nth, buffer) in buffers[first..].iter_mut().take(BUFFERS_MAX).enumerate() {
            slices.push(IoSliceMut::new(&mut buffer[if nth == 0 { within } else { 0 }..]));
        }
        let mut read = file.read_at(offset, &mut slices)? as u64 / BLOCK_BYTES * BLOCK_BYTES;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        offset += read;
        while read > 0 {
            let left = (buffers[first].len() - within) as u64;
            if left > read {
                within += read as usize;
                break;
            }
            read -= left;
            (first, within) = (first + 1, 0);
        }
    }
    Ok(())
}

/// Memory that begins at a multiple of [`BLOCK_BYTES`], for direct I/O outside the region; made when first used.
#[derive(Debug, Default)]
pub(crate) struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// At least `length` bytes, content unspecified.
    pub fn of(&mut self, length: usize) -> &mut [u8] {
        if self.length < length {
            self.bytes = vec![0; length + BLOCK_BYTES as usize];
            let address = self.bytes.as_ptr() as usize;
            self.start = address.next_multiple_of(BLOCK_BYTES as usize) - address;
            self.length = length;
        }
        &mut self.bytes[self.start..self.start + length]
    }

    /// Whether it has no memory.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Gives its memory back.
    pub fn give_back(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(length: usize, seed: u8) -> Vec<u8> {
        (0..length).map(|at| (at / 7) as u8 ^ seed).collect()
    }

    #[test]
    fn short_writes_and_reads_are_continued() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
        let file = disk.create(&dir.path().join("f"), 0).unwrap();
        let (mut one, mut two) = (AlignedBuffer::default(), AlignedBuffer::default());
        let (one, two) = (one.of(12288), two.of(8192));
        one.copy_from_slice(&pattern(12288, 1));
        two.copy_from_slice(&pattern(8192, 2));
        disk.fail(Op::Write, 0, Fault::Short(4096 + 100));
        disk.fail(Op::Write, 1, Fault::Short(8192));
        write_all_at(&*file, 4096, &[one, &[], two]).unwrap();
        assert_eq!(disk.fired(), 2);
        let (mut back_one, mut back_two) = (AlignedBuffer::default(), AlignedBuffer::default());
        let (back_one, back_two) = (back_one.of(4096), back_two.of(16384));
        read_all_at(&*file, 4096, &mut [&mut *back_one, &mut *back_two]).unwrap();
        assert_eq!([&*back_one, &*back_two].concat(), [&*one, &*two].concat());
        let error = read_all_at(&*file, 8192, &mut [&mut back_two[..16384], &mut back_one[..4096]]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
