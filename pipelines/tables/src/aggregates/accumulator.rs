//! What takes the values of groups.

use arrow_array::ArrayRef;

use crate::TableError;

/// The state of one aggregate for each of many groups, which are numbers from 0.
///
/// Whatever the order of rows, however they are divided into updates and among accumulators whose states are merged: the results are the same, bit by bit.
pub trait Accumulator: Send {
    /// Has states for so many groups. New ones are those of no value; fewer than there are forgets the last ones.
    fn resize(&mut self, groups: usize);

    /// Adds rows: to the group of each row its value in `argument`, an array of as many rows in any encoding of the type that was bound ([`Bound::argument`](super::Bound::argument)
    /// gives it); `None` for `count(*)`. `places` says where each row stands in the whole input, for [`needs_places`](super::Bound::needs_places) alone: no two rows have one
    /// place, and `u64::MAX` is none.
    ///
    /// # Errors
    /// The argument is of another type, or cannot be read; [`TableError::TooManyElements`], [`TableError::KeysTooLarge`]. Some of the rows may be added then: the accumulator is of
    /// no more use.
    ///
    /// # Panics
    /// A group that is not there; arguments, or places, of another number of rows; no argument or no places where they are needed.
    fn update(&mut self, groups: &[u32], argument: Option<&ArrayRef>, places: Option<&[u64]>)
    -> Result<(), TableError>;

    /// Adds states of other groups, or of the same, that [`states`](Self::states) gave: to the group `groups[row]` what row `row` of each column has.
    ///
    /// # Errors
    /// They are none: other columns, or bytes that are no state. Some may be added then, as of [`update`](Self::update).
    ///
    /// # Panics
    /// A group that is not there; columns of another number of rows.
    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<(), TableError>;

    /// The states of these groups, in this order, as columns of [`state_fields`](super::Bound::state_fields).
    ///
    /// # Errors
    /// They take more bytes than a column can count.
    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>, TableError>;

    /// The results of these groups, in this order, as a column of [`output_field`](super::Bound::output_field).
    ///
    /// # Errors
    /// [`TableError::SumOverflows`], whose row is the place in `order`. Results take more bytes than a column can count.
    fn finish(&self, order: &[u32]) -> Result<ArrayRef, TableError>;

    /// Numbers of these groups, in this order, that add up over parts of a table, and from which its results are estimated
    /// ([`Function::estimated`](super::Function::estimated) says how): a column for each of them.
    fn terms(&self, order: &[u32]) -> Vec<Vec<f64>> {
        let _ = order;
        Vec::new()
    }

    /// How many bytes of memory it has taken.
    fn bytes(&self) -> u64;

    /// Forgets all groups and keeps the memory for others.
    fn clear(&mut self);
}
