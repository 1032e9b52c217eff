//! What a task is, before, while and after it runs: plain data that crosses the bus.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exobus_store::ObjectMeta;
pub use exobus_store::{Align, Parts};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::ids::{Attempt, CopyId, CopyNumber, JobId, JobSecret, NodeId, ObjectId, RowHash, SetId, TaskId};

/// Resources in integer milli-units: `cpu` 1000 is one core. Absent means none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Resources(pub BTreeMap<Arc<str>, u64>);

impl Resources {
    /// Only `cpu`, in thousandths of a core.
    pub fn cpu(milli: u64) -> Self {
        Self::default().with("cpu", milli)
    }

    /// These and `milli` thousandths of `name`.
    pub fn with(mut self, name: &str, milli: u64) -> Self {
        self.0.insert(name.into(), milli);
        self
    }

    /// How much of `name` there is, in thousandths.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// How often `need` fits into these; `u64::MAX` when it needs nothing.
    pub fn times(&self, need: &Resources) -> u64 {
        need.0.iter().filter(|(_, n)| **n > 0).map(|(name, n)| self.get(name) / n).min().unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, milli)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{} {name}", *milli as f64 / 1000.0)?;
        }
        Ok(())
    }
}

/// Where a task should run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// Where a slot is free, near large arguments when there is a choice.
    #[default]
    Anywhere,
    /// On this node. `soft`: elsewhere when it has no free slot; otherwise the task waits for it, unless the node dies or has no
    /// room on its disks.
    Node {
        /// The node.
        node: NodeId,
        /// Whether elsewhere will do.
        soft: bool,
    },
    /// On the node that holds most of the arguments' bytes, if it has a slot.
    NearArgs,
    /// On the node that has been given the fewest tasks of this function.
    Spread,
}

/// What a task gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Returns {
    /// One object.
    #[default]
    One,
    /// This many objects; they are announced together, when the attempt has completed.
    Many(u32),
    /// A stream of objects, announced one by one as they are sealed.
    Stream,
}

/// How a task is to be run. All of it but `returns`, `target_bytes`, `align` and `salt` may change without changing the task's id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskOptions {
    /// What it needs while it runs; default one core.
    pub resources: Resources,
    /// Where; default anywhere.
    pub place: Place,
    /// What it returns; default one object.
    pub returns: Returns,
    /// For streams: aim at outputs of this many bytes. 0: the function decides.
    pub target_bytes: u64,
    /// Where parts of its outputs begin; default at any byte. With [`Align::SixtyFour`] every part begins at a multiple of 64 bytes wherever
    /// another task or the program gets it as a block, alone or with others of its object, and each chunk of a stream begins at one: Arrow
    /// reads its buffers there without a copy. Costs up to 63 bytes of memory a part. An object that was [put](crate::futures::Futures::put)
    /// begins so in any case.
    pub align: Align,
    /// Pieces of scratch memory that are granted before the task starts, together with its whole arguments, bytes each.
    /// What it asks for beyond them may be denied.
    pub scratch_bytes: Vec<u64>,
    /// Memory beside the node's store that is granted before the task starts, together with its whole arguments, bytes. What it asks for
    /// beyond it ([`TaskContext::outside`](crate::registry::TaskContext::outside)) may be denied; a task that cannot do without is tried
    /// again with as much as it had asked for.
    pub outside_bytes: u64,
    /// How often it is tried before its failure is final; default 3.
    pub attempts: u32,
    /// How long one attempt may run; `None`: as long as it takes. Waiting for a slot, arguments or memory does not count. What it
    /// means depends on where the function runs:
    /// - on a thread of the node, which is the default, it is a request: from then on
    ///   [`TaskContext::check_cancelled`](crate::registry::TaskContext::check_cancelled) fails, and the attempt with it. A function
    ///   that never looks runs to its end and keeps its slot so long, since a thread cannot be stopped from outside; what it
    ///   returns then counts, however late.
    /// - in a process ([`ExecutorKind::Process`](crate::isolation::ExecutorKind::Process), `node.executor = "process"`) it is a limit:
    ///   a function that does not look is killed [a moment](crate::isolation::GRACE) later.
    ///
    /// An attempt that timed out has failed, and the next of [`attempts`](Self::attempts) has as long again.
    pub timeout: Option<Duration>,
    /// Memory that the function may have besides what it got from the node's budget, bytes; 0: nothing is declared. Such a task runs in a
    /// process, and is refused by nodes without processes. The node's budget grants it with the arguments of the task. A process that has more
    /// gets no further task; one that has half as much again, or more than the node has room for, is killed.
    pub memory_max_bytes: u64,
    /// Makes two otherwise equal descriptions two tasks.
    pub salt: u64,
    /// Most bytes of arguments that are taken [`Either`](crate::registry::Mode::Either) way which come whole, all of them
    /// together; more than that come as streams. 0: as many as the memory of the node holds.
    pub whole_max_bytes: u64,
    /// Whether a second attempt may run beside one that takes much longer than others of its function; default yes. Only
    /// functions that are declared deterministic, and no streams.
    pub speculate: bool,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            resources: Resources::cpu(1000),
            place: Place::Anywhere,
            returns: Returns::One,
            target_bytes: 0,
            align: Align::One,
            scratch_bytes: Vec::new(),
            outside_bytes: 0,
            whole_max_bytes: 0,
            attempts: 3,
            timeout: None,
            memory_max_bytes: 0,
            salt: 0,
            speculate: true,
        }
    }
}

