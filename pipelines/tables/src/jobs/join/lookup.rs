//! A small table by a key that no two of its rows have, for who looks rows up in it while it reads another table. Which keys are the same is as of all joins: a null is like none.

use std::path::PathBuf;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array as _, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take;
use exobus_files::{Location, visit_files};

use super::found::Found;
use crate::TableError;
use crate::jobs::budget::Unordered;
use crate::look::Look;
use crate::reading::ReadOptions;
use crate::semantics::{KeyColumn, KeyEncoder};
use crate::sources::{ListedFile, MemoryBudget, Place, Reservation, SourceError, value_bytes};

/// See the module.
pub struct Lookup {
    rows: RecordBatch,
    /// The columns that are the key, among those of who looks up.
    key: SchemaRef,
    encoder: KeyEncoder,
    found: Mutex<Found>,
    is_unique: bool,
    _memory: Reservation,
}

impl Lookup {
    /// Of all rows of the files of a folder that have no null in these columns. `as_seen`: makes of rows, as they are read, what whoever looks up sees of them, of one schema.
    ///
    /// # Errors
    /// Those of reading; more memory is needed than there is; columns that are not there, or no key.
    pub fn read(
        folder: &PathBuf,
        key: &[String],
        as_seen: impl Fn(&RecordBatch) -> Result<RecordBatch, TableError>,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SourceError> {
        let name: Arc<str> = folder.display().to_string().into();
        let table = |error: TableError| SourceError::Table { file: name.clone(), error };
        let unordered = |error: Unordered| match error {
            Unordered::Table(error) => table(error),
            Unordered::Memory(denied) => SourceError::Memory {
                file: name.clone(),
                place: Place::Row(0, 0),
                what: "a table in which rows are looked up",
                denied,
            },
        };
        let denied = |denied| unordered(Unordered::Memory(denied));
        let mut files = Vec::new();
        visit_files::<SourceError>(
            (slice::from_ref(folder), false),
            |_| Ok(()),
            |location: &Location, status| {
                files.push(ListedFile { location: location.clone(), status, below: 0 });
                Ok(())
            },
        )?;
        let reading = ReadOptions { hive: Some(false), ..ReadOptions::default() };
        let read = Look::new(files, reading, budget.clone())?.first_rows(usize::MAX)?;
        let bytes = read.batches.iter().map(|batch| value_bytes(batch, 0..batch.num_rows())).sum();
        let mut memory = Reservation::of(budget, bytes).map_err(denied)?;
        let none = as_seen(&RecordBatch::new_empty(read.schema.clone())).map_err(table)?;
        let seen = read.batches.iter().map(as_seen).collect::<Result<Vec<_>, _>>().map_err(table)?;
        let seen = concat_batches(none.schema_ref(), &seen).map_err(|error| table(error.into()))?;
        drop(read);
        memory.at_least(seen.get_array_memory_size() as u64).map_err(denied)?;
        let columns = key.iter().map(|name| seen.schema_ref().index_of(name)).collect::<Result<Vec<_>, _>>();
        let columns = columns.map_err(|error| table(error.into()))?;
        let rows = match without_nulls(columns.iter().map(|column| seen.column(*column))) {
            None => seen,
            Some(stay) => filter_record_batch(&seen, &stay).map_err(|error| table(error.into()))?,
        };
        let key = Arc::new(rows.schema_ref().project(&columns).map_err(|error| table(error.into()))?);
        let encoder = encoder(&key).map_err(table)?;
        let keys = rows.project(&columns).map_err(|error| table(error.into()))?;
        let found = Found::of(vec![keys], &encoder, budget).map_err(unordered)?;
        let is_unique = found.is_unique();
        Ok(Self { rows, key, encoder, found: Mutex::new(found), is_unique, _memory: memory })
    }

    /// Whether no two rows have the same key.
    pub fn is_unique(&self) -> bool {
        self.is_unique
    }

    /// Bytes of the values that the largest row has in these columns.
    ///
    /// # Errors
    /// There is no such column.
    pub fn largest_row(&self, columns: &[String]) -> Result<u64, TableError> {
        let columns =
            columns.iter().map(|name| self.rows.schema_ref().index_of(name)).collect::<Result<Vec<_>, _>>()?;
        let given = self.rows.project(&columns)?;
        Ok((0..given.num_rows()).map(|row| value_bytes(&given, row..row + 1)).max().unwrap_or(0))
    }

    /// Where the row is that has each of these keys, whose columns are those of the key in their order; null where there is none. Of rows with one key it is the first.
    ///
    /// # Errors
    /// Columns of other types; keys that are too large.
    pub fn places(&self, keys: Vec<ArrayRef>) -> Result<UInt32Array, TableError> {
        let stay = without_nulls(keys.iter());
        let keys = RecordBatch::try_new(self.key.clone(), keys)?;
        let encoded = self.encoder.encode(&keys)?.into_array()?;
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let has_null = |row: usize| stay.as_ref().is_some_and(|stay| !stay.value(row));
        Ok(found.first_of(&encoded).enumerate().map(|(row, place)| place.filter(|_| !has_null(row))).collect())
    }

    /// Values of a column at these places: null where there is no place.
    ///
    /// # Errors
    /// There is no such column.
    pub fn column(&self, name: &str, places: &UInt32Array) -> Result<ArrayRef, TableError> {
        let column = self.rows.column(self.rows.schema_ref().index_of(name)?);
        Ok(take(column, places, None)?)
    }
}

fn encoder(key: &Schema) -> Result<KeyEncoder, TableError> {
    let columns: Vec<KeyColumn> = key.fields().iter().map(|field| KeyColumn::rising(field.name())).collect();
    KeyEncoder::new(key, &columns)
}

/// Rows that have no null in these columns; `None`: all.
fn without_nulls<'a>(columns: impl Iterator<Item = &'a ArrayRef>) -> Option<BooleanArray> {
    let nulls = columns.filter_map(|column| column.logical_nulls()).filter(|nulls| nulls.null_count() > 0);
    let both = |one: BooleanBuffer, other: BooleanBuffer| &one & &other;
    nulls.map(|nulls| nulls.into_inner()).reduce(both).map(|stay| BooleanArray::new(stay, None))
}
