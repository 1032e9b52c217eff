//! Parts that are pushed to the nodes where they will be merged, and the folds that fall due there.

use std::collections::BTreeSet;
use std::ops::Range;

use tokio::sync::mpsc;

use super::api::Futures;
use super::call::ProgramCall;
use super::reference::ObjectRef;
use crate::ids::ObjectId;
use crate::joblog::FoldDue;
use crate::task::{JobError, Parts, Place};

/// Blocks that are to be merged in a lane now.
#[derive(Debug)]
pub struct Fold {
    /// Index of the lane.
    pub lane: usize,
    /// The blocks, in the order in which they were pushed.
    pub blocks: Vec<ObjectRef>,
}

/// Pushes blocks along *lanes*: each is a node and what is merged there of every block, in the pieces in which merges ask
/// for it.
///
/// A push is advice: the [Merger](crate::merger) of the node copies the pieces there as soon as they can be had and memory
/// allows, and says which blocks are to be folded ([`due`](Self::due)): as many as the program wants together once they are
/// there, fewer when memory is short. What it says is a choice, so it is logged. What it has not said when the program
/// has no more blocks is the program's to fold ([`rest`](Self::rest)), so nothing is lost with a node or a message.
#[derive(Debug)]
pub struct Pushes {
    fold_at: usize,
    /// The numbers of the lanes.
    numbers: Range<u32>,
    /// What was pushed and not folded, by lane, in order.
    open: Vec<Vec<ObjectRef>>,
    news: mpsc::UnboundedReceiver<FoldDue>,
}

impl Pushes {
    /// Opens a lane for each place and its pieces; `fold_at` blocks (at least 1) make a fold. Where the place names no
    /// node, nothing is pushed.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn open(futures: &Futures, lanes: &[(Place, Vec<Range<u32>>)], fold_at: usize) -> Result<Self, JobError> {
        let (sender, news) = mpsc::unbounded_channel();
        let numbers = futures.lane_numbers(lanes.len() as u32);
        let fold_at = fold_at.max(1);
        for (lane, (place, pieces)) in numbers.clone().zip(lanes) {
            let Place::Node { node, .. } = place else { continue };
            let ranges = pieces.iter().map(|range| Parts::Range(range.start, range.end)).collect();
            let (node, news, fold_at) = (node.clone(), sender.clone(), u32::try_from(fold_at).unwrap_or(u32::MAX));
            futures.call(ProgramCall::OpenLane { lane, node, ranges, fold_at, news })?;
        }
        Ok(Self { fold_at, numbers, open: vec![Vec::new(); lanes.len()], news })
    }

    /// Pushes a block that exists along every lane.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn push(&mut self, futures: &Futures, block: &ObjectRef) -> Result<(), JobError> {
        self.open.iter_mut().for_each(|open| open.push(block.clone()));
        futures.call(ProgramCall::Push { object: block.id(), lanes: self.numbers.clone() })
    }

    /// The folds that have fallen due since it was asked last; never waits.
    ///
    /// # Errors
    /// The program is not the one whose choices are replayed.
    pub fn due(&mut self, futures: &Futures) -> Result<Vec<Fold>, JobError> {
        let due = match futures.replayed_folds()? {
            Some(due) => due,
            None => {
                let (mut due, mut taken) = (Vec::new(), BTreeSet::new());
                while let Ok((lane, mut blocks)) = self.news.try_recv() {
                    // What an earlier run of the program has folded by its log is news again.
                    let open: BTreeSet<_> = self.open_in(lane).map(ObjectRef::id).collect();
                    blocks.retain(|block| open.contains(block) && taken.insert((lane, *block)));
                    due.extend((!blocks.is_empty()).then_some((lane, blocks)));
                }
                futures.log_folds(due.clone());
                due
            }
        };
        Ok(due.into_iter().map(|(lane, blocks)| self.take(lane, &blocks)).collect())
    }

    /// All that was not folded: there will be no more blocks.
    pub fn rest(&mut self) -> Vec<Fold> {
        let mut rest = Vec::new();
        for (lane, open) in self.open.iter_mut().enumerate() {
            let open = std::mem::take(open);
            rest.extend(open.chunks(self.fold_at).map(|blocks| Fold { lane, blocks: blocks.to_vec() }));
        }
        rest
    }

    fn open_in(&self, lane: u32) -> impl Iterator<Item = &ObjectRef> {
        let index = lane.checked_sub(self.numbers.start).map(|index| index as usize);
        index.and_then(|index| self.open.get(index)).into_iter().flatten()
    }

    fn take(&mut self, lane: u32, blocks: &[ObjectId]) -> Fold {
        let lane = (lane - self.numbers.start) as usize;
        let blocks = self.open[lane].extract_if(.., |block| blocks.contains(&block.id())).collect();
        Fold { lane, blocks }
    }
}
