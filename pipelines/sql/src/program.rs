//! The program that answers a query: step by step, each of which is a job over tables that reads files and writes files.
//!
//! What steps write lies in a folder of the job in a scratch folder until the answer is there, as files of Parquet that are whole: a query that goes on after its host was lost goes on behind the last step that was done.

use std::path::{Path, PathBuf};

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::ids::JobId;
use exobus_actors::program;
use exobus_actors::registry::{Paths, TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, TaskOptions};
use exobus_files::Location;
use exobus_queries::online::{Online, OnlineAnswer, OnlineGroup, online_group};
use exobus_shuffle::jobs::outputs;
use exobus_shuffle::{Sizes, Strategy};
use exobus_tables::block::Layout;
use exobus_tables::jobs::convert::{ConvertTable, convert};
use exobus_tables::jobs::dedupe::{DedupeTable, Keep, dedupe};
use exobus_tables::jobs::group::{GroupTable, group};
use exobus_tables::jobs::join::{Broadcast, JoinTables, join};
use exobus_tables::jobs::sort::{SortTable, sort};
use exobus_tables::jobs::{Found, Rewrite, Rewritten, TaskBudget, WriteOptions, find};
use exobus_tables::reading::{Beside, Computed, ReadOptions};
use exobus_tables::sinks::{Compression, GROUP_ROWS, OutputFormat};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use twox_hash::XxHash3_128;

pub use crate::answer::Shown;
use crate::answer::{FirstRowsParams, LOOK_BYTES, first_rows, remove, shown_bytes_max};
use crate::plan::{Answer, Origin, Plan, Rows, Slice, Step, VERSION, check_version};
use crate::rows::{Measured, measure};
use crate::{Catalog, text};

/// A table of a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedTable {
    /// What the query calls it.
    pub name: String,
    /// Its files, folders of them, or patterns.
    #[serde(with = "exobus_actors::paths")]
    pub inputs: Vec<PathBuf>,
    /// How they are read.
    #[serde(default)]
    pub reading: ReadOptions,
}

/// A query, and what is done with its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SqlQuery {
    /// The text.
    pub text: String,
    /// The tables that it names.
    pub tables: Vec<NamedTable>,
    /// A folder for the answer; none: its first rows are what the job returns.
    #[serde(with = "exobus_actors::paths")]
    pub output: Vec<PathBuf>,
    /// A folder for what steps write until the answer is there. All nodes have to reach it.
    #[serde(with = "exobus_actors::paths")]
    pub scratch: PathBuf,
    /// How the answer is written.
    pub writing: WriteOptions,
    /// When and where rows move; `None`: as is estimated to be the fastest.
    pub strategy: Option<Strategy>,
    /// Whether folders are read that a job has claimed and not committed.
    #[serde(default)]
    pub partial: bool,
    /// Whether it is only to be said how it would be done, as also `EXPLAIN` says.
    #[serde(default)]
    pub explains: bool,
    /// What is shown before the answer is there; `None`: nothing.
    pub online: Option<Online>,
    /// How many rows of the answer are returned where it has no folder.
    pub rows_shown: u64,
}

/// What a query has answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The first rows of the answer; none where it has a folder, or is only explained.
    pub shown: Shown,
    /// What was written to the folder.
    pub written: Option<Rewritten>,
    /// How many steps there were.
    pub steps: u64,
    /// Rows that were read of tables.
    pub rows_read: u64,
    /// The hash of what it was planned as, 32 hexadecimal digits: the same for the same query of the same tables, asked at the same time of the same release.
    #[serde(default)]
    pub plan: String,
    /// How it is done, where that was asked.
    pub explained: Option<String>,
    /// Why nothing was shown before the answer was there, though that was asked for.
    pub not_online: Option<String>,
    /// What was shown before everything was read, and why it ended.
    pub online: Option<exobus_queries::online::Answered>,
}

/// Answers a query.
///
/// # Errors
/// What is wrong with it, with its place; what it asks for that there is no operator for; those of jobs over tables.
#[program(name = "query.sql", version = 2, give_back = give_back, paths = paths)]
pub async fn query(futures: Futures, params: SqlQuery) -> Result<Answered, JobError> {
    Box::pin(answered(futures, params)).await.map_err(where_options_are)
}

