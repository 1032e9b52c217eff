//! Random batches of every type and encoding, and what their values are, said as plainly as can be: what tests compare with.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::*;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter};
use parquet::file::writer::TrackedWrite;

use crate::plain::Indirection;
use crate::plain::{plain_schema, plain_type};

/// Numbers that follow from a seed (splitmix64).
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// Types of one value.
pub(crate) fn flat_types() -> Vec<DataType> {
    use DataType::*;
    let mut types = vec![
        Null,
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Date32,
        Date64,
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
        Time32(TimeUnit::Second),
        Time32(TimeUnit::Millisecond),
        Time64(TimeUnit::Microsecond),
        Time64(TimeUnit::Nanosecond),
        Interval(IntervalUnit::YearMonth),
        Interval(IntervalUnit::DayTime),
        Interval(IntervalUnit::MonthDayNano),
        Decimal32(7, 2),
        Decimal64(15, 3),
        Decimal128(30, 4),
        Decimal256(70, 5),
    ];
    types.extend([0, 1, 3, 8, 16, 20].map(FixedSizeBinary));
    for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
        types.extend([Timestamp(unit, None), Timestamp(unit, Some("+02:00".into())), Duration(unit)]);
    }
    types
}

/// Some type, nested so deep at most.
pub(crate) fn data_type(seeded: &mut Seeded, depth: usize) -> DataType {
    let of = |seeded: &mut Seeded, name: &str| {
        let of = data_type(seeded, depth - 1);
        let nullable = plain_type(&of) == DataType::Null || !seeded.one_in(4);
        Arc::new(Field::new(name, of, nullable))
    };
    let flat = seeded.pick(&flat_types());
    // Values of dictionaries and runs may be nested, too.
    let behind = if depth > 0 && seeded.one_in(3) { data_type(seeded, depth - 1) } else { flat.clone() };
    match seeded.below(if depth > 0 { 14 } else { 6 }) {
        0 => DataType::Dictionary(
            Box::new(seeded.pick(&[DataType::Int8, DataType::UInt16, DataType::Int32])),
            Box::new(behind),
        ),
        1 => {
            let ends = seeded.pick(&[DataType::Int16, DataType::Int32, DataType::Int64]);
            DataType::RunEndEncoded(
                Arc::new(Field::new("run_ends", ends, false)),
                Arc::new(Field::new("values", behind, true)),
            )
        }
        6 => DataType::List(of(seeded, "item")),
        7 => DataType::LargeList(of(seeded, "item")),
        8 => DataType::ListView(of(seeded, "item")),
        9 => DataType::LargeListView(of(seeded, "item")),
        10 => DataType::FixedSizeList(of(seeded, "item"), seeded.below(4) as i32),
        11 | 12 => DataType::Struct((0..seeded.below(4)).map(|at| of(seeded, &format!("f{at}"))).collect()),
        13 => {
            let key = Arc::new(Field::new("key", seeded.pick(&[DataType::Utf8, DataType::Int64]), false));
            let entries = DataType::Struct(vec![key, of(seeded, "value")].into());
            DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
        }
        _ => flat,
    }
}

fn nulls(seeded: &mut Seeded, rows: usize) -> Option<NullBuffer> {
    match seeded.below(3) {
        0 => None,
        1 => Some(NullBuffer::from_iter((0..rows).map(|_| !seeded.one_in(3)))),
        _ => Some(NullBuffer::from_iter((0..rows).map(|_| seeded.one_in(3)))),
    }
}

fn bytes(seeded: &mut Seeded, count: usize) -> Vec<u8> {
    (0..count).map(|_| seeded.next() as u8).collect()
}

fn texts(seeded: &mut Seeded, rows: usize) -> Vec<Option<String>> {
    const WORDS: [&str; 8] =
        ["", "a", "a\0", "a\0\u{1}", "grüße", "exactly 12 b", "longer than twelve bytes", "\u{1f980}"];
    let nulls = nulls(seeded, rows);
    let valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    (0..rows)
        .map(|row| {
            let word = seeded.pick(&WORDS).repeat(1 + seeded.below(3));
            valid(row).then_some(word)
        })
        .collect()
}

/// Rows of a field, without nulls where it says that it has none.
fn column(seeded: &mut Seeded, field: &Field, rows: usize) -> ArrayRef {
    let array = array(seeded, field.data_type(), rows);
    if field.is_nullable() { array } else { make_array(dense(array.to_data())) }
}

/// The same without nulls of its own, nor in its dictionary or run ends.
fn dense(data: ArrayData) -> ArrayData {
    use DataType::*;
    let is_encoded = matches!(data.data_type(), Dictionary(..) | RunEndEncoded(..));
    let mut inside = data.child_data().to_vec();
    if is_encoded && let Some(values) = inside.last_mut() {
        *values = dense(values.clone());
    }
    data.into_builder().nulls(None).child_data(inside).build().unwrap()
}

