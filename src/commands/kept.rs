//! Jobs that have seen enough and are kept: what is seen of that ([`Stop`]), what is told then, and `--continue`, which has one go on to its end.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use exobus_actors::{
    event::{Event, EventKind, EventSink},
    ids::{Attempt, JobId, TaskId},
    node::Node,
    protocol::host::JobEnd,
    registry,
    task::JobError,
};
use exobus_queries::{
    online::{Answered, OnlineGroup},
    snapshot::Snapshot,
};
use exobus_store::{Clock as _, StoreError, SystemClock};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tracing::warn;

use super::{
    planned::{self, Words},
    resume,
    session::Session,
};
use crate::{
    cli::{JobArgs, OnlineArgs, ResumeArgs},
    cluster,
    config::Overrides,
    exit::{Exit, Failure},
};

/// How long tasks that are under way may take to end when a job of this process has stopped: what they make is lost else.
const TASKS_DEADLINE: Duration = Duration::from_secs(10);
/// How often it is looked whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long it may take to bring everything to disk.
const DISK_DEADLINE: Duration = Duration::from_secs(300);

/// Sees when a job has stopped that is kept; clones see the same.
#[derive(Clone)]
pub(super) struct Stop {
    stopped: Arc<watch::Sender<Option<Snapshot>>>,
    /// What runs.
    under_way: Arc<Mutex<BTreeSet<(TaskId, Attempt)>>>,
}

impl Stop {
    pub(super) fn new() -> Self {
        Self { stopped: Arc::new(watch::Sender::new(None)), under_way: Arc::default() }
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeSet<(TaskId, Attempt)>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has happened.
    pub(super) fn see(&self, event: &Event) {
        match &event.kind {
            EventKind::Estimated { snapshot } => {
                let stopped = serde_json::from_str(snapshot).ok().filter(|known: &Snapshot| known.stopped.is_some());
                self.stopped.send_replace(stopped);
            }
            EventKind::TaskPlaced { task, attempt, .. } => drop(self.under_way().insert((*task, *attempt))),
            EventKind::TaskFinished { task, attempt, .. } | EventKind::TaskFailed { task, attempt, .. } => {
                self.under_way().remove(&(*task, *attempt));
            }
            _ => {}
        }
    }

    /// The same sink, of which this sees each event.
    pub(super) fn seeing(&self, sink: EventSink) -> EventSink {
        let (stop, sample_ms) = (self.clone(), sink.sample_ms());
        let receive = move |event: Event| {
            stop.see(&event);
            sink.emit(event);
        };
        EventSink::new(receive).sampled_every(sample_ms)
    }

    /// Resolves when the job has stopped; with what it has shown.
    pub(super) async fn stopped(&self) -> Snapshot {
        let mut stopped = self.stopped.subscribe();
        let known = stopped.wait_for(Option::is_some).await.ok().and_then(|known| known.clone());
        match known {
            Some(known) => known,
            None => std::future::pending().await,
        }
    }

    /// Waits until nothing runs any more, for a while.
    async fn tasks_have_ended(&self) {
        let until = Instant::now() + TASKS_DEADLINE;
        while !self.under_way().is_empty() && Instant::now() < until {
            sleep(LOOK_EVERY).await;
        }
    }
}

/// Brings to disk what a job of this process has made, when what runs of it has ended: the process ends then. What cannot be brought there is made again when the job goes on.
pub(super) fn put_away(node: &Node, job: JobId, stop: &Stop) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    if let Ok(runtime) = runtime {
        runtime.block_on(stop.tasks_have_ended());
    }
    let clock = SystemClock::new();
    let until = clock.now() + DISK_DEADLINE;
    let store = node.store();
    for (meta, _) in store.inventory(job.group()) {
        match store.put_away(&meta.id, until.saturating_sub(clock.now())) {
            // It was freed meanwhile.
            Ok(()) | Err(StoreError::NotFound(_)) => {}
            Err(error) => {
                warn!(job_id = %job, %error, "not everything that the job has read is kept: the rest is read again");
                return;
            }
        }
    }
}

/// How a job of this program has stopped, as if it had ended so.
///
/// # Errors
/// It cannot be encoded.
pub(super) fn end_of(program: &str, mut snapshot: Snapshot) -> Result<JobEnd, JobError> {
    let ended = snapshot.stopped.take().ok_or_else(|| JobError::program("the job has not stopped"))?;
    let answered = Answered { ended, written: None, snapshot };
    let encoded = match registry::name_of(program) {
        OnlineGroup::NAME => rmp_serde::to_vec_named(&answered),
        #[cfg(feature = "sql")]
        exobus_sql::program::SqlQuery::NAME => {
            let online = Some(answered);
            rmp_serde::to_vec_named(&exobus_sql::program::Answered { online, ..Default::default() })
        }
        other => return Err(JobError::program(format!("{other} answers nothing early"))),
    };
    let result = Ok(Bytes::from(encoded.map_err(JobError::program)?));
    Ok(JobEnd { result, nodes: Default::default(), owner_bytes: 0, control_messages: 0, kept: None })
}