/// Options of commands over tables that errors about files name, and queries do not have.
const OPTIONS_OF_TABLES: [&str; 5] = ["--schema", "--json-mixed", "--input-format", "--select", "--hive"];

/// Says of an error that names such an option how a query comes to read such files all the same.
fn where_options_are(mut error: JobError) -> JobError {
    let message = match &mut error {
        JobError::Task { failure, .. } => &mut failure.message,
        JobError::Program { message, .. } => message,
        _ => return error,
    };
    if OPTIONS_OF_TABLES.iter().any(|option| message.contains(option)) {
        message.push_str("; a query has no such option, `exobus convert` has it, and makes files that a query reads");
    }
    error
}

async fn answered(futures: Futures, params: SqlQuery) -> Result<Answered, JobError> {
    let mut params = params;
    let folder = params.scratch.join(futures.job().to_string());
    let (of_job, scratch) = (folder.clone(), params.owned_scratch());
    let job = futures.job();
    futures.when_over(move || clear(job, &of_job, scratch.as_deref()));
    let (mut tables, mut bytes_of, mut first) = (Vec::new(), Vec::new(), None);
    for NamedTable { name, inputs, reading } in &params.tables {
        let Found { schema, format, bytes } = find(&futures, inputs.clone(), reading.clone(), params.partial).await?;
        let layout = Layout::new(&schema).map_err(JobError::program)?;
        tables.push((name.clone(), ByteBuf::from(layout.encode())));
        bytes_of.push(bytes);
        first.get_or_insert(format);
    }
    // What steps write is nobody's to go by.
    params.writing.format = params.writing.format.or(first);
    let now = futures.now().as_micros() as i64;
    let asked = futures.put_value(&(&params.text, &tables, &bytes_of))?;
    let planned = futures.submit(make_plan, &PlanParams { now, version: VERSION }, &[asked.arg()])?;
    let (plan, looking_up, explains) = match futures.get_value(&planned).await? {
        Planned::Plan { plan, looking_up, explains } => (plan, looking_up, explains || params.explains),
        Planned::Refused(what) => return Err(JobError::request(what)),
    };
    check_version(plan.version).map_err(JobError::program)?;
    if explains {
        let names: Vec<String> = params.tables.iter().map(|table| table.name.clone()).collect();
        let online = match (plan.online(), &looking_up) {
            (Ok(_), _) => "--online shows it before it is done".to_owned(),
            (Err(_), Some(plan)) => {
                let instead = "where what is looked up is small, with one row of each key, this is done instead, and --online shows it before it is done:";
                format!("{instead}\n{}", plan.describe(&names))
            }
            (Err(why), None) => format!("--online shows nothing before it is done: {why}"),
        };
        let explained = format!("{}\n    {online}", plan.describe(&names));
        return Ok(Answered { explained: Some(explained), ..Answered::default() });
    }
    let hash = hash_of(&(&plan, &looking_up))?;
    let run = Run { futures: &futures, params: &params, asked, folder, beside_bytes: 0 };
    let answered = run.answer_by(&plan, looking_up.as_deref()).await?;
    Ok(Answered { plan: hash, ..answered })
}

/// The xxh3-128 of what a query is planned as, 32 hexadecimal digits.
fn hash_of(planned: &impl Serialize) -> Result<String, JobError> {
    let bytes = rmp_serde::to_vec(planned).map_err(JobError::program)?;
    Ok(format!("{:032x}", XxHash3_128::oneshot(&bytes)))
}

/// What `make_plan` is told. Its only argument is the text of the query, the names of its tables with the layouts of their rows, and how many bytes these have.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PlanParams {
    /// When the query was asked, in microseconds since 1970.
    now: i64,
    /// That of plans that who asks can do: a plan that another release has made of a query that goes on is of another task.
    version: u32,
}

/// What came of planning.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Planned {
    Plan { plan: Box<Plan>, looking_up: Option<Box<Plan>>, explains: bool },
    Refused(String),
}

/// What was asked: the text, the names of its tables with the layouts of their rows, and how many bytes these have.
type Asked = (String, Vec<(String, ByteBuf)>, Vec<u64>);

/// The first argument of a task of a query.
pub(crate) fn asked(context: &TaskContext<'_>) -> Result<Asked, TaskError> {
    rmp_serde::from_slice(&context.block(0)).map_err(TaskError::fatal)
}

