//! Shuffles with functions of the user: map, combine and reduce over [keyed rows](crate::rows).
//!
//! A type that implements [`KeyedJob`] and is registered with [`keyed_job!`](crate::keyed_job) is a program that nodes
//! know by its name and version (and another, "wordcount.explain@1", that says what the first would do), and so are its
//! tasks ("wordcount.map@1"): all strategies can run it, and what no node offers is refused when it is submitted. The value
//! itself is the job's parameters.
//!
//! ```
//! use exobus_actors::registry::TaskError;
//! use exobus_shuffle::keyed::{Emit, Input, KeyedJob, Split, Values};
//! use serde::{Deserialize, Serialize};
//!
//! /// How many records there are of each first byte.
//! #[derive(Serialize, Deserialize)]
//! struct FirstBytes;
//!
//! impl KeyedJob for FirstBytes {
//!     fn split(&self) -> Split {
//!         Split::Records(100)
//!     }
//!     fn map(&self, input: &mut Input<'_>, emit: Emit<'_>) -> Result<(), TaskError> {
//!         while let Some(record) = input.next_record(100)? {
//!             emit(&record[..1], &1u64.to_le_bytes())?;
//!         }
//!         Ok(())
//!     }
//!     fn reduce(&self, key: &[u8], values: Values<'_>, file: &mut dyn std::io::Write) -> Result<(), TaskError> {
//!         Ok(writeln!(file, "{} {}", key[0], values.count())?)
//!     }
//! }
//!
//! exobus_shuffle::keyed_job!(FirstBytes, "first_bytes", 1);
//! # fn main() {}
//! ```
//!
//! `examples/longest_words.rs` has functions for combining and merging, too, and runs its job in one process.
//!
//! 1. *list*: which input files there are; *claim* the output directory;
//! 2. *split*, where rows have no fixed places: read each file once and note where rows begin;
//! 3. *probe*: map small pieces of the input at random places to see how large its rows are; all numbers of the
//!    [`Plan`](crate::Plan) come from that;
//! 4. *map*: stream a piece of a large file, or several small files, order and combine the rows ([`RowBuffer`](crate::rows::RowBuffer)), write them as one object
//!    with a part for each partition;
//! 5. *merge*, where the strategy has it: merge parts, and combine;
//! 6. *reduce*: merge one part of everything into a file under a temporary name;
//! 7. *commit*: when everything is accounted for, give all files their final names.
//!
//! Beyond the edges, whose ledgers the Owner keeps, a job says what of its rows must be there at the end as it was at the
//! beginning ([`KeyedJob::conserved`]); the program compares the sum over all emitted rows with that over all reduced ones.
//!
//! Deliberately absent: range partitions from a sample (a job that knows its cuts gives them), and keys or values that do not
//! fit into memory: a row is in one piece. Partitions may be larger than memory, and so may be all the values of one key:
//! what does not fit is merged from streams, through windows of 4 to 256 KiB a run; a row larger than its window is on the
//! heap while it is the first of its run.

mod input;
mod layout;
mod merging;
mod program;
mod register;
mod shares;
mod tasks;
mod values;

use exobus_actors::registry::TaskError;
use exobus_actors::task::Output;
use exobus_store::RowHash;
use serde::Serialize;
use serde::de::DeserializeOwned;
use twox_hash::{XxHash3_64, XxHash3_128};

use crate::cuts::Cuts;
use crate::files::Schema;

pub use crate::jobs::outputs::give_back;
pub(crate) use input::at_line;
pub use input::{Input, Mark, Piece};
pub use program::{ExplainParams, KeyedParams, KeyedReport, explain, run};
pub use register::{KeyedFunction, Registered};
pub use values::Values;
#[doc(hidden)]
pub use {register::Stage, tasks::call};

/// Takes the rows that a map makes: key and value.
pub type Emit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), TaskError>;

/// Takes values that stand for those of a key.
pub type Keep<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), TaskError>;

/// Where files may be cut so that pieces can be read side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// At multiples of so many bytes; files that are no multiple of it are refused.
    Records(u64),
    /// Anywhere: the map finds the rows that begin inside its piece, and reads on behind it to finish the last one.
    Anywhere,
    /// Only where [`KeyedJob::marks`] says.
    Marks,
}

/// Which partition a key belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Partitioner {
    /// By XXH3-64 of the key, seed 0: as even as the keys are many.
    Hash(u32),
    /// By the cuts: part files are in order, one after the other.
    Range(Cuts),
}

impl Partitioner {
    /// How many partitions there are.
    pub fn partitions(&self) -> u64 {
        match self {
            Self::Hash(partitions) => u64::from(*partitions),
            Self::Range(cuts) => cuts.partitions() as u64,
        }
    }

