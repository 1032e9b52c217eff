//! The one typed event stream. Progress, summary, logs, `why`, timeline and metrics are made from it, nothing else.
//!
//! Events of tasks are frequent (one per task and state), so a sink must be cheap; nodes send the events of their
//! tasks to the job's Owner in the messages that they send anyway, and the Owner emits them.

pub mod progress;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{Attempt, JobId, NodeId, TaskId};
use crate::task::TaskTiming;
pub use progress::Progress;

/// Bytes of a snapshot of a result that is not known yet, at most: one fits a message, whatever else is in it.
pub const SNAPSHOT_BYTES_MAX: usize = 256 << 10;

/// What happened, where and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Microseconds since the job was accepted (by the Owner's clock); 0 for events outside a job.
    pub at_us: u64,
    /// Where it happened.
    pub node: NodeId,
    /// The job it belongs to, where it belongs to one.
    pub job: Option<JobId>,
    /// What happened.
    pub kind: EventKind,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum EventKind {
    /// The job's program was started.
    JobStarted {
        /// Name and version of the coordinator program.
        program: String,
    },
    /// The job ended; the last event of a job.
    JobFinished {
        /// The error as text, where there was one.
        error: Option<String>,
    },
    /// The program says what it is going to do: `tasks` tasks of this stage, over `bytes` bytes of input.
    StagePlanned {
        /// Name of the stage: the function's, "sort.map" say.
        stage: String,
        /// How many tasks it will have.
        tasks: u64,
        /// How many bytes they will read, 0 where not known.
        bytes: u64,
    },
    /// The program has something to say.
    Note {
        /// In words.
        text: String,
    },
    /// The program says what its result looks like by now. A later one takes the place of an earlier one: who looks seldom misses some.
    Estimated {
        /// JSON, up to [`SNAPSHOT_BYTES_MAX`] bytes; empty where a later one has taken its place.
        snapshot: String,
    },
    /// A task was handed to a node.
    TaskPlaced {
        /// The task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
        /// Name of its stage.
        stage: Arc<str>,
    },
    /// A task runs for much longer than others of its stage, so a second attempt was placed beside the first, on the node of
    /// this event; whichever completes first wins.
    TaskSpeculated {
        /// The task.
        task: TaskId,
        /// The second attempt.
        attempt: Attempt,
        /// Name of its stage.
        stage: Arc<str>,
        /// Where the first attempt runs.
        slow: NodeId,
        /// For how long it has been running, microseconds.
        running_us: u64,
        /// What is usual: the median of the tasks of the stage that are done, microseconds.
        median_us: u64,
    },
    /// A task completed and was accepted.
    TaskFinished {
        /// The task.
        task: TaskId,
        /// Which try won.
        attempt: Attempt,
        /// Name of its stage.
        stage: Arc<str>,
        /// Bytes read: arguments plus what the task reported as read from outside (input files).
        bytes_in: u64,
        /// Bytes produced: sealed outputs plus what the task reported as written outside (output files).
        bytes_out: u64,
        /// Rows that the task reported.
        rows: u64,
        /// Of `bytes_in` what was read outside the store (input files).
        outside_in_bytes: u64,
        /// Of `bytes_out` what was written outside the store (output files).
        outside_out_bytes: u64,
        /// Time on the executor, microseconds.
        micros: u64,
        /// Where and when it ran, and what it waited for.
        timing: TaskTiming,
    },
    /// An attempt failed; it is tried again unless `last`.
    TaskFailed {
        /// The task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
        /// Name of its stage.
        stage: Arc<str>,
        /// Why.
        error: String,
        /// Whether this ends the job.
        last: bool,
        /// Time on the executor, microseconds.
        micros: u64,
        /// Where and when it ran; `None` when it never did.
        timing: Option<TaskTiming>,
    },
    /// Objects that the node of this event held are lost: with it, on its disk, or out of reach. Those that are needed still
    /// are made again.
    ObjectsLost {
        /// How many.
        objects: u64,
        /// How many bytes they have.
        bytes: u64,
    },
    /// A task that was done runs again, since what it made is lost or was freed.
    TaskReplayed {
        /// The task.
        task: TaskId,
        /// Name of its stage.
        stage: Arc<str>,
    },
    /// Where the job stands as somebody begins to listen to it.
    Joined {
        /// What has happened until then adds up to this.
        progress: Progress,
    },
    /// The job makes its output visible: it is not cancelled from here on.
    Committing,
    /// A task was done when the job was taken up again, by its log.
    TaskResumed {
        /// The task.
        task: TaskId,
        /// Name of its stage.
        stage: Arc<str>,
    },
    /// Blocks that were pushed to the node of this event are to be merged there.
    FoldDue {
        /// How many.
        blocks: u32,
        /// Bytes of them that were copied there ahead of the merge.
        bytes: u64,
        /// Whether they are fewer than wanted, or not all there, because memory is short.
        tight: bool,
    },
    /// Something waits, and this is why ("needs 1 gpu, cluster has 0").
    Waiting {
        /// Who waits.
        what: String,
        /// For what.
        reason: String,
        /// For how long already, milliseconds.
        for_ms: u64,
    },
    /// What had been waiting goes on.
    GoesOn {
        /// Who waited.
        what: String,
        /// For how long, milliseconds.
        after_ms: u64,
    },
    /// A node joined (up), was suspected, died or left.
    Node {
        /// The node that the event is about.
        about: NodeId,
        /// What became of it.
        state: NodeState,
    },
    /// Figures of a node, twice a second while a job runs or as often as the [`EventSink`] asks for; counters count since
    /// the job came to the node.
    NodeFigures(NodeFigures),
    /// What a node has received from another since its own start; told with its figures when it has grown.
    Received(Received),
}

