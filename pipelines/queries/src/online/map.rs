//! The task that reads blocks, and says what they have of which group.

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_shuffle::jobs::values::write_value;
use exobus_shuffle::kernels::prefetch_value;
use exobus_tables::jobs::group::sampled::{BlockGroups, MapBlocks, Telling, map_blocks};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::moments::{EncodedMoments, Moments, MomentsByKey, memory_bytes};
use super::value_of;
use crate::estimators::Totals;
use crate::estimators::guaranteed::Range;

/// Arguments before that of which groups are told.
const ARGUMENTS: usize = 3;
/// Groups of a block that are looked at at a time.
const GROUPS_AT_ONCE: usize = 4096;

/// Groups between asking for what is known of one and adding to it.
const AHEAD: usize = 8;
/// Numbers that a cache line has.
const NUMBERS_OF_LINE: usize = 64 / size_of::<f64>();

/// What `query.map` is told. Its arguments are those of [`map_blocks`], and which groups are told, where not all of them are ([`Followed`]).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MapParams {
    pub(super) blocks: MapBlocks,
    /// The sizes of its blocks; `None`: no look is taken behind them, and nothing is told.
    pub(super) sizes: Option<Vec<f64>>,
    /// How many terms groups have.
    pub(super) terms: usize,
    /// Groups that are told, at most.
    pub(super) groups_max: usize,
    /// What bounds rest on: it is seen whether it is so.
    pub(super) said: Vec<SaidOfValues>,
}

/// What files say of the values that an aggregate is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SaidOfValues {
    /// The aggregate.
    pub(super) of: String,
    /// The term that is their sum, and that which says how many there are.
    pub(super) terms: (usize, usize),
    /// Between which numbers they are.
    pub(super) extent: Range,
}

impl SaidOfValues {
    /// # Errors
    /// The terms of a group in a block cannot be of such values.
    fn check(&self, totals: &[f64]) -> Result<(), TaskError> {
        let Range { low, high } = self.extent;
        let (sum, count) = (totals[self.terms.0], totals[self.terms.1]);
        // Sums of floats are rounded.
        let rounded = f64::EPSILON * count * low.abs().max(high.abs()) * count;
        match (low * count - rounded..=high * count + rounded).contains(&sum) {
            true => Ok(()),
            false => Err(TaskError::data(format!(
                "{}: files say that all values are between {} and {}, but {count} of them add up to {sum}: guaranteed bounds rest on what files say, approximate ones do not",
                self.of,
                as_said(low),
                as_said(high)
            ))),
        }
    }
}

/// A bound as a file says it: the number that is kept is the next one beyond.
fn as_said(bound: f64) -> f64 {
    if bound.abs() < f64::MIN_POSITIVE { 0.0 } else { format!("{bound:.14e}").parse().unwrap_or(bound) }
}

/// Keys of the groups that are followed; `None`: all are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Followed(pub(super) Option<Vec<ByteBuf>>);

/// What blocks have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Told {
    /// Of the groups that are followed.
    pub(super) moments: EncodedMoments,
    /// Rows that met what they have to.
    pub(super) rows: u64,
    /// There were more groups than are told, so that of some not all is: these are those that have the most rows.
    pub(super) has_more: bool,
}

/// What a map takes for groups that it tells of: as many as are told of a block and of those before, and the keys of those that are followed.
pub(super) fn told_bytes(groups_max: usize, terms: usize) -> u64 {
    memory_bytes(3 * groups_max as u64, terms)
}

