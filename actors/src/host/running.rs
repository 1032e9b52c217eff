//! [`RunningJobs`]: tells the jobs of a node when its incarnation ends before them, and waits until they have told others.

use std::sync::Arc;

use tokio::sync::watch;

/// The jobs that run in an incarnation of a node; clones are of the same incarnation.
#[derive(Clone, Debug)]
pub(crate) struct RunningJobs {
    over: Arc<watch::Sender<Option<Arc<str>>>>,
    jobs: Arc<watch::Sender<usize>>,
}

impl RunningJobs {
    pub(crate) fn new() -> Self {
        Self { over: Arc::new(watch::Sender::new(None)), jobs: Arc::new(watch::Sender::new(0)) }
    }

    /// A job begins; it has ended, and whom it concerns has been told, when this is dropped.
    pub(crate) fn enter(&self) -> Entered {
        self.jobs.send_modify(|jobs| *jobs += 1);
        Entered(self.jobs.clone())
    }

    /// Why the incarnation is over, when it is.
    pub(crate) async fn over(&self) -> Arc<str> {
        let mut over = self.over.subscribe();
        let reason = over.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        reason.unwrap_or_else(|| "the node has ended".into())
    }

    /// Ends it, and waits for its jobs.
    pub(crate) async fn end(&self, reason: Arc<str>) {
        self.over.send_replace(Some(reason));
        let mut jobs = self.jobs.subscribe();
        // It fails when nobody is left to count.
        let _ = jobs.wait_for(|jobs| *jobs == 0).await;
    }
}

/// See [`RunningJobs::enter`].
#[derive(Debug)]
pub(crate) struct Entered(Arc<watch::Sender<usize>>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.send_modify(|jobs| *jobs -= 1);
    }
}
