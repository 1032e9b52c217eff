//! Events in, times of the job out.

use exobus_actors::ids::JobId;
use proptest::prelude::*;

use super::*;

pub(crate) fn event(at_us: u64, node: &str, kind: EventKind) -> Event {
    Event { at_us, node: NodeId::new(node), job: Some(JobId::from_u128(1)), kind }
}

/// An attempt that began at `started_us` of its node's clock and took `micros`.
pub(crate) fn finished(number: u128, stage: &str, executor: u32, started_us: u64, micros: u64) -> EventKind {
    EventKind::TaskFinished {
        task: TaskId::from_u128(number),
        attempt: Attempt::nth(1),
        stage: stage.into(),
        bytes_in: 1000,
        bytes_out: 900,
        rows: 10,
        outside_in_bytes: 0,
        outside_out_bytes: 0,
        micros,
        timing: TaskTiming { executor, started_us, ..TaskTiming::default() },
    }
}

pub(crate) fn failed(number: u128, stage: &str, started_us: u64, micros: u64) -> EventKind {
    EventKind::TaskFailed {
        task: TaskId::from_u128(number),
        attempt: Attempt::nth(1),
        stage: stage.into(),
        error: "disk <gone> & \"lost\"\u{1}".into(),
        last: false,
        micros,
        timing: Some(TaskTiming { executor: 0, started_us, ..TaskTiming::default() }),
    }
}

fn of(events: impl IntoIterator<Item = Event>) -> Timeline {
    let mut timeline = Timeline::default();
    events.into_iter().for_each(|event| timeline.on(&event));
    timeline
}

#[test]
fn clocks_of_nodes_are_set_by_their_fastest_message() {
    // n1's clock is 1 000 000 ahead of the job's, n2's 500 behind; messages take 30 to 900.
    let timeline = of([
        event(1_900, "n1", finished(1, "map@1", 0, 1_000_000, 1_000)),
        event(3_030, "n1", finished(2, "map@1", 0, 1_002_000, 1_000)),
        event(2_040, "n2", finished(3, "map@1", 0, 500, 1_000)),
    ]);
    let spans: Vec<_> = timeline.slices().iter().map(|slice| timeline.span_us(slice)).collect();
    assert_eq!(spans, [(30, 1_030), (2_030, 3_030), (1_040, 2_040)], "late by 30, 30 and 40");
    assert_eq!(timeline.stages().len(), 1);
    assert_eq!(&*timeline.stages()[0], "map");
}

proptest! {
    /// Whatever the clocks and however late the messages: executors do one thing at a time, within the job.
    #[test]
    fn slices_of_an_executor_never_overlap_and_end_before_they_were_heard_of(
        ahead in -1_000_000_i64..1_000_000,
        tasks in prop::collection::vec((0_u64..500, 1_u64..5_000, 0_u64..20_000), 1..100),
    ) {
        let (mut now, mut arrivals) = (2_000_000_u64, Vec::new());
        for (number, (idle, micros, delay)) in tasks.iter().enumerate() {
            let start = now + idle;
            now = start + micros;
            let started_us = (start as i64 + ahead) as u64;
            arrivals.push((now + delay, finished(number as u128, "map", 0, started_us, *micros)));
        }
        arrivals.sort_by_key(|(at, _)| *at);
        let timeline = of(arrivals.iter().map(|(at, kind)| event(*at, "n1", kind.clone())));
        let mut spans: Vec<_> = timeline.slices().iter().map(|slice| timeline.span_us(slice)).collect();
        for (span, (arrival, _)) in spans.iter().zip(&arrivals) {
            prop_assert!(span.1 <= *arrival);
        }
        spans.sort_unstable();
        for pair in spans.windows(2) {
            prop_assert!(pair[0].1 <= pair[1].0, "{pair:?}");
        }
    }
}

#[test]
fn what_an_attempt_waited_for_lies_before_it_in_order() {
    let mut kind = finished(1, "map", 0, 10_000, 500);
    if let EventKind::TaskFinished { timing, .. } = &mut kind {
        (timing.queued_us, timing.memory_us, timing.ready_us) = (100, 2_000, 30);
    }
    let timeline = of([event(10_500, "n1", kind)]);
    let waits: Vec<_> = timeline.waits_of(&timeline.slices()[0]).collect();
    assert_eq!(waits, [(0, 7_870, 7_970), (1, 7_970, 9_970), (4, 9_970, 10_000)]);
}

#[test]
fn a_node_that_came_back_is_another_line_with_another_clock() {
    let dead = EventKind::Node { about: NodeId::new("n1"), state: NodeState::Dead };
    let figures = |at_us| EventKind::NodeFigures(NodeFigures { at_us, executors: 3, ..NodeFigures::default() });
    let timeline = of([
        event(1_000, "n1", finished(1, "map", 0, 900_000, 100)),
        event(2_000, "n2", dead),
        event(9_000, "n1", finished(2, "map", 0, 50, 100)),
        event(10_000, "n1", figures(1_200)),
        // Nobody said that it died, but its clock is young again.
        event(11_000, "n1", figures(70)),
    ]);
    let names: Vec<_> = timeline.nodes().iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["n1", "n1 (2)", "n1 (3)"]);
    assert_eq!(timeline.span_us(&timeline.slices()[1]), (8_850, 8_950), "by the figures, whose way was shorter");
    assert_eq!(timeline.nodes()[1].executors(), 3);
    assert_eq!(timeline.nodes()[0].executors(), 1, "as far as it was seen");
}

#[test]
fn a_wait_that_goes_on_is_one_wait() {
    let waiting = |for_ms| EventKind::Waiting { what: "job 1".into(), reason: "memory".into(), for_ms };
    let timeline = of([
        event(10_000_000, "n1", waiting(10_000)),
        event(11_000_000, "n1", waiting(11_000)),
        event(40_000_000, "n1", waiting(10_000)),
    ]);
    let reason = "job 1: memory";
    let wait = |start_us, end_us| JobWait { start_us, end_us, reason: reason.into() };
    assert_eq!(timeline.job_waits(), [wait(0, 11_000_000), wait(30_000_000, 40_000_000)]);
    assert_eq!(timeline.outcome(), "not finished");
}
