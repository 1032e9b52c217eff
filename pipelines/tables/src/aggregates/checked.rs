//! Arguments and states that are of the types that were said, before anything is added.

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field};

use super::Accumulator;
use super::columns::reached;
use crate::TableError;
use crate::plain::Indirection;
use crate::semantics::check_type;

/// Refuses columns of other types, and takes dictionaries and run ends off those that come: loops behind it know neither.
pub(super) struct Checked<A> {
    pub(super) inner: A,
    /// Name and plain type of the argument.
    pub(super) argument: Option<(String, DataType)>,
    pub(super) states: Vec<Field>,
}

impl<A: Accumulator> Accumulator for Checked<A> {
    fn resize(&mut self, groups: usize) {
        self.inner.resize(groups);
    }

    fn update(
        &mut self,
        groups: &[u32],
        argument: Option<&ArrayRef>,
        places: Option<&[u64]>,
    ) -> Result<(), TableError> {
        let Some((column, data_type)) = &self.argument else { return self.inner.update(groups, None, places) };
        let argument = argument.expect("an argument");
        assert_eq!(argument.len(), groups.len(), "an argument for each row");
        check_type(column, data_type, argument.data_type())?;
        match Indirection::of(argument.as_ref()) {
            Some(_) => self.inner.update(groups, Some(&reached(argument, &[])?), places),
            None => self.inner.update(groups, Some(argument), places),
        }
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<(), TableError> {
        if states.len() != self.states.len() {
            return Err(TableError::ColumnsDiffer { expected: self.states.len(), found: states.len() });
        }
        for (field, state) in self.states.iter().zip(states) {
            assert_eq!(state.len(), groups.len(), "a state for each group");
            if field.data_type() != state.data_type() {
                let (expected, found) = (field.data_type().clone(), state.data_type().clone());
                return Err(TableError::TypeDiffers { column: field.name().clone(), expected, found });
            }
            if !field.is_nullable() && state.null_count() > 0 {
                return Err(TableError::NotAState { column: field.name().clone(), what: "a null" });
            }
        }
        self.inner.merge(groups, states)
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>, TableError> {
        self.inner.states(order)
    }

    fn finish(&self, order: &[u32]) -> Result<ArrayRef, TableError> {
        self.inner.finish(order)
    }

    fn terms(&self, order: &[u32]) -> Vec<Vec<f64>> {
        self.inner.terms(order)
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn clear(&mut self) {
        self.inner.clear();
    }
}
