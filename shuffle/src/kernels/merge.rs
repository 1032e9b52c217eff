//! Merge: many sorted runs into one, a piece at a time.
//!
//! A loser tree holds one `u128` per run: the 10-byte key of its next record in the high 80 bits, the run's index
//! below. Entries differ all and compare as (key, run), so equal keys come out in the order of the runs and, inside a
//! run, in its own: the merge is stable. Each record costs one walk from leaf to root, log2(runs) comparisons without
//! branches, and one copy during which it is hashed.
//!
//! Runs are [`RunSource`]s: a slice ([`SliceRun`]), or a stream that is read through a window ([`ReadRun`]), so that
//! runs larger than memory merge in a fixed amount of it.

use std::io;
use std::ops::DerefMut;

use super::memory::prefetch_ahead;
use crate::records::hash::hash_number;
use crate::records::{RECORD_BYTES, Record, RowHash, as_records_mut, key_number};

/// How far ahead of its next record a run asks for lines: hundreds of runs are too many for the hardware to follow.
const AHEAD_BYTES: usize = 5 * RECORD_BYTES;

/// A sorted run, given window after window.
///
/// Implementers owe: windows are whole numbers of records, follow each other in key order without gap or repetition,
/// and do not change between two refills; the first window may be empty before the first refill.
pub trait RunSource {
    /// The records of the present window.
    fn window(&self) -> &[u8];

    /// Replaces the window, all of which has been used, by the next one. False, with an empty window, at the end of the
    /// run; then it is not called again.
    ///
    /// # Errors
    /// Whatever reading fails with; a run that ends in the middle of a record is `UnexpectedEof`.
    fn refill(&mut self) -> io::Result<bool>;
}

impl<S: RunSource + ?Sized> RunSource for Box<S> {
    fn window(&self) -> &[u8] {
        (**self).window()
    }

    fn refill(&mut self) -> io::Result<bool> {
        (**self).refill()
    }
}

/// A run that lies in memory.
#[derive(Debug, Clone, Copy)]
pub struct SliceRun<'a> {
    window: &'a [u8],
}

impl<'a> SliceRun<'a> {
    /// The run `bytes`.
    ///
    /// # Panics
    /// When the length is not a multiple of the record size.
    pub fn new(bytes: &'a [u8]) -> SliceRun<'a> {
        assert!(bytes.len().is_multiple_of(RECORD_BYTES), "{} bytes are no whole number of records", bytes.len());
        SliceRun { window: bytes }
    }
}

impl RunSource for SliceRun<'_> {
    #[inline(always)]
    fn window(&self) -> &[u8] {
        self.window
    }

    fn refill(&mut self) -> io::Result<bool> {
        self.window = &[];
        Ok(false)
    }
}

/// A run that is read from a stream through memory of the caller's.
#[derive(Debug)]
pub struct ReadRun<R, B> {
    reader: R,
    buffer: B,
    len: usize,
}

impl<R: io::Read, B: DerefMut<Target = [u8]>> ReadRun<R, B> {
    /// Reads `reader` in windows of as many records as `buffer` holds.
    ///
    /// # Panics
    /// When `buffer` does not hold one record.
    pub fn new(reader: R, buffer: B) -> ReadRun<R, B> {
        assert!(buffer.len() >= RECORD_BYTES, "a window of {} bytes holds no record", buffer.len());
        ReadRun { reader, buffer, len: 0 }
    }
}

