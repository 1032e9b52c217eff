//! What can go wrong with files of tables.

use std::fmt;
use std::sync::Arc;

use arrow_schema::DataType;
use exobus_files::FileError;

use super::memory::MemoryDenied;
use crate::TableError;

/// Where in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At that byte of it, from 0.
    Byte(u64),
    /// Around its end, where formats have their directory.
    Footer,
    /// In a row group or a batch, from 0, and in that column where it is known.
    Group(usize, Option<Arc<str>>),
    /// In a page of a column of a row group, which begins at that byte of the file.
    Page(usize, Arc<str>, u64),
    /// In that row of a row group, both from 0; of Arrow in that row of a split.
    Row(usize, u64),
    /// In that line, from 1.
    Line(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Byte(byte) => write!(f, "byte {byte}"),
            Self::Footer => write!(f, "its footer"),
            Self::Group(group, None) => write!(f, "row group {group}"),
            Self::Group(group, Some(column)) => write!(f, "row group {group}, column {column}"),
            Self::Page(group, column, byte) => write!(f, "row group {group}, column {column}, page at byte {byte}"),
            Self::Row(group, row) => write!(f, "row group {group}, row {row}"),
            Self::Line(line) => write!(f, "line {line}"),
        }
    }
}

/// Why a file could not be read as a table.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The disk, or who answers for it; or the file was changed since it was listed.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no memory for what the file holds there. Nothing is wrong with the file as far as is known.
    #[error("{file}, {place}: {what} takes {} bytes of memory, which were denied: give more memory", denied.wanted)]
    Memory {
        /// The file.
        file: Arc<str>,
        /// Where.
        place: Place,
        /// What the memory is for.
        what: &'static str,
        /// How many bytes were asked for.
        denied: MemoryDenied,
    },
    /// It is not a file of that format at all.
    #[error("{file} is not a file of format {format}: {what}")]
    OtherFormat {
        /// The file.
        file: Arc<str>,
        /// The format it was read as.
        format: &'static str,
        /// What it lacks, and what to do.
        what: String,
    },
    /// Its name says no format, and it has no records.
    #[error("{file}: {what}")]
    NotKnown {
        /// The file.
        file: Arc<str>,
        /// What its name says, and what to do.
        what: String,
    },
    /// It is encrypted, as a whole or some of its columns.
    #[error("{file} is encrypted, which exobus does not read: decrypt it with the program that wrote it")]
    Encrypted {
        /// The file.
        file: Arc<str>,
    },
    /// Bytes that the format does not allow there.
    #[error("{file} is damaged at {place}: {what}")]
    Damaged {
        /// The file.
        file: Arc<str>,
        /// Where.
        place: Place,
        /// What is wrong.
        what: String,
    },
    /// The format allows it, and this release does not read it.
    #[error("{file}, {place}: {what}")]
    NotRead {
        /// The file.
        file: Arc<str>,
        /// Where.
        place: Place,
        /// What it is, and what to do.
        what: String,
    },
    /// Rows of text that are not as its dialect has them.
    #[error("{file}, line {line}: {what}")]
    Text {
        /// The file.
        file: Arc<str>,
        /// The line where the row begins, from 1.
        line: u64,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A value of text that is none of its column's type.
    #[error(transparent)]
    Misfit(Box<Misfit>),
    /// A row whose values cannot be what the table needs.
    #[error("{file}, {place}: {what}")]
    Row {
        /// The file.
        file: Arc<str>,
        /// Where the row is.
        place: Place,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// The names of columns.
    #[error("{file}: {what}")]
    Names {
        /// The file.
        file: Arc<str>,
        /// What is wrong with them, and what to do.
        what: String,
    },
    /// A column that was asked for is not there.
    #[error("{file} has no column {column}{}", hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
    NoColumn {
        /// The file.
        file: Arc<str>,
        /// What was asked for.
        column: String,
        /// What may help, such as the name that is most like it.
        hint: Option<String>,
    },
    /// Text that is no schema.
    #[error("--schema, at {at:?}: {what}")]
    Schema {
        /// The rest of the text from where it is wrong.
        at: String,
        /// What is wrong.
        what: String,
    },
    /// `--json-mixed`, where no file is JSON lines.
    #[error(
        "--json-mixed says what is made of values of JSON lines, and no file has such, as {first} is of {format}: leave it out"
    )]
    NoJson {
        /// The first file.
        first: String,
        /// Its format.
        format: super::InputFormat,
    },
    /// A type that the format cannot hold.
    #[error("column {column} is {}, which {format} cannot hold: {what}", super::print_type(.data_type))]
    NoSuchType {
        /// Path of names from the top, with dots.
        column: String,
        /// Its type.
        data_type: DataType,
        /// The format.
        format: &'static str,
        /// What to do.
        what: &'static str,
    },
    /// What tables say to it.
    #[error("{file}: {error}")]
    Table {
        /// The file.
        file: Arc<str>,
        /// What is wrong.
        error: TableError,
    },
}

/// A value of text that is none of its column's type.
#[derive(Debug, thiserror::Error)]
#[error(
    "{file}, line {line}, column {column}: {value:?} is no {expected}; it would be one of the type in --schema {schema:?}{}",
    if *with_mixed { " with --json-mixed text" } else { "" }
)]
pub struct Misfit {
    /// The file.
    pub file: Arc<str>,
    /// The line where the row begins, from 1.
    pub line: u64,
    /// Name of the column; within others, the path to it from the top.
    pub column: String,
    /// The value, cut where it is long.
    pub value: String,
    /// The type of the column, as `--schema` writes it.
    pub expected: String,
    /// The text for `--schema` that would let the value in.
    pub schema: String,
    /// Whether it would with `--json-mixed text` only.
    pub with_mixed: bool,
}

impl SourceError {
    /// Whether what was asked for is to blame: a column or a type that is not there.
    pub fn is_of_the_request(&self) -> bool {
        matches!(self, Self::NoColumn { .. } | Self::Schema { .. } | Self::NoSuchType { .. } | Self::NoJson { .. })
    }

    /// Whether the file or the request is to blame, rather than memory or the disk.
    pub fn is_of_the_input(&self) -> bool {
        match self {
            Self::File(_) | Self::Memory { .. } => false,
            Self::Table { error, .. } => error.is_of_the_input(),
            _ => true,
        }
    }
}

/// A value as errors show it: its beginning, where it is long.
pub(crate) fn shown(value: &[u8]) -> String {
    const SHOWN: usize = 60;
    let text = String::from_utf8_lossy(&value[..value.len().min(4 * SHOWN)]);
    match text.chars().count() > SHOWN {
        true => format!("{}...", text.chars().take(SHOWN).collect::<String>()),
        false => text.into_owned(),
    }
}
