//! What a job did and when, made from its events: the model behind `--timeline` and `--plot`. Pure, and O(tasks): some
//! 200 bytes for each attempt.
//!
//! **Clocks.** Times of tasks and figures are on the clock of the node where they were taken. How far that clock is from
//! the job's is estimated as the least *arrival here − time there* over all events of the node: the delay of the one
//! that came fastest is all that it is wrong by. So everything of a node is shown late by the same small time, never
//! early; what fits together on the node (one executor, one attempt after the other) fits together here; and an attempt
//! ends before the event that told of it, hence before the job does.

use std::{collections::BTreeMap, sync::Arc};

use exobus_actors::{
    event::{Event, EventKind, NodeFigures, NodeState, Received},
    ids::{Attempt, NodeId, TaskId},
    task::TaskTiming,
};

use super::text;

/// What is known about a job so far.
#[derive(Debug, Default)]
pub struct Timeline {
    /// As it was typed, where that is known.
    command: String,
    program: String,
    /// Bytes of files that tasks of each stage have read and written, by their indices.
    files: BTreeMap<usize, (u64, u64)>,
    error: Option<String>,
    finished: bool,
    last_us: u64,
    stages: Vec<Arc<str>>,
    nodes: Vec<NodeLine>,
    /// Which line of `nodes` an event of a node belongs to now.
    current: BTreeMap<NodeId, usize>,
    slices: Vec<Slice>,
    waits: Vec<JobWait>,
    marks: Vec<Mark>,
    missing: u64,
}

/// One incarnation of a node: a process. A node that died and came back has two.
#[derive(Debug)]
pub struct NodeLine {
    /// Its name; of a second incarnation "n1 (2)".
    pub name: String,
    /// Its figures, in order of time.
    pub samples: Vec<Sample>,
    /// What it received from each other node, in order of time; counted since the node's start.
    pub received: BTreeMap<NodeId, Vec<(u64, Received)>>,
    /// What came since the last figures.
    received_news: Vec<Received>,
    /// Microseconds to add to a time of this node's clock.
    ahead_us: i64,
    executors_seen: u32,
}

/// Figures of a node at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// On the node's clock, microseconds; see [`NodeLine::job_time`].
    pub node_us: u64,
    /// The figures.
    pub figures: NodeFigures,
}

/// An attempt on an executor.
#[derive(Debug)]
pub struct Slice {
    /// Index of its node line.
    pub node: usize,
    /// Index of its stage.
    pub stage: usize,
    /// The task.
    pub task: TaskId,
    /// Which try.
    pub attempt: Attempt,
    /// Where and when, on the node's clock.
    pub timing: TaskTiming,
    /// How long it ran, microseconds.
    pub micros: u64,
    /// Bytes of arguments and of input files.
    pub bytes_in: u64,
    /// Bytes of outputs and of output files.
    pub bytes_out: u64,
    /// Rows that it reported.
    pub rows: u64,
    /// Why it failed.
    pub error: Option<String>,
}

/// Reasons for which an attempt waits on its node, in the usual order, and how they are shown.
pub const WAITS: [&str; 5] = ["queued", "memory", "disk", "network", "executor"];

/// The job as a whole waited.
#[derive(Debug, PartialEq, Eq)]
pub struct JobWait {
    /// Since when, microseconds of the job.
    pub start_us: u64,
    /// How long it is known to have waited.
    pub end_us: u64,
    /// Who waited, and for what.
    pub reason: String,
}

/// Something that happened at one moment.
#[derive(Debug, PartialEq, Eq)]
pub struct Mark {
    /// When, microseconds of the job.
    pub at_us: u64,
    /// What.
    pub text: String,
}

