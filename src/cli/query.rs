//! The arguments of `exobus query`.

use std::path::PathBuf;

use clap::Args;
use exobus_tables::sinks::OutputFormat;

use super::{JobArgs, OnlineArgs, TableWriteArgs};

/// `exobus query`
#[derive(Debug, Clone, Args)]
pub struct QueryArgs {
    /// The query: SELECT .. FROM 'files/*.parquet' [JOIN 'others.csv' ON ..] WHERE .. GROUP BY .. ORDER BY .. LIMIT ..; EXPLAIN before it says how it would be done
    #[arg(value_name = "SQL", required_unless_present = "go_on", conflicts_with = "go_on")]
    pub sql: Option<String>,
    /// A name for files that the query uses instead of them; several times: several names
    #[arg(long, value_name = "NAME=FILES")]
    pub table: Vec<String>,
    /// Folder for the answer, as files of a table; made if missing, must be empty [default: its first rows are printed]
    #[arg(long, short, value_name = "DIR", conflicts_with = "go_on")]
    pub output: Option<PathBuf>,
    /// Folder for what steps of the query write until the answer is there; on a cluster one that all nodes reach [default: where --spill is; with --output, DIR.steps]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// How many rows of the answer are printed, at most [default: 100; with --format all]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(0..=1_000_000), conflicts_with_all = ["output", "go_on"])]
    pub rows: Option<u32>,
    /// What is shown before everything was read
    #[command(flatten)]
    pub online: OnlineArgs,
    /// How it is written; without --output, --format csv, tsv or jsonl prints its rows so
    #[command(flatten)]
    pub write: TableWriteArgs,
    /// What every job takes
    #[command(flatten)]
    pub job: JobArgs,
}

impl QueryArgs {
    /// The format that the answer is printed in, where that is not a table for people.
    pub fn printed(&self) -> Option<OutputFormat> {
        self.write.format.filter(|_| self.output.is_none())
    }
}
