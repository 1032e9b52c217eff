//! A table and what is done with it: everything follows from the seed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::task::JobError;
use exobus_shuffle::Strategy;
use exobus_tables::aggregates::{Aggregate, Function};
use exobus_tables::jobs::convert::{ConvertTable, convert};
use exobus_tables::jobs::dedupe::{DedupeTable, Keep, dedupe};
use exobus_tables::jobs::group::{GroupQuery, GroupTable, Top, group};
use exobus_tables::jobs::join::{Broadcast, JoinKind, JoinQuery, JoinTables, join};
use exobus_tables::jobs::repartition::{RepartitionTable, repartition};
use exobus_tables::jobs::shuffle::{ShuffleTable, shuffle};
use exobus_tables::jobs::sort::{SortTable, sort};
use exobus_tables::jobs::{FileSize, Folders, Rewrite, WriteOptions};
use exobus_tables::reading::ReadOptions;
use exobus_tables::semantics::{KeyColumn, Nulls};
use exobus_tables::sinks::{Compression, OutputFormat};
use serde_json::{Value, json};

use super::oracle::{RightTable, Table};

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
    /// Where it runs.
    pub shape: Shape,
    /// Where it runs once more, and makes the same files.
    pub again: Option<Shape>,
    verb: Verb,
    writing: WriteOptions,
    /// Files are given one by one, or their folder is.
    by_folder: bool,
}

/// A node, and how rows go through it.
pub struct Shape {
    executors: usize,
    memory_bytes: u64,
    strategy: Option<Strategy>,
}

impl Shape {
    fn new(seeded: &mut Seeded) -> Self {
        let strategies: Vec<_> = std::iter::once(None).chain(Strategy::ALL.map(Some)).collect();
        let (executors, memory_bytes) = (seeded.pick(&[1, 2, 4]), seeded.pick(&[64, 96, 256]) * MIB);
        Self { executors, memory_bytes, strategy: seeded.pick(&strategies) }
    }
}

/// What is done. Whoever adds a verb says here which options it has, how it is run and what DuckDB is asked, and how that is answered in `VERBS` of `verbs.py`.
enum Verb {
    Sort {
        key: Vec<KeyColumn>,
    },
    Shuffle {
        seed: u64,
    },
    Dedupe {
        key: Vec<KeyColumn>,
        keep: Keep,
        order_by: Vec<KeyColumn>,
    },
    Group(GroupQuery),
    Join {
        right: Box<Table>,
        query: JoinQuery,
        broadcast: Broadcast,
    },
    /// `folders`: none, or columns that are folders.
    Repartition {
        by: Vec<KeyColumn>,
        folders: Vec<String>,
    },
    Convert,
}

/// What is behind the names of columns of the right table that the left one has, too: its `id` is one, by which the oracle knows its rows.
const SUFFIX: &str = "_r";

impl Verb {
    /// A join with that table, where there is one.
    fn with(RightTable { right, on }: RightTable, seeded: &mut Seeded) -> Self {
        let kind = seeded.pick(&JoinKind::NAMES).1;
        // Rows that match none are written of no table that is broadcast.
        let broadcasts: &[_] = match kind {
            JoinKind::Full => &[Broadcast::Auto, Broadcast::Never],
            JoinKind::Right => &[Broadcast::Auto, Broadcast::Never, Broadcast::Never, Broadcast::Left],
            JoinKind::Inner => {
                &[Broadcast::Auto, Broadcast::Never, Broadcast::Never, Broadcast::Left, Broadcast::Right]
            }
            JoinKind::Left | JoinKind::Semi | JoinKind::Anti => {
                &[Broadcast::Auto, Broadcast::Never, Broadcast::Never, Broadcast::Right]
            }
        };
        let query = JoinQuery { on, kind, suffix: Some(SUFFIX.to_owned()) };
        Self::Join { right: Box::new(right), query, broadcast: seeded.pick(broadcasts) }
    }

