//! Which arguments of an attempt this node should have and has not.
//!
//! An object whose bytes are wrong or cannot be read leaves the store at once ([`ObjectLost`]), whoever found it; so what
//! an attempt that failed has lost is what the store does not have any more, however its function worded the error.
//!
//! [`ObjectLost`]: exobus_store::StoreEvent::ObjectLost

use exobus_store::StoreError;

use super::staging::Stager;
use crate::ids::{CopyId, NodeId, ObjectId};
use crate::task::{FailureKind, Loss, LostObject, Parts, TaskFailure};

impl Stager {
    /// The failure of an attempt that read these copies of this node.
    pub(super) fn with_losses(&self, failure: TaskFailure, read: &[CopyId]) -> TaskFailure {
        let gone = read.iter().filter(|copy| !self.store.contains(copy));
        with_losses(failure, &self.node, gone.copied())
    }

    /// The failure of an attempt whose arguments could not be had: parts of a copy may be gone though others of it are here, since they were
    /// freed when they had been read.
    pub(super) fn with_missing(&self, failure: TaskFailure, wanted: &[(CopyId, Parts)]) -> TaskFailure {
        let gone = wanted.iter().filter(|(copy, parts)| !self.store.has(copy, *parts)).map(|(copy, _)| *copy);
        with_losses(failure, &self.node, gone)
    }
}

/// The failure of an attempt that read copies on `node` of which these are gone: that makes it one of
/// [`ArgumentLost`](FailureKind::ArgumentLost).
pub(crate) fn with_losses(failure: TaskFailure, node: &NodeId, gone: impl Iterator<Item = CopyId>) -> TaskFailure {
    if !may_be_a_loss(&failure) {
        return failure;
    }
    let lost: Vec<_> = gone.filter_map(|copy| lost(copy, node, Loss::Gone)).take(TaskFailure::LOST_MAX).collect();
    if lost.is_empty() { failure } else { TaskFailure::argument_lost(failure.message, lost) }
}

/// Whether an argument that is gone may be the cause. What a function makes of one that breaks off is its own affair, a panic included.
pub(super) fn may_be_a_loss(failure: &TaskFailure) -> bool {
    matches!(failure.kind, FailureKind::Error | FailureKind::Final | FailureKind::Panic)
}

/// A copy that should be on `node` and is not to be had; `None`: no Owner knows it by this name.
pub(crate) fn lost(copy: CopyId, node: &NodeId, loss: Loss) -> Option<LostObject> {
    let (object, number) = ObjectId::of_copy(copy);
    Some(LostObject { object, number: number?, node: node.clone(), loss })
}

pub(super) fn from_store(error: StoreError) -> TaskFailure {
    crate::registry::TaskError::Store(error).into_failure()
}
