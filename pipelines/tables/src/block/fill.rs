//! Writing the buffers of a message where they will be read.

use arrow_buffer::bit_mask::set_bits;
use arrow_buffer::{BooleanBuffer, Buffer};
use exobus_shuffle::kernels::prefetch;

use super::column::{Column, Values, elements, fixed_elements};
use super::padded;
use super::picks::{FILLER, NULL, Picks, Span};
use crate::raw::ByteRanges;

/// Why there are not too many elements.
const MEASURED: &str = "as many elements as were measured";

/// The body of a message, written from its beginning.
pub(super) struct Body<'a> {
    /// What is left of it.
    rest: &'a mut [u8],
    /// What is left of its arrays and buffers, as they were measured.
    nodes: std::slice::Iter<'a, (u64, u64)>,
    buffers: std::slice::Iter<'a, u64>,
}

impl<'a> Body<'a> {
    pub(super) fn new(bytes: &'a mut [u8], nodes: &'a [(u64, u64)], buffers: &'a [u64]) -> Self {
        Self { rest: bytes, nodes: nodes.iter(), buffers: buffers.iter() }
    }

    /// The next buffer, of which every byte is to be written; what is behind it up to the next one is zero.
    fn buffer(&mut self) -> &'a mut [u8] {
        let bytes = *self.buffers.next().expect("as many buffers as were measured");
        let (mut buffer, rest) = std::mem::take(&mut self.rest).split_at_mut(padded(bytes) as usize);
        let padding;
        (buffer, padding) = buffer.split_at_mut(bytes as usize);
        padding.fill(0);
        self.rest = rest;
        buffer
    }

    /// When all columns were written: that nothing is left of what was measured.
    pub(super) fn end(self) {
        let left = (self.rest.len(), self.nodes.len(), self.buffers.len());
        assert_eq!(left, (0, 0, 0), "bytes, arrays and buffers that were measured and not written");
    }

    /// Writes a column of which these rows are taken.
    pub(super) fn add<P: Picks>(&mut self, column: &Column, picks: P) {
        match column.levels.len() {
            0 => self.add_plain(column, picks),
            _ => {
                let spans = column.behind(picks, usize::MAX).expect(MEASURED);
                self.add_plain(column, spans.as_slice());
            }
        }
    }

    fn add_plain<P: Picks>(&mut self, column: &Column, picks: P) {
        let (_, nulls) = *self.nodes.next().expect("as many arrays as were measured");
        if matches!(column.values, Values::Null) {
            return;
        }
        let valid = self.buffer();
        if nulls > 0 {
            validity(column, picks, valid);
        }
        match &column.values {
            Values::Null => (),
            Values::Bits(values) => bits(values, picks, valid, self.buffer()),
            Values::Fixed(width, values) => fixed(*width, values, picks, valid, self.buffer()),
            Values::Bytes { wide, ranges } => {
                let (offsets, bytes) = (self.buffer(), self.buffer());
                match wide {
                    true => text(ranges, picks, valid, offsets.as_chunks_mut::<8>().0, |end| end.to_le_bytes(), bytes),
                    false => {
                        let narrow = |end: u64| (end as u32).to_le_bytes();
                        text(ranges, picks, valid, offsets.as_chunks_mut::<4>().0, narrow, bytes);
                    }
                }
            }
            Values::Lists { wide, ranges, child } => {
                let offsets = self.buffer();
                let len = |source: usize, row| ranges[source].get(row).1 as u64;
                match wide {
                    true => ends(len, picks, valid, offsets.as_chunks_mut::<8>().0, |end| end.to_le_bytes()),
                    false => {
                        ends(len, picks, valid, offsets.as_chunks_mut::<4>().0, |end| (end as u32).to_le_bytes());
                    }
                }
                self.add(child, elements(&column.nulls, ranges, picks, usize::MAX).expect(MEASURED).as_slice());
            }
            Values::FixedLists(size, child) => {
                self.add(child, fixed_elements(*size, &column.nulls, picks, usize::MAX).expect(MEASURED).as_slice())
            }
            Values::Struct(children) => match nulls > 0 || P::MAY_BE_OF_NONE {
                true => {
                    let spans = fixed_elements(1, &column.nulls, picks, usize::MAX).expect(MEASURED);
                    children.iter().for_each(|child| self.add(child, spans.as_slice()));
                }
                false => children.iter().for_each(|child| self.add(child, picks)),
            },
        }
    }
}

/// Whether the row at `at` of the message is null; `valid` is empty where none is.
#[inline(always)]
fn is_null(valid: &[u8], at: usize) -> bool {
    !valid.is_empty() && valid[at / 8] >> (at % 8) & 1 == 0
}

#[inline(always)]
fn set_bit(bits: &mut [u8], at: usize, bit: bool) {
    bits[at / 8] |= u8::from(bit) << (at % 8);
}

