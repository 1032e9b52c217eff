//! Nodes that may be out of reach: one was asked in vain for as long as it takes to know, here or elsewhere.
//!
//! Whoever wants something of a doubted node looks first whether it gives a sign of life, and goes without when it does not: finding a
//! cut costs seconds once, not in each fetch. A sign ends the doubt, as does whatever comes from the node; so does time, since nobody
//! may look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::ids::NodeId;

/// How long it lasts, after the last time that it was raised.
const LASTS: Duration = Duration::from_secs(30);
/// Somebody looks for a sign: the others wait for so long. Longer than looking takes.
const LOOKED_FOR: Duration = Duration::from_millis(1200);
/// After a sign that did not come the next one is looked for no sooner; twice as long each time, up to as long as asking in vain
/// takes: what tries again and again is to take as long as before.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// Whom this node doubts; clones share it. Times are those of one monotonic clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubts(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// A look has ended, or a doubt.
    ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    doubts: BTreeMap<NodeId, Doubt>,
    raised: u64,
}

#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// Tells it from an earlier one of the same node.
    number: u64,
    until: Duration,
    look_at: Duration,
    pause: Duration,
    /// Looks that found no sign.
    failed: u32,
}

/// What to do about a node that something is wanted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Ask it.
    Trusted,
    /// Look whether it gives a sign, and say what came of this look. Others wait meanwhile.
    Look(u64),
    /// Wait until then, or until a look ends; so many have failed.
    Wait(Duration, u32),
}

impl Doubts {
    /// Somebody, perhaps elsewhere, asked it in vain.
    pub(crate) fn raise(&self, node: &NodeId, now: Duration) {
        let State { doubts, raised } = &mut *self.0.state.lock();
        *raised += 1;
        let fresh = Doubt { number: *raised, until: now, look_at: now, pause: PAUSE_MIN, failed: 0 };
        let doubt = doubts.entry(node.clone()).or_insert(fresh);
        if doubt.until <= now {
            *doubt = fresh;
        }
        doubt.until = now + LASTS;
    }

    /// There was no sign when it was looked.
    pub(super) fn found_silent(&self, node: &NodeId, look: u64, now: Duration) {
        // It may have answered somebody else meanwhile.
        if let Some(doubt) = self.0.state.lock().doubts.get_mut(node).filter(|doubt| doubt.number == look) {
            *doubt = Doubt { until: now + LASTS, look_at: now + doubt.pause, failed: doubt.failed + 1, ..*doubt };
            doubt.pause = (doubt.pause * 2).min(PAUSE_MAX);
        }
        self.0.ended.notify_waiters();
    }

    /// It has answered.
    pub(super) fn settle(&self, node: &NodeId) {
        if self.0.state.lock().doubts.remove(node).is_some() {
            self.0.ended.notify_waiters();
        }
    }

    /// Resolves when a look ends, or a doubt, after this was called.
    pub(super) fn ended(&self) -> Notified<'_> {
        // Known to those that wake others from now on, polled or not.
        self.0.ended.notified()
    }

    pub(super) fn of(&self, node: &NodeId, now: Duration) -> Verdict {
        let doubts = &mut self.0.state.lock().doubts;
        match doubts.get_mut(node) {
            Some(doubt) if now >= doubt.until => {
                doubts.remove(node);
                Verdict::Trusted
            }
            Some(doubt) if now < doubt.look_at => Verdict::Wait(doubt.look_at, doubt.failed),
            Some(doubt) => {
                doubt.look_at = now + LOOKED_FOR;
                Verdict::Look(doubt.number)
            }
            None => Verdict::Trusted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn who_is_doubted_is_looked_at_by_one_until_there_is_a_sign_or_time_has_passed() {
        let (doubts, node) = (Doubts::default(), NodeId::new("a"));
        assert_eq!(doubts.of(&node, ms(0)), Verdict::Trusted);
        doubts.raise(&node, ms(1000));
        assert_eq!(doubts.of(&NodeId::new("b"), ms(1000)), Verdict::Trusted);
        assert_eq!(doubts.of(&node, ms(1000)), Verdict::Look(1));
        assert_eq!(doubts.of(&node, ms(1100)), Verdict::Wait(ms(2200), 0), "somebody looks");
        assert_eq!(doubts.of(&node, ms(2200)), Verdict::Look(1), "who did not come back");
        doubts.settle(&node);
        assert_eq!(doubts.of(&node, ms(2300)), Verdict::Trusted);
        doubts.raise(&node, ms(3000));
        doubts.found_silent(&node, 1, ms(3000));
        assert_eq!(doubts.of(&node, ms(3000)), Verdict::Look(2), "the other one was of the doubt before");
        doubts.raise(&node, ms(4000));
        assert_eq!(doubts.of(&node, ms(33_999)), Verdict::Look(2));
        assert_eq!(doubts.of(&node, ms(34_000)), Verdict::Trusted);
    }

    #[test]
    fn who_gives_no_sign_is_looked_at_more_and_more_rarely() {
        let (doubts, node, mut now) = (Doubts::default(), NodeId::new("a"), ms(0));
        doubts.raise(&node, now);
        for (failed, pause) in (1..).zip([500, 1000, 2000, 4000, 4000]) {
            assert_eq!(doubts.of(&node, now), Verdict::Look(1));
            doubts.found_silent(&node, 1, now);
            assert_eq!(doubts.of(&node, now), Verdict::Wait(now + ms(pause), failed));
            // What is heard elsewhere does not make it answer sooner.
            doubts.raise(&node, now);
            assert_eq!(doubts.of(&node, now), Verdict::Wait(now + ms(pause), failed));
            now += ms(pause);
        }
        // Another one begins anew.
        doubts.raise(&node, now + LASTS);
        assert_eq!(doubts.of(&node, now + LASTS), Verdict::Look(7));
        doubts.found_silent(&node, 7, now + LASTS);
        assert_eq!(doubts.of(&node, now + LASTS), Verdict::Wait(now + LASTS + PAUSE_MIN, 1));
    }
}
