//! Rows of a row group: each column decoded by the library, page by page, and put together.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};

use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups, RowSelection};
use parquet::column::page::{PageIterator, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::super::batches::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, Pending, SourceBatch, cut_shared, next_batch, own_bytes};
use super::super::memory::{MemoryBudget, Reservation};
use super::super::{Place, SourceError};
use super::ParquetFile;
use super::intervals::unit_of;
use super::offset_index::WantedPages;
use super::pages::{ColumnChunk, ColumnPages, Unpacking, value_bytes};
use super::types::{has_unchecked_texts, is_copied};
use crate::guard::guarded;

/// Bytes that are read at a time to find headers of pages, for all columns together, and the least and most of one.
const WINDOWS_BYTES: u64 = 8 << 20;
const WINDOW_MIN: u64 = 16 << 10;
const WINDOW_MAX: u64 = 1 << 20;

/// The rows of a row group, as batches.
pub(super) struct RowGroupRows {
    file: Arc<ParquetFile>,
    group: usize,
    columns: Vec<ColumnRows>,
    schema: SchemaRef,
    budget: Arc<dyn MemoryBudget>,
    /// Rows that are decoded at a time.
    rows: u64,
    /// Which rows are read, in order, and how many of them there are.
    ranges: Vec<Range<u64>>,
    rows_max: u64,
    /// How many were read.
    rows_read: u64,
    pending: Pending,
}

/// A column of the table, which may have several in the file.
struct ColumnRows {
    name: Arc<str>,
    reader: ParquetRecordBatchReader,
    /// Most bytes of memory that a row takes while it is decoded, where its columns have one value a row.
    row_bytes: u64,
    unpacked: Vec<Arc<Unpacking>>,
    /// Rows that the decoder makes room for.
    rows: u64,
    checks_texts: bool,
}

impl RowGroupRows {
    /// Of a row group, those columns of the table, in that order. `ranges`: the rows that are read, in order, of which no two have a row; all of them where none are said.
    pub(super) fn new(
        file: &Arc<ParquetFile>,
        group: usize,
        (roots, ranges): (&[usize], Option<&[Range<u64>]>),
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SourceError> {
        let metadata = file.metadata.row_group(group);
        let rows_of_group = file.rows_of(group)?;
        let selection = ranges.map(|ranges| {
            let ranges = ranges.iter().map(|range| range.start as usize..range.end as usize);
            RowSelection::from_consecutive_ranges(ranges, rows_of_group as usize)
        });
        let all = 0..rows_of_group;
        let wanted = ranges;
        let ranges = ranges.unwrap_or(std::slice::from_ref(&all)).to_vec();
        let rows_max: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let parquet = file.metadata.file_metadata().schema_descr();
        let leaves: Vec<Vec<usize>> = roots
            .iter()
            .map(|root| (0..parquet.num_columns()).filter(|leaf| parquet.get_column_root_idx(*leaf) == *root).collect())
            .collect();
        let rows = rows_at_a_time(metadata, rows_of_group, leaves.iter().flatten().copied());
        // Decoders make room for as many.
        let rows = rows.min(rows_max.max(1));
        let window = WINDOWS_BYTES / leaves.iter().map(Vec::len).sum::<usize>().max(1) as u64;
        let window = window.clamp(WINDOW_MIN, WINDOW_MAX);
        let columns = roots.iter().zip(&leaves).map(|(root, leaves)| {
            let one = OneGroup {
                file,
                group,
                root: *root,
                rows: rows_of_group,
                wanted,
                leaves,
                window,
                budget,
                unpacked: Default::default(),
            };
            ColumnRows::new(file, *root, &one, (rows, selection.clone()))
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let fields: Vec<_> = columns.iter().map(|column| column.reader_field()).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, file.decoding.schema.metadata().clone()));
        let (file, budget) = (Arc::clone(file), Arc::clone(budget));
        let pending = Pending::default();
        Ok(Self { file, group, columns, schema, budget, rows, ranges, rows_max, rows_read: 0, pending })
    }

    fn read(&mut self) -> Result<(), SourceError> {
        let rows = self.rows.min(self.rows_max - self.rows_read);
        if rows == 0 {
            self.pending.is_over = true;
            return self.columns.iter_mut().try_for_each(|column| {
                match column.read(&self.file, self.group, &self.budget)? {
                    None => Ok(()),
                    Some(_) => {
                        Err(damaged(&self.file, self.group, &column.name, "it has more rows than the row group".into()))
                    }
                }
            });
        }
        let mut memory = Reservation::none(&self.budget);
        let mut arrays = Vec::with_capacity(self.columns.len());
        for column in &mut self.columns {
            let Some((array, of_array)) = column.read(&self.file, self.group, &self.budget)? else {
                return Err(damaged(
                    &self.file,
                    self.group,
                    &column.name,
                    format!("it ends {rows} rows too early or more"),
                ));
            };
            if array.len() as u64 != rows {
                let what = format!("it has {} rows, where the row group has {rows} or more", array.len());
                return Err(damaged(&self.file, self.group, &column.name, what));
            }
            memory.absorb(of_array);
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows as usize));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options);
        let batch = batch.map_err(|error| SourceError::Damaged {
            file: self.file.file.name().clone(),
            place: Place::Group(self.group, None),
            what: error.to_string(),
        })?;
        self.give(&batch, memory);
        self.rows_read += rows;
        Ok(())
    }

    /// Gives out the next rows, those that follow each other in the row group together.
    fn give(&mut self, batch: &RecordBatch, memory: Reservation) {
        let memory = Arc::new(memory);
        let (from, to) = (self.rows_read, self.rows_read + batch.num_rows() as u64);
        // How many rows are before a range.
        let mut before = 0;
        for range in &self.ranges {
            let of_range = before..before + (range.end - range.start);
            let (first, end) = (from.max(of_range.start), to.min(of_range.end));
            if first < end {
                let rows = batch.slice((first - from) as usize, (end - first) as usize);
                let first_row = range.start + (first - of_range.start);
                self.pending.ready.extend(cut_shared(&rows, self.group, first_row, &memory));
            }
            before = of_range.end;
        }
    }
}

