//! What the cluster does: a small shuffle in one of several shapes, whose result is known.

use std::iter;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::futures::{Fold, Futures, ObjectRef, Pushes, Window};
use crate::ids::RowHash;
use crate::registry::{TaskContext, TaskError};
use crate::simulation::dice::Dice;
use crate::task::{Arg, EdgeShape, JobError, Place, TaskOptions};
use crate::{program, task};

/// The program, as a client submits it.
pub(super) const PROGRAM: &str = "paused.shuffle@1";
/// Bytes of each row.
const ROW_BYTES: usize = 256;

/// Which strategy the program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Shape {
    /// Maps, and reduces over all of them.
    Simple,
    /// The same; maps are streams.
    Streams,
    /// Merges of those maps that are there first, in rounds; reduces over merges.
    Rounds,
    /// Merges of what was pushed to their nodes; map outputs are kept.
    Pushes,
}

/// What the program is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Shuffle {
    shape: Shape,
    maps: u32,
    parts: u32,
    /// Rows of each part of each map.
    rows: u64,
    window: usize,
    keep: bool,
    salt: u64,
}

/// What comes of it: rows of each part, and the sum of their hashes.
pub(super) type Sums = Vec<(u64, u128)>;

impl Shuffle {
    /// With outputs of maps, and arguments of reduces, of up to so many bytes.
    pub(super) fn draw(dice: &mut Dice, bytes_max: u64) -> Self {
        let shape = *dice.pick(&[Shape::Simple, Shape::Streams, Shape::Rounds, Shape::Pushes]).expect("some");
        let [maps, parts] = [8, 5].map(|most| 1 + dice.below(most) as u32);
        let rows_max = bytes_max / u64::from(maps.max(parts)) / ROW_BYTES as u64;
        Self {
            shape,
            maps,
            parts,
            rows: 1 + dice.below(rows_max),
            window: 1 + dice.below(6) as usize,
            keep: dice.chance(500),
            salt: dice.below(1 << 60),
        }
    }

    /// What must come of it.
    pub(super) fn sums(&self) -> Sums {
        let sum = |part: u32| {
            let mut hash = RowHash::default();
            (0..self.maps)
                .for_each(|map| rows(self.salt, map, part, self.rows).for_each(|row| hash += RowHash::of(&row)));
            (u64::from(self.maps) * self.rows, hash.0)
        };
        (0..self.parts).map(sum).collect()
    }

    fn task(&self, number: u32) -> Part {
        Part { salt: self.salt, number, parts: self.parts, rows: self.rows }
    }

    fn map(&self, futures: &Futures, number: u32) -> Result<ObjectRef, JobError> {
        futures.submit_with(make_rows, &self.task(number), &[], options(Place::default()))
    }

    fn reduce(&self, futures: &Futures, args: &[Arg]) -> Result<ObjectRef, JobError> {
        futures.submit_with(add_up, &(), args, options(Place::Spread))
    }

    async fn run(&self, futures: &Futures) -> Result<Sums, JobError> {
        if self.salt.is_multiple_of(2) {
            self.plan(futures).await?;
        }
        let mut kept = Vec::new();
        let reduces = match self.shape {
            Shape::Simple | Shape::Streams => self.simple(futures, &mut kept).await?,
            Shape::Rounds => self.rounds(futures).await?,
            Shape::Pushes => self.pushes(futures, &mut kept).await?,
        };
        let mut sums = Vec::new();
        for reduce in &reduces {
            sums.push(futures.get_value(reduce).await?);
        }
        Ok(sums)
    }

    /// What it is going to do, found out apart from the thread of jobs.
    async fn plan(&self, futures: &Futures) -> Result<(), JobError> {
        let (rows, parts) = (u64::from(self.maps) * self.rows, self.parts);
        let all = futures.compute(move || rows * u64::from(parts));
        let sums = self.clone();
        let sums = futures.compute_pure(move || sums.sums());
        let (all, sums) = ::futures::try_join!(all, sums)?;
        let counted: u64 = sums.iter().map(|(rows, _)| rows).sum();
        if counted != all {
            return Err(JobError::program(format!("it computed {counted} rows, and {all}")));
        }
        futures.plan_stage("paused.map", u64::from(self.maps), all * ROW_BYTES as u64)
    }

