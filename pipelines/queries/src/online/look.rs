//! The task that looks at what is known after a part of the blocks.

use std::io::Read as _;

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_shuffle::jobs::values::write_value;
use exobus_tables::aggregates::{Aggregate, Estimated};
use exobus_tables::arrow_array::{Array as _, RecordBatch};
use exobus_tables::jobs::group::GroupQuery;
use exobus_tables::jobs::group::sampled::{Shown, estimated, terms};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::answer::{AnswerRow, AnswerRows, OfAggregates, OnlineAnswer, OnlineValue, is_chosen_at_the_end};
use super::columns::{ShownColumn, has_room, key_columns, known_value, shown_key, shown_value};
use super::map::{Followed, Told};
use super::moments::{EncodedMoments, Moments, MomentsByKey, memory_bytes};
use super::sampler::Followable;
use super::value_of;
use crate::estimators::guaranteed::{Range, TotalRanges};
use crate::estimators::{Dual, Estimate, Kind, Look, NoBounds, Population, Sample, Totals, approximate, guaranteed};
use crate::snapshot::{SHOWN_BYTES_MAX, SHOWN_MAX, ShownGroup, ShownValue, Snapshot};
use crate::stopping::ErrorGoal;

/// Where a query asks for the first groups, so many times as many are followed whatever rows they have: which are the first is not sure before all was read.
const RESERVE: u64 = 2;
/// They are chosen among so many times as many groups as are followed: those of the most rows.
const CANDIDATES: usize = 8;
/// The arguments of a look before those that are [`Told`]: what [`Shown`] is made of, and the [`State`] before.
const LOOK_ARGUMENTS: usize = 3;

/// What `query.look` is told. Its arguments are those of [`Shown`], the [`State`] that the look before has left, and what maps have [`Told`] since.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LookParams {
    pub(super) query: GroupQuery,
    /// What is shown of groups; `None`: what is written of them.
    pub(super) shown_as: Option<OnlineAnswer>,
    pub(super) population: Population,
    /// The blocks that were read since the look before.
    pub(super) read: Sample,
    pub(super) error_probability: f64,
    /// Which bounds are given.
    pub(super) bounds: Kind,
    /// Whether the error probability is that of all groups together.
    pub(super) simultaneous: bool,
    /// Of each aggregate, between which numbers the values of its column are, where that is known and matters.
    pub(super) extents: Vec<Option<Range>>,
    /// Rows of the largest block, where blocks say how many they have.
    pub(super) block_rows_max: Option<f64>,
    /// Whether the size of the table is how many rows the only group has: `count(*)` is known.
    pub(super) rows_are_known: bool,
    /// Groups that are followed, at most.
    pub(super) followable: Followable,
    pub(super) goal: Option<ErrorGoal>,
    /// What is shown beside groups.
    pub(super) seen: Snapshot,
}

/// What a look leaves to the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    /// The blocks that the moments are of.
    sample: Sample,
    moments: EncodedMoments,
    /// No other groups than these are followed.
    are_all: bool,
    /// Rows that met what they have to, of all blocks that were read.
    rows: u64,
}

/// What a look shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Looked {
    pub(super) snapshot: Snapshot,
    /// Whether what is waited for is met.
    pub(super) is_met: bool,
}

