//! The way from the rows of a column to the values in it: through structs, dictionaries and run ends.

use arrow_array::{Array, ArrayRef, cast::AsArray};
use arrow_buffer::NullBuffer;

use crate::plain::Indirection;

/// A step of it.
#[derive(Debug)]
pub(crate) enum Level {
    /// Which rows are null here.
    Nulls(NullBuffer),
    /// A dictionary, or run ends.
    Places(Indirection),
}

impl Level {
    pub(crate) fn is_places(&self) -> bool {
        matches!(self, Self::Places(_))
    }
}

/// What is on the way to the fields on this path down into structs, from the outside, and the array of these.
pub(crate) fn levels(array: &ArrayRef, path: &[usize]) -> (Vec<Level>, ArrayRef) {
    let (mut array, mut levels) = (array.clone(), Vec::new());
    for at in path.iter().copied().map(Some).chain([None]) {
        while let Some(indirection) = Indirection::of(array.as_ref()) {
            array = indirection.values.clone();
            levels.push(Level::Places(indirection));
        }
        levels.extend(array.nulls().filter(|nulls| nulls.null_count() > 0).cloned().map(Level::Nulls));
        if let Some(at) = at {
            array = array.as_struct().column(at).clone();
        }
    }
    (levels, array)
}

/// Where the value of a row is in the array behind these levels; `None`: it is null.
#[inline]
pub(crate) fn place(levels: &[Level], mut row: usize) -> Option<usize> {
    for level in levels {
        match level {
            Level::Nulls(nulls) if nulls.is_null(row) => return None,
            Level::Nulls(_) => (),
            Level::Places(of) if of.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) => return None,
            Level::Places(of) => row = of.place(row),
        }
    }
    Some(row)
}
