//! Jobs that are handed in at the door: what is refused, what a key does, how they end, and what is known of them afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use exobus_actors::client::{Client, ClientError, ClientOptions, RunError};
use exobus_actors::futures::Futures;
use exobus_actors::ids::JobId;
use exobus_actors::joblog::JobLogs;
use exobus_actors::protocol::job::JobState;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::{JobError, Resources};
use exobus_actors::{program, task};
use exobus_bus::Message;
use serde_json::{Value, json};

use crate::harness::{Cluster, until_async};

const PATIENCE: Duration = Duration::from_secs(60);

#[task(name = "jobs.double", version = 1)]
fn double(_: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    Ok(2 * number)
}

/// Twice a number; one that is odd is not done before somebody cancels it, where `waits`.
#[program(name = "jobs.doubled", version = 1)]
async fn doubled(futures: Futures, (number, waits): (u64, bool)) -> Result<u64, JobError> {
    let value = futures.submit(double, &number, &[])?;
    let doubled = futures.get_value::<u64>(&value).await?;
    if waits {
        std::future::pending::<()>().await;
    }
    Ok(doubled)
}

/// A result by another name.
type Refused = Result<(), JobError>;

/// Always fails, and says with what.
#[program(name = "jobs.refuses", version = 3)]
async fn refuses(_: Futures, number: u64) -> Refused {
    Err(JobError::program(format!("{number} is too many")))
}

/// Whether jobs that wait for it may end.
static MAY_END: AtomicBool = AtomicBool::new(false);

/// How many numbers it was told, once jobs may end.
#[program(name = "jobs.counted", version = 1)]
async fn counted(_: Futures, numbers: Vec<u64>) -> Result<u64, JobError> {
    while !MAY_END.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(numbers.len() as u64)
}

fn many_gpus(number: &u64) -> Resources {
    Resources::cpu(1000).with("gpu", 1000 * number)
}

/// Needs so many accelerators, and says so.
#[program(name = "jobs.accelerated", version = 1, needs = many_gpus)]
async fn accelerated(_: Futures, number: u64) -> Result<u64, JobError> {
    Ok(number)
}

async fn client(cluster: &Cluster) -> Client {
    let (bus, subjects) = (cluster.bus.clone(), cluster.subjects.clone());
    Client::connect(ClientOptions { deadline: PATIENCE, ..ClientOptions::new(bus, subjects) }).await.unwrap()
}

fn spec(number: u64, waits: bool, key: Option<&str>) -> Vec<u8> {
    let mut spec = json!({ "kind": "jobs.doubled", "params": [number, waits] });
    if let Some(key) = key {
        spec["idempotency_key"] = json!(key);
    }
    spec.to_string().into_bytes()
}

async fn submit(client: &Client, spec: &[u8]) -> JobId {
    client.submit(spec).await.unwrap().job.parse().unwrap()
}

fn state(status: &Value) -> JobState {
    status["state"].as_str().unwrap().parse().unwrap()
}