/// Reads blocks as a map of groups does; its third output is [`Told`].
#[task(name = "query.map", version = 7, deterministic = true)]
pub(super) fn map(context: &mut TaskContext<'_>, params: MapParams) -> Result<(), TaskError> {
    let MapParams { blocks, sizes, terms, groups_max, said } = params;
    let Some(sizes) = sizes else {
        map_blocks(context, blocks, None)?;
        return write_value(context, 2, &Told::default());
    };
    let granted = told_bytes(groups_max, terms);
    let mut memory = context.outside(granted)?;
    let mut followed = None;
    if context.args() > ARGUMENTS {
        memory.resize(granted + 2 * context.block(ARGUMENTS).len() as u64)?;
        followed = value_of::<Followed>(context, ARGUMENTS)?.0;
    }
    let before = memory.bytes();
    let (mut told, mut numbered) = (Told::default(), Moments::new(terms));
    // Of blocks up to the last one that had more groups than are told.
    let mut before_cut = MomentsByKey::new(terms);
    let (mut sizes, mut totals) = (sizes.into_iter(), vec![0.0; terms]);
    let each = Box::new(|block: &BlockGroups<'_>| {
        let size = sizes.next().ok_or_else(|| TaskError::fatal("there are more blocks than sizes"))?;
        told.has_more |= block.is_cut();
        told.rows += block.rows();
        // A block that is cut has some more than are told.
        let many = block.numbered().min(groups_max);
        memory.resize(before.max(before_cut.bytes() + numbered.bytes_of(many)))?;
        numbered.number(many);
        let groups = block.groups();
        for from in (0..groups.len()).step_by(GROUPS_AT_ONCE) {
            let places = from..groups.len().min(from + GROUPS_AT_ONCE);
            let columns = block.terms(places.clone());
            for (row, place) in places.enumerate().filter(|(_, place)| (groups[*place] as usize) < many) {
                if let Some(next) = groups.get(place + AHEAD).filter(|next| (**next as usize) < many) {
                    // Those of all groups are more than the nearest caches hold.
                    let next = numbered.numbers_of(*next as usize);
                    next.chunks(NUMBERS_OF_LINE).for_each(|line| prefetch_value(&line[0]));
                }
                totals.iter_mut().zip(&columns).for_each(|(total, column)| *total = column[row]);
                said.iter().try_for_each(|said| said.check(&totals))?;
                Totals::add_to(numbered.numbers_of(groups[place] as usize), size, &totals);
            }
        }
        if block.is_cut() {
            // Behind it groups are numbered anew: those of later blocks may have more rows.
            let named = std::mem::replace(&mut numbered, Moments::new(terms)).named(block.keys());
            memory.resize(before.max(before_cut.bytes() + 2 * named.bytes()))?;
            before_cut.add(&named);
            before_cut.keep_largest(groups_max);
        }
        Ok(())
    });
    let groups = map_blocks(context, blocks, Some(Telling { followed: followed.as_deref(), groups_max, each }))?;
    // Keys may be longer than was thought. They are here, in what is told and encoded.
    let key_bytes: u64 = groups.keys().map(|key| key.len() as u64).sum();
    memory.resize(before.max(before_cut.bytes() + numbered.bytes() + 2 * key_bytes))?;
    let mut moments = numbered.named(groups.keys());
    drop(groups);
    if before_cut.len() > 0 {
        before_cut.add(&moments);
        moments = before_cut.sorted();
    }
    told.has_more |= moments.keep_largest(groups_max);
    write_value(context, 2, &Told { moments: moments.encode(), ..told })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_files_say_of_values_is_checked_where_these_are_read() {
        let said = SaidOfValues { of: "sum(paid)".to_owned(), terms: (1, 2), extent: Range { low: -2.0, high: 10.0 } };
        assert_eq!([0.0_f64.next_down(), 400.0_f64.next_up(), -0.1, 1e300].map(as_said), [0.0, 400.0, -0.1, 1e300]);
        for (sum, is_right) in
            [(30.0, true), (-6.0, true), (0.0, true), (30.1, false), (-6.1, false), (f64::NAN, false)]
        {
            let checked = said.check(&[7.0, sum, 3.0]);
            assert_eq!(checked.is_ok(), is_right, "{sum}");
            if let Err(error) = checked {
                assert!(error.to_string().contains("all values are between -2 and 10, but 3 of them"), "{error}");
            }
        }
    }
}
