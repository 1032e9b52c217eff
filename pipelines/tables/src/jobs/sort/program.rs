//! The program of a sort of a table: which tasks, in which order, and what is checked.

use std::path::PathBuf;

use ::futures::stream::{self, StreamExt as _, TryStreamExt as _};
use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::ids::{JobId, RowHash};
use exobus_actors::node::memory::SET_ASIDE_BYTES;
use exobus_actors::program;
use exobus_actors::task::{Arg, JobError, Output, Place, TaskOptions};
use exobus_files::{Schema, part_name};
use exobus_shuffle::cuts::Cuts;
use exobus_shuffle::jobs::outputs;
use exobus_shuffle::strategies::auto;
use exobus_shuffle::{Job, Plan, Sizes, Strategy};
use exobus_store::Align;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::tasks::{
    MESSAGE_BYTES, MapParams, MergeParams, Piece, ReduceParams, Reduced, SampleParams, TableKey, WriteOptions, map,
    merge, reduce, sample,
};
use crate::jobs::described::{
    DescribeParams, Described, DescribedFile, DescribedSplit, LOOK_BYTES, ROW_BYTES, describe,
};
use crate::reading::{ReadOptions, Reading};
use crate::semantics::KeyColumn;
use crate::sinks::{GROUP_BYTES, GROUP_MEMORY_FACTOR};
use crate::sources::BATCH_ROWS_MAX;

/// Bytes of the values of a file, about, unless the user says how many files there shall be.
const FILE_BYTES: u64 = 64 << 20;
/// So many splits are sampled from beginning to end; of more, the first batches of many stand for all: rows of a table in some order are in all of them.
const SAMPLED_WHOLE: usize = 32;
/// Of so many splits for each file.
const SPLITS_PER_FILE: usize = 4;
/// Keys that are sampled for each file, and in all at least and at most.
const KEYS_PER_FILE: u64 = 40;
const KEYS_MIN: u64 = 2_000;
const KEYS_MAX: u64 = 40_000;
/// Splits that one task samples, where it looks at their first batches.
const SPLITS_PER_TASK: usize = 16;
/// What a map has in memory at most, where it reads several splits: decoded, in order, and in the object that it makes.
const MAP_BYTES_MAX: u64 = 256 << 20;

/// What a sort of a table is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SortTable {
    /// Files, or folders of them.
    #[serde(with = "exobus_actors::paths")]
    pub inputs: Vec<PathBuf>,
    /// A folder, empty or not there yet.
    #[serde(with = "exobus_actors::paths")]
    pub output: PathBuf,
    /// What is compared, the first column first.
    pub key: Vec<KeyColumn>,
    /// How many files; `None`: as many as the input asks for.
    pub files: Option<u32>,
    /// How files are read.
    #[serde(default)]
    pub reading: ReadOptions,
    /// How files are written.
    #[serde(default)]
    pub writing: WriteOptions,
    /// Which strategy; `None`: the one that is estimated to be the fastest.
    pub strategy: Option<Strategy>,
    /// Whether a folder is read that a job has claimed and not committed.
    #[serde(default)]
    pub partial: bool,
}

/// What a sort of a table has done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SortedTable {
    /// Rows sorted.
    pub rows: u64,
    /// Bytes of the input files.
    pub input_bytes: u64,
    /// Bytes of the output files.
    pub output_bytes: u64,
    /// Hash of the rows that were read.
    pub row_hash_in: RowHash,
    /// Hash of the rows that were written.
    pub row_hash_out: RowHash,
    /// Which strategy ran.
    pub strategy: Strategy,
    /// How many maps there were.
    pub maps: u64,
    /// How many files were written.
    pub files: u64,
    /// Bytes that the Owner's tables took at the end.
    pub owner_bytes: u64,
}

/// A sort as strategies run it.
struct TableSort {
    params: SortTable,
    reading: Reading,
    layout: ObjectRef,
    cuts: ObjectRef,
    /// What each map reads.
    maps: Vec<Vec<Piece>>,
    plan: Plan,
    /// Rows of a partition, about.
    partition_rows: u64,
}

