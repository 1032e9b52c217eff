//! Simple shuffle: every reduce pulls its part of every map output (Exoshuffle, section 3.1; the shuffle of MapReduce).
//!
//! With M maps and R partitions: M objects of R parts each, so M x R blocks are read, each of D / (M R) bytes. All of D is
//! stored between the two phases, in memory as far as it goes, the rest on disk: peak store bytes are
//! min(D + running tasks, budget), disk bytes D - budget written and read once.

use exobus_actors::futures::Futures;
use exobus_actors::task::EdgeShape;

use super::{Columns, Maps, Reduces, Shuffled, name};
use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;

/// Runs it.
///
/// # Errors
/// A task cannot be submitted or fails.
pub async fn run(futures: &Futures, job: &impl Job, maps: usize, plan: &Plan) -> Result<Shuffled, ShuffleError> {
    let mut running = Maps::new(plan.maps_in_flight);
    let edge = futures.edge(EdgeShape::new(name(job, "map", "reduce"), plan.partitions))?;
    for index in 0..maps {
        edge.join(&running.submit(futures, job, index).await?)?;
    }
    let mut reduces = Reduces::new(futures, job, plan);
    reduces.add(vec![Columns::of(0..plan.partitions, edge)]).await?;
    let outputs = reduces.finish().await?;
    Ok(Shuffled { outputs, mapped: running.finish(futures).await?, kept: Vec::new() })
}
