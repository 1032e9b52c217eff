//! The rows of a table in other files: as many as are wanted, with rows that are alike in some columns together, or in folders that say the values of some columns.
//!
//! - Files alone: rows stay in their order, in files whose lengths differ by one row at most; no row goes to another node.
//! - `by`: rows that are alike in these columns are in one file, and stand together in it, in the order of these columns and then of the input.
//! - `folders`: as Hive has them, `city=oslo/part-00000.parquet`; the columns that are folders are not in the files.

use std::path::PathBuf;

use exobus_actors::futures::Futures;
use exobus_actors::program;
use exobus_actors::task::JobError;
use exobus_shuffle::strategies::auto::Explained;
use serde::{Deserialize, Serialize};

use super::TableJob;
use super::convert::{ConvertTable, rewritten};
use super::rewrite::{self, Arrangement, Folders, Rewrite, Rewritten};
use crate::semantics::KeyColumn;

/// What the repartition of a table is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepartitionTable {
    /// Which table, and where its rows go.
    pub table: Rewrite,
    /// Columns; rows that are alike in them are in one file, or in one of each folder.
    pub by: Vec<KeyColumn>,
    /// Columns whose values are folders.
    pub folders: Option<Folders>,
}

/// Repartitions a table.
///
/// # Errors
/// As of [`sort`](super::sort::sort); a value of which no folder can be made; more folders than there may be.
#[program(name = "table.repartition", version = 1, give_back = super::give_back, paths = super::paths)]
pub async fn repartition(futures: Futures, params: RepartitionTable) -> Result<Rewritten, JobError> {
    match params.moves_rows() {
        true => rewrite::run(futures, RepartitionTable::NAME, params.table.clone(), params.arrangement()).await,
        false => rewritten(futures, ConvertTable::NAME, (params.table, None), None).await,
    }
}

/// Says what a repartition would do that puts rows together or in folders, from what its files say of themselves: the output is not looked at, and nothing is read.
///
/// # Errors
/// As of [`repartition`]; one that does neither is explained as a [conversion](super::convert::explain).
#[program(name = "table.repartition.explain", version = 1, paths = super::read_paths)]
pub async fn explain(futures: Futures, params: RepartitionTable) -> Result<Explained, JobError> {
    rewrite::explain(&futures, &params.table, &params.arrangement()).await
}

impl TableJob for RepartitionTable {
    const NAME: &'static str = "table.repartition";

    fn table(&self) -> &Rewrite {
        &self.table
    }

    fn run(self, futures: Futures) -> impl Future<Output = Result<Rewritten, JobError>> {
        repartition(futures, self)
    }
}

impl RepartitionTable {
    /// Writes these files, or files of these folders, as Parquet once more.
    pub fn new(inputs: Vec<PathBuf>, output: PathBuf) -> Self {
        Self { table: Rewrite::new(inputs, output), by: Vec::new(), folders: None }
    }

    /// Whether rows get another order, and go to other nodes.
    pub fn moves_rows(&self) -> bool {
        !self.by.is_empty() || self.folders.is_some()
    }

    fn arrangement(&self) -> Arrangement {
        Arrangement::parts(self.folders.clone(), self.by.clone())
    }
}
