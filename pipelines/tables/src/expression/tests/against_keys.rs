//! Comparisons of all types, against the bytes of keys, which are in the order of the values.

use arrow_schema::Schema;

use super::*;
use crate::expression::points::Domain;
use crate::look::Value;
use crate::plain::plain_type;
use crate::raw::WholeNumbers;
use crate::samples::{Seeded, batch_of, data_type};
use crate::semantics::{KeyColumn, KeyEncoder, KeyRows, levels, place};

const ROWS: usize = 40;

/// What a key that is null begins with.
const NULL: u8 = 2;

fn keys(batch: &RecordBatch, column: &str) -> KeyRows {
    KeyEncoder::new(&batch.schema(), &[KeyColumn::rising(column)]).unwrap().encode(batch).unwrap()
}

/// The literal that is the value of a row of a column of a type.
fn literal(array: &ArrayRef, row: usize, data_type: &DataType) -> Option<Literal> {
    if let Domain::Whole(scale) = Domain::of(data_type) {
        let (levels, array) = levels(array, &[]);
        let number = WholeNumbers::of(array.as_ref())?.wide(place(&levels, row)?);
        // Decimals of these rows may have more digits than their type says, which are not shown.
        return Some(Literal::Number(format!("{number}e{}", -scale)));
    }
    Some(match Value::of(array, row) {
        Value::Bool(value) => Literal::Bool(value),
        Value::Number(text) => Literal::Number(text),
        Value::Exact(text) | Value::Text(text) => Literal::Text(text),
        _ => return None,
    })
}

const COMPARISONS: [(&str, Comparison); 6] = [
    ("=", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<", Comparison::Less),
    ("<=", Comparison::LessOrEqual),
    (">", Comparison::Greater),
    (">=", Comparison::GreaterOrEqual),
];

/// Holds a condition against what keys say of each row; whether the condition is one.
fn agrees(condition: Expression, schema: &Schema, batch: &RecordBatch, expected: impl Fn(usize) -> bool) -> bool {
    let Ok(bound) = condition.bind(schema) else { return false };
    let mask = bound.evaluate(batch).unwrap();
    for row in 0..ROWS {
        assert_eq!(mask.value(row), expected(row), "{condition}, row {row} of {batch:?}");
    }
    true
}

#[test]
fn values_compare_as_keys_do_whatever_their_type_and_encoding_is() {
    let (mut pairs, mut literals) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    for seed in 0..1_500 {
        let mut seeded = Seeded(seed);
        let of = data_type(&mut seeded, 1);
        let batch = batch_of(&mut seeded, &[of.clone(), of.clone()], ROWS);
        let plain = plain_type(&of);
        // Another batch of the same schema, of another encoding, is the same to it.
        let schema = crate::plain::plain_schema(&batch.schema());
        if crate::semantics::check_order("c0", &plain).is_err() || plain == DataType::Null {
            continue;
        }
        let (left, right) = (keys(&batch, "c0"), keys(&batch, "c1"));
        for (sign, comparison) in COMPARISONS {
            let condition: Expression = format!("c0 {sign} c1").parse().unwrap();
            let holds = |row| {
                let (left, right) = (left.get(row), right.get(row));
                left[0] != NULL && right[0] != NULL && comparison.holds(left.cmp(right))
            };
            if agrees(condition, &schema, &batch, holds) {
                pairs.insert(plain.to_string());
            }
        }
        let row = seeded.below(ROWS);
        let Some(literal) = literal(batch.column(0), row, &plain) else { continue };
        let value = left.get(row).to_vec();
        for (_, comparison) in COMPARISONS {
            let condition = Kind::Compare(col("c0").into(), comparison, literal.clone().into()).into();
            let holds = |row| left.get(row)[0] != NULL && comparison.holds(left.get(row).cmp(&value));
            if agrees(condition, &schema, &batch, holds) {
                literals.insert(plain.to_string());
            }
        }
    }
    // Types of all kinds were compared.
    assert!(pairs.len() > 40 && literals.len() > 25, "{pairs:?}\n{literals:?}");
}
