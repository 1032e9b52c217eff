//! What changes nothing: how it stands with jobs, nodes and the cluster.

use std::sync::Arc;
use std::time::Duration;

use exobus_bus::{JobChannel, Message};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use super::answer::{ApiError, MSGPACK, bytes_message, json_message, progress_json};
use super::door::{Asked, Door, ENCODING};
use crate::causes;
use crate::ids::{JobId, NodeId};
use crate::jobs::view::record_json;
use crate::protocol;
use crate::protocol::host::{HostMsg, JobEnd, Look, News};
use crate::protocol::job::{JobRecord, JobState};
use crate::protocol::owner::{OwnerMsg, Why};
use crate::protocol::scheduler::{Described, Live, NodeInfo, RecordPage, RecordRow, SchedulerMsg};
use crate::shell::AskError;
use crate::spec::{Plain, kinds};
use crate::words::Word;

/// Jobs in an answer to `list`, unless fewer are asked for.
const LISTED_MAX: u32 = 50;
/// How long the host of a job may take to say how it stands, beside what somebody wants to wait: less than who asks for events waits.
pub(super) const HOST_DEADLINE: Duration = Duration::from_millis(600);
/// How long an Owner may take that asks its nodes.
const WHY_DEADLINE: Duration = Duration::from_secs(8);
/// How long a request may wait for something to happen.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How soon it is looked again what has become of a job that its host does not tell of, as it waits for its turn or has just ended: at
/// first, and at last.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(200));
/// The first digits of an id that stand for it, at least.
const DIGITS_MIN: usize = 6;

/// A request about a job, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Request {
    /// The job: its id, or the first digits of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<String>,
    /// What was heard of last.
    pub(crate) after: u64,
    /// How long to wait for something after that, milliseconds.
    pub(crate) wait_ms: u64,
    /// The host of the job, where that is known: it is asked first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// How many are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u32>,
    /// Those that are over, too.
    pub(crate) all: bool,
    /// Only those in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<JobState>,
    /// Where the answer before ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// What the job is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) word: Option<Word>,
}

impl Request {
    /// A request: a JSON object, the id of a job alone, or nothing.
    pub(super) fn parse(payload: &[u8]) -> Result<Self, ApiError> {
        let text = payload.trim_ascii();
        if text.is_empty() || text == b"null" {
            return Ok(Self::default());
        }
        if text.iter().all(u8::is_ascii_hexdigit) {
            let job = String::from_utf8_lossy(text).into_owned();
            return Ok(Self { job: Some(job), ..Self::default() });
        }
        let failed = |error: serde_json::Error| {
            let text = format!("the request is no JSON object of this form: {error}");
            ApiError::new("bad_request", text)
        };
        serde_json::from_slice(text).map_err(failed)
    }
}

/// The job that is meant.
pub(super) async fn job_of(door: &Door, asked: &Asked<'_>, request: &Request) -> Result<JobId, ApiError> {
    let digits = request.job.as_deref();
    let digits = digits.ok_or_else(|| ApiError::new("bad_request", "the request names no job: {\"job\": \"<id>\"}"))?;
    let is_id = digits.len() <= 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let unknown = || ApiError::unknown_job(&asked.tenant, digits);
    if !is_id || digits.len() < DIGITS_MIN {
        return Err(unknown());
    }
    if digits.len() == 32 {
        return digits.parse().map_err(|_| unknown());
    }
    let (tenant, begins) = (asked.tenant.clone(), digits.to_ascii_lowercase());
    let find = |reply| SchedulerMsg::Find { tenant: tenant.clone(), digits: begins.clone(), reply };
    let found = door.scheduler(find).await?;
    match found.as_slice() {
        [job] => Ok(*job),
        [] => Err(unknown()),
        _ => Err(ApiError::new("ambiguous", format!("several jobs of tenant {} begin with {digits}", asked.tenant))),
    }
}

pub(super) async fn answer(door: &Door, asked: &Asked<'_>, work: OwnedSemaphorePermit) -> Result<Message, ApiError> {
    let request = Request::parse(&asked.message.payload)?;
    match asked.verb {
        "list" => list(door, asked, &request).await,
        "nodes" => Ok(json_message(&json!({ "nodes": nodes(door).await?.iter().map(node_json).collect::<Vec<_>>() }))),
        "cluster" => cluster(door).await,
        verb => {
            let job = job_of(door, asked, &request).await?;
            match verb {
                "status" => Ok(json_message(&status(door, asked, job, Look::default()).await?)),
                "watch" | "events" => watch(door, asked, job, &request, work).await,
                "estimate" => estimate(door, asked, job, &request, work).await,
                "why" => why(door, asked, job).await,
                "value" => value(door, asked, job).await,
                "logs" => logs(door, asked, job).await,
                _ => Err(ApiError::new("bad_request", "there is no such verb")),
            }
        }
    }
}

