//! The view: how it stands with each job, as JSON, under `kv.jobs.<tenant>.<job>`, in memory. Whoever watches the subjects hears of every change that is
//! not overtaken by the next one. It lags behind the journal, and never leads it; a Scheduler that begins empties it and fills it again.
//!
//! How a job ends is shown at once, all else half a second after it has changed, as it is then: each put goes to everybody who watches, and of
//! very many short jobs nobody wants to know more than that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, UNIX_EPOCH};

use exobus_bus::kv::{Kv, KvConfig};
use exobus_bus::streams::Purge;
use exobus_bus::{Bus, BusError, Subjects};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::ids::JobId;
use crate::protocol::job::{Digest, JobRecord, Outcome};

const BUCKET: &str = "jobs";
const BYTES_MAX: u64 = 32 << 20;
/// Jobs that are over and are shown still: the latest.
const OVER_MAX: usize = 1000;
/// How long a change of a job that is not over waits for the next one.
const SHOWN_IN: Duration = Duration::from_millis(500);
/// How long it is waited after a put that failed.
const AGAIN: Duration = Duration::from_secs(1);

/// What is to be shown; clones share it. It is shown as long as one lives.
#[derive(Clone, Default)]
pub(crate) struct View(Arc<Shown>);

#[derive(Default)]
struct Shown {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

/// What is not shown yet.
#[derive(Default)]
struct Waiting {
    /// The latest of each job, and when it is due.
    records: BTreeMap<JobId, (Instant, JobRecord)>,
    due: BTreeSet<(Instant, JobId)>,
}

impl Waiting {
    /// A job has changed. It is due no later for that: else one that changes all the time would never be shown.
    fn add(&mut self, record: JobRecord, now: Instant) {
        let before = self.records.get(&record.job).map(|(due, _)| *due);
        let due = if record.state.is_over() { now } else { before.unwrap_or(now + SHOWN_IN) };
        if let Some(before) = before {
            self.due.remove(&(before, record.job));
        }
        self.due.insert((due, record.job));
        self.records.insert(record.job, (due, record));
    }

    /// Takes one that is due; else when the next one is.
    fn take(&mut self, now: Instant) -> Result<JobRecord, Option<Instant>> {
        let Some((due, job)) = self.due.first().copied() else { return Err(None) };
        if now < due {
            return Err(Some(due));
        }
        self.due.pop_first();
        self.records.remove(&job).map(|(_, record)| record).ok_or(None)
    }

    /// One that was taken could not be shown.
    fn put_back(&mut self, record: JobRecord, now: Instant) {
        if !self.records.contains_key(&record.job) {
            self.due.insert((now, record.job));
            self.records.insert(record.job, (now, record));
        }
    }
}

impl View {
    /// Shows jobs from now on, on the current arbiter; all that was shown before goes. `lost` is called when what was shown since is not there
    /// any more, and all has to be shown again.
    pub(crate) fn start(bus: Bus, subjects: Subjects, lost: impl Fn() + 'static) -> Self {
        let view = Self::default();
        let shown = Arc::downgrade(&view.0);
        actix_rt::spawn(async move {
            let (mut over, mut is_first) = (VecDeque::new(), true);
            loop {
                let opened = open(&bus, &subjects, is_first).await;
                let Some(view) = shown.upgrade() else { return };
                let (bucket, is_empty) = match opened {
                    Ok(opened) => opened,
                    Err(error) => {
                        debug!(%error, "jobs cannot be shown now");
                        // All is shown when they can.
                        *view.waiting.lock() = Waiting::default();
                        drop(view);
                        sleep(AGAIN).await;
                        continue;
                    }
                };
                drop(view);
                if is_empty && !is_first {
                    lost();
                }
                is_first = false;
                if show_all(&shown, &bucket, &mut over).await.is_none() {
                    return;
                }
                sleep(AGAIN).await;
            }
        });
        view
    }

    /// How it stands with a job now.
    pub(crate) fn show(&self, record: JobRecord) {
        self.0.waiting.lock().add(record, Instant::now());
        self.0.changed.notify_one();
    }
}

/// The bucket, and whether nothing is in it.
async fn open(bus: &Bus, subjects: &Subjects, anew: bool) -> Result<(Kv, bool), BusError> {
    let name = subjects.durable_name("kv", BUCKET)?;
    let config = KvConfig { bytes_max: BYTES_MAX, in_memory: true, ..KvConfig::new(&name, subjects.kv(BUCKET)?) };
    let bucket = Kv::open(bus, &config).await?;
    if anew {
        bucket.stream().purge(&Purge::default()).await?;
    }
    let is_empty = bucket.stream().state().await?.records == 0;
    Ok((bucket, is_empty))
}

/// Shows what there is to show, until that fails; `None`: nobody shows anything any more.
async fn show_all(shown: &Weak<Shown>, bucket: &Kv, over: &mut VecDeque<String>) -> Option<()> {
    loop {
        let view = shown.upgrade()?;
        let next = view.waiting.lock().take(Instant::now());
        let record = match next {
            Ok(record) => record,
            Err(due) => {
                // Whoever shows something keeps it alive.
                let until = due.unwrap_or_else(|| Instant::now() + AGAIN);
                let _ = tokio::time::timeout_at(until, view.changed.notified()).await;
                continue;
            }
        };
        if let Err(error) = show(bucket, &record, over).await {
            debug!(%error, "a job is not shown");
            view.waiting.lock().put_back(record, Instant::now());
            return Some(());
        }
    }
}

async fn show(bucket: &Kv, record: &JobRecord, over: &mut VecDeque<String>) -> Result<(), BusError> {
    let key = format!("{}.{}", record.tenant, record.job);
    bucket.put(&key, Value::Object(record_json(record)).to_string()).await?;
    if record.state.is_over() {
        over.push_back(key);
    }
    if over.len() > OVER_MAX
        && let Some(oldest) = over.pop_front()
    {
        // Else each job would be two messages to everybody who watches.
        bucket.forget(&oldest).await?;
    }
    Ok(())
}

/// A point in time, for people and programs: RFC 3339.
pub(crate) fn time(unix_ms: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(unix_ms)).to_string()
}