/// What people do to have it go on.
pub(super) fn hint(program: &str, job: JobId, flags: &str) -> String {
    let command = if registry::name_of(program) == OnlineGroup::NAME { "group" } else { "query" };
    format!("to go on to the exact answer: exobus {command} --continue {job}{flags}")
}

/// Has a job go on, on a cluster or in this process, and tells its answer: in these words, or in those of its program.
pub(super) fn go_on(args: &JobArgs, job: &str, page: Option<u16>, words: Option<Words>) -> Result<Exit, Failure> {
    let process = &args.setup.process;
    if cluster::place(&process.place, &Overrides::default())?.1 {
        let session = Session::open(process, &args.views)?.with_page(page)?;
        return planned::go_on(session, job, words, process.json);
    }
    let again = ResumeArgs {
        job: Some(job.to_owned()),
        list: false,
        drop: false,
        output: None,
        memory: process.memory,
        spill: process.spill.clone(),
        executors: process.executors,
        config: process.place.config.clone(),
        settings: process.place.settings.clone(),
        json: process.json,
        views: args.views.clone(),
    };
    resume::go_on_kept(&again, page, words)
}

/// Refuses what is kept where it cannot be.
///
/// # Errors
/// `--keep` on a cluster, `--keep-for` in this process.
pub(super) fn check(args: &OnlineArgs, on_cluster: bool) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::text(Exit::Usage, text.to_owned()));
    match (&args.keep, &args.keep_for, on_cluster) {
        (Some(_), _, true) => usage(
            "--keep is a folder of this machine, and the job runs on a cluster, which keeps what it has read itself: say for how long, as in --keep-for 10min",
        ),
        (_, Some(_), false) => usage(
            "--keep-for is for jobs of a cluster; a job of this process keeps what it has read in a folder, for as long as that is there: say --keep DIR",
        ),
        _ => Ok(()),
    }
}

/// The folder in which the store of a job keeps its files.
pub(super) fn folder_of(keep: &Path, job: JobId) -> PathBuf {
    keep.join(format!("exobus-kept-{job}"))
}

/// Removes what is kept of a job, and the folder that it was kept in, unless there is more in it.
pub(super) fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        eprintln!("{} is left: {error}", folder.display());
    }
    if let Some(keep) = folder.parent() {
        for entry in std::fs::read_dir(keep).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(STEPS) {
                // Those of other queries have something in them.
                let _ = std::fs::remove_dir(entry.path());
            }
        }
        let _ = std::fs::remove_dir(keep);
    }
}

/// How folders begin in which steps of queries write that are kept, below the folder.
pub(super) const STEPS: &str = "exobus-steps-";

#[cfg(test)]
mod tests {
    use exobus_actors::ids::NodeId;
    use exobus_queries::stopping::Ended;

    use super::*;

    #[tokio::test]
    async fn that_a_job_has_stopped_is_seen_until_it_goes_on() {
        let stop = Stop::new();
        let shows = |snapshot: Snapshot| {
            let kind = EventKind::Estimated { snapshot: serde_json::to_string(&snapshot).unwrap() };
            stop.see(&Event { at_us: 1, node: NodeId::new("n1"), job: None, kind });
        };
        let seen = async || tokio::time::timeout(Duration::from_millis(10), stop.stopped()).await.ok();
        shows(Snapshot::default());
        assert_eq!(seen().await, None);
        let stopped = Snapshot { snapshot: 7, stopped: Some(Ended::Asked), ..Snapshot::default() };
        shows(stopped.clone());
        assert_eq!(seen().await, Some(stopped.clone()));
        let end = end_of("query.group@1", stopped.clone()).unwrap();
        let answered: Answered = end.value().unwrap();
        assert_eq!((answered.ended, answered.snapshot.snapshot, answered.snapshot.stopped), (Ended::Asked, 7, None));
        assert!(end_of("sort@1", stopped).is_err() && end_of("query.group@1", Snapshot::default()).is_err());
        shows(Snapshot { snapshot: 7, ..Snapshot::default() });
        assert_eq!(seen().await, None);
    }

    #[test]
    fn where_it_is_kept_follows_from_where_it_runs() {
        let said = |keep: bool, keep_for: bool| OnlineArgs {
            keep: keep.then(|| "kept".into()),
            keep_for: keep_for.then(|| "10min".to_owned()),
            ..OnlineArgs::default()
        };
        assert!(check(&said(true, false), false).is_ok() && check(&said(false, true), true).is_ok());
        assert!(
            check(&said(true, false), true).unwrap_err().to_string().contains("say for how long, as in --keep-for")
        );
        assert!(check(&said(false, true), false).unwrap_err().to_string().contains("say --keep DIR"));
    }
}
