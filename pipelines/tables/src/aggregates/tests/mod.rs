use std::sync::Arc;

use arrow_array::*;
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat;
use proptest::prelude::*;

use super::*;
use crate::TableError;
use crate::plain::plain_type;
use crate::samples::{self, Seeded};
use crate::semantics::{KeyColumn, KeyEncoder};

mod numbers;
mod text;

/// Every function, of a column.
const FUNCTIONS: [Function; 11] = [
    Function::Count,
    Function::Sum,
    Function::Avg,
    Function::Min,
    Function::Max,
    Function::First,
    Function::Last,
    Function::Variance,
    Function::Stddev,
    Function::VariancePopulation,
    Function::StddevPopulation,
];

fn schema_of(data_type: &DataType) -> Schema {
    Schema::new(vec![Field::new("c", data_type.clone(), true)])
}

fn bound(function: Function, data_type: &DataType) -> Result<Bound, TableError> {
    Aggregate::new(function, Some("c".to_owned())).bind(&schema_of(data_type))
}

fn accumulator(bound: &Bound) -> Box<dyn Accumulator> {
    bound.accumulator().unwrap().expect("it has one")
}

/// What all rows at once give.
fn at_once(bound: &Bound, column: &ArrayRef, groups: &[u32], count: u32) -> Result<ArrayRef, TableError> {
    let mut all = accumulator(bound);
    all.resize(count as usize);
    let places: Vec<u64> = (0..groups.len() as u64).collect();
    all.update(groups, Some(column), Some(&places)).unwrap();
    all.finish(&(0..count).collect::<Vec<_>>())
}

/// What the same rows give in another order, for some accumulators whose states are merged in some order.
fn in_pieces(
    bound: &Bound,
    column: &ArrayRef,
    groups: &[u32],
    count: u32,
    seeded: &mut Seeded,
) -> Result<ArrayRef, TableError> {
    // Rows that lie one behind the other, of which none is copied: encodings stay as they are.
    let mut pieces: Vec<(usize, usize)> = Vec::new();
    let mut from = 0;
    while from < groups.len() {
        let len = (1 + seeded.below(5)).min(groups.len() - from);
        pieces.push((from, len));
        from += len;
    }
    for at in (1..pieces.len()).rev() {
        pieces.swap(at, seeded.below(at + 1));
    }
    let mut parts: Vec<_> = (0..1 + seeded.below(4)).map(|_| accumulator(bound)).collect();
    parts.iter_mut().for_each(|part| part.resize(count as usize));
    for (from, len) in pieces {
        let places: Vec<u64> = (from as u64..).take(len).collect();
        let at = seeded.below(parts.len());
        parts[at].update(&groups[from..from + len], Some(&column.slice(from, len)), Some(&places)).unwrap();
    }
    let mut merged = accumulator(bound);
    // Used before, and forgotten.
    merged.resize(1);
    merged.update(&[0], Some(&column.slice(0, 1)), Some(&[7])).unwrap();
    merged.clear();
    merged.resize(count as usize);
    for part in parts {
        let mut order: Vec<u32> = (0..count).collect();
        let from = seeded.below(count as usize);
        order.rotate_left(from);
        let states = part.states(&order).unwrap();
        let fields = bound.state_fields();
        assert_eq!(states.len(), fields.len());
        for (state, field) in states.iter().zip(&fields) {
            assert_eq!(state.data_type(), field.data_type());
            assert_eq!(*field.data_type(), plain_type(field.data_type()), "states are plain");
            assert!(field.is_nullable() || state.null_count() == 0);
        }
        // As if they came from several messages.
        let cut = seeded.below(order.len() + 1);
        for (from, len) in [(cut, order.len() - cut), (0, cut)] {
            let some: Vec<_> = states.iter().map(|state| state.slice(from, len)).collect();
            merged.merge(&order[from..from + len], &some).unwrap();
        }
    }
    merged.finish(&(0..count).collect::<Vec<_>>())
}

