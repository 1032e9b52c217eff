//! What each map reads, and whether memory is enough for it.

use exobus_actors::node::memory::SET_ASIDE_BYTES;
use exobus_actors::task::JobError;
use exobus_shuffle::Sizes;
use exobus_shuffle::strategies::auto::PartsRead;

use super::batches::small_bytes;
use super::map::MESSAGE_BYTES;
use super::merge::PICK_BYTES;
use super::merging::merging_bytes;
use super::ordered::COLUMN_BYTES;
use crate::block::{BYTES_MAX, ROWS_MAX};
use crate::jobs::described::{Described, DescribedSplit, LOOK_BYTES, PLACE_BYTES};
use crate::jobs::table::{Piece, push_split};

/// What a map has in memory at most, where it reads several splits: decoded, in order, and in the object that it makes.
const MAP_BYTES_MAX: u64 = 256 << 20;
/// How many splits a map reads at most: where they are small, it is opening their files that takes time.
pub(in crate::jobs) const MAP_SPLITS_MAX: usize = 4096;

/// A file that is written, about: bytes of its values, and how many rows and columns it has.
#[derive(Clone, Copy, Debug)]
pub(in crate::jobs) struct FileAbout {
    pub(in crate::jobs) bytes: u64,
    pub(in crate::jobs) rows: u64,
    pub(in crate::jobs) columns: u64,
    /// What the key of a row takes beside values, as of [`Arrangement::key_bytes`](super::arrangement::Arrangement::key_bytes).
    pub(in crate::jobs) key_bytes: u64,
    /// Memory that its sink takes.
    pub(in crate::jobs) sink_bytes: u64,
}

impl FileAbout {
    /// Bytes of its rows on their way to it, with the places of these.
    pub(super) fn part_bytes(self) -> u64 {
        self.bytes + self.rows * PLACE_BYTES
    }

    /// What the batches of so many parts take besides their rows.
    pub(super) fn batches_bytes(self, parts: u64) -> u64 {
        let batches = parts + self.part_bytes() / BYTES_MAX + self.rows / ROWS_MAX as u64;
        batches.min(self.rows) * self.columns * COLUMN_BYTES
    }

    /// What a reduce of so many parts takes beside the store: what puts its rows in order, and what its sink has of a row group.
    pub(in crate::jobs) fn reduce_bytes(self, parts: u64) -> u64 {
        LOOK_BYTES + merging_bytes(self, parts) + self.sink_bytes
    }

    /// What a merge takes beside the store: what puts rows in order, and which rows these are.
    pub(in crate::jobs) fn merge_bytes(self, parts: PartsRead, maps: u64) -> u64 {
        let merged = self.merged(parts, maps);
        LOOK_BYTES + merging_bytes(merged, parts.by_merge) + merged.rows * PICK_BYTES
    }

    /// The part of its rows that a merge reads.
    fn merged(self, parts: PartsRead, maps: u64) -> Self {
        let share =
            |all: u64| (u128::from(all) * u128::from(parts.maps_of_merge)).div_ceil(u128::from(maps.max(1))) as u64;
        Self { bytes: share(self.bytes), rows: share(self.rows), ..self }
    }
}

/// Refuses a table of which a split takes more than the memory of a node: a map reads it, and makes an object of it.
pub(in crate::jobs) fn check_splits(described: &Described, sizes: Sizes) -> Result<(), JobError> {
    for file in &described.files {
        for (number, split) in file.splits.iter().enumerate() {
            let what = || format!("{}, row group or piece {number},", file.path.display());
            refuse_beyond(sizes, (LOOK_BYTES + split.outside_bytes(), split.part_bytes()), what)?;
        }
    }
    Ok(())
}

