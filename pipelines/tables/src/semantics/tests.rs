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
    let keys = KeyEncoder::new(&batch.schema(), key).unwrap().encode(batch).unwrap();
    assert_eq!(keys.len(), batch.num_rows());
    for left in 0..batch.num_rows() {
        for right in 0..batch.num_rows() {
            let expected = key.iter().fold(Ordering::Equal, |order, column| {
                order.then_with(|| naive(batch.column(column.index).as_ref(), left, right, column))
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
                check(&batch, &[KeyColumn { index: 0, descending, nulls }]);
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
                index,
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
    check(&batch, &[KeyColumn::rising(0)]);
}

fn one(array: impl Array + 'static) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("c", Arc::new(array) as ArrayRef, true)]).unwrap()
}

fn encoded(batch: &RecordBatch) -> KeyRows {
    KeyEncoder::new(&batch.schema(), &[KeyColumn::rising(0)]).unwrap().encode(batch).unwrap()
}

#[test]
fn zeros_and_nans_are_one_key_each() {
    let floats = [f64::NAN, -f64::NAN, f64::from_bits(0xfff0_0000_0000_0123), f64::INFINITY, 0.0, -0.0, -1.0];
    let keys = encoded(&one(Float64Array::from(floats.to_vec())));
    assert!(keys.get(0) == keys.get(1) && keys.get(1) == keys.get(2), "NaN equals itself");
    assert!(keys.get(0) > keys.get(3), "NaN is above all numbers");
    assert!(keys.get(4) == keys.get(5) && keys.get(5) > keys.get(6), "there is one zero");
    let kept = canonical(&(Arc::new(Float64Array::from(vec![-0.0])) as ArrayRef)).unwrap();
    assert_eq!(kept.as_primitive::<Float64Type>().value(0).to_bits(), 0);
}

#[test]
fn nulls_are_last_in_either_direction_unless_told() {
    let batch = one(Int64Array::from(vec![Some(1), None, Some(2)]));
    for descending in [false, true] {
        let key = KeyColumn { index: 0, descending, nulls: Nulls::default() };
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
    let encoder = KeyEncoder::new(&times(Some("UTC")).schema(), &[KeyColumn::rising(0)]).unwrap();
    let [utc, berlin] = ["UTC", "Europe/Berlin"].map(|zone| encoder.encode(&times(Some(zone))).unwrap());
    assert_eq!(utc.get(1), berlin.get(1));
    let error = encoder.encode(&times(None)).unwrap_err();
    assert!(matches!(error, TableError::ZonesMixed { .. }), "{error}");
    assert!(error.to_string().starts_with("column c: "), "{error}");
    let inside =
        |zone: Option<&str>| DataType::new_list(DataType::Timestamp(TimeUnit::Second, zone.map(Into::into)), true);
    let error = check_comparable("c", &inside(None), &inside(Some("UTC"))).unwrap_err();
    assert!(matches!(&error, TableError::ZonesMixed { column, .. } if column == "c.item"), "{error}");
    let seconds = one(TimestampSecondArray::from(vec![5]).with_timezone("UTC"));
    assert!(matches!(encoder.encode(&seconds).unwrap_err(), TableError::TypeDiffers { .. }), "another unit");
}

#[test]
fn keys_without_an_order_are_refused_by_column_and_type() {
    let refused = |of: DataType| {
        let schema = Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("span", of, true)]);
        let error = KeyEncoder::new(&schema, &[KeyColumn::rising(0), KeyColumn::rising(1)]).unwrap_err();
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

fn sum_of(array: impl Array + 'static) -> ExactSum {
    let mut sum = ExactSum::default();
    sum.add("c", &(Arc::new(array) as ArrayRef)).unwrap();
    sum
}

#[test]
fn sums_overflow_at_the_end_or_not_at_all() {
    let value = |sum: &ExactSum, of| sum.value("c", &of).map(|sum| sum.map(|sum| sum.to_string()));
    let mut sum = sum_of(Int64Array::from(vec![i64::MAX, i64::MAX, i64::MIN]));
    assert_eq!(value(&sum, DataType::Int64).unwrap().unwrap(), (i64::MAX - 1).to_string());
    sum.merge(&sum_of(Int64Array::from(vec![Some(2), None])));
    let error = value(&sum, DataType::Int64).unwrap_err();
    assert_eq!(error.to_string(), "sum of column c is outside Int64");
    assert_eq!(value(&sum, DataType::Decimal128(38, 0)).unwrap().unwrap(), (i128::from(i64::MAX) + 1).to_string());
    assert_eq!(sum.count(), 4);
    let unsigned = sum_of(UInt64Array::from(vec![u64::MAX, 1]));
    assert_eq!(value(&unsigned, DataType::Decimal128(38, 0)).unwrap().unwrap(), (1u128 << 64).to_string());
    assert!(value(&unsigned, DataType::UInt64).is_err());
    assert_eq!(value(&ExactSum::default(), DataType::Int64).unwrap(), None, "the sum of nothing is null");
    assert_eq!(value(&sum_of(Int64Array::from(vec![None, None])), DataType::Int64).unwrap(), None);

    // Partial sums far beyond the type, of the widest decimals there are.
    let most = 10i128.pow(38) - 1;
    let decimals = |values: Vec<i128>| sum_of(Decimal128Array::from(values).with_precision_and_scale(38, 2).unwrap());
    let mut sum = decimals(vec![most; 5000]);
    assert!(value(&sum, DataType::Decimal128(38, 2)).is_err());
    sum.merge(&decimals(vec![-most; 4999]));
    assert_eq!(value(&sum, DataType::Decimal128(38, 2)).unwrap().unwrap(), most.to_string());
    let mut sum = sum_of(Decimal256Array::from(vec![i256::MAX; 100]));
    assert!(value(&sum, DataType::Decimal256(76, 0)).is_err());
    sum.merge(&sum_of(Decimal256Array::from(vec![i256::MIN; 100])));
    assert_eq!(value(&sum, DataType::Decimal256(76, 0)).unwrap().unwrap(), "-100");
    let error = ExactSum::default().add("f", &(Arc::new(Float64Array::from(vec![1.0])) as ArrayRef)).unwrap_err();
    assert!(matches!(error, TableError::Unsupported { .. }), "{error}");
    assert_eq!(ExactSum::data_type(&DataType::Float64), None);
    assert_eq!(ExactSum::data_type(&DataType::Decimal64(5, 3)), Some(DataType::Decimal128(38, 3)));
}

proptest! {
    #[test]
    fn sums_are_those_of_wide_numbers_however_they_are_merged(
        values in proptest::collection::vec(any::<i128>(), 0..60), cut in 0usize..60, turned in any::<bool>()
    ) {
        let cut = cut.min(values.len());
        let expected = values.iter().fold(i256::ZERO, |sum, value| sum.wrapping_add(i256::from_i128(*value)));
        let of = |values: &[i128]| sum_of(Decimal128Array::from(values.to_vec()));
        let (mut left, mut right) = (of(&values[..cut]), of(&values[cut..]));
        if turned {
            std::mem::swap(&mut left, &mut right);
        }
        left.merge(&right);
        let found = left.value("c", &DataType::Decimal256(76, 0)).unwrap();
        prop_assert_eq!(found, (!values.is_empty()).then_some(expected));
    }
}

#[test]
fn sums_of_dictionaries_are_sums_of_values() {
    let keys = Int8Array::from(vec![Some(0), Some(1), None, Some(0)]);
    let sum = sum_of(DictionaryArray::new(keys, Arc::new(Int32Array::from(vec![5, 7]))));
    assert_eq!(sum.value("c", &DataType::Int64).unwrap(), Some(i256::from(17)));
    assert_eq!(sum.count(), 3);
}
