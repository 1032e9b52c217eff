//! A disk around a disk that fails, or hangs, when told: for tests of everything above.
//!
//! With no faults set it behaves exactly as the one inside.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice, IoSliceMut},
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Condvar, Mutex};

use super::{Disk, DiskFile};

/// Which requests a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// [`Disk::create`].
    Create,
    /// [`DiskFile::write_at`].
    Write,
    /// [`DiskFile::read_at`].
    Read,
    /// [`DiskFile::sync`].
    Sync,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request fails with this error number (`rustix::io::Errno::NOSPC.raw_os_error()`) and does nothing.
    Errno(i32),
    /// A write that writes at most so many bytes.
    Short(usize),
    /// This bit, counted from the start of the request, is flipped in what is read.
    FlipBit(u64),
    /// This bit, counted from the start of the request, is flipped in what reaches the disk.
    FlipWritten(u64),
}

#[derive(Debug, Default)]
struct Plan {
    /// How many requests of each kind there were.
    seen: BTreeMap<Op, u64>,
    once: BTreeMap<(Op, u64), Fault>,
    always: BTreeMap<Op, (PathBuf, Fault)>,
    /// Writes beyond so many bytes in all fail with `ENOSPC`.
    capacity: Option<u64>,
    written: u64,
    fired: u64,
    buffered: bool,
}

/// Where writes wait while they are held.
#[derive(Default)]
struct Hold {
    /// Whether they are held, and how many wait.
    state: Mutex<(bool, u64)>,
    changed: Condvar,
}

impl Hold {
    fn set(&self, held: bool) {
        self.state.lock().0 = held;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.1 += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |(held, _)| *held);
        state.1 -= 1;
    }
}

/// See the module.
#[derive(Clone)]
pub struct FaultyDisk {
    inside: Arc<dyn Disk>,
    plan: Arc<Mutex<Plan>>,
    hold: Arc<Hold>,
}

impl FaultyDisk {
    /// No faults yet.
    pub fn new(inside: Arc<dyn Disk>) -> FaultyDisk {
        FaultyDisk { inside, plan: Arc::default(), hold: Arc::default() }
    }

    /// The `nth` request of this kind from now on (0: the next) fails so.
    pub fn fail(&self, op: Op, nth: u64, fault: Fault) {
        let mut plan = self.plan.lock();
        let at = plan.seen.get(&op).copied().unwrap_or(0) + nth;
        plan.once.insert((op, at), fault);
    }

    /// Every request of this kind to files below `dir` fails so, until [`FaultyDisk::heal`].
    pub fn always(&self, op: Op, dir: &Path, fault: Fault) {
        self.plan.lock().always.insert(op, (dir.to_owned(), fault));
    }

    /// Only so many more bytes can be written.
    pub fn capacity(&self, bytes: u64) {
        let mut plan = self.plan.lock();
        plan.capacity = Some(plan.written + bytes);
    }

    /// Files opened from now on say that they go through the page cache, as where direct I/O is refused.
    pub fn refuse_direct(&self) {
        self.plan.lock().buffered = true;
    }

    /// Writes wait from now on, until [`FaultyDisk::heal`].
    pub fn hold_writes(&self) {
        self.hold.set(true);
    }

    /// Waits until a write is held.
    pub fn wait_for_a_held_write(&self) {
        let mut state = self.hold.state.lock();
        self.hold.changed.wait_while(&mut state, |(held, waiting)| !*held || *waiting == 0);
    }

    /// No faults any more.
    pub fn heal(&self) {
        self.hold.set(false);
        let mut plan = self.plan.lock();
        plan.once.clear();
        plan.always.clear();
        plan.capacity = None;
    }

    fn file(&self, path: &Path, inside: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let (plan, hold) = (self.plan.clone(), self.hold.clone());
        Arc::new(FaultyFile { inside, path: path.to_owned(), plan, hold })
    }

    /// How many faults were met so far.
    pub fn fired(&self) -> u64 {
        self.plan.lock().fired
    }

    /// How many requests of this kind there were so far.
    pub fn seen(&self, op: Op) -> u64 {
        self.plan.lock().seen.get(&op).copied().unwrap_or(0)
    }
}

