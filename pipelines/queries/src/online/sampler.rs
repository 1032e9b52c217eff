//! Who says in which order blocks are read, and has looks taken.

use std::cell::RefCell;
use std::collections::VecDeque;

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::task::{Arg, JobError, TaskOptions};
use exobus_shuffle::Sizes;
use exobus_tables::aggregates::{Aggregate, Estimated};
use exobus_tables::jobs::group::sampled::{BlockSize, ReadOrder, SampledMap, Sampler, estimated, terms};
use exobus_tables::jobs::group::{GroupQuery, GroupTable};
use exobus_tables::reading::ReadOptions;
use futures::channel::mpsc::UnboundedSender;
use serde::{Deserialize, Serialize};

use super::OnlineGroup;
use super::last::{FinalParams, answer};
use super::look::{LookParams, State, look_at_groups, look_bytes};
use super::map::{MapParams, SaidOfValues, map, told_bytes};
use super::moments::memory_bytes;
use crate::estimators::guaranteed::Range;
use crate::estimators::{Kind, Looks, Population, Sample, random_order, spread_order};
use crate::snapshot::Snapshot;
use crate::stopping::Until;

/// All groups are followed where there are no more than so many.
const ALL_MAX: u64 = 1 << 15;
/// Of more so many at most: what blocks have of each of them is added up.
const LARGEST_MAX: u64 = 1 << 13;
/// Groups that a map tells at most whose look chooses.
const FIRST_MAX: u64 = 1 << 18;
/// What is known of them takes one part in so many of what an executor has of a node's memory, beside [`MAP_BYTES`].
const MEMORY_SHARE: u64 = 16;
/// Bytes that a map takes in any case for what it collects and passes on, about: 65 536 groups with a text each, and the rows of its blocks.
const MAP_BYTES: u64 = 48 << 20;
/// Bytes for what is known of groups however small a node is: 1 700 groups of five aggregates.
const ROOM_BYTES_MIN: u64 = 1 << 20;
/// Rounds whose maps are under way at a time behind the first look: they wait for what the look before the last one has chosen.
const ROUNDS_AT_ONCE: usize = 2;
/// Groups that are followed however small a node is.
const GROUPS_MIN: u64 = 256;

/// How many groups are told and followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Followable {
    /// By a map before it is known which are followed, at most.
    pub(super) first: usize,
    /// All of them, where they are no more.
    pub(super) all: usize,
    /// Where they are more, those that a query asks for first and the largest ones.
    pub(super) largest: usize,
}

impl Followable {
    /// Where there is room for so many, and a query follows no more than it says.
    fn new(room: u64, said: Option<u64>) -> Self {
        let of = |most: u64| said.map_or(room.clamp(GROUPS_MIN, most), |said| room.min(said).max(1)) as usize;
        Self { first: of(FIRST_MAX), all: of(ALL_MAX), largest: of(LARGEST_MAX) }
    }
}

/// Reads blocks in an order that follows from a seed, and looks where [`Looks`] says.
pub(super) struct BySeed<'a> {
    params: &'a OnlineGroup,
    terms: usize,
    /// Who waits for looks is told of each.
    tells: UnboundedSender<()>,
    progress: RefCell<Progress>,
}

/// How far it is.
#[derive(Default)]
struct Progress {
    plan: Plan,
    /// What maps have told since the last look, and up to which block.
    told: Vec<ObjectRef>,
    read: usize,
    /// Up to which block the last look has seen.
    seen: usize,
    /// What the last look has left.
    state: Option<ObjectRef>,
    /// What each look shows.
    looked: Vec<ObjectRef>,
    /// Which groups are followed by the look before the last one, and by that.
    followed: [Option<ObjectRef>; 2],
    answer: Option<ObjectRef>,
}

/// What is read.
#[derive(Default)]
struct Plan {
    /// From what the order follows.
    seed: u64,
    /// In the order in which they are read.
    blocks: Vec<BlockSize>,
    /// Whether all blocks say how many rows they have: these are their sizes.
    has_rows: bool,
    /// After how many blocks the next looks are, the end apart.
    looks: VecDeque<usize>,
    /// Of each aggregate, between which numbers the values of its column are, where that is known and matters.
    extents: Vec<Option<Range>>,
    /// What may be wrong at each of them.
    error_probability: f64,
    followable: Followable,
}

