//! What a task that passes rows on makes of them: as few as it can with little memory and work.
//!
//! Rows are *collected*: those of a group become one, as long as the groups fit the caches of a processor. When there are more, it depends on what that was good for. Where
//! collecting has made a fifth less of what there is, it goes on, with up to as many groups as there is memory for: the more there are, the more rows meet theirs. A row that does costs less than one that is passed on, even where it waits for memory. Where it was good for half then, groups are passed on, and collecting begins anew. Where it was not, rows are *passed on* as they
//! are from then on, for a while: to look each one up in a table that is too large for the caches costs more than it saves, and as they are they have fewer bytes. Rows of groups that were
//! met very often go on being collected even then: so no partition gets many rows of one group, however rows are distributed.
//!
//! (Partial aggregation that gives up: Larson, "Data reduction by partial preaggregation", ICDE 2002; with a table of the size of a cache: Müller et al., "Cache-efficient aggregation: hashing is sorting",
//! SIGMOD 2015.)
//!
//! Rows of groups that are *followed* are collected all along. They count for nothing where it is seen what collecting is good for.
//!
//! What is made follows from the rows in their order, and from which groups are followed.

use std::sync::Arc;

use arrow_array::{Array as _, BinaryArray, BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use exobus_shuffle::cuts::{Cuts, Finder};

use super::combiner::Combiner;
use super::groups::{Known, NONE};
use super::query::{Grouping, Kind, keys};
use crate::TableError;
use crate::block::{Gather, Pick};
use crate::jobs::budget::Unordered;
use crate::sources::{MemoryBudget, Reservation};

/// Groups, and values of groups, that are collected before it is seen what that is good for.
pub(super) const ENTRIES_MIN: usize = 1 << 16;
/// Those that are collected at a time, at most.
pub(super) const ENTRIES_MAX: usize = 1 << 21;
/// Bytes of the keys of these: a hash table takes keys of less than 4 GiB, those of the next message among them.
const KEY_BYTES_MAX: usize = 1 << 30;
/// Collecting goes on where it makes one of so many.
pub(super) const REDUCTION_MIN: u64 = 2;
/// It goes on with more groups where it makes four of so many.
const FOUR_OF: u64 = 5;
/// For each group that was collected in vain so many rows are passed on before it is tried again.
const ROWS_PASSED: u64 = 16;
/// A group of so many rows, among those that were collected at a time, is met often; of so many groups at most.
const OFTEN: u64 = 32;
const OFTEN_MAX: usize = 1024;
/// And of keys of so many bytes: they are kept while others are passed on.
const OFTEN_KEY_MAX: usize = 64 << 10;
/// What a row takes that is passed on, beside its values and its key: where it goes, and where it stands.
const ROW_BYTES: u64 = (size_of::<u32>() + size_of::<Pick>()) as u64;

/// See the module.
pub(super) struct Collector<'a> {
    finder: Finder<'a>,
    partitions: usize,
    grouping: Arc<Grouping>,
    combiner: Combiner,
    /// Groups, and values of groups, that are collected at a time, at most.
    entries_max: usize,
    /// Bytes of their keys at most.
    key_bytes_max: usize,
    state: State,
    /// Messages that are passed on, by the numbers of their kinds.
    passed: Vec<Passed>,
    memory: Reservation,
}

enum State {
    /// Groups, and values of groups, were met so often since it began. `until`: how many of them there are when it is seen what that is good for.
    Collecting { met: u64, until: usize },
    /// So many rows go on being passed on. `some_are_collected`: those of groups that are met often, or followed.
    Passing { rows: u64, some_are_collected: bool },
}

/// It begins.
const COLLECTING: State = State::Collecting { met: 0, until: ENTRIES_MIN };

/// Messages of one kind.
#[derive(Default)]
struct Passed {
    batches: Vec<RecordBatch>,
    /// The partition of each row; [`NONE`]: it is not passed on.
    partitions: Vec<Vec<u32>>,
}

impl Passed {
    /// Keeps a message whose rows go to these partitions, but for those that go to [`NONE`]. `more`: the bytes of memory that it takes and
    /// nobody else accounts for.
    fn keep(
        &mut self,
        memory: &mut Reservation,
        message: RecordBatch,
        partitions: Vec<u32>,
        more: u64,
    ) -> Result<(), Unordered> {
        memory.resize(memory.bytes() + more + ROW_BYTES * partitions.len() as u64)?;
        self.partitions.push(partitions);
        self.batches.push(message);
        Ok(())
    }
}

