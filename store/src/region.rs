//! The one piece of memory that all blocks lie in.
//!
//! A `memfd`, mapped shared, so that executors in other processes can map the same bytes and a crash of theirs loses
//! nothing. The address range of the whole budget is reserved at once; memory behind it comes segment by segment, so that
//! a tiny job starts at once and a full machine is an error here instead of a SIGBUS at some store instruction later.
//! Memory is given back while the store is open only where what is beside the region needs it ([`Region::withdraw`]).
//!
//! Measured on 2 cores, 3 GiB in segments of 64 MiB: touching page by page 1.2 to 1.7 GB/s; `fallocate` and then touching
//! 0.5 to 0.8; `fallocate` and then `MADV_POPULATE_WRITE` 0.9 to 1.1; `MADV_POPULATE_WRITE` alone, which is what happens
//! here, 2.6 to 2.9 GB/s, and the bytes are hot afterwards. Doing it per segment in the thread that needs the memory beats
//! doing it ahead in another, which competes for the page tables. Where the machine is virtual and its host has to find the
//! memory first, one thread gets 0.37 GB/s and two together 0.73: so threads that need memory at the same time back
//! different segments, and none waits for another's but to have everything below its own.
//!
//! # Soundness
//!
//! This module holds the `unsafe` of the crate. What makes it sound:
//! - a [`Lease`] is the only way to write, and there is at most one for a span at a time: spans come from the
//!   [allocator](crate::alloc), which never hands a byte out twice, and whoever turns a span into a lease
//!   ([`Region::lease`]) is its only owner until the lease is turned into a span again;
//! - a [`View`] is the only way to read for those who do not own; it is made only of spans that are sealed, which
//!   nobody writes to again, and that are pinned for as long as the view lives ([`Region::view`]);
//! - both keep the mapping alive, and the mapping never moves;
//! - reading a byte that nobody wrote is defined: memory of the kernel starts as zeros.
//!
//! Both constructors are `unsafe`, and called in `hold.rs`, beside the table that knows who owns what, and in
//! `lent/span.rs`, on the word of the process that has that table.
//!
//! Another process maps the same file ([`Region::of_other`]) without the right to store to it. It gets that right for the
//! pages of each span that it may write ([`Region::allow_stores`]) and for no longer: a stray pointer there ends that
//! process, and no sealed byte changes.
#![allow(unsafe_code)]

use std::{
    collections::BTreeMap,
    fmt, io,
    ops::{Deref, Range},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex, RwLock};
use rustix::{
    fs::{FallocateFlags, MemfdFlags, SealFlags},
    io::Errno,
    mm::{Advice, MapFlags, MprotectFlags, ProtFlags},
};

use crate::{
    alloc::{PAGE, Span},
    clock::Clock,
};

/// First segment: small, so that a job of a few kilobytes does not wait for memory it will not use.
const SEGMENT_MIN: u64 = 1 << 20;
/// Largest segment: some 25 ms of first touch for whoever happens to need it.
const SEGMENT_MAX: u64 = 32 << 20;
/// The machine keeps at least so much when the region grows.
pub(crate) const MACHINE_SPARE: u64 = 64 << 20;

/// The mapping.
pub(crate) struct Region {
    file: OwnedFd,
    start: NonNull<u8>,
    bytes: u64,
    /// Two parts that grow each from its start: blocks, and behind them the executors' reserve.
    zones: [Zone; 2],
    clock: Arc<dyn Clock>,
    growth: Mutex<Growth>,
    /// Start and end of spans of blocks that have no memory although others behind them have: see [`Region::withdraw`]. Who
    /// puts memory behind a segment reads them meanwhile.
    holes: RwLock<BTreeMap<u64, u64>>,
    /// Bytes that threads are backing just now.
    populating: AtomicU64,
}

#[derive(Debug)]
struct Zone {
    end: u64,
    /// Everything in the zone below is backed by memory.
    backed: AtomicU64,
    growing: Mutex<Growing>,
    /// When a segment has memory, or cannot have it.
    grown: Condvar,
}

