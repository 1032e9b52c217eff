//! What happens to a NodeManager: what others say, and what only its own process can say.

use super::executor::Report;
use crate::protocol::node_manager::NodeMsg;

use super::staging::StagingDone;

/// What is in a NodeManager's mailbox.
#[derive(Debug)]
pub enum NodeEvent {
    /// Somebody said this, in this process or another one.
    Wire(NodeMsg),
    /// News from an executor.
    Executor(Report),
    /// Arguments are ready, or cannot be.
    Staged(StagingDone),
    /// A job that asked for more figures gets the next ones.
    Sample,
    /// A moment has passed: look after timeouts, report figures. The timer is set again by the NodeManager alone.
    Tick,
}

impl From<NodeMsg> for NodeEvent {
    fn from(message: NodeMsg) -> Self {
        Self::Wire(message)
    }
}
