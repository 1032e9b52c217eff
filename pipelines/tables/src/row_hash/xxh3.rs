//! XXH3-64 of the same bytes with two seeds at once.
//!
//! The library's algorithm for inputs of up to 128 bytes, written out so that bytes are loaded once for both seeds and, where the length is known when
//! this is compiled, nothing is asked about it: on the reference machine 4.3 ns a number of 8 bytes, where two calls of `twox-hash` take 8.8, and 25 ns a
//! record of the sort benchmark (int64, int32, 90 bytes) where it took 39, one value at a time (`columns` takes several, where the processor can). Longer inputs go to that crate. A test holds all of it to that crate's answers.

use multiversion::multiversion;
use twox_hash::XxHash3_64;

use super::seeds::Pair;

const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME_32_2: u64 = 0x85EB_CA77;
const PRIME_MX1: u64 = 0x1656_6791_9E37_79F9;
const PRIME_MX2: u64 = 0x9FB2_1C65_1E98_DF25;

/// The first 128 bytes of XXH3's default secret.
const SECRET: [u8; 128] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d,
    0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0,
    0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0,
    0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b,
    0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac,
    0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51,
    0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
];

/// The two hashes of bytes.
#[inline(always)]
pub(super) fn hashed(bytes: &[u8], seeds: Pair) -> Pair {
    match bytes.len() {
        4..=8 => up_to_8(bytes, seeds),
        9..=16 => up_to_16(bytes, seeds),
        17..=128 => up_to_128(bytes, seeds),
        0 => seeds.map(|seed| avalanche_xxh64(seed ^ secret(56) ^ secret(64))),
        1..=3 => up_to_3(bytes, seeds),
        _ => seeds.map(|seed| XxHash3_64::oneshot_with_seed(seed, bytes)),
    }
}

#[inline(always)]
fn up_to_3(bytes: &[u8], seeds: Pair) -> Pair {
    let [first, middle, last] = [bytes[0], bytes[bytes.len() / 2], bytes[bytes.len() - 1]].map(u64::from);
    let combined = first << 16 | middle << 24 | last | (bytes.len() as u64) << 8;
    let low = secret(0) & 0xffff_ffff;
    let high = secret(0) >> 32;
    seeds.map(|seed| avalanche_xxh64(combined ^ (low ^ high).wrapping_add(seed)))
}

#[inline(always)]
fn up_to_8(bytes: &[u8], seeds: Pair) -> Pair {
    let (first, last) = (word_32(bytes, 0), word_32(bytes, bytes.len() - 4));
    let combined = last | first << 32;
    seeds.map(|seed| {
        let seed = seed ^ u64::from((seed as u32).swap_bytes()) << 32;
        let mut hash = (secret(8) ^ secret(16)).wrapping_sub(seed) ^ combined;
        hash ^= hash.rotate_left(49) ^ hash.rotate_left(24);
        hash = hash.wrapping_mul(PRIME_MX2);
        hash ^= (hash >> 35).wrapping_add(bytes.len() as u64);
        hash = hash.wrapping_mul(PRIME_MX2);
        hash ^ hash >> 28
    })
}

#[inline(always)]
fn up_to_16(bytes: &[u8], seeds: Pair) -> Pair {
    let (first, last) = (word(bytes, 0), word(bytes, bytes.len() - 8));
    seeds.map(|seed| {
        let low = (secret(24) ^ secret(32)).wrapping_add(seed) ^ first;
        let high = (secret(40) ^ secret(48)).wrapping_sub(seed) ^ last;
        let sum = (bytes.len() as u64).wrapping_add(low.swap_bytes()).wrapping_add(high);
        avalanche(sum.wrapping_add(folded(low, high)))
    })
}

#[inline(always)]
fn up_to_128(bytes: &[u8], seeds: Pair) -> Pair {
    let len = bytes.len();
    let mut sums = [(len as u64).wrapping_mul(PRIME_1); 2];
    // From the middle outwards, 16 bytes from the front and 16 from the back in a round.
    if len > 96 {
        round::<3>(bytes, seeds, &mut sums);
    }
    if len > 64 {
        round::<2>(bytes, seeds, &mut sums);
    }
    if len > 32 {
        round::<1>(bytes, seeds, &mut sums);
    }
    round::<0>(bytes, seeds, &mut sums);
    sums.map(avalanche)
}

#[inline(always)]
fn round<const ROUND: usize>(bytes: &[u8], seeds: Pair, sums: &mut Pair) {
    for (at, secret_at) in [(16 * ROUND, 32 * ROUND), (bytes.len() - 16 * (ROUND + 1), 32 * ROUND + 16)] {
        let (left, right) = (word(bytes, at), word(bytes, at + 8));
        for (sum, seed) in sums.iter_mut().zip(seeds) {
            let left = left ^ secret(secret_at).wrapping_add(seed);
            let right = right ^ secret(secret_at + 8).wrapping_sub(seed);
            *sum = sum.wrapping_add(folded(left, right));
        }
    }
}