/// Refuses files of which one, which is merged from so many parts, takes more than the memory of a node.
pub(in crate::jobs) fn check_file(
    sizes: Sizes,
    (file, parts, maps): (FileAbout, PartsRead, u64),
) -> Result<(), JobError> {
    let mib = file.bytes >> 20;
    if parts.by_merge > 0 {
        let whole = 2 * file.merged(parts, maps).part_bytes();
        let what = || format!("merging {} parts of a file of {mib} MiB of values", parts.by_merge);
        refuse_beyond(sizes, (file.merge_bytes(parts, maps), whole), what)?;
    }
    let (outside, whole) = (file.reduce_bytes(parts.by_reduce), file.part_bytes() + file.part_bytes() / 8);
    let of_batches = file.batches_bytes(parts.by_reduce);
    // What takes most is what there is to be less of: smaller files have smaller row groups, too.
    let what = || match whole.max(of_batches).max(file.sink_bytes / 2) {
        most if most == whole => format!("a file of {mib} MiB of values, of which more --files are smaller,"),
        most if most == of_batches => format!(
            "a file of {mib} MiB of values that comes in {} parts of {} columns, which --strategy two_stage makes fewer,",
            parts.by_reduce,
            file.columns - 1
        ),
        _ => format!(
            "writing a row group of {} columns, which takes {} MiB, less with fewer columns (--select), fewer --row-group-rows or a lower level of --compression,",
            file.columns - 1,
            file.sink_bytes >> 20
        ),
    };
    refuse_beyond(sizes, (outside, whole), what)
}

/// Refuses what takes more than the memory of a node: so much beside the store, and so much in it.
pub(in crate::jobs) fn refuse_beyond(
    sizes: Sizes,
    (outside, whole): (u64, u64),
    what: impl FnOnce() -> String,
) -> Result<(), JobError> {
    // Beside the region three quarters of it may be granted, and both together are no more than it.
    let bytes = (outside * 4 / 3).max(outside + whole) + 2 * MESSAGE_BYTES;
    if bytes <= sizes.memory_bytes {
        return Ok(());
    }
    let (has, least) = (sizes.memory_bytes >> 20, (bytes + SET_ASIDE_BYTES).div_ceil(1 << 20));
    Err(JobError::program(format!(
        "{} takes more than the {has} MiB of a node's store: --memory {least}MiB is the least that works",
        what()
    )))
}

/// What a map of these pieces takes beside the store.
pub(in crate::jobs) fn map_outside_bytes(pieces: &[Piece], columns: u64) -> u64 {
    told_bytes(pieces, columns) + splits_of(pieces).map(DescribedSplit::outside_bytes).sum::<u64>()
}

/// The same of a map that has one of its splits at a time.
pub(in crate::jobs) fn map_outside_bytes_one_by_one(pieces: &[Piece], columns: u64) -> u64 {
    told_bytes(pieces, columns) + splits_of(pieces).map(DescribedSplit::outside_bytes).max().unwrap_or(0)
}

/// What a map takes beside the store for what it is told of its splits.
fn told_bytes(pieces: &[Piece], columns: u64) -> u64 {
    let of_piece = |piece: &Piece| piece.file.splits.len() as u64 * piece.file.told_bytes();
    LOOK_BYTES + small_bytes(splits_of(pieces).count() as u64, columns) + pieces.iter().map(of_piece).sum::<u64>()
}

fn splits_of(pieces: &[Piece]) -> impl Iterator<Item = &DescribedSplit> {
    pieces.iter().flat_map(|piece| &piece.file.splits)
}

/// What a map has in memory at most, where it reads more than one split.
pub(in crate::jobs) fn map_bytes(sizes: Sizes) -> u64 {
    (sizes.memory_bytes / (2 * u64::from(sizes.executors_per_node.max(1)))).min(MAP_BYTES_MAX)
}

