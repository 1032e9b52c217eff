//! What objects could hold in place of tables, as functions for fuzzing: none may panic, whatever the bytes.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};

use crate::aggregates::{Aggregate, parse_list};
use crate::block::{Gather, Layout, Limits, Part, Pick};
use crate::expression::Expression;
use crate::semantics::{ExactFloatSum, ExactSum, KeyColumn, KeyDecoder, KeyEncoder, Nulls, check_order};

/// The schema of a set, also with a checksum that fits.
pub fn layout(bytes: &[u8]) {
    for layout in [Layout::decode(bytes), Layout::decode(&Layout::with_checksum(bytes))].into_iter().flatten() {
        assert!(Layout::decode(&layout.encode()).is_ok());
    }
}

/// A part of one of the [schemas](parts); the first byte says of which.
pub fn part(bytes: &[u8]) {
    let Some((number, bytes)) = bytes.split_first() else { return };
    let schemas = schemas();
    let layout = Layout::new(&schemas[usize::from(*number) % schemas.len()]).expect("types of tables");
    for batch in Part::of_bytes(Arc::new(layout), Buffer::from(bytes)).flatten() {
        assert!(batch.columns().iter().all(|column| column.to_data().validate_full().is_ok()));
    }
}

/// Sums, one behind the other, of integers or of floats.
pub fn sums(mut bytes: &[u8]) {
    let mut floats = bytes;
    while let Ok((sum, rest)) = ExactFloatSum::decode(floats) {
        let mut encoded = Vec::new();
        sum.encode(&mut encoded);
        assert_eq!(encoded, floats[..floats.len() - rest.len()], "a sum is written in one way");
        let _ = sum.value();
        floats = rest;
    }
    while let Ok((sum, rest)) = ExactSum::decode(bytes) {
        let mut encoded = Vec::new();
        sum.encode(&mut encoded);
        assert_eq!(ExactSum::decode(&encoded).ok().map(|(again, _)| again), Some(sum));
        bytes = rest;
    }
}

/// Sums of floats that [`sums`] reads when all is well.
pub fn float_sums() -> Vec<Vec<u8>> {
    let of = |values: &[f64]| {
        let (mut sum, mut bytes) = (ExactFloatSum::new(), Vec::new());
        values.iter().for_each(|value| {
            sum.add(*value);
        });
        sum.encode(&mut bytes);
        bytes
    };
    vec![of(&[]), of(&[1.5, -3e7]), of(&[1e300, -1.0, 1e-300]), of(&[f64::NAN, f64::NEG_INFINITY, 0.1])]
}

/// A key of the columns of one of the [schemas](parts) that have an order; the first byte says of which, and how they go.
pub fn key(bytes: &[u8]) {
    let Some((number, bytes)) = bytes.split_first() else { return };
    let (schema, key) = keyed(*number);
    let Ok(columns) = KeyDecoder::new(&schema, &key).expect("columns with an order").decode([bytes]) else { return };
    let fields = key.iter().zip(&columns);
    let fields = fields.map(|(key, column)| Field::new(&key.column, column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Fields>()));
    let batch = RecordBatch::try_new(schema.clone(), columns).expect("columns of one row");
    let keys = KeyEncoder::new(&schema, &key).expect("columns with an order").encode(&batch).expect("a key");
    assert_eq!(keys.get(0), bytes, "a key is written in one way");
}

