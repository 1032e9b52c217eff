//! Many sorted runs into one order.
//!
//! A loser tree holds one `u128` per run: the first eight bytes of the key of its present row above the run's index. Only
//! where those eight bytes agree are whole keys compared.

use std::cmp::Ordering;

use exobus_actors::task::Output;
use exobus_store::RowHash;

use super::run::RowRun;
use super::{Row, RowsError};
use crate::cuts::key_prefix;

/// A merge under way. Rows of one key come in the order of the runs and, inside a run, in its own.
///
/// The rows stay where they are; what is allocated grows with the number of runs, and by one key.
#[derive(Debug)]
pub struct RowMerge<R> {
    runs: Vec<R>,
    /// What has been read of each run.
    read: Vec<Output>,
    /// The loser of each match; a tree in an array, the children of match `i` are `2i` and `2i + 1`.
    losers: Vec<u128>,
    /// The run whose row is next, with its prefix; [`DONE`] when all runs are at their end.
    winner: u128,
    /// The key of the row that was taken last.
    key: Vec<u8>,
    /// How the key of the next row compares with it.
    next: Option<Ordering>,
}

/// The entry of a run at its end: above every key.
const DONE: u128 = u128::MAX;
/// Bits of an entry below the prefix.
const RUN_BITS: u32 = 32;

impl<R: RowRun> RowMerge<R> {
    /// A merge of sorted runs; there may be none, and empty ones among them.
    ///
    /// # Errors
    /// Those of the runs.
    pub fn new(mut runs: Vec<R>) -> Result<Self, RowsError> {
        let leaves = runs.len().next_power_of_two();
        let mut level = vec![DONE; leaves];
        for (run, entry) in level.iter_mut().enumerate().take(runs.len()) {
            *entry = next_entry(&mut runs, run)?;
        }
        let read = vec![Output::default(); runs.len()];
        let mut merge = Self { runs, read, losers: vec![DONE; leaves], winner: DONE, key: Vec::new(), next: None };
        // Play the first matches level by level, from the leaves to the root.
        while level.len() > 1 {
            let matches = level.len() / 2;
            for pair in 0..matches {
                let (left, right) = (level[2 * pair], level[2 * pair + 1]);
                let (first, second) = if merge.is_before(right, left) { (right, left) } else { (left, right) };
                merge.losers[matches + pair] = second;
                level[pair] = first;
            }
            level.truncate(matches);
        }
        merge.winner = level[0];
        Ok(merge)
    }

    /// The next row, which [`take`](Self::take) takes; `None` when the merge is over.
    pub fn row(&self) -> Option<Row<'_>> {
        if self.winner == DONE { None } else { self.runs[run_of(self.winner)].row() }
    }

    /// Whether there is a next row and it has the key of the one taken last.
    pub fn goes_on(&self) -> bool {
        self.next == Some(Ordering::Equal)
    }

    /// The key of the row that was taken last.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Takes the next row, counts it as read, and goes on to the one behind it. Its hash; `None` when the merge is over.
    ///
    /// # Errors
    /// Those of the runs, and [`RowsError::Unsorted`]; the merge cannot go on then.
    pub fn take(&mut self) -> Result<Option<RowHash>, RowsError> {
        if self.winner == DONE {
            return Ok(None);
        }
        let run = run_of(self.winner);
        let Some(row) = self.runs[run].row() else { return Ok(None) };
        let row_hash = row.hash();
        self.read[run].add(Output { bytes: row.bytes().len() as u64, rows: 1, row_hash });
        if self.next != Some(Ordering::Equal) {
            self.key.clear();
            self.key.extend_from_slice(row.key());
        }
        let entry = next_entry(&mut self.runs, run)?;
        self.replay(run, entry);
        self.next = self.row().map(|row| row.key().cmp(&self.key));
        // Only the run that has just gone on can have brought something smaller.
        match self.next {
            Some(Ordering::Less) => Err(RowsError::Unsorted { run, row: self.read[run].rows }),
            _ => Ok(Some(row_hash)),
        }
    }

    /// What has been read of each run, in the order in which they were given.
    pub fn read(&self) -> &[Output] {
        &self.read
    }

    /// Sends `entry` of `run` from its leaf to the root; what is left there is the next winner.
    fn replay(&mut self, run: usize, entry: u128) {
        let mut winner = entry;
        let mut at = (self.losers.len() + run) / 2;
        while at > 0 {
            let other = self.losers[at];
            if self.is_before(other, winner) {
                self.losers[at] = std::mem::replace(&mut winner, other);
            }
            at /= 2;
        }
        self.winner = winner;
    }

    #[inline]
    fn is_before(&self, a: u128, b: u128) -> bool {
        if a >> RUN_BITS == b >> RUN_BITS { self.is_before_by_key(a, b) } else { a < b }
    }

    fn is_before_by_key(&self, a: u128, b: u128) -> bool {
        let key = |entry| self.runs[run_of(entry)].row().map(Row::key);
        // Both are done, or none is: no prefix is as large as that of `DONE`.
        a != DONE && key(a).cmp(&key(b)).then(a.cmp(&b)).is_lt()
    }
}

fn run_of(entry: u128) -> usize {
    entry as u32 as usize
}

/// Goes to the next row of a run.
fn next_entry<R: RowRun>(runs: &mut [R], run: usize) -> Result<u128, RowsError> {
    let row = if runs[run].advance()? { runs[run].row() } else { None };
    Ok(row.map_or(DONE, |row| (u128::from(key_prefix(row.key())) << RUN_BITS) | run as u128))
}
