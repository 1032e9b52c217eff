//! The arguments of commands that read and write tables.

use std::path::PathBuf;

use clap::Args;
use exobus_queries::stopping::Until;
use exobus_tables::{
    expression::Expression,
    jobs::{
        dedupe::Keep,
        join::{Broadcast, JoinKind, Pair},
    },
    reading::ReadOptions,
    semantics::KeyColumn,
    sinks::{Compression, OutputFormat},
    sources::{InputFormat, json::JsonMixed},
};

use super::{FilesArgs, JobArgs, size};

/// How the files of a table are read: the same for every command that reads tables.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct TableReadArgs {
    /// Which rows and columns
    #[command(flatten)]
    pub rows: TableRowsArgs,
    /// Types of columns of text, "id int64, price decimal(10,2)"; those of others are inferred, and where no file is text it is refused
    #[arg(long = "schema", value_name = "COLUMNS")]
    pub types: Option<String>,
}

/// Which rows and columns of a table are read, and in which format.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct TableRowsArgs {
    /// How the files of a table are read: parquet, csv, tsv, jsonl, arrow or records [default: as their names say]
    #[arg(long, value_name = "NAME")]
    pub input_format: Option<InputFormat>,
    /// Whether folders below those that are named, or behind what is fixed of a pattern, are columns whose names say so, as Hive has them: day=2024-01-31/city=oslo [default: true]
    #[arg(long, value_name = "BOOL")]
    pub hive: Option<bool>,
    /// Columns of a table that are read, in the order that they are to have; also expressions: "id, price * 1.2 AS gross" [default: all]
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub select: Vec<String>,
    /// What is made of values of one column of JSON lines that have no one type, as a number and a text: refuse, or text; where no file is JSON lines it is refused [default: refuse]
    #[arg(long, value_name = "WHAT")]
    pub json_mixed: Option<JsonMixed>,
    /// Rows of a table that are read: "price > 3 and city in ('x', 'y')"; docs/semantics.md says which conditions there are
    #[arg(long = "where", value_name = "CONDITION")]
    pub filter: Option<Expression>,
}

impl TableReadArgs {
    /// What is told to who reads.
    pub fn options(&self) -> ReadOptions {
        self.rows.options(self.types.clone())
    }

    /// An option beside the format that was given, by its name.
    pub fn given(&self) -> Option<&'static str> {
        let Self { types, rows: TableRowsArgs { hive, json_mixed, select, filter, .. } } = self;
        let names = [
            ("--schema", types.is_some()),
            ("--hive", hive.is_some()),
            ("--json-mixed", json_mixed.is_some()),
            ("--select", !select.is_empty()),
            ("--where", filter.is_some()),
        ];
        names.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

impl TableRowsArgs {
    /// What is told to who reads, with the types of columns of text that are said.
    pub fn options(&self, types: Option<String>) -> ReadOptions {
        ReadOptions {
            format: self.input_format.map(|format| format.to_string()),
            schema: types,
            json_mixed: self.json_mixed,
            filter: self.filter.clone(),
            hive: self.hive,
            ..ReadOptions::default()
        }
        .selected_by(&self.select)
    }
}

/// How the files of a table are written.
#[derive(Debug, Clone, Default, Args)]
pub struct TableWriteArgs {
    /// How files are written: parquet, csv, tsv, jsonl, arrow or records [default: as the first file that is read]
    #[arg(long, value_name = "NAME", help_heading = "Tables")]
    pub format: Option<OutputFormat>,
    /// How files are compressed: none, snappy, lz4, zstd, zstd:LEVEL, gzip or gzip:LEVEL; text by zstd and gzip [default: snappy for Parquet, none for others]
    #[arg(long, value_name = "NAME", help_heading = "Tables")]
    pub compression: Option<Compression>,
    /// Rows of a row group of Parquet, which alone has some, at most; one ends at 64 MiB of values, too [default: 122880]
    #[arg(long, value_name = "ROWS", help_heading = "Tables",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub row_group_rows: Option<u64>,
    /// Bytes of the values of a file, about [default: 256MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Tables", value_parser = size, conflicts_with = "partitions")]
    pub file_bytes: Option<u64>,
    /// Read each file back when it is written, and compare its rows with those that it was given
    #[arg(long, help_heading = "Tables")]
    pub verify: bool,
}

impl TableWriteArgs {
    /// An option that was given and asks for more than files of records, by its name.
    pub fn given(&self) -> Option<&'static str> {
        let names = [
            ("--format", self.format.is_some_and(|format| format != OutputFormat::Records)),
            ("--compression", self.compression.is_some()),
            ("--row-group-rows", self.row_group_rows.is_some()),
            ("--file-bytes", self.file_bytes.is_some()),
            ("--verify", self.verify),
        ];
        names.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// Which table a command reads, and where it writes.
#[derive(Debug, Clone, Args)]
pub struct TableArgs {
    /// Files of Parquet, CSV, TSV, JSON lines, Arrow and 100-byte records, folders of such files, or patterns ('events/**/*.csv')
    #[arg(required = true)]
    pub input: Vec<PathBuf>,
    /// Folder for part-00000.parquet, part-00001.parquet, ... (records: part-00000, ...); made if missing, must be empty
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,
    /// How it is read
    #[command(flatten)]
    pub read: TableReadArgs,
    /// How it is written
    #[command(flatten)]
    pub write: TableWriteArgs,
    /// What every job takes
    #[command(flatten)]
    pub job: JobArgs,
}

/// `exobus shuffle`
#[derive(Debug, Clone, Args)]
pub struct ShuffleArgs {
    /// Decides the order; the same for the same input files, whatever memory, nodes and strategy
    #[arg(long, value_name = "N")]
    pub seed: u64,
    /// Rows of a file of a table, at most; files differ by one row
    #[arg(long, value_name = "ROWS", help_heading = "Tables", conflicts_with_all = ["partitions", "file_bytes"],
          value_parser = clap::value_parser!(u64).range(1..))]
    pub rows_per_file: Option<u64>,
    /// The table, or 100-byte records
    #[command(flatten)]
    pub table: TableArgs,
}

