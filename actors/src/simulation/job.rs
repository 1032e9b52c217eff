//! Programs of the shape of shuffles, over the real futures API: what is drawn for each seed.

use std::ops::Range;

use futures::future::LocalBoxFuture;

use super::beside::{Beside, Plan as BesidePlan};
use super::dice::Dice;
use super::program::{Commit, Map, Merge, Params, Reduce, Stream};
use crate::futures::{Arrivals, Edge, Futures, ObjectRef, ObjectSet, Window};
use crate::task::{Arg, EdgeShape, JobError, Place, Resources, TaskOptions};

/// What a program is to do: drawn once for each seed.
#[derive(Clone, Debug)]
pub(super) struct Job {
    shape: Shape,
    maps: u32,
    pub(super) parts: u32,
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
    /// Another edge of the same members, where there is one.
    beside: Option<BesidePlan>,
    /// Parts of what maps make that nobody reads.
    unread: Option<Unread>,
    /// Whether streams are read as they come, and not one after the other.
    arrives: bool,
    /// Whether an edge is stopped that nothing ever joins.
    empty_edge: bool,
}

/// When a program has seen enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// When all of it is done.
    Never,
    /// When so many maps have ended, where there are maps and reduces only: all edges are stopped.
    Maps(usize),
    /// When so many reduces have ended: all edges are stopped.
    Reduces(usize),
    /// The edge of what maps make is stopped, and no other one: after so many reduces, rounds of merges, or outputs of streams.
    Edge(usize),
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

/// Parts that nobody reads.
#[derive(Clone, Debug)]
struct Unread {
    parts: Range<u32>,
    /// After how many reduces, or rounds of merges, that is declared, and tasks that would read them are cancelled; `None`: before there are any.
    after: Option<usize>,
}

impl Job {
    /// `more` draws what came later to programs, so that `dice` draws for each seed what it did.
    pub(super) fn draw(dice: &mut Dice, more: &mut Dice) -> Self {
        let shapes = [Shape::Simple, Shape::Rounds, Shape::Streams];
        let [maps, parts] = [10, 6].map(|most| 1 + dice.below(most) as u32);
        let stop = match dice.below(6) {
            0 => Stop::Maps(dice.below(u64::from(maps)) as usize),
            1 => Stop::Reduces(dice.below(u64::from(parts)) as usize),
            _ if more.chance(300) => Stop::Edge(more.below(6) as usize),
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
            beside: more.chance(400).then(|| BesidePlan::draw(more, maps, parts)),
            unread: more.chance(300).then(|| Unread::draw(more, parts)),
            arrives: more.chance(500),
            empty_edge: more.chance(100),
        }
    }

    /// Whether what maps make is read by others, or joins their edge, when parts of it may have been freed.
    pub(super) fn reads_what_was_freed(&self) -> bool {
        self.shape == Shape::Simple && self.beside.is_some()
    }