/// What an argument refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Source {
    /// One object.
    Object(ObjectId),
    /// Every object of a set.
    Set(SetId),
}

/// One argument: parts of an object, or of every object of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arg {
    /// Of what.
    pub source: Source,
    /// Which parts.
    pub parts: Parts,
}

/// The description of a task: everything that its id is made of, and its options.
#[derive(Clone, Debug)]
pub struct Description {
    /// Name and version of the function, "sort.map@1".
    pub function: Arc<str>,
    /// Whether the function says that two attempts give the same; it follows from the function, so the id has no part in it.
    pub deterministic: bool,
    /// Whether it publishes what the job has made ([`TaskFunction::COMMITS`](crate::registry::TaskFunction::COMMITS)).
    pub commits: bool,
    /// Parameters, MessagePack.
    pub params: Bytes,
    /// Arguments in order.
    pub args: Vec<Arg>,
    /// How it is to be run.
    pub options: TaskOptions,
}

impl Description {
    /// The id of this task in the job with this secret (law 2).
    pub fn id(&self, secret: JobSecret) -> TaskId {
        // Everything is length-prefixed or of fixed size, so that no two descriptions give the same bytes.
        let mut bytes = Vec::with_capacity(96 + self.params.len() + self.args.len() * 25);
        bytes.extend_from_slice(&secret.to_le_bytes());
        bytes.extend_from_slice(&(self.function.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.function.as_bytes());
        bytes.extend_from_slice(&(self.params.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.params);
        bytes.extend_from_slice(&(self.args.len() as u32).to_le_bytes());
        for arg in &self.args {
            let (kind, id) = match arg.source {
                Source::Object(object) => (0u8, object.as_u128()),
                Source::Set(set) => (1, set.as_u128()),
            };
            let (start, end) = match arg.parts {
                Parts::All => (u32::MAX, u32::MAX),
                Parts::Range(start, end) => (start, end),
            };
            bytes.push(kind);
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&start.to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        let returns = match self.options.returns {
            Returns::One => 1u64,
            Returns::Many(n) => u64::from(n),
            Returns::Stream => u64::MAX,
        };
        bytes.extend_from_slice(&returns.to_le_bytes());
        bytes.extend_from_slice(&self.options.target_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.options.salt.to_le_bytes());
        // Behind what every description has, and of those alone that ask for it: the others keep their ids.
        if self.options.align != Align::One {
            bytes.push(self.options.align.bytes() as u8);
        }
        TaskId::from_u128(XxHash3_128::oneshot(&bytes))
    }
}

/// One attempt of a task, as a node is told to run it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// The job.
    pub job: JobId,
    /// The task.
    pub id: TaskId,
    /// Which try this is.
    pub attempt: Attempt,
    /// Name and version of the function.
    pub function: Arc<str>,
    /// Parameters, MessagePack.
    pub params: Bytes,
    /// Arguments, each with where its object is (sets are defined beforehand).
    pub args: Vec<LocatedArg>,
    /// What it returns.
    pub returns: Returns,
    /// Aim of a stream's outputs, bytes; 0: the function decides.
    pub target_bytes: u64,
    /// Where parts of its outputs begin.
    #[serde(default, skip_serializing_if = "is_default")]
    pub align: Align,
    /// What it occupies while it runs.
    pub resources: Resources,
    /// Pieces of scratch memory that are granted before it starts, bytes each.
    pub scratch_bytes: Vec<u64>,
    /// Most bytes of arguments of either kind that come whole; 0: no limit but the memory.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub whole_max_bytes: u64,
    /// Memory of its own that the function may have in a process, bytes; 0: nothing is declared.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub memory_max_bytes: u64,
    /// Memory beside the store that is granted before it starts, bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outside_bytes: u64,
    /// Longest time of the attempt, milliseconds; 0: no limit.
    pub timeout_ms: u64,
    /// Whether nothing else may run on its node meanwhile: memory has run out under an attempt before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// Whether its job has printed all that it may: what it prints is not sent any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
}

#[cfg(test)]
impl TaskSpec {
    /// A first attempt without arguments that needs one processor and returns one output.
    pub(crate) fn plain(job: JobId, id: TaskId, function: &str) -> Self {
        Self {
            job,
            id,
            attempt: Attempt::nth(1),
            function: function.into(),
            params: Bytes::new(),
            args: Vec::new(),
            returns: Returns::One,
            target_bytes: 0,
            align: Align::One,
            resources: Resources::cpu(1000),
            scratch_bytes: Vec::new(),
            whole_max_bytes: 0,
            memory_max_bytes: 0,
            outside_bytes: 0,
            timeout_ms: 0,
            alone: false,
            silent: false,
        }
    }
}

impl TaskSpec {
    /// The copy of output `index` that this attempt makes.
    pub fn makes(&self, index: u32) -> CopyId {
        self.id.output(index).copy(self.job, self.attempt.makes())
    }

    /// Whether memory has to be granted to it before it starts, besides that for its arguments.
    pub(crate) fn asks_for_memory(&self) -> bool {
        !self.scratch_bytes.is_empty() || self.outside_bytes > 0 || self.memory_max_bytes > 0
    }

    /// How many outputs are announced with the end of the attempt, if that is good: until then they are its node's. Those of a stream are
    /// announced one by one.
    pub(crate) fn announced_at_its_end(&self) -> u32 {
        match self.returns {
            Returns::One => 1,
            Returns::Many(outputs) => outputs,
            Returns::Stream => 0,
        }
    }

    /// Whether this attempt may make this copy: it is one of its outputs. A stream has as many as it likes.
    pub(crate) fn may_make(&self, copy: CopyId) -> bool {
        let outputs = match self.returns {
            Returns::One => 1,
            Returns::Many(outputs) => outputs,
            Returns::Stream => {
                let (_, number) = ObjectId::of_copy(copy);
                return copy.group == self.job.group() && number == Some(self.attempt.makes());
            }
        };
        (0..outputs).any(|index| self.makes(index) == copy)
    }
}

/// An argument as a node is told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LocatedArg {
    /// Of what.
    pub source: LocatedSource,
    /// Which parts.
    pub parts: Parts,
}

/// What an argument refers to, as a node is told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LocatedSource {
    /// One object.
    Object {
        /// The object.
        object: ObjectId,
        /// Which copy of it, and the node that holds it; `None`: it has no bytes, and is nowhere.
        at: Option<(NodeId, CopyNumber)>,
    },
    /// Every object of a set, which was defined beforehand.
    Set {
        /// The set.
        set: SetId,
        /// Which copies of its members are meant: an older version of the set than this one is of no use.
        version: u32,
    },
}

