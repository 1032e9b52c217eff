use std::sync::Arc;

use ::parquet::column::page::PageReader;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, Date32Array, FixedSizeBinaryArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::samples::{MemoryFile, Seeded, Value, batch_of, data_type, plain, row};
use crate::sources::text::Dialect;
use crate::sources::{FixedBudget, InputFormat, MemoryBudget, Source, TextOptions};

fn budget(bytes: u64) -> Arc<dyn MemoryBudget> {
    Arc::new(FixedBudget::new(bytes))
}

fn write_parquet(batches: &[RecordBatch], options: &ParquetOptions) -> Vec<u8> {
    let mut sink = ParquetSink::new(Vec::new(), &batches[0].schema(), options, &budget(1 << 30)).unwrap();
    batches.iter().for_each(|batch| sink.write(batch).unwrap());
    let (bytes, rows) = sink.finish().unwrap();
    assert_eq!(rows, batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>());
    bytes
}

fn rows_of(source: &Source) -> Vec<Vec<Value>> {
    let budget = budget(1 << 30);
    let states = source.states(&budget).unwrap();
    let mut rows = Vec::new();
    for split in source.splits().unwrap() {
        for one in source.read(split.index, states.get(split.index).copied(), None, &budget).unwrap() {
            let one = one.unwrap().batch;
            rows.extend((0..one.num_rows()).map(|at| row(&one, at)));
        }
    }
    rows
}

fn open(bytes: Vec<u8>, format: InputFormat, options: &TextOptions) -> Source {
    Source::open(MemoryFile::input("t", bytes), format, options, &budget(1 << 30)).unwrap()
}

/// Columns in plain types that Parquet has.
fn sample(seed: u64, count: usize) -> RecordBatch {
    let mut seeded = Seeded(seed);
    let types = std::iter::repeat_with(|| data_type(&mut seeded, 2)).filter(|of| {
        let text = format!("{of:?}");
        let none = ["RunEnd", "Decimal", "Interval", "Binary(0)", "List(0", "Struct([])", ", 0)"];
        !none.iter().any(|none| text.contains(none)) && *of != DataType::Struct(Default::default())
    });
    let types: Vec<_> = types.take(1 + (seed % 4) as usize).collect();
    plain(&batch_of(&mut seeded, &types, count))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn parquet_is_read_as_it_was_written_and_its_bytes_do_not_follow_from_batches(seed in any::<u64>(), count in 1..300_usize) {
        let batch = sample(seed, count);
        let options = ParquetOptions { group_rows: 1 + seed % 120, ..ParquetOptions::default() };
        let bytes = write_parquet(std::slice::from_ref(&batch), &options);
        let source = open(bytes.clone(), InputFormat::Parquet, &TextOptions::default());
        let expected: Vec<_> = (0..count).map(|at| row(&batch, at)).collect();
        prop_assert_eq!(rows_of(&source), expected);
        let schema = batch.schema();
        prop_assert_eq!(source.schema().metadata(), schema.metadata());
        let groups: Vec<_> = source.splits().unwrap().iter().map(|split| split.rows.unwrap()).collect();
        let last = groups.len() - 1;
        prop_assert!(groups[..last].iter().all(|rows| *rows == options.group_rows));
        let middle = count / 2;
        let again = write_parquet(&[batch.slice(0, middle), batch.slice(middle, count - middle)], &options);
        prop_assert!(again == bytes, "{} bytes instead of {}", again.len(), bytes.len());
    }

    #[test]
    fn arrow_is_read_as_it_was_written(seed in any::<u64>(), count in 1..300_usize) {
        let batch = sample(seed, count);
        let write = |batches: &[RecordBatch]| {
            let mut sink = IpcSink::new(Vec::new(), &batch.schema(), &budget(1 << 30)).unwrap();
            batches.iter().for_each(|batch| sink.write(batch).unwrap());
            sink.finish().unwrap().0
        };
        let expected: Vec<_> = (0..count).map(|at| row(&batch, at)).collect();
        let source = open(write(std::slice::from_ref(&batch)), InputFormat::Arrow, &TextOptions::default());
        prop_assert_eq!(rows_of(&source), expected.clone());
        let middle = count / 2;
        let again = write(&[batch.slice(0, middle), batch.slice(middle, count - middle)]);
        prop_assert_eq!(rows_of(&open(again, InputFormat::Arrow, &TextOptions::default())), expected);
    }

    #[test]
    fn text_is_read_as_it_was_written(texts in proptest::collection::vec(proptest::option::of("[a,\"\\n\\r é]{0,5}"), 1..30), tabs in any::<bool>()) {
        let days: Date32Array = (0..texts.len()).map(|at| (at % 3 != 1).then_some(at as i32 * 100_003 % 2_000_000 - 700_000)).collect();
        let times = (0..texts.len()).map(|at| (at % 5 != 2).then_some((at as i64 * 7_919_000_017) % 4_000_000_000_000_000 - 2_000_000_000_000_000));
        let times = TimestampMicrosecondArray::from_iter(times).with_timezone("UTC");
        let columns = [("t", Arc::new(StringArray::from(texts)) as ArrayRef), ("d", Arc::new(days)), ("z", Arc::new(times))];
        let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
        let dialect = if tabs { Dialect::tsv() } else { Dialect { null: "a".to_owned(), ..Dialect::csv() } };
        let mut sink = TextSink::new(Vec::new(), &batch.schema(), &dialect).unwrap();
        sink.write(&batch).unwrap();
        let (bytes, _) = sink.finish().unwrap();
        let types = batch.schema().fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect();
        let source = open(bytes, InputFormat::Csv, &TextOptions { dialect: Some(dialect), types, ..TextOptions::default() });
        let expected: Vec<_> = (0..batch.num_rows()).map(|at| row(&batch, at)).collect();
        prop_assert_eq!(rows_of(&source), expected);
    }
}

