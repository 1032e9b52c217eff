//! Rows of two tables that come in the order of their keys, as they match.
//!
//! Of a key that both tables have, the rows of the right table are known by where they are, and those of the left one come past them one by one: a million rows that meet a million take what a million
//! places take. What is written is gathered some pairs at a time.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::pairs::Pairs;
use super::query::{JoinKind, Joined, Side};
use super::sorted::Sorted;
use crate::TableError;
use crate::block::Pick;
use crate::jobs::budget::Unordered;
use crate::sources::{MemoryBudget, Reservation};

/// Rows of a key for which room is asked at a time, at least, and rows between two looks at whether anybody wants them.
const ROWS_AT_ONCE: usize = 4096;

/// How many rows of each table came, and how many of the left one matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Came {
    pub(super) left: u64,
    pub(super) right: u64,
    pub(super) matched: u64,
}

/// What rows come to be matched with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Others<'a> {
    /// Keys of which rows of the left table are in other files, too, so that a row of the right table matches some whether one is here or not.
    pub(super) divided: &'a [Vec<u8>],
    /// Whether each row of the left table has pairs in other cells, too: what is made of it is given out by itself.
    pub(super) are_cells: bool,
}

/// Why rows are not matched any further.
#[derive(Debug)]
pub(super) enum Stopped<E> {
    /// More memory is needed than there is, or something is wrong with a row.
    Rows(Unordered),
    /// What whoever took rows said.
    Taken(E),
}

impl<E> From<Unordered> for Stopped<E> {
    fn from(error: Unordered) -> Self {
        Self::Rows(error)
    }
}

impl<E> From<TableError> for Stopped<E> {
    fn from(error: TableError) -> Self {
        Self::Rows(error.into())
    }
}

/// Matches rows until there are no more, or `goes_on` says that nobody wants them. `others`: where else rows are that they match. `take` gets rows of what is written.
///
/// # Errors
/// What `take` and `goes_on` say, and others of [`Stopped`].
pub(super) fn match_rows<E>(
    (joined, kind): (&Joined, JoinKind),
    [mut left, mut right]: [Sorted<'_>; 2],
    others: Others<'_>,
    budget: &Arc<dyn MemoryBudget>,
    goes_on: impl Fn() -> Result<(), E>,
    take: impl FnMut(&RecordBatch) -> Result<(), E>,
) -> Result<Came, Stopped<E>> {
    let mut looked_at = 0;
    let mut pairs = Pairs::new((joined, kind), [left.batches(), right.batches()], budget, take)?;
    let (mut came, mut found) = (Came::default(), Found::none(budget));
    loop {
        if came.left + came.right >= looked_at + ROWS_AT_ONCE as u64 {
            looked_at = came.left + came.right;
            goes_on().map_err(Stopped::Taken)?;
        }
        let order = match (left.peek()?, right.peek()?) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((of_left, _)), Some((of_right, _))) => of_left.cmp(of_right),
        };
        match order {
            Ordering::Less => {
                if let Some((_, row)) = left.take()? {
                    pairs.push_left(row)?;
                    came.left += 1;
                }
            }
            Ordering::Greater => {
                if let Some((of_right, row)) = right.take()? {
                    let matches_elsewhere =
                        others.divided.iter().any(|key| key == of_right) && !pairs.has_null(Side::Right, row);
                    pairs.push_right(row, matches_elsewhere)?;
                    came.right += 1;
                }
            }
            Ordering::Equal => {
                found.fill(&mut right)?;
                came.right += found.rows.len() as u64;
                // What has a null in its key matches none.
                let matches = found.rows.first().is_none_or(|row| !pairs.has_null(Side::Right, *row));
                left.take_run(|row| {
                    if came.left.is_multiple_of(ROWS_AT_ONCE as u64) {
                        goes_on().map_err(Stopped::Taken)?;
                    }
                    pairs.push_pairs(row, &found.rows)?;
                    came.left += 1;
                    came.matched += u64::from(matches);
                    if matches && others.are_cells { pairs.write() } else { Ok(()) }
                })?;
                found.rows.iter().try_for_each(|row| pairs.push_right(*row, matches))?;
            }
        }
    }
    pairs.write()?;
    Ok(came)
}

/// The rows of the right table that have a key.
struct Found {
    rows: Vec<Pick>,
    memory: Reservation,
}

impl Found {
    fn none(budget: &Arc<dyn MemoryBudget>) -> Self {
        Self { rows: Vec::new(), memory: Reservation::none(budget) }
    }

    /// Takes all rows that have the key of the next one.
    fn fill(&mut self, right: &mut Sorted<'_>) -> Result<(), Unordered> {
        self.rows.clear();
        right.take_run(|row| {
            if self.rows.len() == self.rows.capacity() {
                let capacity = (2 * self.rows.len()).max(ROWS_AT_ONCE);
                // While they grow they are there twice.
                self.memory.resize(((capacity + self.rows.len()) * size_of::<Pick>()) as u64)?;
                self.rows.reserve_exact(capacity - self.rows.len());
            }
            self.rows.push(row);
            Ok(())
        })
    }
}