/// What became of one output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Bytes of all parts.
    pub bytes: u64,
    /// Rows of all parts.
    pub rows: u64,
    /// Sum of the hashes of the rows.
    pub row_hash: RowHash,
}

impl From<&ObjectMeta> for Output {
    fn from(meta: &ObjectMeta) -> Self {
        Self { bytes: meta.bytes, rows: meta.rows, row_hash: meta.row_hash }
    }
}

impl Output {
    /// Adds `more` to this sum.
    pub fn add(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.rows += more.rows;
        self.row_hash = RowHash(self.row_hash.0.wrapping_add(more.row_hash.0));
    }

    /// What this is beyond `less`; it wraps where that is more.
    pub(crate) fn beyond(self, less: Self) -> Self {
        Self {
            bytes: self.bytes.wrapping_sub(less.bytes),
            rows: self.rows.wrapping_sub(less.rows),
            row_hash: RowHash(self.row_hash.0.wrapping_sub(less.row_hash.0)),
        }
    }

    /// This, so many times.
    pub(crate) fn times(self, count: u32) -> Self {
        Self {
            bytes: self.bytes * u64::from(count),
            rows: self.rows * u64::from(count),
            row_hash: RowHash(self.row_hash.0.wrapping_mul(u128::from(count))),
        }
    }
}