/// What [`key`] reads when all is well.
pub fn keys() -> Vec<Vec<u8>> {
    let of = |number: u8| {
        let (schema, key) = keyed(number);
        let columns = schema.fields().iter().map(|field| arrow_array::new_null_array(field.data_type(), 1));
        let batch = RecordBatch::try_new(Arc::new(schema.clone()), columns.collect()).expect("a row of nulls");
        let keys = KeyEncoder::new(&schema, &key).expect("columns with an order").encode(&batch).expect("a key");
        [&[number][..], keys.get(0)].concat()
    };
    let values = [
        &[0, 1, 0x80, 0, 0, 0, 0, 0, 0, 7, 1, b'a', 0, 0xff, 0, 0, 1, 1, 1, 0xbf, 0xf8, 0, 0, 0, 0, 0, 0, 2, 2][..],
        &[1, 1, 1, 1, b'a', 0, 0, 1, 2, 0, 2, 1, 1, 0x80, 1, 2, 2],
    ];
    (0..6).map(of).chain(values.map(<[u8]>::to_vec)).collect()
}

/// A schema, and those of its columns that have an order.
fn keyed(number: u8) -> (Schema, Vec<KeyColumn>) {
    let schema = schemas()[usize::from(number) % 3].clone();
    let with_order = schema.fields().iter().filter(|field| check_order(field.name(), field.data_type()).is_ok());
    let nulls = if number / 6 % 2 == 1 { Nulls::First } else { Nulls::Last };
    let key =
        with_order.map(|field| KeyColumn { column: field.name().clone(), descending: number / 3 % 2 == 1, nulls });
    let key = key.collect();
    (schema, key)
}

/// A list of aggregates, bound to each of the [schemas](parts) and asked what three rows of nulls give.
pub fn aggregates(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(list) = parse_list(text) else { return };
    let printed = list.iter().map(Aggregate::to_string).collect::<Vec<_>>().join(", ");
    assert_eq!(parse_list(&printed).as_ref(), Ok(&list), "{printed}");
    for (schema, aggregate) in schemas().iter().flat_map(|schema| list.iter().map(move |one| (schema, one))) {
        let Ok(bound) = aggregate.bind(schema) else { continue };
        let columns = schema.fields().iter().map(|field| arrow_array::new_null_array(field.data_type(), 3));
        let batch = RecordBatch::try_new(Arc::new(schema.clone()), columns.collect()).expect("three rows of nulls");
        let argument = bound.argument(&batch).expect("of this schema");
        let Some(mut accumulator) = bound.accumulator().expect("types of tables") else { continue };
        accumulator.resize(2);
        accumulator.update(&[0, 1, 0], argument.as_ref(), Some(&[0, 1, 2])).expect("of this schema");
        let states = accumulator.states(&[0, 1]).expect("two groups");
        accumulator.merge(&[0, 0], &states).expect("states of its own");
        assert_eq!(accumulator.finish(&[1, 0]).expect("nulls do not overflow").len(), 2);
    }
}

