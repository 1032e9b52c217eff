//! What is written of groups.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};

use super::combiner::{Combiner, Counted};
use super::order::{ORDER_BYTES, in_order};
use super::query::{CountedValues, Grouping, MadeFrom};
use crate::TableError;
use crate::aggregates::{Bound, Function, interpolated, quantile_rank, quantile_ranks};
use crate::jobs::budget::Unordered;
use crate::sources::{MemoryBudget, Reservation};

/// Groups that are finished at a time.
const GROUPS_AT_ONCE: usize = 8192;

/// Groups in the order of their keys, some at a time.
pub(super) struct Finish<'a> {
    grouping: &'a Grouping,
    combiner: &'a Combiner,
    groups: Vec<u32>,
    values: Vec<OrderedValues<'a>>,
    given: usize,
    _memory: Reservation,
}

impl<'a> Finish<'a> {
    /// # Errors
    /// There is no memory to put groups in order.
    pub(super) fn new(
        grouping: &'a Grouping,
        combiner: &'a Combiner,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, Unordered> {
        let memory = Reservation::of(budget, ORDER_BYTES * combiner.entries() as u64)?;
        let values = grouping.values.iter().zip(combiner.values());
        let values =
            values.map(|(of, values)| OrderedValues { of, values, ordered: in_order(&values.groups), given: 0 });
        let (values, groups) = (values.collect(), in_order(combiner.groups()));
        Ok(Self { grouping, combiner, groups, values, given: 0, _memory: memory })
    }

    /// The next groups, as they are known; `None`: there are no more.
    ///
    /// # Errors
    /// A sum that does not fit its type; Arrow's.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>, TableError> {
        let Self { grouping, combiner, groups, values, given, .. } = self;
        let some = &groups[*given..groups.len().min(*given + GROUPS_AT_ONCE)];
        if some.is_empty() {
            return Ok(None);
        }
        *given += some.len();
        let keys = combiner.groups().keys_of(some);
        let of_groups: Vec<Vec<OfGroup>> = values.iter_mut().map(|values| values.of_next(&keys, some.len())).collect();
        let mut columns = grouping.columns(&keys)?;
        let mut accumulators = combiner.accumulators().iter();
        for aggregate in &grouping.aggregates {
            columns.push(match aggregate.made_from {
                MadeFrom::States(_) => {
                    let results = accumulators.next().expect("one for each of them").finish(some);
                    results.map_err(|error| grouping.of_group(error, &columns))?
                }
                MadeFrom::Values(number) => values[number].finish(&aggregate.bound, &of_groups[number])?,
            });
        }
        Ok(Some(RecordBatch::try_new(grouping.schema.clone(), columns)?))
    }
}

/// Values in the order of their groups, and in their own within these.
struct OrderedValues<'a> {
    of: &'a CountedValues,
    values: &'a Counted,
    ordered: Vec<u32>,
    /// How many are of groups that were given.
    given: usize,
}

/// The values of a group.
struct OfGroup {
    /// Which of the ordered ones they are, without null.
    range: Range<usize>,
    /// Bytes of their keys that are the group's.
    key_bytes: usize,
    /// Of how many rows they are.
    rows: u64,
}

impl OrderedValues<'_> {
    /// The values of the next groups, which have these keys.
    fn of_next(&mut self, keys: &BinaryArray, groups: usize) -> Vec<OfGroup> {
        let of_group = |group| {
            let (key, from) = (keys.value(group), self.given);
            let is_of_it = |value: &&u32| self.values.groups.key(**value).starts_with(key);
            self.given += self.ordered[from..].iter().take_while(is_of_it).count();
            // A null is behind all values, and there once.
            let has_null = self.ordered[from..self.given]
                .last()
                .is_some_and(|value| self.values.groups.key(*value)[key.len()..] == *self.of.null());
            let range = from..self.given - usize::from(has_null);
            let rows = self.ordered[range.clone()].iter().map(|value| self.values.counts[*value as usize]).sum();
            OfGroup { range, key_bytes: key.len(), rows }
        };
        (0..groups).map(of_group).collect()
    }

    /// An aggregate of each of these groups.
    fn finish(&self, bound: &Bound, groups: &[OfGroup]) -> Result<ArrayRef, TableError> {
        match bound.aggregate().function {
            Function::Quantile(quantile) => self.at(groups, |rows| quantile_rank(rows, quantile)),
            Function::QuantileCont(quantile) => {
                let below = self.at(groups, |rows| quantile_ranks(rows, quantile).0)?;
                let above = self.at(groups, |rows| quantile_ranks(rows, quantile).1)?;
                let weights: Vec<f64> = groups.iter().map(|group| quantile_ranks(group.rows, quantile).2).collect();
                interpolated(&below, &above, &weights)
            }
            _ => Ok(Arc::new(Int64Array::from_iter_values(groups.iter().map(|group| group.range.len() as i64)))),
        }
    }

    /// Of each group the value of a rank, counted from 0 among the values of all of its rows; null where it has none.
    fn at(&self, groups: &[OfGroup], rank: impl Fn(u64) -> u64) -> Result<ArrayRef, TableError> {
        let value = |group: &OfGroup| {
            let mut left = rank(group.rows);
            let value = self.ordered[group.range.clone()].iter().find(|value| {
                let count = self.values.counts[**value as usize];
                let is_there = left < count;
                left = left.saturating_sub(count);
                is_there
            });
            value.map_or(self.of.null(), |value| &self.values.groups.key(*value)[group.key_bytes..])
        };
        self.of.decode(&BinaryArray::from_iter_values(groups.iter().map(value)))
    }
}
