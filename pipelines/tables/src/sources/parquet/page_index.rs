//! What a file says of the values in the pages of a column: its column index, with the rows of pages from its [offset index](super::offset_index).
//!
//! Both are read by us, since the library reads those of all columns at once, and nothing asks for memory there. What is out of line in them (other numbers of pages, rows that do
//! not rise, lengths that no value has) is not believed, and nothing is said then; see [`statistics`](super::statistics) for what is believed.

use std::sync::Arc;

use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::basic::Type as PhysicalType;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::statistics::Statistics;
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor, Type};

use super::super::SourceError;
use super::super::memory::{MemoryBudget, Reservation};
use super::statistics::believed_nulls;
use super::thrift::{Cursor, DEPTH_MAX, ThriftType, Wrong};
use super::{ParquetFile, RowGroupStatistics};
use crate::guard::guarded;

/// Bytes of memory for a page, beside its bounds.
const PAGE_BYTES: u64 = 2048;

/// What is said of the pages of a column in a row group.
pub(crate) struct PageStatistics {
    /// The first row of each page, of those of the row group.
    pub(crate) first_rows: Vec<u64>,
    /// By page.
    pub(crate) statistics: RowGroupStatistics,
    _memory: Reservation,
}

impl ParquetFile {
    /// What the file says of the values in the pages of a column; `None`: nothing, or nothing that is believed.
    ///
    /// # Errors
    /// Memory that was denied; what the disk says.
    ///
    /// # Panics
    /// There is no such row group or column.
    pub(crate) fn page_statistics(
        &self,
        group: usize,
        column: usize,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Option<PageStatistics>, SourceError> {
        let Some(leaf) = self.flat_leaf(column).filter(|leaf| self.has_believed_order(*leaf)) else { return Ok(None) };
        let chunk = self.metadata.row_group(group).column(leaf);
        let of_columns = self.index_range(chunk.column_index_offset(), chunk.column_index_length());
        let Some((at, bytes)) = of_columns else { return Ok(None) };
        let Some(index) = self.offset_index(group, leaf, budget)? else { return Ok(None) };
        let (first_rows, mut memory) = index.into_first_rows();
        let denied = |denied| self.pages_denied(group, chunk, denied);
        memory.resize(4 * bytes + memory.bytes() + PAGE_BYTES * first_rows.len() as u64).map_err(denied)?;
        let mut columns = vec![0; bytes as usize];
        self.file.read_at(at, &mut columns)?;
        let Ok(pages) = Pages::read(&columns, first_rows.len()) else { return Ok(None) };
        let statistics = self.as_groups(column, &chunk.column_descr_ptr(), &pages);
        Ok(statistics.map(|statistics| PageStatistics { first_rows, statistics, _memory: memory }))
    }

    /// Where runs of whole pages begin in a row group, of so many rows each at least: pages of the column that has most bytes of these. The first begins with the first row; it is the only one where the file does not say
    /// where pages are.
    ///
    /// # Errors
    /// Memory that was denied; what the disk says.
    ///
    /// # Panics
    /// There is no such row group or column.
    pub(crate) fn runs(
        &self,
        group: usize,
        (columns, rows_min): (&[usize], u64),
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Vec<u64>, SourceError> {
        let rows = self.rows_of(group)?;
        if rows < 2 * rows_min {
            return Ok(vec![0]);
        }
        let flat = columns.iter().filter_map(|column| self.flat_leaf(*column));
        let largest = flat.max_by_key(|leaf| self.metadata.row_group(group).column(*leaf).compressed_size());
        let index = largest.map(|leaf| self.offset_index(group, leaf, budget)).transpose()?.flatten();
        let mut runs = vec![0];
        for first in index.iter().flat_map(|index| index.first_rows()) {
            let last = runs[runs.len() - 1];
            if first - last >= rows_min && rows - first >= rows_min {
                runs.push(first);
            }
        }
        Ok(runs)
    }

    /// The column of the file that a column of the table is, where there is none inside it.
    pub(super) fn flat_leaf(&self, column: usize) -> Option<usize> {
        let parquet = self.metadata.file_metadata().schema_descr();
        let leaf = (0..parquet.num_columns()).find(|leaf| parquet.get_column_root_idx(*leaf) == column)?;
        parquet
            .get_column_root(leaf)
            .is_primitive()
            .then_some(leaf)
            .filter(|leaf| parquet.column(*leaf).max_rep_level() == 0)
    }

    /// Pages as if they were row groups, of which the library makes values of the type of the column.
    fn as_groups(&self, column: usize, descriptor: &ColumnDescPtr, pages: &Pages<'_>) -> Option<RowGroupStatistics> {
        let parquet = self.metadata.file_metadata().schema_descr();
        let root = parquet.root_schema().get_fields().get(column)?.clone();
        let of = |at: usize| statistics(descriptor, pages, at);
        guarded(|| -> Result<_, ParquetError> {
            let message = Type::group_type_builder("m").with_fields(vec![root]).build()?;
            let alone = Arc::new(SchemaDescriptor::new(Arc::new(message)));
            let group = |at: usize| {
                let chunk = ColumnChunkMetaData::builder(alone.column(0)).set_statistics(of(at)).build()?;
                RowGroupMetaData::builder(alone.clone()).set_column_metadata(vec![chunk]).build()
            };
            let groups = (0..pages.are_null.len()).map(group).collect::<Result<Vec<_>, _>>()?;
            let schema = self.decoding.schema.project(&[column])?;
            let of = StatisticsConverter::try_new(schema.field(0).name(), &schema, &alone)?;
            let of = of.with_missing_null_counts_as_zero(false);
            let (least, greatest) = (of.row_group_mins(&groups)?, of.row_group_maxes(&groups)?);
            let nulls = believed_nulls(schema.field(0), of.row_group_null_counts(&groups)?);
            Ok(RowGroupStatistics { least, greatest, nulls })
        })
        .ok()
    }
}

/// A column index.
#[derive(Default)]
struct Pages<'a> {
    /// Pages without a value.
    are_null: Vec<bool>,
    least: Vec<&'a [u8]>,
    greatest: Vec<&'a [u8]>,
    /// Where they are there.
    nulls: Option<Vec<i64>>,
}

impl<'a> Pages<'a> {
    /// Of so many pages.
    fn read(index: &'a [u8], count: usize) -> Result<Self, Wrong> {
        let mut cursor = Cursor::new(index);
        let (mut pages, mut last, mut structs) = (Self::default(), 0, 0);
        while let Some((number, kind)) = cursor.field(last)? {
            match (number, kind) {
                (1, ThriftType::List) => pages.are_null = cursor.bools()?,
                (2, ThriftType::List) => pages.least = binaries(&mut cursor)?,
                (3, ThriftType::List) => pages.greatest = binaries(&mut cursor)?,
                (5, ThriftType::List) => {
                    let (count, _) = cursor.list()?;
                    pages.nulls = Some((0..count).map(|_| cursor.number()).collect::<Result<_, _>>()?);
                }
                _ => cursor.skip(kind, DEPTH_MAX, &mut structs)?,
            }
            last = number;
        }
        let lengths = [pages.are_null.len(), pages.least.len(), pages.greatest.len()];
        let nulls = pages.nulls.as_ref().map_or(count, Vec::len);
        match lengths.iter().chain([&nulls]).all(|length| *length == count) {
            true => Ok(pages),
            false => Err(Wrong::Malformed("other numbers of pages")),
        }
    }
}

fn binaries<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<&'a [u8]>, Wrong> {
    match cursor.list()? {
        (count, ThriftType::Binary) => (0..count).map(|_| cursor.binary()).collect(),
        (0, _) => Ok(Vec::new()),
        _ => Err(Wrong::Malformed("bounds that are no bytes")),
    }
}

