//! The command line: what can be said. What it does is in `commands/`, one file each.

mod jobs;
mod place;
#[cfg(feature = "sql")]
mod query;
mod results;
mod specs;
mod tables;
mod watch;

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use self::jobs::{
    AggregateArgs, ColumnArgs, CutsName, ExplainAggregateArgs, ExplainArgs, ExplainDedupeArgs, ExplainFilesArgs,
    ExplainGroupArgs, ExplainJoinArgs, ExplainRepartitionArgs, ExplainRowsArgs, ExplainSortArgs, ExplainTableArgs,
    ExplainWhat, HowArgs, JobArgs, OperationName, ProcessArgs, ResumeArgs, RunArgs, SchemaArgs, SetupArgs, SortArgs,
    StrategyName, SubmitArgs, ViewArgs, WordcountArgs,
};
pub use self::place::{ClusterArgs, FilesArgs, PlaceArgs, SettingArgs};
#[cfg(feature = "sql")]
pub use self::query::QueryArgs;
pub use self::results::{ResultAction, ResultArgs, ResultGetArgs, Way};
pub use self::specs::refused;
pub use self::tables::{
    ConvertArgs, DedupeArgs, GroupArgs, GroupQueryArgs, GroupReadArgs, JoinArgs, JoinTablesArgs, OnlineArgs, PartsArgs,
    RepartitionArgs, RightReadArgs, ShowArgs, ShuffleArgs, TableArgs, TableReadArgs, TableRowsArgs, TableWriteArgs,
};
pub use self::watch::{EstimateArgs, JobQueryArgs, JobQuestion, JobsArgs, LookArgs, TimelineArgs};
use crate::{
    commands::{dev::OnLoss, generate::GenerateArgs, validate::ValidateArgs},
    config::{
        MemoryBudget, Overrides, Setting,
        keys::Kind,
        units::{UnitError, parse_size},
    },
    exit::Exit,
};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "exobus",
    version,
    about = "Sorts, shuffles and moves data between all workers of a cluster, or on this machine alone",
    after_help = exit_codes(),
    disable_help_subcommand = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The arguments of this process. A query that begins with a comment would be taken for an option: it gets a space before it, which says nothing in SQL.
pub fn arguments() -> impl Iterator<Item = OsString> {
    std::env::args_os().map(|argument| match begins_with_comment(argument.as_encoded_bytes()) {
        true => [" ".into(), argument].into_iter().collect(),
        false => argument,
    })
}

/// Whether a text has a comment of SQL before its first line end, and no name of an option.
fn begins_with_comment(text: &[u8]) -> bool {
    let name = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    text.starts_with(b"--") && text.contains(&b'\n') && name.iter().any(u8::is_ascii_whitespace)
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make records of the sort benchmark
    Generate(GenerateArgs),
    /// Check that records, or rows of a table, are in order, and sum them up
    Validate(ValidateArgs),
    /// Show the first rows of a table, its columns, or what its files say of it
    Show(ShowArgs),
    /// Sort tables by columns, or files of 100-byte records
    Sort(SortArgs),
    /// Put tables, or files of 100-byte records, into a random order that a seed decides, as files of even length
    #[command(visible_alias = "random-shuffle")]
    Shuffle(ShuffleArgs),
    /// Leave one row of each key of a table
    Dedupe(DedupeArgs),
    /// Say something of groups of rows of a table: counts, sums, averages, quantiles
    Group(GroupArgs),
    /// Answer a query of SQL over files: SELECT .. FROM 'sales/*.parquet' ..
    #[cfg(feature = "sql")]
    Query(QueryArgs),
    /// Join two tables: rows that have the same key, side by side
    Join(JoinArgs),
    /// Write tables as so many files, with rows of a key together, or in folders of the values of columns
    Repartition(RepartitionArgs),
    /// Write tables as files of another format or length
    Convert(ConvertArgs),
    /// Count the words of text files
    Wordcount(WordcountArgs),
    /// Count, add up, and find the least and greatest values of CSV files by key
    Aggregate(AggregateArgs),
    /// Run the job that a file says
    Submit(SubmitArgs),
    /// Run a program that nodes offer, with parameters of a file
    Run(RunArgs),
    /// Print what such files may say, as JSON schemas
    Schema(SchemaArgs),
    /// Go on with a job that this machine did not finish: its process was killed, or the machine went down
    Resume(ResumeArgs),
    /// Say what a job would do, and why
    Explain(ExplainArgs),
    /// Measure the runtime
    Bench(BenchArgs),
    /// Run a node of a cluster until Ctrl-C or SIGTERM
    Node(NodeArgs),
    /// List the jobs of a cluster, and how it stands with each
    Jobs(JobsArgs),
    /// Ask about one job of a cluster
    Job(JobQueryArgs),
    /// Get, list or delete results that jobs of a cluster have left
    Result(ResultArgs),
    /// Run a whole cluster on this machine: a nats-server and several nodes
    Dev(DevArgs),
    /// Print or check configuration
    Config(ConfigArgs),
    /// Print a sample of each message that nodes exchange
    Protocols(ProtocolsArgs),
    /// Check this machine, and a cluster, for what would make jobs fail or crawl
    Doctor(DoctorArgs),
    /// Become a program that ends when our parent does; used by `dev`
    #[command(hide = true)]
    RunWithParent(RunWithParentArgs),
}

