//! Simple shuffle: every reduce pulls its part of every map output (Exoshuffle, section 3.1; the shuffle of MapReduce).
//!
//! With M maps and R partitions: M objects of R parts each, so M x R blocks are read, each of D / (M R) bytes. All of D is
//! stored between the two phases, in memory as far as it goes, the rest on disk: peak store bytes are
//! min(D + running tasks, budget), disk bytes D - budget written and read once.

use exobus_actors::futures::Futures;
use exobus_actors::task::Place;

use super::{Maps, Shuffled, edge};
use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;

/// Runs it.
///
/// # Errors
/// A task cannot be submitted or fails.
pub async fn run(futures: &Futures, job: &impl Job, maps: usize, plan: &Plan) -> Result<Shuffled, ShuffleError> {
    let mut running = Maps::new(plan.maps_in_flight);
    let mut blocks = Vec::with_capacity(maps);
    for index in 0..maps {
        blocks.push(running.submit(futures, job, index).await?);
    }
    // The set holds the map outputs from here on; each column is freed as its reduce completes.
    let set = futures.exchange(&edge(job, "map", "reduce"), &blocks, plan.partitions, 1)?;
    drop(blocks);
    let reduce = |partition| job.reduce(futures, partition, set.part(partition), Place::Anywhere);
    let outputs = (0..plan.partitions).map(reduce).collect::<Result<_, _>>()?;
    Ok(Shuffled { outputs, mapped: running.finish(futures).await?, kept: Vec::new() })
}
