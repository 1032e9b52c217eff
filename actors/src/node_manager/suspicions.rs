//! Nodes that are suspected to be out of reach: one was asked in vain for as long as it takes to know, here or elsewhere.
//!
//! Whoever wants something of a suspected node probes it first, and goes without when the probe fails: finding a cut costs seconds once,
//! not in each fetch. A probe that is answered ends the suspicion, as does whatever comes from the node; so does time, since nobody may
//! probe it.
//!
//! This is not [`Health::Suspected`](crate::protocol::membership::Health::Suspected), though both go by the same word: Membership suspects
//! a node to be *dead*, of missed heartbeats on the bus, and probes it by asking whether its process listens; here a node is suspected
//! to be *out of reach* of this one, of fetches over the data network, and a probe is a connection on which it must be welcomed. A node
//! whose beats come can be suspected here, and one that Membership suspects need not be. Neither hears of the other's suspicions; only
//! whom Membership calls gone is not waited for here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::ids::NodeId;

/// How long it lasts, after the last time that it was raised.
const LASTS: Duration = Duration::from_secs(30);
/// Somebody probes: the others wait for so long. Longer than a probe takes.
const PROBED_FOR: Duration = Duration::from_millis(1200);
/// After a probe that failed the next one comes no sooner; twice as long each time, up to as long as asking in vain
/// takes: what tries again and again is to take as long as before.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// Whom this node suspects to be out of reach; clones share it. Times are those of one monotonic clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspicions(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// A probe has ended, or a suspicion.
    ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    suspicions: BTreeMap<NodeId, Suspicion>,
    raised: u64,
}

#[derive(Clone, Copy, Debug)]
struct Suspicion {
    /// Tells it from an earlier one of the same node.
    number: u64,
    until: Duration,
    probe_at: Duration,
    pause: Duration,
    /// Probes that failed.
    failed: u32,
}

/// What to do about a node that something is wanted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Ask it.
    Trusted,
    /// Probe it, and say what came of it: that one, of this suspicion. Others wait meanwhile.
    Probe(u64),
    /// Wait until then, or until a probe ends; so many have failed.
    Wait(Duration, u32),
}

impl Suspicions {
    /// Somebody, perhaps elsewhere, asked it in vain.
    pub(crate) fn suspect(&self, node: &NodeId, now: Duration) {
        let State { suspicions, raised } = &mut *self.0.state.lock();
        *raised += 1;
        let fresh = Suspicion { number: *raised, until: now, probe_at: now, pause: PAUSE_MIN, failed: 0 };
        let suspicion = suspicions.entry(node.clone()).or_insert(fresh);
        if suspicion.until <= now {
            *suspicion = fresh;
        }
        suspicion.until = now + LASTS;
    }

    /// It did not answer a probe.
    pub(super) fn probe_failed(&self, node: &NodeId, suspicion: u64, now: Duration) {
        // It may have answered somebody else meanwhile.
        if let Some(known) = self.0.state.lock().suspicions.get_mut(node).filter(|known| known.number == suspicion) {
            *known = Suspicion { until: now + LASTS, probe_at: now + known.pause, failed: known.failed + 1, ..*known };
            known.pause = (known.pause * 2).min(PAUSE_MAX);
        }
        self.0.ended.notify_waiters();
    }

    /// It has answered.
    pub(super) fn clear(&self, node: &NodeId) {
        if self.0.state.lock().suspicions.remove(node).is_some() {
            self.0.ended.notify_waiters();
        }
    }

    /// Resolves when a probe ends, or a suspicion, after this was called.
    pub(super) fn ended(&self) -> Notified<'_> {
        // Known to those that wake others from now on, polled or not.
        self.0.ended.notified()
    }

    pub(super) fn of(&self, node: &NodeId, now: Duration) -> Verdict {
        let suspicions = &mut self.0.state.lock().suspicions;
        match suspicions.get_mut(node) {
            Some(suspicion) if now >= suspicion.until => {
                suspicions.remove(node);
                Verdict::Trusted
            }
            Some(suspicion) if now < suspicion.probe_at => Verdict::Wait(suspicion.probe_at, suspicion.failed),
            Some(suspicion) => {
                suspicion.probe_at = now + PROBED_FOR;
                Verdict::Probe(suspicion.number)
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
    fn who_is_suspected_is_probed_by_one_until_it_answers_or_time_has_passed() {
        let (suspicions, node) = (Suspicions::default(), NodeId::new("a"));
        assert_eq!(suspicions.of(&node, ms(0)), Verdict::Trusted);
        suspicions.suspect(&node, ms(1000));
        assert_eq!(suspicions.of(&NodeId::new("b"), ms(1000)), Verdict::Trusted);
        assert_eq!(suspicions.of(&node, ms(1000)), Verdict::Probe(1));
        assert_eq!(suspicions.of(&node, ms(1100)), Verdict::Wait(ms(2200), 0), "somebody probes");
        assert_eq!(suspicions.of(&node, ms(2200)), Verdict::Probe(1), "who did not come back");
        suspicions.clear(&node);
        assert_eq!(suspicions.of(&node, ms(2300)), Verdict::Trusted);
        suspicions.suspect(&node, ms(3000));
        suspicions.probe_failed(&node, 1, ms(3000));
        assert_eq!(suspicions.of(&node, ms(3000)), Verdict::Probe(2), "the other one was of the suspicion before");
        suspicions.suspect(&node, ms(4000));
        assert_eq!(suspicions.of(&node, ms(33_999)), Verdict::Probe(2));
        assert_eq!(suspicions.of(&node, ms(34_000)), Verdict::Trusted);
    }

    #[test]
    fn who_answers_no_probe_is_probed_more_and_more_rarely() {
        let (suspicions, node, mut now) = (Suspicions::default(), NodeId::new("a"), ms(0));
        suspicions.suspect(&node, now);
        for (failed, pause) in (1..).zip([500, 1000, 2000, 4000, 4000]) {
            assert_eq!(suspicions.of(&node, now), Verdict::Probe(1));
            suspicions.probe_failed(&node, 1, now);
            assert_eq!(suspicions.of(&node, now), Verdict::Wait(now + ms(pause), failed));
            // What is heard elsewhere does not make it answer sooner.
            suspicions.suspect(&node, now);
            assert_eq!(suspicions.of(&node, now), Verdict::Wait(now + ms(pause), failed));
            now += ms(pause);
        }
        // Another one begins anew.
        suspicions.suspect(&node, now + LASTS);
        assert_eq!(suspicions.of(&node, now + LASTS), Verdict::Probe(7));
        suspicions.probe_failed(&node, 7, now + LASTS);
        assert_eq!(suspicions.of(&node, now + LASTS), Verdict::Wait(now + LASTS + PAUSE_MIN, 1));
    }
}
