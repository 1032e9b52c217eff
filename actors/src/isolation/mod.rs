//! Isolation: functions that run in processes of their own, so that a crash, an out-of-memory kill or `exit()` costs one
//! attempt and no object.
//!
//! ```text
//!   node process                                        executor process (the same binary)
//!   executor thread                                     enter(), in main
//!     IsolatedExecutor -- Process --- calls ----------- Connection --- TaskContext, the function
//!       Desk, over the Store                              LentStore
//!              \________________ region (memfd) _________/      mapped; stored to only where room is lent
//! ```
//!
//! What it promises:
//! - An attempt whose process dies fails with [`ExecutorLost`](crate::task::FailureKind::ExecutorLost), which says of what it
//!   died, of what input, which path it used last, and what it wrote last. What it had been lent is free again. Nothing else is
//!   lost: sealed objects are not writable there.
//! - Memory is counted in the node only (law 5): a process gets room, scratch and chunks from its executor thread, which
//!   uses the store as it would for a function that it calls itself. What the process has beside that is looked at all the time, and
//!   counted there, too (`memory.rs`).
//! - Cancelled or timed out, a function that does not look is killed [after a moment](GRACE); a process that was
//!   stopped by a signal counts as dead; one that takes far more memory than its task has declared, or than the node has, is killed.
//! - Processes end with the node, however that ends, and leave nothing behind.
//!
//! An executor has at most one process, which serves one attempt after the other. There is no path that anybody could
//! connect to: the process inherits one end of a socket pair, over which come the descriptors of the region and of two
//! more sockets. See `docs/decisions/012-executors-are-the-same-binary.md`.
//!
//! A binary that runs nodes calls [`enter`] first thing in `main`; where it has asked for processes and does not, nodes say
//! so.

mod child;
mod death;
#[cfg(test)]
mod idle;
mod last_path;
mod lending;
mod memory;
mod oom_kills;
mod process;
mod watch;
mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub use child::{enter, is_executor};
pub(crate) use process::{Attempted, IsolatedExecutor};
#[cfg(feature = "fuzzing")]
pub(crate) use wire::{read_either, samples};

use serde::Deserialize;

use crate::registry::Function;
use crate::task::TaskSpec;

/// How long a function that was cancelled, or has run out of time, may go on before its process is killed.
pub const GRACE: Duration = Duration::from_secs(2);

/// Where functions run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutorKind {
    /// All of them on threads of the node.
    #[default]
    Thread,
    /// Those of users, and tasks with a memory limit, in processes; the kernels of exobus itself on threads.
    Process,
    /// All of them in processes.
    ProcessAll,
}

impl ExecutorKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Thread, Self::Process, Self::ProcessAll];

    /// As it is written in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Process => "process",
            Self::ProcessAll => "process-all",
        }
    }

    /// Whether a task runs in a process.
    pub(crate) fn isolates(self, function: &Function, spec: &TaskSpec) -> bool {
        match self {
            Self::Thread => false,
            Self::Process => !function.is_built_in() || spec.memory_max_bytes > 0,
            Self::ProcessAll => true,
        }
    }
}

/// No kind of executor has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected thread, process or process-all")]
pub struct UnknownKind;

impl FromStr for ExecutorKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(UnknownKind)
    }
}

/// How functions are isolated on a node.
#[derive(Clone, Debug)]
pub struct Isolation {
    /// Which of them.
    pub executor: ExecutorKind,
    /// What executor processes run: a binary with the same functions, whose `main` calls [`enter`]. Default: this one.
    pub program: PathBuf,
    /// Its arguments; none by default.
    pub arguments: Vec<OsString>,
    /// What it finds in its environment besides what this process does; nothing by default.
    pub environment: Vec<(&'static str, OsString)>,
}

impl Default for Isolation {
    fn default() -> Self {
        // The file that this process runs, also where it was replaced since.
        let (program, arguments) = (PathBuf::from("/proc/self/exe"), Vec::new());
        Self { executor: ExecutorKind::Thread, program, arguments, environment: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{JobId, TaskId};

    #[test]
    fn kinds_are_found_by_their_names() {
        for kind in ExecutorKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert_eq!("processes".parse::<ExecutorKind>(), Err(UnknownKind));
    }

    #[test]
    fn what_runs_in_processes_follows_from_whose_code_it_is_and_whether_its_memory_is_limited() {
        let function = |module| Function {
            name: "f",
            version: 1,
            modes: &[],
            setup: None,
            deterministic: true,
            module,
            call: |_, _| Ok(()),
        };
        let spec = |memory_max_bytes| {
            let plain = TaskSpec::plain(JobId::from_u128(1), TaskId::from_u128(2), "f@1");
            TaskSpec { memory_max_bytes, ..plain }
        };
        let (own, of_user) = (function("exobus_shuffle::sort"), function("app::jobs"));
        for (kind, is) in [
            (ExecutorKind::Thread, [false, false, false, false]),
            (ExecutorKind::Process, [false, true, true, true]),
            (ExecutorKind::ProcessAll, [true, true, true, true]),
        ] {
            let isolates = |function, bytes| kind.isolates(function, &spec(bytes));
            let found = [isolates(&own, 0), isolates(&own, 1), isolates(&of_user, 0), isolates(&of_user, 1)];
            assert_eq!(found, is, "{kind:?}");
        }
    }
}
