//! What of the input each map reads. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::input::{Mark, Piece};
use crate::files::FileList;

/// What of the input one task reads: a piece of a file, or several small files. It goes with their page of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Share {
    /// Bytes of the input.
    pub(super) range: Range<u64>,
    /// Lines of its first file before it.
    pub(super) lines: u64,
}

impl Share {
    pub(super) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The pieces of files that it is made of, in their order.
    pub(super) fn pieces(&self, page: &FileList) -> impl Iterator<Item = Piece> {
        let mut lines = self.lines;
        page.parts(self.range.clone()).map(move |part| Piece {
            start: Mark { offset: part.range.start, lines: std::mem::take(&mut lines) },
            end: part.range.end,
            before_bytes: part.file_start,
            file: part.file,
        })
    }
}

/// Where large files may be cut.
#[derive(Debug)]
pub(super) enum Places {
    /// At multiples of this.
    Multiples(u64),
    /// Here, by where in the input the file begins; a file without any is left whole.
    Marks(BTreeMap<u64, Vec<Mark>>),
}

impl Places {
    /// The first place at `offset` or behind it of the file that is `file` of the input; its end is always one.
    fn at_or_after(&self, file: &Range<u64>, offset: u64) -> Mark {
        let bytes = file.end - file.start;
        let end = Mark { offset: bytes, lines: 0 };
        match self {
            Self::Multiples(step) => Mark { offset: offset.next_multiple_of(*step).min(bytes), lines: 0 },
            Self::Marks(marks) => {
                let marks = marks.get(&file.start).map_or(&[][..], Vec::as_slice);
                let at = marks.partition_point(|mark| mark.offset < offset);
                marks.get(at).copied().unwrap_or(end)
            }
        }
    }

    /// Of a large file, a share of about `bytes` bytes near byte `at` of the input.
    pub(super) fn near(&self, file: &Range<u64>, at: u64, bytes: u64) -> Share {
        let found = self.at_or_after(file, at - file.start);
        let start = if file.start + found.offset < file.end { found } else { Mark::default() };
        share(file, start, self.at_or_after(file, start.offset + bytes))
    }
}

fn share(file: &Range<u64>, start: Mark, end: Mark) -> Share {
    Share { range: file.start + start.offset..file.start + end.offset, lines: start.lines }
}

/// Cuts large files into pieces of about `piece_bytes`, at the given places only; small files stay together.
pub(super) fn shares(files: &FileList, places: &Places, piece_bytes: u64) -> Vec<Share> {
    let mut shares = Vec::new();
    for group in files.groups() {
        let range = group.range;
        if !group.is_cut {
            shares.push(Share { range, lines: 0 });
            continue;
        }
        let bytes = range.end - range.start;
        let count = bytes.div_ceil(piece_bytes.max(1));
        let mut start = Mark::default();
        for number in 1..=count {
            let wanted = (u128::from(bytes) * u128::from(number) / u128::from(count)) as u64;
            let end = places.at_or_after(&range, wanted);
            if end.offset > start.offset {
                shares.push(share(&range, start, end));
                start = end;
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::InputFile;

    fn list(lengths: &[u64]) -> FileList {
        let file = |(index, bytes): (usize, &u64)| InputFile { path: format!("in/{index}").into(), bytes: *bytes };
        lengths.iter().enumerate().map(file).collect()
    }

    #[test]
    fn large_files_are_cut_at_places_and_small_ones_are_read_together() {
        let mib = 1 << 20;
        let files = list(&[3 * mib, 500, 0, 700, 2 * mib]);
        let marks = [1_000_000, 1_100_000, 2_500_000].map(|offset| Mark { offset, lines: offset / 100 });
        let places = Places::Marks(BTreeMap::from([(0, marks.to_vec())]));
        let found: Vec<(u64, u64, u64)> =
            shares(&files, &places, mib).iter().map(|it| (it.range.start, it.range.end, it.lines)).collect();
        let (first, small) = (3 * mib, 3 * mib + 1200);
        let expected =
            [(0, 1_100_000, 0), (1_100_000, 2_500_000, 11_000), (2_500_000, first, 25_000), (first, small, 0)];
        assert_eq!(found[..4], expected);
        assert_eq!(found[4..], [(small, small + 2 * mib, 0)], "a file without marks is whole");

        let both: Vec<Piece> = Share { range: first..small, lines: 0 }.pieces(&files).collect();
        let ends: Vec<_> = both.iter().map(|it| (it.before_bytes, it.start, it.end, it.file.bytes)).collect();
        assert_eq!(ends, [(first, Mark::default(), 500, 500), (first + 500, Mark::default(), 700, 700)]);
        let cut: Vec<Piece> = Share { range: 1_100_000..2_500_000, lines: 11_000 }.pieces(&files).collect();
        assert_eq!((cut[0].start, cut[0].end), (Mark { offset: 1_100_000, lines: 11_000 }, 2_500_000));
    }

    #[test]
    fn a_share_near_a_byte_begins_and_ends_at_places_of_its_file() {
        let file = 5_000_000..8_000_000;
        let near = |at| Places::Multiples(100).near(&file, at, 250).range;
        assert_eq!(near(5_000_001), 5_000_100..5_000_400);
        assert_eq!(near(7_999_800), 7_999_800..8_000_000);
        assert_eq!(near(7_999_999), 5_000_000..5_000_300, "there is none behind it");
    }
}