/// What each map reads: splits that follow each other, as many as take no more than so many bytes.
pub(in crate::jobs) fn maps(described: &Described, map_bytes: u64) -> Vec<Vec<Piece>> {
    let (mut maps, mut open, mut open_bytes, mut open_splits) = (Vec::new(), Vec::<Piece>::new(), 0, 0);
    for (before, (file, split)) in (0..).zip(described.numbered_splits()) {
        let described = &file.splits[split];
        if described.is_left_out {
            continue;
        }
        let bytes = described.map_bytes() + file.told_bytes();
        if open_splits == MAP_SPLITS_MAX || open_splits > 0 && open_bytes + bytes > map_bytes {
            maps.push(std::mem::take(&mut open));
            (open_bytes, open_splits) = (0, 0);
        }
        (open_bytes, open_splits) = (open_bytes + bytes, open_splits + 1);
        push_split(&mut open, file, split, before);
    }
    if !open.is_empty() {
        maps.push(open);
    }
    maps
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field, Schema};
    use exobus_files::{FileStatus, Version};

    use super::*;
    use crate::jobs::described::{DescribedFile, DescribedSplit};
    use crate::jobs::{FileSize, WriteOptions};
    use crate::sinks::{Compression, FileForm, OutputFormat};

    fn described(files: &[&[u64]]) -> Described {
        let file = |(number, splits): (usize, &&[u64])| DescribedFile {
            path: format!("{number}").into(),
            status: FileStatus { bytes: 1, version: Version::of(&[]) },
            below: 0,
            splits: splits
                .iter()
                .map(|bytes| DescribedSplit { value_bytes: *bytes, rows: None, state: None, is_left_out: false })
                .collect(),
            runs: Vec::new(),
            extents: Vec::new(),
        };
        let files = files.iter().enumerate().map(file).collect();
        Described { files, ..Described::default() }
    }

    /// A file of Parquet.
    fn file(bytes: u64, rows: u64) -> FileAbout {
        file_of(10, Compression::Snappy, (bytes, rows))
    }

    fn file_of(columns: usize, compression: Compression, (bytes, rows): (u64, u64)) -> FileAbout {
        let field = |at: usize| Field::new(at.to_string(), DataType::Utf8, true);
        let schema = Schema::new((0..columns).map(field).collect::<Vec<_>>());
        let form = FileForm::new(OutputFormat::Parquet, Some(compression)).unwrap();
        let sink_bytes = WriteOptions::default().sink_bytes(form, &schema, (bytes, rows));
        FileAbout { bytes, rows, columns: columns as u64 + 1, key_bytes: 16, sink_bytes }
    }

    /// So many maps, of which nothing is merged.
    fn as_they_are(maps: u64) -> PartsRead {
        PartsRead { by_merge: 0, maps_of_merge: 0, by_reduce: maps }
    }

    #[test]
    fn parts_are_counted_as_the_strategy_has_them() {
        let mib = 1 << 20;
        let sizes = |memory: u64| Sizes { input_bytes: 0, nodes: 1, executors_per_node: 2, memory_bytes: memory * mib };
        let about = FileAbout { columns: 101, ..file(128 * mib, mib) };
        let check = |memory: u64, parts| {
            let checked = check_file(sizes(memory), (about, parts, 10_000));
            checked.map_err(|error| error.to_string())
        };
        // What parts take is not less where files are smaller.
        let error = check(480, as_they_are(10_000)).unwrap_err();
        assert!(
            error.contains("10000 parts of 100 columns") && error.contains("two_stage") && !error.contains("--files"),
            "{error}"
        );
        // Nor what encoders of a high level take.
        let wide = file_of(1_000, Compression::Zstd(19), (mib, 1_000));
        let error = check_file(sizes(200), (wide, as_they_are(1), 1)).unwrap_err().to_string();
        assert!(
            error.contains("of 1000 columns") && error.contains("lower level") && !error.contains("--files"),
            "{error}"
        );
        assert_eq!(check_file(sizes(480), (wide, as_they_are(1), 1)), Ok(()));
        let merged = PartsRead { by_merge: 100, maps_of_merge: 100, by_reduce: 100 };
        assert_eq!(check(480, merged), Ok(()));
        // A merge knows where each of its rows stands.
        let narrow = FileAbout { rows: 20 * mib, ..about };
        let many = PartsRead { maps_of_merge: 10_000, ..merged };
        let error = check_file(sizes(480), (narrow, many, 10_000)).unwrap_err().to_string();
        assert!(error.contains("merging 100 parts of a file of 128 MiB"), "{error}");
    }

    #[test]
    fn a_map_reads_splits_that_follow_each_other_and_each_is_read_once_in_its_place() {
        let table = described(&[&[400, 400, 400], &[], &[100], &[2_000], &[10, 10]]);
        // Two splits of 400 fit, three do not.
        let split_bytes = table.files[0].splits[0].map_bytes() + table.files[0].told_bytes();
        let memory_bytes = 4 * 2 * split_bytes + 40;
        let sizes = Sizes { input_bytes: 0, nodes: 1, executors_per_node: 2, memory_bytes };
        let maps = maps(&table, map_bytes(sizes));
        let read: Vec<Vec<(String, std::ops::Range<usize>, u32)>> = maps
            .iter()
            .map(|pieces| {
                let piece = |piece: &Piece| (piece.file.path.display().to_string(), piece.splits.clone(), piece.before);
                pieces.iter().map(piece).collect()
            })
            .collect();
        assert_eq!(
            read,
            [
                vec![("0".to_owned(), 0..2, 0)],
                vec![("0".to_owned(), 2..3, 2), ("2".to_owned(), 0..1, 3)],
                vec![("3".to_owned(), 0..1, 4)],
                vec![("4".to_owned(), 0..2, 5)],
            ]
        );
    }

    #[test]
    fn very_many_small_files_are_read_by_more_maps_than_one() {
        let table = described(&vec![&[10][..]; 20_000]);
        let maps = |memory_bytes: u64| {
            let sizes = Sizes { input_bytes: 0, nodes: 1, executors_per_node: 2, memory_bytes };
            let maps = maps(&table, map_bytes(sizes));
            assert_eq!(maps.iter().flatten().map(|piece| piece.splits.len()).sum::<usize>(), 20_000);
            maps.iter().map(Vec::len).max().unwrap()
        };
        assert_eq!(maps(64 << 30), MAP_SPLITS_MAX);
        // What is told of files takes memory, too.
        assert!(maps(4 << 20) < (1 << 20) / 600);
    }

    /// What `docs/tables.md` says that 512 MiB suffice for.
    #[test]
    fn half_a_gibibyte_is_enough_for_the_files_that_are_written_unless_told_otherwise() {
        let mib = 1 << 20;
        let memory_bytes = 512 * mib - SET_ASIDE_BYTES;
        let sizes = Sizes { input_bytes: 0, nodes: 1, executors_per_node: 2, memory_bytes };
        let FileSize::Bytes(bytes) = FileSize::default() else { panic!("files are of so many bytes") };
        for row in [4, 100, 600, 1_000, 10_000, 100_000] {
            // A file has as many bytes with the places of its rows.
            let rows = bytes / (row + PLACE_BYTES);
            for (columns, compression) in
                [(1, Compression::None), (24, Compression::Snappy), (10, Compression::Zstd(1))]
            {
                let about = file_of(columns, compression, (rows * row, rows));
                let checked = check_splits(&described(&[&[64 * mib]]), sizes)
                    .and_then(|()| check_file(sizes, (about, as_they_are(200), 200)));
                assert!(checked.is_ok(), "rows of {row} bytes, {columns} columns, {compression}: {checked:?}");
            }
        }
        check_file(sizes, (file(bytes, bytes / 4), as_they_are(200), 200)).unwrap_err();
    }

    #[test]
    fn a_memory_that_is_too_small_is_refused_with_what_would_do_and_for_what() {
        let mib = 1 << 20;
        let refused = |memory: u64, file: u64| {
            let sizes = Sizes { input_bytes: 0, nodes: 1, executors_per_node: 2, memory_bytes: memory * mib };
            let table = described(&[&[mib], &[mib, 20 * mib]]);
            let about = self::file(file * mib, file * 1000);
            let checked = check_splits(&table, sizes).and_then(|()| check_file(sizes, (about, as_they_are(2), 2)));
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(refused(4096, 64), Ok(()));
        let error = refused(64, 1).unwrap_err();
        assert!(
            error.contains("1, row group or piece 1,") && error.contains("the 64 MiB of a node's store"),
            "{error}"
        );
        let error = refused(200, 64).unwrap_err();
        assert!(error.contains("a file of 64 MiB") && error.contains("--files"), "{error}");
        // What is said to be the least works.
        let least: u64 = error.split("--memory ").nth(1).unwrap().split("MiB").next().unwrap().parse().unwrap();
        assert_eq!(refused(least - 32, 64), Ok(()));
        assert!(refused(least - 33, 64).is_err());
    }
}
