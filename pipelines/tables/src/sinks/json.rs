//! JSON lines, as [`json`](crate::sources::json) reads them.

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, SchemaRef};

use super::text::{HANDED_BYTES, field as plain_text, field_text};
use super::{SinkError, check_rows};
use crate::plain::Path;
use crate::semantics::{FileTypes, stored_schema};
use crate::sources::text::Dialect;

/// Writes a file of JSON lines: an object for each row, without blanks, with all columns in their order; nulls are written, so a column is in every line. Numbers have all of their
/// digits, floats as many as tell them from others, and dates and times are texts, those with a zone in UTC. A map is an object. JSON has no NaN and no infinity, and an object has a
/// key once: a row with such a value is refused, since null, or one of two values, would be a loss that nobody sees.
pub struct JsonSink<W: Write> {
    write: BufWriter<W>,
    schema: SchemaRef,
    /// What stands before the value of each column: a delimiter, and its name.
    names: Vec<Vec<u8>>,
    /// Dates, times and numbers are as text has them.
    dialect: Dialect,
    rows: u64,
}

/// Why a row is not written.
enum Refused {
    Io(io::Error),
    /// The path of a column, its value there, and what to do.
    Value(String, String, &'static str),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl<W: Write> JsonSink<W> {
    /// Writes rows of a schema to `write`.
    ///
    /// # Errors
    /// [`SinkError::Table`]: a type that JSON lines do not have, as it is.
    pub fn new(write: W, schema: &SchemaRef) -> Result<Self, SinkError> {
        let stored = stored_schema(FileTypes::Json, schema)?;
        let differs =
            schema.fields().iter().zip(stored.fields()).find(|(one, other)| one.data_type() != other.data_type());
        if let Some((field, _)) = differs {
            let (column, data_type) = (field.name().clone(), field.data_type().clone());
            let what = "make it what files of JSON lines have";
            return Err(SinkError::NoSuchType { column, data_type, format: "jsonl", what });
        }
        let names = schema.fields().iter().enumerate().map(|(at, field)| name(at, field)).collect();
        let write = BufWriter::with_capacity(HANDED_BYTES, write);
        Ok(Self { write, schema: schema.clone(), names, dialect: Dialect::csv(), rows: 0 })
    }

    /// Writes rows.
    ///
    /// # Errors
    /// Rows of another schema, values that JSON has not, and what `write` says; the file cannot be finished then.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        check_rows(&self.schema, batch)?;
        for row in 0..batch.num_rows() {
            self.write_row(batch, row).map_err(|refused| match refused {
                Refused::Io(error) => failed(error),
                Refused::Value(column, value, what) => {
                    SinkError::NoSuchValue { row: self.rows + row as u64, column, value, format: "JSON lines", what }
                }
            })?;
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn write_row(&mut self, batch: &RecordBatch, row: usize) -> Result<(), Refused> {
        let Self { write, schema, names, dialect, .. } = self;
        let columns = batch.columns().iter().zip(schema.fields()).zip(names);
        if batch.num_columns() == 0 {
            write.write_all(b"{")?;
        }
        for ((column, field), name) in columns {
            write.write_all(name)?;
            value(write, (column.as_ref(), row), &Path::new(None, field.name()), dialect)?;
        }
        Ok(write.write_all(b"}\n")?)
    }

    /// Gives back what was written to and how many rows there are.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(self) -> Result<(W, u64), SinkError> {
        let write = self.write.into_inner().map_err(|error| failed(error.into_error()))?;
        Ok((write, self.rows))
    }
}

fn failed(error: io::Error) -> SinkError {
    SinkError::Write { format: "jsonl", source: error.into() }
}

/// What stands before the value of a field.
fn name(at: usize, field: &Field) -> Vec<u8> {
    let mut name = if at == 0 { b"{".to_vec() } else { b",".to_vec() };
    // To bytes in memory nothing fails.
    let _ = text(&mut name, field.name());
    name.push(b':');
    name
}

fn text(out: &mut impl Write, text: &str) -> io::Result<()> {
    serde_json::to_writer(out, text).map_err(io::Error::from)
}

/// The value of a row of an array.
fn value(
    out: &mut impl Write,
    (array, row): (&dyn Array, usize),
    path: &Path<'_>,
    dialect: &Dialect,
) -> Result<(), Refused> {
    if array.is_null(row) || *array.data_type() == DataType::Null {
        return Ok(out.write_all(b"null")?);
    }
    let no_number = |number: &dyn std::fmt::Display| {
        let what = "leave such rows out, as --where does with <> 'nan' or <> 'inf', or write another --format";
        Err(Refused::Value(path.to_string(), number.to_string(), what))
    };
    match array.data_type() {
        DataType::Float32 if !array.as_primitive::<Float32Type>().value(row).is_finite() => {
            return no_number(&array.as_primitive::<Float32Type>().value(row));
        }
        DataType::Float64 if !array.as_primitive::<Float64Type>().value(row).is_finite() => {
            return no_number(&array.as_primitive::<Float64Type>().value(row));
        }
        DataType::Utf8 => text(out, array.as_string::<i32>().value(row))?,
        DataType::Date32 | DataType::Timestamp(..) => {
            let time = field_text(array, row);
            // Behind a year of four digits.
            if time.as_bytes().get(4) != Some(&b'-') || time.starts_with('-') {
                let what = "years have four digits in text, and nobody reads others back: leave such rows out by --where, or write another --format";
                return Err(Refused::Value(path.to_string(), time, what));
            }
            write!(out, "\"{time}\"")?;
        }
        DataType::List(of) => {
            let list = array.as_list::<i32>();
            let (ends, items) = (list.value_offsets(), list.values().as_ref());
            out.write_all(b"[")?;
            for at in ends[row]..ends[row + 1] {
                if at > ends[row] {
                    out.write_all(b",")?;
                }
                value(out, (items, at as usize), &Path::new(Some(path), of.name()), dialect)?;
            }
            out.write_all(b"]")?;
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            if fields.is_empty() {
                out.write_all(b"{")?;
            }
            for (at, (field, column)) in fields.iter().zip(columns).enumerate() {
                out.write_all(if at == 0 { b"{" } else { b"," })?;
                text(out, field.name())?;
                out.write_all(b":")?;
                value(out, (column.as_ref(), row), &Path::new(Some(path), field.name()), dialect)?;
            }
            out.write_all(b"}")?;
        }
        DataType::Map(..) => map(out, (array, row), path, dialect)?,
        _ => plain_text(out, array, row, dialect)?,
    }
    Ok(())
}

fn map(
    out: &mut impl Write,
    (array, row): (&dyn Array, usize),
    path: &Path<'_>,
    dialect: &Dialect,
) -> Result<(), Refused> {
    let map = array.as_map();
    let ends = map.value_offsets();
    let (keys, values) = (map.keys().as_string::<i32>(), map.values().as_ref());
    let mut seen = HashSet::new();
    out.write_all(b"{")?;
    for at in ends[row]..ends[row + 1] {
        let key = keys.value(at as usize);
        if !seen.insert(key) {
            let what =
                "and an object has each of its keys once: leave the column out by --select, or write another --format";
            return Err(Refused::Value(path.to_string(), format!("the key {key:?} twice"), what));
        }
        if at > ends[row] {
            out.write_all(b",")?;
        }
        text(out, key)?;
        out.write_all(b":")?;
        value(out, (values, at as usize), &Path::new(Some(path), key), dialect)?;
    }
    Ok(out.write_all(b"}")?)
}
