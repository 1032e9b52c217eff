//! A process that hands jobs in and asks how it stands with them: through the [door](crate::api) of its cluster, as anybody does.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use exobus_bus::{Bus, BusError, Message, Subjects};
use exobus_store::{Clock, SystemClock};
use futures::stream::{FuturesUnordered, StreamExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::{self, ApiError, ERROR, Standing};
use crate::event::{Event, EventKind, Progress};
use crate::ids::{JobId, NodeId};
use crate::protocol::host::{JobEnd, JobSpec};
use crate::protocol::job::JobState;
use crate::random::{Random, SystemRandom};
use crate::task::{JobError, JobProgram};
use crate::words::Word;

/// A job of which nothing is heard for so long may have lost its host, which reports at least twice a second.
const HOST_QUIET: Duration = Duration::from_secs(2);
/// When nothing was heard of a job for so long, it is not waited for any more. A cluster may be started anew meanwhile.
const HOST_SILENCE: Duration = Duration::from_secs(60);
/// How long a request may wait at the door for something to happen.
const WAIT: Duration = Duration::from_secs(1);
/// How long the door may take beside that before it is asked again.
const ANSWER_DEADLINE: Duration = Duration::from_millis(1500);
/// How long it may take where the Scheduler has to note something, or a node is asked for what it knows.
const LONG_DEADLINE: Duration = Duration::from_secs(12);
/// After so long without an answer another node is asked as well: the server may have handed the request to one that does nothing any more, which it
/// knows only seconds later. What a request may wait for something to happen comes on top.
const ASK_ANOTHER: Duration = Duration::from_secs(1);
/// By so much an answer may be later than what happens, or than the end of a wait for that.
const SLACK: Duration = Duration::from_millis(250);
/// Between two tries of what was not answered, and two questions of which the first was answered with nothing new.
const AGAIN: Duration = Duration::from_millis(100);
/// How long it is asked again while there can be no Scheduler, as the cluster says.
const TROUBLE: Duration = Duration::from_secs(5);
/// Codes of what may be answered later.
const UNAVAILABLE: &str = "unavailable";
const NO_SCHEDULER: &str = "no_scheduler";
/// What is called the job when it is spoken of.
const JOB: &str = "the job";

/// How a client connects.
#[derive(Clone)]
pub struct ClientOptions {
    /// The way to the cluster.
    pub bus: Bus,
    /// The names of the cluster.
    pub subjects: Subjects,
    /// For whom jobs run: "default".
    pub tenant: Arc<str>,
    /// The submitters' token, where the cluster has one.
    pub token: Option<Arc<str>>,
    /// Who hands jobs in, for people.
    pub who: Option<Arc<str>>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where keys come from, under which jobs are handed in.
    pub random: Arc<dyn Random>,
    /// How long to look for a node that answers, and to ask again what the cluster could not answer.
    pub deadline: Duration,
}

impl ClientOptions {
    /// A client of the tenant "default", without a token, that looks for a node for 10 s.
    pub fn new(bus: Bus, subjects: Subjects) -> Self {
        Self {
            bus,
            subjects,
            tenant: "default".into(),
            token: None,
            who: None,
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            deadline: Duration::from_secs(10),
        }
    }
}

/// Why a client cannot do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The bus does not do what is asked.
    #[error("bus")]
    Bus(#[from] BusError),
    /// The NATS server does not let this account ask that.
    #[error("the NATS server does not let this account ask for {verb:?} in the name of the tenant {tenant}")]
    Denied {
        /// What was asked.
        verb: String,
        /// In whose name.
        tenant: Arc<str>,
        /// The server's words.
        source: BusError,
    },
    /// No node answers.
    #[error("no node of cluster {cluster} answers within {} s", deadline.as_secs_f64())]
    Nobody {
        /// The cluster.
        cluster: String,
        /// How long it was tried.
        deadline: Duration,
    },
    /// The cluster does not do it.
    #[error("{0}")]
    Refused(#[from] ApiError),
    /// The job may go on, on that node or elsewhere.
    #[error("node {host}, which hosts the job, has been silent for {} s", silent.as_secs())]
    HostSilent {
        /// The node.
        host: NodeId,
        /// The job.
        job: JobId,
        /// For how long.
        silent: Duration,
    },
    /// What was answered is none of what was asked for.
    #[error("an answer of another release: {0}")]
    Strange(String),
}

impl ClientError {
    /// Whether whoever asks again may be answered.
    pub fn may_heal(&self) -> bool {
        match self {
            Self::Bus(error) => error.is_retryable(),
            Self::Refused(error) => error.code == UNAVAILABLE || error.code == NO_SCHEDULER,
            Self::Nobody { .. } => true,
            Self::Denied { .. } | Self::HostSilent { .. } | Self::Strange(_) => false,
        }
    }

    /// What the cluster says, where it is that which refuses.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(error) => Some(&error.code),
            _ => None,
        }
    }
}

