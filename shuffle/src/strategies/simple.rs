//! Simple shuffle: every reduce pulls its part of every map output (Exoshuffle, section 3.1; the shuffle of MapReduce).
//!
//! With M maps and R partitions: M objects of R parts each, so M x R parts are read, each of D / (M R) bytes. All of D is
//! stored between the two phases, in memory as far as it goes, the rest on disk: peak store bytes are
//! min(D + running tasks, budget), disk bytes D - budget written and read once.

use exobus_actors::futures::{Futures, Window};
use exobus_actors::task::{Output, Place};

use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;
use crate::strategies::Shuffled;

/// Runs it.
///
/// # Errors
/// A task cannot be submitted or fails.
pub async fn run(futures: &Futures, job: &impl Job, maps: usize, plan: &Plan) -> Result<Shuffled, ShuffleError> {
    let mut window = Window::new(plan.maps_in_flight);
    let mut outputs = Vec::with_capacity(maps);
    for index in 0..maps {
        window.admit(futures).await?;
        let output = job.map(futures, index, Place::Anywhere)?;
        window.track(futures, &output)?;
        outputs.push(output);
    }
    // From here on the set holds the map outputs; each column is freed as its reduce completes.
    let blocks = futures.exchange(job.exchange(), &outputs, plan.partitions, 1)?;
    let reduce = |partition| job.reduce(futures, partition, blocks.part(partition), Place::Anywhere);
    let reduces = (0..plan.partitions).map(reduce).collect::<Result<_, _>>()?;
    let mut mapped = Output::default();
    for output in outputs {
        mapped.add(futures.stat(&output).await?);
    }
    Ok(Shuffled { outputs: reduces, mapped })
}
