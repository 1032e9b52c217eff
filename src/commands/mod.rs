//! The commands, one file each but for jobs over keyed rows. All return the exit code, or a [`Failure`](crate::exit::Failure) with one.

pub mod bench;
pub mod config;
pub mod dev;
pub mod doctor;
mod embedded;
pub mod explain;
mod folders;
pub mod generate;
pub mod jobs;
pub mod keyed;
pub mod node;
pub mod protocols;
pub mod resume;
pub mod run_with_parent;
mod session;
pub mod sort;
mod submit;
pub mod validate;

use exobus_actors::{
    host::ClientError,
    node::NodeError,
    task::{FailureKind, JobError, TaskFailure},
};

use crate::exit::{Exit, Failure};

/// Of a spill folder, which the store tells, or of the output's, which only the text of the function tells.
fn is_disk_full(failure: &TaskFailure) -> bool {
    failure.kind == FailureKind::DiskFull || failure.message.contains(": disk full at offset ")
}

/// Whether a task does nothing but look at what the user named, claim it, or give files their names in it.
fn is_look(function: &str) -> bool {
    function.ends_with(".list") || ["shuffle.prepare", "shuffle.commit"].contains(&function)
}

/// What a job that failed means for the shell.
fn job_failure(error: JobError) -> Failure {
    let exit = match &error {
        JobError::Task { failure, .. } if is_disk_full(failure) => Exit::InputOutput,
        JobError::Task { function, .. } if function.split('@').next().is_some_and(is_look) => Exit::InputOutput,
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
