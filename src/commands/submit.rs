//! A job on a cluster: this process only submits it and hears of it.

use std::{convert::Infallible, time::Duration};

use super::{
    client_failure,
    kept::{self, Stop},
};
use crate::{
    cli, cluster,
    config::NodeConfig,
    enough::EnoughKey,
    exit::{Exit, Failure},
    interrupt::Interrupt,
};
use exobus_actors::{
    api::ApiError,
    client::{Client, ClientError},
    event::{Event, EventSink},
    ids::JobId,
    protocol::{
        host::{JobEnd, JobSpec},
        job::JobState,
    },
    spec::{Plan, Spec, SpecCode},
    words::Word,
};
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::debug;

/// How long after a job has said that it has stopped it is told once more to go on.
const SAID_AGAIN: Duration = Duration::from_secs(1);

/// What is submitted, and who hears of it.
pub(super) struct Submitted<'a> {
    pub(super) config: &'a NodeConfig,
    pub(super) interrupt: &'a Interrupt,
    /// How commands that look at the cluster are told of it.
    pub(super) look: &'a str,
    pub(super) events: Option<&'a EventSink>,
    /// What says that somebody has seen enough.
    pub(super) key: Option<&'a EnoughKey>,
}

/// What became of a job.
pub(super) struct Waited {
    /// How it ended, or how it has stopped.
    pub(super) end: JobEnd,
    /// The program that has run: a node has planned it.
    pub(super) program: String,
    /// The job, where it has stopped and is kept.
    pub(super) kept: Option<JobId>,
}

