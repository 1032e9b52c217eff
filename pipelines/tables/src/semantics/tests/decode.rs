use std::sync::Arc;

use arrow_array::*;
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;

use super::super::*;
use crate::TableError;
use crate::plain::plain_type;
use crate::samples::{self, Seeded};

/// Columns of a batch that have an order, each in some direction.
fn some_key(seeded: &mut Seeded, batch: &RecordBatch) -> Vec<KeyColumn> {
    let schema = batch.schema();
    let with_order = schema.fields().iter().filter(|field| check_order(field.name(), field.data_type()).is_ok());
    with_order
        .map(|field| KeyColumn {
            column: field.name().clone(),
            descending: seeded.below(2) == 0,
            nulls: seeded.pick(&[Nulls::First, Nulls::Last]),
        })
        .collect()
}

fn keys_of(batch: &RecordBatch, key: &[KeyColumn]) -> Vec<Vec<u8>> {
    let keys = KeyEncoder::new(&batch.schema(), key).unwrap().encode(batch).unwrap();
    (0..keys.len()).map(|row| keys.get(row).to_vec()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn keys_are_columns_again(seed in any::<u64>()) {
        let mut seeded = Seeded(seed);
        let rows = seeded.below(20);
        let batch = samples::batch(seed, rows);
        let key = some_key(&mut seeded, &batch);
        if key.is_empty() {
            return Ok(());
        }
        let keys = keys_of(&batch, &key);
        let decoder = KeyDecoder::new(&batch.schema(), &key).unwrap();
        // Where nothing says whether values of dictionaries may be null, nothing holds such a null.
        let Ok(columns) = decoder.decode(keys.iter().map(|key| &key[..])) else {
            let schema = format!("{:?}", batch.schema());
            prop_assert!(schema.contains("Dictionary"), "{}", schema);
            return Ok(());
        };
        let fields: Vec<Field> = key.iter().zip(&columns).map(|(key, column)| Field::new(&key.column, column.data_type().clone(), true)).collect();
        for (key, column) in key.iter().zip(&columns) {
            prop_assert_eq!(column.data_type(), &plain_type(batch.column_by_name(&key.column).unwrap().data_type()));
            prop_assert_eq!(column.len(), rows);
            prop_assert!(column.to_data().validate_full().is_ok());
        }
        let again = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        prop_assert_eq!(keys_of(&again, &key), keys);
    }

    #[test]
    fn bytes_that_are_no_keys_are_errors(seed in any::<u64>()) {
        let mut seeded = Seeded(seed);
        let batch = samples::batch(seed, 6);
        let key = some_key(&mut seeded, &batch);
        if key.is_empty() {
            return Ok(());
        }
        let mut keys = keys_of(&batch, &key);
        for key in &mut keys {
            match seeded.below(4) {
                0 => key.truncate(seeded.below(key.len() + 1)),
                1 => key.push(seeded.next() as u8),
                _ if !key.is_empty() => {
                    let at = seeded.below(key.len());
                    key[at] = seeded.pick(&[0, 1, 2, 0xff, 0xfe, 0x80]);
                }
                _ => (),
            }
        }
        let decoder = KeyDecoder::new(&batch.schema(), &key).unwrap();
        match decoder.decode(keys.iter().map(|key| &key[..])) {
            // What is decoded is what was encoded.
            Ok(columns) => {
                let fields: Vec<Field> = key.iter().zip(&columns).map(|(key, column)| Field::new(&key.column, column.data_type().clone(), true)).collect();
                let again = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
                prop_assert_eq!(keys_of(&again, &key), keys);
            }
            Err(error) => prop_assert!(matches!(error, TableError::NotAKey { .. } | TableError::TooManyElements { .. }), "{}", error),
        }
    }
}

#[test]
fn decoded_floats_are_the_one_nan_and_the_one_zero() {
    let odd = f64::from_bits(0xfff0_0000_0000_0001);
    let values = vec![Some(-0.0), Some(odd), Some(f64::NAN), Some(-1.5), None, Some(f64::NEG_INFINITY)];
    let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Float64, true)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(Float64Array::from(values))]).unwrap();
    for descending in [false, true] {
        let key = [KeyColumn { descending, ..KeyColumn::rising("x") }];
        let keys = keys_of(&batch, &key);
        let columns = KeyDecoder::new(&schema, &key).unwrap().decode(keys.iter().map(|key| &key[..])).unwrap();
        let floats = columns[0].as_any().downcast_ref::<Float64Array>().unwrap();
        let bits: Vec<Option<u64>> = floats.iter().map(|float| float.map(f64::to_bits)).collect();
        let of = |float: f64| Some(float.to_bits());
        assert_eq!(bits, [of(0.0), of(f64::NAN), of(f64::NAN), of(-1.5), None, of(f64::NEG_INFINITY)]);
    }
    let decoder = KeyDecoder::new(&schema, &[KeyColumn::rising("x")]).unwrap();
    let error = decoder.decode([&[1u8, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..]]).unwrap_err();
    assert_eq!(error.to_string(), "bytes that are no key, in what column x has: a float that no key has");
    let error = decoder.decode([&[2u8, 0][..]]).unwrap_err();
    assert_eq!(error.to_string(), "bytes that are no key, in what column x has: there are bytes behind it");
}

#[test]
fn a_null_in_place_of_a_long_list_takes_no_memory_without_bound() {
    let item = Arc::new(Field::new("item", DataType::Int8, true));
    let schema = Schema::new(vec![Field::new("x", DataType::FixedSizeList(item, i32::MAX), true)]);
    let decoder = KeyDecoder::new(&schema, &[KeyColumn::rising("x")]).unwrap();
    assert!(matches!(decoder.decode([&[2u8][..]]), Err(TableError::TooManyElements { .. })));
}
