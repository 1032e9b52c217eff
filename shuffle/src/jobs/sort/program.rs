//! The program of a sort: which tasks, in which order, and what is checked.

use std::ops::Range;
use std::path::PathBuf;
use std::pin::pin;

use ::futures::TryStreamExt as _;
use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::ids::{JobId, NodeId, RowHash};
use exobus_actors::program;
use exobus_actors::registry::Paths;
use exobus_actors::task::{Arg, JobError, Output, Place, TaskOptions};
use exobus_files::{part_name, range_name};
use serde::{Deserialize, Serialize};

use super::ranges::{PIECE_BYTES, draw, split};
use super::tasks::{
    Key, ListParams, MapParams, MergeParams, ReduceParams, Reduced, SampleParams, list, map, merge_blocks, reduce,
    sample,
};
use crate::cuts::Cuts;
use crate::files::{FileList, record_schema, scratch_bytes};
use crate::job::{Draw, Job, KeyRanges};
use crate::jobs::inputs::Pages;
use crate::jobs::outputs;
use crate::jobs::values::read_values;
use crate::kernels::sort_scratch_bytes;
use crate::plan::{Plan, Sizes};
use crate::records::RECORD_BYTES;
use crate::strategies::Strategy;
use crate::strategies::auto::{self, Estimate, Explained};

/// Keys that are sampled for each partition: with 20, the largest of uniformly distributed partitions is some 1.5 times
/// the mean at worst, and hot ranges are found.
const SAMPLE_KEYS_PER_PARTITION: u64 = 20;
/// At least this many are sampled in all, so that few partitions are even, too.
const SAMPLE_KEYS_MIN: u64 = 2_000;
/// At most, bounding the time it takes.
const SAMPLE_KEYS_MAX: u64 = 20_000;
/// Keys that one sampling task reads.
const SAMPLE_KEYS_PER_TASK: usize = 500;

/// What a sort is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SortParams {
    /// Files of 100-byte records, or directories of them.
    #[serde(with = "exobus_actors::paths")]
    pub inputs: Vec<PathBuf>,
    /// A directory, empty or not there yet.
    #[serde(with = "exobus_actors::paths")]
    pub output: PathBuf,
    /// How many partitions; `None`: as many as memory and executors ask for.
    pub partitions: Option<u32>,
    /// Which strategy; `None`: the one that is estimated to be the fastest.
    pub strategy: Option<Strategy>,
    /// Where the cuts between partitions come from.
    #[serde(default)]
    pub cuts: CutsFrom,
    /// Whether a directory is read that a job has claimed and not committed.
    #[serde(default)]
    pub partial: bool,
}

/// Where the cuts between partitions come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutsFrom {
    /// Keys at random places of the input: partitions are about even, whatever the keys are.
    #[default]
    Sampled,
    /// The space of keys, divided evenly without a look at the input: what a key is in does not depend on the other keys.
    Uniform,
    /// These keys, in ascending order: partition p has the keys from cut p - 1 on, below cut p. They say how many partitions
    /// there are.
    Given(Vec<Vec<u8>>),
}

impl CutsFrom {
    /// Cuts that are given, and how many partitions there shall be, if that is known.
    fn given(&self, partitions: Option<u32>) -> Result<(Option<Cuts>, Option<u32>), JobError> {
        let Self::Given(keys) = self else { return Ok((None, partitions)) };
        let cuts = Cuts::new(keys.clone()).map_err(JobError::program)?;
        let made = cuts.partitions();
        if partitions.is_some_and(|wanted| wanted as usize != made) {
            let wanted = partitions.unwrap_or_default();
            return Err(JobError::program(format!("{} cuts make {made} partitions, not {wanted}", keys.len())));
        }
        Ok((Some(cuts), Some(u32::try_from(made).map_err(JobError::program)?)))
    }
}

/// What a sort has done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SortReport {
    /// Records sorted.
    pub rows: u64,
    /// Bytes sorted.
    pub bytes: u64,
    /// Hash of the rows that were read, from the bytes read.
    pub row_hash_in: RowHash,
    /// Hash of the rows that were written, from the bytes written.
    pub row_hash_out: RowHash,
    /// Which strategy ran.
    pub strategy: Strategy,
    /// How many maps there were.
    pub maps: u64,
    /// How many partitions there are.
    pub partitions: u32,
    /// How many files were written: as many as partitions, and more where some were divided.
    pub files: u64,
    /// Bytes that the Owner's tables took at the end.
    pub owner_bytes: u64,
}

struct SortJob {
    pages: Pages,
    /// What of the input each map sorts.
    chunks: Vec<Range<u64>>,
    cuts: ObjectRef,
    output: PathBuf,
    plan: Plan,
}

