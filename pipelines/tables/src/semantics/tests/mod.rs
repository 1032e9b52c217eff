use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{Buffer, i256};
use arrow_schema::{DataType, Field, IntervalUnit, Schema, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::TableError;
use crate::plain::Indirection;
use crate::samples::{self, Seeded, Value};

mod decode;
mod floats;
mod stored;
mod sums;
mod unified;

/// The order of two rows of a column, by the words of docs/semantics.md, one value at a time.
fn naive(array: &dyn Array, left: usize, right: usize, key: &KeyColumn) -> Ordering {
    let value = |row| resolved(array, row);
    let (left, right) = match (value(left), value(right)) {
        (None, None) => return Ordering::Equal,
        (None, Some(_)) => return if key.nulls == Nulls::First { Ordering::Less } else { Ordering::Greater },
        (Some(_), None) => return if key.nulls == Nulls::First { Ordering::Greater } else { Ordering::Less },
        (Some(left), Some(right)) => (left, right),
    };
    let turned = |order: Ordering| if key.descending { order.reverse() } else { order };
    let ((left_of, left), (right_of, right)) = (left, right);
    let (one, other) = (left_of.as_ref(), right_of.as_ref());
    let elements = |array: &dyn Array, row| -> ArrayRef {
        match array.data_type() {
            DataType::List(_) => array.as_list::<i32>().value(row),
            DataType::LargeList(_) => array.as_list::<i64>().value(row),
            DataType::ListView(_) => array.as_list_view::<i32>().value(row),
            DataType::LargeListView(_) => array.as_list_view::<i64>().value(row),
            _ => array.as_fixed_size_list().value(row),
        }
    };
    match one.data_type() {
        of if of.is_nested() && !matches!(of, DataType::Struct(_)) => {
            let (one, other) = (elements(one, left), elements(other, right));
            let both = arrow_select::concat::concat(&[&one, &other]).unwrap();
            let pairs = (0..one.len().min(other.len())).map(|at| naive(both.as_ref(), at, one.len() + at, key));
            pairs.fold(Ordering::Equal, Ordering::then).then(turned(one.len().cmp(&other.len())))
        }
        DataType::Struct(_) => {
            let columns = one.as_struct().columns().iter().zip(other.as_struct().columns());
            columns.fold(Ordering::Equal, |order, (one, other)| {
                let both = arrow_select::concat::concat(&[&one.slice(left, 1), &other.slice(right, 1)]).unwrap();
                order.then_with(|| naive(both.as_ref(), 0, 1, key))
            })
        }
        _ => turned(naive_flat(one, left, other, right)),
    }
}

/// Array and row of a value behind dictionaries and run ends; `None`: it is null.
fn resolved(array: &dyn Array, row: usize) -> Option<(ArrayRef, usize)> {
    if samples::value(array, row) == Value::Null {
        return None;
    }
    match Indirection::of(array) {
        Some(of) => resolved(of.values.as_ref(), of.place(row)),
        None => Some((make_array(array.to_data()), row)),
    }
}

fn naive_flat(one: &dyn Array, left: usize, other: &dyn Array, right: usize) -> Ordering {
    let float = |one: f64, other: f64| match (one.is_nan(), other.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        // Knows one zero.
        (false, false) => one.partial_cmp(&other).unwrap(),
    };
    let bits = |array, row| match samples::value(array, row) {
        Value::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    let (bytes, other_bytes) = (bits(one, left), bits(other, right));
    // Little-endian, up to 256 bits, signed or not.
    let number = |bytes: &[u8], signed: bool| {
        let fill = if signed && bytes.last().is_some_and(|last| *last >= 0x80) { 0xff } else { 0 };
        let mut wide = [fill; 32];
        wide[..bytes.len()].copy_from_slice(bytes);
        i256::from_le_bytes(wide)
    };
    use DataType::*;
    match one.data_type() {
        Float16 => {
            let wide = |array: &dyn Array, row| f64::from(array.as_primitive::<Float16Type>().value(row));
            float(wide(one, left), wide(other, right))
        }
        Float32 => {
            let wide = |array: &dyn Array, row| f64::from(array.as_primitive::<Float32Type>().value(row));
            float(wide(one, left), wide(other, right))
        }
        Float64 => {
            let wide = |array: &dyn Array, row| array.as_primitive::<Float64Type>().value(row);
            float(wide(one, left), wide(other, right))
        }
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView | FixedSizeBinary(_) | Boolean => {
            bytes.cmp(&other_bytes)
        }
        UInt8 | UInt16 | UInt32 | UInt64 => number(&bytes, false).cmp(&number(&other_bytes, false)),
        _ => number(&bytes, true).cmp(&number(&other_bytes, true)),
    }
}

/// All pairs of rows by their keys, and by the naive order.
fn check(batch: &RecordBatch, key: &[KeyColumn]) {
    let encoder = KeyEncoder::new(&batch.schema(), key).unwrap();
    let keys = encoder.encode(batch).unwrap();
    assert_eq!(keys.len(), batch.num_rows());
    assert_eq!(
        keys.memory_bytes() as u64,
        encoder.measure(batch).unwrap().bytes().unwrap(),
        "memory that was said before"
    );
    for left in 0..batch.num_rows() {
        for right in 0..batch.num_rows() {
            let expected = key.iter().fold(Ordering::Equal, |order, column| {
                order.then_with(|| naive(batch.column_by_name(&column.column).unwrap().as_ref(), left, right, column))
            });
            let found = keys.get(left).cmp(keys.get(right));
            let rows = || (samples::row(batch, left), samples::row(batch, right));
            assert_eq!(found, expected, "rows {left} and {right} by {key:?} of {}: {:?}", batch.schema(), rows());
        }
    }
}

fn ordered(seeded: &mut Seeded, depth: usize) -> DataType {
    loop {
        let of = samples::data_type(seeded, depth);
        if check_order("c", &of).is_ok() {
            return of;
        }
    }
}

#[test]
fn keys_of_every_type_with_an_order_compare_as_the_values_do() {
    let mut seeded = Seeded(7);
    for of in samples::flat_types().into_iter().filter(|of| check_order("c", of).is_ok()) {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(of.clone()));
        for of in [of.clone(), dictionary, DataType::new_list(of, true)] {
            let batch = samples::batch_of(&mut seeded, &[of], 30);
            for (descending, nulls) in
                [(false, Nulls::Last), (false, Nulls::First), (true, Nulls::Last), (true, Nulls::First)]
            {
                check(&batch, &[KeyColumn { column: "c0".into(), descending, nulls }]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn keys_of_random_columns_compare_as_the_values_do(seed in any::<u64>()) {
        let mut seeded = Seeded(seed);
        let types: Vec<_> = (0..1 + seeded.below(3)).map(|_| ordered(&mut seeded, 2)).collect();
        let batch = samples::batch_of(&mut seeded, &types, 12);
        let key: Vec<_> = (0..types.len())
            .map(|index| KeyColumn {
                column: format!("c{index}"),
                descending: seeded.below(2) == 0,
                nulls: seeded.pick(&[Nulls::First, Nulls::Last]),
            })
            .collect();
        check(&batch, &key);
        // The same bytes whatever the encoding.
        let plain = samples::plain(&batch);
        let [keys, plain_keys] = [&batch, &plain].map(|batch| KeyEncoder::new(&batch.schema(), &key).unwrap().encode(batch).unwrap());
        for row in 0..batch.num_rows() {
            prop_assert_eq!(keys.get(row), plain_keys.get(row), "row {} of {}", row, batch.schema());
        }
    }
}

#[test]
fn values_without_bytes_are_as_many_as_there_are_rows() {
    let values = FixedSizeBinaryArray::try_new_with_len(0, Buffer::default(), None, 3).unwrap();
    let batch = one(DictionaryArray::new(Int8Array::from(vec![0, 2]), Arc::new(values)));
    check(&batch, &[KeyColumn::rising("c")]);
}

fn one(array: impl Array + 'static) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("c", Arc::new(array) as ArrayRef, true)]).unwrap()
}

fn encoded(batch: &RecordBatch) -> KeyRows {
    KeyEncoder::new(&batch.schema(), &[KeyColumn::rising("c")]).unwrap().encode(batch).unwrap()
}

#[test]
fn zeros_and_nans_are_one_key_each() {
    let floats = [f64::NAN, -f64::NAN, f64::from_bits(0xfff0_0000_0000_0123), f64::INFINITY, 0.0, -0.0, -1.0];
    let keys = encoded(&one(Float64Array::from(floats.to_vec())));
    assert!(keys.get(0) == keys.get(1) && keys.get(1) == keys.get(2), "NaN equals itself");
    assert!(keys.get(0) > keys.get(3), "NaN is above all numbers");
    assert!(keys.get(4) == keys.get(5) && keys.get(5) > keys.get(6), "there is one zero");
}

#[test]
fn nulls_are_last_in_either_direction_unless_told() {
    let batch = one(Int64Array::from(vec![Some(1), None, Some(2)]));
    for descending in [false, true] {
        let key = KeyColumn { column: "c".into(), descending, nulls: Nulls::default() };
        let keys = KeyEncoder::new(&batch.schema(), &[key]).unwrap().encode(&batch).unwrap();
        assert!(keys.get(1) > keys.get(0).max(keys.get(2)), "descending: {descending}");
        assert_eq!(keys.get(0) > keys.get(2), descending);
    }
}

#[test]
fn timestamps_compare_by_instant_and_never_without_a_zone() {
    let times = |zone: Option<&str>| {
        let array = TimestampMicrosecondArray::from(vec![5, 6]);
        one(match zone {
            Some(zone) => array.with_timezone(zone),
            None => array,
        })
    };
    let encoder = KeyEncoder::new(&times(Some("UTC")).schema(), &[KeyColumn::rising("c")]).unwrap();
    let [utc, berlin] = ["UTC", "Europe/Berlin"].map(|zone| encoder.encode(&times(Some(zone))).unwrap());
    assert_eq!(utc.get(1), berlin.get(1));
    let error = encoder.encode(&times(None)).unwrap_err();
    assert!(matches!(error, TableError::ZonesMixed { .. }), "{error}");
    assert!(error.to_string().starts_with("column c: "), "{error}");
    let inside =
        |zone: Option<&str>| DataType::new_list(DataType::Timestamp(TimeUnit::Second, zone.map(Into::into)), true);
    let error = check_type("c", &inside(None), &inside(Some("UTC"))).unwrap_err();
    assert!(matches!(&error, TableError::ZonesMixed { column, .. } if column == "c.item"), "{error}");
    let seconds = one(TimestampSecondArray::from(vec![5]).with_timezone("UTC"));
    assert!(matches!(encoder.encode(&seconds).unwrap_err(), TableError::TypeDiffers { .. }), "another unit");
}

#[test]
fn keys_without_an_order_are_refused_by_column_and_type() {
    let refused = |of: DataType| {
        let schema = Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("span", of, true)]);
        let error = KeyEncoder::new(&schema, &["a", "span"].map(KeyColumn::rising)).unwrap_err();
        assert!(matches!(error, TableError::NoOrder { .. }), "{error}");
        error.to_string()
    };
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    assert_eq!(
        refused(interval.clone()),
        "column span cannot be a key: Interval(MonthDayNano) has no order (a month is no number of days)"
    );
    assert!(refused(DataType::new_list(interval.clone(), true)).starts_with("column span.item cannot be a key"));
    let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(interval));
    assert!(refused(dictionary).starts_with("column span cannot be a key"));
    let entries = DataType::Struct(
        vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)].into(),
    );
    assert!(refused(DataType::Map(Arc::new(Field::new("entries", entries, false)), false)).contains("no order"));
}

