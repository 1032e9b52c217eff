//! Jobs over files: `exobus shuffle`, `dedupe`, `group`, `join`, `repartition`, `convert`, `wordcount` and `aggregate`, in this process or on a cluster. What their
//! options say is a spec.

use super::{kept, planned};
use crate::{
    cli::{AggregateArgs, ConvertArgs, DedupeArgs, GroupArgs, JoinArgs, RepartitionArgs, ShuffleArgs, WordcountArgs},
    exit::{Exit, Failure},
};

/// Shuffles a table, or records where nothing else is asked for, and prints the summary.
pub fn shuffle_rows(args: &ShuffleArgs) -> Result<Exit, Failure> {
    planned::run(&args.table.job, args.spec())
}

/// Leaves one row of each key and prints the summary.
pub fn dedupe_rows(args: &DedupeArgs) -> Result<Exit, Failure> {
    planned::run(&args.table.job, args.spec())
}

/// Says something of the groups of a table and prints the summary.
pub fn group_rows(args: &GroupArgs) -> Result<Exit, Failure> {
    match &args.online.go_on {
        Some(job) => kept::go_on(&args.job, job, args.online.page, None),
        None => planned::run_online(&args.job, args.spec(), &args.online),
    }
}

/// Joins two tables and prints the summary.
pub fn join_rows(args: &JoinArgs) -> Result<Exit, Failure> {
    planned::run(&args.job, args.spec())
}

/// Writes a table in other files and prints the summary.
pub fn repartition_files(args: &RepartitionArgs) -> Result<Exit, Failure> {
    planned::run(&args.table.job, args.spec())
}

/// Writes a table once more and prints the summary.
pub fn convert_files(args: &ConvertArgs) -> Result<Exit, Failure> {
    planned::run(&args.table.job, args.spec())
}

/// Counts words and prints the summary.
pub fn wordcount(args: &WordcountArgs) -> Result<Exit, Failure> {
    planned::run(&args.job, args.spec())
}

/// Aggregates and prints the summary.
pub fn aggregate(args: &AggregateArgs) -> Result<Exit, Failure> {
    planned::run(&args.job, args.spec())
}