impl Plan {
    /// The fault for this request, if there is one.
    fn next(&mut self, op: Op, path: &Path, bytes: u64) -> Option<Fault> {
        let seen = self.seen.entry(op).or_default();
        let nth = *seen;
        *seen += 1;
        let mut fault = self.once.remove(&(op, nth));
        if let Some((dir, always)) = self.always.get(&op)
            && path.starts_with(dir)
        {
            fault = fault.or(Some(*always));
        }
        if op == Op::Write {
            if self.capacity.is_some_and(|capacity| self.written + bytes > capacity) {
                fault = fault.or(Some(Fault::Errno(rustix::io::Errno::NOSPC.raw_os_error())));
            } else {
                self.written += bytes;
            }
        }
        self.fired += u64::from(fault.is_some());
        fault
    }
}

impl Disk for FaultyDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inside.create_dir(dir)
    }

    fn create(&self, path: &Path, bytes_hint: u64) -> io::Result<Arc<dyn DiskFile>> {
        let fault = self.plan.lock().next(Op::Create, path, 0);
        if let Some(Fault::Errno(errno)) = fault {
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(self.file(path, self.inside.create(path, bytes_hint)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(path, self.inside.open(path)?))
    }

    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(path, self.inside.reopen(path)?))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inside.remove(path)
    }

    fn remove_dir(&self, dir: &Path, last: &[&str]) -> io::Result<()> {
        self.inside.remove_dir(dir, last)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.inside.list(dir)
    }

    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inside.read_small(path)
    }

    fn write_small(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.inside.write_small(path, content)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.inside.lock(path)
    }

    fn free_bytes(&self, dir: &Path) -> u64 {
        self.inside.free_bytes(dir)
    }

    fn index_dir(&self, dir: &Path) -> Option<PathBuf> {
        self.inside.index_dir(dir)
    }
}

struct FaultyFile {
    inside: Arc<dyn DiskFile>,
    path: PathBuf,
    plan: Arc<Mutex<Plan>>,
    hold: Arc<Hold>,
}

impl DiskFile for FaultyFile {
    fn write_at(&self, offset: u64, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.hold.pass();
        let bytes = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let fault = self.plan.lock().next(Op::Write, &self.path, bytes);
        let changed = match fault {
            None | Some(Fault::FlipBit(_)) => return self.inside.write_at(offset, buffers),
            Some(Fault::Errno(errno)) => return Err(io::Error::from_raw_os_error(errno)),
            Some(Fault::Short(bytes)) => (bytes, None),
            Some(Fault::FlipWritten(bit)) => (usize::MAX, Some(bit)),
        };
        let (bytes_max, flip) = changed;
        let mut content: Vec<u8> = buffers.concat_slices();
        if let Some(bit) = flip {
            let at = (bit / 8) as usize % content.len();
            content[at] ^= 1 << (bit % 8);
        }
        let mut aligned = super::AlignedBuffer::default();
        let whole = aligned.of(content.len());
        whole.copy_from_slice(&content);
        // A short write on a disk ends at a block; the caller is told the very number.
        let reached = content.len().min(bytes_max.max(1)).next_multiple_of(super::BLOCK_BYTES as usize);
        self.inside.write_at(offset, &[IoSlice::new(&whole[..reached])])?;
        Ok(content.len().min(bytes_max))
    }

    fn read_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let bytes = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let fault = self.plan.lock().next(Op::Read, &self.path, bytes);
        if let Some(Fault::Errno(errno)) = fault {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let read = self.inside.read_at(offset, buffers)?;
        if let Some(Fault::FlipBit(bit)) = fault {
            let mut at = (bit / 8) as usize % read.max(1);
            for buffer in buffers {
                if at < buffer.len() {
                    buffer[at] ^= 1 << (bit % 8);
                    break;
                }
                at -= buffer.len();
            }
        }
        Ok(read)
    }

    fn sync(&self) -> io::Result<()> {
        match self.plan.lock().next(Op::Sync, &self.path, 0) {
            Some(Fault::Errno(errno)) => Err(io::Error::from_raw_os_error(errno)),
            _ => self.inside.sync(),
        }
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.inside.truncate(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.inside.len()
    }

    fn is_direct(&self) -> bool {
        self.inside.is_direct() && !self.plan.lock().buffered
    }
}

trait ConcatSlices {
    fn concat_slices(&self) -> Vec<u8>;
}

impl ConcatSlices for [IoSlice<'_>] {
    fn concat_slices(&self) -> Vec<u8> {
        self.iter().flat_map(|slice| slice.iter().copied()).collect()
    }
}