/// What a record says, for who asks.
pub(crate) fn record_json(record: &JobRecord) -> Map<String, Value> {
    let JobRecord { job, tenant, kind, name, program, who, key, priority, limit_ms, spec, plan, state, .. } = record;
    let mut told = Map::new();
    let mut tell = |name: &str, value: Value| {
        if !value.is_null() {
            told.insert(name.to_owned(), value);
        }
    };
    tell("job", json!(job.to_string()));
    tell("state", json!(state));
    tell("kind", json!(kind));
    tell("tenant", json!(tenant));
    tell("name", json!(name));
    tell("program", json!(program));
    tell("who", json!(who));
    tell("idempotency_key", json!(key));
    tell("priority", json!(priority));
    tell("timeout_ms", json!(limit_ms));
    tell("accepted_at", json!(time(record.accepted_unix_ms)));
    tell("started_at", json!(record.started_unix_ms.map(time)));
    tell("ended_at", json!(record.ended_unix_ms.map(time)));
    tell("host", json!(record.host.as_ref().map(ToString::to_string)));
    tell("runs", json!(record.runs));
    let digest = |digest: &Digest| json!({ "bytes": digest.bytes, "hash": format!("{:032x}", digest.hash) });
    tell("spec", digest(spec));
    tell("plan", digest(plan));
    if let Some(stop) = record.stop.as_ref().filter(|_| !state.is_over()) {
        tell("stopping", json!({ "since": time(stop.at_unix_ms), "who": stop.who, "timeout_ms": stop.limit_ms }));
    }
    if let Some(Outcome { result, used, .. }) = &record.outcome {
        match result {
            Ok(result) => tell("result", digest(result)),
            Err(reason) => tell("error", json!(reason)),
        }
        tell("used", json!(used));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::job::JobState;

    fn record(number: u128, state: JobState) -> JobRecord {
        let queued = JobRecord::queued(JobId::from_u128(number), "a", "sort", "sort@3");
        JobRecord { state, ..queued }
    }

    #[test]
    fn an_end_is_due_at_once_and_what_changes_all_the_time_half_a_second_after_its_first_change() {
        let (mut waiting, began) = (Waiting::default(), Instant::now());
        let at = |millis| began + Duration::from_millis(millis);
        waiting.add(record(1, JobState::Queued), at(0));
        waiting.add(record(1, JobState::Starting), at(300));
        waiting.add(record(2, JobState::Queued), at(100));
        assert_eq!(waiting.take(at(499)), Err(Some(at(500))));
        waiting.add(record(2, JobState::Succeeded), at(499));
        assert_eq!(waiting.take(at(499)).map(|record| record.state), Ok(JobState::Succeeded), "it is over");
        assert_eq!(waiting.take(at(500)).map(|record| record.state), Ok(JobState::Starting), "as it is then");
        assert_eq!(waiting.take(at(900)), Err(None));
        waiting.add(record(1, JobState::Running), at(1000));
        waiting.put_back(record(1, JobState::Starting), at(1001));
        assert_eq!(waiting.take(at(1500)).map(|record| record.state), Ok(JobState::Running), "it is overtaken");
        assert!(waiting.records.is_empty() && waiting.due.is_empty());
    }

    /// Which of these jobs are in the bucket, by number.
    async fn shown(bucket: &Kv, numbers: std::ops::Range<u128>) -> Vec<u128> {
        let mut found = Vec::new();
        for number in numbers {
            if bucket.get(&format!("a.{}", JobId::from_u128(number))).await.unwrap().is_some() {
                found.push(number);
            }
        }
        found
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_jobs_that_are_over_are_shown_each_once_and_the_next_scheduler_begins_anew() {
        let tasks = tokio::task::LocalSet::new();
        let shows = async {
            let (bus, subjects) = (Bus::in_process(), Subjects::new("view").unwrap());
            let view = View::start(bus.clone(), subjects.clone(), || {});
            let jobs = OVER_MAX as u128 + 5;
            for number in 0..jobs {
                for state in [JobState::Queued, JobState::Starting, JobState::Running, JobState::Succeeded] {
                    view.show(record(number, state));
                }
            }
            sleep(Duration::from_secs(5)).await;
            let (bucket, _) = open(&bus, &subjects, false).await.unwrap();
            assert_eq!(shown(&bucket, 0..10).await, [5, 6, 7, 8, 9], "the others are too many");
            let puts = bucket.stream().state().await.unwrap().last_sequence;
            assert_eq!(u128::from(puts), jobs, "who watches hears of each short job once");
            drop(view);
            let next = View::start(bus.clone(), subjects.clone(), || {});
            next.show(record(7, JobState::Queued));
            sleep(Duration::from_secs(5)).await;
            assert_eq!(shown(&bucket, 0..jobs).await, [7]);
        };
        tasks.run_until(shows).await;
    }
}