impl Job for TableSort {
    fn name(&self) -> &'static str {
        "table.sort"
    }

    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError> {
        let pieces = self.maps[index].clone();
        let splits = pieces.iter().flat_map(|piece| &piece.file.splits);
        let outside_bytes = LOOK_BYTES + splits.map(|split| split.outside_bytes()).sum::<u64>();
        let params = MapParams { pieces, reading: self.reading.clone(), key: TableKey::new(&self.params.key) };
        let scratch_bytes = vec![MESSAGE_BYTES];
        let options =
            TaskOptions { place, scratch_bytes, outside_bytes, align: Align::SixtyFour, ..TaskOptions::default() };
        futures.submit_with(map, &params, &[self.layout.arg(), self.cuts.arg()], options)
    }

    fn merge(
        &self,
        futures: &Futures,
        blocks: &[Arg],
        pieces: &[u32],
        place: Place,
    ) -> Result<Vec<ObjectRef>, JobError> {
        let params = MergeParams { pieces: pieces.to_vec(), key: TableKey::new(&self.params.key) };
        let (scratch_bytes, outside_bytes) = (vec![MESSAGE_BYTES], LOOK_BYTES + self.partition_rows * ROW_BYTES);
        let options =
            TaskOptions { place, scratch_bytes, outside_bytes, align: Align::SixtyFour, ..TaskOptions::default() };
        futures.submit_many(merge, &params, &self.args(blocks), pieces.len() as u32, options)
    }

    fn reduce(&self, futures: &Futures, partition: u32, columns: &[Arg], place: Place) -> Result<ObjectRef, JobError> {
        let buffer_bytes = self.plan.output_buffer_bytes;
        let outside_bytes =
            self.params.reduce_bytes(self.plan.input_bytes / u64::from(self.plan.partitions), self.partition_rows);
        let params = ReduceParams {
            directory: self.params.output.clone(),
            name: format!("{}.parquet", part_name(partition as usize, self.plan.partitions as usize)),
            key: TableKey::new(&self.params.key),
            writing: self.params.writing,
            buffer_bytes,
        };
        let scratch_bytes = vec![buffer_bytes; 2];
        let options = TaskOptions { place, scratch_bytes, outside_bytes, ..TaskOptions::default() };
        futures.submit_with(reduce, &params, &self.args(columns), options)
    }
}

impl SortTable {
    /// What a reduce takes beside the store: what puts its rows in order, and what its sink has of a row group.
    fn reduce_bytes(&self, partition_bytes: u64, partition_rows: u64) -> u64 {
        let rows = partition_rows.max(1);
        let group_rows = self.writing.group_rows.min(rows);
        let group_bytes =
            GROUP_BYTES.min((u128::from(partition_bytes) * u128::from(group_rows) / u128::from(rows)) as u64);
        LOOK_BYTES + rows * ROW_BYTES + GROUP_MEMORY_FACTOR * group_bytes
    }
}

impl TableSort {
    fn args(&self, blocks: &[Arg]) -> Vec<Arg> {
        std::iter::once(self.layout.arg()).chain(blocks.iter().cloned()).collect()
    }
}

fn give_back(job: JobId, params: SortTable) {
    outputs::give_back(job, &params.output);
}

