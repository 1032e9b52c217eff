//! Values that are computed of the aggregates of a group.

use exobus_tables::reading::Computed;
use exobus_tables::semantics::KeyColumn;
use serde::{Deserialize, Serialize};

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
    /// The same columns of groups that are known, of those that are written; `None`: these are keys and aggregates as they are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computed: Option<Computed>,
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
}
