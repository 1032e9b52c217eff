//! Kinds of jobs over tables, and over files of records, which are tables of one kind of rows: what people say of them, and what runs.

mod convert;
mod dedupe;
mod group;
mod join;
mod map_batches;
mod repartition;
mod shuffle;
mod sort;
#[cfg(test)]
mod tests;

pub use self::group::{GROUP_FIELDS, explain_group, group_table};

use std::path::PathBuf;

use exobus_actors::registry::Roots;
use exobus_actors::spec::{Field, Fields, SpecCode, SpecError, Takes, shown};
use exobus_files::{FileError, Location, visit_table_files};
use exobus_shuffle::kinds::{PARTIAL, inputs, partitions, strategy};

use crate::jobs::{FileSize, Rewrite, WriteOptions};
use crate::reading::ReadOptions;
use crate::semantics::KeyColumn;
use crate::sinks::OutputFormat;
use crate::sources::json::JsonMixed;
use crate::sources::{InputFormat, records};

const INPUTS: Field = inputs(
    "[\"/data/events\"]",
    "Files of Parquet, CSV, TSV, JSON lines, Arrow and 100-byte records, folders of such files, or patterns (\"/data/events/**/*.csv\").",
);
const OUTPUT_DOC: &str = "Folder for part-00000.parquet, part-00001.parquet, ... (records: part-00000, ...); made if missing, must be \
                          empty.";
const INPUT_FORMAT: Field = Field::new(
    "input_format",
    Takes::Word(formats),
    "\"csv\"",
    "How the files of a table are read. Unless it is said, as their names say.",
);
const SELECT: Field = Field::new(
    "select",
    Takes::Texts,
    "[\"user\", \"price\"]",
    "Columns of a table that are read, in the order that they are to have; also expressions, as in \"price * 1.2 AS gross\". Unless they are said, all.",
);
const WHERE: Field = Field::new(
    "where",
    Takes::Text,
    "\"price > 3 and city in ('x', 'y')\"",
    "Rows of a table that are read; docs/semantics.md says which conditions there are.",
);
const SCHEMA: Field = Field::new(
    "schema",
    Takes::Text,
    "\"id int64, price decimal(10,2)\"",
    "Types of columns of text; those of others are inferred, and where no file is text it is refused.",
);
const JSON_MIXED: Field = Field::new(
    "json_mixed",
    Takes::Word(mixed),
    "\"text\"",
    "What is made of values of one column of JSON lines that have no one type, as a number and a text: refuse, or text. Where no \
     file is JSON lines it is refused.",
)
.or("\"refuse\"");
const HIVE: Field = Field::new(
    "hive",
    Takes::Flag,
    "false",
    "Whether folders below those that are named, or behind what is fixed of a pattern, are columns whose names say so, as Hive has them: \
     day=2024-01-31/city=oslo.",
)
.or("true");
/// How files are written.
pub const FORMAT: Field = Field::new(
    "format",
    Takes::Word(formats),
    "\"parquet\"",
    "How files are written. Unless it is said, as the first file that is read.",
);
/// How files are compressed.
pub const COMPRESSION: Field = Field::new(
    "compression",
    Takes::Text,
    "\"zstd:3\"",
    "How files are compressed: none, snappy, lz4, zstd, zstd:LEVEL, gzip or gzip:LEVEL; text by zstd and gzip. Unless it is said, \
     Parquet by snappy, and others not at all.",
);
/// Rows of a row group.
pub const ROW_GROUP_ROWS: Field = Field::new(
    "row_group_rows",
    Takes::Number(1, 1_000_000_000),
    "50000",
    "Rows of a row group of Parquet, which alone has some, at most; one ends at 64 MiB of values, too.",
)
.or("122880");
/// Bytes of a file.
pub const FILE_BYTES: Field =
    Field::new("file_bytes", Takes::Size, "\"64MiB\"", "Bytes of the values of a file, about.").or("\"256MiB\"");
const ROWS_PER_FILE: &str = "rows_per_file";
/// Whether files are read back.
pub const VERIFY: Field = Field::new(
    "verify",
    Takes::Flag,
    "true",
    "Whether each file is read back when it is written, and its rows are compared with those that it was given.",
)
.or("false");

const fn rows_per_file(doc: &'static str) -> Field {
    Field::new(ROWS_PER_FILE, Takes::Number(1, u64::MAX), "1000000", doc)
}

fn formats() -> Vec<&'static str> {
    InputFormat::NAMES.map(|(name, _)| name).to_vec()
}