    fn new(seeded: &mut Seeded, table: &Table) -> Self {
        let verbs =
            ["sort", "sort", "shuffle", "dedupe", "group", "group", "group", "convert", "repartition", "repartition"];
        match seeded.pick(&verbs) {
            "sort" => Self::Sort { key: key(seeded, table, &[1, 1, 2, 3, 4]) },
            "shuffle" => Self::Shuffle { seed: seeded.next() },
            "dedupe" => {
                let (key, keep) = (key(seeded, table, &[1, 1, 2, 3]), seeded.pick(&[Keep::First, Keep::Last]));
                Self::Dedupe { key, keep, order_by: self::key(seeded, table, &[0, 1, 2]) }
            }
            "repartition" => {
                let folders = folders(seeded, table);
                let mut by = key(seeded, table, &[0, 1, 1, 2]);
                by.retain(|key| !folders.contains(&key.column));
                Self::Repartition { by, folders }
            }
            // What has no other column than the one by which the oracle knows rows has no groups.
            "group" if table.keys.iter().any(|key| key != "id") => Self::Group(group_query(seeded, table)),
            _ => Self::Convert,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Sort { .. } => "sort",
            Self::Shuffle { .. } => "shuffle",
            Self::Dedupe { .. } => "dedupe",
            Self::Group(_) => "group",
            Self::Join { .. } => "join",
            Self::Repartition { .. } => "repartition",
            Self::Convert => "convert",
        }
    }

    /// How its output is written: `convert` has all formats that its table has, the others have Parquet.
    fn writing(&self, seeded: &mut Seeded, table: &Table) -> WriteOptions {
        let count = FileSize::Count(seeded.pick(&[1, 1, 2, 3, 8]));
        let rows = FileSize::Rows(seeded.pick(&[table.rows / 9 + 1, table.rows / 2 + 1, 333, 5000]));
        let bytes = FileSize::Bytes(seeded.pick(&[1 << 15, 1 << 20]));
        let splits = FileSize::Bytes(seeded.pick(&[1, 1 << 12, 1 << 20]));
        let text = if table.texts { OutputFormat::Csv } else { OutputFormat::Arrow };
        let tabbed = if table.texts { OutputFormat::Tsv } else { OutputFormat::Parquet };
        let (sizes, formats): (&[_], &[_]) = match self {
            Self::Sort { .. } => (&[count], &[OutputFormat::Parquet]),
            Self::Repartition { by, folders } if by.is_empty() && folders.is_empty() => {
                (&[count], &[OutputFormat::Parquet])
            }
            Self::Repartition { .. } => (&[count, count, bytes], &[OutputFormat::Parquet]),
            Self::Shuffle { .. } => (&[count, rows], &[OutputFormat::Parquet]),
            Self::Dedupe { .. } | Self::Join { .. } => (&[count, count, bytes], &[OutputFormat::Parquet]),
            Self::Group(_) => (&[count, rows, bytes], &[OutputFormat::Parquet]),
            Self::Convert => (&[count, rows, splits], &[OutputFormat::Parquet, OutputFormat::Arrow, text, tabbed]),
        };
        let format = seeded.pick(formats);
        let compressions: &[_] = match format {
            OutputFormat::Parquet => {
                &[Compression::None, Compression::Snappy, Compression::Lz4, Compression::Zstd(1), Compression::Gzip(1)]
            }
            OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::JsonLines => {
                &[Compression::None, Compression::Gzip(6), Compression::Zstd(1)]
            }
            OutputFormat::Arrow | OutputFormat::Records => &[Compression::None],
        };
        // A footer of as many row groups as a join may have rows takes more memory than there is.
        let least = if matches!(self, Self::Join { .. }) { 37 } else { 1 };
        WriteOptions {
            format: Some(format),
            compression: Some(seeded.pick(compressions)),
            group_rows: Some(seeded.pick(&[1, 37, 1000, 122_880]).max(least))
                .filter(|_| format == OutputFormat::Parquet),
            file_size: seeded.pick(sizes),
            verify: seeded.pick(&[false, true]),
        }
    }

    /// What `check` of the oracle is told about it.
    fn question(&self) -> Value {
        let mut question = match self {
            Self::Sort { key } => json!({ "key": key }),
            Self::Dedupe { key, keep, order_by } => json!({ "key": key, "keep": keep, "order_by": order_by }),
            Self::Group(GroupQuery { by, aggregates, having, top }) => {
                let aggregate = |aggregate: &Aggregate| {
                    let part = match aggregate.function {
                        Function::Quantile(part) | Function::QuantileCont(part) => Some(part),
                        _ => None,
                    };
                    json!({ "function": aggregate.function.name(), "column": aggregate.column, "part": part, "name": aggregate.name })
                };
                let aggregates: Vec<Value> = aggregates.iter().map(aggregate).collect();
                json!({ "by": by, "aggregates": aggregates, "having": having.is_some(), "top": top })
            }
            Self::Join { query: JoinQuery { on, kind, suffix }, broadcast, .. } => {
                // All tables are small.
                let order = match (broadcast, kind) {
                    (Broadcast::Never, _) | (_, JoinKind::Full) => "key",
                    (Broadcast::Left, _) | (_, JoinKind::Right) => "right",
                    _ => "left",
                };
                json!({ "on": on, "kind": kind.to_string(), "suffix": suffix, "order": order })
            }
            Self::Repartition { by, folders } => json!({ "by": by, "folders": folders }),
            Self::Shuffle { .. } | Self::Convert => json!({}),
        };
        question["verb"] = json!(self.name());
        question
    }

