//! The join of two tables: their rows that have the same key, side by side.
//!
//! 1. *describe*, *cuts*: as of a sort of either table by its key ([`rewrite`](super::rewrite)), with one row of cuts for both;
//! 2. *map*: splits of one table in, one object with a part for each file out, in the order of the key;
//! 3. *merge*, where the strategy has it: rows of either table apart, in one part;
//! 4. *reduce*: the rows of both tables that have the keys of a file come together, key by key, and are written as they match ([`matching`]);
//! 5. *commit*: when each row that was read has come to a file.
//!
//! A key with more rows on the left than a file has is divided by their places: its rows of the right table go to each of these files. A key with a null matches nothing. Rows that match nothing
//! are written where the kind of the join says so, and are left out before the exchange where it does not: where their key is null, and where one table is much smaller, most of the others, too ([`filter`]).
//!
//! Where one of the tables is small all of that is left out, and each task that reads the other one has all of it ([`broadcast`]), or one piece of it after the other where it has no room.
//!
//! The output is in the order of the key, rows of one key in that of their places on the left, and then on the right: it follows from the input and the options alone (law 9).

mod assemble;
mod broadcast;
mod cuts;
mod exchange;
mod filter;
mod found;
mod lookup;
mod matching;
mod pairs;
mod passes;
mod probe;
mod program;
mod query;
mod reduce;
mod rows;
mod sorted;

use std::fmt;
use std::path::PathBuf;

use exobus_actors::futures::Futures;
use exobus_actors::program;
use exobus_actors::task::JobError;
use exobus_shuffle::strategies::auto::Explained;
use serde::{Deserialize, Serialize};

pub use self::lookup::Lookup;
use self::query::Side;
pub use self::query::{Broadcast, JoinKind, JoinQuery, NoBroadcast, NoJoinKind, NoPair, Pair};
use super::TableJob;
use super::rewrite::{Rewrite, Rewritten};
use crate::reading::ReadOptions;

/// What a job over two tables is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JoinTables {
    /// The left table, and where rows go.
    pub table: Rewrite,
    /// Files of the right table, or folders of them.
    #[serde(with = "exobus_actors::paths")]
    pub right: Vec<PathBuf>,
    /// How these are read.
    pub right_reading: ReadOptions,
    /// Which rows match, and what becomes of them.
    pub query: JoinQuery,
    /// Which table all tasks have.
    #[serde(default)]
    pub broadcast: Broadcast,
}

/// Joins two tables.
///
/// # Errors
/// As of [`sort`](super::sort::sort), of either table; keys of types that do not fit each other; columns of both with one name.
#[program(name = "table.join", version = 1, give_back = super::give_back, paths = super::paths)]
pub async fn join(futures: Futures, params: JoinTables) -> Result<Rewritten, JobError> {
    Box::pin(program::run(futures, JoinTables::NAME, params)).await
}

/// What a join would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainedJoin {
    /// Which table all tasks would have, left or right; `None`: none.
    pub broadcast: Option<String>,
    /// Bytes of the values of the left table and of the right one, before their conditions.
    pub table_bytes: [u64; 2],
    /// The most frequent key of the left table and of the right one, by a sample; `None`: the table has no row with a key that might be written.
    pub frequent: [Option<FrequentKey>; 2],
    /// The table of which rows would be left out where they are read, left or right, since no row of the other one has their key, as a filter of these says; `None`: none. Where a table is broadcast there is no filter.
    pub filtered: Option<String>,
    /// Bytes that would go from node to node if the left table were broadcast, and if the right one were; `None`: no join of this kind broadcasts it.
    pub broadcast_bytes: [Option<u64>; 2],
    /// What it would do, or would have done, where none is.
    pub shuffled: Explained,
}

/// The key that most rows have of those that were sampled of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrequentKey {
    /// How many of them have it.
    pub rows: u64,
    /// How many were sampled: at even distances in some splits of the table, and without those that are left out since their key has a null.
    pub sampled: u64,
    /// In how many files its rows would be, where no table is broadcast.
    pub files: u64,
    /// In how many pieces its rows of the right table would come to each of these.
    pub pieces: u64,
}

impl fmt::Display for FrequentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, sampled, files, pieces } = self;
        let percent = 100.0 * *rows as f64 / (*sampled).max(1) as f64;
        let (of_files, of_pieces) = (if *files == 1 { "file" } else { "files" }, *pieces > 1);
        write!(
            f,
            "the most frequent key has {percent:.1} % of {sampled} rows that were sampled, and is in {files} {of_files}"
        )?;
        if of_pieces { write!(f, ", in {pieces} pieces") } else { Ok(()) }
    }
}

/// Says what a join would do: the output is not looked at, and of the tables the keys of some rows are read.
///
/// # Errors
/// As of [`join`].
#[program(name = "table.join.explain", version = 2, paths = super::read_paths)]
pub async fn explain(futures: Futures, params: JoinTables) -> Result<ExplainedJoin, JobError> {
    program::explain(&futures, &params).await
}

impl TableJob for JoinTables {
    const NAME: &'static str = "table.join";

    fn table(&self) -> &Rewrite {
        &self.table
    }

    fn reads(&self) -> Vec<PathBuf> {
        [&self.table.inputs[..], &self.right].concat()
    }

    fn run(self, futures: Futures) -> impl Future<Output = Result<Rewritten, JobError>> {
        join(futures, self)
    }
}

impl JoinTables {
    /// What is wrong with it, whatever the tables are: the field of a job, and what.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        self.query.check()?;
        let (kind, broadcast) = (self.query.kind, self.broadcast);
        let side = match broadcast {
            Broadcast::Auto | Broadcast::Never => return Ok(()),
            Broadcast::Left => Side::Left,
            Broadcast::Right => Side::Right,
        };
        if kind.can_broadcast(side) {
            return Ok(());
        }
        let what = format!(
            "a join of kind {kind} looks at which rows of the {side} table match none, which no task would know where all of them have it: that table cannot be broadcast"
        );
        Err(("broadcast", what))
    }

    /// Of these files, or files of these folders, as Parquet: rows of both tables that match.
    pub fn new(left: Vec<PathBuf>, right: Vec<PathBuf>, output: PathBuf, on: Vec<Pair>) -> Self {
        let query = JoinQuery { on, kind: JoinKind::Inner, suffix: None };
        Self {
            table: Rewrite::new(left, output),
            right,
            right_reading: ReadOptions::default(),
            query,
            broadcast: Broadcast::Auto,
        }
    }
}