/// What the Scheduler, or else the history, says of a job.
pub(super) enum Known {
    Live(Box<Live>),
    Over(Box<JobRecord>),
}

impl Known {
    pub(super) fn record(&self) -> &JobRecord {
        match self {
            Self::Live(live) => &live.record,
            Self::Over(record) => record,
        }
    }
}

pub(super) async fn known(door: &Door, asked: &Asked<'_>, job: JobId) -> Result<Known, ApiError> {
    let tenant: Arc<str> = asked.tenant.clone();
    let describe = |reply| SchedulerMsg::Describe { tenant: tenant.clone(), job, reply };
    match door.scheduler(describe).await? {
        Some(Described::Live(live)) => Ok(Known::Live(live)),
        Some(Described::Archived) => {
            let record = archived(door, &asked.tenant, job).await?;
            Ok(Known::Over(record.ok_or_else(|| ApiError::unknown_job(&asked.tenant, &job.to_string()))?))
        }
        None => Err(ApiError::unknown_job(&asked.tenant, &job.to_string())),
    }
}

async fn archived(door: &Door, tenant: &str, job: JobId) -> Result<Option<Box<JobRecord>>, ApiError> {
    let failed = |error: &dyn std::error::Error| {
        ApiError::unavailable(format!("the history of jobs cannot be read now: {}", causes(error)))
    };
    let Some(journal) = door.parts.journal.get().await.map_err(|error| failed(&error))? else { return Ok(None) };
    let found = journal.archived(tenant, job).await.map_err(|error| failed(&error))?;
    Ok(found.map(Box::new))
}

/// What the host of a job says, where it has one that answers.
async fn news(door: &Door, record: &JobRecord, look: Look) -> Option<News> {
    news_of(door, record.job, record.host.as_ref()?, look).await
}

async fn news_of(door: &Door, job: JobId, host: &NodeId, look: Look) -> Option<News> {
    let address = door.parts.post.address::<HostMsg>(host, protocol::host::ACTOR);
    let deadline = HOST_DEADLINE + Duration::from_millis(look.wait_ms);
    tokio::select! {
        biased;
        () = door.parts.directory.gone(host) => None,
        answer = address.ask(|reply| HostMsg::Look { job, look, reply }, deadline) => answer.ok().flatten().map(|news| *news),
    }
}

/// How it stands with a job.
async fn status(door: &Door, asked: &Asked<'_>, job: JobId, look: Look) -> Result<Value, ApiError> {
    let known = known(door, asked, job).await?;
    let mut told = record_json(known.record());
    let record = known.record();
    if let Known::Live(live) = &known {
        if let Some(before) = live.before {
            told.insert("jobs_before".into(), json!(before));
        }
        if let Some(info) = live.info.as_ref().filter(|_| !record.state.is_over()) {
            told.insert("slots".into(), json!(info.slots));
            told.insert("wanted_slots".into(), json!(info.wanted_slots));
            told.insert("waiting".into(), json!(info.wait.as_ref().map(|wait| &wait.reason)));
        }
        if !live.durable {
            told.insert("durable".into(), json!(false));
        }
    }
    // Of a job that is over its host has the last events for a while: who follows it hears them.
    let look = if record.state.is_over() { Look { wait_ms: 0, ..look } } else { look };
    if record.state > JobState::Queued
        && (matches!(known, Known::Live(_)) || look.events > 0)
        && let Some(news) = news(door, record, look).await
    {
        told.insert("progress".into(), progress_json(&news.progress));
        told.insert("last".into(), json!(news.last));
        if look.events > 0 {
            told.insert("events".into(), events_json(&news));
            told.insert("skipped".into(), json!(news.skipped));
            told.insert("first".into(), json!(news.first(look.after)));
            told.insert("over".into(), json!(news.over));
        }
    }
    Ok(Value::Object(told))
}

fn events_json(news: &News) -> Value {
    let event = |(number, event): &(u64, crate::event::Event)| {
        let mut value = serde_json::to_value(event).unwrap_or_default();
        value["number"] = json!(number);
        value
    };
    news.events.iter().map(event).collect()
}

