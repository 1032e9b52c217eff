//! Rows of a piece of text, as batches.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use super::super::batches::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, Pending, SourceBatch, cut, next_batch, own_bytes};
use super::super::memory::{MemoryBudget, Reservation};
use super::super::schema_text::{print_column, print_type};
use super::super::{InputFile, Misfit, Place, SourceError};
use super::bytes::{Packing, READ_BYTES, TextBytes};
use super::columns::{FieldRefused, TextColumn};
use super::dialect::{Dialect, Ends, Field, Found, TextState, find_row};
use super::values;

/// Most bytes of a row as it is written.
pub const ROW_BYTES_MAX: usize = 32 << 20;

/// Where a piece of text begins and ends in its file: rows that begin in it are its own. A packed file is one piece, whose end is not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) packing: Packing,
    pub(super) begin: u64,
    pub(super) end: Option<u64>,
}

/// Rows of a piece, one behind the other, as they are in the file.
pub(super) struct TextLines {
    file: InputFile,
    dialect: Dialect,
    piece: Piece,
    bytes: TextBytes,
    /// Bytes that were read: those behind `used` are looked at next, and the first of them is byte `at` of the text.
    window: Vec<u8>,
    used: usize,
    at: u64,
    memory: Reservation,
    is_read: bool,
    /// Line ends from the beginning of the piece to `at`.
    lines: u64,
    /// How the bytes of the piece that were read so far end.
    ends: Ends,
    read_to: u64,
    fields: Vec<Field>,
    is_over: bool,
}

/// A row: its bytes, the fields in them, and the lines between the beginning of the piece and its own.
pub(super) struct TextRow<'a> {
    bytes: &'a [u8],
    pub(super) fields: &'a [Field],
    pub(super) lines: u64,
}

impl<'a> TextRow<'a> {
    /// The text of a field, with quotes that are doubled made one in `scratch`.
    pub(super) fn text<'s>(&'s self, field: &Field, quote: Option<u8>, scratch: &'s mut Vec<u8>) -> &'s [u8] {
        let text = &self.bytes[field.begin..field.end];
        let Some(quote) = quote.filter(|_| field.doubled) else { return text };
        scratch.clear();
        let mut rest = text;
        while let Some(at) = rest.iter().position(|byte| *byte == quote) {
            scratch.extend_from_slice(&rest[..=at]);
            rest = &rest[at + 2..];
        }
        scratch.extend_from_slice(rest);
        scratch
    }

