//! Rows of groups become one row each.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, BinaryArray, RecordBatch, UInt64Array};

use super::groups::{Groups, Known};
use super::query::{Grouping, Kind, counts, keys};
use crate::TableError;
use crate::aggregates::Accumulator;
use crate::block::ROWS_MAX;
use crate::jobs::budget::Unordered;
use crate::sources::{MemoryBudget, Reservation};

/// What a group takes of an accumulator that is there for the first time, about.
pub(super) const STATE_BYTES: u64 = 64;

/// The groups of some rows, and how their aggregates stand.
pub(super) struct Combiner {
    grouping: Arc<Grouping>,
    memory: Reservation,
    groups: Counted,
    accumulators: Vec<Box<dyn Accumulator>>,
    /// Of the arguments whose values are counted, the values of all groups: each has the key of its group before its own.
    values: Vec<Counted>,
    /// The first so many groups are there whether or not a row is of them, and bytes of their keys.
    followed: u32,
    followed_key_bytes: usize,
    /// Which rows of the last message are of groups that are followed.
    known: Known,
}

/// Keys, and how many rows have each of them.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) groups: Groups,
    pub(super) counts: Vec<u64>,
    /// Of the rows of a batch.
    numbers: Vec<u32>,
}

impl Combiner {
    /// # Errors
    /// As of [`Grouping::accumulators`].
    pub(super) fn new(grouping: &Arc<Grouping>, budget: &Arc<dyn MemoryBudget>) -> Result<Self, TableError> {
        Ok(Self {
            memory: Reservation::none(budget),
            groups: Counted::default(),
            accumulators: grouping.accumulators()?,
            values: grouping.values.iter().map(|_| Counted::default()).collect(),
            followed: 0,
            followed_key_bytes: 0,
            known: Known::default(),
            grouping: grouping.clone(),
        })
    }

    /// Adds the group that all rows are of, where there is none.
    ///
    /// # Errors
    /// More memory is needed than there is.
    pub(super) fn add_group_of_all(&mut self) -> Result<(), Unordered> {
        self.add_keys(&BinaryArray::from_iter_values([[]]), |_| 0)
    }

    pub(super) fn groups(&self) -> &Groups {
        &self.groups.groups
    }

    /// Of how many rows each group is.
    pub(super) fn rows(&self) -> &[u64] {
        &self.groups.counts
    }

    pub(super) fn accumulators(&self) -> &[Box<dyn Accumulator>] {
        &self.accumulators
    }

    pub(super) fn values(&self) -> &[Counted] {
        &self.values
    }

    /// How many groups and values of groups there are, beside groups that are [followed](Self::follow).
    pub(super) fn entries(&self) -> usize {
        self.groups().len() - self.followed as usize
            + self.values.iter().map(|values| values.groups.len()).sum::<usize>()
    }

    /// Bytes of the keys of these groups, or of values of groups, whichever are more.
    pub(super) fn key_bytes(&self) -> usize {
        let of_values = self.values.iter().map(|values| values.groups.key_bytes());
        of_values.fold(self.groups().key_bytes() - self.followed_key_bytes, usize::max)
    }

    /// Adds the rows of a message; how many rows of the table they are, none where the message has values.
    ///
    /// # Errors
    /// More memory is needed than there is; too many groups; what accumulators say.
    pub(super) fn add(&mut self, kind: Kind, message: &RecordBatch) -> Result<u64, Unordered> {
        let grouping = self.grouping.clone();
        let added = match kind {
            Kind::Rows => {
                self.add_keys(keys(message), |_| 1)?;
                grouping.update(&mut self.accumulators, &self.groups.numbers, message)?;
                for (number, of) in grouping.values.iter().enumerate() {
                    let keys = grouping.value_keys(of, message)?;
                    self.add_values(number, &keys, |_| 1)?;
                }
                message.num_rows() as u64
            }
            Kind::States => {
                let counts = counts(message);
                self.add_keys(keys(message), |row| counts[row])?;
                for ((_, columns), accumulator) in grouping.of_states().zip(&mut self.accumulators) {
                    let states: Vec<ArrayRef> = columns.map(|column| message.column(column).clone()).collect();
                    accumulator.merge(&self.groups.numbers, &states)?;
                }
                counts.iter().sum()
            }
            Kind::Values(number) => {
                let counts = counts(message);
                self.add_values(number, keys(message), |row| counts[row])?;
                0
            }
        };
        self.memory.resize(self.bytes())?;
        Ok(added)
    }

    /// Which of the keys are those of groups that are there.
    pub(super) fn find(&mut self, keys: &BinaryArray) -> &[u32] {
        let Counted { groups, numbers, .. } = &mut self.groups;
        groups.find(keys, numbers);
        numbers
    }

