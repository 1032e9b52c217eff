//! True, false or null, for each row.

use arrow_buffer::BooleanBuffer;

use crate::semantics::{Level, place};

/// Of rows: null is neither.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    pub(super) is_true: BooleanBuffer,
    pub(super) is_false: BooleanBuffer,
}

impl Truth {
    /// The same for all rows.
    pub(super) fn constant(value: Option<bool>, rows: usize) -> Self {
        let all = |is| if is { BooleanBuffer::new_set(rows) } else { BooleanBuffer::new_unset(rows) };
        Self { is_true: all(value == Some(true)), is_false: all(value == Some(false)) }
    }

    /// What a test says of the values of a column; null where they are.
    pub(super) fn of_values(levels: &[Level], rows: usize, test: impl Fn(usize) -> bool) -> Self {
        match levels {
            [] => {
                let is_true = BooleanBuffer::collect_bool(rows, test);
                Self { is_false: !&is_true, is_true }
            }
            [Level::Nulls(nulls)] => {
                let (holds, valid) = (BooleanBuffer::collect_bool(rows, test), nulls.inner());
                Self { is_true: &holds & valid, is_false: &!&holds & valid }
            }
            levels => Self::of_rows(rows, |row| place(levels, row).map(&test)),
        }
    }

    /// What is said of each row.
    pub(super) fn of_rows(rows: usize, of: impl Fn(usize) -> Option<bool>) -> Self {
        let mut is_false = arrow_buffer::BooleanBufferBuilder::new(rows);
        let is_true = BooleanBuffer::collect_bool(rows, |row| {
            let value = of(row);
            is_false.append(value == Some(false));
            value == Some(true)
        });
        Self { is_true, is_false: is_false.finish() }
    }

    pub(super) fn not(self) -> Self {
        Self { is_true: self.is_false, is_false: self.is_true }
    }

    pub(super) fn and(self, other: &Self) -> Self {
        Self { is_true: &self.is_true & &other.is_true, is_false: &self.is_false | &other.is_false }
    }

    pub(super) fn or(self, other: &Self) -> Self {
        Self { is_true: &self.is_true | &other.is_true, is_false: &self.is_false & &other.is_false }
    }

    /// Null where it was false.
    pub(super) fn true_or_null(self) -> Self {
        Self { is_false: BooleanBuffer::new_unset(self.is_true.len()), is_true: self.is_true }
    }
}
