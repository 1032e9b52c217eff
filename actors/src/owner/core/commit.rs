//! What must hold before a job publishes what it has made, and what may not come in between.
//!
//! A task that commits makes files visible to others: whatever is found to be wrong afterwards comes too late. So everything that
//! is checked at the end of a job is checked when such a task is about to be handed out, and a job that is being committed is not
//! cancelled: it has ended one way or the other soon. One whose program goes on with other tasks after that is; what it has published stays.

use super::tables::{ArgEntry, EntrySource, OwnerState};
use super::task::{State, Task};
use crate::arena::Index;
use crate::task::JobError;

/// Whether tasks that commit may be handed out. The job's log says first that one is: who takes the job up later knows that its output
/// may be there, and goes on to its end, whoever wants to cancel it by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Commit {
    /// None is ready.
    #[default]
    NotYet,
    /// One is, and the log does not say so yet.
    Wanted,
    /// The log says so.
    Noted,
}

impl OwnerState {
    /// Whether a task waits until the log says that the job commits.
    pub(super) fn waits_to_commit(&mut self, task: Index) -> bool {
        let waits = self.commits(task) && self.commit != Commit::Noted;
        if waits {
            self.commit = Commit::Wanted;
        }
        waits
    }

    /// Whether a task publishes what the job has made.
    pub(super) fn commits(&self, task: Index) -> bool {
        self.function(task).commits
    }

    /// Whether a task that is ready may run: one that commits, when the ledgers of all edges balance, but for those of its own
    /// arguments.
    pub(super) fn may_be_handed_out(&self, task: Index) -> Result<(), JobError> {
        if !self.commits(task) {
            return Ok(());
        }
        let read = |edge: Index| {
            let of =
                |arg: &ArgEntry| matches!(arg.source, EntrySource::Set(read) if self.sets[read].edge() == Some(edge));
            self.tasks[task].args.iter().any(of)
        };
        self.close_all_but(read)
    }

    /// Whether a cancel has to wait: a task that commits runs, or one has completed and no other task is under way, so that the program is
    /// about to end; or an earlier run had handed one out.
    pub(super) fn is_committing(&self) -> bool {
        let runs = |(index, task): (Index, &Task)| task.state() == State::Running && self.commits(index);
        let is_open = |(_, task): (Index, &Task)| !task.state().is_over();
        self.functions.entries.iter().any(|function| function.commits) && self.tasks.iter().any(runs)
            || self.committed && !self.tasks.iter().any(is_open)
            || self.was_committing
    }

    /// The ledgers and the unread failures at the end of the program.
    ///
    /// # Errors
    /// An edge that does not balance, or a failure that nobody was told of.
    pub(super) fn close(&self) -> Result<(), JobError> {
        self.close_all_but(|_| false)
    }

    fn close_all_but(&self, excepted: impl Fn(Index) -> bool) -> Result<(), JobError> {
        if let Some(error) = self.unobserved.values().next() {
            return Err(error.clone());
        }
        self.edges.iter().filter(|(edge, _)| !excepted(*edge)).try_for_each(|(_, edge)| edge.balance())
    }
}