#[test]
fn partitions_follow_from_keys_alone() {
    // Given by the xxhash package of Python.
    assert_eq!(key_hash(b""), 0x2d06_8005_38d3_94c2);
    assert_eq!(key_hash(b"\x01exobus"), 0xd37d_2cd9_e004_25d5);
}

/// Of a struct of a number `x` and a text `y`, the second row null.
fn structs() -> StructArray {
    let fields = vec![Field::new("x", DataType::Int64, true), Field::new("y", DataType::Utf8, true)];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(3), Some(1), None, Some(2)])),
        Arc::new(StringArray::from(vec!["c", "a", "b", "b"])),
    ];
    StructArray::new(fields.into(), columns, Some(vec![true, false, true, true].into()))
}

#[test]
fn fields_of_structs_are_keys_by_their_path() {
    let expected = encoded(&one(Int64Array::from(vec![Some(3), None, None, Some(2)])));
    let dictionary = DictionaryArray::<Int32Type>::new(vec![0, 1, 2, 3].into(), Arc::new(structs()));
    let nested = StructArray::from(vec![(
        Arc::new(Field::new("inner", structs().data_type().clone(), true)),
        Arc::new(structs()) as ArrayRef,
    )]);
    for (batch, path) in [(one(structs()), "c.x"), (one(dictionary), "c.x"), (one(nested), "c.inner.x")] {
        let keys = KeyEncoder::new(&batch.schema(), &[KeyColumn::rising(path)]).unwrap().encode(&batch).unwrap();
        let rows = |keys: &KeyRows| (0..4).map(|row| keys.get(row).to_vec()).collect::<Vec<_>>();
        assert_eq!(rows(&keys), rows(&expected), "{path} of {}", batch.schema());
    }
    // A column whose own name has a dot is that column.
    let columns: [(&str, ArrayRef); 2] =
        [("c", Arc::new(structs())), ("c.x", Arc::new(Int64Array::from_iter_values([7; 4])))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let keys = KeyEncoder::new(&batch.schema(), &[KeyColumn::rising("c.x")]).unwrap().encode(&batch).unwrap();
    assert_eq!(keys.get(0), keys.get(3));
}

#[test]
fn keys_that_the_table_does_not_have_are_refused_with_the_nearest_name() {
    let number = |name: &str| Field::new(name, DataType::Int64, true);
    let refused = |fields: Vec<Field>, name: &str| {
        KeyEncoder::new(&Schema::new(fields), &[KeyColumn::rising(name)]).unwrap_err().to_string()
    };
    assert_eq!(refused(vec![number("user"), number("price")], "Prise"), "no column Prise; did you mean price?");
    assert_eq!(refused(vec![number("user"), number("price")], "code"), "no column code");
    // As SQL has it; a column of that name is one.
    let of = |name: &str| refused(vec![number("user"), number("ts")], name);
    assert_eq!(of("ts desc"), "no column ts desc; did you mean ts:desc?");
    assert_eq!(of("ts  DESC NULLS FIRST"), "no column ts  DESC NULLS FIRST; did you mean ts:desc:nulls-first?");
    assert_eq!(of("tx desc"), "no column tx desc");
    assert!(KeyEncoder::new(&Schema::new(vec![number("ts desc")]), &[KeyColumn::rising("ts desc")]).is_ok());
    assert!(refused(vec![number("a"), number("b"), number("a")], "a").contains("column a in the table"));
    let encoder = KeyEncoder::new(&Schema::new(vec![number("a"), number("b")]), &[KeyColumn::rising("b")]).unwrap();
    let column = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let error = encoder.encode(&RecordBatch::try_from_iter([("b", column())]).unwrap()).unwrap_err();
    assert!(matches!(error, TableError::ColumnsDiffer { expected: 2, found: 1 }), "{error}");
    let error = encoder.encode(&RecordBatch::try_from_iter([("b", column()), ("a", column())]).unwrap()).unwrap_err();
    assert!(matches!(error, TableError::NameDiffers { .. }), "{error}");
}

#[test]
fn keys_are_the_bytes_that_version_1_says() {
    // By hand, from the table at the head of keys.rs.
    let (mut sample, mut all) = (&include_bytes!("../../../tests/samples/keys-1.bin")[..], 0);
    let mut check = |array: ArrayRef, (descending, nulls): (bool, Nulls), expected: &[&[u8]]| {
        let batch = RecordBatch::try_from_iter_with_nullable([("c", array, true)]).unwrap();
        let key = KeyColumn { column: "c".into(), descending, nulls };
        let keys = KeyEncoder::new(&batch.schema(), &[key]).unwrap().encode(&batch).unwrap();
        let found: Vec<_> = (0..keys.len()).map(|row| keys.get(row)).collect();
        assert_eq!(found, expected, "{}", batch.schema());
        let sampled = sample.split_off(..expected.concat().len()).expect("they are in the sample");
        assert_eq!(found.concat(), sampled, "{}", batch.schema());
        all += found.len();
    };
    let rising = (false, Nulls::Last);
    let falling = (true, Nulls::First);
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(-2), None]));
    check(ints.clone(), rising, &[&[1, 0x80, 0, 0, 1], &[1, 0x7f, 0xff, 0xff, 0xfe], &[2]]);
    check(ints, falling, &[&[1, 0x7f, 0xff, 0xff, 0xfe], &[1, 0x80, 0, 0, 1], &[0]]);
    check(Arc::new(UInt16Array::from(vec![0x0102])), rising, &[&[1, 1, 2]]);
    let floats = vec![f32::NAN, -f32::NAN, -0.0, 1.0, -1.0, f32::INFINITY];
    let expected: [&[u8]; 6] = [
        &[1, 0xff, 0xc0, 0, 0],
        &[1, 0xff, 0xc0, 0, 0],
        &[1, 0x80, 0, 0, 0],
        &[1, 0xbf, 0x80, 0, 0],
        &[1, 0x40, 0x7f, 0xff, 0xff],
        &[1, 0xff, 0x80, 0, 0],
    ];
    check(Arc::new(Float32Array::from(floats)), rising, &expected);
    check(Arc::new(BooleanArray::from(vec![false, true])), falling, &[&[1, 0xff], &[1, 0xfe]]);
    let text: ArrayRef = Arc::new(StringArray::from(vec!["ab", "", "a\0b"]));
    check(text.clone(), rising, &[b"\x01ab\0\0", b"\x01\0\0", b"\x01a\0\xffb\0\0"]);
    check(text, falling, &[&[1, !b'a', !b'b', 255, 255], &[1, 255, 255], &[1, !b'a', 255, 0, !b'b', 255, 255]]);
    let fixed = FixedSizeBinaryArray::try_from_iter([[0u8, 7]].iter()).unwrap();
    check(Arc::new(fixed), rising, &[&[1, 0, 7]]);
    let lists = [Some(vec![Some(5u8), None]), Some(vec![])];
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<UInt8Type, _, _>(lists));
    check(lists.clone(), rising, &[&[1, 1, 1, 5, 1, 2, 0], &[1, 0]]);
    check(lists, falling, &[&[1, 254, 1, 250, 254, 0, 255], &[1, 255]]);
    check(
        Arc::new(structs().slice(1, 3)),
        rising,
        &[&[2], b"\x01\x02\x01b\0\0", b"\x01\x01\x80\0\0\0\0\0\0\x02\x01b\0\0"],
    );
    check(Arc::new(NullArray::new(1)), rising, &[&[2]]);
    assert_eq!((sample.len(), all), (0, 30));
}

