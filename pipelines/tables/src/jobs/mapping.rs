//! What a function makes of batches, and of which columns and types that is.

use arrow_array::RecordBatch;
use arrow_schema::{Fields, Schema, SchemaRef};
use exobus_actors::registry::TaskError;

use super::budget::of_table;
use crate::semantics::{UnifiedSchema, check_schema};

/// What rows become on their way to a file: batch by batch, and a batch without rows, too.
pub(super) type BatchFunction<'a> = &'a mut dyn FnMut(RecordBatch) -> Result<RecordBatch, TaskError>;

/// A function, and what it gives for a batch without rows: what it gives for others has these columns, of these types.
pub(super) struct Mapping<'a> {
    function: BatchFunction<'a>,
    schema: SchemaRef,
}

impl<'a> Mapping<'a> {
    /// Calls it for a batch without rows of this schema.
    ///
    /// # Errors
    /// Those of the function; names of columns that cannot be told apart.
    pub(super) fn new(function: BatchFunction<'a>, input: &SchemaRef) -> Result<Self, TaskError> {
        let given = function(RecordBatch::new_empty(input.clone()))?.schema();
        UnifiedSchema::new("what it gives", &given).map_err(of_table)?;
        // Whether there are nulls nobody knows before there are rows.
        let fields: Vec<_> = given.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let schema = Schema::new_with_metadata(fields, given.metadata().clone()).into();
        Ok(Self { function, schema })
    }

    /// Of what it gives.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What it makes of a batch, with the columns in the order of the schema.
    ///
    /// # Errors
    /// Those of the function; it gives other columns or types than for a batch without rows.
    pub(super) fn apply(&mut self, batch: RecordBatch) -> Result<RecordBatch, TaskError> {
        let rows = batch.num_rows();
        let given = (self.function)(batch)?;
        let differs = |what: String| {
            TaskError::request(format!(
                "{what}: a function gives the same columns and types for {rows} rows as for none"
            ))
        };
        let (expected, found) = (self.schema.fields(), given.schema_ref().fields());
        let places: Option<Vec<usize>> = expected.iter().map(|field| Some(found.find(field.name())?.0)).collect();
        let Some(places) = places.filter(|places| places.len() == found.len()) else {
            return Err(differs(format!("columns {}, not {}", names(found), names(expected))));
        };
        let given = given.project(&places).map_err(TaskError::fatal)?;
        check_schema(&self.schema, given.schema_ref()).map_err(|error| differs(error.to_string()))?;
        Ok(given)
    }
}

fn names(fields: &Fields) -> String {
    fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
}