    async fn simple(&self, futures: &Futures, kept: &mut Vec<ObjectRef>) -> Result<Vec<ObjectRef>, JobError> {
        let mut blocks = Vec::new();
        if self.shape == Shape::Streams {
            let streams: Result<Vec<_>, _> = (0..self.maps)
                .map(|map| futures.submit_stream(make_streams, &self.task(map), &[], options(Place::Spread)))
                .collect();
            for mut stream in streams? {
                while let Some(block) = stream.next().await? {
                    blocks.push(block);
                }
            }
        } else {
            let mut window = Window::new(self.window);
            for map in 0..self.maps {
                window.admit(futures).await?;
                blocks.push(self.map(futures, map)?);
                window.track(futures, blocks.last().expect("one was pushed"))?;
            }
        }
        let shape = EdgeShape { keep: self.keep, ..EdgeShape::new("map -> reduce", self.parts) };
        let set = futures.closed_edge(shape, &blocks)?;
        if self.keep {
            kept.append(&mut blocks);
        }
        (0..self.parts).map(|part| self.reduce(futures, &[set.part(part)])).collect()
    }

    async fn rounds(&self, futures: &Futures) -> Result<Vec<ObjectRef>, JobError> {
        let edge = futures.edge(EdgeShape::new("map -> merge", self.parts))?;
        let (mut pending, mut next) = (Vec::new(), 0);
        let mut merged: Vec<Vec<ObjectRef>> = vec![Vec::new(); self.parts as usize];
        while next < self.maps || !pending.is_empty() {
            while next < self.maps && pending.len() < self.window {
                pending.push(self.map(futures, next)?);
                edge.join(&pending[pending.len() - 1])?;
                next += 1;
            }
            let wanted = pending.len().min(1 + self.window / 2);
            let (ready, rest) = futures.wait(&pending, wanted, None).await?;
            pending = rest;
            let set = edge.of(&ready)?;
            for (part, merged) in (0..).zip(&mut merged) {
                merged.push(futures.submit_with(join, &(), &[set.part(part)], options(Place::NearArgs))?);
            }
        }
        self.over_merged(futures, merged)
    }

    fn over_merged(&self, futures: &Futures, merged: Vec<Vec<ObjectRef>>) -> Result<Vec<ObjectRef>, JobError> {
        let over = |(part, merges): (usize, Vec<ObjectRef>)| {
            let set = futures.closed_edge(EdgeShape::new(format!("merges of {part}"), 1), &merges)?;
            self.reduce(futures, &[set.part(0)])
        };
        merged.into_iter().enumerate().map(over).collect()
    }

    async fn pushes(&self, futures: &Futures, kept: &mut Vec<ObjectRef>) -> Result<Vec<ObjectRef>, JobError> {
        let nodes = futures.nodes();
        let place = |part: u32| match nodes.get(part as usize % nodes.len().max(1)) {
            Some(shape) => Place::Node { node: shape.node.clone(), soft: true },
            None => Place::default(),
        };
        let lanes: Vec<_> = (0..self.parts).map(|part| (place(part), iter::once(part..part + 1).collect())).collect();
        let mut pushes = Pushes::open(futures, &lanes, 1 + self.window / 2)?;
        let mut merged: Vec<Vec<ObjectRef>> = vec![Vec::new(); self.parts as usize];
        let mut window = Window::new(self.window);
        let edge = futures.edge(EdgeShape { keep: true, ..EdgeShape::new("map -> merge", self.parts) })?;
        for map in 0..=self.maps {
            let last = map == self.maps;
            let mut came = Vec::new();
            while window.len() >= self.window || (last && !window.is_empty()) {
                came.extend(window.next(futures).await?);
            }
            if !last {
                window.track(futures, &self.map(futures, map)?)?;
            }
            for block in came {
                pushes.push(futures, &block)?;
                edge.join(&block)?;
                kept.push(block);
            }
            for Fold { lane, blocks } in if last { pushes.rest() } else { pushes.due(futures)? } {
                let set = edge.of(&blocks)?;
                let merge = futures.submit_with(join, &(), &[set.part(lane as u32)], options(place(lane as u32)))?;
                merged[lane].push(merge);
            }
        }
        self.over_merged(futures, merged)
    }
}

