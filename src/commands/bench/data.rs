//! Bytes to measure with.

/// Bytes that are different for each `seed`, and that no layer could make smaller.
pub(super) fn noise(bytes: &mut [u8], seed: u64) {
    // xorshift64*, eight bytes at a time: fast enough to be nothing beside what is measured.
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in bytes.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let word = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}
