//! What a function makes of batches, and of which columns and types that is.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, FieldRef, Fields, Schema, SchemaRef};
use exobus_actors::registry::TaskError;

use super::budget::of_table;
use crate::plain::plain_schema;
use crate::semantics::{UnifiedSchema, check_schema};

/// What rows become on their way to a file.
pub(super) trait BatchFunction {
    /// Gives what it makes of a batch, or keeps that for later; of a batch without rows it gives one at least.
    fn apply(&mut self, batch: RecordBatch, given: Given<'_>) -> Result<(), TaskError>;

    /// Gives what it has kept, when there are no more batches.
    fn end(&mut self, _given: Given<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

impl<F: FnMut(RecordBatch, Given<'_>) -> Result<(), TaskError>> BatchFunction for F {
    fn apply(&mut self, batch: RecordBatch, given: Given<'_>) -> Result<(), TaskError> {
        self(batch, given)
    }
}

/// Takes batches that a function gives, one at least for a batch without rows.
pub(super) type Given<'a> = &'a mut dyn FnMut(RecordBatch) -> Result<(), TaskError>;

/// A function, and what it gives for a batch without rows: what it gives for others has these columns, of these types.
pub(super) struct Mapping<'a> {
    function: &'a mut dyn BatchFunction,
    schema: SchemaRef,
}

impl<'a> Mapping<'a> {
    /// Calls it for a batch without rows of this schema.
    ///
    /// # Errors
    /// Those of the function; names of columns that cannot be told apart.
    pub(super) fn new(function: &'a mut dyn BatchFunction, input: &SchemaRef) -> Result<Self, TaskError> {
        let mut given = None;
        function.apply(RecordBatch::new_empty(input.clone()), &mut |batch| {
            given.get_or_insert_with(|| batch.schema());
            Ok(())
        })?;
        let given = given.ok_or_else(|| TaskError::fatal("a function gave nothing for a batch without rows"))?;
        UnifiedSchema::new("what it gives", &given).map_err(of_table)?;
        let given = plain_schema(&given);
        let fields: Fields = given.fields().iter().map(with_nulls).collect();
        let schema = Schema::new_with_metadata(fields, given.metadata).into();
        Ok(Self { function, schema })
    }

    /// Of what it gives.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Calls `each` with what it makes of a batch, with the columns in the order of the schema.
    ///
    /// # Errors
    /// Those of the function and of `each`; it gives other columns or types than for a batch without rows, as `refused` tells it.
    pub(super) fn apply(
        &mut self,
        batch: RecordBatch,
        refused: impl Fn(String) -> TaskError,
        mut each: impl FnMut(RecordBatch) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let (schema, rows) = (&self.schema, batch.num_rows());
        let differs = |what: String| {
            refused(format!(
                "{what}: a function gives the same columns and types for the {rows} rows from there on as for none"
            ))
        };
        self.function.apply(batch, &mut |given| each(as_for_none(schema, &given, differs)?))
    }

    /// Calls `each` with what it has kept, as [`apply`](Self::apply) does.
    ///
    /// # Errors
    /// As of [`apply`](Self::apply).
    pub(super) fn end(&mut self, mut each: impl FnMut(RecordBatch) -> Result<(), TaskError>) -> Result<(), TaskError> {
        let schema = &self.schema;
        self.function.end(&mut |given| each(as_for_none(schema, &given, TaskError::fatal)?))
    }
}

/// What a function gave, with the columns in the order of this schema, of what it gave for a batch without rows. `differs`: how the task fails where it has others.
fn as_for_none(
    schema: &SchemaRef,
    given: &RecordBatch,
    differs: impl Fn(String) -> TaskError,
) -> Result<RecordBatch, TaskError> {
    let (expected, found) = (schema.fields(), given.schema_ref().fields());
    let places: Option<Vec<usize>> = expected.iter().map(|field| Some(found.find(field.name())?.0)).collect();
    let Some(places) = places.filter(|places| places.len() == found.len()) else {
        return Err(differs(format!("columns {}, not {}", names(found), names(expected))));
    };
    let given = given.project(&places).map_err(TaskError::fatal)?;
    check_schema(schema, given.schema_ref()).map_err(|error| differs(error.to_string()))?;
    Ok(given)
}

/// The field with nulls wherever there may be some: whether there are nobody knows before there are rows.
fn with_nulls(field: &FieldRef) -> FieldRef {
    use DataType::*;
    let data_type = match field.data_type() {
        List(of) => List(with_nulls(of)),
        LargeList(of) => LargeList(with_nulls(of)),
        FixedSizeList(of, size) => FixedSizeList(with_nulls(of), *size),
        Struct(fields) => Struct(fields.iter().map(with_nulls).collect()),
        // Entries of maps, and their keys, are never null.
        Map(of, sorted) => match of.data_type() {
            Struct(entry) => {
                let entry =
                    entry.iter().enumerate().map(|(at, field)| if at == 0 { field.clone() } else { with_nulls(field) });
                Map(Arc::new(of.as_ref().clone().with_data_type(Struct(entry.collect()))), *sorted)
            }
            _ => Map(of.clone(), *sorted),
        },
        flat => flat.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type).with_nullable(true))
}

fn names(fields: &Fields) -> String {
    fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
}