/// Nodes die as often as they like.
fn options(place: Place) -> TaskOptions {
    TaskOptions { attempts: 1000, place, ..TaskOptions::default() }
}

#[program(name = "paused.shuffle")]
async fn shuffle(futures: Futures, shuffle: Shuffle) -> Result<Sums, JobError> {
    shuffle.run(&futures).await
}

/// Which rows to make.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Part {
    salt: u64,
    number: u32,
    parts: u32,
    rows: u64,
}

/// The rows of a part of a map.
fn rows(salt: u64, map: u32, part: u32, count: u64) -> impl Iterator<Item = [u8; ROW_BYTES]> {
    (0..count).map(move |row| {
        let mut hasher = XxHash3_128::with_seed(salt);
        hasher.write(&map.to_le_bytes());
        hasher.write(&part.to_le_bytes());
        hasher.write(&row.to_le_bytes());
        let mut content = [0; ROW_BYTES];
        content.chunks_mut(16).for_each(|chunk| chunk.copy_from_slice(&hasher.finish_128().to_le_bytes()));
        content
    })
}

/// Writes a part of these rows.
fn write_part<'a>(
    context: &mut TaskContext<'_>,
    bytes: u64,
    rows: impl Iterator<Item = &'a [u8]>,
) -> Result<(), TaskError> {
    let writer = context.output()?;
    writer.begin_part(Some(bytes))?;
    let (mut count, mut hash) = (0, RowHash::default());
    for row in rows {
        writer.write(row)?;
        (count, hash) = (count + 1, hash + RowHash::of(row));
    }
    writer.end_part(count, hash);
    Ok(())
}

fn write_rows(
    context: &mut TaskContext<'_>,
    Part { salt, number, rows: count, .. }: Part,
    part: u32,
) -> Result<(), TaskError> {
    let rows: Vec<_> = rows(salt, number, part, count).collect();
    write_part(context, (rows.len() * ROW_BYTES) as u64, rows.iter().map(<[u8; ROW_BYTES]>::as_slice))
}

#[task(name = "paused.map", deterministic = true)]
fn make_rows(context: &mut TaskContext<'_>, of: Part) -> Result<(), TaskError> {
    context.check_cancelled()?;
    (0..of.parts).try_for_each(|part| write_rows(context, of, part))
}

/// Half of the parts are empty in each output: the first one has those of even numbers.
#[task(name = "paused.stream", deterministic = true)]
fn make_streams(context: &mut TaskContext<'_>, of: Part) -> Result<(), TaskError> {
    for half in 0..2 {
        context.check_cancelled()?;
        for part in 0..of.parts {
            let rows = if part % 2 == half { of.rows } else { 0 };
            write_rows(context, Part { rows, ..of }, part)?;
        }
        context.next_output()?;
    }
    Ok(())
}

/// Says what was read, and what it adds up to.
fn read(context: &mut TaskContext<'_>) -> (u64, RowHash) {
    let (mut rows, mut hash, mut bytes) = (0, RowHash::default(), 0);
    for block in context.blocks(0) {
        bytes += block.len() as u64;
        for row in block.chunks(ROW_BYTES) {
            (rows, hash) = (rows + 1, hash + RowHash::of(row));
        }
    }
    context.consumed(0, bytes, rows, hash);
    (rows, hash)
}

/// All rows of its argument as one part.
#[task(name = "paused.join", deterministic = true)]
fn join(context: &mut TaskContext<'_>) -> Result<(), TaskError> {
    context.check_cancelled()?;
    read(context);
    let blocks = context.blocks(0);
    let bytes = blocks.iter().map(|block| block.len() as u64).sum();
    write_part(context, bytes, blocks.iter().flat_map(|block| block.chunks(ROW_BYTES)))
}

#[task(name = "paused.sum", deterministic = true)]
fn add_up(context: &mut TaskContext<'_>) -> Result<(u64, u128), TaskError> {
    context.check_cancelled()?;
    let (rows, hash) = read(context);
    Ok((rows, hash.0))
}