/// `exobus dedupe`
#[derive(Debug, Clone, Args)]
pub struct DedupeArgs {
    /// Columns of which rows that are alike are one: url, or user,ts [default: the key of 100-byte records]
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub key: Vec<KeyColumn>,
    /// Which row stays: first, last or any
    #[arg(long, value_name = "WHICH", default_value = "first")]
    pub keep: Keep,
    /// In which order rows of a key are, before that of the input
    #[arg(long, value_name = "COLUMN[:desc][:nulls-first]", value_delimiter = ',')]
    pub order_by: Vec<KeyColumn>,
    /// The table
    #[command(flatten)]
    pub table: TableArgs,
}

/// What is said of the groups of a table.
#[derive(Debug, Clone, Args)]
pub struct GroupQueryArgs {
    /// Columns of which rows that are alike are a group, or paths to fields of structs: city,address.zip [default: all rows are one group, also where there are none]
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub by: Vec<String>,
    /// What is said of each group: count(*), count, sum, avg, min, max, first, last, variance, stddev, var_pop, stddev_pop, count_distinct, quantile(COLUMN, 0.9), quantile_cont, median,
    /// each of a column: "count(*), sum(price) as total"
    #[arg(long, value_name = "AGGREGATES")]
    pub agg: Option<String>,
    /// Groups that are written, by their columns and by the names of what is said of them: "total > 100"
    #[arg(long, value_name = "CONDITION")]
    pub having: Option<Expression>,
    /// How many groups are written, the first ones in the order of --order-by: of all, or of each value of --per [default: all]
    #[arg(long, value_name = "GROUPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub top: Option<u64>,
    /// In which order groups are for --top; then in that of their keys
    #[arg(long, value_name = "COLUMN[:desc][:nulls-first]", value_delimiter = ',', requires = "top")]
    pub order_by: Vec<KeyColumn>,
    /// Some of the columns of groups, of each of whose values --top groups are written
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', requires = "top")]
    pub per: Vec<String>,
}

/// What is shown of a query before everything was read.
#[derive(Debug, Clone, Default, Args)]
pub struct OnlineArgs {
    /// Show what is known of the groups while the table is read, with bounds that close in; with --json a line for each look
    #[arg(long, help_heading = "Early answers", group = "early")]
    pub online: bool,
    /// When enough was read: error=1%, when each value that is shown is known as well as that (error=1%:all, each of all groups; error=1%:guaranteed, by bounds that rest on no assumption), or
    /// time=5s; nothing is written then [default: when everything was read]
    #[arg(long, value_name = "GOAL", help_heading = "Early answers", requires = "online")]
    pub until: Option<Until>,
    /// From what the order follows in which the table is read [default: 0]
    #[arg(long, value_name = "NUMBER", help_heading = "Early answers", requires = "online")]
    pub seed: Option<u64>,
    /// Which bounds are given: approximate, or guaranteed, which rest on no assumption, are wide, and are there for counts of rows, and sums and means of whole numbers and decimals, of files that say how many rows they have and between which values a column is [default: approximate]
    #[arg(long, value_name = "KIND", help_heading = "Early answers", requires = "online", value_parser = ["approximate", "guaranteed"])]
    pub bounds: Option<String>,
    /// Bounds of all groups hold together with 95 %, and not those of each: they are wider
    #[arg(long, help_heading = "Early answers", requires = "online")]
    pub simultaneous: bool,
    /// Show it as a web page of this machine, too, whose address is printed; PORT says where, and 0 is any that is free [default: 0]
    #[arg(long, value_name = "PORT", help_heading = "Early answers", requires = "early", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub page: Option<u16>,
    /// On a cluster: how long the job can go on to the exact answer after enough was read (10min): it waits with what it has read, and --continue has it go on [default: it ends]
    #[arg(long, value_name = "TIME", help_heading = "Early answers", requires = "online", conflicts_with = "keep")]
    pub keep_for: Option<String>,
    /// In this process: a folder for what was read, where it stays when enough was read, so that --continue can go on to the exact answer; made if missing
    #[arg(long, value_name = "DIR", help_heading = "Early answers", requires = "online")]
    pub keep: Option<PathBuf>,
    /// Go on to the exact answer of a job that has seen enough and was kept: its id, or the first six digits of it or more
    #[arg(long = "continue", value_name = "JOB", help_heading = "Early answers", group = "early", value_parser = super::watch::job_id)]
    pub go_on: Option<String>,
}

