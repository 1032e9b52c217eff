//! [`JobsOver`]: what a node remembers of jobs that have ended there.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::ids::JobId;
use crate::protocol::scheduler::JOBS_OVER_MAX;

/// The latest jobs that ended on this node; clones share them. A Scheduler that succeeds another learns of them here.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobsOver(Arc<Mutex<VecDeque<JobId>>>);

impl JobsOver {
    pub(crate) fn add(&self, job: JobId) {
        let mut jobs = self.0.lock();
        jobs.push_back(job);
        if jobs.len() > JOBS_OVER_MAX {
            jobs.pop_front();
        }
    }

    /// A job is not over, as its log says.
    pub(crate) fn forget(&self, job: JobId) {
        self.0.lock().retain(|over| *over != job);
    }

    pub(crate) fn list(&self) -> Vec<JobId> {
        self.0.lock().iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_and_fit_one_message() {
        let over = JobsOver::default();
        for job in 0..JOBS_OVER_MAX as u128 + 10 {
            over.add(JobId::from_u128(job));
        }
        assert_eq!((over.list().len(), over.list()[0]), (JOBS_OVER_MAX, JobId::from_u128(10)));
        over.forget(JobId::from_u128(10));
        assert_eq!((over.list().len(), over.list()[0]), (JOBS_OVER_MAX - 1, JobId::from_u128(11)));
    }
}
