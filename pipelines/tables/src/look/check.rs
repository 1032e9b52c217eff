//! Whether the rows of a table are in order, how many there are, and their hash.

use std::sync::Arc;

use exobus_store::RowHash;

use super::Look;
use crate::reading::{Reading, TableReader};
use crate::semantics::{FileTypes, KeyColumn, KeyEncoder, KeyRows, conformed, stored_schema};
use crate::sources::{Place, Reservation, SourceError};
use crate::{RowHasher, TableError};

/// What [`Look::check`] has found.
#[derive(Clone, Debug, Default)]
pub struct CheckedTable {
    /// Each file, in the order that was given.
    pub files: Vec<CheckedFile>,
    /// How many rows, of those that meet the condition.
    pub rows: u64,
    /// The sum of their hashes (law 1), of the types that Parquet has for them: the same whatever the format is.
    pub row_hash: RowHash,
    /// How many rows have the key of the row before.
    pub duplicate_keys: u64,
    /// How many rows have a smaller key than the row before.
    pub unordered: u64,
    /// The first of these.
    pub first_unordered: Option<Unordered>,
}

/// A file that was read to its end.
#[derive(Clone, Debug)]
pub struct CheckedFile {
    /// What it is called.
    pub name: String,
    /// How many rows were read of it.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// A row whose key is smaller than that of the row before, which may be the last one of another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unordered {
    /// Its file.
    pub file: String,
    /// Its number in there, of those that meet the condition, from 0.
    pub row: u64,
    /// Where it is, as errors say it.
    pub place: Place,
}

impl Look {
    /// Reads all rows, those of a batch at a time. `key`: the columns that decide their order, the first one first; none: their order is not looked at.
    ///
    /// # Errors
    /// Those of [`schema`](Self::schema) and of reading; a key column that is not there, not selected, or has no order.
    pub fn check(&self, key: &[KeyColumn]) -> Result<CheckedTable, SourceError> {
        let (options, table) = self.table()?;
        let failed = |error: TableError| self.failed(error);
        let reading = Reading::new(options, &table).map_err(failed)?;
        let selected = reading.options.selected(&table, key).map_err(failed)?;
        // As tables are on their way through jobs; what Parquet has not stays as it is.
        let columns = stored_schema(FileTypes::Parquet, &selected).unwrap_or_else(|_| Arc::new(selected));
        let hasher = RowHasher::new(&columns).map_err(failed)?;
        let encoder = (!key.is_empty()).then(|| KeyEncoder::new(&columns, key)).transpose().map_err(failed)?;
        let (mut checked, mut last) = (CheckedTable::default(), None::<Vec<u8>>);
        let reader = TableReader::new(&reading, &columns, &self.budget).map_err(failed)?;
        for listed in &self.files {
            let opened = self.open(listed, &reading, &table, &reader)?;
            let source = opened.file.source();
            let name = source.file().name().to_string();
            let here = |error| SourceError::Table { file: source.file().name().clone(), error };
            let mut rows_read = 0;
            for rows in opened.file.all_rows(&opened.left_out)? {
                let rows = rows?;
                let hashes = hasher.scratch_bytes(rows.batch.num_rows());
                let mut memory =
                    Reservation::of(&self.budget, hashes).map_err(|denied| self.denied(source, denied, "hashes"))?;
                let batch = conformed(&rows.batch, &columns).map_err(|error| opened.file.row_error(&rows, error))?;
                checked.row_hash += hasher.sum(&batch).map_err(here)?;
                if let Some(encoder) = &encoder {
                    let measured = encoder.measure(&batch).map_err(here)?;
                    let bytes = measured.bytes().map_err(here)?;
                    memory.resize(bytes).map_err(|denied| self.denied(source, denied, "keys"))?;
                    let keys = measured.encode().map_err(here)?;
                    let unordered = checked.compare_all(&mut last, &keys);
                    if let (Some(row), None) = (unordered, &checked.first_unordered) {
                        let place = opened.file.place_of(&rows, row)?;
                        let (file, row) = (name.clone(), rows_read + row as u64);
                        checked.first_unordered = Some(Unordered { file, row, place });
                    }
                }
                rows_read += batch.num_rows() as u64;
            }
            checked.rows += rows_read;
            checked.files.push(CheckedFile { name, rows: rows_read, bytes: listed.status.bytes });
        }
        Ok(checked)
    }
}

impl CheckedTable {
    /// Compares the keys of rows, each with the one before: the first one with `last`, which is the last one of them then. The first row whose key is smaller.
    fn compare_all(&mut self, last: &mut Option<Vec<u8>>, keys: &KeyRows) -> Option<usize> {
        let mut first = None;
        for row in 0..keys.len() {
            let before = if row == 0 { last.as_deref() } else { Some(keys.get(row - 1)) };
            match before.map(|before| before.cmp(keys.get(row))) {
                Some(std::cmp::Ordering::Greater) => {
                    self.unordered += 1;
                    first.get_or_insert(row);
                }
                Some(std::cmp::Ordering::Equal) => self.duplicate_keys += 1,
                _ => (),
            }
        }
        if let Some(row) = keys.len().checked_sub(1) {
            *last = Some(keys.get(row).to_vec());
        }
        first
    }
}
