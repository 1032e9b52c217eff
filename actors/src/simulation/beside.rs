//! An edge beside the one that a program is about: the same members, of which others read the first so many, and which ends by itself.

use super::dice::Dice;
use super::job::Job;
use super::program::Reduce;
use crate::futures::{Edge, Futures, ObjectRef};
use crate::task::{EdgeShape, JobError};

/// What is drawn of it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Of how many first members tasks read a part, ascending.
    firsts: Vec<usize>,
    /// How many of these tasks are waited for.
    waits: usize,
    end: End,
    /// Whether parts stay that were read.
    keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is stopped before the first member joins.
    Before,
    /// It is stopped while others go on.
    Stop,
    /// All of its parts are declared unread, and it is closed.
    Unread,
    /// All of it is read, by as many tasks as is declared.
    Read,
}

impl Plan {
    pub(super) fn draw(dice: &mut Dice, maps: u32, parts: u32) -> Self {
        let looks = dice.below(2 * u64::from(parts) + 1);
        let mut firsts: Vec<_> = (0..looks).map(|_| dice.below(u64::from(maps) + 1) as usize).collect();
        firsts.sort_unstable();
        Self {
            firsts,
            waits: dice.below(4) as usize,
            end: *dice.pick(&[End::Before, End::Stop, End::Stop, End::Unread, End::Read]).expect("some"),
            keep: dice.chance(300),
        }
    }
}

/// It, while a program has it open.
pub(super) struct Beside<'a> {
    job: &'a Job,
    plan: Plan,
    edge: Option<Edge>,
    looks: Vec<ObjectRef>,
    seen: Vec<ObjectRef>,
}

impl<'a> Beside<'a> {
    /// Opens it, where there is to be one.
    pub(super) fn open(job: &'a Job, plan: Option<Plan>, futures: &Futures) -> Result<Self, JobError> {
        let open = plan.is_some();
        let mut plan = plan.unwrap_or(Plan { firsts: Vec::new(), waits: 0, end: End::Stop, keep: false });
        if plan.end == End::Before || plan.end == End::Read {
            plan.firsts.clear();
        }
        let readers = plan.firsts.len().div_ceil(job.parts as usize).max(1) as u32;
        let shape = EdgeShape { readers, keep: plan.keep, ..EdgeShape::new("beside", job.parts) };
        let edge = if open { Some(futures.edge(shape)?) } else { None };
        if plan.end == End::Before {
            futures.stop_edges()?;
        }
        Ok(Self { job, plan, edge, looks: Vec::new(), seen: Vec::new() })
    }

    /// Another member: who reads the first so many is submitted.
    pub(super) fn join(&mut self, futures: &Futures, member: &ObjectRef) -> Result<(), JobError> {
        let Some(edge) = &self.edge else { return Ok(()) };
        edge.join(member)?;
        while let Some(first) = self.plan.firsts.get(self.looks.len()).filter(|first| **first <= edge.len()) {
            let look = Self::look(self.job, futures, edge, *first, self.looks.len() as u32)?;
            self.looks.push(look);
        }
        Ok(())
    }

    fn look(job: &Job, futures: &Futures, edge: &Edge, first: usize, number: u32) -> Result<ObjectRef, JobError> {
        let set = edge.first(first)?;
        // Others than those that reduce.
        let params = job.params(1000 + number, 1, 64);
        futures.submit_with(Reduce, &params, &[set.part(number % job.parts)], job.options(None))
    }

    /// The program has seen enough of it.
    pub(super) async fn end(&mut self, futures: &Futures) -> Result<(), JobError> {
        let Some(edge) = self.edge.take() else { return Ok(()) };
        if self.plan.end == End::Read {
            for number in 0..self.job.parts {
                self.looks.push(Self::look(self.job, futures, &edge, edge.len(), number)?);
            }
            self.plan.waits = self.looks.len();
        }
        let looks = std::mem::take(&mut self.looks);
        (self.seen, _) = futures.wait(&looks, self.plan.waits, None).await?;
        match self.plan.end {
            End::Stop => edge.stop()?,
            End::Unread => edge.unread(0..self.job.parts)?,
            End::Before | End::Read => {}
        }
        Ok(())
    }

    /// What was read of it and waited for.
    pub(super) fn seen(&mut self) -> Vec<ObjectRef> {
        std::mem::take(&mut self.seen)
    }
}
