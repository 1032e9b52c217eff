//! What each map reads of a table, and what it takes beside the store.

use std::ops::Range;

use exobus_actors::task::JobError;
use exobus_shuffle::Sizes;

use super::collector::{ENTRIES_MAX, ENTRIES_MIN};
use super::partial::Partial;
use super::program::{AGGREGATE_BYTES, GROUP_BYTES};
use super::query::GroupQuery;
use super::sampled::{BlockSize, ReadOrder};
use crate::jobs::described::{Described, DescribedFile, DescribedSplit, LOOK_BYTES};
use crate::jobs::rewrite::{MAP_SPLITS_MAX, map_bytes, map_outside_bytes, map_outside_bytes_one_by_one};
use crate::jobs::table::Piece;

/// The groups that executors collect side by side take this share of the memory of a node together, each as much as the others; so do the groups that they pass on.
const COLLECTED_SHARE: u64 = 4;
/// Where maps make few rows of many, each executor of a cluster has so many of them, if memory allows: the more a map reads, the more of its rows meet others of their groups.
const MAPS_EACH: u64 = 3;
/// What such a map reads takes one part in so many of the memory of a node at most, as if none of its rows met another one: it is an object then.
const MAP_SHARE: u64 = 2;
/// Such a map passes on one row of so many at least: samples say too little of groups with few rows.
const PASSED_MIN: u64 = 4;
/// What a group that is passed on takes beside its values: its count and its states, the end of its key, where it goes, and where it stands.
const PASSED_BYTES: u64 = 48;

/// How much of a table a map reads, and what it takes for that.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapPlan {
    /// Most bytes of its splits, as of [`DescribedSplit::map_bytes`], where it reads several.
    pub(super) bytes: u64,
    /// Groups, and values of groups, that it collects at a time, at most.
    pub(super) entries_max: u64,
    /// What one of them takes, about.
    entry_bytes: u64,
    /// How many of them a row may be the first of: it has a group, and values that are counted.
    entries_each: u64,
    passes_on: PassesOn,
    /// Most bytes that it is granted for what it collects, and as many for what it passes on.
    granted_max: u64,
}

/// How many of the rows that a map has read it has at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PassesOn {
    /// All of them: rows are passed on as they are.
    All,
    /// Those of one split, and this share of the others: most rows have become one with others when the next split is read.
    Part(f64),
}

impl MapPlan {
    /// Of a table of which some rows have these keys; without any nobody knows whether rows meet others of their groups.
    pub(super) fn of(described: &Described, sizes: Sizes, query: &GroupQuery, keys: &[Vec<u8>]) -> Self {
        let memory = sizes.memory_bytes;
        let executors = u64::from(sizes.executors_per_node.max(1));
        let of_splits = |of: fn(&DescribedSplit) -> u64| described.splits().map(of);
        let rows: u64 = of_splits(DescribedSplit::rows_about).sum();
        // No task is granted more than three quarters of a node's memory, and a map has one of its splits in any case.
        let of_split = LOOK_BYTES
            + described.reading.options.beside_bytes()
            + of_splits(DescribedSplit::outside_bytes).max().unwrap_or(0);
        let granted_max = (memory / 4 * 3).saturating_sub(of_split) / 3;
        let share = (memory / (COLLECTED_SHARE * executors)).min(granted_max);
        let row_bytes = described.value_bytes() / rows.max(1);
        let entry_bytes = row_bytes + GROUP_BYTES + AGGREGATE_BYTES * query.aggregates.len() as u64;
        let mut plan = Self {
            bytes: map_bytes(sizes),
            entries_max: (share / entry_bytes).clamp(ENTRIES_MIN as u64, ENTRIES_MAX as u64),
            entry_bytes,
            entries_each: 1 + if query.counts_values() { query.aggregates.len() as u64 } else { 0 },
            passes_on: PassesOn::All,
            granted_max,
        };
        // Values that are counted one by one may all be different, however few groups there are.
        if keys.is_empty() || query.counts_values() {
            return plan;
        }
        let splits = || described.files.iter().flat_map(|file| file.splits.iter().map(|split| bytes_of(file, split)));
        let (all, largest) = (splits().sum::<u64>(), splits().max().unwrap_or(0));
        let partial = Partial::new(keys.to_vec(), rows / all.div_ceil(plan.bytes.max(1)).max(1));
        if !partial.helps() {
            return plan;
        }
        let part = partial.map_groups as f64 / partial.map_rows.max(1) as f64;
        plan.passes_on = PassesOn::Part(part.max(1.0 / PASSED_MIN as f64));
        let passed = plan.passed_bytes(described.splits());
        let maps = (MAPS_EACH * executors * u64::from(sizes.nodes.max(1))).max(passed.div_ceil(share.max(1)));
        // One split more, so that those that are left over make no map of their own.
        plan.bytes = (all / maps + largest).min(memory / MAP_SHARE).max(plan.bytes);
        plan
    }

