//! Directories of parts as the table keeps them: small for the many objects that have one part.

use std::{ops::Deref, ops::Range, sync::Arc};

use crate::{
    ids::RowHash,
    meta::{PartMeta, Parts},
};

/// All parts of an object. One part costs 40 bytes inline, where an `Arc` of one would cost 100.
#[derive(Clone, Debug)]
pub(crate) enum Directory {
    /// Exactly one part, at offset zero. The hash is two halves because a `u128` would be padded to 16 bytes.
    One { bytes: u64, rows: u64, row_hash: [u64; 2], checksum: u64 },
    /// Any number of parts, none included.
    Many(Arc<[PartMeta]>),
}

impl Directory {
    pub fn new(parts: &[PartMeta]) -> Directory {
        match parts {
            [part] if part.offset == 0 => Directory::One {
                bytes: part.bytes,
                rows: part.rows,
                row_hash: [part.row_hash.0 as u64, (part.row_hash.0 >> 64) as u64],
                checksum: part.checksum,
            },
            parts => Directory::Many(parts.into()),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Directory::One { .. } => 1,
            Directory::Many(parts) => parts.len(),
        }
    }

    /// Memory behind it.
    pub fn heap_bytes(&self) -> u64 {
        match self {
            Directory::One { .. } => 0,
            Directory::Many(parts) => size_of_val(&**parts) as u64,
        }
    }

    /// Bytes from the start of the object to the end of the last part.
    pub fn span(&self) -> u64 {
        match self {
            Directory::One { bytes, .. } => *bytes,
            Directory::Many(parts) => parts.last().map_or(0, |part| part.offset + part.bytes),
        }
    }

    /// These parts, for a block or a reader to keep.
    pub fn slice(&self, range: Range<usize>) -> PartSlice {
        match self {
            Directory::One { bytes, rows, row_hash, checksum } if range == (0..1) => PartSlice::One([PartMeta {
                offset: 0,
                bytes: *bytes,
                rows: *rows,
                row_hash: RowHash(u128::from(row_hash[0]) | u128::from(row_hash[1]) << 64),
                checksum: *checksum,
            }]),
            Directory::One { .. } => PartSlice::default(),
            Directory::Many(parts) => PartSlice::Many(parts.clone(), range),
        }
    }

    /// All parts behind an `Arc`.
    pub fn to_arc(&self) -> Arc<[PartMeta]> {
        match self {
            Directory::One { .. } => Arc::from(&*self.slice(0..1)),
            Directory::Many(parts) => parts.clone(),
        }
    }

    /// The range of part numbers that `parts` means here.
    pub fn resolve(&self, parts: Parts) -> Option<Range<usize>> {
        parts.range(self.len())
    }
}

/// Some consecutive parts of an object, cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum PartSlice {
    One([PartMeta; 1]),
    Many(Arc<[PartMeta]>, Range<usize>),
}

impl Default for PartSlice {
    /// No parts.
    fn default() -> PartSlice {
        PartSlice::Many(Arc::new([]), 0..0)
    }
}

impl PartSlice {
    /// Narrower: positions relative to this slice.
    pub fn slice(&self, range: Range<usize>) -> PartSlice {
        match self {
            PartSlice::One(parts) if range == (0..1) => PartSlice::One(*parts),
            PartSlice::One(_) => PartSlice::default(),
            PartSlice::Many(parts, all) => {
                PartSlice::Many(parts.clone(), all.start + range.start..all.start + range.end)
            }
        }
    }
}

/// Bytes from the start of the first part that has any to the end of the last one, as offsets in the object.
///
/// Empty parts at the ends do not count: they may lie behind a gap that no extent has.
pub(crate) fn byte_range(parts: &[PartMeta]) -> Range<u64> {
    let mut filled = parts.iter().filter(|part| part.bytes > 0);
    match (filled.next(), parts.iter().rfind(|part| part.bytes > 0)) {
        (Some(first), Some(last)) => first.offset..last.offset + last.bytes,
        _ => 0..0,
    }
}

impl Deref for PartSlice {
    type Target = [PartMeta];

    fn deref(&self) -> &[PartMeta] {
        match self {
            PartSlice::One(parts) => parts,
            PartSlice::Many(parts, range) => &parts[range.clone()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u64, bytes: u64) -> PartMeta {
        PartMeta { offset, bytes, rows: bytes + 1, row_hash: RowHash(u128::MAX - 5), checksum: 7 }
    }

    #[test]
    fn one_part_is_kept_inline_and_comes_back_whole() {
        assert!(size_of::<Directory>() <= 48);
        let directory = Directory::new(&[part(0, 10)]);
        assert!(matches!(directory, Directory::One { .. }));
        assert_eq!(directory.to_arc()[..], [part(0, 10)]);
        assert_eq!(directory.slice(0..1)[..], [part(0, 10)]);
        assert_eq!(directory.slice(1..1)[..], []);
        assert_eq!(directory.span(), 10);
    }

    #[test]
    fn slices_of_slices_keep_their_place() {
        let directory = Directory::new(&[part(0, 10), part(10, 0), part(64, 5)]);
        let tail = directory.slice(1..3);
        assert_eq!(tail[..], [part(10, 0), part(64, 5)]);
        assert_eq!(byte_range(&tail), 64..69);
        assert_eq!(tail.slice(1..2)[..], [part(64, 5)]);
        assert_eq!(byte_range(&tail.slice(0..0)), 0..0);
    }
}