/// What a node has received from one other node since its own start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The node that sent it.
    pub from: NodeId,
    /// Bytes of parts that arrived.
    pub bytes: u64,
    /// Time of the fetches, added up over those under way at once, microseconds.
    pub micros: u64,
}

impl EventKind {
    /// Whether clients in other processes are sent this event: all but the placing of single tasks.
    pub fn for_clients(&self) -> bool {
        !matches!(self, Self::TaskPlaced { .. })
    }
}

/// What became of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    /// Joined or came back.
    Up,
    /// Missed heartbeats.
    Suspected,
    /// Declared dead: its leases ended.
    Dead,
    /// Left in order.
    Left,
}

/// Figures of one node; counters ("so far") count since the node's process started, or since the job came to it where
/// they are a job's ([`since`](Self::since)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFigures {
    /// When they were taken, on the node's own clock, microseconds.
    pub at_us: u64,
    /// How many tasks it runs at a time.
    pub executors: u32,
    /// Processors that it may use; 0 where not known.
    pub cpus: u32,
    /// Byte budget of the store.
    pub budget_bytes: u64,
    /// Bytes of the budget in use.
    pub used_bytes: u64,
    /// Of those, what stands in for tables beside the store, and directories of objects.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tables_bytes: u64,
    /// Of those, what stands in for executor processes, as far as no task has asked for it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub processes_bytes: u64,
    /// Of those, what stands in for memory beside the store that tasks asked for, and those that run in processes declared.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub granted_bytes: u64,
    /// How often memory beside the store was denied so far to tasks that run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub denied: u64,
    /// Bytes written to spill files so far.
    pub spilled_bytes: u64,
    /// Of those, bytes that were written although there was room in memory: new memory is slower there than the disk.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub early_bytes: u64,
    /// Bytes read back from spill files so far.
    pub restored_bytes: u64,
    /// Time of the requests that wrote spill files, added up over those under way at once, microseconds.
    pub spill_us: u64,
    /// Time of the requests that read them, as `spill_us`.
    pub restore_us: u64,
    /// Bytes that the process has read from disks, spill files included; the page cache is no disk. 0 where the kernel
    /// does not tell.
    pub disk_read_bytes: u64,
    /// Bytes that the process has written to disks, as `disk_read_bytes`.
    pub disk_written_bytes: u64,
    /// Processor time of the process, all threads, microseconds.
    pub cpu_us: u64,
    /// Bytes received from other nodes so far.
    pub received_bytes: u64,
    /// Of those, bytes that were pushed ahead of the tasks that read them.
    pub pushed_bytes: u64,
    /// Of those, bytes that were given up before a task took them.
    pub revoked_bytes: u64,
    /// Bytes sent to other nodes so far.
    pub sent_bytes: u64,
    /// Anonymous and shared memory of the process, each once, now.
    pub memory_bytes: u64,
    /// The largest that `memory_bytes` has been since the process started, for a job as well: what was large before it
    /// cannot be told apart.
    pub peak_memory_bytes: u64,
    /// Control messages sent so far, over a bus or not.
    pub control_messages: u64,
    /// Messages from other processes that were refused so far: malformed, too large, of a foreign version.
    #[serde(default)]
    pub refused_messages: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl NodeFigures {
    /// These figures with counters that count from `first` on, earlier figures of the same process.
    pub fn since(&self, first: &Self) -> Self {
        Self {
            denied: self.denied.saturating_sub(first.denied),
            spilled_bytes: self.spilled_bytes.saturating_sub(first.spilled_bytes),
            early_bytes: self.early_bytes.saturating_sub(first.early_bytes),
            restored_bytes: self.restored_bytes.saturating_sub(first.restored_bytes),
            spill_us: self.spill_us.saturating_sub(first.spill_us),
            restore_us: self.restore_us.saturating_sub(first.restore_us),
            disk_read_bytes: self.disk_read_bytes.saturating_sub(first.disk_read_bytes),
            disk_written_bytes: self.disk_written_bytes.saturating_sub(first.disk_written_bytes),
            cpu_us: self.cpu_us.saturating_sub(first.cpu_us),
            received_bytes: self.received_bytes.saturating_sub(first.received_bytes),
            pushed_bytes: self.pushed_bytes.saturating_sub(first.pushed_bytes),
            revoked_bytes: self.revoked_bytes.saturating_sub(first.revoked_bytes),
            sent_bytes: self.sent_bytes.saturating_sub(first.sent_bytes),
            control_messages: self.control_messages.saturating_sub(first.control_messages),
            refused_messages: self.refused_messages.saturating_sub(first.refused_messages),
            ..*self
        }
    }

    /// These figures with counters that count on from `before`, the last ones of an earlier process of the node.
    pub fn after(&self, before: &Self) -> Self {
        Self {
            denied: self.denied + before.denied,
            spilled_bytes: self.spilled_bytes + before.spilled_bytes,
            early_bytes: self.early_bytes + before.early_bytes,
            restored_bytes: self.restored_bytes + before.restored_bytes,
            spill_us: self.spill_us + before.spill_us,
            restore_us: self.restore_us + before.restore_us,
            disk_read_bytes: self.disk_read_bytes + before.disk_read_bytes,
            disk_written_bytes: self.disk_written_bytes + before.disk_written_bytes,
            cpu_us: self.cpu_us + before.cpu_us,
            received_bytes: self.received_bytes + before.received_bytes,
            pushed_bytes: self.pushed_bytes + before.pushed_bytes,
            revoked_bytes: self.revoked_bytes + before.revoked_bytes,
            sent_bytes: self.sent_bytes + before.sent_bytes,
            control_messages: self.control_messages + before.control_messages,
            refused_messages: self.refused_messages + before.refused_messages,
            peak_memory_bytes: self.peak_memory_bytes.max(before.peak_memory_bytes),
            ..*self
        }
    }
}

/// Where events go. Called from the arbiter of the Owner: it must not block.
#[derive(Clone)]
pub struct EventSink {
    receive: Arc<dyn Fn(Event) + Send + Sync>,
    sample_ms: u64,
}

impl EventSink {
    /// A sink that calls `receive` for each event.
    pub fn new(receive: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self { receive: Arc::new(receive), sample_ms: 0 }
    }

    /// The same sink for who wants the figures of nodes every `sample_ms` milliseconds; 0: every half second.
    #[must_use]
    pub fn sampled_every(self, sample_ms: u64) -> Self {
        Self { sample_ms, ..self }
    }

    /// How often it wants the figures of nodes, milliseconds; 0: every half second.
    pub fn sample_ms(&self) -> u64 {
        self.sample_ms
    }

    /// Hands an event over.
    pub fn emit(&self, event: Event) {
        (self.receive)(event);
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}
