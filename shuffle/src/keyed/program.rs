//! The program of a keyed job: which tasks, in which order, and what is checked.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::task::{Arg, JobError, Output, Place, TaskOptions};
use serde::{Deserialize, Serialize};

use super::input::{Piece, Places, pieces};
use super::register::{KeyedFunction, Registered, stage};
use super::tasks::{
    Found, ListParams, Listed, Made, MapParams, MergeParams, ProbeParams, Probed, ReduceParams, Reduced, SplitParams,
};
use super::{KeyedJob, Split};
use crate::files::{InputFile, part_name};
use crate::job::Job;
use crate::jobs::outputs::Cleanup;
use crate::plan::{Plan, Sizes};
use crate::strategies::{Strategy, auto};

/// Pieces of the input that are mapped to see how large its rows are.
const PROBES: u64 = 8;
/// Bytes of one of them.
const PROBE_BYTES: u64 = 256 << 10;
/// Combining is believed to save this much at most, however much it saves in the probe: where keys are spread unevenly
/// over the input, a partition that was thought to be small still fits into memory.
const COMBINED_SHARE_MIN: u64 = 4;
/// Marks are at least this far from each other, and there are at most so many in a file.
const MARK_STEP_BYTES_MIN: u64 = 64 << 10;
const MARKS_PER_FILE: u64 = 16 << 10;
/// Scratch memory of tasks that look at the input before there is a plan: this share of a node's, within these bounds.
const LOOK_SHARE_OF_MEMORY: u64 = 8;
const LOOK_BYTES_MIN: u64 = 512 << 10;
const LOOK_BYTES_MAX: u64 = 16 << 20;

/// What a keyed job is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct KeyedParams<J> {
    /// Files, or directories of them.
    pub inputs: Vec<PathBuf>,
    /// A directory, empty or not there yet.
    pub output: PathBuf,
    /// How many partitions; `None`: as many as memory and executors ask for.
    pub partitions: Option<u32>,
    /// Which strategy; `None`: the one that is estimated to be the fastest.
    pub strategy: Option<Strategy>,
    /// The job.
    pub job: J,
}

/// What a keyed job has done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyedReport {
    /// Bytes of the input files.
    pub input_bytes: u64,
    /// Bytes of the part files.
    pub output_bytes: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Rows that combining left, which went through the shuffle.
    pub shuffled: Output,
    /// Sum of what is [conserved](super::KeyedJob::conserved) over all rows that the maps emitted.
    pub emitted: Output,
    /// The same sum over what was reduced.
    pub reduced: Output,
    /// Which strategy ran.
    pub strategy: Strategy,
    /// How many maps there were.
    pub maps: u64,
    /// How many partitions there are.
    pub partitions: u32,
    /// Bytes that the Owner's tables took at the end.
    pub owner_bytes: u64,
}

/// A keyed job as strategies run it.
struct Shuffle<J> {
    job: Arc<J>,
    pieces: Vec<Piece>,
    output: PathBuf,
    plan: Plan,
    /// The second output of each map: what it emitted.
    made: RefCell<Vec<ObjectRef>>,
}

impl<J: Registered> Job for Shuffle<J> {
    fn name(&self) -> &'static str {
        J::NAME
    }

    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError> {
        let params = MapParams {
            job: self.job.clone(),
            piece: self.pieces[index].clone(),
            partitions: self.plan.partitions,
            scratch_bytes: self.plan.map_scratch_bytes,
        };
        let scratch_bytes = vec![self.plan.map_scratch_bytes];
        let options = TaskOptions { place, scratch_bytes, ..TaskOptions::default() };
        let function = KeyedFunction::<J, stage::Map>::new();
        let [parts, made] = <[ObjectRef; 2]>::try_from(futures.submit_many(function, &params, &[], 2, options)?)
            .map_err(|_| JobError::program("a map has two outputs"))?;
        self.made.borrow_mut().push(made);
        Ok(parts)
    }

    fn merge(&self, futures: &Futures, blocks: &[Arg], parts: u32, place: Place) -> Result<ObjectRef, JobError> {
        let params = MergeParams { job: self.job.clone(), parts };
        let options = TaskOptions { place, ..TaskOptions::default() };
        futures.submit_with(KeyedFunction::<J, stage::Merge>::new(), &params, blocks, options)
    }

    fn reduce(&self, futures: &Futures, partition: u32, columns: &[Arg], place: Place) -> Result<ObjectRef, JobError> {
        let params = ReduceParams {
            job: self.job.clone(),
            directory: self.output.clone(),
            name: part_name(partition as usize, self.plan.partitions as usize),
            buffer_bytes: self.plan.output_buffer_bytes,
        };
        let scratch_bytes = vec![self.plan.output_buffer_bytes; 2];
        let options = TaskOptions { place, scratch_bytes, ..TaskOptions::default() };
        futures.submit_with(KeyedFunction::<J, stage::Reduce>::new(), &params, columns, options)
    }
}

