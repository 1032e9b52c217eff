//! The program of a sort: which tasks, in which order, and what is checked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use exobus_actors::futures::{Futures, NodeShape, ObjectRef};
use exobus_actors::ids::RowHash;
use exobus_actors::program;
use exobus_actors::task::{Arg, JobError, Output, Place, TaskOptions};
use serde::{Deserialize, Serialize};

use super::tasks::{
    Key, ListParams, Listed, MapParams, ReduceParams, Reduced, SampleParams, commit, list, map, reduce,
    remove_temporaries, sample,
};
use crate::cuts::Cuts;
use crate::files::{Chunk, InputFile, chunks, part_name};
use crate::job::Job;
use crate::kernels::sort_scratch_bytes;
use crate::plan::{Plan, Sizes};
use crate::records::RECORD_BYTES;
use crate::strategies::Strategy;

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
    pub inputs: Vec<PathBuf>,
    /// A directory, empty or not there yet.
    pub output: PathBuf,
    /// How many partitions; `None`: as many as memory and executors ask for.
    pub partitions: Option<u32>,
    /// Which strategy.
    pub strategy: Strategy,
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
    /// Bytes that the Owner's tables took at the end.
    pub owner_bytes: u64,
}

/// Removes temporaries unless the sort got to its end.
struct Cleanup {
    directory: PathBuf,
    created: bool,
    armed: bool,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        if self.armed {
            remove_temporaries(&self.directory, self.created);
        }
    }
}

struct SortJob {
    chunks: Vec<Chunk>,
    cuts: ObjectRef,
    output: PathBuf,
    plan: Plan,
}

impl Job for SortJob {
    fn exchange(&self) -> &'static str {
        "sort.map -> sort.reduce"
    }

    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError> {
        let params = MapParams { chunk: self.chunks[index].clone() };
        let rows = self.chunks[index].bytes as usize / RECORD_BYTES;
        let scratch_bytes = vec![self.chunks[index].scratch_bytes() as u64, sort_scratch_bytes(rows) as u64];
        futures.submit_with(
            map,
            &params,
            &[self.cuts.arg()],
            TaskOptions { place, scratch_bytes, ..TaskOptions::default() },
        )
    }

    fn reduce(&self, futures: &Futures, partition: u32, column: Arg, place: Place) -> Result<ObjectRef, JobError> {
        let params = ReduceParams {
            directory: self.output.clone(),
            name: part_name(partition as usize, self.plan.partitions as usize),
            buffer_bytes: self.plan.output_buffer_bytes,
        };
        let scratch_bytes = vec![self.plan.output_buffer_bytes; 2];
        futures.submit_with(reduce, &params, &[column], TaskOptions { place, scratch_bytes, ..TaskOptions::default() })
    }
}