/// Rows of a type, seen through a slice.
pub(crate) fn array(seeded: &mut Seeded, data_type: &DataType, rows: usize) -> ArrayRef {
    let (before, behind) = (seeded.below(3), seeded.below(3));
    unsliced(seeded, data_type, before + rows + behind).slice(before, rows)
}

fn unsliced(seeded: &mut Seeded, data_type: &DataType, rows: usize) -> ArrayRef {
    use DataType::*;
    match data_type {
        Null => Arc::new(NullArray::new(rows)),
        Boolean => {
            let values = BooleanBuffer::from_iter((0..rows).map(|_| seeded.one_in(2)));
            Arc::new(BooleanArray::new(values, nulls(seeded, rows)))
        }
        Utf8 => Arc::new(StringArray::from_iter(texts(seeded, rows))),
        LargeUtf8 => Arc::new(LargeStringArray::from_iter(texts(seeded, rows))),
        Utf8View => Arc::new(StringViewArray::from_iter(texts(seeded, rows))),
        Binary => Arc::new(BinaryArray::from_iter(texts(seeded, rows))),
        LargeBinary => Arc::new(LargeBinaryArray::from_iter(texts(seeded, rows))),
        BinaryView => Arc::new(BinaryViewArray::from_iter(texts(seeded, rows))),
        FixedSizeBinary(width) => {
            let values = Buffer::from(bytes(seeded, rows * *width as usize));
            Arc::new(FixedSizeBinaryArray::try_new_with_len(*width, values, nulls(seeded, rows), rows).unwrap())
        }
        Dictionary(keys, values) => {
            let distinct = 1 + seeded.below(6);
            let values = array(seeded, values, distinct);
            let places: Vec<_> =
                texts(seeded, rows).into_iter().map(|one| one.map(|_| seeded.below(distinct) as i64)).collect();
            match keys.as_ref() {
                Int8 => Arc::new(DictionaryArray::<Int8Type>::new(
                    places.iter().map(|k| k.map(|k| k as i8)).collect(),
                    values,
                )),
                UInt16 => Arc::new(DictionaryArray::<UInt16Type>::new(
                    places.iter().map(|k| k.map(|k| k as u16)).collect(),
                    values,
                )),
                _ => Arc::new(DictionaryArray::<Int32Type>::new(
                    places.iter().map(|k| k.map(|k| k as i32)).collect(),
                    values,
                )),
            }
        }
        RunEndEncoded(ends, values) => {
            let mut last = 0;
            let all: Vec<usize> = std::iter::from_fn(|| {
                last = (last + 1 + seeded.below(4)).min(rows.max(1));
                Some(last)
            })
            .take(rows.max(1))
            .collect();
            let mut all: Vec<usize> = all;
            all.dedup();
            let values = array(seeded, values.data_type(), all.len());
            let runs: ArrayRef = match ends.data_type() {
                Int16 => {
                    let ends = Int16Array::from_iter_values(all.iter().map(|end| *end as i16));
                    Arc::new(RunArray::<Int16Type>::try_new(&ends, &values).unwrap())
                }
                Int32 => {
                    let ends = Int32Array::from_iter_values(all.iter().map(|end| *end as i32));
                    Arc::new(RunArray::<Int32Type>::try_new(&ends, &values).unwrap())
                }
                _ => {
                    let ends = Int64Array::from_iter_values(all.iter().map(|end| *end as i64));
                    Arc::new(RunArray::<Int64Type>::try_new(&ends, &values).unwrap())
                }
            };
            runs.slice(0, rows)
        }
        List(field) | Map(field, _) => {
            let lens: Vec<usize> = (0..rows).map(|_| seeded.below(4)).collect();
            let skipped = seeded.below(3);
            let total = skipped + lens.iter().sum::<usize>();
            let offsets = OffsetBuffer::from_lengths(std::iter::once(skipped).chain(lens));
            let (offsets, nulls) = (offsets.slice(1, rows), nulls(seeded, rows));
            match (data_type, field.data_type()) {
                (Map(..), Struct(fields)) => {
                    // Entries are never null, nor keys.
                    let keys = without_nulls(&array(seeded, fields[0].data_type(), total));
                    let values = column(seeded, &fields[1], total);
                    let entries = StructArray::new(fields.clone(), vec![keys, values], None);
                    Arc::new(MapArray::new(field.clone(), offsets, entries, nulls, false))
                }
                _ => {
                    let values = column(seeded, field, total);
                    Arc::new(ListArray::new(field.clone(), offsets, values, nulls))
                }
            }
        }
        LargeList(field) => {
            let lens: Vec<usize> = (0..rows).map(|_| seeded.below(4)).collect();
            let values = column(seeded, field, lens.iter().sum());
            Arc::new(LargeListArray::new(field.clone(), OffsetBuffer::from_lengths(lens), values, nulls(seeded, rows)))
        }
        ListView(field) => {
            let total = 5 + seeded.below(10);
            let values = column(seeded, field, total);
            let (offsets, sizes): (Vec<i32>, Vec<i32>) =
                (0..rows).map(|_| (seeded.below(total - 3) as i32, seeded.below(4) as i32)).unzip();
            Arc::new(ListViewArray::new(field.clone(), offsets.into(), sizes.into(), values, nulls(seeded, rows)))
        }
        LargeListView(field) => {
            let total = 5 + seeded.below(10);
            let values = column(seeded, field, total);
            let (offsets, sizes): (Vec<i64>, Vec<i64>) =
                (0..rows).map(|_| (seeded.below(total - 3) as i64, seeded.below(4) as i64)).unzip();
            Arc::new(LargeListViewArray::new(field.clone(), offsets.into(), sizes.into(), values, nulls(seeded, rows)))
        }
        FixedSizeList(field, size) => {
            let values = column(seeded, field, rows * *size as usize);
            let nulls = nulls(seeded, rows);
            Arc::new(FixedSizeListArray::try_new_with_length(field.clone(), *size, values, nulls, rows).unwrap())
        }
        Struct(fields) => {
            let columns: Vec<_> = fields.iter().map(|field| column(seeded, field, rows)).collect();
            let nulls = nulls(seeded, rows);
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows).unwrap())
        }
        number => {
            let width = number.primitive_width().unwrap();
            let mut values = bytes(seeded, rows * width);
            // Some that are of note: zeros of both signs, all ones, a NaN.
            for value in values.chunks_exact_mut(width) {
                match seeded.below(8) {
                    0 => value.fill(0),
                    1 => value.fill(0xff),
                    2 => {
                        value.fill(0);
                        value[width - 1] = 0x80;
                    }
                    _ => (),
                }
            }
            let data =
                ArrayData::builder(number.clone()).len(rows).add_buffer(values.into()).nulls(nulls(seeded, rows));
            make_array(data.align_buffers(true).build().unwrap())
        }
    }
}

