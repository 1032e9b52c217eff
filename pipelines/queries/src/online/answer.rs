//! What is answered of groups, where that is more than what is written of them: which of them, in which order, and what is computed of what tells them apart and of their aggregates.

use exobus_tables::TableError;
use exobus_tables::aggregates::{Aggregate, Estimated};
use exobus_tables::arrow_array::{ArrayRef, RecordBatch};
use exobus_tables::arrow_schema::Schema;
use exobus_tables::expression::Expression;
use exobus_tables::jobs::group::Top;
use exobus_tables::reading::{Computed, InMemory, SeenRows};
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

/// Whether which groups stay, by a condition, as the first ones and by other columns of theirs, follows from an aggregate that is known at the end.
pub fn is_chosen_at_the_end<'a>(
    aggregates: &[Aggregate],
    (having, top): (Option<&Expression>, Option<&Top>),
    others: impl Iterator<Item = &'a str>,
) -> bool {
    let is_at_the_end =
        |name: &str| aggregates.iter().any(|one| one.name == name && one.function.estimated() == Estimated::AtTheEnd);
    let mut having = having.into_iter().flat_map(Expression::columns);
    let mut order_by = top.into_iter().flat_map(|top| &top.order_by);
    let mut others = others;
    having.any(is_at_the_end) || order_by.any(|key| is_at_the_end(&key.column)) || others.any(is_at_the_end)
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

/// What is answered of groups, where that is not what is written of them: the first ones, in some order, of those that meet something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnlineAnswer {
    /// What tells groups apart, and what it is called.
    pub keys: Vec<(String, OnlineKey)>,
    /// What is said of them, and what it is called.
    pub values: Vec<(String, OnlineValue)>,
    /// Which groups are answered, by columns that are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Expression>,
    /// These columns, and others that are named here, of groups as they are written, and which of them are answered; `None`: all of them are columns that are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computed: Option<Computed>,
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

    /// Whether some groups are not answered.
    pub(super) fn chooses(&self) -> bool {
        self.filter.is_some()
            || self.rows.is_some()
            || self.computed.as_ref().is_some_and(|computed| computed.leaves_out)
    }

    /// Makes it ready for groups that are written with these columns.
    ///
    /// # Errors
    /// It is of other columns.
    pub(super) fn bind(&self, written: &Schema) -> Result<BoundAnswer<'_>, TableError> {
        let groups = InMemory::new(self.filter.as_ref(), self.computed.as_ref(), written)?;
        Ok(BoundAnswer { answer: self, groups })
    }
}

/// An answer of groups that are written with certain columns.
pub(super) struct BoundAnswer<'a> {
    answer: &'a OnlineAnswer,
    groups: InMemory,
}

/// What is answered of some groups.
#[derive(Debug)]
pub(super) struct AnswerRows {
    /// What is computed; `None`: nothing is.
    pub(super) computed: Option<RecordBatch>,
    /// The groups that are answered, in their order.
    pub(super) rows: Vec<AnswerRow>,
    /// Why something is not computed.
    pub(super) why: Option<TableError>,
}

/// Where a group is in the order of an answer: those of which something cannot be computed are behind all others.
pub(super) type Order = (bool, Vec<u8>);

/// A group that is answered.
#[derive(Clone, Debug)]
pub(super) struct AnswerRow {
    /// Where it is.
    pub(super) order: Order,
    /// Its row among those that are written.
    pub(super) written: usize,
    /// Its row among those that are computed; `None`: it cannot be computed.
    pub(super) computed: Option<usize>,
}

impl BoundAnswer<'_> {
    /// What is answered of rows of groups as they are written: no more than `most`, and none that is not before `last` in their order. A group of which something cannot be computed is no error here, as in the end it may
    /// be none of the answer: it is behind the others.
    pub(super) fn rows(&self, written: &RecordBatch, most: usize, last: Option<&Order>) -> AnswerRows {
        let SeenRows { rows, computed, failed, why } = self.groups.see(written);
        let answered = match self.answer.order_by.is_empty() {
            true => Ok((0..rows.len()).take(most).map(|at| ((false, Vec::new()), at)).collect()),
            false => self.ordered(written, (computed.as_ref(), &rows), most, last),
        };
        let answered: Vec<(Order, usize)> = match answered {
            Ok(answered) => answered,
            Err(why) => return AnswerRows { computed: None, rows: Vec::new(), why: Some(why) },
        };
        let is_computed = computed.is_some();
        let row =
            |(order, at): (Order, usize)| AnswerRow { order, written: rows[at], computed: is_computed.then_some(at) };
        let behind = |written| AnswerRow { order: (true, Vec::new()), written, computed: None };
        let mut rows: Vec<AnswerRow> = answered.into_iter().map(row).chain(failed.into_iter().map(behind)).collect();
        if self.answer.order_by.is_empty() && !self.answer.chooses() {
            rows.sort_by_key(|row| row.written);
        }
        rows.truncate(most);
        AnswerRows { computed, rows, why }
    }

    /// The first of some rows in their order, by their places.
    fn ordered(
        &self,
        written: &RecordBatch,
        (computed, rows): (Option<&RecordBatch>, &[usize]),
        most: usize,
        last: Option<&Order>,
    ) -> Result<Vec<(Order, usize)>, TableError> {
        let seen = computed.unwrap_or(written);
        let keys = KeyEncoder::new(seen.schema_ref(), &self.answer.order_by)?.encode(seen)?;
        let key = |place: usize| keys.get(if computed.is_some() { place } else { rows[place] });
        let order = |one: &usize, other: &usize| key(*one).cmp(key(*other)).then(one.cmp(other));
        let is_before =
            |place: &usize| last.is_none_or(|(is_behind, last)| *is_behind || key(*place) < last.as_slice());
        let mut places: Vec<usize> = (0..rows.len()).filter(is_before).collect();
        if most < places.len() {
            if most > 0 {
                places.select_nth_unstable_by(most - 1, order);
            }
            places.truncate(most);
        }
        places.sort_unstable_by(order);
        Ok(places.into_iter().map(|place| ((false, key(place).to_vec()), place)).collect())
    }
}

impl AnswerRows {
    /// All of them, of which nothing is computed.
    pub(super) fn as_written(rows: usize) -> Self {
        let row = |written| AnswerRow { order: (false, Vec::new()), written, computed: None };
        Self { computed: None, rows: (0..rows).map(row).collect(), why: None }
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
