//! The records of the sort benchmark: 100 bytes each, of which the first 10 are the key.

use std::sync::{Arc, LazyLock};

use arrow_array::{ArrayRef, FixedSizeBinaryArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use exobus_shuffle::records::RECORD_BYTES;

use super::batches::{BATCH_ROWS_MAX, Pending, cut, next_batch};
use super::format::unknown_extension;
use super::memory::{MemoryBudget, Reservation};
use super::{InputFile, Place, SourceBatch, SourceError, Split};

/// Name of the column of keys.
pub const KEY: &str = "key";
/// Bytes of a key.
pub const KEY_BYTES: usize = 10;
/// Bytes of a value.
pub const VALUE_BYTES: usize = RECORD_BYTES - KEY_BYTES;
/// Records of a split: 64 MiB of them.
const SPLIT_RECORDS: u64 = (64 << 20) / RECORD_BYTES as u64;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let field = |name, bytes: usize| Field::new(name, DataType::FixedSizeBinary(bytes as i32), false);
    Arc::new(Schema::new(vec![field(KEY, KEY_BYTES), field("value", VALUE_BYTES)]))
});

/// Columns and types of all such files: `key` of 10 bytes and `value` of 90, without nulls.
pub fn schema() -> &'static SchemaRef {
    &SCHEMA
}

/// A file of records.
#[derive(Clone, Debug)]
pub struct RecordsFile {
    file: InputFile,
}

impl RecordsFile {
    /// Looks at how long a file is.
    ///
    /// # Errors
    /// [`SourceError::OtherFormat`], [`SourceError::NotKnown`]: its bytes are no whole number of records.
    pub fn open(file: InputFile) -> Result<Self, SourceError> {
        let (bytes, more) = (file.len(), file.len() % RECORD_BYTES as u64);
        if more != 0 {
            let name = file.name().clone();
            if let Some(what) = unknown_extension(&name) {
                let records = format!("no file of records, either, as its {bytes} bytes are no whole number of these");
                return Err(SourceError::NotKnown { file: name, what: format!("{what}; it is {records}") });
            }
            let what = format!(
                "its {bytes} bytes are no whole number of records of {RECORD_BYTES} bytes, {more} are left over; \
                 say --input-format if it has something else"
            );
            return Err(SourceError::OtherFormat { file: name, format: "records", what });
        }
        Ok(Self { file })
    }

    /// The file.
    pub fn file(&self) -> &InputFile {
        &self.file
    }

    /// Every 64 MiB, in whole records; one where there is no record.
    pub fn splits(&self) -> Vec<Split> {
        let records = self.file.len() / RECORD_BYTES as u64;
        let count = records.div_ceil(SPLIT_RECORDS).max(1) as usize;
        let split = |index: usize| {
            let rows = (records - index as u64 * SPLIT_RECORDS).min(SPLIT_RECORDS);
            Split { index, bytes: rows * RECORD_BYTES as u64, rows: Some(rows) }
        };
        (0..count).map(split).collect()
    }

    /// The rows of a split: those columns of [`schema`], in that order; all where none are said. Bounded batches, in the order of the file.
    ///
    /// # Panics
    /// There is no such split, or no such column.
    pub fn read(&self, split: usize, columns: Option<&[usize]>, budget: &Arc<dyn MemoryBudget>) -> RecordsRows {
        let columns = columns.map_or_else(|| vec![0, 1], <[usize]>::to_vec);
        let schema = Arc::new(schema().project(&columns).expect("columns of records"));
        let rows = self.splits()[split].rows.expect("how many records there are is known");
        let (file, budget) = (self.file.clone(), budget.clone());
        RecordsRows { file, split, columns, schema, at: 0, rows, budget, pending: Pending::default() }
    }
}

/// Rows of a split.
pub struct RecordsRows {
    file: InputFile,
    split: usize,
    columns: Vec<usize>,
    schema: SchemaRef,
    /// The row of the split that is read next, and how many it has.
    at: u64,
    rows: u64,
    budget: Arc<dyn MemoryBudget>,
    pending: Pending,
}

impl RecordsRows {
    /// Reads a batch.
    fn read_on(&mut self) -> Result<(), SourceError> {
        let rows = (self.rows - self.at).min(BATCH_ROWS_MAX as u64);
        if rows == 0 {
            self.pending.is_over = true;
            return Ok(());
        }
        let bytes_of = |rows: u64| rows * RECORD_BYTES as u64;
        let denied = |denied| SourceError::Memory {
            file: self.file.name().clone(),
            place: Place::Row(self.split, self.at),
            what: "a batch of records",
            denied,
        };
        // As columns, and for now as they are read.
        let memory = Reservation::of(&self.budget, bytes_of(rows)).map_err(denied)?;
        let _as_read = Reservation::of(&self.budget, bytes_of(rows)).map_err(denied)?;
        let from = bytes_of(self.split as u64 * SPLIT_RECORDS + self.at);
        let (buffer, begin) = self.file.read_once(from..from + bytes_of(rows))?;
        let records = &buffer[begin..][..bytes_of(rows) as usize];
        let columns = self.columns.iter().map(|column| column_of(records, *column)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows as usize));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options);
        let batch =
            batch.map_err(|error| SourceError::Table { file: self.file.name().clone(), error: error.into() })?;
        self.pending.ready.extend(cut(&batch, self.split, self.at, memory));
        self.at += rows;
        Ok(())
    }
}

