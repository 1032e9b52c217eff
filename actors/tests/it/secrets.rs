//! Secrets of a node are in nothing that it keeps, tells or logs, whatever programs and tasks say.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exobus_actors::client::{Client, ClientOptions};
use exobus_actors::futures::Futures;
use exobus_actors::ids::JobId;
use exobus_actors::node::Node;
use exobus_actors::printing::Secrets;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::JobError;
use exobus_actors::{program, task};
use exobus_bus::{Bus, InProcessOptions, SubscribeOptions};
use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;

use crate::harness::Cluster;

/// Known to the node.
const SECRET: &str = "open-sesame-4711";
/// Stands beside it wherever it is said.
const BESIDE: &str = "the word is";
const PATIENCE: Duration = Duration::from_secs(60);

fn word() -> String {
    format!("{BESIDE} {SECRET}")
}

#[task(name = "secrets.task", version = 1)]
fn tells(context: &mut TaskContext<'_>, how: String) -> Result<(), TaskError> {
    context.print(&word());
    match how.as_str() {
        "task panics" => panic!("{}", word()),
        _ => Err(TaskError::failed(word())),
    }
}

/// Says the secret in every way that there is, and fails with it.
#[program(name = "secrets.program", version = 1)]
async fn leaks(futures: Futures, how: String) -> Result<(), JobError> {
    futures.say(&word())?;
    futures.print(&word());
    match how.as_str() {
        "program fails" => Err(JobError::program(word())),
        "program panics" => panic!("{}", word()),
        _ => {
            let failed = futures.submit(tells, &how, &[])?;
            futures.get_value::<()>(&failed).await
        }
    }
}

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// All bytes of the files of a folder.
fn all_files(folder: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        all.extend(if path.is_dir() { all_files(&path) } else { std::fs::read(&path).unwrap() });
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_a_node_is_in_no_record_event_answer_or_log_whatever_jobs_say() {
    let log = Log::default();
    tracing_subscriber::fmt().with_writer(log.clone()).with_max_level(tracing::Level::DEBUG).init();
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new();
    cluster.bus = Bus::in_process_durable(InProcessOptions::default(), &folder.path().join("streams")).await.unwrap();
    let mut options = cluster.elsewhere("n1", true, &cluster.bus);
    options.secrets = Secrets::default();
    options.secrets.add(SECRET);
    let node = tokio::task::spawn_blocking(move || Node::start(options)).await.unwrap().unwrap();
    let mut heard = cluster.bus.subscribe(">".parse().unwrap(), SubscribeOptions::default()).await.unwrap();
    let (bus, subjects) = (cluster.bus.clone(), cluster.subjects.clone());
    let client =
        Client::connect(ClientOptions { deadline: PATIENCE, ..ClientOptions::new(bus, subjects) }).await.unwrap();

    for how in ["program fails", "program panics", "task fails", "task panics"] {
        let spec = json!({ "kind": "secrets.program", "params": how }).to_string();
        let job: JobId = client.submit(spec.as_bytes()).await.unwrap().job.parse().unwrap();
        let mut events = Vec::new();
        let end = client.follow(job, |event| events.push(format!("{event:?}")), std::future::pending()).await.unwrap();
        let end = format!("{end:?}");
        assert!(end.contains("the word is ***"), "{how}: {end}");
        let answers =
            [client.status(job).await.unwrap(), client.changed("events", job, 0, Duration::ZERO).await.unwrap()];
        let told = [end, events.concat(), answers.map(|answer: Value| answer.to_string()).concat()];
        for told in told {
            assert!(has(told.as_bytes(), BESIDE) && !has(told.as_bytes(), SECRET), "{how}: {told}");
        }
    }
    let mut messages = Vec::new();
    while let Some(delivery) = heard.try_recv() {
        messages.extend_from_slice(&delivery.message.payload);
    }
    tokio::task::spawn_blocking(move || drop(node)).await.unwrap();
    let kept = all_files(folder.path());
    let logged = log.0.lock().unwrap().clone();
    for (what, bytes) in [("the bus", &messages), ("streams", &kept), ("the log", &logged)] {
        assert!(has(bytes, BESIDE), "nothing is looked at in {what}");
        assert!(!has(bytes, SECRET), "the secret is in {what}");
    }
}