/// Sorts.
///
/// # Errors
/// Bad input, a full disk, an output directory that cannot be used, rows that got lost: each names the file or edge.
#[program(name = "sort", version = 1)]
pub async fn sort(futures: Futures, params: SortParams) -> Result<SortReport, JobError> {
    let listing = ListParams { inputs: params.inputs.clone(), output: params.output.clone() };
    let listed: Listed = futures.get_value(&futures.submit(list, &listing, &[])?).await?;
    let mut cleanup = Cleanup { directory: params.output.clone(), created: listed.created, armed: true };

    let bytes: u64 = listed.files.iter().map(|file| file.bytes).sum();
    let plan = Plan::new(sizes(&futures, bytes), params.partitions).map_err(JobError::program)?;
    let chunks = chunks(&listed.files, plan.chunk_bytes);
    let maps = chunks.len();
    futures.plan_stage("sort.map", maps as u64, bytes)?;
    futures.plan_stage("sort.reduce", u64::from(plan.partitions), bytes)?;

    let cuts = sampled_cuts(&futures, &listed.files, plan.partitions).await?;
    let cuts = futures.put_value(&cuts)?;
    let job = SortJob { chunks, cuts, output: params.output.clone(), plan };
    let shuffled = params.strategy.run(&futures, &job, maps, &plan).await?;
    let (reduced, read) = (shuffled.outputs, shuffled.mapped);
    futures.wait_all(&reduced).await?;
    let mut written = Output::default();
    for output in &reduced {
        let reduced: Reduced = futures.get_value(output).await?;
        written.add(Output { bytes: reduced.token.bytes, rows: reduced.rows, row_hash: reduced.row_hash });
    }
    if read != written || read.bytes != bytes {
        return Err(JobError::Conservation {
            edge: "input -> output".into(),
            detail: difference(bytes, read, written),
        });
    }
    let files = futures.set(&reduced)?;
    futures.ready(&futures.submit(commit, &params.output, &[files.arg()])?).await?;
    cleanup.armed = false;
    Ok(SortReport {
        rows: read.rows,
        bytes: read.bytes,
        row_hash_in: read.row_hash,
        row_hash_out: written.row_hash,
        strategy: params.strategy,
        maps: maps as u64,
        partitions: plan.partitions,
        owner_bytes: futures.owner_bytes().await?,
    })
}

fn sizes(futures: &Futures, input_bytes: u64) -> Sizes {
    let nodes = futures.nodes();
    let smallest = |figure: fn(&NodeShape) -> u64| nodes.iter().map(figure).min().unwrap_or(0);
    Sizes {
        input_bytes,
        nodes: nodes.len() as u32,
        executors_per_node: (smallest(|node| node.cpu_milli) / 1000).max(1) as u32,
        memory_bytes: smallest(|node| node.memory_bytes),
    }
}

fn difference(bytes: u64, read: Output, written: Output) -> String {
    format!(
        "input files have {bytes} bytes; read {} rows, {} bytes, hash {}; wrote {} rows, {} bytes, hash {}",
        read.rows, read.bytes, read.row_hash, written.rows, written.bytes, written.row_hash
    )
}

/// Cuts from keys at random places of the input.
async fn sampled_cuts(futures: &Futures, files: &[InputFile], partitions: u32) -> Result<Cuts, JobError> {
    let rows: u64 = files.iter().map(|file| file.bytes / RECORD_BYTES as u64).sum();
    if partitions == 1 || rows == 0 {
        return Cuts::even(partitions as usize).map_err(JobError::program);
    }
    let wanted = u64::from(partitions) * SAMPLE_KEYS_PER_PARTITION;
    let wanted = wanted.clamp(SAMPLE_KEYS_MIN, SAMPLE_KEYS_MAX.max(u64::from(partitions) * 2)).min(rows);
    let mut places: Vec<u64> = (0..wanted).map(|_| futures.random() % rows).collect();
    places.sort_unstable();
    let tasks = places.chunks(SAMPLE_KEYS_PER_TASK).map(|places| {
        let params = SampleParams { places: locate(files, places) };
        futures.submit(sample, &params, &[])
    });
    let tasks = tasks.collect::<Result<Vec<_>, _>>()?;
    let mut keys = Vec::with_capacity(places.len());
    for task in &tasks {
        let sampled: Vec<Key> = futures.get_value(task).await?;
        keys.extend(sampled.into_iter().map(|key| key.0.to_vec()));
    }
    Cuts::from_sample(keys, partitions as usize).map_err(JobError::program)
}

/// Which file and offset each record number of all files together is at.
fn locate(files: &[InputFile], rows: &[u64]) -> Vec<(PathBuf, Vec<u64>)> {
    let mut places: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for row in rows {
        let mut offset = row * RECORD_BYTES as u64;
        for (index, file) in files.iter().enumerate() {
            if offset < file.bytes {
                places.entry(index).or_default().push(offset);
                break;
            }
            offset -= file.bytes;
        }
    }
    places.into_iter().map(|(index, offsets)| (files[index].path.clone(), offsets)).collect()
}