    /// The partition of `key`.
    pub fn partition_of(&self, key: &[u8]) -> u32 {
        match self {
            Self::Hash(partitions) => {
                let hash = u128::from(XxHash3_64::oneshot(key));
                ((hash * u128::from(*partitions)) >> 64) as u32
            }
            Self::Range(cuts) => cuts.partition_of(key) as u32,
        }
    }
}

/// A shuffle as its user writes it. The value holds the job's parameters.
///
/// All functions are pure: the same input gives the same rows in the same order, since attempts are repeated and a map is run
/// over its input again when its rows do not fit into memory.
pub trait KeyedJob: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Where files may be cut.
    fn split(&self) -> Split;

    /// With [`Split::Marks`]: reads a whole file and calls `mark` for places where rows begin, at least `step_bytes` from
    /// one to the next and from the beginning.
    ///
    /// # Errors
    /// A file that cannot be read; those of `mark`.
    fn marks(
        &self,
        input: &mut Input<'_>,
        step_bytes: u64,
        mark: &mut dyn FnMut(Mark) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let _ = (input, step_bytes, mark);
        Err(TaskError::fatal("a job that splits by marks has to find them"))
    }

    /// How keys are spread over `partitions`, in as many partitions.
    ///
    /// # Errors
    /// Cuts that are none.
    fn partitioner(&self, partitions: u32) -> Result<Partitioner, TaskError> {
        Ok(Partitioner::Hash(partitions))
    }

    /// Makes rows of a piece of a file. A task that reads several small files calls it for each of them, in their order.
    ///
    /// # Errors
    /// Bad input, named with its file and place; those of `emit`.
    fn map(&self, input: &mut Input<'_>, emit: Emit<'_>) -> Result<(), TaskError>;

    /// Whether [`combine`](Self::combine) does anything. Then it is applied in maps, before reduces, and in merges unless
    /// those have a function of their own, and [`conserved`](Self::conserved) is to be implemented, too.
    fn combines(&self) -> bool {
        false
    }

    /// Makes one value, `into`, of two of the same key. Associative and commutative.
    ///
    /// # Errors
    /// Values that cannot be combined.
    fn combine(&self, key: &[u8], into: &mut Vec<u8>, value: &[u8]) -> Result<(), TaskError> {
        let _ = (key, into, value);
        Err(TaskError::fatal("a job that combines has to say how"))
    }

    /// Whether [`merge`](Self::merge) does anything.
    fn merges(&self) -> bool {
        false
    }

    /// Makes fewer values of those of a key where a strategy merges rows before they are reduced: `keep` takes what is left
    /// of them. How often that happens, if at all, and with which of the values of a key, depends on the strategy, so it
    /// must not matter to what is reduced: "the ten largest" will do, "every other one" will not. What is
    /// [conserved](Self::conserved) must be the same of what is kept as of what was there.
    ///
    /// # Errors
    /// Values that cannot be merged; those of `keep`.
    fn merge(&self, key: &[u8], values: Values<'_>, keep: Keep<'_>) -> Result<(), TaskError> {
        let _ = (key, values, keep);
        Err(TaskError::fatal("a job that merges has to say how"))
    }

    /// Writes what stands at the beginning of each part file.
    ///
    /// # Errors
    /// Those of the file.
    fn head(&self, file: &mut dyn std::io::Write) -> Result<(), TaskError> {
        let _ = file;
        Ok(())
    }

    /// Writes what becomes of a key. Keys come in ascending order. Where values are not combined they come in an order that
    /// depends on the strategy and on which map was faster.
    ///
    /// # Errors
    /// Those of the file.
    fn reduce(&self, key: &[u8], values: Values<'_>, file: &mut dyn std::io::Write) -> Result<(), TaskError>;

    /// What the rows of the part files are, for the manifest.
    fn schema(&self) -> Schema {
        Schema::bytes()
    }

    /// What of a row must be there at the end as it was at the beginning: sums over all emitted rows and over all
    /// reduced ones must agree. Without combining that is the row, which is the default. A job that combines or merges implements
    /// it: what it says of a value is the sum of what it says of those that the value was made of, the count that it holds, say.
    /// One that does not is told so, where rows of one key meet in the probe before its first map.
    fn conserved(&self, key: &[u8], value: &[u8]) -> Output {
        let hash = XxHash3_128::oneshot_with_seed(XxHash3_64::oneshot(key), value);
        Output { bytes: (key.len() + value.len()) as u64, rows: 1, row_hash: RowHash(hash) }
    }

    /// What else must hold of an input of `input_bytes` bytes whose rows have these sums.
    ///
    /// # Errors
    /// What does not.
    fn check(&self, input_bytes: u64, emitted: Output) -> Result<(), String> {
        let _ = (input_bytes, emitted);
        Ok(())
    }
}