#[test]
fn keys_are_added_behind_others_and_their_memory_is_used_again() {
    let batch = one(StringArray::from(vec!["a", "b", "longer than the others"]));
    let encoder = KeyEncoder::new(&batch.schema(), &[KeyColumn::rising("c")]).unwrap();
    let mut keys = KeyRows::default();
    encoder.append(&batch, &mut keys).unwrap();
    encoder.append(&batch.slice(1, 1), &mut keys).unwrap();
    assert_eq!((keys.len(), keys.get(3)), (4, keys.get(1)));
    keys.reserve(3, 100);
    let before = keys.memory_bytes();
    assert!(before >= 7 * 4 + 100);
    encoder.append(&batch, &mut keys).unwrap();
    assert_eq!((keys.len(), keys.memory_bytes()), (7, before));
    keys.clear();
    assert!(keys.is_empty());
    encoder.append(&batch, &mut keys).unwrap();
    assert_eq!((keys.len(), keys.memory_bytes()), (3, before));
}

#[test]
fn keys_of_lists_without_end_and_of_more_than_4_gib_are_refused() {
    let elements = crate::ELEMENTS_MAX as usize + 1;
    let field = Arc::new(Field::new("item", DataType::Null, true));
    let offsets = arrow_buffer::OffsetBuffer::new(vec![0, elements as i32].into());
    let batch = one(ListArray::new(field, offsets, Arc::new(NullArray::new(elements)), None));
    let encoder = KeyEncoder::new(&batch.schema(), &[KeyColumn::rising("c")]).unwrap();
    let error = encoder.encode(&batch).unwrap_err();
    assert!(matches!(error, TableError::TooManyElements { .. }), "{error}");
    // A dictionary of one text of 1 MiB in 4096 rows.
    let values = StringArray::from(vec!["x".repeat(1 << 20)]);
    let batch = one(DictionaryArray::<Int32Type>::new(vec![0; 4096].into(), Arc::new(values)));
    let encoder = KeyEncoder::new(&batch.schema(), &[KeyColumn::rising("c")]).unwrap();
    assert_eq!(encoder.measure(&batch).unwrap().bytes().unwrap(), 4096 * ((1 << 20) + 3 + 4));
    let error = encoder.encode(&batch).unwrap_err();
    assert!(matches!(error, TableError::KeysTooLarge { rows: 4096 }), "{error}");
}
