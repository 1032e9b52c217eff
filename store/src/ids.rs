//! Names and hashes: what an object is called, and what its rows add up to.

use std::{
    fmt,
    iter::Sum,
    ops::{Add, AddAssign},
    str::FromStr,
};

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// Name of an object, 128 bits, the same on every node. Printed and parsed as 32 hexadecimal digits.
///
/// The id of a [`put`](crate::Store::put) is the xxh3-128 of its group and of the xxh3-128 of its content; ids of task
/// outputs are made by the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ObjectId(pub u128);

impl ObjectId {
    /// The id that a `put` of exactly these bytes has in a group: equal bytes of two groups are two objects, so that what
    /// one of them frees is not the other's.
    pub fn of_content(group: u128, bytes: &[u8]) -> ObjectId {
        ObjectId::of_hash(group, XxHash3_128::oneshot(bytes))
    }

    /// As [`ObjectId::of_content`], of a content with this xxh3-128.
    pub(crate) fn of_hash(group: u128, content: u128) -> ObjectId {
        ObjectId(XxHash3_128::oneshot([group.to_le_bytes(), content.to_le_bytes()].as_flattened()))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({:032x})", self.0)
    }
}

impl FromStr for ObjectId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(ObjectId)
    }
}

/// Order-independent hash of a multiset of rows: the wrapping 128-bit sum of the rows' hashes.
///
/// A sum, not an exclusive or: two equal rows would cancel out of the latter. The empty set is `RowHash(0)`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct RowHash(pub u128);

impl RowHash {
    /// Hash of one row: its xxh3-128.
    pub fn of(row: &[u8]) -> RowHash {
        RowHash(XxHash3_128::oneshot(row))
    }
}

impl Add for RowHash {
    type Output = RowHash;

    fn add(self, other: RowHash) -> RowHash {
        RowHash(self.0.wrapping_add(other.0))
    }
}

impl AddAssign for RowHash {
    fn add_assign(&mut self, other: RowHash) {
        *self = *self + other;
    }
}

impl Sum for RowHash {
    fn sum<I: Iterator<Item = RowHash>>(rows: I) -> RowHash {
        rows.fold(RowHash::default(), Add::add)
    }
}

impl fmt::Display for RowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for RowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowHash({:032x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_as_32_digits_and_parse_back() {
        for id in [ObjectId(0), ObjectId(0xabc), ObjectId(u128::MAX)] {
            assert_eq!(id.to_string().len(), 32);
            assert_eq!(id.to_string().parse::<ObjectId>(), Ok(id));
        }
        assert!("not hex".parse::<ObjectId>().is_err());
    }

    #[test]
    fn a_pair_of_equal_rows_does_not_cancel_out() {
        let row = RowHash::of(b"row");
        assert_ne!(row + row, RowHash::default());
        assert_eq!([row, RowHash::of(b"b")].into_iter().sum::<RowHash>(), RowHash::of(b"b") + row);
        assert_eq!(RowHash(u128::MAX) + RowHash(2), RowHash(1));
    }
}