impl<'a> Collector<'a> {
    /// # Errors
    /// As of [`Combiner::new`].
    pub(super) fn new(
        grouping: &Arc<Grouping>,
        cuts: &'a Cuts,
        entries_max: usize,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, TableError> {
        Ok(Self {
            finder: cuts.finder(),
            partitions: cuts.partitions(),
            combiner: Combiner::new(grouping, budget)?,
            entries_max: entries_max.max(ENTRIES_MIN),
            key_bytes_max: KEY_BYTES_MAX,
            state: COLLECTING,
            passed: grouping.layouts.iter().map(|_| Passed::default()).collect(),
            memory: Reservation::none(budget),
            grouping: grouping.clone(),
        })
    }

    /// Adds the rows of a message; whether they are kept where they are, so that their memory has to be.
    ///
    /// # Errors
    /// As of [`Combiner::add`].
    pub(super) fn add(&mut self, kind: Kind, message: &RecordBatch) -> Result<bool, Unordered> {
        self.decide()?;
        let rows = message.num_rows() as u64;
        match &mut self.state {
            State::Collecting { met, .. } => {
                // A row has a group and a value of each argument whose values are counted.
                *met += if kind == Kind::Rows { rows * (1 + self.grouping.values.len() as u64) } else { rows };
                self.combiner.add(kind, message)?;
                self.combiner.find_followed()?;
                Ok(false)
            }
            State::Passing { rows: left, some_are_collected } => {
                *left = left.saturating_sub(rows);
                let some_are_collected = *some_are_collected;
                self.pass_on(kind, message, some_are_collected)?;
                Ok(true)
            }
        }
    }

    /// Collects the rows of these groups whatever becomes of others. Before any rows are added.
    ///
    /// # Errors
    /// As of [`Combiner::follow`].
    pub(super) fn follow(&mut self, keys: &BinaryArray) -> Result<(), Unordered> {
        self.combiner.follow(keys)
    }

    /// Which of the rows that were added last are of groups that are [followed](Self::follow).
    pub(super) fn followed(&self) -> &Known {
        self.combiner.found()
    }

    /// How many groups, and values of groups, are collected.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.combiner.entries()
    }

    /// Goes on collecting, or passes on what comes.
    fn decide(&mut self) -> Result<(), Unordered> {
        let entries = self.combiner.entries();
        let has_room = self.combiner.key_bytes() < self.key_bytes_max;
        let (met, until) = match &mut self.state {
            State::Collecting { until, .. } if entries < *until && has_room => return Ok(()),
            State::Collecting { met, until } => (met, until),
            State::Passing { rows: 0, .. } => {
                self.state = COLLECTING;
                return self.flush(&[]);
            }
            State::Passing { .. } if entries < 2 * ENTRIES_MIN => return Ok(()),
            State::Passing { .. } => {
                let often: Vec<u32> = (0..self.combiner.groups().len() as u32).collect();
                return self.flush(&often);
            }
        };
        if has_room && entries < self.entries_max && 4 * *met >= FOUR_OF * entries as u64 {
            *until = (2 * entries).min(self.entries_max);
            return Ok(());
        }
        if *met >= REDUCTION_MIN * entries as u64 {
            self.state = COLLECTING;
            return self.flush(&[]);
        }
        let rows = self.combiner.rows();
        let groups = self.combiner.groups();
        let is_often = |group: &u32| rows[*group as usize] >= OFTEN && groups.key(*group).len() <= OFTEN_KEY_MAX;
        let followed = self.combiner.followed();
        let mut often: Vec<u32> = (followed..rows.len() as u32).filter(is_often).collect();
        often.sort_by_key(|group| std::cmp::Reverse(rows[*group as usize]));
        often.truncate(OFTEN_MAX);
        let rows = ROWS_PASSED * entries as u64;
        self.state = State::Passing { rows, some_are_collected: followed > 0 || !often.is_empty() };
        self.flush(&often)
    }

    /// Passes on what was collected, and forgets it but for the keys of these groups and of those that are followed.
    fn flush(&mut self, but: &[u32]) -> Result<(), Unordered> {
        self.pass_on_collected()?;
        self.combiner.clear(but)
    }

    fn pass_on_collected(&mut self) -> Result<(), Unordered> {
        let Self { combiner, finder, memory, passed, .. } = self;
        for message in combiner.messages() {
            let (kind, message) = message?;
            let partitions = partitions_of(finder, &message, |_| true);
            let more = message.get_array_memory_size() as u64;
            passed[kind.number()].keep(memory, message, partitions, more)?;
        }
        Ok(())
    }