    /// Whether there is nothing in its line.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.fields, [Field { begin, end, quoted: false, .. }] if begin == end)
    }

    /// Bytes of the row.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl TextLines {
    /// Of a piece whose first byte is in that state.
    pub(super) fn new(
        file: &InputFile,
        dialect: &Dialect,
        piece: Piece,
        state: TextState,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SourceError> {
        let mut lines = Self {
            file: file.clone(),
            dialect: dialect.clone(),
            piece,
            bytes: TextBytes::new(file, piece.packing, piece.begin, budget)?,
            window: Vec::new(),
            used: 0,
            at: piece.begin,
            memory: Reservation::none(budget),
            is_read: false,
            lines: 0,
            ends: Ends::of_nothing(),
            read_to: piece.begin,
            fields: Vec::new(),
            is_over: false,
        };
        lines.pass_to_row(state)?;
        Ok(lines)
    }

    /// Passes over the rest of the row that began before the piece.
    fn pass_to_row(&mut self, mut state: TextState) -> Result<(), SourceError> {
        while state != TextState::Row {
            if self.used == self.window.len() && !self.fill(READ_BYTES)? {
                self.is_over = true;
                return Ok(());
            }
            let ahead = &self.window[self.used..];
            let mut len = 0;
            for byte in ahead {
                state = state.behind(*byte, &self.dialect);
                len += 1;
                if state == TextState::Row {
                    break;
                }
            }
            self.advance(len);
        }
        Ok(())
    }

    /// The first bytes of the piece, as far as they were read.
    pub(super) fn head(&mut self) -> Result<&[u8], SourceError> {
        if self.window.is_empty() {
            self.fill(READ_BYTES)?;
        }
        Ok(&self.window[self.used..])
    }

    /// Passes over bytes that were read.
    pub(super) fn pass(&mut self, len: usize) {
        self.advance(len);
    }

    fn advance(&mut self, len: usize) {
        let passed = &self.window[self.used..self.used + len];
        self.lines += passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.used += len;
        self.at += len as u64;
    }

    /// Reads more behind what is there; whether there was any.
    fn fill(&mut self, bytes: usize) -> Result<bool, SourceError> {
        if self.is_read {
            return Ok(false);
        }
        self.window.drain(..self.used);
        self.used = 0;
        let has = self.window.len();
        let left = match self.piece.packing {
            Packing::None => self.file.len().saturating_sub(self.read_to),
            _ => u64::MAX,
        };
        let bytes = left.min(bytes as u64) as usize;
        let denied = |denied| SourceError::Memory {
            file: self.file.name().clone(),
            place: Place::Byte(self.at),
            what: "a piece of the file",
            denied,
        };
        // While it grows, the old one is there, too.
        self.memory.at_least(2 * (has + bytes) as u64).map_err(denied)?;
        self.window.reserve_exact(bytes);
        self.window.resize(has + bytes, 0);
        let count = self.bytes.read(&mut self.window[has..])?;
        self.window.truncate(has + count);
        self.is_read = count == 0;
        let left = self.piece.end.map_or(u64::MAX, |end| end.saturating_sub(self.read_to));
        let of_piece = (count as u64).min(left) as usize;
        self.ends.extend(&self.window[has..has + of_piece], &self.dialect);
        self.read_to += count as u64;
        Ok(count > 0)
    }

    /// How the piece ends, whichever state it begins with; reads what is left of it.
    pub(super) fn ends(&mut self) -> Result<Ends, SourceError> {
        while self.piece.end.is_none_or(|end| self.read_to < end) {
            self.used = self.window.len();
            if !self.fill(READ_BYTES)? {
                break;
            }
        }
        self.is_over = true;
        Ok(self.ends)
    }

    /// The next row that begins in the piece; `None`: there is none.
    pub(super) fn next(&mut self) -> Result<Option<TextRow<'_>>, SourceError> {
        if self.is_over || self.piece.end.is_some_and(|end| self.at >= end) {
            self.is_over = true;
            return Ok(None);
        }
        let mut wanted = READ_BYTES;
        let len = loop {
            let ahead = &self.window[self.used..];
            if !ahead.is_empty() || self.is_read {
                if ahead.is_empty() {
                    self.is_over = true;
                    return Ok(None);
                }
                match find_row(ahead, self.is_read, &self.dialect, &mut self.fields) {
                    Found::Row(len) => break len,
                    Found::Part if ahead.len() > ROW_BYTES_MAX => return Err(self.too_long()?),
                    Found::Part => wanted = wanted.max(ahead.len()),
                    Found::BehindQuote(at) => return Err(self.behind_quote(at)?),
                    Found::Open(at) => return Err(self.open_quote(at, "to the end of the file")?),
                }
            }
            self.fill(wanted)?;
        };
        let (begin, lines) = (self.used, self.lines);
        self.advance(len);
        Ok(Some(TextRow { bytes: &self.window[begin..begin + len], fields: &self.fields, lines }))
    }

    /// An error at the row that is next.
    fn wrong(&self, what: String) -> Result<SourceError, SourceError> {
        Ok(SourceError::Text { file: self.file.name().clone(), line: self.line(self.lines)?, what })
    }

    fn too_long(&self) -> Result<SourceError, SourceError> {
        let ahead = &self.window[self.used..];
        let opens = |field: &Field| field.quoted && field.end >= ahead.len();
        // The field that goes on is behind those that were found.
        let at = self.fields.last().map_or(0, |field| field.end + usize::from(field.quoted) + 1);
        if self.fields.last().is_some_and(opens)
            || ahead.get(at).copied() == self.dialect.quote && self.dialect.quote.is_some()
        {
            return self.open_quote(at, &format!("within {ROW_BYTES_MAX} bytes"));
        }
        let columns = self.fields.len() + 1;
        self.wrong(format!(
            "the row, in column {columns}, has more than {ROW_BYTES_MAX} bytes, which is the most that a row may have; is the delimiter {:?}?",
            char::from(self.dialect.delimiter)
        ))
    }

    fn open_quote(&self, at: usize, how_far: &str) -> Result<SourceError, SourceError> {
        let before = &self.window[self.used..self.used + at];
        let lines = self.lines + before.iter().filter(|byte| **byte == b'\n').count() as u64;
        let quote = self.dialect.quote.map_or(' ', char::from);
        let what = format!(
            "column {} begins with {quote}, and no {quote} closes it {how_far}; a {quote} within quotes is written twice",
            self.fields.len() + 1
        );
        Ok(SourceError::Text { file: self.file.name().clone(), line: self.line(lines)?, what })
    }

    fn behind_quote(&self, at: usize) -> Result<SourceError, SourceError> {
        let ahead = &self.window[self.used..];
        let text = String::from_utf8_lossy(&ahead[at..ahead.len().min(at + 20)]).into_owned();
        let quote = self.dialect.quote.map_or(' ', char::from);
        let column = self.fields.len() + 1;
        self.wrong(format!(
            "in column {column}, {text:?} stands behind the {quote} that closes it; a {quote} within quotes is written twice"
        ))
    }

    /// The line, from 1, that has so many line ends between the beginning of the piece and it: those before the piece are counted now.
    pub(super) fn line(&self, lines: u64) -> Result<u64, SourceError> {
        let (mut at, mut before) = (0, 0);
        let mut bytes = vec![0; 64 << 10];
        while at < self.piece.begin {
            let count = (self.piece.begin - at).min(bytes.len() as u64) as usize;
            self.file.read_at(at, &mut bytes[..count])?;
            before += bytes[..count].iter().filter(|byte| **byte == b'\n').count() as u64;
            at += count as u64;
        }
        Ok(before + lines + 1)
    }
}

