//! Two-stage shuffle, push* (Exoshuffle, section 3.1.3; Exoshuffle-CloudSort): maps run in rounds, the outputs of a round are
//! merged where their reduces will run while the maps of the next round run, and are let go at once. Only merged blocks
//! are spilled.
//!
//! With M maps in T rounds and G groups of partitions: T x G merges, each of the R / G parts of its group from the M / T maps
//! of a round; a reduce reads T blocks of D / (T R) bytes, all of them on its own node. A merge makes D / (T G) bytes in pieces
//! of P = `plan.piece_bytes`, a few partitions each, and holds one. Map outputs live for one round: of peak store bytes
//! min(D, budget), 2 D / T are the round that is mapped and the one that is merged; what cannot be spilled is what E running
//! tasks hold, E (D / (T G) + P) bytes where they are merges, which read and write. Disk bytes are D - budget written and
//! read once, in blocks M / T times those of `simple`. Where the plan keeps map outputs, all of them stay until the end, as
//! with `push`.

use exobus_actors::futures::Futures;

use super::{Maps, Merges, Shuffled, groups};
use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;

/// Runs it.
///
/// # Errors
/// A task cannot be submitted or fails.
pub async fn run(futures: &Futures, job: &impl Job, maps: usize, plan: &Plan) -> Result<Shuffled, ShuffleError> {
    let round_maps = plan.maps_per_round.max(1);
    let groups = groups(&futures.nodes(), plan, round_maps.min(maps));
    // The merges of one round: those of the next are submitted as these complete.
    let in_flight = groups.len();
    let mut merges = Merges::plan(futures, job, plan, groups, maps.div_ceil(round_maps), in_flight)?;
    let mut running = Maps::new(plan.maps_in_flight);
    for first in (0..maps).step_by(round_maps) {
        let mut blocks = Vec::with_capacity(round_maps);
        for index in first..maps.min(first + round_maps) {
            let block = running.submit(futures, job, index).await?;
            merges.join(&block)?;
            blocks.push(block);
        }
        merges.submit(futures, job, plan, blocks).await?;
    }
    let (outputs, kept) = merges.reduce(futures, job, plan).await?;
    Ok(Shuffled { outputs, mapped: running.finish(futures).await?, kept })
}
