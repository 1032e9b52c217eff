//! Aggregation of CSV files by key: count, sum, least and greatest value.
//!
//! - [`table`]: records and columns of a CSV file, and where it may be cut;
//! - [`decimal`]: exact numbers, so that a sum does not depend on the order in which it is made.
//!
//! The key is the text of its field, byte by byte: `1`, `1.0` and ` 1` are three keys. A value is a decimal number, white
//! space around it is ignored; a field without one takes part in `count` only. Keys are spread over the part files by their
//! hash and are in ascending order in each; a part file is CSV with the key and a column for each operation, with a header
//! if the input has one.

pub mod decimal;
mod state;
pub mod table;

use std::fmt;
use std::str::FromStr;

use exobus_actors::registry::TaskError;
use exobus_actors::task::Output;
use serde::{Deserialize, Serialize};

use self::state::State;
use self::table::{Columns, Records, in_words, no_column, write_field};
use crate::files::Schema;
use crate::keyed::{Emit, Input, KeyedJob, Mark, Split, Values};

/// What is made of the values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// The sum of the values.
    Sum,
    /// How many records there are, with and without a value.
    Count,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
}

/// What stands between the fields of a record: a byte of ASCII that is no part of quotes and line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delimiter(pub u8);

impl Default for Delimiter {
    fn default() -> Self {
        Self(b',')
    }
}

impl FromStr for Delimiter {
    type Err = &'static str;

    /// The character itself; `\\t` is a tab.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.as_bytes() {
            b"\\t" => Ok(Self(b'\t')),
            [b'"' | b'\r' | b'\n'] => Err("quotes and line ends have a meaning already"),
            [byte] if byte.is_ascii() => Ok(Self(*byte)),
            _ => Err("expected one ASCII character, or \\t"),
        }
    }
}

impl fmt::Display for Delimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        char::from(self.0).fmt(f)
    }
}

impl Operation {
    /// All of them, in the order that they have unless another one is said.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Count, Self::Min, Self::Max];

    /// The name as users write it, and as it stands in a header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Count => "count",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregate {
    /// The column to group by: its name in the header, or its number from 1.
    pub key: String,
    /// The column of the values; `None` where records are only counted.
    pub value: Option<String>,
    /// What is made of the values, in the order of the output's columns.
    pub operations: Vec<Operation>,
    /// What stands between fields. Quotes are `"`, doubled inside quoted fields; records end with LF, CR LF or CR.
    pub delimiter: u8,
    /// Whether the first record of each file holds the names of the columns.
    pub header: bool,
}

crate::keyed_job!(Aggregate, "aggregate", 1);

impl KeyedJob for Aggregate {
    fn split(&self) -> Split {
        // Whether a line end is one, or part of a quoted field, only the whole file before it tells.
        Split::Marks
    }

    fn marks(
        &self,
        input: &mut Input<'_>,
        step_bytes: u64,
        mark: &mut dyn FnMut(Mark) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        // A column that is not there is found before the file is read.
        let mut records = Records::new(self.delimiter, input)?;
        Columns::find(self, &mut records, input)?;
        records.marks(input, step_bytes, mark)
    }

    fn map(&self, input: &mut Input<'_>, emit: Emit<'_>) -> Result<(), TaskError> {
        let mut records = Records::new(self.delimiter, input)?;
        let columns = Columns::find(self, &mut records, input)?;
        let path = input.path();
        // It says which columns there are, where no header does.
        let mut decides = !self.header && input.piece().start.offset == 0;
        while let Some(record) = records.next(input)? {
            let field = |column: usize| {
                record.field(column).ok_or_else(|| {
                    if decides {
                        return no_column(path, record.line(), column, record.len());
                    }
                    let text = format!("the record has {}, there is no column {}", in_words(record.len()), column + 1);
                    record.wrong(path, text)
                })
            };
            let key = field(columns.key)?;
            let value = match columns.value {
                Some(column) => decimal::parse(field(column)?).map_err(|error| {
                    let named = self.value.as_deref().unwrap_or_default();
                    record.wrong(path, format!("{error} (column {named})"))
                })?,
                None => None,
            };
            emit(key, &State::of(value).to_bytes())?;
            decides = false;
        }
        Ok(())
    }

    fn combines(&self) -> bool {
        true
    }

    fn combine(&self, _key: &[u8], into: &mut Vec<u8>, value: &[u8]) -> Result<(), TaskError> {
        let mut state = State::from_bytes(into);
        state.add(&State::from_bytes(value));
        into.copy_from_slice(&state.to_bytes());
        Ok(())
    }

    fn head(&self, file: &mut dyn std::io::Write) -> Result<(), TaskError> {
        if self.header {
            write_field(file, self.key.as_bytes(), self.delimiter)?;
            for operation in &self.operations {
                file.write_all(&[self.delimiter])?;
                file.write_all(operation.name().as_bytes())?;
            }
            file.write_all(b"\n")?;
        }
        Ok(())
    }

    fn reduce(&self, key: &[u8], values: Values<'_>, file: &mut dyn std::io::Write) -> Result<(), TaskError> {
        let mut state = State::default();
        values.for_each(|value| state.add(&State::from_bytes(value)));
        write_field(file, key, self.delimiter)?;
        for operation in &self.operations {
            file.write_all(&[self.delimiter])?;
            state.write(*operation, file)?;
        }
        Ok(file.write_all(b"\n")?)
    }

    fn schema(&self) -> Schema {
        let operations = self.operations.iter().map(|operation| operation.name().to_owned());
        let columns = std::iter::once(self.key.clone()).chain(operations).collect();
        Schema::columns("csv", columns, char::from(self.delimiter), self.header)
    }

    /// The records: as many as the counts add up to.
    fn conserved(&self, _key: &[u8], value: &[u8]) -> Output {
        Output { rows: State::from_bytes(value).count, ..Output::default() }
    }
}
