//! `exobus resume`: goes on with a job that ran on this machine alone and was not finished.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use exobus_actors::{
    ids::JobId,
    protocol::host::JobSpec,
    registry::{self, Program},
    spec::Plan,
};
use exobus_files::{Claim, OutputFolder, Standing};
use exobus_store::{Clock, SystemClock};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

use super::{
    generate::failure as file_failure,
    kept,
    planned::{self, Words},
    session::Session,
};
use crate::{
    cli::ResumeArgs,
    exit::{Exit, Failure, OrExit},
    report::about,
    stdout::print_line,
    unfinished::{self, JobFile, Setup, Unfinished},
};

/// A job that was not finished, and may be.
pub(super) struct Stopped {
    pub(super) file: JobFile,
    pub(super) spec: JobSpec,
    pub(super) setup: Setup,
}

/// A job that was not finished, for people and programs.
#[derive(Debug, Serialize)]
struct Row {
    job: String,
    program: String,
    /// As it was typed.
    command: String,
    inputs: Vec<String>,
    output: Option<String>,
    submitted_unix_ms: u64,
}

/// What the parameters of all programs have, those over tables for their table.
#[derive(Deserialize)]
struct Reads {
    #[serde(with = "exobus_actors::paths")]
    inputs: Vec<PathBuf>,
    #[serde(with = "exobus_actors::paths")]
    output: PathBuf,
}

/// The parameters of a program over a table.
#[derive(Deserialize)]
struct OfTable {
    table: Reads,
}

impl Reads {
    /// Of a job of any version; nothing, where it is of a program that this build does not know.
    fn of(spec: &JobSpec) -> Option<Self> {
        let of_table = || params::<OfTable>(spec).map(|params| params.table);
        params(spec).or_else(|_| of_table()).ok()
    }
}

impl Row {
    fn new(spec: &JobSpec, setup: &Setup) -> Self {
        let program = registry::name_of(&spec.program).to_owned();
        let text = |path: PathBuf| path.display().to_string();
        let (inputs, output) = match Reads::of(spec) {
            Some(Reads { inputs, output }) => (inputs.into_iter().map(text).collect(), Some(text(output))),
            None => (Vec::new(), None),
        };
        let (job, submitted_unix_ms) = (spec.job.to_string(), spec.job.made_unix_ms());
        Self { job, program, command: setup.command.clone(), inputs, output, submitted_unix_ms }
    }

    /// One line for the job, one for the command, one for the paths.
    fn for_people(&self, now_unix_ms: u64) -> String {
        let ago = about(Duration::from_millis(now_unix_ms.saturating_sub(self.submitted_unix_ms)));
        let mut text = format!("{}  {}  begun {ago} ago", self.job, self.program);
        if !self.command.is_empty() {
            text.push_str(&format!("\n    {}", self.command));
        }
        if let Some(output) = &self.output {
            text.push_str(&format!("\n    {} -> {output}", self.inputs.join(", ")));
        }
        text
    }
}

/// Lists them, gives one up, or goes on with one.
pub fn run(args: &ResumeArgs) -> Result<Exit, Failure> {
    let runtime = unfinished::runtime()?;
    let (stopped, running) = unfinished_jobs(&runtime);
    if args.list {
        list(args, &stopped.iter().map(|job| Row::new(&job.spec, &job.setup)).collect::<Vec<_>>());
        return Ok(Exit::Success);
    }
    if args.drop {
        return drop_job(args, &runtime, stopped, &running);
    }
    let stopped = choose(args, stopped, &running)?;
    drop(runtime);
    go_on(args, stopped)
}

/// Those whose processes are gone, and those that run.
fn unfinished_jobs(runtime: &tokio::runtime::Runtime) -> (Vec<Stopped>, Vec<JobId>) {
    let (mut stopped, mut running) = (Vec::new(), Vec::new());
    for job in runtime.block_on(unfinished::list()) {
        match job {
            Unfinished::Stopped(file, spec, setup) => stopped.push(Stopped { file, spec: *spec, setup }),
            Unfinished::Runs(job) => running.push(job),
            Unfinished::Damaged(path, failure) => eprintln!("{} cannot be used: {failure}", path.display()),
        }
    }
    (stopped, running)
}