    /// The program.
    pub(super) fn start(&self, futures: Futures) -> LocalBoxFuture<'static, Result<Vec<u8>, JobError>> {
        let job = self.clone();
        Box::pin(async move {
            if job.empty_edge {
                futures.edge(EdgeShape::new("nothing", job.parts))?.stop()?;
            }
            let mut beside = Beside::open(&job, job.beside.clone(), &futures)?;
            let mut read = match job.shape {
                Shape::Simple => job.simple(&futures, &mut beside).await?,
                Shape::Rounds => job.rounds(&futures, &mut beside).await?,
                Shape::Streams => job.streams(&futures, &mut beside).await?,
            };
            beside.end(&futures).await?;
            if let Stop::Reduces(enough) = job.stop {
                read = job.stops(&futures, read, enough).await?;
            }
            read.extend(beside.seen());
            futures.wait_all(&read).await?;
            let args: Vec<_> = read.iter().map(ObjectRef::arg).collect();
            let commit = futures.submit_with(Commit, &job.params(0, 1, 16), &args, job.options(None))?;
            drop((read, beside));
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

    pub(super) fn params(&self, number: u32, parts: u32, bytes: u64) -> Params {
        Params { number, parts, bytes, stream: 0 }
    }

    fn map_params(&self, number: u32) -> Params {
        let empty = self.empty > 0 && number.is_multiple_of(self.empty);
        self.params(number, self.parts, if empty { 0 } else { 100_000 })
    }

    pub(super) fn options(&self, place: Option<Place>) -> TaskOptions {
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

    async fn simple(&self, futures: &Futures, beside: &mut Beside<'_>) -> Result<Vec<ObjectRef>, JobError> {
        let (mut window, mut blocks) = (Window::new(self.window), Vec::new());
        for number in 0..self.maps {
            window.admit(futures).await?;
            let options = self.options(self.place(futures, number));
            let map = futures.submit_with(Map, &self.map_params(number), &[], options)?;
            window.track(futures, &map)?;
            beside.join(futures, &map)?;
            blocks.push(map);
        }
        let readers = if self.estimates { 2 } else { 1 };
        let shape = EdgeShape { keep: self.keep, readers, ..EdgeShape::new("map -> reduce", self.parts) };
        let edge = futures.edge(shape)?;
        edge.join_all(&blocks)?;
        if let Stop::Maps(enough) = self.stop {
            beside.end(futures).await?;
            drop(edge.close()?);
            return self.stops(futures, blocks, enough).await;
        }
        let set = edge.first(edge.len())?;
        let reduces = self.reduces(futures, edge, &set, readers).await?;
        if self.keep {
            // As long as these are held, what is lost of later tasks is made of them.
            futures.wait_all(&reduces).await?;
        }
        Ok(reduces)
    }

    /// Tasks that read a set of an edge, part by part, but for what is unread; those that are wanted.
    async fn reduces(
        &self,
        futures: &Futures,
        edge: Edge,
        set: &ObjectSet,
        readers: u32,
    ) -> Result<Vec<ObjectRef>, JobError> {
        let unread = self.unread.as_ref();
        if let Some(Unread { parts, after: None }) = unread {
            edge.unread(parts.clone())?;
        }
        let (mut wanted, mut in_vain) = (Vec::new(), Vec::new());
        for number in 0..self.parts * readers {
            let part = number % self.parts;
            match unread.filter(|unread| unread.parts.contains(&part)) {
                None => wanted.push(self.reduce(futures, number, &[set.part(part)])?),
                Some(Unread { after: Some(_), .. }) => {
                    in_vain.push(self.reduce(futures, number, &[set.part(part)])?);
                }
                Some(Unread { after: None, .. }) => {}
            }
        }
        if let Some(Unread { parts, after: Some(after) }) = unread {
            futures.wait(&wanted, *after, None).await?;
            edge.unread(parts.clone())?;
        }
        if let Stop::Edge(enough) = self.stop {
            let (ready, _) = futures.wait(&wanted, enough, None).await?;
            edge.stop()?;
            return Ok(ready);
        }
        Ok(wanted)
    }

    async fn rounds(&self, futures: &Futures, beside: &mut Beside<'_>) -> Result<Vec<ObjectRef>, JobError> {
        // Two merges for each round: the lower half of the parts, and the upper one.
        let half = self.parts.div_ceil(2);
        let mut ranges: Vec<_> = [0..half, half..self.parts].into_iter().filter(|range| !range.is_empty()).collect();
        let edge = futures.edge(EdgeShape::new("map -> merge", self.parts))?;
        let (mut pending, mut next, mut round) = (Vec::new(), 0, 0);
        let mut merged: Vec<Vec<ObjectRef>> = vec![Vec::new(); ranges.len()];
        while next < self.maps || !pending.is_empty() {
            while next < self.maps && pending.len() < self.window {
                let options = self.options(self.place(futures, next));
                pending.push(futures.submit_with(Map, &self.map_params(next), &[], options)?);
                edge.join(&pending[pending.len() - 1])?;
                beside.join(futures, &pending[pending.len() - 1])?;
                next += 1;
            }
            let after = |unread: &Unread| unread.after.unwrap_or(0) as u32 == round;
            if ranges.len() == 2 && self.unread.as_ref().is_some_and(after) {
                // All of the upper half.
                edge.unread(ranges.remove(1))?;
                merged.truncate(1);
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
            if self.stop == Stop::Edge(round as usize) {
                // Of what was merged, what is there first is enough.
                let merges = merged.concat();
                let (ready, _) = futures.wait(&merges, merges.len() / 2, None).await?;
                edge.stop()?;
                let is_ready = |merge: &ObjectRef| ready.iter().any(|ready| ready.id() == merge.id());
                merged.iter_mut().for_each(|merges| merges.retain(is_ready));
                break;
            }
        }
        drop(pending);
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

    async fn streams(&self, futures: &Futures, beside: &mut Beside<'_>) -> Result<Vec<ObjectRef>, JobError> {
        let mut streams = Vec::new();
        for number in 0..self.maps.div_ceil(2) {
            let params = Params { stream: 1 + number % 3, ..self.map_params(number) };
            streams.push(futures.submit_stream(Stream, &params, &[], self.options(self.place(futures, number)))?);
        }
        let edge = futures.edge(EdgeShape::new("stream -> reduce", self.parts))?;
        let mut limit = usize::MAX;
        if self.arrives {
            // One more than is read may join.
            limit = if let Stop::Edge(enough) = self.stop { enough } else { limit };
            let mut arrivals = Arrivals::of(streams);
            while edge.len() <= limit
                && let Some(block) = arrivals.next(futures).await?
            {
                edge.join(&block)?;
                beside.join(futures, &block)?;
            }
        } else {
            for mut stream in streams {
                while let Some(block) = stream.next().await? {
                    edge.join(&block)?;
                    beside.join(futures, &block)?;
                }
            }
        }
        let set = edge.first(edge.len().min(limit))?;
        self.reduces(futures, edge, &set, 1).await
    }
}

impl Unread {
    fn draw(dice: &mut Dice, parts: u32) -> Self {
        let start = dice.below(u64::from(parts)) as u32;
        let end = start + dice.below(u64::from(parts - start) + 1) as u32;
        Self { parts: start..end, after: dice.chance(600).then(|| dice.below(4) as usize) }
    }
}
