//! The store: what everybody calls.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    os::fd::BorrowedFd,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    alloc::PAGE,
    block::{Block, Origin},
    checksum,
    clock::Clock,
    directory::{Directory, byte_range},
    dirs::Dirs,
    disk::Disk,
    error::StoreError,
    files::Files,
    hold::{Held, Hold, OwnedSpan},
    ids::{CopyId, RowHash},
    io,
    lent::Place,
    meta::{ObjectMeta, PartMeta, Parts},
    options::{Beside, Class, StoreOptions, StoreStats, WriterOptions},
    outside::{Grant, Told},
    range_read::{self, RangeRead},
    reader::{LocalReader, ObjectReader},
    recover,
    region::Region,
    reserve::{RESERVE_MIN, Reserve},
    scratch::Scratch,
    shared::{Setup, Shared},
    stage::{GetFuture, StageItem, StageRequest, StageTicket},
    state::{PutAway, Sealed, State},
    table::{ExtentKey, NewExtent},
    writer::{LocalWriter, ObjectWriter, same_content},
};

/// Memory for objects beside the reserve that a store must have.
const BLOCKS_MIN: u64 = 4 << 20;
/// Objects of a group that are described at a time, for the same reason.
const LISTED_AT_ONCE: usize = 64;
/// How often who waits for an object to be on disk looks, should nothing be heard meanwhile.
const LOOKS_AGAIN: Duration = Duration::from_millis(50);
/// Objects of a group that are deleted at a time, so that others get their turn with the lock.
const DELETE_AT_ONCE: usize = 1000;

/// All objects of a node. Cheap to clone; every method can be called from any thread.
///
/// When the last handle is dropped, waits end with `Cancelled`, the disk threads end, and all files are removed (unless
/// [`StoreOptions::keep_files`]). Blocks that are still held stay readable.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    core: Arc<Core>,
}

/// What ends with the last handle.
struct Core {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    node: String,
    recovered: Mutex<Vec<ObjectMeta>>,
}

