use std::sync::Arc;

use arrow_schema::{DataType, Field, IntervalUnit, Schema, TimeUnit};

use super::super::*;
use crate::TableError;
use crate::plain::plain_type;
use crate::samples::{self, Seeded};

fn stored(files: FileTypes, of: DataType) -> Result<DataType, TableError> {
    let schema = Schema::new(vec![Field::new("c", of, true)]);
    stored_schema(files, &schema).map(|schema| schema.field(0).data_type().clone())
}

#[test]
fn types_that_a_format_lacks_are_stored_as_those_that_hold_their_values() {
    use DataType::*;
    let parquet = |of| stored(FileTypes::Parquet, of).unwrap();
    let zone = Some("Europe/Berlin".into());
    assert_eq!(parquet(Timestamp(TimeUnit::Second, None)), Timestamp(TimeUnit::Millisecond, None));
    assert_eq!(parquet(Timestamp(TimeUnit::Second, zone.clone())), Timestamp(TimeUnit::Millisecond, zone));
    assert_eq!(parquet(Time32(TimeUnit::Second)), Time32(TimeUnit::Millisecond));
    assert_eq!(parquet(Date64), Date32);
    assert_eq!(parquet(Decimal32(5, 2)), Decimal128(5, 2));
    assert_eq!(parquet(Decimal64(15, 2)), Decimal128(15, 2));
    assert_eq!(parquet(Utf8View), Utf8);
    assert_eq!(parquet(DataType::new_list(Date64, true)), DataType::new_list(Date32, true));
    let months = Interval(IntervalUnit::MonthDayNano);
    let error = stored(FileTypes::Parquet, DataType::new_list(months.clone(), true)).unwrap_err();
    assert!(error.to_string().starts_with("column c.item is Interval(MonthDayNano)"), "{error}");
    assert_eq!(stored(FileTypes::Arrow, months.clone()).unwrap(), months);
    for of in [Binary, months, Null, DataType::new_list(Int8, true), Time32(TimeUnit::Second), Decimal128(5, -2)] {
        assert!(matches!(stored(FileTypes::Text, of).unwrap_err(), TableError::Unsupported { .. }));
    }
    assert_eq!(
        stored(FileTypes::Text, Dictionary(Box::new(Int8), Box::new(Decimal32(5, 2)))).unwrap(),
        Decimal128(5, 2)
    );
    let text = |of| stored(FileTypes::Text, of).unwrap();
    assert_eq!([text(LargeUtf8), text(Float16), text(Date64)], [Utf8, Float32, Date32]);
    assert_eq!([text(Decimal256(38, 2)), text(Decimal256(39, 2))], [Decimal128(38, 2), Decimal256(39, 2)]);
}

#[test]
fn what_is_stored_is_of_a_type_that_is_stored_as_it_is() {
    let mut seeded = Seeded(5);
    for of in samples::flat_types().into_iter().chain((0..300).map(|_| samples::data_type(&mut seeded, 3))) {
        for files in [FileTypes::Arrow, FileTypes::Parquet, FileTypes::Text] {
            if let Ok(once) = stored(files, of.clone()) {
                assert_eq!(stored(files, once.clone()).unwrap(), once, "{files:?} {of}");
                assert_eq!(plain_type(&once), once);
            }
        }
    }
}

#[test]
fn batches_become_what_is_stored() {
    let days: arrow_array::ArrayRef = Arc::new(arrow_array::Date64Array::from(vec![Some(-86_400_000), None, Some(0)]));
    let batch = arrow_array::RecordBatch::try_from_iter_with_nullable([("day", days, true)]).unwrap();
    let stored = stored_schema(FileTypes::Parquet, &batch.schema()).unwrap();
    let conformed = conformed(&batch, &stored).unwrap();
    let expected: arrow_array::ArrayRef = Arc::new(arrow_array::Date32Array::from(vec![Some(-1), None, Some(0)]));
    assert!(conformed.column(0).as_ref() == expected.as_ref());
    // Not a whole day.
    let times: arrow_array::ArrayRef = Arc::new(arrow_array::Date64Array::from(vec![0, 1]));
    let batch = arrow_array::RecordBatch::try_from_iter_with_nullable([("day", times, true)]).unwrap();
    let error = super::super::conformed(&batch, &stored).unwrap_err();
    assert_eq!(error.to_string(), "column day, row 1: 1 is no value of date");
}
