use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use super::super::*;
use crate::RowHasher;
use crate::TableError;
use crate::block::{Gather, Layout, Limits, Pick};
use crate::plain::plain_type;
use crate::samples::{self, Seeded, Value};

fn both(left: &DataType, right: &DataType) -> Option<DataType> {
    unified("c", left, right).ok()
}

#[test]
fn types_have_one_that_holds_both_or_none() {
    use DataType::*;
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let utc = |unit| Timestamp(unit, Some("UTC".into()));
    let dictionary = |of| Dictionary(Box::new(Int8), Box::new(of));
    let list = |of| DataType::new_list(of, true);
    let large = |of| LargeList(Arc::new(Field::new_list_field(of, true)));
    let four = |of| FixedSizeList(Arc::new(Field::new_list_field(of, true)), 4);
    let table: &[(DataType, DataType, Option<DataType>)] = &[
        (Utf8, LargeUtf8, Some(LargeUtf8)),
        (Utf8View, dictionary(Utf8), Some(Utf8)),
        (dictionary(Utf8), dictionary(Utf8), Some(dictionary(Utf8))),
        (FixedSizeBinary(4), FixedSizeBinary(8), Some(Binary)),
        (FixedSizeBinary(4), LargeBinary, Some(LargeBinary)),
        (Utf8, Binary, None),
        (Null, dictionary(Int8), Some(Int8)),
        (Int8, Int64, Some(Int64)),
        (UInt8, Int8, Some(Int16)),
        (UInt32, Int64, Some(Int64)),
        (UInt32, Int32, Some(Int64)),
        (UInt64, Int8, None),
        (Int8, Float16, Some(Float16)),
        (Int16, Float16, Some(Float32)),
        (Int32, Float32, Some(Float64)),
        (UInt32, Float64, Some(Float64)),
        (Int64, Float64, None),
        (Float32, Float64, Some(Float64)),
        (Boolean, Int8, None),
        (Int64, Utf8, None),
        (Decimal128(10, 2), Decimal128(12, 2), Some(Decimal128(12, 2))),
        (Decimal128(10, 2), Decimal128(10, 5), Some(Decimal128(13, 5))),
        (Decimal32(9, 2), Decimal64(18, 4), Some(Decimal64(18, 4))),
        (Decimal32(9, 0), Decimal32(9, 9), Some(Decimal64(18, 9))),
        (Decimal128(38, 0), Decimal128(38, 10), Some(Decimal256(48, 10))),
        (Decimal256(76, 0), Decimal256(76, 1), None),
        (Decimal128(10, 2), Int32, Some(Decimal128(12, 2))),
        (Decimal32(5, 2), UInt64, Some(Decimal128(22, 2))),
        (Decimal128(10, 2), Float64, None),
        (Date32, Date64, Some(Date64)),
        (Date32, Timestamp(Second, None), None),
        (Time32(Second), Time32(Millisecond), Some(Time32(Millisecond))),
        (Time32(Second), Time64(Nanosecond), Some(Time64(Nanosecond))),
        (Timestamp(Second, None), Timestamp(Microsecond, None), Some(Timestamp(Microsecond, None))),
        (utc(Second), utc(Nanosecond), Some(utc(Nanosecond))),
        (utc(Second), Timestamp(Second, None), None),
        (Duration(Second), Duration(Millisecond), Some(Duration(Millisecond))),
        (list(Int8), large(Int16), Some(large(Int16))),
        (list(Int8), ListView(Arc::new(Field::new_list_field(Int8, true))), Some(list(Int8))),
        (four(Int8), four(Int16), Some(four(Int16))),
        (four(Int8), list(Int16), Some(list(Int16))),
        (list(Int64), list(Float64), None),
        (list(Int64), Int64, None),
    ];
    for (left, right, expected) in table {
        assert_eq!(both(left, right), *expected, "{left} and {right}");
        assert_eq!(both(right, left), *expected, "{right} and {left}");
    }
    // The zone of the first.
    let berlin = Timestamp(Second, Some("Europe/Berlin".into()));
    assert_eq!(both(&utc(Second), &berlin), Some(utc(Second)));
}