    /// Adds groups, of no row so far, before any others: they are kept when others are forgotten, and passed on where they have rows.
    ///
    /// # Errors
    /// More memory is needed than there is.
    pub(super) fn follow(&mut self, keys: &BinaryArray) -> Result<(), Unordered> {
        debug_assert_eq!(self.groups().len(), 0, "before any others");
        self.add_keys(keys, |_| 0)?;
        self.followed = self.groups().len() as u32;
        self.followed_key_bytes = self.groups().key_bytes();
        Ok(())
    }

    /// How many groups are [followed](Self::follow): they have the first numbers.
    pub(super) fn followed(&self) -> u32 {
        self.followed
    }

    /// Which of the keys that were added or looked for last are those of groups that are [followed](Self::follow).
    ///
    /// # Errors
    /// More memory is needed than there is.
    pub(super) fn find_followed(&mut self) -> Result<(), Unordered> {
        if self.followed == 0 {
            return Ok(());
        }
        self.memory.at_least(self.bytes() + Known::bytes_of(self.groups.numbers.len()))?;
        self.known.find_first(&self.groups.numbers, self.followed);
        Ok(self.memory.resize(self.bytes())?)
    }

    /// What was [found](Self::find_followed) last.
    pub(super) fn found(&self) -> &Known {
        &self.known
    }

    /// Adds rows of groups. Accumulators have room for all of them then.
    fn add_keys(&mut self, keys: &BinaryArray, rows: impl Fn(usize) -> u64) -> Result<(), Unordered> {
        let states: u64 = self.accumulators.iter().map(|accumulator| accumulator.bytes()).sum();
        let grows = self.groups.counts.len() + keys.len() > self.groups.counts.capacity();
        // What grows is there twice for a moment.
        let grown = if grows { 2 * states } else { 0 };
        let accumulators = grown + STATE_BYTES * (keys.len() * self.accumulators.len()) as u64;
        self.memory.at_least(self.bytes() + self.groups.more_bytes(keys) + accumulators)?;
        self.groups.add(keys, rows)?;
        let groups = self.groups().len();
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.resize(groups));
        Ok(())
    }

    /// Adds values of groups.
    fn add_values(&mut self, number: usize, keys: &BinaryArray, rows: impl Fn(usize) -> u64) -> Result<(), Unordered> {
        self.memory.at_least(self.bytes() + self.values[number].more_bytes(keys))?;
        Ok(self.values[number].add(keys, rows)?)
    }

    /// Groups as messages of states, and values as messages of these, one at a time; nothing is forgotten.
    ///
    /// # Errors
    /// What accumulators say; Arrow's.
    pub(super) fn messages(&self) -> impl Iterator<Item = Result<(Kind, RecordBatch), TableError>> {
        let values = self.values.iter().enumerate().map(|(number, values)| (Kind::Values(number), values));
        std::iter::once((Kind::States, &self.groups)).chain(values).flat_map(move |(kind, counted)| {
            let groups = counted.groups.len();
            let followed = if kind == Kind::States { self.followed } else { 0 };
            let of_rows = move |group: &u32| *group >= followed || counted.counts[*group as usize] > 0;
            (0..groups).step_by(ROWS_MAX).map(move |from| {
                let some: Vec<u32> = (from as u32..groups.min(from + ROWS_MAX) as u32).filter(of_rows).collect();
                Ok((kind, self.message(kind, counted, &some)?))
            })
        })
    }

    /// Some of what was counted as a message of one of these kinds.
    fn message(&self, kind: Kind, counted: &Counted, some: &[u32]) -> Result<RecordBatch, TableError> {
        let rows = UInt64Array::from_iter_values(some.iter().map(|group| counted.counts[*group as usize]));
        let keys = counted.groups.keys_of(some);
        if kind == Kind::States {
            return self.grouping.states(keys, rows, (&self.accumulators, some));
        }
        let columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(rows)];
        Ok(RecordBatch::try_new(self.grouping.layouts[kind.number()].schema().clone(), columns)?)
    }

    /// Forgets all groups but for the keys of those that are [followed](Self::follow) and of these, which are of no row then.
    ///
    /// # Errors
    /// More memory is needed than there is.
    pub(super) fn clear(&mut self, but: &[u32]) -> Result<(), Unordered> {
        let others = but.iter().copied().filter(|group| *group >= self.followed);
        let kept: Vec<u32> = (0..self.followed).chain(others).collect();
        let kept = self.groups().keys_of(&kept);
        self.groups.clear();
        self.values.iter_mut().for_each(Counted::clear);
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.clear());
        self.add_keys(&kept, |_| 0)
    }

    /// What is taken now.
    fn bytes(&self) -> u64 {
        let accumulators: u64 = self.accumulators.iter().map(|accumulator| accumulator.bytes()).sum();
        let values = self.values.iter().map(Counted::bytes).sum::<u64>();
        self.groups.bytes() + accumulators + values + self.known.bytes()
    }
}