/// Of more bytes than are handed to an encoder at a time.
#[test]
fn pages_of_parquet_end_where_rows_say_and_not_where_batches_do() {
    const ROWS: usize = 60_000;
    let mut seeded = Seeded(7);
    let numbers: Vec<f64> = (0..ROWS).map(|_| seeded.below(1 << 40) as f64).collect();
    let texts = StringArray::from_iter_values((0..ROWS).map(|row| format!("{} of {row}", "text ".repeat(row % 50))));
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(
        (0..ROWS).map(|row| (row % 7 > 0).then(|| (0..row % 5).map(move |value| Some((row * value) as i64)))),
    );
    let columns: [(&str, ArrayRef); 3] =
        [("number", Arc::new(Float64Array::from(numbers))), ("text", Arc::new(texts)), ("list", Arc::new(lists))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let options = ParquetOptions { group_rows: 50_001, ..ParquetOptions::default() };
    let bytes = write_parquet(std::slice::from_ref(&batch), &options);
    let file = SerializedFileReader::new(::bytes::Bytes::from(bytes.clone())).unwrap();
    let group = file.get_row_group(0).unwrap();
    let pages = |column: usize| group.get_column_page_reader(column).unwrap().map(Result::unwrap).count();
    assert!((0..3).all(|column| pages(column) > 1), "{:?}", [0, 1, 2].map(pages));
    for rows in [1_000, 1_023, 8_191, 40_000] {
        let slice = |from: usize| batch.slice(from, rows.min(ROWS - from));
        let again = write_parquet(&(0..ROWS).step_by(rows).map(slice).collect::<Vec<_>>(), &options);
        assert!(again == bytes, "in batches of {rows} rows: {} bytes instead of {}", again.len(), bytes.len());
    }
}

#[test]
fn packed_text_is_read_as_it_was_written_and_its_bytes_do_not_follow_from_batches() {
    let texts: StringArray = (0..60_000).map(|at| (at % 7 != 3).then(|| format!("a \"text\", {at}"))).collect();
    let columns = [("id", Arc::new(Int64Array::from_iter_values(0..60_000)) as ArrayRef), ("t", Arc::new(texts))];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
    let expected: Vec<_> = (0..60_000).map(|at| row(&batch, at)).collect();
    let write = |form: FileForm, rows: usize| {
        let budget = budget(64 << 20);
        let mut sink = TableSink::new(Vec::new(), &batch.schema(), &SinkOptions::new(form), &budget).unwrap();
        (0..60_000).step_by(rows).for_each(|at| sink.write(&batch.slice(at, rows.min(60_000 - at))).unwrap());
        sink.finish().unwrap().0
    };
    for format in [OutputFormat::Csv, OutputFormat::Tsv] {
        let form = |compression: &str| FileForm::new(format, Some(compression.parse().unwrap())).unwrap();
        let plain = write(form("none"), 60_000);
        for (compression, begins) in [
            ("gzip", &[0x1f, 0x8b][..]),
            ("gzip:1", &[0x1f, 0x8b]),
            ("zstd", &[0x28, 0xb5]),
            ("zstd:12", &[0x28, 0xb5]),
        ] {
            let packed = write(form(compression), 60_000);
            assert!(packed.starts_with(begins) && packed.len() < plain.len() / 2, "{compression}");
            assert!(packed == write(form(compression), 777), "{compression}");
            let types = vec![("id".to_owned(), DataType::Int64), ("t".to_owned(), DataType::Utf8)];
            let options = TextOptions { types, ..TextOptions::default() };
            assert!(rows_of(&open(packed, format.read(), &options)) == expected, "{compression}");
        }
        let denied = TableSink::new(Vec::new(), &batch.schema(), &SinkOptions::new(form("zstd")), &budget(64 << 10));
        assert!(matches!(denied.err().unwrap(), SinkError::Memory { what: "packed text", .. }));
    }
}

fn of_bytes(name: &'static str, values: &[Option<&[u8]>], width: i32) -> (&'static str, ArrayRef, bool) {
    let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.iter().copied(), width).unwrap();
    (name, Arc::new(array), true)
}