/// How the files of a table are read of which a job looks at some columns alone.
#[derive(Debug, Clone, Args)]
pub struct GroupReadArgs {
    /// How the files of a table are read: parquet, csv, tsv, jsonl, arrow or records [default: as their names say]
    #[arg(long, value_name = "NAME")]
    pub input_format: Option<InputFormat>,
    /// Whether folders below those that are named, or behind what is fixed of a pattern, are columns whose names say so, as Hive has them: day=2024-01-31/city=oslo [default: true]
    #[arg(long, value_name = "BOOL")]
    pub hive: Option<bool>,
    /// What is made of values of one column of JSON lines that have no one type, as a number and a text: refuse, or text; where no file is JSON lines it is refused [default: refuse]
    #[arg(long, value_name = "WHAT")]
    pub json_mixed: Option<JsonMixed>,
    /// Rows of a table that are read: "price > 3 and city in ('x', 'y')"; docs/semantics.md says which conditions there are
    #[arg(long = "where", value_name = "CONDITION")]
    pub filter: Option<Expression>,
    /// Types of columns of text, "id int64, price decimal(10,2)"; those of others are inferred, and where no file is text it is refused
    #[arg(long = "schema", value_name = "COLUMNS")]
    pub types: Option<String>,
}

impl GroupReadArgs {
    /// What any job says of how a table is read.
    pub fn of_table(&self) -> TableReadArgs {
        let Self { input_format, hive, json_mixed, filter, types } = self.clone();
        TableReadArgs { rows: TableRowsArgs { input_format, hive, select: Vec::new(), json_mixed, filter }, types }
    }
}

/// `exobus group`
#[derive(Debug, Clone, Args)]
pub struct GroupArgs {
    /// Files of Parquet, CSV, TSV, JSON lines, Arrow and 100-byte records, folders of such files, or patterns ('events/**/*.csv')
    #[arg(required_unless_present = "go_on", conflicts_with = "go_on")]
    pub input: Vec<PathBuf>,
    /// Folder for part-00000.parquet, part-00001.parquet, ... (records: part-00000, ...); made if missing, must be empty
    #[arg(long, short, value_name = "DIR", required_unless_present = "go_on", conflicts_with = "go_on")]
    pub output: Option<PathBuf>,
    /// What is said of groups
    #[command(flatten)]
    pub query: GroupQueryArgs,
    /// What is shown before everything was read
    #[command(flatten)]
    pub online: OnlineArgs,
    /// Rows of a file, at most; files differ by one row
    #[arg(long, value_name = "ROWS", help_heading = "Tables", conflicts_with_all = ["partitions", "file_bytes"],
          value_parser = clap::value_parser!(u64).range(1..))]
    pub rows_per_file: Option<u64>,
    /// How it is read
    #[command(flatten)]
    pub read: GroupReadArgs,
    /// How it is written
    #[command(flatten)]
    pub write: TableWriteArgs,
    /// What every job takes
    #[command(flatten)]
    pub job: JobArgs,
}

/// Which tables are joined, and how.
#[derive(Debug, Clone, Args)]
pub struct JoinTablesArgs {
    /// The left table: a file of Parquet, CSV, TSV, JSON lines, Arrow or 100-byte records, a folder of such files, or a pattern ('events/**/*.csv')
    pub left: PathBuf,
    /// The right table, likewise
    pub right: PathBuf,
    /// Columns that have to be the same in both tables, COLUMN where both have it, or LEFT=RIGHT: id=uid,day; null is like nothing, also not like null
    #[arg(long, value_name = "COLUMN[=COLUMN]", value_delimiter = ',', required = true)]
    pub on: Vec<Pair>,
    /// Which rows are written: inner, pairs of rows that match; left, right or full, these, and rows of the left table, the right one or both that match none; semi, rows of the left table
    /// that match one, each once; anti, those that match none
    #[arg(long, value_name = "KIND", default_value = "inner")]
    pub how: JoinKind,
    /// What is behind the name of a column of the right table where the left one has a column of this name [default: such names are refused]
    #[arg(long, value_name = "TEXT")]
    pub suffix: Option<String>,
    /// Which table all tasks have as a whole, so that nothing of the other one goes to another node and the output is in its order instead of that of the key: left, right or never; auto, the
    /// right one, or else the left one, where it has no more than 64 MiB of values and no row of it is written that matches none
    #[arg(long, value_name = "WHICH", default_value = "auto")]
    pub broadcast: Broadcast,
    /// How the left table is read
    #[command(flatten)]
    pub read: TableReadArgs,
    /// How the right table is read
    #[command(flatten)]
    pub right_read: RightReadArgs,
}

