//! Files of tables, written front to back within memory that is asked for.
//!
//! - [`ParquetSink`]: row groups whose borders follow from the rows alone;
//! - [`IpcSink`]: Arrow IPC;
//! - [`TextSink`]: CSV and TSV, which may be packed;
//! - [`JsonSink`]: JSON lines, which may be packed, too;
//! - [`RecordsSink`]: those of the sort benchmark;
//! - [`TableSink`]: any of them ([`OutputFormat`]).
//!
//! Promises: bytes of a file follow from schema, rows and options, however rows come in batches, and whatever memory there is; rows come in the types of the schema
//! that is said, which are plain ([`plain`](crate::plain)).

mod border;
mod compression;
mod dictionaries;
mod encoders;
mod ipc;
mod json;
mod packed;
mod parquet;
mod records;
mod table;
mod text;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};

pub use self::compression::{Compression, FileForm, NoRowGroups, NotCompressed, TEXT_ZSTD_MAX, UnknownCompression};
pub(crate) use self::encoders::packing_bytes;
pub use self::ipc::IpcSink;
pub(crate) use self::ipc::batch_memory;
pub use self::json::JsonSink;
pub use self::packed::Packed;
pub(crate) use self::parquet::row_group_memory;
pub use self::parquet::{GROUP_BYTES, GROUP_ROWS, ParquetOptions, ParquetSink, SortedColumn};
pub use self::records::RecordsSink;
pub use self::table::{OutputFormat, SinkOptions, TableSink};
pub use self::text::TextSink;
pub(crate) use self::text::{as_text, as_text_bytes, date_text, field_text};
use crate::TableError;
use crate::sources::MemoryDenied;

/// Why rows could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// There is no memory for what is written at a time.
    #[error("writing {what} takes {} bytes more of memory, which were denied: give more memory, or write fewer files at a time", denied.wanted)]
    Memory {
        /// What the memory is for.
        what: &'static str,
        /// How many bytes were asked for.
        denied: MemoryDenied,
    },
    /// A type that the format cannot hold.
    #[error("column {column} is {}, which {format} cannot hold: {what}", crate::sources::print_type(.data_type))]
    NoSuchType {
        /// Name of the column.
        column: String,
        /// Its type.
        data_type: DataType,
        /// The format.
        format: &'static str,
        /// What to do.
        what: &'static str,
    },
    /// A value that the format cannot hold.
    #[error("row {row} of the file, from 0, has {value} in column {column}, which {format} cannot hold: {what}")]
    NoSuchValue {
        /// Which row of the file, from 0.
        row: u64,
        /// Path of names from the top, with dots.
        column: String,
        /// The value.
        value: String,
        /// The format.
        format: &'static str,
        /// What to do.
        what: &'static str,
    },
    /// Rows of another schema.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Whoever takes the bytes has failed, or the library that makes them.
    #[error("{format} could not be written: {source}")]
    Write {
        /// The format.
        format: &'static str,
        /// What was said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Refuses rows whose columns are not of the types of a schema.
fn check_rows(schema: &Schema, batch: &RecordBatch) -> Result<(), SinkError> {
    let (expected, found) = (schema.fields().len(), batch.num_columns());
    if expected != found {
        return Err(TableError::ColumnsDiffer { expected, found }.into());
    }
    let rows = batch.schema();
    let differs = schema.fields().iter().zip(rows.fields()).find(|(one, other)| one.data_type() != other.data_type());
    match differs {
        Some((one, other)) => Err(TableError::TypeDiffers {
            column: one.name().clone(),
            expected: one.data_type().clone(),
            found: other.data_type().clone(),
        }
        .into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod round_trips;
#[cfg(test)]
mod tests;