impl Timeline {
    /// Takes an event in.
    pub fn on(&mut self, event: &Event) {
        self.last_us = self.last_us.max(event.at_us);
        match &event.kind {
            EventKind::JobStarted { program } => self.program.clone_from(program),
            EventKind::JobFinished { error } => {
                self.finished = true;
                self.error.clone_from(error);
            }
            EventKind::StagePlanned { .. } | EventKind::TaskPlaced { .. } => {}
            EventKind::TaskSpeculated { stage, slow, .. } => {
                let text = format!("{stage} takes long on {slow}: a second attempt on {}", event.node);
                self.marks.push(Mark { at_us: event.at_us, text });
            }
            EventKind::TaskFinished {
                task,
                attempt,
                stage,
                bytes_in,
                bytes_out,
                rows,
                micros,
                timing,
                outside_in_bytes,
                outside_out_bytes,
            } => {
                let (task, attempt, timing, micros) = (*task, *attempt, *timing, *micros);
                let (bytes_in, bytes_out, rows, error) = (*bytes_in, *bytes_out, *rows, None);
                let (node, stage) = (self.node(&event.node), self.stage(stage));
                let files = self.files.entry(stage).or_default();
                *files = (files.0 + outside_in_bytes, files.1 + outside_out_bytes);
                let slice = Slice { node, stage, task, attempt, timing, micros, bytes_in, bytes_out, rows, error };
                self.add(event.at_us, slice);
            }
            EventKind::TaskFailed { task, attempt, stage, error, micros, timing, .. } => match *timing {
                None => {
                    let text = format!("{stage} failed on {} before it ran: {error}", event.node);
                    self.marks.push(Mark { at_us: event.at_us, text });
                }
                Some(timing) => {
                    let (task, attempt, micros) = (*task, *attempt, *micros);
                    let (bytes_in, bytes_out, rows, error) = (0, 0, 0, Some(error.clone()));
                    let (node, stage) = (self.node(&event.node), self.stage(stage));
                    let slice = Slice { node, stage, task, attempt, timing, micros, bytes_in, bytes_out, rows, error };
                    self.add(event.at_us, slice);
                }
            },
            EventKind::ObjectsLost { objects, bytes } => {
                let text = format!("{objects} objects ({}) lost on {}", text::bytes(*bytes), event.node);
                self.marks.push(Mark { at_us: event.at_us, text });
            }
            EventKind::TaskReplayed { .. }
            | EventKind::TaskResumed { .. }
            | EventKind::Joined { .. }
            | EventKind::Estimated { .. }
            | EventKind::Committing => {}
            EventKind::Note { text } => self.marks.push(Mark { at_us: event.at_us, text: text.clone() }),
            EventKind::FoldDue { blocks, bytes, tight } => {
                let why = if *tight { ", since memory is short" } else { "" };
                let bytes = text::bytes(*bytes);
                let text = format!("{blocks} blocks are merged on {}, {bytes} pushed ahead{why}", event.node);
                self.marks.push(Mark { at_us: event.at_us, text });
            }
            EventKind::Waiting { what, reason, for_ms } => {
                self.wait(event.at_us, for_ms * 1000, format!("{what}: {reason}"));
            }
            EventKind::GoesOn { what, after_ms } => {
                let text =
                    format!("{what} goes on after {}", text::duration(std::time::Duration::from_millis(*after_ms)));
                self.marks.push(Mark { at_us: event.at_us, text });
            }
            EventKind::Node { about, state } => self.node_state(event.at_us, about, *state),
            EventKind::NodeFigures(figures) => self.figures(event, *figures),
            EventKind::Received(received) => {
                let node = self.node(&event.node);
                self.nodes[node].received_news.push(received.clone());
            }
        }
    }

    /// So many events are not to be had any more: what they told is not shown.
    pub fn miss(&mut self, events: u64) {
        self.missing += events;
    }

    /// How many events are missing.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Of a job that was started by this command line.
    pub fn of_command(command: String) -> Self {
        Self { command, ..Self::default() }
    }

    /// The command line that started the job; empty where it is not known.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Bytes that were read from input files and written to output files. What looks at the input first reads it, too, and does
    /// not count: the stage does that reads the most.
    pub fn file_bytes(&self) -> (u64, u64) {
        let read = self.files.values().map(|(read, _)| *read).max().unwrap_or(0);
        (read, self.files.values().map(|(_, written)| written).sum())
    }

    /// Name and version of the job's program, as far as it is known.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// "finished", or how else it stands with the job.
    pub fn outcome(&self) -> &str {
        match (&self.error, self.finished) {
            (Some(error), _) => error,
            (None, true) => "finished",
            (None, false) => "not finished",
        }
    }

    /// From the job's start to its last event, microseconds; at least 1.
    pub fn duration_us(&self) -> u64 {
        self.last_us.max(1)
    }

    /// The stages, without versions, in the order in which they were heard of.
    pub fn stages(&self) -> &[Arc<str>] {
        &self.stages
    }

    /// The processes that worked for the job.
    pub fn nodes(&self) -> &[NodeLine] {
        &self.nodes
    }

    /// Attempts that ran and are over, in the order in which that was heard.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// When an attempt began and ended, microseconds of the job.
    pub fn span_us(&self, slice: &Slice) -> (u64, u64) {
        let start_us = self.nodes[slice.node].job_time(slice.timing.started_us);
        (start_us, start_us + slice.micros)
    }