/// Segments of a zone that are being backed, and those that are but have one below that is not yet.
#[derive(Debug)]
struct Growing {
    /// Everything below is backed, or somebody is about to.
    claimed: u64,
    /// Start and end of segments beyond what is backed as a whole.
    done: BTreeMap<u64, u64>,
}

/// What new memory costs: bytes, and seconds of a processor; what is long ago counts less. Time that the thread waited for a
/// processor is none of its cost: on a busy machine all memory would seem slow.
#[derive(Debug, Default)]
struct Growth {
    bytes: f64,
    seconds: f64,
}

/// How much of what came before still counts with each segment.
const GROWTH_KEPT: f64 = 0.875;

impl Growth {
    fn add(&mut self, bytes: u64, took: Duration) {
        self.bytes = self.bytes * GROWTH_KEPT + bytes as f64;
        self.seconds = self.seconds * GROWTH_KEPT + took.as_secs_f64();
    }

    fn rate(&self) -> u64 {
        // No time passes on a simulated clock.
        if self.seconds > 0.0 { (self.bytes / self.seconds) as u64 } else { u64::MAX }
    }
}

impl Zone {
    fn new(start: u64, end: u64) -> Self {
        let growing = Mutex::new(Growing { claimed: start, done: BTreeMap::new() });
        Self { end, backed: AtomicU64::new(start), growing, grown: Condvar::new() }
    }

    /// A segment has memory now. Segments may overlap, after one of them failed.
    fn done(&self, growing: &mut Growing, segment: Range<u64>) {
        growing.done.insert(segment.start, segment.end);
        let mut backed = self.backed.load(Ordering::Acquire);
        while let Some(first) = growing.done.first_entry().filter(|first| *first.key() <= backed) {
            backed = backed.max(first.remove());
        }
        self.backed.store(backed, Ordering::Release);
    }
}

