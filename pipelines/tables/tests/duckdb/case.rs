//! A table and what is done with it: everything follows from the seed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::task::JobError;
use exobus_shuffle::Strategy;
use exobus_tables::jobs::sort::{SortTable, sort};
use exobus_tables::jobs::{FileSize, Rewrite, WriteOptions};
use exobus_tables::reading::ReadOptions;
use exobus_tables::semantics::{KeyColumn, Nulls};
use exobus_tables::sinks::{Compression, OutputFormat};
use serde_json::{Value, json};

use super::oracle::Table;

const MIB: u64 = 1 << 20;

/// Numbers that follow from a seed (splitmix64).
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[(self.next() % of.len() as u64) as usize]
    }
}

/// A verb over a table, on a node.
pub struct Case {
    pub table: Table,
    verb: Verb,
    /// Files are given one by one, or their folder is.
    by_folder: bool,
    executors: usize,
    memory_bytes: u64,
}

/// What is done. Whoever adds a verb says here which options it has, how it is run and what DuckDB is asked, and how that is answered in `VERBS` of `oracle.py`.
enum Verb {
    Sort { key: Vec<KeyColumn>, files: u32, strategy: Option<Strategy>, writing: WriteOptions },
}

impl Verb {
    fn new(seeded: &mut Seeded, table: &Table) -> Self {
        let strategies: Vec<_> = std::iter::once(None).chain(Strategy::ALL.map(Some)).collect();
        let compressions = [Compression::None, Compression::Snappy, Compression::Lz4, Compression::Zstd(1)];
        let writing = WriteOptions {
            format: Some(OutputFormat::Parquet),
            compression: seeded.pick(&compressions),
            group_rows: seeded.pick(&[1, 37, 1000, 122_880]),
            ..WriteOptions::default()
        };
        let strategy = seeded.pick(&strategies);
        Self::Sort { key: key(seeded, table), files: seeded.pick(&[1, 1, 2, 3, 8]), strategy, writing }
    }

    /// What `check` of the oracle is told about it.
    fn question(&self) -> Value {
        match self {
            Self::Sort { key, files, .. } => json!({ "verb": "sort", "key": key, "files": files }),
        }
    }
}

/// Up to four columns that have an order.
fn key(seeded: &mut Seeded, table: &Table) -> Vec<KeyColumn> {
    let mut key: Vec<KeyColumn> = Vec::new();
    for _ in 0..seeded.pick(&[1, 1, 2, 3, 4]) {
        let column = seeded.pick(&table.keys.iter().collect::<Vec<_>>()).clone();
        if key.iter().all(|other| other.column != column) {
            let nulls = seeded.pick(&[Nulls::Last, Nulls::First]);
            key.push(KeyColumn { column, descending: seeded.pick(&[false, true]), nulls });
        }
    }
    key
}

impl Case {
    pub fn new(seed: u64, table: Table) -> Self {
        let mut seeded = Seeded(seed);
        let verb = Verb::new(&mut seeded, &table);
        let (by_folder, executors) = (seeded.pick(&[false, true]), seeded.pick(&[1, 2, 4]));
        Self { table, verb, by_folder, executors, memory_bytes: seeded.pick(&[64, 96, 256]) * MIB }
    }

    fn inputs(&self) -> Vec<PathBuf> {
        match self.by_folder {
            true => vec![self.table.inputs[0].parent().unwrap().to_owned()],
            false => self.table.inputs.clone(),
        }
    }

    /// Runs it in a node of this process; how many rows there were.
    pub async fn run(&self, output: &Path, spill: &Path) -> Result<u64, JobError> {
        let mut options = NodeOptions::alone(self.executors, self.memory_bytes);
        options.store.spill_dirs = vec![spill.to_owned()];
        let node = Node::start(options).unwrap();
        let (inputs, output) = (self.inputs(), output.to_owned());
        let reading = ReadOptions { schema: self.table.schema.clone(), ..ReadOptions::default() };
        let result = match &self.verb {
            Verb::Sort { key, files, strategy, writing } => {
                let writing = WriteOptions { file_size: FileSize::Count(*files), ..*writing };
                let table = Rewrite { reading, writing, strategy: *strategy, ..Rewrite::new(inputs, output) };
                let params = SortTable { table, key: key.clone() };
                let program = async move |futures| sort(futures, params).await;
                node.run(JobId::new(), "table.sort", None, program).await.0.map(|report| report.rows)
            }
        };
        node.stop();
        result
    }

    /// Runs it as people do.
    pub fn run_program(&self, output: &Path, spill: &Path) -> Result<(), String> {
        let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug/exobus");
        let program = std::env::var_os("EXOBUS_BIN").map_or_else(built, PathBuf::from);
        let mut command = Command::new(&program);
        command.args(self.arguments()).arg("--output").arg(output).arg("--spill").arg(spill);
        let run = command.output().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        match run.status.success() {
            true => Ok(()),
            false => Err(format!("the program ended with {}: {}", run.status, String::from_utf8_lossy(&run.stderr))),
        }
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = match &self.verb {
            Verb::Sort { key, files, strategy, writing } => {
                let mut arguments = ["sort", "--format", "parquet", "--key"].map(str::to_owned).to_vec();
                arguments.push(key_text(key));
                arguments.extend(["--partitions".to_owned(), files.to_string()]);
                arguments.extend(["--row-group-rows".to_owned(), writing.group_rows.to_string()]);
                arguments.extend(strategy.iter().flat_map(|one| ["--strategy".to_owned(), one.name().to_owned()]));
                arguments
            }
        };
        arguments.extend(["--executors".to_owned(), self.executors.to_string()]);
        arguments.extend(["--memory".to_owned(), format!("{}MiB", self.memory_bytes / MIB)]);
        arguments.extend(self.table.schema.iter().flat_map(|schema| ["--schema".to_owned(), schema.clone()]));
        arguments.extend(self.inputs().iter().map(|path| path.display().to_string()));
        arguments
    }

    /// What the oracle is asked about the output.
    pub fn question(&self, output: &Path) -> Value {
        let mut question = self.verb.question();
        question["output"] = json!(output);
        question
    }
}

/// A key as `--key` has it.
fn key_text(key: &[KeyColumn]) -> String {
    let column = |key: &KeyColumn| {
        let direction = if key.descending { ":desc" } else { "" };
        let nulls = if key.nulls == Nulls::First { ":nulls-first" } else { "" };
        format!("{}{direction}{nulls}", key.column)
    };
    key.iter().map(column).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<_> = self.table.columns.iter().map(|(name, of)| format!("{name} {of}")).collect();
        write!(f, "exobus {}\n  a table of {}: {}", self.arguments().join(" "), self.table.mode, columns.join(", "))
    }
}
