//! Jobs that a spec says: planned in one place, run in this process or on a cluster, and told in the words of their programs.

use std::path::PathBuf;

use bytes::Bytes;
use exobus_actors::{
    registry,
    spec::{Plain, Plan, Spec, SpecError},
};
use exobus_files::{FileError, check_output_folder};
use exobus_queries::online::{Answered, OnlineGroup};
use exobus_shuffle::{
    files::{list_files, list_inputs},
    jobs::{Aggregate, RandomShuffle, WordCount, sort::SortReport},
    keyed::{KeyedReport, Registered as _},
};
use exobus_tables::{
    jobs::{
        Rewritten, TableJob as _, convert::ConvertTable, dedupe::DedupeTable, group::GroupTable, join::JoinTables,
        map_batches::MapTable, repartition::RepartitionTable, shuffle::ShuffleTable, sort::SortTable,
    },
    kinds::check_inputs,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    generate::failure as file_failure,
    kept,
    session::{Ran, Session},
};
#[cfg(feature = "sql")]
use crate::report::AnswerSummary;
use crate::{
    cli::{JobArgs, OnlineArgs, SetupArgs, refused},
    cluster,
    config::Overrides,
    exit::{Exit, Failure, OrExit},
    report::{JobSummary, KeyedSummary, KeyedWords, OnlineSummary, TableSummary, TableWords},
};

/// What the jobs of a program are told in.
#[derive(Clone, Copy)]
pub(super) enum Words {
    Sort,
    Table(TableWords),
    Keyed(KeyedWords),
    /// With what was shown last.
    Online,
    /// With the rows of the answer.
    #[cfg(feature = "sql")]
    Answer,
    /// The rows of the answer alone, in a format of text.
    #[cfg(feature = "sql")]
    Printed(super::query::Printed),
    /// As JSON, whatever it is.
    None,
}

const SORT: &str = "sort";
const GROUPED: TableWords = TableWords { did: "grouped", made: Some("groups") };

impl Words {
    /// Those of the program of this key.
    pub(super) fn of(program: &str) -> Self {
        let keyed = |did, rows, keys| Self::Keyed(KeyedWords { did, rows, keys });
        let table = |did| Self::Table(TableWords { did, made: None });
        match registry::name_of(program) {
            SORT => Self::Sort,
            SortTable::NAME | "table" => table("sorted"),
            ShuffleTable::NAME => table("shuffled"),
            DedupeTable::NAME => table("deduplicated"),
            GroupTable::NAME => Self::Table(GROUPED),
            OnlineGroup::NAME => Self::Online,
            #[cfg(feature = "sql")]
            exobus_sql::program::SqlQuery::NAME => Self::Answer,
            JoinTables::NAME => Self::Table(TableWords { did: "joined", made: Some("rows") }),
            RepartitionTable::NAME => table("repartitioned"),
            ConvertTable::NAME => table("converted"),
            MapTable::NAME => table("mapped"),
            WordCount::NAME => keyed("counted", "words", Some("different")),
            Aggregate::NAME => keyed("aggregated", "records", Some("groups")),
            RandomShuffle::NAME => keyed("shuffled", "records", None),
            _ => Self::None,
        }
    }
}

/// Refuses input and output that cannot be used: what is wrong with a name is a plain error here. On a cluster its nodes see to both.
pub(super) fn look(plan: &Plan, partial: bool) -> Result<(), Failure> {
    look_at(&plan.program, &plan.reads, partial).map_err(file_failure)?;
    plan.writes.iter().try_for_each(check_output_folder).map_err(file_failure)
}

