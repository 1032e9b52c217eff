//! Rows that are in memory as they would be read: those that meet a condition, and what is computed of them. Nothing is looked up for them.

use arrow_array::{Array as _, BooleanArray, RecordBatch};
use arrow_schema::Schema;
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;

use super::computed::{Computed, Computing};
use crate::TableError;
use crate::expression::{Bound, Expression};

/// See the module.
pub struct InMemory {
    filter: Option<Bound>,
    computing: Option<Computing>,
}

/// Some rows as they would be read.
#[derive(Debug, Default)]
pub struct SeenRows {
    /// The numbers of those that stay.
    pub rows: Vec<usize>,
    /// What is computed of each of these; `None`: nothing is.
    pub computed: Option<RecordBatch>,
    /// The numbers of those of which something cannot be computed, and why not of the first one.
    pub failed: Vec<usize>,
    /// See there.
    pub why: Option<TableError>,
}

impl InMemory {
    /// Of rows that have these columns.
    ///
    /// # Errors
    /// A condition that is none for them; [`TableError::NoComputation`]; a column that is not there.
    pub fn new(filter: Option<&Expression>, computed: Option<&Computed>, columns: &Schema) -> Result<Self, TableError> {
        let filter = filter.map(|filter| filter.bind(columns)).transpose()?;
        let computing = computed.map(|computed| Computing::over(computed, columns)).transpose()?;
        Ok(Self { filter, computing })
    }

    /// These rows. Of one that is left out nothing is computed.
    pub fn see(&self, rows: &RecordBatch) -> SeenRows {
        self.all(rows).unwrap_or_else(|why| SeenRows { why: Some(why), ..self.one_by_one(rows) })
    }

    fn all(&self, all: &RecordBatch) -> Result<SeenRows, TableError> {
        let mut rows: Vec<usize> = (0..all.num_rows()).collect();
        let mut batch = all.clone();
        if let Some(filter) = &self.filter {
            batch = kept(&batch, &mut rows, &filter.evaluate(&batch)?)?;
        }
        let Some(computing) = &self.computing else { return Ok(SeenRows { rows, ..SeenRows::default() }) };
        let columns = computing.columns.fields().iter().map(|field| batch.schema_ref().index_of(field.name()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let mut seen = computing.seen(&batch.project(&columns)?)?;
        if let Some(stay) = computing.kept(&seen)? {
            seen = kept(&seen, &mut rows, &stay)?;
        }
        Ok(SeenRows { rows, computed: Some(computing.compute(&seen)?), ..SeenRows::default() })
    }

    fn one_by_one(&self, all: &RecordBatch) -> SeenRows {
        let (mut seen, mut batches) = (SeenRows::default(), Vec::new());
        for row in 0..all.num_rows() {
            match self.all(&all.slice(row, 1)) {
                Ok(of_row) if of_row.rows.is_empty() => {}
                Ok(of_row) => {
                    batches.extend(of_row.computed);
                    seen.rows.push(row);
                }
                Err(_) => seen.failed.push(row),
            }
        }
        seen.computed = batches.first().and_then(|first| concat_batches(first.schema_ref(), &batches).ok());
        seen
    }
}

/// The rows of a batch that stay, and their numbers.
fn kept(batch: &RecordBatch, rows: &mut Vec<usize>, stay: &BooleanArray) -> Result<RecordBatch, TableError> {
    let mut at = 0..stay.len();
    rows.retain(|_| at.next().is_some_and(|at| stay.is_valid(at) && stay.value(at)));
    Ok(filter_record_batch(batch, stay)?)
}
