//! The one piece of memory that all blocks lie in.
//!
//! A `memfd`, mapped shared, so that executors in other processes can map the same bytes and a crash of theirs loses
//! nothing. The address range of the whole budget is reserved at once; memory behind it comes segment by segment, so that
//! a tiny job starts at once and a full machine is an error here instead of a SIGBUS at some store instruction later.
//! Memory is never given back while the store is open.
//!
//! Measured on 2 cores, 3 GiB in segments of 64 MiB: touching page by page 1.2 to 1.7 GB/s; `fallocate` and then touching
//! 0.5 to 0.8; `fallocate` and then `MADV_POPULATE_WRITE` 0.9 to 1.1; `MADV_POPULATE_WRITE` alone, which is what happens
//! here, 2.6 to 2.9 GB/s, and the bytes are hot afterwards. Doing it per segment in the thread that needs the memory beats
//! doing it ahead in another, which competes for the page tables.
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
//! Both constructors are `unsafe`, and called in `hold.rs` only, beside the table that knows who owns what.
#![allow(unsafe_code)]

use std::{
    io,
    ops::{Deref, Range},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::{
    fs::{FallocateFlags, MemfdFlags, SealFlags},
    io::Errno,
    mm::{Advice, MapFlags, ProtFlags},
};

use crate::alloc::{PAGE, Span};

/// First segment: small, so that a job of a few kilobytes does not wait for memory it will not use.
const SEGMENT_MIN: u64 = 1 << 20;
/// Largest segment: some 25 ms of first touch for whoever happens to need it.
const SEGMENT_MAX: u64 = 32 << 20;
/// The machine keeps at least so much when the region grows.
const MACHINE_SPARE: u64 = 64 << 20;

/// The mapping.
#[derive(Debug)]
pub(crate) struct Region {
    file: OwnedFd,
    start: NonNull<u8>,
    bytes: u64,
    /// Two parts that grow each from its start: blocks, and behind them the executors' reserve.
    zones: [Zone; 2],
    growing: Mutex<()>,
}

#[derive(Debug)]
struct Zone {
    end: u64,
    /// Everything in the zone below is backed by memory.
    backed: AtomicU64,
}

// SAFETY: the pointer is to a shared mapping that lives as long as the region; the type itself only reserves and backs
// memory. Access goes through `Lease` and `View`, see above.
unsafe impl Send for Region {}
// SAFETY: as above; `backed` is atomic and growth is serialised by `growing`.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves addresses for `blocks` bytes and behind them `reserve` bytes, both multiples of 4096; takes no memory
    /// yet.
    pub fn reserve(blocks: u64, reserve: u64) -> io::Result<Region> {
        let bytes = blocks + reserve;
        let file = rustix::fs::memfd_create("exobus-store", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes)?;
        // Nobody who maps it can cut it short under us.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that anyone has.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let zones = [(0, blocks), (blocks, bytes)].map(|(start, end)| Zone { end, backed: AtomicU64::new(start) });
        Ok(Region { file, start, bytes, zones, growing: Mutex::new(()) })
    }

    /// Bytes for blocks that are backed by memory, from the start on.
    pub fn backed(&self) -> u64 {
        self.zones[0].backed.load(Ordering::Acquire)
    }

    /// Bytes that are backed by memory in all.
    pub fn backed_bytes(&self) -> u64 {
        self.backed() + self.zones[1].backed.load(Ordering::Acquire) - self.zones[0].end
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
        let _growing = self.growing.lock();
        loop {
            let from = zone.backed.load(Ordering::Acquire);
            if from >= end {
                return Ok(());
            }
            let segment =
                (self.backed_bytes() / 2).clamp(SEGMENT_MIN, SEGMENT_MAX).next_multiple_of(PAGE).min(zone.end - from);
            if machine_has().is_some_and(|available| available < segment + MACHINE_SPARE) {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.populate(from, segment)?;
            zone.backed.store(from + segment, Ordering::Release);
        }
    }

    /// Puts memory behind a segment.
    fn populate(&self, from: u64, bytes: u64) -> io::Result<()> {
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

/// `MemAvailable` of the machine in bytes; `None` where there is no such file.
fn machine_has() -> Option<u64> {
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

    #[test]
    fn memory_comes_segment_by_segment() {
        let region = Arc::new(Region::reserve(1 << 30, 1 << 20).unwrap());
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
    #[should_panic(expected = "no memory behind")]
    fn memory_that_is_not_backed_cannot_be_leased() {
        let region = Arc::new(Region::reserve(1 << 30, 1 << 20).unwrap());
        // SAFETY: panics before it makes one.
        let _ = unsafe { region.lease(Span { offset: 0, bytes: 4096 }) };
    }
}
