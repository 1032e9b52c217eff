//! The reduces of a job, whatever the strategy: of each partition, or of ranges of keys where one is far larger than others.
//!
//! Cuts from a sample make partitions even; keys that are given, or that change from one look to the next, do not. When
//! all that a reduce would read exists, the sizes of partitions are in the directories of the objects: they are added up
//! where the objects are, which gives one number a partition. One that is too large ([`Plan::is_too_large`]) is shuffled
//! once more, by itself: keys are drawn from it, *splits* read what lies on each node, merge it and cut it at those keys,
//! and a reduce for each range reads its part of all of them. What is still too large is divided again; a range of one key
//! never is, its reduce reads streams.
//!
//! A split reads and writes the rows once more, on all executors of the nodes that hold them: the price for reduces that
//! read only what is theirs, from wherever it is. (Reduces that read key ranges of the parts as they are would need an
//! offset for each range in each map output: maps x ranges of state.) Merging costs no more than without: runs that a
//! split has merged are fewer for the reduces.
//!
//! The ledgers: a part of an edge is read once, by a reduce or by a split; what splits make goes through an edge of its own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::pin;

use ::futures::stream::{self, StreamExt as _, TryStreamExt as _};
use exobus_actors::futures::{Edge, Futures, ObjectRef, ObjectSet};
use exobus_actors::task::{Arg, EdgeShape, Place};

use super::look::{Chunk, Look};
use super::name;
use crate::cuts::Cuts;
use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;

/// Keys that are drawn for each range.
const KEYS_PER_RANGE: u32 = 20;
/// Ranges of ranges of ranges: what is too large after so many divisions is reduced as it is.
const DIVISIONS_MAX: usize = 4;

/// What a strategy leaves of consecutive partitions.
#[derive(Debug)]
pub(super) struct Columns {
    /// Which partitions.
    pub(super) partitions: Range<u32>,
    /// Objects with a part for each of the partitions.
    pub(super) edge: Edge,
    /// Others, with a part for each partition that there is, of another edge.
    pub(super) unmerged: Vec<(ObjectSet, Vec<ObjectRef>)>,
    /// Where whole partitions are reduced.
    pub(super) place: Place,
}

impl Columns {
    /// These partitions of the members of an edge, reduced anywhere.
    pub(super) fn of(partitions: Range<u32>, edge: Edge) -> Self {
        Self { partitions, edge, unmerged: Vec::new(), place: Place::Anywhere }
    }
}

/// The partition that a reduce is of, and the range in it, and in that.
type Target = (u32, Vec<u32>);

/// A partition or range that is being divided.
#[derive(Debug)]
struct Division {
    target: Target,
    cuts: Cuts,
    pieces: Vec<ObjectRef>,
}

/// The reduces that have been submitted, in order of keys, and what is still being divided.
pub(super) struct Reduces<'a, J> {
    futures: &'a Futures,
    job: &'a J,
    plan: &'a Plan,
    outputs: BTreeMap<Target, ObjectRef>,
    divisions: Vec<Division>,
}

impl<'a, J: Job> Reduces<'a, J> {
    pub(super) fn new(futures: &'a Futures, job: &'a J, plan: &'a Plan) -> Self {
        Self { futures, job, plan, outputs: BTreeMap::new(), divisions: Vec::new() }
    }

    /// Submits the reduces of these partitions, or what it takes to divide them. All are looked at side by side: looks that
    /// queue behind reduces would let executors wait for what was not asked for in time.
    pub(super) async fn add(&mut self, all: Vec<Columns>) -> Result<(), ShuffleError> {
        let (futures, job, plan) = (self.futures, self.job, self.plan);
        // A buffer of none would never be done.
        let side_by_side = all.len().max(1);
        let looks = all.into_iter().map(async |columns| {
            let seen = too_large(futures, job, plan, &columns).await?;
            Ok::<_, ShuffleError>((columns, seen))
        });
        let mut looks = pin!(stream::iter(looks).buffered(side_by_side));
        while let Some((columns, seen)) = looks.try_next().await? {
            match seen {
                Some((look, large)) => self.add_divided(columns, &look, large).await?,
                None => self.add_whole(columns)?,
            }
        }
        Ok(())
    }

    fn add_whole(&mut self, columns: Columns) -> Result<(), ShuffleError> {
        let first = columns.partitions.start;
        let set = columns.edge.close()?;
        for partition in columns.partitions {
            let unmerged = columns.unmerged.iter().map(|(set, _)| set.part(partition));
            let args: Vec<Arg> = std::iter::once(set.part(partition - first)).chain(unmerged).collect();
            let output = self.job.reduce(self.futures, partition, &args, columns.place.clone())?;
            self.outputs.insert((partition, Vec::new()), output);
        }
        Ok(())
    }

