//! What goes to disk and when: plain functions on plain numbers.
//!
//! Write early, drop late. When little memory is left, the oldest extents are written to disk but stay in memory until
//! somebody needs their place; so whoever comes finds memory that can be taken at once, a writer rarely meets a full
//! store, and nothing is read back that did not have to go. How little is little: a quarter of the budget, at most
//! 1 GiB, which is half a second of a good disk.
//!
//! Memory that nobody has touched yet is not always cheap. On a virtual machine whose host has to find it first, a thread
//! gets 0.4 GB/s, which is less than a disk, and all of that time is a processor's. Where writing and reading back take less,
//! disk and host work side by side: the levels are those of the memory touched so far, so that writes begin early, and the
//! region grows only when nothing clean can be taken. What is written for that reason alone is counted
//! ([`StoreStats::early_bytes`](crate::StoreStats::early_bytes)), and the summary of a job says it.

/// Bytes of one write or read request. Larger requests gained nothing on the reference machine, smaller ones lost.
pub(crate) const REQUEST_BYTES: u64 = 8 << 20;

/// Small blocks of a request, which are copied together to be written. Each disk thread has one buffer for them and for what
/// cannot be read into its place, which is not counted in the budget of the store.
pub(crate) const BUFFER_BYTES: u64 = 1 << 20;

/// A spill file takes no more once it has so many bytes. Above 100 MB files are as good as one, and small enough that
/// they become empty, and are deleted, while a job goes on.
pub(crate) const FILE_BYTES: u64 = 128 << 20;

/// So much memory is touched before it is asked what that costs: most jobs need no more, and a short one is over before its
/// writes would pay.
pub const GROW_FREELY_BYTES: u64 = 512 << 20;

/// New memory that comes more slowly than this, bytes per second of a processor, costs more than good disks do, which write it
/// and read it back at 1.6 to 2 GB/s.
const SLOW_GROWTH: u64 = 800_000_000;

/// Whether it pays to write to disk instead of touching new memory, each at so many bytes per second. What is written is read
/// back, too, which takes about as long. Before anything was written nobody knows, and it is tried.
pub(crate) fn grows_slowly(touched: u64, written: Option<u64>) -> bool {
    touched < SLOW_GROWTH && written.is_none_or(|written| written / 2 > touched)
}

/// What the store has and needs, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Levels {
    /// What is worth using of the budget.
    pub capacity: u64,
    /// Not handed out, of `capacity`.
    pub free: u64,
    /// In memory and on disk.
    pub clean: u64,
    /// In memory only, and nobody reads it.
    pub dirty: u64,
    /// Being written, and nobody reads it.
    pub writing: u64,
    /// Write requests under way.
    pub requests: u64,
    /// How many there may be.
    pub requests_max: u64,
    /// What those need who wait now; zero: nobody waits.
    pub needed: u64,
    /// Enough is free in sum, but not in one piece.
    pub fragmented: bool,
}

/// How much memory should be free or clean when nobody waits.
pub(crate) fn spare_bytes(capacity: u64) -> u64 {
    (capacity / 4).min(1 << 30)
}

/// Bytes of dirty extents to write with the next request, zero: none now.
pub(crate) fn bytes_to_write(levels: Levels) -> u64 {
    if levels.requests >= levels.requests_max || levels.dirty == 0 {
        return 0;
    }
    let soon = levels.free + levels.clean + levels.writing;
    let missing = if levels.fragmented { levels.dirty } else { levels.needed.saturating_sub(soon) };
    if missing > 0 {
        return missing.min(levels.dirty).clamp(1, REQUEST_BYTES);
    }
    let spare = spare_bytes(levels.capacity);
    // Nobody waits, so no request need be small: it may take until a full one is together.
    if soon < spare && (levels.dirty >= REQUEST_BYTES || levels.dirty >= spare) { REQUEST_BYTES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_that_is_slower_than_writing_and_reading_back_is_used_last() {
        const GB: u64 = 1_000_000_000;
        assert!(grows_slowly(GB * 2 / 5, None) && grows_slowly(GB * 2 / 5, Some(GB)));
        assert!(!grows_slowly(GB / 2, Some(GB)), "what is written is read back as well");
        assert!(!grows_slowly(GB / 2, Some(GB / 4)), "a disk that is slower still");
        assert!(!grows_slowly(3 * GB, None));
    }

    #[test]
    fn writes_begin_at_the_mark_and_stop_when_enough_is_clean() {
        fn check(levels: Levels, expected: u64) {
            assert_eq!(bytes_to_write(levels), expected, "{levels:?}");
        }
        let full =
            Levels { capacity: 1024 * MIB, dirty: 900 * MIB, free: 124 * MIB, requests_max: 4, ..Levels::default() };
        check(full, REQUEST_BYTES);
        check(Levels { free: 256 * MIB, ..full }, 0);
        check(Levels { clean: 132 * MIB, ..full }, 0);
        check(Levels { writing: 132 * MIB, ..full }, 0);
        check(Levels { requests: 4, ..full }, 0);
        check(Levels { dirty: 5 * MIB, ..full }, 0);
        check(Levels { dirty: 0, needed: 500 * MIB, ..full }, 0);
        // Somebody waits: what is missing is written even if it is little or much is spare already.
        check(Levels { needed: 125 * MIB, ..full }, MIB);
        check(Levels { needed: 800 * MIB, ..full }, REQUEST_BYTES);
        check(Levels { needed: 100 * MIB, clean: 200 * MIB, ..full }, 0);
        check(Levels { needed: 100 * MIB, clean: 200 * MIB, fragmented: true, ..full }, REQUEST_BYTES);
        // A tiny store spills too.
        check(
            Levels { capacity: 8 * MIB, free: MIB, dirty: 3 * MIB, requests_max: 4, ..Levels::default() },
            REQUEST_BYTES,
        );
    }
}
