//! What is answered of groups, where that is more than what is written of them: which of them, in which order, and what is computed of what tells them apart and of their aggregates.

use exobus_tables::TableError;
use exobus_tables::arrow_array::{Array as _, ArrayRef, BooleanArray, RecordBatch};
use exobus_tables::reading::{Computed, ComputedRows};
use exobus_tables::semantics::{KeyColumn, KeyEncoder};
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

/// What tells groups apart in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnlineKey {
    /// A column that does, by its number.
    Column(usize),
    /// What is computed of such columns.
    Computed,
}

/// What is said of groups in an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OnlineValue {
    /// It is estimated as aggregates are, with bounds.
    Estimated(OfAggregates),
    /// It is computed of estimates of these aggregates, by their numbers, as it is of aggregates in the end: how far it is from that nobody knows.
    Computed(Vec<usize>),
}

/// What is answered of groups, where that is not what is written of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnlineAnswer {
    /// What tells groups apart, and what it is called.
    pub keys: Vec<(String, OnlineKey)>,
    /// What is said of them, and what it is called.
    pub values: Vec<(String, OnlineValue)>,
    /// These columns, and others that are named here, of groups as they are written; `None`: all of them are columns that are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computed: Option<Computed>,
    /// The column that says which groups are answered; `None`: all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays: Option<String>,
    /// The columns by which groups are ordered; none: they are answered as they are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order_by: Vec<KeyColumn>,
    /// How many groups are answered, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
}

impl OnlineAnswer {
    /// The names of all columns.
    pub(super) fn columns(&self) -> Vec<String> {
        let keys = self.keys.iter().map(|(name, _)| name);
        keys.chain(self.values.iter().map(|(name, _)| name)).cloned().collect()
    }

    /// Whether which groups are answered depends on their aggregates.
    pub(super) fn chooses(&self) -> bool {
        self.stays.is_some() || self.rows.is_some()
    }

    /// What is answered of rows of groups as they are written.
    ///
    /// # Errors
    /// What cannot be computed of one of them.
    pub(super) fn rows(&self, written: &RecordBatch) -> Result<AnswerRows, TableError> {
        let computed = match &self.computed {
            None => None,
            Some(computed) => Some(ComputedRows::new(computed, written.schema_ref())?.of(written)?),
        };
        let seen = computed.as_ref().unwrap_or(written);
        let stays = self.stays.as_ref().and_then(|name| seen.column_by_name(name));
        let stays = stays.and_then(|column| column.as_any().downcast_ref::<BooleanArray>());
        let is_answered =
            |row: &u32| stays.is_none_or(|stays| stays.is_valid(*row as usize) && stays.value(*row as usize));
        let mut places: Vec<(Vec<u8>, u32)> =
            (0..written.num_rows() as u32).filter(is_answered).map(|row| (Vec::new(), row)).collect();
        if !self.order_by.is_empty() {
            let keys = KeyEncoder::new(seen.schema_ref(), &self.order_by)?.encode(seen)?;
            places.iter_mut().for_each(|(key, row)| *key = keys.get(*row as usize).to_vec());
            places.sort();
        }
        places.truncate(self.rows.map_or(usize::MAX, |rows| rows as usize));
        Ok(AnswerRows { computed, places })
    }
}

/// What is answered of rows of groups.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerRows {
    /// What is computed of them; `None`: nothing is.
    pub(super) computed: Option<RecordBatch>,
    /// Which of them are answered, in their order, and what they are ordered by.
    pub(super) places: Vec<(Vec<u8>, u32)>,
}

impl AnswerRows {
    /// All of them, of which nothing is computed.
    pub(super) fn as_written(rows: usize) -> Self {
        Self { computed: None, places: (0..rows as u32).map(|row| (Vec::new(), row)).collect() }
    }

    /// A column that is computed.
    pub(super) fn column(&self, name: &str) -> Option<&ArrayRef> {
        self.computed.as_ref()?.column_by_name(name)
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