    /// As `add_whole`, with partitions that are too large.
    async fn add_divided(
        &mut self,
        columns: Columns,
        look: &Look,
        large: BTreeMap<u32, u64>,
    ) -> Result<(), ShuffleError> {
        let chunks = look.chunks(self.futures, &columns)?;
        // Splits first: they are what the end waits for.
        let mut rest = Vec::new();
        for partition in columns.partitions {
            let divided = match large.get(&partition) {
                Some(bytes) => self.divide(look, &chunks, (partition, Vec::new()), partition, *bytes).await?,
                None => false,
            };
            if !divided {
                rest.push(partition);
            }
        }
        for partition in rest {
            let args: Vec<Arg> = chunks.iter().map(|chunk| chunk.part(partition)).collect();
            let output = self.job.reduce(self.futures, partition, &args, columns.place.clone())?;
            self.outputs.insert((partition, Vec::new()), output);
        }
        Ok(())
    }

    /// Waits for what is being divided, and submits the rest; all outputs in order of keys.
    pub(super) async fn finish(mut self) -> Result<Vec<ObjectRef>, ShuffleError> {
        while !self.divisions.is_empty() {
            for division in std::mem::take(&mut self.divisions) {
                self.go_on(division).await?;
            }
        }
        Ok(self.outputs.into_values().collect())
    }

    /// Submits the reduces of the ranges of a partition, or divides them further.
    async fn go_on(&mut self, division: Division) -> Result<(), ShuffleError> {
        let Division { target: (partition, range), cuts, pieces } = division;
        let (partitions, of) = (0..cuts.partitions() as u32, format!("split[{}]", range_name(partition, &range)));
        let edge = self.futures.edge(EdgeShape::new(name(self.job, &of, "reduce"), partitions.end))?;
        edge.join_all(&pieces)?;
        drop(pieces);
        let columns = Columns::of(partitions, edge);
        let look = Look::at(self.futures, &columns).await?;
        let sizes = look.sizes(self.futures, self.plan, columns.partitions.clone()).await?;
        let chunks = look.chunks(self.futures, &columns)?;
        drop(columns.edge);
        for (index, bytes) in columns.partitions.zip(sizes) {
            let inner = [&range[..], &[index]].concat();
            let too_large = bytes > self.plan.range_max_bytes && inner.len() < DIVISIONS_MAX;
            let divisible = too_large && !cuts.is_one_key(index as usize);
            if divisible && self.divide(&look, &chunks, (partition, inner.clone()), index, bytes).await? {
                continue;
            }
            let args: Vec<Arg> = chunks.iter().map(|chunk| chunk.part(index)).collect();
            if let Some(ranges) = self.job.key_ranges() {
                let output = ranges.reduce_range(self.futures, partition, &inner, &args, Place::Anywhere)?;
                self.outputs.insert((partition, inner), output);
            }
        }
        Ok(())
    }

    /// Draws keys of part `part` of all columns and splits it at those; false: it cannot be divided.
    async fn divide(
        &mut self,
        look: &Look,
        chunks: &[Chunk],
        target: Target,
        part: u32,
        bytes: u64,
    ) -> Result<bool, ShuffleError> {
        let Some(ranges) = self.job.key_ranges() else { return Ok(false) };
        let count = self.plan.ranges_of(bytes);
        let sample = look.sample(self.futures, ranges, part, count * KEYS_PER_RANGE, bytes).await?;
        let cuts = Cuts::dividing(sample, count as usize);
        if cuts.partitions() < 2 {
            return Ok(false);
        }
        self.futures.plan_stage(&format!("{}.split", self.job.name()), chunks.len() as u64, bytes)?;
        // Of one reduce become as many as there are ranges.
        self.futures.plan_stage(&format!("{}.reduce", self.job.name()), cuts.partitions() as u64 - 1, 0)?;
        let wire = self.futures.put_value(&cuts)?;
        let split = |chunk: &Chunk| {
            let place = chunk.node.clone().map_or(Place::Anywhere, |node| Place::Node { node, soft: true });
            ranges.split(self.futures, chunk.part(part), &wire, place)
        };
        let pieces = chunks.iter().map(split).collect::<Result<_, _>>()?;
        self.divisions.push(Division { target, cuts, pieces });
        Ok(true)
    }
}

/// Which partitions are too large, with their bytes; `None` where none is.
async fn too_large(
    futures: &Futures,
    job: &impl Job,
    plan: &Plan,
    columns: &Columns,
) -> Result<Option<(Look, BTreeMap<u32, u64>)>, ShuffleError> {
    // Where there is less in all, nobody has to be asked.
    if job.key_ranges().is_none() || plan.input_bytes <= plan.range_max_bytes {
        return Ok(None);
    }
    let look = Look::at(futures, columns).await?;
    let sizes = look.sizes(futures, plan, columns.partitions.clone()).await?;
    let sizes = columns.partitions.clone().zip(sizes);
    let large: BTreeMap<u32, u64> = sizes.filter(|(_, bytes)| plan.is_too_large(*bytes)).collect();
    Ok((!large.is_empty()).then_some((look, large)))
}

/// "7", or "7.0.3": the fourth range of the first range of partition 7.
fn range_name(partition: u32, range: &[u32]) -> String {
    std::iter::once(&partition).chain(range).map(u32::to_string).collect::<Vec<_>>().join(".")
}
