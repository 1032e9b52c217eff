//! The tasks of keyed jobs. Each is generic over the job and registered once for every job by `keyed_job!`.

use std::path::PathBuf;
use std::sync::Arc;

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::Output;
use exobus_store::{ObjectWriter, RowHash};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::input::{Input, Mark, Piece};
use super::merging::{merge, reduce};
use super::register::Registered;
use super::{KeyedJob, Partitioner, Split};
use crate::files::{self, InputFile};
use crate::jobs::outputs;
use crate::rows::{ROW_HEADER_BYTES, RowBuffer};

/// Rows between two looks at whether the task is still wanted.
pub(super) const ROWS_PER_LOOK: u64 = 4096;
/// Most bytes of the window that input is read through.
const WINDOW_BYTES_MAX: usize = 1 << 20;

/// Entry points by the names of their stages, for `keyed_job!`.
pub mod call {
    use super::*;

    macro_rules! entries {
        ($($stage:ident)*) => {
            $(
                #[doc = concat!("The task function `", stringify!($stage), "`.")]
                #[doc(hidden)]
                pub fn $stage<J: Registered>(context: &mut TaskContext<'_>, bytes: &[u8]) -> Result<(), TaskError> {
                    let value = super::$stage::<J>(context, decode(bytes)?)?;
                    context.return_value(&value)
                }
            )*
        };
    }

    entries!(list split probe map merge reduce commit);

    fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, TaskError> {
        exobus_actors::decode_params(bytes)
    }
}

/// What `list` is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct ListParams<J> {
    pub(super) job: Arc<J>,
    pub(super) inputs: Vec<PathBuf>,
}

/// What `list` found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listed {
    pub(super) files: Vec<InputFile>,
}

fn list<J: Registered>(context: &mut TaskContext<'_>, params: ListParams<J>) -> Result<Listed, TaskError> {
    let listing = |inputs: &[PathBuf]| {
        let files = files::list_files(inputs)?;
        if let Split::Records(bytes) = params.job.split() {
            files.iter().try_for_each(|file| files::whole_rows(file, bytes))?;
        }
        Ok(files)
    };
    Ok(Listed { files: outputs::list(context, &params.inputs, listing)? })
}

/// What `split` is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct SplitParams<J> {
    pub(super) job: Arc<J>,
    pub(super) file: InputFile,
    pub(super) step_bytes: u64,
    pub(super) scratch_bytes: u64,
}

/// What `split` found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub(super) marks: Vec<Mark>,
}

fn split<J: Registered>(context: &mut TaskContext<'_>, params: SplitParams<J>) -> Result<Found, TaskError> {
    let mut scratch = context.scratch(params.scratch_bytes)?;
    let (window, spare, _) = carve(&mut scratch);
    context.check_path(&params.file.path)?;
    let piece = Piece::whole(params.file, 0);
    let mut found = Found::default();
    let mut mark = |mark| {
        found.marks.push(mark);
        context.check_cancelled()
    };
    params.job.marks(&mut Input::open(&piece, window, spare)?, params.step_bytes, &mut mark)?;
    context.check_cancelled()?;
    context.read_outside(piece.bytes());
    Ok(found)
}

/// Window, memory for the map, and the rest.
fn carve(scratch: &mut [u8]) -> (&mut [u8], &mut [u8], &mut [u8]) {
    let window_bytes = (scratch.len() / 8).min(WINDOW_BYTES_MAX);
    let (window, rest) = scratch.split_at_mut(window_bytes);
    let (spare, rest) = rest.split_at_mut(window_bytes);
    (window, spare, rest)
}

/// What `probe` is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct ProbeParams<J> {
    pub(super) job: Arc<J>,
    pub(super) pieces: Vec<Piece>,
    pub(super) scratch_bytes: u64,
}

/// What `probe` saw, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Of the input.
    pub(super) read_bytes: u64,
    /// Of the rows that were made of it.
    pub(super) emitted_bytes: u64,
    /// Of those that combining left, piece by piece.
    pub(super) combined_bytes: u64,
}

fn probe<J: Registered>(context: &mut TaskContext<'_>, params: ProbeParams<J>) -> Result<Probed, TaskError> {
    let mut scratch = context.scratch(params.scratch_bytes)?;
    let mut probed = Probed::default();
    for piece in &params.pieces {
        // What is asked here is how much there is, not where it goes.
        let everywhere = Partitioner::Hash(1);
        let made = map_passes(context, &*params.job, piece, &everywhere, &mut scratch, |_, buffer| {
            probed.combined_bytes += buffer.bytes() as u64;
            Ok(())
        })?;
        probed.read_bytes += piece.bytes();
        probed.emitted_bytes += made.emitted_bytes;
    }
    Ok(probed)
}

