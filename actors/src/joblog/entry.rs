//! What a log says.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{CopyNumber, JobSecret, NodeId, TaskId};
use crate::joblog::{Choice, Cut};
use crate::task::{Consumed, JobError, Output};

/// One thing that is known of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    /// The program begins, on this node: for the first time, or again.
    Run {
        /// The node.
        node: NodeId,
        /// From what all ids of the job start: what the first entry says.
        secret: JobSecret,
    },
    /// The program learned something.
    Choice(Choice),
    /// A task completed: for the first time, or again, since what it had made was lost.
    Done(TaskDone),
    /// A task is about to be handed out that makes the job's output visible: whoever takes the job up goes on to its end.
    Committing,
    /// The log ends here, before its job: what comes next is not noted, and the job cannot be taken up again.
    Cut(Cut),
    /// The job is over, and this is what its program returned.
    End(Result<Bytes, JobError>),
}

/// What is remembered of a task that completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDone {
    /// The task.
    pub task: TaskId,
    /// Where its outputs were then.
    pub node: NodeId,
    /// Its outputs, in order.
    pub outputs: Vec<Output>,
    /// For each output, the attempt that was accepted, by the number of the copies that it made.
    pub made_by: Vec<CopyNumber>,
    /// What it read, for the ledgers of its edges.
    pub consumed: Vec<Consumed>,
    /// The bytes of outputs that are small, by index.
    pub values: Vec<(u32, Bytes)>,
}

impl TaskDone {
    /// What is known of a task that was done `before`, too, and ran again. It has read the same, and is in the ledgers since the first time; what
    /// the same attempt made has the same bytes.
    pub(crate) fn after(mut self, before: Self) -> Self {
        let Self { made_by, consumed, values, .. } = before;
        for (index, bytes) in values {
            let same = self.made_by.get(index as usize) == made_by.get(index as usize);
            if same && self.values.iter().all(|(known, _)| *known != index) {
                self.values.push((index, bytes));
            }
        }
        Self { consumed, ..self }
    }
}

/// What earlier runs of a program have left, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// How many runs began before this one; 0: it is the first.
    pub runs: u32,
    /// From what all ids of the job start, where it has run before.
    pub secret: Option<JobSecret>,
    /// What they learned.
    pub choices: Vec<Choice>,
    /// What they got done.
    pub done: Vec<TaskDone>,
    /// Whether they had begun to make its output visible.
    pub committing: bool,
    /// Since when, and why, the log lacks what the job did.
    pub cut: Option<Cut>,
    /// How the job ended, where whoever ran it could not note that elsewhere.
    pub end: Option<Result<Bytes, JobError>>,
}

impl Past {
    pub(crate) fn add(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            match entry {
                Entry::Run { secret, .. } => {
                    self.runs += 1;
                    self.secret.get_or_insert(secret);
                }
                Entry::Committing => self.committing = true,
                Entry::Cut(cut) => self.cut = Some(cut),
                Entry::End(result) => self.end = Some(result),
                Entry::Choice(choice) => self.choices.push(choice),
                Entry::Done(done) => self.done.push(done),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ObjectId;

    #[test]
    fn a_log_tells_what_was_begun_learned_and_done_in_order() {
        let run = |secret| Entry::Run { node: NodeId::new("a"), secret: JobSecret::from_u128(secret) };
        let given_up = |number: u128| Choice::GivenUp(ObjectId::from_u128(number << 32));
        let (values, consumed, outputs, made_by) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let done = TaskDone { task: TaskId::from_u128(1), node: NodeId::new("a"), outputs, made_by, consumed, values };
        let mut past = Past::default();
        past.add(vec![run(7), Entry::Choice(given_up(1)), Entry::Done(done.clone())]);
        past.add(vec![run(8), Entry::Choice(given_up(2)), Entry::Committing, Entry::End(Ok(Bytes::from_static(b"7")))]);
        let choices = vec![given_up(1), given_up(2)];
        let (secret, end) = (Some(JobSecret::from_u128(7)), Some(Ok(Bytes::from_static(b"7"))));
        assert_eq!(past, Past { runs: 2, secret, choices, done: vec![done], committing: true, cut: None, end });
    }
}
