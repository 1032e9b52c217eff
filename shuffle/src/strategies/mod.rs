//! Strategies: when and where the tasks of a shuffle run. One short file each.

use std::ops::Range;

use exobus_actors::futures::{Futures, NodeShape, ObjectRef, Window};
use exobus_actors::task::{Output, Place};
use serde::{Deserialize, Serialize};

use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;
use merges::Merges;
use reduces::{Columns, Reduces};

pub mod auto;
mod look;
mod merges;
pub mod push;
mod reduces;
pub mod riffle;
pub mod simple;
pub mod streaming;
pub mod two_stage;

/// What a strategy leaves.
#[derive(Debug)]
pub struct Shuffled {
    /// The outputs of the reduces, in order of partitions, and of the ranges of those that were divided; they may not exist
    /// yet.
    pub outputs: Vec<ObjectRef>,
    /// What all maps sealed together, counted from what they read.
    pub mapped: Output,
    /// What is held until the outputs exist, so that losing something later costs less.
    pub kept: Vec<ObjectRef>,
}

/// Which strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Reduces pull their part of every map output.
    Simple,
    /// Map outputs of a node are merged there first.
    Riffle,
    /// Parts are pushed to the nodes of their reduces as map outputs come, and merged there; map outputs are kept.
    Push,
    /// Rounds of maps and merges overlap; only merged blocks are kept.
    TwoStage,
    /// Every partition folds round after round into a state.
    Streaming,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Simple, Self::Riffle, Self::Push, Self::TwoStage, Self::Streaming];

    /// The name as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Riffle => "riffle",
            Self::Push => "push",
            Self::TwoStage => "two_stage",
            Self::Streaming => "streaming",
        }
    }

    /// Runs `job` over `maps` inputs; returns when all maps have ended.
    ///
    /// # Errors
    /// A task cannot be submitted or fails.
    pub async fn run(
        self,
        futures: &Futures,
        job: &impl Job,
        maps: usize,
        plan: &Plan,
    ) -> Result<Shuffled, ShuffleError> {
        match self {
            Self::Simple => simple::run(futures, job, maps, plan).await,
            Self::Riffle => riffle::run(futures, job, maps, plan).await,
            Self::Push => push::run(futures, job, maps, plan).await,
            Self::TwoStage => two_stage::run(futures, job, maps, plan).await,
            Self::Streaming => streaming::run(futures, job, maps, plan).await,
        }
    }
}

/// The name of an edge: "sort.map -> sort.reduce".
fn name(job: &impl Job, from: &str, to: &str) -> String {
    format!("{name}.{from} -> {name}.{to}", name = job.name())
}

/// Consecutive partitions that are merged, and then reduced, at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    parts: Range<u32>,
    /// The same, as a merge writes them: an output for each piece.
    pieces: Vec<Range<u32>>,
    place: Place,
}

/// Divides the partitions among the nodes, and those of a node into `plan.groups_per_node` groups, as evenly as it goes; each
/// of them into as many pieces as are due where `maps` maps are merged at a time.
fn groups(nodes: &[NodeShape], plan: &Plan, maps: usize) -> Vec<Group> {
    let per_node = u64::from(plan.groups_per_node.max(1));
    let count = (nodes.len().max(1) as u64 * per_node).min(u64::from(plan.partitions.max(1)));
    let group = |(index, parts): (u64, Range<u32>)| {
        let node = nodes.get((index * nodes.len() as u64 / count) as usize);
        let place = node.map_or(Place::Anywhere, |shape| Place::Node { node: shape.node.clone(), soft: true });
        let pieces = divide(parts.clone(), u64::from(plan.pieces_of(maps, parts.end - parts.start)));
        Group { pieces: pieces.collect(), parts, place }
    };
    (0..).zip(divide(0..plan.partitions, count)).map(group).collect()
}