impl Submitted<'_> {
    /// Hands a spec in and waits for the end of its job, or of one that `explains` it, or until it has stopped and is kept; the first Ctrl-C cancels it.
    pub(super) fn spec(&self, spec: &Spec, explains: bool) -> Result<Waited, Failure> {
        self.with_client(&spec.kind, async |client, hear| {
            let text = spec.canonical();
            let job = match explains {
                true => client.hand_in_to_explain(&text).await?,
                false => client.hand_in(&text, self.sample_ms()).await?,
            };
            self.wait(client, job, (hear, Some(&Stop::new()))).await
        })
        .map_err(|trouble| self.failure_of(spec, trouble))
    }

    /// Has a job go on that has seen enough and was kept, and waits for its end; the first Ctrl-C cancels it.
    pub(super) fn go_on(&self, digits: &str) -> Result<Waited, Failure> {
        let waited = self.with_client("continue", async |client, hear| {
            let status: Value = client.ask("status", &json!({ "job": digits })).await?;
            let job = status["job"].as_str().and_then(|job| job.parse().ok());
            let job = job.ok_or_else(|| ClientError::Strange("a job without an id".into()))?;
            if JobState::of_answer(&status).is_some_and(JobState::is_over) {
                let message = format!(
                    "job {job} is over: it has {}, and cannot go on",
                    status["state"].as_str().unwrap_or("ended")
                );
                return Err(ClientError::Refused(ApiError { code: "over".to_owned(), message, at: None }));
            }
            client.tell(job, Word::GoOn).await?;
            // It is not kept a second time. What it has shown before it went on says that it has stopped; where that is shown anew, its host was lost with the word, which is said again.
            let stop = Stop::new();
            let mut heard = |event: Event| {
                stop.see(&event);
                hear(event);
            };
            let again = async {
                loop {
                    stop.stopped().await;
                    sleep(SAID_AGAIN).await;
                    // Whether it is heard shows in what comes next.
                    let _ = client.tell(job, Word::GoOn).await;
                }
            };
            tokio::select! {
                biased;
                waited = self.wait(client, job, (&mut heard, None)) => waited,
                () = again => unreachable!("it is said until the job is over"),
            }
        });
        waited.map_err(|trouble| self.failure(trouble))
    }

    /// Waits for a job.
    async fn wait(
        &self,
        client: &Client,
        job: JobId,
        (hear, stop): (&mut dyn FnMut(Event), Option<&Stop>),
    ) -> Result<Waited, ClientError> {
        let hear = |event: Event| {
            stop.iter().for_each(|stop| stop.see(&event));
            hear(event);
        };
        let stopped = async {
            match stop {
                Some(stop) => stop.stopped().await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            biased;
            end = client.follow(job, hear, self.interrupt.wait()) => Ok(end?),
            stopped = stopped => Err(stopped),
            never = self.tell_when_pressed(client, job) => match never {},
        };
        // It is over, whether or not that can be said now.
        let status = client.changed("watch", job, 0, Duration::ZERO).await.unwrap_or_default();
        let program = status["program"].as_str().unwrap_or_default().to_owned();
        match ended {
            Ok(end) => Ok(Waited { end, program, kept: None }),
            Err(stopped) => {
                let end = kept::end_of(&program, stopped).map_err(|error| ClientError::Strange(error.to_string()))?;
                Ok(Waited { end, program, kept: Some(job) })
            }
        }
    }

    /// The same for a program of the registry, with exactly these parameters.
    pub(super) fn plan(&self, plan: &Plan) -> Result<JobEnd, Failure> {
        let ended = self.with_client(exobus_actors::registry::name_of(&plan.program), async |client, hear| {
            let spec = JobSpec {
                job: client.new_job(),
                tenant: client.options().tenant.clone(),
                program: plan.program.clone(),
                params: plan.params.clone(),
                sample_ms: self.sample_ms(),
                plan_pieces: 0,
            };
            client.run_spec(spec, hear, self.interrupt.wait()).await
        });
        ended.map_err(|error| self.failure(error))
    }

    /// Tells the job, each time that the key is pressed, that somebody has seen enough.
    async fn tell_when_pressed(&self, client: &Client, job: JobId) -> Infallible {
        let Some(key) = self.key else { return std::future::pending().await };
        let mut pressed = 0;
        loop {
            pressed = key.pressed(pressed).await;
            // Where it is too late for that the job is over soon.
            if let Err(error) = client.tell(job, Word::Enough).await {
                debug!(job_id = %job, %error, "the job was not told that it is enough");
            }
        }
    }

    fn sample_ms(&self) -> u64 {
        self.events.map_or(0, EventSink::sample_ms)
    }

    /// Does something as a client of the cluster; the connection has this name after "exobus ".
    fn with_client<T>(
        &self,
        name: &str,
        work: impl AsyncFnOnce(&Client, &mut dyn FnMut(Event)) -> Result<T, ClientError>,
    ) -> Result<T, Trouble> {
        let runtime = cluster::runtime().map_err(Trouble::Other)?;
        runtime.block_on(async {
            let options = cluster::connect_client(self.config, name).await.map_err(Trouble::Other)?;
            let bus = options.bus.clone();
            let client = Client::connect(options).await?;
            let mut hear = |event| {
                if let Some(events) = self.events {
                    events.emit(event);
                }
            };
            let done = work(&client, &mut hear).await?;
            // What is lost with the connection now nobody waits for.
            let _ = bus.drain().await;
            Ok(done)
        })
    }

    /// What is wrong with a spec is said in the options of its command.
    fn failure_of(&self, spec: &Spec, trouble: Trouble) -> Failure {
        match trouble {
            Trouble::Client(ClientError::Refused(refused)) if SpecCode::is_one(&refused.code) => {
                cli::refused(&spec.kind, &refused.message)
            }
            trouble => self.failure(trouble),
        }
    }

    fn failure(&self, trouble: Trouble) -> Failure {
        match trouble {
            Trouble::Client(error @ ClientError::HostSilent { job, .. }) => {
                let look = self.look;
                let text = format!(
                    "{error}; the job may go on without this command: `exobus jobs{look}` lists it, \
                     `exobus job {job} why{look}` says how it stands"
                );
                Failure::text(Exit::Unreachable, text)
            }
            Trouble::Client(error) => client_failure(error),
            Trouble::Other(failure) => failure,
        }
    }
}

/// Why nothing came of it.
enum Trouble {
    Client(ClientError),
    Other(Failure),
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}
