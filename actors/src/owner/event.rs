//! What happens to an Owner: what others say, and what only its own process can say.

use exobus_store::Block;
use tokio::sync::oneshot;

use super::asking::Told;
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::NodeInfo;

use crate::event::NodeState;
use crate::futures::ProgramCall;
use crate::ids::{CopyId, Incarnation, NodeId};
use crate::joblog::LogNews;

use crate::task::{JobError, Parts};

/// What is in an Owner's mailbox.
///
/// | event          | from         | if it comes late                                              |
/// |----------------|--------------|---------------------------------------------------------------|
/// | `Wire`         | see [`OwnerMsg`] | see there                                                 |
/// | `Program`      | coordinator  | same description: same task                                   |
/// | `NewReign`     | Host         | the next demand goes there anyway                             |
/// | `Nodes`        | its question to the Scheduler | asked again with the next leases             |
/// | `NodeState`    | Membership, through the Host | ignored by incarnation                        |
/// | `SessionReset` | the sessions, through the Host | asked again what is there                   |
/// | `Log`          | its log      | –                                                             |
/// | `Settle`       | its timer    | ignored                                                       |
/// | `Unreadable`   | its reading  | what is there again is read again                             |
/// | `Told`         | its questions to nodes | who asked has gone                                  |
/// | `Close`        | its timer    | ignored                                                       |
/// | `Tick`         | its timer, which is set again by it alone | –                                |
#[derive(Debug)]
pub(crate) enum OwnerEvent {
    /// Somebody said this, in this process or another one.
    Wire(OwnerMsg),
    /// A call of the job's own program, which always runs beside its Owner.
    Program(ProgramCall),
    /// Another Scheduler reigns: it knows nothing of this job.
    NewReign,
    /// The nodes of the cluster, asked for because leases named one that was not known; empty when nobody answered.
    Nodes(Vec<NodeInfo>),
    /// A node was suspected, died, or came back.
    NodeState {
        /// The node.
        node: NodeId,
        /// Which life.
        incarnation: Incarnation,
        /// What became of it.
        state: NodeState,
    },
    /// The session with a node was made anew, and what was said last, either way, is lost.
    SessionReset {
        /// The node.
        node: NodeId,
        /// The life of it that the new session is with.
        incarnation: Incarnation,
    },
    /// What became of the job's log.
    Log(LogNews),
    /// Nodes had their time to say what they hold.
    Settle,
    /// A copy of an object that the program wants could not be read where it is.
    Unreadable {
        /// The copy.
        copy: CopyId,
        /// The parts that are wanted.
        parts: Parts,
        /// Whom to give it.
        answer: oneshot::Sender<Result<Block, JobError>>,
    },
    /// Nodes have said what attempts there wait for.
    Told(Told),
    /// Nodes had their time to say their last figures.
    Close,
    /// A second has passed.
    Tick,
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