impl<'a> BySeed<'a> {
    pub(super) fn new(params: &'a OnlineGroup, tells: UnboundedSender<()>) -> Self {
        let terms = terms(&params.group.query);
        Self { params, terms, tells, progress: RefCell::default() }
    }

    /// How many groups are followed on such nodes.
    fn followable(&self, nodes: Sizes) -> Followable {
        let room = (nodes.memory_bytes / u64::from(nodes.executors_per_node.max(1))).saturating_sub(MAP_BYTES);
        let room = (room / MEMORY_SHARE).max(ROOM_BYTES_MIN) / memory_bytes(1, self.terms);
        Followable::new(room, self.params.followed_max)
    }

    /// What a look shows; `None`: there is no such look by now.
    pub(super) fn looked(&self, number: usize) -> Option<ObjectRef> {
        self.progress.borrow().looked.get(number).cloned()
    }

    /// What shows the answer; `None`: not all was read yet.
    pub(super) fn answer(&self) -> Option<ObjectRef> {
        self.progress.borrow().answer.clone()
    }

    fn look(&self, futures: &Futures, progress: &mut Progress, shown: [Arg; 2]) -> Result<(), JobError> {
        let Progress { plan, told, read, seen, state, .. } = progress;
        let followable = plan.followable;
        let params = LookParams {
            query: self.params.group.query.clone(),
            shown_as: self.params.answer.clone(),
            population: Population { blocks: plan.blocks.len() as u64, size: plan.sizes(0..plan.blocks.len()).sum() },
            read: plan.sample(*seen..*read),
            error_probability: plan.error_probability,
            bounds: self.params.bounds,
            simultaneous: self.params.simultaneous,
            extents: plan.extents.clone(),
            block_rows_max: plan.block_rows_max(),
            rows_are_known: plan.has_rows && is_of_all_rows(&self.params.group),
            followable,
            goal: match self.params.until {
                Some(Until::Error(goal)) => Some(goal),
                _ => None,
            },
            seen: plan.seen(progress.looked.len(), *read),
        };
        let before = match state.take() {
            Some(state) => state,
            None => futures.put_value(&State::default())?,
        };
        let mut args = Vec::from(shown);
        args.push(before.arg());
        args.extend(told.iter().map(ObjectRef::arg));
        let options = TaskOptions { outside_bytes: look_bytes(followable.all, self.terms), ..TaskOptions::default() };
        let [left, looked, followed] = three(futures.submit_many(look_at_groups, &params, &args, 3, options)?)?;
        told.clear();
        *seen = *read;
        *state = Some(left);
        progress.looked.push(looked);
        let last = progress.followed[1].replace(followed);
        progress.followed[0] = last.or_else(|| progress.followed[1].clone());
        // Who has stopped listening does not want to know.
        let _ = self.tells.unbounded_send(());
        Ok(())
    }
}