/// Plans a query: once, as long as what comes of it is not lost. A plan that is made again and is another one, by another release, ends the job (law 4).
#[task(name = "query.plan", version = 2, deterministic = true)]
fn make_plan(context: &mut TaskContext<'_>, params: PlanParams) -> Result<Planned, TaskError> {
    check_version(params.version).map_err(TaskError::fatal)?;
    let (text, tables, bytes) = asked(context)?;
    let mut catalog = Catalog::default();
    for (name, layout) in &tables {
        catalog.add(name, Layout::decode(layout).map_err(TaskError::fatal)?.schema().clone());
    }
    let planned = text::parse(&text).and_then(|parsed| {
        let explains = parsed.explains;
        let (plan, looking_up) = crate::plan(parsed, &catalog, &bytes, params.now)?;
        Ok(Planned::Plan { plan: Box::new(plan), looking_up: looking_up.map(Box::new), explains })
    });
    Ok(planned.unwrap_or_else(|error| Planned::Refused(error.to_string())))
}

/// What `measure_look_ups` is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LookUpsParams {
    /// What looks rows up, with the folders that steps have written.
    computed: Computed,
    /// How many bytes of memory it may take.
    most: u64,
}

/// Looks whether rows can be looked up in what steps have written.
#[task(name = "query.look_ups", deterministic = true)]
fn measure_look_ups(context: &mut TaskContext<'_>, params: LookUpsParams) -> Result<Measured, TaskError> {
    let LookUpsParams { computed, most } = params;
    computed.beside.folders.iter().try_for_each(|folder| context.check_path(folder))?;
    let budget = TaskBudget::new(context);
    let measured = measure(&computed, most, &budget.shared()).map_err(TaskError::fatal)?;
    measured.map_err(|error| budget.of_source(error))
}

/// Rows of a row group of what steps write: a quarter of those that others have, since nobody says so of these where there is little memory.
const STEP_GROUP_ROWS: u64 = GROUP_ROWS / 4;

/// What is looked up for rows takes this share of what an executor has of the memory of a node, and so many bytes at most.
const LOOK_UPS_SHARE: u64 = 8;
const LOOK_UPS_BYTES_MAX: u64 = 64 << 20;
/// The same where nothing is shown early.
const LOOK_UPS_BATCH_BYTES_MAX: u64 = 16 << 20;

/// A query on its way.
#[derive(Clone)]
struct Run<'a> {
    futures: &'a Futures,
    params: &'a SqlQuery,
    /// What was asked: with the layouts of the tables.
    asked: ObjectRef,
    /// Of what steps write.
    folder: PathBuf,
    /// Bytes of memory that it takes to look rows up in what steps have written.
    beside_bytes: u64,
}

/// How it is shown what is known before a plan is done, and of what.
type Early<'a> = Option<(Online, Option<&'a OnlineAnswer>)>;

