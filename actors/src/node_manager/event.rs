//! What happens to a NodeManager: what others say, and what only its own process can say.

use super::core::Listeners;
use super::executor::Report;
use super::staging::Prepared;
use super::state::Key;
use super::waits::Waits;
use crate::event::{NodeFigures, Received};
use crate::protocol::node_manager::NodeMsg;
use crate::task::TaskFailure;

/// What is in a NodeManager's mailbox. `P` is what an attempt needs to start.
#[derive(Debug)]
pub enum NodeEvent<P = Prepared> {
    /// Somebody said this, in this process or another one.
    Wire(NodeMsg),
    /// News from an executor.
    Executor(Report),
    /// Arguments are ready, or cannot be.
    Staged(Box<StagingDone<P>>),
    /// Figures of the node are there, which were to be taken.
    Figures(Box<FiguresTaken>),
    /// A moment has come.
    Timer(NodeTimer),
}

/// A moment that a NodeManager waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeTimer {
    /// A job that asked for more figures gets the next ones.
    Sample,
    /// Look after timeouts, report figures. The timer is set again by the NodeManager alone.
    Tick,
}

/// The arguments of an attempt are ready, or cannot be.
#[derive(Debug)]
pub struct StagingDone<P = Prepared> {
    pub(crate) key: Key,
    /// What it needs to start, and what that took.
    pub(crate) outcome: Result<(P, Waits), TaskFailure>,
}

/// Figures of a node, and who hears of them.
#[derive(Debug)]
pub struct FiguresTaken {
    pub(crate) listeners: Listeners,
    pub(crate) figures: NodeFigures,
    /// All that came from other nodes since the start of the process.
    pub(crate) received: Vec<Received>,
}

impl<P> From<NodeMsg> for NodeEvent<P> {
    fn from(message: NodeMsg) -> Self {
        Self::Wire(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of them wait at a time, and all are moved twice: what is large and rare is in a box.
    #[test]
    fn an_event_is_no_larger_than_what_comes_for_each_task_needs() {
        assert!(size_of::<NodeEvent>() <= 240, "{}", size_of::<NodeEvent>());
    }
}
