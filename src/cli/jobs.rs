//! The arguments of commands that run a job: what all of them take, and what each takes besides.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use exobus_shuffle::{
    jobs::aggregate::{Delimiter, Operation},
    strategies::Strategy,
};

use exobus_tables::semantics::KeyColumn;

use super::{
    GroupQueryArgs, GroupReadArgs, JoinTablesArgs, PartsArgs, PlaceArgs, SettingArgs, TableReadArgs, TableWriteArgs,
    size,
};
use crate::{
    config::{MemoryBudget, Setting},
    exit::Failure,
    report::Views,
};

/// Where a job runs, and with how much of it, and how its end is told.
#[derive(Debug, Clone, Args)]
pub struct ProcessArgs {
    /// Memory per process, from 64MiB; the rest is spilled [default: 60% of what is available]. Not on a cluster: its nodes
    /// have their own
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<MemoryBudget>,
    /// Folder for spill files, may be repeated [default: /var/tmp]. Not on a cluster
    #[arg(long, value_name = "DIR")]
    pub spill: Vec<PathBuf>,
    /// Tasks that run at a time [default: two for each cpu]. Not on a cluster
    #[arg(long, value_name = "E", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub executors: Option<u32>,
    /// Where it runs
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Print the result as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// What running and explaining a job over files take alike.
#[derive(Debug, Clone, Args)]
pub struct SetupArgs {
    /// Number of output files [default: chosen from the input's size and the memory]
    #[arg(long, visible_alias = "files", value_name = "R", value_parser = partitions)]
    pub partitions: Option<u32>,
    /// Read a folder that another job writes to, or has not finished, too: as far as it is there
    #[arg(long)]
    pub partial: bool,
    /// Where it runs
    #[command(flatten)]
    pub process: ProcessArgs,
}

/// A number of output files, for an option of two names.
fn partitions(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or_else(|| "--files, or --partitions, takes a number from 1 to 1000000".to_owned())
}

/// What every job takes.
#[derive(Debug, Clone, Args)]
pub struct JobArgs {
    /// Where it runs
    #[command(flatten)]
    pub setup: SetupArgs,
    /// When and where data moves
    #[arg(long, value_enum, default_value_t = StrategyName::Auto)]
    pub strategy: StrategyName,
    /// Files that show what the job did
    #[command(flatten)]
    pub views: ViewArgs,
}

/// `exobus sort`
#[derive(Debug, Clone, Args)]
pub struct SortArgs {
    /// Files of 100-byte records (the first 10 bytes are the key), or folders of such files; with --key, files of Parquet,
    /// CSV, TSV, JSON lines and Arrow
    #[arg(required_unless_present = "generate", conflicts_with = "generate")]
    pub input: Vec<PathBuf>,
    /// Folder for part-00000, part-00001, ... in key order; made if missing, must be empty. A part of records that would be far
    /// larger than the others is written as several files, part-00000-000, part-00000-001, ...
    #[arg(long, short, value_name = "DIR", required_unless_present = "generate")]
    pub output: Option<PathBuf>,
    /// Columns that a table is sorted by, the first decides first: user,ts:desc,name:nulls-first
    #[arg(long, value_name = "COLUMN[:desc][:nulls-first]", value_delimiter = ',', conflicts_with = "generate")]
    pub key: Vec<KeyColumn>,
    /// How the files of a table are read
    #[command(flatten)]
    pub read: TableReadArgs,
    /// How the files of a table are written
    #[command(flatten)]
    pub write: TableWriteArgs,
    /// Where one part of records ends and the next begins
    #[arg(long, value_enum, default_value_t = CutsName::Sampled, conflicts_with = "key")]
    pub cuts: CutsName,
    /// What every job takes
    #[command(flatten)]
    pub job: JobArgs,
    /// Make so much input first, and validate the output; both are removed unless --output names a folder
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub generate: Option<u64>,
}

/// `exobus submit`. Its `--set` is about the spec, so that keys of the configuration have another option here.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("settings", |arg| arg.long("set-config").value_parser(Setting::parse_of_config)))]
pub struct SubmitArgs {
    /// The spec of the job, as TOML or JSON; \"-\": stdin. `exobus schema` prints what it may say, configs/jobs has examples. Paths in
    /// it are seen from the folder that this command is run in
    #[arg(value_name = "FILE")]
    pub spec: PathBuf,
    /// Say a field otherwise, or one of a table (params.size=7): the value as in TOML, or as a text where it is no such; may be
    /// repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub set: Vec<(String, String)>,
    /// What is done with it
    #[command(flatten)]
    pub how: HowArgs,
}

/// `exobus run`
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// A program that nodes offer, with its version (own.squares@1) or without: the latest
    pub program: String,
    /// Its parameters, a file of JSON; \"-\": stdin [default: none]
    #[arg(value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// What is done with it
    #[command(flatten)]
    pub how: HowArgs,
}

