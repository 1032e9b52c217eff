//! The two things that slices cannot say: this memory will be read soon, and these bytes are numbers.
#![allow(unsafe_code)] // prefetching takes a pointer; viewing bytes as integers has no safe form in the standard library

use crate::records::Record;

/// Asks for the cache lines of a record that will be read soon. Never faults, whatever the address.
#[inline(always)]
pub(super) fn prefetch_record(record: &Record) {
    prefetch_line(record.as_ptr());
    // 100 bytes lie on two or three lines.
    prefetch_line(record.as_ptr().wrapping_add(64));
    prefetch_line(record.as_ptr().wrapping_add(99));
}

/// Most lines of memory that [`prefetch`] asks for: behind them processors see by themselves that what is read goes on.
const LINES_MAX: usize = 4;

/// Asks for the first cache lines of bytes that will be read soon.
#[inline(always)]
pub fn prefetch(bytes: &[u8]) {
    let begin = bytes.as_ptr();
    let lines = (begin.addr() % 64 + bytes.len()).div_ceil(64).min(LINES_MAX);
    for line in 0..lines {
        prefetch_line(begin.wrapping_add(64 * line));
    }
}

/// Asks for the first cache line of a value that will be read soon, and for the one that has its end.
#[inline(always)]
pub fn prefetch_value<T>(value: &T) {
    let begin = std::ptr::from_ref(value).cast::<u8>();
    prefetch_line(begin);
    if size_of::<T>() > align_of::<T>() {
        prefetch_line(begin.wrapping_add(size_of::<T>() - 1));
    }
}

/// Asks for the line `ahead` bytes after the start of `bytes`, which may be beyond its end.
#[inline(always)]
pub(super) fn prefetch_ahead(bytes: &[u8], ahead: usize) {
    prefetch_line(bytes.as_ptr().wrapping_add(ahead));
}

#[inline(always)]
fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address, mapped or not, has no effect but on caches.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The first `len` aligned numbers of `bytes`.
///
/// # Panics
/// When there are fewer, naming `what` they are for; up to 15 bytes may be lost to alignment.
pub(super) fn as_numbers<'a>(bytes: &'a mut [u8], len: usize, what: &str) -> &'a mut [u128] {
    let given = bytes.len();
    // SAFETY: every bit pattern is a valid u128, and the exclusive borrow passes from the bytes to the numbers.
    let (_, numbers, _) = unsafe { bytes.align_to_mut::<u128>() };
    let found = numbers.len();
    assert!(found >= len, "{what}: {given} bytes of scratch hold {found} aligned entries, {len} are needed");
    &mut numbers[..len]
}

/// As [`as_numbers`], for 32-bit numbers.
pub(super) fn as_small_numbers<'a>(bytes: &'a mut [u8], len: usize, what: &str) -> &'a mut [u32] {
    let given = bytes.len();
    // SAFETY: as above.
    let (_, numbers, _) = unsafe { bytes.align_to_mut::<u32>() };
    let found = numbers.len();
    assert!(found >= len, "{what}: {given} bytes of scratch hold {found} aligned entries, {len} are needed");
    &mut numbers[..len]
}