    /// Bytes of the groups that are passed on of these splits.
    fn passed_bytes<'a>(&self, splits: impl Iterator<Item = &'a DescribedSplit>) -> u64 {
        let PassesOn::Part(part) = self.passes_on else { return 0 };
        let bytes: u64 = splits.map(|split| split.value_bytes + split.rows_about() * PASSED_BYTES).sum();
        (bytes as f64 * part) as u64
    }

    /// What a map of these pieces takes beside the store.
    pub(super) fn outside_bytes(&self, pieces: &[Piece], columns: u64) -> u64 {
        let splits = || pieces.iter().flat_map(|piece| &piece.file.splits);
        let read = match self.passes_on {
            PassesOn::All => map_outside_bytes(pieces, columns),
            PassesOn::Part(_) => map_outside_bytes_one_by_one(pieces, columns),
        };
        let entries = splits().map(|split| split.rows_about()).sum::<u64>() * self.entries_each;
        let collected = self.entries_max.min(entries).saturating_sub(ENTRIES_MIN as u64) * self.entry_bytes;
        read + collected.min(self.granted_max) + self.passed_bytes(splits()).min(self.granted_max)
    }
}

/// What a split takes of a map that reads several.
fn bytes_of(file: &DescribedFile, split: &DescribedSplit) -> u64 {
    split.map_bytes() + file.told_bytes()
}

/// What is read as a whole of a table: a split, or a run of its pages.
pub(super) struct Block<'a> {
    file: &'a DescribedFile,
    split: usize,
    /// How many splits are before it.
    before: u32,
    run: Option<Range<u64>>,
}

impl Block<'_> {
    /// What is known of it.
    fn described(&self) -> DescribedSplit {
        let of_split = self.file.splits[self.split];
        self.run.as_ref().map_or(of_split, |run| of_split.part(run.end - run.start))
    }

    pub(super) fn size(&self) -> BlockSize {
        let DescribedSplit { rows, value_bytes, .. } = self.described();
        BlockSize { rows, bytes: value_bytes }
    }

    /// What it takes of a map that reads several.
    fn bytes(&self) -> u64 {
        bytes_of(self.file, &self.described())
    }

    /// It alone, as a map reads it.
    fn piece(&self) -> Piece {
        let mut piece = Piece::new(self.file, self.split, self.before);
        piece.file.splits = vec![self.described()];
        Piece { runs: self.run.iter().cloned().collect(), ..piece }
    }

    /// Adds it to a piece that has runs of the same split before it: so what these share is read once. Whether it is such a one.
    fn join(&self, piece: &mut Piece) -> bool {
        let (Some(run), Some(last)) = (&self.run, piece.runs.last()) else { return false };
        if piece.before != self.before || run.start < last.end {
            return false;
        }
        piece.runs.push(run.clone());
        let rows = piece.runs.iter().map(|run| run.end - run.start).sum();
        piece.file.splits = vec![self.file.splits[self.split].part(rows)];
        true
    }
}