/// Sorts a table.
///
/// # Errors
/// Files that are no table, or not one; a column that is not there; too little memory; a full disk; a folder that cannot be used; rows that got lost: each names the file, column or
/// edge.
#[program(name = "table.sort", version = 1, give_back = give_back)]
pub async fn sort(futures: Futures, params: SortTable) -> Result<SortedTable, JobError> {
    let (inputs, key, reading) = (params.inputs.clone(), params.key.clone(), params.reading.clone());
    let looking = DescribeParams { inputs, partial: params.partial, key, reading };
    let options = TaskOptions { outside_bytes: LOOK_BYTES, ..TaskOptions::default() };
    let described = futures.submit_with(describe, &looking, &[], options)?;
    let described: Described = futures.get_value(&described).await?;
    let (value_bytes, rows) = (described.value_bytes(), described.rows());
    let sizes = Sizes::of(&futures.nodes(), value_bytes);
    let partitions = params.files.map_or_else(|| (value_bytes.div_ceil(FILE_BYTES)).max(1), u64::from);
    let rows_about: u64 = described.splits().map(DescribedSplit::rows_about).sum();
    let partition_rows = rows_about.div_ceil(partitions.max(1));
    check_memory(&described, &params, sizes, (value_bytes / partitions.max(1), partition_rows))?;
    let output = outputs::Output::claim(&futures, &params.output, "table.sort").await?;
    let maps = maps(&described, sizes);
    let chunk_bytes = value_bytes.div_ceil(maps.len().max(1) as u64).max(1);
    let partitions =
        u32::try_from(partitions).map_err(|_| JobError::program(format!("{partitions} files are too many")))?;
    let plan = Plan::of_chunks(sizes, Some(partitions), chunk_bytes).map_err(JobError::program)?;
    let strategy = params.strategy.unwrap_or_else(|| auto::choose(sizes, maps.len(), &plan));
    futures.plan_stage("table.sort.map", maps.len() as u64, value_bytes)?;
    futures.plan_stage("table.sort.reduce", u64::from(partitions), value_bytes)?;

    let layout = futures.put(&described.layout)?;
    let cuts = sampled_cuts(&futures, &described, &params, &layout, partitions).await?;
    let input_bytes = described.files.iter().map(|file| file.status.bytes).sum();
    let reading = described.reading.clone();
    drop(described);
    let job = TableSort { layout, cuts: futures.put_value(&cuts)?, maps, plan, partition_rows, reading, params };
    let shuffled = strategy.run(&futures, &job, job.maps.len(), &plan).await?;
    let (reduced, read) = (shuffled.outputs, shuffled.mapped);
    futures.wait_all(&reduced).await?;
    drop(shuffled.kept);
    let (mut written, mut output_bytes) = (Output { bytes: read.bytes, ..Output::default() }, 0);
    let mut tokens = stream::iter(reduced.iter().map(|output| futures.get_value::<Reduced>(output))).buffered(64);
    while let Some(Reduced { token, row_hash }) = tokens.try_next().await? {
        output_bytes += token.bytes;
        written.add(Output { bytes: 0, rows: token.rows, row_hash });
    }
    drop(tokens);
    if read != written || rows.is_some_and(|rows| rows != read.rows) {
        let (edge, (wrote, hash)) = ("input -> output".to_owned(), (written.rows, written.row_hash));
        let said = rows
            .map_or("nobody says how many rows there are".to_owned(), |rows| format!("input files say {rows} rows"));
        let detail =
            format!("{said}; read {} rows, hash {}; wrote {wrote} rows, hash {hash}", read.rows, read.row_hash);
        return Err(JobError::Conservation { edge, detail });
    }
    output.commit(&reduced, Schema::columns("parquet", Vec::new(), ',', false)).await?;
    Ok(SortedTable {
        rows: read.rows,
        input_bytes,
        output_bytes,
        row_hash_in: read.row_hash,
        row_hash_out: written.row_hash,
        strategy,
        maps: job.maps.len() as u64,
        files: reduced.len() as u64,
        owner_bytes: futures.owner_bytes().await?,
    })
}