/// A column that is built of fields.
pub(super) struct WantedColumn {
    /// Which field of a row.
    pub(super) field: usize,
    pub(super) column: Box<dyn TextColumn>,
}

/// Rows of a split as batches. Whoever reads a split before it is known in which state it begins asks for [`ends`](Self::ends) at last.
pub struct TextRows {
    lines: TextLines,
    schema: SchemaRef,
    wanted: Vec<WantedColumn>,
    names: Arc<[String]>,
    split: usize,
    next_row: u64,
    memory: Reservation,
    budget: Arc<dyn MemoryBudget>,
    pending: Pending,
}

impl TextRows {
    pub(super) fn new(
        lines: TextLines,
        schema: SchemaRef,
        wanted: Vec<WantedColumn>,
        names: Arc<[String]>,
        split: usize,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Self {
        let (memory, budget) = (Reservation::none(budget), Arc::clone(budget));
        let pending = Pending::default();
        Self { lines, schema, wanted, names, split, next_row: 0, memory, budget, pending }
    }

    /// How the text of the split ends, for whichever state it begins with. After an error, too: where the split was read with another state than it has, what
    /// was found wrong may not be.
    ///
    /// # Errors
    /// Those of reading.
    pub fn ends(&mut self) -> Result<Ends, SourceError> {
        self.pending.is_over = true;
        self.lines.ends()
    }

    fn read(&mut self) -> Result<(), SourceError> {
        let (mut rows, mut bytes) = (0, 0);
        let mut scratch = Vec::new();
        let dialect = self.lines.dialect.clone();
        while rows < BATCH_ROWS_MAX && bytes < BATCH_BYTES_MAX {
            let (row_bytes, failed) = {
                let Some(row) = self.lines.next()? else { break };
                if row.is_empty() && self.names.len() > 1 {
                    continue;
                }
                let failed = if row.fields.len() != self.names.len() {
                    Some((row.lines, Failed::Count(row.fields.len())))
                } else {
                    // Columns grow by doubling; the old one is there until the new one is.
                    let after = bytes + row.len() as u64 + 16 * self.wanted.len() as u64;
                    if let Err(denied) = self.memory.at_least((3 * after).next_multiple_of(1 << 20)) {
                        Some((row.lines, Failed::Memory(denied)))
                    } else {
                        push(&row, &mut self.wanted, &dialect, &mut scratch).map(|failed| (row.lines, failed))
                    }
                };
                (row.len(), failed)
            };
            if let Some((lines, failed)) = failed {
                return Err(self.failure(lines, failed)?);
            }
            rows += 1;
            bytes += row_bytes as u64 + 16 * self.wanted.len() as u64;
        }
        if rows == 0 {
            self.pending.is_over = true;
            return Ok(());
        }
        let arrays: Vec<_> = self.wanted.iter_mut().map(|wanted| wanted.column.finish()).collect();
        let own: u64 = arrays.iter().map(|array| own_bytes(&array.to_data(), true)).sum();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options);
        let batch =
            batch.map_err(|error| SourceError::Table { file: self.lines.file.name().clone(), error: error.into() })?;
        let mut memory = std::mem::replace(&mut self.memory, Reservation::none(&self.budget));
        let denied = |denied| SourceError::Memory {
            file: self.lines.file.name().clone(),
            place: Place::Byte(self.lines.at),
            what: "a batch of its rows",
            denied,
        };
        memory.resize(own).map_err(denied)?;
        self.pending.ready.extend(cut(&batch, self.split, self.next_row, memory));
        self.next_row += rows as u64;
        Ok(())
    }

