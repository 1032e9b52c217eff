//! Input and numbers of a keyed job, before anything is moved.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exobus_actors::futures::Futures;
use exobus_actors::task::{JobError, TaskOptions};

use super::input::{Piece, Places, pieces};
use super::register::{KeyedFunction, Registered, stage};
use super::tasks::{Found, ListParams, Listed, ProbeParams, Probed, SplitParams};
use super::{KeyedJob, Split};
use crate::files::InputFile;
use crate::jobs::outputs::{Cleanup, prepare};
use crate::plan::{Plan, Sizes};
use crate::strategies::auto::{self, Estimate};

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

/// See the module.
pub(super) struct Layout {
    /// Bytes of the files.
    pub(super) input_bytes: u64,
    /// Of what maps make of them.
    pub(super) sizes: Sizes,
    pub(super) plan: Plan,
    pub(super) pieces: Vec<Piece>,
    /// Removes what a job that fails has made; where there is an output.
    pub(super) cleanup: Option<Cleanup>,
}

impl Layout {
    /// Lists the inputs, prepares the output if there is one, and looks at the rows.
    pub(super) async fn of<J: Registered>(
        futures: &Futures,
        job: &Arc<J>,
        inputs: Vec<PathBuf>,
        output: Option<&Path>,
        partitions: Option<u32>,
    ) -> Result<Self, JobError> {
        let listing = ListParams { job: job.clone(), inputs };
        let listed = futures.submit(KeyedFunction::<J, stage::List>::new(), &listing, &[])?;
        let Listed { files } = futures.get_value(&listed).await?;
        let cleanup = match output {
            Some(output) => {
                let created = futures.get_value(&futures.submit(prepare, &output.to_owned(), &[])?).await?;
                Some(Cleanup::new(futures, output, created))
            }
            None => None,
        };

        let input_bytes = files.iter().map(|file| file.bytes).sum();
        let sizes = Sizes::of(&futures.nodes(), input_bytes);
        let look_bytes = (sizes.memory_bytes / LOOK_SHARE_OF_MEMORY).clamp(LOOK_BYTES_MIN, LOOK_BYTES_MAX);
        let places = places::<J>(futures, job, &files, look_bytes).await?;
        let probed = probe::<J>(futures, job, &files, &places, look_bytes).await?;
        let sizes = Sizes { input_bytes: probed.mapped_bytes(input_bytes), ..sizes };
        let plan = Plan::new(sizes, partitions).map_err(JobError::program)?;
        check_partitions(&**job, plan.partitions)?;
        let pieces = pieces(&files, &places, probed.piece_bytes(plan.chunk_bytes));
        Ok(Self { input_bytes, sizes, plan, pieces, cleanup })
    }

    pub(super) fn estimates(&self) -> Vec<Estimate> {
        auto::estimates(self.sizes, self.pieces.len(), &self.plan)
    }
}

/// A job may have its own cuts: they have to make as many partitions as there are going to be.
fn check_partitions<J: KeyedJob>(job: &J, partitions: u32) -> Result<(), JobError> {
    match job.partitioner(partitions).map_err(JobError::program)?.partitions() {
        made if made == u64::from(partitions) => Ok(()),
        made => Err(JobError::program(format!(
            "the job spreads its keys over {made} partitions, but there are {partitions}: ask for {made}"
        ))),
    }
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