// SAFETY: the pointer is to a shared mapping that lives as long as the region; the type itself only reserves and backs
// memory. Access goes through `Lease` and `View`, see above.
unsafe impl Send for Region {}
// SAFETY: as above; `backed` is atomic, and who backs which segment is decided below `growing`.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves addresses for `blocks` bytes and behind them `reserve` bytes, both multiples of 4096; takes no memory
    /// yet.
    pub fn reserve(blocks: u64, reserve: u64, clock: Arc<dyn Clock>) -> io::Result<Region> {
        let bytes = blocks + reserve;
        let file = rustix::fs::memfd_create("exobus-store", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes)?;
        // Nobody who maps it can cut it short under us.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Region::over(file, blocks, reserve, clock, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps the region of another process, to read. That process sees to it that there is memory behind whatever it says is
    /// somewhere.
    pub fn of_other(file: OwnedFd, clock: Arc<dyn Clock>) -> io::Result<Region> {
        let bytes = u64::try_from(rustix::fs::fstat(&file)?.st_size).map_err(|_| io::ErrorKind::InvalidData)?;
        let region = Region::over(file, bytes, 0, clock, ProtFlags::READ)?;
        region.zones[0].backed.store(bytes, Ordering::Release);
        Ok(region)
    }

    /// Maps a file of as many bytes.
    fn over(
        file: OwnedFd,
        blocks: u64,
        reserve: u64,
        clock: Arc<dyn Clock>,
        protection: ProtFlags,
    ) -> io::Result<Region> {
        let bytes = blocks + reserve;
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that anyone has.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let zones = [Zone::new(0, blocks), Zone::new(blocks, bytes)];
        Ok(Region {
            file,
            start,
            bytes,
            zones,
            clock,
            growth: Mutex::default(),
            holes: RwLock::default(),
            populating: AtomicU64::new(0),
        })
    }

    /// Bytes for blocks that are backed by memory, from the start on.
    pub fn backed(&self) -> u64 {
        self.zones[0].backed.load(Ordering::Acquire)
    }

    /// Bytes that are backed by memory in all.
    pub fn backed_bytes(&self) -> u64 {
        let backed = self.backed();
        let holes: u64 = self.holes.read().range(..backed).map(|(start, end)| end.min(&backed) - start).sum();
        backed - holes + self.zones[1].backed.load(Ordering::Acquire) - self.zones[0].end
    }

    /// At how many bytes per second of a processor new memory comes: a mean of the last segments, `u64::MAX` before the first.
    pub fn growth(&self) -> u64 {
        self.growth.lock().rate()
    }

    /// Where the blocks end that are backed, or are about to be.
    pub fn reached(&self) -> u64 {
        let growing = self.zones[0].growing.lock();
        let done = growing.done.last_key_value().map_or(0, |(_, end)| *end);
        growing.claimed.max(done).max(self.backed())
    }

    fn zone_of(&self, end: u64) -> &Zone {
        if end <= self.zones[0].end { &self.zones[0] } else { &self.zones[1] }
    }

    /// The file behind the mapping, for other processes to map.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Makes sure that all bytes of a zone below `end` are backed.
    ///
    /// # Errors
    /// The machine has no more memory (`ENOMEM`, `ENOSPC`); nothing changed but perhaps some segments below.
    pub fn back(&self, end: u64) -> io::Result<()> {
        let zone = self.zone_of(end);
        if end <= zone.backed.load(Ordering::Acquire) {
            return Ok(());
        }
        assert!(end <= self.bytes, "{end} is beyond the region of {} bytes", self.bytes);
        let mut growing = zone.growing.lock();
        while zone.backed.load(Ordering::Acquire) < end {
            if growing.claimed >= end {
                // Others are at it. Should one of them fail, it claims no more, and this thread finds out why.
                zone.grown.wait(&mut growing);
                continue;
            }
            let from = growing.claimed;
            let segment = self.segment(zone, &growing);
            growing.claimed += segment;
            drop(growing);
            let populated = self.populate(from, segment);
            growing = zone.growing.lock();
            match &populated {
                Ok(()) => zone.done(&mut growing, from..from + segment),
                Err(_) => growing.claimed = growing.claimed.min(from),
            }
            zone.grown.notify_all();
            populated?;
        }
        Ok(())
    }

    /// Bytes of the next segment of a zone.
    fn segment(&self, zone: &Zone, growing: &Growing) -> u64 {
        let half = (self.backed_bytes() / 2).clamp(SEGMENT_MIN, SEGMENT_MAX).next_multiple_of(PAGE);
        half.min(zone.end - growing.claimed)
    }

    /// Puts memory behind a segment.
    fn populate(&self, from: u64, bytes: u64) -> io::Result<()> {
        let began = self.clock.thread_time();
        let populated = self.if_machine_has(bytes, || self.populate_now(from, bytes));
        if populated.is_ok() {
            self.growth.lock().add(bytes, self.clock.thread_time().saturating_sub(began));
        }
        populated
    }

    /// Populates, unless the machine has not so much: it would end some process to get it.
    fn if_machine_has(&self, bytes: u64, populate: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let populating = self.populating.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let enough = machine_has().is_none_or(|available| available >= populating + MACHINE_SPARE);
        let populated = if enough { populate() } else { Err(io::ErrorKind::OutOfMemory.into()) };
        self.populating.fetch_sub(bytes, Ordering::Relaxed);
        populated
    }

    /// Gives the memory behind a span of blocks, which is handed out to nobody, to the operating system. Nothing is put
    /// behind it until [`Region::restore`].
    pub fn withdraw(&self, span: Span) {
        let mut holes = self.holes.write();
        holes.insert(span.offset, span.end());
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = rustix::fs::fallocate(&self.file, flags, span.offset, span.bytes) {
            tracing::warn!(%error, bytes = span.bytes, "memory of the region cannot be given back");
        }
    }

    /// Gets memory for such a span again.
    ///
    /// # Errors
    /// As [`Region::back`]; the span stays as it is.
    pub fn restore(&self, span: Span) -> io::Result<()> {
        let reached = self.reached();
        let mut holes = self.holes.write();
        if span.offset < reached {
            self.if_machine_has(span.bytes, || self.populate_run(span.offset, span.bytes))?;
        }
        holes.remove(&span.offset);
        Ok(())
    }

    /// Puts memory behind what is no hole of a segment.
    fn populate_now(&self, from: u64, bytes: u64) -> io::Result<()> {
        let holes = self.holes.read();
        let (mut at, end) = (from, from + bytes);
        let first = holes.range(..from).next_back().filter(|(_, hole_end)| **hole_end > from);
        for (&hole, &hole_end) in first.into_iter().chain(holes.range(from..end)) {
            if hole > at {
                self.populate_run(at, hole - at)?;
            }
            at = hole_end;
        }
        if at < end { self.populate_run(at, end - at) } else { Ok(()) }
    }

    fn populate_run(&self, from: u64, bytes: u64) -> io::Result<()> {
        // SAFETY: the range is inside the mapping; populating changes no byte.
        let populated = unsafe {
            let start = self.start.as_ptr().add(from as usize).cast();
            rustix::mm::madvise(start, bytes as usize, Advice::LinuxPopulateWrite)
        };
        match populated {
            // Kernels before 5.14 do not know the advice.
            Err(Errno::INVAL) => rustix::fs::fallocate(&self.file, FallocateFlags::empty(), from, bytes)?,
            // What a store instruction would have ended with: no memory, or no room in the file system of the file.
            Err(Errno::FAULT) => return Err(io::ErrorKind::OutOfMemory.into()),
            other => other?,
        }
        Ok(())
    }

    /// Where bytes lie that are in this mapping.
    pub fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.start.as_ptr() as usize)? as u64;
        (offset + bytes.len() as u64 <= self.bytes).then_some(offset)
    }

    /// Of the region of another process: whether this one may store to the pages of a span. Neighbours are never allowed at
    /// the same time on the same page: what is written lies in whole pages.
    ///
    /// # Errors
    /// The kernel has too many mappings of this process.
    pub fn allow_stores(&self, span: Span, allow: bool) -> io::Result<()> {
        let from = span.offset / PAGE * PAGE;
        let bytes = span.end().next_multiple_of(PAGE) - from;
        assert!(from + bytes <= self.bytes, "{span:?} is beyond the region of {} bytes", self.bytes);
        let flags = if allow { MprotectFlags::READ | MprotectFlags::WRITE } else { MprotectFlags::READ };
        // SAFETY: the range is inside the mapping, and what may be stored to is what leases are made of.
        unsafe {
            let start = self.start.as_ptr().add(from as usize).cast();
            rustix::mm::mprotect(start, bytes as usize, flags)?;
            // The memory is there; without this each page of it would be a fault of its own. Only speed depends on it.
            if allow {
                let _ = rustix::mm::madvise(start, bytes as usize, Advice::LinuxPopulateWrite);
            }
        }
        Ok(())
    }

    fn address(&self, offset: u64, bytes: u64) -> NonNull<u8> {
        let backed = self.zone_of(offset + bytes).backed.load(Ordering::Acquire);
        assert!(offset + bytes <= backed, "bytes {offset}+{bytes} of the region have no memory behind them");
        // SAFETY: just checked that the range is inside the mapping.
        unsafe { self.start.add(offset as usize) }
    }

    /// Takes a span for writing. All of it must be backed ([`Region::back`]).
    ///
    /// # Safety
    /// The span was handed out by the region's allocator, was not freed since, and there is neither another lease nor a
    /// view of any of its bytes until the returned lease is gone.
    pub unsafe fn lease(self: &Arc<Self>, span: Span) -> Lease {
        Lease { start: self.address(span.offset, span.bytes), span, region: self.clone() }
    }

    /// Reads sealed bytes.
    ///
    /// # Safety
    /// There is no lease of these bytes, and the span they are part of is not freed before the view is gone.
    pub unsafe fn view(self: &Arc<Self>, offset: u64, bytes: u64) -> View {
        View { start: self.address(offset, bytes), bytes: bytes as usize, _region: self.clone() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: leases and views keep the region alive, so none is left that could use the mapping.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes as usize) };
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("bytes", &self.bytes).field("zones", &self.zones).finish_non_exhaustive()
    }
}

