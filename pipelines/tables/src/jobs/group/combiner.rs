//! Rows of groups become one row each.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, BinaryArray, RecordBatch, UInt64Array};

use super::groups::Groups;
use super::query::{CountedValues, Grouping, Kind, counts, keys};
use crate::TableError;
use crate::aggregates::Accumulator;
use crate::block::ROWS_MAX;
use crate::jobs::budget::Unordered;
use crate::sources::{MemoryBudget, Reservation};

/// What a group takes of an accumulator that is there for the first time, about.
const STATE_BYTES: u64 = 64;

/// The groups of some rows, and how their aggregates stand.
pub(super) struct Combiner {
    grouping: Arc<Grouping>,
    memory: Reservation,
    groups: Groups,
    /// Of how many rows each group is.
    rows: Vec<u64>,
    accumulators: Vec<Box<dyn Accumulator>>,
    /// Of the arguments whose values are counted, the values of all groups.
    values: Vec<Values>,
    /// Of the rows of a batch.
    numbers: Vec<u32>,
}

/// The values of a column, each with its group, and how often it is there.
#[derive(Default)]
pub(super) struct Values {
    pub(super) groups: Groups,
    pub(super) counts: Vec<u64>,
    numbers: Vec<u32>,
}

impl Combiner {
    /// # Errors
    /// As of [`Grouping::accumulators`].
    pub(super) fn new(grouping: &Arc<Grouping>, budget: &Arc<dyn MemoryBudget>) -> Result<Self, TableError> {
        Ok(Self {
            memory: Reservation::none(budget),
            groups: Groups::default(),
            rows: Vec::new(),
            accumulators: grouping.accumulators()?,
            values: grouping.values.iter().map(|_| Values::default()).collect(),
            numbers: Vec::new(),
            grouping: grouping.clone(),
        })
    }

    pub(super) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Of how many rows each group is.
    pub(super) fn rows(&self) -> &[u64] {
        &self.rows
    }

    pub(super) fn accumulators(&self) -> &[Box<dyn Accumulator>] {
        &self.accumulators
    }

    pub(super) fn values(&self) -> &[Values] {
        &self.values
    }

    /// How many groups and values of groups there are.
    pub(super) fn entries(&self) -> usize {
        self.groups.len() + self.values.iter().map(|values| values.groups.len()).sum::<usize>()
    }

    /// Adds the rows of a message; how many rows of the table they are, none where the message has values.
    ///
    /// # Errors
    /// More memory is needed than there is; too many groups; what accumulators say.
    pub(super) fn add(&mut self, kind: Kind, message: &RecordBatch) -> Result<u64, Unordered> {
        let rows = message.num_rows();
        self.make_room(rows, keys(message).value_data().len())?;
        let grouping = self.grouping.clone();
        let added = match kind {
            Kind::Rows => {
                self.add_keys(keys(message), |_| 1)?;
                let places = grouping.places(message);
                for ((aggregate, _), accumulator) in grouping.of_states().zip(&mut self.accumulators) {
                    let argument = aggregate.argument.map(|argument| grouping.argument(message, argument));
                    accumulator.update(&self.numbers, argument, places)?;
                }
                for (values, of) in self.values.iter_mut().zip(&grouping.values) {
                    values.add_rows(&grouping, of, message, &mut self.memory)?;
                }
                rows as u64
            }
            Kind::States => {
                let counts = counts(message);
                self.add_keys(keys(message), |row| counts[row])?;
                for ((_, columns), accumulator) in grouping.of_states().zip(&mut self.accumulators) {
                    let states: Vec<ArrayRef> = columns.map(|column| message.column(column).clone()).collect();
                    accumulator.merge(&self.numbers, &states)?;
                }
                counts.iter().sum()
            }
            Kind::Values(column) => {
                let counts = counts(message);
                self.values[column].add(keys(message), |row| counts[row])?;
                0
            }
        };
        self.memory.resize(self.bytes())?;
        Ok(added)
    }

    /// Which of the keys are those of groups that are there.
    pub(super) fn find(&mut self, keys: &BinaryArray) -> &[u32] {
        self.groups.find(keys, &mut self.numbers);
        &self.numbers
    }

