//! `exobus sort`: files of 100-byte records in, part files in key order out, in this process or on a cluster.

mod folders;
mod on_cluster;

use std::io::Write;

use exobus_actors::{host::JobEnd, task::JobError};
use exobus_shuffle::{
    files::{list_inputs, validate_files},
    jobs::sort::{SortParams, SortReport, sort},
};
use exobus_store::{Clock, SystemClock};

use self::folders::Folders;
use super::{
    embedded,
    generate::{failure as file_failure, interrupted, io_threads},
    job_failure,
};
use crate::{
    cli::SortArgs,
    config::{NodeConfig, Overrides},
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    report::{Reporter, SortSummary, Style, bytes, count},
};

/// How a job ended, and what it says of itself.
type Outcome = (Result<SortReport, JobError>, JobEnd);

/// Sorts and prints the summary.
pub fn run(args: &SortArgs) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen().or_exit(Exit::InputOutput)?;
    let overrides = Overrides {
        nats_url: args.cluster.clone(),
        memory: args.memory,
        spill_dirs: args.spill.clone(),
        executors: args.executors,
        ..Overrides::default()
    };
    let config = NodeConfig::load(args.config.as_deref(), &overrides).or_exit(Exit::Usage)?;
    let views = args.views.open()?;
    let mut folders = Folders::prepare(args, &interrupt)?;
    if interrupt.came() {
        return Err(interrupted());
    }

    let params = SortParams {
        inputs: folders.inputs().to_vec(),
        output: folders.output().to_owned(),
        partitions: args.partitions,
        strategy: args.strategy.strategy(),
    };
    let clock = SystemClock::new();
    let reporter = Reporter::start(Style::of_stderr(), views).or_exit(Exit::InputOutput)?;
    let began = clock.now();
    let ran = match &args.cluster {
        None => {
            let program = async move |futures| sort(futures, params).await;
            embedded::run(&config.node, "sort", program, Some(reporter.sink()), &interrupt)
        }
        Some(_) => on_cluster::run(&config.cluster, &params, &reporter.sink(), &interrupt),
    };
    let seconds = (clock.now() - began).as_secs_f64();
    let (progress, seen) = reporter.finish();
    if let Err(failure) = &seen {
        eprintln!("error: {failure}");
    }
    let (result, end) = ran?;
    let report = result.map_err(|error| match error {
        JobError::Cancelled if interrupt.came() => interrupted(),
        error => job_failure(error),
    })?;
    folders.keep_output();

    let summary = summary(&report, &end, seconds);
    let mut stdout = std::io::stdout().lock();
    // A closed stdout changes nothing about the files.
    let _ = match args.json {
        true => writeln!(stdout, "{}", serde_json::to_string(&summary).or_exit(Exit::InputOutput)?),
        false => writeln!(stdout, "{}", summary.for_people(&folders.describe_output())),
    };
    if progress.failed_attempts() > 0 {
        eprintln!("{} attempts failed and ran again", count(progress.failed_attempts()));
    }
    if progress.copied_tasks() > 0 {
        eprintln!("{} tasks ran twice, the first time far longer than others", count(progress.copied_tasks()));
    }
    if let Some(generated) = &folders.generated {
        let checked = validated(&folders, generated)?;
        let _ = match args.json {
            true => writeln!(std::io::stderr().lock(), "{checked}"),
            false => writeln!(stdout, "{checked}"),
        };
    }
    Ok(seen.map_or_else(|failure| failure.exit, |()| Exit::Success))
}

fn summary(report: &SortReport, end: &JobEnd, seconds: f64) -> SortSummary {
    SortSummary {
        rows: report.rows,
        bytes: report.bytes,
        seconds,
        gb_per_s: SortSummary::rate(report.bytes, seconds),
        peak_memory_bytes: end.nodes.values().map(|node| node.peak_memory_bytes).sum(),
        spilled_bytes: end.nodes.values().map(|node| node.spilled_bytes).sum(),
        row_hash_in: report.row_hash_in.to_string(),
        row_hash_out: report.row_hash_out.to_string(),
        strategy: report.strategy.name().to_owned(),
        partitions: report.partitions,
        control_messages: end.control_messages,
        owner_bytes: end.owner_bytes.max(report.owner_bytes),
    }
}

/// Reads the output back, as `exobus validate` does, and compares it with what was generated.
fn validated(folders: &Folders, generated: &exobus_shuffle::files::Generated) -> Result<String, Failure> {
    let files = list_inputs(&[folders.output().to_owned()]).map_err(file_failure)?;
    let found = validate_files(&files, io_threads()).map_err(file_failure)?;
    let wrong = |text: String| Failure::text(Exit::DataWrong, format!("the output is wrong: {text}"));
    if !found.is_ordered() {
        return Err(wrong(format!("{} records are out of order", found.unordered)));
    }
    if found.records != u128::from(generated.records) || found.checksum != generated.checksum {
        return Err(wrong(format!(
            "{} records with checksum {:x}, but {} records with checksum {:x} were generated",
            found.records, found.checksum, generated.records, generated.checksum
        )));
    }
    Ok(format!(
        "validated {}: {} records in order, checksum {:x} as generated",
        bytes(generated.bytes),
        count(generated.records),
        generated.checksum
    ))
}