/// What an attempt has read of one argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumed {
    /// Index of the argument.
    pub arg: u32,
    /// What the function says it has read, counted from the bytes that it consumed; where it says nothing, what it was given.
    pub read: Output,
    /// Whether the function says nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsaid: bool,
    /// What it was given beyond what it has read, by the directories of the objects.
    #[serde(default, skip_serializing_if = "Left::is_nothing")]
    pub left: Left,
}

/// What an attempt was given of an argument and has not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Left {
    /// It has read everything.
    #[default]
    Nothing,
    /// The function has declared that it reads no further
    /// ([`TaskContext::reads_no_further`](crate::registry::TaskContext::reads_no_further)).
    Unread(Output),
    /// Nobody has declared it. Where it has read more than it was given, the difference wraps.
    Missing(Output),
}

impl Left {
    fn is_nothing(&self) -> bool {
        *self == Self::Nothing
    }
}

/// Where and when an attempt ran, and what it waited for on its node before. Microseconds, on the node's own clock: clocks
/// of different nodes have nothing to do with each other, but what one node says fits together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskTiming {
    /// Index of the executor that ran it.
    pub executor: u32,
    /// When it started.
    pub started_us: u64,
    /// Waited behind others before anything was done for it.
    #[serde(skip_serializing_if = "is_zero")]
    pub queued_us: u64,
    /// Waited for memory for its arguments and scratch.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_us: u64,
    /// Waited until spilled arguments were read back, and memory that is used for the first time was there.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_us: u64,
    /// Waited for what came from other nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub fetch_us: u64,
    /// Had everything, and waited for a free executor.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_us: u64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Figures of an attempt that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFigures {
    /// Time on the executor, microseconds.
    pub micros: u64,
    /// Bytes read from outside the store (input files).
    pub outside_in_bytes: u64,
    /// Bytes written outside the store (output files).
    pub outside_out_bytes: u64,
    /// Bytes of all arguments.
    pub args_bytes: u64,
    /// Bytes that it has printed, as far as they were sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub printed_bytes: u64,
    /// Where and when it ran, and what it waited for.
    #[serde(default)]
    pub timing: TaskTiming,
}

/// An attempt that has been on an executor for at least [`StillRunning::AFTER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StillRunning {
    /// The task.
    pub task: TaskId,
    /// Which try.
    pub attempt: Attempt,
    /// For how long already, microseconds.
    pub micros: u64,
}

impl StillRunning {
    /// What runs for less than this is not spoken of.
    pub const AFTER: Duration = Duration::from_secs(1);
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFailure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// For people: the cause, innermost last.
    pub message: String,
    /// What is at fault.
    #[serde(default)]
    pub fault: Fault,
    /// The arguments that it did not find, at most [`LOST_MAX`](Self::LOST_MAX) of them; only of kind
    /// [`ArgumentLost`](FailureKind::ArgumentLost).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostObject>,
    /// With so much memory beside the store it would have gone on, bytes; 0: not known. Only of kind [`Denied`](FailureKind::Denied).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub needs_bytes: u64,
}

impl TaskFailure {
    /// No failure names more objects than this: the next attempt finds the others, and messages stay small.
    pub const LOST_MAX: usize = 64;

    /// A failure without lost arguments.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let fault = if kind == FailureKind::DiskFull { Fault::Files } else { Fault::Unknown };
        Self { kind, message: message.into(), fault, lost: Vec::new(), needs_bytes: 0 }
    }

    /// Arguments were not to be had. `lost`: at least one, each object once; those beyond the limit are left out.
    pub fn argument_lost(message: impl Into<String>, lost: impl IntoIterator<Item = LostObject>) -> Self {
        let lost = lost.into_iter().take(Self::LOST_MAX).collect();
        Self { lost, ..Self::new(FailureKind::ArgumentLost, message) }
    }
}