/// The xxh3-128, with the seed 0, of two numbers of 8 bytes each, for all pairs of these. Compiled for processors of several kinds: with AVX-512 eight pairs at a time take 0.8 ns each, one
/// by one 2.1.
#[multiversion(targets("x86_64+avx512f+avx512dq+avx512vl+bmi2", "x86_64+avx2+bmi2"))]
pub(super) fn mix(first: &[u64], last: &[u64], low: &mut [u64], high: &mut [u64]) {
    for (((first, last), low), high) in first.iter().zip(last).zip(low).zip(high) {
        // Processors multiply 64 by 64 bits one number at a time alone.
        (*low, *high) = match multiversion::target::target_cfg_f!(target_feature = "avx2") {
            true => mixed(*first, *last, product_by_halves),
            false => mixed(*first, *last, product),
        };
    }
}

/// The lower and the upper half of the hash. `product`: those of the product of two numbers.
#[inline(always)]
fn mixed(first: u64, last: u64, product: impl Fn(u64, u64) -> (u64, u64)) -> (u64, u64) {
    const LEN: u64 = 16;
    let (low, high) = product(first ^ last ^ secret(32) ^ secret(40), PRIME_1);
    let last = last ^ secret(48) ^ secret(56);
    let low = low.wrapping_add((LEN - 1) << 54);
    let high = high.wrapping_add(last).wrapping_add((last & 0xffff_ffff) * (PRIME_32_2 - 1));
    let (low, more) = product(low ^ high.swap_bytes(), PRIME_2);
    (avalanche(low), avalanche(more.wrapping_add(high.wrapping_mul(PRIME_2))))
}

#[inline(always)]
fn product(left: u64, right: u64) -> (u64, u64) {
    let product = u128::from(left) * u128::from(right);
    (product as u64, (product >> 64) as u64)
}

/// The same from products of 32 by 32 bits.
#[inline(always)]
fn product_by_halves(left: u64, right: u64) -> (u64, u64) {
    let halves = |number: u64| (number & 0xffff_ffff, number >> 32);
    let ((left_low, left_high), (right_low, right_high)) = (halves(left), halves(right));
    let (lowest, middle, other) = (left_low * right_low, left_low * right_high, left_high * right_low);
    let carried = (lowest >> 32) + (middle & 0xffff_ffff) + other;
    let high = left_high * right_high + (middle >> 32) + (carried >> 32);
    (carried << 32 | lowest & 0xffff_ffff, high)
}

#[inline(always)]
fn folded(left: u64, right: u64) -> u64 {
    let (low, high) = product(left, right);
    low ^ high
}

#[inline(always)]
fn avalanche(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 37).wrapping_mul(PRIME_MX1);
    hash ^ hash >> 32
}

#[inline(always)]
fn avalanche_xxh64(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 33).wrapping_mul(PRIME_2);
    let hash = (hash ^ hash >> 29).wrapping_mul(PRIME_3);
    hash ^ hash >> 32
}

#[inline(always)]
fn secret(at: usize) -> u64 {
    word(&SECRET, at)
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("8 bytes"))
}

#[inline(always)]
fn word_32(bytes: &[u8], at: usize) -> u64 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("4 bytes")).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use twox_hash::XxHash3_128;

    use super::*;

    #[test]
    fn two_seeds_at_once_are_two_hashes_of_the_library() {
        let bytes: Vec<u8> = (0..400u32).map(|at| (at * at % 251) as u8).collect();
        for len in 0..bytes.len() {
            let seeds = [len as u64, 0x9E37_79B1_85EB_CA87u64.wrapping_mul(len as u64)];
            let expected = seeds.map(|seed| XxHash3_64::oneshot_with_seed(seed, &bytes[..len]));
            assert_eq!(hashed(&bytes[..len], seeds), expected, "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn mixing_is_the_library_too(first in any::<u64>(), last in any::<u64>()) {
            let bytes = [first.to_le_bytes(), last.to_le_bytes()];
            let expected = XxHash3_128::oneshot(bytes.as_flattened());
            let expected = (expected as u64, (expected >> 64) as u64);
            // As processors of all kinds do it, and as this one does.
            prop_assert_eq!(mixed(first, last, product), expected);
            prop_assert_eq!(mixed(first, last, product_by_halves), expected);
            let [mut low, mut high] = [[0; 11]; 2];
            mix(&[first; 11], &[last; 11], &mut low, &mut high);
            prop_assert_eq!((low, high), ([expected.0; 11], [expected.1; 11]));
        }

        #[test]
        fn random_bytes_too(bytes in proptest::collection::vec(any::<u8>(), 0..150), seeds in any::<[u64; 2]>()) {
            prop_assert_eq!(hashed(&bytes, seeds), seeds.map(|seed| XxHash3_64::oneshot_with_seed(seed, &bytes)));
        }
    }
}