impl Iterator for RowGroupRows {
    type Item = Result<SourceBatch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        next_batch(self, |rows| &mut rows.pending, Self::read)
    }
}

fn damaged(file: &ParquetFile, group: usize, column: &Arc<str>, what: String) -> SourceError {
    SourceError::Damaged { file: file.file.name().clone(), place: Place::Group(group, Some(column.clone())), what }
}

impl ColumnRows {
    fn new(
        file: &ParquetFile,
        root: usize,
        one: &OneGroup<'_>,
        (rows, selection): (u64, Option<RowSelection>),
    ) -> Result<Self, SourceError> {
        let name: Arc<str> = file.decoding.schema.field(root).name().as_str().into();
        let parquet = file.metadata.file_metadata().schema_descr();
        let row_bytes = one.leaves.iter().map(|leaf| value_bytes(&parquet.column(*leaf))).sum();
        let (levels, batch_rows) = (&file.decoding.levels[root], rows as usize);
        let made = guarded(|| ParquetRecordBatchReader::try_new_with_row_groups(levels, one, batch_rows, selection));
        let unpacked = std::mem::take(&mut *one.unpacked.borrow_mut());
        let reader =
            made.map_err(|what| failure(&unpacked).unwrap_or_else(|| damaged(file, one.group, &name, what)))?;
        let checks_texts = has_unchecked_texts(parquet, root, file.decoding.schema.field(root).data_type());
        Ok(Self { name, reader, row_bytes, unpacked, rows, checks_texts })
    }

    fn reader_field(&self) -> arrow_schema::FieldRef {
        use arrow_array::RecordBatchReader;
        self.reader.schema().fields()[0].clone()
    }

    /// The next rows, as many as are decoded at a time unless it ends before, and the memory that they have.
    fn read(
        &mut self,
        file: &ParquetFile,
        group: usize,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Option<(ArrayRef, Reservation)>, SourceError> {
        let denied = |denied| SourceError::Memory {
            file: file.file.name().clone(),
            place: Place::Group(group, Some(self.name.clone())),
            what: "a batch of its rows",
            denied,
        };
        let mut memory = Reservation::of(budget, self.rows * self.row_bytes).map_err(denied)?;
        let read = guarded(|| self.reader.next().transpose().map_err(|error| ParquetError::General(error.to_string())));
        let batch =
            read.map_err(|what| failure(&self.unpacked).unwrap_or_else(|| damaged(file, group, &self.name, what)))?;
        let Some(batch) = batch else { return Ok(None) };
        let array = batch.column(0).clone();
        let joined_texts = self.unpacked.iter().any(|one| one.has_joined_texts());
        let data = array.to_data();
        if joined_texts || self.checks_texts {
            check_texts(&data).map_err(|error| damaged(file, group, &self.name, error.to_string()))?;
        }
        memory.resize(own_bytes(&data, joined_texts)).map_err(denied)?;
        self.unpacked.iter().for_each(|one| one.batch_taken());
        Ok(Some((array, memory)))
    }
}

/// Refuses texts that are not UTF-8, however deep. Nulls where the schema has none are refused by who takes rows: under a null that is further out there may be some.
pub(super) fn check_texts(data: &ArrayData) -> Result<(), ArrowError> {
    match data.data_type() {
        DataType::Utf8 | DataType::Utf8View => data.validate_full(),
        _ => data.child_data().iter().try_for_each(check_texts),
    }
}

fn failure(unpacked: &[Arc<Unpacking>]) -> Option<SourceError> {
    unpacked.iter().find_map(|one| one.failure())
}

/// How many rows are decoded at a time: some 8 MiB as the footer has it.
fn rows_at_a_time(group: &RowGroupMetaData, rows: u64, leaves: impl Iterator<Item = usize>) -> u64 {
    let of_row: u64 = leaves
        .map(|leaf| {
            let column = group.column(leaf);
            let stored = u64::try_from(column.uncompressed_size()).unwrap_or(0) / rows.max(1);
            let width = u64::try_from(column.column_descr().type_length()).unwrap_or(0);
            stored.max(width).max(8)
        })
        .fold(0, u64::saturating_add);
    (BATCH_BYTES_MAX / of_row.max(1)).clamp(1, BATCH_ROWS_MAX as u64)
}

/// A row group as the library sees it: it asks for the pages of columns.
struct OneGroup<'a> {
    file: &'a ParquetFile,
    group: usize,
    rows: u64,
    /// The column of the table, and its columns in the file.
    root: usize,
    leaves: &'a [usize],
    /// The rows that are read; `None`: all.
    wanted: Option<&'a [Range<u64>]>,
    window: u64,
    budget: &'a Arc<dyn MemoryBudget>,
    /// Of the columns whose pages were asked for.
    unpacked: std::cell::RefCell<Vec<Arc<Unpacking>>>,
}

