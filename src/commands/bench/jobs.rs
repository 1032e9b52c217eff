//! Many small jobs from many clients: what it takes to accept one, and to run one.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use exobus_actors::{
    client::{Client, ClientError, ClientOptions},
    futures::Futures,
    ids::JobId,
    program,
    protocol::job::JobState,
    registry::{TaskContext, TaskError},
    spec::Plan,
    task,
    task::JobError,
};
use exobus_bus::{
    Bus, BusError, Pattern, Subject, Subjects,
    streams::{Append, Stream, StreamConfig},
};
use exobus_store::{Clock, SystemClock};
use futures::future::join_all;
use serde_json::{Value, json};
use tracing::warn;

use super::{super::client_failure, programs::Figures};
use crate::{
    cluster,
    config::NodeConfig,
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
};

/// What is measured.
pub struct ManyJobs<'a> {
    /// How many.
    pub jobs: u64,
    /// How many clients hand them in, each the next one when its last one is over.
    pub clients: u64,
    /// The spec of each, TOML or JSON, in which `{n}` is the number of the job; none: a job of one task that does nothing.
    pub spec: Option<&'a Path>,
    /// Whether nobody waits for the end of any.
    pub detach: bool,
}

/// Appends whose time is taken, one at a time.
const APPENDS: usize = 200;
/// What an append may take.
const APPEND_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes of an append: a small job's record.
const APPEND_BYTES: usize = 1024;
/// How long a request to wait for the end of a job waits.
const WAIT: Duration = Duration::from_secs(10);
/// For so long a cluster may not answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Says when it ran, milliseconds since 1970.
#[task(name = "bench.when", deterministic = false)]
fn when(_context: &mut TaskContext<'_>, _nothing: ()) -> Result<u64, TaskError> {
    Ok(SystemClock::new().unix_ms())
}

/// A job of one task, and when that ran.
///
/// # Errors
/// The task failed.
#[program(name = "bench.job", version = 1)]
pub async fn job(futures: Futures, _nothing: ()) -> Result<u64, JobError> {
    let task = futures.submit(when, &(), &[])?;
    futures.get_value(&task).await
}

/// What a client has seen of one job.
struct Seen {
    accepted_us: u64,
    /// From when it was handed in to when its task ran, where that is known.
    began_ms: Option<u64>,
    state: Option<JobState>,
}

/// Hands them in, and waits.
pub fn measure(config: &NodeConfig, many: &ManyJobs<'_>, interrupt: &Interrupt) -> Result<Figures, Failure> {
    let spec = match many.spec {
        Some(file) => std::fs::read_to_string(file).or_exit(Exit::InputOutput)?,
        None => json!({ "kind": Plan::of("bench.job", &()).or_exit(Exit::Usage)?.program, "params": null }).to_string(),
    };
    let runtime = cluster::runtime()?;
    runtime.block_on(async {
        let mut figures = Figures::new();
        let options = cluster::connect_client(config, "bench").await?;
        append(&options.bus, &options.subjects, &mut figures).await;
        let clients = join_all((0..many.clients).map(|_| async {
            let options = cluster::connect_client(config, "bench").await?;
            Client::connect(ClientOptions { deadline: PATIENCE, ..options }).await.map_err(client_failure)
        }));
        let clients = clients.await.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        let (clock, next) = (SystemClock::new(), Arc::new(AtomicU64::new(0)));
        let began = clock.now();
        let working = join_all(clients.iter().map(|client| async {
            let mut seen = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= many.jobs {
                    return Ok(seen);
                }
                seen.push(one(client, &spec.replace("{n}", &number.to_string()), many.detach).await?);
            }
        }));
        let seen = tokio::select! {
            biased;
            () = interrupt.wait() => return Err(Failure::text(Exit::Interrupted, "interrupted")),
            seen = working => seen.into_iter().collect::<Result<Vec<_>, ClientError>>().map_err(client_failure)?,
        };
        let seconds = clock.now().saturating_sub(began).as_secs_f64();
        summary(seen.into_iter().flatten().collect(), seconds, &mut figures);
        Ok(figures)
    })
}