/// `exobus bench`
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_enum)]
    pub what: BenchName,
    /// How many bytes to spill
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4GB")]
    pub size: u64,
    /// Maps of the shuffle
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..), default_value = "1000")]
    pub maps: u32,
    /// Partitions of the shuffle
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1_000_000), default_value = "1000")]
    pub partitions: u32,
    /// How many small jobs are handed in
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000), default_value = "1000")]
    pub jobs: u64,
    /// By how many clients, each the next one when its last one is over
    #[arg(long, value_name = "C", value_parser = clap::value_parser!(u64).range(1..=1000), default_value = "50")]
    pub clients: u64,
    /// Spec of each of these jobs, in which `{n}` is its number [default: a job of one task that does nothing]
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,
    /// Do not wait for the end of any of them
    #[arg(long)]
    pub detach: bool,
    /// Memory of the process, from 64MiB [default: 60% of what is available, 1GiB for spill]. Not on a cluster
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<MemoryBudget>,
    /// Folder for spill files [default: /var/tmp]. Not on a cluster
    #[arg(long, value_name = "DIR")]
    pub spill: Vec<PathBuf>,
    /// Executors [default: one for each cpu]. Not on a cluster
    #[arg(long, value_name = "E", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub executors: Option<u32>,
    /// Where it is measured
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Print the figures as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// What `exobus bench` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchName {
    /// No-op tasks a second, 10 000 outstanding
    Tasks,
    /// Submit to result of one task at a time
    Latency,
    /// Objects put into the store: 100 MB and 1 kB
    Put,
    /// Objects of 100 MB between two nodes
    Transfer,
    /// Objects through a store that is smaller than they are, and back
    Spill,
    /// Memory of the Owner with a million live references
    Metadata,
    /// A shuffle of parts of one row: what a part, a block and a task cost
    Shuffle,
    /// Tasks that read the same parts of a set, and of edges, in turns: what edges cost
    Edges,
    /// Small jobs of many clients of a cluster: how soon they are accepted, and how many there are a second
    Jobs,
}