impl Sampler for BySeed<'_> {
    fn order(&self, blocks: &[BlockSize], extents: &[Option<(f64, f64)>], nodes: Sizes) -> Result<ReadOrder, JobError> {
        let order = match self.params.bounds {
            Kind::Approximate => spread_order(blocks.len() as u64, self.params.seed),
            Kind::Guaranteed => random_order(blocks.len() as u64, self.params.seed),
        };
        let mut order: Vec<usize> = order.into_iter().map(|block| block as usize).collect();
        let looks = Looks::new(blocks.len() as u64);
        let mut seen: VecDeque<usize> = looks.seen().map(|blocks| blocks as usize).collect();
        // That at the end is the answer.
        seen.pop_back();
        let executors_per_node = u64::from(nodes.executors_per_node.max(1));
        let executors = u64::from(nodes.nodes.max(1)) * executors_per_node;
        let ends = ends(&seen, order.len(), executors as usize);
        // A look sees what is before it whatever comes first there, and a task reads blocks faster that lie side by side. The first look chooses which groups are followed by what some tasks tell, so that each
        // of these has blocks from everywhere.
        let first = seen.front().copied().unwrap_or(order.len());
        let of_first = ends.iter().copied().filter(|end| *end <= first);
        let mut from = 0;
        for end in of_first.chain(seen.iter().copied().skip(1)).chain([order.len()]) {
            order[from..end].sort_unstable();
            from = end;
        }
        self.progress.borrow_mut().plan = Plan {
            seed: self.params.seed,
            has_rows: blocks.iter().all(|block| block.rows.is_some()),
            blocks: order.iter().map(|block| blocks[*block]).collect(),
            looks: seen,
            extents: match self.params.bounds {
                Kind::Approximate => vec![None; extents.len()],
                Kind::Guaranteed => {
                    extents.iter().map(|extent| extent.map(|(low, high)| Range { low, high })).collect()
                }
            },
            error_probability: looks.share(self.params.error_probability),
            followable: self.followable(nodes),
        };
        Ok(ReadOrder { blocks: order, ends })
    }

    fn outside_bytes(&self, nodes: Sizes) -> u64 {
        // No map tells more than those of the first look; as much again is what a block has of groups before it is told.
        2 * told_bytes(self.followable(nodes).first, self.terms)
    }

    fn stage(&self) -> &'static str {
        "query.map"
    }

    fn map(&self, futures: &Futures, submitted: SampledMap) -> Result<[ObjectRef; 2], JobError> {
        let SampledMap { params, mut args, mut options, blocks, shown } = submitted;
        let mut progress = self.progress.borrow_mut();
        let next = progress.plan.looks.front().copied();
        let Followable { first, all, .. } = progress.plan.followable;
        let groups_max = if progress.followed[0].is_some() { all } else { first };
        let sizes = next.map(|_| progress.plan.sizes(blocks.clone()).collect());
        if next.is_some() {
            // Those that the look before the last one has chosen: maps of this round do not wait for the last one to end. Those behind the first look wait for it.
            args.extend(progress.followed[0].as_ref().map(ObjectRef::arg));
            options.outside_bytes += told_bytes(groups_max, self.terms);
        }
        let said = progress.plan.said_of_values(&self.params.group.query);
        let params = MapParams { blocks: params, sizes, terms: self.terms, groups_max, said };
        let [parts, rows, told] = three(futures.submit_many(map, &params, &args, 3, options)?)?;
        progress.read = blocks.end;
        progress.told.extend(next.map(|_| told));
        if next == Some(blocks.end) {
            progress.plan.looks.pop_front();
            self.look(futures, &mut progress, shown)?;
        }
        Ok([parts, rows])
    }

    fn made(&self, futures: &Futures, groups: u64, layout: Arg, rows: &[Arg]) -> Result<(), JobError> {
        let mut progress = self.progress.borrow_mut();
        let seen = progress.plan.seen(progress.looked.len(), progress.plan.blocks.len());
        let (by, shown_as) = (self.params.group.query.by.len(), self.params.answer.clone());
        let params = FinalParams { by, shown_as, groups, seen };
        let args: Vec<Arg> = std::iter::once(layout).chain(rows.iter().cloned()).collect();
        progress.answer = Some(futures.submit(answer, &params, &args)?);
        Ok(())
    }
}

impl Plan {
    fn sizes(&self, blocks: std::ops::Range<usize>) -> impl Iterator<Item = f64> {
        let size = |block: &BlockSize| block.rows.filter(|_| self.has_rows).unwrap_or(block.bytes) as f64;
        self.blocks[blocks].iter().map(size)
    }

    fn sample(&self, blocks: std::ops::Range<usize>) -> Sample {
        let mut sample = Sample::default();
        self.sizes(blocks).for_each(|size| sample.add(size));
        sample
    }

    /// What is said of values that sums and means are of.
    fn said_of_values(&self, query: &GroupQuery) -> Vec<SaidOfValues> {
        let aggregates = query.aggregates.iter().zip(estimated(query)).zip(&self.extents);
        let said = |((aggregate, (estimated, first)), extent): ((&Aggregate, (Estimated, usize)), &Option<Range>)| {
            let is_of_values = matches!(estimated, Estimated::Sum | Estimated::Mean);
            let extent = extent.filter(|_| is_of_values)?;
            Some(SaidOfValues { of: aggregate.call(), terms: (first, first + 1), extent })
        };
        aggregates.filter_map(said).collect()
    }

