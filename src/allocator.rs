//! What the allocator of this process keeps of what was freed.
//!
//! The C library gives each thread that allocates an arena of its own, up to eight for each cpu, and after a large buffer
//! was freed it takes the next ones from arenas, too, where they stay. A process whose memory is counted can afford
//! neither: figures are in `docs/memory.md`.
#![allow(unsafe_code, reason = "the C library is told by a function of its own")]

/// Arenas of all threads together: enough that few wait for each other.
#[cfg(target_env = "gnu")]
const ARENAS: i32 = 8;
/// What is at least so large is mapped by itself, and given back when it is freed, bytes. Batches of control messages are smaller: to map
/// each of those takes more processor time than all that is done with them (`docs/benchmarks.md`).
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: i32 = 1 << 20;
/// More than that at the end of an arena is given back, bytes.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: i32 = 1 << 20;

/// Says so to the allocator; first thing in `main`, before there are threads.
pub fn settle() {
    #[cfg(target_env = "gnu")]
    for (what, value) in
        [(libc::M_ARENA_MAX, ARENAS), (libc::M_MMAP_THRESHOLD, MAPPED_BYTES), (libc::M_TRIM_THRESHOLD, KEPT_BYTES)]
    {
        // SAFETY: `mallopt` takes two numbers and may be called at any time; what it does not know it refuses.
        unsafe { libc::mallopt(what, value) };
    }
}
