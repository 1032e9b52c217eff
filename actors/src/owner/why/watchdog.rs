//! Whether a job goes on, and when to say that it does not. Pure: what has moved goes in, once a second.
//!
//! Progress is what only work brings about: tasks that completed, outputs of streams, attempts that began to run. Bytes
//! that moved on the job's nodes count as well, since one argument may take minutes to fetch; but nodes count them for all
//! their jobs, so bytes alone excuse a job for [`BYTES_EXCUSE`] and no longer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::event::NodeFigures;
use crate::ids::{Attempt, NodeId, TaskId};
use crate::protocol::owner::Moved;
use crate::task::StillRunning;

/// Without progress for this long, a job says what it waits for, to those who listen to its events.
pub(in crate::owner) const QUIET: Duration = Duration::from_secs(10);
/// Without progress for this long, it stands still, and its log says why.
pub(in crate::owner) const STALLED: Duration = Duration::from_secs(60);
/// It is said again after twice the time, but at least so often.
const AGAIN_MAX: Duration = Duration::from_secs(600);
/// For how long bytes alone are progress.
const BYTES_EXCUSE: Duration = Duration::from_secs(300);
/// Fewer bytes than this are noise: logs and indexes are written by nodes that do nothing.
const BYTES_MIN: u64 = 1 << 20;

/// What a look at the job gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::owner) enum Look {
    /// Nothing to say.
    Fine,
    /// It has been quiet for so long, and it is time to say so.
    Quiet(Duration),
    /// It had been said that it was quiet; it goes on after so long.
    GoesOn(Duration),
}

/// The watchdog of a job.
#[derive(Debug)]
pub(in crate::owner) struct Watchdog {
    seen: Moved,
    /// The last progress that was not bytes alone.
    worked_at: Duration,
    moved_at: Duration,
    calls: u64,
    called_at: Duration,
    /// When it is said next, as time without progress.
    say_at: Duration,
    said: bool,
    outputs: u64,
    begun: u64,
    runs: BTreeMap<NodeId, BTreeSet<(TaskId, Attempt)>>,
    bytes: BTreeMap<NodeId, u64>,
}

impl Watchdog {
    pub(in crate::owner) fn new(now: Duration) -> Self {
        Self {
            seen: Moved::default(),
            worked_at: now,
            moved_at: now,
            calls: 0,
            called_at: now,
            say_at: QUIET,
            said: false,
            outputs: 0,
            begun: 0,
            runs: BTreeMap::new(),
            bytes: BTreeMap::new(),
        }
    }

    /// A stream has one more output.
    pub(in crate::owner) fn output(&mut self) {
        self.outputs += 1;
    }

    /// A node says which attempts run there.
    pub(in crate::owner) fn runs(&mut self, node: &NodeId, running: &[StillRunning]) {
        let now: BTreeSet<_> = running.iter().map(|running| (running.task, running.attempt)).collect();
        let before = self.runs.insert(node.clone(), now.clone()).unwrap_or_default();
        self.begun += now.difference(&before).count() as u64;
    }

    /// A node says what it has counted for the job.
    pub(in crate::owner) fn figures(&mut self, node: &NodeId, figures: &NodeFigures) {
        let bytes = figures.received_bytes
            + figures.sent_bytes
            + figures.spilled_bytes
            + figures.restored_bytes
            + figures.disk_read_bytes
            + figures.disk_written_bytes;
        let known = self.bytes.entry(node.clone()).or_default();
        *known = bytes.max(*known);
    }

    /// What has moved so far, with `finished` tasks.
    pub(in crate::owner) fn moved(&self, finished: u64) -> Moved {
        Moved { finished, outputs: self.outputs, begun: self.begun, bytes: self.bytes.values().sum() }
    }

    /// A second has passed; `calls`: how often the program has called the futures API.
    pub(in crate::owner) fn look(&mut self, now: Duration, finished: u64, calls: u64) -> Look {
        if calls != self.calls {
            (self.calls, self.called_at) = (calls, now);
        }
        let moved = self.moved(finished);
        let worked = Moved { bytes: self.seen.bytes, ..moved } != self.seen;
        let bytes = moved.bytes.saturating_sub(self.seen.bytes) >= BYTES_MIN;
        let excused = bytes && now.saturating_sub(self.worked_at) < BYTES_EXCUSE;
        if worked || excused {
            self.seen = Moved { bytes: if bytes { moved.bytes } else { self.seen.bytes }, ..moved };
            if worked {
                self.worked_at = now;
            }
            let quiet = self.still(now);
            self.moved_at = now;
            self.say_at = QUIET;
            return if std::mem::take(&mut self.said) { Look::GoesOn(quiet) } else { Look::Fine };
        }
        let quiet = self.still(now);
        if quiet < self.say_at {
            return Look::Fine;
        }
        self.said = true;
        let again = (quiet * 2).min(quiet + AGAIN_MAX);
        // However quiet it is said to be before: that it stands still is said in time.
        self.say_at = if quiet < STALLED { again.min(STALLED) } else { again };
        Look::Quiet(quiet)
    }

