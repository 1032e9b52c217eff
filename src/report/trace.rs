//! A timeline as a Chrome trace (JSON), for <https://ui.perfetto.dev> and `chrome://tracing`.
//!
//! The job and each node is a "process". Of a node, the lanes are: its executors, one slice for each attempt; what
//! attempts waited for, by reason; spills, restores and transfers, one slice for each time between two figures in which
//! there were any. Memory and rates are counters. Times are microseconds since the job's start.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use exobus_actors::event::NodeFigures;
use serde_json::{Value, json};

use super::timeline::{NodeLine, Slice, Timeline, WAITS};

/// The job's own lanes.
const JOB: usize = 0;
/// Lanes of a node's waits begin here, so many for each reason.
const WAIT_LANES: usize = 100_000;
const SPILL_LANE: usize = 900_000;
const RESTORE_LANE: usize = 900_001;
const RECEIVED_LANES: usize = 900_002;
/// Waits that are shorter say nothing and would be most of the file, microseconds.
const WAIT_MIN_US: u64 = 100;

/// Writes all that is known, finished or not.
///
/// # Errors
/// What writing gives.
pub fn write(timeline: &Timeline, out: &mut impl Write) -> io::Result<()> {
    let about = json!({
        "program": timeline.program(),
        "outcome": timeline.outcome(),
        "duration_us": timeline.duration_us(),
        "missing_events": timeline.missing(),
        "clocks": "times of a node are late by the delay of its fastest message, never early",
    });
    write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{about},\"traceEvents\":[")?;
    let mut events = Events { out, first: true };
    job(timeline, &mut events)?;
    for (index, node) in timeline.nodes().iter().enumerate() {
        let pid = index + 1;
        events.name_process(pid, &format!("node {}", node.name))?;
        for executor in 0..node.executors() as usize {
            events.name_lane(pid, executor + 1, &format!("executor {executor}"))?;
        }
        disk_lanes(pid, node, &mut events)?;
        received_lanes(pid, node, &mut events)?;
        counters(pid, node, &mut events)?;
    }
    let mut slices: Vec<&Slice> = timeline.slices().iter().collect();
    slices.sort_by_key(|slice| timeline.span_us(slice));
    for slice in &slices {
        attempt(timeline, slice, &mut events)?;
    }
    waits(timeline, &slices, &mut events)?;
    writeln!(events.out, "\n]}}")
}

struct Events<'a, W: Write> {
    out: &'a mut W,
    first: bool,
}

