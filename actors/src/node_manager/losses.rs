//! Which arguments of an attempt this node should have and has not.
//!
//! An object whose bytes are wrong or cannot be read leaves the store at once ([`ObjectLost`]), whoever found it; so what
//! an attempt that failed has lost is what the store does not have any more, however its function worded the error.
//!
//! [`ObjectLost`]: exobus_store::StoreEvent::ObjectLost

use exobus_store::StoreError;

use super::staging::{self, Located, Members, Stager};
use crate::ids::{CopyId, NodeId, ObjectId, SetId};
use crate::task::{FailureKind, LocatedSource, Loss, LostObject, TaskFailure, TaskSpec};

impl Stager {
    /// The failure of an attempt that read `objects` where they are; arguments of this node that are gone make it one
    /// of [`ArgumentLost`](FailureKind::ArgumentLost).
    pub(super) fn with_losses<'a>(
        &self,
        failure: TaskFailure,
        objects: impl Iterator<Item = &'a Located>,
    ) -> TaskFailure {
        // What a function makes of an argument that breaks off is its own affair, a panic included.
        if !matches!(failure.kind, FailureKind::Error | FailureKind::Final | FailureKind::Panic) {
            return failure;
        }
        let here = objects.flatten().filter(|(_, at)| *at == self.node);
        let gone = here.filter(|(copy, _)| !self.store.contains(copy));
        let lost = gone.filter_map(|(copy, _)| lost(*copy, &self.node, Loss::Gone));
        let lost: Vec<_> = lost.take(TaskFailure::LOST_MAX).collect();
        if lost.is_empty() { failure } else { TaskFailure::argument_lost(failure.message, lost) }
    }
}

/// Every object of the arguments, as far as the sets are known.
pub(super) fn objects_of(spec: &TaskSpec, sets: &dyn Fn(SetId) -> Option<std::sync::Arc<Members>>) -> Vec<Located> {
    let mut objects = Vec::new();
    for located in &spec.args {
        match &located.source {
            LocatedSource::Object { object, at } => objects.push(staging::located(spec.job, *object, at)),
            LocatedSource::Set { set: id, .. } => {
                objects.extend(sets(*id).iter().flat_map(|set| set.members.iter().cloned()))
            }
        }
    }
    objects
}

/// A copy that should be on `node` and is not to be had; `None`: no Owner knows it by this name.
pub(super) fn lost(copy: CopyId, node: &NodeId, loss: Loss) -> Option<LostObject> {
    let (object, number) = ObjectId::of_copy(copy);
    Some(LostObject { object, number: number?, node: node.clone(), loss })
}

pub(super) fn from_store(error: StoreError) -> TaskFailure {
    crate::registry::TaskError::Store(error).into_failure()
}
