//! Events in, figures out.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub use exobus_actors::event::progress::Stage;
use exobus_actors::{
    event::{self, Event, EventKind, NodeFigures, NodeState},
    ids::NodeId,
};

use super::{eta, text};

/// So many different failures are told one by one; more would say nothing new.
const FAILURES_TOLD_MAX: usize = 10;
/// A stage that nobody announced is shown once it has moved so many bytes.
const HELPER_BYTES_MAX: u64 = 1_000_000;

/// What is known about a job so far, and what of it people were told.
#[derive(Debug, Default)]
pub struct Progress {
    sum: event::Progress,
    /// Of each node the first figures, which hold what earlier jobs did, and the last.
    nodes: BTreeMap<NodeId, (NodeFigures, NodeFigures)>,
    dead_nodes: u64,
    /// What was said about failures: the same again only counts.
    told: BTreeSet<String>,
    /// How long each wait had been when it was told, milliseconds.
    waits_told: BTreeMap<String, u64>,
    finished: bool,
}

impl Progress {
    /// Takes an event in; says whether it is one that people want to read at once, and then how.
    pub fn on(&mut self, event: &Event) -> Option<String> {
        let again = !self.sum.stages.is_empty();
        self.sum.on(event);
        match &event.kind {
            EventKind::JobStarted { .. } if again => {
                return Some(format!("the job is taken up again on {}", event.node));
            }
            EventKind::JobStarted { .. } | EventKind::JobFinished { .. } => {
                self.finished = matches!(event.kind, EventKind::JobFinished { .. });
            }
            EventKind::TaskSpeculated { stage, slow, running_us, median_us, .. } => {
                let time = |micros: &u64| text::duration(Duration::from_micros(*micros));
                let (running, usual) = (time(running_us), time(median_us));
                let news = format!("{stage} has been running on {slow} for {running}, others took {usual}");
                return Some(format!("{news}: a second attempt runs on {}", event.node));
            }
            EventKind::TaskFailed { stage, attempt, error, last, .. } => {
                // The last one is the job's error and told with it.
                if *last || self.told.len() >= FAILURES_TOLD_MAX || !self.told.insert(format!("{stage}: {error}")) {
                    return None;
                }
                return Some(format!("{stage} failed on {} (attempt {attempt}), trying again: {error}", event.node));
            }
            EventKind::ObjectsLost { objects, bytes } => {
                let bytes = text::bytes(*bytes);
                return Some(format!("{objects} objects ({bytes}) lost on {}: made again where needed", event.node));
            }
            EventKind::Note { text } => return Some(text.clone()),
            EventKind::Waiting { what, reason, for_ms } => {
                let text = format!("{what} waits: {reason}");
                let told_ms = self.waits_told.get(&text).copied();
                // Again when it has become twice as long, or when it is a new wait for the same.
                if told_ms.is_some_and(|told_ms| (told_ms..told_ms.saturating_mul(2)).contains(for_ms)) {
                    return None;
                }
                let line = format!("{text} ({} so far)", text::duration(Duration::from_millis(*for_ms)));
                self.waits_told.insert(text, *for_ms);
                return Some(line);
            }
            EventKind::GoesOn { what, after_ms } => {
                self.waits_told.clear();
                return Some(format!("{what} goes on after {}", text::duration(Duration::from_millis(*after_ms))));
            }
            EventKind::Node { about, state } => {
                let what = match state {
                    NodeState::Up => return None,
                    NodeState::Suspected => "is silent",
                    NodeState::Dead => {
                        self.dead_nodes += 1;
                        "is dead; what was lost with it runs again"
                    }
                    NodeState::Left => "left",
                };
                return Some(format!("node {about} {what}"));
            }
            EventKind::NodeFigures(figures) => {
                self.nodes.entry(event.node.clone()).or_insert((*figures, *figures)).1 = *figures;
            }
            EventKind::StagePlanned { .. }
            | EventKind::TaskPlaced { .. }
            | EventKind::TaskFinished { .. }
            | EventKind::TaskResumed { .. }
            | EventKind::TaskReplayed { .. }
            | EventKind::Joined { .. }
            | EventKind::Estimated { .. }
            | EventKind::Committing
            | EventKind::FoldDue { .. }
            | EventKind::Received(_) => {}
        }
        None
    }