impl<W: Write> Events<'_, W> {
    fn put(&mut self, event: &Value) -> io::Result<()> {
        self.out.write_all(if std::mem::take(&mut self.first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *self.out, event).map_err(io::Error::from)
    }

    fn name_process(&mut self, pid: usize, name: &str) -> io::Result<()> {
        self.put(&json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}))?;
        self.put(&json!({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}))
    }

    fn name_lane(&mut self, pid: usize, tid: usize, name: &str) -> io::Result<()> {
        self.put(&json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}))?;
        let order = json!({"sort_index": tid});
        self.put(&json!({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": order}))
    }

    fn slice(&mut self, at: Lane, name: &str, category: &str, span: (u64, u64), args: &Value) -> io::Result<()> {
        self.put(&json!({
            "ph": "X", "name": name, "cat": category, "pid": at.0, "tid": at.1,
            "ts": span.0, "dur": span.1 - span.0, "args": args,
        }))
    }

    fn counter(&mut self, pid: usize, name: &str, at_us: u64, values: &Value) -> io::Result<()> {
        self.put(&json!({"ph": "C", "name": name, "pid": pid, "ts": at_us, "args": values}))
    }
}

/// Process and thread, as the format calls them.
type Lane = (usize, usize);

fn job<W: Write>(timeline: &Timeline, events: &mut Events<'_, W>) -> io::Result<()> {
    events.name_process(JOB, &format!("job {}", timeline.program()))?;
    for (index, name) in timeline.stages().iter().enumerate() {
        let slices = || timeline.slices().iter().filter(|slice| slice.stage == index);
        let start = slices().map(|slice| timeline.span_us(slice).0).min().unwrap_or(0);
        let end = slices().map(|slice| timeline.span_us(slice).1).max().unwrap_or(start);
        let sum = |of: fn(&Slice) -> u64| slices().map(of).sum::<u64>();
        let args = json!({
            "attempts": slices().count(),
            "bytes_in": sum(|slice| slice.bytes_in),
            "bytes_out": sum(|slice| slice.bytes_out),
            "executor_us": sum(|slice| slice.micros),
        });
        events.name_lane(JOB, index + 1, name)?;
        events.slice((JOB, index + 1), name, "stage", (start, end), &args)?;
    }
    events.name_lane(JOB, WAIT_LANES, "the job waits")?;
    for wait in timeline.job_waits() {
        events.slice((JOB, WAIT_LANES), &wait.reason, "wait", (wait.start_us, wait.end_us), &json!({}))?;
    }
    for mark in timeline.marks() {
        events
            .put(&json!({"ph": "i", "s": "g", "name": mark.text, "pid": JOB, "tid": WAIT_LANES, "ts": mark.at_us}))?;
    }
    Ok(())
}

fn attempt<W: Write>(timeline: &Timeline, slice: &Slice, events: &mut Events<'_, W>) -> io::Result<()> {
    let lane = (slice.node + 1, slice.timing.executor as usize + 1);
    let name = &timeline.stages()[slice.stage];
    let mut args = json!({
        "task": slice.task.to_string(),
        "attempt": slice.attempt.makes().counted(),
        "bytes_in": slice.bytes_in,
        "bytes_out": slice.bytes_out,
        "rows": slice.rows,
    });
    for (reason, from, to) in timeline.waits_of(slice) {
        args[format!("waited_{}_us", WAITS[reason])] = json!(to - from);
    }
    let span = timeline.span_us(slice);
    match &slice.error {
        None => events.slice(lane, name, "task", span, &args),
        Some(error) => {
            args["error"] = json!(error);
            events.slice(lane, &format!("{name} failed"), "task,failed", span, &args)
        }
    }
}

/// Waits of several attempts at once are laid side by side on as many lanes as it takes.
fn waits<W: Write>(timeline: &Timeline, slices: &[&Slice], events: &mut Events<'_, W>) -> io::Result<()> {
    type Waits<'a> = Vec<(u64, u64, &'a Slice)>;
    let mut spans: BTreeMap<(usize, usize), Waits<'_>> = BTreeMap::new();
    for slice in slices {
        for (reason, from, to) in timeline.waits_of(slice).filter(|(_, from, to)| to - from >= WAIT_MIN_US) {
            spans.entry((slice.node + 1, reason)).or_default().push((from, to, slice));
        }
    }
    for ((pid, reason), mut spans) in spans {
        spans.sort_by_key(|(from, to, _)| (*from, *to));
        let mut free_at: Vec<u64> = Vec::new();
        for (from, to, slice) in spans {
            let lane = free_at.iter().position(|free_at| *free_at <= from).unwrap_or(free_at.len());
            let tid = WAIT_LANES * (reason + 1) + lane;
            if lane == free_at.len() {
                free_at.push(to);
                events.name_lane(pid, tid, &format!("waits: {}", WAITS[reason]))?;
            } else {
                free_at[lane] = to;
            }
            let args = json!({"task": slice.task.to_string(), "attempt": slice.attempt.makes().counted()});
            let name = format!("{} waits: {}", timeline.stages()[slice.stage], WAITS[reason]);
            events.slice((pid, tid), &name, "wait", (from, to), &args)?;
        }
    }
    Ok(())
}