fn look_at(program: &str, reads: &[PathBuf], partial: bool) -> Result<(), FileError> {
    let name = registry::name_of(program);
    let name = name.strip_suffix(".explain").unwrap_or(name);
    match Words::of(name) {
        Words::Sort => list_inputs(reads, partial).map(drop),
        Words::Keyed(_) if name == RandomShuffle::NAME => list_inputs(reads, partial).map(drop),
        Words::Keyed(_) => list_files(reads, partial).map(drop),
        Words::Table(_) | Words::Online => check_inputs(reads, partial),
        #[cfg(feature = "sql")]
        Words::Answer | Words::Printed(_) => check_inputs(reads, partial),
        Words::None => Ok(()),
    }
}

/// What a spec asks for, or what explains it, here; what is wrong is said in the options of its command.
pub(super) fn plan(
    spec: &Spec,
    plan: impl FnOnce(&Spec) -> Result<Plan, SpecError>,
    partial: bool,
) -> Result<Plan, Failure> {
    let plan = plan(spec).map_err(|error| refused(&spec.kind, &error.message))?;
    look(&plan, partial)?;
    Ok(plan)
}

/// Runs the job of a command and prints its summary.
pub(super) fn run(args: &JobArgs, spec: Spec) -> Result<Exit, Failure> {
    run_online(args, spec, &OnlineArgs::default())
}

/// The same for one that may show early answers, with a web page of what is known before the end, and keeping what was read, where that is asked for.
pub(super) fn run_online(args: &JobArgs, mut spec: Spec, online: &OnlineArgs) -> Result<Exit, Failure> {
    let SetupArgs { process, partial, .. } = &args.setup;
    spec.make_absolute().or_exit(Exit::InputOutput)?;
    let on_cluster = cluster::place(&process.place, &Overrides::default())?.1;
    kept::check(online, on_cluster)?;
    if on_cluster {
        return run_in(Session::open(process, &args.views)?.with_page(online.page)?, args, spec, None);
    }
    // Before files are opened that show what happens.
    let plan = plan(&spec, Spec::plan, *partial)?;
    let session = Session::open(process, &args.views)?.with_page(online.page)?.kept_in(online.keep.as_deref())?;
    tell(session, &plan, process.json, &outputs(&plan.writes))
}

/// The same in a session; where its output is, for people, unless it is what the spec says.
pub(super) fn run_in(session: Session, args: &JobArgs, mut spec: Spec, output: Option<&str>) -> Result<Exit, Failure> {
    let SetupArgs { process, partial, .. } = &args.setup;
    spec.make_absolute().or_exit(Exit::InputOutput)?;
    if session.on_cluster() {
        return hand_in(session, args, &spec, (None, output));
    }
    let plan = plan(&spec, Spec::plan, *partial)?;
    tell(session, &plan, process.json, output.unwrap_or(&outputs(&plan.writes)))
}

/// The same on a cluster, in these words, or in those of its program.
pub(super) fn hand_in(
    session: Session,
    args: &JobArgs,
    spec: &Spec,
    (words, output): (Option<Words>, Option<&str>),
) -> Result<Exit, Failure> {
    let said = outputs(&spec.paths().map_err(|error| refused(&spec.kind, &error.message))?.writes);
    let (ran, program) = session.hand_in(spec, false)?;
    let words = words.unwrap_or_else(|| Words::of(&program));
    told_in(words, Running::Over(Box::new(ran)), args.setup.process.json, output.unwrap_or(&said))
}

/// Has a job of a cluster go on, and tells its answer, in these words, or in those of its program.
pub(super) fn go_on(session: Session, job: &str, words: Option<Words>, json: bool) -> Result<Exit, Failure> {
    let (ran, program) = session.go_on(job)?;
    let words = words.unwrap_or_else(|| Words::of(&program));
    told_in(words, Running::Over(Box::new(ran)), json, "its output folder")
}

