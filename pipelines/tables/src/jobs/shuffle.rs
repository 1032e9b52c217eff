//! The random shuffle of a table: files in, files of even length with its rows in a random order out.
//!
//! The place of a row is a hash of 128 bits of where it stands in the input, under a seed, and nothing else: the same seed and input give the same files, whatever the nodes, the memory and
//! the strategy are. Files differ by one row at most, since the cuts between them are hashes that were counted out ([`ranks`](super::count)).
//!
//! It is a shuffle for training data and tests, not for secrets: who knows the seed, or enough of the output, knows the order.

use std::path::PathBuf;

use exobus_actors::futures::Futures;
use exobus_actors::program;
use exobus_actors::task::JobError;
use exobus_shuffle::strategies::auto::Explained;
use serde::{Deserialize, Serialize};

use super::TableJob;
use super::rewrite::{self, Arrangement, Rewrite, Rewritten};

/// What a shuffle of a table is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShuffleTable {
    /// Which table, and where its rows go.
    pub table: Rewrite,
    /// Which order.
    pub seed: u64,
}

/// Shuffles a table.
///
/// # Errors
/// As of [`sort`](super::sort::sort), but for those of a key.
#[program(name = "table.shuffle", version = 2, give_back = super::give_back, paths = super::paths)]
pub async fn shuffle(futures: Futures, params: ShuffleTable) -> Result<Rewritten, JobError> {
    rewrite::run(futures, ShuffleTable::NAME, params.table, Arrangement::at_random(params.seed)).await
}

/// Says what a shuffle of a table would do: rows are counted where files do not say how many they have, and the output is not looked at.
///
/// # Errors
/// As of [`shuffle`].
#[program(name = "table.shuffle.explain", version = 1, paths = super::read_paths)]
pub async fn explain(futures: Futures, params: ShuffleTable) -> Result<Explained, JobError> {
    rewrite::explain(&futures, &params.table, &Arrangement::at_random(params.seed)).await
}

impl TableJob for ShuffleTable {
    const NAME: &'static str = "table.shuffle";

    fn table(&self) -> &Rewrite {
        &self.table
    }

    fn run(self, futures: Futures) -> impl Future<Output = Result<Rewritten, JobError>> {
        shuffle(futures, self)
    }
}

impl ShuffleTable {
    /// Shuffles these files, or files of these folders, to Parquet.
    pub fn new(inputs: Vec<PathBuf>, output: PathBuf, seed: u64) -> Self {
        Self { table: Rewrite::new(inputs, output), seed }
    }
}
