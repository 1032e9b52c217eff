//! Files of any format.

use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};

use super::packed::Packed;
use super::{FileForm, IpcSink, JsonSink, ParquetOptions, ParquetSink, RecordsSink, SinkError, SortedColumn, TextSink};
use crate::semantics::FileTypes;
use crate::sources::text::Dialect;
use crate::sources::{InputFormat, MemoryBudget};

/// What files of tables are written as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputFormat {
    /// Parquet.
    #[default]
    Parquet,
    /// Text with commas, and the names of the columns first.
    Csv,
    /// Text with tabs, and the names of the columns first.
    Tsv,
    /// An object of JSON in each line.
    #[serde(rename = "jsonl")]
    JsonLines,
    /// Arrow IPC, as a file.
    Arrow,
    /// Records of the sort benchmark, of tables with a column of 10 bytes and one of 90.
    Records,
}

impl OutputFormat {
    /// All of them. They have the names that [`InputFormat`] has, which are the extensions of such files, too, but for records, which have none.
    pub const ALL: [Self; 6] = [Self::Parquet, Self::Csv, Self::Tsv, Self::JsonLines, Self::Arrow, Self::Records];

    /// That of files that were read.
    pub fn of(read: InputFormat) -> Self {
        match read {
            InputFormat::Parquet => Self::Parquet,
            InputFormat::Csv => Self::Csv,
            InputFormat::Tsv => Self::Tsv,
            InputFormat::JsonLines => Self::JsonLines,
            InputFormat::Arrow => Self::Arrow,
            InputFormat::Records => Self::Records,
        }
    }

    /// As what such files are read.
    pub fn read(self) -> InputFormat {
        match self {
            Self::Parquet => InputFormat::Parquet,
            Self::Csv => InputFormat::Csv,
            Self::Tsv => InputFormat::Tsv,
            Self::JsonLines => InputFormat::JsonLines,
            Self::Arrow => InputFormat::Arrow,
            Self::Records => InputFormat::Records,
        }
    }

    /// Of which types columns are in such files.
    pub fn types(self) -> FileTypes {
        match self {
            Self::Parquet => FileTypes::Parquet,
            Self::Csv | Self::Tsv => FileTypes::Text,
            Self::JsonLines => FileTypes::Json,
            Self::Arrow => FileTypes::Arrow,
            Self::Records => FileTypes::Records,
        }
    }
}

impl fmt::Display for OutputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl FromStr for OutputFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || InputFormat::NAMES.map(|(name, _)| name).join(", ");
        text.parse().map(Self::of).map_err(|_: String| format!("{text:?} is no format to write: {}", known()))
    }
}

/// How files of any format are written.
#[derive(Clone, Debug)]
pub struct SinkOptions {
    /// The format, how files are compressed, and how long row groups are.
    pub form: FileForm,
    /// The columns that rows are sorted by, which readers of Parquet are told.
    pub sorted_by: Vec<SortedColumn>,
}

impl SinkOptions {
    /// Of rows in no order.
    pub fn new(form: FileForm) -> Self {
        Self { form, sorted_by: Vec::new() }
    }

    fn parquet(&self) -> ParquetOptions {
        let Self { form, sorted_by } = self;
        ParquetOptions { compression: form.compression(), sorted_by: sorted_by.clone(), group_rows: form.group_rows() }
    }
}

/// Writes a file.
pub enum TableSink<W: Write + Send> {
    /// Parquet.
    Parquet(ParquetSink<W>),
    /// CSV or TSV.
    Text(Box<TextSink<Packed<W>>>),
    /// JSON lines.
    Json(Box<JsonSink<Packed<W>>>),
    /// Arrow IPC.
    Ipc(Box<IpcSink<W>>),
    /// Records.
    Records(RecordsSink<W>),
}

impl<W: Write + Send> TableSink<W> {
    /// Writes rows of a schema, in plain types, to `write`.
    ///
    /// # Errors
    /// Memory that was denied; a type that the format does not have; what `write` says.
    pub fn new(
        write: W,
        schema: &SchemaRef,
        options: &SinkOptions,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SinkError> {
        let text = |write, dialect| {
            let packed = Packed::new(write, options.form.compression(), budget)?;
            TextSink::new(packed, schema, dialect).map(|sink| Self::Text(Box::new(sink)))
        };
        Ok(match options.form.format() {
            OutputFormat::Parquet => Self::Parquet(ParquetSink::new(write, schema, &options.parquet(), budget)?),
            OutputFormat::Csv => text(write, &Dialect::csv())?,
            OutputFormat::Tsv => text(write, &Dialect::tsv())?,
            OutputFormat::JsonLines => {
                let packed = Packed::new(write, options.form.compression(), budget)?;
                Self::Json(Box::new(JsonSink::new(packed, schema)?))
            }
            OutputFormat::Arrow => Self::Ipc(Box::new(IpcSink::new(write, schema, budget)?)),
            OutputFormat::Records => Self::Records(RecordsSink::new(write, schema)?),
        })
    }

    /// Writes rows.
    ///
    /// # Errors
    /// Rows of another schema, memory that was denied, and what `write` says; the file cannot be finished then.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        match self {
            Self::Parquet(sink) => sink.write(batch),
            Self::Text(sink) => sink.write(batch),
            Self::Json(sink) => sink.write(batch),
            Self::Ipc(sink) => sink.write(batch),
            Self::Records(sink) => sink.write(batch),
        }
    }

    /// Ends the file, and gives back what was written to and how many rows there are.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(self) -> Result<(W, u64), SinkError> {
        match self {
            Self::Parquet(sink) => sink.finish(),
            Self::Text(sink) => {
                let (packed, rows) = sink.finish()?;
                Ok((packed.finish()?, rows))
            }
            Self::Json(sink) => {
                let (packed, rows) = sink.finish()?;
                Ok((packed.finish()?, rows))
            }
            Self::Ipc(sink) => sink.finish(),
            Self::Records(sink) => sink.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_formats_have_names_by_which_they_are_read_again() {
        for (name, format) in InputFormat::NAMES.map(|(name, read)| (name, OutputFormat::of(read))) {
            assert_eq!((name.parse(), format.to_string()), (Ok(format), name.to_owned()));
            let file = FileForm::new(format, None).unwrap().file_name("part-00000");
            let read = InputFormat::of(&std::path::Path::new(&file).into());
            assert_eq!((OutputFormat::of(read), read), (format, format.read()));
        }
        assert!("rows".parse::<OutputFormat>().unwrap_err().contains("parquet, csv, tsv, jsonl, arrow, records"));
    }
}