/// Hands a job in, and waits for its end unless nobody does.
async fn one(client: &Client, spec: &str, detach: bool) -> Result<Seen, ClientError> {
    let clock = SystemClock::new();
    let (at_ms, at) = (clock.unix_ms(), clock.now());
    // What is handed in again, as no answer came, is the same job.
    let key = client.new_job().to_string();
    let mut keyed: Value = exobus_actors::spec::Spec::parse(spec.as_bytes())
        .map_err(|error| ClientError::Strange(error.to_string()))
        .and_then(|spec| {
            serde_json::from_slice(&spec.canonical()).map_err(|error| ClientError::Strange(error.to_string()))
        })?;
    keyed["idempotency_key"] = json!(key);
    let keyed = keyed.to_string();
    let standing = client.submit(keyed.as_bytes()).await?;
    let accepted_us = clock.now().saturating_sub(at).as_micros() as u64;
    let job: JobId = standing.job.parse().map_err(|_| ClientError::Strange(format!("{} is no id", standing.job)))?;
    if detach {
        return Ok(Seen { accepted_us, began_ms: None, state: None });
    }
    let mut after = 0;
    let state = loop {
        let status = client.changed("watch", job, after, WAIT).await?;
        after = status["last"].as_u64().unwrap_or(after);
        if let Some(state) = JobState::of_answer(&status).filter(|state| state.is_over()) {
            break state;
        }
    };
    let end = client.end(job).await?;
    let ran_at_ms = end.result.ok().and_then(|value| rmp_serde::from_slice::<u64>(&value).ok());
    Ok(Seen { accepted_us, began_ms: ran_at_ms.map(|ran| ran.saturating_sub(at_ms)), state: Some(state) })
}

fn summary(seen: Vec<Seen>, seconds: f64, figures: &mut Figures) {
    let mut add = |name: &str, value: f64| {
        figures.insert(name.into(), value);
    };
    let count = |state: JobState| seen.iter().filter(|seen| seen.state == Some(state)).count() as f64;
    add("jobs_succeeded", count(JobState::Succeeded));
    add("jobs_failed", count(JobState::Failed));
    add("jobs_cancelled", count(JobState::Cancelled));
    add("jobs_a_second", seen.len() as f64 / seconds);
    let accepted: Vec<u64> = seen.iter().map(|seen| seen.accepted_us).collect();
    let began: Vec<u64> = seen.iter().filter_map(|seen| seen.began_ms).collect();
    for (name, share) in [("p50", 50), ("p99", 99), ("max", 100)] {
        add(&format!("accepted_{name}_ms"), percentile(&accepted, share) as f64 / 1000.0);
        add(&format!("first_task_{name}_ms"), percentile(&began, share) as f64);
    }
}

/// The smallest of these that so many of a hundred are not above; 0 of none.
fn percentile(of: &[u64], share: usize) -> u64 {
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * share).div_ceil(100);
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0)
}

/// What one append to a stream of the server takes that is on its disk when it is acknowledged, where it has streams.
async fn append(bus: &Bus, subjects: &Subjects, figures: &mut Figures) {
    let measured = async {
        let prefix = subjects.stream("bench")?;
        let config =
            StreamConfig::new(&subjects.durable_name("stream", "bench")?, Pattern::parse(&format!("{prefix}.>"))?);
        let stream = Stream::open(bus, &StreamConfig { bytes_max: 16 << 20, ..config }, APPEND_DEADLINE).await?;
        let (subject, clock, mut took) = (Subject::parse(&format!("{prefix}.append"))?, SystemClock::new(), Vec::new());
        for _ in 0..APPENDS {
            let at = clock.now();
            stream.append(Append::new(subject.clone(), Bytes::from(vec![7; APPEND_BYTES])), APPEND_DEADLINE).await?;
            took.push(clock.now().saturating_sub(at).as_micros() as u64);
        }
        stream.delete().await?;
        Ok::<_, BusError>(took)
    };
    match measured.await {
        Ok(took) => {
            for (name, share) in [("p50", 50), ("p99", 99)] {
                figures.insert(format!("synced_append_{name}_ms"), percentile(&took, share) as f64 / 1000.0);
            }
        }
        // Clients of a secure cluster may not, and there may be no streams.
        Err(error) => warn!(%error, "what an append to a stream takes is not measured"),
    }
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let of: Vec<u64> = (1..=200).rev().collect();
        assert_eq!([50, 99, 100].map(|share| percentile(&of, share)), [100, 198, 200]);
        assert_eq!((percentile(&[], 99), percentile(&[7], 1)), (0, 7));
    }
}
