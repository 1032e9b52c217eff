//! CSV and TSV, as [`text`](crate::sources::text) reads them.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, SchemaRef, TimeUnit};

use super::{SinkError, check_rows};
use crate::sources::array_bytes;
use crate::sources::text::Dialect;

/// Bytes that are handed on at a time; a longer text goes on as it is, so no row takes more memory.
pub(super) const HANDED_BYTES: usize = 256 << 10;

/// Writes a file of text. Fields are within quotes where they would be read as something else otherwise: those with a delimiter, quote or line end in them, empty ones, and
/// those that are as a null is written. Floats have as many digits as tell them from others, times with a zone are written in UTC.
pub struct TextSink<W: Write> {
    write: BufWriter<W>,
    schema: SchemaRef,
    dialect: Dialect,
    rows: u64,
}

impl<W: Write> TextSink<W> {
    /// Writes rows of a schema to `write`, behind the names of its columns where the dialect has a header.
    ///
    /// # Errors
    /// [`SinkError::NoSuchType`]: a column has others inside, or bytes that are no text; the dialect has no quotes, without which text cannot be written. What `write` says.
    pub fn new(write: W, schema: &SchemaRef, dialect: &Dialect) -> Result<Self, SinkError> {
        for field in schema.fields() {
            let refuse = |what| {
                let (column, data_type) = (field.name().clone(), field.data_type().clone());
                Err(SinkError::NoSuchType { column, data_type, format: "text", what })
            };
            match field.data_type() {
                DataType::Utf8 if dialect.quote.is_none() => return refuse("give the dialect a quote"),
                data_type if !is_written(data_type) => {
                    return refuse("leave the column out, or write parquet");
                }
                _ => (),
            }
        }
        let write = BufWriter::with_capacity(HANDED_BYTES, write);
        let mut sink = Self { write, schema: schema.clone(), dialect: dialect.clone(), rows: 0 };
        if sink.dialect.header {
            sink.write_header().map_err(failed)?;
        }
        Ok(sink)
    }

    fn write_header(&mut self) -> io::Result<()> {
        for (column, field) in self.schema.fields().iter().enumerate() {
            delimit(&mut self.write, column, &self.dialect)?;
            quoted(&mut self.write, field.name().as_bytes(), &self.dialect)?;
        }
        self.write.write_all(b"\n")
    }

    /// Writes rows.
    ///
    /// # Errors
    /// Rows of another schema, and what `write` says; the file cannot be finished then.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        check_rows(&self.schema, batch)?;
        (0..batch.num_rows()).try_for_each(|row| self.write_row(batch, row)).map_err(failed)?;
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn write_row(&mut self, batch: &RecordBatch, row: usize) -> io::Result<()> {
        let Self { write, dialect, .. } = self;
        for (column, array) in batch.columns().iter().enumerate() {
            delimit(write, column, dialect)?;
            match array.is_null(row) || *array.data_type() == DataType::Null {
                true => write.write_all(dialect.null.as_bytes())?,
                false => field(write, array.as_ref(), row, dialect)?,
            }
        }
        write.write_all(b"\n")
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
    SinkError::Write { format: "text", source: error.into() }
}

fn delimit(out: &mut impl Write, column: usize, dialect: &Dialect) -> io::Result<()> {
    if column > 0 { out.write_all(&[dialect.delimiter]) } else { Ok(()) }
}

/// What [`as_text`] takes: its floats.
pub(crate) fn as_text_bytes(batch: &RecordBatch) -> u64 {
    let floats = batch.columns().iter().filter(|column| column.data_type().is_floating());
    floats.map(|column| array_bytes(column, 0..batch.num_rows())).sum()
}

/// Rows as text has them: there is one NaN.
pub(crate) fn as_text(batch: &RecordBatch) -> RecordBatch {
    let column = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Float32 => {
                let one_nan = |value: f32| if value.is_nan() { f32::NAN } else { value };
                Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(one_nan))
            }
            DataType::Float64 => {
                let one_nan = |value: f64| if value.is_nan() { f64::NAN } else { value };
                Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(one_nan))
            }
            _ => column.clone(),
        }
    };
    let columns = batch.columns().iter().map(column).collect();
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &rows).expect("columns of the same types and lengths")
}