/// Values that are equal however they are written: whole numbers times what their type says, floats, others by their bytes.
fn meaning(array: &ArrayRef, row: usize) -> String {
    let value = match samples::value(array.as_ref(), row) {
        Value::Bytes(bytes) => bytes,
        other => return format!("{other:?}"),
    };
    let float = |value: f64| if value.is_nan() { "NaN".to_owned() } else { format!("{value:?}") };
    match array.data_type() {
        DataType::Float16 => float(array.as_primitive::<Float16Type>().value(row).into()),
        DataType::Float32 => float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        _ => format!("{value:?}"),
    }
}

#[test]
fn values_of_every_pair_of_types_that_unify_come_back_from_the_type_of_both() {
    let (mut seeded, mut pairs, mut back_again) = (Seeded(1), 0, 0);
    let schema = |of: &DataType| Arc::new(Schema::new(vec![Field::new("c", of.clone(), true)]));
    for left in samples::flat_types() {
        for right in samples::flat_types() {
            let Some(of_both) = both(&left, &right) else { continue };
            pairs += 1;
            let array = samples::array(&mut seeded, &left, 40);
            let batch = RecordBatch::try_new(schema(&left), vec![array.clone()]).unwrap();
            for row in 0..40 {
                let of_both = match conformed(&batch.slice(row, 1), &schema(&of_both)) {
                    // A random number may have more digits than its decimal, or lie beyond the years of nanoseconds.
                    Err(TableError::NotOfType { .. }) if !left.is_integer() && !left.is_floating() => continue,
                    other => other.unwrap(),
                };
                check_schema(&schema(&plain_type(of_both.schema().field(0).data_type())), &of_both.schema()).unwrap();
                let back = match conformed(&of_both, &schema(&left)) {
                    // No decimal becomes an integer again, no float an integer or a shorter date.
                    Err(TableError::TypeDiffers { .. }) => continue,
                    Err(TableError::NotOfType { .. }) if left.is_decimal() => continue,
                    other => other.unwrap(),
                };
                assert_eq!(meaning(back.column(0), 0), meaning(&array, row), "{left} and {right}");
                back_again += 1;
            }
        }
    }
    assert!(pairs > 200 && back_again > 4000, "{pairs} pairs, {back_again} values");
}

