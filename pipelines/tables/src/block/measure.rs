//! How long the buffers of a message will be.

use exobus_shuffle::kernels::prefetch;

use super::ALIGNMENT;
use super::column::{Column, Values, elements, fixed_elements};
use super::picks::{NULL, Picks, Span};

/// Arrays (length and nulls) and buffers (bytes) of a message, in the order of the format.
#[derive(Clone, Debug, Default)]
pub(super) struct Measure {
    pub(super) nodes: Vec<(u64, u64)>,
    pub(super) buffers: Vec<u64>,
    /// Bytes of the message so far, and how many are too many.
    bytes: u64,
    bytes_max: u64,
    /// How many spans of elements are noted at most, at each level of nesting.
    spans_max: usize,
}

/// Why rows are no message.
pub(super) enum Refused {
    /// More elements or bytes than the offsets of a column can count or a message may have, or more spans than are noted.
    TooMany,
    /// A null in the column of this path, which says that it has none.
    Null(String),
}

impl Measure {
    /// Of a message with a header of so many bytes; it is measured no further when it has more than `bytes_max`, or spans than `spans_max`.
    pub(super) fn new(header_bytes: u64, bytes_max: u64, spans_max: usize) -> Self {
        Self { bytes: header_bytes, bytes_max, spans_max, ..Self::default() }
    }

    /// Length of the message.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn buffer(&mut self, bytes: u64) -> Result<(), Refused> {
        let padded = bytes.checked_next_multiple_of(ALIGNMENT as u64);
        let whole = padded.and_then(|padded| self.bytes.checked_add(padded)).filter(|whole| *whole <= self.bytes_max);
        self.bytes = whole.ok_or(Refused::TooMany)?;
        self.buffers.push(bytes);
        Ok(())
    }

    /// Adds a column of which these rows are written.
    pub(super) fn add<P: Picks>(&mut self, column: &Column, picks: P) -> Result<(), Refused> {
        match column.levels.len() {
            0 => self.add_plain(column, picks),
            _ => {
                let spans = column.behind(picks, self.spans_max).ok_or(Refused::TooMany)?;
                self.add_plain(column, spans.as_slice())
            }
        }
    }

    fn add_plain<P: Picks>(&mut self, column: &Column, picks: P) -> Result<(), Refused> {
        let rows = picks.rows();
        if matches!(column.values, Values::Null) {
            self.nodes.push((rows, rows));
            return Ok(());
        }
        let nulls = nulls(column, picks);
        self.nodes.push((rows, nulls));
        if let (Some(path), 1..) = (&column.required, nulls) {
            return Err(Refused::Null(path.clone()));
        }
        self.buffer(if nulls > 0 { rows.div_ceil(8) } else { 0 })?;
        match &column.values {
            Values::Null => (),
            Values::Bits(_) => self.buffer(rows.div_ceil(8))?,
            Values::Fixed(width, _) => self.buffer(rows.checked_mul(*width as u64).ok_or(Refused::TooMany)?)?,
            Values::Bytes { wide, ranges } => {
                let mut bytes = 0;
                let later = |span: Span| prefetch(ranges[span.source()].said_at(span.start as usize));
                picks.each_ahead(
                    later,
                    |_| (),
                    |span| {
                        if span.is_of_a_source() {
                            let source = span.source();
                            for row in span.rows().filter(|row| nulls == 0 || !column.nulls.is_null(source, *row)) {
                                bytes += ranges[source].bytes_of(row) as u64;
                            }
                        }
                    },
                );
                self.buffer(offsets(rows, *wide, bytes)?)?;
                self.buffer(bytes)?;
            }
            Values::Lists { wide, ranges, child } => {
                let spans = elements(&column.nulls, ranges, picks, self.spans_max).ok_or(Refused::TooMany)?;
                self.buffer(offsets(rows, *wide, spans.as_slice().rows())?)?;
                self.add(child, spans.as_slice())?;
            }
            Values::FixedLists(size, child) => {
                let spans = fixed_elements(*size, &column.nulls, picks, self.spans_max).ok_or(Refused::TooMany)?;
                self.add(child, spans.as_slice())?;
            }
            Values::Struct(children) => match nulls > 0 || P::MAY_BE_OF_NONE {
                true => {
                    let spans = fixed_elements(1, &column.nulls, picks, self.spans_max).ok_or(Refused::TooMany)?;
                    children.iter().try_for_each(|child| self.add(child, spans.as_slice()))?;
                }
                false => children.iter().try_for_each(|child| self.add(child, picks))?,
            },
        }
        Ok(())
    }
}

/// How many of the rows are null.
fn nulls<P: Picks>(column: &Column, picks: P) -> u64 {
    let mut nulls = 0;
    if column.nulls.any || P::MAY_BE_OF_NONE {
        picks.each(|span| nulls += nulls_of(column, span));
    }
    nulls
}

#[inline(always)]
fn nulls_of(column: &Column, span: Span) -> u64 {
    match span.source {
        NULL => u64::from(span.len),
        _ if !span.is_of_a_source() || !column.nulls.any => 0,
        _ => span.rows().map(|row| u64::from(column.nulls.is_null(span.source(), row))).sum(),
    }
}

/// Bytes of the offsets of so many rows that count up to `last`.
fn offsets(rows: u64, wide: bool, last: u64) -> Result<u64, Refused> {
    match wide {
        true => Ok((rows + 1) * 8),
        false if last <= i32::MAX as u64 => Ok((rows + 1) * 4),
        false => Err(Refused::TooMany),
    }
}