/// What is done with a spec.
#[derive(Debug, Clone, Args)]
pub struct HowArgs {
    /// Only check the spec, and print as JSON what would run
    #[arg(long)]
    pub check: bool,
    /// On a cluster: stay until the job is over, and say how it ended; else its id is printed
    #[arg(long)]
    pub wait: bool,
    /// On a cluster: the same, with a view of how far it comes
    #[arg(long)]
    pub follow: bool,
    /// Where it runs
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Files that show what the job did
    #[command(flatten)]
    pub views: ViewArgs,
}

/// `exobus schema`
#[derive(Debug, Clone, Args)]
pub struct SchemaArgs {
    /// The kind [default: all of them]; program: those of the registry
    pub kind: Option<String>,
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let found = text.split_once('=').map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
    found.filter(|(key, _)| !key.is_empty()).ok_or_else(|| "expected KEY=VALUE, such as partitions=7".to_owned())
}

/// `exobus resume`
#[derive(Debug, Clone, Args)]
pub struct ResumeArgs {
    /// Id of the job, or its first digits [default: the only one there is]
    pub job: Option<String>,
    /// Only list the jobs that were not finished: command, paths and age of each
    #[arg(long)]
    pub list: bool,
    /// Give the job up instead: its files are removed from its output folder, which others may use then
    #[arg(long, conflicts_with = "list", requires = "job")]
    pub drop: bool,
    /// With --drop: the folder, where the job ran on another machine, or on a cluster that is gone
    #[arg(long, value_name = "DIR", requires = "drop")]
    pub output: Option<PathBuf>,
    /// Memory per process, from 64MiB; the rest is spilled [default: that of the process that began it]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<MemoryBudget>,
    /// Folder for spill files, may be repeated [default: those of the process that began it]
    #[arg(long, value_name = "DIR")]
    pub spill: Vec<PathBuf>,
    /// Tasks that run at a time [default: as many as in the process that began it]
    #[arg(long, value_name = "E", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub executors: Option<u32>,
    /// Configuration with the [node] to use, instead of what the process had that began it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Single keys
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Print the result, or the list, as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// Files that show what the job did
    #[command(flatten)]
    pub views: ViewArgs,
}

/// `exobus wordcount`
#[derive(Debug, Clone, Args)]
pub struct WordcountArgs {
    /// Text files, or folders of them; words end at Unicode white space, bytes that are no UTF-8 count as they are
    #[arg(required = true)]
    pub input: Vec<PathBuf>,
    /// Folder for part-00000, part-00001, ... with lines of word, tab, count; made if missing, must be empty
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,
    /// What every job takes
    #[command(flatten)]
    pub job: JobArgs,
}

/// `exobus aggregate`
#[derive(Debug, Clone, Args)]
pub struct AggregateArgs {
    /// CSV files, or folders of them; fields with delimiters, quotes or line ends are in double quotes
    #[arg(required = true)]
    pub input: Vec<PathBuf>,
    /// Folder for part-00000, part-00001, ... with a line for each key; made if missing, must be empty
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,
    /// What is aggregated
    #[command(flatten)]
    pub columns: ColumnArgs,
    /// What every job takes
    #[command(flatten)]
    pub job: JobArgs,
}

/// What `exobus aggregate` makes of which columns.
#[derive(Debug, Clone, Args)]
pub struct ColumnArgs {
    /// Column to group by: a name of the header, or a number from 1
    #[arg(long, value_name = "COLUMN")]
    pub key: String,
    /// Column of the values, decimal numbers of up to 20 digits before and 18 after the point; may be left out where
    /// --ops is count
    #[arg(long, value_name = "COLUMN")]
    pub value: Option<String>,
    /// What to make of the values of a key, in the order of the output's columns
    #[arg(long, value_enum, value_name = "OPS", value_delimiter = ',', default_value = "sum,count,min,max")]
    pub ops: Vec<OperationName>,
    /// What stands between fields
    #[arg(long, value_name = "CHARACTER", default_value_t)]
    pub delimiter: Delimiter,
    /// The first record of each file names its columns
    #[arg(long)]
    pub header: bool,
}

