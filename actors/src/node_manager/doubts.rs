//! Nodes that may be out of reach: one was asked in vain for as long as it takes to know, here or elsewhere.
//!
//! Who is doubted is asked for a sign of life before anything else, and not asked at all again for a moment when none comes:
//! finding a cut costs seconds once, not in each fetch. A sign ends the doubt; so does time, since nobody may look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::ids::NodeId;

/// How long it lasts, after the last time that it was raised.
const LASTS: Duration = Duration::from_secs(30);
/// After a sign that did not come the next one is asked for no sooner.
const ASKED_EVERY: Duration = Duration::from_millis(500);

/// Whom this node doubts, by name; clones share it. Times are those of one monotonic clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubts(Arc<Mutex<BTreeMap<NodeId, Doubt>>>);

#[derive(Clone, Copy, Debug)]
struct Doubt {
    until: Duration,
    ask_at: Duration,
}

/// What to do about a node that something is wanted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Ask it.
    Trusted,
    /// Look first whether it answers.
    Doubted,
    /// It did not, just now.
    Silent,
}

impl Doubts {
    /// Somebody, perhaps elsewhere, asked it in vain.
    pub(crate) fn raise(&self, node: &NodeId, now: Duration) {
        let mut doubts = self.0.lock();
        let doubt = doubts.entry(node.clone()).or_insert(Doubt { until: now, ask_at: now });
        doubt.until = now + LASTS;
    }

    /// It did not answer when it was looked.
    pub(super) fn is_silent(&self, node: &NodeId, now: Duration) {
        self.0.lock().insert(node.clone(), Doubt { until: now + LASTS, ask_at: now + ASKED_EVERY });
    }

    /// It has answered.
    pub(super) fn settle(&self, node: &NodeId) {
        self.0.lock().remove(node);
    }

    pub(super) fn of(&self, node: &NodeId, now: Duration) -> Verdict {
        let mut doubts = self.0.lock();
        match doubts.get(node) {
            Some(doubt) if now >= doubt.until => {
                doubts.remove(node);
                Verdict::Trusted
            }
            Some(doubt) if now < doubt.ask_at => Verdict::Silent,
            Some(_) => Verdict::Doubted,
            None => Verdict::Trusted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn who_is_doubted_is_looked_at_first_until_there_is_a_sign_or_time_has_passed() {
        let (doubts, node) = (Doubts::default(), NodeId::new("a"));
        assert_eq!(doubts.of(&node, s(0)), Verdict::Trusted);
        doubts.raise(&node, s(1));
        assert_eq!(doubts.of(&node, s(1)), Verdict::Doubted);
        assert_eq!(doubts.of(&NodeId::new("b"), s(1)), Verdict::Trusted);
        doubts.is_silent(&node, s(2));
        assert_eq!(doubts.of(&node, s(2)), Verdict::Silent);
        // What is heard elsewhere does not make it answer sooner.
        doubts.raise(&node, s(2));
        assert_eq!(doubts.of(&node, s(2)), Verdict::Silent);
        assert_eq!(doubts.of(&node, s(2) + ASKED_EVERY), Verdict::Doubted);
        assert_eq!(doubts.of(&node, s(31)), Verdict::Doubted);
        assert_eq!(doubts.of(&node, s(32)), Verdict::Trusted);
        doubts.raise(&node, s(40));
        doubts.settle(&node);
        assert_eq!(doubts.of(&node, s(40)), Verdict::Trusted);
    }
}
