//! The values of a key, one after the other, from wherever their rows are.

use std::fmt;

use exobus_actors::registry::TaskError;
use exobus_actors::task::Output;

use super::KeyedJob;
use crate::rows::{Row, RowMerge, RowRun};

/// The values of one key; one, where they have been combined.
///
/// There may be more of them than memory holds, so each is there only until the next one is asked for.
pub struct Values<'a> {
    source: &'a mut dyn Source,
}

impl<'a> Values<'a> {
    pub(super) fn new(source: &'a mut dyn Source) -> Self {
        Self { source }
    }

    /// The next value; `None` behind the last.
    pub fn next_value(&mut self) -> Option<&[u8]> {
        if self.source.advance() { self.source.value() } else { None }
    }

    /// Calls `each` for all values that are left.
    pub fn for_each(mut self, mut each: impl FnMut(&[u8])) {
        while let Some(value) = self.next_value() {
            each(value);
        }
    }

    /// How many values are left.
    pub fn count(self) -> u64 {
        let mut count = 0;
        self.for_each(|_| count += 1);
        count
    }
}

impl fmt::Debug for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Values(..)")
    }
}

/// Where values come from. What fails ends them; the source keeps why.
pub(super) trait Source {
    fn advance(&mut self) -> bool;
    fn value(&self) -> Option<&[u8]>;
}

/// A value that others have been combined into.
pub(super) struct Combined<'a> {
    pub(super) value: &'a [u8],
    pub(super) shown: bool,
}

impl Source for Combined<'_> {
    fn advance(&mut self) -> bool {
        !std::mem::replace(&mut self.shown, true)
    }

    fn value(&self) -> Option<&[u8]> {
        Some(self.value)
    }
}

/// The rows of a merge that have the key of the next one.
pub(super) struct Group<'m, 'j, J, R> {
    job: &'j J,
    merge: &'m mut RowMerge<R>,
    state: Shown,
    /// What of the rows is conserved.
    conserved: Output,
    failure: Option<TaskError>,
}

#[derive(PartialEq, Eq)]
enum Shown {
    Nothing,
    Row,
    All,
}

impl<'m, 'j, J: KeyedJob, R: RowRun> Group<'m, 'j, J, R> {
    pub(super) fn new(job: &'j J, merge: &'m mut RowMerge<R>) -> Self {
        Self { job, merge, state: Shown::Nothing, conserved: Output::default(), failure: None }
    }

    /// Takes what nobody looked at: it has been there all the same. What is conserved of all rows.
    pub(super) fn finish(mut self) -> Result<Output, TaskError> {
        while self.advance() {}
        self.failure.map_or(Ok(self.conserved), Err)
    }
}

impl<J: KeyedJob, R: RowRun> Source for Group<'_, '_, J, R> {
    fn advance(&mut self) -> bool {
        if self.state == Shown::Row {
            self.state = Shown::Nothing;
            match self.merge.take() {
                Ok(_) if self.merge.goes_on() => {}
                Ok(_) => self.state = Shown::All,
                Err(error) => (self.state, self.failure) = (Shown::All, Some(error.into())),
            }
        }
        match self.merge.row() {
            Some(row) if self.state == Shown::Nothing => {
                self.conserved.add(self.job.conserved(row.key(), row.value()));
                self.state = Shown::Row;
                true
            }
            _ => false,
        }
    }

    fn value(&self) -> Option<&[u8]> {
        self.merge.row().map(Row::value)
    }
}
