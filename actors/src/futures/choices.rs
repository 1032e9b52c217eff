//! The log of what a program learned and that could have been different (law 3).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, ObjectId};

/// A node, as far as plans depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShape {
    /// The node.
    pub node: NodeId,
    /// What it lends, thousandths of a core: 1000 for each executor.
    pub cpu_milli: u64,
    /// Byte budget of its store.
    pub memory_bytes: u64,
}

/// A lane, and blocks of it that are to be folded.
pub type FoldDue = (u32, Vec<ObjectId>);

/// One thing that a program learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Choice {
    /// These of the objects that it waited for were there first, in this order. None, where it waited for so long only.
    Ready(Vec<ObjectId>),
    /// The tasks that make these objects were overdue, and were cancelled.
    Cancelled(Vec<ObjectId>),
    /// These nodes there are.
    Nodes(Vec<NodeShape>),
    /// This node or these nodes hold an object.
    Locations(Vec<NodeId>),
    /// These blocks of these lanes were to be folded.
    Folds(Vec<FoldDue>),
    /// It was this time, milliseconds since the epoch.
    Time(u64),
    /// A random number.
    Random(u64),
}

impl Choice {
    /// How many names it has: what it takes.
    pub(crate) fn entries(&self) -> usize {
        match self {
            Self::Ready(objects) | Self::Cancelled(objects) => objects.len(),
            Self::Nodes(nodes) => nodes.len(),
            Self::Locations(nodes) => nodes.len(),
            Self::Folds(folds) => folds.iter().map(|(_, blocks)| 1 + blocks.len()).sum(),
            Self::Time(_) | Self::Random(_) => 0,
        }
    }
}

/// The log: first what an earlier run learned is given again, then what is new is appended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    replay: VecDeque<Choice>,
    log: Vec<Choice>,
}

impl Choices {
    /// A log that gives the choices of an earlier run again.
    pub fn replaying(choices: Vec<Choice>) -> Self {
        Self { replay: choices.into(), log: Vec::new() }
    }

    /// The next choice of the earlier run; `None` once the program is live. It is appended to this run's log as well.
    pub fn replayed(&mut self) -> Option<Choice> {
        let choice = self.replay.pop_front()?;
        self.log.push(choice.clone());
        Some(choice)
    }

    /// Appends something new.
    ///
    /// # Panics
    /// While choices of the earlier run are left: the program is not deterministic.
    pub fn append(&mut self, choice: Choice) {
        assert!(self.replay.is_empty(), "the program asked for {choice:?} where the log has {:?}", self.replay[0]);
        self.log.push(choice);
    }

    /// Everything that this run has learned so far.
    pub fn log(&self) -> &[Choice] {
        &self.log
    }
}
