//! What is said of the groups of a table: rows that are alike in some columns.
//!
//! 1. *describe*, *cuts*: as of a sort by the columns of groups ([`rewrite`](super::rewrite)); only columns that are asked for are read;
//! 2. *map*: rows of a group become one, as far as that helps ([`collector`]), and go to partitions by their keys;
//! 3. *merge*, where the strategy has it: the same once more;
//! 4. *reduce*: all rows of a group become one; groups are put in the order of their keys, and those stay that meet what they have to; where the first groups of each part are wanted these are
//!    picked, and once more where a part reaches over several partitions;
//! 5. *write*: rows of what was made, in files of even length;
//! 6. *commit*: when each row that was read is in a group, and each row that was made in a file.
//!
//! Sums are exact, and what else is said of a group does not depend on the order in which its rows come ([`crate::aggregates`]): groups are the same whatever was put together where. They are written
//! in the order of their keys, and where a file ends follows from how many rows there are and how large they are: so files follow from the input and the options alone (law 9), and how many
//! partitions there are on the way is a matter of memory and caches.

mod block_totals;
mod collector;
mod combiner;
mod exchange;
mod finish;
mod groups;
mod maps;
mod order;
mod partial;
mod program;
mod query;
mod reduce;
pub mod sampled;
mod top;

use std::path::PathBuf;

use exobus_actors::futures::Futures;
use exobus_actors::program;
use exobus_actors::task::JobError;
use exobus_shuffle::strategies::auto::Explained;
use serde::{Deserialize, Serialize};

pub(super) use self::groups::{Groups, NONE};
pub use self::partial::Partial;
pub use self::query::{GroupQuery, Top};
use super::TableJob;
use super::rewrite::{Rewrite, Rewritten};
use crate::aggregates::Aggregate;

/// What a job over the groups of a table is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupTable {
    /// Which table, and where what is said of its groups goes.
    pub table: Rewrite,
    /// What is asked.
    pub query: GroupQuery,
}

/// Says of the groups of a table what is asked.
///
/// # Errors
/// As of [`sort`](super::sort::sort); columns of a type that an aggregate does not take; a sum that does not fit its type.
#[program(name = "table.group", version = 1, give_back = super::give_back, paths = super::paths)]
pub async fn group(futures: Futures, params: GroupTable) -> Result<Rewritten, JobError> {
    program::run(futures, GroupTable::NAME, (params.table, params.query), None).await
}

/// What a job over groups would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainedGroup {
    /// What aggregating before the exchange would be good for.
    pub partial: Partial,
    /// What it would do, as if each row were a group.
    pub shuffled: Explained,
}

/// Says what a job over groups would do, as if each row were a group: the output is not looked at, and of the table the keys of some rows are read.
///
/// # Errors
/// As of [`group`].
#[program(name = "table.group.explain", version = 2, paths = super::read_paths)]
pub async fn explain(futures: Futures, params: GroupTable) -> Result<ExplainedGroup, JobError> {
    program::explain(&futures, &params.table, &params.query).await
}

impl TableJob for GroupTable {
    const NAME: &'static str = "table.group";

    fn table(&self) -> &Rewrite {
        &self.table
    }

    fn run(self, futures: Futures) -> impl Future<Output = Result<Rewritten, JobError>> {
        group(futures, self)
    }
}

impl GroupTable {
    /// Of the groups of these files, or files of these folders, by some columns, as Parquet.
    pub fn new(inputs: Vec<PathBuf>, output: PathBuf, by: Vec<String>, aggregates: Vec<Aggregate>) -> Self {
        Self { table: Rewrite::new(inputs, output), query: GroupQuery { by, aggregates, having: None, top: None } }
    }
}