impl Run<'_> {
    fn step_folder(&self, step: usize) -> PathBuf {
        self.folder.join(format!("{step:03}"))
    }

    fn step_folders(&self, steps: &[usize]) -> Vec<PathBuf> {
        steps.iter().map(|step| self.step_folder(*step)).collect()
    }

    /// Files that have these rows, and how they are read.
    fn reads(&self, rows: &Rows) -> (Vec<PathBuf>, ReadOptions) {
        let (inputs, mut reading) = match &rows.origin {
            Origin::Table(table) => {
                let NamedTable { inputs, reading, .. } = &self.params.tables[*table];
                (inputs.clone(), rows.reading(reading))
            }
            Origin::Steps(steps) => {
                let reading = ReadOptions { hive: Some(false), ..ReadOptions::default() };
                (self.step_folders(steps), rows.reading(&reading))
            }
        };
        if let Some(computed) = &mut reading.computed {
            computed.beside = Beside { folders: self.step_folders(&rows.beside), bytes: self.beside_bytes };
        }
        (inputs, reading)
    }

    /// These rows, on their way to a folder.
    fn rewrite(&self, rows: &Rows, (output, writing): (PathBuf, WriteOptions)) -> Rewrite {
        let (inputs, reading) = self.reads(rows);
        let partial = self.params.partial && matches!(rows.origin, Origin::Table(_));
        Rewrite { inputs, output, reading, writing, strategy: self.params.strategy, partial }
    }

    /// Where a step writes, and how: as Parquet, in row groups that the smallest node has memory for.
    fn to_scratch(&self, step: usize) -> (PathBuf, WriteOptions) {
        let (format, compression) = (Some(OutputFormat::Parquet), Some(Compression::Lz4));
        let group_rows = Some(STEP_GROUP_ROWS);
        (self.step_folder(step), WriteOptions { format, compression, group_rows, ..WriteOptions::default() })
    }

    /// Does what a plan says, or another one, `looking_up`, where what that looks up is small; shows what is known before it is done, where that is asked for and possible.
    async fn answer_by(self, plan: &Plan, looking_up: Option<&Plan>) -> Result<Answered, JobError> {
        let mut why = plan.online().err().map(str::to_owned);
        if let Some(other) = looking_up {
            let mut run = Run { folder: self.folder.join("beside"), ..self.clone() };
            let (done, measured) = run.look_ups(other).await?;
            match measured {
                // Each task reads what it looks up, which costs more than to write rows between where that is much.
                Measured::Bytes(bytes) if self.params.online.is_some() || bytes <= LOOK_UPS_BATCH_BYTES_MAX => {
                    run.beside_bytes = bytes;
                    return run.answer(other, done, self.params.online.zip(other.online().ok())).await;
                }
                Measured::Bytes(_) => (),
                Measured::Not(what) => why = Some(what),
            }
        }
        let answered = self.answer(plan, (0, 0), self.params.online.zip(plan.online().ok())).await?;
        let not_online = why.zip(self.params.online).map(|(why, online)| match online.until {
            None => why,
            Some(until) => format!("{why}; {until} was not waited for"),
        });
        Ok(Answered { not_online, ..answered })
    }

    /// Does the steps of a plan which write what a later one looks up: how many they are, how many rows of tables they have read, and what it takes to look rows up.
    async fn look_ups(&self, plan: &Plan) -> Result<((usize, u64), Measured), JobError> {
        let none = || JobError::program("a plan looks nothing up");
        let (group, rows) = plan.looks_up().ok_or_else(none)?;
        let mut read = 0;
        for (number, step) in plan.steps[..group].iter().enumerate() {
            read += step_reads(step, &self.step(step, self.to_scratch(number)).await?);
        }
        let computed = self.reads(rows).1.computed.ok_or_else(none)?;
        let nodes = Sizes::of(&self.futures.nodes(), 0);
        let of_executor = nodes.memory_bytes / u64::from(nodes.executors_per_node.max(1));
        let most = (of_executor / LOOK_UPS_SHARE).min(LOOK_UPS_BYTES_MAX);
        let options = TaskOptions { outside_bytes: most, ..TaskOptions::default() };
        let params = LookUpsParams { computed, most };
        let measured = self.futures.submit_with(measure_look_ups, &params, &[], options)?;
        Ok(((group, read), self.futures.get_value(&measured).await?))
    }

    /// Does what a plan says, behind the steps that are done and have read so many rows of tables.
    async fn answer(
        &self,
        plan: &Plan,
        (done, rows_read): (usize, u64),
        online: Early<'_>,
    ) -> Result<Answered, JobError> {
        let mut answered = Answered { steps: plan.steps.len() as u64, rows_read, ..Answered::default() };
        let Answer { rows, slice, .. } = &plan.answer;
        // The last step writes the answer itself where there is nothing more to do.
        let is_last = |step: usize| {
            let is_as_it_is = rows.computed.is_none() && rows.filter.is_none() && rows.select.is_none();
            is_as_it_is && slice_is_done(plan, step) && rows.origin == Origin::Steps(vec![step])
        };
        let mut written = None;
        for (number, step) in plan.steps.iter().enumerate().skip(done) {
            let is_answer = is_last(number);
            let to = match self.params.output.first() {
                Some(output) if is_answer => (output.clone(), self.params.writing),
                _ => self.to_scratch(number),
            };
            let did = match (step, online) {
                (Step::Group { rows, query }, Some((online, shown))) => {
                    let group = GroupTable { table: self.rewrite(rows, to), query: query.clone() };
                    let params = OnlineGroup { answer: shown.cloned(), ..online.of(group) };
                    let early = online_group(self.futures.clone(), params).await?;
                    let did = early.written.clone();
                    answered.online = Some(early);
                    match did {
                        Some(did) => did,
                        None => return Ok(answered),
                    }
                }
                (step, _) => self.step(step, to).await?,
            };
            answered.rows_read += step_reads(step, &did);
            if is_answer {
                written = Some(did);
            }
        }
        if let Some(output) = self.params.output.first() {
            if written.is_none() {
                let table = self.rewrite(rows, (output.clone(), self.params.writing));
                let did = convert(self.futures.clone(), ConvertTable { table, rows: range(*slice) }).await?;
                if matches!(rows.origin, Origin::Table(_)) {
                    answered.rows_read += did.rows_read;
                }
                written = Some(did);
            }
            answered.written = written;
            return Ok(answered);
        }
        let (mut inputs, mut reading) = self.reads(rows);
        let mut wanted = slice.rows.unwrap_or(u64::MAX);
        if slice.skip > 0 {
            // Rows that are passed over by number are not looked at.
            let to = self.to_scratch(plan.steps.len());
            let output = to.0.clone();
            let end = slice.skip.saturating_add(wanted.min(self.params.rows_shown.saturating_add(1)));
            let params = ConvertTable { table: self.rewrite(rows, to), rows: Some(slice.skip..end) };
            convert(self.futures.clone(), params).await?;
            (inputs, reading) = (vec![output], ReadOptions { hive: Some(false), ..ReadOptions::default() });
            wanted = wanted.min(end - slice.skip);
        }
        let (count, partial) = (wanted.min(self.params.rows_shown), self.params.partial);
        let table = match rows.origin {
            Origin::Table(table) if slice.skip == 0 => Some(table),
            _ => None,
        };
        let bytes = shown_bytes_max(self.futures.home(), &answered)?;
        let params = FirstRowsParams { inputs, partial, reading, rows: count, bytes, table };
        let options = TaskOptions { outside_bytes: LOOK_BYTES, ..TaskOptions::default() };
        let mut shown: Shown = self
            .futures
            .get_value(&self.futures.submit_with(first_rows, &params, &[self.asked.arg()], options)?)
            .await?;
        // As many as were asked for are all that there are to be.
        shown.is_all |= shown.rows == count && slice.rows.is_some_and(|rows| rows <= count);
        answered.shown = shown;
        Ok(answered)
    }

    async fn step(&self, step: &Step, to: (PathBuf, WriteOptions)) -> Result<Rewritten, JobError> {
        let futures = self.futures.clone();
        match step {
            Step::Group { rows, query } => {
                group(futures, GroupTable { table: self.rewrite(rows, to), query: query.clone() }).await
            }
            Step::Join { left, right, query } => {
                let (right, right_reading) = self.reads(right);
                let (table, query) = (self.rewrite(left, to), query.clone());
                join(futures, JoinTables { table, right, right_reading, query, broadcast: Broadcast::Auto }).await
            }
            Step::Sort { rows, key } => {
                sort(futures, SortTable { table: self.rewrite(rows, to), key: key.clone() }).await
            }
            Step::First { rows, key, order_by } => {
                let (key, order_by) = (key.clone(), order_by.clone());
                dedupe(futures, DedupeTable { table: self.rewrite(rows, to), key, keep: Keep::First, order_by }).await
            }
            Step::Copy { rows, slice } => {
                convert(futures, ConvertTable { table: self.rewrite(rows, to), rows: range(*slice) }).await
            }
        }
    }
}