/// Why a program that was [run](Client::run) has returned nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The cluster does not run it, or it is not known how it ended.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It ran, and its job failed; or what it takes or returns cannot be written or read.
    #[error(transparent)]
    Job(#[from] JobError),
}

/// A client of a cluster. It keeps nothing there, and need not say farewell.
#[derive(Clone)]
pub struct Client(ClientOptions);

/// What a client has heard of its job, and what it says when it hears nothing.
struct Hearing {
    job: JobId,
    host: Option<NodeId>,
    /// On this process's clock.
    heard_at: Duration,
    /// On the job's clock.
    event_us: u64,
    /// The number of the last event.
    last: u64,
    /// Whether it was said that the job waits, and for what.
    told: Option<String>,
}

impl Hearing {
    fn silent(&self, now: Duration) -> Duration {
        now.saturating_sub(self.heard_at)
    }

    /// Something was heard.
    fn heard(&mut self, now: Duration, news: &mut impl FnMut(Event)) {
        let after_ms = self.silent(now).as_millis() as u64;
        self.heard_at = now;
        if self.told.take().is_some() {
            self.say(after_ms, EventKind::GoesOn { what: JOB.into(), after_ms }, news);
        }
    }

    /// The job does not go on, as far as is known, for this reason.
    fn waits(&mut self, for_ms: u64, reason: String, news: &mut impl FnMut(Event)) {
        self.told = Some(reason.clone());
        self.say(for_ms, EventKind::Waiting { what: JOB.into(), reason, for_ms }, news);
    }

    fn say(&self, after_ms: u64, kind: EventKind, news: &mut impl FnMut(Event)) {
        let at_us = self.event_us + 1000 * after_ms;
        let node = self.host.clone().unwrap_or_else(|| NodeId::new("client"));
        news(Event { at_us, node, job: Some(self.job), kind });
    }

    fn host(&self) -> String {
        self.host.as_ref().map_or("its node".into(), |host| format!("node {host}, which hosts it,"))
    }

    /// What a status says; true when it is the last one.
    fn take(&mut self, status: &Value, now: Duration, news: &mut impl FnMut(Event)) -> bool {
        let state = JobState::of_answer(status);
        self.host = status["host"].as_str().map(NodeId::new);
        if state == Some(JobState::Queued) {
            let before = status["jobs_before"].as_u64().unwrap_or(0);
            let reason = format!("its turn, {before} jobs come before it");
            if before > 0 && self.told.as_ref() != Some(&reason) {
                self.waits(self.silent(now).as_millis() as u64, reason, news);
            }
            self.heard_at = now;
            return false;
        }
        let Some(last) = status["last"].as_u64() else {
            // Nobody there tells of it.
            return state.is_some_and(JobState::is_over);
        };
        self.heard(now, news);
        if status["skipped"].as_u64().unwrap_or(0) > 0
            && let Ok(progress) = serde_json::from_value::<Progress>(status["progress"].clone())
        {
            self.event_us = self.event_us.max(progress.at_ms * 1000);
            self.say(0, EventKind::Joined { progress }, news);
        }
        for event in status["events"].as_array().into_iter().flatten() {
            // One that a later release has is none of ours.
            if let Ok(event) = serde_json::from_value::<Event>(event.clone()) {
                self.event_us = self.event_us.max(event.at_us);
                news(event);
            }
        }
        self.last = last;
        state.is_some_and(JobState::is_over) && status["over"].as_bool().unwrap_or(true)
    }
}

