//! CSV and TSV, as [`text`](crate::sources::text) reads them.

use std::io::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, SchemaRef, TimeUnit};

use super::{SinkError, check_rows};
use crate::sources::text::Dialect;

/// Bytes that are handed on at a time.
const HANDED_BYTES: usize = 256 << 10;

/// Writes a file of text. Fields are within quotes where they would be read as something else otherwise: those with a delimiter, quote or line end in them, empty ones, and
/// those that are as a null is written. Floats have as many digits as tell them from others, times with a zone are written in UTC.
pub struct TextSink<W: Write> {
    write: W,
    schema: SchemaRef,
    dialect: Dialect,
    text: Vec<u8>,
    rows: u64,
}

impl<W: Write> TextSink<W> {
    /// Writes rows of a schema to `write`, behind the names of its columns where the dialect has a header.
    ///
    /// # Errors
    /// [`SinkError::NoSuchType`]: a column has others inside, or bytes that are no text; the dialect has no quotes, without which text cannot be written.
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
        let (schema, dialect) = (schema.clone(), dialect.clone());
        let mut sink = Self { write, schema, dialect, text: Vec::new(), rows: 0 };
        if sink.dialect.header {
            for column in 0..sink.schema.fields().len() {
                sink.delimit(column);
                let name = sink.schema.field(column).name().clone();
                quoted(&mut sink.text, name.as_bytes(), &sink.dialect);
            }
            sink.text.push(b'\n');
        }
        Ok(sink)
    }

    fn delimit(&mut self, column: usize) {
        if column > 0 {
            self.text.push(self.dialect.delimiter);
        }
    }

    /// Writes rows.
    ///
    /// # Errors
    /// Rows of another schema, and what `write` says; the file cannot be finished then.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        check_rows(&self.schema, batch)?;
        for row in 0..batch.num_rows() {
            for (column, array) in batch.columns().iter().enumerate() {
                self.delimit(column);
                match array.is_null(row) || *array.data_type() == DataType::Null {
                    true => self.text.extend_from_slice(self.dialect.null.as_bytes()),
                    false => field(&mut self.text, array.as_ref(), row, &self.dialect),
                }
            }
            self.text.push(b'\n');
            if self.text.len() >= HANDED_BYTES {
                self.hand_on()?;
            }
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn hand_on(&mut self) -> Result<(), SinkError> {
        self.write.write_all(&self.text).map_err(|error| SinkError::Write { format: "text", source: error.into() })?;
        self.text.clear();
        Ok(())
    }

    /// Gives back what was written to and how many rows there are.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(mut self) -> Result<(W, u64), SinkError> {
        self.hand_on()?;
        Ok((self.write, self.rows))
    }
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
fn quoted(out: &mut Vec<u8>, text: &[u8], dialect: &Dialect) {
    let Some(quote) = dialect.quote else { return out.extend_from_slice(text) };
    let is_special = |byte: &u8| *byte == quote || *byte == dialect.delimiter || matches!(byte, b'\n' | b'\r');
    if !text.is_empty() && text != dialect.null.as_bytes() && !text.iter().any(is_special) {
        return out.extend_from_slice(text);
    }
    out.push(quote);
    for byte in text {
        if *byte == quote {
            out.push(quote);
        }
        out.push(*byte);
    }
    out.push(quote);
}

/// The text of a value that is not null, of a type that text has.
pub(crate) fn field_text(array: &dyn Array, row: usize) -> String {
    let mut out = Vec::new();
    field(&mut out, array, row, &Dialect::csv());
    String::from_utf8_lossy(&out).into_owned()
}

/// The text of the date of a day since 1970-01-01.
pub(crate) fn date_text(days: i64) -> String {
    let mut out = Vec::new();
    date(&mut out, days);
    String::from_utf8_lossy(&out).into_owned()
}

/// A value that is not null.
fn field(out: &mut Vec<u8>, array: &dyn Array, row: usize, dialect: &Dialect) {
    macro_rules! print {
        ($($value:tt)*) => {{
            // To bytes in memory nothing fails.
            let _ = write!(out, $($value)*);
        }};
    }
    macro_rules! number {
        ($of:ty) => {
            print!("{}", array.as_primitive::<$of>().value(row))
        };
    }
    match array.data_type() {
        DataType::Boolean => print!("{}", array.as_boolean().value(row)),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float32 => print!("{:?}", array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => print!("{:?}", array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal32(..) => print!("{}", array.as_primitive::<Decimal32Type>().value_as_string(row)),
        DataType::Decimal64(..) => print!("{}", array.as_primitive::<Decimal64Type>().value_as_string(row)),
        DataType::Decimal128(..) => print!("{}", array.as_primitive::<Decimal128Type>().value_as_string(row)),
        DataType::Decimal256(..) => print!("{}", array.as_primitive::<Decimal256Type>().value_as_string(row)),
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
            date(out, seconds.div_euclid(86_400));
            let second = seconds.rem_euclid(86_400);
            print!(" {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
            if part > 0 {
                print!(".{part:0width$}", width = of_second as usize);
            }
            if zone.is_some() {
                out.push(b'Z');
            }
        }
        DataType::Utf8 => quoted(out, array.as_string::<i32>().value(row).as_bytes(), dialect),
        other => unreachable!("{other} was refused"),
    }
}

/// The date of a day since 1970-01-01, of the Gregorian calendar.
fn date(out: &mut Vec<u8>, days: i64) {
    // Years begin in March, so that the day that leap years have is their last one.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    // To bytes in memory nothing fails.
    let _ = write!(out, "{:04}-{month:02}-{day:02}", era * 400 + year_of_era + next_year);
}
