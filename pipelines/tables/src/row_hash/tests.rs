use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int64Builder, ListBuilder, MapBuilder, StringBuilder, StructBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type};
use arrow_array::*;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, UnionFields};
use proptest::prelude::*;

use twox_hash::{XxHash3_64, XxHash3_128};

use super::*;
use crate::samples;

#[derive(serde::Deserialize)]
struct Vector {
    rows: Vec<String>,
    sum: String,
}

/// Made by `tests/samples/row_hash.py` from the words at the head of this module, not by this code.
fn vectors() -> BTreeMap<String, Vector> {
    serde_json::from_str(include_str!("../../tests/samples/row_hash.json")).unwrap()
}

fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
    let names = (0..columns.len()).map(|at| format!("c{at}"));
    RecordBatch::try_from_iter_with_nullable(names.zip(columns).map(|(name, column)| (name, column, true))).unwrap()
}

fn hashes(batch: &RecordBatch) -> Vec<RowHash> {
    let hasher = RowHasher::new(&batch.schema()).unwrap();
    let mut rows = Vec::new();
    hasher.rows(batch, &mut rows).unwrap();
    assert_eq!(rows.iter().copied().sum::<RowHash>(), hasher.sum(batch).unwrap());
    rows
}

fn sum(batch: &RecordBatch) -> RowHash {
    RowHasher::new(&batch.schema()).unwrap().sum(batch).unwrap()
}

fn check(name: &str, columns: Vec<ArrayRef>) {
    let vectors = vectors();
    let batch = batch(columns);
    let found: Vec<String> = hashes(&batch).iter().map(ToString::to_string).collect();
    assert_eq!(found, vectors[name].rows, "{name}");
    assert_eq!(sum(&batch).to_string(), vectors[name].sum, "{name}");
}

fn list_of_int32() -> ListArray {
    let lists =
        [Some(vec![Some(1), Some(2), Some(3)]), Some(vec![]), None, Some(vec![Some(4), None]), Some(vec![None])];
    ListArray::from_iter_primitive::<Int32Type, _, _>(lists.into_iter().chain([Some(vec![Some(0)])]))
}

fn list_of_text() -> ListArray {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for list in
        [Some(vec![Some("a"), None]), Some(vec![Some("b")]), Some(vec![]), None, Some(vec![Some(""), Some("ab")])]
    {
        lists.append_option(list);
    }
    lists.append_value([Some("a"), Some("b")]);
    lists.finish()
}

#[test]
fn numbers_and_text_hash_as_the_vectors_say() {
    check(
        "integers",
        vec![
            Arc::new(Int64Array::from(vec![Some(1), Some(-1), None, Some(0)])),
            Arc::new(Int32Array::from(vec![Some(7), Some(8), Some(9), None])),
            Arc::new(Int8Array::from(vec![Some(0), Some(-128), Some(127), None])),
        ],
    );
    let long = "0123456789".repeat(30);
    let text = vec![Some(""), Some("a"), Some("grüße aus Köln"), None, Some(&long), Some(&"x".repeat(100))]
        .into_iter()
        .map(|one: Option<&str>| one.map(str::to_owned))
        .collect::<Vec<_>>();
    check("text", vec![Arc::new(StringArray::from(text.clone()))]);
    check("text", vec![Arc::new(LargeStringArray::from(text.clone()))]);
    check("text", vec![Arc::new(StringViewArray::from_iter(text))]);
    let bits = [0, 1 << 63, 0x7ff8_0000_0000_0000, 0xfff0_0000_0000_0123].map(|bits| Some(f64::from_bits(bits)));
    let floats = bits.into_iter().chain([None, Some(1.5)]);
    check("floats", vec![Arc::new(Float64Array::from_iter(floats))]);
    check(
        "bool_and_null",
        vec![Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])), Arc::new(NullArray::new(3))],
    );
    let ten = 10i128.pow(37);
    check(
        "decimals",
        vec![
            Arc::new(Decimal128Array::from(vec![Some(12345), None, Some(-ten)])),
            Arc::new(
                Decimal128Array::from(vec![Some(-1), Some(0), Some(ten)]).with_precision_and_scale(38, 3).unwrap(),
            ),
        ],
    );
}

