//! One row of each key of a table, in the order of the encoded keys.
//!
//! Which row stays follows from the input and the options alone: the first or the last in the order that is said, and in that of the input among rows that this order does not tell apart.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use exobus_actors::futures::Futures;
use exobus_actors::program;
use exobus_actors::task::JobError;
use exobus_shuffle::strategies::auto::Explained;
use serde::{Deserialize, Serialize};

use super::TableJob;
use super::rewrite::{self, Arrangement, Rewrite, Rewritten};
use crate::semantics::KeyColumn;

/// Which row of a key stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keep {
    /// The first.
    #[default]
    First,
    /// The last.
    Last,
}

impl Keep {
    /// What `--keep` calls them; `any` is the first, since that costs no more and is the same each time.
    pub const NAMES: [(&str, Self); 3] = [("first", Self::First), ("last", Self::Last), ("any", Self::First)];
}

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let keep = Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, keep)| *keep);
        keep.ok_or_else(|| format!("{text:?} is no row to keep: first, last or any"))
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, keep)| keep == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// What the deduplication of a table is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DedupeTable {
    /// Which table, and where its rows go.
    pub table: Rewrite,
    /// What is compared.
    pub key: Vec<KeyColumn>,
    /// Which row of a key stays.
    pub keep: Keep,
    /// In which order rows of a key are, before that of the input.
    pub order_by: Vec<KeyColumn>,
}

/// Leaves one row of each key.
///
/// # Errors
/// As of [`sort`](super::sort::sort).
#[program(name = "table.dedupe", version = 2, give_back = super::give_back, paths = super::paths)]
pub async fn dedupe(futures: Futures, params: DedupeTable) -> Result<Rewritten, JobError> {
    let arrangement = Arrangement::distinct(params.key, params.order_by, params.keep);
    rewrite::run(futures, DedupeTable::NAME, params.table, arrangement).await
}

/// Says what the deduplication of a table would do, as if all keys were different: the output is not looked at, and nothing is read.
///
/// # Errors
/// As of [`dedupe`].
#[program(name = "table.dedupe.explain", version = 1, paths = super::read_paths)]
pub async fn explain(futures: Futures, params: DedupeTable) -> Result<Explained, JobError> {
    let arrangement = Arrangement::distinct(params.key, params.order_by, params.keep);
    rewrite::explain(&futures, &params.table, &arrangement).await
}

impl TableJob for DedupeTable {
    const NAME: &'static str = "table.dedupe";

    fn table(&self) -> &Rewrite {
        &self.table
    }

    fn run(self, futures: Futures) -> impl Future<Output = Result<Rewritten, JobError>> {
        dedupe(futures, self)
    }
}

impl DedupeTable {
    /// Keeps the first row of each key of these files, or files of these folders, as Parquet.
    pub fn new(inputs: Vec<PathBuf>, output: PathBuf, key: Vec<KeyColumn>) -> Self {
        Self { table: Rewrite::new(inputs, output), key, keep: Keep::First, order_by: Vec::new() }
    }
}