fn without_nulls(keys: &ArrayRef) -> ArrayRef {
    make_array(dense(keys.to_data()))
}

/// Up to five columns of any type, nested two deep, with so many rows.
pub(crate) fn batch(seed: u64, rows: usize) -> RecordBatch {
    let mut seeded = Seeded(seed);
    let types: Vec<_> = (0..1 + seeded.below(5)).map(|_| data_type(&mut seeded, 2)).collect();
    batch_of(&mut seeded, &types, rows)
}

/// Columns of these types.
pub(crate) fn batch_of(seeded: &mut Seeded, types: &[DataType], rows: usize) -> RecordBatch {
    let fields = types
        .iter()
        .enumerate()
        .map(|(at, of)| Field::new(format!("c{at}"), of.clone(), at % 4 != 3 || plain_type(of) == DataType::Null));
    let schema =
        Schema::new(fields.collect::<Fields>()).with_metadata([("written".to_owned(), "by a test".to_owned())].into());
    let columns = schema.fields().iter().map(|field| column(seeded, field, rows)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options).unwrap()
}

/// What a row of a column is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Struct(Vec<Value>),
}

/// The value of a row of an array of any type and encoding.
pub(crate) fn value(array: &dyn Array, row: usize) -> Value {
    use DataType::*;
    if let Some(indirection) = Indirection::of(array) {
        let Indirection { nulls, values, .. } = &indirection;
        return match nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            true => Value::Null,
            false => value(values.as_ref(), indirection.place(row)),
        };
    }
    if array.is_null(row) || *array.data_type() == Null {
        return Value::Null;
    }
    let all = |array: ArrayRef| Value::List((0..array.len()).map(|row| value(array.as_ref(), row)).collect());
    match array.data_type() {
        Boolean => Value::Bytes(vec![u8::from(array.as_boolean().value(row))]),
        Utf8 => Value::Bytes(array.as_string::<i32>().value(row).into()),
        LargeUtf8 => Value::Bytes(array.as_string::<i64>().value(row).into()),
        Utf8View => Value::Bytes(array.as_string_view().value(row).into()),
        Binary => Value::Bytes(array.as_binary::<i32>().value(row).into()),
        LargeBinary => Value::Bytes(array.as_binary::<i64>().value(row).into()),
        BinaryView => Value::Bytes(array.as_binary_view().value(row).into()),
        FixedSizeBinary(_) => Value::Bytes(array.as_fixed_size_binary().value(row).into()),
        List(_) => all(array.as_list::<i32>().value(row)),
        LargeList(_) => all(array.as_list::<i64>().value(row)),
        ListView(_) => all(array.as_list_view::<i32>().value(row)),
        LargeListView(_) => all(array.as_list_view::<i64>().value(row)),
        FixedSizeList(..) => all(array.as_fixed_size_list().value(row)),
        Map(..) => all(Arc::new(array.as_map().value(row))),
        Struct(_) => {
            Value::Struct(array.as_struct().columns().iter().map(|column| value(column.as_ref(), row)).collect())
        }
        number => {
            let (width, data) = (number.primitive_width().unwrap(), array.to_data());
            let at = (data.offset() + row) * width;
            Value::Bytes(data.buffers()[0].as_slice()[at..at + width].to_vec())
        }
    }
}

