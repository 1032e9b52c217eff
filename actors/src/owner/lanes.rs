//! Lanes: where the program pushes parts, who is told, and who hears of folds.

use std::collections::BTreeMap;
use std::ops::Range;

use tokio::sync::mpsc;
use tracing::debug;

use super::actor::OwnerActor;
use super::tables::OwnerState;
use crate::ids::{JobId, NodeId, ObjectId};
use crate::joblog::FoldDue;
use crate::protocol;
use crate::protocol::copies::Whereabouts;
use crate::protocol::merger::MergerMsg;
use crate::protocol::node_manager::SET_MEMBERS_PER_MESSAGE;

use crate::shell::Address;
use crate::task::Parts;

struct Lane {
    merger: Address<MergerMsg>,
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

    /// Tells the Mergers what was noted.
    pub(super) fn send(&mut self, job: JobId) {
        for (number, lane) in &mut self.0 {
            for chunk in std::mem::take(&mut lane.pushed).chunks(SET_MEMBERS_PER_MESSAGE) {
                let objects = chunk.iter().cloned().collect();
                tell(&lane.merger, MergerMsg::Push { job, lane: *number, objects });
            }
        }
    }

    /// Hands a fold on; whether anybody is interested.
    pub(super) fn fold_due(&self, lane: u32, blocks: Vec<ObjectId>) -> bool {
        self.0.get(&lane).is_some_and(|entry| entry.news.send((lane, blocks)).is_ok())
    }

    /// The job is over.
    pub(super) fn end(&mut self, job: JobId) {
        let mergers: BTreeMap<_, _> = self.0.values().map(|lane| (lane.merger.node().clone(), &lane.merger)).collect();
        for merger in mergers.values() {
            tell(merger, MergerMsg::EndJob { job });
        }
        self.0.clear();
    }
}

/// Pushing is advice: a Merger that cannot be reached costs time and nothing else.
fn tell(merger: &Address<MergerMsg>, message: MergerMsg) {
    if let Err(error) = merger.send(message) {
        debug!(%error, "merger not told");
    }
}

impl OwnerActor {
    pub(super) fn open_lane(
        &mut self,
        lane: u32,
        node: NodeId,
        ranges: Vec<Parts>,
        fold_at: u32,
        news: mpsc::UnboundedSender<FoldDue>,
    ) {
        // From here on what it does is done for this job, whether it is given tasks or not.
        self.node(&node);
        let merger = self.post.address(&node, protocol::merger::ACTOR);
        let owner = self.post.node().clone();
        tell(&merger, MergerMsg::Open { job: self.job, owner, lane, ranges, fold_at });
        self.lanes.0.insert(lane, Lane { merger, news, pushed: Vec::new() });
    }
}
