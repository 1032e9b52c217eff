//! What the cluster does: a small shuffle in one of several shapes, whose result is known.

use std::collections::BTreeMap;
use std::iter;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::futures::{Edge, Fold, Futures, ObjectRef, Pushes, Window};
use crate::ids::{ObjectId, RowHash};
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
    /// When enough was read, and the edge of what maps make is stopped, and no other one: after so many reduces, blocks of streams too, rounds
    /// of merges, or merges of what was pushed. There are so many of them, however fast nodes are.
    stop: Option<usize>,
}

/// What a part adds up to, of the rows that these maps have made: how many there are, and the sum of their hashes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sum {
    part: u32,
    pub(super) maps: Vec<u32>,
    pub(super) rows: u64,
    hash: u128,
}

/// What a shuffle adds up to, part by part.
pub(super) type Sums = Vec<Sum>;

/// Where the edge was stopped: the part of each reduce or merge that was there by then, of those that were waited for, and the maps whose rows
/// are in it.
pub(super) type StoppedWith = Option<Vec<(u32, Vec<u32>)>>;

/// What comes of it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShuffleEnd {
    pub(super) stopped: StoppedWith,
    pub(super) sums: Sums,
}

/// Something that is made of a part, of the rows of these maps.
struct Made {
    part: u32,
    maps: Vec<u32>,
    object: ObjectRef,
}

impl Shuffle {
    /// With outputs of maps, and arguments of reduces, of up to so many bytes.
    pub(super) fn draw(dice: &mut Dice, bytes_max: u64) -> Self {
        let shape = *dice.pick(&[Shape::Simple, Shape::Streams, Shape::Rounds, Shape::Pushes]).expect("some");
        let [maps, parts] = [8, 5].map(|most| 1 + dice.below(most) as u32);
        let rows_max = bytes_max / u64::from(maps.max(parts)) / ROW_BYTES as u64;
        let rows = 1 + dice.below(rows_max);
        let (window, keep, salt) = (1 + dice.below(6) as usize, dice.chance(500), dice.below(1 << 60));
        let mut more = Dice::new(salt);
        let most = match shape {
            // A round takes as many maps as there are in a window, or fewer.
            Shape::Rounds => u64::from(maps).div_ceil(window as u64) - 1,
            Shape::Simple | Shape::Streams | Shape::Pushes => u64::from(parts),
        };
        let stop = more.chance(300).then(|| more.below(most + 1) as usize);
        Self { shape, maps, parts, rows, window, keep, salt, stop }
    }

    /// For how many reduces or merges it waits at least before it stops its edge; `None`: it does not.
    pub(super) fn waits_for(&self) -> Option<usize> {
        self.stop.map(|enough| match self.shape {
            Shape::Simple | Shape::Streams => enough,
            Shape::Rounds => enough * self.parts as usize / 2,
            Shape::Pushes => enough / 2,
        })
    }

    /// What must come of it where nothing is stopped.
    pub(super) fn sums(&self) -> Sums {
        (0..self.parts).map(|part| self.sum(part, (0..self.maps).collect())).collect()
    }

    fn sum(&self, part: u32, maps: Vec<u32>) -> Sum {
        let of_map = |map: &u32| rows(self.salt, *map, part, self.rows).map(|row| RowHash::of(&row));
        let hash = maps.iter().flat_map(of_map).fold(RowHash::default(), |sum, hash| sum + hash);
        Sum { part, rows: maps.len() as u64 * self.rows, hash: hash.0, maps }
    }

    /// Whether this may come of it. Where nothing is stopped, all rows, once; else the rows of all for which it had waited, which are no fewer
    /// than it was to wait for, each of them once.
    pub(super) fn may_make(&self, ShuffleEnd { stopped, sums }: &ShuffleEnd) -> bool {
        let (Some(least), Some(stopped)) = (self.waits_for(), stopped) else {
            return self.stop.is_none() && stopped.is_none() && *sums == self.sums();
        };
        let once = |maps: &[u32]| maps.is_sorted_by(|one, next| one < next) && maps.iter().all(|map| *map < self.maps);
        let whole = |(_, maps): &(u32, Vec<u32>)| self.shape != Shape::Simple || maps.len() == self.maps as usize;
        let right = |sum: &Sum| sum.part < self.parts && once(&sum.maps);
        stopped.len() >= least && stopped.iter().all(whole) && sums.iter().all(right) && *sums == self.sums_of(stopped)
    }

    /// What these add up to, reduces or merges: a part, and the maps whose rows are in it.
    pub(super) fn sums_of(&self, made: &[(u32, Vec<u32>)]) -> Sums {
        let mut maps_of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (part, maps) in made {
            maps_of.entry(*part).or_default().extend(maps);
        }
        maps_of.values_mut().for_each(|maps| maps.sort_unstable());
        maps_of.into_iter().map(|(part, maps)| self.sum(part, maps)).collect()
    }

