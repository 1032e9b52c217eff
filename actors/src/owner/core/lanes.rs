//! Lanes: where the program pushes parts, which Mergers are told, and who hears of folds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tokio::sync::mpsc;

use super::{OwnerCore, OwnerState};
use crate::ids::{NodeId, ObjectId};
use crate::joblog::FoldDue;
use crate::owner::effect::OwnerEffect;
use crate::protocol::copies::Whereabouts;
use crate::protocol::merger::MergerMsg;
use crate::protocol::node_manager::SET_MEMBERS_PER_MESSAGE;
use crate::task::Parts;

struct Lane {
    merger: NodeId,
    news: mpsc::UnboundedSender<FoldDue>,
    /// Objects and where they are, that the Merger has not been told of.
    pushed: Vec<(ObjectId, Whereabouts)>,
}

/// The lanes of a job.
#[derive(Default)]
pub(super) struct Lanes(BTreeMap<u32, Lane>);

impl Lanes {
    /// Notes an object for these lanes, if it exists: what does not is not pushed.
    pub(super) fn push(&mut self, state: &OwnerState, object: ObjectId, lanes: Range<u32>) {
        let Some(at) = state.where_is(object) else { return };
        for (_, lane) in self.0.range_mut(lanes) {
            lane.pushed.push((object, at.clone()));
        }
    }

    /// Hands a fold on; whether anybody is interested.
    pub(super) fn fold_due(&self, lane: u32, blocks: Vec<ObjectId>) -> bool {
        self.0.get(&lane).is_some_and(|entry| entry.news.send((lane, blocks)).is_ok())
    }
}

impl OwnerCore {
    pub(super) fn open_lane(
        &mut self,
        lane: u32,
        node: NodeId,
        ranges: Vec<Parts>,
        fold_at: u32,
        news: mpsc::UnboundedSender<FoldDue>,
    ) {
        // From here on what the node does is done for this job, whether it is given tasks or not.
        self.watched_by(&node);
        let (job, owner) = (self.place.job, self.place.node.clone());
        let message = MergerMsg::Open { job, owner, lane, ranges, fold_at };
        self.effects.push(OwnerEffect::Advise { node: node.clone(), message });
        self.lanes.0.insert(lane, Lane { merger: node, news, pushed: Vec::new() });
    }

    /// Tells the Mergers what was pushed.
    pub(super) fn send_pushed(&mut self) {
        let job = self.place.job;
        for (number, lane) in &mut self.lanes.0 {
            for chunk in std::mem::take(&mut lane.pushed).chunks(SET_MEMBERS_PER_MESSAGE) {
                let objects = chunk.iter().cloned().collect();
                let message = MergerMsg::Push { job, lane: *number, objects };
                self.effects.push(OwnerEffect::Advise { node: lane.merger.clone(), message });
            }
        }
    }

    /// The job is over: the Mergers forget it.
    pub(super) fn end_lanes(&mut self) {
        let mergers: BTreeSet<NodeId> =
            std::mem::take(&mut self.lanes.0).into_values().map(|lane| lane.merger).collect();
        mergers.into_iter().for_each(|node| self.end_at_merger(node));
    }

    /// What was pushed to a node is of no use any more.
    pub(super) fn end_at_merger(&mut self, node: NodeId) {
        let message = MergerMsg::EndJob { job: self.place.job };
        self.effects.push(OwnerEffect::Advise { node, message });
    }
}