/// Looks at what is known. Its outputs are [`State`], [`Looked`] and [`Followed`].
#[task(name = "query.look", version = 7, arguments = [whole, whole, whole, stream], deterministic = true)]
pub(super) fn look_at_groups(context: &mut TaskContext<'_>, params: LookParams) -> Result<(), TaskError> {
    let shown = Shown::of(context, params.query.clone())?;
    let terms = terms(&params.query);
    let Followable { all, largest, .. } = params.followable;
    let granted = look_bytes(all, terms);
    let mut memory = context.outside(granted)?;
    let State { mut sample, moments: before, mut are_all, mut rows } = value_of(context, LOOK_ARGUMENTS - 1)?;
    let (mut moments, mut begins_anew) = (MomentsByKey::new(terms), false);
    if before != EncodedMoments::default() {
        check(&before, terms)?;
        moments.merge(&before, false);
    }
    drop(before);
    let readers: Vec<_> = (LOOK_ARGUMENTS..context.args()).flat_map(|arg| context.readers(arg)).collect();
    for mut reader in readers {
        context.check_cancelled()?;
        let _memory = context.outside(2 * reader.remaining())?;
        let mut bytes = Vec::with_capacity(reader.remaining() as usize);
        reader.read_to_end(&mut bytes).map_err(TaskError::fatal)?;
        let Told { moments: told, rows: told_rows, has_more } =
            rmp_serde::from_slice(&bytes).map_err(TaskError::fatal)?;
        check(&told, terms)?;
        begins_anew |= has_more;
        rows += told_rows;
        memory.resize(granted.max(2 * moments.bytes() + 2 * bytes.len() as u64))?;
        moments.merge(&told, are_all);
        // Those that are followed from here on have been followed until here.
        are_all |= moments.len() > 2 * all && moments.keep_largest(all);
        memory.resize(granted.max(moments.bytes()))?;
    }
    let is_cut = are_all || begins_anew || moments.len() > all;
    sample.merge(&params.read);
    let mut moments = moments.sorted();
    if is_cut && moments.len() > largest {
        are_all = true;
        let mut is_first = Vec::new();
        if params.is_of_first() {
            moments.keep_largest(CANDIDATES * largest);
            memory.resize(granted.max(4 * moments.bytes()))?;
            let shown = Shown::of(context, with_reserve(&params.query))?;
            let looking = Looking { shown: &shown, params: &params, sample: &sample, is_cut, why: None, groups: 1 };
            let (chosen, rows) = looking.chosen(&moments.keys(), &looking.estimates_of(&moments.totals()))?;
            is_first = vec![false; moments.len()];
            for row in looking.answered_rows(&rows, RESERVE)?.rows {
                is_first[chosen[row.written] as usize] = true;
            }
        }
        moments.keep_first(largest, |group| is_first.get(group).is_some_and(|is_first| *is_first));
        memory.resize(granted.max(moments.bytes()))?;
    }
    let (keys, totals) = (moments.keys(), moments.totals());
    let why = begins_anew.then_some(NoBounds::BeginsAnew);
    let looking = Looking { shown: &shown, params: &params, sample: &sample, is_cut, why, groups: keys.len() };
    let mut looked = looking.at(&keys, &totals)?;
    if params.block_rows_max.is_none() {
        looked.snapshot.rows_seen = rows;
    }
    let state = match begins_anew {
        false => State { sample, moments: moments.encode(), are_all, rows },
        true => {
            let mut none = Moments::new(terms);
            keys.iter().for_each(|key| none.push(key));
            State { sample: Sample::default(), moments: none.encode(), are_all: true, rows }
        }
    };
    let followed = Followed(state.are_all.then(|| keys.iter().map(|key| ByteBuf::from(*key)).collect()));
    write_value(context, 0, &state)?;
    write_value(context, 1, &looked)?;
    write_value(context, 2, &followed)
}

/// The query for more groups than are asked for, where these are the first of some order.
fn with_reserve(query: &GroupQuery) -> GroupQuery {
    let mut query = query.clone();
    if let Some(top) = &mut query.top {
        top.rows = top.rows.saturating_mul(RESERVE);
    }
    query
}

/// What a look takes beside the store, about.
pub(super) fn look_bytes(groups_max: usize, terms: usize) -> u64 {
    // Twice as many groups as are followed, what is estimated of each, and what is shown.
    memory_bytes(3 * groups_max as u64, terms) + SHOWN_BYTES_MAX as u64 * 4
}

fn check(moments: &EncodedMoments, terms: usize) -> Result<(), TaskError> {
    match moments.is_whole(terms) {
        true => Ok(()),
        false => Err(TaskError::fatal("what is known of groups is damaged")),
    }
}

impl LookParams {
    /// Whether some groups are asked for that are the first ones by something.
    fn is_of_first(&self) -> bool {
        self.query.top.is_some() || self.shown_as.as_ref().is_some_and(|shown_as| shown_as.rows.is_some())
    }

    /// Whether which groups are asked for follows from an aggregate that is known at the end. An answer that chooses by one is not shown early.
    fn is_chosen_at_the_end(&self) -> bool {
        let GroupQuery { aggregates, having, top, .. } = &self.query;
        is_chosen_at_the_end(aggregates, (having.as_ref(), top.as_ref()), std::iter::empty())
    }

