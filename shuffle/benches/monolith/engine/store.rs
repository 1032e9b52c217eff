//! Which segment holds what: free, of a bucket, on its way to the disk or back. One lock; it is taken per segment.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use exobus_shuffle::kernels::sort_scratch_bytes;
use exobus_shuffle::records::RECORD_BYTES;

use super::layout::{Layout, SORTERS};
use super::{Failure, Passed};

/// Memory for records.
pub(super) type Segment<'a> = &'a mut [u8];

/// A segment and how many of its bytes are records.
pub(super) type Piece<'a> = (Segment<'a>, usize);

/// All segments and all buckets.
pub(super) struct Store<'a> {
    state: Mutex<State<'a>>,
    changed: Condvar,
    segment_bytes: usize,
}

struct State<'a> {
    /// The last one given back is the first one taken: it may still be in the caches.
    free: Vec<Segment<'a>>,
    buckets: Vec<Bucket<'a>>,
    /// Buckets in the order in which they will be sorted, and how many of them, from the front, may stay in memory.
    order: Vec<usize>,
    in_memory: usize,
    /// Full segments of buckets that may not.
    to_write: VecDeque<(usize, Segment<'a>)>,
    writing: usize,
    reserve: usize,
    /// No more segments will be written.
    scattered: bool,
    /// Index in `order` of the bucket that is loaded next.
    loading: usize,
    failure: Option<Failure>,
    failed: bool,
}

#[derive(Default)]
struct Bucket<'a> {
    pieces: Vec<Piece<'a>>,
    /// Offsets of its segments in the spill file; those loaded are taken from the end.
    spilled: Vec<u64>,
    spills: bool,
    /// Segments that are being loaded.
    arriving: usize,
    bytes: u64,
}

impl<'a> Store<'a> {
    pub(super) fn new(layout: &Layout, segments: Vec<Segment<'a>>) -> Store<'a> {
        let order = layout.order();
        let state = State {
            // Memory is touched front to back.
            free: segments.into_iter().rev().collect(),
            buckets: order.iter().map(|_| Bucket::default()).collect(),
            in_memory: order.len(),
            order,
            to_write: VecDeque::new(),
            writing: 0,
            reserve: layout.reserve,
            scattered: false,
            loading: 0,
            failure: None,
            failed: false,
        };
        Store { state: Mutex::new(state), changed: Condvar::new(), segment_bytes: layout.segment_bytes }
    }

    /// A free segment, as soon as there is one.
    pub(super) fn take(&self) -> Result<Segment<'a>, Failure> {
        let mut state = self.lock();
        loop {
            state.check()?;
            if state.make_room() {
                self.changed.notify_all();
            }
            match state.free.pop() {
                Some(segment) => return Ok(segment),
                None => state = self.wait(state),
            }
        }
    }

    /// Takes a full segment of `bucket`.
    pub(super) fn add_full(&self, bucket: usize, segment: Segment<'a>) {
        let mut state = self.lock();
        state.buckets[bucket].bytes += segment.len() as u64;
        if state.buckets[bucket].spills {
            state.to_write.push_back((bucket, segment));
            self.changed.notify_all();
        } else {
            let bytes = segment.len();
            state.buckets[bucket].pieces.push((segment, bytes));
        }
    }

    /// Takes the last segment of `bucket`, which stays in memory.
    pub(super) fn add_last(&self, bucket: usize, (segment, filled): Piece<'a>) {
        let mut state = self.lock();
        state.buckets[bucket].bytes += filled as u64;
        match filled {
            0 => state.free.push(segment),
            _ => state.buckets[bucket].pieces.push((segment, filled)),
        }
    }

    /// Nothing will be added any more.
    pub(super) fn end_scatter(&self) {
        self.lock().scattered = true;
        self.changed.notify_all();
    }

