//! Every type in every format: what a sink has written, a source reads, or it was refused before.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::i256;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::*;
use crate::RowHasher;
use crate::block::{Gather, Layout, Limits, Pick};
use crate::samples::{self, MemoryFile, Seeded, Value, row};
use crate::semantics::{FileTypes, check_schema, conformed, stored_schema};
use crate::sources::text::Dialect;
use crate::sources::{FixedBudget, InputFormat, MemoryBudget, Source, TextOptions};

const FORMATS: [(FileTypes, InputFormat); 5] = [
    (FileTypes::Parquet, InputFormat::Parquet),
    (FileTypes::Arrow, InputFormat::Arrow),
    (FileTypes::Text, InputFormat::Csv),
    (FileTypes::Text, InputFormat::Tsv),
    (FileTypes::Json, InputFormat::JsonLines),
];

fn budget() -> Arc<dyn MemoryBudget> {
    Arc::new(FixedBudget::new(1 << 30))
}

/// Rows with just the types of the schema.
fn gathered(batch: &RecordBatch, schema: &SchemaRef) -> RecordBatch {
    let gather = Gather::new(Arc::new(Layout::new(schema).unwrap()), &[conformed(batch, schema).unwrap()]).unwrap();
    let picks: Vec<_> = (0..batch.num_rows() as u32).map(|row| Pick { batch: 0, row }).collect();
    match gather.messages(&picks, &Limits::default()).unwrap().as_slice() {
        [] => RecordBatch::new_empty(schema.clone()),
        [message] => message.batch().unwrap(),
        several => panic!("{} messages", several.len()),
    }
}

fn dialect(format: InputFormat) -> Dialect {
    if format == InputFormat::Tsv { Dialect::tsv() } else { Dialect::csv() }
}

fn write(batch: &RecordBatch, format: InputFormat, group_rows: u64) -> Vec<u8> {
    let (schema, budget) = (batch.schema(), budget());
    match format {
        InputFormat::Parquet => {
            let options = ParquetOptions { group_rows, ..ParquetOptions::default() };
            let mut sink = ParquetSink::new(Vec::new(), &schema, &options, &budget).unwrap();
            sink.write(batch).unwrap();
            sink.finish().unwrap().0
        }
        InputFormat::Arrow => {
            let mut sink = IpcSink::new(Vec::new(), &schema, &budget).unwrap();
            sink.write(batch).unwrap();
            sink.finish().unwrap().0
        }
        InputFormat::JsonLines => {
            let mut sink = JsonSink::new(Vec::new(), &schema).unwrap();
            sink.write(batch).unwrap();
            sink.finish().unwrap().0
        }
        format => {
            let mut sink = TextSink::new(Vec::new(), &schema, &dialect(format)).unwrap();
            sink.write(batch).unwrap();
            sink.finish().unwrap().0
        }
    }
}

/// Writes rows, of which the schema is one that is stored, and reads them: they have the same types, values and hash.
#[track_caller]
fn check(batch: &RecordBatch, format: InputFormat, group_rows: u64) {
    let schema = batch.schema();
    let types = schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect();
    let is_text = format.is_text();
    let types = if is_text { types } else { Vec::new() };
    let options = TextOptions { types, are_all: true, ..TextOptions::default() };
    let input = MemoryFile::input("t", write(batch, format, group_rows));
    let source = Source::open(input, format, &options, &budget()).unwrap();
    match format {
        // Which does not say how wide offsets were.
        InputFormat::Parquet => check_schema(&schema, source.schema()).unwrap(),
        _ => assert!(same_types(&schema, source.schema()), "{format}: {}, not {schema}", source.schema()),
    }
    let (hasher, states) = (RowHasher::new(&schema).unwrap(), source.states(&budget()).unwrap());
    let (mut rows, mut hash) = (Vec::<Vec<Value>>::new(), exobus_store::RowHash::default());
    for split in source.splits().unwrap() {
        for read in source.read(split.index, states.get(split.index).copied(), None, &budget()).unwrap() {
            let read = read.unwrap().batch;
            rows.extend((0..read.num_rows()).map(|at| row(&read, at)));
            hash += hasher.sum(&conformed(&read, &schema).unwrap()).unwrap();
        }
    }
    let expected: Vec<_> = (0..batch.num_rows()).map(|at| row(batch, at)).collect();
    assert!(rows == expected, "{format}, {schema}: {:?}", rows.iter().zip(&expected).find(|(one, other)| one != other));
    assert_eq!(hash, hasher.sum(batch).unwrap(), "{format}, {schema}");
}

fn same_types(one: &Schema, other: &Schema) -> bool {
    let of = |schema: &Schema| schema.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>();
    of(one) == of(other)
}