#[test]
fn nested_values_hash_as_the_vectors_say() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(1..=6));
    check("list_of_int32", vec![Arc::new(list_of_int32()), numbers]);
    let mut bools = ListBuilder::new(BooleanBuilder::new());
    bools.append_value([Some(true), Some(false), Some(true)]);
    bools.append_value([]);
    bools.append_value([None, Some(true)]);
    check("list_of_bool", vec![Arc::new(bools.finish())]);
    check("list_of_text", vec![Arc::new(list_of_text())]);
    let fields = Fields::from(vec![Field::new("x", DataType::Int64, true), Field::new("y", DataType::Utf8, true)]);
    // What stands under the null of a struct is not nothing.
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), None, Some(77), Some(2)])),
        Arc::new(StringArray::from(vec![Some("x"), None, Some("under a null"), None])),
    ];
    let structs = StructArray::new(fields, columns, Some(NullBuffer::from(vec![true, true, false, true])));
    check("struct", vec![Arc::new(structs), Arc::new(Int64Array::from_iter_values(1..=4))]);
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    map.keys().append_value("k");
    map.values().append_value(1);
    map.keys().append_value("l");
    map.values().append_null();
    map.append(true).unwrap();
    map.append(true).unwrap();
    map.append(false).unwrap();
    check("map", vec![Arc::new(map.finish())]);
    check("list_of_structs_of_lists", vec![Arc::new(deep())]);
    let options = RecordBatchOptions::new().with_row_count(Some(2));
    let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    assert_eq!(sum(&none).to_string(), vectors()["no_columns"].sum);
}

/// `[([1, 2], "a"), (null, "b"), null]` and `[([], null)]`.
fn deep() -> ListArray {
    let inner = ListBuilder::new(Int64Builder::new());
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let fields = vec![Field::new("list", DataType::List(item), true), Field::new("text", DataType::Utf8, true)];
    let mut lists = ListBuilder::new(StructBuilder::new(fields, vec![Box::new(inner), Box::new(StringBuilder::new())]));
    type Row<'a> = (Option<&'a [i64]>, Option<&'a str>, bool);
    let rows: [Row<'_>; 4] =
        [(Some(&[1, 2]), Some("a"), true), (None, Some("b"), true), (None, None, false), (Some(&[]), None, true)];
    for (row, (list, text, valid)) in rows.into_iter().enumerate() {
        let one = lists.values();
        let inner = one.field_builder::<ListBuilder<Int64Builder>>(0).unwrap();
        inner.append_option(list.map(|list| list.iter().copied().map(Some)));
        one.field_builder::<StringBuilder>(1).unwrap().append_option(text);
        one.append(valid);
        if row >= 2 {
            lists.append(true);
        }
    }
    lists.finish()
}

#[test]
fn encodings_do_not_count() {
    let text = vec![Some("a"), Some("b"), None, Some("b"), Some("a")];
    let plain = sum(&batch(vec![Arc::new(StringArray::from(text.clone()))]));
    let dictionary: DictionaryArray<Int16Type> = text.iter().copied().collect();
    assert_eq!(sum(&batch(vec![Arc::new(dictionary.clone())])), plain, "dictionary");
    // The null among the values of a dictionary, and more values than rows.
    let values = StringArray::from(vec![Some("b"), None, Some("a"), Some("x"), Some("y"), Some("z")]);
    let keys = Int16Array::from(vec![2, 0, 1, 0, 2]);
    assert_eq!(sum(&batch(vec![Arc::new(DictionaryArray::new(keys, Arc::new(values)))])), plain, "null as a value");
    let nested = DictionaryArray::new(Int16Array::from(vec![0, 1, 2, 3, 4]), Arc::new(dictionary));
    assert_eq!(sum(&batch(vec![Arc::new(nested)])), plain, "dictionary of dictionaries");
    let binary = BinaryArray::from_iter(text.iter().map(|one| one.map(str::as_bytes)));
    assert_eq!(sum(&batch(vec![Arc::new(binary)])), plain, "binary");
    let fixed = text.iter().map(|one| one.map(str::as_bytes));
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 1).unwrap();
    assert_eq!(sum(&batch(vec![Arc::new(fixed)])), plain, "of a fixed size");

    let empty = |rows, nulls| FixedSizeBinaryArray::try_new_with_len(0, Buffer::default(), nulls, rows).unwrap();
    for keys in [vec![Some(0), None], vec![Some(0), Some(2)]] {
        let plain = empty(2, Some(NullBuffer::from_iter(keys.iter().map(Option::is_some))));
        let dictionary = DictionaryArray::new(Int16Array::from(keys), Arc::new(empty(3, None)));
        let [found, expected] = [Arc::new(dictionary) as ArrayRef, Arc::new(plain)].map(|of| hashes(&batch(vec![of])));
        assert_eq!(found, expected, "values without bytes");
    }

    let numbers = Int64Array::from(vec![Some(5), Some(5), None, None, Some(5), Some(7)]);
    let values = Int64Array::from(vec![Some(5), None, Some(5), Some(7)]);
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2, 4, 5, 6]), &values).unwrap();
    let (numbers, runs) = (batch(vec![Arc::new(numbers)]), batch(vec![Arc::new(runs)]));
    assert_eq!(hashes(&runs), hashes(&numbers), "run ends");
    for (from, len) in [(1, 4), (3, 3), (0, 1), (5, 1), (2, 0), (5, 0)] {
        assert_eq!(hashes(&runs.slice(from, len)), hashes(&numbers.slice(from, len)), "run ends from {from}");
    }
}

