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
//! The books: a part of an exchange is read once, by a reduce or by a split; what splits make is an exchange of its own.

use std::collections::BTreeMap;
use std::ops::Range;

use exobus_actors::futures::{Futures, ObjectRef, ObjectSet};
use exobus_actors::ids::NodeId;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{Arg, Place, TaskOptions};

use super::edge;
use crate::cuts::Cuts;
use crate::error::ShuffleError;
use crate::job::{Draw, Job, Key, KeyRanges};
use crate::plan::Plan;

/// Keys that are drawn for each range.
const KEYS_PER_RANGE: u32 = 20;
/// Ranges of ranges of ranges: what is too large after so many divisions is reduced as it is.
const DIVISIONS_MAX: usize = 4;
/// Splits of a partition run side by side on so many executors at most: each is an argument of all reduces.
const SPLITS_MAX: usize = 64;
/// Directory entries that one task adds up.
const SIZES_PER_TASK: usize = 1 << 22;

/// What a strategy leaves of consecutive partitions.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// Which partitions.
    pub(super) partitions: Range<u32>,
    /// Name of the exchange that `blocks` are in: declared here, since who reads them is known only here.
    pub(super) edge: String,
    /// Objects with a part for each of the partitions.
    pub(super) blocks: Vec<ObjectRef>,
    /// Others, with a part for each partition that there is, whose exchange is declared.
    pub(super) unmerged: Vec<(ObjectSet, Vec<ObjectRef>)>,
    /// Where whole partitions are reduced.
    pub(super) place: Place,
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
#[derive(Debug, Default)]
pub(super) struct Reduces {
    outputs: BTreeMap<Target, ObjectRef>,
    divisions: Vec<Division>,
}

impl Reduces {
    /// Submits the reduces of these partitions, or what it takes to divide them.
    pub(super) async fn add(
        &mut self,
        futures: &Futures,
        job: &impl Job,
        plan: &Plan,
        columns: Columns,
    ) -> Result<(), ShuffleError> {
        let large = match job.key_ranges() {
            Some(ranges) if plan.input_bytes > plan.range_max_bytes => {
                let look = Look::at(futures, &columns).await?;
                let sizes = look.sizes(futures, plan, columns.partitions.clone()).await?;
                let sizes = columns.partitions.clone().zip(sizes);
                let large: Vec<_> = sizes.filter(|(_, bytes)| plan.is_too_large(*bytes)).collect();
                (!large.is_empty()).then_some((ranges, look, large))
            }
            _ => None,
        };
        let first = columns.partitions.start;
        let Some((ranges, look, large)) = large else {
            let parts = columns.partitions.end - first;
            let set = futures.exchange(&columns.edge, &columns.blocks, parts, 1)?;
            for partition in columns.partitions {
                let args = columns.unmerged.iter().map(|(set, _)| set.part(partition));
                let args: Vec<Arg> = std::iter::once(set.part(partition - first)).chain(args).collect();
                let output = job.reduce(futures, partition, &args, columns.place.clone())?;
                self.outputs.insert((partition, Vec::new()), output);
            }
            return Ok(());
        };
        // Splits first: they are what the end waits for.
        let chunks = look.chunks(futures, &columns)?;
        let mut rest = columns.partitions.clone().collect::<std::collections::BTreeSet<_>>();
        for (partition, bytes) in large {
            let target = (partition, Vec::new());
            if let Some(division) = divide(futures, job, ranges, plan, &look, &chunks, target, partition, bytes).await?
            {
                rest.remove(&partition);
                self.divisions.push(division);
            }
        }
        for partition in rest {
            let args: Vec<Arg> = chunks.iter().map(|chunk| chunk.part(partition)).collect();
            let output = job.reduce(futures, partition, &args, columns.place.clone())?;
            self.outputs.insert((partition, Vec::new()), output);
        }
        Ok(())
    }

    /// Waits for what is being divided, and submits the rest; all outputs in order of keys.
    pub(super) async fn finish(
        mut self,
        futures: &Futures,
        job: &impl Job,
        plan: &Plan,
    ) -> Result<Vec<ObjectRef>, ShuffleError> {
        while let Some(ranges) = job.key_ranges()
            && !self.divisions.is_empty()
        {
            for division in std::mem::take(&mut self.divisions) {
                self.go_on(futures, job, ranges, plan, division).await?;
            }
        }
        Ok(self.outputs.into_values().collect())
    }