#[test]
fn numbers_become_those_of_the_type_or_an_error_with_the_value() {
    let conform = |array: ArrayRef, to: DataType| -> Result<ArrayRef, String> {
        let batch = RecordBatch::try_from_iter_with_nullable([("c", array, true)]).unwrap();
        let schema = Schema::new(vec![Field::new("c", to, true)]);
        conformed(&batch, &schema).map(|batch| batch.column(0).clone()).map_err(|error| error.to_string())
    };
    let decimal = |values: Vec<Option<i128>>, digits, scale| -> ArrayRef {
        Arc::new(Decimal128Array::from(values).with_precision_and_scale(digits, scale).unwrap())
    };
    let ints: ArrayRef = Arc::new(Int16Array::from(vec![Some(-7), None, Some(300)]));
    let expected: ArrayRef = Arc::new(Int64Array::from(vec![Some(-7), None, Some(300)]));
    assert!(conform(ints.clone(), DataType::Int64).unwrap().as_ref() == expected.as_ref());
    let expected = decimal(vec![Some(-700), None, Some(30_000)], 12, 2);
    assert!(conform(ints.clone(), DataType::Decimal128(12, 2)).unwrap().as_ref() == expected.as_ref());
    let expected: ArrayRef = Arc::new(Float32Array::from(vec![Some(-7.0), None, Some(300.0)]));
    assert!(conform(ints.clone(), DataType::Float32).unwrap().as_ref() == expected.as_ref());
    assert_eq!(conform(ints, DataType::Int8).unwrap_err(), "column c, row 2: 300 is no value of int8");
    let price = decimal(vec![Some(12_345), None], 10, 2);
    let expected = decimal(vec![Some(1_234_500), None], 12, 4);
    assert!(conform(price.clone(), DataType::Decimal128(12, 4)).unwrap().as_ref() == expected.as_ref());
    let error = conform(price.clone(), DataType::Decimal128(10, 1)).unwrap_err();
    assert_eq!(error, "column c, row 0: 123.45 is no value of decimal(10,1)");
    let error = conform(decimal(vec![Some(-5)], 10, 2), DataType::Decimal128(1, 1)).unwrap_err();
    assert_eq!(error, "column c, row 0: -0.05 is no value of decimal(1,1)");
    assert_eq!(conform(price, DataType::Int64).unwrap_err(), "column c is decimal(10,2), not int64");
    let big: ArrayRef = Arc::new(Int64Array::from(vec![1 << 53, (1 << 53) + 1]));
    let error = conform(big, DataType::Float64).unwrap_err();
    assert_eq!(error, "column c, row 1: 9007199254740993 is no value of float64");
    let far: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1 << 40]));
    let error = conform(far, DataType::Timestamp(TimeUnit::Nanosecond, None)).unwrap_err();
    assert_eq!(error, "column c, row 0: 1099511627776 is no value of timestamp[ns]");
    let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![-2, 3]));
    let millis: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![-2000, 3000]));
    let in_millis = conform(seconds, DataType::Timestamp(TimeUnit::Millisecond, None)).unwrap();
    assert!(in_millis.as_ref() == millis.as_ref());
    let times: ArrayRef = Arc::new(Time32MillisecondArray::from(vec![7]));
    let micros: ArrayRef = Arc::new(Time64MicrosecondArray::from(vec![7000]));
    assert!(conform(times, DataType::Time64(TimeUnit::Microsecond)).unwrap().as_ref() == micros.as_ref());
    let days: ArrayRef = Arc::new(Date32Array::from(vec![-1]));
    let in_millis: ArrayRef = Arc::new(Date64Array::from(vec![-86_400_000]));
    assert!(conform(days, DataType::Date64).unwrap().as_ref() == in_millis.as_ref());
}

fn schema(fields: Vec<Field>) -> Schema {
    Schema::new(fields)
}

#[test]
fn schemas_are_unified_by_name() {
    let inner = |fields: Vec<Field>| Field::new("s", DataType::new_list(DataType::Struct(fields.into()), true), false);
    let first = schema(vec![
        Field::new("id", DataType::Int32, false),
        Field::new("name", DataType::Utf8, false),
        inner(vec![Field::new("x", DataType::Int8, false), Field::new("y", DataType::Utf8, true)]),
    ]);
    let second = schema(vec![
        Field::new("name", DataType::LargeUtf8, false),
        Field::new("price", DataType::Float64, false),
        inner(vec![Field::new("z", DataType::Utf8, false), Field::new("x", DataType::Int16, false)]),
    ]);
    let mut of = UnifiedSchema::new("a.parquet", &first.with_metadata([("k".into(), "a".into())].into())).unwrap();
    of.add("b.parquet", &second.clone().with_metadata([("k".into(), "b".into()), ("l".into(), "b".into())].into()))
        .unwrap();
    let expected = schema(vec![
        Field::new("id", DataType::Int32, true),
        Field::new("name", DataType::LargeUtf8, false),
        inner(vec![
            Field::new("x", DataType::Int16, false),
            Field::new("y", DataType::Utf8, true),
            Field::new("z", DataType::Utf8, true),
        ]),
        Field::new("price", DataType::Float64, true),
    ]);
    let expected = expected.with_metadata([("k".into(), "a".into()), ("l".into(), "b".into())].into());
    assert_eq!(*of.schema(), expected);
    // Of a file with the fields of the one before, too.
    of.add("c.parquet", &second.with_metadata([("m".into(), "c".into())].into())).unwrap();
    assert_eq!(of.schema().metadata()["m"], "c");
}

