//! Which columns of Parquet have no dictionary: those whose first values are of many kinds. To look each of them up costs more than to write it.

use std::collections::HashSet;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use parquet::schema::types::ColumnPath;

use super::border::Border;
use crate::TableError;
use crate::semantics::{KeyColumn, KeyEncoder, KeyRows};

/// So many rows are looked at, the first of a file, and so many bytes of their values; of a larger row nothing but that.
const ROWS_MAX: u64 = 1024;
const BYTES_MAX: u64 = 1 << 20;

/// Where the rows end that are looked at.
pub(super) fn looked_at() -> Border {
    Border::new(ROWS_MAX, BYTES_MAX)
}

/// Columns without others inside of which more than half of the values in these rows are different. It takes as much memory as the rows, for one column at a time.
pub(super) fn of_many_values(schema: &Schema, rows: &[RecordBatch]) -> Result<Vec<ColumnPath>, TableError> {
    let mut paths = Vec::new();
    for field in schema.fields().iter().filter(|field| !field.data_type().is_nested()) {
        // A column whose values have no order has few of them, or none that is written.
        let Ok(encoder) = KeyEncoder::new(schema, &[KeyColumn::rising(field.name())]) else { continue };
        let mut keys = KeyRows::default();
        rows.iter().try_for_each(|batch| encoder.append(batch, &mut keys))?;
        let different: HashSet<&[u8]> = (0..keys.len()).map(|row| keys.get(row)).collect();
        if different.len() > keys.len() / 2 {
            paths.push(ColumnPath::new(vec![field.name().clone()]));
        }
    }
    Ok(paths)
}