    /// The stages in the order in which they were heard of: those that the program announced, and those that move more than
    /// a little; small helpers are none.
    pub fn stages(&self) -> impl Iterator<Item = &Stage> {
        self.sum.stages.iter().filter(|stage| stage.tasks > 0 || stage.bytes_in + stage.bytes_out >= HELPER_BYTES_MAX)
    }

    /// Milliseconds on the job's clock of the latest event.
    pub fn last_at_ms(&self) -> u64 {
        self.sum.at_ms
    }

    /// Attempts that failed so far.
    pub fn failed_attempts(&self) -> u64 {
        self.sum.failed_attempts
    }

    /// Tasks that were done and ran again, since what they had made was lost.
    pub fn replayed_tasks(&self) -> u64 {
        self.sum.replayed_tasks
    }

    /// Tasks that were done when the job was taken up again.
    pub fn resumed_tasks(&self) -> u64 {
        self.sum.resumed_tasks
    }

    /// Tasks that were given a second attempt while the first one ran.
    pub fn copied_tasks(&self) -> u64 {
        self.sum.copied_tasks
    }

    /// Whether the job has ended.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Figures of all nodes together; budgets and peaks are sums, counters count since the job's start.
    pub fn totals(&self) -> NodeFigures {
        self.nodes.values().fold(NodeFigures::default(), |mut sum, (first, node)| {
            // A node that came back counts from zero.
            let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
            sum.budget_bytes += node.budget_bytes;
            sum.used_bytes += node.used_bytes;
            sum.spilled_bytes += since(node.spilled_bytes, first.spilled_bytes);
            sum.restored_bytes += since(node.restored_bytes, first.restored_bytes);
            sum.received_bytes += since(node.received_bytes, first.received_bytes);
            sum.pushed_bytes += since(node.pushed_bytes, first.pushed_bytes);
            sum.sent_bytes += since(node.sent_bytes, first.sent_bytes);
            sum.memory_bytes += node.memory_bytes;
            sum.peak_memory_bytes += node.peak_memory_bytes;
            sum.control_messages += since(node.control_messages, first.control_messages);
            sum
        })
    }

    /// How long it may take from now, once enough is done to guess; nobody knows while it waits.
    pub fn left(&self, now_ms: u64) -> Option<Duration> {
        let executors = self.nodes.values().map(|(_, node)| u64::from(node.executors)).sum();
        let works = !self.finished && self.sum.waiting.is_none();
        works.then(|| eta::left(&self.sum.stages, executors, now_ms)).flatten()
    }

    /// `about 12 s left, store 1.2 GiB of 2.0 GiB, spilled 3.20 GB`, or what it waits for first: a narrow terminal shows the
    /// beginning.
    pub fn state_line(&self, now_ms: u64) -> String {
        let mut parts: Vec<String> = self.sum.waiting.clone().into_iter().collect();
        if let Some(left) = self.left(now_ms) {
            parts.push(format!("about {} left", text::about(left)));
        }
        let totals = self.totals();
        if totals.budget_bytes > 0 {
            let size = crate::config::units::size;
            parts.push(format!("store {} of {}", size(totals.used_bytes), size(totals.budget_bytes)));
            if totals.spilled_bytes > 0 {
                parts.push(format!("spilled {}", text::bytes(totals.spilled_bytes)));
            }
            if totals.received_bytes > 0 {
                let ahead = match totals.pushed_bytes {
                    0 => String::new(),
                    pushed => format!(" ({} ahead)", text::bytes(pushed)),
                };
                parts.push(format!("moved {}{ahead}", text::bytes(totals.received_bytes)));
            }
        }
        parts.join(", ")
    }

