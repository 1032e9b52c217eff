//! The pieces of a merge, one output each: the same for all jobs.

use std::ops::Range;

use exobus_store::PartMeta;

/// The parts of each piece, when the pieces have so many.
pub fn ranges(pieces: &[u32]) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut end = 0;
    pieces.iter().enumerate().map(move |(piece, parts)| {
        let start = end;
        end += *parts as usize;
        (piece, start..end)
    })
}

/// The bytes of those parts of all blocks, which have at least so many.
pub fn bytes<'a>(blocks: impl Iterator<Item = &'a [PartMeta]>, parts: &Range<usize>) -> u64 {
    blocks.flat_map(|block| &block[parts.clone()]).map(|part| part.bytes).sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn pieces_follow_each_other() {
        let ranges: Vec<_> = super::ranges(&[2, 1, 0, 3]).collect();
        assert_eq!(ranges, [(0, 0..2), (1, 2..3), (2, 3..3), (3, 3..6)]);
    }
}