    fn arguments(&self) -> Vec<String> {
        match self {
            Self::Sort { key } => vec!["--key".to_owned(), key_text(key)],
            Self::Shuffle { seed } => vec!["--seed".to_owned(), seed.to_string()],
            Self::Dedupe { key, keep, order_by } => {
                let mut arguments = vec!["--key".to_owned(), key_text(key), "--keep".to_owned(), keep.to_string()];
                if !order_by.is_empty() {
                    arguments.extend(["--order-by".to_owned(), key_text(order_by)]);
                }
                arguments
            }
            Self::Group(GroupQuery { by, aggregates, having, top }) => {
                let texts: Vec<String> = aggregates.iter().map(ToString::to_string).collect();
                let mut arguments = vec!["--by".to_owned(), by.join(","), "--agg".to_owned(), texts.join(", ")];
                let mut say = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
                having.iter().for_each(|having| say("--having", having.to_string()));
                if let Some(Top { rows, order_by, per }) = top {
                    say("--top", rows.to_string());
                    if !order_by.is_empty() {
                        say("--order-by", key_text(order_by));
                    }
                    if !per.is_empty() {
                        say("--per", per.join(","));
                    }
                }
                arguments
            }
            Self::Join { right, query: JoinQuery { on, kind, suffix }, broadcast } => {
                let on: Vec<String> = on.iter().map(ToString::to_string).collect();
                let mut arguments = vec!["--on".to_owned(), on.join(","), "--how".to_owned(), kind.to_string()];
                let mut say = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
                say("--broadcast", broadcast.to_string());
                suffix.iter().for_each(|suffix| say("--suffix", suffix.clone()));
                right.schema.iter().for_each(|schema| say("--right-schema", schema.clone()));
                right.select.iter().for_each(|columns| say("--right-select", columns.join(",")));
                right.filter.iter().for_each(|condition| say("--right-where", condition.clone()));
                arguments
            }
            Self::Repartition { by, folders } => {
                let mut arguments = Vec::new();
                let mut say = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
                if !by.is_empty() {
                    say("--by", key_text(by));
                }
                if !folders.is_empty() {
                    say("--partition-by", folders.join(","));
                }
                arguments
            }
            Self::Convert => Vec::new(),
        }
    }
}