#[test]
fn one_hasher_takes_all_encodings_of_its_schema() {
    let text = vec![Some("a"), None, Some("longer than twelve bytes")];
    let plain = batch(vec![Arc::new(StringArray::from(text.clone()))]);
    let hasher = RowHasher::new(&plain.schema()).unwrap();
    let others: [ArrayRef; 3] = [
        Arc::new(LargeStringArray::from(text.clone())),
        Arc::new(StringViewArray::from(text.clone())),
        Arc::new(text.iter().copied().collect::<DictionaryArray<Int16Type>>()),
    ];
    for other in others {
        let of = other.data_type().clone();
        assert_eq!(hasher.sum(&batch(vec![other])).unwrap(), hasher.sum(&plain).unwrap(), "{of}");
    }
    let times = |zone: &str| batch(vec![Arc::new(TimestampSecondArray::from(vec![7]).with_timezone(zone))]);
    let hasher = RowHasher::new(&times("UTC").schema()).unwrap();
    assert_eq!(hasher.sum(&times("UTC")).unwrap(), hasher.sum(&times("+02:00")).unwrap(), "an instant in any zone");
    let without = batch(vec![Arc::new(TimestampSecondArray::from(vec![7]))]);
    assert!(hasher.sum(&without).is_err(), "no instant");
}

#[test]
fn layouts_of_lists_do_not_count() {
    for list in [list_of_int32(), list_of_text()] {
        let expected = hashes(&batch(vec![Arc::new(list.clone())]));
        let DataType::List(field) = list.data_type().clone() else { unreachable!() };
        let offsets = list.offsets().iter().map(|offset| i64::from(*offset)).collect::<Vec<_>>();
        let (values, nulls) = (list.values().clone(), list.nulls().cloned());
        let large =
            LargeListArray::new(field.clone(), OffsetBuffer::new(offsets.into()), values.clone(), nulls.clone());
        assert_eq!(hashes(&batch(vec![Arc::new(large)])), expected, "wide offsets");
        let sizes: Vec<i32> = list.offsets().lengths().map(|len| len as i32).collect();
        let offsets = list.offsets()[..list.len()].to_vec();
        let views = ListViewArray::new(field.clone(), offsets.into(), sizes.into(), values.clone(), nulls.clone());
        assert_eq!(hashes(&batch(vec![Arc::new(views)])), expected, "views");
    }
    let pairs = FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(
        [Some(vec![Some(1), Some(2)]), None, Some(vec![None, Some(4)])],
        2,
    );
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([
        Some(vec![Some(1), Some(2)]),
        None,
        Some(vec![None, Some(4)]),
    ]);
    assert_eq!(hashes(&batch(vec![Arc::new(pairs)])), hashes(&batch(vec![Arc::new(lists)])), "a fixed size");
    // Elements in a dictionary.
    let plain = list_of_text();
    let dictionary: DictionaryArray<Int32Type> = plain.values().as_string::<i32>().iter().collect();
    let field = Arc::new(Field::new("item", dictionary.data_type().clone(), true));
    let encoded = ListArray::new(field, plain.offsets().clone(), Arc::new(dictionary), plain.nulls().cloned());
    assert_eq!(hashes(&batch(vec![Arc::new(encoded)])), hashes(&batch(vec![Arc::new(plain)])), "encoded elements");
}