/// A column whose values are some that its type and all formats which have it can have.
fn column(seeded: &mut Seeded, of: &DataType, rows: usize) -> ArrayRef {
    fn mapped<T: ArrowPrimitiveType>(array: &dyn Array, map: impl Fn(T::Native) -> T::Native) -> ArrayRef {
        let values: PrimitiveArray<T> = array.as_primitive::<T>().unary(map);
        Arc::new(values.with_data_type(array.data_type().clone()))
    }
    let array = samples::array(seeded, of, rows);
    let array = array.as_ref();
    // From the year 69 to 4439: dates have four digits in text. Nanoseconds are fewer anyway.
    let seconds = |value: i64, per_second: i64| value % (140_000_000_000 / 2 * per_second);
    match of {
        DataType::Date32 => mapped::<Date32Type>(array, |days| days.rem_euclid(1_500_000) - 600_000),
        DataType::Date64 => mapped::<Date64Type>(array, |value| (value.rem_euclid(1_500_000) - 600_000) * 86_400_000),
        DataType::Time32(TimeUnit::Second) => mapped::<Time32SecondType>(array, |value| value.rem_euclid(86_400)),
        DataType::Timestamp(TimeUnit::Second, _) => {
            mapped::<TimestampSecondType>(array, |value| seconds(value, 1).rem_euclid(70_000_000_000))
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            mapped::<TimestampMillisecondType>(array, |value| value.rem_euclid(70_000_000_000_000) - 50_000_000_000_000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => mapped::<TimestampMicrosecondType>(array, |value| {
            value.rem_euclid(70_000_000_000_000_000) - 50_000_000_000_000_000
        }),
        DataType::Decimal32(digits, _) => mapped::<Decimal32Type>(array, |value| value % 10_i32.pow((*digits).into())),
        DataType::Decimal64(digits, _) => mapped::<Decimal64Type>(array, |value| value % 10_i64.pow((*digits).into())),
        DataType::Decimal128(digits, _) => {
            mapped::<Decimal128Type>(array, |value| value % 10_i128.pow((*digits).into()))
        }
        DataType::Decimal256(digits, _) => {
            mapped::<Decimal256Type>(array, |value| value % i256::from_i128(10).wrapping_pow((*digits).into()))
        }
        _ => samples::array(seeded, of, rows),
    }
}

/// The one NaN that text has.
fn with_one_nan(batch: &RecordBatch) -> RecordBatch {
    let columns = batch.columns().iter().map(|column| -> ArrayRef {
        match column.data_type() {
            DataType::Float32 => {
                let one = |value: f32| if value.is_nan() { f32::NAN } else { value };
                Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(one))
            }
            DataType::Float64 => {
                let one = |value: f64| if value.is_nan() { f64::NAN } else { value };
                Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(one))
            }
            _ => column.clone(),
        }
    });
    RecordBatch::try_new(batch.schema(), columns.collect()).unwrap()
}

/// Rows with what JSON has: floats that are numbers, years of four digits, and maps whose keys are each there once.
fn in_json(batch: &RecordBatch) -> RecordBatch {
    let columns = batch.columns().iter().map(|column| make_array(finite(column.to_data(), &mut 0)));
    RecordBatch::try_new(batch.schema(), columns.collect()).unwrap()
}

fn finite(data: ArrayData, keys: &mut usize) -> ArrayData {
    let array = make_array(data.clone());
    match data.data_type() {
        DataType::Float32 => {
            let one = |value: f32| if value.is_finite() { value } else { -0.0 };
            array.as_primitive::<Float32Type>().unary::<_, Float32Type>(one).to_data()
        }
        DataType::Float64 => {
            let one = |value: f64| if value.is_finite() { value } else { -0.0 };
            array.as_primitive::<Float64Type>().unary::<_, Float64Type>(one).to_data()
        }
        DataType::Date32 => array
            .as_primitive::<Date32Type>()
            .unary::<_, Date32Type>(|days| days.rem_euclid(1_500_000) - 600_000)
            .to_data(),
        DataType::Map(..) => {
            let entries = array.as_map().entries().clone();
            let numbered = |key: Option<&str>| {
                *keys += 1;
                key.map(|key| format!("{key}\"{keys}"))
            };
            let names: arrow_array::StringArray = entries.column(0).as_string::<i32>().iter().map(numbered).collect();
            let values = make_array(finite(entries.column(1).to_data(), keys));
            let entries = arrow_array::StructArray::new(entries.fields().clone(), vec![Arc::new(names), values], None);
            data.into_builder().child_data(vec![entries.to_data()]).build().unwrap()
        }
        _ => {
            let children = data.child_data().iter().map(|child| finite(child.clone(), keys)).collect();
            data.into_builder().child_data(children).build().unwrap()
        }
    }
}