/// The folders that a job writes, for people.
pub(super) fn outputs(writes: &[PathBuf]) -> String {
    writes.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Runs a plan in this process and prints the summary of its job, which wrote to `output`.
pub(super) fn tell(session: Session, plan: &Plan, json: bool, output: &str) -> Result<Exit, Failure> {
    told_in(Words::of(&plan.program), Running::Here(Box::new(session), plan), json, output)
}

/// The same in these words.
pub(super) fn tell_in(
    words: Words,
    session: Session,
    plan: &Plan,
    (json, output): (bool, &str),
) -> Result<Exit, Failure> {
    told_in(words, Running::Here(Box::new(session), plan), json, output)
}

/// A job.
enum Running<'a> {
    /// It is to run in this process.
    Here(Box<Session>, &'a Plan),
    /// It has run on a cluster.
    Over(Box<Ran<Bytes>>),
}

impl Running<'_> {
    fn ran<R: Serialize + DeserializeOwned + 'static>(self) -> Result<Ran<R>, Failure> {
        match self {
            Self::Here(session, plan) => (*session).run(plan),
            Self::Over(ran) => (*ran).decoded(),
        }
    }
}

fn told_in(words: Words, job: Running<'_>, json: bool, output: &str) -> Result<Exit, Failure> {
    match words {
        Words::Sort => told(job, json, |ran: &Ran<SortReport>| {
            let summary = JobSummary::of_sort(&ran.report, &ran.end, &ran.place, ran.seconds);
            let text = summary.for_people(&ran.place, output);
            (summary, text)
        }),
        Words::Table(words) => told(job, json, |ran: &Ran<Rewritten>| {
            let summary = TableSummary::new(&ran.report, &ran.end, &ran.place, ran.seconds);
            let text = summary.for_people(words, &ran.place, output);
            (summary, text)
        }),
        Words::Keyed(words) => told(job, json, |ran: &Ran<KeyedReport>| {
            let summary = KeyedSummary::new(&ran.report, &ran.end, &ran.place, ran.seconds);
            let text = summary.for_people(&words, &ran.place, output);
            (summary, text)
        }),
        Words::Online => told(job, json, |ran: &Ran<Answered>| {
            let kept_job = ran.kept_job();
            let summary =
                OnlineSummary { kept_job, ..OnlineSummary::new(&ran.report, &ran.end, &ran.place, ran.seconds) };
            let text = summary.for_people(&ran.report.snapshot, GROUPED, &ran.place, output);
            (summary, text)
        }),
        #[cfg(feature = "sql")]
        Words::Answer => answered(job, |ran, rows| {
            let mut summary = AnswerSummary::new(&ran.report, rows, &ran.end, (&ran.place, ran.seconds));
            summary.online.iter_mut().for_each(|online| online.kept_job = ran.kept_job());
            let text = summary.for_people(&ran.report, rows, (&ran.place, output));
            ran.print(json, &summary, &text)
        }),
        #[cfg(feature = "sql")]
        Words::Printed(printed) => answered(job, |ran, _| super::query::print(ran, printed)),
        Words::None => told(job, json, |ran: &Ran<Plain>| {
            let Plain(result) = &ran.report;
            (result.clone(), format!("{result:#}"))
        }),
    }
}

/// Tells what a query has answered, with the rows of that.
#[cfg(feature = "sql")]
fn answered(
    job: Running<'_>,
    tell: impl FnOnce(&Ran<exobus_sql::program::Answered>, &ShownBatches) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let ran = job.ran::<exobus_sql::program::Answered>()?;
    let rows = ran.report.shown.batches().or_exit(Exit::JobFailed)?;
    tell(&ran, &rows)?;
    Ok(ran.exit())
}

/// Columns, and rows.
#[cfg(feature = "sql")]
type ShownBatches = (exobus_tables::arrow_schema::SchemaRef, Vec<exobus_tables::arrow_array::RecordBatch>);

fn told<R: Serialize + DeserializeOwned + 'static, S: Serialize>(
    job: Running<'_>,
    json: bool,
    summary: impl FnOnce(&Ran<R>) -> (S, String),
) -> Result<Exit, Failure> {
    let ran = job.ran::<R>()?;
    let (summary, text) = summary(&ran);
    ran.print(json, &summary, &text)?;
    Ok(ran.exit())
}