/// Settings that `exobus node` takes over from the configuration when given.
#[derive(Debug, Clone, Args)]
pub struct NodeArgs {
    /// Configuration; every key has a default, see `exobus config default`
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Name of the node, unique in its cluster
    #[arg(long, value_parser = node_name)]
    pub name: Option<String>,
    /// NATS server of the cluster
    #[arg(long, value_name = "URL", value_parser = nats_url)]
    pub cluster: Option<String>,
    /// Address and port where other nodes fetch data
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Memory of the process: a size from 64MiB, or a share such as 60%
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<MemoryBudget>,
    /// Folder for spill files, may be repeated
    #[arg(long, value_name = "DIR")]
    pub spill: Vec<PathBuf>,
    /// Tasks that run at a time; 0: two for each cpu
    #[arg(long, value_name = "E", value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub executors: Option<u32>,
    /// This node may be the cluster's Scheduler; those that may elect one
    #[arg(long)]
    pub scheduler: bool,
    /// Listen beyond this machine although data crosses the network unencrypted
    #[arg(long)]
    pub insecure_no_tls: bool,
    /// Go without tokens although everybody who reaches the NATS server may then speak as a node
    #[arg(long)]
    pub insecure_no_token: bool,
    /// Go without roots although jobs may then read and write all files that the process may
    #[arg(long)]
    pub insecure_any_path: bool,
    /// Single keys; the options above win over them
    #[command(flatten)]
    pub settings: SettingArgs,
}

impl NodeArgs {
    /// What the flags set.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            name: self.name.clone(),
            nats_url: self.cluster.clone(),
            listen: self.listen,
            memory: self.memory,
            spill_dirs: self.spill.clone(),
            executors: self.executors,
            scheduler: self.scheduler,
            insecure_no_tls: self.insecure_no_tls,
            insecure_no_token: self.insecure_no_token,
            insecure_any_path: self.insecure_any_path,
            ..self.settings.overrides()
        }
    }
}

/// `exobus dev`
#[derive(Debug, Clone, Args)]
pub struct DevArgs {
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: u32,
    /// Memory per node, from 64MiB [default: 60% of what is available, divided by the number of nodes]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Executors of each node [default: the cpus divided by the number of nodes, at least 1]
    #[arg(long, value_name = "E", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub executors: Option<u32>,
    /// Port of the nats-server; 0: any free one [default: 4222, or any free one when that is taken]
    #[arg(long)]
    pub port: Option<u16>,
    /// What becomes of the others when a node ends by itself
    #[arg(long, value_enum, default_value_t)]
    pub on_loss: OnLoss,
    /// Folder for configurations and spill files [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// With TLS on all connections, an nkey and the shipped permissions for each role, tokens and roots
    #[arg(long)]
    pub secure: bool,
    /// With --secure, a folder that jobs may read and write, besides `data` in the cluster's folder; several times: several
    #[arg(long = "root", value_name = "DIR", requires = "secure")]
    pub roots: Vec<PathBuf>,
    /// Say a key of the configuration of all nodes, one of [node] and what is in it: node.results_kept=2h; may be repeated
    #[arg(long, value_name = "node.KEY=VALUE", value_parser = Setting::parse)]
    pub set: Vec<Setting>,
    /// Program of the nats-server [default: EXOBUS_NATS_SERVER, PATH, what `cargo xtask nats` fetched]
    #[arg(long, value_name = "FILE")]
    pub nats_server: Option<PathBuf>,
}

