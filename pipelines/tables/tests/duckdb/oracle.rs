//! The process that makes tables and asks DuckDB.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use exobus_tables::jobs::join::Pair;
use serde::Deserialize;
use serde_json::{Value, json};

/// A table in files.
#[derive(Clone, Debug, Deserialize)]
pub struct Table {
    /// Its files, in their order.
    pub inputs: Vec<PathBuf>,
    /// What `--schema` has to say.
    pub schema: Option<String>,
    pub rows: u64,
    /// The column whose types in two files have none that holds both: there is no such table.
    pub refused: Option<String>,
    /// What `--select` and `--where` have to say.
    pub select: Option<Vec<String>>,
    pub filter: Option<String>,
    /// Whether text has the types of what is selected.
    pub texts: bool,
    /// What is to be named, where its files are in folders of values.
    folder: Option<PathBuf>,
    /// Columns whose values can be folders.
    pub folders: Vec<String>,
    /// Columns, and paths to fields of them, that can be keys.
    pub keys: Vec<String>,
    /// Which formats it has.
    pub mode: String,
    /// Types of its columns, for who looks at a failure.
    pub columns: serde_json::Map<String, Value>,
}

impl Table {
    /// The folder of its files.
    pub fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| self.inputs[0].parent().unwrap().to_owned())
    }

    /// Whether it is read by its folder alone, of which folders are columns.
    pub fn is_a_folder(&self) -> bool {
        self.folder.is_some()
    }
}

/// The second table of a join.
#[derive(Clone, Debug, Deserialize)]
pub struct RightTable {
    pub right: Table,
    /// Columns that have to be the same.
    pub on: Vec<Pair>,
}

/// A running `oracle.py`, which is asked one thing at a time.
pub struct Oracle {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts it.
    ///
    /// # Panics
    /// There is no Python with DuckDB: results are compared, or the test fails.
    pub fn start() -> Self {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let fetched = || package.join("../../target/duckdb/venv/bin/python");
        let python = std::env::var_os("EXOBUS_DUCKDB_PYTHON").map_or_else(fetched, PathBuf::from);
        let mut command = Command::new(&python);
        // The tests of SQL have it, too.
        command
            .arg("-B")
            .arg(package.join("../tables/tests/duckdb/oracle.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| {
            panic!("{}: {error}; `cargo xtask duckdb` fetches it, and `cargo xtask test` does", python.display())
        });
        let (questions, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, questions, answers: BufReader::new(answers) }
    }

    /// Asks a question, and waits for its answer.
    ///
    /// # Panics
    /// There is none.
    pub fn ask(&mut self, question: &Value) -> Value {
        writeln!(self.questions, "{question}").expect("oracle.py takes a question; what it said is above");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("oracle.py answers");
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        if let Some(failed) = answer["failed"].as_str() {
            panic!("oracle.py failed over {question}:\n{failed}");
        }
        answer
    }

    /// Makes the table of a seed in a folder.
    pub fn make(&mut self, seed: u64, folder: &Path) -> Table {
        serde_json::from_value(self.ask(&json!({ "make": { "seed": seed, "folder": folder } }))).unwrap()
    }

    /// Makes a second table in a folder, with which the last one is joined; `None`: it has no column for that.
    pub fn join(&mut self, seed: u64, folder: &Path) -> Option<RightTable> {
        serde_json::from_value(self.ask(&json!({ "join": { "seed": seed, "folder": folder } }))).unwrap()
    }

    /// How the output of a verb over the last table differs from what it should be; `None`: not at all.
    pub fn check(&mut self, question: &Value) -> Option<String> {
        let answer = self.ask(&json!({ "check": question }));
        answer["differs"].as_str().map(str::to_owned)
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
