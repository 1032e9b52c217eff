//! The program of a keyed job: which tasks, in which order, and what is checked.

use std::cell::RefCell;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use ::futures::TryStreamExt as _;
use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::registry::Paths;
use exobus_actors::task::{Arg, JobError, Output, Place, TaskOptions};
use serde::{Deserialize, Serialize};

use super::KeyedJob;
use super::layout::Layout;
use super::merging::{MergeParams, ReduceParams, Reduced};
use super::register::{KeyedFunction, Registered, stage};
use super::shares::Share;
use super::tasks::{CONSERVE, Made, MapParams};
use crate::files::part_name;
use crate::job::Job;
use crate::jobs::inputs::Pages;
use crate::jobs::outputs::buffer_bytes;
use crate::jobs::values::read_values;
use crate::plan::Plan;
use crate::strategies::Strategy;
use crate::strategies::auto::Explained;

/// What a keyed job is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct KeyedParams<J> {
    /// Files, or directories of them.
    #[serde(with = "exobus_actors::paths")]
    pub inputs: Vec<PathBuf>,
    /// A directory, empty or not there yet.
    #[serde(with = "exobus_actors::paths")]
    pub output: PathBuf,
    /// How many partitions; `None`: as many as memory and executors ask for.
    pub partitions: Option<u32>,
    /// Which strategy; `None`: the one that is estimated to be the fastest.
    pub strategy: Option<Strategy>,
    /// Whether a directory is read that a job has claimed and not committed.
    #[serde(default)]
    pub partial: bool,
    /// The job.
    pub job: J,
}

impl<J> KeyedParams<J> {
    /// What it reads and writes.
    pub fn paths(&self) -> Paths {
        Paths { reads: self.inputs.clone(), writes: vec![self.output.clone()] }
    }
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
    pages: Pages,
    /// What of the input each map reads.
    shares: Vec<Share>,
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
        let share = self.shares[index].clone();
        let page = self.pages.at(share.range.start);
        let params = MapParams {
            job: self.job.clone(),
            share,
            partitions: self.plan.partitions,
            scratch_bytes: self.plan.map_scratch_bytes,
        };
        let scratch_bytes = vec![self.plan.map_scratch_bytes];
        let options = TaskOptions { place, scratch_bytes, ..TaskOptions::default() };
        let function = KeyedFunction::<J, stage::Map>::new();
        let [parts, made] = <[ObjectRef; 2]>::try_from(futures.submit_many(function, &params, &[page], 2, options)?)
            .map_err(|_| JobError::program("a map has two outputs"))?;
        self.made.borrow_mut().push(made);
        Ok(parts)
    }

    fn merge(
        &self,
        futures: &Futures,
        blocks: &[Arg],
        pieces: &[u32],
        place: Place,
    ) -> Result<Vec<ObjectRef>, JobError> {
        let params = MergeParams { job: self.job.clone(), pieces: pieces.to_vec() };
        let whole_max_bytes = self.plan.merge_memory_bytes;
        let options = TaskOptions { place, whole_max_bytes, ..TaskOptions::default() };
        let function = KeyedFunction::<J, stage::Merge>::new();
        futures.submit_many(function, &params, blocks, pieces.len() as u32, options)
    }

    fn reduce(&self, futures: &Futures, partition: u32, columns: &[Arg], place: Place) -> Result<ObjectRef, JobError> {
        let buffer_bytes = buffer_bytes(&self.plan, &self.output);
        let params = ReduceParams {
            job: self.job.clone(),
            directory: self.output.clone(),
            name: part_name(partition as usize, self.plan.partitions as usize),
            buffer_bytes,
        };
        let scratch_bytes = vec![buffer_bytes; 2];
        let options = TaskOptions { place, scratch_bytes, ..TaskOptions::default() };
        futures.submit_with(KeyedFunction::<J, stage::Reduce>::new(), &params, columns, options)
    }
}