/// What [`aggregates`] reads when all is well.
pub fn aggregate_lists() -> Vec<Vec<u8>> {
    let texts = [
        "count(*), sum(c0) as s, avg(c3), min(c1), max(c4)",
        "count(distinct \"c0\"), variance(c3), stddev_pop(c0) as \"a, b\", first(c2), last(c1)",
        "quantile(c5, 0.9), median(c3), min(c2.f0), max(c0)",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// A condition, bound to each of the [schemas](parts) and held against three rows of nulls.
pub fn condition(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(expression) = text.parse::<Expression>() else { return };
    let printed = expression.to_string();
    assert_eq!(printed.parse::<Expression>().as_ref(), Ok(&expression), "{printed}");
    for schema in schemas() {
        let Ok(bound) = expression.bind(&schema) else { continue };
        let columns = schema.fields().iter().map(|field| arrow_array::new_null_array(field.data_type(), 3));
        let batch = RecordBatch::try_new(Arc::new(schema.clone()), columns.collect()).expect("three rows of nulls");
        assert_eq!(bound.evaluate(&batch).expect("of this schema").len(), 3);
    }
}

/// JSON lines: types are inferred of them, and they are read with these and with others that are said.
pub fn json_lines(bytes: &[u8]) {
    crate::sources::json::fuzzing::lines(bytes);
}

/// What [`json_lines`] reads when all is well.
pub fn json_texts() -> Vec<Vec<u8>> {
    let texts = [
        "{\"id\": 1, \"name\": \"x\\u00e9\\n\", \"tags\": [\"a\", null], \"at\": {\"x\": 0.5, \"y\": -1e3}}\n{\"id\": null}\n",
        "{\"a\": [{\"x\": 12.50, \"y\": {\"k\": [\"2024-01-31\", null]}}, {}], \"b\": \"2024-01-31T12:30:00.5+02:00\", \"c\": null, \"d\": 255, \"e\": 0.1, \"f\": \"\"}\n",
        "{\"big\": 18446744073709551615, \"empty\": {}, \"none\": [], \"passed\": [1, \"x\"]}\n{\"big\": 123456789012345678901234567890}\n",
        "{\"mixed\": 1}\n{\"mixed\": \"x\"}\n{\"mixed\": {\"y\": [ true ]}}\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// What [`condition`] reads when all is well.
pub fn conditions() -> Vec<Vec<u8>> {
    let texts = [
        "c0 > 3 and c1 in ('x', 'y''s', null) or not c2",
        "c3 between -1.5e3 and 'nan' and c4 <> .5 and (c5 is not null)",
        "c5 >= timestamp '2024-01-31 12:30:15.5+02:00' and c1 not like '%a_b!%' escape '!'",
        "\"c0\" = c0 or c4 < c0 or c2.f0 = date '2024-01-31'",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// What [`layout`] reads when all is well.
pub fn layouts() -> Vec<Vec<u8>> {
    schemas().iter().map(|schema| Layout::new(schema).expect("types of tables").encode()).collect()
}

/// What [`part`] reads when all is well.
pub fn parts() -> Vec<Vec<u8>> {
    let part = |(number, schema): (u8, &Schema)| {
        let layout = Arc::new(Layout::new(schema).expect("types of tables"));
        let columns = layout.schema().fields().iter().map(|field| arrow_array::new_null_array(field.data_type(), 3));
        let batch = RecordBatch::try_new(layout.schema().clone(), columns.collect()).expect("three rows of nulls");
        let gather = Gather::new(layout, &[batch]).expect("a batch of this schema");
        let picks = [0, 1, 2, 1].map(|row| Pick { batch: 0, row });
        let messages = gather.messages(&picks, &Limits { rows_max: 3, ..Limits::default() }).expect("small rows");
        let mut bytes = vec![number];
        for message in messages {
            let from = bytes.len();
            bytes.resize(from + message.bytes() as usize, 0);
            message.write(&mut bytes[from..]);
        }
        bytes
    };
    (0..).zip(&schemas()).map(part).collect()
}

fn schemas() -> [Schema; 3] {
    use DataType::*;
    let list = |of| DataType::new_list(of, true);
    let structs = |fields: Vec<DataType>| {
        let named = |(at, of): (usize, DataType)| Field::new(format!("f{at}"), of, true);
        Struct(fields.into_iter().enumerate().map(named).collect::<Fields>())
    };
    let entries = Struct(vec![Field::new("keys", Utf8, false), Field::new("values", Int64, true)].into());
    let map = Map(Arc::new(Field::new("entries", entries, false)), false);
    let pairs = FixedSizeList(Arc::new(Field::new("item", Int16, true)), 2);
    let of = |types: Vec<DataType>| {
        let named = |(at, of): (usize, DataType)| Field::new(format!("c{at}"), of, true);
        Schema::new(types.into_iter().enumerate().map(named).collect::<Fields>())
    };
    [
        of(vec![
            Int64,
            Utf8,
            Boolean,
            Float64,
            Decimal128(20, 2),
            Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ]),
        of(vec![list(Utf8), LargeList(Arc::new(Field::new("item", LargeBinary, true))), pairs, map, Null]),
        of(vec![list(structs(vec![Int32, list(Binary), FixedSizeBinary(3)])), structs(vec![])]),
    ]
}
