//! Parquet, a row group at a time.

use std::io::Write;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::SchemaDescriptor;

use super::border::{Border, Waiting};
use super::dictionaries::{looked_at, of_many_values};
use super::encoders::{LARGE_BYTES, PAGE_BYTES, encoder_bytes, encoders_bytes, largest_page, passing_bytes};
use super::{Compression, SinkError, check_rows};
use crate::sources::{MemoryBudget, Reservation, array_bytes, larger_row};

/// Most rows of a row group.
pub const GROUP_ROWS: u64 = 122_880;
/// Most bytes of values in a row group that has more than one row.
pub const GROUP_BYTES: u64 = 64 << 20;
/// Bytes of memory for a column beside its pages: tables of dictionaries, statistics.
const COLUMN_BYTES: u64 = 64 << 10;

/// Rows that the library is given at a time, and most bytes of their values: behind these it looks whether a page ends. Were they those that a caller has at a time, pages would follow from that.
const STRIP_ROWS: u64 = 1024;
const STRIP_BYTES: u64 = 1 << 20;
/// Bytes of memory for a byte of values in a strip: rows that wait, and the batch that they become.
const STRIP_FACTOR: u64 = 2;

/// Values of a column that statistics have copies of meanwhile.
const STATISTICS_VALUES: u64 = 5;

/// How Parquet is written.
#[derive(Clone, Debug)]
pub struct ParquetOptions {
    /// The codec of pages.
    pub compression: Compression,
    /// The columns that rows are sorted by, which readers are told; those behind the first that has others inside are not told.
    pub sorted_by: Vec<SortedColumn>,
    /// Most rows of a row group.
    pub group_rows: u64,
}

impl Default for ParquetOptions {
    fn default() -> Self {
        Self { compression: Compression::Snappy, sorted_by: Vec::new(), group_rows: GROUP_ROWS }
    }
}

/// A column that rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortedColumn {
    /// Which column of the table.
    pub column: usize,
    /// From the largest to the smallest.
    pub falling: bool,
    /// Nulls before all values.
    pub nulls_first: bool,
}

/// Writes a file. A row group is written when it has as many rows, or as many bytes, as it may have: never earlier, so memory that is denied is an error and no
/// smaller row group.
pub struct ParquetSink<W: Write + Send> {
    file: File<W>,
    schema: SchemaRef,
    columns: Columns,
    border: Border,
    /// Rows that wait to be given to the library.
    strip: Waiting,
    rows: u64,
    memory: Reservation,
}

/// A file, of which the first rows say how it is written.
enum File<W: Write + Send> {
    /// They wait.
    Begun(Box<Begun<W>>),
    Open(Box<ArrowWriter<W>>),
    /// It could not be opened, and nothing is written any more.
    Failed,
}

/// What encoders take follows from this.
struct Columns {
    compression: Compression,
    of_table: Vec<Column>,
}

/// A column of the table in the row group that is being written.
#[derive(Clone, Debug, Default)]
struct Column {
    /// How many columns the file has for it.
    leaves: u64,
    /// Bytes of its values.
    bytes: u64,
    /// Bytes of the largest of its rows that are large; 0 where none is.
    largest: u64,
}

struct Begun<W> {
    write: W,
    properties: WriterPropertiesBuilder,
    /// The rows that are looked at, and where they end.
    rows: Vec<RecordBatch>,
    border: Border,
}

