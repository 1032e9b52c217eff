//! Copies that were pushed to this node ahead of the tasks that read them: the Merger has them.

use std::time::Duration;

use exobus_store::Block;
use tokio::sync::oneshot;
use tracing::warn;

use super::sets::Piece;
use crate::ids::{CopyId, JobId};
use crate::shell::Inlet;
use crate::task::Parts;

/// How long the Merger may take to answer: it waits itself for copies that are on their way.
const DEADLINE: Duration = Duration::from_secs(20);

/// What a node's Merger is asked by those who make arguments ready there.
#[derive(Debug)]
pub(crate) enum PushedCall {
    /// Which of these are here? Answered when none of them is on its way.
    Look(Look),
    /// A task that has all its other memory takes these.
    Take(Take),
}

/// Parts of objects, as a task will read them.
pub type Pieces = Vec<(CopyId, Parts)>;

/// See [`PushedCall::Look`].
#[derive(Debug)]
pub struct Look {
    /// The job.
    pub job: JobId,
    /// What is wanted.
    pub pieces: Pieces,
    /// Whether each is here.
    pub answer: oneshot::Sender<Vec<bool>>,
}

/// See [`PushedCall::Take`].
#[derive(Debug)]
pub struct Take {
    /// The job.
    pub job: JobId,
    /// What is wanted.
    pub pieces: Pieces,
    /// Each of them, `None` where it is not here.
    pub answer: oneshot::Sender<Vec<Option<Block>>>,
}

/// The way to the Merger of this node; without one nothing is pushed here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pushed(Option<Inlet<PushedCall>>);

impl Pushed {
    /// Copies that this Merger has.
    pub(crate) fn to(merger: Inlet<PushedCall>) -> Self {
        Self(Some(merger))
    }

    /// Which of the pieces of these indices are here; waits for those that are on their way, a few seconds at most.
    /// They are not taken yet, and may be gone when they are.
    pub(super) async fn here(&self, job: JobId, pieces: &[&Piece], of: &[usize]) -> Vec<usize> {
        let asked = self.ask(of, |answer| PushedCall::Look(Look { job, pieces: chosen(pieces, of), answer })).await;
        let here = asked.unwrap_or_default();
        of.iter().zip(here).filter(|(_, here)| *here).map(|(index, _)| *index).collect()
    }

    /// Takes the pieces of these indices; `None` when one of them is not here any more: then the others have gone, too.
    pub(super) async fn take(&self, job: JobId, pieces: &[&Piece], which: &[usize]) -> Option<Vec<Block>> {
        if which.is_empty() {
            return Some(Vec::new());
        }
        let asked =
            self.ask(which, |answer| PushedCall::Take(Take { job, pieces: chosen(pieces, which), answer })).await;
        asked?.into_iter().collect()
    }

    async fn ask<T>(
        &self,
        of: &[usize],
        question: impl FnOnce(oneshot::Sender<Vec<T>>) -> PushedCall,
    ) -> Option<Vec<T>> {
        let merger = self.0.as_ref().filter(|_| !of.is_empty())?;
        let (sender, answer) = oneshot::channel();
        // A Merger that has ended has nothing, and the node ends with it.
        merger.send(question(sender)).ok()?;
        // What it does not say in time is taken for not being here: then it is fetched like anything else.
        match tokio::time::timeout(DEADLINE, answer).await {
            Ok(answer) => answer.ok(),
            Err(_) => {
                warn!(deadline = ?DEADLINE, "merger has not said what was pushed here");
                None
            }
        }
    }
}

fn chosen(pieces: &[&Piece], which: &[usize]) -> Pieces {
    let piece = |index: &usize| (pieces[*index].copy().expect("only what has bytes is pushed"), pieces[*index].parts);
    which.iter().map(piece).collect()
}
