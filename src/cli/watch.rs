//! The arguments of commands that look at the jobs of a cluster.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use exobus_actors::protocol::job::JobState;

use super::ClusterArgs;
use crate::{exit::Failure, report::Views};

/// Which cluster, and how it is told.
#[derive(Debug, Clone, Args)]
pub struct LookArgs {
    /// Which cluster
    #[command(flatten)]
    pub place: ClusterArgs,
    /// Print what there is as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `exobus jobs`
#[derive(Debug, Clone, Args)]
pub struct JobsArgs {
    /// Those that are over, too, the latest first
    #[arg(long)]
    pub all: bool,
    /// Only those in this state: queued, starting, running, committing, succeeded, failed or cancelled
    #[arg(long, value_name = "STATE")]
    pub state: Option<JobState>,
    /// So many at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// Where
    #[command(flatten)]
    pub look: LookArgs,
}

/// `exobus job`
#[derive(Debug, Clone, Args)]
pub struct JobQueryArgs {
    /// Id of the job, or its first digits, six or more; `exobus jobs` lists them
    #[arg(value_parser = job_id)]
    pub job: String,
    /// What is asked
    #[command(subcommand)]
    pub question: JobQuestion,
}

/// What can be asked about a job.
#[derive(Debug, Clone, Subcommand)]
pub enum JobQuestion {
    /// Say how it stands with the job, or how it ended
    Status(LookArgs),
    /// Say what the job waits for and since when: from the job to its tasks, their nodes, and the cause
    Why(LookArgs),
    /// Show how far the job has come, until it is over; Ctrl-C leaves it alone
    Watch(LookArgs),
    /// End the job, and say what has become of it: one that makes its output visible already succeeds
    Cancel(LookArgs),
    /// Tell a query that answers early (`exobus group --online`) that enough was seen: it ends with what it has shown last, and nothing is written
    Enough(LookArgs),
    /// Tell a query that has seen enough, and is kept (`--keep-for`), to go on to the exact answer; `exobus query --continue` waits for that, too
    GoOn(LookArgs),
    /// Print what the program of the job returned; `exobus result` has the files that it kept
    Result(LookArgs),
    /// Print what has happened to the job, and does, as JSON, an event a line, until it is over
    Events(LookArgs),
    /// Show what the result of a query that answers early (`exobus group --online`) looks like by now, and how its bounds close in, until the job is over; with --json a line for each look
    Estimate(EstimateArgs),
    /// Draw what the job did and when, from the events that the cluster still has: the last 2048 of a job that runs, the last 256 of one
    /// that is over; a job that is followed from its beginning loses none unless its node is lost
    Timeline(TimelineArgs),
    /// Show what its tasks and its program print from now on, until it is over: what was printed before is not kept
    Logs(LookArgs),
}

/// `exobus job <id> estimate`
#[derive(Debug, Clone, Args)]
pub struct EstimateArgs {
    /// Show it as a web page of this machine, too, whose address is printed; PORT says where, and 0 is any that is free [default: 0]
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub page: Option<u16>,
    /// Where
    #[command(flatten)]
    pub look: LookArgs,
}

/// `exobus job <id> timeline`
#[derive(Debug, Clone, Args)]
pub struct TimelineArgs {
    /// Write a picture (SVG) of disk, network, processors, memory, spill and of all tasks over time
    #[arg(long, value_name = "FILE", required_unless_present = "timeline")]
    pub plot: Option<PathBuf>,
    /// Write a trace of tasks, waits, spills and transfers, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// Go on until the job is over, or Ctrl-C, which leaves the job alone; else what there is now is drawn
    #[arg(long)]
    pub follow: bool,
    /// Where
    #[command(flatten)]
    pub look: LookArgs,
}

impl TimelineArgs {
    /// Opens what is to be drawn.
    ///
    /// # Errors
    /// A file that cannot be made or written to.
    pub fn open(&self) -> Result<Views, Failure> {
        Views::of_job(self.timeline.as_deref(), self.plot.as_deref())
    }
}

/// The id of a job, or its first digits.
pub(super) fn job_id(text: &str) -> Result<String, String> {
    let digits = text.to_ascii_lowercase();
    match digits.len() {
        6..=32 if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => Ok(digits),
        _ => Err("a job's id is 32 hexadecimal digits, of which the first six or more will do".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_by_its_first_digits() {
        assert_eq!(job_id("01aF22"), Ok("01af22".into()));
        for wrong in ["", "x", "01af2", "01-234", &"0".repeat(33)] {
            assert!(job_id(wrong).is_err(), "{wrong:?}");
        }
    }
}