/// `MemAvailable` of the machine in bytes; `None` where there is no such file.
pub(crate) fn machine_has() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// The right to write a span, held by one owner.
#[derive(Debug)]
pub(crate) struct Lease {
    start: NonNull<u8>,
    span: Span,
    region: Arc<Region>,
}

// SAFETY: a lease is like a `Box<[u8]>`: unique owner of plain bytes.
unsafe impl Send for Lease {}
// SAFETY: shared access gives `&[u8]` only.
unsafe impl Sync for Lease {}

impl Lease {
    /// Where it lies. The lease stays the only one that may be made of it.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Ends the lease; the span can be sealed, leased again or freed.
    pub fn into_span(self) -> Span {
        self.span
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range is backed and nobody else writes to it while the lease lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.span.bytes as usize) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range is backed, and the lease is its only accessor and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.span.bytes as usize) }
    }

    /// The lease is of `span` from now on, which begins at the same byte and was made longer or shorter by the
    /// allocator. The region is backed as far as needed.
    ///
    /// # Errors
    /// No memory for the longer span; the lease is unchanged.
    pub fn resize(&mut self, span: Span) -> io::Result<()> {
        assert_eq!(span.offset, self.span.offset, "a lease does not move");
        self.region.back(span.end())?;
        self.span = span;
        Ok(())
    }
}

