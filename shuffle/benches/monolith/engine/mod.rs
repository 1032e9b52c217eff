//! The sort itself: files of records in, one sorted file per partition out, in a given amount of memory.
//!
//! Nothing is merged. Sampled keys cut the key space into *buckets*, one or more per partition, each small enough to be
//! sorted in memory at once:
//!
//! 1. [`scatter`]: threads read blocks and copy each record behind the others of its bucket, into *segments* of memory.
//!    When memory runs short the last bucket that is still in memory is chosen and written to disk, with all that will
//!    come for it ([`store`]): at the end the first buckets lie in memory, as many as fit, and only the rest was written.
//! 2. [`gather`]: bucket after bucket is sorted by key and index and copied to the output in that order, while the
//!    segments that this frees are filled with the next buckets from the disk, and full output buffers are written.
//!
//! So each record is copied twice and never compared but inside its bucket. What limits it are bytes on disk:
//! 4D - 2 min(M, D) for D bytes of input and M of memory.
//!
//! Promises: whole keys decide; the rows that were written are the rows that were read, by hash; files appear under their
//! final names only when all of them are complete. Equal keys come in no particular order. A key that more rows share than
//! fit into memory is refused, with its size.

mod failure;
mod gather;
mod layout;
mod output;
mod sample;
mod scatter;
pub(crate) mod spill;
mod stages;
mod store;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use exobus_shuffle::files::{self, AlignedBuffer, InputFile};
use exobus_shuffle::records::{RECORD_BYTES, RowHash};

pub use failure::Failure;
pub use stages::Stage;

use layout::Layout;
use output::Token;
use stages::Stages;
use store::Store;

/// What to sort, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Files and directories of records.
    pub inputs: Vec<PathBuf>,
    /// Where the output goes; empty, or not there yet.
    pub output: PathBuf,
    /// Files to make.
    pub partitions: usize,
    /// Bytes of memory for records, buffers and scratch; `None`: as much as the input needs.
    pub memory_bytes: Option<u64>,
}

/// What was sorted, and what it took.
#[derive(Debug)]
pub struct Report {
    /// Records read, and written.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that were written to disk and read again.
    pub spilled_bytes: u64,
    /// Bytes of memory that were planned: segments, buffers, scratch.
    pub planned_bytes: u64,
    /// Buckets that the key space was cut into.
    pub buckets: usize,
    /// Sum of the row hashes of the bytes read.
    pub row_hash_in: RowHash,
    /// Sum of the row hashes of the bytes written.
    pub row_hash_out: RowHash,
    /// The stages in order: `sample`, `scatter`, `gather`, `commit`.
    pub stages: Vec<Stage>,
}

/// Memory for records and buffers; they are borrowed from it, so it comes first.
struct Arena {
    io: AlignedBuffer,
    segments: AlignedBuffer,
}

/// Sorts.
///
/// # Errors
/// Bad input, too little memory, a full disk, rows that got lost. No file of the output is left then.
pub fn sort(options: &Options) -> Result<Report, Failure> {
    let mut stages = Stages::start();
    let inputs = files::list_inputs(&options.inputs, false)?;
    std::fs::create_dir_all(&options.output).map_err(output::failed(&options.output, "create"))?;
    let bytes = inputs.iter().map(|file| file.bytes).sum::<u64>();
    let layout = Layout::new(bytes, options.partitions, options.memory_bytes)?;
    let cuts = sample::cuts(&inputs, layout.buckets())?;
    stages.end("sample");
    let mut arena = Arena {
        io: AlignedBuffer::new(layout.io_buffers * layout.request_bytes),
        segments: AlignedBuffer::new(layout.segments * layout.segment_bytes),
    };
    let tokens = Mutex::new(Vec::new());
    let result = run(&inputs, options, &layout, &cuts, &mut arena, &tokens, &mut stages);
    let tokens = tokens.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if result.is_err() {
        // Their writers are gone; what was still being written has removed itself.
        tokens.iter().try_for_each(Token::abort)?;
    }
    let mut report = result?;
    commit(&options.output, &tokens)?;
    drop(arena);
    stages.end("commit");
    report.stages = stages.into_stages();
    Ok(report)
}

fn run<'a>(
    inputs: &[InputFile],
    options: &Options,
    layout: &Layout,
    cuts: &exobus_shuffle::cuts::Cuts,
    arena: &'a mut Arena,
    tokens: &Mutex<Vec<Token>>,
    stages: &mut Stages,
) -> Result<Report, Failure> {
    let mut io: Vec<&'a mut [u8]> = arena.io.chunks_exact_mut(layout.request_bytes).collect();
    let segments: Vec<&'a mut [u8]> = arena.segments.chunks_exact_mut(layout.segment_bytes).collect();
    let spill = spill::SpillFile::create(&options.output)?;
    let store = Store::new(layout, segments);
    let scattered = scatter::run(inputs, layout, cuts, &mut io, &store, &spill)?;
    store.check_room(layout)?;
    stages.end("scatter");
    let gathered = gather::run(&options.output, layout, io, &store, &spill, tokens)?;
    stages.end("gather");
    let bytes = inputs.iter().map(|file| file.bytes).sum::<u64>();
    if scattered != gathered || scattered.rows * RECORD_BYTES as u64 != bytes {
        let text = format!("input files have {bytes} bytes; read {scattered:?}; wrote {gathered:?}");
        return Err(Failure::Conservation(text));
    }
    Ok(Report {
        rows: scattered.rows,
        bytes,
        spilled_bytes: spill.bytes(),
        planned_bytes: layout.memory_bytes(),
        buckets: layout.buckets(),
        row_hash_in: scattered.row_hash,
        row_hash_out: gathered.row_hash,
        stages: Vec::new(),
    })
}

fn commit(output: &Path, tokens: &[Token]) -> Result<(), Failure> {
    tokens.iter().try_for_each(Token::commit)?;
    Ok(files::sync_dir(output)?)
}

/// Rows that went by, and the sum of their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Passed {
    rows: u64,
    row_hash: RowHash,
}

impl std::ops::AddAssign for Passed {
    fn add_assign(&mut self, other: Passed) {
        self.rows += other.rows;
        self.row_hash += other.row_hash;
    }
}
