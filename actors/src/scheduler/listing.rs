//! The list of jobs, for who only looks: answered to a request (`ctl.jobs.list`), without a session.

use std::time::Duration;

use exobus_bus::{Bus, BusError, Subjects, SubscribeOptions, codec};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::protocol::scheduler::{JobInfo, SchedulerMsg};
use crate::shell::{Address, Post};

/// The service, and its verb.
pub(crate) const JOBS: (&str, &str) = ("jobs", "list");
/// How long the Scheduler of this node may take; it may gather what there is.
const DEADLINE: Duration = Duration::from_secs(5);
/// So many bytes of an answer leave room for what seals it.
const ANSWER_BYTES_MAX: usize = codec::SIZE_BYTES_MAX / 4 * 3;

/// The jobs of a cluster, as far as they fit an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobList {
    /// By id.
    pub jobs: Vec<JobInfo>,
    /// How many more there are.
    pub more: u64,
}

impl JobList {
    /// The first ones, as many as fit an answer.
    fn fitting(mut self) -> Self {
        while codec::encode_checked(&self).map_or(usize::MAX, |bytes| bytes.len()) > ANSWER_BYTES_MAX
            && !self.jobs.is_empty()
        {
            let kept = self.jobs.len() / 2;
            self.more += (self.jobs.len() - kept) as u64;
            self.jobs.truncate(kept);
        }
        self
    }
}

/// Answers as long as it is not dropped.
pub(crate) struct Listing(tokio::task::JoinHandle<()>);

impl Listing {
    pub(crate) async fn start(
        (bus, post): (&Bus, &Post),
        subjects: &Subjects,
        scheduler: Address<SchedulerMsg>,
    ) -> Result<Self, BusError> {
        let mut questions = bus.subscribe(subjects.ctl_all(JOBS.0)?, SubscribeOptions::questions(JOBS.0)).await?;
        let (bus, post) = (bus.clone(), post.clone());
        Ok(Self(tokio::task::spawn_local(async move {
            while let Some(question) = questions.recv().await {
                let asked = match bus.asked::<()>(&question) {
                    Ok(asked) => asked,
                    Err(error) => {
                        post.refuse_stranger(question.subject.as_str(), "ctl", &error);
                        continue;
                    }
                };
                // Who is not answered asks again; the next Scheduler may be another one.
                let Ok(jobs) = scheduler.ask(|reply| SchedulerMsg::ListJobs { settled: false, reply }, DEADLINE).await
                else {
                    continue;
                };
                let list = JobList { jobs, more: 0 }.fitting();
                if let Err(error) = bus.answer(&question, &asked, &list) {
                    warn!(%error, "jobs are not listed");
                }
            }
        })))
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use crate::task::Resources;

    #[test]
    fn a_list_that_is_too_long_for_an_answer_says_how_many_more_there_are() {
        let job = |number| JobInfo {
            job: JobId::from_u128(number),
            tenant: "default".into(),
            home: None,
            wanted_slots: 8,
            slots: 0,
            resources: Resources::default(),
            share_milli: 0,
            wait: None,
        };
        for count in [0, 3, 20_000] {
            let list = JobList { jobs: (0..count).map(job).collect(), more: 0 };
            let read = list.clone().fitting();
            assert_eq!(read.jobs.len() as u128 + u128::from(read.more), count);
            assert_eq!(read.more > 0, count > 3);
            assert_eq!(read.jobs[..], list.jobs[..read.jobs.len()]);
        }
    }
}