fn validity<P: Picks>(column: &Column, picks: P, valid: &mut [u8]) {
    let (nulls, mut at) = (&column.nulls.of, 0);
    if !P::MAY_BE_OF_NONE {
        let (mut byte, mut bytes) = (0, valid.iter_mut());
        picks.each(|span| {
            let is_valid = nulls[span.source()].as_ref().is_none_or(|nulls| nulls.is_valid(span.start as usize));
            byte |= u8::from(is_valid) << (at % 8);
            at += 1;
            if at % 8 == 0 {
                *bytes.next().expect("a bit for each row") = std::mem::take(&mut byte);
            }
        });
        bytes.for_each(|last| *last = byte);
        return;
    }
    valid.fill(0);
    picks.each(|span| {
        let len = span.len as usize;
        match (span.source, span.is_of_a_source().then(|| nulls[span.source()].as_ref())) {
            (NULL, _) => (),
            (_, Some(Some(nulls))) if len == 1 => set_bit(valid, at, nulls.is_valid(span.start as usize)),
            (_, Some(Some(nulls))) => copy_bits(nulls.inner(), span, valid, at),
            _ => (at..at + len).for_each(|at| set_bit(valid, at, true)),
        }
        at += len;
    });
}

fn bits<P: Picks>(values: &[BooleanBuffer], picks: P, valid: &[u8], out: &mut [u8]) {
    out.fill(0);
    let mut at = 0;
    picks.each(|span| {
        match span.is_of_a_source() {
            true if span.len == 1 => set_bit(out, at, values[span.source()].value(span.start as usize)),
            true => copy_bits(&values[span.source()], span, out, at),
            false => (),
        }
        at += span.len as usize;
    });
    out.iter_mut().zip(valid).for_each(|(bits, valid)| *bits &= valid);
}

fn copy_bits(from: &BooleanBuffer, span: Span, out: &mut [u8], at: usize) {
    set_bits(out, from.values(), at, from.offset() + span.start as usize, span.len as usize);
}

/// Values of so many bytes each; zeros where one is null.
pub(super) fn fixed<P: Picks>(width: usize, values: &[Buffer], picks: P, valid: &[u8], out: &mut [u8]) {
    match width {
        0 => return,
        1 => wide::<1, P>(values, picks, out),
        2 => wide::<2, P>(values, picks, out),
        4 => wide::<4, P>(values, picks, out),
        8 => wide::<8, P>(values, picks, out),
        16 => wide::<16, P>(values, picks, out),
        32 => wide::<32, P>(values, picks, out),
        _ => {
            let mut rest = &mut *out;
            picks.each(|span| {
                let to = rest.split_off_mut(..span.len as usize * width).expect("as much room as was measured");
                match span.is_of_a_source() {
                    true => to.copy_from_slice(&values[span.source()][span.start as usize * width..][..to.len()]),
                    false => to.fill(0),
                }
            });
        }
    }
    for (byte, valid) in valid.iter().enumerate() {
        let mut nulls = !valid;
        while nulls != 0 {
            let at = byte * 8 + nulls.trailing_zeros() as usize;
            nulls &= nulls - 1;
            // Behind the last row there are bits, too.
            if let Some(under) = out.get_mut(at * width..(at + 1) * width) {
                under.fill(0);
            }
        }
    }
}

fn wide<const WIDTH: usize, P: Picks>(values: &[Buffer], picks: P, out: &mut [u8]) {
    let values: Vec<&[[u8; WIDTH]]> = values.iter().map(|values| values.as_slice().as_chunks::<WIDTH>().0).collect();
    picks.copy(&values, [0; WIDTH], out.as_chunks_mut::<WIDTH>().0);
}

/// Offsets and bytes.
fn text<const WIDTH: usize, P: Picks>(
    ranges: &[ByteRanges],
    picks: P,
    valid: &[u8],
    offsets: &mut [[u8; WIDTH]],
    encoded: impl Fn(u64) -> [u8; WIDTH],
    bytes: &mut [u8],
) {
    let (mut row, mut end) = (0, 0);
    offsets[0] = encoded(0);
    let later = |span: Span| prefetch(ranges[span.source()].said_at(span.start as usize));
    let soon = |span: Span| prefetch(ranges[span.source()].get(span.start as usize));
    picks.each_ahead(later, soon, |span| {
        for from in span.rows() {
            if span.is_of_a_source() && !is_null(valid, row) {
                let value = ranges[span.source()].get(from);
                bytes[end..end + value.len()].copy_from_slice(value);
                end += value.len();
            }
            row += 1;
            offsets[row] = encoded(end as u64);
        }
    });
}

/// Offsets alone: of rows that have so many elements.
fn ends<const WIDTH: usize, P: Picks>(
    len: impl Fn(usize, usize) -> u64,
    picks: P,
    valid: &[u8],
    offsets: &mut [[u8; WIDTH]],
    encoded: impl Fn(u64) -> [u8; WIDTH],
) {
    let (mut row, mut end) = (0, 0);
    offsets[0] = encoded(0);
    picks.each(|span| {
        debug_assert!(span.is_of_a_source() || span.source == FILLER || span.source == NULL);
        for from in span.rows() {
            if span.is_of_a_source() && !is_null(valid, row) {
                end += len(span.source(), from);
            }
            row += 1;
            offsets[row] = encoded(end);
        }
    });
}