    fn pass_on(&mut self, kind: Kind, message: &RecordBatch, some_are_collected: bool) -> Result<(), Unordered> {
        // Values go on as they are: their keys are others than those of groups.
        let partitions = if !some_are_collected || matches!(kind, Kind::Values(_)) {
            partitions_of(&self.finder, message, |_| true)
        } else {
            let found = self.combiner.find(keys(message));
            let collected: BooleanArray = found.iter().map(|group| Some(*group != NONE)).collect();
            self.combiner.find_followed()?;
            if collected.true_count() > 0 {
                let rows = filter_record_batch(message, &collected).map_err(TableError::from)?;
                self.combiner.add(kind, &rows)?;
            }
            partitions_of(&self.finder, message, |row| !collected.value(row))
        };
        // Columns of rows are those of the table, whose memory is accounted for where they are read; their keys were made here.
        let more = if kind == Kind::Rows { keys(message).value_data().len() as u64 } else { 0 };
        self.passed[kind.number()].keep(&mut self.memory, message.clone(), partitions, more)
    }

    /// All that is passed on, by partitions.
    ///
    /// # Errors
    /// As of [`Combiner::add`].
    pub(super) fn finish(mut self) -> Result<Parts, Unordered> {
        self.pass_on_collected()?;
        drop(self.combiner);
        let partitions = self.partitions;
        let parts = |(layout, passed): (_, Passed)| {
            let gather = Gather::new(Arc::clone(layout), &passed.batches)?;
            let of_rows = passed.partitions.iter().flatten().copied().filter(|partition| *partition != NONE);
            let (mut ends, rows) = begins(partitions, of_rows);
            let mut picks = vec![Pick { batch: 0, row: 0 }; rows];
            for (batch, partitions) in (0..).zip(&passed.partitions) {
                for (row, partition) in (0..).zip(partitions).filter(|(_, partition)| **partition != NONE) {
                    let end = &mut ends[*partition as usize];
                    picks[*end] = Pick { batch, row };
                    *end += 1;
                }
            }
            Ok(OfKind { gather, picks, ends })
        };
        let kinds = self.grouping.layouts.iter().zip(self.passed).map(parts).collect::<Result<_, TableError>>()?;
        Ok(Parts { kinds, _memory: self.memory })
    }
}

/// The partition of each row of a message of which this is true; of the others [`NONE`].
fn partitions_of(finder: &Finder<'_>, message: &RecordBatch, is_kept: impl Fn(usize) -> bool) -> Vec<u32> {
    let keys = keys(message);
    let partition = |row| match is_kept(row) {
        true => finder.partition_of(keys.value(row)) as u32,
        false => NONE,
    };
    (0..keys.len()).map(partition).collect()
}

/// Where each partition begins among rows that have these partitions when they are put in the order of these, and how many rows there are.
fn begins(partitions: usize, of_rows: impl Iterator<Item = u32>) -> (Vec<usize>, usize) {
    let mut begins = vec![0; partitions];
    of_rows.for_each(|partition| begins[partition as usize] += 1);
    let mut next = 0;
    for begin in &mut begins {
        next += std::mem::replace(begin, next);
    }
    (begins, next)
}

/// Rows by the partitions to which they are passed on.
pub(super) struct Parts {
    kinds: Vec<OfKind>,
    _memory: Reservation,
}

struct OfKind {
    gather: Gather,
    picks: Vec<Pick>,
    /// Where in these each partition ends.
    ends: Vec<usize>,
}

impl Parts {
    /// The rows of a partition, of one kind after the other.
    pub(super) fn of(&self, partition: usize) -> Vec<(&Gather, &[Pick])> {
        let of_kind = |kind: &'_ OfKind| {
            let from = partition.checked_sub(1).map_or(0, |before| kind.ends[before]);
            from..kind.ends[partition]
        };
        let sources = self.kinds.iter().map(|kind| (&kind.gather, &kind.picks[of_kind(kind)]));
        sources.filter(|(_, picks)| !picks.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int64Array, StringArray};

    use super::*;
    use crate::aggregates::parse_list;
    use crate::jobs::group::GroupQuery;
    use crate::sources::FixedBudget;

