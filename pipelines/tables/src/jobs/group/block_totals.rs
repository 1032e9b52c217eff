//! What the rows of a block have of groups, one block after the other.
//!
//! Groups have the same numbers in all blocks. Those of one block have places beside that, by which aggregates stand: what is forgotten at the end of a block is as much as the block had.

use std::sync::Arc;

use arrow_array::{Array as _, BinaryArray, RecordBatch, UInt32Array, UInt64Array};
use arrow_select::take::take;

use super::combiner::STATE_BYTES;
use super::groups::{Groups, Known, Marks, NONE};
use super::query::{Grouping, keys};
use crate::TableError;
use crate::aggregates::Accumulator;
use crate::block::ROWS_MAX;
use crate::jobs::budget::Unordered;
use crate::sources::{MemoryBudget, Reservation};

/// What a group takes beside its key: its place, and its number and its rows where the block has some.
const GROUP_BYTES: usize = size_of::<u32>() + size_of::<u32>() + size_of::<u64>();
/// What a row of a message takes: the number of its group, and the place of that.
const ROW_BYTES: usize = 2 * size_of::<u32>();

/// See the module.
pub(super) struct BlockTotals {
    grouping: Arc<Grouping>,
    memory: Reservation,
    groups: Groups,
    /// Of each group its place among those of the block; [`NONE`]: the block has no row of it.
    places: Vec<u32>,
    /// The groups of the block, in the order in which they were met, of how many rows each is, and how its aggregates stand.
    met: Vec<u32>,
    counts: Vec<u64>,
    accumulators: Vec<Box<dyn Accumulator>>,
    /// So many places there have been at most: accumulators have room for these.
    sized: usize,
    /// Of the rows of a message their groups, and the places of these.
    numbers: Vec<u32>,
    placed: Vec<u32>,
    /// Of groups that are known, and the rows that are of these.
    marks: Marks,
    known: Known,
}

impl BlockTotals {
    /// # Errors
    /// As of [`Grouping::accumulators`].
    pub(super) fn new(grouping: &Arc<Grouping>, budget: &Arc<dyn MemoryBudget>) -> Result<Self, TableError> {
        Ok(Self {
            memory: Reservation::none(budget),
            groups: Groups::default(),
            places: Vec::new(),
            met: Vec::new(),
            counts: Vec::new(),
            accumulators: grouping.accumulators()?,
            sized: 0,
            numbers: Vec::new(),
            placed: Vec::new(),
            marks: Marks::default(),
            known: Known::default(),
            grouping: grouping.clone(),
        })
    }

    /// All groups of which blocks had rows so far.
    pub(super) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The groups of the block: at each place the number of one.
    pub(super) fn met(&self) -> &[u32] {
        &self.met
    }

    /// Of how many rows each of these is.
    pub(super) fn rows(&self) -> &[u64] {
        &self.counts
    }

    /// How the aggregates of each of these stand. Those of values of groups are left out.
    pub(super) fn accumulators(&self) -> &[Box<dyn Accumulator>] {
        &self.accumulators
    }

    /// Numbers these groups, before any others.
    ///
    /// # Errors
    /// More memory is needed than there is.
    pub(super) fn follow(&mut self, keys: &BinaryArray) -> Result<(), Unordered> {
        self.make_room(keys)?;
        Ok(self.groups.intern(keys, &mut self.numbers)?)
    }

    /// Adds the rows of a message.
    ///
    /// # Errors
    /// More memory is needed than there is; too many groups; what accumulators say.
    pub(super) fn add(&mut self, message: &RecordBatch) -> Result<(), Unordered> {
        self.make_room(keys(message))?;
        self.groups.intern(keys(message), &mut self.numbers)?;
        let numbers = std::mem::take(&mut self.numbers);
        self.place(&numbers);
        self.numbers = numbers;
        self.grouping.update(&mut self.accumulators, &self.placed, message)?;
        Ok(self.memory.resize(self.bytes())?)
    }

    /// From here on groups that are there are those that [`add_known`](Self::add_known) knows.
    pub(super) fn know(&mut self) {
        self.marks = Marks::of(&self.groups);
    }

    /// Adds those rows of a message that are of groups that are [known](Self::know), to what has [terms](Accumulator::terms).
    ///
    /// # Errors
    /// As of [`add`](Self::add).
    pub(super) fn add_known(&mut self, message: &RecordBatch) -> Result<(), Unordered> {
        self.groups.hash_only(keys(message));
        let mut known = std::mem::take(&mut self.known);
        self.groups.known(keys(message), self.groups.hashes(), &self.marks, &mut known);
        let added = self.add_found(message, &known);
        self.known = known;
        added
    }