fn is_written(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer()
        || matches!(data_type, Null | Boolean | Float32 | Float64 | Date32 | Timestamp(..) | Utf8)
        || matches!(data_type, Decimal32(_, 0..) | Decimal64(_, 0..) | Decimal128(_, 0..) | Decimal256(_, 0..))
}

/// A text, within quotes where it has to be.
fn quoted(out: &mut impl Write, text: &[u8], dialect: &Dialect) -> io::Result<()> {
    let Some(quote) = dialect.quote else { return out.write_all(text) };
    let is_special = |byte: &u8| *byte == quote || *byte == dialect.delimiter || matches!(byte, b'\n' | b'\r');
    if !text.is_empty() && text != dialect.null.as_bytes() && !text.iter().any(is_special) {
        return out.write_all(text);
    }
    out.write_all(&[quote])?;
    // Each piece ends with a quote that is to be there twice.
    for piece in text.split_inclusive(|byte| *byte == quote) {
        out.write_all(piece)?;
        if piece.ends_with(&[quote]) {
            out.write_all(&[quote])?;
        }
    }
    out.write_all(&[quote])
}

/// The text of a value that is not null, of a type that text has.
pub(crate) fn field_text(array: &dyn Array, row: usize) -> String {
    let mut out = Vec::new();
    // To bytes in memory nothing fails.
    let _ = field(&mut out, array, row, &Dialect::csv());
    String::from_utf8_lossy(&out).into_owned()
}

/// The text of the date of a day since 1970-01-01.
pub(crate) fn date_text(days: i64) -> String {
    let mut out = Vec::new();
    // To bytes in memory nothing fails.
    let _ = date(&mut out, days);
    String::from_utf8_lossy(&out).into_owned()
}

/// A value that is not null.
pub(super) fn field(out: &mut impl Write, array: &dyn Array, row: usize, dialect: &Dialect) -> io::Result<()> {
    macro_rules! number {
        ($of:ty) => {
            write!(out, "{}", array.as_primitive::<$of>().value(row))
        };
    }
    match array.data_type() {
        DataType::Boolean => write!(out, "{}", array.as_boolean().value(row)),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float32 => write!(out, "{:?}", array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => write!(out, "{:?}", array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal32(..) => write!(out, "{}", array.as_primitive::<Decimal32Type>().value_as_string(row)),
        DataType::Decimal64(..) => write!(out, "{}", array.as_primitive::<Decimal64Type>().value_as_string(row)),
        DataType::Decimal128(..) => write!(out, "{}", array.as_primitive::<Decimal128Type>().value_as_string(row)),
        DataType::Decimal256(..) => write!(out, "{}", array.as_primitive::<Decimal256Type>().value_as_string(row)),
        DataType::Date32 => date(out, i64::from(array.as_primitive::<Date32Type>().value(row))),
        DataType::Timestamp(unit, zone) => {
            let (value, of_second) = match unit {
                TimeUnit::Second => (array.as_primitive::<TimestampSecondType>().value(row), 0),
                TimeUnit::Millisecond => (array.as_primitive::<TimestampMillisecondType>().value(row), 3),
                TimeUnit::Microsecond => (array.as_primitive::<TimestampMicrosecondType>().value(row), 6),
                TimeUnit::Nanosecond => (array.as_primitive::<TimestampNanosecondType>().value(row), 9),
            };
            let units = 10_i64.pow(of_second);
            let (seconds, part) = (value.div_euclid(units), value.rem_euclid(units));
            date(out, seconds.div_euclid(86_400))?;
            let second = seconds.rem_euclid(86_400);
            write!(out, " {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)?;
            if part > 0 {
                write!(out, ".{part:0width$}", width = of_second as usize)?;
            }
            if zone.is_some() { out.write_all(b"Z") } else { Ok(()) }
        }
        DataType::Utf8 => quoted(out, array.as_string::<i32>().value(row).as_bytes(), dialect),
        other => unreachable!("{other} was refused"),
    }
}

/// The date of a day since 1970-01-01, of the Gregorian calendar.
fn date(out: &mut impl Write, days: i64) -> io::Result<()> {
    // Years begin in March, so that the day that leap years have is their last one.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    write!(out, "{:04}-{month:02}-{day:02}", era * 400 + year_of_era + next_year)
}
