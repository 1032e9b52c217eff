//! The sort of a table by a key: files in, files in key order out.
//!
//! The sort is stable: rows of one key come out as they came in.

use std::path::PathBuf;

use exobus_actors::futures::Futures;
use exobus_actors::program;
use exobus_actors::task::JobError;
use exobus_shuffle::strategies::auto::Explained;
use serde::{Deserialize, Serialize};

use super::TableJob;
use super::rewrite::{self, Arrangement, Rewrite, Rewritten};
use crate::semantics::KeyColumn;

/// What a sort of a table is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SortTable {
    /// Which table, and where its rows go.
    pub table: Rewrite,
    /// What is compared, the first column first.
    pub key: Vec<KeyColumn>,
}

/// Sorts a table.
///
/// # Errors
/// Files that are no table, or not one; a column that is not there; too little memory; a full disk; a folder that cannot be used; rows that got lost: each names the file, column or
/// edge.
#[program(name = "table.sort", version = 2, give_back = super::give_back, paths = super::paths)]
pub async fn sort(futures: Futures, params: SortTable) -> Result<Rewritten, JobError> {
    rewrite::run(futures, SortTable::NAME, params.table, Arrangement::by_key(params.key)).await
}

/// Says what a sort of a table would do, from what its files say of themselves: the output is not looked at, and nothing is read.
///
/// # Errors
/// As of [`sort`].
#[program(name = "table.explain", version = 2, paths = super::read_paths)]
pub async fn explain(futures: Futures, params: SortTable) -> Result<Explained, JobError> {
    rewrite::explain(&futures, &params.table, &Arrangement::by_key(params.key)).await
}

impl TableJob for SortTable {
    const NAME: &'static str = "table.sort";

    fn table(&self) -> &Rewrite {
        &self.table
    }

    fn run(self, futures: Futures) -> impl Future<Output = Result<Rewritten, JobError>> {
        sort(futures, self)
    }
}

impl SortTable {
    /// Sorts these files, or files of these folders, by a key, as Parquet.
    pub fn new(inputs: Vec<PathBuf>, output: PathBuf, key: Vec<KeyColumn>) -> Self {
        Self { table: Rewrite::new(inputs, output), key }
    }
}