/// What `map` is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct MapParams<J> {
    pub(super) job: Arc<J>,
    pub(super) piece: Piece,
    pub(super) partitions: u32,
    pub(super) scratch_bytes: u64,
}

/// What a map made before anything was combined: its second output.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Made {
    pub(super) conserved: Output,
    pub(super) emitted_bytes: u64,
}

fn map<J: Registered>(context: &mut TaskContext<'_>, params: MapParams<J>) -> Result<(), TaskError> {
    let MapParams { job, piece, partitions, scratch_bytes } = params;
    let mut scratch = context.scratch(scratch_bytes)?;
    let mut parts = Parts::default();
    let partitioner = job.partitioner(partitions)?;
    let made = map_passes(context, &*job, &piece, &partitioner, &mut scratch, |context, buffer| {
        let writer = context.output_sized(buffer.bytes() as u64)?;
        for (partition, row) in buffer.sorted() {
            parts.go_to(writer, partition)?;
            writer.write(row.bytes())?;
            parts.rows += 1;
            parts.row_hash += row.hash();
        }
        Ok(())
    })?;
    parts.finish(context.output()?, partitions)?;
    context.read_outside(piece.bytes());
    let made = rmp_serde::to_vec_named(&made).map_err(TaskError::fatal)?;
    let writer = context.output_at(1)?;
    writer.begin_part(Some(made.len() as u64))?;
    writer.write(&made)?;
    writer.end_part(1, RowHash::default());
    Ok(())
}

/// The parts of an object that is written in their order.
#[derive(Debug, Default)]
struct Parts {
    /// How many have been begun.
    begun: u32,
    /// What is in the last of them.
    rows: u64,
    row_hash: RowHash,
}

impl Parts {
    /// Ends and begins parts until `partition` is the open one.
    fn go_to(&mut self, writer: &mut ObjectWriter, partition: u32) -> Result<(), TaskError> {
        while self.begun <= partition {
            self.end(writer);
            writer.begin_part(None)?;
            self.begun += 1;
        }
        Ok(())
    }

    fn end(&mut self, writer: &mut ObjectWriter) {
        if self.begun > 0 {
            writer.end_part(std::mem::take(&mut self.rows), std::mem::take(&mut self.row_hash));
        }
    }

    fn finish(&mut self, writer: &mut ObjectWriter, partitions: u32) -> Result<(), TaskError> {
        self.go_to(writer, partitions - 1)?;
        self.end(writer);
        Ok(())
    }
}

/// Maps a piece as often as it takes for all rows to have been in the buffer; `each` is given those of one pass.
fn map_passes<J: KeyedJob>(
    context: &mut TaskContext<'_>,
    job: &J,
    piece: &Piece,
    partitioner: &Partitioner,
    scratch: &mut [u8],
    mut each: impl FnMut(&mut TaskContext<'_>, &mut RowBuffer<'_>) -> Result<(), TaskError>,
) -> Result<Made, TaskError> {
    context.check_path(&piece.file.path)?;
    let partition_of = |key: &[u8]| partitioner.partition_of(key);
    let combine = |key: &[u8], into: &mut Vec<u8>, value: &[u8]| job.combine(key, into, value);
    let (window, spare, rest) = carve(scratch);
    let mut buffer = RowBuffer::new(rest, &partition_of, job.combines().then_some(&combine));
    loop {
        let mut made = Made::default();
        let mut emit = |key: &[u8], value: &[u8]| {
            if made.conserved.rows.is_multiple_of(ROWS_PER_LOOK) {
                context.check_cancelled()?;
            }
            made.conserved.add(job.conserved(key, value));
            made.emitted_bytes += (ROW_HEADER_BYTES + key.len() + value.len()) as u64;
            buffer.push(key, value)
        };
        job.map(&mut Input::open(piece, window, spare)?, &mut emit)?;
        each(context, &mut buffer)?;
        if !buffer.next_pass() {
            return Ok(made);
        }
    }
}

#[expect(clippy::extra_unused_type_parameters, reason = "all stages are called alike")]
fn commit<J: Registered>(context: &mut TaskContext<'_>, directory: PathBuf) -> Result<(), TaskError> {
    outputs::commit(context, &directory)
}