/// A request that waits for something to happen.
struct Waiting {
    until: Instant,
    /// How long until it is looked again.
    pause: Duration,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Waiting {
    /// Who waits keeps nobody from being worked for; beyond what may wait it is answered at once.
    fn begin(door: &Door, request: &Request, _work: OwnedSemaphorePermit) -> Self {
        let permit = door.waits.clone().try_acquire_owned().ok();
        let wait = if permit.is_some() { Duration::from_millis(request.wait_ms).min(WAIT_MAX) } else { Duration::ZERO };
        Self { until: Instant::now() + wait, pause: LOOK_AGAIN.0, _permit: permit }
    }

    fn left_ms(&self) -> u64 {
        self.until.saturating_duration_since(Instant::now()).as_millis() as u64
    }

    /// Whether there is no time left to look again.
    fn is_over(&self) -> bool {
        Instant::now() + self.pause >= self.until
    }

    /// Resolves when it is to be looked again.
    async fn pause(&mut self, is_queued: bool) {
        sleep(self.pause).await;
        // Of those that wait for their turn there may be very many.
        self.pause = (2 * self.pause).min(if is_queued { 10 * LOOK_AGAIN.1 } else { LOOK_AGAIN.1 });
    }
}

/// How it stands with a job when something has happened, or the wait is over.
async fn watch(
    door: &Door,
    asked: &Asked<'_>,
    job: JobId,
    request: &Request,
    work: OwnedSemaphorePermit,
) -> Result<Message, ApiError> {
    let events = if asked.verb == "events" { request.limit.unwrap_or(256).clamp(1, 256) } else { 0 };
    let mut waiting = Waiting::begin(door, request, work);
    if let Some(host) = request.host.as_deref().filter(|host| exobus_bus::Subjects::new(host).is_ok()) {
        let look = Look { after: request.after, wait_ms: waiting.left_ms(), events, estimate: false };
        let news = news_of(door, job, &NodeId::new(host), look).await;
        if news.is_none() {
            // It has another one by now, or will: whoever asks hears from the Scheduler, at once.
            return Ok(json_message(&status(door, asked, job, Look { wait_ms: 0, ..look }).await?));
        }
        // Of one that has ended there the Scheduler knows more.
        if let Some(news) = news.filter(|news| !news.over && news.last != request.after && news.tenant == asked.tenant)
        {
            return Ok(json_message(&json!({
                "job": job.to_string(), "host": host, "state": JobState::Running, "last": news.last,
                "progress": progress_json(&news.progress), "events": events_json(&news), "skipped": news.skipped,
                "first": news.first(request.after), "over": false,
            })));
        }
    }
    loop {
        let look = Look { after: request.after, wait_ms: waiting.left_ms(), events, estimate: false };
        let status = status(door, asked, job, look).await?;
        let heard = status["last"].as_u64();
        let over = JobState::of_answer(&status).is_some_and(JobState::is_over);
        if over || heard.is_some_and(|last| last != request.after) || waiting.is_over() {
            return Ok(json_message(&status));
        }
        waiting.pause(status["state"] == JobState::Queued.token()).await;
    }
}

/// The answer to `estimate`. Many may follow a job: the text of a look, which may be long, is put into the answer as it is.
#[derive(Serialize)]
struct Estimate<'a> {
    job: String,
    state: JobState,
    last: u64,
    snapshot: Option<&'a RawValue>,
    over: bool,
}

/// What the result of a job looks like by now, when there is something after what was heard of, or the wait is over.
async fn estimate(
    door: &Door,
    asked: &Asked<'_>,
    job: JobId,
    request: &Request,
    work: OwnedSemaphorePermit,
) -> Result<Message, ApiError> {
    let mut waiting = Waiting::begin(door, request, work);
    loop {
        let known = known(door, asked, job).await?;
        let record = known.record();
        // Of one that has ended there the Scheduler knows whether it goes on elsewhere.
        let (over, is_queued) = (record.state.is_over(), record.state == JobState::Queued);
        let wait_ms = if over { 0 } else { waiting.left_ms() };
        let look = Look { after: request.after, wait_ms, events: 0, estimate: true };
        let news = if is_queued { None } else { news(door, record, look).await };
        let new = news.and_then(|news| news.estimate);
        if new.is_some() || over || waiting.is_over() {
            let (last, snapshot) = new.map_or((request.after, None), |(number, text)| (number, Some(text)));
            let snapshot = snapshot.as_deref().and_then(|text| serde_json::from_str(text).ok());
            return Ok(json_message(&Estimate { job: job.to_string(), state: record.state, last, snapshot, over }));
        }
        waiting.pause(is_queued).await;
    }
}

