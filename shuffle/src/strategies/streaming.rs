//! Streaming shuffle (Exoshuffle, section 3.1.4): after each round of maps, every partition folds what the round brought into
//! its state, so that there is an answer over the input so far after every round.
//!
//! With M maps in T rounds: T x R folds, each reading M / T blocks of D / (M R) bytes and the state. The states together are
//! as large as what was folded into them: where that is all of the rows (a sort), they are written T / 2 times over and
//! another strategy does better; where rows are combined (an aggregation), the states stay small. Peak store bytes are
//! min(states + 3 D / T, budget).

use exobus_actors::futures::{Futures, ObjectRef, ObjectSet};
use exobus_actors::task::{EdgeShape, JobError, Place};

use super::{Columns, Group, Maps, Reduces, Shuffled, groups, name};
use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;

/// Runs it.
///
/// # Errors
/// A task cannot be submitted or fails.
pub async fn run(futures: &Futures, job: &impl Job, maps: usize, plan: &Plan) -> Result<Shuffled, ShuffleError> {
    rounds(futures, job, maps, plan, async |_| Ok(())).await
}

/// What there is after a round.
#[derive(Debug)]
pub struct Round<'a> {
    futures: &'a Futures,
    job: &'static str,
    maps: usize,
    states: &'a [ObjectRef],
}

impl Round<'_> {
    /// How many maps are in the states.
    pub fn maps(&self) -> usize {
        self.maps
    }

    /// The state of every partition, which may not exist yet: to be waited for, asked about, or brought to the program. The next fold
    /// frees what it has read, so tasks do not read these: [`read_by`](Self::read_by) is for them.
    pub fn states(&self) -> &[ObjectRef] {
        self.states
    }

    /// Declares that `readers` tasks read the state of each partition beside the next fold, or beside the reduce after the last round,
    /// and gives what they read: a set of each state, in order of partitions, [`arg`](ObjectSet::arg) of which is the argument. A state stays
    /// until all of them have read it, however late they are submitted as long as its set is held, and is not made again for them.
    /// `reader` is the stage that they are of; an edge of that name counts what they read, and the job fails where it is less or more.
    ///
    /// ```ignore
    /// streaming::rounds(futures, job, maps, plan, async |round| {
    ///     for state in round.read_by("sum.estimate", 1)? {
    ///         estimates.push(futures.submit(estimate, &round.maps(), &[state.arg()])?);
    ///     }
    ///     Ok(())
    /// })
    /// ```
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn read_by(&self, reader: &str, readers: u32) -> Result<Vec<ObjectSet>, JobError> {
        let name = format!("{}.fold -> {reader}", self.job);
        let edge = self.futures.edge(EdgeShape { readers, ..EdgeShape::new(name, 1) })?;
        edge.join_all(self.states)?;
        self.states.iter().map(|state| edge.of(std::slice::from_ref(state))).collect()
    }
}

/// Runs it, and calls `look` after each round.
///
/// # Errors
/// A task cannot be submitted or fails; those of `look`.
pub async fn rounds(
    futures: &Futures,
    job: &impl Job,
    maps: usize,
    plan: &Plan,
    mut look: impl AsyncFnMut(Round<'_>) -> Result<(), ShuffleError>,
) -> Result<Shuffled, ShuffleError> {
    let round_maps = plan.maps_per_round.max(1);
    let folds = maps.div_ceil(round_maps) as u64 * u64::from(plan.partitions);
    futures.plan_stage(&format!("{}.merge", job.name()), folds, plan.input_bytes)?;

    let places: Vec<Place> = groups(&futures.nodes(), plan, round_maps)
        .into_iter()
        .flat_map(|Group { parts, place, .. }| parts.map(move |_| place.clone()))
        .collect();
    let mut running = Maps::new(plan.maps_in_flight);
    let mapped = futures.edge(EdgeShape::new(name(job, "map", "fold"), plan.partitions))?;
    let folded = futures.edge(EdgeShape::new(name(job, "fold", "fold"), 1))?;
    let mut states: Vec<ObjectRef> = Vec::new();
    // Without maps there are states, too: of nothing.
    for first in (0..maps.max(1)).step_by(round_maps) {
        let mut blocks = Vec::with_capacity(round_maps);
        for index in first..maps.min(first + round_maps) {
            let block = running.submit(futures, job, index).await?;
            mapped.join(&block)?;
            blocks.push(block);
        }
        let set = mapped.of(&blocks)?;
        drop(blocks);
        // A fold needs the state of the round before: waiting for those bounds what is in flight.
        futures.wait_all(&states).await?;
        let mut before = std::mem::take(&mut states).into_iter();
        for (partition, place) in (0..plan.partitions).zip(&places) {
            let state = before.next().map(|state| {
                folded.join(&state)?;
                folded.of(&[state])
            });
            let state = state.transpose()?;
            let mut columns = vec![set.part(partition)];
            columns.extend(state.as_ref().map(|state| state.part(0)));
            states.extend(job.merge(futures, &columns, &[1], place.clone())?);
        }
        let maps = maps.min(first + round_maps);
        look(Round { futures, job: job.name(), maps, states: &states }).await?;
    }
    let columns = (0..plan.partitions).zip(states).zip(places).map(|((partition, state), place)| {
        let edge = futures.edge(EdgeShape::new(name(job, "fold", "reduce"), 1))?;
        edge.join(&state)?;
        Ok(Columns { place, ..Columns::of(partition..partition + 1, edge) })
    });
    let columns = columns.collect::<Result<_, JobError>>()?;
    let mut reduces = Reduces::new(futures, job, plan);
    reduces.add(columns).await?;
    let outputs = reduces.finish().await?;
    Ok(Shuffled { outputs, mapped: running.finish(futures).await?, kept: Vec::new() })
}
