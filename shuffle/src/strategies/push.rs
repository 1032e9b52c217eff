//! Push-based shuffle (Magnet, Shen et al., VLDB 2020; Exoshuffle, section 3.1.2): as soon as F map outputs exist, their parts
//! go to the nodes of their reduces and are merged there, without rounds; the map outputs are kept until the end, so that a
//! merged block that is lost costs a merge and no map. Merging is best effort: what is not merged in time is reduced as it is.
//!
//! With M maps, F = `plan.merge_factor` and G groups of partitions: M / F x G merges; a reduce reads M / F blocks of F D / (M R)
//! bytes, all of them on its own node. D is stored twice, as map outputs and as merged blocks: peak store bytes are
//! min(2 D + running tasks, budget), disk bytes 2 D - budget written, D - budget / 2 read. What `two_stage` spares by
//! letting map outputs go, this spends for cheap recovery.

use exobus_actors::futures::{Futures, ObjectRef};

use super::{Maps, Merges, Shuffled, groups};
use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;

/// Runs it.
///
/// # Errors
/// A task cannot be submitted or fails.
pub async fn run(futures: &Futures, job: &impl Job, maps: usize, plan: &Plan) -> Result<Shuffled, ShuffleError> {
    let plan = &Plan { keep_map_outputs: true, ..*plan };
    let groups = groups(&futures.nodes(), plan);
    let factor = plan.merge_factor.max(1);
    let in_flight = groups.len() * 2;
    let mut merges = Merges::plan(futures, job, plan, groups, maps.div_ceil(factor), in_flight)?;
    let mut running = Maps::new(plan.maps_in_flight);
    let mut done = Vec::new();
    for step in 0.. {
        // A map for each that is over, then what is over by itself.
        let over = if step < maps {
            let over = running.admit(futures).await?;
            running.submit(futures, job, step).await?;
            over
        } else {
            running.next(futures).await?.into_iter().collect()
        };
        let last = step >= maps && over.is_empty();
        done.extend(over);
        while done.len() >= factor || (last && !done.is_empty()) {
            let blocks: Vec<ObjectRef> = done.drain(..factor.min(done.len())).collect();
            merges.submit(futures, job, plan, blocks).await?;
        }
        if last {
            break;
        }
    }
    let (outputs, kept) = merges.reduce(futures, job, plan).await?;
    Ok(Shuffled { outputs, mapped: running.finish(futures).await?, kept })
}