/// Refuses a table for which a node has too little memory: for the largest split, which a map reads and makes an object of, or for a file.
fn check_memory(
    described: &Described,
    params: &SortTable,
    sizes: Sizes,
    (partition_bytes, partition_rows): (u64, u64),
) -> Result<(), JobError> {
    // Beside the region three quarters of it may be granted, and both together are no more than it.
    let needs = |outside: u64, whole: u64| (outside * 4 / 3).max(outside + whole) + 2 * MESSAGE_BYTES;
    let refuse = |what: String, bytes: u64| {
        let (has, least) = (sizes.memory_bytes >> 20, (bytes + SET_ASIDE_BYTES).div_ceil(1 << 20));
        Err(JobError::program(format!(
            "{what} takes more than the {has} MiB of a node's store: --memory {least}MiB is the least that works"
        )))
    };
    for file in &described.files {
        for (number, split) in file.splits.iter().enumerate() {
            let bytes = needs(LOOK_BYTES + split.outside_bytes(), split.value_bytes);
            if bytes > sizes.memory_bytes {
                return refuse(format!("{}, row group or piece {number},", file.path.display()), bytes);
            }
        }
    }
    let bytes = needs(params.reduce_bytes(partition_bytes, partition_rows), partition_bytes + partition_bytes / 8);
    if bytes > sizes.memory_bytes {
        return refuse(
            format!("a file of {} MiB of values, of which more --partitions are smaller,", partition_bytes >> 20),
            bytes,
        );
    }
    Ok(())
}

/// What each map reads: splits that follow each other, as many as a map takes at a time.
fn maps(described: &Described, sizes: Sizes) -> Vec<Vec<Piece>> {
    let executors = u64::from(sizes.executors_per_node.max(1));
    let map_bytes = (sizes.memory_bytes / (2 * executors)).min(MAP_BYTES_MAX);
    let (mut maps, mut open, mut open_bytes, mut before) = (Vec::new(), Vec::<Piece>::new(), 0, 0);
    for file in &described.files {
        for (split, described) in file.splits.iter().enumerate() {
            if described.is_left_out {
                before += 1;
                continue;
            }
            if !open.is_empty() && open_bytes + described.map_bytes() > map_bytes {
                maps.push(std::mem::take(&mut open));
                open_bytes = 0;
            }
            open_bytes += described.map_bytes();
            match open.last_mut().filter(|piece| piece.file.path == file.path && piece.splits.end == split) {
                Some(piece) => {
                    piece.splits.end += 1;
                    piece.file.splits.push(*described);
                }
                None => open.push(piece(file, split, before)),
            }
            before += 1;
        }
    }
    if !open.is_empty() {
        maps.push(open);
    }
    maps
}

/// A split of a file.
fn piece(file: &DescribedFile, split: usize, before: u32) -> Piece {
    let file = DescribedFile { path: file.path.clone(), status: file.status, splits: vec![file.splits[split]] };
    Piece { file, splits: split..split + 1, before }
}

/// Cuts from keys of some splits: which follows from the input alone.
async fn sampled_cuts(
    futures: &Futures,
    described: &Described,
    params: &SortTable,
    layout: &ObjectRef,
    partitions: u32,
) -> Result<Cuts, JobError> {
    let splits: Vec<(usize, usize)> = (0..)
        .zip(&described.files)
        .flat_map(|(file, of)| (0..of.splits.len()).map(move |split| (file, split)))
        .filter(|(file, split)| !described.files[*file].splits[*split].is_left_out)
        .collect();
    if partitions == 1 || splits.is_empty() {
        return Cuts::from_sample(Vec::new(), 1).map_err(JobError::program);
    }
    let first_only = splits.len() > SAMPLED_WHOLE;
    let count = splits.len().min(SAMPLED_WHOLE.max(SPLITS_PER_FILE * partitions as usize));
    let wanted = (u64::from(partitions) * KEYS_PER_FILE).clamp(KEYS_MIN, KEYS_MAX.max(2 * u64::from(partitions)));
    let chosen = (0..count).map(|at| splits[at * splits.len() / count]);
    let pieces: Vec<Piece> = chosen.map(|(file, split)| piece(&described.files[file], split, 0)).collect();
    let at_a_time = if first_only { SPLITS_PER_TASK } else { 1 };
    // Of a split that is read to its end, so many batches are looked at, about.
    let batches = |split: &DescribedSplit| split.rows_about().div_ceil(BATCH_ROWS_MAX as u64).max(1);
    let looked_at: u64 = pieces
        .iter()
        .flat_map(|piece| &piece.file.splits)
        .map(|split| if first_only { 1 } else { batches(split) })
        .sum();
    let keys = wanted.div_ceil(looked_at.max(1)).max(1) as usize;
    let tasks = pieces.chunks(at_a_time).map(|pieces| {
        let largest = pieces.iter().map(|piece| piece.file.splits[0].value_bytes).max().unwrap_or(0);
        let outside_bytes = LOOK_BYTES + largest / if first_only { 4 } else { 1 };
        let (reading, key) = (described.reading.clone(), TableKey::new(&params.key));
        let params = SampleParams { pieces: pieces.to_vec(), reading, key, keys, first_only };
        let options = TaskOptions { outside_bytes, ..TaskOptions::default() };
        futures.submit_with(sample, &params, &[layout.arg()], options)
    });
    let tasks = tasks.collect::<Result<Vec<_>, _>>()?;
    let mut keys = Vec::new();
    for task in &tasks {
        let sampled: Vec<ByteBuf> = futures.get_value(task).await?;
        keys.extend(sampled.into_iter().map(ByteBuf::into_vec));
    }
    Cuts::from_sample(keys, partitions as usize).map_err(JobError::program)
}

