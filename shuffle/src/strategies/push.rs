//! Push-based shuffle (Magnet, Shen et al., VLDB 2020; Exoshuffle, section 3.1.2): as soon as F map outputs exist, their parts
//! go to the nodes of their reduces and are merged there, without rounds; the map outputs are kept until the end, so that a
//! merged block that is lost costs a merge and no map.
//!
//! With M maps, F = `plan.merge_factor` and G groups of partitions: M / F x G merges; a reduce reads M / F blocks of F D / (M R)
//! bytes, all of them on its own node. D is stored twice, as map outputs and as merged blocks: peak store bytes are
//! min(2 D + running tasks, budget), disk bytes 2 D - budget written, D - budget / 2 read. What `two_stage` spares by
//! letting map outputs go, this spends for cheap recovery.

use exobus_actors::futures::{Futures, ObjectRef, Window};

use super::{Group, Maps, Shuffled, edge, groups};
use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;

/// Runs it.
///
/// # Errors
/// A task cannot be submitted or fails.
pub async fn run(futures: &Futures, job: &impl Job, maps: usize, plan: &Plan) -> Result<Shuffled, ShuffleError> {
    let groups = groups(&futures.nodes(), plan);
    let factor = plan.merge_factor.max(1);
    let merges = maps.div_ceil(factor) * groups.len();
    futures.plan_stage(&format!("{}.merge", job.name()), merges as u64, plan.input_bytes)?;

    let mut running = Maps::new(plan.maps_in_flight);
    let mut merging = Window::new(groups.len() * 2);
    let mut merged: Vec<Vec<ObjectRef>> = vec![Vec::new(); groups.len()];
    let (mut kept, mut done) = (Vec::new(), Vec::new());
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
            let set = futures.exchange_kept(&edge(job, "map", "merge"), &blocks, plan.partitions, 1)?;
            kept.extend(blocks);
            for (Group { parts, place }, merged) in groups.iter().zip(&mut merged) {
                merging.admit(futures).await?;
                let output = job.merge(futures, &[set.parts(parts.clone())], parts.end - parts.start, place.clone())?;
                merging.track(futures, &output)?;
                merged.push(output);
            }
        }
        if last {
            break;
        }
    }
    let mut outputs = Vec::with_capacity(plan.partitions as usize);
    for (Group { parts, place }, merged) in groups.iter().zip(merged) {
        let edge = edge(job, &format!("merge[{parts:?}]"), "reduce");
        let set = futures.exchange(&edge, &merged, parts.end - parts.start, 1)?;
        for partition in parts.clone() {
            outputs.push(job.reduce(futures, partition, set.part(partition - parts.start), place.clone())?);
        }
    }
    Ok(Shuffled { outputs, mapped: running.finish(futures).await?, kept })
}
