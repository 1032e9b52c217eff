//! The tasks that look at what is known: after a part of the blocks, and at the end.

use std::collections::HashSet;
use std::io::Read as _;
use std::ops::ControlFlow;

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_shuffle::jobs::values::write_value;
use exobus_tables::aggregates::{Aggregate, Estimated};
use exobus_tables::arrow_array::{Array as _, ArrayRef, RecordBatch};
use exobus_tables::jobs::group::GroupQuery;
use exobus_tables::jobs::group::sampled::{Shown, columns_of, estimated, read_rows, terms};
use exobus_tables::look::Value as Shape;
use exobus_tables::reading::ComputedRows;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::Value;

use super::answer::{OfAggregates, OnlineAnswer};
use super::map::{Followed, Told};
use super::moments::{EncodedMoments, Moments, memory_bytes};
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
/// Characters of a text that are shown.
const SHOWN_CHARS_MAX: usize = 500;
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
#[task(name = "query.look", version = 6, arguments = [whole, whole, whole, stream], deterministic = true)]
pub(super) fn look_at_groups(context: &mut TaskContext<'_>, params: LookParams) -> Result<(), TaskError> {
    let order_by = params.shown_as.as_ref().map_or(&[][..], |shown_as| &shown_as.order_by);
    let shown = Shown::of(context, params.query.clone(), order_by)?;
    let terms = terms(&params.query);
    let Followable { all, largest, .. } = params.followable;
    let granted = look_bytes(all, terms);
    let mut memory = context.outside(granted)?;
    let State { mut sample, moments: before, mut are_all, mut rows } = value_of(context, LOOK_ARGUMENTS - 1)?;
    let (mut moments, mut begins_anew) = (Moments::new(terms), false);
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
    if is_cut && moments.len() > largest {
        are_all = true;
        let query = with_reserve(&params.query);
        if query.top.is_some() {
            moments.keep_largest(CANDIDATES * largest);
            memory.resize(granted.max(4 * moments.bytes()))?;
            let shown = Shown::of(context, query, &[])?;
            let looking = Looking { shown: &shown, params: &params, sample: &sample, is_cut, why: None, groups: 1 };
            let (keys, totals) = moments.clone().into_totals();
            let (first, _) = looking.chosen(&keys, &looking.estimates_of(&totals))?;
            let first: HashSet<&[u8]> = first.into_iter().map(|group| keys[group as usize].as_slice()).collect();
            moments.keep_first(largest, |key| first.contains(key));
        } else {
            moments.keep_largest(largest);
        }
        memory.resize(granted.max(moments.bytes()))?;
    }
    let encoded = moments.encode();
    let (keys, totals) = moments.into_totals();
    let why = begins_anew.then_some(NoBounds::BeginsAnew);
    let looking = Looking { shown: &shown, params: &params, sample: &sample, is_cut, why, groups: keys.len() };
    let mut looked = looking.at(&keys, &totals)?;
    if params.block_rows_max.is_none() {
        looked.snapshot.rows_seen = rows;
    }
    let state = match begins_anew {
        false => State { sample, moments: encoded, are_all, rows },
        true => {
            let mut none = Moments::new(terms);
            keys.iter().for_each(|key| none.follow(key));
            State { sample: Sample::default(), moments: none.encode(), are_all: true, rows }
        }
    };
    let followed = Followed(state.are_all.then(|| keys.iter().map(|key| ByteBuf::from(key.clone())).collect()));
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
    fn at(&self, keys: &[Vec<u8>], totals: &[Totals]) -> Result<Looked, TaskError> {
        let LookParams { query, goal, seen, shown_as, .. } = self.params;
        let aggregates = self.params.of_terms();
        let estimates = self.estimates_of(totals);
        let (chosen, by) = self.chosen(keys, &estimates)?;
        let estimates = match shown_as {
            None => estimates,
            Some(shown_as) => {
                let of = |totals: &Totals| {
                    shown_as.values.iter().map(|(_, value)| self.computed(value, &aggregates, totals)).collect()
                };
                totals.iter().map(of).collect()
            }
        };
        // Where not all are shown, those that have the most rows.
        let mut ranked: Vec<usize> = (0..chosen.len()).collect();
        if query.top.is_none() {
            ranked.sort_by(|one, other| {
                let rows = |place: &usize| totals[chosen[*place] as usize].sum(0);
                rows(other).total_cmp(&rows(one))
            });
        }
        let of = |place: &usize| &estimates[chosen[*place] as usize][..];
        let is_met = goal.is_some_and(|goal| {
            // Of groups that are not followed nothing is known.
            if goal.all && self.is_cut {
                return false;
            }
            let judged = goal.judged(chosen.len(), query.top.as_ref().map(|_| chosen.len()));
            goal.is_met(ranked[..judged].iter().map(of))
        });
        let (mut groups, mut bytes) = (Vec::new(), 0);
        for place in ranked.iter().take(SHOWN_MAX) {
            let key = match shown_as {
                None => by.iter().map(|column| shown_value(column, *place)).collect(),
                Some(shown_as) => shown_as.keys.iter().map(|(_, key)| shown_value(&by[*key], *place)).collect(),
            };
            let group = ShownGroup { key, values: of(place).iter().map(ShownValue::from).collect() };
            if !has_room(&mut bytes, &group)? {
                break;
            }
            groups.push((*place, group));
        }
        groups.sort_by_key(|(place, _)| *place);
        let are_all = groups.len() == chosen.len() && !self.is_cut;
        let groups = groups.into_iter().map(|(_, group)| group).collect();
        let unmet = guaranteed::blocks_with_absent(&self.look(), self.sample.blocks);
        let snapshot = Snapshot {
            columns: shown_as.as_ref().map_or_else(|| self.shown.columns(), OnlineAnswer::columns),
            groups_seen: keys.len() as u64,
            unmet_blocks: (!self.is_cut).then_some(unmet),
            chosen_by_estimates: query.having.is_some() || query.top.is_some() || !are_all,
            groups,
            ..seen.clone()
        };
        Ok(Looked { snapshot, is_met })
    }

    /// As of [`Shown::chosen`].
    fn chosen(&self, keys: &[Vec<u8>], estimates: &[Vec<Estimate>]) -> Result<(Vec<u32>, Vec<ArrayRef>), TaskError> {
        let column = |number: usize| {
            let value = |of: &Vec<Estimate>| Some(of[number].value).filter(|value| value.is_finite());
            estimates.iter().map(value).collect::<Vec<_>>()
        };
        let columns: Vec<_> = (0..self.params.query.aggregates.len()).map(column).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        self.shown.chosen(&keys, &columns)
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
        let of = value.aggregates().into_iter().map(|aggregate| self.estimate(aggregates[aggregate], totals));
        if let Some(unknown) = of.into_iter().find(|estimate| estimate.value.is_nan()) {
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

/// Whether a group is shown beside others that take so many bytes, to which its own are added.
fn has_room(bytes: &mut usize, group: &ShownGroup) -> Result<bool, TaskError> {
    *bytes += serde_json::to_vec(group).map_err(TaskError::fatal)?.len();
    Ok(*bytes <= SHOWN_BYTES_MAX)
}

/// The value of a row as it is shown: of a long text the beginning.
fn shown_value(column: &ArrayRef, row: usize) -> Value {
    let value = Shape::of(column, row).into_json();
    let text = match &value {
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => value.to_string(),
        _ => return value,
    };
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => value,
        Some((end, _)) => Value::String(format!("{}…", &text[..end])),
    }
}

/// What `query.final` is told. Its arguments are the layout of what is written, and rows. Of no more groups than are shown the order is that in which they are shown, else that in which they are written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FinalParams {
    /// Columns that tell groups apart.
    pub(super) by: usize,
    /// What is shown of groups; `None`: what is written of them.
    pub(super) shown_as: Option<OnlineAnswer>,
    /// How many groups there are.
    pub(super) groups: u64,
    /// What is shown beside groups.
    pub(super) seen: Snapshot,
}

/// The answer, as it is written: of more groups than are shown, the first ones.
#[task(name = "query.final", version = 3, arguments = [whole, stream], deterministic = true)]
pub(super) fn answer(context: &mut TaskContext<'_>, params: FinalParams) -> Result<Snapshot, TaskError> {
    let FinalParams { by, shown_as, groups: groups_seen, seen } = params;
    let (mut groups, mut bytes) = (Vec::new(), 0);
    let order_by = shown_as.as_ref().map_or(&[][..], |shown_as| &shown_as.order_by);
    let is_in_order = !order_by.is_empty() && groups_seen <= SHOWN_MAX as u64;
    let order_by = if is_in_order { order_by } else { &[] };
    let written = columns_of(context, 0)?;
    let columns = shown_as.as_ref().map_or(written, OnlineAnswer::columns);
    // Of what is computed the columns have names, of what is written an order: keys, then aggregates.
    let mut computed = None;
    read_rows(context, (0, 1), order_by, |batch| {
        let of_groups = match shown_as.as_ref().and_then(|shown_as| shown_as.computed.as_ref()) {
            None => Ok(batch.clone()),
            Some(of) => {
                let rows = match &mut computed {
                    Some(rows) => rows,
                    none => none.insert(ComputedRows::new(of, batch.schema_ref()).map_err(TaskError::fatal)?),
                };
                rows.of(batch)
            }
        };
        // Rows of the answer are computed again, and not all of them where it ends before: what cannot be computed is an error there.
        let (keys, values) = match &of_groups {
            Ok(of_groups) => known_columns(of_groups, by, shown_as.as_ref()),
            Err(_) => (key_columns(batch, by, shown_as.as_ref()), Vec::new()),
        };
        let unknown = of_groups.as_ref().err().map(|error| ShownValue::unknown(error.to_string()));
        let unknown = unknown.map(|unknown| vec![unknown; columns.len() - keys.len()]);
        for row in 0..batch.num_rows() {
            let key = keys.iter().map(|column| shown_value(column, row)).collect();
            let known = || values.iter().map(|column| known_value(column, row)).collect();
            let group = ShownGroup { key, values: unknown.clone().unwrap_or_else(known) };
            if groups.len() == SHOWN_MAX || !has_room(&mut bytes, &group)? {
                return Ok(ControlFlow::Break(()));
            }
            groups.push(group);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Snapshot { is_final: true, columns, groups_seen, unmet_blocks: Some(0), groups, ..seen })
}

/// The columns of groups that are known: those that tell them apart, and the others.
fn known_columns<'a>(
    rows: &'a RecordBatch,
    by: usize,
    shown_as: Option<&OnlineAnswer>,
) -> (Vec<&'a ArrayRef>, Vec<&'a ArrayRef>) {
    let all = rows.columns();
    let Some(OnlineAnswer { keys, values, computed, .. }) = shown_as else {
        return (key_columns(rows, by, None), all[by..].iter().collect());
    };
    if computed.is_some() {
        let of = |names: Vec<&'_ String>| names.into_iter().filter_map(|name| rows.column_by_name(name)).collect();
        let (keys, values) = (keys.iter().map(|(name, _)| name), values.iter().map(|(name, _)| name));
        return (of(keys.collect()), of(values.collect()));
    }
    let aggregates = values.iter().filter_map(|(_, value)| value.as_aggregate());
    (key_columns(rows, by, shown_as), aggregates.map(|number| &all[by + number]).collect())
}

/// The columns that tell groups apart, of those that are written.
fn key_columns<'a>(rows: &'a RecordBatch, by: usize, shown_as: Option<&OnlineAnswer>) -> Vec<&'a ArrayRef> {
    match shown_as {
        None => rows.columns()[..by].iter().collect(),
        Some(OnlineAnswer { keys, .. }) => keys.iter().map(|(_, number)| rows.column(*number)).collect(),
    }
}

/// A value that is known, of a decimal with the number that it is, about, as bounds.
fn known_value(column: &ArrayRef, row: usize) -> ShownValue {
    let value = shown_value(column, row);
    let number = match &value {
        Value::String(text) if column.data_type().is_decimal() => text.parse().ok(),
        other => other.as_f64(),
    };
    ShownValue { low: number, high: number, ..ShownValue::exact(value) }
}
