//! Traces of made-up jobs.

use std::collections::BTreeMap;

use exobus_actors::{
    event::{Event, EventKind, NodeFigures, Received},
    ids::NodeId,
};

use super::super::timeline::tests::{event, failed, finished};
use super::*;

fn events(timeline: &Timeline) -> Vec<Value> {
    let mut text = Vec::new();
    write(timeline, &mut text).unwrap();
    let trace: Value = serde_json::from_slice(&text).unwrap();
    trace["traceEvents"].as_array().unwrap().clone()
}

fn of(events: impl IntoIterator<Item = Event>) -> Timeline {
    let mut timeline = Timeline::default();
    events.into_iter().for_each(|event| timeline.on(&event));
    timeline
}

/// Spans of each lane, in order.
fn lanes(events: &[Value]) -> BTreeMap<(u64, u64), Vec<(u64, u64)>> {
    let mut lanes: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let number = |key: &str| event[key].as_u64().unwrap();
        let span = (number("ts"), number("ts") + number("dur"));
        lanes.entry((number("pid"), number("tid"))).or_default().push(span);
    }
    lanes.values_mut().for_each(|spans| spans.sort_unstable());
    lanes
}

fn with_wait(mut kind: EventKind, memory_us: u64) -> EventKind {
    if let EventKind::TaskFinished { timing, .. } = &mut kind {
        timing.memory_us = memory_us;
    }
    kind
}

#[test]
fn waits_of_several_attempts_at_once_lie_side_by_side() {
    let timeline = of([
        event(0, "n1", EventKind::JobStarted { program: "sort@1".into() }),
        event(10_000, "n1", with_wait(finished(1, "map", 0, 9_000, 1_000), 5_000)),
        event(11_000, "n1", with_wait(finished(2, "map", 1, 9_500, 1_500), 3_000)),
        event(30_000, "n1", with_wait(finished(3, "map", 0, 20_000, 10_000), 4_000)),
        event(31_000, "n1", with_wait(finished(4, "map", 1, 20_000, 11_000), WAIT_MIN_US - 1)),
    ]);
    let events = events(&timeline);
    let lanes = lanes(&events);
    assert_eq!(lanes[&(1, 200_000)], [(4_000, 9_000), (16_000, 20_000)]);
    assert_eq!(lanes[&(1, 200_001)], [(6_500, 9_500)]);
    for (lane, spans) in &lanes {
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{lane:?}: {spans:?}");
    }
    let named = |pid: u64, tid: u64| {
        events.iter().any(|event| event["name"] == "thread_name" && event["pid"] == pid && event["tid"] == tid)
    };
    assert!(lanes.keys().all(|(pid, tid)| named(*pid, *tid)), "every lane has a name");
}

#[test]
fn spills_and_transfers_are_slices_with_bytes_and_counters_are_rates() {
    let figures = |at_us, spilled_bytes, cpu_us| {
        let spill_us = spilled_bytes / 10;
        let figures = NodeFigures { at_us, spilled_bytes, spill_us, cpu_us, executors: 2, ..NodeFigures::default() };
        EventKind::NodeFigures(figures)
    };
    let received = |bytes| EventKind::Received(Received { from: NodeId::new("n2"), bytes, micros: bytes / 2 });
    let timeline = of([
        event(0, "n1", received(500)),
        event(0, "n1", figures(0, 100, 0)),
        event(100_000, "n1", figures(100_000, 100, 0)),
        event(200_000, "n1", received(800)),
        event(200_000, "n1", figures(200_000, 2_100, 150_000)),
    ]);
    let events = events(&timeline);
    let find =
        |name: &str| events.iter().filter(|event| event["ph"] == "X" && event["name"] == name).collect::<Vec<_>>();
    let [spill] = find("spill")[..] else { panic!("one interval had a spill: {events:#?}") };
    assert_eq!((spill["ts"].as_u64(), spill["dur"].as_u64()), (Some(100_000), Some(100_000)));
    assert_eq!(spill["args"], json!({"bytes": 2_000, "requests_us": 200}));
    let [transfer] = find("from n2")[..] else { panic!("{events:#?}") };
    assert_eq!((transfer["ts"].as_u64(), transfer["dur"].as_u64()), (Some(100_000), Some(100_000)), "not since ever");
    assert_eq!(transfer["args"], json!({"from": "n2", "to": "n1", "bytes": 300, "fetches_us": 150}));
    let cores: Vec<_> =
        events.iter().filter(|event| event["name"] == "cpu, cores").map(|e| e["args"]["busy"].clone()).collect();
    assert_eq!(cores, [json!(0.0), json!(1.5), json!(0)]);
}

#[test]
fn what_failed_and_what_never_ended_is_told_as_far_as_it_is_known() {
    let timeline = of([
        event(0, "n1", EventKind::JobStarted { program: "sort@1".into() }),
        event(5_000, "n1", failed(7, "sort.map", 1_000, 3_000)),
    ]);
    let events = events(&timeline);
    let slice = events.iter().find(|event| event["cat"] == "task,failed").unwrap();
    assert_eq!(slice["name"], "sort.map failed");
    assert_eq!(slice["args"]["error"], "disk <gone> & \"lost\"\u{1}");
    let mut text = Vec::new();
    write(&timeline, &mut text).unwrap();
    let trace: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(trace["otherData"]["outcome"], "not finished");
    assert_eq!(trace["otherData"]["program"], "sort@1");
    write(&Timeline::default(), &mut Vec::new()).unwrap();
}