/// Keys, or values, of records that stand one behind the other.
fn column_of(records: &[u8], column: usize) -> ArrayRef {
    let range = [0..KEY_BYTES, KEY_BYTES..RECORD_BYTES][column].clone();
    let mut bytes = Vec::with_capacity(records.len() / RECORD_BYTES * range.len());
    for record in records.chunks_exact(RECORD_BYTES) {
        bytes.extend_from_slice(&record[range.clone()]);
    }
    Arc::new(FixedSizeBinaryArray::new(range.len() as i32, Buffer::from_vec(bytes), None))
}

impl Iterator for RecordsRows {
    type Item = Result<SourceBatch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        next_batch(self, |rows| &mut rows.pending, Self::read_on)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;

    use super::super::FixedBudget;
    use super::*;
    use crate::samples::MemoryFile;

    /// Records of which each has its number at the beginning of its key and at the end of its value.
    fn records(count: u32) -> Vec<u8> {
        let record = |number: u32| {
            let mut record = vec![b'.'; RECORD_BYTES];
            record[..4].copy_from_slice(&number.to_be_bytes());
            record[RECORD_BYTES - 4..].copy_from_slice(&number.to_be_bytes());
            record
        };
        (0..count).flat_map(record).collect()
    }

    fn budget(bytes: u64) -> Arc<dyn MemoryBudget> {
        Arc::new(FixedBudget::new(bytes))
    }

    #[test]
    fn records_are_rows_of_keys_and_values_whatever_columns_are_read() {
        // More than a split and a batch.
        let count = SPLIT_RECORDS as u32 + 70_000;
        let file = RecordsFile::open(MemoryFile::input("part-00000", records(count))).unwrap();
        let rows: Vec<_> = file.splits().iter().map(|split| split.rows.unwrap()).collect();
        assert_eq!(rows, [SPLIT_RECORDS, 70_000]);
        let budget = budget(16 << 20);
        for columns in [None, Some(&[1, 0][..]), Some(&[1]), Some(&[])] {
            let mut next = 0_u64;
            for split in file.splits() {
                let before = next;
                for batch in file.read(split.index, columns, &budget) {
                    let batch = batch.unwrap();
                    assert_eq!((batch.split, batch.first_row), (split.index, next - before));
                    for (number, field) in batch.batch.schema().fields().iter().enumerate() {
                        let of = batch.batch.column(number).as_fixed_size_binary();
                        for row in 0..of.len() {
                            let number = (next as u32 + row as u32).to_be_bytes();
                            match field.name().as_str() {
                                KEY => assert!(of.value(row).starts_with(&number) && of.value(row).len() == KEY_BYTES),
                                _ => assert!(of.value(row).ends_with(&number) && of.value(row).len() == VALUE_BYTES),
                            }
                        }
                    }
                    next += batch.batch.num_rows() as u64;
                }
            }
            assert_eq!(next, u64::from(count));
        }
    }

    #[test]
    fn a_file_of_other_lengths_is_refused_and_one_without_a_record_is_empty() {
        let mut bytes = records(3);
        bytes.pop();
        let error = RecordsFile::open(MemoryFile::input("part-00007", bytes)).unwrap_err().to_string();
        assert!(
            error.contains("part-00007") && error.contains("299 bytes") && error.contains("--input-format"),
            "{error}"
        );
        let empty = RecordsFile::open(MemoryFile::input("part-00000", Vec::new())).unwrap();
        assert_eq!(empty.splits(), [Split { index: 0, bytes: 0, rows: Some(0) }]);
        assert_eq!(empty.read(0, None, &budget(0)).count(), 0);
    }

    #[test]
    fn a_batch_takes_memory_that_is_granted() {
        let file = RecordsFile::open(MemoryFile::input("part-00000", records(70_000))).unwrap();
        let of = FixedBudget::new(12 << 20);
        let error = file.read(0, None, &(Arc::new(of) as Arc<dyn MemoryBudget>)).next().unwrap().unwrap_err();
        assert!(matches!(&error, SourceError::Memory { what: "a batch of records", .. }), "{error}");
    }
}