impl<W: Write + Send> ParquetSink<W> {
    /// Writes rows of a schema, in plain types, to `write`; metadata of the schema and its fields are kept.
    ///
    /// # Errors
    /// Memory that was denied; a type that Parquet does not have.
    pub fn new(
        write: W,
        schema: &SchemaRef,
        options: &ParquetOptions,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SinkError> {
        let parquet = ArrowSchemaConverter::new().convert(schema).map_err(failed)?;
        let columns = Columns::new(schema.fields().len(), &parquet, options.compression);
        let leaf_of = |column: usize| {
            let mut leaves = (0..parquet.num_columns()).filter(|leaf| parquet.get_column_root_idx(*leaf) == column);
            leaves.next().filter(|_| !schema.field(column).data_type().is_nested())
        };
        let sorted = options.sorted_by.iter().map_while(|of| {
            let column_idx = i32::try_from(leaf_of(of.column)?).ok()?;
            Some(SortingColumn { column_idx, descending: of.falling, nulls_first: of.nulls_first })
        });
        let sorted: Vec<_> = sorted.collect();
        let mut pairs: Vec<_> =
            schema.metadata().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
        pairs.sort_by(|one, other| one.key.cmp(&other.key));
        let properties = WriterProperties::builder()
            .set_created_by("exobus".to_owned())
            .set_compression(options.compression.codec())
            .set_data_page_size_limit(PAGE_BYTES as usize)
            .set_dictionary_page_size_limit(PAGE_BYTES as usize)
            .set_sorting_columns((!sorted.is_empty()).then_some(sorted))
            .set_key_value_metadata((!pairs.is_empty()).then_some(pairs))
            // These are ended here.
            .set_max_row_group_row_count(None)
            .set_write_batch_size(STRIP_ROWS as usize);
        let memory = Reservation::of(budget, columns.foretold(0)).map_err(denied)?;
        let file = File::Begun(Box::new(Begun { write, properties, rows: Vec::new(), border: looked_at() }));
        let border = Border::new(options.group_rows, GROUP_BYTES);
        let strip = Waiting::new(STRIP_ROWS, STRIP_BYTES);
        Ok(Self { file, schema: schema.clone(), columns, border, strip, rows: 0, memory })
    }

    /// Writes rows.
    ///
    /// # Errors
    /// Rows of another schema, memory that was denied, and what `write` says; the file cannot be finished then.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        check_rows(&self.schema, batch)?;
        self.rows += batch.num_rows() as u64;
        let mut from = 0;
        if let File::Begun(begun) = &mut self.file {
            from = begun.border.take(batch, 0);
            // What waits is there beside what it becomes.
            let bytes = 2 * begun.border.bytes() + self.columns.foretold(0);
            self.memory.at_least(bytes).map_err(denied)?;
            begun.rows.push(batch.slice(0, from));
            if from == batch.num_rows() {
                return Ok(());
            }
            self.open()?;
        }
        self.write_rows(&batch.slice(from, batch.num_rows() - from))?;
        self.strip.keep_alone(batch.num_rows()).map_err(in_memory)
    }

    /// Opens the file as the rows that wait say, and writes them.
    fn open(&mut self) -> Result<(), SinkError> {
        let begun = match std::mem::replace(&mut self.file, File::Failed) {
            File::Begun(begun) => begun,
            other => {
                self.file = other;
                return Ok(());
            }
        };
        let Begun { write, mut properties, rows, .. } = *begun;
        for path in of_many_values(&self.schema, &rows)? {
            properties = properties.set_column_dictionary_enabled(path, false);
        }
        let options = ArrowWriterOptions::new().with_properties(properties.build());
        let writer = ArrowWriter::try_new_with_options(write, self.schema.clone(), options).map_err(failed)?;
        self.file = File::Open(Box::new(writer));
        rows.into_iter().try_for_each(|batch| self.write_rows(&batch))
    }

    fn write_rows(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        let mut at = 0;
        while at < batch.num_rows() {
            let rows = self.border.take(batch, at);
            if rows == 0 {
                self.end_group()?;
                continue;
            }
            let slice = batch.slice(at, rows);
            self.columns.meet(&slice);
            self.write_strips(&slice)?;
            at += rows;
        }
        Ok(())
    }

    /// Writes rows of one row group, but for those of a strip that is not full.
    fn write_strips(&mut self, rows: &RecordBatch) -> Result<(), SinkError> {
        let mut at = 0;
        while at < rows.num_rows() {
            let some = self.strip.take(rows, at);
            if some == 0 {
                self.end_strip()?;
                continue;
            }
            let bytes = self.columns.foretold(self.border.bytes()) + STRIP_FACTOR * self.strip.bytes();
            self.memory.at_least(bytes).map_err(denied)?;
            at += some;
        }
        Ok(())
    }

    fn end_strip(&mut self) -> Result<(), SinkError> {
        let Some(batch) = self.strip.end(&self.schema).map_err(in_memory)? else { return Ok(()) };
        let writer = self.writer()?;
        writer.write(&batch).map_err(failed)?;
        // What the library has is looked at, should it have more than was foretold.
        let taken = writer.memory_size() as u64;
        self.memory.at_least(taken).map_err(denied)
    }

    fn writer(&mut self) -> Result<&mut ArrowWriter<W>, SinkError> {
        match &mut self.file {
            File::Open(writer) => Ok(writer),
            _ => Err(failed(ParquetError::General("the file could not be opened".to_owned()))),
        }
    }