    /// Whether it waits for merges, and not for reduces.
    #[cfg(test)]
    pub(super) fn merges(&self) -> bool {
        matches!(self.shape, Shape::Rounds | Shape::Pushes)
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

    async fn run(&self, futures: &Futures) -> Result<ShuffleEnd, JobError> {
        if self.salt.is_multiple_of(2) {
            self.plan(futures).await?;
        }
        let (mut kept, mut stopped) = (Vec::new(), None);
        let reduces = match self.shape {
            Shape::Simple | Shape::Streams => self.simple(futures, (&mut kept, &mut stopped)).await?,
            Shape::Rounds => self.rounds(futures, &mut stopped).await?,
            Shape::Pushes => self.pushes(futures, (&mut kept, &mut stopped)).await?,
        };
        let mut sums = Vec::new();
        for Made { part, maps, object } in reduces {
            let (rows, hash) = futures.get_value(&object).await?;
            sums.push(Sum { part, maps, rows, hash });
        }
        Ok(ShuffleEnd { stopped, sums })
    }

    /// What it is going to do, found out apart from the thread of jobs.
    async fn plan(&self, futures: &Futures) -> Result<(), JobError> {
        let (rows, parts) = (u64::from(self.maps) * self.rows, self.parts);
        let all = futures.compute(move || rows * u64::from(parts));
        let sums = self.clone();
        let sums = futures.compute_pure(move || sums.sums());
        let (all, sums) = ::futures::try_join!(all, sums)?;
        let counted: u64 = sums.iter().map(|sum| sum.rows).sum();
        if counted != all {
            return Err(JobError::program(format!("it computed {counted} rows, and {all}")));
        }
        futures.plan_stage("paused.map", u64::from(self.maps), all * ROW_BYTES as u64)
    }

    /// Stops an edge when so many of these are there; those that are by then.
    async fn stop(
        (futures, edge): (&Futures, Edge),
        mut made: Vec<Made>,
        enough: usize,
        stopped: &mut StoppedWith,
    ) -> Result<Vec<Made>, JobError> {
        let objects: Vec<_> = made.iter().map(|made| made.object.clone()).collect();
        let (ready, _) = futures.wait(&objects, enough, None).await?;
        made.retain(|made| ready.iter().any(|ready| ready.id() == made.object.id()));
        edge.stop()?;
        *stopped = Some(made.iter().map(|made| (made.part, made.maps.clone())).collect());
        Ok(made)
    }

    /// What maps make, in one object or in a stream, and the maps whose rows are in it, of each part.
    async fn blocks(&self, futures: &Futures) -> Result<(Vec<ObjectRef>, Vec<Vec<u32>>), JobError> {
        let (mut blocks, mut maps) = (Vec::new(), vec![Vec::new(); self.parts as usize]);
        if self.shape == Shape::Streams {
            let streams: Result<Vec<_>, _> = (0..self.maps)
                .map(|map| futures.submit_stream(make_streams, &self.task(map), &[], options(Place::Spread)))
                .collect();
            for (map, mut stream) in (0..).zip(streams?) {
                for half in 0.. {
                    if self.stop.is_some_and(|enough| blocks.len() > enough) {
                        break;
                    }
                    let Some(block) = stream.next().await? else { break };
                    maps.iter_mut().skip(half).step_by(2).for_each(|maps| maps.push(map));
                    blocks.push(block);
                }
            }
        } else {
            let mut window = Window::new(self.window);
            for map in 0..self.maps {
                window.admit(futures).await?;
                blocks.push(self.map(futures, map)?);
                window.track(futures, blocks.last().expect("one was pushed"))?;
                maps.iter_mut().for_each(|maps| maps.push(map));
            }
        }
        Ok((blocks, maps))
    }

    async fn simple(
        &self,
        futures: &Futures,
        (kept, stopped): (&mut Vec<ObjectRef>, &mut StoppedWith),
    ) -> Result<Vec<Made>, JobError> {
        let (mut blocks, maps) = self.blocks(futures).await?;
        let shape = EdgeShape { keep: self.keep, ..EdgeShape::new("map -> reduce", self.parts) };
        let edge = futures.edge(shape)?;
        edge.join_all(&blocks)?;
        if self.keep {
            kept.append(&mut blocks);
        }
        drop(blocks);
        let set = edge.first(edge.len())?;
        let reduce = |(part, maps)| Ok(Made { part, maps, object: self.reduce(futures, &[set.part(part)])? });
        let reduces = (0..).zip(maps).map(reduce).collect::<Result<Vec<_>, JobError>>()?;
        let Some(enough) = self.stop else { return edge.close().map(|_| reduces) };
        Self::stop((futures, edge), reduces, enough, stopped).await
    }

    async fn rounds(&self, futures: &Futures, stopped: &mut StoppedWith) -> Result<Vec<Made>, JobError> {
        let edge = futures.edge(EdgeShape::new("map -> merge", self.parts))?;
        let (mut pending, mut numbers, mut rounds) = (Vec::new(), BTreeMap::new(), 0);
        let mut merged = Vec::new();
        while numbers.len() < self.maps as usize || !pending.is_empty() {
            if self.stop == Some(rounds) {
                // Before the first member has joined, or with half of what was merged.
                let enough = merged.len() / 2;
                merged = Self::stop((futures, edge), merged, enough, stopped).await?;
                break;
            }
            while numbers.len() < self.maps as usize && pending.len() < self.window {
                let number = numbers.len() as u32;
                pending.push(self.map(futures, number)?);
                numbers.insert(pending[pending.len() - 1].id(), number);
                edge.join(&pending[pending.len() - 1])?;
            }
            let wanted = pending.len().min(1 + self.window / 2);
            let (ready, rest) = futures.wait(&pending, wanted, None).await?;
            (pending, rounds) = (rest, rounds + 1);
            let set = edge.of(&ready)?;
            for part in 0..self.parts {
                let object = futures.submit_with(join, &(), &[set.part(part)], options(Place::NearArgs))?;
                merged.push(Made { part, maps: numbers_of(&ready, &numbers), object });
            }
        }
        drop(pending);
        self.over_merged(futures, &merged)
    }

    fn over_merged(&self, futures: &Futures, merged: &[Made]) -> Result<Vec<Made>, JobError> {
        let over = |part: u32| {
            let merges: Vec<_> = merged.iter().filter(|merge| merge.part == part).collect();
            let objects: Vec<_> = merges.iter().map(|merge| merge.object.clone()).collect();
            let set = futures.closed_edge(EdgeShape::new(format!("merges of {part}"), 1), &objects)?;
            let mut maps: Vec<_> = merges.iter().flat_map(|merge| merge.maps.iter().copied()).collect();
            maps.sort_unstable();
            Ok(Made { part, maps, object: self.reduce(futures, &[set.part(0)])? })
        };
        let is_merged = |part: &u32| merged.iter().any(|merge| merge.part == *part);
        (0..self.parts).filter(is_merged).map(over).collect()
    }

    async fn pushes(
        &self,
        futures: &Futures,
        (kept, stopped): (&mut Vec<ObjectRef>, &mut StoppedWith),
    ) -> Result<Vec<Made>, JobError> {
        let nodes = futures.nodes();
        let place = |part: u32| match nodes.get(part as usize % nodes.len().max(1)) {
            Some(shape) => Place::Node { node: shape.node.clone(), soft: true },
            None => Place::default(),
        };
        let lanes: Vec<_> = (0..self.parts).map(|part| (place(part), iter::once(part..part + 1).collect())).collect();
        let mut pushes = Pushes::open(futures, &lanes, 1 + self.window / 2)?;
        let (mut merged, mut numbers) = (Vec::new(), BTreeMap::new());
        let mut window = Window::new(self.window);
        let edge = futures.edge(EdgeShape { keep: true, ..EdgeShape::new("map -> merge", self.parts) })?;
        for map in 0..=self.maps {
            let last = map == self.maps;
            let mut came = Vec::new();
            while window.len() >= self.window || (last && !window.is_empty()) {
                came.extend(window.next(futures).await?);
            }
            if !last {
                let block = self.map(futures, map)?;
                numbers.insert(block.id(), map);
                window.track(futures, &block)?;
            }
            for block in came {
                pushes.push(futures, &block)?;
                edge.join(&block)?;
                kept.push(block);
            }
            for Fold { lane, blocks } in if last { pushes.rest() } else { pushes.due(futures)? } {
                let set = edge.of(&blocks)?;
                let part = lane as u32;
                let object = futures.submit_with(join, &(), &[set.part(part)], options(place(part)))?;
                merged.push(Made { part, maps: numbers_of(&blocks, &numbers), object });
            }
            if self.stop.is_some_and(|enough| merged.len() >= enough) {
                let enough = merged.len() / 2;
                merged = Self::stop((futures, edge), merged, enough, stopped).await?;
                break;
            }
        }
        drop((pushes, window));
        self.over_merged(futures, &merged)
    }
}

/// Which maps have made these.
fn numbers_of(blocks: &[ObjectRef], numbers: &BTreeMap<ObjectId, u32>) -> Vec<u32> {
    let mut maps: Vec<_> = blocks.iter().map(|block| numbers[&block.id()]).collect();
    maps.sort_unstable();
    maps
}

/// Nodes die as often as they like.
fn options(place: Place) -> TaskOptions {
    TaskOptions { attempts: 1000, place, ..TaskOptions::default() }
}

#[program(name = "paused.shuffle")]
async fn shuffle(futures: Futures, shuffle: Shuffle) -> Result<ShuffleEnd, JobError> {
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
