//! What a log says.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, TaskId};
use crate::joblog::Choice;
use crate::task::{Consumed, JobError, Output};

/// One thing that is known of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    /// The program begins, on this node: for the first time, or again.
    Run {
        /// The node.
        node: NodeId,
    },
    /// The program learned something.
    Choice(Choice),
    /// A task completed for the first time.
    Done(TaskDone),
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
    /// What it read, for the books of its exchanges.
    pub consumed: Vec<Consumed>,
    /// The bytes of outputs that are small, by index.
    pub values: Vec<(u32, Bytes)>,
}

/// What earlier runs of a program have left, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// How many runs began before this one; 0: it is the first.
    pub runs: u32,
    /// What they learned.
    pub choices: Vec<Choice>,
    /// What they got done.
    pub done: Vec<TaskDone>,
    /// How the job ended, where whoever ran it could not note that elsewhere.
    pub end: Option<Result<Bytes, JobError>>,
}

impl Past {
    pub(crate) fn add(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            match entry {
                Entry::Run { .. } => self.runs += 1,
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
        let run = || Entry::Run { node: NodeId::new("a") };
        let given_up = |number| Choice::GivenUp(ObjectId(number));
        let (values, consumed, outputs) = (Vec::new(), Vec::new(), Vec::new());
        let done = TaskDone { task: TaskId::from_u128(1), node: NodeId::new("a"), outputs, consumed, values };
        let mut past = Past::default();
        past.add(vec![run(), Entry::Choice(given_up(1)), Entry::Done(done.clone())]);
        past.add(vec![run(), Entry::Choice(given_up(2)), Entry::End(Ok(Bytes::from_static(b"7")))]);
        let choices = vec![given_up(1), given_up(2)];
        assert_eq!(past, Past { runs: 2, choices, done: vec![done], end: Some(Ok(Bytes::from_static(b"7"))) });
    }
}