fn disk_lanes<W: Write>(pid: usize, node: &NodeLine, events: &mut Events<'_, W>) -> io::Result<()> {
    type Counters = fn(&NodeFigures) -> (u64, u64);
    let lanes: [(usize, &str, Counters); 2] = [
        (SPILL_LANE, "spill", |figures| (figures.spilled_bytes, figures.spill_us)),
        (RESTORE_LANE, "restore", |figures| (figures.restored_bytes, figures.restore_us)),
    ];
    for (tid, name, counters) in lanes {
        let mut named = false;
        for (from, to, before, after) in node.intervals() {
            let ((bytes_before, us_before), (bytes_after, us_after)) = (counters(before), counters(after));
            let (bytes, busy_us) = (bytes_after.saturating_sub(bytes_before), us_after.saturating_sub(us_before));
            if bytes > 0 {
                if !std::mem::replace(&mut named, true) {
                    events.name_lane(pid, tid, name)?;
                }
                events.slice((pid, tid), name, "disk", (from, to), &json!({"bytes": bytes, "requests_us": busy_us}))?;
            }
        }
    }
    Ok(())
}

fn received_lanes<W: Write>(pid: usize, node: &NodeLine, events: &mut Events<'_, W>) -> io::Result<()> {
    for (index, (from_node, counts)) in node.received.iter().enumerate() {
        let tid = RECEIVED_LANES + index;
        events.name_lane(pid, tid, &format!("transfers from {from_node}"))?;
        // Before it was first heard of, nothing had come, or the job had not begun.
        let begin = node.samples.first().map_or(0, |sample| sample.node_us);
        let (mut at, mut bytes, mut micros) = (begin, 0, 0);
        for (node_us, received) in counts {
            // It grew after the figures before these, however long nothing had come until then.
            let earlier = node.samples.partition_point(|sample| sample.node_us < *node_us).checked_sub(1);
            at = earlier.map_or(at, |index| at.max(node.samples[index].node_us));
            let (from, to) = (node.job_time(at), node.job_time(*node_us));
            let more = received.bytes.saturating_sub(bytes);
            if from < to && more > 0 {
                let args = json!({
                    "from": from_node.as_str(), "to": node.name, "bytes": more,
                    "fetches_us": received.micros.saturating_sub(micros),
                });
                events.slice((pid, tid), &format!("from {from_node}"), "transfer", (from, to), &args)?;
            }
            (at, bytes, micros) = (*node_us, received.bytes, received.micros);
        }
    }
    Ok(())
}

fn counters<W: Write>(pid: usize, node: &NodeLine, events: &mut Events<'_, W>) -> io::Result<()> {
    for sample in &node.samples {
        let (at_us, figures) = (node.job_time(sample.node_us), &sample.figures);
        let values = json!({"objects": figures.used_bytes, "process": figures.memory_bytes});
        events.counter(pid, "memory, bytes", at_us, &values)?;
    }
    let mut end_us = None;
    for (from, to, before, after) in node.intervals() {
        let seconds = (to - from) as f64 / 1e6;
        let rate = |of: fn(&NodeFigures) -> u64| (of(after).saturating_sub(of(before)) as f64 / seconds).round();
        let disk = json!({"read": rate(|f| f.disk_read_bytes), "written": rate(|f| f.disk_written_bytes)});
        let spill = json!({"spilled": rate(|f| f.spilled_bytes), "restored": rate(|f| f.restored_bytes)});
        let network = json!({"received": rate(|f| f.received_bytes), "sent": rate(|f| f.sent_bytes)});
        events.counter(pid, "disk, bytes/s", from, &disk)?;
        events.counter(pid, "spill, bytes/s", from, &spill)?;
        events.counter(pid, "network, bytes/s", from, &network)?;
        let cores = after.cpu_us.saturating_sub(before.cpu_us) as f64 / (to - from) as f64;
        events.counter(pid, "cpu, cores", from, &json!({"busy": (cores * 1000.0).round() / 1000.0}))?;
        end_us = Some(to);
    }
    // The last rates hold until here.
    if let Some(end_us) = end_us {
        events.counter(pid, "disk, bytes/s", end_us, &json!({"read": 0, "written": 0}))?;
        events.counter(pid, "spill, bytes/s", end_us, &json!({"spilled": 0, "restored": 0}))?;
        events.counter(pid, "network, bytes/s", end_us, &json!({"received": 0, "sent": 0}))?;
        events.counter(pid, "cpu, cores", end_us, &json!({"busy": 0}))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
