//! Programs of the shape of shuffles, over the real futures API, and what their functions make of what they read.
//!
//! What a task makes follows from its id and from everything that it has read: rows, bytes and hashes, member by member. So there is one
//! right value of each object, which [`Truth`] works out when the task is submitted, and a task that has read anything wrong,
//! too little or twice makes something else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use futures::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::dice::Dice;
use crate::futures::{Futures, ObjectRef, Window};
use crate::ids::{ObjectId, RowHash, SetId, TaskId};
use crate::task::{
    Arg, Description, EdgeShape, JobError, Output, Parts, Place, Resources, Returns, Source, TaskFunction, TaskOptions,
};

/// What a task is told: how its outputs look.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Params {
    number: u32,
    /// Parts of each output.
    pub(super) parts: u32,
    /// Bytes of each part.
    bytes: u64,
    /// Outputs, where they are a stream.
    pub(super) stream: u32,
}

macro_rules! function {
    ($type:ident, $name:literal) => {
        struct $type;

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

    pub(super) fn set(&mut self, set: SetId, members: &[ObjectId]) {
        self.sets.insert(set, members.to_vec());
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
        for arg in &description.args {
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

/// What a program is to do: drawn once for each seed.
#[derive(Clone, Debug)]
pub(super) struct Job {
    shape: Shape,
    maps: u32,
    parts: u32,
    window: usize,
    keep: bool,
    /// Whether what reduces return is small enough to be logged.
    small: bool,
    /// Of how many maps one is empty; 0: none.
    empty: u32,
    /// Whether tasks are bound to nodes: not, gently, hard.
    bound: u64,
    /// When the program has seen enough.
    stop: Stop,
    /// Whether each part of what maps made is read by an estimate, too.
    estimates: bool,
}

/// When a program has seen enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// When all of it is done.
    Never,
    /// When so many maps have ended, where there are maps and reduces only.
    Maps(usize),
    /// When so many reduces have ended.
    Reduces(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Maps, and reduces over all of them.
    Simple,
    /// Merges of those maps that are there first, in rounds; reduces over merges.
    Rounds,
    /// Maps that are streams.
    Streams,
}

impl Job {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let shapes = [Shape::Simple, Shape::Rounds, Shape::Streams];
        let [maps, parts] = [10, 6].map(|most| 1 + dice.below(most) as u32);
        let stop = match dice.below(6) {
            0 => Stop::Maps(dice.below(u64::from(maps)) as usize),
            1 => Stop::Reduces(dice.below(u64::from(parts)) as usize),
            _ => Stop::Never,
        };
        Self {
            shape: *dice.pick(&shapes).expect("there are some"),
            maps,
            parts,
            window: 1 + dice.below(8) as usize,
            keep: dice.chance(500),
            small: dice.chance(700),
            empty: if dice.chance(200) { 3 } else { 0 },
            bound: dice.below(8),
            stop,
            estimates: dice.chance(250),
        }
    }

    /// The program.
    pub(super) fn start(&self, futures: Futures) -> LocalBoxFuture<'static, Result<Vec<u8>, JobError>> {
        let job = self.clone();
        Box::pin(async move {
            let mut reduces = match job.shape {
                Shape::Simple => job.simple(&futures).await?,
                Shape::Rounds => job.rounds(&futures).await?,
                Shape::Streams => job.streams(&futures).await?,
            };
            if let Stop::Reduces(enough) = job.stop {
                reduces = job.stops(&futures, reduces, enough).await?;
            }
            futures.wait_all(&reduces).await?;
            let args: Vec<_> = reduces.iter().map(ObjectRef::arg).collect();
            let commit = futures.submit_with(Commit, &job.params(0, 1, 16), &args, job.options(None))?;
            drop(reduces);
            futures.get(&commit).await?;
            let stat = futures.stat(&commit).await?;
            Ok(stat.row_hash.0.to_le_bytes().to_vec())
        })
    }

    /// Waits for so many of these, and needs nothing else.
    async fn stops(&self, futures: &Futures, made: Vec<ObjectRef>, enough: usize) -> Result<Vec<ObjectRef>, JobError> {
        let (ready, _) = futures.wait(&made, enough, None).await?;
        drop(made);
        futures.stop_edges()?;
        Ok(ready)
    }

    fn params(&self, number: u32, parts: u32, bytes: u64) -> Params {
        Params { number, parts, bytes, stream: 0 }
    }

    fn map_params(&self, number: u32) -> Params {
        let empty = self.empty > 0 && number.is_multiple_of(self.empty);
        self.params(number, self.parts, if empty { 0 } else { 100_000 })
    }

    fn options(&self, place: Option<Place>) -> TaskOptions {
        // Nodes die as often as they like.
        let (attempts, place) = (1000, place.unwrap_or_default());
        TaskOptions { attempts, place, resources: Resources::cpu(1000), ..TaskOptions::default() }
    }

    fn place(&self, futures: &Futures, number: u32) -> Option<Place> {
        let at = |soft: bool| {
            let nodes = futures.nodes();
            let node = nodes.get(number as usize % nodes.len().max(1))?.node.clone();
            Some(Place::Node { node, soft })
        };
        match self.bound {
            0 => at(false),
            1 => at(true),
            2 => Some(Place::Spread),
            3 => Some(Place::NearArgs),
            _ => None,
        }
    }

    fn reduce(&self, futures: &Futures, part: u32, args: &[Arg]) -> Result<ObjectRef, JobError> {
        let bytes = if self.small { 64 } else { 50_000 };
        futures.submit_with(Reduce, &self.params(part, 1, bytes), args, self.options(self.place(futures, part)))
    }

    async fn simple(&self, futures: &Futures) -> Result<Vec<ObjectRef>, JobError> {
        let (mut window, mut blocks) = (Window::new(self.window), Vec::new());
        for number in 0..self.maps {
            window.admit(futures).await?;
            let options = self.options(self.place(futures, number));
            let map = futures.submit_with(Map, &self.map_params(number), &[], options)?;
            window.track(futures, &map)?;
            blocks.push(map);
        }
        let readers = if self.estimates { 2 } else { 1 };
        let shape = EdgeShape { keep: self.keep, readers, ..EdgeShape::new("map -> reduce", self.parts) };
        let set = futures.closed_edge(shape, &blocks)?;
        if let Stop::Maps(enough) = self.stop {
            drop(set);
            return self.stops(futures, blocks, enough).await;
        }
        let mut reduces = Vec::new();
        for part in 0..self.parts * readers {
            reduces.push(self.reduce(futures, part, &[set.part(part % self.parts)])?);
        }
        if self.keep {
            // As long as these are held, what is lost of later tasks is made of them.
            futures.wait_all(&reduces).await?;
        }
        Ok(reduces)
    }

    async fn rounds(&self, futures: &Futures) -> Result<Vec<ObjectRef>, JobError> {
        // Two merges for each round: the lower half of the parts, and the upper one.
        let half = self.parts.div_ceil(2);
        let ranges: Vec<_> = [0..half, half..self.parts].into_iter().filter(|range| !range.is_empty()).collect();
        let edge = futures.edge(EdgeShape::new("map -> merge", self.parts))?;
        let (mut pending, mut next, mut round) = (Vec::new(), 0, 0);
        let mut merged: Vec<Vec<ObjectRef>> = vec![Vec::new(); ranges.len()];
        while next < self.maps || !pending.is_empty() {
            while next < self.maps && pending.len() < self.window {
                let options = self.options(self.place(futures, next));
                pending.push(futures.submit_with(Map, &self.map_params(next), &[], options)?);
                edge.join(&pending[pending.len() - 1])?;
                next += 1;
            }
            let wanted = pending.len().min(1 + self.window / 2);
            let (ready, rest) = futures.wait(&pending, wanted, None).await?;
            pending = rest;
            let set = edge.of(&ready)?;
            for (index, range) in ranges.iter().enumerate() {
                let number = round * 2 + index as u32;
                let params = self.params(number, range.end - range.start, 100_000);
                let options = self.options(self.place(futures, number));
                merged[index].push(futures.submit_with(Merge, &params, &[set.parts(range.clone())], options)?);
            }
            round += 1;
        }
        let mut reduces = Vec::new();
        for (range, merges) in ranges.iter().zip(merged) {
            let parts = range.end - range.start;
            let set = futures.closed_edge(EdgeShape::new(format!("merges of {}", range.start), parts), &merges)?;
            for part in 0..parts {
                reduces.push(self.reduce(futures, range.start + part, &[set.part(part)])?);
            }
        }
        Ok(reduces)
    }

    async fn streams(&self, futures: &Futures) -> Result<Vec<ObjectRef>, JobError> {
        let mut streams = Vec::new();
        for number in 0..self.maps.div_ceil(2) {
            let params = Params { stream: 1 + number % 3, ..self.map_params(number) };
            streams.push(futures.submit_stream(Stream, &params, &[], self.options(self.place(futures, number)))?);
        }
        let mut blocks = Vec::new();
        for stream in &mut streams {
            while let Some(block) = stream.next().await? {
                blocks.push(block);
            }
        }
        drop(streams);
        let set = futures.closed_edge(EdgeShape::new("stream -> reduce", self.parts), &blocks)?;
        drop(blocks);
        (0..self.parts).map(|part| self.reduce(futures, part, &[set.part(part)])).collect()
    }
}