/// The values of a row.
pub(crate) fn row(batch: &RecordBatch, row: usize) -> Vec<Value> {
    batch.columns().iter().map(|column| value(column.as_ref(), row)).collect()
}

/// The same rows without encodings.
pub(crate) fn plain(batch: &RecordBatch) -> RecordBatch {
    use crate::block::{Gather, Layout, Limits, Part, Pick};
    let layout = Arc::new(Layout::new(&batch.schema()).unwrap());
    assert_eq!(**layout.schema(), plain_schema(&batch.schema()));
    let gather = Gather::new(layout.clone(), std::slice::from_ref(batch)).unwrap();
    let picks: Vec<_> = (0..batch.num_rows() as u32).map(|row| Pick { batch: 0, row }).collect();
    if picks.is_empty() {
        return RecordBatch::new_empty(layout.schema().clone());
    }
    let [message] = gather.messages(&picks, &Limits::default()).unwrap().try_into().unwrap();
    let mut bytes = vec![0; message.bytes() as usize];
    message.write(&mut bytes);
    Part::of_bytes(layout, Buffer::from(bytes)).next().unwrap().unwrap()
}

/// A file of Parquet with page indexes that says something else of itself.
pub(crate) fn with_metadata(bytes: &[u8], change: impl FnOnce(ParquetMetaData) -> ParquetMetaData) -> Vec<u8> {
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    reader.try_parse(&bytes::Bytes::from(bytes.to_vec())).unwrap();
    let metadata = change(reader.finish().unwrap());
    let tail = bytes.len() - 8;
    let footer = tail - u32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap()) as usize;
    let mut made = Vec::new();
    let mut tracked = TrackedWrite::new(&mut made);
    tracked.write_all(&bytes[..footer]).unwrap();
    ParquetMetaDataWriter::new_with_tracked(tracked, &metadata).finish().unwrap();
    made
}

/// A file in memory.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    location: exobus_files::Location,
    bytes: Vec<u8>,
    /// How many bytes were read of it.
    read: Arc<AtomicU64>,
}

impl MemoryFile {
    /// A file of that name, with these bytes, to be read.
    pub(crate) fn input(name: &str, bytes: Vec<u8>) -> crate::sources::InputFile {
        Self::counted(name, bytes).0
    }

    /// The same, and how many bytes are read of it.
    pub(crate) fn counted(name: &str, bytes: Vec<u8>) -> (crate::sources::InputFile, Arc<AtomicU64>) {
        let read = Arc::new(AtomicU64::new(0));
        let location = std::path::Path::new(name).into();
        let file: Arc<dyn exobus_files::ReadFile> = Arc::new(Self { location, bytes, read: read.clone() });
        let status = file.status().unwrap();
        (crate::sources::InputFile::new(file, status).unwrap(), read)
    }
}

impl exobus_files::ReadFile for MemoryFile {
    fn location(&self) -> &exobus_files::Location {
        &self.location
    }

    fn status(&self) -> Result<exobus_files::FileStatus, exobus_files::FileError> {
        let bytes = self.bytes.len() as u64;
        Ok(exobus_files::FileStatus { bytes, version: exobus_files::Version::of(&[]) })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], needed: usize) -> Result<usize, exobus_files::FileError> {
        let end = offset + needed as u64;
        let range = self.bytes.get(offset as usize..end as usize);
        let ended = || exobus_files::FileError::EndedEarly {
            path: self.location.to_path_buf(),
            offset: self.bytes.len() as u64,
            expected: end,
        };
        buffer[..needed].copy_from_slice(range.ok_or_else(ended)?);
        self.read.fetch_add(needed as u64, Ordering::Relaxed);
        Ok(needed)
    }
}