async fn is(client: &Client, job: JobId, wanted: JobState) {
    until_async(async || client.status(job).await.is_ok_and(|status| state(&status) == wanted)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_what_its_key_says_and_what_is_known_of_it_outlives_it() {
    let cluster = Cluster::new();
    cluster.start("n1");
    let client = client(&cluster).await;
    let job = submit(&client, &spec(21, false, Some("first"))).await;
    let again = client.submit(&spec(21, false, Some("first"))).await.unwrap();
    assert_eq!((again.job, again.known), (job.to_string(), true));
    let other = client.submit(&spec(22, false, Some("first"))).await.unwrap_err();
    assert_eq!(other.code(), Some("key_taken"));
    assert!(other.to_string().contains(&job.to_string()), "{other}");

    let end = client.follow(job, |_| {}, std::future::pending()).await.unwrap();
    assert_eq!(end.value::<u64>(), Ok(42));
    let status = client.status(job).await.unwrap();
    assert_eq!(
        (state(&status), &status["kind"], &status["runs"]),
        (JobState::Succeeded, &json!("jobs.doubled"), &json!(1))
    );
    let value: Value = client.ask("value", &json!({ "job": job.to_string() })).await.unwrap();
    assert_eq!(value["value"], 42);
    let first_digits = &job.to_string()[..12];
    let cut: Value = client.ask("status", &json!({ "job": first_digits })).await.unwrap();
    assert_eq!(cut["job"], job.to_string());
    let listed: Value = client.ask("list", &json!({ "all": true })).await.unwrap();
    assert_eq!(listed["jobs"].as_array().map(Vec::len), Some(1));
    let running: Value = client.ask("list", &json!({})).await.unwrap();
    assert_eq!(running["jobs"], json!([]));
    // Whoever is the Scheduler next knows it, too.
    tokio::task::block_in_place(|| cluster.stop("n1"));
    cluster.start("n1");
    is(&client, job, JobState::Succeeded).await;
    let again = client.submit(&spec(21, false, Some("first"))).await.unwrap();
    assert_eq!((again.job, again.state), (job.to_string(), JobState::Succeeded));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_run_by_its_type_and_returns_its_value_or_why_there_is_none() {
    let cluster = Cluster::new();
    cluster.start("n1");
    let client = client(&cluster).await;
    assert_eq!(client.run::<doubled>(&(21, false)).await.unwrap(), 42);

    let failed = client.run::<refuses>(&7).await.unwrap_err();
    let RunError::Job(error) = &failed else { panic!("{failed:?}") };
    assert!(error.to_string().contains("7 is too many"), "{error}");
    let listed: Value = client.ask("list", &json!({ "all": true })).await.unwrap();
    let kinds: BTreeSet<_> = listed["jobs"].as_array().unwrap().iter().map(|job| job["kind"].to_string()).collect();
    assert_eq!(kinds, ["\"jobs.doubled@1\"", "\"jobs.refuses@3\""].map(str::to_owned).into(), "jobs like any other");

    // A client that asks for what no node here has.
    let elsewhere = Cluster::new();
    elsewhere.start_without("n1", &["jobs.doubled"]);
    let failed = self::client(&elsewhere).await.run::<doubled>(&(1, false)).await.unwrap_err();
    let RunError::Client(refused) = &failed else { panic!("{failed:?}") };
    assert_eq!(refused.code(), Some("unknown_function"), "{refused}");
    assert!(refused.to_string().contains("no node offers jobs.doubled@1: n1"), "{refused}");

    // What no node has is refused at once, and what each has runs.
    let failed = client.run::<accelerated>(&2).await.unwrap_err();
    let RunError::Client(refused) = &failed else { panic!("{failed:?}") };
    assert_eq!(refused.code(), Some("unplaceable"), "{refused}");
    assert!(refused.to_string().contains("a task needs 1 cpu, 2 gpu, which no node has: n1 has 1 cpu"), "{refused}");
    assert_eq!(client.run::<accelerated>(&0).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_cancelled_whether_it_runs_or_waits_and_the_answer_says_what_it_has_become() {
    let cluster = Cluster::new();
    cluster.start("n1");
    let client = client(&cluster).await;
    let mut jobs = Vec::new();
    // As many as run on a node, and some more.
    for number in 0..36 {
        jobs.push(submit(&client, &spec(number, true, None)).await);
    }
    is(&client, jobs[0], JobState::Running).await;
    let waits = client.status(*jobs.last().unwrap()).await.unwrap();
    assert_eq!(state(&waits), JobState::Queued);
    assert!(waits["jobs_before"].as_u64().is_some_and(|before| before <= 3), "{waits}");
    let why: Value = client.ask("why", &json!({ "job": waits["job"] })).await.unwrap();
    assert!(why["chains"][0][0].as_str().unwrap().contains("waits for"), "{why}");
    for job in jobs.iter().rev() {
        let cancelled = client.cancel(*job).await.unwrap();
        assert_eq!(cancelled.state, JobState::Cancelled);
    }
    let again = client.cancel(jobs[0]).await.unwrap();
    assert_eq!(again.state, JobState::Cancelled);
    let end = client.follow(jobs[0], |_| {}, std::future::pending()).await.unwrap();
    assert_eq!(end.result, Err(JobError::Cancelled));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_limit_ends_a_job_as_failed() {
    let cluster = Cluster::new();
    cluster.start("n1");
    let client = client(&cluster).await;
    let spec = json!({ "kind": "jobs.doubled", "params": [1, true], "timeout": "1s" }).to_string();
    let job = submit(&client, spec.as_bytes()).await;
    is(&client, job, JobState::Failed).await;
    let status = client.status(job).await.unwrap();
    assert_eq!(
        (&status["error"]["code"], &status["error"]["message"]),
        (&json!("timed_out"), &json!("its time limit of 1s is over"))
    );
}

/// What does not fit into a record of the journal is in pieces beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_a_large_plan_is_taken_up_with_all_of_it_and_leaves_nothing() {
    const NUMBERS: u64 = 50_000;
    let cluster = Cluster::new();
    ["n1", "n2"].iter().for_each(|name| cluster.start_candidate(name, &cluster.bus));
    let client = client(&cluster).await;
    let large = json!({ "kind": "jobs.counted", "params": (0..NUMBERS).collect::<Vec<_>>() }).to_string();
    assert!(large.len() > 200 << 10);
    let jobs = [submit(&client, large.as_bytes()).await, submit(&client, large.as_bytes()).await];
    for job in jobs {
        is(&client, job, JobState::Running).await;
    }
    let host = client.status(jobs[0]).await.unwrap()["host"].as_str().unwrap().to_owned();
    let logs = JobLogs::open(&cluster.bus, &cluster.subjects, false, PATIENCE).await.unwrap().unwrap();
    let bytes = async || logs.bytes().await.unwrap();
    assert!(bytes().await > 2 * (200 << 10), "they are there");
    // The Scheduler, a host, or both.
    tokio::task::block_in_place(|| cluster.stop(&host));
    MAY_END.store(true, Ordering::Relaxed);
    for job in jobs {
        let end = client.follow(job, |_| {}, std::future::pending()).await.unwrap();
        assert_eq!(end.value::<u64>(), Ok(NUMBERS));
    }
    let runs = client.status(jobs[0]).await.unwrap()["runs"].as_u64();
    assert_eq!(runs, Some(2), "it was taken up");
    until_async(async || bytes().await < 100 << 10).await;
}

/// The Scheduler, and the host of some of them, leaves and comes back while jobs are handed in and run.
#[tokio::test(flavor = "multi_thread")]
async fn every_job_ends_once_while_schedulers_come_and_go() {
    const CLIENTS: u64 = 6;
    const JOBS: u64 = 10;
    let cluster = Arc::new(Cluster::new());
    ["n1", "n2", "n3"].iter().for_each(|name| cluster.start_candidate(name, &cluster.bus));
    let clients = (0..CLIENTS).map(|number| {
        let cluster = cluster.clone();
        tokio::spawn(async move {
            let client = client(&cluster).await;
            let mut jobs = Vec::new();
            for job in 0..JOBS {
                let (number, key) = (number * JOBS + job, format!("{number}-{job}"));
                let spec = spec(number, false, Some(&key));
                let id = loop {
                    match client.submit(&spec).await {
                        Ok(standing) => break standing.job.parse::<JobId>().unwrap(),
                        Err(error) => assert!(error.may_heal(), "{error}"),
                    }
                };
                let end = loop {
                    match client.follow(id, |_| {}, std::future::pending()).await {
                        Ok(end) => break end,
                        Err(error) => assert!(error.may_heal(), "{error}"),
                    }
                };
                assert_eq!(end.value::<u64>(), Ok(2 * number), "{id}");
                jobs.push(id);
            }
            jobs
        })
    });
    let clients: Vec<_> = clients.collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let leader = cluster.node("n3").leader().map(|leader| leader.node.to_string());
        let leader = leader.filter(|name| name != "n3").unwrap_or_else(|| "n1".into());
        let (stopping, name) = (cluster.clone(), leader.clone());
        tokio::task::spawn_blocking(move || stopping.stop(&name)).await.unwrap();
        let starting = cluster.clone();
        tokio::task::spawn_blocking(move || starting.start_candidate(&leader, &starting.bus)).await.unwrap();
    }
    let mut jobs = BTreeSet::new();
    for client in clients {
        jobs.extend(client.await.unwrap());
    }
    assert_eq!(jobs.len() as u64, CLIENTS * JOBS);
    let client = client(&cluster).await;
    let (mut listed, mut next) = (Vec::new(), Value::Null);
    loop {
        let mut request = json!({ "all": true, "limit": 7 });
        if !next.is_null() {
            request["next"] = next;
        }
        let page: Value = client.ask("list", &request).await.unwrap();
        for job in page["jobs"].as_array().unwrap() {
            assert_eq!(state(job), JobState::Succeeded, "{job}");
            listed.push(job["job"].as_str().unwrap().parse::<JobId>().unwrap());
        }
        next = page["next"].clone();
        if next.is_null() {
            break;
        }
    }
    assert_eq!(listed.len(), jobs.len(), "each is there once");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), jobs);
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_said_with_a_code_and_others_notice_nothing() {
    let cluster = Cluster::new();
    cluster.start("n1");
    let client = client(&cluster).await;
    let deep = format!("{{\"kind\": \"jobs.doubled\", \"params\": {}1{}}}", "[".repeat(200), "]".repeat(200));
    let specs: [(&[u8], &str); 9] = [
        (b"", "bad_spec"),
        (b"kind = ", "bad_spec"),
        (b"{\"kind\": }", "bad_spec"),
        (b"\xff\xfe", "bad_spec"),
        (b"kind = 'jobs.doubeld'", "unknown_kind"),
        (b"kind = 7", "wrong_type"),
        (b"kind = 'jobs.doubled'\nparams = 'text'", "invalid"),
        (b"kind = 'jobs.doubled'\nparams = [1, true]\nprams = 1", "unknown_field"),
        (deep.as_bytes(), "too_deep"),
    ];
    for (spec, code) in specs {
        let refused = client.submit(spec).await.unwrap_err();
        let spec = String::from_utf8_lossy(spec);
        assert_eq!(refused.code(), Some(code), "{:.60}: {refused}", spec);
    }
    let large = vec![b' '; 5 << 20];
    let refused = client.submit(&large).await.unwrap_err();
    assert!(
        matches!(&refused, ClientError::Bus(_)) && refused.code().is_none(),
        "the bus does not carry it: {refused}"
    );
    let long = " ".repeat(7000);
    let requests = [
        ("status", &*long, "too_large"),
        ("list", &long, "too_large"),
        ("cancel", &long, "too_large"),
        ("status", "{\"job\": 7}", "bad_request"),
        ("status", "{\"jb\": \"00\"}", "bad_request"),
        ("status", "{}", "bad_request"),
        ("status", "00000000000000000000000000000007", "unknown_job"),
        ("status", "{\"job\": \"zzzzzzzz\"}", "unknown_job"),
        ("list", "{\"next\": \"x\"}", "bad_request"),
        ("value", "0123456789abcdef0123456789abcdef", "unknown_job"),
        ("cancel", "0123456789abcdef0123456789abcdef", "unknown_job"),
    ];
    for (verb, request, code) in requests {
        let subject = cluster.subjects.api("default", verb).unwrap();
        let answer = cluster.bus.request(subject, Message::new(request.to_owned()), PATIENCE).await.unwrap();
        let error: Value = serde_json::from_slice(&answer.payload).unwrap();
        assert_eq!(error["error"]["code"], code, "{verb} {request}: {error}");
    }
    let foreign = cluster.subjects.api("another", "submit").unwrap();
    let answer = cluster.bus.request(foreign, Message::new(spec(1, false, None)), PATIENCE).await.unwrap();
    let error: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert_eq!(error["error"]["code"], "unknown_tenant");
    let job = submit(&client, &spec(4, false, None)).await;
    let end = client.follow(job, |_| {}, std::future::pending()).await.unwrap();
    assert_eq!(end.value::<u64>(), Ok(8));
}
