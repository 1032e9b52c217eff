//! The arguments of commands that look at the jobs of a cluster.

use clap::{Args, Subcommand};

use super::ClusterArgs;

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

/// `exobus job`
#[derive(Debug, Clone, Args)]
pub struct JobQueryArgs {
    /// Id of the job, or its first digits; `exobus jobs` lists them
    #[arg(value_parser = job_id)]
    pub job: String,
    /// What is asked
    #[command(subcommand)]
    pub question: JobQuestion,
}

/// What can be asked about a job.
#[derive(Debug, Clone, Subcommand)]
pub enum JobQuestion {
    /// Say what the job waits for and since when: from the job to its tasks, their nodes, and the cause
    Why(LookArgs),
    /// Show what its tasks and its program print from now on, until it is over: what was printed before is not kept
    Logs(LookArgs),
}

fn job_id(text: &str) -> Result<String, String> {
    let digits = text.to_ascii_lowercase();
    match digits.len() {
        1..=32 if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => Ok(digits),
        _ => Err("a job's id is up to 32 hexadecimal digits".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_by_its_first_digits() {
        assert_eq!(job_id("01aF"), Ok("01af".into()));
        for wrong in ["", "x", "01-2", &"0".repeat(33)] {
            assert!(job_id(wrong).is_err(), "{wrong:?}");
        }
    }
}