impl OneGroup<'_> {
    fn chunk(&self, leaf: usize, unpacked: &Arc<Unpacking>) -> Result<ColumnChunk, SourceError> {
        let column = self.file.metadata.row_group(self.group).column(leaf);
        let parquet = self.file.metadata.file_metadata().schema_descr();
        let descriptor = parquet.column(leaf);
        let name: Arc<str> = descriptor.path().string().into();
        let damaged = |what: &str| damaged(self.file, self.group, &name, what.to_owned());
        let not_read = |what: String| SourceError::NotRead {
            file: self.file.file.name().clone(),
            place: Place::Group(self.group, Some(name.clone())),
            what,
        };
        if column.file_path().is_some() {
            return Err(not_read("its data is in another file: read the files that have the data".to_owned()));
        }
        if !super::inflate::is_read(column.compression()) {
            return Err(not_read(format!(
                "it is compressed with {}, which this release does not read",
                column.compression()
            )));
        }
        let values = u64::try_from(column.num_values()).map_err(|_| damaged("it has fewer than no values"))?;
        let place = |at: i64| u64::try_from(at).map_err(|_| damaged("it begins before the file"));
        let (begin, data, end) = if values == 0 {
            // There may be no page at all, and writers say then that it is anywhere.
            (self.file.footer_begin, self.file.footer_begin, self.file.footer_begin)
        } else {
            let data = place(column.data_page_offset())?;
            let dictionary = column.dictionary_page_offset().map(place).transpose()?.filter(|at| *at > 0 && *at < data);
            let begin = dictionary.unwrap_or(data);
            let end = u64::try_from(column.compressed_size()).ok().and_then(|bytes| begin.checked_add(bytes));
            let end = end.filter(|end| begin >= 4 && *end <= self.file.footer_begin);
            (begin, data, end.ok_or_else(|| damaged("its pages are not within the file"))?)
        };
        // Of a column that has none inside it, and a value a row.
        let flat = self.wanted.filter(|_| self.file.flat_leaf(self.root) == Some(leaf) && values == self.rows);
        let index = match flat.map(|_| self.file.offset_index(self.group, leaf, self.budget)) {
            // Pages are found without it, too.
            None | Some(Err(SourceError::Memory { .. })) => None,
            Some(index) => index?,
        };
        let wanted = index.zip(flat).and_then(|(index, rows)| WantedPages::new(index, data..end, self.rows, rows));
        Ok(ColumnChunk {
            file: self.file.file.clone(),
            group: self.group,
            column: name,
            codec: column.compression(),
            begin,
            end,
            values,
            rows: self.rows,
            wanted,
            copies: is_copied(parquet, leaf),
            intervals: unit_of(
                &descriptor,
                self.file.decoding.schema.field(self.root).data_type(),
                leaf - self.leaves[0],
            ),
            descriptor,
            budget: Arc::clone(self.budget),
            unpacked: Arc::clone(unpacked),
        })
    }
}

impl RowGroups for OneGroup<'_> {
    fn num_rows(&self) -> usize {
        self.rows as usize
    }

    fn column_chunks(&self, leaf: usize) -> Result<Box<dyn PageIterator>, ParquetError> {
        let unpacked = Arc::new(Unpacking::new(self.budget));
        self.unpacked.borrow_mut().push(Arc::clone(&unpacked));
        let chunk = self.chunk(leaf, &unpacked).map_err(|error| unpacked.fail(error))?;
        Ok(Box::new(OneChunk(Some(ColumnPages::new(chunk, self.window)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.file.metadata.row_group(self.group)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.file.metadata
    }
}

/// The pages of one column chunk.
struct OneChunk(Option<ColumnPages>);

impl Iterator for OneChunk {
    type Item = Result<Box<dyn PageReader>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(|pages| Ok(Box::new(pages) as Box<dyn PageReader>))
    }
}

impl PageIterator for OneChunk {}