#[test]
fn what_is_not_the_same_has_another_hash() {
    let of = |columns| sum(&batch(columns));
    let numbers = |values: Vec<Option<i64>>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
    let two = |a: [i64; 2], b: [i64; 2]| of(vec![numbers(a.map(Some).to_vec()), numbers(b.map(Some).to_vec())]);
    assert_ne!(two([1, 2], [3, 4]), two([1, 2], [4, 3]), "values that change places between rows");
    assert_ne!(two([1, 2], [3, 4]), two([3, 4], [1, 2]), "values that change columns");
    assert_eq!(two([1, 2], [3, 4]), two([2, 1], [4, 3]), "rows that change places");
    assert_ne!(of(vec![numbers(vec![Some(0)])]), of(vec![numbers(vec![None])]), "null is not zero");
    assert_ne!(of(vec![numbers(vec![None])]), of(vec![numbers(vec![None]), numbers(vec![None])]), "columns count");
    assert_ne!(of(vec![numbers(vec![Some(5); 2])]), RowHash::default(), "a pair of equal rows does not cancel out");
    let text = |one: &str| -> ArrayRef { Arc::new(StringArray::from(vec![one])) };
    assert_ne!(of(vec![text("a"), text("b")]), of(vec![text("ab"), text("")]), "where text ends counts");
}

#[test]
fn a_batch_of_another_schema_is_refused() {
    let numbers = batch(vec![Arc::new(Int64Array::from(vec![1]))]);
    let text = batch(vec![Arc::new(StringArray::from(vec!["a"]))]);
    let lists = batch(vec![Arc::new(list_of_int32())]);
    let structs = StructArray::from(vec![(
        Arc::new(Field::new("x", DataType::Int32, true)),
        Arc::new(Int32Array::from(vec![1])) as ArrayRef,
    )]);
    let structs = batch(vec![Arc::new(structs)]);
    let all = [numbers, text, lists, structs];
    for (at, one) in all.iter().enumerate() {
        let hasher = RowHasher::new(&one.schema()).unwrap();
        for (other, batch) in all.iter().enumerate() {
            assert_eq!(hasher.sum(batch).is_ok(), at == other, "{at} {other}");
        }
    }
    let error = RowHasher::new(&all[0].schema()).unwrap().sum(&all[1]).unwrap_err();
    assert_eq!(error.to_string(), "column c0 is text, not int64");
    let union = UnionFields::from_fields(vec![Field::new("a", DataType::Int32, true)]);
    let schema = Schema::new(vec![Field::new("u", DataType::Union(union, arrow_schema::UnionMode::Dense), true)]);
    assert!(RowHasher::new(&schema).unwrap_err().to_string().starts_with("column u is Union"));
}

proptest! {
    #[test]
    fn a_row_has_one_hash_wherever_batches_end(seed in any::<u64>()) {
        let batch = samples::batch(seed, 1 + (seed % 40) as usize);
        let whole = hashes(&batch);
        let cut = (seed / 64) as usize % (batch.num_rows() + 1);
        let mut pieces = hashes(&batch.slice(0, cut));
        pieces.extend(hashes(&batch.slice(cut, batch.num_rows() - cut)));
        prop_assert_eq!(&pieces, &whole);
        let plain = samples::plain(&batch);
        prop_assert_eq!(hashes(&plain), whole, "plain {:?}", batch.schema());
    }
}

