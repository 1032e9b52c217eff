//! Pre-shuffle merge (Riffle, Zhang et al., EuroSys 2018; Exoshuffle, section 3.1.1): the outputs of F maps of a node are
//! merged there before anybody reads them, so that reduces read fewer and larger blocks.
//!
//! With M maps, R partitions and F = `plan.merge_factor`: M / F merged objects of R parts, so M R / F blocks of F D / (M R)
//! bytes are read over the network or from disk; D is read and written once more in memory. Peak store bytes are
//! min(D + running tasks, budget), disk bytes D - budget written and read once while map outputs are merged before they
//! are spilled, up to D more where they are not.

use std::collections::BTreeMap;

use exobus_actors::futures::{Edge, Futures, ObjectRef};
use exobus_actors::ids::NodeId;
use exobus_actors::task::{EdgeShape, Place};

use super::{Columns, Maps, Reduces, Shuffled, name};
use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;

/// Runs it.
///
/// # Errors
/// A task cannot be submitted or fails.
pub async fn run(futures: &Futures, job: &impl Job, maps: usize, plan: &Plan) -> Result<Shuffled, ShuffleError> {
    let factor = plan.merge_factor.max(1);
    futures.plan_stage(&format!("{}.merge", job.name()), maps.div_ceil(factor) as u64, plan.input_bytes)?;
    let mut running = Maps::new(plan.maps_in_flight);
    let mapped = futures.edge(EdgeShape::new(name(job, "map", "merge"), plan.partitions))?;
    let merged = futures.edge(EdgeShape::new(name(job, "merge", "reduce"), plan.partitions))?;
    let mut merger = Merger { futures, job, plan, waiting: BTreeMap::new(), mapped, merged };
    for index in 0..maps {
        for block in running.admit(futures).await? {
            merger.add(block).await?;
        }
        merger.mapped.join(&running.submit(futures, job, index).await?)?;
    }
    while let Some(block) = running.next(futures).await? {
        merger.add(block).await?;
    }
    let mut reduces = Reduces::new(futures, job, plan);
    reduces.add(vec![Columns::of(0..plan.partitions, merger.finish()?)]).await?;
    let outputs = reduces.finish().await?;
    Ok(Shuffled { outputs, mapped: running.finish(futures).await?, kept: Vec::new() })
}

/// Map outputs that wait, by node, for enough others to be merged with.
struct Merger<'a, J> {
    futures: &'a Futures,
    job: &'a J,
    plan: &'a Plan,
    waiting: BTreeMap<Option<NodeId>, Vec<ObjectRef>>,
    mapped: Edge,
    merged: Edge,
}

impl<J: Job> Merger<'_, J> {
    async fn add(&mut self, block: ObjectRef) -> Result<(), ShuffleError> {
        let node = self.futures.locations(&block).await?.pop();
        let waiting = self.waiting.entry(node.clone()).or_default();
        waiting.push(block);
        if waiting.len() == self.plan.merge_factor.max(1) {
            let blocks = std::mem::take(waiting);
            self.merge(node, &blocks)?;
        }
        Ok(())
    }

    fn merge(&mut self, node: Option<NodeId>, blocks: &[ObjectRef]) -> Result<(), ShuffleError> {
        let set = self.mapped.of(blocks)?;
        let place = node.map_or(Place::Anywhere, |node| Place::Node { node, soft: true });
        let merged = self.job.merge(self.futures, &[set.arg()], &[self.plan.partitions], place)?;
        Ok(self.merged.join_all(&merged)?)
    }

    /// Merges what is left, and gives the edge of all merged objects.
    fn finish(mut self) -> Result<Edge, ShuffleError> {
        for (node, blocks) in std::mem::take(&mut self.waiting) {
            if !blocks.is_empty() {
                self.merge(node, &blocks)?;
            }
        }
        Ok(self.merged)
    }
}