    /// Rows of the largest block, where all say how many they have.
    fn block_rows_max(&self) -> Option<f64> {
        self.has_rows.then(|| self.sizes(0..self.blocks.len()).fold(0.0, f64::max))
    }

    /// What is shown of so many blocks beside groups.
    fn seen(&self, number: usize, read: usize) -> Snapshot {
        let read = &self.blocks[..read];
        Snapshot {
            snapshot: number as u64,
            rows_seen: read.iter().filter_map(|block| block.rows.filter(|_| self.has_rows)).sum(),
            blocks_seen: read.len() as u64,
            blocks: self.blocks.len() as u64,
            seed: self.seed,
            bytes_seen: read.iter().map(|block| block.bytes).sum(),
            ..Snapshot::default()
        }
    }
}

/// Whether the groups of a table are one that has all rows of all blocks: no row is left out.
fn is_of_all_rows(group: &GroupTable) -> bool {
    let ReadOptions { filter, computed, .. } = &group.table.reading;
    let leaves_out = filter.is_some() || computed.as_ref().is_some_and(|computed| computed.leaves_out);
    group.query.by.is_empty() && !leaves_out
}

/// After how many blocks maps end: where looks are, and between them. Before the first look each executor has a part, and behind the last one, so that none is at it when all others have ended. Between these, where the maps
/// of several rounds are under way together, a round has fewer parts: fewer maps make fewer groups of the same rows.
fn ends(looks: &VecDeque<usize>, blocks: usize, executors: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    let (mut from, mut parts) = (0, executors);
    let between =
        |from: usize, end: usize, parts: usize| (1..=parts).map(move |part| from + (end - from) * part / parts);
    for look in looks {
        ends.extend(between(from, *look, parts));
        (from, parts) = (*look, executors.div_ceil(ROUNDS_AT_ONCE));
    }
    ends.extend(between(from, blocks, executors));
    ends.dedup();
    ends.retain(|end| (1..blocks).contains(end));
    ends
}

fn three(outputs: Vec<ObjectRef>) -> Result<[ObjectRef; 3], JobError> {
    <[ObjectRef; 3]>::try_from(outputs).map_err(|_| JobError::program("the task has three outputs"))
}

#[cfg(test)]
mod tests {
    use exobus_tables::aggregates::parse_list;
    use exobus_tables::jobs::Rewrite;
    use exobus_tables::reading::Computed;

    use super::*;

    #[test]
    fn all_rows_are_of_one_group_where_none_is_left_out_and_nothing_tells_them_apart() {
        let group = |by: &[&str], filter: Option<&str>| {
            let by = by.iter().map(|column| (*column).to_owned()).collect();
            let query = GroupQuery { by, aggregates: parse_list("count(*)").unwrap(), having: None, top: None };
            let mut table = Rewrite::new(vec!["in".into()], "out".into());
            table.reading.filter = filter.map(|filter| filter.parse().unwrap());
            GroupTable { table, query }
        };
        assert!(is_of_all_rows(&group(&[], None)));
        assert!(!is_of_all_rows(&group(&["city"], None)) && !is_of_all_rows(&group(&[], Some("price >= 0"))));
        let mut computed = group(&[], None);
        computed.table.reading.computed = Computed::selected(&["price * 2 as double"]);
        assert!(is_of_all_rows(&computed));
        computed.table.reading.computed.as_mut().unwrap().leaves_out = true;
        assert!(!is_of_all_rows(&computed));
    }

    #[test]
    fn maps_end_at_looks_and_where_parts_between_them_end() {
        assert_eq!(ends(&[4, 8, 16].into(), 20, 4), [1, 2, 3, 4, 6, 8, 12, 16, 17, 18, 19]);
        assert_eq!(ends(&[2, 3, 7].into(), 9, 2), [1, 2, 3, 7, 8]);
        assert_eq!(ends(&[8].into(), 9, 4), [2, 4, 6, 8]);
        assert_eq!(ends(&[1, 2].into(), 3, 3), [1, 2]);
        assert_eq!(ends(&VecDeque::new(), 4, 2), [2]);
        assert!(ends(&VecDeque::new(), 0, 2).is_empty());
    }
}