/// Whether what a step writes has no more rows than the answer is to have.
fn slice_is_done(plan: &Plan, step: usize) -> bool {
    let Slice { skip, rows } = plan.answer.slice;
    let most = match &plan.steps[step] {
        Step::Group { query, .. } => query.top.as_ref().filter(|top| top.per.is_empty()).map(|top| top.rows),
        Step::Copy { slice, .. } => slice.rows,
        _ => None,
    };
    skip == 0 && rows.is_none_or(|rows| most.is_some_and(|most| most <= rows))
}

/// Rows that a step has read of tables.
fn step_reads(step: &Step, did: &Rewritten) -> u64 {
    let is_of_table = |rows: &Rows| matches!(rows.origin, Origin::Table(_));
    if step.rows().any(is_of_table) { did.rows_read } else { 0 }
}

fn range(slice: Slice) -> Option<std::ops::Range<u64>> {
    let end = slice.rows.map_or(u64::MAX, |rows| slice.skip.saturating_add(rows));
    (!slice.is_all()).then_some(slice.skip..end)
}

/// Removes what steps of a job that is over have written, and the folder that it was in, where that was made for it.
fn clear(job: JobId, folder: &Path, scratch: Option<&Path>) {
    let removed = remove(folder);
    if let Err(error) = removed {
        tracing::warn!(job_id = %job, %error, "what steps of a query have written is left");
    }
    if let Some(scratch) = scratch {
        // Others may be in it.
        let _ = std::fs::remove_dir(scratch);
    }
}

