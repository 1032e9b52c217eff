//! Parquet, row group by row group.
//!
//! Where row groups and pages end follows from the rows and from [`ParquetOptions`] alone, not from memory: the same rows make the same bytes.

use std::io::Write;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use exobus_store::RowHash;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression as Codec, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde::{Deserialize, Serialize};

use super::SinkError;
use crate::RowHasher;
use crate::semantics::{KeyColumn, Nulls};
use crate::sources::{MemoryBudget, Reservation};

/// Rows of a row group at most: what DuckDB writes, and scans well.
pub const GROUP_ROWS: u64 = 122_880;
/// Bytes of the values of a row group, about, at most.
pub const GROUP_BYTES: u64 = 64 << 20;
/// Rows that are given to the library at a time: pages end where it has looked whether they should.
const ROWS_AT_ONCE: usize = 8192;
/// What the library has besides the pages of a row group: dictionaries, levels and values of the pages that are not full.
const COLUMN_BYTES: u64 = 1 << 20;

/// How pages are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Not at all.
    None,
    /// Snappy, which every reader knows.
    #[default]
    Snappy,
    /// LZ4, as frames without a header.
    Lz4,
    /// Zstandard of this level, 1 to 22.
    Zstd(i32),
}

/// No compression has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no compression: none, snappy, lz4, zstd, or zstd:LEVEL with a level of 1 to 22")]
pub struct UnknownCompression(String);

impl FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(text: &str) -> Result<Self, UnknownCompression> {
        let level = |text: &str| text.parse().ok().filter(|level| (1..=22).contains(level)).map(Self::Zstd);
        let known = match text {
            "none" | "uncompressed" => Some(Self::None),
            "snappy" => Some(Self::Snappy),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd(1)),
            _ => text.strip_prefix("zstd:").and_then(level),
        };
        known.ok_or_else(|| UnknownCompression(text.to_owned()))
    }
}

/// How a file is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParquetOptions {
    /// How pages are compressed.
    pub compression: Compression,
    /// Rows of a row group at most.
    pub group_rows: u64,
    /// Bytes of values of a row group, about, at most.
    pub group_bytes: u64,
}

impl Default for ParquetOptions {
    fn default() -> Self {
        Self { compression: Compression::default(), group_rows: GROUP_ROWS, group_bytes: GROUP_BYTES }
    }
}

/// A file of Parquet that is being written to `W`.
pub struct ParquetSink<W: Write + Send> {
    writer: ArrowWriter<W>,
    hasher: RowHasher,
    options: ParquetOptions,
    /// Of the row group that is being written.
    group: (u64, u64),
    rows: u64,
    row_hash: RowHash,
    memory: Reservation,
    columns: u64,
}