    /// Everything in one line, for logs.
    pub fn line(&self, now_ms: u64) -> String {
        let mut parts: Vec<String> = self
            .stages()
            .filter(|stage| stage.started_ms.is_some())
            .map(|stage| {
                let rate = text::rate(stage.bytes_in, stage.busy());
                let of = if stage.tasks > 0 { format!("/{}", stage.tasks) } else { String::new() };
                format!("{} {}{of} {} {rate}", stage.name, stage.tasks_done, text::bytes(stage.bytes_in))
            })
            .collect();
        parts.push(self.state_line(now_ms));
        parts.retain(|part| !part.is_empty());
        parts.join(" | ")
    }
}

#[cfg(test)]
mod tests {
    use exobus_actors::{
        ids::{Attempt, TaskId},
        task::TaskTiming,
    };

    use super::*;

    fn event(at_ms: u64, node: &str, kind: EventKind) -> Event {
        Event { at_us: at_ms * 1000, node: NodeId::new(node), job: None, kind }
    }

    fn finished(bytes_in: u64) -> EventKind {
        EventKind::TaskFinished {
            task: TaskId::from_u128(1),
            attempt: Attempt::nth(1),
            stage: "sort.map@1".into(),
            bytes_in,
            bytes_out: bytes_in,
            rows: bytes_in / 100,
            outside_in_bytes: 0,
            outside_out_bytes: 0,
            micros: 10,
            timing: TaskTiming::default(),
        }
    }

    #[test]
    fn stages_fill_up_and_rates_are_taken_over_their_own_time() {
        let mut progress = Progress::default();
        progress.on(&event(0, "n1", EventKind::StagePlanned { stage: "sort.map".into(), tasks: 2, bytes: 2_000_000 }));
        progress.on(&event(0, "n1", EventKind::StagePlanned { stage: "sort.merge".into(), tasks: 4, bytes: 0 }));
        assert_eq!(progress.line(500), "", "nothing started, nothing to say");
        let placed = |stage: &str| EventKind::TaskPlaced {
            task: TaskId::from_u128(1),
            attempt: Attempt::nth(1),
            stage: stage.into(),
        };
        progress.on(&event(900, "n1", placed("sort.sample@1")));
        progress.on(&event(1_000, "n1", placed("sort.map@1")));
        progress.on(&event(2_000, "n2", finished(1_000_000)));
        assert_eq!(progress.line(2_500), "sort.map 1/2 1.00 MB 1.00 MB/s | about 2 s left");
        progress.on(&event(3_000, "n1", finished(1_000_000)));
        let map = progress.stages().next().unwrap();
        assert_eq!((map.tasks_done, map.rows, map.bytes_out), (2, 20_000, 2_000_000));
        assert_eq!(progress.line(3_000), "sort.map 2/2 2.00 MB 1.00 MB/s | about 2 s left");
        assert_eq!(progress.line(9_000), "sort.map 2/2 2.00 MB 1.00 MB/s", "done, it keeps its rate");
    }

    #[test]
    fn a_stage_that_nobody_announced_appears_when_it_moves_data() {
        let mut progress = Progress::default();
        progress.on(&event(1_000, "n1", finished(999_999 / 2)));
        assert_eq!(progress.line(2_000), "", "a helper");
        progress.on(&event(2_000, "n1", finished(4_500_001)));
        assert_eq!(progress.line(2_000), "sort.map 2 5.00 MB 5.00 MB/s", "how many there will be is not known");
        assert_eq!(progress.line(9_000), "sort.map 2 5.00 MB 5.00 MB/s", "nor whether it is over: it keeps its rate");
    }

