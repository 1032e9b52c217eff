//! Rows of a piece of JSON lines, as batches.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, SchemaRef};
use memchr::memchr;

use super::super::batches::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, Pending, SourceBatch, cut, next_batch, own_bytes};
use super::super::error::shown;
use super::super::memory::{MemoryBudget, MemoryDenied, Reservation};
use super::super::schema_text::{print_column, print_type};
use super::super::text::{Piece, READ_BYTES, ROW_BYTES_MAX, Window};
use super::super::{InputFile, Misfit, Place, SourceError};
use super::columns::{Context, Failed, Meter, Struct};
use super::evidence::{Columns, Here, Looking, NotLooked};
use super::seeds::push_row;
use super::value::{DOCUMENT, Kind, Step, Steps, not_object, wider_number, wider_of_text, with_type_at};

/// Lines of a piece that are not empty, one behind the other.
pub(super) struct JsonLines {
    window: Window,
    is_over: bool,
}

/// A line: its text, and the lines between the beginning of the piece and it.
pub(super) struct JsonLine<'a> {
    bytes: &'a [u8],
    pub(super) lines: u64,
}

impl<'a> JsonLine<'a> {
    /// Its text; or what is wrong with it.
    pub(super) fn text(&self) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes).map_err(|error| {
            format!(
                "it is no UTF-8 at byte {} of the line: write the file as UTF-8, by iconv for one",
                error.valid_up_to() + 1
            )
        })
    }
}

impl JsonLines {
    /// Of a piece; a line belongs to the piece in which it begins.
    pub(super) fn new(file: &InputFile, piece: Piece, budget: &Arc<dyn MemoryBudget>) -> Result<Self, SourceError> {
        let mut lines = Self { window: Window::new(file, piece, budget)?, is_over: false };
        let mut before = [b'\n'];
        if piece.is_first() {
            lines.window.pass_mark()?;
        } else {
            file.read_at(piece.begin - 1, &mut before)?;
        }
        if before != [b'\n'] {
            lines.pass_line()?;
        }
        Ok(lines)
    }

    /// Passes over the rest of the line that began before the piece.
    fn pass_line(&mut self) -> Result<(), SourceError> {
        loop {
            match memchr(b'\n', self.window.ahead()) {
                Some(end) => {
                    self.window.advance(end + 1);
                    return Ok(());
                }
                None => self.window.advance(self.window.ahead().len()),
            }
            // In a piece that is within a line none begins.
            let is_within = self.window.piece().ends_before(self.window.at());
            if is_within || self.window.fill(READ_BYTES)?.is_none() {
                self.is_over = true;
                return Ok(());
            }
        }
    }