impl Counted {
    fn add(&mut self, keys: &BinaryArray, rows: impl Fn(usize) -> u64) -> Result<(), TableError> {
        self.groups.intern(keys, &mut self.numbers)?;
        self.counts.resize(self.groups.len(), 0);
        for (row, group) in self.numbers.iter().enumerate() {
            self.counts[*group as usize] += rows(row);
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.groups.clear();
        self.counts.clear();
    }

    /// What is taken now.
    fn bytes(&self) -> u64 {
        self.groups.bytes() + (8 * self.counts.capacity() + 4 * self.numbers.capacity()) as u64
    }

    /// What is taken beside that, at most, while so many keys are added, all of them new: what grows is there twice for a moment.
    fn more_bytes(&self, keys: &BinaryArray) -> u64 {
        let all = self.counts.len() + keys.len();
        let counts = if all <= self.counts.capacity() { 0 } else { 8 * all.max(2 * self.counts.capacity()) };
        let groups = self.groups.bytes_with(keys.len(), keys.value_data().len()) - self.groups.bytes();
        groups + (counts + 4 * keys.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, StringArray};
    use arrow_schema::Schema;

    use super::*;
    use crate::aggregates::parse_list;
    use crate::jobs::group::GroupQuery;
    use crate::sources::{FixedBudget, MemoryDenied};

    /// Counts what was asked for at most.
    #[derive(Debug, Default)]
    struct Asked(std::sync::Mutex<(u64, u64)>);

    impl MemoryBudget for Asked {
        fn take(&self, bytes: u64) -> Result<(), MemoryDenied> {
            let (taken, most) = &mut *self.0.lock().unwrap();
            *taken += bytes;
            *most = (*most).max(*taken);
            Ok(())
        }

        fn give_back(&self, bytes: u64) {
            self.0.lock().unwrap().0 -= bytes;
        }
    }

    fn batch(from: i64, rows: i64) -> RecordBatch {
        let names = StringArray::from_iter_values((from..from + rows).map(|row| format!("group {}", row % 7)));
        let numbers = Int64Array::from_iter_values((from..from + rows).map(|row| row * 31));
        let columns: [(&str, ArrayRef); 2] = [("name", Arc::new(names)), ("number", Arc::new(numbers))];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn grouping(schema: &Schema) -> Arc<Grouping> {
        let aggregates = parse_list("count_distinct(number), sum(number)").unwrap();
        let query = GroupQuery { by: vec!["name".to_owned()], aggregates, having: None, top: None };
        Arc::new(Grouping::new(&query, schema).unwrap())
    }

    #[test]
    fn what_is_asked_for_before_values_of_few_groups_are_put_together_is_what_they_take() {
        let schema = batch(0, 1).schema();
        let grouping = grouping(&schema);
        let asked = Arc::new(Asked::default());
        let budget: Arc<dyn MemoryBudget> = asked.clone();
        let mut messages = Vec::new();
        let mut of_rows = Combiner::new(&grouping, &budget).unwrap();
        for from in 0..50 {
            let rows = grouping.rows(&batch(from * 1000, 1000), 0).unwrap();
            assert_eq!(of_rows.add(Kind::Rows, &rows).unwrap(), 1000);
            assert!(of_rows.bytes() <= asked.0.lock().unwrap().1);
        }
        messages.extend(of_rows.messages().map(Result::unwrap));
        assert_eq!((of_rows.groups().len(), of_rows.entries()), (7, 50_007));
        drop(of_rows);

        let asked = Arc::new(Asked::default());
        let budget: Arc<dyn MemoryBudget> = asked.clone();
        let mut merged = Combiner::new(&grouping, &budget).unwrap();
        for (kind, message) in &messages {
            let before = merged.bytes();
            merged.add(*kind, message).unwrap();
            assert!(merged.bytes() > before || *kind == Kind::States);
        }
        let (taken, most) = *asked.0.lock().unwrap();
        assert_eq!(taken, merged.bytes());
        assert!((taken..4 * taken).contains(&most), "{most} bytes were asked for {taken}");

        // Values that have no room are denied before they are put together.
        let little: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(256 << 10));
        let mut denied = Combiner::new(&grouping, &little).unwrap();
        let added = messages.iter().try_for_each(|(kind, message)| denied.add(*kind, message).map(drop));
        assert!(matches!(added, Err(Unordered::Memory(_))));
        assert!(denied.bytes() <= 256 << 10, "{} bytes are taken", denied.bytes());
    }
}