fn paths(params: &SqlQuery) -> Paths {
    let reads = params.tables.iter().flat_map(|table| table.inputs.iter().cloned()).collect();
    Paths { reads, writes: params.output.iter().chain([&params.scratch]).cloned().collect() }
}

/// Frees what a job that is over has not made whole.
fn give_back(job: JobId, params: SqlQuery) {
    if let Some(output) = params.output.first() {
        outputs::give_back(job, output);
    }
    clear(job, &params.scratch.join(job.to_string()), params.owned_scratch().as_deref());
}

/// The folder beside that of an answer in which steps write.
pub(crate) fn scratch_beside(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".steps");
    name.into()
}

impl SqlQuery {
    /// The name of the program.
    pub const NAME: &'static str = "query.sql";

    /// What is wrong with it, whatever the tables are.
    ///
    /// # Errors
    /// The field of a spec that says it, and what.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let scratch = Location::from(&self.scratch);
        if let Some(scheme) = scratch.scheme() {
            let what = format!(
                "what steps of a query write is kept in folders of file systems, and {scheme}: is none: say another --scratch"
            );
            return Err(("scratch", what));
        }
        let read = self.tables.iter().flat_map(|table| &table.inputs);
        if let Some(other) = self.output.iter().chain(read).find(|other| self.scratch.starts_with(other)) {
            let (scratch, other) = (self.scratch.display(), other.display());
            return Err((
                "scratch",
                format!("{scratch} is in {other}, which is the query's: steps write to another folder"),
            ));
        }
        Ok(())
    }

    /// The scratch folder, where it was made for this query.
    fn owned_scratch(&self) -> Option<PathBuf> {
        let beside = self.output.first().map(|output| scratch_beside(output));
        beside.filter(|beside| *beside == self.scratch)
    }

    /// A query that returns the first rows of its answer.
    pub fn new(text: impl Into<String>, tables: Vec<NamedTable>, scratch: PathBuf) -> Self {
        Self {
            text: text.into(),
            tables,
            output: Vec::new(),
            scratch,
            writing: WriteOptions::default(),
            strategy: None,
            partial: false,
            explains: false,
            online: None,
            rows_shown: 1000,
        }
    }
}

#[cfg(test)]
mod tests {
    use exobus_actors::ids::JobId;
    use exobus_actors::node::{Node, NodeOptions};

    use super::*;

    #[tokio::test]
    async fn a_node_plans_no_query_for_another_release() {
        let node = Node::start(NodeOptions::alone(1, 64 << 20)).unwrap();
        let planned = async |version: u32| {
            let ask = async move |futures: Futures| {
                let nothing: Asked = ("SELECT 1 AS one".to_owned(), Vec::new(), Vec::new());
                let asked = futures.put_value(&nothing)?;
                let planned = futures.submit(make_plan, &PlanParams { now: 0, version }, &[asked.arg()])?;
                futures.get_value(&planned).await
            };
            node.run(JobId::new(), "query.sql", None, ask).await.0
        };
        let own = planned(VERSION).await;
        assert!(matches!(own, Ok(Planned::Plan { .. } | Planned::Refused(_))), "{own:?}");
        let refused = planned(VERSION + 1).await.unwrap_err().to_string();
        let said =
            format!("of version {} are those of another release, and this one has version {VERSION}", VERSION + 1);
        assert!(refused.contains(&said), "{refused}");
        node.stop();
    }
}