    fn end_group(&mut self) -> Result<(), SinkError> {
        self.end_strip()?;
        self.writer()?.flush().map_err(failed)?;
        self.border.end();
        self.columns.end_group();
        // Smaller is never denied.
        let _ = self.memory.resize(self.columns.foretold(0).min(self.memory.bytes()));
        Ok(())
    }

    /// Writes the footer, and gives back what was written to and how many rows there are.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(mut self) -> Result<(W, u64), SinkError> {
        self.open()?;
        self.end_strip()?;
        match self.file {
            File::Open(writer) => Ok((writer.into_inner().map_err(failed)?, self.rows)),
            _ => Err(failed(ParquetError::General("the file could not be opened".to_owned()))),
        }
    }
}

impl Columns {
    fn new(count: usize, parquet: &SchemaDescriptor, compression: Compression) -> Self {
        let mut of_table = vec![Column::default(); count];
        (0..parquet.num_columns()).for_each(|leaf| of_table[parquet.get_column_root_idx(leaf)].leaves += 1);
        Self { compression, of_table }
    }

    /// Rows that are written next.
    fn meet(&mut self, batch: &RecordBatch) {
        for (column, array) in self.of_table.iter_mut().zip(batch.columns()) {
            let bytes = |rows| array_bytes(array, rows);
            column.bytes += bytes(0..batch.num_rows());
            let (mut from, mut most) = (0, column.largest.max(LARGE_BYTES));
            while let Some(row) = larger_row(&bytes, from..batch.num_rows(), most) {
                (from, most) = (row + 1, bytes(row..row + 1));
                column.largest = most;
            }
        }
    }

    fn end_group(&mut self) {
        self.of_table.iter_mut().for_each(|column| (column.bytes, column.largest) = (0, 0));
    }

    /// Memory for a row group with so many bytes of values.
    fn foretold(&self, bytes: u64) -> u64 {
        let page = |column: &Column| largest_page(column.bytes, column.largest > 0);
        let encoder = |column: &Column| column.leaves * encoder_bytes(self.compression, page(column));
        let columns = self.of_table.iter().map(|column| column.leaves).sum();
        let pages = OpenPages {
            bytes: self.of_table.iter().map(page).sum(),
            largest: self.of_table.iter().map(page).max().unwrap_or(0),
        };
        let beside = |column: &Column| encoder(column) + column.statistics_bytes();
        group_memory(self.compression, (bytes, columns), pages) + self.of_table.iter().map(beside).sum::<u64>()
    }
}

impl Column {
    /// Least and greatest values, which the library copies as they are, however large, and cuts when they are in the file: two of each page that is ended, two of the one before it, and one of the column chunk,
    /// where that is of neither. No value has more than two copies.
    fn statistics_bytes(&self) -> u64 {
        (STATISTICS_VALUES * self.largest).min(2 * self.bytes)
    }
}

/// Pages that are being filled, one of each column, at most.
struct OpenPages {
    /// Of all of them.
    bytes: u64,
    largest: u64,
}

/// Memory for a row group with so many bytes of values in so many columns, beside their encoders: pages that are written are no larger than their values, those that are being filled have up
/// to twice the room, and the one that is ended is compressed into room of its own.
fn group_memory(compression: Compression, (bytes, columns): (u64, u64), open: OpenPages) -> u64 {
    bytes + bytes / 8 + open.bytes.min(bytes) + 2 * open.largest + COLUMN_BYTES * columns + passing_bytes(compression)
}

/// Memory for a row group of these columns with so many bytes of values, none of which is large.
pub(crate) fn row_group_memory(schema: &Schema, compression: Compression, bytes: u64) -> u64 {
    // A type that Parquet does not have is refused when a file is opened.
    let columns = ArrowSchemaConverter::new().convert(schema).map_or(0, |parquet| parquet.num_columns() as u64);
    let bytes = bytes.min(GROUP_BYTES);
    let largest = largest_page(bytes, false);
    let open = OpenPages { bytes: columns * largest, largest };
    let strip = STRIP_FACTOR * STRIP_BYTES.min(bytes);
    group_memory(compression, (bytes, columns), open) + encoders_bytes(compression, columns, bytes) + strip
}

fn denied(denied: crate::sources::MemoryDenied) -> SinkError {
    SinkError::Memory { what: "a row group", denied }
}

fn in_memory(error: ArrowError) -> SinkError {
    failed(error.into())
}

fn failed(error: ParquetError) -> SinkError {
    SinkError::Write { format: "parquet", source: error.into() }
}
