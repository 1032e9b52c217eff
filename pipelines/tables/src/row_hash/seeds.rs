//! The columns of a schema, numbered, with their seeds.

use arrow_schema::{DataType, Fields};
use twox_hash::XxHash3_64;

use super::lists::RUN;
use crate::plain::plain_type;

/// Two numbers, one for each of the two hashes of a value.
pub(super) type Pair = [u64; 2];

pub(super) const PAIR_BYTES: u64 = size_of::<Pair>() as u64;
/// What an element of a list takes beside its pair: its hash among those of the list.
const ELEMENT_BYTES: u64 = size_of::<u64>() as u64;

/// A column and those inside it.
#[derive(Clone, Debug)]
pub(crate) struct ColumnSeeds {
    /// Path of names from the top, for errors.
    pub(super) path: String,
    /// Its type, without encodings.
    pub(super) data_type: DataType,
    /// Seeds of values.
    pub(super) value: Pair,
    /// What a null counts.
    pub(super) null: Pair,
    /// Seeds of lists that have nulls among their elements.
    pub(super) with_nulls: Pair,
    /// What is inside: the elements of a list, the fields of a struct.
    pub(super) children: Vec<ColumnSeeds>,
}

impl ColumnSeeds {
    /// Those of `fields`, of which the first has the number `next`; afterwards that is the number of the next column behind them.
    pub(super) fn all(fields: &Fields, next: &mut u64) -> Vec<Self> {
        fields.iter().map(|field| Self::one(field.name().clone(), plain_type(field.data_type()), next)).collect()
    }

    fn one(path: String, data_type: DataType, next: &mut u64) -> Self {
        let number = std::mem::replace(next, *next + 1);
        let seed = |kind| XxHash3_64::oneshot_with_seed(kind, &number.to_le_bytes());
        let mut children = match &data_type {
            DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _) | DataType::Map(of, _) => {
                Self::all(&vec![of.clone()].into(), next)
            }
            DataType::Struct(fields) => Self::all(fields, next),
            _ => Vec::new(),
        };
        children.iter_mut().for_each(|child| child.put_below(&path));
        Self {
            path,
            data_type,
            value: [seed(0), seed(1)],
            null: [seed(2), seed(3)],
            with_nulls: [seed(4), seed(5)],
            children,
        }
    }

    /// Bytes that hashing so many values takes beside the sums that they are added to, about: pairs for the values of a dictionary, for the fields of structs that have
    /// nulls, and for the elements of lists, of which some are hashed at a time.
    pub(super) fn scratch_bytes(&self, values: u64) -> u64 {
        let inside = |values| self.children.iter().map(|child| child.scratch_bytes(values)).max().unwrap_or(0);
        let of_values = values * PAIR_BYTES;
        match &self.data_type {
            DataType::Struct(_) => 2 * of_values + inside(values),
            nested if nested.is_nested() => of_values + RUN as u64 * (PAIR_BYTES + ELEMENT_BYTES) + inside(RUN as u64),
            _ => of_values,
        }
    }

    fn put_below(&mut self, path: &str) {
        self.path = format!("{path}.{}", self.path);
        self.children.iter_mut().for_each(|child| child.put_below(path));
    }
}