#[test]
fn schemas_that_do_not_unify_are_refused_with_both_places() {
    let of = |name: &str, of: DataType| schema(vec![Field::new(name, of, true)]);
    let mut unified = UnifiedSchema::new("a.parquet", &of("price", DataType::Int32)).unwrap();
    unified.add("b.parquet", &of("price", DataType::Int64)).unwrap();
    unified.add("c.parquet", &of("price", DataType::Int8)).unwrap();
    let error = unified.add("d.parquet", &of("price", DataType::Float64)).unwrap_err().to_string();
    assert!(error.starts_with("column price is int64 in b.parquet and float64 in d.parquet: "), "{error}");
    let error = unified.add("d.parquet", &of("Price", DataType::Int64)).unwrap_err().to_string();
    assert!(error.starts_with("column price in b.parquet and column Price in d.parquet have one name"), "{error}");
    let twice = schema(vec![Field::new("a", DataType::Int8, true), Field::new("a", DataType::Int8, true)]);
    assert!(matches!(UnifiedSchema::new("a", &twice).unwrap_err(), TableError::NamesAlike { .. }));
    let error = UnifiedSchema::new("a.csv", &of("", DataType::Int8)).unwrap_err();
    assert_eq!(error.to_string(), "a column in a.csv has no name: give it one");
    let mut unified = UnifiedSchema::new("a", &of("b", DataType::Int8)).unwrap();
    assert!(matches!(unified.add("c", &twice).unwrap_err(), TableError::NamesAlike { .. }));
    let fields = |name: &str| DataType::Struct(vec![Field::new(name, DataType::Int8, true)].into());
    let error = unified.add("c", &of("b", fields("x"))).unwrap_err();
    assert!(matches!(error, TableError::NotUnified(_)), "{error}");
    let mut unified = UnifiedSchema::new("a", &of("b", fields("x"))).unwrap();
    let error = unified.add("c", &of("b", fields("X"))).unwrap_err();
    assert!(error.to_string().ends_with("names of fields differ by case alone"), "{error}");
    let zone = DataType::Timestamp(TimeUnit::Second, Some("UTC".into()));
    let mut unified = UnifiedSchema::new("a", &of("t", zone)).unwrap();
    let error = unified.add("c", &of("t", DataType::Timestamp(TimeUnit::Second, None))).unwrap_err().to_string();
    assert!(error.contains("one is an instant"), "{error}");
}