fn mixed() -> Vec<&'static str> {
    JsonMixed::NAMES.map(|(name, _)| name).to_vec()
}

/// What a job over a table is told of it.
fn rewrite(fields: &Fields<'_>) -> Result<Rewrite, SpecError> {
    Ok(Rewrite {
        inputs: fields.paths("inputs"),
        output: fields.path("output").unwrap_or_default(),
        reading: reading(fields, "")?,
        writing: writing(fields)?,
        strategy: strategy(fields),
        partial: fields.flag(PARTIAL.name),
    })
}

/// How files are written.
///
/// # Errors
/// What is said is none, or contradicts itself.
pub fn writing(fields: &Fields<'_>) -> Result<WriteOptions, SpecError> {
    fields.one_of(&["partitions", "file_bytes", ROWS_PER_FILE])?;
    let size = partitions(fields).map(FileSize::Count).or(fields.number(ROWS_PER_FILE).map(FileSize::Rows));
    let size = size.or(fields.size("file_bytes").map(FileSize::Bytes));
    Ok(WriteOptions {
        format: fields.parsed("format")?,
        compression: fields.parsed("compression")?,
        group_rows: fields.number("row_group_rows"),
        file_size: size.unwrap_or_default(),
        verify: fields.flag("verify"),
    })
}

/// How a table is read, by fields whose names have this before them.
fn reading(fields: &Fields<'_>, before: &str) -> Result<ReadOptions, SpecError> {
    let name = |field: Field| format!("{before}{}", field.name);
    let hive = name(HIVE);
    let options = ReadOptions {
        format: fields.text(&name(INPUT_FORMAT)).map(str::to_owned),
        schema: fields.text(&name(SCHEMA)).map(str::to_owned),
        json_mixed: fields.parsed(&name(JSON_MIXED))?,
        filter: fields.parsed(&name(WHERE))?,
        hive: fields.has(&hive).then(|| fields.flag(&hive)),
        ..ReadOptions::default()
    };
    Ok(options.selected_by(&fields.texts(&name(SELECT))))
}

/// What records are sorted and deduplicated by unless another key is said.
fn key_of_records() -> Vec<KeyColumn> {
    vec![KeyColumn::rising(records::KEY)]
}

/// The first field that says something of a table that cannot be said of records as they are.
fn table_field(fields: &Fields<'_>) -> Option<&'static str> {
    let records = OutputFormat::Records.to_string();
    let format = fields.text("format").filter(|format| *format != records).map(|_| "format");
    let verify = fields.flag("verify").then_some("verify");
    let reads = fields.first_of(&["schema", "json_mixed", "select", "where", HIVE.name]);
    reads.or(format).or_else(|| fields.first_of(&["compression", "row_group_rows", "file_bytes"])).or(verify)
}

/// The format of the input, as is said, or by the name of its first file, and the name of that; `None`: the first file is not known.
fn input_format(fields: &Fields<'_>) -> Result<Option<(InputFormat, String)>, SpecError> {
    if let Some(format) = fields.parsed("input_format")? {
        return Ok(Some((format, "the input".to_owned())));
    }
    // What is wrong with any is said by the job.
    let first = first_file(&fields.paths("inputs"), fields.flag(PARTIAL.name), fields.roots()).ok().flatten();
    Ok(first.map(|location| (InputFormat::of(&location), file_name(&location))))
}

fn file_name(location: &Location) -> String {
    let name = location.to_string();
    shown(name.rsplit('/').next().unwrap_or(&name))
}

fn invalid(at: &str, message: String) -> SpecError {
    SpecError::new(SpecCode::Invalid, message).at(at)
}

/// Refuses names of input that stand for no file, or may not be read. The files behind the first one of each name are the job's to
/// list: there may be very many.
///
/// # Errors
/// Those of [`visit_table_files`].
pub fn check_inputs(input: &[PathBuf], partial: bool) -> Result<(), FileError> {
    input.iter().try_for_each(|name| first_file(std::slice::from_ref(name), partial, &Roots::default()).map(drop))
}

/// The first file that these names stand for.
fn first_file(input: &[PathBuf], partial: bool, roots: &Roots) -> Result<Option<Location>, FileError> {
    let mut first = None;
    let found = visit_table_files::<Option<FileError>>(
        (input, partial),
        // What is forbidden is not looked at; the job says that it is.
        |location| roots.check(location.as_ref()).map_err(|_| None),
        |location, _, _| {
            first = Some(location.clone());
            Err(None)
        },
    );
    match found {
        Err(Some(error)) => Err(error),
        Ok(()) | Err(None) => Ok(first),
    }
}