impl Store {
    /// Opens a store. Takes no memory yet; touches the spill directories only when files of an earlier process may be
    /// there.
    ///
    /// # Errors
    /// `BudgetTooSmall`; `DirectoryLocked`; a spill directory that cannot be read (with
    /// [`StoreOptions::keep_files`]); threads or addresses that the system does not give.
    pub fn open(options: StoreOptions, disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Result<Store, StoreError> {
        let executors = options.executors.max(1) as u64;
        let per_executor = (options.reserve_per_executor_bytes / PAGE * PAGE).max(RESERVE_MIN);
        let reserve_bytes = executors * per_executor;
        let smallest = reserve_bytes + BLOCKS_MIN;
        if options.memory_bytes < smallest {
            return Err(StoreError::BudgetTooSmall { given: options.memory_bytes, smallest });
        }
        let blocks_bytes = (options.memory_bytes - reserve_bytes) / PAGE * PAGE;
        let region = Region::reserve(blocks_bytes, reserve_bytes, clock.clone())
            .map_err(|source| StoreError::Region { bytes: options.memory_bytes, source: Arc::new(source) })?;
        let node = if options.node.is_empty() { random_name() } else { options.node.clone() };
        let dirs = Dirs::new(disk, &options.spill_dirs, &node, options.keep_files);
        let io_threads = options.io_threads.max(1);
        let writers = (io_threads / 2).max(1);
        let files = Files::new(dirs.paths(), clock.unix_ms());
        let shared = Arc::new(Shared::new(Setup {
            region,
            // One more than can write, so that the next request is there when one ends.
            state: State::new(blocks_bytes, files, writers as u64 + 1),
            reserve: Reserve::new(blocks_bytes, reserve_bytes),
            dirs,
            clock,
            on_event: options.on_event.clone(),
            release: options.release,
            memory_bytes: options.memory_bytes,
            reserve_bytes,
            writers: writers as u64,
        }));
        let recovered = if options.keep_files { recover::recover(&shared)? } else { Vec::new() };
        shared.dirs.sweep(&options.spill_dirs);
        let mut core = Core { shared: shared.clone(), threads: Vec::new(), node, recovered: Mutex::new(recovered) };
        for nth in 0..io_threads {
            let (shared, writes) = (shared.clone(), nth < writers);
            let thread = std::thread::Builder::new()
                .name(format!("store-io-{nth}"))
                .spawn(move || io::run(&shared, writes))
                .map_err(|error| StoreError::disk("start a thread for", &PathBuf::from("store"), error))?;
            core.threads.push(thread);
        }
        Ok(Store { shared, core: Arc::new(core) })
    }

    /// Name of the node: that of the options, or the random one.
    pub fn node(&self) -> &str {
        &self.core.node
    }

    /// How often a node of this name was started with these spill directories, this time included; 1 where nothing is
    /// kept, or nothing was there to be kept.
    pub fn starts(&self) -> u64 {
        self.shared.dirs.starts()
    }

    /// What an earlier process of this node left on disk and can be read: for announcing. They are ordinary objects of
    /// this store until somebody deletes them. Takes the list: a second call gives none.
    pub fn recovered(&self) -> Vec<ObjectMeta> {
        std::mem::take(&mut self.core.recovered.lock())
    }

    /// Begins an object.
    pub fn writer(&self, id: CopyId, options: WriterOptions) -> ObjectWriter {
        LocalWriter::new(self.shared.clone(), id, options).into()
    }

    /// Stores bytes as an object of one part without rows; `name` makes its name of the xxh3-128 of the content.
    ///
    /// # Errors
    /// No memory, and no directory to write to. `Conflict` when there is an object of this name with other content.
    pub fn put(&self, bytes: &[u8], name: impl FnOnce(u128) -> CopyId) -> Result<ObjectMeta, StoreError> {
        let length = bytes.len() as u64;
        let mut span = if bytes.is_empty() { None } else { self.shared.allocate(length, false) };
        let options = WriterOptions { bytes_hint: length, ..WriterOptions::default() };
        let (content, checksum) = match &mut span {
            Some(span) => checksum::copy_with_content(&mut span.bytes_mut()[..bytes.len()], bytes),
            None => checksum::content_and_checksum(bytes),
        };
        let id = name(content);
        if span.is_none() && !bytes.is_empty() {
            return self.put_to_disk(id, options, bytes, 0, RowHash::default());
        }
        let part = PartMeta { offset: 0, bytes: length, rows: 0, row_hash: RowHash::default(), checksum };
        self.seal_one_part(id, options, span, part)
    }

    /// Stores a copy of bytes as an object of one part with a given name, as a writer would, for small outputs.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_as(
        &self,
        id: CopyId,
        options: WriterOptions,
        bytes: &[u8],
        rows: u64,
        row_hash: RowHash,
    ) -> Result<ObjectMeta, StoreError> {
        let length = bytes.len() as u64;
        let mut span = None;
        if !bytes.is_empty() {
            let Some(room) = self.shared.allocate(length, false) else {
                return self.put_to_disk(id, options, bytes, rows, row_hash);
            };
            span.insert(room).bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        }
        let part = PartMeta { offset: 0, bytes: length, rows, row_hash, checksum: checksum::of(bytes) };
        self.seal_one_part(id, options, span, part)
    }

    fn put_to_disk(
        &self,
        id: CopyId,
        options: WriterOptions,
        bytes: &[u8],
        rows: u64,
        row_hash: RowHash,
    ) -> Result<ObjectMeta, StoreError> {
        let mut writer = self.writer(id, options);
        writer.begin_part(Some(bytes.len() as u64))?;
        writer.write(bytes)?;
        writer.end_part(rows, row_hash);
        writer.seal()
    }

    fn seal_one_part(
        &self,
        id: CopyId,
        options: WriterOptions,
        span: Option<OwnedSpan>,
        part: PartMeta,
    ) -> Result<ObjectMeta, StoreError> {
        let extent =
            span.as_ref().map(|span| NewExtent { start: 0, bytes: part.bytes, memory: Some(span.span()), disk: None });
        let existing = self.shared.with(|state| {
            let existing = state.meta(&id);
            if existing.is_none() {
                let (directory, extents) = (Directory::new(&[part]), extent.as_slice());
                state.seal(Sealed { id, maker: options.maker, directory, extents });
            }
            existing
        });
        match existing {
            None => {
                span.map(|span| span.into_span());
                Ok(ObjectMeta {
                    id,
                    bytes: part.bytes,
                    rows: part.rows,
                    row_hash: part.row_hash,
                    parts: Arc::new([part]),
                })
            }
            Some(existing) if same_content(&existing.parts, &[part]) => Ok(existing),
            Some(_) => Err(StoreError::Conflict(id)),
        }
    }