/// Checks rows in all formats that have their types; which of these they were.
fn check_all(batch: &RecordBatch) -> Vec<InputFormat> {
    let mut written = Vec::new();
    for (types, format) in FORMATS {
        let Ok(schema) = stored_schema(types, &batch.schema()) else { continue };
        let stored = gathered(batch, &schema);
        let stored = match types {
            FileTypes::Text => with_one_nan(&stored),
            FileTypes::Json => in_json(&stored),
            _ => stored,
        };
        check(&stored, format, 7);
        written.push(format);
    }
    written
}

/// Flat types, and some that have them inside.
fn all_types() -> Vec<DataType> {
    let list = |of| DataType::List(Arc::new(Field::new("item", of, true)));
    let pair = |one, other| DataType::Struct(vec![Field::new("a", one, true), Field::new("b c", other, true)].into());
    let map = |of| {
        let entries = vec![Field::new("key", DataType::Utf8, false), Field::new("value", of, true)];
        DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries.into()), false)), false)
    };
    let mut types = samples::flat_types();
    types.extend([
        list(DataType::Int64),
        list(pair(DataType::Utf8, DataType::Float64)),
        list(list(DataType::Binary)),
        DataType::LargeList(Arc::new(Field::new("item", DataType::Boolean, true))),
        DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), 3),
        pair(list(DataType::Utf8), pair(DataType::Int8, DataType::UInt64)),
        map(DataType::Int32),
        map(list(pair(DataType::Date32, DataType::LargeUtf8))),
    ]);
    types
}

#[test]
fn every_type_comes_back_from_every_format_that_has_it() {
    let mut seeded = Seeded(18);
    for of in all_types() {
        let field = Arc::new(Field::new("c", of.clone(), true));
        for rows in [0, 1, 100] {
            let columns = vec![column(&mut seeded, &of, rows)];
            let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field.clone()])), columns).unwrap();
            let written = check_all(&batch);
            assert!(written.contains(&InputFormat::Arrow), "{of}");
            let is_refused = matches!(
                of,
                DataType::Interval(arrow_schema::IntervalUnit::MonthDayNano) | DataType::FixedSizeBinary(0)
            );
            assert_eq!(written.contains(&InputFormat::Parquet), !is_refused, "{of}");
        }
    }
}

#[test]
fn what_text_does_not_give_back_is_not_written_as_text() {
    let texts = all_types().into_iter().filter(|of| {
        let schema = Schema::new(vec![Field::new("c", of.clone(), true)]);
        stored_schema(FileTypes::Text, &schema).is_ok()
    });
    let texts: Vec<_> = texts.map(|of| of.to_string()).collect();
    let expected = "Boolean Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float16 Float32 Float64 Date32 Date64 Utf8 LargeUtf8 Utf8View";
    assert_eq!(texts[..17].join(" "), expected);
    assert!(texts[17..].iter().all(|of| of.starts_with("Decimal") || of.starts_with("Timestamp")), "{texts:?}");
}

#[test]
fn numbers_of_note_keep_their_bits() {
    let floats = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, f64::MAX, 0.1, f64::from_bits(1)];
    let payloads = [f64::NAN, -f64::NAN, f64::from_bits(0x7ff8_0000_0000_1234), f64::from_bits(0xfff0_0000_0000_0001)];
    let wide: Vec<_> = floats.into_iter().map(Some).chain([None]).chain(payloads.map(Some)).collect();
    let narrow: Vec<_> = wide.iter().map(|one| one.map(|one| one as f32)).collect();
    let ends: Vec<_> = (0..wide.len()).map(|at| [Some(i64::MIN), Some(i64::MAX), None][at % 3]).collect();
    let columns: [(&str, ArrayRef); 3] = [
        ("wide", Arc::new(arrow_array::Float64Array::from(wide))),
        ("narrow", Arc::new(arrow_array::Float32Array::from(narrow))),
        ("ends", Arc::new(arrow_array::Int64Array::from(ends))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
    assert_eq!(check_all(&batch).len(), 5);
}

#[test]
fn a_thousand_columns_come_back() {
    let mut seeded = Seeded(1);
    let types: Vec<_> =
        all_types().into_iter().filter(|of| stored_schema(FileTypes::Parquet, &of_type(of)).is_ok()).collect();
    let fields: Vec<_> =
        (0..1000).map(|at| Field::new(format!("c{at}"), types[at % types.len()].clone(), true)).collect();
    let columns = fields.iter().map(|field| column(&mut seeded, field.data_type(), 20)).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    assert_eq!(check_all(&batch), [InputFormat::Parquet, InputFormat::Arrow]);
    let fields: Vec<_> = (0..1000).map(|at| Field::new(format!("c{at}"), DataType::Int32, true)).collect();
    let columns = fields.iter().map(|field| column(&mut seeded, field.data_type(), 20)).collect();
    let options = RecordBatchOptions::new();
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).unwrap();
    assert_eq!(check_all(&batch).len(), 5);
}

fn of_type(of: &DataType) -> Schema {
    Schema::new(vec![Field::new("c", of.clone(), true)])
}