/// How the right table of a join is read: as [`TableReadArgs`] say it of the left one.
#[derive(Debug, Clone, Default, Args)]
pub struct RightReadArgs {
    /// How the files of the right table are read, as --input-format says it of those of the left one
    #[arg(long, value_name = "NAME")]
    pub right_input_format: Option<InputFormat>,
    /// Whether folders of the right table are columns, as --hive [default: true]
    #[arg(long, value_name = "BOOL")]
    pub right_hive: Option<bool>,
    /// Columns of the right table that are read, as --select [default: all]
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub right_select: Vec<String>,
    /// What is made of values of JSON lines of the right table, as --json-mixed [default: refuse]
    #[arg(long, value_name = "WHAT")]
    pub right_json_mixed: Option<JsonMixed>,
    /// Rows of the right table that are read, as --where
    #[arg(long = "right-where", value_name = "CONDITION")]
    pub right_filter: Option<Expression>,
    /// Types of columns of text of the right table, as --schema
    #[arg(long = "right-schema", value_name = "COLUMNS")]
    pub right_types: Option<String>,
}

impl RightReadArgs {
    /// What any job says of how a table is read.
    pub fn of_table(&self) -> TableReadArgs {
        let Self { right_input_format, right_hive, right_select, right_json_mixed, right_filter, right_types } =
            self.clone();
        let rows = TableRowsArgs {
            input_format: right_input_format,
            hive: right_hive,
            select: right_select,
            json_mixed: right_json_mixed,
            filter: right_filter,
        };
        TableReadArgs { rows, types: right_types }
    }
}

/// `exobus join`
#[derive(Debug, Clone, Args)]
pub struct JoinArgs {
    /// What is joined
    #[command(flatten)]
    pub tables: JoinTablesArgs,
    /// Folder for part-00000.parquet, part-00001.parquet, ... (records: part-00000, ...); made if missing, must be empty
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,
    /// How it is written
    #[command(flatten)]
    pub write: TableWriteArgs,
    /// What every job takes
    #[command(flatten)]
    pub job: JobArgs,
}

/// `exobus convert`
#[derive(Debug, Clone, Args)]
pub struct ConvertArgs {
    /// Rows of a file; the last one has what is left
    #[arg(long, value_name = "ROWS", help_heading = "Tables", conflicts_with_all = ["partitions", "file_bytes"],
          value_parser = clap::value_parser!(u64).range(1..))]
    pub rows_per_file: Option<u64>,
    /// The table
    #[command(flatten)]
    pub table: TableArgs,
}

/// Where the rows of a table go that is written in other files.
#[derive(Debug, Clone, Args)]
pub struct PartsArgs {
    /// Columns; rows that are alike in them are in one file, or in one of each folder, in the order of these columns [default: rows stay in their order]
    #[arg(long, value_name = "COLUMN[:desc][:nulls-first]", value_delimiter = ',')]
    pub by: Vec<KeyColumn>,
    /// Columns whose values are folders, as Hive has them, day=2024-01-31/city=oslo, and which are in no file
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub partition_by: Vec<String>,
    /// How many folders --partition-by may make: each has a file at least [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000), requires = "partition_by")]
    pub max_folders: Option<u64>,
}

impl PartsArgs {
    /// Whether rows get another order, and go to other nodes.
    pub fn move_rows(&self) -> bool {
        !self.by.is_empty() || !self.partition_by.is_empty()
    }
}

/// `exobus repartition`
#[derive(Debug, Clone, Args)]
pub struct RepartitionArgs {
    /// Where its rows go
    #[command(flatten)]
    pub parts: PartsArgs,
    /// The table
    #[command(flatten)]
    pub table: TableArgs,
}

/// `exobus show`
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// Files of a table, or of 100-byte records, folders of such files, or patterns ('events/**/*.csv')
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
    /// Types of columns of text, "id int64, price decimal(10,2)"; those of others are inferred, and where no file is text it is refused
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
    /// How object stores are reached
    #[command(flatten)]
    pub stores: FilesArgs,
}