    /// The next line that has something in it and begins in the piece; `None`: there is none.
    pub(super) fn next(&mut self) -> Result<Option<JsonLine<'_>>, SourceError> {
        loop {
            if self.is_over || self.window.piece().ends_before(self.window.at()) {
                self.is_over = true;
                return Ok(None);
            }
            let len = self.line_len()?;
            let is_blank = self.window.ahead()[..len].iter().all(u8::is_ascii_whitespace);
            if len == 0 {
                self.is_over = true;
                return Ok(None);
            }
            if is_blank {
                self.window.advance(len);
                continue;
            }
            let lines = self.window.lines();
            let bytes = self.window.take(len);
            return Ok(Some(JsonLine { bytes: bytes.strip_suffix(b"\n").unwrap_or(bytes), lines }));
        }
    }

    /// Bytes of the line that is next, with its end; none where the text is over.
    fn line_len(&mut self) -> Result<usize, SourceError> {
        let (mut looked, mut wanted) = (0, READ_BYTES);
        loop {
            let ahead = self.window.ahead();
            if let Some(end) = memchr(b'\n', &ahead[looked..]) {
                return Ok(looked + end + 1);
            }
            if self.window.is_read() {
                return Ok(ahead.len());
            }
            if ahead.len() > ROW_BYTES_MAX {
                let what = format!(
                    "the line has more than {ROW_BYTES_MAX} bytes, which is the most that a row may have; {DOCUMENT}"
                );
                return Err(self.error(self.window.lines(), what)?);
            }
            looked = ahead.len();
            wanted = wanted.max(looked);
            self.window.fill(wanted)?;
        }
    }

    /// What is wrong with the line that has so many before it in the piece.
    pub(super) fn error(&self, lines: u64, what: String) -> Result<SourceError, SourceError> {
        Ok(SourceError::Text { file: self.window.file().name().clone(), line: self.line(lines)?, what })
    }

    /// The line, from 1, that has so many before it in the piece.
    pub(super) fn line(&self, lines: u64) -> Result<u64, SourceError> {
        self.window.line(lines)
    }

    fn denied(&self, place: Place, what: &'static str, denied: MemoryDenied) -> SourceError {
        SourceError::Memory { file: self.window.file().name().clone(), place, what, denied }
    }

    /// Looks at the first rows of a file for the types of their columns.
    pub(super) fn look(
        &mut self,
        rows: usize,
        columns: &mut Columns,
        looking: &mut Looking<'_>,
    ) -> Result<(), SourceError> {
        let file = self.window.file().name().clone();
        for _ in 0..rows {
            let (lines, looked) = {
                let Some(line) = self.next()? else { break };
                let here = Here { file: &file, line: line.lines + 1 };
                let looked = match line.text() {
                    Ok(text) if Kind::of(text.trim_ascii_start()) == Kind::Object => looking.row(columns, here, text),
                    Ok(text) => Err(NotLooked::Wrong(not_object(text))),
                    Err(what) => Err(NotLooked::Wrong(what)),
                };
                (line.lines, looked)
            };
            match looked {
                Ok(()) => (),
                Err(NotLooked::Wrong(what)) => return Err(self.error(lines, what)?),
                Err(NotLooked::Denied(denied)) => {
                    return Err(self.denied(Place::Line(lines + 1), "what is known of columns", denied));
                }
            }
        }
        Ok(())
    }
}

/// Rows of a split as batches.
pub struct JsonRows {
    lines: JsonLines,
    /// All columns of the file, of which those are built that are wanted.
    row: Struct,
    all: SchemaRef,
    wanted: Vec<usize>,
    schema: SchemaRef,
    is_mixed: bool,
    split: usize,
    next_row: u64,
    budget: Arc<dyn MemoryBudget>,
    pending: Pending,
}

impl JsonRows {
    /// Of lines; `row`: of all columns, which has those that are wanted.
    pub(super) fn new(
        lines: JsonLines,
        (row, all): (Struct, SchemaRef),
        (wanted, schema): (Vec<usize>, SchemaRef),
        (split, is_mixed): (usize, bool),
        budget: &Arc<dyn MemoryBudget>,
    ) -> Self {
        let (budget, pending) = (Arc::clone(budget), Pending::default());
        Self { lines, row, all, wanted, schema, is_mixed, split, next_row: 0, budget, pending }
    }