    /// Submits the reduces of the ranges of a partition, or divides them further.
    async fn go_on(
        &mut self,
        futures: &Futures,
        job: &impl Job,
        ranges: &dyn KeyRanges,
        plan: &Plan,
        Division { target: (partition, range), cuts, pieces }: Division,
    ) -> Result<(), ShuffleError> {
        let columns = Columns {
            partitions: 0..cuts.partitions() as u32,
            edge: edge(job, &format!("split[{}]", name(partition, &range)), "reduce"),
            blocks: pieces,
            ..Columns::default()
        };
        let look = Look::at(futures, &columns).await?;
        let sizes = look.sizes(futures, plan, columns.partitions.clone()).await?;
        let chunks = look.chunks(futures, &columns)?;
        for (index, bytes) in columns.partitions.clone().zip(sizes) {
            let inner = [&range[..], &[index]].concat();
            let too_large = bytes > plan.range_max_bytes && inner.len() < DIVISIONS_MAX;
            if too_large && !cuts.is_one_key(index as usize) {
                let target = (partition, inner.clone());
                if let Some(division) = divide(futures, job, ranges, plan, &look, &chunks, target, index, bytes).await?
                {
                    self.divisions.push(division);
                    continue;
                }
            }
            let args: Vec<Arg> = chunks.iter().map(|chunk| chunk.part(index)).collect();
            let output = ranges.reduce_range(futures, partition, &inner, &args, Place::Anywhere)?;
            self.outputs.insert((partition, inner), output);
        }
        Ok(())
    }
}

/// "7", or "7.0.3": the fourth range of the first range of partition 7.
fn name(partition: u32, range: &[u32]) -> String {
    std::iter::once(&partition).chain(range).map(u32::to_string).collect::<Vec<_>>().join(".")
}

/// Draws keys of part `part` of all columns and splits it at those; `None`: it cannot be divided.
#[expect(clippy::too_many_arguments, reason = "what a division is made of; a struct of them would be used once")]
async fn divide(
    futures: &Futures,
    job: &impl Job,
    ranges: &dyn KeyRanges,
    plan: &Plan,
    look: &Look,
    chunks: &[Chunk],
    target: Target,
    part: u32,
    bytes: u64,
) -> Result<Option<Division>, ShuffleError> {
    let count = plan.ranges_of(bytes);
    let sample = look.sample(futures, ranges, part, count * KEYS_PER_RANGE, bytes).await?;
    let cuts = Cuts::dividing(sample, count as usize);
    if cuts.partitions() < 2 {
        return Ok(None);
    }
    futures.plan_stage(&format!("{}.split", job.name()), chunks.len() as u64, bytes)?;
    let wire = futures.put_value(&cuts)?;
    let split = |chunk: &Chunk| {
        let place = chunk.node.clone().map_or(Place::Anywhere, |node| Place::Node { node, soft: true });
        ranges.split(futures, chunk.part(part), &wire, place)
    };
    let pieces = chunks.iter().map(split).collect::<Result<_, _>>()?;
    Ok(Some(Division { target, cuts, pieces }))
}

/// Objects of an exchange that are read together.
#[derive(Debug)]
struct Chunk {
    set: ObjectSet,
    /// The partition that part 0 is of.
    first: u32,
    /// Where they are, if that is one place.
    node: Option<NodeId>,
}

impl Chunk {
    fn part(&self, partition: u32) -> Arg {
        self.set.part(partition - self.first)
    }
}

/// Objects by where they are, to look at their directories there: in sets that are no exchanges.
#[derive(Debug, Default)]
struct Look {
    /// Blocks of the columns, by node; `None`: those that have no bytes.
    blocks: BTreeMap<Option<NodeId>, Vec<ObjectRef>>,
    /// Sets of objects of one node, with the partition that their part 0 is of.
    seen: Vec<Chunk>,
    /// Whether some have parts of other partitions, too.
    unmerged: bool,
}

impl Look {
    /// Looks where all objects are, when they exist.
    async fn at(futures: &Futures, columns: &Columns) -> Result<Self, ShuffleError> {
        futures.wait_all(&columns.blocks).await?;
        let mut look = Self { blocks: by_node(futures, &columns.blocks).await?, ..Self::default() };
        let mut unmerged = BTreeMap::<_, Vec<_>>::new();
        for (_, blocks) in &columns.unmerged {
            for (node, blocks) in by_node(futures, blocks).await? {
                unmerged.entry(node).or_default().extend(blocks);
            }
        }
        let per_task = (SIZES_PER_TASK / columns.partitions.len().max(1)).max(1);
        let mut seen = Vec::new();
        for (first, by_node) in [(columns.partitions.start, &look.blocks), (0, &unmerged)] {
            for (node, blocks) in by_node.iter().filter(|(node, _)| node.is_some()) {
                for blocks in blocks.chunks(per_task) {
                    seen.push(Chunk { set: futures.set(blocks)?, first, node: node.clone() });
                }
            }
        }
        (look.seen, look.unmerged) = (seen, !unmerged.is_empty());
        Ok(look)
    }

