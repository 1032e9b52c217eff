//! What the validator says of a run of records, and its 280-byte file.
//!
//! A summary holds enough of its run (the first and the last record) to be joined with the one of the next run, so
//! partitions, files and chunks are validated apart, in parallel, and joined in order.

use super::hash::hash_number;
use super::{KEY_BYTES, RECORD_BYTES, Record, as_records, key_number};

/// Bytes of a summary in valsort's format.
pub const SUMMARY_BYTES: usize = 5 * 16 + 2 * RECORD_BYTES;

/// Counts, order and checksum of a run of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Index in the run of the first record whose key is below the one before it; 0: there is none.
    pub first_unordered: u128,
    /// Records whose key is below the one before.
    pub unordered: u128,
    /// Records.
    pub records: u128,
    /// Records whose key equals the one before.
    pub duplicate_keys: u128,
    /// Sum of the CRC-32 of the records.
    pub checksum: u128,
    /// The first record; zeros in an empty run.
    pub first: Record,
    /// The last record; zeros in an empty run.
    pub last: Record,
    /// Wrapping sum of the row hashes. Not part of the file: 0 when the summary was read from one.
    pub row_hash: u128,
}

/// Bytes that are no sequence of summaries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are no whole number of {SUMMARY_BYTES}-byte summaries")]
pub struct SummaryError {
    /// How many bytes there were.
    pub bytes: usize,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary {
            first_unordered: 0,
            unordered: 0,
            records: 0,
            duplicate_keys: 0,
            checksum: 0,
            first: [0; RECORD_BYTES],
            last: [0; RECORD_BYTES],
            row_hash: 0,
        }
    }
}