/// Runs a keyed job.
///
/// # Errors
/// Bad input, a full disk, an output directory that cannot be used, rows that got lost: each names the file or edge.
pub async fn run<J: Registered>(futures: Futures, params: KeyedParams<J>) -> Result<KeyedReport, JobError> {
    let KeyedParams { inputs, output, partitions, strategy, job } = params;
    let job = Arc::new(job);
    let listing = ListParams { job: job.clone(), inputs, output: output.clone() };
    let listed = futures.submit(KeyedFunction::<J, stage::List>::new(), &listing, &[])?;
    let Listed { files, created } = futures.get_value(&listed).await?;
    let cleanup = Cleanup::new(&output, created);

    let input_bytes = files.iter().map(|file| file.bytes).sum();
    let sizes = Sizes::of(&futures.nodes(), input_bytes);
    let look_bytes = (sizes.memory_bytes / LOOK_SHARE_OF_MEMORY).clamp(LOOK_BYTES_MIN, LOOK_BYTES_MAX);
    let places = places::<J>(&futures, &job, &files, look_bytes).await?;
    let probed = probe::<J>(&futures, &job, &files, &places, look_bytes).await?;
    let sizes = Sizes { input_bytes: probed.mapped_bytes(input_bytes), ..sizes };
    let plan = Plan::new(sizes, partitions).map_err(JobError::program)?;
    let pieces = pieces(&files, &places, probed.piece_bytes(plan.chunk_bytes));
    let maps = pieces.len();
    let strategy = strategy.unwrap_or_else(|| auto::choose(sizes, maps, &plan));
    futures.plan_stage(&format!("{}.map", J::NAME), maps as u64, input_bytes)?;
    futures.plan_stage(&format!("{}.reduce", J::NAME), u64::from(plan.partitions), plan.input_bytes)?;

    let shuffle = Shuffle { job: job.clone(), pieces, output: output.clone(), plan, made: RefCell::default() };
    let shuffled = strategy.run(&futures, &shuffle, maps, &plan).await?;
    futures.wait_all(&shuffled.outputs).await?;
    drop(shuffled.kept);
    let mut report = KeyedReport {
        input_bytes,
        output_bytes: 0,
        keys: 0,
        shuffled: shuffled.mapped,
        emitted: Output::default(),
        reduced: Output::default(),
        strategy,
        maps: maps as u64,
        partitions: plan.partitions,
        owner_bytes: 0,
    };
    for made in shuffle.made.take() {
        let made: Made = futures.get_value(&made).await?;
        report.emitted.add(made.conserved);
    }
    for output in &shuffled.outputs {
        let reduced: Reduced = futures.get_value(output).await?;
        report.reduced.add(reduced.conserved);
        report.keys += reduced.keys;
        report.output_bytes += reduced.token.bytes;
    }
    check(&*job, &report)?;
    let files = futures.set(&shuffled.outputs)?;
    let committed = futures.submit(KeyedFunction::<J, stage::Commit>::new(), &output, &[files.arg()])?;
    futures.ready(&committed).await?;
    cleanup.committed();
    report.owner_bytes = futures.owner_bytes().await?;
    Ok(report)
}

/// Law 1, from what was read to what was written.
fn check<J: KeyedJob>(job: &J, report: &KeyedReport) -> Result<(), JobError> {
    let lost = |detail| JobError::Conservation { edge: "input -> output".into(), detail };
    let KeyedReport { emitted, reduced, .. } = report;
    if emitted != reduced {
        return Err(lost(format!(
            "emitted {} rows, {} bytes, hash {}; reduced {} rows, {} bytes, hash {}",
            emitted.rows, emitted.bytes, emitted.row_hash, reduced.rows, reduced.bytes, reduced.row_hash
        )));
    }
    job.check(report.input_bytes, *emitted).map_err(lost)
}