impl<W: Write + Send> ParquetSink<W> {
    /// Begins a file with rows of this schema ([`stored_schema`](crate::semantics::stored_schema) of it for Parquet), in the order of `key` where that has columns. As long as it
    /// is written it takes memory of `budget`: what its row group has so far.
    ///
    /// # Errors
    /// [`SinkError::Memory`]; [`SinkError::Refused`], [`SinkError::Table`]: a type that Parquet does not have.
    pub fn new(
        out: W,
        schema: &SchemaRef,
        key: &[KeyColumn],
        options: &ParquetOptions,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SinkError> {
        let columns = schema.flattened_fields().len() as u64;
        let memory = reserved(Reservation::of(budget, columns * COLUMN_BYTES.min(options.group_bytes)))?;
        let properties = WriterProperties::builder()
            .set_created_by(format!("exobus {}", env!("CARGO_PKG_VERSION")))
            .set_compression(match options.compression {
                Compression::None => Codec::UNCOMPRESSED,
                Compression::Snappy => Codec::SNAPPY,
                Compression::Lz4 => Codec::LZ4_RAW,
                Compression::Zstd(level) => Codec::ZSTD(ZstdLevel::try_new(level).map_err(refused)?),
            })
            .set_max_row_group_row_count(None)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_sorting_columns(sorting(schema, key))
            .build();
        let writer = ArrowWriter::try_new(out, schema.clone(), Some(properties)).map_err(refused)?;
        let (hasher, options) = (RowHasher::new(schema)?, options.clone());
        Ok(Self { writer, hasher, options, group: (0, 0), rows: 0, row_hash: RowHash::default(), memory, columns })
    }

    /// Adds rows, of which `bytes` is the length of their values, behind those that are there.
    ///
    /// # Errors
    /// [`SinkError::Memory`]; [`SinkError::Refused`]: what the library says, also where `W` fails.
    pub fn write(&mut self, batch: &RecordBatch, bytes: u64) -> Result<(), SinkError> {
        self.row_hash += self.hasher.sum(batch)?;
        self.rows += batch.num_rows() as u64;
        let mut from = 0;
        while from < batch.num_rows() {
            let left = (self.options.group_rows - self.group.0) as usize;
            let rows = (batch.num_rows() - from).min(ROWS_AT_ONCE).min(left);
            self.writer.write(&batch.slice(from, rows)).map_err(refused)?;
            from += rows;
            self.group.0 += rows as u64;
            self.group.1 += bytes * rows as u64 / batch.num_rows() as u64;
            if self.group.0 >= self.options.group_rows || self.group.1 >= self.options.group_bytes {
                self.writer.flush().map_err(refused)?;
                self.group = (0, 0);
            }
        }
        let used = self.writer.memory_size() as u64 + self.columns * COLUMN_BYTES.min(self.options.group_bytes);
        reserved(self.memory.at_least(used))
    }

    /// What it is written to.
    pub fn out(&mut self) -> &mut W {
        self.writer.inner_mut()
    }

    /// Writes the footer. Where it was written to, how many rows there are, and the sum of their hashes.
    ///
    /// # Errors
    /// [`SinkError::Refused`]: what the library says, also where `W` fails.
    pub fn finish(self) -> Result<(W, u64, RowHash), SinkError> {
        let (rows, row_hash) = (self.rows, self.row_hash);
        Ok((self.writer.into_inner().map_err(refused)?, rows, row_hash))
    }
}

fn reserved<T>(reserved: Result<T, crate::sources::MemoryDenied>) -> Result<T, SinkError> {
    reserved.map_err(|denied| SinkError::Memory { what: "a row group of Parquet that is written", denied })
}

fn refused(error: ParquetError) -> SinkError {
    SinkError::Refused { format: "parquet", what: error.to_string() }
}

/// The columns of the key that are columns of the file, as far as all before them are.
fn sorting(schema: &SchemaRef, key: &[KeyColumn]) -> Option<Vec<SortingColumn>> {
    let leaves_before =
        |index: usize| -> usize { schema.fields()[..index].iter().map(|field| leaves(field.data_type())).sum() };
    let column = |key: &KeyColumn| {
        let (index, field) = schema.column_with_name(&key.column)?;
        (leaves(field.data_type()) == 1 && !field.data_type().is_nested()).then(|| SortingColumn {
            column_idx: leaves_before(index) as i32,
            descending: key.descending,
            nulls_first: key.nulls == Nulls::First,
        })
    };
    let columns: Vec<SortingColumn> = key.iter().map_while(column).collect();
    (!columns.is_empty()).then_some(columns)
}

/// Columns that Parquet has for one of this type.
fn leaves(data_type: &arrow_schema::DataType) -> usize {
    use arrow_schema::DataType::*;
    match data_type {
        Struct(fields) => fields.iter().map(|field| leaves(field.data_type())).sum(),
        List(of) | LargeList(of) | FixedSizeList(of, _) | ListView(of) | LargeListView(of) | Map(of, _) => {
            leaves(of.data_type())
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int64Array, StringArray, StructArray};
    use arrow_schema::{DataType, Field, Schema};
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;

    use super::*;
    use crate::sources::FixedBudget;

    fn batch(rows: std::ops::Range<i64>) -> RecordBatch {
        let inside: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone()));
        let field = Field::new("a", DataType::Int64, true);
        let nested = StructArray::new(vec![field].into(), vec![inside], None);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("s", Arc::new(nested)),
            ("k", Arc::new(Int64Array::from_iter_values(rows.clone()))),
            ("t", Arc::new(StringArray::from_iter_values(rows.map(|row| format!("row {row}"))))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    /// The bytes of a file of these batches.
    fn written(batches: &[RecordBatch], options: &ParquetOptions) -> Vec<u8> {
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(64 << 20));
        let key = [KeyColumn { descending: true, ..KeyColumn::rising("k") }, KeyColumn::rising("t")];
        let schema = batches[0].schema();
        let mut sink = ParquetSink::new(Vec::new(), &schema, &key, options, &budget).unwrap();
        for batch in batches {
            sink.write(batch, 10 * batch.num_rows() as u64).unwrap();
        }
        let (bytes, rows, row_hash) = sink.finish().unwrap();
        assert_eq!(rows, batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>());
        let hasher = RowHasher::new(&schema).unwrap();
        assert_eq!(row_hash, batches.iter().map(|batch| hasher.sum(batch).unwrap()).sum());
        bytes
    }

    #[test]
    fn row_groups_end_at_so_many_rows_or_bytes_and_files_say_how_they_are_sorted() {
        let groups = |options: ParquetOptions| {
            let bytes = written(&[batch(0..10_000), batch(10_000..10_001), batch(10_001..25_000)], &options);
            let file = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
            let metadata = file.metadata();
            let sorting = metadata.row_group(0).sorting_columns().unwrap();
            assert_eq!(
                sorting.iter().map(|column| (column.column_idx, column.descending)).collect::<Vec<_>>(),
                [(1, true), (2, false)]
            );
            let keys = file.get_row_iter(None).unwrap().map(|row| row.unwrap().get_long(1).unwrap());
            assert!(keys.eq(0..25_000));
            metadata.row_groups().iter().map(|group| group.num_rows()).collect::<Vec<_>>()
        };
        assert_eq!(groups(ParquetOptions { group_rows: 12_000, ..ParquetOptions::default() }), [12_000, 12_000, 1_000]);
        assert_eq!(groups(ParquetOptions::default()), [25_000]);
        let by_bytes = groups(ParquetOptions {
            group_bytes: 80_000,
            compression: Compression::Zstd(3),
            ..ParquetOptions::default()
        });
        assert_eq!(by_bytes.iter().sum::<i64>(), 25_000);
        assert!(by_bytes.len() == 3, "{by_bytes:?}");
    }

    #[test]
    fn what_is_denied_memory_says_so() {
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1000));
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
        let refused = ParquetSink::new(Vec::new(), &schema, &[], &ParquetOptions::default(), &budget).err().unwrap();
        assert!(matches!(refused, SinkError::Memory { .. }), "{refused}");
    }

    #[test]
    fn compressions_have_names() {
        let parse = |text: &str| text.parse::<Compression>();
        assert_eq!((parse("none"), parse("zstd:7")), (Ok(Compression::None), Ok(Compression::Zstd(7))));
        assert!(parse("zstd:23").is_err() && parse("gzip").is_err());
    }
}
