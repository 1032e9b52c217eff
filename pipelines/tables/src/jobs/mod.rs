//! Jobs over tables, on the strategies of [`exobus_shuffle`].
//!
//! - [`sort`]: rows in the order of a key;
//! - [`shuffle`]: rows in a random order that a seed decides, in files of even length;
//! - [`dedupe`]: one row of each key;
//! - [`group`]: what is said of rows that are alike in some columns;
//! - [`join`]: rows of two tables that have the same key, side by side;
//! - [`convert`]: rows as they are, in files of another format or length;
//! - [`repartition`]: rows in as many files as are wanted, those that are alike in some columns together, or in folders by the values of some columns;
//! - [`map_batches`]: what a function makes of them.
//!
//! All of them read files within memory that is asked for ([`ReadOptions`](crate::reading::ReadOptions)), write files whose bytes follow from the input and the options alone ([`WriteOptions`]), and prove that no
//! row was lost (law 1).

mod budget;
pub mod convert;
mod count;
pub mod dedupe;
mod describe;
mod described;
pub mod group;
pub mod join;
pub mod map_batches;
mod mapping;
mod output;
mod parts;
mod pieces;
pub mod repartition;
mod rewrite;
mod row_limit;
pub mod shuffle;
pub mod sort;
mod table;

use std::path::PathBuf;

use arrow_schema::SchemaRef;
use exobus_actors::futures::Futures;
use exobus_actors::ids::JobId;
use exobus_actors::registry::Paths;
use exobus_actors::task::JobError;
use exobus_shuffle::jobs::outputs;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::reading::ReadOptions;
use crate::sinks::OutputFormat;

pub use budget::TaskBudget;
pub use output::{FileSize, WriteOptions};
pub use rewrite::{Folders, Rewrite, Rewritten};

/// A job over a table, by what it is told: what whoever runs one does with all of them alike.
pub trait TableJob: Serialize + DeserializeOwned + Send + 'static {
    /// The name of the program that does it.
    const NAME: &'static str;

    /// Which table, and where its rows go.
    fn table(&self) -> &Rewrite;

    /// What it reads.
    fn reads(&self) -> Vec<PathBuf> {
        self.table().inputs.clone()
    }

    /// Does it.
    fn run(self, futures: Futures) -> impl Future<Output = Result<Rewritten, JobError>>;
}

/// What a job finds in files: the columns of their rows, and the format that is written unless another one is said.
#[derive(Clone, Debug)]
pub struct Found {
    /// The columns.
    pub schema: SchemaRef,
    /// That of the first file.
    pub format: OutputFormat,
    /// Bytes of the values of their rows, about.
    pub bytes: u64,
}

/// What a job finds in these files, or files of these folders, read so.
///
/// # Errors
/// As of a job that reads them.
pub async fn find(
    futures: &Futures,
    inputs: Vec<PathBuf>,
    reading: ReadOptions,
    partial: bool,
) -> Result<Found, JobError> {
    let rewrite = Rewrite { reading, partial, ..Rewrite::new(inputs, PathBuf::new()) };
    let described = described::Described::of(futures, &rewrite, &[], true).await?;
    let schema = table::Table::decode(&described.layout).map_err(JobError::program)?.schema;
    Ok(Found { schema, format: described.form.format(), bytes: described.value_bytes() })
}

/// What a job reads and writes.
fn paths<J: TableJob>(params: &J) -> Paths {
    Paths { reads: params.reads(), writes: vec![params.table().output.clone()] }
}

/// What a job looks at that is only explained.
fn read_paths<J: TableJob>(params: &J) -> Paths {
    Paths { writes: Vec::new(), ..paths(params) }
}

/// Frees the output folder of a job that is over, unless it is whole.
fn give_back<J: TableJob>(job: JobId, params: J) {
    outputs::give_back(job, &params.table().output);
}
