//! What is answered of groups, where that is more than what is written of them: which of them, in which order, and what is computed of what tells them apart and of their aggregates.

use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use exobus_tables::TableError;
use exobus_tables::arrow_array::{Array as _, ArrayRef, BooleanArray, RecordBatch};
use exobus_tables::arrow_schema::Schema;
use exobus_tables::expression::{Bound, Expression};
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
        let filter = self.filter.as_ref().map(|filter| filter.bind(written)).transpose()?;
        let computed = self.computed.as_ref().map(|computed| ComputedRows::new(computed, written)).transpose()?;
        Ok(BoundAnswer { answer: self, filter, computed })
    }
}

/// An answer of groups that are written with certain columns.
pub(super) struct BoundAnswer<'a> {
    answer: &'a OnlineAnswer,
    filter: Option<Bound>,
    computed: Option<ComputedRows>,
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

/// A group that is answered.
#[derive(Clone, Debug)]
pub(super) struct AnswerRow {
    /// What it is ordered by.
    pub(super) order: Vec<u8>,
    /// Its row among those that are written.
    pub(super) written: usize,
    /// Its row among those that are computed; `None`: it cannot be computed.
    pub(super) computed: Option<usize>,
}

/// What is computed of rows, and which of these that is of: of those that are left out nothing is.
struct Part {
    computed: Option<RecordBatch>,
    rows: Vec<usize>,
}

impl BoundAnswer<'_> {
    /// What is answered of rows of groups as they are written: no more than `most`, and none that is not before `last` in their order. A group of which something cannot be computed is no error, as it may
    /// be none of the answer; where it would be needed to say which groups are answered, this is not.
    pub(super) fn rows(&self, written: &RecordBatch, most: usize, last: Option<&[u8]>) -> AnswerRows {
        let (part, failed, why) = match self.computed(written) {
            Ok(part) => (part, Vec::new(), None),
            Err(why) => {
                let (part, failed) = self.one_by_one(written);
                (part, failed, Some(why))
            }
        };
        let Part { computed, rows } = part;
        let row = |(at, written): (usize, &usize)| AnswerRow {
            order: Vec::new(),
            written: *written,
            computed: computed.is_some().then_some(at),
        };
        let answered: Vec<AnswerRow> = match self.ordered(written, (computed.as_ref(), &rows), most, last) {
            Ok(Some(ordered)) => ordered,
            Ok(None) => {
                let mut all: Vec<AnswerRow> = rows.iter().enumerate().map(row).collect();
                if !self.answer.chooses() {
                    all.extend(failed.into_iter().map(|written| AnswerRow {
                        order: Vec::new(),
                        written,
                        computed: None,
                    }));
                    all.sort_by_key(|row| row.written);
                }
                all.truncate(most);
                all
            }
            Err(why) => return AnswerRows { computed: None, rows: Vec::new(), why: Some(why) },
        };
        AnswerRows { computed, rows: answered, why }
    }

    /// The first rows of the order; `None`: there is none.
    fn ordered(
        &self,
        written: &RecordBatch,
        (computed, rows): (Option<&RecordBatch>, &[usize]),
        most: usize,
        last: Option<&[u8]>,
    ) -> Result<Option<Vec<AnswerRow>>, TableError> {
        if self.answer.order_by.is_empty() {
            return Ok(None);
        }
        let seen = computed.unwrap_or(written);
        let keys = KeyEncoder::new(seen.schema_ref(), &self.answer.order_by)?.encode(seen)?;
        // Of each group its row among what is ordered.
        let at = |place: &usize| if computed.is_some() { *place } else { rows[*place] };
        let order = |one: &usize, other: &usize| keys.get(at(one)).cmp(keys.get(at(other))).then(one.cmp(other));
        let is_before = |place: &usize| last.is_none_or(|last| keys.get(at(place)) < last);
        let mut places: Vec<usize> = (0..rows.len()).filter(is_before).collect();
        if most < places.len() {
            if most > 0 {
                places.select_nth_unstable_by(most - 1, order);
            }
            places.truncate(most);
        }
        places.sort_unstable_by(order);
        let row = |place: usize| AnswerRow {
            order: keys.get(at(&place)).to_vec(),
            written: rows[place],
            computed: computed.is_some().then_some(place),
        };
        Ok(Some(places.into_iter().map(row).collect()))
    }

    fn computed(&self, written: &RecordBatch) -> Result<Part, TableError> {
        let (mut batch, mut rows) = (written.clone(), (0..written.num_rows()).collect::<Vec<_>>());
        let mut keep = |batch: &mut RecordBatch, kept: Option<BooleanArray>| {
            let Some(kept) = kept else { return Ok(()) };
            let is_kept = |at: usize| kept.is_valid(at) && kept.value(at);
            *batch = filter_record_batch(batch, &kept)?;
            let mut at = 0..kept.len();
            rows.retain(|_| at.next().is_some_and(is_kept));
            Ok::<_, TableError>(())
        };
        if let Some(filter) = &self.filter {
            let kept = filter.evaluate(&batch)?;
            keep(&mut batch, Some(kept))?;
        }
        let Some(computed) = &self.computed else { return Ok(Part { computed: None, rows }) };
        let kept = computed.kept(&batch)?;
        keep(&mut batch, kept)?;
        Ok(Part { computed: Some(computed.of(&batch)?), rows })
    }

    /// The same row by row, and the rows of which it cannot be computed.
    fn one_by_one(&self, written: &RecordBatch) -> (Part, Vec<usize>) {
        let (mut batches, mut rows, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..written.num_rows() {
            match self.computed(&written.slice(row, 1)) {
                Ok(part) if part.rows.is_empty() => {}
                Ok(part) => {
                    batches.extend(part.computed);
                    rows.push(row);
                }
                Err(_) => failed.push(row),
            }
        }
        let computed = batches.first().and_then(|first| concat_batches(first.schema_ref(), &batches).ok());
        (Part { computed, rows }, failed)
    }
}

impl AnswerRows {
    /// All of them, of which nothing is computed.
    pub(super) fn as_written(rows: usize) -> Self {
        let row = |written| AnswerRow { order: Vec::new(), written, computed: None };
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
