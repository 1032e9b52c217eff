//! Runs of rows that are in order each become one, some rows at a time.
//!
//! Of each run the keys of some rows ahead are known, its *window*. What is behind a window of a run is behind the last row of that window: so all rows up to the smallest of
//! these last rows are known, and they are put in order and given out; then windows are filled again. Rows that are given out at a time are few enough for the caches of a processor, and memory for
//! keys follows from the windows and not from how many rows there are: [`merging_bytes`]. A merge that is denied memory within that fails, and its task begins again with more.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::arrangement::{Arranged, Arranger, places};
use super::entries::{ENTRY_BYTES, Entry, Rows, in_common, in_order};
use super::kept::{Decided, Kept};
use super::ordered::COLUMN_BYTES;
use super::plan::FileAbout;
use crate::TableError;
use crate::block::Pick;
use crate::jobs::budget::Unordered;
use crate::jobs::dedupe::Keep;
use crate::semantics::KeyRows;
use crate::sources::{MemoryBudget, Reservation};

/// Rows of all windows together, where none holds the others up.
const ROWS_AHEAD: usize = 1 << 16;
/// Rows of all windows together at most, where there are no more runs than have [`WINDOW_ROWS`] each.
const ROWS_MOST: usize = 2 * ROWS_AHEAD;
/// Rows of a window at least, where so many fit.
const WINDOW_ROWS: usize = 64;
/// Keys of all windows together, bytes: longer ones are in smaller windows.
const KEYS_BYTES: u64 = 16 << 20;
/// What a row takes that is given out: among those that stay or are left out, and where who gets them puts them.
const PICKED_BYTES: u64 = 4 * size_of::<Pick>() as u64;

/// Memory that merging so many parts of a file takes, bytes: keys of windows, rows of these that are put in order, and what batches take. Keys longer than what each part has of those 16 MiB take
/// more; that is asked for when it is met.
pub(super) fn merging_bytes(file: FileAbout, parts: u64) -> u64 {
    let keys = KEYS_BYTES.min(file.bytes + file.key_bytes * file.rows);
    let rows = file.rows.min(ROWS_MOST as u64 + WINDOW_ROWS as u64 * parts);
    keys + rows * (ENTRY_BYTES + PICKED_BYTES) + file.batches_bytes(parts)
}

/// See the module. The last column of batches says where in the input each row is, as of [`Ordered`](super::ordered::Ordered); what runs become is in the same order.
pub(in crate::jobs) struct Merging<'a> {
    arranger: &'a Arranger,
    budget: Arc<dyn MemoryBudget>,
    memory: Reservation,
    batches: Vec<RecordBatch>,
    runs: Vec<Run>,
    /// Rows of all windows, of each as many at least as there is always room for.
    rows: usize,
    kept: Option<Kept<Pick>>,
    /// Whether keys are given out with rows.
    with_keys: bool,
    /// It takes one of so many parts of the memory of a merge: so many work side by side.
    share: usize,
}

/// Consecutive batches.
struct Run {
    /// The batch that its window is of, and the one behind the last.
    batch: u32,
    end: u32,
    /// The first row of the window in its batch.
    from: usize,
    window: Arranged,
    /// How many rows of the window were given out.
    given: usize,
    /// How many rows a window has, where so many are left of a batch and of [`ROWS_MOST`].
    ahead: usize,
    /// What the window takes.
    bytes: u64,
}

/// Rows that are next.
#[derive(Debug)]
pub(in crate::jobs) struct Merged {
    pub(in crate::jobs) rows: Vec<Pick>,
    /// Those that are left out.
    pub(super) dropped: Vec<Pick>,
    /// The keys of `rows`, where they are wanted.
    pub(in crate::jobs) keys: KeyRows,
    /// What all of them take, and rows as much again for who puts them elsewhere.
    _memory: Reservation,
}

impl<'a> Merging<'a> {
    /// Of runs of batches. `keep`: which row of each key stays, where one stays alone.
    pub(in crate::jobs) fn new(
        arranger: &'a Arranger,
        keep: Option<Keep>,
        budget: &Arc<dyn MemoryBudget>,
        runs: impl IntoIterator<Item = Result<Vec<RecordBatch>, TableError>>,
    ) -> Result<Self, Unordered> {
        let memory = Reservation::none(budget);
        let kept = keep.map(Kept::new);
        let mut merging = Self {
            arranger,
            budget: budget.clone(),
            memory,
            batches: Vec::new(),
            runs: Vec::new(),
            rows: 0,
            kept,
            with_keys: false,
            share: 1,
        };
        for batches in runs {
            let begin = merging.batches.len() as u32;
            merging.batches.extend(batches?.into_iter().filter(|batch| batch.num_rows() > 0));
            merging.runs.push(Run::new(begin..merging.batches.len() as u32));
        }
        merging.runs.retain(|run| run.batch < run.end);
        merging.size_windows();
        let columns: u64 = merging.batches.iter().map(|batch| batch.num_columns() as u64).sum();
        merging.memory.resize(columns * COLUMN_BYTES)?;
        Ok(merging)
    }

