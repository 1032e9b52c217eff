//! How files are cut, and how large the pieces are.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, FieldRef};
use exobus_actors::registry::TaskError;
use parquet::basic::Type;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

use crate::jobs::budget::TaskBudget;
use crate::jobs::described::DescribedSplit;
use crate::look::Value;
use crate::reading::ReadOptions;
use crate::sources::parquet::ParquetFile;
use crate::sources::text::{Packing, SPLIT_BYTES, SPLIT_BYTES_MIN};
use crate::sources::{Source, SourceError, Split, array_bytes};

/// Packed text is taken to be so many times as large.
const PACKED: u64 = 8;
/// Rows and bytes that no split has: footers say what they like, and sums of many must fit.
const SPLIT_MAX: (u64, u64) = (u32::MAX as u64, 1 << 44);

/// How many blocks the files of a table have, about, that do not say where rows are.
const BLOCKS: u64 = 1_000;

/// Bytes of a block of a table whose files of text and of Arrow have so many bytes together.
pub(in crate::jobs) fn block_bytes(bytes: u64) -> u64 {
    (bytes / BLOCKS).clamp(SPLIT_BYTES_MIN, SPLIT_BYTES)
}

/// How a file is cut.
pub(super) fn splits(
    source: &Source,
    reading: &ReadOptions,
    budget: &Arc<TaskBudget>,
) -> Result<Vec<DescribedSplit>, TaskError> {
    let folder_bytes = bytes_of_folders(source, reading).map_err(|error| budget.of_source(error))?;
    let states = source.states(&budget.shared()).map_err(|error| budget.of_source(error))?;
    let splits = source.splits().map_err(|error| budget.of_source(error))?;
    let split = |split: Split| {
        let value_bytes = match source {
            Source::Parquet(file) => bytes_of_group(file.metadata().row_group(split.index), reading),
            // Small numbers take more room than their text.
            Source::Text(file) if file.packing() == Packing::None => split.bytes.saturating_mul(2),
            Source::Json(file) if file.packing() == Packing::None => split.bytes.saturating_mul(2),
            Source::Text(_) | Source::Json(_) => split.bytes.saturating_mul(PACKED),
            Source::Ipc(_) | Source::Records(_) => split.bytes,
        };
        let (rows_max, bytes_max) = SPLIT_MAX;
        if value_bytes > bytes_max || split.rows.is_some_and(|rows| rows > rows_max) {
            let (file, what) = (source.file().name(), "it says that it has more rows or bytes than any file has");
            return Err(TaskError::data(format!("{file}, row group {}: {what}", split.index)));
        }
        let state = states.get(split.index).copied();
        let of_file = DescribedSplit { value_bytes, rows: split.rows, state, is_left_out: false };
        Ok(DescribedSplit { value_bytes: value_bytes + of_file.rows_about() * folder_bytes, ..of_file })
    };
    splits.into_iter().map(split).collect()
}

/// Where runs of pages begin in each row group, of so many rows each at least.
pub(super) fn runs(
    file: &ParquetFile,
    (reading, rows_min): (&ReadOptions, u64),
    budget: &Arc<TaskBudget>,
) -> Result<Vec<Vec<u64>>, TaskError> {
    let named = file.schema().fields().iter().enumerate();
    let columns: Vec<usize> =
        named.filter(|(_, field)| reading.reads(field.name())).map(|(column, _)| column).collect();
    let groups = 0..file.metadata().num_row_groups();
    let of_group = |group| file.runs(group, (&columns, rows_min), &budget.shared());
    groups.map(of_group).collect::<Result<_, _>>().map_err(|error| budget.of_source(error))
}

/// Between which numbers values of these columns are, as footers say; `None`: they do not, or a value may be no number. Nothing is said of floats, since a NaN is in no statistics.
pub(super) fn extents(source: &Source, reading: &ReadOptions, columns: &[String]) -> Vec<Option<(f64, f64)>> {
    let of = |column: &String| {
        let Source::Parquet(file) = source else { return None };
        // What is computed may have the name of a column.
        match &reading.computed {
            None => extent(file, column),
            Some(computed) => extent(file, computed.unchanged(column)?),
        }
    };
    columns.iter().map(of).collect()
}

fn extent(file: &ParquetFile, column: &str) -> Option<(f64, f64)> {
    let (number, field) = file.schema().column_with_name(column)?;
    let is_decimal = matches!(field.data_type(), DataType::Decimal128(..) | DataType::Decimal256(..));
    if !(is_decimal || field.data_type().is_integer()) {
        return None;
    }
    let said = file.statistics(number)?;
    let number = |array: &ArrayRef, group: usize| match Value::of(array, group).into_json() {
        // Decimals are texts.
        serde_json::Value::String(text) => text.parse::<f64>().ok(),
        number => number.as_f64(),
    };
    let mut extent = None;
    for group in 0..file.metadata().num_row_groups() {
        let rows = u64::try_from(file.metadata().row_group(group).num_rows()).ok()?;
        if said.nulls.is_valid(group) && said.nulls.value(group) == rows {
            continue;
        }
        // As floats they may have been rounded.
        let (low, high) = (number(&said.least, group)?.next_down(), number(&said.greatest, group)?.next_up());
        extent = Some(extent.map_or((low, high), |(least, most): (f64, f64)| (least.min(low), most.max(high))));
    }
    // Of no values all are between any numbers.
    Some(extent.unwrap_or((0.0, 0.0)))
}

/// Bytes that a row has of the columns that folders are, of those that are read.
fn bytes_of_folders(source: &Source, reading: &ReadOptions) -> Result<u64, SourceError> {
    let columns = source.file().folder_columns(&reading.folder_types()?)?;
    let is_read = |(field, _): &&(FieldRef, ArrayRef)| reading.reads(field.name());
    Ok(columns.iter().filter(is_read).map(|(_, value)| array_bytes(value.as_ref(), 0..1)).sum())
}

/// Bytes that the values of a row group have in memory, of the columns that are read: sizes in the file are of dictionaries and runs.
fn bytes_of_group(group: &RowGroupMetaData, reading: &ReadOptions) -> u64 {
    let size = |figure: i64| u64::try_from(figure).unwrap_or(u64::MAX);
    let of_column = |column: &ColumnChunkMetaData| {
        let values = size(column.num_values());
        let width = match column.column_type() {
            Type::BOOLEAN => 1,
            Type::INT32 | Type::FLOAT => 4,
            Type::INT64 | Type::DOUBLE => 8,
            Type::INT96 => 12,
            Type::FIXED_LEN_BYTE_ARRAY => size(column.column_descr().type_length().into()),
            Type::BYTE_ARRAY => {
                let said = column.unencoded_byte_array_data_bytes().map(size);
                return said.unwrap_or(size(column.uncompressed_size())).saturating_add(values.saturating_mul(16));
            }
        };
        values.saturating_mul(width)
    };
    let is_read =
        |column: &&ColumnChunkMetaData| column.column_path().parts().first().is_some_and(|name| reading.reads(name));
    let of_columns = group.columns().iter().filter(is_read).map(of_column).fold(0, u64::saturating_add);
    match reading.select {
        None => of_columns.max(size(group.total_byte_size())),
        Some(_) => of_columns,
    }
}
