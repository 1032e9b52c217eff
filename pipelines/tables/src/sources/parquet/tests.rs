use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampNanosecondType};
use arrow_array::{
    Array, ArrayRef, Decimal32Array, Decimal64Array, Decimal128Array, Decimal256Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow_buffer::i256;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{ColumnOrder, Compression, Encoding, SortOrder};
use parquet::data_type::{ByteArray, ByteArrayType, Int96, Int96Type};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::SchemaDescriptor;
use proptest::prelude::*;

use super::super::{BATCH_BYTES_MAX, FixedBudget, MemoryBudget};
use super::*;
use crate::plain::plain_schema;
use crate::samples::{MemoryFile, Seeded, batch_of, data_type, row};

pub(super) fn budget(bytes: u64) -> (Arc<FixedBudget>, Arc<dyn MemoryBudget>) {
    let fixed = Arc::new(FixedBudget::new(bytes));
    (fixed.clone(), fixed)
}

pub(super) fn open(bytes: Vec<u8>, budget: &Arc<dyn MemoryBudget>) -> Result<Arc<ParquetFile>, SourceError> {
    ParquetFile::open(MemoryFile::input("t.parquet", bytes), budget).map(Arc::new)
}

/// All rows of all splits of a file.
fn read(bytes: Vec<u8>, budget: &Arc<dyn MemoryBudget>) -> Result<Vec<SourceBatch>, SourceError> {
    let file = open(bytes, budget)?;
    let mut all = Vec::new();
    for split in file.splits()? {
        let batches = file.read(split.index, None, budget)?.collect::<Result<Vec<_>, _>>()?;
        let rows: u64 = batches.iter().map(|batch| batch.batch.num_rows() as u64).sum();
        assert_eq!(Some(rows), split.rows);
        all.extend(batches);
    }
    Ok(all)
}

pub(super) fn write(batch: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = ArrowWriterOptions::new().with_properties(properties);
    let mut writer = ArrowWriter::try_new_with_options(&mut bytes, batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// Ways to write a file, which follow from a seed.
pub(super) fn properties(seeded: &mut Seeded) -> WriterProperties {
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(Default::default()),
        Compression::GZIP(Default::default()),
        Compression::LZ4_RAW,
    ];
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let mut builder = WriterProperties::builder()
        .set_compression(seeded.pick(&codecs))
        .set_writer_version(seeded.pick(&versions))
        .set_dictionary_enabled(seeded.below(2) == 0)
        .set_data_page_row_count_limit(1 + seeded.below(60))
        .set_write_batch_size(1 + seeded.below(20))
        .set_max_row_group_row_count(Some(1 + seeded.below(120)));
    if seeded.below(3) == 0 {
        builder = builder.set_dictionary_page_size_limit(40);
    }
    builder.build()
}

/// Types that the library writes.
pub(super) fn written_type(seeded: &mut Seeded) -> DataType {
    fn is_written(data_type: &DataType) -> bool {
        match data_type {
            DataType::RunEndEncoded(..) | DataType::Dictionary(..) | DataType::Interval(_) => false,
            // Of decimals Parquet has the bytes that their digits need; samples have more digits.
            DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..) => {
                false
            }
            // What has no bytes, or no fields, has no column.
            DataType::FixedSizeBinary(0) | DataType::FixedSizeList(_, 0) => false,
            DataType::Struct(fields) => !fields.is_empty() && fields.iter().all(|field| is_written(field.data_type())),
            DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _) | DataType::Map(of, _) => {
                is_written(of.data_type())
            }
            DataType::ListView(_) | DataType::LargeListView(_) => false,
            _ => true,
        }
    }
    loop {
        let of = data_type(seeded, 2);
        if is_written(&of) {
            return of;
        }
    }
}