#[test]
fn bits_under_nulls_do_not_count() {
    let values = |under: i64| {
        Int64Array::new(vec![1, under].into(), Some(NullBuffer::new(BooleanBuffer::from(vec![true, false]))))
    };
    let lists = |under| {
        let offsets = OffsetBuffer::new(vec![0, 1, 2].into());
        let nulls = Some(NullBuffer::new(BooleanBuffer::from(vec![true, false])));
        let field = Arc::new(Field::new("item", DataType::Int64, true));
        ListArray::new(field, offsets, Arc::new(values(under)), nulls)
    };
    let of = |under| sum(&batch(vec![Arc::new(values(under)), Arc::new(lists(under))]));
    assert_eq!(of(5), of(6));
}

#[test]
fn lists_of_more_elements_than_are_hashed_at_a_time_hash_as_their_slices_do() {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in 0..3000 {
        (0..50).for_each(|at| lists.values().append_value(format!("{row} {at}")));
        lists.append(row % 7 != 0);
    }
    let whole = batch(vec![Arc::new(lists.finish())]);
    let slices = (0..3000).step_by(100).flat_map(|from| hashes(&whole.slice(from, 100)));
    assert!(hashes(&whole) == slices.collect::<Vec<_>>(), "150 000 elements");
}

/// Seed k of column c, as the head of the module has it.
fn seed(column: u64, kind: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(kind, &column.to_le_bytes())
}

/// The hash of a row of one column with these two hashes.
fn row_of([a, b]: [u64; 2]) -> RowHash {
    RowHash(XxHash3_128::oneshot(&[a.to_le_bytes(), b.to_le_bytes()].concat()))
}

#[test]
fn a_list_of_more_elements_than_are_hashed_at_a_time_is_hashed_as_the_module_says() {
    let elements = 150_000;
    let offsets = || OffsetBuffer::new(vec![0, 1, 1 + elements, 3 + elements].into());
    let field = |of: &ArrayRef| Arc::new(Field::new("item", of.data_type().clone(), true));
    let of = |values: ArrayRef| {
        let lists = ListArray::new(field(&values), offsets(), values, None);
        hashes(&batch(vec![Arc::new(lists)]))[1]
    };
    let places = 1..1 + elements as usize;
    let texts: Vec<Option<String>> =
        (0..3 + elements).map(|at| (at % 1000 != 7).then(|| format!("number {at}"))).collect();
    let hash = |kind: u64| {
        let element = |text: &Option<String>| match text {
            Some(text) => XxHash3_64::oneshot_with_seed(seed(1, kind), text.as_bytes()),
            None => seed(1, 2 + kind),
        };
        let all: Vec<u8> = texts[places.clone()].iter().flat_map(|text| element(text).to_le_bytes()).collect();
        XxHash3_64::oneshot_with_seed(seed(0, kind), &all)
    };
    assert_eq!(of(Arc::new(StringArray::from(texts.clone()))), row_of([hash(0), hash(1)]), "text");

    let numbers: Vec<Option<i32>> = (0..3 + elements).map(|at| (at != 100_000).then_some(at)).collect();
    let bytes: Vec<u8> = numbers[places.clone()].iter().flat_map(|one| one.unwrap_or(0).to_le_bytes()).collect();
    let validity = numbers[places.clone()].iter().map(|one| u8::from(one.is_some()));
    let all: Vec<u8> = bytes.iter().copied().chain(validity).collect();
    let expected = row_of([4, 5].map(|kind| XxHash3_64::oneshot_with_seed(seed(0, kind), &all)));
    let plain = Int32Array::from(numbers.clone());
    assert_eq!(of(Arc::new(plain.clone())), expected, "numbers with a null");
    let keys = Int32Array::from_iter_values(0..3 + elements);
    let dictionary: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(plain)));
    assert_eq!(of(dictionary), expected, "numbers in a dictionary");

    let full: Vec<i32> = numbers.iter().map(|one| one.unwrap_or(0)).collect();
    let expected = row_of([0, 1].map(|kind| XxHash3_64::oneshot_with_seed(seed(0, kind), &bytes)));
    assert_eq!(of(Arc::new(Int32Array::from(full.clone()))), expected, "numbers");
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from_iter_values(1..=3 + elements), &Int32Array::from(full));
    assert_eq!(of(Arc::new(runs.unwrap())), expected, "numbers in run ends");
    let bools: Vec<bool> = (0..3 + elements).map(|at| at % 3 == 0).collect();
    let bytes: Vec<u8> = bools[places].iter().map(|one| u8::from(*one)).collect();
    let expected = row_of([0, 1].map(|kind| XxHash3_64::oneshot_with_seed(seed(0, kind), &bytes)));
    assert_eq!(of(Arc::new(BooleanArray::from(bools))), expected, "bools");
}

