//! What waits until the log of the job is durable: what is to be freed, since the completion of who read it last is in the log;
//! and how the job ends. Pure: positions of the log come in.

use std::collections::VecDeque;

use crate::ids::{NodeId, ObjectId, SetId};
use crate::task::{Parts, TaskSpec};

/// What is to be freed on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    Object(ObjectId),
    Parts(SetId, Parts),
}

/// Things that wait; `R` is how a job ends.
#[derive(Debug)]
pub(crate) struct Held<R> {
    /// What is freed when the log is durable up to a position, in order.
    frees: VecDeque<(u64, NodeId, Freed)>,
    /// How the job ends when the log is durable up to a position.
    last_word: Option<(u64, R)>,
}

impl<R> Default for Held<R> {
    fn default() -> Self {
        Self { frees: VecDeque::new(), last_word: None }
    }
}

impl<R> Held<R> {
    /// Something is to be freed as soon as all that was noted by now, up to `noted`, is durable. Given back where it is: `durable` says
    /// how far that has come.
    #[must_use = "what need not wait is freed now"]
    pub(crate) fn free(&mut self, (noted, durable): (u64, u64), node: NodeId, freed: Freed) -> Option<(NodeId, Freed)> {
        if durable < noted {
            self.frees.push_back((noted, node, freed));
            return None;
        }
        Some((node, freed))
    }

    /// A task makes objects on a node, where some of the same names may wait to be freed: freed later, it would be what is made now.
    /// They are freed before, durable or not: who would need them finds them gone. Parts of them stay: that some are gone nobody could
    /// find, so they must not go before it is durable; they go with their objects. `may_hold`: whether a set has any of them.
    #[must_use = "they are to be freed now"]
    pub(crate) fn in_the_way(
        &mut self,
        node: &NodeId,
        spec: &TaskSpec,
        may_hold: impl Fn(SetId) -> bool,
    ) -> Vec<(NodeId, Freed)> {
        let mut first = Vec::new();
        self.frees.retain(|(_, at, freed)| match freed {
            Freed::Object(object) if at == node && spec.may_make(*object) => {
                first.push((at.clone(), *freed));
                false
            }
            Freed::Parts(set, _) => at != node || !may_hold(*set),
            Freed::Object(_) => true,
        });
        first
    }

    /// An object is put on a node now: what waits to be freed there under its name is not to be any more.
    pub(crate) fn keep(&mut self, node: &NodeId, object: ObjectId) {
        self.frees.retain(|(_, at, freed)| at != node || *freed != Freed::Object(object));
    }

    /// The log is durable up to a position: what can be freed now, in order.
    #[must_use = "it is to be freed now"]
    pub(crate) fn durable(&mut self, up_to: u64) -> Vec<(NodeId, Freed)> {
        let durable = self.frees.iter().take_while(|(position, ..)| *position <= up_to).count();
        self.frees.drain(..durable).map(|(_, node, freed)| (node, freed)).collect()
    }

    /// How the job ends, when the log is durable up to a position.
    pub(crate) fn end(&mut self, position: u64, result: R) {
        self.last_word = Some((position, result));
    }

    /// Whether it is known how the job ends.
    pub(crate) fn is_ending(&self) -> bool {
        self.last_word.is_some()
    }

    /// How the job ends, if that is durable.
    pub(crate) fn last_word(&mut self, up_to: u64) -> Option<R> {
        self.last_word.take_if(|(position, _)| *position <= up_to).map(|(_, result)| result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Attempt, JobId, TaskId};
    use crate::task::{Resources, Returns};

    fn node() -> NodeId {
        NodeId::new("a")
    }

    fn object(number: u128) -> Freed {
        Freed::Object(ObjectId(number))
    }

    #[test]
    fn what_was_read_by_who_is_not_durable_waits_in_order() {
        let mut held = Held::<()>::default();
        assert_eq!(held.free((3, 3), node(), object(1)), Some((node(), object(1))), "nothing to wait for");
        assert_eq!(held.free((4, 3), node(), object(2)), None);
        assert_eq!(held.free((6, 3), node(), object(3)), None);
        assert_eq!(held.durable(3), []);
        assert_eq!(held.durable(5), [(node(), object(2))]);
        assert_eq!(held.durable(u64::MAX), [(node(), object(3))]);
    }

    #[test]
    fn what_is_put_back_is_not_freed() {
        let mut held = Held::<()>::default();
        for number in [1, 2] {
            assert_eq!(held.free((1, 0), node(), object(number)), None);
        }
        held.keep(&NodeId::new("b"), ObjectId(2));
        held.keep(&node(), ObjectId(1));
        assert_eq!(held.durable(1), [(node(), object(2))]);
    }

    #[test]
    fn what_has_the_names_of_what_is_made_next_on_a_node_goes_before() {
        let (task, other) = (TaskId::from_u128(7), TaskId::from_u128(8));
        let spec = TaskSpec {
            job: JobId::from_u128(1),
            id: task,
            attempt: Attempt(2),
            function: "f@1".into(),
            params: bytes::Bytes::new(),
            args: Vec::new(),
            returns: Returns::One,
            target_bytes: 0,
            resources: Resources::default(),
            scratch_bytes: Vec::new(),
            whole_max_bytes: 0,
            memory_max_bytes: 0,
            alone: false,
            timeout_ms: 0,
        };
        let elsewhere = NodeId::new("b");
        let set = SetId::of(&[task.output(0)]);
        let [part, of_others] = [set, SetId::of(&[other.output(0)])].map(|set| Freed::Parts(set, Parts::one(0)));
        let mut held = Held::<()>::default();
        let frees = [
            (node(), part),
            (node(), of_others),
            (node(), Freed::Object(other.output(0))),
            (elsewhere.clone(), part),
            (elsewhere.clone(), Freed::Object(task.output(0))),
            (node(), Freed::Object(task.output(0))),
        ];
        for (at, freed) in frees {
            assert_eq!(held.free((1, 0), at, freed), None);
        }
        let first = held.in_the_way(&node(), &spec, |of| of == set);
        assert_eq!(first, [(node(), Freed::Object(task.output(0)))]);
        let left = [
            (node(), of_others),
            (node(), Freed::Object(other.output(0))),
            (elsewhere.clone(), part),
            (elsewhere, Freed::Object(task.output(0))),
        ];
        assert_eq!(held.durable(1), left, "the part of what is made now is never freed by itself");
    }

    #[test]
    fn the_job_ends_when_that_is_durable() {
        let mut held = Held::default();
        assert!(!held.is_ending() && held.last_word(u64::MAX).is_none());
        held.end(7, "done");
        assert!(held.is_ending());
        assert_eq!((held.last_word(6), held.last_word(7), held.last_word(8)), (None, Some("done"), None));
    }
}