/// An object that an attempt needed and that is not to be had where it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostObject {
    /// The object.
    pub object: ObjectId,
    /// Which copy of it: another one may be there by now.
    pub number: CopyNumber,
    /// The node that should have it.
    pub node: NodeId,
    /// What is known of it.
    pub loss: Loss,
}

/// What became of an object that is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loss {
    /// The node does not have it (any more): its disk failed, its bytes were wrong and were dropped, or it was started
    /// anew.
    Gone,
    /// The node could not be reached, or nothing came from it for seconds: it may have it still.
    Unreachable,
}

/// What is at fault when an attempt fails, as far as its function knows: what callers and shells tell apart. Whether another
/// attempt is of use is another question, which [`FailureKind`] answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The function, its node, or nobody knows.
    #[default]
    Unknown,
    /// What was asked for: a column that is not there, say.
    Request,
    /// What the input holds.
    Data,
    /// Files outside of the store, or the disk: one is missing, may not be read or written, or there is no room.
    Files,
}

impl Fault {
    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

/// Kinds of failures of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The function returned an error; another attempt may succeed.
    Error,
    /// The function says that no attempt can succeed (bad input, say).
    Final,
    /// The function panicked.
    Panic,
    /// The process that it ran in died, was stopped, or took more memory than it may.
    ExecutorLost,
    /// It ran longer than its timeout.
    Timeout,
    /// It was cancelled.
    Cancelled,
    /// The node could not decode or prepare it.
    Rejected,
    /// Its node was lost.
    NodeLost,
    /// No room on any disk.
    DiskFull,
    /// Memory was denied, since others held it: tried again, and not counted as an attempt that failed.
    Denied,
    /// Arguments are not where they should be, see [`TaskFailure::lost`]: another attempt is of use once they were made
    /// again.
    ArgumentLost,
    /// The process that it ran in was killed since there was no more memory: the next attempt has its node for itself
    /// ([`TaskSpec::alone`]).
    OutOfMemory,
}

impl FailureKind {
    /// Whether another attempt is of use, wherever it runs.
    pub fn retry(self) -> bool {
        match self {
            Self::Error
            | Self::Panic
            | Self::ExecutorLost
            | Self::OutOfMemory
            | Self::Timeout
            | Self::NodeLost
            | Self::Denied
            | Self::ArgumentLost => true,
            Self::Final | Self::Cancelled | Self::Rejected | Self::DiskFull => false,
        }
    }
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FailureKind::Error | FailureKind::Final | FailureKind::DiskFull | FailureKind::Denied => {
                f.write_str(&self.message)
            }
            FailureKind::Panic => write!(f, "panicked: {}", self.message),
            FailureKind::ExecutorLost | FailureKind::OutOfMemory => {
                write!(f, "lost with its executor: {}", self.message)
            }
            FailureKind::Timeout => write!(f, "timed out: {}", self.message),
            FailureKind::Cancelled => f.write_str("cancelled"),
            FailureKind::Rejected => write!(f, "refused: {}", self.message),
            FailureKind::NodeLost => write!(f, "lost with its node: {}", self.message),
            FailureKind::ArgumentLost => write!(f, "argument lost: {}", self.message),
        }
    }
}