/// What is asked of groups: always the least `id` of each, by which the oracle knows it, and how many rows it has.
fn group_query(seeded: &mut Seeded, table: &Table) -> GroupQuery {
    let is_of_all = seeded.pick(&[false, false, false, false, false, false, false, true]);
    let by: Vec<String> = loop {
        if is_of_all {
            break Vec::new();
        }
        let key = key(seeded, table, &[1, 1, 2, 3]);
        // Columns that are paths have the last name of these nowhere, and `id` is that of the oracle.
        let by: Vec<String> = key.into_iter().map(|key| key.column).filter(|column| column != "id").collect();
        if !by.is_empty() {
            break by;
        }
    };
    let named = |function, column: Option<&str>, name: String| Aggregate {
        name,
        ..Aggregate::new(function, column.map(str::to_owned))
    };
    let mut aggregates = vec![
        named(Function::Min, Some("id"), "id".to_owned()),
        named(Function::Count, None, "rows of it".to_owned()),
        named(Function::Max, Some("id"), "last id".to_owned()),
    ];
    let columns: Vec<(&String, &str)> =
        table.columns.iter().map(|(name, of)| (name, of.as_str().unwrap_or_default())).collect();
    for number in 0..seeded.pick(&[0_usize, 1, 2, 4]) {
        let (column, of) = seeded.pick(&columns);
        let is_nested = ["list", "struct", "map"].iter().any(|nested| of.contains(nested));
        let is_number = ["int", "uint", "float", "double", "halffloat"].iter().any(|number| of.starts_with(number));
        // What DuckDB has no type for is known by its rows alone.
        let mut functions = vec![Function::First, Function::Last];
        if table.keys.contains(column) {
            functions.push(Function::Count);
        }
        if !is_nested && table.keys.contains(column) {
            let part = seeded.pick(&[0.0, 0.1, 0.5, 0.9, 1.0]);
            functions.extend([Function::Min, Function::Max, Function::CountDistinct, Function::Quantile(part)]);
            if is_number {
                functions.extend([Function::Sum, Function::Avg, Function::Variance, Function::StddevPopulation]);
                functions.push(Function::QuantileCont(part));
            }
        }
        aggregates.push(named(seeded.pick(&functions), Some(column), format!("aggregate {number}")));
    }
    let having = seeded.pick(&[false, false, true]).then(|| "\"rows of it\" > 1".parse().unwrap());
    let top = seeded.pick(&[false, false, true]).then(|| {
        let per = by[..seeded.pick(&(0..=by.len()).collect::<Vec<_>>())].to_vec();
        let rows_falling = KeyColumn { descending: true, ..KeyColumn::rising("rows of it") };
        Top { rows: seeded.pick(&[1, 3, 10]), order_by: vec![rows_falling], per }
    });
    GroupQuery { by, aggregates, having, top }
}

/// Columns that are folders, as often as not none.
fn folders(seeded: &mut Seeded, table: &Table) -> Vec<String> {
    let mut folders = Vec::new();
    for _ in 0..seeded.pick(&[0, 1, 1, 1, 2]) {
        let column = table.folders.get(seeded.next() as usize % table.folders.len().max(1));
        folders.extend(column.filter(|column| !folders.contains(*column)).cloned());
    }
    folders
}

/// Columns that have an order, as many as one of these at most.
fn key(seeded: &mut Seeded, table: &Table, columns: &[usize]) -> Vec<KeyColumn> {
    let mut key: Vec<KeyColumn> = Vec::new();
    for _ in 0..seeded.pick(columns) {
        let column = seeded.pick(&table.keys.iter().collect::<Vec<_>>()).clone();
        if key.iter().all(|other| other.column != column) {
            let nulls = seeded.pick(&[Nulls::Last, Nulls::First]);
            key.push(KeyColumn { column, descending: seeded.pick(&[false, true]), nulls });
        }
    }
    key
}

impl Case {
    /// With a right table it is a join.
    pub fn new(seed: u64, table: Table, right: Option<RightTable>) -> Self {
        let mut seeded = Seeded(seed);
        let verb = match right {
            Some(right) => Verb::with(right, &mut seeded),
            None => Verb::new(&mut seeded, &table),
        };
        let writing = verb.writing(&mut seeded, &table);
        // The command joins what one path stands for.
        let by_folder = seeded.pick(&[false, true]) || matches!(verb, Verb::Join { .. }) || table.is_a_folder();
        let shape = Shape::new(&mut seeded);
        let runs_twice = matches!(verb, Verb::Shuffle { .. }) || seeded.pick(&[true, false, false, false]);
        let again = runs_twice.then(|| Shape::new(&mut seeded));
        Self { table, shape, again, verb, writing, by_folder }
    }

    fn inputs(&self) -> Vec<PathBuf> {
        match self.by_folder {
            true => vec![self.table.folder()],
            false => self.table.inputs.clone(),
        }
    }

    /// Columns of groups are those that are asked for.
    fn is_of_groups(&self) -> bool {
        matches!(self.verb, Verb::Group(_))
    }

    fn rewrite(&self, shape: &Shape, output: &Path) -> Rewrite {
        let mut reading = reading(&self.table);
        if self.is_of_groups() {
            reading.select = None;
        }
        let (strategy, writing) = (shape.strategy, self.writing);
        Rewrite { reading, writing, strategy, ..Rewrite::new(self.inputs(), output.to_owned()) }
    }

