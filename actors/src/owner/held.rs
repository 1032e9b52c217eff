//! What waits until the log of the job is durable: what is to be freed, since the completion of who read it last is in the log;
//! and how the job ends. And what was freed on a node while it was asked what it holds. Pure: positions of the log come in.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::{NodeId, ObjectId, SetId};
use crate::task::{Output, Parts, TaskSpec};

/// What is to be freed on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Freed {
    Object(ObjectId),
    Parts(SetId, Parts),
}

/// Things that wait; `R` is how a job ends.
#[derive(Debug)]
pub(crate) struct Held<R> {
    /// What is freed when the log is durable up to a position, in order.
    frees: VecDeque<(u64, NodeId, Freed)>,
    /// Nodes that have not said yet what they hold, and what is freed there meanwhile: their answer may name it still.
    asked: BTreeMap<NodeId, BTreeSet<ObjectId>>,
    /// How the job ends when the log is durable up to a position.
    last_word: Option<(u64, R)>,
}

impl<R> Default for Held<R> {
    fn default() -> Self {
        Self { frees: VecDeque::new(), asked: BTreeMap::new(), last_word: None }
    }
}

impl<R> Held<R> {
    /// Bytes that all of it takes, about.
    pub(crate) fn bytes(&self) -> u64 {
        let meanwhile: usize = self.asked.values().map(BTreeSet::len).sum();
        (self.frees.len() * size_of::<(u64, NodeId, Freed)>() + 2 * meanwhile * size_of::<ObjectId>()) as u64
    }

    /// Something is to be freed as soon as all that was noted by now, up to `noted`, is durable. Given back where it is: `durable` says
    /// how far that has come.
    #[must_use = "what need not wait is freed now"]
    pub(crate) fn free(&mut self, (noted, durable): (u64, u64), node: NodeId, freed: Freed) -> Option<(NodeId, Freed)> {
        if durable < noted {
            self.frees.push_back((noted, node, freed));
            return None;
        }
        self.note_freed(&node, freed);
        Some((node, freed))
    }

    fn note_freed(&mut self, node: &NodeId, freed: Freed) {
        if let (Some(meanwhile), Freed::Object(object)) = (self.asked.get_mut(node), freed) {
            meanwhile.insert(object);
        }
    }

    /// A node is asked what it holds. What it was told before may be lost, and with it the answer to an earlier question.
    pub(crate) fn asked(&mut self, node: &NodeId) {
        self.asked.insert(node.clone(), BTreeSet::new());
    }

    /// A node that was asked is dead.
    pub(crate) fn answers_no_more(&mut self, node: &NodeId) {
        self.asked.remove(node);
    }

    /// What a node says that it holds, or a part of that: what has been freed there since it was asked, or is about to be, is left out.
    pub(crate) fn stock(
        &mut self,
        node: &NodeId,
        mut objects: Vec<(ObjectId, Output)>,
        last: bool,
    ) -> Vec<(ObjectId, Output)> {
        if let Some(meanwhile) = self.asked.get(node) {
            objects.retain(|(object, _)| !meanwhile.contains(object));
        }
        let waits: BTreeSet<_> = self.frees.iter().filter(|(_, at, _)| at == node).map(|(.., freed)| *freed).collect();
        if !waits.is_empty() {
            objects.retain(|(object, _)| !waits.contains(&Freed::Object(*object)));
        }
        if last {
            self.asked.remove(node);
        }
        objects
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
        first.iter().for_each(|(node, freed)| self.note_freed(node, *freed));
        first
    }

    /// An object is put on a node now: what waits to be freed there under its name is not to be any more.
    pub(crate) fn keep(&mut self, node: &NodeId, object: ObjectId) {
        self.frees.retain(|(_, at, freed)| at != node || *freed != Freed::Object(object));
        if let Some(meanwhile) = self.asked.get_mut(node) {
            meanwhile.remove(&object);
        }
    }

    /// The log is durable up to a position: what can be freed now, in order.
    #[must_use = "it is to be freed now"]
    pub(crate) fn durable(&mut self, up_to: u64) -> Vec<(NodeId, Freed)> {
        let durable = self.frees.iter().take_while(|(position, ..)| *position <= up_to).count();
        let freed: Vec<_> = self.frees.drain(..durable).map(|(_, node, freed)| (node, freed)).collect();
        freed.iter().for_each(|(node, freed)| self.note_freed(node, *freed));
        freed
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
        assert!(held.bytes() > 0, "it takes memory");
        assert_eq!(held.durable(3), []);
        assert_eq!(held.durable(5), [(node(), object(2))]);
        assert_eq!(held.durable(u64::MAX), [(node(), object(3))]);
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn what_is_freed_while_a_node_is_asked_what_it_holds_is_not_there() {
        let mut held = Held::<()>::default();
        let stock = |held: &mut Held<()>, last| {
            let all = (1..=6).map(|number| (ObjectId(number), Output::default())).collect();
            let left = held.stock(&node(), all, last);
            left.iter().map(|(object, _)| object.0).collect::<Vec<_>>()
        };
        // Before it is asked: it is gone when it answers.
        assert!(held.free((0, 0), node(), object(1)).is_some());
        held.asked(&node());
        assert!(held.free((0, 0), node(), object(2)).is_some());
        assert!(held.free((0, 0), NodeId::new("b"), object(3)).is_some());
        assert!(held.free((1, 0), node(), object(4)).is_none(), "it is about to be");
        assert!(held.free((2, 0), node(), object(5)).is_none());
        assert_eq!(held.durable(1).len(), 1);
        assert_eq!(stock(&mut held, false), [1, 3, 6]);
        held.keep(&node(), ObjectId(2));
        assert_eq!(stock(&mut held, true), [1, 2, 3, 6], "it was put back");
        assert_eq!(stock(&mut held, true), [1, 2, 3, 4, 6], "it is not asked any more");
        held.asked(&node());
        assert!(held.free((0, 0), node(), object(6)).is_some());
        held.answers_no_more(&node());
        assert_eq!(stock(&mut held, false), [1, 2, 3, 4, 6], "nobody waits for it");
        held.asked(&node());
        held.asked(&node());
        assert_eq!(stock(&mut held, true), [1, 2, 3, 4, 6]);
        assert!(held.free((0, 0), node(), object(6)).is_some());
        assert_eq!(stock(&mut held, true), [1, 2, 3, 4, 6]);
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