    /// What an attempt waited for before it began: index of the reason in [`WAITS`], from, to. The times that nothing
    /// was waited for are left out.
    pub fn waits_of(&self, slice: &Slice) -> impl Iterator<Item = (usize, u64, u64)> {
        let TaskTiming { queued_us, memory_us, load_us, fetch_us, ready_us, .. } = slice.timing;
        let waits = [queued_us, memory_us, load_us, fetch_us, ready_us];
        let (start_us, _) = self.span_us(slice);
        let mut from = start_us.saturating_sub(waits.iter().sum());
        waits.into_iter().enumerate().filter_map(move |(reason, micros)| {
            let to = (from + micros).min(start_us);
            let span = (reason, from, to);
            from = to;
            (span.1 < span.2).then_some(span)
        })
    }

    /// Times in which the whole job waited.
    pub fn job_waits(&self) -> &[JobWait] {
        &self.waits
    }

    /// What happened at single moments.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    fn add(&mut self, arrival_us: u64, slice: Slice) {
        let node = &mut self.nodes[slice.node];
        node.seen(arrival_us, slice.timing.started_us + slice.micros);
        node.executors_seen = node.executors_seen.max(slice.timing.executor + 1);
        self.slices.push(slice);
    }

    fn figures(&mut self, event: &Event, figures: NodeFigures) {
        let mut index = self.node(&event.node);
        if self.nodes[index].samples.last().is_some_and(|last| last.node_us > figures.at_us) {
            // Its clock begins anew: another process.
            self.current.remove(&event.node);
            index = self.node(&event.node);
        }
        let node = &mut self.nodes[index];
        node.seen(event.at_us, figures.at_us);
        node.executors_seen = node.executors_seen.max(figures.executors);
        for received in std::mem::take(&mut node.received_news) {
            node.received.entry(received.from.clone()).or_default().push((figures.at_us, received));
        }
        node.samples.push(Sample { node_us: figures.at_us, figures });
    }

    fn node_state(&mut self, at_us: u64, about: &NodeId, state: NodeState) {
        let what = match state {
            NodeState::Up => "is there",
            NodeState::Suspected => "is silent",
            NodeState::Dead => "is dead",
            NodeState::Left => "left",
        };
        if matches!(state, NodeState::Dead | NodeState::Left) {
            self.current.remove(about);
        }
        self.marks.push(Mark { at_us, text: format!("node {about} {what}") });
    }

    fn wait(&mut self, at_us: u64, for_us: u64, reason: String) {
        let start_us = at_us.saturating_sub(for_us);
        match self.waits.last_mut() {
            Some(last) if last.reason == reason && last.end_us >= start_us => last.end_us = at_us,
            _ => self.waits.push(JobWait { start_us, end_us: at_us, reason }),
        }
    }

    fn node(&mut self, id: &NodeId) -> usize {
        if let Some(index) = self.current.get(id) {
            return *index;
        }
        let begins = format!("{id} (");
        let before = self.nodes.iter().filter(|node| node.name == id.as_str() || node.name.starts_with(&begins));
        let name = match before.count() {
            0 => id.to_string(),
            lives => format!("{id} ({})", lives + 1),
        };
        self.nodes.push(NodeLine {
            name,
            samples: Vec::new(),
            received: BTreeMap::new(),
            received_news: Vec::new(),
            ahead_us: i64::MAX,
            executors_seen: 0,
        });
        self.current.insert(id.clone(), self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    fn stage(&mut self, name: &Arc<str>) -> usize {
        let bare = name.split('@').next().unwrap_or(name);
        self.stages.iter().position(|stage| **stage == *bare).unwrap_or_else(|| {
            self.stages.push(bare.into());
            self.stages.len() - 1
        })
    }
}

impl NodeLine {
    /// A time of the node's clock as microseconds of the job.
    pub fn job_time(&self, node_us: u64) -> u64 {
        // Nothing of the job happened before it began, so only what was taken before it is cut off here.
        (node_us as i64).saturating_add(self.ahead_us).max(0) as u64
    }

    /// How many executors it has.
    pub fn executors(&self) -> u32 {
        self.executors_seen
    }

    /// The figures from one sample to the next: from, to (microseconds of the job), and both.
    pub fn intervals(&self) -> impl Iterator<Item = (u64, u64, &NodeFigures, &NodeFigures)> {
        self.samples.windows(2).filter_map(|pair| {
            let (from, to) = (self.job_time(pair[0].node_us), self.job_time(pair[1].node_us));
            (from < to).then_some((from, to, &pair[0].figures, &pair[1].figures))
        })
    }

    fn seen(&mut self, arrival_us: u64, node_us: u64) {
        self.ahead_us = self.ahead_us.min(arrival_us as i64 - node_us as i64);
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
pub(super) mod tests;