    /// Runs it in a node of this process; how many rows there were.
    pub async fn run(&self, shape: &Shape, output: &Path, spill: &Path) -> Result<u64, JobError> {
        let mut options = NodeOptions::alone(shape.executors, shape.memory_bytes);
        options.store.spill_dirs = vec![spill.to_owned()];
        let node = Node::start(options).unwrap();
        let (job, table) = (JobId::new(), self.rewrite(shape, output));
        let result = match &self.verb {
            Verb::Sort { key } => {
                let params = SortTable { table, key: key.clone() };
                node.run(job, "table.sort", None, async move |futures| sort(futures, params).await).await.0
            }
            Verb::Shuffle { seed } => {
                let params = ShuffleTable { table, seed: *seed };
                node.run(job, "table.shuffle", None, async move |futures| shuffle(futures, params).await).await.0
            }
            Verb::Dedupe { key, keep, order_by } => {
                let (key, keep, order_by) = (key.clone(), *keep, order_by.clone());
                let params = DedupeTable { table, key, keep, order_by };
                node.run(job, "table.dedupe", None, async move |futures| dedupe(futures, params).await).await.0
            }
            Verb::Group(query) => {
                let params = GroupTable { table, query: query.clone() };
                node.run(job, "table.group", None, async move |futures| group(futures, params).await).await.0
            }
            Verb::Join { right, query, broadcast } => {
                let (query, broadcast, right_reading) = (query.clone(), *broadcast, reading(right));
                let params = JoinTables { table, right: vec![right.folder()], right_reading, query, broadcast };
                node.run(job, "table.join", None, async move |futures| join(futures, params).await).await.0
            }
            Verb::Repartition { by, folders } => {
                let folders = (!folders.is_empty()).then(|| Folders::of(folders.clone()));
                let params = RepartitionTable { table, by: by.clone(), folders };
                let program = async move |futures| repartition(futures, params).await;
                node.run(job, "table.repartition", None, program).await.0
            }
            Verb::Convert => {
                let params = ConvertTable { table, rows: None };
                node.run(job, "table.convert", None, async move |futures| convert(futures, params).await).await.0
            }
        };
        node.stop();
        result.map(|report| report.rows)
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
        let mut arguments = vec![self.verb.name().to_owned()];
        arguments.extend(self.verb.arguments());
        let mut say = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        let (table, shape) = (&self.table, &self.shape);
        say("--format", self.form());
        match self.writing.file_size {
            FileSize::Count(files) => say("--partitions", files.to_string()),
            FileSize::Rows(rows) => say("--rows-per-file", rows.to_string()),
            FileSize::Bytes(bytes) => say("--file-bytes", bytes.to_string()),
        }
        self.writing.compression.iter().for_each(|said| say("--compression", said.to_string()));
        self.writing.group_rows.iter().for_each(|rows| say("--row-group-rows", rows.to_string()));
        shape.strategy.iter().for_each(|strategy| say("--strategy", strategy.name().to_owned()));
        say("--executors", shape.executors.to_string());
        say("--memory", format!("{}MiB", shape.memory_bytes / MIB));
        table.schema.iter().for_each(|schema| say("--schema", schema.clone()));
        table.select.iter().filter(|_| !self.is_of_groups()).for_each(|columns| say("--select", columns.join(",")));
        table.filter.iter().for_each(|condition| say("--where", condition.clone()));
        arguments.extend(self.inputs().iter().map(|path| path.display().to_string()));
        if let Verb::Join { right, .. } = &self.verb {
            arguments.push(right.folder().display().to_string());
        }
        arguments
    }

    fn form(&self) -> String {
        self.writing.format.map(|format| format.to_string()).unwrap_or_default()
    }

    /// What the oracle is asked about the output, which has so many rows, where that is known.
    pub fn question(&self, output: &Path, rows: Option<u64>) -> Value {
        let mut question = self.verb.question();
        question["output"] = json!(output);
        question["form"] = json!(self.form());
        question["size"] = json!(self.writing.file_size);
        question["rows"] = json!(rows);
        question
    }
}

/// How a table is read.
fn reading(table: &Table) -> ReadOptions {
    ReadOptions {
        schema: table.schema.clone(),
        select: table.select.clone(),
        filter: table.filter.as_ref().map(|text| text.parse().unwrap()),
        ..ReadOptions::default()
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
        write!(f, "exobus {}\n  a table of {}: {}", self.arguments().join(" "), self.table.mode, columns.join(", "))?;
        let Verb::Join { right, .. } = &self.verb else { return Ok(()) };
        let columns: Vec<_> = right.columns.iter().map(|(name, of)| format!("{name} {of}")).collect();
        write!(f, "\n  with one of {}: {}", right.mode, columns.join(", "))
    }
}