fn is_same(one: &ArrayRef, other: &ArrayRef) -> bool {
    let values = |array: &ArrayRef| (0..array.len()).map(|row| samples::value(array.as_ref(), row)).collect::<Vec<_>>();
    one.data_type() == other.data_type() && values(one) == values(other)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_order_of_rows_and_no_division_of_them_shows(seed in any::<u64>()) {
        let mut seeded = Seeded(seed);
        let data_type = samples::data_type(&mut seeded, 2);
        let column = samples::array(&mut seeded, &data_type, 40);
        let count = 1 + seeded.below(6) as u32;
        // The last group has no row.
        let groups: Vec<u32> = (0..40).map(|_| seeded.below(count as usize) as u32).collect();
        for function in FUNCTIONS {
            let Ok(bound) = bound(function, &data_type) else { continue };
            let expected = at_once(&bound, &column, &groups, count + 1);
            let found = in_pieces(&bound, &column, &groups, count + 1, &mut seeded);
            let (expected, found) = match (expected, found) {
                (Ok(expected), Ok(found)) => (expected, found),
                // A sum of decimals, which have any digits here.
                (expected, found) => {
                    let (expected, found) = (expected.unwrap_err(), found.unwrap_err());
                    prop_assert!(matches!(expected, TableError::SumOverflows { row: Some(_), .. }), "{}", expected);
                    prop_assert_eq!(format!("{:?}", expected), format!("{:?}", found));
                    continue;
                }
            };
            let output = bound.output_field();
            prop_assert_eq!(expected.data_type(), output.data_type());
            prop_assert!(is_same(&expected, &found), "{} of {}: {:?} and {:?}", function, data_type, expected, found);
        }
    }

    #[test]
    fn results_are_those_of_one_value_at_a_time(seed in any::<u64>()) {
        let mut seeded = Seeded(seed);
        let data_type = samples::data_type(&mut seeded, 2);
        let column = samples::array(&mut seeded, &data_type, 30);
        let groups: Vec<u32> = (0..30).map(|_| seeded.below(3) as u32).collect();
        let of = |function| bound(function, &data_type).map(|bound| at_once(&bound, &column, &groups, 4).unwrap());
        let value = |array: &ArrayRef, row: usize| samples::value(array.as_ref(), row);
        let (counts, first, last) = (of(Function::Count).unwrap(), of(Function::First).unwrap(), of(Function::Last).unwrap());
        for group in 0..4u32 {
            let rows: Vec<usize> = (0..30).filter(|row| groups[*row] == group).collect();
            let is_value = |row: &&usize| value(&column, **row) != samples::Value::Null;
            let count = rows.iter().filter(is_value).count() as u64;
            prop_assert_eq!(value(&counts, group as usize), samples::Value::Bytes(count.to_le_bytes().to_vec()));
            let of = |row: Option<&usize>| row.map_or(samples::Value::Null, |row| value(&column, *row));
            prop_assert_eq!(value(&first, group as usize), of(rows.first()));
            prop_assert_eq!(value(&last, group as usize), of(rows.last()));
            let (Ok(least), Ok(greatest)) = (bound(Function::Min, &data_type), bound(Function::Max, &data_type)) else { continue };
            let keys = |array: &ArrayRef| {
                let schema = Arc::new(schema_of(array.data_type()));
                let encoder = KeyEncoder::new(&schema, &[KeyColumn::rising("c")]).unwrap();
                encoder.encode(&RecordBatch::try_new(schema, vec![array.clone()]).unwrap()).unwrap()
            };
            let all = keys(&column);
            let of = |row: &usize| all.get(*row);
            let mut sorted: Vec<&[u8]> = rows.iter().map(of).filter(|key| *key != [2]).collect();
            sorted.sort();
            for (bound, expected) in [(least, sorted.first()), (greatest, sorted.last())] {
                let found = keys(&at_once(&bound, &column, &groups, 4).unwrap());
                prop_assert_eq!(found.get(group as usize), expected.copied().unwrap_or(&[2]));
            }
        }
    }
}

#[test]
fn fields_of_structs_are_null_where_these_are() {
    let inner = StructArray::from((
        vec![(
            Arc::new(Field::new("b", DataType::Int64, true)),
            Arc::new(Int64Array::from(vec![1, 2, 4, 8])) as ArrayRef,
        )],
        arrow_buffer::Buffer::from_iter([true, false, true, true]),
    ));
    let rows = Int8Array::from(vec![Some(0), Some(1), None, Some(3), Some(3)]);
    let encoded = DictionaryArray::new(rows, Arc::new(inner.clone()));
    for (array, expected) in [(Arc::new(inner) as ArrayRef, [13, 3]), (Arc::new(encoded), [17, 3])] {
        let schema = Arc::new(Schema::new(vec![Field::new("a", array.data_type().clone(), true)]));
        let batch = RecordBatch::try_new(schema.clone(), vec![array]).unwrap();
        for (text, expected) in ["sum(a.b)", "count(a.b)"].into_iter().zip(expected) {
            let bound = text.parse::<Aggregate>().unwrap().bind(&schema).unwrap();
            assert_eq!(bound.path(), Some(&[0, 0][..]));
            let argument = bound.argument(&batch).unwrap();
            let mut all = accumulator(&bound);
            all.resize(1);
            all.update(&vec![0; batch.num_rows()], argument.as_ref(), None).unwrap();
            let found = samples::value(all.finish(&[0]).unwrap().as_ref(), 0);
            let samples::Value::Bytes(bytes) = found else { panic!("{found:?}") };
            assert_eq!(i64::from_le_bytes(bytes[..8].try_into().unwrap()), expected, "{text}");
        }
    }
}

#[test]
fn rows_are_counted_without_an_argument() {
    let bound = "count(*)".parse::<Aggregate>().unwrap().bind(&Schema::empty()).unwrap();
    assert_eq!((bound.path(), bound.argument_type(), bound.is_of_values()), (None, None, false));
    let mut all = accumulator(&bound);
    all.resize(3);
    all.update(&[0, 2, 0, 0], None, None).unwrap();
    let states = all.states(&[2, 0]).unwrap();
    all.merge(&[1, 1], &states).unwrap();
    assert_eq!(all.finish(&[0, 1, 2]).unwrap().as_ref(), &Int64Array::from(vec![3, 4, 1]));
    assert_eq!(bound.output_field(), Field::new("count(*)", DataType::Int64, false));
}

