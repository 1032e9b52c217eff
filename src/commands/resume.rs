//! `exobus resume`: goes on with a job that ran on this machine alone and was not finished.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use exobus_actors::{host::JobSpec, ids::JobId};
use exobus_shuffle::{
    files::{Claim, OutputFolder, Standing},
    jobs::{Aggregate, RandomShuffle, WordCount, sort::SortParams},
    keyed::{KeyedParams, Registered},
};
use exobus_store::{Clock, SystemClock};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

use super::{generate::failure as file_failure, keyed, session::Session, sort};
use crate::{
    cli::ResumeArgs,
    exit::{Exit, Failure, OrExit},
    report::duration,
    unfinished::{self, JobFile, Unfinished},
};

/// A job that was not finished.
#[derive(Debug, Serialize)]
struct Row {
    job: String,
    program: String,
    submitted_unix_ms: u64,
}

impl Row {
    fn new(spec: &JobSpec) -> Self {
        let program = spec.program.split('@').next().unwrap_or_default().to_owned();
        Self { job: spec.job.to_string(), program, submitted_unix_ms: spec.job.made_unix_ms() }
    }
}

/// Lists them, gives one up, or goes on with one.
pub fn run(args: &ResumeArgs) -> Result<Exit, Failure> {
    let runtime = unfinished::runtime()?;
    let mut stopped = Vec::new();
    let mut running: Vec<JobId> = Vec::new();
    for job in runtime.block_on(unfinished::list()) {
        match job {
            Unfinished::Stopped(file, spec) => stopped.push((file, *spec)),
            Unfinished::Runs(job) => running.push(job),
            Unfinished::Damaged(path, failure) => eprintln!("{} cannot be used: {failure}", path.display()),
        }
    }
    if args.list {
        list(args, &stopped.iter().map(|(_, spec)| Row::new(spec)).collect::<Vec<_>>())?;
        return Ok(Exit::Success);
    }
    if args.drop {
        return drop_job(args, &runtime, stopped, &running);
    }
    let (file, spec) = choose(args, stopped, &running)?;
    drop(runtime);
    go_on(args, file, spec)
}

/// What of a job's parameters says where it writes.
#[derive(Deserialize)]
struct Writes {
    output: PathBuf,
}

/// Gives a job up: its files and its claim go from its output folder, and then its log.
fn drop_job(
    args: &ResumeArgs,
    runtime: &tokio::runtime::Runtime,
    stopped: Vec<(JobFile, JobSpec)>,
    running: &[JobId],
) -> Result<Exit, Failure> {
    let logged = choose(args, stopped, running);
    let (job, output) = match (&logged, &args.output) {
        (Ok((_, spec)), None) => (spec.job, params::<Writes>(spec).ok().map(|writes| writes.output)),
        (Ok((_, spec)), Some(output)) => (spec.job, Some(output.clone())),
        // Of a job that nobody knows here, the folder says who has claimed it.
        (Err(_), Some(output)) => (claimed_by(args, output)?, Some(output.clone())),
        (Err(_), None) => return Err(logged.map(|_| ()).unwrap_err()),
    };
    if let Some(output) = &output {
        OutputFolder::new(output, job).withdraw().map_err(file_failure)?;
    }
    if let Ok((file, _)) = logged {
        runtime.block_on(file.remove());
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
fn choose(
    args: &ResumeArgs,
    mut stopped: Vec<(JobFile, JobSpec)>,
    running: &[JobId],
) -> Result<(JobFile, JobSpec), Failure> {
    let usage = |text: String| Failure::text(Exit::Usage, text);
    let wanted = args.job.as_deref().unwrap_or_default().to_ascii_lowercase();
    stopped.retain(|(_, spec)| spec.job.to_string().starts_with(&wanted));
    if stopped.len() > 1 {
        let ids: Vec<_> = stopped.iter().map(|(_, spec)| spec.job.to_string()).collect();
        return Err(usage(format!("several jobs were not finished, say which: {}", ids.join(", "))));
    }
    stopped.pop().ok_or_else(|| match running.iter().find(|job| job.to_string().starts_with(&wanted)) {
        Some(job) => usage(format!("job {job} runs in another process")),
        None if wanted.is_empty() => usage("every job of this machine was finished".to_owned()),
        None => usage(format!("no job whose id begins with {wanted} was left unfinished: see --list")),
    })
}

/// Runs what the spec says.
fn go_on(args: &ResumeArgs, file: JobFile, spec: JobSpec) -> Result<Exit, Failure> {
    let program = spec.program.clone();
    let name = program.strip_suffix("@1").unwrap_or(&program);
    if name == "sort" {
        let params: SortParams = params(&spec)?;
        return sort::again(Session::again(args, file, spec)?, params, args.json);
    }
    match name {
        WordCount::NAME => keyed_again::<WordCount>(args, file, spec, keyed::COUNTED),
        Aggregate::NAME => keyed_again::<Aggregate>(args, file, spec, keyed::AGGREGATED),
        RandomShuffle::NAME => keyed_again::<RandomShuffle>(args, file, spec, keyed::SHUFFLED),
        _ => {
            Err(Failure::text(Exit::Usage, format!("job {} runs {program}, which this build does not have", spec.job)))
        }
    }
}

fn keyed_again<J: Registered>(
    args: &ResumeArgs,
    file: JobFile,
    spec: JobSpec,
    words: crate::report::KeyedWords,
) -> Result<Exit, Failure> {
    let params: KeyedParams<J> = params(&spec)?;
    keyed::again(Session::again(args, file, spec)?, params, args.json, words)
}

fn params<P: DeserializeOwned>(spec: &JobSpec) -> Result<P, Failure> {
    rmp_serde::from_slice(&spec.params).or_exit(Exit::InputOutput)
}

fn list(args: &ResumeArgs, rows: &[Row]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let now = SystemClock::new().unix_ms();
    if args.json {
        let _ = writeln!(stdout, "{}", json!({ "jobs": rows }));
        return Ok(());
    }
    for Row { job, program, submitted_unix_ms } in rows {
        let ago = duration(Duration::from_millis(now.saturating_sub(*submitted_unix_ms)));
        let _ = writeln!(stdout, "{job}  {program}  begun {ago} ago");
    }
    Ok(())
}