/// `exobus config`
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// What to do with it
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What `exobus config` can do.
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigAction {
    /// Print every key with its meaning and default, as a file
    Default,
    /// Print the values that are in effect, as a file: what the defaults, a file, the environment and --set say together
    Show(ShowConfigArgs),
    /// Print the JSON schema of configuration files, for editors
    Schema,
    /// Check a file, together with the environment, as `exobus node` would
    Check {
        /// The file
        file: PathBuf,
        /// Single keys
        #[command(flatten)]
        settings: SettingArgs,
    },
    /// Make a file with a new random token, nodes' or submitters'; only its owner can read it
    Token {
        /// The file; it must not exist yet
        file: PathBuf,
    },
    /// Make an authority for the certificates of a cluster: ca.pem, which everybody believes, and ca.key, which signs
    Ca {
        /// Its folder; it must not have one yet
        dir: PathBuf,
        /// For how many days
        #[arg(long, value_name = "N", default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Make certificates and their keys, NAME.pem and NAME.key for each name
    Cert(CertArgs),
}

/// `exobus config show`
#[derive(Debug, Clone, Args)]
pub struct ShowConfigArgs {
    /// The file [default: none]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say behind each value where it comes from: default, a line of the file, an environment variable, or --set
    #[arg(long)]
    pub origin: bool,
    /// Single keys
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// `exobus config cert`
#[derive(Debug, Clone, Args)]
pub struct CertArgs {
    /// Folder of the authority that signs
    #[arg(long, value_name = "DIR")]
    pub ca: PathBuf,
    /// The cluster of the nodes
    #[arg(long, value_name = "NAME", default_value = "local", value_parser = node_name)]
    pub cluster: String,
    /// Of a node, for its data connections (security.data_cert_file) and to show to a NATS server; several times: of several
    #[arg(long = "node", value_name = "NAME", value_parser = node_name, required_unless_present_any = ["servers", "clients"])]
    pub nodes: Vec<String>,
    /// Of a NATS server, server.pem, with a name or address that clients reach it by; several times: with several
    #[arg(long = "server", value_name = "HOST")]
    pub servers: Vec<String>,
    /// Of somebody else who connects to a NATS server that asks for certificates; several times: of several
    #[arg(long = "client", value_name = "NAME", value_parser = node_name)]
    pub clients: Vec<String>,
    /// For how many days
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
    /// Folder that they are written to; nothing is overwritten
    pub out: PathBuf,
}

/// `exobus protocols`
#[derive(Debug, Clone, Args)]
pub struct ProtocolsArgs {
    /// Only the protocols whose name contains this
    pub filter: Option<String>,
}

/// `exobus doctor`
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// Which cluster is checked, too
    #[command(flatten)]
    pub place: ClusterArgs,
}

/// `exobus run-with-parent`, hidden.
#[derive(Debug, Clone, Args)]
pub struct RunWithParentArgs {
    /// Process id of the parent
    #[arg(long)]
    pub parent: i32,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    pub program: Vec<PathBuf>,
}

fn size(text: &str) -> Result<u64, UnitError> {
    parse_size(text)
}

/// The same check as for `cluster.nats_url`.
fn nats_url(text: &str) -> Result<String, String> {
    if Kind::NatsUrl.accepts_text(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected {}", Kind::NatsUrl.expected()))
    }
}

fn node_name(text: &str) -> Result<String, String> {
    if exobus_actors::ids::NodeId::is_valid(text) {
        Ok(text.to_owned())
    } else {
        Err("a node's name is 1 to 64 characters of A-Z a-z 0-9 _ -".into())
    }
}

pub(crate) fn exit_codes() -> String {
    let mut text = String::from("Exit codes:\n");
    for (exit, meaning) in Exit::ALL {
        text.push_str(&format!("  {:>3}  {meaning}\n", exit.code()));
    }
    text.push_str("\nLogs go to stderr; EXOBUS_LOG (or RUST_LOG) says which, for example EXOBUS_LOG=debug.");
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_comment_before_a_query_is_told_apart_from_options() {
        for (text, expected) in [
            ("-- totals\nSELECT a", true),
            ("-- a = b\nSELECT a", true),
            ("--totals\nSELECT a", true),
            ("SELECT a -- totals\nFROM b", false),
            ("--where=a > 1\n  and b < 2", false),
            ("--where", false),
            ("--where a", false),
            ("--", false),
        ] {
            assert_eq!(begins_with_comment(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn sort_takes_what_the_readme_says() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        assert!(parse("exobus sort --generate 1GB").is_ok());
        assert!(parse("exobus sort a b --output out --memory 4GiB --spill x --spill y --partitions 7 --json").is_ok());
        for wrong in [
            "exobus sort",
            "exobus sort a",
            "exobus sort a --generate 1GB --output out",
            "exobus sort a --output out --memory lots",
            "exobus sort a --output out --strategy magic",
            "exobus sort a --output out --partitions 0",
            "exobus sort --generate 0",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
