//! Which rows are taken, and which elements of nested columns follow from that.

use exobus_shuffle::kernels::prefetch_value;

use crate::ELEMENTS_MAX;

/// A row: which batch, and which row of it, both from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The batch.
    pub batch: u32,
    /// Its row.
    pub row: u32,
}

impl Pick {
    #[inline(always)]
    fn span(self) -> Span {
        Span { source: self.batch, len: 1, start: u64::from(self.row) }
    }
}

/// Consecutive rows of one source of a column, or rows of none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Which source; [`FILLER`] or [`NULL`].
    pub(super) source: u32,
    /// How many.
    pub(super) len: u32,
    /// The first.
    pub(super) start: u64,
}

/// In place of a source: rows that nobody sees, under a null of what is around them. They are zeros, not nulls, since their column may have none.
pub(super) const FILLER: u32 = u32::MAX;
/// In place of a source: nulls.
pub(super) const NULL: u32 = u32::MAX - 1;
/// Sources, so that the two above are none.
pub(super) const SOURCES_MAX: usize = NULL as usize;

/// Rows of a column, in the order in which they are written.
pub(super) trait Picks: Copy {
    /// Whether there may be rows of no source.
    const MAY_BE_OF_NONE: bool;
    /// Calls `each` for all of them, in their order.
    fn each(self, each: impl FnMut(Span));
    /// As [`each`](Self::each); `soon` is called some rows ahead, and `later` four times as many, where rows are one by one: their addresses are random, so memory is asked for
    /// before it is needed, and before that what says where it is.
    fn each_ahead(self, later: impl FnMut(Span), soon: impl FnMut(Span), each: impl FnMut(Span));
    /// How many there are.
    fn rows(self) -> u64;
    /// Copies values of the sources, one for each row; those of none are `filler`.
    fn copy<T: Copy>(self, sources: &[&[T]], filler: T, out: &mut [T]);
}

/// Rows between asking for memory and using it: latency of memory over the time that a row takes.
const AHEAD: usize = 16;

impl Picks for &[Pick] {
    const MAY_BE_OF_NONE: bool = false;

    #[inline(always)]
    fn each(self, mut each: impl FnMut(Span)) {
        self.iter().for_each(|pick| each(pick.span()));
    }

    #[inline(always)]
    fn each_ahead(self, mut later: impl FnMut(Span), mut soon: impl FnMut(Span), mut each: impl FnMut(Span)) {
        self.iter().take(4 * AHEAD).for_each(|pick| later(pick.span()));
        self.iter().take(AHEAD).for_each(|pick| soon(pick.span()));
        for (at, pick) in self.iter().enumerate() {
            if let Some(pick) = self.get(at + 4 * AHEAD) {
                later(pick.span());
            }
            if let Some(pick) = self.get(at + AHEAD) {
                soon(pick.span());
            }
            each(pick.span());
        }
    }

    fn rows(self) -> u64 {
        self.len() as u64
    }

    fn copy<T: Copy>(self, sources: &[&[T]], _: T, out: &mut [T]) {
        for (at, (out, pick)) in out.iter_mut().zip(self).enumerate() {
            if let Some(later) = self.get(at + 4 * AHEAD) {
                prefetch_value(&sources[later.batch as usize][later.row as usize]);
            }
            *out = sources[pick.batch as usize][pick.row as usize];
        }
    }
}

impl Picks for &[Span] {
    const MAY_BE_OF_NONE: bool = true;

    #[inline(always)]
    fn each(self, mut each: impl FnMut(Span)) {
        for span in self {
            each(*span);
        }
    }

    #[inline(always)]
    fn each_ahead(self, _: impl FnMut(Span), _: impl FnMut(Span), each: impl FnMut(Span)) {
        self.each(each);
    }

    fn rows(self) -> u64 {
        self.iter().map(|span| u64::from(span.len)).sum()
    }

    fn copy<T: Copy>(self, sources: &[&[T]], filler: T, mut out: &mut [T]) {
        for span in self {
            let to = out.split_off_mut(..span.len as usize).expect("as much room as was measured");
            match span.is_of_a_source() {
                true => to.copy_from_slice(&sources[span.source()][span.rows()]),
                false => to.fill(filler),
            }
        }
    }
}

impl Span {
    /// The rows of it, one by one.
    #[inline(always)]
    pub(super) fn rows(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }

    /// Whether its rows are of a source.
    #[inline(always)]
    pub(super) fn is_of_a_source(self) -> bool {
        self.source < NULL
    }

    #[inline(always)]
    pub(super) fn source(self) -> usize {
        self.source as usize
    }
}

/// Spans that are put together one behind the other; those that touch become one.
#[derive(Debug)]
pub(super) struct Spans {
    spans: Vec<Span>,
    /// How many are noted at most.
    most: usize,
    /// Whether there were more.
    are_more: bool,
    /// How many there are, also those that were too many to be noted.
    rows: u64,
}

impl Spans {
    /// None yet, and so many at most.
    pub(super) fn new(most: usize) -> Self {
        Self { spans: Vec::new(), most, are_more: false, rows: 0 }
    }

    pub(super) fn push(&mut self, source: u32, start: u64, mut len: u64) {
        let mut start = start;
        self.rows = self.rows.saturating_add(len);
        if self.rows > ELEMENTS_MAX {
            return;
        }
        if let Some(last) = self.spans.last_mut()
            && last.source == source
            && (source >= NULL || last.start + u64::from(last.len) == start)
        {
            let more = len.min(u64::from(u32::MAX - last.len));
            last.len += more as u32;
            (start, len) = (start + more, len - more);
        }
        self.are_more |= len > 0 && self.spans.len() >= self.most;
        while len > 0 && !self.are_more {
            let some = len.min(u64::from(u32::MAX));
            self.spans.push(Span { source, len: some as u32, start });
            (start, len) = (start + some, len - some);
        }
    }

    /// `None`: more rows than [`ELEMENTS_MAX`], or more spans than are noted.
    pub(super) fn not_too_many(self) -> Option<Self> {
        (self.rows <= ELEMENTS_MAX && !self.are_more).then_some(self)
    }

    pub(super) fn as_slice(&self) -> &[Span] {
        &self.spans
    }
}