#[test]
fn batches_of_several_files_are_rows_of_one_schema() {
    let entries = |key: &str, value: DataType| -> Fields {
        vec![Field::new(key, DataType::Utf8, false), Field::new("value", value, true)].into()
    };
    let map = |entry: &str, key: &str, values: ArrayRef| -> ArrayRef {
        let fields = entries(key, values.data_type().clone());
        let keys = Arc::new(StringArray::from(vec!["k", "l"])) as ArrayRef;
        let field = Arc::new(Field::new(entry, DataType::Struct(fields.clone()), false));
        let structs = StructArray::new(fields, vec![keys, values], None);
        Arc::new(MapArray::new(field, OffsetBuffer::new(vec![0, 1, 2].into()), structs, None, false))
    };
    let lists = |name: &str, values: ArrayRef| -> ArrayRef {
        let field = Arc::new(Field::new(name, values.data_type().clone(), true));
        Arc::new(ListArray::new(field, OffsetBuffer::new(vec![0, 1, 2].into()), values, None))
    };
    let structs = |columns: Vec<(&str, ArrayRef)>| -> ArrayRef {
        let fields: Fields =
            columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
        Arc::new(StructArray::new(fields, columns.into_iter().map(|(_, array)| array).collect(), None))
    };
    let ints = |values: [i32; 2]| Arc::new(Int32Array::from(values.to_vec())) as ArrayRef;
    let longs = |values: [i64; 2]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    let words = || vec![Some("a"), None];
    let batch = |columns: Vec<(&str, ArrayRef)>| {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
            .unwrap()
    };
    let first = batch(vec![
        ("n", ints([1, 2])),
        ("t", Arc::new(words().into_iter().collect::<DictionaryArray<Int8Type>>())),
        ("l", lists("item", ints([3, 4]))),
        ("m", map("entries", "keys", ints([5, 6]))),
        ("s", structs(vec![("x", ints([7, 8])), ("y", ints([9, 10]))])),
    ]);
    let runs = RunArray::<Int16Type>::try_new(&Int16Array::from(vec![1, 2]), &Int32Array::from(vec![1, 2])).unwrap();
    let second = batch(vec![
        ("s", structs(vec![("z", ints([0, 0])), ("y", longs([9, 10])), ("x", ints([7, 8]))])),
        ("m", map("key_value", "key", longs([5, 6]))),
        ("t", Arc::new(LargeStringArray::from(words()))),
        ("l", lists("element", longs([3, 4]))),
        ("n", Arc::new(runs)),
        ("more", ints([11, 12])),
    ]);
    let third = batch(vec![("n", longs([1, 2]))]);
    let batches = [first, second, third];
    let mut unified = UnifiedSchema::new("0", &batches[0].schema()).unwrap();
    (1..3).for_each(|at| unified.add(&at.to_string(), &batches[at].schema()).unwrap());
    let of_all = unified.schema();
    let last = batches.each_ref().map(|batch| conformed(&batch.slice(1, 1), &of_all).unwrap());
    let batches = batches.map(|batch| conformed(&batch, &of_all).unwrap());
    for (last, batch) in last.iter().zip(&batches) {
        assert_eq!(samples::row(last, 0), samples::row(batch, 1), "of a slice");
    }
    let rows = |batch: &RecordBatch, columns: &[&str]| -> Vec<Vec<Value>> {
        let value = |name: &&str, row| samples::value(batch.column_by_name(name).unwrap().as_ref(), row);
        (0..2).map(|row| columns.iter().map(|name| value(name, row)).collect()).collect()
    };
    assert_eq!(rows(&batches[0], &["n", "t", "l", "m"]), rows(&batches[1], &["n", "t", "l", "m"]));
    assert_eq!(rows(&batches[0], &["n"]), rows(&batches[2], &["n"]));
    let nulls = vec![Value::Null; 5];
    assert_eq!(rows(&batches[2], &["t", "l", "m", "s", "more"]), [nulls.clone(), nulls]);
    for (at, z) in [(0, Value::Null), (1, Value::Bytes(vec![0; 4]))] {
        let Value::Struct(fields) = &rows(&batches[at], &["s"])[0][0] else { panic!("a struct") };
        assert_eq!(fields[..], [Value::Bytes(vec![7, 0, 0, 0]), Value::Bytes(9i64.to_le_bytes().to_vec()), z]);
    }
    // All that works on rows takes them, and rows that are the same have the same hash and key.
    let layout = Arc::new(Layout::new(&of_all).unwrap());
    let gather = Gather::new(layout.clone(), &batches).unwrap();
    let picks: Vec<_> = (0..3).flat_map(|batch| (0..2).map(move |row| Pick { batch, row })).collect();
    let [message] = gather.messages(&picks, &Limits::default()).unwrap().try_into().unwrap();
    let gathered = message.batch().unwrap();
    assert_eq!(gathered.schema(), *layout.schema());
    let [hasher, of_layout] = [&of_all, layout.schema()].map(|of| RowHasher::new(of).unwrap());
    let encoder = KeyEncoder::new(&of_all, &["n", "t", "l", "s"].map(KeyColumn::rising)).unwrap();
    let (mut hashes, mut again, mut keys) = (Vec::new(), Vec::new(), KeyRows::default());
    for batch in &batches {
        hasher.rows(batch, &mut hashes).unwrap();
        encoder.append(batch, &mut keys).unwrap();
    }
    of_layout.rows(&gathered, &mut again).unwrap();
    assert_eq!(hashes, again);
    let all = encoder.encode(&gathered).unwrap();
    (0..6).for_each(|row| assert_eq!(keys.get(row), all.get(row), "{row}"));
}

#[test]
fn batches_that_are_not_of_the_schema_are_refused() {
    let of: SchemaRef = Arc::new(schema(vec![Field::new("a", DataType::Int64, false)]));
    let batch = |name: &str, array: ArrayRef| RecordBatch::try_from_iter([(name, array)]).unwrap();
    let refused = |batch: RecordBatch| conformed(&batch, &of).unwrap_err().to_string();
    assert_eq!(refused(batch("b", Arc::new(Int64Array::from(vec![1])))), "no column b");
    let none = RecordBatch::new_empty(Arc::new(Schema::empty()));
    assert_eq!(refused(none), "no column a");
    assert_eq!(refused(batch("a", Arc::new(StringArray::from(vec!["1"])))), "column a is text, not int64");
}

