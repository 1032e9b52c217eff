//! Random shuffle of 100-byte records: the order is decided by a seed and by where each record stands, by nothing else.
//!
//! Records are numbered through all input files, in the order in which they are given (files of a directory in the order
//! of their names). The key of record `n` is XXH3-64 of `n` (8 bytes, little-endian) with the seed, and then `n` itself,
//! which decides between equal hashes; the output is in the order of these keys. So the same seed and the same input give the
//! same bytes in the part files put one behind the other, whatever the number of nodes, the memory, the strategy and the
//! number of partitions; the number of partitions decides only where one file ends and the next begins. Other files, or the
//! same ones in another order, give another order.
//!
//! It is a shuffle for training data and tests, not for secrets: who knows the seed, or enough of the output, knows the
//! order, and there are no more than 2^64 of them.

use exobus_actors::registry::TaskError;
use exobus_actors::task::Output;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::cuts::Cuts;
use crate::files::{Schema, record_schema};
use crate::keyed::{Emit, Input, KeyedJob, Partitioner, Split, Values};
use crate::records::{RECORD_BYTES, row_hash_sum};

/// See the module. Keys are hash and number, big-endian; values are the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RandomShuffle {
    /// Which order.
    pub seed: u64,
}

crate::keyed_job!(RandomShuffle, "random_shuffle", 1);

impl KeyedJob for RandomShuffle {
    fn split(&self) -> Split {
        Split::Records(RECORD_BYTES as u64)
    }

    fn partitioner(&self, partitions: u32) -> Result<Partitioner, TaskError> {
        // Hashes are uniform.
        Ok(Partitioner::Range(Cuts::even(partitions as usize).map_err(TaskError::fatal)?))
    }

    fn map(&self, input: &mut Input<'_>, emit: Emit<'_>) -> Result<(), TaskError> {
        let piece = input.piece();
        let mut number = (piece.before_bytes + piece.start.offset) / RECORD_BYTES as u64;
        while let Some(record) = input.next_record(RECORD_BYTES)? {
            emit(&key(self.seed, number), record)?;
            number += 1;
        }
        Ok(())
    }

    fn reduce(&self, _key: &[u8], mut values: Values<'_>, file: &mut dyn std::io::Write) -> Result<(), TaskError> {
        while let Some(record) = values.next_value() {
            file.write_all(record)?;
        }
        Ok(())
    }

    fn schema(&self) -> Schema {
        record_schema()
    }

    /// The records, as the sort counts them.
    fn conserved(&self, _key: &[u8], record: &[u8]) -> Output {
        Output { bytes: record.len() as u64, rows: 1, row_hash: row_hash_sum(record) }
    }

    fn check(&self, input_bytes: u64, emitted: Output) -> Result<(), String> {
        match emitted.bytes == input_bytes {
            true => Ok(()),
            false => Err(format!("input files have {input_bytes} bytes; records of {} bytes were read", emitted.bytes)),
        }
    }
}

/// What record `number` is ordered by.
fn key(seed: u64, number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&XxHash3_64::oneshot_with_seed(seed, &number.to_le_bytes()).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever kept a seed keeps an order: these must never change.
    #[test]
    fn orders_are_fixed() {
        let order = |seed| {
            let mut numbers: Vec<u64> = (0..10).collect();
            numbers.sort_by_key(|number| key(seed, *number));
            numbers
        };
        assert_eq!(order(0), [9, 2, 1, 3, 6, 7, 5, 8, 0, 4]);
        assert_eq!(order(1), [8, 2, 4, 9, 6, 3, 1, 0, 7, 5]);
    }
}
