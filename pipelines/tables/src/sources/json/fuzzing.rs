//! Lines of strangers, without a file around them.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema};

use super::columns::{Context, Meter, Struct};
use super::evidence::{Columns, Here, Looking};
use super::seeds::push_row;
use super::value::Steps;
use crate::sources::{FixedBudget, MemoryBudget, NamedTypes, Reservation, parse_schema};

/// What columns are said to be, beside those that are inferred.
const SAID: &str = "a list(struct(x decimal(10,2), y map(text, list(date)))), b timestamp[us, UTC], c null, d uint8, e float32, f text";

/// Reads lines as rows, with types that are said and with those that they show, and with mixed values as text and without.
pub(crate) fn lines(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let said = parse_schema(SAID).expect("a schema");
    for is_mixed in [false, true] {
        read(text, &said, is_mixed);
        let memory = Reservation::none(&budget());
        let (mut columns, mut looking) = (Columns::default(), Looking::new(memory, &|name| name == "passed"));
        let file = Arc::from("lines");
        for (line, text) in (1..).zip(text.lines()) {
            if looking.row(&mut columns, Here { file: &file, line }, text).is_err() {
                break;
            }
        }
        if let Ok(types) = columns.types(|_| None, is_mixed) {
            read(text, &types, is_mixed);
        }
    }
}

fn budget() -> Arc<dyn MemoryBudget> {
    Arc::new(FixedBudget::new(64 << 20))
}

/// The rows up to the first that is none.
fn read(text: &str, types: &NamedTypes, is_mixed: bool) {
    let fields: Vec<_> =
        types.iter().map(|(name, of): &(String, DataType)| Field::new(name, of.clone(), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let mut row = Struct::new(schema.fields(), |_| true).expect("types of JSON");
    let mut meter = Meter::new(Reservation::none(&budget()));
    let mut rows = 0;
    for line in text.lines() {
        let mut context = Context { meter: &mut meter, is_mixed, failed: None, steps: Steps::default() };
        if push_row(&mut row, line, &mut context).is_err() {
            // Columns of a row that failed have not all grown.
            return;
        }
        rows += 1;
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(schema, row.finish(), &options).expect("columns of these types");
    assert!(batch.columns().iter().all(|column| column.to_data().validate_full().is_ok()));
}