#[test]
fn records_are_read_as_they_were_written_and_what_is_none_is_refused() {
    let bytes: Vec<u8> = (0..500_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let records = bytes.chunks(100);
    let keys: Vec<_> = records.clone().map(|record| Some(&record[..10])).collect();
    let values: Vec<_> = records.map(|record| Some(&record[10..])).collect();
    let of = |columns: Vec<_>| RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let batch = of(vec![of_bytes("k", &keys, 10), of_bytes("v", &values, 90)]);
    let form = FileForm::new(OutputFormat::Records, None).unwrap();
    let sink = |batch: &RecordBatch| {
        let budget = budget(1 << 20);
        TableSink::new(Vec::new(), &batch.schema(), &SinkOptions::new(form), &budget)
    };
    let mut written = sink(&batch).unwrap();
    (0..5000).step_by(1234).for_each(|at| written.write(&batch.slice(at, 1234.min(5000 - at))).unwrap());
    let (written, rows) = written.finish().unwrap();
    assert!(rows == 5000 && written == bytes);
    let expected: Vec<_> = (0..5000).map(|at| row(&batch, at)).collect();
    assert!(rows_of(&open(written, InputFormat::Records, &TextOptions::default())) == expected);
    let null = of(vec![of_bytes("k", &[Some(&[0; 10])], 10), of_bytes("v", &[None], 90)]);
    let error = sink(&null).unwrap().write(&null).unwrap_err().to_string();
    assert!(error.contains("column v") && error.contains("null"), "{error}");
    let ids = Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    for columns in [
        vec![of_bytes("v", &values, 90), of_bytes("k", &keys, 10)],
        vec![of_bytes("k", &keys, 10)],
        vec![of_bytes("k", &[Some(&[0; 10])], 10), of_bytes("v", &[Some(&[0; 90])], 90), ("id", ids, true)],
    ] {
        let error = sink(&of(columns)).err().unwrap().to_string();
        assert!(
            error.contains("one of FixedSizeBinary(90), and the table has") && error.contains("--select"),
            "{error}"
        );
    }
}

#[test]
fn row_groups_have_64_mib_at_most_and_bytes_are_the_same_each_time() {
    let texts: StringArray = (0..90).map(|at| Some(format!("{at:02}").repeat(1 << 20))).collect();
    let pairs: Vec<_> = (0..20).map(|at| (format!("key {at}"), format!("value {at}"))).collect();
    let write = |codec| {
        let schema =
            Schema::new(vec![Field::new("t", DataType::Utf8, false)]).with_metadata(pairs.iter().cloned().collect());
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(texts.clone())]).unwrap();
        let sorted_by = vec![SortedColumn { column: 0, falling: true, nulls_first: false }];
        write_parquet(&[batch], &ParquetOptions { compression: codec, sorted_by, ..ParquetOptions::default() })
    };
    let bytes = write(Compression::Snappy);
    assert!(bytes == write(Compression::Snappy), "metadata lies in a map without order");
    let Source::Parquet(file) = open(bytes, InputFormat::Parquet, &TextOptions::default()) else { panic!() };
    let rows: Vec<_> = file.splits().unwrap().iter().map(|split| split.rows.unwrap()).collect();
    assert_eq!(rows, [31, 31, 28]);
    let sorting = file.metadata().row_group(0).sorting_columns().unwrap();
    assert_eq!(
        (sorting.len(), sorting[0].column_idx, sorting[0].descending, sorting[0].nulls_first),
        (1, 0, true, false)
    );
    // The index of pages is there.
    assert!(file.metadata().row_group(0).column(0).column_index_offset().is_some());
    assert!(file.metadata().row_group(0).column(0).offset_index_offset().is_some());
}

