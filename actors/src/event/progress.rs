//! How far a job has come: its events, added up. A last value: whoever asks late knows as much as who has heard every event.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Event, EventKind};

/// What is known about a job so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// In the order in which they were heard of.
    pub stages: Vec<Stage>,
    /// Attempts that failed.
    pub failed_attempts: u64,
    /// Tasks that were given a second attempt while the first one ran.
    pub copied_tasks: u64,
    /// Tasks that were done and ran again, since what they had made was lost.
    pub replayed_tasks: u64,
    /// Tasks that were done when the job was taken up again.
    pub resumed_tasks: u64,
    /// What the job waits for, while it does.
    pub waiting: Option<String>,
    /// Milliseconds on the job's clock of the latest event.
    pub at_ms: u64,
}

/// A step of a job: all tasks of one function.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stage {
    /// Its name, `sort.map` say.
    pub name: String,
    /// How many tasks it will have; grows while the program plans.
    pub tasks: u64,
    /// How many of them are done.
    pub tasks_done: u64,
    /// Bytes that its tasks will read, 0 where not known.
    pub bytes_planned: u64,
    /// Bytes that the tasks which are done have read.
    pub bytes_in: u64,
    /// Bytes that they wrote.
    pub bytes_out: u64,
    /// Rows that they reported.
    pub rows: u64,
    /// Time that tasks took on their executors, microseconds, ...
    pub micros: u64,
    /// ... of so many of those that are done: what was done before the job was taken up again is not known.
    pub timed: u64,
    /// Time of the first task that was placed, milliseconds.
    pub started_ms: Option<u64>,
    /// Time of the last task that finished, milliseconds.
    pub finished_ms: u64,
}

impl Stage {
    /// How long it took to do what is done: until its latest completion, so that rates stand still when it is over.
    pub fn busy(&self) -> Duration {
        Duration::from_millis(self.started_ms.map_or(0, |start| self.finished_ms.saturating_sub(start)))
    }
}

impl Progress {
    /// Takes an event in.
    pub fn on(&mut self, event: &Event) {
        let at_ms = event.at_us / 1000;
        self.at_ms = self.at_ms.max(at_ms);
        match &event.kind {
            EventKind::JobStarted { .. } => *self = Self { at_ms: self.at_ms, ..Self::default() },
            EventKind::JobFinished { .. } | EventKind::GoesOn { .. } => self.waiting = None,
            EventKind::StagePlanned { stage, tasks, bytes } => {
                let stage = self.stage(stage);
                stage.tasks += tasks;
                stage.bytes_planned += bytes;
            }
            EventKind::TaskPlaced { stage, .. } => {
                self.waiting = None;
                self.stage(stage).started_ms.get_or_insert(at_ms);
            }
            EventKind::TaskSpeculated { .. } => self.copied_tasks += 1,
            EventKind::TaskFinished { stage, bytes_in, bytes_out, rows, micros, .. } => {
                self.waiting = None;
                let stage = self.stage(stage);
                // Who is in another process does not hear of the placing of tasks.
                stage.started_ms.get_or_insert(at_ms.saturating_sub(micros / 1000));
                stage.tasks_done += 1;
                stage.bytes_in += bytes_in;
                stage.bytes_out += bytes_out;
                stage.rows += rows;
                stage.micros += micros;
                stage.timed += 1;
                stage.finished_ms = stage.finished_ms.max(at_ms);
            }
            EventKind::TaskFailed { .. } => self.failed_attempts += 1,
            EventKind::Joined { progress } => *self = progress.clone(),
            EventKind::TaskResumed { stage, .. } => {
                self.resumed_tasks += 1;
                self.stage(stage).tasks_done += 1;
            }
            EventKind::TaskReplayed { stage, .. } => {
                // It is done a second time.
                self.replayed_tasks += 1;
                self.stage(stage).tasks += 1;
            }
            EventKind::Waiting { what, reason, .. } => self.waiting = Some(format!("{what} waits: {reason}")),
            EventKind::Committing
            | EventKind::Note { .. }
            | EventKind::Estimated { .. }
            | EventKind::ObjectsLost { .. }
            | EventKind::FoldDue { .. }
            | EventKind::Node { .. }
            | EventKind::NodeFigures(_)
            | EventKind::Received(_) => {}
        }
    }

    /// Tasks that are done, and all that are planned so far.
    pub fn tasks(&self) -> (u64, u64) {
        self.stages.iter().fold((0, 0), |(done, all), stage| (done + stage.tasks_done, all + stage.tasks))
    }

    /// By the name of the function without its version, as programs plan them.
    fn stage(&mut self, name: &str) -> &mut Stage {
        let name = name.split('@').next().unwrap_or(name);
        let at = self.stages.iter().position(|stage| stage.name == name).unwrap_or_else(|| {
            self.stages.push(Stage { name: name.to_owned(), ..Stage::default() });
            self.stages.len() - 1
        });
        &mut self.stages[at]
    }
}
