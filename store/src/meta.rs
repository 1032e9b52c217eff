//! What is known about an object without its bytes: the directory of its parts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{CopyId, RowHash};

/// One of the consecutive byte ranges of an object: what one consumer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartMeta {
    /// Where the part begins, in bytes from the start of the object. Parts follow each other; with
    /// [`Align::SixtyFour`](crate::Align) there may be up to 63 bytes between two.
    pub offset: u64,
    /// Length in bytes; may be zero.
    pub bytes: u64,
    /// Rows, as the producer counted them; zero where the producer has none (`put`).
    pub rows: u64,
    /// Sum of the hashes of the rows, as the producer computed it.
    pub row_hash: RowHash,
    /// xxh3-64 of the part's bytes; verified whenever they come back from disk or from another node.
    pub checksum: u64,
}

/// An object and the directory of its parts. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectMeta {
    /// The object.
    pub id: CopyId,
    /// Sum of the lengths of all parts (gaps made by alignment do not count).
    pub bytes: u64,
    /// Sum of the rows of all parts.
    pub rows: u64,
    /// Sum of the row hashes of all parts.
    pub row_hash: RowHash,
    /// The parts in order.
    pub parts: Arc<[PartMeta]>,
}

impl PartMeta {
    /// Whether these can be consecutive parts of an object: each begins where the one before it ends, or later, and their
    /// ends and rows can be counted. What comes from a file or another node is asked before anybody adds it up.
    pub fn are_plausible(parts: &[PartMeta]) -> bool {
        let (mut end, mut rows) = (0_u64, 0_u64);
        parts.iter().all(|part| {
            let ordered = part.offset >= end;
            match (part.offset.checked_add(part.bytes), rows.checked_add(part.rows)) {
                (Some(end_of_part), Some(sum)) if ordered => (end, rows) = (end_of_part, sum),
                _ => return false,
            }
            true
        })
    }
}

impl ObjectMeta {
    /// Adds the parts up.
    pub fn of(id: CopyId, parts: Arc<[PartMeta]>) -> ObjectMeta {
        ObjectMeta {
            id,
            bytes: parts.iter().map(|part| part.bytes).sum(),
            rows: parts.iter().map(|part| part.rows).sum(),
            row_hash: parts.iter().map(|part| part.row_hash).sum(),
            parts,
        }
    }

    /// Bytes from the start of the first part to the end of the last, gaps included.
    pub fn span(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.offset + part.bytes)
    }
}

/// Which parts of an object are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Parts {
    /// All of them.
    All,
    /// From the first number up to, and not including, the second; "part 7" is `Range(7, 8)`.
    Range(u32, u32),
}

impl Parts {
    /// Part `index` alone.
    pub fn one(index: u32) -> Parts {
        Parts::Range(index, index + 1)
    }

    /// The half-open range of part numbers of an object with `count` parts; `None` when it reaches beyond them.
    pub fn range(self, count: usize) -> Option<std::ops::Range<usize>> {
        match self {
            Parts::All => Some(0..count),
            Parts::Range(from, to) if from <= to && to as usize <= count => Some(from as usize..to as usize),
            Parts::Range(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_cannot_be_added_up_are_found() {
        let part = |offset, bytes, rows| PartMeta { offset, bytes, rows, row_hash: RowHash(0), checksum: 0 };
        let far = u64::MAX;
        for (parts, plausible) in [
            (&[][..], true),
            (&[part(0, 10, 1), part(10, 0, 0), part(64, 5, far - 1)], true),
            (&[part(far, 0, 0)], true),
            (&[part(far, 1, 0)], false),
            (&[part(0, 10, 1), part(9, 1, 0)], false),
            (&[part(0, 1, far), part(1, 1, 1)], false),
        ] {
            assert_eq!(PartMeta::are_plausible(parts), plausible, "{parts:?}");
        }
    }

    #[test]
    fn ranges_beyond_the_last_part_are_refused() {
        fn check(parts: Parts, count: usize, expected: Option<std::ops::Range<usize>>) {
            assert_eq!(parts.range(count), expected, "{parts:?} of {count}");
        }
        check(Parts::All, 0, Some(0..0));
        check(Parts::All, 3, Some(0..3));
        check(Parts::one(2), 3, Some(2..3));
        check(Parts::Range(3, 3), 3, Some(3..3));
        check(Parts::Range(2, 4), 3, None);
        check(Parts::Range(2, 1), 3, None);
    }
}
