//! The benchmark's checksum: the 128-bit sum of the CRC-32 (zlib polynomial) of each record.

use super::as_records;

/// The checksum of the records in `bytes`; sums of several ranges add up, whatever their order.
///
/// # Panics
/// When the length is not a multiple of the record size.
pub fn checksum(bytes: &[u8]) -> u128 {
    as_records(bytes).iter().map(|record| u128::from(crc32fast::hash(record))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_sum_over_records_not_over_bytes() {
        let bytes: Vec<u8> = (0..300).map(|index| (index * 7) as u8).collect();
        let sum: u128 = bytes.chunks(100).map(|record| u128::from(crc32fast::hash(record))).sum();
        assert_eq!(checksum(&bytes), sum);
        assert_ne!(sum, u128::from(crc32fast::hash(&bytes)));
        assert_eq!(checksum(&[]), 0);
    }
}