async fn list(door: &Door, asked: &Asked<'_>, request: &Request) -> Result<Message, ApiError> {
    let before = match &request.next {
        Some(next) => {
            Some(next.parse().map_err(|_| ApiError::new("bad_request", "`next` is what a list before ended with"))?)
        }
        None => None,
    };
    let most = request.limit.unwrap_or(LISTED_MAX).clamp(1, LISTED_MAX);
    let all = request.all || request.state.is_some_and(JobState::is_over);
    let RecordPage { jobs, more } = page(door, &asked.tenant, all, before, most).await?;
    let last = jobs.last().map(|row| match row {
        RecordRow::Record(record) => record.job,
        RecordRow::Archived(job) => *job,
    });
    let records = jobs.into_iter().map(async |row| match row {
        RecordRow::Record(record) => Ok(Some(record)),
        RecordRow::Archived(job) => archived(door, &asked.tenant, job).await,
    });
    let records = join_all(records).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let wanted = records.into_iter().flatten().filter(|record| request.state.is_none_or(|state| record.state == state));
    let jobs: Vec<_> = wanted.map(|record| record_json(&record)).collect();
    let next = last.filter(|_| more).map(|job| job.to_string());
    Ok(json_message(&json!({ "jobs": jobs, "next": next })))
}

async fn page(
    door: &Door,
    tenant: &Arc<str>,
    all: bool,
    before: Option<JobId>,
    most: u32,
) -> Result<RecordPage, ApiError> {
    let ask = |reply| SchedulerMsg::ListRecords { tenant: tenant.clone(), all, before, most, reply };
    door.scheduler(ask).await
}

/// How many jobs of this tenant would have their turn before one that is handed in now.
pub(super) async fn jobs_before(door: &Door, tenant: &Arc<str>, priority: i32) -> Result<u64, ApiError> {
    let ask = |reply| SchedulerMsg::QueueBefore { tenant: tenant.clone(), priority, reply };
    door.scheduler(ask).await
}

/// The nodes of the cluster, with what they are.
pub(super) async fn nodes(door: &Door) -> Result<Vec<NodeInfo>, ApiError> {
    door.scheduler(|reply| SchedulerMsg::ListNodes { reply }).await
}

fn node_json(info: &NodeInfo) -> Value {
    let spec = &info.spec;
    json!({
        "node": spec.node.to_string(),
        "incarnation": spec.incarnation.0,
        "up": info.up,
        "resources": spec.resources,
        "free": info.free,
        "labels": spec.labels,
        "memory_bytes": spec.memory_bytes,
        "data_address": spec.data_address,
        "jobs_hosted": info.hosts,
        "leases": info.leases,
    })
}

async fn cluster(door: &Door) -> Result<Message, ApiError> {
    let nodes = nodes(door).await?;
    let up: Vec<_> = nodes.iter().filter(|info| info.up).collect();
    let leader = door.parts.scheduler.leader();
    Ok(json_message(&json!({
        "cluster": door.subjects.cluster(),
        "version": env!("CARGO_PKG_VERSION"),
        "scheduler": leader.as_ref().map(|leader| leader.node.to_string()),
        "epoch": leader.as_ref().map(|leader| leader.epoch.0),
        "nodes": nodes.len(),
        "nodes_up": up.len(),
        "memory_bytes": up.iter().map(|info| info.spec.memory_bytes).sum::<u64>(),
        "executors_milli": up.iter().map(|info| info.spec.resources.get("cpu")).sum::<u64>(),
        "kinds": kinds().values().map(|kind| json!({ "kind": kind.name, "doc": kind.doc })).collect::<Vec<_>>(),
    })))
}

