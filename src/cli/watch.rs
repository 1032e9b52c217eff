//! The arguments of commands that look at the jobs of a cluster.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::nats_url;

/// Which cluster, and how it is told.
#[derive(Debug, Clone, Args)]
pub struct LookArgs {
    /// NATS server of the cluster [default: the configuration's]
    #[arg(long, value_name = "URL", value_parser = nats_url)]
    pub cluster: Option<String>,
    /// Configuration with the [cluster] to use: its name, credentials, TLS
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
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