/// Divides a range into so many, as evenly as it goes.
fn divide(range: Range<u32>, count: u64) -> impl Iterator<Item = Range<u32>> {
    let length = u64::from(range.end - range.start);
    let bound = move |index: u64| range.start + (index * length / count) as u32;
    (0..count).map(move |index| bound(index)..bound(index + 1))
}

/// The maps of a job: so many in flight, counted as they end.
#[derive(Debug)]
struct Maps {
    window: Window,
    limit: usize,
    mapped: Output,
}

impl Maps {
    fn new(limit: usize) -> Self {
        Self { window: Window::new(limit), limit: limit.max(1), mapped: Output::default() }
    }

    /// Waits until one more may run; the outputs of those that have ended, in the order in which they did.
    async fn admit(&mut self, futures: &Futures) -> Result<Vec<ObjectRef>, ShuffleError> {
        let mut ended = Vec::new();
        while self.window.len() >= self.limit {
            ended.extend(self.next(futures).await?);
        }
        Ok(ended)
    }

    /// Submits map `index` when it may run. Its output is counted when it exists, even if it is let go before.
    async fn submit(&mut self, futures: &Futures, job: &impl Job, index: usize) -> Result<ObjectRef, ShuffleError> {
        self.admit(futures).await?;
        let output = job.map(futures, index, Place::Anywhere)?;
        self.window.track(futures, &output)?;
        Ok(output)
    }

    /// The next output that exists; `None` when no map runs.
    async fn next(&mut self, futures: &Futures) -> Result<Option<ObjectRef>, ShuffleError> {
        let Some(output) = self.window.next(futures).await? else { return Ok(None) };
        self.mapped.add(futures.stat(&output).await?);
        Ok(Some(output))
    }

    /// Waits for all of them; what they made together.
    async fn finish(mut self, futures: &Futures) -> Result<Output, ShuffleError> {
        while self.next(futures).await?.is_some() {}
        Ok(self.mapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Sizes;

    fn nodes(count: usize) -> Vec<NodeShape> {
        let shape = |n| NodeShape {
            node: exobus_actors::ids::NodeId::new(&format!("n{n}")),
            cpu_milli: 2000,
            memory_bytes: 1 << 30,
        };
        (0..count).map(shape).collect()
    }

    #[test]
    fn groups_cover_every_partition_once_in_order_and_every_node_alike() {
        let sizes = Sizes { input_bytes: 10 << 30, nodes: 3, executors_per_node: 2, memory_bytes: 1 << 30 };
        for (count, partitions) in [(1, 1), (1, 80), (3, 1), (3, 2), (3, 80), (3, 4000)] {
            let plan = Plan::new(sizes, Some(partitions)).unwrap();
            let groups = groups(&nodes(count), &plan, plan.maps_per_round);
            let covered: Vec<u32> = groups.iter().flat_map(|group| group.parts.clone()).collect();
            assert_eq!(covered, (0..partitions).collect::<Vec<_>>());
            let at = |n: usize| groups.iter().filter(|group| group.place == groups[n].place).count();
            assert!(at(0).abs_diff(at(groups.len() - 1)) <= 1, "{groups:?}");
        }
    }

    #[test]
    fn the_pieces_of_a_group_cover_it_in_order_none_without_a_partition() {
        let sizes = Sizes { input_bytes: 10 << 30, nodes: 3, executors_per_node: 2, memory_bytes: 1 << 30 };
        for partitions in [1, 2, 80, 4000] {
            let plan = Plan::new(sizes, Some(partitions)).unwrap();
            for maps in [0, plan.merge_factor, plan.maps_per_round] {
                for Group { parts, pieces, .. } in groups(&nodes(3), &plan, maps) {
                    assert!(pieces.iter().all(|piece| !piece.is_empty()), "{pieces:?}");
                    assert_eq!(pieces.len(), plan.pieces_of(maps, parts.end - parts.start) as usize);
                    assert_eq!(pieces.into_iter().flatten().collect::<Vec<_>>(), parts.collect::<Vec<_>>());
                }
            }
        }
    }
}