/// `exobus explain`
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// The job.
    #[command(subcommand)]
    pub what: ExplainWhat,
}

/// Jobs that can be explained.
#[derive(Debug, Clone, Subcommand)]
pub enum ExplainWhat {
    /// A sort; nothing but the sizes of the input is read, of tables what their files say of themselves
    Sort(ExplainSortArgs),
    /// A word count; some small pieces of the input are mapped to see how much is left of it
    Wordcount(ExplainFilesArgs),
    /// An aggregation; files are read once, to see where records begin, and some small pieces of them are mapped
    Aggregate(ExplainAggregateArgs),
    /// A random shuffle; of records, some small pieces of the input are mapped; of tables, rows are counted where files do not say how many they have
    #[command(visible_alias = "random-shuffle")]
    Shuffle(ExplainRowsArgs),
    /// A deduplication, as if all keys were different; nothing but what files say of themselves is read
    Dedupe(ExplainDedupeArgs),
    /// Groups, as if each row were one, and whether aggregating them before the exchange helps; keys of some rows are read
    Group(ExplainGroupArgs),
    /// A join, and what is known of frequent keys; keys of some rows are read, and how many rows it would write nobody knows
    Join(ExplainJoinArgs),
    /// A repartition: of files alone as a conversion, by columns or in folders as a sort
    Repartition(ExplainRepartitionArgs),
    /// A conversion: how many files, and what memory each takes; nothing but what files say of themselves is read, unless rows are to be counted
    Convert(ExplainRowsArgs),
}

/// `exobus explain` of jobs that take nothing but files
#[derive(Debug, Clone, Args)]
pub struct ExplainFilesArgs {
    /// What the job would be given: files, or folders of them
    #[arg(required = true)]
    pub input: Vec<PathBuf>,
    /// Where it would run
    #[command(flatten)]
    pub setup: SetupArgs,
}

/// `exobus explain` of jobs over tables
#[derive(Debug, Clone, Args)]
pub struct ExplainTableArgs {
    /// How a table would be read
    #[command(flatten)]
    pub read: TableReadArgs,
    /// How it would be written
    #[command(flatten)]
    pub write: TableWriteArgs,
    /// Files, and where it would run
    #[command(flatten)]
    pub files: ExplainFilesArgs,
}

/// `exobus explain sort`
#[derive(Debug, Clone, Args)]
pub struct ExplainSortArgs {
    /// Columns that a table would be sorted by
    #[arg(long, value_name = "COLUMN[:desc][:nulls-first]", value_delimiter = ',')]
    pub key: Vec<KeyColumn>,
    /// The table
    #[command(flatten)]
    pub table: ExplainTableArgs,
}

/// `exobus explain shuffle`, and `exobus explain convert`
#[derive(Debug, Clone, Args)]
pub struct ExplainRowsArgs {
    /// Rows of a file of a table, at most
    #[arg(long, value_name = "ROWS", help_heading = "Tables", conflicts_with_all = ["partitions", "file_bytes"],
          value_parser = clap::value_parser!(u64).range(1..))]
    pub rows_per_file: Option<u64>,
    /// The table
    #[command(flatten)]
    pub table: ExplainTableArgs,
}

/// `exobus explain dedupe`
#[derive(Debug, Clone, Args)]
pub struct ExplainDedupeArgs {
    /// Columns of which rows that are alike would be one [default: the key of 100-byte records]
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub key: Vec<KeyColumn>,
    /// In which order rows of a key would be, before that of the input
    #[arg(long, value_name = "COLUMN[:desc][:nulls-first]", value_delimiter = ',')]
    pub order_by: Vec<KeyColumn>,
    /// The table
    #[command(flatten)]
    pub table: ExplainTableArgs,
}