/// What a job waits for.
async fn why(door: &Door, asked: &Asked<'_>, job: JobId) -> Result<Message, ApiError> {
    let known = known(door, asked, job).await?;
    let record = known.record();
    let mut told = record_json(record);
    let chain = |text: String| json!([[text]]);
    let chains = match (record.state, &record.host) {
        (state, _) if state.is_over() => chain(format!("job {job} is over: it has {state}")),
        (JobState::Queued, _) => {
            let before = if let Known::Live(live) = &known { live.before.unwrap_or(0) } else { 0 };
            chain(match before {
                0 => format!("job {job} waits for a node that has room for it"),
                1 => format!("job {job} waits for its turn: another job of its tenant comes before it"),
                before => format!("job {job} waits for its turn: {before} jobs of its tenant come before it"),
            })
        }
        (_, None) => chain(format!("job {job} waits for a node that hosts it")),
        (_, Some(host)) => match owner_says(door, job, host).await {
            Ok(why) => {
                told.insert("standing".into(), json!(why.standing));
                told.insert("still_ms".into(), json!(why.still_ms));
                told.insert("moved".into(), json!(why.moved));
                told.insert("log".into(), json!(why.log));
                json!(why.chains)
            }
            Err(error) => chain(format!("its Owner on {host} does not answer: {error}")),
        },
    };
    told.insert("chains".into(), chains);
    Ok(json_message(&told))
}

async fn owner_says(door: &Door, job: JobId, host: &NodeId) -> Result<Why, AskError> {
    let owner = door.parts.post.address::<OwnerMsg>(host, &protocol::owner::actor_name(job));
    owner.ask(|reply| OwnerMsg::Why { ask: true, reply }, WHY_DEADLINE).await
}

/// What the program of a job returned.
async fn value(door: &Door, asked: &Asked<'_>, job: JobId) -> Result<Message, ApiError> {
    let known = known(door, asked, job).await?;
    let record = known.record();
    if !record.state.is_over() {
        return Err(ApiError::new("not_over", format!("job {job} is {}: it has returned nothing yet", record.state)));
    }
    let end = end_of(door, record).await?;
    if asked.header(ENCODING) == Some(MSGPACK) {
        let bytes = rmp_serde::to_vec_named(&end).map_err(|error| ApiError::new("unreadable", error.to_string()))?;
        return Ok(bytes_message(bytes.into()));
    }
    match &end.result {
        Ok(bytes) => {
            let value = if bytes.is_empty() { Ok(Plain(Value::Null)) } else { Plain::of(bytes) };
            let strange = |error: rmp_serde::decode::Error| {
                ApiError::new("unreadable", format!("what the program returned has no form in JSON: {error}"))
            };
            Ok(json_message(&json!({ "job": job.to_string(), "value": value.map_err(strange)?.0 })))
        }
        Err(error) => Err(ApiError::new(error.code(), error.to_string())),
    }
}

/// How a job ended, in full.
pub(super) async fn end_of(door: &Door, record: &JobRecord) -> Result<JobEnd, ApiError> {
    let outcome = record.outcome.as_ref();
    let failed = |error: &dyn std::error::Error| {
        ApiError::unavailable(format!("how the job ended cannot be read now: {}", causes(error)))
    };
    let logged = match door.parts.logs.get().await.map_err(|error| failed(&error))? {
        Some(logs) => logs.end(record.job).await.map_err(|error| failed(&error))?,
        None => None,
    };
    if let Some(end) = logged {
        return Ok(end);
    }
    if let Some(host) = &record.host {
        let address = door.parts.post.address::<HostMsg>(host, protocol::host::ACTOR);
        let job = record.job;
        if let Ok(Some(end)) = address.ask(|reply| HostMsg::TellEnd { job, reply }, HOST_DEADLINE).await {
            return Ok(*end);
        }
    }
    if let Some(value) = outcome.and_then(|outcome| outcome.value.clone()) {
        return Ok(JobEnd::of(Ok(value)));
    }
    match outcome.map(|outcome| &outcome.result) {
        // It has said no more than that.
        Some(Err(_)) if record.state == JobState::Cancelled => Ok(JobEnd::failed(crate::task::JobError::Cancelled)),
        Some(Err(reason)) => Ok(JobEnd::failed(crate::task::JobError::program(&reason.message))),
        _ => Err(ApiError::new(
            "expired",
            format!("what job {} returned is kept for a day, and was not kept longer", record.job),
        )),
    }
}

async fn logs(door: &Door, asked: &Asked<'_>, job: JobId) -> Result<Message, ApiError> {
    known(door, asked, job).await?;
    let subject = door.subjects.job(&asked.tenant, &job.to_string(), JobChannel::Log);
    let subject = subject.map_err(|error| ApiError::new("bad_request", error.to_string()))?;
    let text = "subscribe to it: what is printed from now on arrives there, and what nobody hears is lost";
    Ok(json_message(&json!({ "job": job.to_string(), "subject": subject.as_str(), "note": text })))
}