/// Runs a keyed job.
///
/// # Errors
/// Bad input, a full disk, an output directory that cannot be used, rows that got lost: each names the file or edge.
pub async fn run<J: Registered>(futures: Futures, params: KeyedParams<J>) -> Result<KeyedReport, JobError> {
    let KeyedParams { inputs, output, partitions, strategy, partial, job } = params;
    let job = Arc::new(job);
    let layout = Layout::of(&futures, &job, (inputs, partial), Some(&output), partitions).await?;
    let strategy = strategy.unwrap_or_else(|| layout.estimates()[0].strategy);
    let Layout { input_bytes, plan, pages, shares, output: claimed, .. } = layout;
    let maps = shares.len();
    futures.plan_stage(&format!("{}.map", J::NAME), maps as u64, input_bytes)?;
    futures.plan_stage(&format!("{}.reduce", J::NAME), u64::from(plan.partitions), plan.input_bytes)?;

    let shuffle = Shuffle { job: job.clone(), pages, shares, output, plan, made: RefCell::default() };
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
    let of_maps = shuffle.made.take();
    let mut values = pin!(read_values::<Made>(&futures, &of_maps));
    while let Some(made) = values.try_next().await? {
        report.emitted.add(made.conserved);
    }
    let mut values = pin!(read_values::<Reduced>(&futures, &shuffled.outputs));
    while let Some(reduced) = values.try_next().await? {
        report.reduced.add(reduced.conserved);
        report.keys += reduced.keys;
        report.output_bytes += reduced.token.bytes;
    }
    check(&*job, &report)?;
    if let Some(output) = claimed {
        output.commit(&shuffled.outputs, job.schema()).await?;
    }
    report.owner_bytes = futures.owner_bytes().await?;
    Ok(report)
}

/// What a keyed job is told that is to be explained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct ExplainParams<J> {
    /// Files, or directories of them.
    #[serde(with = "exobus_actors::paths")]
    pub inputs: Vec<PathBuf>,
    /// How many partitions; `None`: as many as memory and executors ask for.
    pub partitions: Option<u32>,
    /// Whether a directory is read that a job has claimed and not committed.
    #[serde(default)]
    pub partial: bool,
    /// The job.
    pub job: J,
}

impl<J> ExplainParams<J> {
    /// What it looks at.
    pub fn paths(&self) -> Paths {
        Paths { reads: self.inputs.clone(), writes: Vec::new() }
    }
}

/// Says what a keyed job would do, from the sizes of its files and of the rows that it makes of small pieces of them; files
/// that are split by marks are read once.
///
/// # Errors
/// Bad input: names the file.
pub async fn explain<J: Registered>(futures: Futures, params: ExplainParams<J>) -> Result<Explained, JobError> {
    let ExplainParams { inputs, partitions, partial, job } = params;
    let layout = Layout::of(&futures, &Arc::new(job), (inputs, partial), None, partitions).await?;
    let estimates = layout.estimates();
    let Layout { input_bytes, sizes, plan, shares, .. } = layout;
    Ok(Explained { input_bytes, sizes, maps: shares.len() as u64, plan, estimates })
}

/// Law 1, from what was read to what was written.
fn check<J: KeyedJob>(job: &J, report: &KeyedReport) -> Result<(), JobError> {
    let lost = |detail| JobError::Conservation { edge: "input -> output".into(), detail };
    let KeyedReport { emitted, reduced, .. } = report;
    if emitted != reduced {
        let advice = if job.combines() || job.merges() { format!("; {CONSERVE}") } else { String::new() };
        return Err(lost(format!(
            "emitted {} rows, {} bytes, hash {}; reduced {} rows, {} bytes, hash {}{advice}",
            emitted.rows, emitted.bytes, emitted.row_hash, reduced.rows, reduced.bytes, reduced.row_hash
        )));
    }
    job.check(report.input_bytes, *emitted).map_err(lost)
}
