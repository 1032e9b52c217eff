//! The commands, one file each but for jobs over keyed rows. All return the exit code, or a [`Failure`](crate::exit::Failure) with one.

pub mod bench;
pub mod config;
pub mod dev;
pub mod doctor;
mod embedded;
pub mod explain;
mod folders;
pub mod generate;
mod job_logs;
pub mod jobs;
pub mod keyed;
pub mod node;
pub mod protocols;
pub mod results;
pub mod resume;
pub mod run_with_parent;
mod session;
pub mod show;
pub mod sort;
mod submit;
pub mod tables;
pub mod validate;
mod validate_table;

pub(crate) use self::embedded::alone;

use exobus_actors::{
    client::ClientError,
    node::NodeError,
    registry,
    task::{Fault, JobError},
};

use crate::exit::{Exit, Failure};

/// Name and version of a program of that name, "sort@1", as this build runs it.
fn program_key(name: &str) -> &'static str {
    let found = registry::programs().iter().find(|(_, program)| program.name == name);
    found.unwrap_or_else(|| panic!("no program is registered as {name}")).0
}

/// What a job that failed means for the shell.
fn job_failure(error: JobError) -> Failure {
    let exit = match &error {
        JobError::Task { failure, .. } => match failure.fault {
            Fault::Request => Exit::Usage,
            Fault::Data => Exit::DataWrong,
            Fault::Files => Exit::InputOutput,
            Fault::Unknown => Exit::JobFailed,
        },
        _ => Exit::JobFailed,
    };
    Failure::new(exit, error)
}

/// What a cluster that does not do what is asked means for the shell.
fn client_failure(error: ClientError) -> Failure {
    let exit = match &error {
        ClientError::Refused(_) => Exit::JobFailed,
        ClientError::NoScheduler(NodeError::Denied(_)) => Exit::Usage,
        ClientError::NoScheduler(NodeError::NoScheduler { .. }) => Exit::Unreachable,
        _ => Exit::Unreachable,
    };
    Failure::new(exit, error)
}