/// Has a job that was kept go on to its exact answer, and tells it: in these words, or in those of its program.
pub(super) fn go_on_kept(args: &ResumeArgs, page: Option<u16>, words: Option<Words>) -> Result<Exit, Failure> {
    let runtime = unfinished::runtime()?;
    let (stopped, running) = unfinished_jobs(&runtime);
    let wanted = args.job.as_deref().unwrap_or_default();
    let is_wanted = |job: &JobId| job.to_string().starts_with(wanted);
    if !running.iter().any(is_wanted) && !stopped.iter().any(|job| is_wanted(&job.spec.job)) {
        let text = format!(
            "no job of this machine whose id begins with {wanted} was kept: it is over, or never was; of one of a cluster say which, as in --config FILE"
        );
        return Err(Failure::text(Exit::Usage, text));
    }
    let stopped = choose(args, stopped, &running)?;
    let job = stopped.spec.job;
    if stopped.setup.kept.is_empty() {
        let text = format!("job {job} was not kept, as --keep has it: `exobus resume {job}` takes it up again");
        return Err(Failure::text(Exit::Usage, text));
    }
    drop(runtime);
    let program = known(&stopped.spec)?;
    let plan = Plan::again(program, stopped.spec.params.clone()).or_exit(Exit::InputOutput)?;
    let words = words.unwrap_or_else(|| Words::of(&plan.program));
    let session = Session::again(args, stopped)?.going_on().with_page(page)?;
    planned::tell_in(words, session, &plan, (args.json, &planned::outputs(&plan.writes)))
}

/// Gives a job up: its files and its claim go from its output folder, and then its log.
fn drop_job(
    args: &ResumeArgs,
    runtime: &tokio::runtime::Runtime,
    stopped: Vec<Stopped>,
    running: &[JobId],
) -> Result<Exit, Failure> {
    let logged = choose(args, stopped, running);
    let (job, output) = match (&logged, &args.output) {
        (Ok(Stopped { spec, .. }), None) => (spec.job, Reads::of(spec).map(|job| job.output)),
        (Ok(Stopped { spec, .. }), Some(output)) => (spec.job, Some(output.clone())),
        // Of a job that nobody knows here, the folder says who has claimed it.
        (Err(_), Some(output)) => (claimed_by(args, output)?, Some(output.clone())),
        (Err(_), None) => return Err(logged.map(|_| ()).unwrap_err()),
    };
    if let Some(output) = &output {
        OutputFolder::new(output, job).and_then(|folder| folder.withdraw(None)).map_err(file_failure)?;
    }
    if let Ok(Stopped { file, spec, setup }) = logged {
        // What else it has taken, by its own program.
        if let Some(give_back) = known(&spec).ok().and_then(|program| program.give_back) {
            give_back(job, &spec.params);
        }
        runtime.block_on(file.remove());
        setup.kept.iter().for_each(|folder| kept::remove(folder));
    }
    let freed = output.map(|output| format!(", and {} is free", output.display()));
    eprintln!("job {job} is given up{}", freed.unwrap_or_default());
    Ok(Exit::Success)
}

/// The job that has claimed a folder and does not run, as far as can be known.
fn claimed_by(args: &ResumeArgs, output: &Path) -> Result<JobId, Failure> {
    let usage = |text: String| Failure::text(Exit::Usage, format!("{}: {text}", output.display()));
    let claim = Claim::read(output).map_err(file_failure)?.ok_or_else(|| usage("no job has claimed it".to_owned()))?;
    let wanted = args.job.as_deref().unwrap_or_default().to_ascii_lowercase();
    if !claim.job.to_string().starts_with(&wanted) {
        return Err(usage(format!("it is claimed by {}", claim.describe())));
    }
    match claim.standing(output) {
        Standing::Runs => Err(usage(format!("{} runs", claim.describe()))),
        _ => Ok(claim.job),
    }
}