#[cfg(test)]
mod tests {
    use exobus_files::{FileStatus, Version};

    use super::*;
    use crate::jobs::described::{DescribedFile, DescribedSplit};

    fn described(files: &[&[u64]]) -> Described {
        let file = |(number, splits): (usize, &&[u64])| DescribedFile {
            path: format!("{number}").into(),
            status: FileStatus { bytes: 1, version: Version::of(&[]) },
            splits: splits
                .iter()
                .map(|bytes| DescribedSplit { value_bytes: *bytes, rows: None, state: None, is_left_out: false })
                .collect(),
        };
        let files = files.iter().enumerate().map(file).collect();
        Described { layout: ByteBuf::new(), files, reading: Reading::default() }
    }

    #[test]
    fn a_map_reads_splits_that_follow_each_other_and_each_is_read_once_in_its_place() {
        let table = described(&[&[400, 400, 400], &[], &[100], &[2_000], &[10, 10]]);
        // Two splits of 400 fit, three do not.
        let memory_bytes = 4 * 2 * table.files[0].splits[0].map_bytes() + 40;
        let sizes = Sizes { input_bytes: 0, nodes: 1, executors_per_node: 2, memory_bytes };
        let maps = maps(&table, sizes);
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
    fn a_memory_that_is_too_small_is_refused_with_what_would_do_and_for_what() {
        let mib = 1 << 20;
        let refused = |memory: u64, partition: u64| {
            let sizes = Sizes { input_bytes: 0, nodes: 1, executors_per_node: 2, memory_bytes: memory * mib };
            let params: SortTable = SortTable {
                inputs: Vec::new(),
                output: PathBuf::new(),
                key: Vec::new(),
                files: None,
                reading: ReadOptions::default(),
                writing: WriteOptions::default(),
                strategy: None,
                partial: false,
            };
            let table = described(&[&[mib], &[mib, 20 * mib]]);
            check_memory(&table, &params, sizes, (partition * mib, partition * 1000)).map_err(|error| error.to_string())
        };
        assert_eq!(refused(4096, 64), Ok(()));
        let error = refused(64, 1).unwrap_err();
        assert!(
            error.contains("1, row group or piece 1,") && error.contains("the 64 MiB of a node's store"),
            "{error}"
        );
        let error = refused(200, 64).unwrap_err();
        assert!(error.contains("a file of 64 MiB") && error.contains("--partitions"), "{error}");
        // What is said to be the least works.
        let least: u64 = error.split("--memory ").nth(1).unwrap().split("MiB").next().unwrap().parse().unwrap();
        assert_eq!(refused(least - 32, 64), Ok(()));
        assert!(refused(least - 33, 64).is_err());
    }
}