fn sample(seed: u64) -> (RecordBatch, Vec<u8>) {
    let mut seeded = Seeded(seed);
    let types: Vec<_> = (0..1 + seeded.below(4)).map(|_| written_type(&mut seeded)).collect();
    let rows = seeded.below(300);
    let batch = batch_of(&mut seeded, &types, rows);
    let bytes = write(&batch, properties(&mut seeded));
    (batch, bytes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_is_read(seed in any::<u64>()) {
        let (batch, bytes) = sample(seed);
        let (fixed, budget) = budget(1 << 30);
        let all = read(bytes, &budget).unwrap();
        let mut rows = 0;
        for one in &all {
            for at in 0..one.batch.num_rows() {
                prop_assert_eq!(row(&one.batch, at), row(&batch, rows));
                rows += 1;
            }
        }
        prop_assert_eq!(rows, batch.num_rows());
        drop(all);
        prop_assert_eq!(fixed.used_bytes(), 0);
    }

    #[test]
    fn a_damaged_file_is_an_error_or_rows(seed in any::<u64>(), flips in 1..6_usize) {
        let (_, mut bytes) = sample(seed);
        let mut seeded = Seeded(!seed);
        for _ in 0..flips {
            let at = seeded.below(bytes.len());
            bytes[at] ^= 1 << seeded.below(8);
        }
        let (fixed, budget) = budget(64 << 20);
        match read(bytes, &budget) {
            // Texts are texts: the library is not believed where it looks at several of them as one.
            Ok(all) => all.iter().for_each(|one| one.batch.columns().iter().for_each(|column| rows::check_texts(&column.to_data()).unwrap())),
            Err(error) => prop_assert!(error.to_string().contains("t.parquet"), "{}", error),
        }
        prop_assert_eq!(fixed.used_bytes(), 0);
    }

    #[test]
    fn a_cut_file_is_an_error(seed in any::<u64>()) {
        let (_, bytes) = sample(seed);
        let at = Seeded(seed).below(bytes.len());
        let error = read(bytes[..at].to_vec(), &budget(1 << 30).1).unwrap_err();
        let is_right = matches!(error, SourceError::Damaged { place: Place::Footer, .. } | SourceError::OtherFormat { .. });
        prop_assert!(is_right, "{}", error);
    }
}

fn texts(count: usize) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)])
        .with_metadata([("by".to_owned(), "hand".to_owned())].into());
    let ids = Int64Array::from_iter_values(0..count as i64);
    let names: StringArray = (0..count).map(|at| (at % 7 != 3).then(|| format!("name {}", at % 1000))).collect();
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ids), Arc::new(names)]).unwrap()
}

