//! What happens to an Owner: what others say, and what only its own process can say.

use exobus_store::Block;

use super::effect::OwnerTimer;
use super::why::chain::Answer;
use crate::event::{NodeFigures, NodeState, Received};
use crate::futures::ProgramCall;
use crate::ids::{Attempt, CopyId, Incarnation, NodeId, TaskId};
use crate::joblog::LogNews;
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::NodeInfo;
use crate::task::JobError;

/// What is in an Owner's mailbox.
///
/// | event          | from         | if it comes late                                              |
/// |----------------|--------------|---------------------------------------------------------------|
/// | `Wire`         | see [`OwnerMsg`] | see there                                                 |
/// | `Program`      | coordinator  | same description: same task                                   |
/// | `NewEpoch`     | Host         | the next demand goes there anyway                             |
/// | `Nodes`        | its question to the Scheduler | asked again with the next leases             |
/// | `NodeState`    | Membership, through the Host | ignored by incarnation                        |
/// | `SessionReset` | the sessions, through the Host | asked again what is there                   |
/// | `Log`          | its log      | –                                                             |
/// | `Unsent`       | its shell    | an attempt that is over is none to hand out again             |
/// | `EndUnsent`    | its shell    | –                                                             |
/// | `Figures`      | its look at them | –                                                         |
/// | `NotPut`       | its store    | the copy is lost, and found lost by who reads it              |
/// | `Read`         | its reading  | who asked has gone                                            |
/// | `Doing`        | its questions to nodes | who asked has gone                                  |
/// | `Timer`        | its timers, which are set again by it alone | –                              |
#[derive(Debug)]
pub(crate) enum OwnerEvent {
    /// Somebody said this, in this process or another one.
    Wire(OwnerMsg),
    /// A call of the job's own program, which always runs beside its Owner.
    Program(ProgramCall),
    /// Another Scheduler is followed, in a later epoch: it knows nothing of this job.
    NewEpoch,
    /// The nodes of the cluster, asked for because leases named one that was not known; empty when nobody answered.
    Nodes(Vec<NodeInfo>),
    /// A node was suspected, died, or came back.
    NodeState {
        /// The node.
        node: NodeId,
        /// Which incarnation.
        incarnation: Incarnation,
        /// What became of it.
        state: NodeState,
    },
    /// The session with a node was made anew, and what was said last, either way, is lost.
    SessionReset {
        /// The node.
        node: NodeId,
        /// The incarnation of it that the new session is with.
        incarnation: Incarnation,
    },
    /// What became of the job's log.
    Log(LogNews),
    /// An attempt could not be sent to its node.
    Unsent {
        /// The node.
        node: NodeId,
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: Attempt,
        /// Why it can never be sent, where that is so. Else the node is gone, or too much waits for it.
        never: Option<String>,
    },
    /// A node could not be told that the job is over: it will not say its last figures.
    EndUnsent(NodeId),
    /// What this node has counted since its process started, and what it has received of others for the job.
    Figures(Box<NodeFigures>, Vec<Received>),
    /// This copy could not be put into the Owner's own store.
    NotPut(CopyId),
    /// What came of reading for the program.
    Read {
        /// Which reading.
        read: u64,
        /// The bytes.
        outcome: Result<Block, ReadError>,
    },
    /// A node has said what attempts there wait for, or why it does not.
    Doing {
        /// Which question.
        question: u64,
        /// The node.
        node: NodeId,
        /// What it says.
        answer: Answer,
    },
    /// It is time.
    Timer(OwnerTimer),
}

/// Why something was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The copy is not where it was, or cannot be read there.
    Unreadable,
    /// It cannot be read at all.
    Failed(JobError),
}

impl From<OwnerMsg> for OwnerEvent {
    fn from(message: OwnerMsg) -> Self {
        Self::Wire(message)
    }
}

impl From<ProgramCall> for OwnerEvent {
    fn from(call: ProgramCall) -> Self {
        Self::Program(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of them wait at a time, and all are moved twice: what is large and rare is in a box.
    #[test]
    fn an_event_is_no_larger_than_what_comes_for_each_task_needs() {
        assert!(size_of::<OwnerEvent>() <= 160, "{}", size_of::<OwnerEvent>());
    }
}