    /// The same, which gives out keys with all rows that stay, and is one of so many that work side by side.
    ///
    /// # Panics
    /// One row of each key stays alone.
    pub(in crate::jobs) fn with_keys(self, share: usize) -> Self {
        assert!(self.kept.is_none(), "keys are given out with all rows, not with one of each key");
        let mut merging = Self { with_keys: true, share, ..self };
        merging.size_windows();
        merging
    }

    fn size_windows(&mut self) {
        let ahead = self.rows_of_each();
        self.runs.iter_mut().for_each(|run| run.ahead = ahead);
        self.rows = ahead * self.runs.len();
    }

    /// All batches, by number.
    pub(in crate::jobs) fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// The next rows; `None`: there are no more.
    pub(in crate::jobs) fn next(&mut self) -> Result<Option<Merged>, Unordered> {
        (0..self.runs.len()).try_for_each(|run| self.fill(run))?;
        let limit = self.limit();
        let taken: Vec<usize> = (0..self.runs.len()).map(|run| self.known(run, limit)).collect();
        let rows = taken.iter().sum();
        if rows == 0 {
            let last = self.kept.as_mut().and_then(Kept::end);
            let memory = Reservation::none(&self.budget);
            let keys = KeyRows::default();
            return Ok(last.map(|last| Merged { rows: vec![last], dropped: Vec::new(), keys, _memory: memory }));
        }
        let key_bytes = if self.with_keys { self.key_bytes(&taken) } else { 0 };
        let of_keys = (key_bytes + 4 * if self.with_keys { rows } else { 0 }) as u64;
        let mut memory = Reservation::of(&self.budget, rows as u64 * (ENTRY_BYTES + PICKED_BYTES) + of_keys)?;
        let mut keys = KeyRows::default();
        if self.with_keys {
            keys.reserve(rows, key_bytes);
        }
        let (given, dropped) = self.given(&taken, rows, &mut keys);
        memory.resize(rows as u64 * PICKED_BYTES + of_keys)?;
        if let Some(limit) = limit.filter(|_| rows < ROWS_AHEAD / self.share / 8) {
            // Rows of this run are next to each other in the order.
            let run = &mut self.runs[limit.run];
            run.ahead = (2 * run.ahead).min(ROWS_AHEAD / self.share);
        }
        Ok(Some(Merged { rows: given, dropped, keys, _memory: memory }))
    }

    /// How many rows of each run there is always room for.
    fn rows_of_each(&self) -> usize {
        (ROWS_AHEAD / self.share / self.runs.len().max(1)).max(WINDOW_ROWS)
    }

    /// How many bytes the keys of so many next rows of each run have.
    fn key_bytes(&self, taken: &[usize]) -> usize {
        let of_run = |(run, taken): (&Run, &usize)| {
            (run.given..run.given + taken).map(|row| run.window.keys.get(row).len()).sum::<usize>()
        };
        self.runs.iter().zip(taken).map(of_run).sum()
    }

    /// Gives out so many rows of each run: those that stay, with their keys where these are wanted, and those that are left out.
    fn given(&mut self, taken: &[usize], rows: usize, keys: &mut KeyRows) -> (Vec<Pick>, Vec<Pick>) {
        let common = self.common_bytes(taken);
        let entries = || {
            (0..).zip(&self.runs).zip(taken).flat_map(|((number, run), taken)| {
                let entry = move |row| {
                    let pick = Pick { batch: number, row: row as u32 };
                    Entry::new(&run.window.keys.get(row)[common..], pick)
                };
                (run.given..run.given + taken).map(entry)
            })
        };
        let run_of = |entry: &Entry| &self.runs[entry.pick().batch as usize];
        let (mut given, mut dropped) = (Vec::with_capacity(rows), Vec::new());
        match self.kept.take() {
            None => {
                let entries = in_order(self, rows, entries, |_| ());
                given.extend(entries.iter().map(|entry| run_of(entry).pick(*entry)));
                if self.with_keys {
                    entries
                        .iter()
                        .for_each(|entry| keys.push(run_of(entry).window.keys.get(entry.pick().row as usize)));
                }
            }
            Some(mut kept) => {
                // Rows of the first key may have been given out before, and rows of the last one may be behind what is known.
                let mut left = rows;
                in_order(self, rows, entries, |alike| {
                    let is_at_an_edge = left == rows || left == alike.len();
                    left -= alike.len();
                    match alike {
                        [entry] if !is_at_an_edge => {
                            given.extend(kept.end().into_iter().chain([run_of(entry).pick(*entry)]));
                        }
                        _ => alike.iter().for_each(|entry| {
                            let run = run_of(entry);
                            match kept.add(run.window.keys.get(entry.pick().row as usize), run.pick(*entry)) {
                                Some(Decided::Stays(row)) => given.push(row),
                                Some(Decided::Dropped(row)) => dropped.push(row),
                                None => (),
                            }
                        }),
                    }
                });
                self.kept = Some(kept);
            }
        }
        self.runs.iter_mut().zip(taken).for_each(|(run, taken)| run.given += taken);
        (given, dropped)
    }