#[test]
fn decimals_of_any_width_are_read() {
    let values = [Some(123_456), None, Some(-1), Some(0)];
    let columns: Vec<(DataType, ArrayRef)> = vec![
        (
            DataType::Decimal32(7, 2),
            Arc::new(Decimal32Array::from_iter(values).with_data_type(DataType::Decimal32(7, 2))),
        ),
        (
            DataType::Decimal64(15, 3),
            Arc::new(
                Decimal64Array::from_iter(values.map(|v| v.map(i64::from))).with_data_type(DataType::Decimal64(15, 3)),
            ),
        ),
        (
            DataType::Decimal128(30, 4),
            Arc::new(
                Decimal128Array::from_iter(values.map(|v| v.map(i128::from)))
                    .with_data_type(DataType::Decimal128(30, 4)),
            ),
        ),
        (
            DataType::Decimal256(70, 5),
            Arc::new(
                Decimal256Array::from_iter(values.map(|v| v.map(i256::from)))
                    .with_data_type(DataType::Decimal256(70, 5)),
            ),
        ),
    ];
    let fields: Vec<_> = columns.iter().map(|(of, _)| Field::new(of.to_string(), of.clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let bytes = write(&batch, WriterProperties::builder().set_writer_version(version).build());
        let all = read(bytes, &budget(1 << 20).1).unwrap();
        assert_eq!(all[0].batch.columns(), batch.columns());
    }
}

#[test]
fn splits_are_row_groups_and_columns_come_as_they_are_asked_for() {
    let batch = texts(250_000);
    let bytes = write(&batch, WriterProperties::builder().set_max_row_group_row_count(Some(100_000)).build());
    let (_, budget) = budget(1 << 30);
    let file = open(bytes, &budget).unwrap();
    assert_eq!(**file.schema(), plain_schema(&batch.schema()));
    let rows: Vec<_> = file.splits().unwrap().iter().map(|split| split.rows.unwrap()).collect();
    assert_eq!(rows, [100_000, 100_000, 50_000]);
    let second: Vec<_> = file.read(1, Some(&[1, 0]), &budget).unwrap().map(Result::unwrap).collect();
    let fields = second[0].batch.schema();
    assert_eq!((fields.field(0).name().as_str(), fields.field(1).name().as_str()), ("name", "id"));
    let mut next = 0;
    for one in &second {
        assert_eq!((one.split, one.first_row), (1, next));
        let ids = one.batch.column(1).as_primitive::<Int64Type>();
        assert!(ids.values().iter().enumerate().all(|(at, id)| *id as u64 == 100_000 + next + at as u64));
        next += one.batch.num_rows() as u64;
    }
    assert!(second.len() > 1);
    assert_eq!(next, 100_000);
    // Rows without columns are rows.
    let none: usize = file.read(2, Some(&[]), &budget).unwrap().map(|one| one.unwrap().batch.num_rows()).sum();
    assert_eq!(none, 50_000);
}

#[test]
fn batches_are_bounded_and_a_larger_row_is_alone() {
    let large = "x".repeat(3 << 20);
    let names: StringArray = (0..50).map(|at| Some(if at == 20 { large.repeat(4) } else { large.clone() })).collect();
    let schema = Schema::new(vec![Field::new("name", DataType::Utf8, false)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(names)]).unwrap();
    // Of a dictionary, whose values are small in the file and large in rows.
    let bytes = write(&batch, WriterProperties::builder().set_dictionary_page_size_limit(1 << 30).build());
    assert!(bytes.len() < 20 << 20);
    let all = read(bytes, &budget(1 << 30).1).unwrap();
    for one in &all {
        let of: usize = one.batch.column(0).as_string_view().iter().map(|text| text.unwrap().len()).sum();
        assert!(of as u64 <= BATCH_BYTES_MAX || one.batch.num_rows() == 1, "{of} bytes");
    }
    assert_eq!(all.iter().map(|one| one.batch.num_rows()).sum::<usize>(), 50);
}

#[test]
fn memory_that_is_denied_is_an_error_that_says_how_much() {
    let bytes = write(&texts(100_000), WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let (_, enough) = budget(64 << 20);
    let file = open(bytes.clone(), &enough).unwrap();
    let (fixed, little) = budget(100 << 10);
    let all = file.read(0, None, &little).map(|rows| rows.collect::<Result<Vec<_>, _>>().map(|_| ()));
    let error = all.and_then(|all| all).unwrap_err();
    let SourceError::Memory { place, denied, .. } = &error else { panic!("{error}") };
    assert!(matches!(place, Place::Group(0, _) | Place::Page(0, ..)), "{error}");
    assert!(denied.wanted > 0 && error.to_string().contains(&denied.wanted.to_string()), "{error}");
    assert_eq!(fixed.used_bytes(), 0);
    let (_, least) = budget(100);
    let error = open(bytes, &least).err().unwrap();
    assert!(matches!(error, SourceError::Memory { place: Place::Footer, .. }), "{error}");
}

#[test]
fn pages_are_read_one_at_a_time() {
    // 40 MB of texts that do not compress, in one row group of pages of 1 MiB.
    let mut seeded = Seeded(7);
    let names: StringArray = (0..40_000).map(|_| Some(format!("{:016x}", seeded.next()).repeat(64))).collect();
    let schema = Schema::new(vec![Field::new("name", DataType::Utf8, false)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(names)]).unwrap();
    let bytes = write(&batch, WriterProperties::builder().set_dictionary_enabled(false).build());
    assert!(bytes.len() > 39 << 20);
    let (fixed, budget) = budget(64 << 20);
    let file = open(bytes, &budget).unwrap();
    let rows: usize = file.read(0, None, &budget).unwrap().map(|one| one.unwrap().batch.num_rows()).sum();
    assert_eq!(rows, 40_000);
    // A batch of 8 MiB, the pages it points to, and the next page.
    assert!(fixed.peak_bytes() < 16 << 20, "{} bytes", fixed.peak_bytes());
}

#[test]
fn int96_is_nanoseconds_without_a_zone() {
    let schema = Arc::new(parse_message_type("message m { required int96 t; }").unwrap());
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Default::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let mut time = Int96::new();
    // One nanosecond into the second day of 1970 (Julian day 2 440 589).
    time.set_data(1, 0, 2_440_589);
    column.typed::<Int96Type>().write_batch(&[time], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
    let (_, budget) = budget(1 << 20);
    let file = open(bytes.clone(), &budget).unwrap();
    assert_eq!(*file.schema().field(0).data_type(), DataType::Timestamp(TimeUnit::Nanosecond, None));
    let all = read(bytes, &budget).unwrap();
    assert_eq!(all[0].batch.column(0).as_primitive::<TimestampNanosecondType>().value(0), 86_400_000_000_001);
}

#[test]
fn statistics_are_there_and_nothing_follows_from_them() {
    let batch = texts(10_000);
    let bytes = write(&batch, WriterProperties::builder().set_max_row_group_row_count(Some(5_000)).build());
    let (_, budget) = budget(64 << 20);
    let file = open(bytes, &budget).unwrap();
    let ids = file.statistics(0).unwrap();
    assert_eq!(ids.least.as_primitive::<Int64Type>().values(), &[0, 5_000]);
    assert_eq!(ids.greatest.as_primitive::<Int64Type>().values(), &[4_999, 9_999]);
    assert_eq!(file.statistics(1).unwrap().nulls.values(), &[714, 715]);
}

/// Writes numbers as thrift does.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn zigzag(number: i64) -> Vec<u8> {
    varint(((number << 1) ^ (number >> 63)) as u64)
}

/// A page of data of the first version as bytes of a file: what its header says, and what is behind it.
fn page(said: i64, values: i64, encoding: u8, stored: &[u8]) -> Vec<u8> {
    let fields = [zigzag(0), zigzag(said), zigzag(stored.len() as i64)];
    let mut bytes: Vec<u8> = fields.into_iter().flat_map(|field| [vec![0x15], field].concat()).collect();
    // Field 5, a struct of the number of values and three encodings.
    bytes.extend([0x2c, 0x15]);
    bytes.extend(zigzag(values));
    for encoding in [encoding, 3, 3] {
        bytes.extend([0x15, encoding << 1]);
    }
    bytes.extend([0, 0]);
    bytes.extend(stored);
    bytes
}

/// A file with one column of one row group, whose pages are these bytes.
fn crafted(
    schema: &str,
    pages: &[u8],
    values: i64,
    rows: i64,
    codec: Compression,
    notes: Option<Vec<KeyValue>>,
) -> Vec<u8> {
    let schema = Arc::new(SchemaDescriptor::new(Arc::new(parse_message_type(schema).unwrap())));
    let column = ColumnChunkMetaData::builder(schema.column(0))
        .set_encodings(vec![Encoding::PLAIN])
        .set_compression(codec)
        .set_num_values(values)
        .set_total_compressed_size(pages.len() as i64)
        .set_total_uncompressed_size(pages.len() as i64)
        // Who has no page says that it is anywhere.
        .set_data_page_offset(if pages.is_empty() { 0 } else { 4 })
        .build()
        .unwrap();
    let group = RowGroupMetaData::builder(schema.clone())
        .set_num_rows(rows)
        .set_total_byte_size(pages.len() as i64)
        .set_column_metadata(vec![column])
        .build()
        .unwrap();
    let of_file = FileMetaData::new(2, rows, None, notes, schema, None);
    let metadata = ParquetMetaDataBuilder::new(of_file).set_row_groups(vec![group]).build();
    let mut bytes = b"PAR1".to_vec();
    bytes.extend(pages);
    ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().unwrap();
    bytes
}

const TEXTS: &str = "message m { required binary a (UTF8); }";
const PLAIN: u8 = 0;

fn text_of(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text].concat()
}

#[test]
fn a_row_group_without_rows_has_no_page() {
    let bytes = crafted(TEXTS, &[], 0, 0, Compression::UNCOMPRESSED, None);
    assert!(read(bytes, &budget(1 << 20).1).unwrap().is_empty());
    let error = read(crafted(TEXTS, &[], 1, 1, Compression::UNCOMPRESSED, None), &budget(1 << 20).1).unwrap_err();
    assert!(error.to_string().contains("not within the file"), "{error}");
}

#[test]
fn an_interval_is_read_as_a_whole_or_refused() {
    let schema = "message m { required fixed_len_byte_array(12) a (INTERVAL); }";
    let interval = |months: u32, days: u32| [months, days, 5].map(u32::to_le_bytes).concat();
    let read = |values: &[u8]| {
        let page = page(values.len() as i64, 1, PLAIN, values);
        read(crafted(schema, &page, 1, 1, Compression::UNCOMPRESSED, None), &budget(1 << 20).1)
    };
    let all = read(&interval(0, 2)).unwrap();
    let expected = arrow_array::IntervalDayTimeArray::from(vec![arrow_buffer::IntervalDayTime::new(2, 5)]);
    assert_eq!(all[0].batch.column(0).as_ref(), &expected as &dyn Array);
    let error = read(&interval(3, 2)).unwrap_err();
    assert!(matches!(&error, SourceError::NotRead { place: Place::Page(0, ..), .. }), "{error}");
}

#[test]
fn a_page_header_is_not_believed_beyond_what_is_granted() {
    let stored = zstd::bulk::compress(&text_of(b"hello"), 1).unwrap();
    let codec = Compression::ZSTD(Default::default());
    let good = crafted(TEXTS, &page(9, 1, PLAIN, &stored), 1, 1, codec, None);
    let all = read(good, &budget(1 << 20).1).unwrap();
    assert_eq!(all[0].batch.column(0).as_string_view().value(0), "hello");

    let huge = crafted(TEXTS, &page(2_000_000_000, 1, PLAIN, &stored), 1, 1, codec, None);
    let error = read(huge, &budget(1 << 30).1).unwrap_err();
    let SourceError::Memory { place, denied, .. } = &error else { panic!("{error}") };
    assert_eq!(*place, Place::Page(0, "a".into(), 4 + page(2_000_000_000, 1, PLAIN, &[]).len() as u64));
    assert_eq!(denied.wanted, 2_000_000_000);

    // 100 MB of zeros where 9 bytes were said.
    let bomb = zstd::bulk::compress(&vec![0; 100 << 20], 1).unwrap();
    for codec_and_bomb in [(codec, bomb), (Compression::GZIP(Default::default()), gzipped(&vec![0; 100 << 20]))] {
        let (codec, bomb) = codec_and_bomb;
        let (fixed, budget) = budget(1 << 20);
        let error = read(crafted(TEXTS, &page(9, 1, PLAIN, &bomb), 1, 1, codec, None), &budget).unwrap_err();
        assert!(matches!(&error, SourceError::Damaged { place: Place::Page(0, ..), .. }), "{error}");
        assert!(fixed.peak_bytes() < 1 << 20);
    }
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn what_a_page_says_about_its_values_is_checked() {
    let none = Compression::UNCOMPRESSED;
    let two = [text_of(b"a"), text_of(b"b")].concat();
    let is_damaged = |bytes: Vec<u8>, what: &str| {
        let error = read(bytes, &budget(64 << 20).1).unwrap_err();
        assert!(matches!(&error, SourceError::Damaged { .. }) && error.to_string().contains(what), "{error}");
        assert!(error.to_string().contains("row group 0, column a"), "{error}");
    };
    let pages = page(two.len() as i64, 2, PLAIN, &two);
    assert_eq!(read(crafted(TEXTS, &pages, 2, 2, none, None), &budget(1 << 20).1).unwrap()[0].batch.num_rows(), 2);
    // The footer says more rows, or fewer, than the pages have.
    is_damaged(crafted(TEXTS, &pages, 3, 3, none, None), "its pages have 2 values, where the footer says 3");
    is_damaged(crafted(TEXTS, &pages, 2, 1, none, None), "more than the 1 values of the row group");
    is_damaged(crafted(TEXTS, &pages, 2, 3, none, None), "it has 2 rows, where the row group has 3");
    // Pages without values do not hide those behind them.
    let empty = page(0, 0, PLAIN, &[]);
    let behind = crafted(TEXTS, &[empty.clone(), empty, pages.clone()].concat(), 2, 2, none, None);
    assert_eq!(read(behind, &budget(1 << 20).1).unwrap()[0].batch.num_rows(), 2);
    // Texts that are UTF-8 together, and not each: of the encoding that writes lengths first (6), whose block has 128 lengths of 1.
    let mut lengths = [varint(128), varint(4), varint(2), zigzag(1), zigzag(0), vec![0; 4]].concat();
    lengths.extend("é".as_bytes());
    is_damaged(crafted(TEXTS, &page(lengths.len() as i64, 2, 6, &lengths), 2, 2, none, None), "");
    // 2^31 - 1 lengths of 0 in a few bytes.
    let many = [varint(1 << 30), varint(1), varint(i32::MAX as u64), zigzag(0), zigzag(0), vec![0]].concat();
    is_damaged(
        crafted(TEXTS, &page(many.len() as i64, 2, 6, &many), 2, 2, none, None),
        "more lengths of texts than values",
    );
    // A CRC that does not fit, as field 4 of the header.
    let mut with_crc = pages.clone();
    let behind_sizes = 1 + 1 + (1 + zigzag(two.len() as i64).len()) * 2;
    with_crc.splice(behind_sizes..behind_sizes + 1, [vec![0x15], zigzag(1), vec![0x1c]].concat());
    is_damaged(crafted(TEXTS, &with_crc, 2, 2, none, None), "CRC");
}

#[test]
fn texts_that_repeat_the_one_before_are_asked_for_at_their_full_length() {
    // A text of 1 MB, and 20 000 that repeat all of it: 20 GB.
    let (length, count) = (1_000_000_i64, 20_000_u64);
    let deltas = |first: i64, second: i64| {
        let block = varint(32_768);
        // One block of one part without bits, in which all deltas are the least one; the second value is where the numbers go to.
        [block, varint(1), varint(count), zigzag(first), zigzag(second - first), vec![0]].concat()
    };
    // Prefixes 0, 1 000 000, ... cannot have deltas that are all alike; so they are all 1 000 000, and the first one is cut to what there is.
    let mut values = deltas(length, length);
    values.extend(deltas(0, 0));
    let pages = page(values.len() as i64, count as i64, 7, &values);
    let error =
        read(crafted(TEXTS, &pages, count as i64, count as i64, Compression::UNCOMPRESSED, None), &budget(1 << 30).1)
            .unwrap_err();
    let SourceError::Memory { denied, .. } = &error else { panic!("{error}") };
    assert!(denied.wanted >= 20_000_000_000, "{error}");
}

#[test]
fn a_list_of_billions_in_a_few_bytes_is_asked_for_before_it_is_made() {
    let schema = "message m { required group a (LIST) { repeated group list { required int64 element; } } }";
    // Levels: one run of 60 million that repeat, and a definition level for each.
    let count = 60_000_000_u64;
    let run = |value: u8| [varint(count << 1), vec![value]].concat();
    let level = |run: Vec<u8>| [&(run.len() as u32).to_le_bytes()[..], &run].concat();
    let mut values = [level(run(1)), level(run(1))].concat();
    // Deltas of 64-bit numbers (5), all 0.
    values.extend([varint(1 << 30), varint(1), varint(count), zigzag(0), zigzag(0), vec![0]].concat());
    let bytes = crafted(
        schema,
        &page(values.len() as i64, count as i64, 5, &values),
        count as i64,
        1,
        Compression::UNCOMPRESSED,
        None,
    );
    let error = read(bytes, &budget(256 << 20).1).unwrap_err();
    assert!(matches!(&error, SourceError::Memory { what: "what a page unpacks to", .. }), "{error}");
}

/// A file of one column, with these bounds of its only row group.
fn with_bounds(schema: &str, statistics: Statistics, orders: Option<Vec<ColumnOrder>>) -> Vec<u8> {
    let schema = Arc::new(SchemaDescriptor::new(Arc::new(parse_message_type(schema).unwrap())));
    let column = ColumnChunkMetaData::builder(schema.column(0))
        .set_num_values(7)
        .set_total_compressed_size(0)
        .set_data_page_offset(4)
        .set_statistics(statistics)
        .build()
        .unwrap();
    let group =
        RowGroupMetaData::builder(schema.clone()).set_num_rows(7).set_column_metadata(vec![column]).build().unwrap();
    let of_file = FileMetaData::new(2, 7, None, None, schema, orders);
    let metadata = ParquetMetaDataBuilder::new(of_file).set_row_groups(vec![group]).build();
    let mut bytes = b"PAR1".to_vec();
    ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().unwrap();
    bytes
}

#[test]
fn bounds_that_may_be_in_another_order_are_not_believed() {
    let texts = |deprecated| {
        let bound = |text: &str| Some(ByteArray::from(text.as_bytes().to_vec()));
        Statistics::byte_array(bound("a"), bound("z"), None, Some(0), deprecated)
    };
    let ints = |deprecated| Statistics::int32(Some(-3), Some(5), None, None, deprecated);
    let said = |order| Some(vec![ColumnOrder::TYPE_DEFINED_ORDER(order)]);
    let (signed, unsigned) = (said(SortOrder::SIGNED), said(SortOrder::UNSIGNED));
    let (int, without_sign) =
        ("message m { optional int32 a; }", "message m { optional int32 a (INTEGER(32, false)); }");
    for (schema, statistics, orders, is_believed) in [
        (TEXTS, texts(false), unsigned.clone(), true),
        (TEXTS, texts(true), unsigned.clone(), false),
        (int, ints(false), signed.clone(), true),
        (int, ints(true), signed, true),
        (without_sign, ints(false), unsigned.clone(), true),
        (without_sign, ints(true), unsigned, false),
    ] {
        let file = open(with_bounds(schema, statistics.clone(), orders), &budget(1 << 20).1).unwrap();
        let said = file.statistics(0).unwrap();
        assert_eq!((said.least.is_valid(0), said.greatest.is_valid(0)), (is_believed, is_believed), "{statistics:?}");
        let nulls = said.nulls.is_valid(0).then(|| said.nulls.value(0));
        assert_eq!(nulls, statistics.null_count_opt(), "a count that is missing is not zero");
    }
}

#[test]
fn a_schema_of_arrow_that_lies_changes_nothing() {
    let two = [text_of(b"a"), text_of(b"b")].concat();
    let pages = page(two.len() as i64, 2, PLAIN, &two);
    let none = Compression::UNCOMPRESSED;
    let noted = |schema: &Schema| {
        let text = parquet::arrow::encode_arrow_schema(schema);
        Some(vec![KeyValue::new("ARROW:schema".to_owned(), text)])
    };
    let garbage = Some(vec![KeyValue::new("ARROW:schema".to_owned(), "/////not a schema".to_owned())]);
    let int = Schema::new(vec![Field::new("a", DataType::Int64, false)]);
    let more = Schema::new(vec![Field::new("a", DataType::Utf8, false), Field::new("b", DataType::Utf8, false)]);
    for notes in [garbage, noted(&int), noted(&more)] {
        let all = read(crafted(TEXTS, &pages, 2, 2, none, notes), &budget(1 << 20).1).unwrap();
        assert_eq!(all[0].batch.column(0).as_string_view().value(1), "b");
    }
    // Binary that is said to be text is text where it is, and an error where it is not.
    let binary = "message m { required binary a; }";
    let text = || noted(&Schema::new(vec![Field::new("a", DataType::Utf8, false)]));
    let all = read(crafted(binary, &pages, 2, 2, none, text()), &budget(1 << 20).1).unwrap();
    assert_eq!(all[0].batch.column(0).as_string_view().value(1), "b");
    let bytes = text_of(&[0xff; 20]);
    let no_text = crafted(binary, &page(bytes.len() as i64, 1, PLAIN, &bytes), 1, 1, none, text());
    let error = read(no_text, &budget(1 << 20).1).unwrap_err();
    assert!(matches!(&error, SourceError::Damaged { place: Place::Group(0, Some(_)), .. }), "{error}");
}

#[test]
fn encrypted_files_are_named_as_such() {
    let mut bytes = write(&texts(10), WriterProperties::default());
    let end = bytes.len();
    bytes[end - 1] = b'E';
    assert!(matches!(read(bytes.clone(), &budget(1 << 20).1).unwrap_err(), SourceError::Encrypted { .. }));
    bytes[3] = b'E';
    assert!(matches!(read(bytes, &budget(1 << 20).1).unwrap_err(), SourceError::Encrypted { .. }));
    // A footer that can be read, with columns that cannot: field 8 of it is how they are encrypted.
    let good = write(&texts(10), WriterProperties::default());
    let footer_bytes = u32::from_le_bytes(good[end - 8..end - 4].try_into().unwrap()) as usize;
    let mut footer = good[end - 8 - footer_bytes..end - 8].to_vec();
    assert_eq!(footer.pop(), Some(0));
    footer.extend([0x0c, 16, 0, 0]);
    let mut bytes = good[..end - 8 - footer_bytes].to_vec();
    bytes.extend(&footer);
    bytes.extend((footer.len() as u32).to_le_bytes());
    bytes.extend(b"PAR1");
    assert!(matches!(read(bytes, &budget(1 << 20).1).unwrap_err(), SourceError::Encrypted { .. }));
}

#[test]
fn decimals_in_a_dictionary_are_no_longer_than_decimals_are() {
    let schema = Arc::new(parse_message_type("message m { required binary a (DECIMAL(9, 2)); }").unwrap());
    let write = |value: &[u8]| {
        let mut bytes = Vec::new();
        let mut file = SerializedFileWriter::new(&mut bytes, schema.clone(), Default::default()).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values = vec![ByteArray::from(value.to_vec()); 1000];
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        file.close().unwrap();
        bytes
    };
    let all = read(write(&[1, 0]), &budget(4 << 20).1).unwrap();
    assert_eq!(all[0].batch.column(0).as_primitive::<arrow_array::types::Decimal128Type>().value(999), 256);
    let error = read(write(&[0; 100_000]), &budget(64 << 20).1).unwrap_err();
    assert!(error.to_string().contains("a decimal of 100000 bytes"), "{error}");
}

#[test]
fn each_file_is_read_as_its_own_schema_and_notes_say_whichever_was_before() {
    let of = |zone: &str| DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
    let file = |name: &str, zone: &str| {
        let times = arrow_array::TimestampMicrosecondArray::from(vec![1]).with_timezone(zone);
        let batch = RecordBatch::try_from_iter([(name, Arc::new(times) as arrow_array::ArrayRef)]).unwrap();
        write(&batch, WriterProperties::builder().build())
    };
    let files = [("a", "UTC"), ("a", "+02:00"), ("b", "+02:00")].map(|(name, zone)| (name, zone, file(name, zone)));
    let ((_, budget), last) = (budget(1 << 20), LastDecoding::default());
    let mut before = None;
    for at in [0, 0, 1, 2, 2, 1, 0] {
        let (name, zone, bytes) = &files[at];
        let opened = ParquetFile::open_after(MemoryFile::input("t.parquet", bytes.clone()), &last, &budget).unwrap();
        let opened = Arc::new(opened);
        if let Some((number, decoding)) = before.replace((at, opened.decoding.clone())) {
            assert_eq!(
                Arc::ptr_eq(&decoding, &opened.decoding),
                number == at,
                "it is made once for files that are alike"
            );
        }
        let field = opened.schema().field(0);
        assert_eq!((field.name().as_str(), field.data_type()), (*name, &of(zone)));
        let rows = opened.read(0, None, &budget).unwrap().next().unwrap().unwrap();
        assert_eq!(rows.batch.column(0).data_type(), &of(zone));
    }
}