/// How long to go on after this error: who hears why there can be no Scheduler need not hear it often.
fn patience(error: &ClientError, deadline: Duration) -> Duration {
    if error.code() == Some(NO_SCHEDULER) { deadline.min(TROUBLE) } else { deadline }
}

/// A spec of a program, with exactly these parameters.
fn spec_of(spec: &JobSpec) -> Value {
    json!({
        "kind": spec.program,
        "params_msgpack": BASE64.encode(&spec.params),
    })
}

impl Client {
    /// A client of the cluster, as soon as a node of it answers.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn connect(options: ClientOptions) -> Result<Self, ClientError> {
        let client = Self(options);
        let deadline = client.0.deadline;
        client.patiently(deadline, || client.ask::<Value>("cluster", &Value::Null)).await?;
        Ok(client)
    }

    /// The cluster's bus, and its names.
    pub fn options(&self) -> &ClientOptions {
        &self.0
    }

    /// Tries again what may be answered later, for a while.
    async fn patiently<T, F>(&self, deadline: Duration, ask: impl Fn() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let began = self.0.clock.now();
        loop {
            match ask().await {
                Err(error)
                    if error.may_heal() && self.0.clock.now().saturating_sub(began) < patience(&error, deadline) =>
                {
                    sleep(AGAIN).await;
                }
                Err(ClientError::Bus(BusError::NoResponders { .. } | BusError::TimedOut { .. })) => {
                    let cluster = self.0.subjects.cluster().to_owned();
                    return Err(ClientError::Nobody { cluster, deadline });
                }
                answered => return answered,
            }
        }
    }

    /// The first answer that comes. A request that waits long is sent again, which changes nothing: it asks, or names the job that it is about.
    async fn request(&self, verb: &str, request: Message, deadline: Duration) -> Result<Message, ClientError> {
        self.request_waiting(verb, request, (Duration::ZERO, deadline)).await
    }

    /// The same for one that may `wait` for something to happen.
    async fn request_waiting(
        &self,
        verb: &str,
        request: Message,
        (wait, deadline): (Duration, Duration),
    ) -> Result<Message, ClientError> {
        // Another one that is asked may wait as long.
        let deadline = 2 * wait + deadline;
        let ask_another = if wait.is_zero() { ASK_ANOTHER } else { wait + SLACK };
        let until = self.0.clock.now() + deadline;
        let left = || until.saturating_sub(self.0.clock.now());
        let mut asked = FuturesUnordered::from_iter([self.request_once(verb, request.clone(), deadline)]);
        loop {
            tokio::select! {
                Some(answer) = asked.next() => match answer {
                    Err(ClientError::Bus(BusError::TimedOut { .. })) if !asked.is_empty() => {}
                    answer => return answer,
                },
                () = sleep(ask_another), if left() >= ask_another => {
                    asked.push(self.request_once(verb, request.clone(), left()));
                }
            }
        }
    }

    async fn request_once(&self, verb: &str, request: Message, deadline: Duration) -> Result<Message, ClientError> {
        let subject = self.0.subjects.api(&self.0.tenant, verb).map_err(BusError::from)?;
        let headers = [(api::TOKEN, &self.0.token), (api::WHO, &self.0.who)];
        let headers = headers.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let request = headers.into_iter().try_fold(request, |request, (name, value)| request.with_header(name, value));
        let answer = self.0.bus.request(subject.clone(), request.map_err(BusError::from)?, deadline).await;
        let answer = answer.map_err(|error| match &error {
            BusError::Denied { subject: denied, .. } if *denied == subject.as_str() => {
                ClientError::Denied { verb: verb.to_owned(), tenant: self.0.tenant.clone(), source: error }
            }
            _ => ClientError::Bus(error),
        })?;
        if answer.headers.get(ERROR).is_none() {
            return Ok(answer);
        }
        let error = serde_json::from_slice::<Value>(&answer.payload).ok();
        let error = error.and_then(|error| serde_json::from_value::<ApiError>(error["error"].clone()).ok());
        Err(error.map_or_else(|| ClientError::Strange("an error without words".into()), ClientError::Refused))
    }

    /// Asks the door something, and reads what it answers.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ask<T: DeserializeOwned>(&self, verb: &str, request: &impl Serialize) -> Result<T, ClientError> {
        let request = serde_json::to_vec(request).map_err(|error| ClientError::Strange(error.to_string()))?;
        let until = self.0.clock.now() + self.0.deadline.min(LONG_DEADLINE);
        loop {
            match self.request(verb, Message::new(request.clone()), LONG_DEADLINE).await {
                // Another node may have room, or this one in a moment.
                Err(error) if error.code() == Some("unavailable") && self.0.clock.now() < until => sleep(AGAIN).await,
                Err(error) => return Err(error),
                Ok(answer) => {
                    return serde_json::from_slice(&answer.payload)
                        .map_err(|error| ClientError::Strange(error.to_string()));
                }
            }
        }
    }

    /// How it stands with a job (`watch`), or that with what has happened (`events`), after event number `after`, or when `wait` is over.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn changed(&self, verb: &str, job: JobId, after: u64, wait: Duration) -> Result<Value, ClientError> {
        let request = json!({ "job": job.to_string(), "after": after, "wait_ms": wait.as_millis() as u64 }).to_string();
        let ask = || self.request_waiting(verb, Message::new(request.clone()), (wait, LONG_DEADLINE));
        let answer = self.patiently(self.0.deadline, ask).await?;
        let status: Value =
            serde_json::from_slice(&answer.payload).map_err(|error| ClientError::Strange(error.to_string()))?;
        if !wait.is_zero() && status["last"].as_u64() == Some(after) {
            // A door that has many who wait answers at once.
            sleep(AGAIN).await;
        }
        Ok(status)
    }

    /// What the result of a job looks like by now (`snapshot`), when there is something after number `after`, or when `wait` is over.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn estimate(&self, job: JobId, after: u64, wait: Duration) -> Result<Value, ClientError> {
        self.changed("estimate", job, after, wait).await
    }

    /// Hands a spec in, TOML or JSON; tried again for a while where it names a key, as it is one job then.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn submit(&self, spec: &[u8]) -> Result<Standing, ClientError> {
        self.submit_as(spec, None, 0).await
    }

    /// Hands a spec in under an id that this client makes, so that it is one job however often that is tried; the id.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn hand_in(&self, spec: &[u8], sample_ms: u64) -> Result<JobId, ClientError> {
        self.submit_named(spec, (self.new_job(), false), sample_ms).await
    }

    /// The same for a job that says what that of the spec would do, and does nothing.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn hand_in_to_explain(&self, spec: &[u8]) -> Result<JobId, ClientError> {
        self.submit_named(spec, (self.new_job(), true), 0).await
    }

    async fn submit_named(&self, spec: &[u8], named: (JobId, bool), sample_ms: u64) -> Result<JobId, ClientError> {
        let standing = self.submit_as(spec, Some(named), sample_ms).await?;
        standing.job.parse().map_err(|_| ClientError::Strange(format!("{} is no id", standing.job)))
    }

    /// `named`: its id, and whether the job only explains the spec.
    async fn submit_as(
        &self,
        spec: &[u8],
        named: Option<(JobId, bool)>,
        sample_ms: u64,
    ) -> Result<Standing, ClientError> {
        let again = named.is_some() || crate::spec::Spec::parse(spec).is_ok_and(|spec| spec.key.is_some());
        let deadline = if again { self.0.deadline.max(LONG_DEADLINE) } else { Duration::ZERO };
        self.patiently(deadline, || async {
            let mut request = Message::new(spec.to_vec()).with_header(api::SAMPLE_MS, &sample_ms.to_string());
            if let Some((job, explains)) = named {
                request = request.and_then(|request| request.with_header(api::JOB, &job.to_string()));
                if explains {
                    request = request.and_then(|request| request.with_header(api::EXPLAIN, "true"));
                }
            }
            let request = request.map_err(BusError::from)?;
            let answer = match again {
                true => self.request("submit", request, LONG_DEADLINE).await?,
                false => self.request_once("submit", request, LONG_DEADLINE).await?,
            };
            serde_json::from_slice(&answer.payload).map_err(|error| ClientError::Strange(error.to_string()))
        })
        .await
    }

    /// How it stands with a job.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn status(&self, job: JobId) -> Result<Value, ClientError> {
        self.ask("status", &json!({ "job": job.to_string() })).await
    }

    /// Ends a job; what it has become, or is until it ends.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cancel(&self, job: JobId) -> Result<Standing, ClientError> {
        let request = json!({ "job": job.to_string() });
        self.patiently(self.0.deadline, || self.ask("cancel", &request)).await
    }

    /// Tells the program of a job something, as that somebody has seen enough of what it shows before its end. Said again it changes nothing.
    ///
    /// # Errors
    /// See [`ClientError`]: its [code](ClientError::code) is `not_listening` where the program does not listen, `over` where the job is, `not_running` where it has not begun.
    pub async fn tell(&self, job: JobId, word: Word) -> Result<Standing, ClientError> {
        let request = json!({ "job": job.to_string(), "word": word });
        self.patiently(self.0.deadline, || self.ask("tell", &request)).await
    }

    /// How a job ended that is over.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn end(&self, job: JobId) -> Result<JobEnd, ClientError> {
        self.patiently(self.0.deadline.max(LONG_DEADLINE), || async {
            let request = Message::new(json!({ "job": job.to_string() }).to_string());
            let request = request.with_header(api::ENCODING, api::MSGPACK).map_err(BusError::from)?;
            let answer = self.request("value", request, LONG_DEADLINE).await?;
            rmp_serde::from_slice(&answer.payload).map_err(|error| ClientError::Strange(error.to_string()))
        })
        .await
    }

    /// Hands a job in that runs a program of the registry, under the id that it says; the client of its tenant, and the id.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn start(&self, spec: &JobSpec) -> Result<(Self, JobId), ClientError> {
        let text = serde_json::to_vec(&spec_of(spec)).expect("plain data has a form in JSON");
        let client = Self(ClientOptions { tenant: spec.tenant.clone(), ..self.0.clone() });
        let job = client.submit_named(&text, (spec.job, false), spec.sample_ms).await?;
        Ok((client, job))
    }

    /// Runs a program with these parameters, and returns what it returns. `P` is the type that [`#[program]`](crate::program) makes: it
    /// has the name of the program's function.
    ///
    /// Whoever does not wait for the answer leaves the job alone; [`run_spec`](Self::run_spec) ends one, hears of it, and says what it
    /// took.
    ///
    /// ```no_run
    /// use exobus_actors::client::{Client, RunError};
    /// use exobus_actors::futures::Futures;
    /// use exobus_actors::program;
    /// use exobus_actors::task::JobError;
    ///
    /// #[program(name = "docs.sum", version = 1)]
    /// async fn sum(_: Futures, numbers: Vec<u64>) -> Result<u64, JobError> {
    ///     Ok(numbers.iter().sum())
    /// }
    ///
    /// async fn summed(client: &Client) -> Result<u64, RunError> {
    ///     client.run::<sum>(&vec![1, 2, 3]).await
    /// }
    /// ```
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn run<P: JobProgram>(&self, params: &P::Params) -> Result<P::Value, RunError>
    where
        P::Params: Serialize,
        P::Value: DeserializeOwned,
    {
        let spec = JobSpec::of(self.new_job(), &P::key(), params)?;
        let spec = JobSpec { tenant: self.0.tenant.clone(), ..spec };
        let end = self.run_spec(spec, |_| {}, std::future::pending()).await?;
        Ok(end.value()?)
    }

    /// Runs a job and returns how it ended; `news` is called for every event on the way. When `cancel` resolves, the job
    /// is ended. When its host falls silent, `news` is told that the job [waits](EventKind::Waiting) and why; it may go on
    /// elsewhere, and then so does this.
    ///
    /// # Errors
    /// See [`ClientError`]; an error of the job itself is in [`JobEnd::result`].
    pub async fn run_spec(
        &self,
        spec: JobSpec,
        news: impl FnMut(Event),
        cancel: impl Future<Output = ()>,
    ) -> Result<JobEnd, ClientError> {
        let (client, job) = self.start(&spec).await?;
        client.follow(job, news, cancel).await
    }

    /// Hears of a job until it is over, as [`run_spec`](Self::run_spec) does.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn follow(
        &self,
        job: JobId,
        mut news: impl FnMut(Event),
        cancel: impl Future<Output = ()>,
    ) -> Result<JobEnd, ClientError> {
        let clock = &self.0.clock;
        let (host, heard_at) = (None, clock.now());
        let mut hearing = Hearing { job, host, heard_at, event_us: 0, last: 0, told: None };
        let mut cancel = std::pin::pin!(cancel);
        let mut cancelled = false;
        loop {
            let (after, host) = (hearing.last, hearing.host.as_ref().map(NodeId::as_str));
            let wait_ms = WAIT.as_millis() as u64;
            let look = json!({ "job": job.to_string(), "after": after, "wait_ms": wait_ms, "host": host });
            let request = Message::new(look.to_string());
            let heard = tokio::select! {
                biased;
                () = &mut cancel, if !cancelled => {
                    cancelled = true;
                    self.cancel(job).await?;
                    continue;
                }
                heard = self.request_waiting("events", request, (WAIT, ANSWER_DEADLINE)) => heard,
            };
            let who = match heard {
                Ok(answer) => {
                    let status = serde_json::from_slice(&answer.payload);
                    let status: Value = status.map_err(|error| ClientError::Strange(error.to_string()))?;
                    if hearing.take(&status, clock.now(), &mut news) {
                        return self.end(job).await;
                    }
                    if status["last"].as_u64().is_none_or(|last| last == after) {
                        // Nobody tells of it now, or nothing new; a door that has many who wait answers at once.
                        sleep(AGAIN).await;
                    }
                    "is silent".to_owned()
                }
                Err(error) if error.may_heal() => {
                    sleep(AGAIN).await;
                    format!("is silent, and so is the cluster: {error}")
                }
                Err(error) => return Err(error),
            };
            let silent = hearing.silent(clock.now());
            if silent >= HOST_SILENCE {
                let host = hearing.host.unwrap_or_else(|| NodeId::new("none"));
                return Err(ClientError::HostSilent { host, job, silent });
            }
            if silent >= HOST_QUIET {
                let reason = format!("{} {who}", hearing.host());
                hearing.waits(silent.as_millis() as u64, reason, &mut news);
            }
        }
    }

    /// A job id that nobody else has.
    pub fn new_job(&self) -> JobId {
        JobId::made(self.0.clock.unix_ms(), self.0.random.next_u128())
    }
}
