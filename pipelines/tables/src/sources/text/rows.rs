//! Rows of a piece of text, as batches.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use super::super::batches::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, Pending, SourceBatch, cut, next_batch, own_bytes};
use super::super::error::shown;
use super::super::memory::{MemoryBudget, Reservation};
use super::super::schema_text::{print_column, print_type};
use super::super::{InputFile, Misfit, Place, SourceError};
use super::columns::{FieldRefused, TextColumn};
use super::dialect::{Dialect, Ends, Field, Found, TextState, find_row};
use super::stretch::{Stretch, without_doubled};
use super::values;
use super::window::{Piece, READ_BYTES, Window};

/// Most bytes of a row as it is written.
pub const ROW_BYTES_MAX: usize = 32 << 20;

/// Rows that are read one by one behind one that had to be.
const ONE_BY_ONE: usize = 16;

/// Rows of a piece, one behind the other, as they are in the file.
pub(super) struct TextLines {
    window: Window,
    dialect: Dialect,
    /// How the bytes of the piece that were read so far end.
    ends: Ends,
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
        without_doubled(text, quote, scratch)
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
        let window = Window::new(file, piece, budget)?;
        let (dialect, ends) = (dialect.clone(), Ends::of_nothing());
        let mut lines = Self { window, dialect, ends, fields: Vec::new(), is_over: false };
        lines.pass_to_row(state)?;
        Ok(lines)
    }

    /// Passes over the rest of the row that began before the piece.
    fn pass_to_row(&mut self, mut state: TextState) -> Result<(), SourceError> {
        while state != TextState::Row {
            // In a piece that is within a row none begins.
            let is_within = self.window.piece().ends_before(self.window.at());
            if is_within || self.window.ahead().is_empty() && !self.fill(READ_BYTES)? {
                self.is_over = true;
                return Ok(());
            }
            let ahead = self.window.ahead();
            let mut len = 0;
            for byte in ahead {
                state = state.behind(*byte, &self.dialect);
                len += 1;
                if state == TextState::Row {
                    break;
                }
            }
            self.window.advance(len);
        }
        Ok(())
    }

    /// Passes over the mark before the text.
    pub(super) fn pass_mark(&mut self) -> Result<(), SourceError> {
        if self.window.ahead().is_empty() {
            self.fill(READ_BYTES)?;
        }
        self.window.pass_mark()
    }

    /// Reads more behind what is there; whether there was any.
    fn fill(&mut self, bytes: usize) -> Result<bool, SourceError> {
        let more = self.window.fill(bytes)?;
        if let Some(of_piece) = more {
            self.ends.extend(of_piece, &self.dialect);
        }
        Ok(more.is_some())
    }

    /// How the piece ends, whichever state it begins with; reads what is left of it.
    pub(super) fn ends(&mut self) -> Result<Ends, SourceError> {
        while !self.window.has_piece() {
            self.window.advance(self.window.ahead().len());
            if !self.fill(READ_BYTES.min(self.window.left_of_piece()))? {
                break;
            }
        }
        self.is_over = true;
        Ok(self.ends)
    }

    /// The next row that begins in the piece; `None`: there is none.
    pub(super) fn next(&mut self) -> Result<Option<TextRow<'_>>, SourceError> {
        if self.is_over || self.window.piece().ends_before(self.window.at()) {
            self.is_over = true;
            return Ok(None);
        }
        let mut wanted = READ_BYTES;
        let len = loop {
            let ahead = self.window.ahead();
            if !ahead.is_empty() || self.window.is_read() {
                if ahead.is_empty() {
                    self.is_over = true;
                    return Ok(None);
                }
                match find_row(ahead, self.window.is_read(), &self.dialect, &mut self.fields) {
                    Found::Row(len) => break len,
                    Found::Part if ahead.len() > ROW_BYTES_MAX => return Err(self.too_long()?),
                    Found::Part => wanted = wanted.max(ahead.len()),
                    Found::BehindQuote(at) => return Err(self.behind_quote(at)?),
                    Found::Open(at) => return Err(self.open_quote(at, "to the end of the file")?),
                }
            }
            self.fill(wanted)?;
        };
        let lines = self.window.lines();
        Ok(Some(TextRow { bytes: self.window.take(len), fields: &self.fields, lines }))
    }

    /// What was read of the text and not passed over, and how much of it is the piece's own: rows that begin in that are.
    fn ahead(&self) -> (&[u8], usize) {
        let ahead = self.window.ahead();
        let of_piece = self.window.piece().end.map_or(u64::MAX, |end| end.saturating_sub(self.window.at()));
        (ahead, of_piece.min(ahead.len() as u64) as usize)
    }

    /// An error at the row that is next.
    fn wrong(&self, what: String) -> Result<SourceError, SourceError> {
        Ok(SourceError::Text { file: self.window.file().name().clone(), line: self.line(self.window.lines())?, what })
    }

    fn too_long(&self) -> Result<SourceError, SourceError> {
        let ahead = self.window.ahead();
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
        let before = &self.window.ahead()[..at];
        let lines = self.window.lines() + before.iter().filter(|byte| **byte == b'\n').count() as u64;
        let quote = self.dialect.quote.map_or(' ', char::from);
        let what = format!(
            "column {} begins with {quote}, and no {quote} closes it {how_far}; a {quote} within quotes is written twice",
            self.fields.len() + 1
        );
        Ok(SourceError::Text { file: self.window.file().name().clone(), line: self.line(lines)?, what })
    }

    fn behind_quote(&self, at: usize) -> Result<SourceError, SourceError> {
        let ahead = self.window.ahead();
        let text = String::from_utf8_lossy(&ahead[at..ahead.len().min(at + 20)]).into_owned();
        let quote = self.dialect.quote.map_or(' ', char::from);
        let column = self.fields.len() + 1;
        self.wrong(format!(
            "in column {column}, {text:?} stands behind the {quote} that closes it; a {quote} within quotes is written twice"
        ))
    }

    /// The line, from 1, that has so many line ends between the beginning of the piece and it.
    pub(super) fn line(&self, lines: u64) -> Result<u64, SourceError> {
        self.window.line(lines)
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
    stretch: Stretch,
    /// So many rows are read one by one before many are tried to be read at once again.
    one_by_one: usize,
    /// What was counted for the rows of the last batch.
    last_bytes: u64,
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
        let (stretch, pending) = (Stretch::new(names.len()), Pending::default());
        let (one_by_one, last_bytes, next_row) = (0, 0, 0);
        Self { lines, schema, wanted, names, stretch, one_by_one, last_bytes, split, next_row, memory, budget, pending }
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
            if self.one_by_one == 0 {
                let (more_rows, more_bytes) = self.read_stretch(&dialect, rows, bytes)?;
                rows += more_rows;
                bytes += more_bytes;
                if more_rows > 0 {
                    continue;
                }
            }
            self.one_by_one = self.one_by_one.saturating_sub(1);
            let (row_bytes, failed) = {
                let Some(row) = self.lines.next()? else { break };
                if row.is_empty() && self.names.len() > 1 {
                    continue;
                }
                let failed = if row.fields.len() != self.names.len() {
                    Some((row.lines, Failed::Count(row.fields.len())))
                } else {
                    let after = bytes + row.len() as u64 + 16 * self.wanted.len() as u64;
                    if let Err(denied) = self.memory.at_least(memory_bytes(after)) {
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
        let batch = batch.map_err(|error| SourceError::Table {
            file: self.lines.window.file().name().clone(),
            error: error.into(),
        })?;
        let mut memory = std::mem::replace(&mut self.memory, Reservation::none(&self.budget));
        let denied = |denied| SourceError::Memory {
            file: self.lines.window.file().name().clone(),
            place: Place::Byte(self.lines.window.at()),
            what: "a batch of its rows",
            denied,
        };
        memory.resize(own).map_err(denied)?;
        self.pending.ready.extend(cut(&batch, self.split, self.next_row, memory));
        self.next_row += rows as u64;
        self.last_bytes = bytes;
        Ok(())
    }

    /// Reads rows at once, behind so many rows of the batch with so many bytes: how many, and what is counted for them. None, where the next row is to be read by itself: it may be wrong,
    /// not all of it may be here, or there is no memory for so many.
    fn read_stretch(&mut self, dialect: &Dialect, rows: usize, bytes: u64) -> Result<(usize, u64), SourceError> {
        let of_row = 16 * self.wanted.len() as u64;
        let (ahead, of_piece) = self.lines.ahead();
        let stretch = &mut self.stretch;
        let found = if of_piece == 0 { 0 } else { stretch.find(ahead, dialect, BATCH_ROWS_MAX - rows) };
        // As many as begin in the piece, and until the batch is full.
        let bytes_of = |rows: usize| stretch.bytes_of(rows) as u64 + of_row * rows as u64;
        let is_full = |rows: usize| bytes + bytes_of(rows) >= BATCH_BYTES_MAX || stretch.bytes_of(rows) >= of_piece;
        let more = first_of(1..found, is_full);
        if found == 0 {
            // Where one row is odd others may be.
            self.one_by_one = if stretch.is_part() { 1 } else { ONE_BY_ONE };
            return Ok((0, 0));
        }
        let (len, more_bytes) = (stretch.bytes_of(more), bytes_of(more));
        if self.memory.at_least(memory_bytes(bytes + more_bytes)).is_err() {
            // Which row there is no memory for is found one by one.
            self.one_by_one = more;
            return Ok((0, 0));
        }
        // Room is made for as much as the last batch had if there is memory for that, and grows if there is none.
        if rows == 0 && self.last_bytes > 0 && self.memory.at_least(memory_bytes(self.last_bytes)).is_ok() {
            self.wanted.iter_mut().for_each(|wanted| wanted.column.reserve());
        }
        let fields = stretch.fields(ahead, dialect, more);
        let mut failed = None;
        // The first row that is wrong counts, and in that the first column.
        let mut right = more;
        for (at, wanted) in self.wanted.iter_mut().enumerate() {
            if let Err((row, refused)) = wanted.column.push_all(&fields.column(wanted.field, right)) {
                failed = Some(Failed::Field(at, refused, fields.column(wanted.field, right).text(row)));
                right = row;
            }
        }
        if let Some(failed) = failed {
            let passed = stretch.bytes_of(right);
            self.lines.window.advance(passed);
            return Err(self.failure(self.lines.window.lines(), failed)?);
        }
        self.lines.window.advance(len);
        Ok((more, more_bytes))
    }

    fn failure(&self, lines: u64, failed: Failed) -> Result<SourceError, SourceError> {
        let (file, line) = (self.lines.window.file().name().clone(), self.lines.line(lines)?);
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
                        let with_mixed = false;
                        SourceError::Misfit(Box::new(Misfit {
                            file,
                            line,
                            column,
                            value,
                            expected,
                            schema,
                            with_mixed,
                        }))
                    }
                }
            }
        })
    }
}

/// Bytes that are asked for a batch whose rows are counted as so many: columns grow by doubling, and the old one is there until the new one is.
fn memory_bytes(bytes: u64) -> u64 {
    (3 * bytes).next_multiple_of(1 << 20)
}

/// The first number of a range for which something is so that is so for all behind it; its end, if it is for none.
fn first_of(range: Range<usize>, is_so: impl Fn(usize) -> bool) -> usize {
    let (mut from, mut to) = (range.start, range.end);
    while from < to {
        let middle = from.midpoint(to);
        match is_so(middle) {
            true => to = middle,
            false => from = middle + 1,
        }
    }
    to
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

impl Iterator for TextRows {
    type Item = Result<SourceBatch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        next_batch(self, |rows| &mut rows.pending, Self::read)
    }
}
