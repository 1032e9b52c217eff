//! CSV files: records, columns, and where a file may be cut.
//!
//! Line ends inside quoted fields belong to the field, so whether a line end ends a record depends on every quote before it.
//! A file is therefore read twice: once from its beginning by one task, with the same parser, which notes where records
//! begin; then piece by piece from there. Files of less than 1 MiB are never cut and are read once.

use std::fmt;
use std::io;
use std::path::Path;

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use exobus_actors::registry::TaskError;

use super::Aggregate;
use crate::keyed::{Input, Mark, Piece, at_line};

/// What some programs put before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// Most fields of a record; 8 bytes of heap each.
const FIELDS_MAX: usize = 64 << 10;
/// Longest record of column names, bytes.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// The records of an [`Input`], one after the other. Empty lines are none.
#[derive(Debug)]
pub struct Records {
    parser: Reader,
    /// Where the fields of the present record end in the input's spare memory.
    ends: Vec<usize>,
    /// Lines of the file before the next byte.
    lines: u64,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    bytes: &'a [u8],
    ends: &'a [usize],
    line: u64,
}

impl Record<'_> {
    /// The line of the file that it begins in, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// How many fields it has.
    #[expect(clippy::len_without_is_empty, reason = "a record has a field")]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// A field, from 0, without quotes.
    pub fn field(&self, index: usize) -> Option<&[u8]> {
        let start = if index == 0 { 0 } else { *self.ends.get(index - 1)? };
        Some(&self.bytes[start..*self.ends.get(index)?])
    }

    /// The error of a record that cannot be used. One that goes over several lines is likely to have begun with a quote that
    /// nobody closed.
    pub fn wrong(&self, path: &Path, text: impl fmt::Display) -> TaskError {
        let text = at_line(path, self.line, text);
        match self.bytes.iter().filter(|byte| **byte == b'\n').count() as u64 {
            0 => TaskError::data(text),
            lines => TaskError::data(format!(
                "{text}; the record ends on line {}: is a quote not closed?",
                self.line + lines
            )),
        }
    }
}

/// How many fields, in words.
pub fn in_words(count: usize) -> String {
    format!("{count} field{}", if count == 1 { "" } else { "s" })
}

impl Records {
    /// Those of `input`, from where it is.
    ///
    /// # Errors
    /// The file is compressed, or cannot be read.
    pub fn new(delimiter: u8, input: &mut Input<'_>) -> Result<Self, TaskError> {
        input.refuse_compressed()?;
        let mut parser = ReaderBuilder::new().delimiter(delimiter).build();
        // The parser would skip a byte order mark wherever its input begins; there is one at the beginning of a file only.
        let (_, _, _, _) = parser.read_record(b"\n", &mut [0; 8], &mut [0; 8]);
        if input.offset() == 0 {
            while input.present().len() < BYTE_ORDER_MARK.len() && input.more(input.piece().end)? {}
            if input.present().starts_with(BYTE_ORDER_MARK) {
                input.consume(BYTE_ORDER_MARK.len());
            }
        }
        Ok(Self { parser, ends: vec![0; 64], lines: input.piece().start.lines })
    }

    /// The next record, `None` behind the last.
    ///
    /// # Errors
    /// A quote that is not closed, or a record that is too long, named with its line; the file cannot be read.
    pub fn next<'a>(&'a mut self, input: &'a mut Input<'_>) -> Result<Option<Record<'a>>, TaskError> {
        if !self.skip_line_ends(input)? {
            return Ok(None);
        }
        let (line, path, end) = (self.lines + 1, input.path(), input.piece().end);
        let (mut bytes, mut fields) = (0, 0);
        loop {
            let (present, spare) = input.present_and_spare();
            let room = spare.len();
            let (result, read, written, ended) =
                self.parser.read_record(present, &mut spare[bytes..], &mut self.ends[fields..]);
            self.lines += present[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
            input.consume(read);
            bytes += written;
            fields += ended;
            match result {
                ReadRecordResult::InputEmpty => {
                    if input.more(end)? {
                        continue;
                    }
                    let Some(ended) = self.end_line(fields) else {
                        let text = "a quote is opened in this record and never closed";
                        return Err(TaskError::data(at_line(path, line, text)));
                    };
                    fields += ended;
                    break;
                }
                ReadRecordResult::OutputFull if self.end_line(fields).is_none() => {
                    let text = format!("a quote is opened in this record and not closed within {room} bytes");
                    return Err(TaskError::data(at_line(path, line, text)));
                }
                ReadRecordResult::OutputFull => return Err(too_large(path, line, format!("{room} bytes"))),
                ReadRecordResult::OutputEndsFull if fields < FIELDS_MAX => self.ends.resize(fields * 2, 0),
                ReadRecordResult::OutputEndsFull => return Err(too_large(path, line, in_words(FIELDS_MAX))),
                ReadRecordResult::Record => break,
                ReadRecordResult::End => return Ok(None),
            }
        }
        let (_, spare) = input.present_and_spare();
        Ok(Some(Record { bytes: &spare[..bytes], ends: &self.ends[..fields], line }))
    }

    /// Has the parser read a line end, which ends a record of which `fields` fields are known: how many more there are then.
    /// `None`: it is a part of a quoted field.
    fn end_line(&mut self, fields: usize) -> Option<usize> {
        if fields == self.ends.len() {
            self.ends.push(0);
        }
        match self.parser.read_record(b"\n", &mut [0], &mut self.ends[fields..]) {
            (ReadRecordResult::Record, _, _, ended) => Some(ended),
            _ => None,
        }
    }

    /// Reads all records, and calls `mark` where one begins at least `step_bytes` behind the last mark, or the beginning.
    ///
    /// # Errors
    /// As [`next`](Self::next); those of `mark`.
    pub fn marks(
        mut self,
        input: &mut Input<'_>,
        step_bytes: u64,
        mark: &mut dyn FnMut(Mark) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let mut last = 0;
        while self.skip_line_ends(input)? {
            if input.offset() >= last + step_bytes {
                last = input.offset();
                mark(Mark { offset: last, lines: self.lines })?;
            }
            self.next(input)?;
        }
        Ok(())
    }

    /// Goes to the first byte of the next record; false when there is none. The parser would skip the same bytes.
    fn skip_line_ends(&mut self, input: &mut Input<'_>) -> Result<bool, TaskError> {
        loop {
            let ends = input.present().iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
            let (count, lines) =
                ends.fold((0, 0), |(count, lines), byte| (count + 1, lines + u64::from(*byte == b'\n')));
            input.consume(count);
            self.lines += lines;
            if !input.present().is_empty() {
                return Ok(true);
            }
            if !input.more(input.piece().end)? {
                return Ok(false);
            }
        }
    }
}