impl Job for SortJob {
    fn name(&self) -> &'static str {
        "sort"
    }

    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError> {
        let chunk = self.chunks[index].clone();
        let rows = (chunk.end - chunk.start) as usize / RECORD_BYTES;
        let scratch_bytes = vec![scratch_bytes(&chunk), sort_scratch_bytes(rows) as u64];
        let args = [self.cuts.arg(), self.pages.at(chunk.start)];
        let options = TaskOptions { place, scratch_bytes, ..TaskOptions::default() };
        futures.submit_with(map, &MapParams { chunk }, &args, options)
    }

    fn merge(
        &self,
        futures: &Futures,
        blocks: &[Arg],
        pieces: &[u32],
        place: Place,
    ) -> Result<Vec<ObjectRef>, JobError> {
        let whole_max_bytes = self.plan.merge_memory_bytes;
        let options = TaskOptions { place, whole_max_bytes, ..TaskOptions::default() };
        let params = MergeParams { pieces: pieces.to_vec() };
        futures.submit_many(merge_blocks, &params, blocks, pieces.len() as u32, options)
    }

    fn reduce(&self, futures: &Futures, partition: u32, columns: &[Arg], place: Place) -> Result<ObjectRef, JobError> {
        self.reduce_into(futures, part_name(partition as usize, self.plan.partitions as usize), columns, place)
    }

    fn key_ranges(&self) -> Option<&dyn KeyRanges> {
        Some(self)
    }
}

impl KeyRanges for SortJob {
    fn sample(&self, futures: &Futures, column: Arg, keys: Draw, node: &NodeId) -> Result<ObjectRef, JobError> {
        draw_task(futures, column, keys, node)
    }

    fn split(&self, futures: &Futures, column: Arg, cuts: &ObjectRef, place: Place) -> Result<ObjectRef, JobError> {
        split_task(futures, column, cuts, place, self.plan.merge_memory_bytes)
    }

    fn reduce_range(
        &self,
        futures: &Futures,
        partition: u32,
        range: &[u32],
        columns: &[Arg],
        place: Place,
    ) -> Result<ObjectRef, JobError> {
        let name = part_name(partition as usize, self.plan.partitions as usize);
        self.reduce_into(futures, range_name(&name, range), columns, place)
    }
}

impl SortJob {
    fn reduce_into(
        &self,
        futures: &Futures,
        name: String,
        columns: &[Arg],
        place: Place,
    ) -> Result<ObjectRef, JobError> {
        let buffer_bytes = outputs::buffer_bytes(&self.plan, &self.output);
        let params = ReduceParams { directory: self.output.clone(), name, buffer_bytes };
        let options = TaskOptions { place, scratch_bytes: vec![buffer_bytes; 2], ..TaskOptions::default() };
        futures.submit_with(reduce, &params, columns, options)
    }
}

/// Submits a look at keys of sorted records.
pub(crate) fn draw_task(futures: &Futures, column: Arg, keys: Draw, node: &NodeId) -> Result<ObjectRef, JobError> {
    let place = Place::Node { node: node.clone(), soft: false };
    futures.submit_with(draw, &keys, &[column], TaskOptions { place, ..TaskOptions::default() })
}

/// Submits the splitting of sorted records, of which at most so many bytes come into memory at once.
pub(crate) fn split_task(
    futures: &Futures,
    column: Arg,
    cuts: &ObjectRef,
    place: Place,
    whole_max_bytes: u64,
) -> Result<ObjectRef, JobError> {
    let scratch_bytes = vec![PIECE_BYTES];
    let options = TaskOptions { place, whole_max_bytes, scratch_bytes, ..TaskOptions::default() };
    futures.submit_with(split, &(), &[cuts.arg(), column], options)
}

fn give_back(job: JobId, params: SortParams) {
    outputs::give_back(job, &params.output);
}

fn paths(params: &SortParams) -> Paths {
    Paths { reads: params.inputs.clone(), writes: vec![params.output.clone()] }
}

/// Sorts.
///
/// # Errors
/// Bad input, a full disk, an output directory that cannot be used, rows that got lost: each names the file or edge.
#[program(name = "sort", version = 1, give_back = give_back, paths = paths)]
pub async fn sort(futures: Futures, params: SortParams) -> Result<SortReport, JobError> {
    let (given, partitions) = params.cuts.given(params.partitions)?;
    let files = input(&futures, &params.inputs, params.partial).await?;
    let output = outputs::Output::claim(&futures, &params.output, "sort").await?;
    let layout = Layout::of(&futures, files, partitions)?;
    let strategy = params.strategy.unwrap_or_else(|| layout.estimates()[0].strategy);
    let Layout { files, plan, chunks, .. } = layout;
    let pages = Pages::put(&futures, &files)?;
    let (bytes, maps) = (plan.input_bytes, chunks.len());
    futures.plan_stage("sort.map", maps as u64, bytes)?;
    futures.plan_stage("sort.reduce", u64::from(plan.partitions), bytes)?;

    let cuts = match given {
        Some(cuts) => cuts,
        None if params.cuts == CutsFrom::Uniform => Cuts::even(plan.partitions as usize).map_err(JobError::program)?,
        None => sampled_cuts(&futures, &files, &pages, plan.partitions).await?,
    };
    drop(files);
    let cuts = futures.put_value(&cuts)?;
    let job = SortJob { pages, chunks, cuts, output: params.output.clone(), plan };
    let shuffled = strategy.run(&futures, &job, maps, &plan).await?;
    let (reduced, read) = (shuffled.outputs, shuffled.mapped);
    futures.wait_all(&reduced).await?;
    drop(shuffled.kept);
    let mut written = Output::default();
    let mut values = pin!(read_values(&futures, &reduced));
    while let Some(Reduced { token, row_hash }) = values.try_next().await? {
        written.add(Output { bytes: token.bytes, rows: token.rows, row_hash });
    }
    if read != written || read.bytes != bytes {
        return Err(JobError::Conservation {
            edge: "input -> output".into(),
            detail: difference(bytes, read, written),
        });
    }
    output.commit(&reduced, record_schema()).await?;
    Ok(SortReport {
        rows: read.rows,
        bytes: read.bytes,
        row_hash_in: read.row_hash,
        row_hash_out: written.row_hash,
        strategy,
        maps: maps as u64,
        partitions: plan.partitions,
        files: reduced.len() as u64,
        owner_bytes: futures.owner_bytes().await?,
    })
}