    /// Adds those rows of a message of which it is known of which groups they are, to what has [terms](Accumulator::terms).
    ///
    /// # Errors
    /// As of [`add`](Self::add).
    pub(super) fn add_found(&mut self, message: &RecordBatch, known: &Known) -> Result<(), Unordered> {
        self.memory.at_least(self.bytes() + self.more_bytes(known.rows.len()))?;
        self.place(&known.groups);
        let rows = UInt32Array::from_iter_values(known.rows.iter().copied());
        let grouping = &self.grouping;
        for ((aggregate, _), accumulator) in grouping.of_states().zip(&mut self.accumulators) {
            if accumulator.terms(&[]).is_empty() {
                continue;
            }
            let argument = aggregate.argument.map(|argument| take(grouping.argument(message, argument), &rows, None));
            let argument = argument.transpose().map_err(TableError::from)?;
            // What has terms asks for no places.
            accumulator.update(&self.placed, argument.as_ref(), None)?;
        }
        Ok(self.memory.resize(self.bytes())?)
    }

    /// The groups of the block as messages of states, one at a time.
    ///
    /// # Errors
    /// What accumulators say; Arrow's.
    pub(super) fn messages(&self) -> impl Iterator<Item = Result<RecordBatch, TableError>> {
        (0..self.met.len()).step_by(ROWS_MAX).map(move |from| {
            let places: Vec<u32> = (from as u32..self.met.len().min(from + ROWS_MAX) as u32).collect();
            let some = from..from + places.len();
            let rows = UInt64Array::from_iter_values(self.counts[some.clone()].iter().copied());
            self.grouping.states(self.groups.keys_of(&self.met[some]), rows, (&self.accumulators, &places))
        })
    }

    /// Forgets the rows of the block.
    pub(super) fn clear(&mut self) {
        self.met.iter().for_each(|group| self.places[*group as usize] = NONE);
        self.met.clear();
        self.counts.clear();
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.clear());
    }

    /// Forgets all groups, where no block is under way.
    pub(super) fn forget(&mut self) {
        self.groups.clear();
        self.places.clear();
    }

    /// Gives groups of rows their places, and counts the rows.
    fn place(&mut self, numbers: &[u32]) {
        let Self { groups, places, met, counts, placed, .. } = self;
        places.resize(groups.len(), NONE);
        placed.clear();
        placed.extend(numbers.iter().map(|group| {
            let place = &mut places[*group as usize];
            if *place == NONE {
                *place = met.len() as u32;
                met.push(*group);
                counts.push(0);
            }
            counts[*place as usize] += 1;
            *place
        }));
        let met = met.len();
        self.sized = self.sized.max(met);
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.resize(met));
    }

    /// Asks for what keys take at most that are added.
    fn make_room(&mut self, keys: &BinaryArray) -> Result<(), Unordered> {
        let groups = self.groups.bytes_with(keys.len(), keys.value_data().len()) - self.groups.bytes();
        Ok(self.memory.at_least(self.bytes() + groups + self.more_bytes(keys.len()))?)
    }

    /// What so many rows take beside keys, at most: what grows is there twice for a moment.
    fn more_bytes(&self, rows: usize) -> u64 {
        let states: u64 = self.accumulators.iter().map(|accumulator| accumulator.bytes()).sum();
        let all = self.met.len() + rows;
        let grown = if all > self.sized { 2 * states + (2 * GROUP_BYTES * all) as u64 } else { 0 };
        let places = if self.groups.len() + rows > self.places.capacity() { 8 * (self.groups.len() + rows) } else { 0 };
        grown + (places + ROW_BYTES * rows) as u64 + STATE_BYTES * (rows * self.accumulators.len()) as u64
    }

    /// What is taken now.
    fn bytes(&self) -> u64 {
        let accumulators: u64 = self.accumulators.iter().map(|accumulator| accumulator.bytes()).sum();
        let numbers = [&self.places, &self.met, &self.numbers, &self.placed].map(|numbers| 4 * numbers.capacity());
        let of_groups = (numbers.iter().sum::<usize>() + 8 * self.counts.capacity()) as u64;
        self.groups.bytes() + accumulators + of_groups + self.marks.bytes() + self.known.bytes()
    }
}