    /// Three rows of each group.
    fn batch(groups: std::ops::Range<u64>) -> RecordBatch {
        let rows = || groups.clone().flat_map(|group| [group; 3]);
        let names = StringArray::from_iter_values(rows().map(|group| format!("{:05}", group * 7919 % 70_001)));
        let numbers = Int64Array::from_iter_values(rows().map(|group| group as i64));
        let columns: [(&str, ArrayRef); 2] = [("name", Arc::new(names)), ("number", Arc::new(numbers))];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn groups_with_long_keys_are_passed_on_before_their_keys_are_too_many_bytes() {
        let aggregates = parse_list("sum(number)").unwrap();
        let query = GroupQuery { by: vec!["name".to_owned()], aggregates, having: None, top: None };
        let grouping = Arc::new(Grouping::new(&query, &batch(0..1).schema()).unwrap());
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
        let everything = Cuts::new(Vec::new()).unwrap();
        let mut collector = Collector::new(&grouping, &everything, ENTRIES_MIN, &budget).unwrap();
        collector.key_bytes_max = 100_000;
        let message = |from| grouping.rows(&batch(from..from + 1000), 0).unwrap();
        for from in (0..20_000).step_by(1000) {
            assert!(!collector.add(Kind::Rows, &message(from)).unwrap(), "three rows of each group are worth it");
            assert!(collector.combiner.key_bytes() < 100_000 + 40_000, "{}", collector.combiner.key_bytes());
        }
        let parts = collector.finish().unwrap();
        assert_eq!(parts.of(0).iter().map(|(_, picks)| picks.len()).sum::<usize>(), 20_000);
    }

    #[test]
    fn each_partition_gets_its_groups_in_the_order_in_which_they_were_met() {
        let aggregates = parse_list("sum(number)").unwrap();
        let query = GroupQuery { by: vec!["name".to_owned()], aggregates, having: None, top: None };
        let grouping = Arc::new(Grouping::new(&query, &batch(0..1).schema()).unwrap());
        let key_of = |message: &RecordBatch, row: usize| keys(message).value(row).to_vec();
        let first = grouping.rows(&batch(0..1), 0).unwrap();
        let mut borders: Vec<_> = (1..9).map(|group| grouping.rows(&batch(group..group + 1), 0).unwrap()).collect();
        // Nothing is before this one, and between these nothing.
        borders.extend([first.clone(), first]);
        let mut borders: Vec<_> = borders.iter().map(|message| key_of(message, 0)).collect();
        borders.sort();
        for cuts in [Cuts::new(Vec::new()).unwrap(), Cuts::new(borders).unwrap()] {
            let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
            let mut collector = Collector::new(&grouping, &cuts, ENTRIES_MIN, &budget).unwrap();
            let mut wanted = vec![Vec::new(); cuts.partitions()];
            // More groups than are collected at a time, and than a message has.
            for from in (0..70_000).step_by(1000) {
                let message = grouping.rows(&batch(from..from + 1000), 0).unwrap();
                assert!(!collector.add(Kind::Rows, &message).unwrap(), "all rows are collected");
                for row in (0..message.num_rows()).step_by(3) {
                    let key = key_of(&message, row);
                    wanted[cuts.partition_of(&key)].push(key);
                }
            }
            collector.flush(&[]).unwrap();
            let messages = collector.passed[Kind::States.number()].batches.clone();
            assert!(messages.len() > 2, "groups were passed on twice");
            let parts = collector.finish().unwrap();
            for (partition, wanted) in wanted.iter().enumerate() {
                let picks = parts.of(partition).into_iter().flat_map(|(_, picks)| picks);
                let found: Vec<_> =
                    picks.map(|pick| key_of(&messages[pick.batch as usize], pick.row as usize)).collect();
                assert!(found == *wanted, "partition {partition} of {}", cuts.partitions());
            }
            assert!(wanted.iter().filter(|wanted| wanted.is_empty()).count() < 3);
        }
    }

    #[test]
    fn without_rows_nothing_is_passed_on() {
        let query = GroupQuery { by: vec!["name".to_owned()], aggregates: Vec::new(), having: None, top: None };
        let grouping = Arc::new(Grouping::new(&query, &batch(0..1).schema()).unwrap());
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 20));
        let cuts = Cuts::new(vec![b"m".to_vec()]).unwrap();
        let parts = Collector::new(&grouping, &cuts, ENTRIES_MIN, &budget).unwrap().finish().unwrap();
        assert!((0..cuts.partitions()).all(|partition| parts.of(partition).is_empty()));
    }
}