    #[test]
    fn the_time_left_is_told_while_work_is_done_and_not_while_it_waits() {
        let mut progress = Progress::default();
        let planned = |stage: &str, tasks, bytes| EventKind::StagePlanned { stage: stage.into(), tasks, bytes };
        progress.on(&event(0, "n1", planned("sort.map", 10, 1_000)));
        assert_eq!(progress.left(1_000), None, "nothing is done");
        for at_ms in 1..=8 {
            progress.on(&event(at_ms * 1_000, "n1", finished(100)));
        }
        let left = progress.left(8_000);
        assert!(left.is_some() && progress.state_line(8_000).ends_with(" left"), "{left:?}");
        let waiting = EventKind::Waiting { what: "the job".into(), reason: "n1 is silent".into(), for_ms: 2_000 };
        progress.on(&event(8_000, "n1", waiting));
        assert_eq!(progress.state_line(8_000), "the job waits: n1 is silent");
        progress.on(&event(9_000, "n1", EventKind::JobFinished { error: None }));
        assert_eq!(progress.left(9_000), None);
    }

    #[test]
    fn the_latest_figures_of_each_node_count_once() {
        let mut progress = Progress::default();
        // What they spilled before is another job's.
        for (node, used, spilled_mb) in [("n1", 0, 70), ("n2", 0, 0), ("n1", 1, 70), ("n2", 1, 500), ("n1", 2, 570)] {
            let figures = NodeFigures {
                budget_bytes: 4 << 30,
                used_bytes: used << 30,
                spilled_bytes: spilled_mb * 1_000_000,
                ..NodeFigures::default()
            };
            progress.on(&event(1, node, EventKind::NodeFigures(figures)));
        }
        assert_eq!(progress.state_line(9), "store 3.0 GiB of 8.0 GiB, spilled 1.00 GB");
    }

    #[test]
    fn a_task_that_runs_twice_is_told_and_counted() {
        let mut progress = Progress::default();
        let copied = EventKind::TaskSpeculated {
            task: TaskId::from_u128(1),
            attempt: Attempt::nth(2),
            stage: "sort.map".into(),
            slow: NodeId::new("n1"),
            running_us: 12_000_000,
            median_us: 2_500_000,
        };
        let told = progress.on(&event(1, "n2", copied)).unwrap();
        assert_eq!(told, "sort.map has been running on n1 for 12.0 s, others took 2.5 s: a second attempt runs on n2");
        assert_eq!(progress.copied_tasks(), 1);
    }

    #[test]
    fn a_failure_is_told_once_and_every_one_is_counted() {
        let mut progress = Progress::default();
        let failed = |error: &str, last| EventKind::TaskFailed {
            task: TaskId::from_u128(1),
            attempt: Attempt::nth(1),
            stage: "sort.map".into(),
            error: error.into(),
            last,
            micros: 0,
            timing: None,
        };
        assert_eq!(
            progress.on(&event(1, "n1", failed("disk gone", false))).as_deref(),
            Some("sort.map failed on n1 (attempt 1), trying again: disk gone")
        );
        assert_eq!(progress.on(&event(2, "n2", failed("disk gone", false))), None);
        assert_eq!(progress.on(&event(3, "n2", failed("no memory", true))), None, "the job's error says it");
        assert_eq!(progress.failed_attempts(), 3);
    }

    #[test]
    fn a_wait_is_told_as_it_grows_and_forgotten_when_work_goes_on() {
        let mut progress = Progress::default();
        let waiting = |for_ms| EventKind::Waiting { what: "sort.merge".into(), reason: "memory on n3".into(), for_ms };
        assert_eq!(
            progress.on(&event(1, "n1", waiting(5_000))).as_deref(),
            Some("sort.merge waits: memory on n3 (5.0 s so far)")
        );
        assert_eq!(progress.on(&event(2, "n1", waiting(6_000))), None);
        assert_eq!(progress.on(&event(2, "n1", waiting(9_999))), None);
        assert!(progress.on(&event(2, "n1", waiting(10_000))).is_some(), "twice as long is news");
        assert_eq!(progress.state_line(9), "sort.merge waits: memory on n3");
        progress.on(&event(3, "n1", finished(1)));
        assert_eq!(progress.state_line(9), "");
        assert!(progress.on(&event(4, "n1", waiting(5_000))).is_some(), "a new wait");
    }
}
