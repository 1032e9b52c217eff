//! What waits until the log of the job is durable: what is to be freed, since the completion of who read it last is in the log;
//! and how the job ends. Pure: positions of the log come in.

use std::collections::VecDeque;

use crate::ids::{CopyId, NodeId, SetId};
use crate::task::Parts;

/// What is to be freed on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Freed {
    Copy(CopyId),
    /// Parts of the copies that this version of a set means.
    Parts(SetId, u32, Parts),
}

/// Things that wait; `R` is how a job ends.
#[derive(Debug)]
pub(super) struct DeferredFrees<R> {
    /// What is freed when the log is durable up to a position, in order.
    frees: VecDeque<(u64, NodeId, Freed)>,
    /// How the job ends when the log is durable up to a position.
    last_word: Option<(u64, R)>,
}

impl<R> Default for DeferredFrees<R> {
    fn default() -> Self {
        Self { frees: VecDeque::new(), last_word: None }
    }
}

impl<R> DeferredFrees<R> {
    /// Bytes that all of it takes, about.
    pub(super) fn bytes(&self) -> u64 {
        (self.frees.len() * size_of::<(u64, NodeId, Freed)>()) as u64
    }

    /// Something is to be freed as soon as all that was noted by now, up to `noted`, is durable. Given back where it is: `durable` says
    /// how far that has come.
    #[must_use = "what need not wait is freed now"]
    pub(super) fn free(&mut self, (noted, durable): (u64, u64), node: NodeId, freed: Freed) -> Option<(NodeId, Freed)> {
        if durable < noted {
            self.frees.push_back((noted, node, freed));
            return None;
        }
        Some((node, freed))
    }

    /// The log is durable up to a position: what can be freed now, in order.
    #[must_use = "it is to be freed now"]
    pub(super) fn durable(&mut self, up_to: u64) -> Vec<(NodeId, Freed)> {
        let durable = self.frees.iter().take_while(|(position, ..)| *position <= up_to).count();
        self.frees.drain(..durable).map(|(_, node, freed)| (node, freed)).collect()
    }

    /// How the job ends, when the log is durable up to a position.
    pub(super) fn end(&mut self, position: u64, result: R) {
        self.last_word = Some((position, result));
    }

    /// Whether it is known how the job ends.
    pub(super) fn is_ending(&self) -> bool {
        self.last_word.is_some()
    }

    /// Whether it is known how the job ends, and that is durable up to a position.
    pub(super) fn has_last_word(&self, up_to: u64) -> bool {
        self.last_word.as_ref().is_some_and(|(position, _)| *position <= up_to)
    }

    /// How the job ends, if that is durable.
    pub(super) fn last_word(&mut self, up_to: u64) -> Option<R> {
        self.last_word.take_if(|(position, _)| *position <= up_to).map(|(_, result)| result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeId {
        NodeId::new("a")
    }

    fn copy(number: u128) -> Freed {
        Freed::Copy(CopyId::new(1, number))
    }

    #[test]
    fn what_was_read_by_who_is_not_durable_waits_in_order() {
        let mut deferred = DeferredFrees::<()>::default();
        assert_eq!(deferred.free((3, 3), node(), copy(1)), Some((node(), copy(1))), "nothing to wait for");
        assert_eq!(deferred.free((4, 3), node(), copy(2)), None);
        assert_eq!(deferred.free((6, 3), node(), copy(3)), None);
        assert!(deferred.bytes() > 0, "it takes memory");
        assert_eq!(deferred.durable(3), []);
        assert_eq!(deferred.durable(5), [(node(), copy(2))]);
        assert_eq!(deferred.durable(u64::MAX), [(node(), copy(3))]);
        assert_eq!(deferred.bytes(), 0);
    }

    #[test]
    fn the_job_ends_when_that_is_durable() {
        let mut deferred = DeferredFrees::default();
        assert!(!deferred.is_ending() && deferred.last_word(u64::MAX).is_none());
        deferred.end(7, "done");
        assert!(deferred.is_ending());
        assert_eq!((deferred.has_last_word(6), deferred.has_last_word(7)), (false, true));
        assert_eq!((deferred.last_word(6), deferred.last_word(7), deferred.last_word(8)), (None, Some("done"), None));
    }
}