/// What is said of a page; without bounds where their length is not that of a value.
fn statistics(descriptor: &ColumnDescPtr, pages: &Pages<'_>, page: usize) -> Statistics {
    let nulls = pages.nulls.as_ref().and_then(|nulls| u64::try_from(nulls[page]).ok());
    let bound = |bytes: &[&[u8]]| Some(bytes[page].to_vec()).filter(|_| !pages.are_null[page]);
    let (least, greatest) = (bound(&pages.least), bound(&pages.greatest));
    macro_rules! of {
        ($make:ident, $bytes:expr) => {{
            let of = |bound: Option<Vec<u8>>| bound.and_then($bytes);
            Statistics::$make(of(least), of(greatest), None, nulls, false)
        }};
    }
    match descriptor.physical_type() {
        PhysicalType::BOOLEAN => of!(boolean, |bytes| <[u8; 1]>::try_from(bytes).ok().map(|[byte]| byte != 0)),
        PhysicalType::INT32 => of!(int32, |bytes| bytes.try_into().ok().map(i32::from_le_bytes)),
        PhysicalType::INT64 => of!(int64, |bytes| bytes.try_into().ok().map(i64::from_le_bytes)),
        PhysicalType::FLOAT => of!(float, |bytes| bytes.try_into().ok().map(f32::from_le_bytes)),
        PhysicalType::DOUBLE => of!(double, |bytes| bytes.try_into().ok().map(f64::from_le_bytes)),
        PhysicalType::BYTE_ARRAY => of!(byte_array, |bytes| Some(ByteArray::from(bytes))),
        PhysicalType::FIXED_LEN_BYTE_ARRAY => {
            let length = usize::try_from(descriptor.type_length()).unwrap_or(0);
            of!(fixed_len_byte_array, |bytes| (bytes.len() == length).then(|| FixedLenByteArray::from(bytes)))
        }
        PhysicalType::INT96 => Statistics::int96(None, None, None, nulls, false),
    }
}