/// The job that is meant.
fn choose(args: &ResumeArgs, mut stopped: Vec<Stopped>, running: &[JobId]) -> Result<Stopped, Failure> {
    let usage = |text: String| Failure::text(Exit::Usage, text);
    let wanted = args.job.as_deref().unwrap_or_default().to_ascii_lowercase();
    stopped.retain(|job| job.spec.job.to_string().starts_with(&wanted));
    if stopped.len() > 1 {
        let ids: Vec<_> = stopped.iter().map(|job| job.spec.job.to_string()).collect();
        return Err(usage(format!("several jobs were not finished, say which: {}", ids.join(", "))));
    }
    stopped.pop().ok_or_else(|| match running.iter().find(|job| job.to_string().starts_with(&wanted)) {
        Some(job) => usage(format!("job {job} runs in another process")),
        None if wanted.is_empty() => usage("every job of this machine was finished".to_owned()),
        None => usage(format!("no job whose id begins with {wanted} was left unfinished: see --list")),
    })
}

/// Runs what the spec says.
fn go_on(args: &ResumeArgs, stopped: Stopped) -> Result<Exit, Failure> {
    let program = known(&stopped.spec)?;
    let plan = Plan::again(program, stopped.spec.params.clone()).or_exit(Exit::InputOutput)?;
    planned::tell(Session::again(args, stopped)?, &plan, args.json, &planned::outputs(&plan.writes))
}

/// The program of a job, which this build has in the version that the job was begun with: parameters are of a version.
fn known(spec: &JobSpec) -> Result<&'static Program, Failure> {
    registry::programs().get(&spec.program).copied().ok_or_else(|| unknown(spec))
}

/// Why a job of another build is not taken up.
fn unknown(spec: &JobSpec) -> Failure {
    let JobSpec { job, program, .. } = spec;
    Failure::text(
        Exit::Usage,
        format!(
            "job {job} runs {program}, which this build does not have: another version of exobus began it. Go on with that \
             version, or give the job up: exobus resume --drop {job}"
        ),
    )
}

fn params<P: DeserializeOwned>(spec: &JobSpec) -> Result<P, Failure> {
    rmp_serde::from_slice(&spec.params).or_exit(Exit::InputOutput)
}

fn list(args: &ResumeArgs, rows: &[Row]) {
    let now = SystemClock::new().unix_ms();
    match args.json {
        true => print_line(json!({ "jobs": rows })),
        false => rows.iter().for_each(|row| print_line(row.for_people(now))),
    }
}

#[cfg(test)]
mod tests {
    use exobus_tables::jobs::{TableJob as _, sort::SortTable};

    use super::*;

    #[test]
    fn a_job_of_another_version_is_refused_with_what_to_do_and_its_folder_is_known() {
        let spec = |program: &str| {
            let table = SortTable::new(vec!["in".into()], "out".into(), Vec::new());
            JobSpec::of(JobId::new(), program, &table).unwrap()
        };
        assert_eq!(known(&spec("table.sort@2")).unwrap().name, SortTable::NAME);
        for other in ["table.sort@1", "table.sort@17", "table.sorted@2", "table.sort"] {
            let spec = spec(other);
            let error = known(&spec).err().unwrap().to_string();
            assert!(error.contains(&format!("runs {other}, ")) && error.contains("another version"), "{error}");
            assert!(error.ends_with(&format!("exobus resume --drop {}", spec.job)), "{error}");
            let Reads { inputs, output } = Reads::of(&spec).unwrap();
            assert_eq!((inputs, output), (vec![PathBuf::from("in")], PathBuf::from("out")));
        }
        let sort = json!({ "inputs": ["in"], "output": "out" });
        let spec = JobSpec::of(JobId::new(), "sort@1", &sort).unwrap();
        assert_eq!((known(&spec).unwrap().name, Reads::of(&spec).unwrap().output), ("sort", PathBuf::from("out")));
    }
}
