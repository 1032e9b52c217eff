//! Names and hashes: what a copy of an object is called, and what its rows add up to.

use std::{
    fmt,
    iter::Sum,
    ops::{Add, AddAssign},
};

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// Name of a copy of an object: whose it is, and 128 bits. The same on every node, and never given twice: what a later attempt
/// makes, or what is put back, has another name. Printed as the 32 hexadecimal digits of its bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct CopyId {
    /// Whose it is, usually the job: everything of a group can be deleted at once, and who knows the bits of another group's copy
    /// reads nothing with them.
    pub group: u128,
    /// What the caller makes of it.
    pub bits: u128,
}

impl CopyId {
    /// The copy with these bits in a group.
    pub const fn new(group: u128, bits: u128) -> CopyId {
        CopyId { group, bits }
    }
}

impl fmt::Display for CopyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.bits)
    }
}

impl fmt::Debug for CopyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CopyId({:x}, {:032x})", self.group, self.bits)
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
    fn a_copy_is_printed_as_32_digits() {
        assert_eq!(CopyId::new(7, 0xabc).to_string(), format!("{:032x}", 0xabc));
        assert_eq!(CopyId::new(7, u128::MAX).to_string().len(), 32);
    }

    #[test]
    fn a_pair_of_equal_rows_does_not_cancel_out() {
        let row = RowHash::of(b"row");
        assert_ne!(row + row, RowHash::default());
        assert_eq!([row, RowHash::of(b"b")].into_iter().sum::<RowHash>(), RowHash::of(b"b") + row);
        assert_eq!(RowHash(u128::MAX) + RowHash(2), RowHash(1));
    }
}
