//! A disk in memory that misbehaves on purpose, mounted by FUSE, and that remembers what was asked of it.
//!
//! It knows files and folders, and what spilling asks for; nobody else is to use it. Every request reaches it as it was made
//! (there is no page cache between), but for large ones, which come in pieces of a mebibyte.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;

/// The largest request.
const REQUEST_BYTES: u32 = 1 << 20;
/// Nothing is to be remembered by the kernel.
const AT_ONCE: Duration = Duration::ZERO;
const BLOCK_BYTES: u64 = 4096;
/// So much room it says to have.
const BLOCKS: u64 = 1 << 22;

/// What is asked of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Op {
    Write,
    Read,
    Sync,
}

/// What is done instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The request fails with EIO. A sync that fails loses what was written since the last one, and the next says that all is well.
    Error,
    /// About half of what is to be written is.
    Short,
}

/// One request, for who decides whether it fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) op: Op,
    pub(super) file: OsString,
    /// Requests of this kind before it.
    pub(super) before: u64,
    pub(super) bytes: usize,
}

type Plan = Box<dyn FnMut(&Asked) -> Option<Fault> + Send>;

#[derive(Default)]
struct Node {
    parent: u64,
    name: OsString,
    /// `None`: a folder.
    content: Option<Vec<u8>>,
    /// Where it was written since the last sync.
    dirty: Vec<(usize, usize)>,
    removed: bool,
}

struct Tree {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    plan: Plan,
    counts: BTreeMap<Op, u64>,
    /// Requests that failed or were cut short, and all syncs, in order.
    told: Vec<(Asked, Option<Fault>)>,
    refuses_direct: bool,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Tree>>);

/// See the module. It is unmounted when it is dropped.
pub(super) struct FaultyDisk {
    shared: Shared,
    session: Option<BackgroundSession>,
    at: PathBuf,
}

impl FaultyDisk {
    /// Mounts it; `plan` says what becomes of each request. `refuses_direct`: of direct I/O.
    pub(super) fn mount(
        at: &Path,
        refuses_direct: bool,
        plan: impl FnMut(&Asked) -> Option<Fault> + Send + 'static,
    ) -> Result<Self> {
        std::fs::create_dir_all(at)?;
        let root = Node { parent: 1, ..Node::default() };
        let tree = Tree {
            nodes: BTreeMap::from([(1, root)]),
            next: 2,
            plan: Box::new(plan),
            counts: BTreeMap::new(),
            told: Vec::new(),
            refuses_direct,
        };
        let shared = Shared(Arc::new(Mutex::new(tree)));
        let session = fuser::spawn_mount(shared.clone(), at, &Config::default());
        let session = Some(session.with_context(|| format!("mount a faulty disk at {}", at.display()))?);
        Ok(Self { shared, session, at: at.to_owned() })
    }

    /// What failed, and all syncs.
    pub(super) fn told(&self) -> Vec<(Asked, Option<Fault>)> {
        self.shared.lock().told.clone()
    }

    /// Unmounts it; what is left on it.
    pub(super) fn end(mut self) -> Result<Vec<OsString>> {
        self.unmount()?;
        let left =
            self.shared.lock().nodes.values().filter(|node| !node.removed).map(|node| node.name.clone()).collect();
        Ok(left)
    }

