//! The commands, one file each but for jobs over files. All return the exit code, or a [`Failure`](crate::exit::Failure) with one.

pub mod bench;
pub mod config;
pub mod dev;
pub mod doctor;
mod embedded;
pub mod explain;
mod folders;
pub mod generate;
mod job_logs;
mod job_timeline;
pub mod jobs;
mod kept;
pub mod node;
mod planned;
pub mod protocols;
#[cfg(feature = "sql")]
pub mod query;
pub mod results;
pub mod resume;
pub mod run_with_parent;
mod session;
pub mod show;
pub mod sort;
pub mod spec;
mod submit;
pub mod tables;
pub mod validate;
mod validate_table;

pub(crate) use self::embedded::alone;
#[cfg(feature = "sql")]
pub(crate) use self::embedded::alone_watched;

use exobus_actors::{
    client::ClientError,
    task::{Fault, JobError},
};
use exobus_bus::BusError;

use crate::exit::{Exit, Failure};

/// What a job that failed means for the shell.
fn job_failure(error: JobError) -> Failure {
    let exit = match error.fault() {
        Fault::Request => Exit::Usage,
        Fault::Data => Exit::DataWrong,
        Fault::Files => Exit::InputOutput,
        Fault::Unknown => Exit::JobFailed,
    };
    Failure::new(exit, error)
}

/// What a cluster that does not do what is asked means for the shell.
fn client_failure(error: ClientError) -> Failure {
    let exit = match &error {
        ClientError::Refused(refused) => match refused.code.as_str() {
            "unavailable" | "no_scheduler" => Exit::Unreachable,
            "unknown_function" | "unplaceable" => Exit::JobFailed,
            _ => Exit::Usage,
        },
        ClientError::Denied { .. } | ClientError::Bus(BusError::TooLarge { .. } | BusError::Denied { .. }) => {
            Exit::Usage
        }
        ClientError::Bus(_) | ClientError::Nobody { .. } | ClientError::HostSilent { .. } | ClientError::Strange(_) => {
            Exit::Unreachable
        }
    };
    Failure::new(exit, error)
}