/// `exobus explain group`
#[derive(Debug, Clone, Args)]
pub struct ExplainGroupArgs {
    /// What would be said of groups
    #[command(flatten)]
    pub query: GroupQueryArgs,
    /// How the table would be read
    #[command(flatten)]
    pub read: GroupReadArgs,
    /// How it would be written
    #[command(flatten)]
    pub write: TableWriteArgs,
    /// Files, and where it would run
    #[command(flatten)]
    pub files: ExplainFilesArgs,
}

/// `exobus explain join`
#[derive(Debug, Clone, Args)]
pub struct ExplainJoinArgs {
    /// What would be joined
    #[command(flatten)]
    pub tables: JoinTablesArgs,
    /// How it would be written
    #[command(flatten)]
    pub write: TableWriteArgs,
    /// Where it would run
    #[command(flatten)]
    pub setup: SetupArgs,
}

/// `exobus explain repartition`
#[derive(Debug, Clone, Args)]
pub struct ExplainRepartitionArgs {
    /// Where its rows would go
    #[command(flatten)]
    pub parts: PartsArgs,
    /// The table
    #[command(flatten)]
    pub table: ExplainTableArgs,
}

/// `exobus explain aggregate`
#[derive(Debug, Clone, Args)]
pub struct ExplainAggregateArgs {
    /// Files, and where it would run
    #[command(flatten)]
    pub files: ExplainFilesArgs,
    /// What would be aggregated
    #[command(flatten)]
    pub columns: ColumnArgs,
}

/// Operations that `--ops` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OperationName {
    /// The sum of the values
    Sum,
    /// How many records there are
    Count,
    /// The least value
    Min,
    /// The greatest value
    Max,
}

impl OperationName {
    /// The operation itself.
    pub fn operation(self) -> Operation {
        match self {
            Self::Sum => Operation::Sum,
            Self::Count => Operation::Count,
            Self::Min => Operation::Min,
            Self::Max => Operation::Max,
        }
    }
}

/// Files that show what a job did; the same for every command that runs a job.
#[derive(Debug, Clone, Default, Args)]
pub struct ViewArgs {
    /// Write a trace of tasks, waits, spills and transfers, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// Write a picture (SVG) of disk, network, processors, memory, spill and of all tasks over time
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Write what happens as it happens, a line of JSON for each event; the file may be a named pipe
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
}

impl ViewArgs {
    /// Opens what was asked for.
    ///
    /// # Errors
    /// A file that cannot be made or written to.
    pub fn open(&self) -> Result<Views, Failure> {
        Views::open(self.timeline.as_deref(), self.plot.as_deref(), self.events.as_deref())
    }
}

/// What `--cuts` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CutsName {
    /// At keys of a random sample of the input: parts are about even, whatever the keys are
    Sampled,
    /// At even distances in the space of keys: for keys that are spread evenly, or parts that must hold the same keys always
    Uniform,
}

/// Strategies that `--strategy` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum StrategyName {
    /// The one that is estimated to be the fastest; `exobus explain` shows the estimates
    Auto,
    /// Each reducer pulls its part of every map output
    Simple,
    /// Map outputs of a node are merged there first
    Riffle,
    /// Parts go to the nodes of their reducers as maps end, and are merged there; map outputs are kept for recovery
    Push,
    /// Rounds of maps and merges overlap; only merged blocks are kept
    TwoStage,
    /// Every partition folds round after round into a state
    Streaming,
}

impl StrategyName {
    /// The strategy itself; `None`: to be chosen.
    pub fn strategy(self) -> Option<Strategy> {
        match self {
            Self::Auto => None,
            Self::Simple => Some(Strategy::Simple),
            Self::Riffle => Some(Strategy::Riffle),
            Self::Push => Some(Strategy::Push),
            Self::TwoStage => Some(Strategy::TwoStage),
            Self::Streaming => Some(Strategy::Streaming),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_has_a_name_here() {
        let names: Vec<String> = StrategyName::value_variants()
            .iter()
            .filter_map(|name| Some(name.to_possible_value()?.get_name().to_owned()))
            .collect();
        let strategies = Strategy::ALL.iter().map(|strategy| strategy.name());
        assert_eq!(names, std::iter::once("auto").chain(strategies).collect::<Vec<_>>());
        for name in StrategyName::value_variants() {
            let written = name.to_possible_value().unwrap().get_name().to_owned();
            assert_eq!(name.strategy().map_or("auto", Strategy::name), written);
        }
    }
}