    /// For how long nothing has moved.
    pub(in crate::owner) fn still(&self, now: Duration) -> Duration {
        now.saturating_sub(self.moved_at)
    }

    /// For how long the program has called nothing, to the second.
    pub(in crate::owner) fn idle(&self, now: Duration) -> Duration {
        now.saturating_sub(self.called_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn bytes(bytes: u64) -> NodeFigures {
        NodeFigures { received_bytes: bytes, ..NodeFigures::default() }
    }

    /// When it is said within these seconds, if nothing moves.
    fn said(dog: &mut Watchdog, seconds: std::ops::Range<u64>) -> Vec<u64> {
        seconds.filter(|second| matches!(dog.look(at(*second), 0, 0), Look::Quiet(_))).collect()
    }

    #[test]
    fn silence_is_told_with_growing_intervals_and_always_at_a_minute() {
        let mut dog = Watchdog::new(at(0));
        assert_eq!(said(&mut dog, 0..2000), [10, 20, 40, 60, 120, 240, 480, 960, 1560]);
    }

    #[test]
    fn whatever_work_brings_about_is_progress() {
        let (node, one) = (NodeId::new("n"), TaskId::from_u128(1));
        let running = |attempt| [StillRunning { task: one, attempt: Attempt::nth(attempt), micros: 1_000_000 }];
        type Work<'a> = &'a dyn Fn(&mut Watchdog) -> u64;
        let kinds: [(&str, Work<'_>); 4] = [
            ("a completion", &|_| 1),
            ("an output of a stream", &|dog| {
                dog.output();
                0
            }),
            ("an attempt that began", &|dog| {
                dog.runs(&node, &running(2));
                0
            }),
            ("bytes", &|dog| {
                dog.figures(&node, &bytes(BYTES_MIN + 7));
                0
            }),
        ];
        for (kind, work) in kinds {
            let mut dog = Watchdog::new(at(0));
            dog.runs(&node, &running(1));
            dog.figures(&node, &bytes(7));
            assert_eq!(dog.look(at(1), 0, 0), Look::Fine, "the first attempt");
            assert_eq!(said(&mut dog, 2..31), [11, 21], "{kind}");
            let finished = work(&mut dog);
            assert_eq!(dog.look(at(31), finished, 0), Look::GoesOn(at(30)), "{kind}");
            assert_eq!(dog.look(at(32), finished, 0), Look::Fine, "{kind}: it is said once");
            assert_eq!(dog.still(at(32)), at(1));
        }
    }

    #[test]
    fn what_is_repeated_is_no_progress() {
        let mut dog = Watchdog::new(at(0));
        let node = NodeId::new("n");
        let running = [StillRunning { task: TaskId::from_u128(1), attempt: Attempt::nth(1), micros: 1_000_000 }];
        dog.look(at(0), 5, 3);
        let mut seen = Vec::new();
        for second in 1..100 {
            dog.runs(&node, &running);
            // Some hundred bytes a second are a log.
            dog.figures(&node, &bytes(100 * second));
            if let Look::Quiet(quiet) = dog.look(at(second), 5, second) {
                seen.push(quiet.as_secs());
            }
        }
        assert_eq!(seen, [10, 20, 40, 60], "the attempt began at one second");
        assert_eq!(dog.idle(at(99)), at(0), "the program calls, which is no progress of its tasks");
    }

    #[test]
    fn bytes_that_may_be_those_of_others_are_no_excuse_for_ever() {
        let mut dog = Watchdog::new(at(0));
        let node = NodeId::new("n");
        let mut first = None;
        for second in 0..1000 {
            dog.figures(&node, &bytes(second * BYTES_MIN * 10));
            if let Look::Quiet(quiet) = dog.look(at(second), 0, 0)
                && quiet >= STALLED
            {
                first = first.or(Some(second));
            }
        }
        assert_eq!(first, Some(BYTES_EXCUSE.as_secs() - 1 + STALLED.as_secs()));
    }
}
