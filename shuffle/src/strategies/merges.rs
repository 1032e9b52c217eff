//! Merges group by group, and the reduces that read them where they were made: what `push` and `two_stage` share.
//!
//! A merge is a generator (Exoshuffle, section 3.1.3): it writes the partitions of its group piece by piece, an output each,
//! and holds the one that it writes; the store may spill what is sealed. How many pieces there are says
//! [`Plan::pieces_of`](crate::Plan::pieces_of). Outputs are announced together when the merge is done, so that it is made
//! again, copied or given up as a whole.
//!
//! Where map outputs are kept, merging is best effort (Magnet, section 3.3): a merge that takes too long is given up, and
//! reduces read its inputs as they are. What is too long the Owner says, from the times of the other merges
//! ([`Window::track_best_effort`]). The ledger balances all the same: a part of a map output is read once, by a merge
//! that counts or by a reduce.

use std::collections::BTreeMap;
use std::ops::Range;

use exobus_actors::futures::{Came, Edge, Futures, ObjectRef, ObjectSet, Window};
use exobus_actors::ids::ObjectId;
use exobus_actors::task::EdgeShape;

use super::{Columns, Group, Reduces, name};
use crate::error::ShuffleError;
use crate::job::Job;
use crate::plan::Plan;

/// Merges that run, and what has come of those that are over.
#[derive(Debug)]
pub(super) struct Merges {
    groups: Vec<Group>,
    window: Window,
    in_flight: usize,
    /// What each merge makes, a piece each, by group.
    merged: Vec<Vec<Vec<ObjectRef>>>,
    /// Where map outputs are kept: what each batch of merges reads.
    batches: Vec<(ObjectSet, Vec<ObjectRef>)>,
    /// Group and batch of each merge that may have to be done without, by its first output, which stands for all of them.
    running: BTreeMap<ObjectId, (usize, usize)>,
    /// From the maps to the merges, and to the reduces that do without these.
    mapped: Edge,
    /// Batches that were not merged, by group.
    unmerged: Vec<Vec<usize>>,
}

impl Merges {
    /// `times` that each group is merged, at most `in_flight` merges at a time.
    pub(super) fn plan(
        futures: &Futures,
        job: &impl Job,
        plan: &Plan,
        groups: Vec<Group>,
        times: usize,
        in_flight: usize,
    ) -> Result<Self, ShuffleError> {
        let merges = (times * groups.len()) as u64;
        futures.plan_stage(&format!("{}.merge", job.name()), merges, plan.input_bytes)?;
        let keep = plan.keep_map_outputs;
        let mapped = futures.edge(EdgeShape { keep, ..EdgeShape::new(name(job, "map", "merge"), plan.partitions) })?;
        Ok(Self {
            mapped,
            window: Window::new(in_flight),
            in_flight: in_flight.max(1),
            merged: vec![Vec::new(); groups.len()],
            batches: Vec::new(),
            running: BTreeMap::new(),
            unmerged: vec![Vec::new(); groups.len()],
            groups,
        })
    }

    /// This map output is going to be merged.
    pub(super) fn join(&self, block: &ObjectRef) -> Result<(), ShuffleError> {
        Ok(self.mapped.join(block)?)
    }

    /// Submits a merge of each group's parts of the map outputs `blocks`, as there is room for it.
    pub(super) async fn submit(
        &mut self,
        futures: &Futures,
        job: &impl Job,
        plan: &Plan,
        blocks: Vec<ObjectRef>,
    ) -> Result<(), ShuffleError> {
        self.submit_of(0..self.groups.len(), futures, job, plan, blocks).await
    }

    /// As `submit`, of some of the groups: where map outputs are kept, other groups may be merged in other batches.
    pub(super) async fn submit_of(
        &mut self,
        groups: Range<usize>,
        futures: &Futures,
        job: &impl Job,
        plan: &Plan,
        blocks: Vec<ObjectRef>,
    ) -> Result<(), ShuffleError> {
        // Where they are not kept, the set holds them from here on, until the merges have read them.
        let set = self.mapped.of(&blocks)?;
        if plan.keep_map_outputs {
            self.batches.push((set.clone(), blocks));
        }
        for index in groups {
            while self.window.len() >= self.in_flight {
                self.next(futures).await?;
            }
            let Group { parts, pieces, place } = &self.groups[index];
            let pieces: Vec<u32> = pieces.iter().map(|piece| piece.end - piece.start).collect();
            let outputs = job.merge(futures, &[set.parts(parts.clone())], &pieces, place.clone())?;
            let first = &outputs[0];
            if self.batches.is_empty() {
                self.window.track(futures, first)?;
            } else {
                self.window.track_best_effort(futures, first)?;
                self.running.insert(first.id(), (index, self.batches.len() - 1));
            }
            self.merged[index].push(outputs);
        }
        Ok(())
    }

    /// Waits until a merge has ended or was given up.
    async fn next(&mut self, futures: &Futures) -> Result<(), ShuffleError> {
        let Some(came) = self.window.next_came(futures).await? else { return Ok(()) };
        let merge = self.running.remove(&came.object().id());
        if let (Came::GivenUp(first), Some((group, batch))) = (&came, merge) {
            self.merged[group].retain(|outputs| outputs[0].id() != first.id());
            self.unmerged[group].push(batch);
        }
        Ok(())
    }

    /// Submits the reduces of all groups, each when it is known what was merged; their outputs in order of partitions, and
    /// the map outputs that are kept.
    pub(super) async fn reduce(
        mut self,
        futures: &Futures,
        job: &impl Job,
        plan: &Plan,
    ) -> Result<(Vec<ObjectRef>, Vec<ObjectRef>), ShuffleError> {
        let mut reduces = Reduces::new(futures, job, plan);
        let mut left: Vec<usize> = (0..self.groups.len()).collect();
        while !left.is_empty() {
            let known = |group: &usize| self.running.values().all(|(of, _)| of != group);
            let (ended, running): (Vec<_>, Vec<_>) = left.into_iter().partition(known);
            let mut columns = Vec::new();
            for group in &ended {
                columns.extend(self.columns(futures, job, *group)?);
            }
            left = running;
            if columns.is_empty() {
                self.next(futures).await?;
            } else {
                reduces.add(columns).await?;
            }
        }
        let outputs = reduces.finish().await?;
        Ok((outputs, self.batches.into_iter().flat_map(|(_, blocks)| blocks).collect()))
    }

    /// What the reduces of a group read, piece by piece.
    fn columns(&mut self, futures: &Futures, job: &impl Job, group: usize) -> Result<Vec<Columns>, ShuffleError> {
        let Group { pieces, place, .. } = &self.groups[group];
        let unmerged = self.unmerged[group].iter().map(|batch| self.batches[*batch].clone());
        let unmerged: Vec<_> = unmerged.collect();
        let mut merged: Vec<_> = std::mem::take(&mut self.merged[group]).into_iter().map(Vec::into_iter).collect();
        let columns = |partitions: &Range<u32>| {
            let name = name(job, &format!("merge[{partitions:?}]"), "reduce");
            let edge = futures.edge(EdgeShape::new(name, partitions.end - partitions.start))?;
            merged.iter_mut().filter_map(Iterator::next).try_for_each(|block| edge.join(&block))?;
            Ok(Columns { unmerged: unmerged.clone(), place: place.clone(), ..Columns::of(partitions.clone(), edge) })
        };
        pieces.iter().map(columns).collect()
    }
}