impl<R: io::Read, B: DerefMut<Target = [u8]>> RunSource for ReadRun<R, B> {
    #[inline(always)]
    fn window(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    fn refill(&mut self) -> io::Result<bool> {
        let room = self.buffer.len() / RECORD_BYTES * RECORD_BYTES;
        self.len = 0;
        let mut filled = 0usize;
        // A whole record is enough: waiting for a full window would delay the merge for nothing.
        while filled == 0 || !filled.is_multiple_of(RECORD_BYTES) {
            match self.reader.read(&mut self.buffer[filled..room]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => {
                    let left = filled % RECORD_BYTES;
                    let text = format!("the run ends {left} bytes into a record");
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.len = filled;
        Ok(true)
    }
}

/// A merge under way.
#[derive(Debug)]
pub struct Merge<S> {
    runs: Vec<S>,
    /// Byte offset of each run's next record in its window.
    at: Vec<usize>,
    /// The loser of each match; a tree in an array, the children of match `i` are `2i` and `2i + 1`.
    losers: Vec<u128>,
    /// The run whose record is next, with its key; [`DONE`] when all runs are at their end.
    winner: u128,
    rows: u64,
    sum: u128,
}

/// The entry of a run at its end: above every key.
const DONE: u128 = u128::MAX;
#[cold]
fn not_in_order(run: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("run {run} of a merge is not in key order"))
}

/// Bits of an entry below the key.
const RUN_BITS: u32 = 48;

impl<S: RunSource> Merge<S> {
    /// A merge of `runs`; runs with equal keys come out in this order. There may be none, and empty ones among them.
    ///
    /// # Errors
    /// Those of the runs' first refill.
    ///
    /// # Panics
    /// When a window is not a whole number of records.
    pub fn new(runs: Vec<S>) -> io::Result<Merge<S>> {
        let leaves = runs.len().next_power_of_two();
        let mut merge =
            Merge { at: vec![0; runs.len()], losers: vec![DONE; leaves], winner: DONE, runs, rows: 0, sum: 0 };
        let mut level = vec![DONE; leaves];
        for (run, entry) in level.iter_mut().enumerate().take(merge.runs.len()) {
            *entry = merge.next_entry(run)?;
        }
        // Play the first matches level by level, from the leaves to the root.
        while level.len() > 1 {
            let matches = level.len() / 2;
            for pair in 0..matches {
                let (left, right) = (level[2 * pair], level[2 * pair + 1]);
                merge.losers[matches + pair] = left.max(right);
                level[pair] = left.min(right);
            }
            level.truncate(matches);
        }
        merge.winner = level[0];
        Ok(merge)
    }

    /// Writes the next records to `out`, as many whole ones as fit, and says how many bytes that is: 0 when the merge is
    /// over (or `out` holds no record). Bytes of `out` behind those are left as they are.
    ///
    /// # Errors
    /// Those of a run's refill; `InvalidData`, a run is not in key order. The merge cannot go on after one.
    ///
    /// # Panics
    /// When a window is not a whole number of records.
    pub fn next_into(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let room = out.len() / RECORD_BYTES * RECORD_BYTES;
        let mut written = 0;
        let mut sum = self.sum;
        for slot in as_records_mut(&mut out[..room]) {
            if self.winner == DONE {
                break;
            }
            let run = self.winner as usize & ((1 << RUN_BITS) - 1);
            let at = self.at[run];
            let window = &self.runs[run].window()[at..];
            let record: &Record = window.first_chunk().expect("the winner has a record");
            prefetch_ahead(window, AHEAD_BYTES);
            prefetch_ahead(window, AHEAD_BYTES + 64);
            *slot = *record;
            sum = sum.wrapping_add(hash_number(record));
            written += RECORD_BYTES;
            self.at[run] = at + RECORD_BYTES;
            let entry = match window[RECORD_BYTES..].first_chunk() {
                Some(next) => entry_of(next, run),
                None => self.next_entry(run)?,
            };
            if entry < self.winner {
                return Err(not_in_order(run));
            }
            self.replay(run, entry);
        }
        self.sum = sum;
        self.rows += (written / RECORD_BYTES) as u64;
        Ok(written)
    }

    /// Records written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Sum of the row hashes of the records written so far.
    pub fn row_hash(&self) -> RowHash {
        RowHash(self.sum)
    }

    /// The runs, in the order they were given.
    pub fn into_runs(self) -> Vec<S> {
        self.runs
    }

    /// The entry of a run's next record, after as many refills as it takes.
    #[cold]
    fn next_entry(&mut self, run: usize) -> io::Result<u128> {
        loop {
            let window = self.runs[run].window();
            assert!(window.len().is_multiple_of(RECORD_BYTES), "run {run}: a window of {} bytes", window.len());
            if let Some(record) = window[self.at[run]..].first_chunk() {
                return Ok(entry_of(record, run));
            }
            self.at[run] = 0;
            if !self.runs[run].refill()? {
                return Ok(DONE);
            }
        }
    }

    /// Sends `entry` of `run` from its leaf to the root; what is left there is the next winner.
    #[inline(always)]
    fn replay(&mut self, run: usize, entry: u128) {
        let mut winner = entry;
        let mut at = (self.losers.len() + run) / 2;
        while at > 0 {
            let other = self.losers[at];
            // Both are written whatever the outcome: the compiler makes moves of this, no branch to mispredict.
            let other_wins = other < winner;
            self.losers[at] = if other_wins { winner } else { other };
            winner = if other_wins { other } else { winner };
            at /= 2;
        }
        self.winner = winner;
    }
}

#[inline(always)]
fn entry_of(record: &Record, run: usize) -> u128 {
    (key_number(record) << RUN_BITS) | run as u128
}