#[test]
fn a_list_without_end_is_refused() {
    let elements = crate::ELEMENTS_MAX as usize + 1;
    let field = Arc::new(Field::new("item", DataType::Null, true));
    let offsets = OffsetBuffer::new(vec![0, elements as i32].into());
    let lists = batch(vec![Arc::new(ListArray::new(field, offsets, Arc::new(NullArray::new(elements)), None))]);
    let error = RowHasher::new(&lists.schema()).unwrap().sum(&lists).unwrap_err();
    assert_eq!(error.to_string(), "a list of column c0 has 67108865 elements; it may have 67108864");
}

#[test]
fn of_dictionaries_with_more_values_than_rows_those_of_the_rows_are_hashed() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..5000).map(|at| (at % 9 != 0).then_some(at))));
    let texts: ArrayRef = Arc::new(StringArray::from_iter((0..5000).map(|at| (at % 7 != 0).then(|| at.to_string()))));
    let fields = vec![Field::new("x", DataType::Int64, true), Field::new("y", DataType::Utf8, true)];
    let structs = StructArray::new(fields.into(), vec![numbers.clone(), texts.clone()], None);
    let places = [4999, 3, 4, 5, 6, 7, 8, 9, 9, 0, 63, 2500];
    for values in [numbers, texts, Arc::new(structs)] {
        let keys = Int32Array::from_iter(places.iter().map(|at| (*at != 5).then_some(*at)));
        let dictionary = DictionaryArray::new(keys, values.clone());
        let plain = samples::plain(&batch(vec![Arc::new(dictionary.clone())]));
        assert_eq!(hashes(&batch(vec![Arc::new(dictionary)])), hashes(&plain), "{}", values.data_type());
    }
}

/// Run ends hold no null of the keys of a dictionary that has them as its values.
#[test]
fn lists_of_dictionaries_whose_values_are_run_ends_hash_as_their_plain_values_do() {
    let runs =
        RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2, 3]), &Int64Array::from(vec![Some(7), None])).unwrap();
    let keys = Int32Array::from(vec![Some(0), None, Some(1), Some(2), None, None]);
    let child: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(runs)));
    let plain: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None, Some(7), None, None, None]));
    let lists = |child: ArrayRef| {
        let offsets = OffsetBuffer::new(vec![0, 3, 4, 6].into());
        let field = Arc::new(Field::new("item", child.data_type().clone(), true));
        hashes(&batch(vec![Arc::new(ListArray::new(field, offsets, child, None))]))
    };
    assert_eq!(lists(child), lists(plain));
}

/// All of these pairs are there at a time.
#[test]
fn what_hashing_takes_is_known_however_deep_structs_with_nulls_are() {
    let rows = 1000;
    let keys = Int32Array::from_iter_values((0..rows).map(|row| row % 700));
    let texts = StringArray::from_iter_values((0..700).map(|value| value.to_string()));
    let mut column: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(texts)));
    for depth in 0..6 {
        let batch = batch(vec![column.clone()]);
        let hasher = RowHasher::new(&batch.schema()).unwrap();
        columns::TAKEN.set(0);
        hasher.sum(&batch).unwrap();
        let (taken, said) = (columns::TAKEN.get(), hasher.scratch_bytes(rows as usize));
        assert_eq!(taken, 16 * (rows as u64 * (1 + depth) + 700), "{depth}");
        assert!(taken <= said && said <= 2 * taken, "{depth}: {taken} {said}");
        let field = Field::new("f", column.data_type().clone(), true);
        let nulls = NullBuffer::from_iter((0..rows).map(|row| row % 5 > 0));
        column = Arc::new(StructArray::new(vec![field].into(), vec![column], Some(nulls)));
    }
}
