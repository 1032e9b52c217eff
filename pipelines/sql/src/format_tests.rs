//! What plans of queries and of rows are as bytes (docs/formats.md): samples that another release has written, and that are never made anew.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, Schema};

use crate::plan::{Plan, VERSION, check_version};
use crate::rows::bind;

#[test]
fn a_plan_of_version_4_is_what_it_was() {
    let sample = include_bytes!("../tests/samples/plan-4.bin");
    let plan: Plan = rmp_serde::from_slice(sample).unwrap();
    assert_eq!(check_version(plan.version), Ok(()));
    let expected = " 1. join, inner, on city=name: sales
     where n > 3 (row groups and pages without such rows are not read)
     where upper(city) != ROME
     with cities
     where upper(name) != ROME
 2. group by country: sum(a0) as total, count(*) as n, of step 1
     with price * 2 AS a0
     the first 3 by total:desc, country
    answer: step 2";
    assert_eq!(plan.describe(&["sales".to_owned(), "cities".to_owned()]).to_string(), expected);
    assert_eq!(rmp_serde::to_vec_named(&plan).unwrap(), sample);
    let other = rmp_serde::to_vec_named(&Plan { version: VERSION + 1, ..plan }).unwrap();
    assert!(check_version(rmp_serde::from_slice::<Plan>(&other).unwrap().version).is_err());
}

#[test]
fn a_plan_of_rows_of_version_3_computes_what_it_did() {
    let sample = include_bytes!("../tests/samples/rows-3.bin");
    let fields = [("city", DataType::Utf8View), ("price", DataType::Float64), ("n", DataType::Int64)];
    let schema = Arc::new(Schema::new(fields.map(|(name, of)| Field::new(name, of, true)).to_vec()));
    let cities = StringViewArray::from(vec![Some("oslo"), None, Some("rome")]);
    let (prices, numbers) = (Float64Array::from(vec![1.5, 2.0, -3.0]), Int64Array::from(vec![1, 2, 40]));
    let rows = RecordBatch::try_new(schema.clone(), vec![Arc::new(cities), Arc::new(prices), Arc::new(numbers)]);
    let computed = bind(sample, &schema).unwrap().compute(&rows.unwrap()).unwrap();
    let text = |row: usize| {
        let options = FormatOptions::default().with_null("-");
        let cell = |column: &ArrayRef| ArrayFormatter::try_new(column, &options).unwrap().value(row).to_string();
        computed.columns().iter().map(cell).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((0..3).map(text).collect::<Vec<_>>(), ["OSLO 3.0 2 -", "- 4.0 3 2.0", "ROME -6.0 41 -3.0"]);
}
