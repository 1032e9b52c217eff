//! Many sorted parts into one order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use exobus_actors::task::Output;

use super::{Row, RowError, Rows, key_prefix};

/// A merge under way. Rows of one key come in the order of the runs and, inside a run, in its own.
///
/// The rows stay where they are; what is allocated grows with the number of runs only.
#[derive(Debug)]
pub struct RowMerge<'a> {
    runs: Vec<Rows<'a>>,
    /// What has been read of each run.
    read: Vec<Output>,
    heads: BinaryHeap<Head<'a>>,
}

/// The next row of a run. The greatest is the one that comes first.
#[derive(Debug, PartialEq, Eq)]
struct Head<'a> {
    prefix: u64,
    row: Row<'a>,
    run: usize,
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = || other.row.key().cmp(self.row.key()).then_with(|| other.run.cmp(&self.run));
        other.prefix.cmp(&self.prefix).then_with(keys)
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> RowMerge<'a> {
    /// A merge of sorted parts; there may be none, and empty ones among them.
    ///
    /// # Errors
    /// Bytes that are no rows.
    pub fn new(parts: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, RowError> {
        let mut runs: Vec<Rows<'a>> = parts.into_iter().map(Rows::new).collect();
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for (run, rows) in runs.iter_mut().enumerate() {
            heads.extend(rows.next().transpose()?.map(|row| head(row, run)));
        }
        Ok(Self { read: vec![Output::default(); runs.len()], runs, heads })
    }

    /// The key of the next row; `None` when the merge is over.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.heads.peek().map(|head| head.row.key())
    }

    /// The next row.
    ///
    /// # Errors
    /// Bytes that are no rows; the merge cannot go on then.
    pub fn next_row(&mut self) -> Result<Option<Row<'a>>, RowError> {
        let Some(mut first) = self.heads.peek_mut() else { return Ok(None) };
        let (row, run) = (first.row, first.run);
        match self.runs[run].next().transpose()? {
            Some(next) => *first = head(next, run),
            None => drop(PeekMut::pop(first)),
        }
        self.read[run].add(Output { bytes: row.bytes().len() as u64, rows: 1, row_hash: row.hash() });
        Ok(Some(row))
    }

    /// What has been read of each run, in the order in which they were given.
    pub fn read(&self) -> &[Output] {
        &self.read
    }
}

fn head(row: Row<'_>, run: usize) -> Head<'_> {
    Head { prefix: key_prefix(row.key()), row, run }
}