#[test]
fn memory_is_that_of_what_is_kept() {
    // A few long texts out of many: the rest of the batches must not stay.
    for function in [Function::First, Function::Last, Function::Min, Function::Max] {
        for data_type in [DataType::Utf8, DataType::Utf8View] {
            let bound = bound(function, &data_type).unwrap();
            let mut all = accumulator(&bound);
            all.resize(2);
            let mut least = u64::MAX;
            for batch in 0..600u64 {
                let texts =
                    (0..100).map(|row| format!("{:05} {}", (batch * 7919 + row * 31) % 60000, "long".repeat(50)));
                let column: ArrayRef = match data_type {
                    DataType::Utf8 => Arc::new(StringArray::from_iter_values(texts)),
                    _ => Arc::new(StringViewArray::from_iter_values(texts)),
                };
                let groups: Vec<u32> = (0..100).map(|row| row % 2).collect();
                let places: Vec<u64> = (0..100).map(|row| batch * 100 + row).collect();
                all.update(&groups, Some(&column), Some(&places)).unwrap();
                least = least.min(all.bytes());
            }
            assert!(all.bytes() < 1 << 20, "{function} of {data_type} takes {}", all.bytes());
            assert!(least > 0);
            let result = all.finish(&[0, 1]).unwrap();
            assert_eq!((result.data_type(), result.null_count()), (&DataType::Utf8, 0));
        }
    }
}

#[test]
fn states_that_are_none_are_errors() {
    let of = |function, data_type: DataType| accumulator(&bound(function, &data_type).unwrap());
    let mut sum = of(Function::Sum, DataType::Float64);
    sum.resize(1);
    let count: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&[1u8, 0, 0, 0, 9, 0][..]]));
    assert!(matches!(sum.merge(&[0], &[bytes, count.clone()]), Err(TableError::NotASum)));
    assert!(matches!(sum.merge(&[0], std::slice::from_ref(&count)), Err(TableError::ColumnsDiffer { .. })));
    assert!(matches!(sum.merge(&[0], &[count.clone(), count.clone()]), Err(TableError::TypeDiffers { .. })));
    let mut counts = of(Function::Count, DataType::Utf8);
    counts.resize(1);
    for wrong in [vec![Some(-1)], vec![None]] {
        let wrong: ArrayRef = Arc::new(Int64Array::from(wrong));
        assert!(matches!(counts.merge(&[0], &[wrong]), Err(TableError::NotAState { .. })));
    }
    let mut least = of(Function::Min, DataType::Boolean);
    least.resize(1);
    least.merge(&[0], &[Arc::new(BinaryArray::from(vec![&[1u8, 7][..]]))]).unwrap();
    assert!(matches!(least.finish(&[0]), Err(TableError::NotAKey { .. })));
    // Variances of sums that no values have.
    let mut variance = of(Function::Variance, DataType::Int8);
    variance.resize(1);
    let words = |count: usize, byte: u8| -> ArrayRef {
        Arc::new(FixedSizeBinaryArray::try_from_iter(std::iter::once(vec![byte; count])).unwrap())
    };
    variance.merge(&[0], &[words(16, 0x7f), words(24, 0xff), count]).unwrap();
    variance.finish(&[0]).unwrap();
    let error = counts.update(&[0], Some(&(Arc::new(Int8Array::from(vec![1])) as ArrayRef)), None).unwrap_err();
    assert_eq!(error.to_string(), "column c is int8, not text");
}

#[test]
fn arrays_that_are_cut_and_wide_are_the_values_that_they_have() {
    let column = concat(&[&StringArray::from(vec!["x", "b", "a"]), &StringArray::from(vec![None, Some("c")])]).unwrap();
    let wide: ArrayRef = Arc::new(LargeStringArray::from(vec![Some("b"), None]));
    let bound = bound(Function::Min, &DataType::Utf8).unwrap();
    let mut all = accumulator(&bound);
    all.resize(2);
    all.update(&[0, 1, 0], Some(&column.slice(1, 3)), None).unwrap();
    all.update(&[0, 1], Some(&wide), None).unwrap();
    let found = all.finish(&[1, 0]).unwrap();
    assert_eq!(found.as_ref(), &StringArray::from(vec!["a", "b"]));
}

#[test]
fn what_fuzzing_begins_with_is_read() {
    use crate::fuzzing;
    fuzzing::aggregate_lists().iter().for_each(|text| {
        parse_list(std::str::from_utf8(text).unwrap()).unwrap();
        fuzzing::aggregates(text);
    });
    fuzzing::keys().iter().for_each(|key| fuzzing::key(key));
    fuzzing::float_sums().iter().for_each(|sum| fuzzing::sums(sum));
}
