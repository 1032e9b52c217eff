//! What tasks and programs print on the nodes of a cluster is heard by who watches their job, and by nobody else.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use exobus_actors::futures::Futures;
use exobus_actors::ids::NodeId;
use exobus_actors::printing::{Printed, PrintedBy, subject};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, Place, TaskOptions};
use exobus_bus::{SubscribeOptions, codec};

use crate::harness::Cluster;

#[task(name = "test.says", deterministic = true)]
fn says(context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    context.print(&format!("number {number}"));
    // Another thread prints for it, too.
    let mut printer = context.printer();
    std::thread::scope(|scope| scope.spawn(move || write!(printer, "without an end {number}")).join().unwrap())?;
    Ok(number)
}

async fn says_on(futures: &Futures, node: &str, number: u64) -> Result<u64, JobError> {
    let place = Place::Node { node: NodeId::new(node), soft: false };
    let options = TaskOptions { place, ..TaskOptions::default() };
    futures.get_value(&futures.submit_with(says, &number, &[], options)?).await
}

#[tokio::test]
async fn who_watches_a_job_hears_its_program_and_its_tasks_of_all_nodes() {
    let cluster = Cluster::new();
    cluster.start("host");
    cluster.start("other");
    let host = cluster.node("host");
    let (job, another) = (host.new_job(), host.new_job());
    // The tenant of jobs that a node runs by itself.
    let subject = subject(&cluster.subjects, "local", job).unwrap();
    let mut heard = cluster.bus.subscribe(subject.into(), SubscribeOptions::default()).await.unwrap();
    for job in [another, job] {
        let program = async |futures: Futures| {
            futures.print("begins");
            let printer = futures.printer();
            futures.compute(move || printer.line("computes")).await?;
            says_on(&futures, "host", 1).await?;
            says_on(&futures, "other", 2).await
        };
        assert_eq!(host.run(job, "test", None, program).await.0, Ok(2));
    }
    let mut said: BTreeMap<(String, Option<String>), String> = BTreeMap::new();
    let all = async {
        while said.values().map(String::len).sum::<usize>()
            < "begins\ncomputes\n".len() + 2 * "number 1\nwithout an end 1".len()
        {
            let printed: Printed = codec::decode_checked(&heard.recv().await.unwrap().message.payload).unwrap();
            let by = match printed.by {
                PrintedBy::Program => None,
                PrintedBy::Task { attempt, function, .. } => Some(format!("{function} {attempt}")),
            };
            said.entry((printed.node.to_string(), by)).or_default().push_str(&printed.text);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("all of it comes");
    let by_task = |number: u64| format!("number {number}\nwithout an end {number}");
    let expected = [
        (("host".to_owned(), None), "begins\ncomputes\n".to_owned()),
        (("host".to_owned(), Some("test.says@1 1".to_owned())), by_task(1)),
        (("other".to_owned(), Some("test.says@1 1".to_owned())), by_task(2)),
    ];
    assert_eq!(said, expected.into());
    assert!(heard.try_recv().is_none(), "and nothing of the other job");
}
