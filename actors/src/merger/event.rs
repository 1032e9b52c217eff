//! What happens to a Merger: what others say, and what only its own process can say.

use std::fmt;

use exobus_store::PartMeta;

use super::copying::Copied;
use crate::protocol::merger::MergerMsg;

use crate::node_manager::{Look, PushedCall, Take};

/// What is in a Merger's mailbox.
#[derive(Debug)]
pub(crate) enum MergerEvent {
    /// Somebody said this, in this process or another one.
    Wire(MergerMsg),
    /// Which of these are here? Answered when none of them is on its way.
    Look(Look),
    /// A task that has all its other memory takes these.
    Take(Take),
    /// How work number `.0` goes on.
    News(u64, News),
    /// Arguments find no memory.
    Tight,
}

impl From<MergerMsg> for MergerEvent {
    fn from(message: MergerMsg) -> Self {
        Self::Wire(message)
    }
}

impl From<PushedCall> for MergerEvent {
    fn from(call: PushedCall) -> Self {
        match call {
            PushedCall::Look(look) => Self::Look(look),
            PushedCall::Take(take) => Self::Take(take),
        }
    }
}

/// What happened to a copy that is being made.
pub(crate) enum News {
    /// The directories of its pieces; `None`: its holder cannot be asked, or does not have it.
    Sized(Option<Vec<Vec<PartMeta>>>),
    /// The store has no memory for it now.
    Short,
    /// The store has granted its memory.
    Granted,
    /// It is here.
    Copied(Vec<Copied>),
    /// It will not come.
    Failed,
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sized(_) => "Sized",
            Self::Short => "Short",
            Self::Granted => "Granted",
            Self::Copied(_) => "Copied",
            Self::Failed => "Failed",
        })
    }
}