    /// Parts of an object as one block: at once and without a copy when they are in memory in one piece, else when
    /// memory for them was granted (class arguments) and they were loaded. Pinned while the block lives.
    ///
    /// The future resolves to `NotFound`, `NoSuchPart`, `TooLarge`, `Corrupt`, `Disk`, `DiskFull` or `Cancelled` where
    /// that cannot be.
    pub fn get(&self, id: &CopyId, parts: Parts) -> GetFuture {
        match self.resident(id, parts) {
            Err(error) => GetFuture::ready(Err(error)),
            Ok(Some(block)) => GetFuture::ready(Ok(block)),
            Ok(None) => {
                let items = vec![StageItem::Local { object: *id, parts }];
                GetFuture::waits(self.stage(StageRequest { items, class: Class::Arguments }))
            }
        }
    }

    /// As [`Store::get`], but only what is in memory in one piece already: never waits, never copies.
    pub fn try_get(&self, id: &CopyId, parts: Parts) -> Option<Block> {
        self.resident(id, parts).ok().flatten()
    }

    fn resident(&self, id: &CopyId, parts: Parts) -> Result<Option<Block>, StoreError> {
        let first_part = if let Parts::Range(from, _) = parts { from } else { 0 };
        let found = self.shared.with(|state| {
            let (key, object, parts) = state.find(id, parts)?;
            let origin = Origin { object: *id, maker: object.maker, first_part };
            let range = byte_range(&parts);
            if range.is_empty() {
                return Ok(Some((origin, parts, None)));
            }
            let pinned = state.pin_resident(key, range.clone());
            Ok(pinned.map(|(extent, offset)| (origin, parts, Some((extent, offset, range.end - range.start)))))
        })?;
        Ok(found.map(|(origin, parts, pinned)| {
            let bytes = pinned.map(|(extent, offset, bytes)| {
                let hold = Arc::new(Hold::new(self.shared.clone(), Held::Extent(extent)));
                (self.shared.view(offset, bytes), hold)
            });
            Block::new(origin, parts, bytes)
        }))
    }

    /// Asks for memory for everything at once: it is granted as a whole, in order of arrival within the class. Local
    /// objects that are on disk are loaded before the ticket resolves.
    pub fn stage(&self, request: StageRequest) -> StageTicket {
        StageTicket::new(&self.shared, request)
    }

    /// Parts of an object as a stream, read ahead from disk into `window`: scratch memory of this store, granted with what
    /// else its task needs ([`StageItem::Scratch`]) or got from [`Store::scratch`]. One page will do, several are faster.
    ///
    /// # Errors
    /// `NotFound`, `NoSuchPart`; `Denied` when the first part is on disk and the window has no page.
    pub fn reader(&self, id: &CopyId, parts: Parts, window: Scratch) -> Result<ObjectReader, StoreError> {
        Ok(LocalReader::open(&self.shared, id, parts, window)?.into())
    }

    /// Any run of bytes of an object, for sending; see [`RangeRead`].
    ///
    /// # Errors
    /// `NotFound`; `OutOfRange`.
    pub fn read_range(&self, id: &CopyId, offset: u64, bytes: u64) -> Result<RangeRead, StoreError> {
        range_read::open(&self.shared, id, offset, bytes)
    }

    /// Memory for a task's own use, if there is any now; it waits at most for disk requests of the store itself that
    /// are bound to set it free.
    ///
    /// # Errors
    /// `Denied`: do it with less memory, or on disk.
    pub fn scratch(&self, bytes: u64) -> Result<Scratch, StoreError> {
        if bytes == 0 {
            return Ok(Scratch::new(None, 0));
        }
        match self.shared.allocate(bytes, true) {
            Some(span) => Ok(Scratch::new(Some(span), bytes as usize)),
            None => Err(StoreError::Denied { bytes, free: self.shared.with(|state| state.budget.free()) }),
        }
    }