/// Where files may be cut.
async fn places<J: Registered>(
    futures: &Futures,
    job: &Arc<J>,
    files: &[InputFile],
    scratch_bytes: u64,
) -> Result<Places, JobError> {
    match job.split() {
        Split::Records(bytes) => return Ok(Places::Multiples(bytes)),
        Split::Anywhere => return Ok(Places::Multiples(1)),
        Split::Marks => {}
    }
    let split = |file: &InputFile| {
        let step_bytes = MARK_STEP_BYTES_MIN.max(file.bytes / MARKS_PER_FILE);
        if file.bytes <= step_bytes {
            return Ok(None);
        }
        let params = SplitParams { job: job.clone(), file: file.clone(), step_bytes, scratch_bytes };
        let options = TaskOptions { scratch_bytes: vec![scratch_bytes], ..TaskOptions::default() };
        futures.submit_with(KeyedFunction::<J, stage::Split>::new(), &params, &[], options).map(Some)
    };
    let tasks = files.iter().map(split).collect::<Result<Vec<_>, JobError>>()?;
    let mut marks = Vec::with_capacity(files.len());
    for task in tasks {
        marks.push(match task {
            Some(task) => futures.get_value::<Found>(&task).await?.marks,
            None => Vec::new(),
        });
    }
    Ok(Places::Marks(marks))
}

/// Maps small pieces at random places.
async fn probe<J: Registered>(
    futures: &Futures,
    job: &Arc<J>,
    files: &[InputFile],
    places: &Places,
    scratch_bytes: u64,
) -> Result<Probed, JobError> {
    let input_bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let pieces: Vec<Piece> = match input_bytes {
        0 => return Ok(Probed::default()),
        // Where there is little, all of it.
        _ if input_bytes <= PROBES * PROBE_BYTES => pieces(files, places, PROBE_BYTES),
        _ => (0..PROBES).filter_map(|_| places.piece_at(files, futures.random() % input_bytes, PROBE_BYTES)).collect(),
    };
    let params = ProbeParams { job: job.clone(), pieces, scratch_bytes };
    let options = TaskOptions { scratch_bytes: vec![scratch_bytes], ..TaskOptions::default() };
    futures.get_value(&futures.submit_with(KeyedFunction::<J, stage::Probe>::new(), &params, &[], options)?).await
}

impl Probed {
    /// What maps are expected to make of each `read_bytes` that they read.
    fn made_bytes(&self) -> u128 {
        u128::from(self.combined_bytes.max(self.emitted_bytes / COMBINED_SHARE_MIN))
    }

    /// What maps are expected to make of the input.
    fn mapped_bytes(&self, input_bytes: u64) -> u64 {
        (u128::from(input_bytes) * self.made_bytes() / u128::from(self.read_bytes.max(1))) as u64
    }

    /// How much input makes nine tenths of a chunk of rows: the order of rows takes room, too.
    fn piece_bytes(&self, chunk_bytes: u64) -> u64 {
        let made_bytes = self.made_bytes().max(1);
        let bytes = u128::from(chunk_bytes) * 9 / 10 * u128::from(self.read_bytes) / made_bytes;
        // Where next to nothing is made of the input, a map still reads no more than this.
        bytes.clamp(1, u128::from(chunk_bytes.saturating_mul(16))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_probe_sees_sizes_the_plan() {
        let grows = Probed { read_bytes: 100, emitted_bytes: 400, combined_bytes: 300 };
        assert_eq!((grows.mapped_bytes(1_000), grows.piece_bytes(3_000)), (3_000, 900));
        let shrinks = Probed { read_bytes: 100, emitted_bytes: 400, combined_bytes: 2 };
        assert_eq!(shrinks.mapped_bytes(1_000), 1_000, "not as much as it seems to");
        let nothing = Probed::default();
        assert_eq!(nothing.mapped_bytes(0), 0);
        assert!(nothing.piece_bytes(1 << 20) > 0);
    }
}