    /// Each aggregate of the query.
    fn of_terms(&self) -> Vec<OfTerms> {
        let aggregates = self.query.aggregates.iter().zip(estimated(&self.query)).zip(&self.extents);
        let of = |((aggregate, (estimated, first)), extent): ((&Aggregate, (Estimated, usize)), &Option<Range>)| {
            let is_known = self.rows_are_known && estimated == Estimated::Count && aggregate.column.is_none();
            OfTerms { estimated, first, extent: *extent, is_known }
        };
        aggregates.map(of).collect()
    }
}

/// A look at groups.
struct Looking<'a> {
    shown: &'a Shown,
    params: &'a LookParams,
    sample: &'a Sample,
    /// There are groups that are not followed.
    is_cut: bool,
    /// Why nothing is known, whatever was read.
    why: Option<NoBounds>,
    /// How many groups are known.
    groups: usize,
}

/// An aggregate, by the terms that it is estimated from.
#[derive(Clone, Copy)]
struct OfTerms {
    estimated: Estimated,
    /// The number of the first of them.
    first: usize,
    /// Between which numbers the values of its column are, where that is known.
    extent: Option<Range>,
    /// It is how many rows the table has, and that is known.
    is_known: bool,
}

impl Looking<'_> {
    fn at(&self, keys: &[&[u8]], totals: &[Totals]) -> Result<Looked, TaskError> {
        let LookParams { query, goal, seen, shown_as, .. } = self.params;
        let aggregates = self.params.of_terms();
        let estimates = self.estimates_of(totals);
        let (chosen, rows) = self.chosen(keys, &estimates)?;
        let estimates = match shown_as {
            None => estimates,
            Some(shown_as) => {
                let of = |totals: &Totals| {
                    shown_as.values.iter().map(|(_, value)| self.answered(value, &aggregates, totals)).collect()
                };
                totals.iter().map(of).collect()
            }
        };
        let answered = self.answered_rows(&rows, 1)?;
        let group = |number: usize| chosen[answered.rows[number].written] as usize;
        // Where not all are shown, those that have the most rows.
        let mut ranked: Vec<usize> = (0..answered.rows.len()).collect();
        let is_of_first = self.params.is_of_first();
        if !is_of_first {
            let rows: Vec<f64> = ranked.iter().map(|number| totals[group(*number)].sum(0)).collect();
            ranked.sort_by(|one, other| rows[*other].total_cmp(&rows[*one]));
        }
        let is_met = goal.is_some_and(|goal| {
            // Of groups that are not followed nothing is known, and nobody knows which are asked for where that is known in the end or cannot be computed.
            if goal.all && self.is_cut || self.params.is_chosen_at_the_end() || answered.why.is_some() {
                return false;
            }
            let judged = goal.judged(ranked.len(), is_of_first.then_some(ranked.len()));
            goal.is_met(ranked[..judged].iter().map(|number| &estimates[group(*number)][..]))
        });
        let key = key_columns((&rows, &answered), query.by.len(), shown_as.as_ref());
        let (mut groups, mut bytes) = (Vec::new(), 0);
        for number in ranked.iter().take(SHOWN_MAX) {
            let row = &answered.rows[*number];
            let value = |(at, estimate): (usize, &Estimate)| {
                let computed = shown_as.as_ref().and_then(|shown_as| match &shown_as.values[at] {
                    (name, OnlineValue::Computed(of)) => Some((name.as_str(), &of[..])),
                    (_, OnlineValue::Estimated(_)) => None,
                });
                // What cannot be said of an aggregate cannot be said of what is computed of it.
                match computed.filter(|_| estimate.bounds == Err(NoBounds::OfEstimates)) {
                    None => ShownValue::from(estimate),
                    Some(computed) => self.of_estimates(computed, &aggregates, (&rows, &answered), row),
                }
            };
            let values = estimates[group(*number)].iter().enumerate().map(value).collect();
            let group = ShownGroup { key: shown_key(&key, row), values };
            if !has_room(&mut bytes, &group)? {
                break;
            }
            groups.push((*number, group));
        }
        groups.sort_by_key(|(number, _)| *number);
        let are_all = groups.len() == chosen.len() && !self.is_cut;
        let chooses = shown_as.as_ref().is_some_and(OnlineAnswer::chooses);
        let groups = groups.into_iter().map(|(_, group)| group).collect();
        let unmet = guaranteed::blocks_with_absent(&self.look(), self.sample.blocks);
        let snapshot = Snapshot {
            columns: shown_as.as_ref().map_or_else(|| self.shown.columns(), OnlineAnswer::columns),
            groups_seen: keys.len() as u64,
            unmet_blocks: (!self.is_cut).then_some(unmet),
            chosen_by_estimates: query.having.is_some() || query.top.is_some() || chooses || !are_all,
            groups,
            ..seen.clone()
        };
        Ok(Looked { snapshot, is_met })
    }

    /// A value of this name that is computed of estimates of these aggregates, all of which are numbers.
    fn of_estimates(
        &self,
        (name, of): (&str, &[usize]),
        aggregates: &[OfTerms],
        (rows, answered): (&RecordBatch, &AnswerRows),
        row: &AnswerRow,
    ) -> ShownValue {
        let Some((column, at)) = ShownColumn::Computed(answered.column(name)).at(row) else {
            return ShownValue::unknown(answered.why.as_ref().map_or(String::new(), ToString::to_string));
        };
        if of.iter().all(|of| aggregates[*of].is_known) {
            return known_value(column, at);
        }
        // An estimate may not fit the type of its aggregate.
        let by = self.params.query.by.len();
        if of.iter().any(|of| rows.column(by + of).is_null(row.written)) {
            return ShownValue::unknown(NoBounds::NoNumber.to_string());
        }
        ShownValue { estimate: shown_value(column, at), ..ShownValue::unknown(NoBounds::OfEstimates.to_string()) }
    }

    /// What is answered of rows of groups, where so many times as many are asked for.
    fn answered_rows(&self, rows: &RecordBatch, times: u64) -> Result<AnswerRows, TaskError> {
        let Some(shown_as) = &self.params.shown_as else { return Ok(AnswerRows::as_written(rows.num_rows())) };
        let most = shown_as.rows.map_or(usize::MAX, |rows| rows.saturating_mul(times) as usize);
        Ok(shown_as.bind(rows.schema_ref()).map_err(TaskError::fatal)?.rows(rows, most, None))
    }

    /// As of [`Shown::chosen`].
    fn chosen(&self, keys: &[&[u8]], estimates: &[Vec<Estimate>]) -> Result<(Vec<u32>, RecordBatch), TaskError> {
        let column = |number: usize| {
            let value = |of: &Vec<Estimate>| Some(of[number].value).filter(|value| value.is_finite());
            estimates.iter().map(value).collect::<Vec<_>>()
        };
        let columns: Vec<_> = (0..self.params.query.aggregates.len()).map(column).collect();
        self.shown.chosen(keys, &columns)
    }

    fn look(&self) -> Look {
        let LookParams { population, error_probability, simultaneous, .. } = self.params;
        // Those that are shown were chosen by what was read: each that is known might be.
        let groups = if *simultaneous { self.groups.max(1) as f64 } else { 1.0 };
        Look { population: *population, error_probability: error_probability / groups }
    }

    /// Of each aggregate of each group.
    fn estimates_of(&self, totals: &[Totals]) -> Vec<Vec<Estimate>> {
        let aggregates = self.params.of_terms();
        let of = |totals| aggregates.iter().map(|aggregate| self.estimate(*aggregate, totals)).collect();
        totals.iter().map(of).collect()
    }

    /// What is said of a group in the answer; of what is computed of its estimates, whether that can be.
    fn answered(&self, value: &OnlineValue, aggregates: &[OfTerms], totals: &Totals) -> Estimate {
        match value {
            OnlineValue::Estimated(value) => self.computed(value, aggregates, totals),
            OnlineValue::Computed(of) => {
                let unknown = self.unknown(of, aggregates, totals);
                unknown.unwrap_or(Estimate::unbounded(f64::NAN, NoBounds::OfEstimates))
            }
        }
    }

    /// One of these aggregates of which nothing can be said.
    fn unknown(&self, of: &[usize], aggregates: &[OfTerms], totals: &Totals) -> Option<Estimate> {
        let mut of = of.iter().map(|aggregate| self.estimate(aggregates[*aggregate], totals));
        of.find(|estimate| estimate.value.is_nan())
    }

    /// What is computed of aggregates of a group.
    fn computed(&self, value: &OfAggregates, aggregates: &[OfTerms], totals: &Totals) -> Estimate {
        if let Some(aggregate) = value.as_aggregate() {
            return self.estimate(aggregates[aggregate], totals);
        }
        // What is computed of what is known is known.
        if value.aggregates().into_iter().all(|aggregate| aggregates[aggregate].is_known) {
            let rows = |_| Dual::constant(self.params.population.size, 0);
            return self.known(value.dual(0, &rows).value);
        }
        // What cannot be said of one of them cannot be said of it.
        if let Some(unknown) = self.unknown(&value.aggregates(), aggregates, totals) {
            return unknown;
        }
        let look = self.look();
        let estimate = approximate::estimate(&look, self.sample, totals, |of| {
            value.dual(of.len(), &|aggregate| {
                let OfTerms { estimated, first, .. } = aggregates[aggregate];
                dual(estimated, &of[first..first + estimated.terms()])
            })
        });
        match self.params.bounds {
            Kind::Approximate => estimate,
            Kind::Guaranteed => Estimate { bounds: Err(NoBounds::NoRanges), ..estimate },
        }
    }

    /// What does not depend on what was read.
    fn known(&self, value: f64) -> Estimate {
        match value.is_finite() {
            true => Estimate::exact(value, self.params.bounds),
            false => Estimate::unbounded(value, NoBounds::NoNumber),
        }
    }

    fn estimate(&self, OfTerms { estimated, first, extent, is_known }: OfTerms, totals: &Totals) -> Estimate {
        let none = |why| Estimate::unbounded(f64::NAN, why);
        if is_known {
            return self.known(self.params.population.size);
        }
        if estimated == Estimated::AtTheEnd {
            return none(NoBounds::OnlyAtTheEnd);
        }
        if let Some(why) = self.why {
            return none(why);
        }
        let look = self.look();
        let terms = estimated.terms();
        // The last term of what is of values says how many there are: of none there is no sum and no mean.
        if terms > 1 && totals.sum(first + terms - 1) == 0.0 {
            return none(NoBounds::NoNumber);
        }
        let of_terms = |of: &[Dual]| dual(estimated, &of[first..first + terms]);
        let estimate = approximate::estimate(&look, self.sample, totals, of_terms);
        let (Kind::Guaranteed, rows_max) = (self.params.bounds, self.params.block_rows_max) else { return estimate };
        // What is known is of the sample, so all others are the rest.
        let rows_left = look.population.size - self.sample.size;
        let total = |rows: f64, of_row: Range| {
            // A row need not be of the group.
            let Range { low, high } = of_row;
            let of_rows = |rows: f64| Range { low: rows * low.min(0.0), high: rows * high.max(0.0) };
            let ranges = TotalRanges { of_block: of_rows(rows), of_rest: of_rows(rows_left) };
            guaranteed::total(&look, self.sample, totals, first, &ranges)
        };
        match (estimated, rows_max, extent) {
            (Estimated::Count, Some(rows), _) => total(rows, Range { low: 0.0, high: 1.0 }),
            (Estimated::Sum, Some(rows), Some(of_row)) => total(rows, of_row),
            (Estimated::Mean, Some(rows), Some(values)) => {
                guaranteed::mean(&look, self.sample, totals, (first + 1, first), &values, rows)
            }
            _ => Estimate { bounds: Err(NoBounds::NoRanges), ..estimate },
        }
    }
}

/// An aggregate, of its terms.
fn dual(estimated: Estimated, of: &[Dual]) -> Dual {
    match estimated {
        Estimated::AtTheEnd => Dual::constant(f64::NAN, of.first().map_or(0, |one| one.gradient.len())),
        Estimated::Count | Estimated::Sum => of[0].clone(),
        Estimated::Mean => &of[0] / &of[1],
        Estimated::Variance { is_of_population, is_root } => {
            let (sum, squares, count) = (&of[0], &of[1], &of[2]);
            let less = if is_of_population { 0.0 } else { 1.0 };
            let others = count.map(count.value - less, 1.0);
            let variance = &(squares - &(&(sum * sum) / count)) / &others;
            match variance.value < 0.0 {
                // What squares were rounded by is all that is left.
                true => variance.map(f64::NAN, 0.0),
                false if is_root => variance.sqrt(),
                false => variance,
            }
        }
    }
}