#[test]
fn pages_are_as_small_as_memory_for_their_encoders_says() {
    let largest = |value: usize| {
        let texts =
            StringArray::from_iter_values((0..8_000_000 / value as u32).map(|at| format!("{at:05}").repeat(value / 5)));
        let numbers = Int64Array::from_iter_values((0..8_000_000 / value as i64).map(|at| at * 977));
        let columns = [("t", Arc::new(texts) as ArrayRef), ("n", Arc::new(numbers))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let bytes = write_parquet(&[batch], &ParquetOptions::default());
        let file = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let pages = |group, column| file.get_row_group(group).unwrap().get_column_page_reader(column).unwrap();
        let pages = (0..file.num_row_groups()).flat_map(|group| [0, 1].map(|column| pages(group, column)));
        pages.flat_map(|pages: Box<dyn PageReader>| pages.map(|page| page.unwrap().buffer().len())).max().unwrap()
    };
    let page = encoders::PAGE_BYTES;
    for value in [100, 5_000, encoders::LARGE_BYTES as usize - 10] {
        let largest = largest(value) as u64;
        assert!(page < largest && largest < encoders::largest_page(u64::MAX, false), "{value}: {largest}");
    }
}

/// Of a column, which has a large value, or not; and of many columns with little in each.
#[test]
fn encoders_of_columns_are_asked_for_by_what_these_have() {
    let taken = |level: i32, columns: usize, value: usize| {
        let texts: StringArray =
            (0..1100).map(|at| Some(if at == 1099 { "x".repeat(value) } else { at.to_string() })).collect();
        let column = |at: usize| (at.to_string(), Arc::new(texts.clone()) as ArrayRef);
        let batch = RecordBatch::try_from_iter((0..columns).map(column)).unwrap();
        let options = ParquetOptions { compression: Compression::Zstd(level), ..ParquetOptions::default() };
        let least = |kib: &u64| {
            let sink = ParquetSink::new(Vec::new(), &batch.schema(), &options, &budget(kib << 10));
            sink.and_then(|mut sink| sink.write(&batch)).is_ok()
        };
        (0..).map(|mib| mib << 10).find(least).unwrap() >> 10
    };
    let (small, large) = (taken(19, 1, 9), taken(19, 1, 2 << 20));
    assert!((60..90).contains(&(large - small)), "{small} MiB, {large} MiB");
    // The value waits, and is copied.
    assert!(taken(3, 1, 2 << 20) < 20 + taken(3, 1, 9));
    // 11 KB in each.
    let (one, many) = (taken(19, 1, 9), taken(19, 101, 9));
    assert!((50..80).contains(&(many - one)), "{one} MiB, {many} MiB");
}

#[test]
fn batches_of_arrow_end_where_rows_say_and_not_where_batches_do() {
    let ids = Int64Array::from_iter_values(0..200_000);
    let batch = RecordBatch::try_from_iter([("a", Arc::new(ids) as ArrayRef)]).unwrap();
    let write = |rows: usize| {
        let mut sink = IpcSink::new(Vec::new(), &batch.schema(), &budget(1 << 30)).unwrap();
        (0..200_000).step_by(rows).for_each(|at| sink.write(&batch.slice(at, rows.min(200_000 - at))).unwrap());
        sink.finish().unwrap()
    };
    let (bytes, rows) = write(200_000);
    assert_eq!(rows, 200_000);
    assert!(bytes == write(7_000).0);
    let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
    let batches: Vec<_> = reader.map(|batch| batch.unwrap().num_rows()).collect();
    assert_eq!(batches, [65_536, 65_536, 65_536, 3_392]);
}

#[test]
fn memory_that_is_denied_makes_no_smaller_row_groups() {
    let batch =
        RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from_iter_values(0..100_000)) as ArrayRef)]).unwrap();
    let mut sink = ParquetSink::new(Vec::new(), &batch.schema(), &ParquetOptions::default(), &budget(1 << 20)).unwrap();
    let error = sink.write(&batch).unwrap_err();
    assert!(matches!(&error, SinkError::Memory { denied, .. } if denied.wanted > 1 << 20), "{error}");
}

#[test]
fn what_text_cannot_hold_is_refused() {
    let list = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
    for (data_type, dialect) in [
        (list, Dialect::csv()),
        (DataType::Binary, Dialect::csv()),
        (DataType::Utf8, Dialect { quote: None, ..Dialect::csv() }),
    ] {
        let schema = Arc::new(Schema::new(vec![Field::new("a", data_type, true)]));
        let error = TextSink::new(Vec::new(), &schema, &dialect).err().unwrap();
        assert!(matches!(&error, SinkError::NoSuchType { .. }), "{error}");
    }
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Timestamp(TimeUnit::Second, None), true)]));
    let mut sink = TextSink::new(Vec::new(), &schema, &Dialect::csv()).unwrap();
    let other = RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
    assert!(matches!(sink.write(&other).unwrap_err(), SinkError::Table(crate::TableError::TypeDiffers { .. })));
}
