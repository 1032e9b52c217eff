//! What is known of a key: counts, sum, least and greatest value, in 72 bytes.

use std::io;

use super::Operation;
use super::decimal::{self, Sum};

/// Bytes of a state: little-endian count, count of values, whole part and fraction of the sum, least and greatest value.
const STATE_BYTES: usize = 72;

/// See the module. Adding states is associative and commutative, and never overflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Records.
    pub(super) count: u64,
    /// Records that have a value. `least` and `greatest` mean something if there are any.
    values: u64,
    sum: Sum,
    least: i128,
    greatest: i128,
}

impl State {
    /// Of one record.
    pub(super) fn of(value: Option<i128>) -> Self {
        match value {
            Some(value) => Self { count: 1, values: 1, sum: Sum::of(value), least: value, greatest: value },
            None => Self { count: 1, ..Self::default() },
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        if other.values > 0 {
            let first = self.values == 0;
            self.least = if first { other.least } else { self.least.min(other.least) };
            self.greatest = if first { other.greatest } else { self.greatest.max(other.greatest) };
        }
        self.count += other.count;
        self.values += other.values;
        self.sum.add(other.sum);
    }

    pub(super) fn to_bytes(self) -> [u8; STATE_BYTES] {
        let mut bytes = [0; STATE_BYTES];
        bytes[..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.values.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.sum.whole.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.sum.fraction.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.least.to_le_bytes());
        bytes[56..].copy_from_slice(&self.greatest.to_le_bytes());
        bytes
    }

    /// # Panics
    /// These are not the bytes of a state: blocks are checked when they are read.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), STATE_BYTES, "bytes of a state");
        let short = |from: usize| u64::from_le_bytes(*bytes[from..].first_chunk().expect("checked above"));
        let long = |from: usize| i128::from_le_bytes(*bytes[from..].first_chunk().expect("checked above"));
        let sum = Sum { whole: long(16), fraction: short(32) };
        Self { count: short(0), values: short(8), sum, least: long(40), greatest: long(56) }
    }

    /// Writes one figure; nothing where there is no value.
    pub(super) fn write(&self, operation: Operation, file: &mut dyn io::Write) -> io::Result<()> {
        match operation {
            Operation::Count => write!(file, "{}", self.count),
            _ if self.values == 0 => Ok(()),
            Operation::Sum => write!(file, "{}", self.sum),
            Operation::Min => write!(file, "{}", decimal::Sum::of(self.least)),
            Operation::Max => write!(file, "{}", decimal::Sum::of(self.greatest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(state: &State, operation: Operation) -> String {
        let mut bytes = Vec::new();
        state.write(operation, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn records_without_a_value_only_count() {
        let mut state = State::of(None);
        assert_eq!((text(&state, Operation::Count), text(&state, Operation::Min)), ("1".into(), String::new()));
        state.add(&State::of(decimal::parse(b"-2.5").unwrap()));
        state.add(&State::of(None));
        let all = [Operation::Sum, Operation::Count, Operation::Min, Operation::Max];
        assert_eq!(all.map(|operation| text(&state, operation)), ["-2.5", "3", "-2.5", "-2.5"]);
    }

    proptest! {
        #[test]
        fn the_order_of_additions_does_not_matter(
            values in proptest::collection::vec(proptest::option::of(-(10i128.pow(38) - 1)..10i128.pow(38)), 0..20),
            split in 0usize..20,
        ) {
            let sum = |values: &[Option<i128>]| {
                let mut state = State::default();
                values.iter().for_each(|value| state.add(&State::of(*value)));
                state
            };
            let (left, right) = values.split_at(split.min(values.len()));
            let mut turned = sum(right);
            turned.add(&State::from_bytes(&sum(left).to_bytes()));
            prop_assert_eq!(turned, sum(&values));
        }
    }
}