    fn failure(&self, lines: u64, failed: Failed) -> Result<SourceError, SourceError> {
        let (file, line) = (self.lines.file.name().clone(), self.lines.line(lines)?);
        Ok(match failed {
            Failed::Count(found) => {
                let expected = self.names.len();
                let what = format!(
                    "the row has {found} fields, and the table {expected} columns; is the delimiter {:?}, and is each field with one in it within quotes?",
                    char::from(self.lines.dialect.delimiter)
                );
                SourceError::Text { file, line, what }
            }
            Failed::Memory(denied) => {
                SourceError::Memory { file, place: Place::Line(line), what: "a batch of rows", denied }
            }
            Failed::Field(at, refused, value) => {
                let field = self.schema.field(at);
                let column = field.name().clone();
                match refused {
                    FieldRefused::NotUtf8 => {
                        let what = format!(
                            "column {column} is no UTF-8: {:?}; write the file as UTF-8, by iconv for one",
                            shown(&value)
                        );
                        SourceError::Text { file, line, what }
                    }
                    FieldRefused::Misfit => {
                        let schema = print_column(&column, &values::wider(field.data_type(), &value));
                        let expected = print_type(field.data_type());
                        let value = shown(&value);
                        SourceError::Misfit(Box::new(Misfit { file, line, column, value, expected, schema }))
                    }
                }
            }
        })
    }
}

/// Why a row is none of the table.
enum Failed {
    /// It has so many fields.
    Count(usize),
    Memory(super::super::memory::MemoryDenied),
    /// The field of that column that is wanted.
    Field(usize, FieldRefused, Vec<u8>),
}

fn push(row: &TextRow<'_>, wanted: &mut [WantedColumn], dialect: &Dialect, scratch: &mut Vec<u8>) -> Option<Failed> {
    for (at, wanted) in wanted.iter_mut().enumerate() {
        let field = &row.fields[wanted.field];
        let text = row.text(field, dialect.quote, scratch);
        let is_null = dialect.is_null(text, field.quoted);
        if let Err(refused) = wanted.column.push((!is_null).then_some(text)) {
            return Some(Failed::Field(at, refused, text.to_vec()));
        }
    }
    None
}

/// A value as errors show it.
fn shown(value: &[u8]) -> String {
    const SHOWN: usize = 60;
    let text = String::from_utf8_lossy(&value[..value.len().min(4 * SHOWN)]);
    match text.chars().count() > SHOWN {
        true => format!("{}...", text.chars().take(SHOWN).collect::<String>()),
        false => text.into_owned(),
    }
}

impl Iterator for TextRows {
    type Item = Result<SourceBatch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        next_batch(self, |rows| &mut rows.pending, Self::read)
    }
}