    /// The bytes of each partition.
    async fn sizes(&self, futures: &Futures, plan: &Plan, partitions: Range<u32>) -> Result<Vec<u64>, ShuffleError> {
        let mut bytes = vec![0; partitions.len()];
        if !self.may_be_large(futures, plan).await? {
            return Ok(bytes);
        }
        let look = |chunk: &Chunk| {
            let parts = partitions.start - chunk.first..partitions.end - chunk.first;
            let node = chunk.node.clone().expect("only what is somewhere is looked at");
            let options = TaskOptions { place: Place::Node { node, soft: false }, ..TaskOptions::default() };
            futures.submit_with(add_sizes, &parts.len(), &[chunk.set.parts(parts.clone())], options)
        };
        let looks = self.seen.iter().map(look).collect::<Result<Vec<_>, _>>()?;
        for look in &looks {
            let seen: Vec<u64> = futures.get_value(look).await?;
            bytes.iter_mut().zip(seen).for_each(|(bytes, seen)| *bytes += seen);
        }
        Ok(bytes)
    }

    /// Whether all of it together is more than one range may be: else nobody has to be asked.
    async fn may_be_large(&self, futures: &Futures, plan: &Plan) -> Result<bool, ShuffleError> {
        if self.unmerged {
            return Ok(true);
        }
        let mut bytes = 0;
        for block in self.blocks.values().flatten() {
            bytes += futures.stat(block).await?.bytes;
        }
        Ok(bytes > plan.range_max_bytes)
    }

    /// Keys of `partition`, which has so many bytes: of each object as many as it has of them.
    async fn sample(
        &self,
        futures: &Futures,
        ranges: &dyn KeyRanges,
        partition: u32,
        keys: u32,
        bytes: u64,
    ) -> Result<Vec<Vec<u8>>, ShuffleError> {
        let mut looks = Vec::with_capacity(self.seen.len());
        for chunk in &self.seen {
            let node = chunk.node.as_ref().expect("only what is somewhere is looked at");
            let draw = Draw { keys, of_bytes: bytes, seed: futures.random() };
            looks.push(ranges.sample(futures, chunk.part(partition), draw, node)?);
        }
        let mut sample = Vec::new();
        for look in &looks {
            let drawn: Vec<Key> = futures.get_value(look).await?;
            sample.extend(drawn.into_iter().map(|key| key.0));
        }
        Ok(sample)
    }

    /// Declares who reads what: as many sets as splits can work on side by side.
    fn chunks(&self, futures: &Futures, columns: &Columns) -> Result<Vec<Chunk>, ShuffleError> {
        let first = columns.partitions.start;
        let parts = columns.partitions.end - first;
        let nodes = futures.nodes();
        let fair = (SPLITS_MAX / self.blocks.len().max(1)).max(1);
        let mut chunks = Vec::new();
        for (node, blocks) in &self.blocks {
            let shape = nodes.iter().find(|shape| Some(&shape.node) == node.as_ref());
            let executors = shape.map_or(1, |shape| (shape.cpu_milli / 1000).max(1)) as usize;
            for blocks in blocks.chunks(blocks.len().div_ceil(executors.min(fair)).max(1)) {
                let set = futures.exchange(&columns.edge, blocks, parts, 1)?;
                chunks.push(Chunk { set, first, node: node.clone() });
            }
        }
        let unmerged = columns.unmerged.iter().map(|(set, _)| Chunk { set: set.clone(), first: 0, node: None });
        chunks.extend(unmerged);
        Ok(chunks)
    }
}

async fn by_node(
    futures: &Futures,
    blocks: &[ObjectRef],
) -> Result<BTreeMap<Option<NodeId>, Vec<ObjectRef>>, ShuffleError> {
    let mut by_node = BTreeMap::<_, Vec<_>>::new();
    for block in blocks {
        // The Owner says where an object is that has no bytes, but it is nowhere.
        let bytes = futures.stat(block).await?.bytes;
        let node = if bytes == 0 { None } else { futures.locations(block).await?.pop() };
        by_node.entry(node).or_default().push(block.clone());
    }
    if by_node.len() > 1
        && let Some(empty) = by_node.remove(&None)
        && let Some(some) = by_node.values_mut().next()
    {
        some.extend(empty);
    }
    Ok(by_node)
}

/// Adds up the bytes of each of so many parts, over all objects of the only argument.
#[task(name = "shuffle.sizes", arguments = [in_place], deterministic = true)]
fn add_sizes(context: &mut TaskContext<'_>, parts: usize) -> Result<Vec<u64>, TaskError> {
    let mut bytes = vec![0; parts];
    for object in context.in_place(0) {
        context.check_cancelled()?;
        bytes.iter_mut().zip(object.parts()).for_each(|(bytes, part)| *bytes += part.bytes);
    }
    Ok(bytes)
}