    fn add_keys(&mut self, keys: &BinaryArray, rows: impl Fn(usize) -> u64) -> Result<(), TableError> {
        self.groups.intern(keys, &mut self.numbers)?;
        let groups = self.groups.len();
        self.rows.resize(groups, 0);
        for (row, group) in self.numbers.iter().enumerate() {
            self.rows[*group as usize] += rows(row);
        }
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.resize(groups));
        Ok(())
    }

    /// Groups as messages of states, and values as messages of these; nothing is forgotten.
    ///
    /// # Errors
    /// What accumulators say; Arrow's.
    pub(super) fn messages(&self) -> Result<Vec<(Kind, RecordBatch)>, TableError> {
        let (mut messages, layouts) = (Vec::new(), &self.grouping.layouts);
        let all: Vec<u32> = (0..self.groups.len() as u32).collect();
        for some in all.chunks(ROWS_MAX) {
            let rows = UInt64Array::from_iter_values(some.iter().map(|group| self.rows[*group as usize]));
            let mut columns: Vec<ArrayRef> = vec![Arc::new(self.groups.keys_of(some)), Arc::new(rows)];
            for accumulator in &self.accumulators {
                columns.extend(accumulator.states(some)?);
            }
            messages.push((Kind::States, RecordBatch::try_new(layouts[1].schema().clone(), columns)?));
        }
        for (column, values) in self.values.iter().enumerate() {
            let (kind, all) = (Kind::Values(column), (0..values.groups.len() as u32).collect::<Vec<_>>());
            for some in all.chunks(ROWS_MAX) {
                let counts = UInt64Array::from_iter_values(some.iter().map(|group| values.counts[*group as usize]));
                let columns: Vec<ArrayRef> = vec![Arc::new(values.groups.keys_of(some)), Arc::new(counts)];
                messages.push((kind, RecordBatch::try_new(layouts[kind.number()].schema().clone(), columns)?));
            }
        }
        Ok(messages)
    }

    /// Forgets all groups but for the keys of these, which are of no row then.
    ///
    /// # Errors
    /// More memory is needed than there is.
    pub(super) fn clear(&mut self, but: &[u32]) -> Result<(), Unordered> {
        let kept = self.groups.keys_of(but);
        self.groups.clear();
        self.rows.clear();
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.clear());
        for values in &mut self.values {
            values.groups.clear();
            values.counts.clear();
        }
        self.make_room(but.len(), kept.value_data().len())?;
        Ok(self.add_keys(&kept, |_| 0)?)
    }

    /// What is taken now.
    fn bytes(&self) -> u64 {
        let rows = (8 * self.rows.capacity() + 4 * self.numbers.capacity()) as u64;
        let accumulators: u64 = self.accumulators.iter().map(|accumulator| accumulator.bytes()).sum();
        self.groups.bytes() + rows + accumulators + self.values.iter().map(Values::bytes).sum::<u64>()
    }

    /// Asks for what so many more groups take, whose keys have so many bytes: what grows is there twice for a moment.
    fn make_room(&mut self, groups: usize, key_bytes: usize) -> Result<(), Unordered> {
        let (more, rows) = (groups as u64, self.rows.len() + groups);
        let of_rows = if rows <= self.rows.capacity() { 8 * self.rows.capacity() } else { 24 * rows };
        let states: u64 = self.accumulators.iter().map(|accumulator| accumulator.bytes()).sum();
        let grown = if rows <= self.rows.capacity() { states } else { 3 * states };
        let accumulators = grown + STATE_BYTES * more * self.accumulators.len() as u64;
        let values: u64 = self.values.iter().map(Values::bytes).sum();
        let bytes = self.groups.bytes_with(groups, key_bytes) + of_rows as u64 + 4 * more + accumulators + values;
        Ok(self.memory.at_least(bytes)?)
    }
}

impl Values {
    fn add_rows(
        &mut self,
        grouping: &Grouping,
        of: &CountedValues,
        rows: &RecordBatch,
        memory: &mut Reservation,
    ) -> Result<(), Unordered> {
        let keys = grouping.value_keys(of, rows)?;
        let more = self.groups.bytes_with(keys.len(), keys.value_data().len()) - self.groups.bytes();
        memory.resize(memory.bytes() + more + 24 * (self.counts.len() + keys.len()) as u64)?;
        Ok(self.add(&keys, |_| 1)?)
    }

    fn add(&mut self, keys: &BinaryArray, rows: impl Fn(usize) -> u64) -> Result<(), TableError> {
        self.groups.intern(keys, &mut self.numbers)?;
        self.counts.resize(self.groups.len(), 0);
        for (row, group) in self.numbers.iter().enumerate() {
            self.counts[*group as usize] += rows(row);
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.groups.bytes() + (8 * self.counts.capacity() + 4 * self.numbers.capacity()) as u64
    }
}