    /// Sees to it that a run has rows in its window, where it has some.
    fn fill(&mut self, number: usize) -> Result<(), Unordered> {
        let run = &self.runs[number];
        let in_batch = self.batches[run.batch as usize].num_rows();
        let (left, is_last) = (run.window.keys.len() - run.given, run.from + run.window.keys.len() == in_batch);
        let (batch, from) = match (left, is_last) {
            (0, true) if run.batch + 1 < run.end => (run.batch + 1, 0),
            // Of a window that is filled again more than half was given out: no row has its key encoded more than twice, unless keys behind it are so long that the window gets fewer rows than were left.
            (_, false) if left < run.window.keys.len() / 2 || left == 0 => (run.batch, run.from + run.given),
            _ => return Ok(()),
        };
        // What is left of the window is encoded once more, so it needs no memory meanwhile.
        let (each, others) = (self.rows_of_each(), self.memory.bytes() - run.bytes);
        self.rows -= run.window.keys.len().max(each);
        self.runs[number].window = Arranged::default();
        self.memory.resize(others)?;
        let room = (ROWS_MOST / self.share).saturating_sub(self.rows).max(each);
        let most = KEYS_BYTES / (self.share * self.runs.len()) as u64;
        let (run, of_batch) = (&mut self.runs[number], &self.batches[batch as usize]);
        let mut rows = run.ahead.min(room).min(of_batch.num_rows() - from);
        let window = loop {
            let slice = of_batch.slice(from, rows);
            let measured = self.arranger.measure(&slice)?;
            let bytes = measured.bytes()?;
            if bytes <= most || rows == 1 {
                self.memory.resize(others + bytes)?;
                run.bytes = bytes;
                break measured.arrange()?;
            }
            // Keys near each other are as long as each other, as a rule.
            rows = rows.div_ceil(2);
            run.ahead = rows;
        };
        #[cfg(test)]
        ENCODED.with(|encoded| encoded.set(encoded.get() + rows));
        (run.batch, run.from, run.window, run.given) = (batch, from, window, 0);
        self.rows += rows.max(each);
        Ok(())
    }

    /// The smallest of the last rows of windows behind which there is more.
    fn limit(&self) -> Option<At> {
        let is_open = |run: &Run| {
            run.batch + 1 < run.end || run.from + run.window.keys.len() < self.batches[run.batch as usize].num_rows()
        };
        let open = self.runs.iter().enumerate().filter(|(_, run)| is_open(run));
        let last = open.map(|(number, run)| At { run: number, row: run.window.keys.len() - 1 });
        last.min_by(|one, other| self.compare_at(*one, *other))
    }

    /// How many rows of a window are not behind this row.
    fn known(&self, number: usize, limit: Option<At>) -> usize {
        let run = &self.runs[number];
        let (mut low, mut high) = (run.given, run.window.keys.len());
        let Some(limit) = limit else { return high - low };
        while low < high {
            let middle = low.midpoint(high);
            match self.compare_at(At { run: number, row: middle }, limit) {
                Ordering::Greater => high = middle,
                _ => low = middle + 1,
            }
        }
        low - run.given
    }

    /// How many bytes the keys of rows begin with alike that are given out: as those of the first and the last of each run.
    fn common_bytes(&self, taken: &[usize]) -> usize {
        let given = self.runs.iter().zip(taken).filter(|(_, taken)| **taken > 0);
        let mut keys = given.flat_map(|(run, taken)| [0, taken - 1].map(|row| run.window.keys.get(run.given + row)));
        let Some(first) = keys.next() else { return 0 };
        keys.fold(first.len(), |common, key| in_common(first, common, key))
    }

    fn compare_at(&self, one: At, other: At) -> Ordering {
        let row = |at: At| self.runs[at.run].window.row(at.row);
        let place = |at: At| {
            let run = &self.runs[at.run];
            places(&self.batches[run.batch as usize])[run.from + at.row]
        };
        row(one).cmp(&row(other)).then_with(|| place(one).cmp(&place(other)))
    }
}

/// Entries of runs have the number of the run for that of a batch, and the row of its window.
impl Rows for Merging<'_> {
    fn compare(&self, one: Pick, other: Pick) -> Ordering {
        let at = |pick: Pick| At { run: pick.batch as usize, row: pick.row as usize };
        self.compare_at(at(one), at(other))
    }

    fn rows(&self, pick: Pick) -> (&Arranged, usize) {
        (&self.runs[pick.batch as usize].window, pick.row as usize)
    }
}

#[cfg(test)]
thread_local! {
    /// How many rows had their keys encoded, each as often as it had.
    pub(super) static ENCODED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A row of the window of a run.
#[derive(Clone, Copy, Debug)]
struct At {
    run: usize,
    row: usize,
}

impl Run {
    fn new(batches: std::ops::Range<u32>) -> Self {
        let window = Arranged::default();
        Self { batch: batches.start, end: batches.end, from: 0, window, given: 0, ahead: 0, bytes: 0 }
    }

    /// Which row of all batches an entry is of.
    fn pick(&self, entry: Entry) -> Pick {
        Pick { batch: self.batch, row: self.from as u32 + entry.pick().row }
    }
}