/// Input and numbers of a sort, before anything is moved.
struct Layout {
    files: FileList,
    sizes: Sizes,
    plan: Plan,
    /// What of the input each map reads.
    chunks: Vec<Range<u64>>,
}

/// The files that are sorted.
async fn input(futures: &Futures, inputs: &[PathBuf], partial: bool) -> Result<FileList, JobError> {
    let listing = ListParams { inputs: inputs.to_vec(), partial };
    futures.get_value(&futures.submit(list, &listing, &[])?).await
}

impl Layout {
    fn of(futures: &Futures, files: FileList, partitions: Option<u32>) -> Result<Self, JobError> {
        let sizes = Sizes::of(&futures.nodes(), files.bytes());
        let plan = Plan::new(sizes, partitions).map_err(JobError::program)?;
        let chunks = files.chunks(plan.chunk_bytes);
        Ok(Self { files, sizes, plan, chunks })
    }

    fn estimates(&self) -> Vec<Estimate> {
        auto::estimates(self.sizes, self.chunks.len(), &self.plan)
    }
}

/// What `sort.explain` is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainParams {
    /// Files of 100-byte records, or directories of them.
    #[serde(with = "exobus_actors::paths")]
    pub inputs: Vec<PathBuf>,
    /// How many partitions; `None`: as many as memory and executors ask for.
    pub partitions: Option<u32>,
    /// Whether a directory is read that a job has claimed and not committed.
    #[serde(default)]
    pub partial: bool,
}

fn explained_paths(params: &ExplainParams) -> Paths {
    Paths { reads: params.inputs.clone(), writes: Vec::new() }
}

/// Says what a sort of these files would do, by looking at their sizes only.
///
/// # Errors
/// Bad input: names the file.
#[program(name = "sort.explain", version = 1, paths = explained_paths)]
pub async fn explain(futures: Futures, params: ExplainParams) -> Result<Explained, JobError> {
    let files = input(&futures, &params.inputs, params.partial).await?;
    let layout = Layout::of(&futures, files, params.partitions)?;
    let estimates = layout.estimates();
    let Layout { sizes, plan, chunks, .. } = layout;
    Ok(Explained { input_bytes: sizes.input_bytes, sizes, maps: chunks.len() as u64, plan, estimates })
}

fn difference(bytes: u64, read: Output, written: Output) -> String {
    format!(
        "input files have {bytes} bytes; read {} rows, {} bytes, hash {}; wrote {} rows, {} bytes, hash {}",
        read.rows, read.bytes, read.row_hash, written.rows, written.bytes, written.row_hash
    )
}

/// Cuts from keys at random places of the input.
async fn sampled_cuts(futures: &Futures, files: &FileList, pages: &Pages, partitions: u32) -> Result<Cuts, JobError> {
    let rows = files.bytes() / RECORD_BYTES as u64;
    if partitions == 1 || rows == 0 {
        return Cuts::even(partitions as usize).map_err(JobError::program);
    }
    let wanted = u64::from(partitions) * SAMPLE_KEYS_PER_PARTITION;
    let wanted = wanted.clamp(SAMPLE_KEYS_MIN, SAMPLE_KEYS_MAX.max(u64::from(partitions) * 2)).min(rows);
    let mut places: Vec<u64> = (0..wanted).map(|_| futures.random() % rows * RECORD_BYTES as u64).collect();
    places.sort_unstable();
    let of_pages = places.chunk_by(|a, b| pages.index(*a) == pages.index(*b));
    let tasks = of_pages.flat_map(|places| places.chunks(SAMPLE_KEYS_PER_TASK)).map(|places| {
        let params = SampleParams { places: places.to_vec() };
        futures.submit(sample, &params, &[pages.at(places[0])])
    });
    let tasks = tasks.collect::<Result<Vec<_>, _>>()?;
    let mut keys = Vec::with_capacity(places.len());
    for task in &tasks {
        let sampled: Vec<Key> = futures.get_value(task).await?;
        keys.extend(sampled.into_iter().map(|key| key.0.to_vec()));
    }
    Cuts::from_sample(keys, partitions as usize).map_err(JobError::program)
}
