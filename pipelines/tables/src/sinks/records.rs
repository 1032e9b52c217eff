//! The records of the sort benchmark, as [`records`](crate::sources::records) reads them.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_schema::SchemaRef;

use super::{SinkError, check_rows};
use crate::semantics::{FileTypes, check_nulls, stored_schema};
use crate::sources::records::{KEY_BYTES, VALUE_BYTES};

/// Records that are handed on at a time.
const HANDED_RECORDS: usize = 2048;

/// Writes a file of records, of rows with a column of 10 bytes and one of 90, whatever they are called. There is no null among them.
pub struct RecordsSink<W: Write> {
    write: W,
    schema: SchemaRef,
    bytes: Vec<u8>,
    rows: u64,
}

impl<W: Write> RecordsSink<W> {
    /// Writes rows of a schema to `write`.
    ///
    /// # Errors
    /// [`NotRecords`](crate::TableError::NotRecords): the columns are others.
    pub fn new(write: W, schema: &SchemaRef) -> Result<Self, SinkError> {
        let schema = stored_schema(FileTypes::Records, schema)?;
        let bytes = Vec::with_capacity(HANDED_RECORDS * (KEY_BYTES + VALUE_BYTES));
        Ok(Self { write, schema, bytes, rows: 0 })
    }

    /// Writes rows.
    ///
    /// # Errors
    /// Rows of another schema; a null; what `write` says; the file cannot be finished then.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        check_rows(&self.schema, batch)?;
        check_nulls(&self.schema, batch)?;
        let (keys, values) = (batch.column(0).as_fixed_size_binary(), batch.column(1).as_fixed_size_binary());
        for row in 0..batch.num_rows() {
            self.bytes.extend_from_slice(keys.value(row));
            self.bytes.extend_from_slice(values.value(row));
            if self.bytes.len() == HANDED_RECORDS * (KEY_BYTES + VALUE_BYTES) {
                self.hand_on()?;
            }
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn hand_on(&mut self) -> Result<(), SinkError> {
        let written = self.write.write_all(&self.bytes);
        written.map_err(|error| SinkError::Write { format: "records", source: error.into() })?;
        self.bytes.clear();
        Ok(())
    }

    /// Gives back what was written to and how many rows there are.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(mut self) -> Result<(W, u64), SinkError> {
        self.hand_on()?;
        Ok((self.write, self.rows))
    }
}