/// Arrays that are one type written down in several ways.
fn spellings() -> Vec<Vec<ArrayRef>> {
    let text = || vec![Some("a"), None, Some("longer than twelve bytes")];
    let bytes = || vec![Some(&b"abcd"[..]), None, Some(b"efgh")];
    let times = |zone: &str| Arc::new(TimestampSecondArray::from(vec![1, 2, 3]).with_timezone(zone)) as ArrayRef;
    let decimals = |digits| -> ArrayRef {
        Arc::new(Decimal128Array::from(vec![1, 2, 3]).with_precision_and_scale(digits, 2).unwrap())
    };
    let elements = || Int64Array::from(vec![Some(1), None, Some(3), Some(4), Some(5), Some(6)]);
    let item = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
    vec![
        vec![
            Arc::new(LargeStringArray::from(text())),
            Arc::new(StringArray::from(text())),
            Arc::new(StringViewArray::from(text())),
            Arc::new(text().into_iter().collect::<DictionaryArray<Int16Type>>()),
        ],
        vec![
            Arc::new(BinaryArray::from(bytes())),
            Arc::new(LargeBinaryArray::from(bytes())),
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes().into_iter(), 4).unwrap()),
        ],
        vec![times("UTC"), times("Europe/Berlin")],
        vec![decimals(20), decimals(5)],
        vec![
            Arc::new(ListArray::new(
                item("item"),
                OffsetBuffer::new(vec![0, 2, 4, 6].into()),
                Arc::new(elements()),
                None,
            )),
            Arc::new(LargeListArray::new(
                item("element"),
                OffsetBuffer::new(vec![0, 2, 4, 6].into()),
                Arc::new(elements()),
                None,
            )),
            Arc::new(FixedSizeListArray::new(item("e"), 2, Arc::new(elements()), None)),
        ],
    ]
}

#[test]
fn hashes_keys_and_gathers_take_a_type_however_it_is_written_down() {
    for arrays in spellings() {
        let batch = |array: &ArrayRef| RecordBatch::try_from_iter_with_nullable([("c", array.clone(), true)]).unwrap();
        let schema = batch(&arrays[0]).schema();
        let hasher = RowHasher::new(&schema).unwrap();
        let encoder = KeyEncoder::new(&schema, &[KeyColumn::rising("c")]).unwrap();
        let layout = Arc::new(Layout::new(&schema).unwrap());
        let picks = [2, 0, 1].map(|row| Pick { batch: 0, row });
        let all = |array: &ArrayRef| {
            let batch = batch(array);
            let gather = Gather::new(layout.clone(), std::slice::from_ref(&batch)).unwrap();
            let [message] = gather.messages(&picks, &Limits::default()).unwrap().try_into().unwrap();
            let keys = encoder.encode(&batch).unwrap();
            let keys: Vec<_> = (0..3).map(|row| keys.get(row).to_vec()).collect();
            (hasher.sum(&batch).unwrap(), keys, message.batch().unwrap())
        };
        for array in &arrays {
            assert!(all(array) == all(&arrays[0]), "{}", array.data_type());
        }
    }
}

#[test]
fn hashes_keys_and_gathers_refuse_other_types_alike() {
    let array = |of: &DataType| RecordBatch::new_empty(Arc::new(schema(vec![Field::new("c", of.clone(), true)])));
    let utc = DataType::Timestamp(TimeUnit::Second, Some("UTC".into()));
    for (expected, found) in [
        (DataType::Utf8, DataType::Binary),
        (DataType::Int64, DataType::Int32),
        (DataType::Decimal128(10, 2), DataType::Decimal128(10, 3)),
        (DataType::Decimal128(10, 2), DataType::Decimal128(12, 2)),
        (utc, DataType::Timestamp(TimeUnit::Second, None)),
        (DataType::FixedSizeBinary(4), DataType::Binary),
        (DataType::new_list(DataType::Int8, true), DataType::new_list(DataType::Int16, true)),
    ] {
        let (expected, found) = (array(&expected), array(&found));
        let layout = Arc::new(Layout::new(&expected.schema()).unwrap());
        let errors = [
            RowHasher::new(&expected.schema()).unwrap().sum(&found).unwrap_err(),
            KeyEncoder::new(&expected.schema(), &[KeyColumn::rising("c")]).unwrap().encode(&found).unwrap_err(),
            Gather::new(layout, &[found]).unwrap_err(),
        ];
        let texts = errors.map(|error| error.to_string());
        assert!(texts[0].starts_with("column c"), "{}", texts[0]);
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    }
}