/// Sealed bytes; whoever holds a view sees to it that they stay.
#[derive(Clone)]
pub(crate) struct View {
    start: NonNull<u8>,
    bytes: usize,
    _region: Arc<Region>,
}

// SAFETY: a view gives `&[u8]` of bytes that nobody writes to.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// A part of it.
    pub fn slice(&self, range: Range<usize>) -> View {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} of {} bytes", self.bytes);
        // SAFETY: just checked that it stays inside.
        let start = unsafe { self.start.add(range.start) };
        View { start, bytes: range.len(), _region: self._region.clone() }
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are backed, sealed and pinned for as long as the view lives (contract of `Region::view`).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn memory_comes_segment_by_segment() {
        let region = Arc::new(Region::reserve(1 << 30, 1 << 20, Arc::new(SystemClock::new())).unwrap());
        assert_eq!(region.backed(), 0);
        region.back(1).unwrap();
        assert_eq!(region.backed(), SEGMENT_MIN);
        let span = Span { offset: 4 << 20, bytes: 4096 };
        region.back(span.end()).unwrap();
        assert!(region.backed() < 16 << 20);
        let before = region.backed_bytes();
        region.back((1 << 30) + 4096).unwrap();
        assert_eq!(region.backed_bytes(), before + SEGMENT_MIN, "the reserve grows on its own");
        // SAFETY: nobody else uses the region.
        let mut lease = unsafe { region.lease(span) };
        assert!(lease.bytes().iter().all(|byte| *byte == 0));
        lease.bytes_mut()[7] = 9;
        let span = lease.into_span();
        // SAFETY: the lease is gone, nothing is freed.
        let view = unsafe { region.view(span.offset, span.bytes) };
        assert_eq!(view.slice(6..9)[..], [0, 9, 0]);
    }

    #[test]
    fn threads_that_need_memory_at_the_same_time_share_the_work() {
        let region = Region::reserve(256 << 20, 1 << 20, Arc::new(SystemClock::new())).unwrap();
        std::thread::scope(|scope| {
            for thread in 1..=8_u64 {
                let region = &region;
                scope.spawn(move || {
                    for step in 1..=8 {
                        let end = thread * (step << 20);
                        region.back(end).unwrap();
                        assert!(region.backed() >= end);
                    }
                });
            }
        });
        assert!(region.backed() >= 64 << 20);
        let growing = region.zones[0].growing.lock();
        assert_eq!((growing.claimed, growing.done.len()), (region.backed(), 0), "nothing is left half done");
    }

    /// Bytes of the file that have memory.
    fn resident(region: &Region) -> u64 {
        u64::try_from(rustix::fs::fstat(&region.file).unwrap().st_blocks).unwrap() * 512
    }

    #[test]
    fn what_is_withdrawn_has_no_memory_until_it_is_restored() {
        const MIB: u64 = 1 << 20;
        let region = Region::reserve(64 * MIB, MIB, Arc::new(SystemClock::new())).unwrap();
        region.back(8 * MIB).unwrap();
        let backed = region.backed();
        assert_eq!(resident(&region), backed);
        let (near, far) = (Span { offset: 4 * MIB, bytes: MIB }, Span { offset: 63 * MIB, bytes: MIB });
        region.withdraw(near);
        region.withdraw(far);
        assert_eq!((resident(&region), region.backed_bytes()), (backed - MIB, backed - MIB));
        // Growing goes around the holes.
        region.back(64 * MIB).unwrap();
        assert_eq!((resident(&region), region.backed_bytes()), (62 * MIB, 62 * MIB));
        region.restore(near).unwrap();
        region.restore(far).unwrap();
        assert_eq!((resident(&region), region.backed_bytes()), (64 * MIB, 64 * MIB));
    }

    /// A machine on which every look at the clock takes a second, of which the thread has a quarter.
    #[derive(Default)]
    struct Busy(AtomicU64);

    impl Clock for Busy {
        fn now(&self) -> Duration {
            Duration::from_secs(self.0.fetch_add(1, Ordering::Relaxed))
        }

        fn thread_time(&self) -> Duration {
            self.now() / 4
        }

        fn unix_ms(&self) -> u64 {
            0
        }
    }

    #[test]
    fn memory_costs_the_time_of_a_processor_and_not_that_of_waiting_for_one() {
        const MIB: u64 = 1 << 20;
        let region = Region::reserve(64 * MIB, MIB, Arc::new(Busy::default())).unwrap();
        assert_eq!(region.growth(), u64::MAX, "nobody knows yet");
        region.back(1).unwrap();
        assert_eq!(region.growth(), 4 * SEGMENT_MIN, "a segment in a quarter of a second");
        region.back(32 * MIB).unwrap();
        assert!(region.growth() > 4 * SEGMENT_MIN, "the later ones are larger, and are as quick");
    }

    #[test]
    fn what_could_not_be_backed_is_claimed_again() {
        let region = Region::reserve(256 << 20, 1 << 20, Arc::new(SystemClock::new())).unwrap();
        region.back(1).unwrap();
        let zone = &region.zones[0];
        let from = region.backed();
        let mut growing = zone.growing.lock();
        // A thread that fails here while another backs the segment behind it.
        growing.claimed = from;
        zone.done(&mut growing, from + 4096..from + 8192);
        drop(growing);
        assert_eq!(region.backed(), from);
        region.back(from + 1).unwrap();
        assert!(region.backed() >= from + 8192 && zone.growing.lock().done.is_empty());
    }

    /// A file system in memory that is full ends a thread that stores to it with SIGBUS; here it is an error before.
    #[test]
    fn a_full_file_system_behind_the_region_is_an_error_and_no_signal() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root may mount, so this was not tried");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let full = std::thread::Builder::new().spawn(move || {
            use rustix::{
                fs::OFlags,
                mount::{MountFlags, MountPropagationFlags, mount, mount_change},
            };
            // SAFETY: of what is taken apart here, this thread alone makes use: it ends with it.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            mount("tmpfs", &path, "tmpfs", MountFlags::empty(), Some(c"size=6m")).unwrap();
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            let file = rustix::fs::open(path.join("region"), OFlags::RDWR | OFlags::CREATE, mode).unwrap();
            rustix::fs::ftruncate(&file, 65 << 20).unwrap();
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let clock = Arc::new(SystemClock::new());
            let region = Arc::new(Region::over(file, 64 << 20, 1 << 20, clock, protection).unwrap());
            let error = region.back(32 << 20).unwrap_err();
            let backed = region.backed();
            assert!(backed > 0 && backed < 6 << 20, "{backed}");
            // SAFETY: nobody else uses the region.
            let mut lease = unsafe { region.lease(Span { offset: 0, bytes: backed }) };
            lease.bytes_mut().fill(7);
            assert!(region.back(backed + 4096).is_err(), "and is one the next time");
            error
        });
        let error = full.unwrap().join().expect("no panic");
        assert!(matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull), "{error}");
    }

    #[test]
    #[should_panic(expected = "no memory behind")]
    fn memory_that_is_not_backed_cannot_be_leased() {
        let region = Arc::new(Region::reserve(1 << 30, 1 << 20, Arc::new(SystemClock::new())).unwrap());
        // SAFETY: panics before it makes one.
        let _ = unsafe { region.lease(Span { offset: 0, bytes: 4096 }) };
    }
}