/// The blocks of a table, of its splits that are read.
pub(super) fn blocks(described: &Described) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    for (before, (file, split)) in (0..).zip(described.numbered_splits()) {
        if file.splits[split].is_left_out {
            continue;
        }
        let runs = file.runs(split);
        match runs.is_empty() {
            true => blocks.push(Block { file, split, before, run: None }),
            false => blocks.extend(runs.into_iter().map(|run| Block { file, split, before, run: Some(run) })),
        }
    }
    blocks
}

/// What a map reads where blocks come in some order, and which places of it these are.
pub(super) type Taken = (Vec<Piece>, Range<usize>);

/// What each map reads where blocks come in this order: as many as take no more than so many bytes, and where several read what lies between two ends, each about as much as the others.
pub(super) fn maps_in_order(blocks: &[Block<'_>], order: &ReadOrder, map_bytes: u64) -> Result<Vec<Taken>, JobError> {
    let mut is_there = vec![false; blocks.len()];
    order.blocks.iter().for_each(|block| is_there[*block] = true);
    if order.blocks.len() != blocks.len() || is_there.contains(&false) {
        return Err(JobError::program("an order of blocks has each of them once"));
    }
    let bytes: Vec<u64> = order.blocks.iter().map(|block| blocks[*block].bytes()).collect();
    let mut maps = Vec::<Taken>::new();
    let mut from = 0;
    for end in order.ends.iter().copied().chain([blocks.len()]) {
        let end = end.min(blocks.len());
        let between = &bytes[from.min(end)..end];
        let all: u64 = between.iter().sum();
        let largest = between.iter().copied().max().unwrap_or(0);
        let each = (all / all.div_ceil(map_bytes.max(1)).max(1) + largest).min(map_bytes);
        let (mut open, mut open_bytes) = (None::<Taken>, 0);
        for at in from..end {
            let block = &blocks[order.blocks[at]];
            let has_room = |(_, places): &Taken| places.len() < MAP_SPLITS_MAX && open_bytes + bytes[at] <= each;
            match open.as_mut().filter(|open| has_room(open)) {
                Some((pieces, places)) => {
                    if !pieces.last_mut().is_some_and(|last| block.join(last)) {
                        pieces.push(block.piece());
                    }
                    places.end = at + 1;
                    open_bytes += bytes[at];
                }
                None => {
                    maps.extend(open.replace((vec![block.piece()], at..at + 1)));
                    open_bytes = bytes[at];
                }
            }
        }
        maps.extend(open);
        from = from.max(end);
    }
    Ok(maps)
}

#[cfg(test)]
mod tests {
    use exobus_files::{FileStatus, Version};

    use super::*;
    use crate::aggregates::parse_list;
    use crate::jobs::rewrite::{check_splits, maps};

    /// A file of so many splits of so many rows, with 50 bytes of values each.
    fn described(splits: usize, rows: u64) -> Described {
        let split = DescribedSplit { value_bytes: 50 * rows, rows: Some(rows), state: None, is_left_out: false };
        let status = FileStatus { bytes: 1, version: Version::of(&[]) };
        let (runs, extents) = (Vec::new(), Vec::new());
        let file = DescribedFile { path: "file".into(), status, below: 0, splits: vec![split; splits], runs, extents };
        Described { files: vec![file], ..Described::default() }
    }

    fn query(aggregates: &str) -> GroupQuery {
        let aggregates = parse_list(aggregates).unwrap();
        GroupQuery { by: vec!["name".to_owned()], aggregates, having: None, top: None }
    }

    fn sizes(memory_bytes: u64, executors_per_node: u32) -> Sizes {
        Sizes { input_bytes: 0, nodes: 2, executors_per_node, memory_bytes }
    }

    /// Of 2 000 rows in so many groups.
    fn keys(groups: u32) -> Vec<Vec<u8>> {
        (0..2_000_u32).map(|row| (row % groups).to_be_bytes().to_vec()).collect()
    }

    #[test]
    fn maps_that_make_few_rows_of_many_read_more_as_far_as_executors_and_memory_allow() {
        let described = described(160, 1_000_000);
        let plan = |memory, query: &GroupQuery, groups| MapPlan::of(&described, sizes(memory, 2), query, &keys(groups));
        let read = |memory, query: &GroupQuery, groups| {
            let plan = plan(memory, query, groups);
            let maps = maps(&described, plan.bytes);
            let outside_bytes = maps.iter().map(|pieces| plan.outside_bytes(pieces, 3));
            (maps.len(), outside_bytes.max().unwrap() >> 20)
        };
        let sum = query("sum(number)");
        let (alone, of_one) = read(64 << 30, &sum, 2_000);
        assert_eq!(alone, 160, "rows that are passed on are all there at once");
        let (together, of_many) = read(64 << 30, &sum, 50);
        assert_eq!(together, 12, "three for each of four executors");
        assert!(of_many < 3 * of_one, "{of_many} MiB for a map of 14 splits, {of_one} MiB for one of one");
        let (together, _) = read(4 << 30, &sum, 50);
        assert!((13..40).contains(&together), "{together}");
        assert_eq!(read(64 << 30, &query("count_distinct(number)"), 50).0, 160, "values may all be different");
        assert_eq!(MapPlan::of(&described, sizes(64 << 30, 2), &sum, &[]).passes_on, PassesOn::All);
    }

    #[test]
    fn maps_of_blocks_in_an_order_end_where_it_says_and_are_alike_between() {
        let described = described(100, 1_000);
        let blocks = blocks(&described);
        let each = blocks[0].bytes();
        let read = |ends: &[usize], most: u64| {
            let order = ReadOrder { blocks: (0..100).rev().collect(), ends: ends.to_vec() };
            let maps = maps_in_order(&blocks, &order, most).unwrap();
            for (pieces, places) in &maps {
                let numbers: Vec<u32> = pieces.iter().map(|piece| piece.before).collect();
                let expected: Vec<u32> = places.clone().map(|place| 99 - place as u32).collect();
                assert_eq!(numbers, expected);
            }
            let ends: Vec<usize> = maps.iter().map(|(_, places)| places.end).collect();
            assert!(
                maps.iter().map(|(_, places)| places.start).eq([0].into_iter().chain(ends.clone()).take(maps.len()))
            );
            ends
        };
        assert_eq!(read(&[], u64::MAX), [100]);
        assert_eq!(read(&[10, 40], u64::MAX), [10, 40, 100]);
        // Sixty blocks, of which a map reads no more than fifty.
        assert_eq!(read(&[10, 40], 50 * each), [10, 40, 71, 100]);
        assert_eq!(read(&[10, 100], 40 * each), [10, 41, 72, 100]);
        // A block is read whatever it takes.
        assert_eq!(read(&[], 1), Vec::from_iter(1..=100));
        let order = ReadOrder { blocks: vec![0; 100], ends: Vec::new() };
        assert!(maps_in_order(&blocks, &order, 1).is_err(), "each block once");
    }

    #[test]
    fn a_map_is_granted_no_more_than_a_node_can_grant_where_its_splits_can_be_read() {
        let sum = query("sum(number), avg(number), min(number), max(number)");
        for (executors, rows) in
            [1, 2, 4].into_iter().flat_map(|executors| [(executors, 300_000), (executors, 2_000_000)])
        {
            let described = described(40, rows);
            let memory = (1..)
                .map(|mib: u64| mib << 20)
                .find(|memory| check_splits(&described, sizes(*memory, executors)).is_ok());
            for (memory, groups) in [1, 2, 8]
                .into_iter()
                .flat_map(|times| [(times * memory.unwrap(), 50), (times * memory.unwrap(), 2_000)])
            {
                let plan = MapPlan::of(&described, sizes(memory, executors), &sum, &keys(groups));
                for pieces in maps(&described, plan.bytes) {
                    let bytes = plan.outside_bytes(&pieces, 6);
                    assert!(bytes <= memory / 4 * 3, "{bytes} of {memory}, {executors} executors, {plan:?}");
                }
            }
        }
    }
}