/// Why a job, or one of its futures, failed. Healed by the runtime and never seen here: lost and repeated messages,
/// attempts that failed and succeeded later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum JobError {
    /// A task failed for good.
    #[error("{failure} ({function}, attempt {attempt} on {node}, task {task})")]
    Task {
        /// The task.
        task: TaskId,
        /// Its function.
        function: String,
        /// The last attempt.
        attempt: Attempt,
        /// Where it ran.
        node: String,
        /// What happened.
        failure: Box<TaskFailure>,
    },
    /// Two attempts of a task that is declared deterministic gave different rows.
    #[error("{function} (task {task}) is not deterministic: two attempts gave different rows")]
    NonDeterministic {
        /// The task.
        task: TaskId,
        /// Its function.
        function: String,
    },
    /// Rows, bytes or hashes that went into an edge are not those that came out (law 1).
    #[error("conservation violated at {edge}: {detail}")]
    Conservation {
        /// Name of the edge; of what is read outside of one, who made it and who has read it.
        edge: String,
        /// What differs.
        detail: String,
    },
    /// No node offers the function.
    #[error("function {function} is not known to: {}", lacking.join(", "))]
    UnknownFunction {
        /// Name and version.
        function: String,
        /// The nodes that lack it.
        lacking: Vec<String>,
    },
    /// No node can ever satisfy what a task needs.
    #[error("no node can run it: {reason}")]
    Unplaceable {
        /// "needs 1 gpu, cluster has 0".
        reason: String,
    },
    /// The job or the task was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The program's own error.
    #[error("{message}")]
    Program {
        /// The cause chain, outermost first.
        message: String,
        /// What is at fault, as far as the program knows.
        #[serde(default, skip_serializing_if = "Fault::is_unknown")]
        fault: Fault,
    },
    /// The program panicked.
    #[error("the job's program panicked: {message}")]
    Panic {
        /// The panic's text.
        message: String,
    },
    /// The object store of a node could not do what was asked.
    #[error("{message}")]
    Store {
        /// The store's error.
        message: String,
    },
    /// What the program had put into the store ([`Futures::put`](crate::futures::Futures::put)) can be read nowhere any more, and no task makes it. A job with a log begins again: its
    /// program puts the same once more.
    #[error("object {object}, which the program put into the store, is lost")]
    PutLost {
        /// The object.
        object: ObjectId,
    },
    /// The job would use more than its tenant allows.
    #[error("the job {what}")]
    Quota {
        /// How much it has, and what it may have.
        what: String,
    },
    /// Somebody would take the job up, and its log ends before it did.
    #[error("the node that ran the job is gone, and it cannot be taken up again: {cut}")]
    LogCut {
        /// Since when, and why.
        cut: String,
    },
    /// The runtime ended, or the bus cannot be reached.
    #[error("the runtime ended: {reason}")]
    Runtime {
        /// Why.
        reason: String,
    },
}

impl JobError {
    /// What it is, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Task { .. } => "task_failed",
            Self::NonDeterministic { .. } => "non_deterministic",
            Self::Conservation { .. } => "conservation",
            Self::UnknownFunction { .. } => "unknown_function",
            Self::Unplaceable { .. } => "unplaceable",
            Self::Cancelled => "cancelled",
            Self::Program { .. } => "program",
            Self::Panic { .. } => "panic",
            Self::Store { .. } | Self::PutLost { .. } => "store",
            Self::Quota { .. } => "quota",
            Self::LogCut { .. } => "log_cut",
            Self::Runtime { .. } => "runtime",
        }
    }

    /// An error of the program itself.
    pub fn program(error: impl fmt::Display) -> Self {
        Self::Program { message: error.to_string(), fault: Fault::Unknown }
    }

    /// An error of what the program was asked for.
    pub fn request(error: impl fmt::Display) -> Self {
        Self::Program { message: error.to_string(), fault: Fault::Request }
    }

    /// What is at fault, as far as anybody knows.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Task { failure, .. } => failure.fault,
            Self::Program { fault, .. } => *fault,
            _ => Fault::Unknown,
        }
    }
}

impl From<exobus_store::StoreError> for JobError {
    fn from(error: exobus_store::StoreError) -> Self {
        Self::Store { message: error.to_string() }
    }
}

/// Decodes a value that a task or a program returned; nothing at all stands for `()`.
pub(crate) fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, JobError> {
    let nil = [0xc0];
    rmp_serde::from_slice(if bytes.is_empty() { &nil } else { bytes }).map_err(JobError::program)
}

/// A function as a program names it: its type ties parameters and name together.
pub trait TaskFunction {
    /// What the function takes.
    type Params: serde::Serialize;
    /// What it returns, as [`Futures::get_value`](crate::futures::Futures::get_value) decodes it; `()` where it writes its output itself.
    type Value: serde::de::DeserializeOwned;
    /// Its name.
    const NAME: &'static str;
    /// Its version.
    const VERSION: u32;
    /// See [`Function::deterministic`](crate::registry::Function::deterministic).
    const DETERMINISTIC: bool;
    /// Whether it publishes what the job has made: the job's only step that cannot be taken back. A task of such a function
    /// is handed out only when the ledgers of all edges balance (those of its own arguments excepted), and from then on the
    /// job is not cancelled before the task has ended.
    const COMMITS: bool = false;