    /// Keeps an object's bytes where they are, in memory or on disk, until the pin is dropped: neither spilled nor
    /// freed, even when the object is deleted.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn pin(&self, id: &CopyId) -> Result<Pin, StoreError> {
        let extents: Vec<ExtentKey> = self.shared.with(|state| {
            let key = state.table.key(id).ok_or(StoreError::NotFound(*id))?;
            let extents: Vec<ExtentKey> = state.table.extents_of(key).map(|(extent, _)| extent).collect();
            extents.iter().for_each(|extent| state.pin(*extent));
            Ok(extents)
        })?;
        let hold = |extent| Hold::new(self.shared.clone(), Held::Extent(extent));
        Ok(Pin { _holds: extents.into_iter().map(hold).collect() })
    }

    /// Reads all of an object and compares every part with its checksum: for when somebody who got it from here says
    /// that it is corrupt. An object that is, leaves the store.
    ///
    /// # Errors
    /// `Corrupt`, naming the part; `NotFound`; a disk error.
    pub fn verify(&self, id: &CopyId) -> Result<(), StoreError> {
        let meta = self.meta(id).ok_or(StoreError::NotFound(*id))?;
        let mut piece = Vec::new();
        for (nth, part) in meta.parts.iter().enumerate() {
            let sum = match self.read_range(id, part.offset, part.bytes)? {
                RangeRead::Memory(block) => checksum::of(&block),
                RangeRead::Disk(mut range) => {
                    let mut hasher = checksum::Streaming::new();
                    piece.resize(256 << 10, 0);
                    loop {
                        match range.read(&mut piece)? {
                            0 => break hasher.finish(),
                            count => hasher.write(&piece[..count]),
                        }
                    }
                }
            };
            if sum != part.checksum {
                return Err(self.shared.with(|state| {
                    let (file, offset) = state.place_of(id, part.offset).unwrap_or_default();
                    let error = StoreError::Corrupt { object: *id, part: nth as u32, file, offset };
                    state.counters.corrupt_blocks += 1;
                    state.lose(*id, &error.to_string());
                    error
                }));
            }
        }
        Ok(())
    }

    /// Gives an object a second name, in whatever group: it stays under that one when the first is deleted, with its group or alone,
    /// and is the same bytes. While it has two, [`release_parts`](Self::release_parts) frees nothing of it. The same again changes nothing.
    ///
    /// # Errors
    /// `NotFound`: it is not here, or parts of it were released. `Conflict`: it has another second name, or there is another object of
    /// that name.
    pub fn name_also(&self, id: &CopyId, name: CopyId) -> Result<ObjectMeta, StoreError> {
        self.shared.with(|state| state.name_also(id, name))
    }

    /// As [`name_also`](Self::name_also), where the name may be another object's: it is taken from that one, which goes if it has no other. There is
    /// no moment at which the name means nothing, and where this fails nothing has changed.
    ///
    /// # Errors
    /// `NotFound`: it is not here, or parts of it were released. `Conflict`: it has another second name.
    pub fn move_name(&self, id: &CopyId, name: CopyId) -> Result<ObjectMeta, StoreError> {
        self.shared.with(|state| state.move_name(id, name))
    }

    /// Brings an object to disk, though there may be memory for it, and blocks until it is there; where files are
    /// [kept](StoreOptions::keep_files), with what says whose the bytes are, so that a process that is killed does not take it along.
    /// Its memory is anybody's then.
    ///
    /// # Errors
    /// `NotFound`; `DiskFull`: nowhere is room for it; `Cancelled`: it was not there `within` the time, or the store was closed.
    pub fn put_away(&self, id: &CopyId, within: Duration) -> Result<(), StoreError> {
        let begun = self.shared.clock.now();
        let bytes = self.meta(id).ok_or(StoreError::NotFound(*id))?.bytes;
        self.shared.restore_full_dirs(bytes);
        loop {
            match self.shared.with(|state| state.put_away(id, self.shared.dirs.keep))? {
                PutAway::Done => return Ok(()),
                PutAway::NoRoom => {
                    let error = self.shared.with(|state| state.disk_full(bytes));
                    return Err(self.shared.explain(error));
                }
                PutAway::Goes => {}
            }
            let waited = self.shared.clock.now().saturating_sub(begun);
            if waited >= within || self.shared.is_closed() {
                self.shared.with(|state| state.put_away_no_more(id));
                return Err(StoreError::Cancelled);
            }
            self.shared.wait_for_disk(LOOKS_AGAIN.min(within - waited));
        }
    }

    /// The directory of an object.
    pub fn meta(&self, id: &CopyId) -> Option<ObjectMeta> {
        self.shared.with(|state| state.meta(id))
    }

    /// Whether there is a sealed object of this id.
    pub fn contains(&self, id: &CopyId) -> bool {
        self.shared.with(|state| state.table.key(id).is_some())
    }

    /// Whether these parts of an object are here: it is, and they were not released.
    pub fn has(&self, id: &CopyId, parts: Parts) -> bool {
        self.shared.with(|state| state.find(id, parts).is_ok())
    }

    /// Deletes objects. Unknown ones are ignored; bytes that somebody reads are freed afterwards.
    pub fn delete(&self, ids: &[CopyId]) {
        for ids in ids.chunks(DELETE_AT_ONCE) {
            self.shared.with(|state| state.delete(ids));
        }
    }

    /// Frees parts of objects, once: nobody will ask for them again. Their bytes go as soon as nobody reads them and the
    /// others of the same extent are released, too; asking for them later is `NotFound`. Unknown objects are ignored.
    pub fn release_parts(&self, ids: &[CopyId], parts: Parts) {
        for ids in ids.chunks(DELETE_AT_ONCE) {
            self.shared.with(|state| state.release_parts(ids, parts));
        }
    }

    /// Deletes all sealed objects of a group.
    pub fn delete_group(&self, group: u128) {
        while self.shared.with(|state| state.delete_some_of_group(group, DELETE_AT_ONCE)) {}
    }

    /// To say how much memory something takes beside the region, whoever has asked for it; nothing yet.
    pub fn told(&self, kind: Beside) -> Told {
        Told::new(self.shared.clone(), kind)
    }

    /// Memory beside the region: of decoders, builders, pools, processes. The region gives way by as much, and spills what nobody holds for
    /// that. An answer, never a wait: it is granted, or denied, within some 100 ms.
    ///
    /// # Errors
    /// `Denied`: do it with less, or on disk. `NeverGranted`: this store cannot, whoever gives way.
    pub fn outside(&self, bytes: u64) -> Result<Grant, StoreError> {
        let mut grant = self.no_grant();
        grant.resize(bytes)?;
        Ok(grant)
    }

    /// A grant of nothing, to be made larger.
    pub fn no_grant(&self) -> Grant {
        Grant::own(self.shared.clone(), 0)
    }

    /// Groups that have sealed objects, in order.
    pub fn groups(&self) -> Vec<u128> {
        self.shared.with(|state| state.table.groups())
    }

    /// Ids of all sealed objects, in order: what a node announces after it was away.
    pub fn ids(&self) -> Vec<CopyId> {
        self.shared.with(|state| state.table.ids().copied().collect())
    }

    /// The sealed objects of a group, in order, each with the number of the copy that an attempt made whose bytes it has
    /// ([`WriterOptions::maker`]).
    pub fn inventory(&self, group: u128) -> Vec<(ObjectMeta, u32)> {
        let ids: Vec<CopyId> = self.shared.with(|state| state.table.of_group(group).map(|(id, _)| *id).collect());
        let mut held = Vec::with_capacity(ids.len());
        // What is deleted meanwhile is left out.
        for ids in ids.chunks(LISTED_AT_ONCE) {
            held.extend(self.shared.with(|state| {
                let entry = |id: &CopyId| Some((state.meta(id)?, state.table.object(state.table.key(id)?).maker));
                ids.iter().filter_map(entry).collect::<Vec<_>>()
            }));
        }
        held
    }

    /// Figures of this moment.
    pub fn stats(&self) -> StoreStats {
        let indexes_rebuilt = self.shared.indexes_rebuilt.load(Ordering::Relaxed);
        let mut stats = self.shared.with(|state| state.stats());
        stats.budget_bytes = self.shared.memory_bytes;
        stats.reserve_bytes = self.shared.reserve_bytes;
        stats.backed_bytes = self.shared.region.backed_bytes();
        stats.indexes_rebuilt = indexes_rebuilt;
        (stats.spill_us, stats.restore_us) = self.shared.disk_time.micros();
        stats.buffered_io = self.shared.dirs.buffered();
        stats
    }

    /// The file behind the region, for executors in other processes to map. Never write to sealed bytes.
    pub fn region_fd(&self) -> BorrowedFd<'_> {
        self.shared.region.fd()
    }

    /// Where bytes that this store shows or lets write lie in the region: what a process that maps it is told.
    pub fn place_of(&self, bytes: &[u8]) -> Option<Place> {
        let offset = self.shared.region.offset_of(bytes)?;
        Some(Place { offset, bytes: bytes.len() as u64 })
    }

    /// Waits until no disk request is queued or under way: for tests and measurements.
    pub fn wait_until_idle(&self) {
        self.shared.io.wait_until_idle();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.shared.close();
        if self.shared.dirs.keep {
            self.shared.with(|state| state.finish_files());
            self.shared.io.wait_until_idle();
        }
        self.shared.io.stop();
        let me = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // The last handle may be dropped by an event hook, on a thread of ours.
            if thread.thread().id() != me && thread.join().is_err() {
                tracing::error!("a disk thread panicked");
            }
        }
        self.shared.dirs.remove();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("node", &self.core.node).field("stats", &self.stats()).finish()
    }
}

/// Keeps an object's bytes where they are; see [`Store::pin`].
#[derive(Debug)]
pub struct Pin {
    _holds: Vec<Hold>,
}

/// 16 hexadecimal digits; `RandomState` is seeded by the operating system.
fn random_name() -> String {
    format!("tmp-{:016x}", RandomState::new().hash_one(std::process::id()))
}
