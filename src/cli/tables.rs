//! The arguments of commands that read tables.

use std::path::PathBuf;

use clap::Args;
use exobus_tables::{expression::Expression, reading::ReadOptions, sources::InputFormat};

/// How the files of a table are read: the same for every command that reads tables.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct TableReadArgs {
    /// Which rows and columns
    #[command(flatten)]
    pub rows: TableRowsArgs,
    /// Types of columns of text, "id int64, price decimal(10,2)"; those of others are inferred
    #[arg(long = "schema", value_name = "COLUMNS")]
    pub types: Option<String>,
}

/// Which rows and columns of a table are read, and in which format.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct TableRowsArgs {
    /// How the files of a table are read: parquet, csv, tsv or arrow [default: as their names say]
    #[arg(long, value_name = "NAME")]
    pub input_format: Option<InputFormat>,
    /// Columns of a table that are read, in the order that they are to have [default: all]
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub select: Vec<String>,
    /// Rows of a table that are read: "price > 3 and city in ('x', 'y')"; docs/semantics.md says which conditions there are
    #[arg(long = "where", value_name = "CONDITION")]
    pub filter: Option<Expression>,
}

impl TableReadArgs {
    /// What is told to who reads.
    pub fn options(&self) -> ReadOptions {
        self.rows.options(self.types.clone())
    }
}

impl TableRowsArgs {
    /// What is told to who reads, with the types of columns of text that are said.
    pub fn options(&self, types: Option<String>) -> ReadOptions {
        ReadOptions {
            format: self.input_format.map(|format| format.to_string()),
            schema: types,
            select: (!self.select.is_empty()).then(|| self.select.clone()),
            filter: self.filter.clone(),
        }
    }
}

/// `exobus show`
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// Files of a table, or of 100-byte records, or folders of such files
    #[arg(required = true, value_name = "FILE|DIR")]
    pub input: Vec<PathBuf>,
    /// How many rows, from the first one on
    #[arg(long, value_name = "ROWS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub rows: u32,
    /// Print names and types of the columns instead, of all files, as --schema of other commands takes them
    #[arg(long)]
    pub schema: bool,
    /// Print instead what the files say of themselves: rows, bytes, and nulls, smallest and largest value of each column
    #[arg(long, conflicts_with = "schema")]
    pub stats: bool,
    /// Which rows and columns
    #[command(flatten)]
    pub read: TableRowsArgs,
    /// Types of columns of text, "id int64, price decimal(10,2)"; those of others are inferred
    #[arg(long, value_name = "COLUMNS")]
    pub schema_text: Option<String>,
    /// Columns of the terminal that the table may take [default: those of the terminal; all that it needs where there is none]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(20..))]
    pub width: Option<u16>,
    /// Read a folder that another job writes to, or has not finished, too: as far as it is there
    #[arg(long)]
    pub partial: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}