    /// The next segment to write; `None` when there will be none.
    pub(super) fn next_to_write(&self) -> Option<(usize, Segment<'a>)> {
        let mut state = self.lock();
        loop {
            if let Some(next) = state.to_write.pop_front() {
                state.writing += 1;
                return Some(next);
            }
            if state.scattered || state.failed {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// The segment, of `bucket`, is on disk at `offset`, and free again.
    pub(super) fn written(&self, bucket: usize, segment: Segment<'a>, offset: u64) {
        let mut state = self.lock();
        state.writing -= 1;
        state.buckets[bucket].spilled.push(offset);
        state.free.push(segment);
        self.changed.notify_all();
    }

    /// Whether each bucket can be brought into memory, and its scratch allocated.
    pub(super) fn check_room(&self, layout: &Layout) -> Result<(), Failure> {
        let state = self.lock();
        let stuck = state.buckets.iter().filter(|bucket| bucket.spills).map(|bucket| bucket.pieces.len());
        let stuck = stuck.sum::<usize>();
        let largest = state.buckets.iter().map(|bucket| bucket.spilled.len()).max().unwrap_or(0);
        let scratch = (sort_scratch_bytes(state.largest_rows()) * SORTERS) as u64;
        if stuck + largest > layout.segments || scratch > layout.scratch_bytes.max(1 << 20) {
            let rows = state.largest_rows();
            let text =
                format!("memory is too little for {rows} rows between two cuts: too many keys are equal or alike");
            return Err(Failure::Memory(text));
        }
        Ok(())
    }

    /// Rows of the largest bucket.
    pub(super) fn largest_rows(&self) -> usize {
        self.lock().largest_rows()
    }

    /// Bytes of all records of `buckets`.
    pub(super) fn bytes_of(&self, buckets: std::ops::Range<usize>) -> u64 {
        self.lock().buckets[buckets].iter().map(|bucket| bucket.bytes).sum()
    }

    /// What to read next, and where to; `None` when all is loaded.
    pub(super) fn next_to_load(&self) -> Result<Option<(usize, u64, Segment<'a>)>, Failure> {
        let mut state = self.lock();
        loop {
            state.check()?;
            while let Some(bucket) = state.order.get(state.loading).copied() {
                if !state.buckets[bucket].spilled.is_empty() {
                    break;
                }
                state.loading += 1;
            }
            let Some(bucket) = state.order.get(state.loading).copied() else { return Ok(None) };
            if let Some(segment) = state.free.pop() {
                let bucket_state = &mut state.buckets[bucket];
                let offset = bucket_state.spilled.pop().expect("not empty, see above");
                bucket_state.arriving += 1;
                return Ok(Some((bucket, offset, segment)));
            }
            state = self.wait(state);
        }
    }

    /// A segment of `bucket` has been read.
    pub(super) fn loaded(&self, bucket: usize, segment: Segment<'a>) {
        let mut state = self.lock();
        let bytes = segment.len();
        let bucket = &mut state.buckets[bucket];
        bucket.arriving -= 1;
        bucket.pieces.push((segment, bytes));
        if bucket.arriving == 0 && bucket.spilled.is_empty() {
            self.changed.notify_all();
        }
    }

    /// All records of `bucket`, as soon as they are in memory.
    pub(super) fn collect(&self, bucket: usize) -> Result<Vec<Piece<'a>>, Failure> {
        let mut state = self.lock();
        loop {
            state.check()?;
            let wanted = &mut state.buckets[bucket];
            if wanted.arriving == 0 && wanted.spilled.is_empty() {
                return Ok(std::mem::take(&mut wanted.pieces));
            }
            state = self.wait(state);
        }
    }

    /// Takes segments back.
    pub(super) fn give_back(&self, pieces: Vec<Piece<'a>>) {
        self.lock().free.extend(pieces.into_iter().map(|(segment, _)| segment));
        self.changed.notify_all();
    }

    /// Notes why the sort cannot go on; everybody who waits, or comes to wait, is told.
    pub(super) fn fail(&self, failure: Failure) {
        let mut state = self.lock();
        if !state.failed && !matches!(failure, Failure::Stopped) {
            state.failure = Some(failure);
            state.failed = true;
        }
        self.changed.notify_all();
    }

    /// An error when somebody has failed.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.lock().check()
    }

    /// `passed`, or what has failed.
    pub(super) fn outcome(&self, passed: Passed) -> Result<Passed, Failure> {
        let mut state = self.lock();
        state.failure.take().map_or_else(|| state.check().map(|()| passed), Err)
    }

    /// Bytes of a segment.
    pub(super) fn segment_bytes(&self) -> u64 {
        self.segment_bytes as u64
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        // A thread that panics ends the program when it is joined; until then nothing is decided by what it left.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, state: MutexGuard<'g, State<'a>>) -> MutexGuard<'g, State<'a>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl State<'_> {
    fn check(&self) -> Result<(), Failure> {
        if self.failed { Err(Failure::Stopped) } else { Ok(()) }
    }

    fn largest_rows(&self) -> usize {
        let bytes = self.buckets.iter().map(|bucket| bucket.bytes).max().unwrap_or(0);
        (bytes / RECORD_BYTES as u64) as usize
    }

    /// Sends buckets to the disk, the last to be sorted first, until enough segments are free or will be; true when
    /// there is something to write now.
    fn make_room(&mut self) -> bool {
        let mut found = false;
        while self.in_memory > 0 && self.free.len() + self.to_write.len() + self.writing < self.reserve {
            self.in_memory -= 1;
            let bucket = self.order[self.in_memory];
            self.buckets[bucket].spills = true;
            let pieces = std::mem::take(&mut self.buckets[bucket].pieces);
            found |= !pieces.is_empty();
            self.to_write.extend(pieces.into_iter().map(|(segment, _)| (bucket, segment)));
        }
        found
    }
}