    fn read(&mut self) -> Result<(), SourceError> {
        let mut rows = 0;
        let mut meter = Meter::new(Reservation::none(&self.budget));
        while rows < BATCH_ROWS_MAX && meter.used() < BATCH_BYTES_MAX {
            let (lines, failed, steps) = {
                let Some(line) = self.lines.next()? else { break };
                let mut context =
                    Context { meter: &mut meter, is_mixed: self.is_mixed, failed: None, steps: Steps::default() };
                let pushed = match line.text() {
                    Ok(text) => push_row(&mut self.row, text, &mut context),
                    Err(what) => Err(Failed::Wrong(what)),
                };
                (line.lines, pushed.err(), context.steps)
            };
            if let Some(failed) = failed {
                return Err(self.failure(lines, failed, &steps)?);
            }
            rows += 1;
        }
        if rows == 0 {
            self.pending.is_over = true;
            return Ok(());
        }
        let columns = self.row.finish();
        let arrays: Vec<_> = self.wanted.iter().map(|column| columns[*column].clone()).collect();
        let own: u64 = arrays.iter().map(|array| own_bytes(&array.to_data(), true)).sum();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options);
        let file = self.lines.window.file().name().clone();
        let batch = batch.map_err(|error| SourceError::Table { file, error: error.into() })?;
        let mut memory = meter.finish();
        let place = Place::Byte(self.lines.window.at());
        memory.resize(own).map_err(|denied| self.lines.denied(place, "a batch of its rows", denied))?;
        self.pending.ready.extend(cut(&batch, self.split, self.next_row, memory));
        self.next_row += rows as u64;
        Ok(())
    }

    /// What is wrong with a line, at the end of these steps into its row.
    fn failure(&self, lines: u64, failed: Failed, steps: &Steps) -> Result<SourceError, SourceError> {
        let (path, text) = (steps.path(), DataType::Utf8);
        let of_column = |what: String| if path.is_empty() { what } else { format!("column {path}: {what}") };
        let what = match failed {
            Failed::Denied(denied) => {
                return Ok(self.lines.denied(Place::Line(self.lines.line(lines)?), "a batch of rows", denied));
            }
            Failed::Misfit(of, value) => {
                let wider = match Kind::of(&value) {
                    Kind::Number => wider_number(&of, &value),
                    Kind::Text if of.is_decimal() => wider_of_text(&of, &value),
                    // Of dates and times, which are written as texts.
                    Kind::Text if matches!(of, DataType::Date32 | DataType::Timestamp(..)) => Some(DataType::Utf8),
                    _ => None,
                };
                let with_mixed = wider.is_none();
                let schema = self.schema_with(steps, wider.unwrap_or(text));
                let (file, line) = (self.lines.window.file().name().clone(), self.lines.line(lines)?);
                let (value, expected) = (shown(value.as_bytes()), shown(print_type(&of).as_bytes()));
                return Ok(SourceError::Misfit(Box::new(Misfit {
                    file,
                    line,
                    column: path,
                    value,
                    expected,
                    schema,
                    with_mixed,
                })));
            }
            Failed::Twice(key) => of_column(format!(
                "the object has the key {key:?} twice: one of the two values would be lost; rename one of them"
            )),
            Failed::Unknown(key, raw) => {
                let mut inside = steps.clone();
                inside.0.insert(0, Step::Field(key.clone()));
                let schema = self.schema_with(&inside, self.type_of(&raw));
                let select =
                    if path.is_empty() { "; or leave it out: --select the columns that are wanted" } else { "" };
                of_column(format!(
                    "the key {key:?} is in none of the rows that types were inferred from, nor in --schema: say its type, as in --schema {schema:?}{select}"
                ))
            }
            Failed::Wrong(what) => of_column(what),
        };
        self.lines.error(lines, what)
    }

    /// The text of `--schema` with that type at the end of the steps: of the column at the top.
    fn schema_with(&self, steps: &Steps, of: DataType) -> String {
        let Some((name, rest)) = steps.column() else { return String::new() };
        let column = self.all.field_with_name(name).map_or(DataType::Null, |field| field.data_type().clone());
        print_column(name, &with_type_at(&column, &rest, of))
    }

    /// The type that a value alone would have.
    fn type_of(&self, raw: &str) -> DataType {
        let mut columns = Columns::default();
        let mut looking = Looking::new(Reservation::none(&self.budget), &|_| false);
        let here = Here { file: self.lines.window.file().name(), line: 1 };
        let looked = looking.row(&mut columns, here, &format!("{{\"c\":{raw}}}"));
        let types = looked.ok().and_then(|()| columns.types(|_| None, true).ok()).unwrap_or_default();
        types.into_iter().next().map_or(DataType::Utf8, |(_, of)| of)
    }
}

impl Iterator for JsonRows {
    type Item = Result<SourceBatch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        next_batch(self, |rows| &mut rows.pending, Self::read)
    }
}