    fn unmount(&mut self) -> Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        session.umount_and_join().with_context(|| format!("unmount {}", self.at.display()))?;
        let _ = std::fs::remove_dir(&self.at);
        Ok(())
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{error:#}");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tree {
    fn child(&self, parent: INodeNo, name: &OsStr) -> Option<u64> {
        let is = |node: &&Node| node.parent == parent.0 && node.name == name && !node.removed;
        self.nodes.iter().find(|(number, node)| **number != 1 && is(node)).map(|(number, _)| *number)
    }

    fn attributes(&self, number: u64) -> Option<FileAttr> {
        let node = self.nodes.get(&number)?;
        let size = node.content.as_ref().map_or(0, |content| content.len() as u64);
        let (kind, perm) =
            if node.content.is_some() { (FileType::RegularFile, 0o600) } else { (FileType::Directory, 0o700) };
        let time: SystemTime = UNIX_EPOCH;
        Some(FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn make(&mut self, parent: INodeNo, name: &OsStr, content: Option<Vec<u8>>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.nodes.insert(number, Node { parent: parent.0, name: name.to_owned(), content, ..Node::default() });
        number
    }

    /// Whether this request is to fail.
    fn fault(&mut self, op: Op, number: u64, bytes: usize) -> Option<Fault> {
        let file = self.nodes.get(&number)?.name.clone();
        let count = self.counts.entry(op).or_default();
        let asked = Asked { op, file, before: *count, bytes };
        *count += 1;
        let fault = (self.plan)(&asked);
        if fault.is_some() || op == Op::Sync {
            self.told.push((asked, fault));
        }
        fault
    }

    fn refuses(&self, flags: i32) -> bool {
        self.refuses_direct && OFlags::from_bits_retain(flags.cast_unsigned()).contains(OFlags::DIRECT)
    }

    fn remove(&mut self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let number = self.child(parent, name).ok_or(Errno::ENOENT)?;
        if self.nodes.values().any(|node| node.parent == number && !node.removed) {
            return Err(Errno::ENOTEMPTY);
        }
        // Who has it open reads it still.
        self.nodes.entry(number).and_modify(|node| node.removed = true);
        Ok(())
    }

    fn sync(&mut self, number: u64) -> Result<(), Errno> {
        let fault = self.fault(Op::Sync, number, 0);
        let node = self.nodes.get_mut(&number).ok_or(Errno::ENOENT)?;
        let dirty = std::mem::take(&mut node.dirty);
        if fault != Some(Fault::Error) {
            return Ok(());
        }
        let content = node.content.get_or_insert_default();
        for (from, to) in dirty {
            let end = to.min(content.len());
            content[from.min(end)..end].fill(0);
        }
        Err(Errno::EIO)
    }
}

impl Filesystem for Shared {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Less is fine, too.
        let _ = config.set_max_write(REQUEST_BYTES);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let tree = self.lock();
        match tree.child(parent, name).and_then(|number| tree.attributes(number)) {
            Some(found) => reply.entry(&AT_ONCE, &found, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _file: Option<FileHandle>, reply: ReplyAttr) {
        match self.lock().attributes(number.0) {
            Some(found) => reply.attr(&AT_ONCE, &found),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        number: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _file: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut tree = self.lock();
        if let Some(size) = size
            && let Some(content) = tree.nodes.get_mut(&number.0).and_then(|node| node.content.as_mut())
        {
            content.resize(usize::try_from(size).unwrap_or_default(), 0);
        }
        match tree.attributes(number.0) {
            Some(found) => reply.attr(&AT_ONCE, &found),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn mkdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        let mut tree = self.lock();
        let number = tree.make(parent, name, None);
        match tree.attributes(number) {
            Some(made) => reply.entry(&AT_ONCE, &made, Generation(0)),
            None => reply.error(Errno::EIO),
        }
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.lock().remove(parent, name), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.lock().remove(parent, name), reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut tree = self.lock();
        // What has the new name is replaced.
        let _ = tree.remove(to, new);
        let Some(number) = tree.child(parent, name) else { return reply.error(Errno::ENOENT) };
        tree.nodes.entry(number).and_modify(|node| (node.parent, node.name) = (to.0, new.to_owned()));
        reply.ok();
    }

    fn create(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let mut tree = self.lock();
        if tree.refuses(flags) {
            return reply.error(Errno::EINVAL);
        }
        let number = tree.make(parent, name, Some(Vec::new()));
        match tree.attributes(number) {
            Some(made) => {
                reply.created(&AT_ONCE, &made, Generation(0), FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
            }
            None => reply.error(Errno::EIO),
        }
    }

    fn open(&self, _request: &Request, _number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.lock().refuses(flags.0) {
            true => reply.error(Errno::EINVAL),
            false => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
        }
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut tree = self.lock();
        if tree.fault(Op::Read, number.0, size as usize).is_some() {
            return reply.error(Errno::EIO);
        }
        let Some(content) = tree.nodes.get(&number.0).and_then(|node| node.content.as_ref()) else {
            return reply.error(Errno::ENOENT);
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        reply.data(&content[from..(from + size as usize).min(content.len())]);
    }

    fn write(
        &self,
        _request: &Request,
        number: INodeNo,
        _file: FileHandle,
        offset: u64,
        bytes: &[u8],
        _write: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut tree = self.lock();
        let bytes = match tree.fault(Op::Write, number.0, bytes.len()) {
            Some(Fault::Error) => return reply.error(Errno::EIO),
            // Not to the end of a block, either.
            Some(Fault::Short) => &bytes[..(bytes.len() / 2 + 100).min(bytes.len())],
            None => bytes,
        };
        let Some(node) = tree.nodes.get_mut(&number.0) else { return reply.error(Errno::ENOENT) };
        let from = usize::try_from(offset).unwrap_or_default();
        let content = node.content.get_or_insert_default();
        if content.len() < from + bytes.len() {
            content.resize(from + bytes.len(), 0);
        }
        content[from..from + bytes.len()].copy_from_slice(bytes);
        node.dirty.push((from, from + bytes.len()));
        reply.written(u32::try_from(bytes.len()).unwrap_or_default());
    }

    fn flush(&self, _request: &Request, _number: INodeNo, _file: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _request: &Request, number: INodeNo, _file: FileHandle, _data: bool, reply: ReplyEmpty) {
        answer(self.lock().sync(number.0), reply);
    }

    fn readdir(&self, _request: &Request, number: INodeNo, _file: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let tree = self.lock();
        let children =
            tree.nodes.iter().filter(|(child, node)| **child != 1 && node.parent == number.0 && !node.removed);
        for (nth, (child, node)) in (1..).zip(children).skip(usize::try_from(offset).unwrap_or_default()) {
            let kind = if node.content.is_some() { FileType::RegularFile } else { FileType::Directory };
            if reply.add(INodeNo(*child), nth, kind, &node.name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, 1 << 20, 1 << 20, BLOCK_BYTES as u32, 255, BLOCK_BYTES as u32);
    }
}

fn answer(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}
