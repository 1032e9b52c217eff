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
use super::shares::Share;
use super::{KeyedJob, Partitioner, Split};
use crate::files::FileList;
use crate::jobs::inputs;
use crate::jobs::values::write_value;
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

    entries!(list split probe map merge reduce);

    fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, TaskError> {
        exobus_actors::decode_params(bytes)
    }
}

/// What `list` is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct ListParams<J> {
    pub(super) job: Arc<J>,
    #[serde(with = "exobus_actors::paths")]
    pub(super) inputs: Vec<PathBuf>,
    pub(super) partial: bool,
}

/// What `list` found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listed {
    pub(super) files: FileList,
}

fn list<J: Registered>(context: &mut TaskContext<'_>, params: ListParams<J>) -> Result<Listed, TaskError> {
    let row_bytes = match params.job.split() {
        Split::Records(bytes) => Some(bytes),
        Split::Anywhere | Split::Marks => None,
    };
    Ok(Listed { files: inputs::list(context, (&params.inputs, params.partial), row_bytes)? })
}

/// What `split` is told. Its only argument is the page with the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct SplitParams<J> {
    pub(super) job: Arc<J>,
    /// Where in the input the file begins.
    pub(super) at: u64,
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
    let part = inputs::page(context, 0)?.parts(params.at..params.at + 1).next();
    let part = part.ok_or_else(|| TaskError::fatal(format!("no file of the page begins at {}", params.at)))?;
    context.check_path(&part.file.path)?;
    let piece = Piece::whole(part.file, part.file_start);
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

/// Bytes of the window of a task with so much scratch, and of the memory for its map.
fn window_bytes(scratch_bytes: usize) -> usize {
    (scratch_bytes / 8).min(WINDOW_BYTES_MAX)
}

/// How many bytes of rows a map takes in one pass over its input, with so much scratch, where rows have `row_bytes`.
pub(super) fn rows_room(scratch_bytes: u64, row_bytes: u64, combines: bool) -> u64 {
    let scratch_bytes = scratch_bytes as usize;
    RowBuffer::room(scratch_bytes - 2 * window_bytes(scratch_bytes), row_bytes as usize, combines) as u64
}

/// Window, memory for the map, and the rest.
pub(super) fn carve(scratch: &mut [u8]) -> (&mut [u8], &mut [u8], &mut [u8]) {
    let window_bytes = window_bytes(scratch.len());
    let (window, rest) = scratch.split_at_mut(window_bytes);
    let (spare, rest) = rest.split_at_mut(window_bytes);
    (window, spare, rest)
}

/// What `probe` is told. Its arguments are pages; each share is in the one that is named with it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct ProbeParams<J> {
    pub(super) job: Arc<J>,
    pub(super) shares: Vec<(usize, Share)>,
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
    /// How many those are.
    pub(super) combined_rows: u64,
}

fn probe<J: Registered>(context: &mut TaskContext<'_>, params: ProbeParams<J>) -> Result<Probed, TaskError> {
    let mut scratch = context.scratch(params.scratch_bytes)?;
    let mut probed = Probed::default();
    let pages = (0..context.args()).map(|argument| inputs::page(context, argument)).collect::<Result<Vec<_>, _>>()?;
    for (page, share) in &params.shares {
        let page = pages.get(*page).ok_or_else(|| TaskError::fatal(format!("there is no page {page}")))?;
        // What is asked here is how much there is, not where it goes.
        let everywhere = Partitioner::Hash(1);
        let job = &*params.job;
        let mut left = Output::default();
        let made = map_passes(context, job, (page, share), &everywhere, &mut scratch, |_, buffer| {
            probed.combined_bytes += buffer.bytes() as u64;
            probed.combined_rows += buffer.rows() as u64;
            if job.combines() {
                buffer.sorted().for_each(|(_, row)| left.add(job.conserved(row.key(), row.value())));
            }
            Ok(())
        })?;
        if job.combines() && left != made.conserved {
            let (rows, left) = (made.conserved.rows, left.rows);
            let text = format!("{} says {rows} rows of what it emits, and {left} of that once it is combined", J::NAME);
            return Err(TaskError::fatal(format!("{text}: {CONSERVE}")));
        }
        probed.read_bytes += share.bytes();
        probed.emitted_bytes += made.emitted_bytes;
    }
    Ok(probed)
}

/// What to do where the sums of [`KeyedJob::conserved`] differ, and why.
pub(super) const CONSERVE: &str = "a job that combines or merges has to implement KeyedJob::conserved: what it says of a value is \
     the sum of what it says of those that the value was made of, the count that it holds, say; by this the job proves that no row \
     was lost, and without it every row counts for itself";

/// What `map` is told. Its only argument is the page with the files of its share.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "J: KeyedJob")]
pub struct MapParams<J> {
    pub(super) job: Arc<J>,
    pub(super) share: Share,
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
    let MapParams { job, share, partitions, scratch_bytes } = params;
    let page = inputs::page(context, 0)?;
    let mut scratch = context.scratch(scratch_bytes)?;
    let mut parts = Parts::default();
    let partitioner = job.partitioner(partitions)?;
    let made = map_passes(context, &*job, (&page, &share), &partitioner, &mut scratch, |context, buffer| {
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
    context.read_outside(share.bytes());
    write_value(context, 1, &made)
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

/// Maps a share, which is in its page, as often as it takes for all rows to have been in the buffer; `each` is given those
/// of one pass.
fn map_passes<J: KeyedJob>(
    context: &mut TaskContext<'_>,
    job: &J,
    (page, share): (&FileList, &Share),
    partitioner: &Partitioner,
    scratch: &mut [u8],
    mut each: impl FnMut(&mut TaskContext<'_>, &mut RowBuffer<'_>) -> Result<(), TaskError>,
) -> Result<Made, TaskError> {
    let partition_of = |key: &[u8]| partitioner.partition_of(key);
    let combine = |key: &[u8], into: &mut Vec<u8>, value: &[u8]| job.combine(key, into, value);
    let (window, spare, rest) = carve(scratch);
    let mut buffer = RowBuffer::new(rest, &partition_of, job.combines().then_some(&combine));
    loop {
        let mut made = Made::default();
        for piece in share.pieces(page) {
            map_piece(context, job, &piece, (window, spare), &mut made, &mut buffer)?;
        }
        each(context, &mut buffer)?;
        if !buffer.next_pass() {
            return Ok(made);
        }
    }
}

/// Maps a piece of a file into `buffer`.
fn map_piece<J: KeyedJob>(
    context: &TaskContext<'_>,
    job: &J,
    piece: &Piece,
    (window, spare): (&mut [u8], &mut [u8]),
    made: &mut Made,
    buffer: &mut RowBuffer<'_>,
) -> Result<(), TaskError> {
    context.check_cancelled()?;
    context.check_path(&piece.file.path)?;
    let mut emit = |key: &[u8], value: &[u8]| {
        if made.conserved.rows.is_multiple_of(ROWS_PER_LOOK) {
            context.check_cancelled()?;
        }
        made.conserved.add(job.conserved(key, value));
        made.emitted_bytes += (ROW_HEADER_BYTES + key.len() + value.len()) as u64;
        buffer.push(key, value)
    };
    job.map(&mut Input::open(piece, window, spare)?, &mut emit)
}
