//! Push-based shuffle (Magnet, Shen et al., VLDB 2020; Exoshuffle, section 3.1.2): as soon as a map has ended, its parts go
//! to the nodes of their reduces. Each node says when the blocks there are to be merged: F of them, or at least F / 4 where
//! memory is short, with no regard to what other nodes do. The map outputs are kept until the end, so that a merged block
//! that is lost costs a merge and no map. Merging is best effort: what is not merged in time is reduced as it is.
//!
//! With M maps, F = `plan.merge_factor` and G groups of partitions: M / F x G merges (up to 4 times as many where memory is
//! short), each of which makes F D / (M G) bytes in pieces of P = `plan.piece_bytes` and holds one; a reduce reads M / F
//! blocks of F D / (M R) bytes, all of them on its own node. Of D, the share that is made on another node than its reduce's
//! moves once, ahead of the merges; in copies that are given up when memory is short, it moves again. D is stored twice, as
//! map outputs and as merged blocks: peak store bytes are min(2 D + running tasks, budget), copies included, which take a
//! quarter of it at most; disk bytes 2 D - budget written, D - budget / 2 read. What `two_stage` spares by letting map
//! outputs go, this spends so that what is lost with a node costs the merges that it held, and of the maps only its own: in
//! `two_stage`, a merge that is made again makes all maps of its round again.

use std::ops::Range;

use exobus_actors::futures::{Fold, Futures, Pushes};

use super::{Group, Maps, Merges, Shuffled, groups};
use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;

/// Runs it.
///
/// # Errors
/// A task cannot be submitted or fails.
pub async fn run(futures: &Futures, job: &impl Job, maps: usize, plan: &Plan) -> Result<Shuffled, ShuffleError> {
    let plan = &Plan { keep_map_outputs: true, ..*plan };
    let factor = plan.merge_factor.max(1);
    let groups = groups(&futures.nodes(), plan, factor.min(maps));
    let lanes = lanes(&groups);
    let ranges = |lane: &Range<usize>| {
        let groups = &groups[lane.clone()];
        (groups[0].place.clone(), groups.iter().map(|group| group.parts.clone()).collect())
    };
    let mut pushes = Pushes::open(futures, &lanes.iter().map(ranges).collect::<Vec<_>>(), factor)?;
    let (in_flight, planned) = (groups.len() * 2, maps.div_ceil(factor));
    let mut merges = Merges::plan(futures, job, plan, groups, planned, in_flight)?;
    let mut folds = vec![0; lanes.len()];
    let mut running = Maps::new(plan.maps_in_flight);
    for step in 0.. {
        // A map for each that is over, then what is over by itself.
        let over = if step < maps {
            let over = running.admit(futures).await?;
            merges.join(&running.submit(futures, job, step).await?)?;
            over
        } else {
            running.next(futures).await?.into_iter().collect()
        };
        let last = step >= maps && over.is_empty();
        for block in over {
            pushes.push(futures, &block)?;
        }
        for Fold { lane, blocks } in if last { pushes.rest() } else { pushes.due(futures)? } {
            merges.submit_of(lanes[lane].clone(), futures, job, plan, blocks).await?;
            folds[lane] += 1;
            if folds[lane] > planned {
                futures.plan_stage(&format!("{}.merge", job.name()), lanes[lane].len() as u64, 0)?;
            }
        }
        if last {
            break;
        }
    }
    let (outputs, kept) = merges.reduce(futures, job, plan).await?;
    Ok(Shuffled { outputs, mapped: running.finish(futures).await?, kept })
}

/// The groups of each node: they are folded together.
fn lanes(groups: &[Group]) -> Vec<Range<usize>> {
    let mut lanes: Vec<Range<usize>> = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        match lanes.last_mut() {
            Some(lane) if groups[lane.start].place == group.place => lane.end = index + 1,
            _ => lanes.push(index..index + 1),
        }
    }
    lanes
}