impl Summary {
    /// The summary of the records in `bytes`; of none, the empty summary.
    ///
    /// # Panics
    /// When the length is not a multiple of the record size.
    pub fn of(bytes: &[u8]) -> Summary {
        let records = as_records(bytes);
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return Summary::default() };
        let mut before = key_number(first);
        let (mut first_unordered, mut unordered, mut duplicate_keys) = (0usize, 0u64, 0u64);
        let (mut checksum, mut row_hash) = (0u64, 0u128);
        for (index, record) in records.iter().enumerate() {
            let key = key_number(record);
            if key <= before && index > 0 {
                if key == before {
                    duplicate_keys += 1;
                } else {
                    if unordered == 0 {
                        first_unordered = index;
                    }
                    unordered += 1;
                }
            }
            before = key;
            checksum += u64::from(crc32fast::hash(record));
            row_hash = row_hash.wrapping_add(hash_number(record));
        }
        Summary {
            first_unordered: first_unordered as u128,
            unordered: unordered.into(),
            records: records.len() as u128,
            duplicate_keys: duplicate_keys.into(),
            checksum: checksum.into(),
            first: *first,
            last: *last,
            row_hash,
        }
    }

    /// Joins the run that follows this one: the order across the border counts too. An empty run changes nothing.
    pub fn append(&mut self, next: &Summary) {
        if next.records == 0 {
            return;
        }
        if self.records == 0 {
            *self = next.clone();
            return;
        }
        match self.last[..KEY_BYTES].cmp(&next.first[..KEY_BYTES]) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => self.duplicate_keys += 1,
            std::cmp::Ordering::Greater => {
                if self.unordered == 0 {
                    self.first_unordered = self.records;
                }
                self.unordered += 1;
            }
        }
        if self.unordered == 0 && next.unordered > 0 {
            self.first_unordered = self.records + next.first_unordered;
        }
        self.unordered += next.unordered;
        self.records += next.records;
        self.duplicate_keys += next.duplicate_keys;
        self.checksum = self.checksum.wrapping_add(next.checksum);
        self.row_hash = self.row_hash.wrapping_add(next.row_hash);
        self.last = next.last;
    }

    /// True when no record is below the one before it.
    pub fn is_ordered(&self) -> bool {
        self.unordered == 0
    }

    /// The summary file: five 128-bit numbers, each as high then low 64 bits in little-endian order, then the first
    /// and the last record.
    pub fn to_bytes(&self) -> [u8; SUMMARY_BYTES] {
        let mut bytes = [0; SUMMARY_BYTES];
        let numbers = [self.first_unordered, self.unordered, self.records, self.duplicate_keys, self.checksum];
        for (field, number) in bytes.chunks_exact_mut(16).zip(numbers) {
            field[..8].copy_from_slice(&((number >> 64) as u64).to_le_bytes());
            field[8..].copy_from_slice(&(number as u64).to_le_bytes());
        }
        bytes[80..180].copy_from_slice(&self.first);
        bytes[180..].copy_from_slice(&self.last);
        bytes
    }

    /// Reads one summary file back.
    pub fn from_bytes(bytes: &[u8; SUMMARY_BYTES]) -> Summary {
        let number = |index: usize| {
            let half = |at: usize| {
                let mut half = [0; 8];
                half.copy_from_slice(&bytes[16 * index + at..16 * index + at + 8]);
                u128::from(u64::from_le_bytes(half))
            };
            half(0) << 64 | half(8)
        };
        let mut summary = Summary {
            first_unordered: number(0),
            unordered: number(1),
            records: number(2),
            duplicate_keys: number(3),
            checksum: number(4),
            ..Summary::default()
        };
        summary.first.copy_from_slice(&bytes[80..180]);
        summary.last.copy_from_slice(&bytes[180..]);
        summary
    }

    /// Joins the summaries of consecutive partitions, which follow each other in `bytes`.
    ///
    /// # Errors
    /// When the length is not a multiple of [`SUMMARY_BYTES`].
    pub fn concatenated(bytes: &[u8]) -> Result<Summary, SummaryError> {
        let (summaries, rest) = bytes.as_chunks::<SUMMARY_BYTES>();
        if !rest.is_empty() {
            return Err(SummaryError { bytes: bytes.len() });
        }
        let mut whole = Summary::default();
        for summary in summaries {
            whole.append(&Summary::from_bytes(summary));
        }
        Ok(whole)
    }

    /// The lines that valsort prints of this run.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.is_ordered() {
            lines.push(format!("First unordered record is record {}", self.first_unordered));
        }
        lines.push(format!("Records: {}", self.records));
        lines.push(format!("Checksum: {:x}", self.checksum));
        if self.is_ordered() {
            lines.push(format!("Duplicate keys: {}", self.duplicate_keys));
            lines.push("SUCCESS - all records are in order".to_owned());
        } else {
            lines.push(format!("ERROR - there are {} unordered records", self.unordered));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Records with keys from a small set, so that duplicates and disorder are common.
    fn rows(keys: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; keys.len() * RECORD_BYTES];
        for (index, (record, key)) in bytes.chunks_mut(RECORD_BYTES).zip(keys).enumerate() {
            record[9] = *key;
            record[20] = index as u8;
        }
        bytes
    }

    proptest! {
        #[test]
        fn runs_joined_in_order_equal_the_whole(
            keys in proptest::collection::vec(0u8..4, 0..60), cuts in proptest::collection::vec(0usize..60, 0..5),
        ) {
            let bytes = rows(&keys);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(keys.len())).collect();
            cuts.sort_unstable();
            cuts.push(keys.len());
            let (mut joined, mut from) = (Summary::default(), 0);
            let mut file = Vec::new();
            for cut in cuts {
                let run = Summary::of(&bytes[from * RECORD_BYTES..cut * RECORD_BYTES]);
                joined.append(&run);
                file.extend_from_slice(&run.to_bytes());
                from = cut;
            }
            let whole = Summary::of(&bytes);
            prop_assert_eq!(&joined, &whole);
            let without_hash = Summary { row_hash: 0, ..whole };
            prop_assert_eq!(Summary::concatenated(&file).unwrap(), without_hash);
        }

        #[test]
        fn counts_are_those_of_a_plain_loop(keys in proptest::collection::vec(0u8..4, 0..60)) {
            let summary = Summary::of(&rows(&keys));
            let below: Vec<usize> = (1..keys.len()).filter(|&index| keys[index] < keys[index - 1]).collect();
            let equal = (1..keys.len()).filter(|&index| keys[index] == keys[index - 1]).count();
            prop_assert_eq!(summary.unordered, below.len() as u128);
            prop_assert_eq!(summary.first_unordered, below.first().copied().unwrap_or(0) as u128);
            prop_assert_eq!(summary.duplicate_keys, equal as u128);
            prop_assert_eq!(summary.is_ordered(), below.is_empty());
        }
    }

    #[test]
    fn numbers_beyond_64_bits_survive_the_file() {
        let summary = Summary { records: (7 << 64) | 9, checksum: u128::MAX, ..Summary::default() };
        assert_eq!(Summary::from_bytes(&summary.to_bytes()), summary);
    }

    #[test]
    fn a_torn_sequence_of_summaries_is_refused() {
        assert_eq!(Summary::concatenated(&[0; 281]), Err(SummaryError { bytes: 281 }));
    }
}