#[test]
fn a_value_inside_others_that_does_not_fit_is_told_by_its_row() {
    use arrow_array::builder::{FixedSizeListBuilder, Int16Builder, ListBuilder, MapBuilder, StringBuilder};
    use arrow_array::{Array, ArrayRef, DictionaryArray, Int16Array, Int32Array, RunArray, types::Int32Type};
    let mut lists = ListBuilder::new(Int16Builder::new());
    let mut pairs = FixedSizeListBuilder::new(Int16Builder::new(), 2);
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int16Builder::new());
    for row in 0..9 {
        // Row 7 of these has the 300.
        let values = [1, if row == 7 { 300 } else { 2 }];
        lists.append_value(values.iter().map(|value| Some(*value)).take(if row % 3 == 1 { 2 } else { 0 }));
        pairs.values().append_slice(&values);
        pairs.append(true);
        maps.keys().append_value("k");
        maps.values().append_value(values[1]);
        maps.append(true).unwrap();
    }
    let keys = Int32Array::from(vec![0, 0, 0, 0, 0, 0, 0, 1, 0]);
    let dictionary = DictionaryArray::new(keys, Arc::new(Int16Array::from(vec![5, 300])));
    let runs =
        RunArray::<Int32Type>::try_new(&Int32Array::from(vec![3, 7, 9]), &Int16Array::from(vec![1, 2, 300])).unwrap();
    let arrays: [ArrayRef; 5] = [
        Arc::new(lists.finish()),
        Arc::new(pairs.finish()),
        Arc::new(maps.finish()),
        Arc::new(dictionary),
        Arc::new(runs),
    ];
    for array in arrays {
        let narrow = |of: &DataType| -> DataType {
            let field = |field: &Field, of: DataType| Arc::new(field.clone().with_data_type(of));
            match of {
                DataType::List(of) => DataType::List(field(of, DataType::Int8)),
                DataType::FixedSizeList(of, size) => DataType::FixedSizeList(field(of, DataType::Int8), *size),
                DataType::Map(of, sorted) => {
                    let DataType::Struct(fields) = of.data_type() else { panic!("{of}") };
                    let entries = vec![fields[0].clone(), field(&fields[1], DataType::Int8)];
                    DataType::Map(field(of, DataType::Struct(entries.into())), *sorted)
                }
                _ => DataType::Int8,
            }
        };
        let of = |data_type| Schema::new(vec![Field::new("c", data_type, true)]);
        // Rows before are cut off: 7 is 5 then.
        let (schema, array) = (of(narrow(array.data_type())), array.slice(2, 7));
        let batch = RecordBatch::try_new(Arc::new(of(array.data_type().clone())), vec![array]).unwrap();
        let error = conformed(&batch, &schema).unwrap_err();
        let row = error.of_row().map(|(_, row, _)| row);
        assert_eq!(row, Some(5), "{error}");
    }
}

#[test]
fn a_dictionary_of_nothing_is_one_of_another_type() {
    let nulls = DictionaryArray::new(Int32Array::from(vec![None, None]), Arc::new(Int16Array::from(Vec::<i16>::new())));
    let batch = RecordBatch::try_from_iter([("c", Arc::new(nulls) as ArrayRef)]).unwrap();
    let schema = Schema::new(vec![Field::new("c", DataType::Int64, true)]);
    let conformed = conformed(&batch, &schema).unwrap();
    assert_eq!(plain_type(conformed.column(0).data_type()), DataType::Int64);
    assert!((0..2).all(|row| samples::value(conformed.column(0).as_ref(), row) == Value::Null));
}
