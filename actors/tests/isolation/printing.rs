//! What functions write to stdout and stderr in processes of their own is what their attempt prints.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use exobus_actors::futures::Futures;
use exobus_actors::isolation::ExecutorKind;
use exobus_actors::membership::MembershipOptions;
use exobus_actors::node::{ClusterOptions, Node, NodeOptions};
use exobus_actors::printing::{Printed, PrintedBy, Secrets, TASK_BYTES_MAX, subject};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::TaskOptions;
use exobus_bus::{Bus, Subjects, SubscribeOptions, Subscription, codec};

use crate::harness::isolation;

const SECRET: &str = "open-sesame-0123";

#[task(name = "test.writes")]
fn writes(context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    context.print(&format!("printed {number}"));
    println!("to stdout {number}");
    eprintln!("to stderr {number}");
    // A secret, divided between both.
    let (begin, end) = SECRET.split_at(7);
    eprint!("the token is {begin}");
    println!("{end}");
    write!(context.printer(), "without an end {number}")?;
    Ok(number)
}

#[task(name = "test.writes_and_dies")]
fn writes_and_dies(_: &mut TaskContext<'_>) -> Result<u64, TaskError> {
    eprintln!("the token is {SECRET}");
    std::process::abort();
}

/// Writes more than it may, and more than fits into any queue.
#[task(name = "test.floods")]
fn floods(_: &mut TaskContext<'_>, lines: u64) -> Result<u64, TaskError> {
    let line = [b'x'; 1023];
    let mut out = std::io::stdout().lock();
    for _ in 0..lines {
        out.write_all(&line)?;
        out.write_all(b"\n")?;
    }
    Ok(lines)
}

struct World {
    node: Node,
    bus: Bus,
    subjects: Subjects,
    _spill: tempfile::TempDir,
}

impl World {
    /// A cluster of one node, which knows a secret.
    fn new() -> Self {
        let (bus, subjects) = (Bus::in_process(), Subjects::new("test").unwrap());
        let spill = tempfile::tempdir().unwrap();
        let secrets = Secrets::default();
        secrets.add(SECRET);
        let mut options = NodeOptions::alone(1, 64 << 20);
        options.store.spill_dirs = vec![spill.path().to_owned()];
        options.isolation = isolation(ExecutorKind::Process);
        options.secrets = secrets;
        options.network = std::sync::Arc::new(exobus_actors::transfer::network::MemoryNetwork::new());
        options.cluster = Some(ClusterOptions {
            bus: bus.clone(),
            subjects: subjects.clone(),
            scheduler: true,
            membership: MembershipOptions::default(),
            listen: "127.0.0.1:0".parse().unwrap(),
            join_deadline: Duration::from_secs(30),
        });
        Self { node: Node::start(options).unwrap(), bus, subjects, _spill: spill }
    }

    async fn watch(&self, job: exobus_actors::ids::JobId) -> Subscription {
        let subject = subject(&self.subjects, "local", job).unwrap();
        let options = SubscribeOptions { capacity_bytes: 16 << 20, ..SubscribeOptions::default() };
        self.bus.subscribe(subject.into(), options).await.unwrap()
    }
}

async fn next(heard: &mut Subscription) -> Printed {
    let heard = tokio::time::timeout(Duration::from_secs(60), heard.recv()).await.expect("it is printed");
    codec::decode_checked(&heard.unwrap().message.payload).unwrap()
}

#[tokio::test]
async fn what_a_function_writes_is_its_attempts_to_the_last_letter_and_without_secrets() {
    const TASKS: u64 = 20;
    let world = World::new();
    let job = world.node.new_job();
    let mut heard = world.watch(job).await;
    let program = async |futures: Futures| {
        // One process runs them, one after the other.
        let tasks = (0..TASKS).map(|number| futures.submit(writes, &number, &[])).collect::<Result<Vec<_>, _>>()?;
        futures.wait_all(&tasks).await
    };
    world.node.run(job, "test", None, program).await.0.unwrap();
    let expected: std::collections::BTreeSet<String> = (0..TASKS)
        .map(|number| {
            format!(
                "printed {number}\nto stdout {number}\nto stderr {number}\nthe token is ***\nwithout an end {number}"
            )
        })
        .collect();
    let bytes: usize = expected.iter().map(String::len).sum();
    let mut said: BTreeMap<_, String> = BTreeMap::new();
    while said.values().map(String::len).sum::<usize>() < bytes {
        let printed = next(&mut heard).await;
        let PrintedBy::Task { task, function, .. } = printed.by else { panic!("{printed:?}") };
        assert_eq!(&*function, "test.writes@1");
        said.entry(task).or_default().push_str(&printed.text);
    }
    assert_eq!(said.into_values().collect::<std::collections::BTreeSet<_>>(), expected);
}

#[tokio::test]
async fn the_last_words_of_a_process_have_no_secrets_either() {
    let world = World::new();
    let program = async |futures: Futures| {
        let once = TaskOptions { attempts: 1, ..TaskOptions::default() };
        futures.get_value::<u64>(&futures.submit_with(writes_and_dies, &(), &[], once)?).await
    };
    let error = world.node.run(world.node.new_job(), "test", None, program).await.0.unwrap_err().to_string();
    assert!(
        error.contains("it last said: ") && error.contains("the token is ***") && !error.contains(SECRET),
        "{error}"
    );
}

#[tokio::test]
async fn a_function_that_writes_without_end_is_cut_does_not_wait_and_costs_others_nothing() {
    let world = World::new();
    let job = world.node.new_job();
    let mut heard = world.watch(job).await;
    // Nobody reads while it writes.
    let program = async |futures: Futures| futures.get_value::<u64>(&futures.submit(floods, &20_000, &[])?).await;
    assert_eq!(world.node.run(job, "test", None, program).await.0, Ok(20_000));
    let (mut bytes, mut cut) = (0, false);
    while !cut {
        let text = next(&mut heard).await.text;
        bytes += text.len();
        cut = text.contains("[exobus: cut here: a task may print 1048576 bytes]");
    }
    assert!(bytes <= TASK_BYTES_MAX + 10_000, "{bytes}");
    let program = async |futures: Futures| futures.get_value::<u64>(&futures.submit(writes, &7, &[])?).await;
    assert_eq!(world.node.run(world.node.new_job(), "other", None, program).await.0, Ok(7));
}