/// Which columns of a file are meant, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The key's.
    pub key: usize,
    /// The value's.
    pub value: Option<usize>,
}

impl Columns {
    /// Looks them up in the header of the file that `input` is a piece of, where it has one; `records` are those of `input`,
    /// at its beginning, and stand behind the header then if it is there.
    ///
    /// Without a header columns are numbers; whether the first record has so many is seen here where it is in another piece.
    ///
    /// # Errors
    /// No such column, named with the file; the file cannot be read.
    pub fn find(job: &Aggregate, records: &mut Records, input: &mut Input<'_>) -> Result<Self, TaskError> {
        let path = input.path();
        let in_first = input.piece().start.offset == 0;
        if !job.header && in_first {
            return Self::numbered(job, path, usize::MAX);
        }
        if in_first {
            return Self::named(job, path, records.next(input)?);
        }
        let piece = Piece::whole(input.piece().file.clone(), 0);
        let (mut window, mut spare) = (vec![0; HEADER_BYTES_MAX], vec![0; HEADER_BYTES_MAX]);
        let mut start = Input::open(&piece, &mut window, &mut spare)?;
        let mut records = Records::new(job.delimiter, &mut start)?;
        if job.header {
            return Self::named(job, path, records.next(&mut start)?);
        }
        // A record that there is no room for here is told of where it is mapped.
        let columns = records.next(&mut start).ok().flatten().map_or(usize::MAX, |first| first.len());
        Self::numbered(job, path, columns)
    }

    /// Of records of which the first has so many columns.
    fn numbered(job: &Aggregate, path: &Path, columns: usize) -> Result<Self, TaskError> {
        let number = |text: &str| match column_number(text) {
            None => {
                let text = format!("no column {text:?}: without a header, columns are numbers from 1");
                Err(TaskError::request(at_line(path, 1, text)))
            }
            Some(column) if column < columns => Ok(column),
            Some(column) => Err(no_column(path, 1, column, columns)),
        };
        Ok(Self { key: number(&job.key)?, value: job.value.as_deref().map(number).transpose()? })
    }

    fn named(job: &Aggregate, path: &Path, header: Option<Record<'_>>) -> Result<Self, TaskError> {
        // With nothing in the file nobody will ask for a column.
        let Some(names) = header else { return Ok(Self { key: 0, value: None }) };
        let find = |name: &str| find_column(path, &names, name);
        Ok(Self { key: find(&job.key)?, value: job.value.as_deref().map(find).transpose()? })
    }
}

/// The error of a record that there is no room for.
fn too_large(path: &Path, line: u64, most: String) -> TaskError {
    TaskError::fatal(at_line(path, line, format!("a record of more than {most}")))
}

/// The error of a column that was asked for by its number, and that the first record does not have.
pub fn no_column(path: &Path, line: u64, column: usize, columns: usize) -> TaskError {
    let text = format!("no column {}: the first record has {}", column + 1, in_words(columns));
    TaskError::request(at_line(path, line, text))
}

fn find_column(path: &Path, names: &Record<'_>, name: &str) -> Result<usize, TaskError> {
    let called = |column: &usize| names.field(*column) == Some(name.as_bytes());
    let mut found = (0..names.len()).filter(called);
    let number = || column_number(name).filter(|column| *column < names.len());
    match (found.next(), found.next()) {
        (Some(_), Some(_)) => {
            let text = format!("more than one column is called {name:?}");
            Err(TaskError::request(at_line(path, names.line(), text)))
        }
        (Some(column), None) => Ok(column),
        _ => number().ok_or_else(|| {
            let known = (0..names.len().min(20)).filter_map(|column| names.field(column));
            let known: Vec<_> = known.map(|name| format!("{:?}", String::from_utf8_lossy(name))).collect();
            let text = format!("no column {name:?}; there are {}", known.join(", "));
            TaskError::request(at_line(path, names.line(), text))
        }),
    }
}

fn column_number(text: &str) -> Option<usize> {
    text.parse::<usize>().ok()?.checked_sub(1)
}

/// Writes a field, quoted where it has to be.
///
/// # Errors
/// Those of the file.
pub fn write_field(file: &mut dyn io::Write, field: &[u8], delimiter: u8) -> io::Result<()> {
    if !field.iter().any(|byte| matches!(byte, b'"' | b'\r' | b'\n') || *byte == delimiter) {
        return file.write_all(field);
    }
    file.write_all(b"\"")?;
    for (index, piece) in field.split(|byte| *byte == b'"').enumerate() {
        if index > 0 {
            file.write_all(b"\"\"")?;
        }
        file.write_all(piece)?;
    }
    file.write_all(b"\"")
}
