//! Looking at what reduces are going to read, where it lies: sizes of partitions, and samples of keys.

use std::collections::BTreeMap;
use std::ops::Range;

use exobus_actors::futures::{Futures, ObjectRef, ObjectSet};
use exobus_actors::ids::NodeId;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{Arg, Place, TaskOptions};

use super::Columns;
use crate::error::ShuffleError;
use crate::job::{Draw, Key, KeyRanges};
use crate::plan::Plan;

/// Splits of a partition run side by side on so many executors at most: each is an argument of all reduces.
const SPLITS_MAX: usize = 64;
/// Directory entries that one task adds up.
const SIZES_PER_TASK: usize = 1 << 22;

/// Members of an edge that are read together.
#[derive(Debug)]
pub(super) struct Chunk {
    set: ObjectSet,
    /// The partition that part 0 is of.
    first: u32,
    /// Where they are, if that is one place.
    pub(super) node: Option<NodeId>,
}

impl Chunk {
    /// That partition of them as an argument.
    pub(super) fn part(&self, partition: u32) -> Arg {
        self.set.part(partition - self.first)
    }
}

/// Objects by where they are, to look at their directories there, which reads nothing of them: in sets that are of no edge.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Blocks of the columns, by node; `None`: those that have no bytes.
    blocks: BTreeMap<Option<NodeId>, Vec<ObjectRef>>,
    /// Sets of objects of one node, with the partition that their part 0 is of.
    seen: Vec<Chunk>,
    /// Whether some have parts of other partitions, too.
    unmerged: bool,
}

impl Look {
    /// Looks where all objects are, when they exist.
    pub(super) async fn at(futures: &Futures, columns: &Columns) -> Result<Self, ShuffleError> {
        let members = columns.edge.members();
        futures.wait_all(&members).await?;
        let mut look = Self { blocks: by_node(futures, &members).await?, ..Self::default() };
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
    pub(super) async fn sizes(
        &self,
        futures: &Futures,
        plan: &Plan,
        partitions: Range<u32>,
    ) -> Result<Vec<u64>, ShuffleError> {
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
    pub(super) async fn sample(
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
    pub(super) fn chunks(&self, futures: &Futures, columns: &Columns) -> Result<Vec<Chunk>, ShuffleError> {
        let first = columns.partitions.start;
        let nodes = futures.nodes();
        let fair = (SPLITS_MAX / self.blocks.len().max(1)).max(1);
        let mut chunks = Vec::new();
        for (node, blocks) in &self.blocks {
            let shape = nodes.iter().find(|shape| Some(&shape.node) == node.as_ref());
            let executors = shape.map_or(1, |shape| (shape.cpu_milli / 1000).max(1)) as usize;
            for blocks in blocks.chunks(blocks.len().div_ceil(executors.min(fair)).max(1)) {
                let set = columns.edge.of(blocks)?;
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
