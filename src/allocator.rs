//! What the allocator of this process keeps of what was freed.
//!
//! The C library gives each thread that allocates an arena of its own, up to eight for each cpu, and after a large buffer
//! was freed it takes the next ones from arenas, too, where they stay. A process whose memory is counted can afford
//! neither: figures are in `docs/memory.md`.
#![allow(unsafe_code, reason = "the C library is told by a function of its own")]

#[cfg(target_env = "gnu")]
use libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, M_TOP_PAD, M_TRIM_THRESHOLD};

/// Other C libraries are told nothing.
#[cfg(not(target_env = "gnu"))]
mod other {
    pub(super) const M_ARENA_MAX: i32 = 0;
    pub(super) const M_MMAP_THRESHOLD: i32 = 0;
    pub(super) const M_TOP_PAD: i32 = 0;
    pub(super) const M_TRIM_THRESHOLD: i32 = 0;
}
#[cfg(not(target_env = "gnu"))]
use other::{M_ARENA_MAX, M_MMAP_THRESHOLD, M_TOP_PAD, M_TRIM_THRESHOLD};

/// Arenas of all threads together: enough that few wait for each other.
const ARENAS: i32 = 8;
/// What is at least so large is mapped by itself, and given back when it is freed, bytes. Batches of control messages are smaller: to map
/// each of those takes more processor time than all that is done with them (`docs/benchmarks.md`).
const MAPPED_BYTES: i32 = 1 << 20;
/// More than that at the end of an arena is given back, bytes.
const KEPT_BYTES: i32 = 1 << 20;

/// A node of so much memory keeps of each arena what one part of so many is, 1 MiB at least and 64 MiB at most.
const KEPT_SHARE: u64 = 64;

/// Says so to the allocator; first thing in `main`, before there are threads.
pub fn settle() {
    set([(M_ARENA_MAX, ARENAS), (M_MMAP_THRESHOLD, MAPPED_BYTES), (M_TRIM_THRESHOLD, KEPT_BYTES)]);
}

/// Lets the arenas keep more of what was freed, for tasks that decode and write tables: what one has freed the next one has without touching new memory. What they keep is within the
/// [surplus](exobus_store) of the node's store, which has [`release`] called before it takes that back.
pub fn keep(memory_bytes: u64) {
    let kept = (memory_bytes / KEPT_SHARE).clamp(KEPT_BYTES as u64, 64 << 20) as i32;
    let mapped = (kept / 16).clamp(MAPPED_BYTES, 4 << 20);
    // Arenas grow by a quarter of it at a time, and are not given back for less.
    set([(M_MMAP_THRESHOLD, mapped), (M_TRIM_THRESHOLD, kept), (M_TOP_PAD, kept / 4)]);
}

/// Gives the operating system what arenas keep.
pub fn release() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn set(values: [(i32, i32); 3]) {
    for (what, value) in values {
        #[cfg(target_env = "gnu")]
        // SAFETY: `mallopt` takes two numbers and may be called at any time; what it does not know it refuses.
        unsafe {
            libc::mallopt(what, value);
        }
        #[cfg(not(target_env = "gnu"))]
        let _ = (what, value);
    }
}
