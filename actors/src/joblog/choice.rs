//! What a program learned and could have been different (law 3), as it stands in the log.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, ObjectId};
use crate::words::Word;

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
    /// These of the objects that it waited for were there first, in this order.
    Ready(Vec<ObjectId>),
    /// The task that makes this object was overdue, and was given up.
    GivenUp(ObjectId),
    /// These nodes there are.
    Nodes(Vec<NodeShape>),
    /// This node or these nodes hold this object.
    Located(ObjectId, Vec<NodeId>),
    /// These blocks of these lanes were to be folded.
    Folds(Vec<FoldDue>),
    /// It was this time, milliseconds since the epoch.
    Time(u64),
    /// A random number.
    Random(u64),
    /// What came of the computation of this number, from 0: its result as MessagePack, or how many bytes it has where these are too many.
    Computed(u64, Result<Bytes, u64>),
    /// The listener of this number, from 0, was told this word when the program was so far.
    Told(u64, Word, u64),
}

impl Choice {
    /// What it takes, about, where each name takes `name_bytes`.
    pub(crate) fn bytes(&self, name_bytes: usize) -> usize {
        self.names() * name_bytes + if let Self::Computed(_, Ok(value)) = self { value.len() } else { 0 }
    }

    fn names(&self) -> usize {
        match self {
            Self::Ready(objects) => objects.len(),
            Self::GivenUp(_) => 1,
            Self::Nodes(nodes) => nodes.len(),
            Self::Located(_, nodes) => 1 + nodes.len(),
            Self::Folds(folds) => folds.iter().map(|(_, blocks)| 1 + blocks.len()).sum(),
            Self::Time(_) | Self::Random(_) | Self::Computed(..) | Self::Told(..) => 0,
        }
    }
}
