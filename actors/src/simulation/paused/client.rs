//! Somebody who submits a job and wants to know how it ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exobus_bus::{Bus, Subjects};
use exobus_store::Clock;
use tokio::time::sleep;
use tracing::{debug, info};

use super::LIVES_FOR;
use super::program::{PROGRAM, Shuffle};
use crate::client::{Client, ClientError, ClientOptions};
use crate::event::{Event, EventKind};
use crate::ids::JobId;
use crate::protocol::host::{JobEnd, JobSpec};
use crate::random::SeededRandom;
use crate::task::JobError;

/// When somebody who was not told the end asks again.
const AGAIN: Duration = Duration::from_secs(1);

/// A job that is over.
pub(super) struct Ended {
    pub(super) job: JobId,
    pub(super) shuffle: Shuffle,
    pub(super) end: JobEnd,
    /// Attempts that completed.
    pub(super) finished: u64,
    /// Tasks that were made again.
    pub(super) replayed: u64,
}

/// A job that is to be submitted.
pub(super) struct Submission {
    pub(super) job: JobId,
    pub(super) shuffle: Shuffle,
    /// When, after the beginning of the world.
    pub(super) after: Duration,
    pub(super) bus: Bus,
    pub(super) subjects: Subjects,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) seed: u64,
}

impl Submission {
    /// Submits it, and stays until it is over.
    pub(super) async fn run(self) -> Result<Ended, ClientError> {
        let Self { job, shuffle, after, bus, subjects, clock, seed } = self;
        sleep(after).await;
        info!("{job} is submitted: {shuffle:?}");
        let spec = JobSpec {
            job,
            tenant: "default".into(),
            program: PROGRAM.into(),
            params: Bytes::from(rmp_serde::to_vec_named(&shuffle).expect("plain data")),
            sample_ms: 0,
            plan_pieces: 0,
        };
        let (mut finished, mut replayed) = (0, 0);
        let random = Arc::new(SeededRandom::new(seed));
        loop {
            let (bus, subjects) = (bus.clone(), subjects.clone());
            let (clock, random, deadline) = (clock.clone(), random.clone(), LIVES_FOR);
            let options = ClientOptions { clock, random, deadline, ..ClientOptions::new(bus, subjects) };
            let client = Client::connect(options).await?;
            let count = |Event { node, kind, .. }: Event| {
                debug!("{job:.4} {node}: {kind:?}");
                match kind {
                    EventKind::TaskFinished { .. } => finished += 1,
                    EventKind::TaskReplayed { .. } => replayed += 1,
                    _ => {}
                }
            };
            match client.run_spec(spec.clone(), count, std::future::pending()).await {
                Ok(end) if !is_refused(&end) => return Ok(Ended { job, shuffle, end, finished, replayed }),
                // As somebody would who wants to know: it asks again.
                refused => info!("the client of {job} asks again: {refused:?}"),
            }
            sleep(AGAIN).await;
        }
    }
}

/// Whether a job was refused, since nothing that was said of it could be written down: where messages get lost, two in a row may look like
/// that.
fn is_refused(end: &JobEnd) -> bool {
    matches!(&end.result, Err(JobError::Runtime { reason }) if reason.contains("stores nothing"))
}
