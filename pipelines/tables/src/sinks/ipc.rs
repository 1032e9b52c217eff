//! Arrow IPC, as a file with a directory at its end.

use std::io::Write;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, SchemaRef};

use super::border::Waiting;
use super::{SinkError, check_rows};
use crate::sources::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, MemoryBudget, Reservation};

/// Bytes of memory for a byte of values in a batch: rows that wait, the batch that they become, and its message.
const MEMORY_FACTOR: u64 = 3;
/// Bytes of memory beside batches: the header of one, the directory.
const BESIDE_BYTES: u64 = 64 << 10;

/// Memory for a batch of so many bytes of values.
pub(crate) fn batch_memory(bytes: u64) -> u64 {
    BESIDE_BYTES + MEMORY_FACTOR * bytes
}

/// Writes a file. A batch of it has as many rows, or as many bytes, as it may have, but for the last one; so where batches end follows from the rows alone.
pub struct IpcSink<W: Write> {
    writer: FileWriter<W>,
    schema: SchemaRef,
    waiting: Waiting,
    rows: u64,
    memory: Reservation,
}

impl<W: Write> IpcSink<W> {
    /// Writes rows of a schema, in plain types, to `write`.
    ///
    /// # Errors
    /// Memory that was denied, and what `write` says.
    pub fn new(write: W, schema: &SchemaRef, budget: &Arc<dyn MemoryBudget>) -> Result<Self, SinkError> {
        let memory = Reservation::of(budget, batch_memory(0)).map_err(denied)?;
        let writer = FileWriter::try_new(write, schema).map_err(failed)?;
        let waiting = Waiting::new(BATCH_ROWS_MAX as u64, BATCH_BYTES_MAX);
        Ok(Self { writer, schema: schema.clone(), waiting, rows: 0, memory })
    }

    /// Writes rows. Those of a batch that is not full wait.
    ///
    /// # Errors
    /// Rows of another schema, memory that was denied, and what `write` says; the file cannot be finished then.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        check_rows(&self.schema, batch)?;
        let mut at = 0;
        while at < batch.num_rows() {
            let rows = self.waiting.take(batch, at);
            if rows == 0 {
                self.end_batch()?;
                continue;
            }
            self.memory.at_least(batch_memory(self.waiting.bytes())).map_err(denied)?;
            at += rows;
        }
        self.rows += batch.num_rows() as u64;
        self.waiting.keep_alone(batch.num_rows()).map_err(failed)
    }

    fn end_batch(&mut self) -> Result<(), SinkError> {
        match self.waiting.end(&self.schema).map_err(failed)? {
            Some(batch) => self.writer.write(&batch).map_err(failed),
            None => Ok(()),
        }
    }

    /// Writes the directory, and gives back what was written to and how many rows there are.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(mut self) -> Result<(W, u64), SinkError> {
        self.end_batch()?;
        self.writer.finish().map_err(failed)?;
        Ok((self.writer.into_inner().map_err(failed)?, self.rows))
    }
}

fn denied(denied: crate::sources::MemoryDenied) -> SinkError {
    SinkError::Memory { what: "a batch", denied }
}

fn failed(error: ArrowError) -> SinkError {
    SinkError::Write { format: "arrow", source: error.into() }
}
