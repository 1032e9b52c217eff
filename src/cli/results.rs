//! The arguments of commands about results.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use exobus_actors::ids::JobId;

use super::LookArgs;

/// `exobus result`
#[derive(Debug, Clone, Args)]
pub struct ResultArgs {
    /// What to do
    #[command(subcommand)]
    pub action: ResultAction,
}

/// What can be done with results.
#[derive(Debug, Clone, Subcommand)]
pub enum ResultAction {
    /// List the results that are there, the latest first
    List(LookArgs),
    /// Write a file of a result to this machine
    Get(ResultGetArgs),
    /// Free a result now instead of when its time is over
    Delete {
        /// Id of the result: that of its job
        #[arg(value_parser = id)]
        id: JobId,
        /// Which cluster
        #[command(flatten)]
        look: LookArgs,
    },
}

/// `exobus result get`
#[derive(Debug, Clone, Args)]
pub struct ResultGetArgs {
    /// Id of the result: that of its job
    #[arg(value_parser = id)]
    pub id: JobId,
    /// Which file: its name, or its number from 0 [default: the first]
    #[arg(long)]
    pub file: Option<String>,
    /// Where to write it; it must not exist yet. \"-\": stdout
    #[arg(long, short, value_name = "PATH")]
    pub output: PathBuf,
    /// Which way the bytes come
    #[arg(long, value_enum, default_value_t = Way::Auto)]
    pub way: Way,
    /// Which cluster, and how it is told
    #[command(flatten)]
    pub look: LookArgs,
}

/// Which way the bytes of a result come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// From the data ports of nodes where they can be reached, else over NATS
    Auto,
    /// From the data ports of the nodes that have them
    Data,
    /// Over NATS
    Nats,
}

fn id(text: &str) -> Result<JobId, String> {
    let is_id = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let id = if is_id { text.parse().ok() } else { None };
    id.ok_or_else(|| "the id of a result is 32 hexadecimal digits; `exobus result list` prints them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_named_by_the_whole_id_of_its_job() {
        assert!(id("019000000000700080000000000000aF").is_ok());
        for wrong in ["", "01", "0190000000007000800000000000000g", "+1900000000070008000000000000001"] {
            assert!(id(wrong).is_err(), "{wrong:?}");
        }
    }
}
