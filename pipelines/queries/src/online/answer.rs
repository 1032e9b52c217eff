//! Values that are computed of the aggregates of a group.

use exobus_tables::semantics::KeyColumn;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::estimators::Dual;

/// What is computed of the aggregates of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OfAggregates {
    /// One of them, by its number.
    Aggregate(usize),
    /// A number.
    Number(f64),
    /// `+`
    Sum(Box<OfAggregates>, Box<OfAggregates>),
    /// `-`
    Difference(Box<OfAggregates>, Box<OfAggregates>),
    /// `*`
    Product(Box<OfAggregates>, Box<OfAggregates>),
    /// `/`
    Quotient(Box<OfAggregates>, Box<OfAggregates>),
}

/// What is answered of each group, where that is not what is written of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnlineAnswer {
    /// Which columns that tell groups apart, by their numbers, and what they are called.
    pub keys: Vec<(String, usize)>,
    /// What is computed, and what it is called.
    pub values: Vec<(String, OfAggregates)>,
    /// What groups are ordered by when they are shown, of columns that are written; none: as they are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order_by: Vec<KeyColumn>,
}

impl OnlineAnswer {
    /// The names of all columns.
    pub(super) fn columns(&self) -> Vec<String> {
        let keys = self.keys.iter().map(|(name, _)| name);
        keys.chain(self.values.iter().map(|(name, _)| name)).cloned().collect()
    }
}

impl OfAggregates {
    /// The aggregate that it is and nothing more.
    pub(super) fn as_aggregate(&self) -> Option<usize> {
        match self {
            Self::Aggregate(number) => Some(*number),
            _ => None,
        }
    }

    /// The aggregates that it is computed of.
    pub(super) fn aggregates(&self) -> Vec<usize> {
        match self {
            Self::Aggregate(number) => vec![*number],
            Self::Number(_) => Vec::new(),
            Self::Sum(one, other)
            | Self::Difference(one, other)
            | Self::Product(one, other)
            | Self::Quotient(one, other) => [one.aggregates(), other.aggregates()].concat(),
        }
    }

    /// What it is of aggregates that depend on so many estimates.
    pub(super) fn dual(&self, estimates: usize, aggregate: &dyn Fn(usize) -> Dual) -> Dual {
        let of = |part: &Self| part.dual(estimates, aggregate);
        match self {
            Self::Aggregate(number) => aggregate(*number),
            Self::Number(value) => Dual::constant(*value, estimates),
            Self::Sum(one, other) => &of(one) + &of(other),
            Self::Difference(one, other) => &of(one) - &of(other),
            Self::Product(one, other) => &of(one) * &of(other),
            Self::Quotient(one, other) => &of(one) / &of(other),
        }
    }

    /// What it is of aggregates that are known, as they are shown; null where there is no number.
    pub(super) fn value(&self, aggregates: &[Value]) -> Value {
        match self.as_aggregate() {
            Some(number) => aggregates[number].clone(),
            None => {
                let known = |number: usize| Dual::constant(number_of(&aggregates[number]).unwrap_or(f64::NAN), 0);
                serde_json::Number::from_f64(self.dual(0, &known).value).map_or(Value::Null, Value::Number)
            }
        }
    }
}

/// A number as it is shown: decimals are texts.
fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_computed_of_known_values_is_a_number_or_null() {
        let of = |number| Box::new(OfAggregates::Aggregate(number));
        let tenth = |of| OfAggregates::Product(Box::new(of), Box::new(OfAggregates::Number(0.1)));
        let mean = OfAggregates::Quotient(of(0), of(1));
        assert_eq!(mean.value(&[json!("12.5"), json!(2)]), json!(6.25));
        assert_eq!(mean.value(&[json!(1), json!(0)]), Value::Null);
        assert_eq!(mean.value(&[Value::Null, json!(1)]), Value::Null);
        assert_eq!(OfAggregates::Aggregate(0).value(&[json!("a text")]), json!("a text"));
        let more = tenth(OfAggregates::Difference(of(0), Box::new(OfAggregates::Sum(of(1), of(1)))));
        assert_eq!((more.value(&[json!(30), json!(5)]), more.aggregates()), (json!(2.0), vec![0, 1, 1]));
    }
}
