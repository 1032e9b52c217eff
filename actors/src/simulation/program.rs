//! The functions of programs, and what they make of what they read; the programs are in `job.rs`.
//!
//! What a task makes follows from its id and from everything that it has read: rows, bytes and hashes, member by member. So there is one
//! right value of each object, which [`Truth`] works out when the task is submitted, and a task that has read anything wrong,
//! too little or twice makes something else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::ids::{ObjectId, RowHash, SetId, TaskId};
use crate::task::{Description, Output, Parts, Returns, Source, TaskFunction};

/// What a task is told: how its outputs look.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Params {
    pub(super) number: u32,
    /// Parts of each output.
    pub(super) parts: u32,
    /// Bytes of each part.
    pub(super) bytes: u64,
    /// Outputs, where they are a stream.
    pub(super) stream: u32,
}

macro_rules! function {
    ($type:ident, $name:literal) => {
        pub(super) struct $type;

        impl TaskFunction for $type {
            type Params = Params;
            type Value = ();
            const NAME: &'static str = $name;
            const VERSION: u32 = 1;
            const DETERMINISTIC: bool = true;

            fn key() -> Arc<str> {
                static KEY: OnceLock<Arc<str>> = OnceLock::new();
                KEY.get_or_init(|| Arc::from(concat!($name, "@1"))).clone()
            }
        }
    };
}

function!(Map, "sim.map");
function!(Stream, "sim.stream");
function!(Merge, "sim.merge");
function!(Reduce, "sim.reduce");
function!(Commit, "sim.commit");

/// All functions.
pub(super) fn functions() -> [Arc<str>; 5] {
    [Map::key(), Stream::key(), Merge::key(), Reduce::key(), Commit::key()]
}

/// The program, as its host must have it.
pub(super) const PROGRAM: &str = "sim@1";

/// The parts of one object.
pub(super) type Made = Vec<Output>;

pub(super) fn sum(parts: &[Output]) -> Output {
    let mut sum = Output::default();
    parts.iter().for_each(|part| sum.add(*part));
    sum
}

/// What was read, in order.
pub(super) struct Digest(XxHash3_128);

impl Digest {
    pub(super) fn new() -> Self {
        Self(XxHash3_128::new())
    }

    /// These parts of an object.
    pub(super) fn read(&mut self, object: ObjectId, parts: &[Output]) {
        self.0.write(&object.as_u128().to_le_bytes());
        for part in parts {
            self.0.write(&part.bytes.to_le_bytes());
            self.0.write(&part.rows.to_le_bytes());
            self.0.write(&part.row_hash.0.to_le_bytes());
        }
    }

    pub(super) fn finish(self) -> u128 {
        self.0.finish_128()
    }
}

impl Params {
    pub(super) fn decode(bytes: &[u8]) -> Self {
        rmp_serde::from_slice(bytes).expect("a program of ours encoded them")
    }

    /// What a task with these parameters makes of what it has read.
    pub(super) fn make(&self, output: ObjectId, digest: u128) -> Made {
        let part = |part: u32| {
            let mut hasher = XxHash3_128::new();
            hasher.write(&output.as_u128().to_le_bytes());
            hasher.write(&digest.to_le_bytes());
            hasher.write(&part.to_le_bytes());
            let hash = hasher.finish_128();
            match self.bytes {
                0 => Output::default(),
                bytes => Output { bytes, rows: 1 + (hash % 7) as u64, row_hash: RowHash(hash) },
            }
        };
        (0..self.parts).map(part).collect()
    }

    pub(super) fn outputs(&self, returns: Returns) -> u32 {
        match returns {
            Returns::One => 1,
            Returns::Many(outputs) => outputs,
            Returns::Stream => self.stream,
        }
    }
}

/// The parts that an argument means.
pub(super) fn meant(made: &[Output], parts: Parts) -> &[Output] {
    match parts {
        Parts::All => made,
        Parts::Range(start, end) => &made[start as usize..end as usize],
    }
}

/// What each object is, by what was submitted.
#[derive(Default)]
pub(super) struct Truth {
    objects: BTreeMap<ObjectId, Made>,
    sets: BTreeMap<SetId, Vec<ObjectId>>,
    of_edges: BTreeSet<SetId>,
    /// Arguments of tasks that are read beside all edges, which may have freed parts of them.
    undeclared: BTreeSet<(TaskId, usize)>,
    /// What was submitted, and how many outputs each task has.
    pub(super) tasks: BTreeMap<TaskId, u32>,
    /// The last task; another one for runs of the program that learned something else.
    commits: BTreeSet<TaskId>,
}

impl Truth {
    pub(super) fn of(&self, object: ObjectId) -> Option<&Made> {
        self.objects.get(&object)
    }

    /// These parts of an object, as who was told that it is empty reads them.
    pub(super) fn nothing(&self, object: ObjectId, parts: Parts) -> Made {
        let count = self.of(object).map_or(0, |made| meant(made, parts).len());
        vec![Output::default(); count]
    }

    pub(super) fn set(&mut self, set: SetId, members: &[ObjectId], of_edge: bool) {
        self.sets.insert(set, members.to_vec());
        if of_edge {
            self.of_edges.insert(set);
        }
    }

    /// Whether an argument of a task is read beside all edges.
    pub(super) fn is_undeclared(&self, task: TaskId, position: usize) -> bool {
        self.undeclared.contains(&(task, position))
    }

    /// Whether the program may return this.
    pub(super) fn is_result(&self, value: &[u8]) -> bool {
        let results = self.commits.iter().filter_map(|commit| self.of(commit.output(0)));
        results.map(|made| sum(made).row_hash.0.to_le_bytes()).any(|result| result == value)
    }

    pub(super) fn submitted(&mut self, task: TaskId, description: &Description) {
        if self.tasks.contains_key(&task) {
            return;
        }
        let mut digest = Digest::new();
        for (position, arg) in description.args.iter().enumerate() {
            if !matches!(arg.source, Source::Set(set) if self.of_edges.contains(&set)) {
                self.undeclared.insert((task, position));
            }
            let objects = match &arg.source {
                Source::Object(object) => std::slice::from_ref(object),
                Source::Set(set) => &self.sets[set],
            };
            for object in objects {
                digest.read(*object, meant(&self.objects[object], arg.parts));
            }
        }
        let params = Params::decode(&description.params);
        let (digest, outputs) = (digest.finish(), params.outputs(description.options.returns));
        self.tasks.insert(task, outputs);
        if description.function == Commit::key() {
            self.commits.insert(task);
        }
        for output in (0..outputs).map(|index| task.output(index)) {
            self.objects.insert(output, params.make(output, digest));
        }
    }
}