    /// "name@version", made once.
    fn key() -> Arc<str>;
}

/// A program as a client names it: its type ties parameters and what it returns to its name. `#[program]` makes a type that has the
/// name of the program's function, which is a type and no value, so that the function keeps its name.
pub trait JobProgram {
    /// What the program takes.
    type Params;
    /// What it returns where it ends well.
    type Value;
    /// Its name.
    const NAME: &'static str;
    /// Its version.
    const VERSION: u32;

    /// "name@version".
    fn key() -> String {
        format!("{}@{}", Self::NAME, Self::VERSION)
    }
}

/// What a program's function gives, a `Result` by whatever name, and the value in it.
pub trait Returned {
    /// The value.
    type Value;
}

impl<T> Returned for Result<T, JobError> {
    type Value = T;
}

/// Which function a program submits that is told so by its parameters; what it gives that function is for the program to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionName {
    pub(crate) key: Arc<str>,
    pub(crate) deterministic: bool,
}

impl FunctionName {
    /// Of a function with `#[task]`.
    pub fn of<F: TaskFunction>(_function: F) -> Self {
        Self { key: F::key(), deterministic: F::DETERMINISTIC }
    }

    /// "name@version".
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// What is declared of an edge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EdgeShape {
    /// For people: "sort.map -> sort.reduce".
    pub name: String,
    /// How many parts each member has.
    pub parts: u32,
    /// How many tasks read each part of each member.
    pub readers: u32,
    /// Whether parts stay when all of their readers have ended, for as long as the members are referenced: what is made of them can be
    /// made again without making them again.
    pub keep: bool,
}

impl EdgeShape {
    /// An edge whose members have `parts` parts, each of which is read by one task and freed then.
    pub fn new(name: impl Into<String>, parts: u32) -> Self {
        Self { name: name.into(), parts, readers: 1, keep: false }
    }

    /// Whether nobody else will read parts that one task has read.
    pub(crate) fn is_read_once(&self) -> bool {
        self.readers == 1 && !self.keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        Description {
            function: "f@1".into(),
            deterministic: true,
            commits: false,
            params: Bytes::from_static(b"p"),
            args: vec![Arg { source: Source::Object(ObjectId::from_u128(3 << 32)), parts: Parts::Range(0, 2) }],
            options: TaskOptions::default(),
        }
    }

    #[test]
    fn the_id_follows_the_description_and_nothing_else() {
        let secret = JobSecret::from_u128(1);
        let base = description().id(secret);
        assert_eq!(description().id(secret), base);
        assert_eq!(
            base.to_string(),
            "0f5eb68f5853d6015badd993a192735f",
            "logs of jobs that are taken up know it by this id"
        );
        assert_ne!(description().id(JobSecret::from_u128(2)), base, "the job's secret");
        type Change = fn(&mut Description);
        let changes: [(&str, Change); 8] = [
            ("function", |d| d.function = "g@1".into()),
            ("params", |d| d.params = Bytes::from_static(b"q")),
            ("source", |d| d.args[0].source = Source::Set(SetId::from_u128(3))),
            ("parts", |d| d.args[0].parts = Parts::Range(0, 3)),
            ("returns", |d| d.options.returns = Returns::Many(2)),
            ("target", |d| d.options.target_bytes = 1),
            ("salt", |d| d.options.salt = 1),
            ("align", |d| d.options.align = Align::SixtyFour),
        ];
        for (what, change) in changes {
            let mut other = description();
            change(&mut other);
            assert_ne!(other.id(secret), base, "{what}");
        }
        let mut placed = description();
        placed.options.place = Place::Spread;
        placed.options.attempts = 9;
        placed.options.resources = Resources::cpu(10);
        assert_eq!(placed.id(secret), base, "placement is no part of the identity");
    }

    #[test]
    fn resources_fit_by_their_scarcest() {
        let have = Resources::cpu(4000).with("gpu", 1000);
        assert_eq!(have.times(&Resources::cpu(1500)), 2);
        assert_eq!(have.times(&Resources::cpu(500).with("gpu", 500)), 2);
        assert_eq!(have.times(&Resources::cpu(500).with("tpu", 1)), 0);
        assert_eq!(have.times(&Resources::default()), u64::MAX);
    }
}
