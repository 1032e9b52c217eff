//! Results that outlive their jobs: kept by programs, read by clients, and gone when their time is.

use std::sync::Arc;
use std::time::Duration;

use exobus_actors::futures::Futures;
use exobus_actors::ids::{JobId, NodeId};
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::protocol::host::JobEnd;
use exobus_actors::protocol::results::JobKept;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::results::record::FileKey;
use exobus_actors::results::request::Code;
use exobus_actors::results::{LENGTH_MAX, ResultClient, ResultError, VERB};
use exobus_actors::task;
use exobus_actors::task::{JobError, Place, TaskOptions};
use exobus_actors::transfer::network::RealNetwork;
use exobus_actors::transfer::{PeerName, TransferError};
use exobus_bus::Message;
use exobus_store::disk::{Fault, FaultyDisk, Op};
use exobus_store::{CopyId, RealDisk, RowHash, SystemClock};
use parking_lot::Mutex;

use crate::harness::{Cluster, MEMORY_BYTES, until, until_async};

/// The tenant of jobs that run in their own process.
pub(crate) const TENANT: &str = "local";

fn alone(spill: &tempfile::TempDir) -> NodeOptions {
    let mut options = NodeOptions::alone(2, MEMORY_BYTES);
    options.store.spill_dirs = vec![spill.path().to_owned()];
    options
}

/// So many bytes that are different everywhere, in parts of up to 100 000.
#[task(name = "test.result_bytes")]
pub(crate) fn result_bytes(context: &mut TaskContext<'_>, (seed, bytes): (u64, u64)) -> Result<(), TaskError> {
    let content = content(seed, bytes);
    let writer = context.output_at_sized(0, bytes)?;
    for part in content.chunks(100_000) {
        writer.begin_part(Some(part.len() as u64))?;
        writer.write(part)?;
        writer.end_part(1, RowHash::of(part));
    }
    Ok(())
}

pub(crate) fn content(seed: u64, bytes: u64) -> Vec<u8> {
    let word = |at: u64| (at ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let mut content: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(word).collect();
    content.truncate(bytes as usize);
    content
}

pub(crate) async fn run(
    node: &Node,
    program: impl AsyncFnOnce(Futures) -> Result<(), JobError> + Send + 'static,
) -> (JobId, Result<(), JobError>, JobEnd) {
    let job = node.new_job();
    let (outcome, end) = node.run(job, "test", None, program).await;
    (job, outcome, end)
}

pub(crate) async fn read(client: &ResultClient, job: JobId, file: impl Into<FileKey>) -> Result<Vec<u8>, ResultError> {
    let mut bytes = Vec::new();
    client
        .read_file(job, &file.into(), |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })
        .await?;
    Ok(bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_keeps_is_there_after_its_job_and_nothing_else_is() {
    let spill = tempfile::tempdir().unwrap();
    let node = Node::start(alone(&spill)).unwrap();
    let (job, outcome, end) = run(&node, async |futures: Futures| {
        let large = futures.submit(result_bytes, &(1, 3_000_000), &[])?;
        let other = futures.submit(result_bytes, &(2, 1_000_000), &[])?;
        let put = futures.put(b"what the program put")?;
        futures.ready(&other).await?;
        futures.keep_result("rows", &large)?;
        futures.keep_result("said", &put)?;
        futures.keep_result("nothing", &futures.put(b"")?)?;
        // The same object may be in two files.
        futures.keep_result("rows again", &large)
    })
    .await;
    outcome.unwrap();
    let Some(JobKept::Result { files: 4, bytes, until_unix_ms }) = end.kept else { panic!("{:?}", end.kept) };
    assert_eq!(bytes, 6_000_020);
    assert_eq!(node.store().groups(), [job.result_group()], "all else went with the job");
    assert_eq!(node.store().stats().objects, 2);
    let client = node.results(TENANT);
    let info = client.stat(job).await.unwrap();
    assert_eq!((info.bytes, info.complete, info.until_unix_ms), (bytes, true, until_unix_ms));
    let names: Vec<_> = info.files.iter().map(|file| (file.name.as_str(), file.total)).collect();
    let expected = [("rows", 3_000_000), ("said", 20), ("nothing", 0), ("rows again", 3_000_000)];
    assert_eq!(names, expected.map(|(name, bytes)| (name, Some(bytes))));
    assert_eq!(read(&client, job, 0).await.unwrap(), content(1, 3_000_000));
    assert_eq!(read(&client, job, "rows again").await.unwrap(), content(1, 3_000_000));
    assert_eq!(read(&client, job, "said").await.unwrap(), b"what the program put");
    assert_eq!(read(&client, job, 2).await.unwrap(), b"");
    let listed = client.list().await.unwrap().results;
    assert_eq!(listed.iter().map(|info| info.id.clone()).collect::<Vec<_>>(), [job.to_string()]);

    client.delete(job).await.unwrap();
    until(|| node.store().stats().objects == 0).await;
    let error = client.stat(job).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unknown), "{error}");
}

/// The code of an answer that is none.
fn code<T: std::fmt::Debug>(outcome: Result<T, ResultError>) -> Option<Code> {
    outcome.unwrap_err().code()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_answered_is_told_with_a_code_and_others_notice_nothing() {
    let spill = tempfile::tempdir().unwrap();
    let node = Node::start(alone(&spill)).unwrap();
    let (job, outcome, _) = run(&node, async |futures: Futures| {
        futures.keep_result("rows", &futures.submit(result_bytes, &(1, 2_000_000), &[])?)
    })
    .await;
    outcome.unwrap();
    let (client, file) = (node.results(TENANT), FileKey::default());
    // Who reads half of it and goes leaves nothing behind.
    let half = client.read(job, &file, 0, LENGTH_MAX).await.unwrap();
    assert_eq!((half.bytes.len() as u64, half.available, half.total), (LENGTH_MAX, 2_000_000, Some(2_000_000)));
    let unknown = code(client.read(JobId::new(), &file, 0, 1).await);
    let foreign = node.results("another").read(job, &file, 0, 1).await.unwrap_err();
    assert_eq!((unknown, foreign.code()), (Some(Code::Unknown), Some(Code::Unknown)));
    let never = node.results("another").read(JobId::from_u128(7), &file, 0, 1).await.unwrap_err().to_string();
    let same = foreign.to_string().replace(&job.to_string(), "") == never.replace(&JobId::from_u128(7).to_string(), "");
    assert!(same, "{foreign} tells that it is there");
    assert!(node.results("another").list().await.unwrap().results.is_empty());
    assert_eq!(code(node.results("another").delete(job).await), Some(Code::Unknown));
    assert_eq!(code(client.read(job, &file, 2_000_001, 1).await), Some(Code::OffsetBeyondEnd));
    assert_eq!(code(client.read(job, &file, u64::MAX, 1).await), Some(Code::OffsetBeyondEnd));
    assert_eq!(code(client.read(job, &1.into(), 0, 1).await), Some(Code::NoSuchFile));
    assert_eq!(code(client.read(job, &"rowss".into(), 0, 1).await), Some(Code::NoSuchFile));
    assert_eq!(code(client.read(job, &file, 0, LENGTH_MAX + 1).await), Some(Code::LengthTooLarge));
    assert_eq!(code(client.read(job, &file, 0, 0).await), Some(Code::BadRequest));
    assert_eq!(code(client.ticket(job, &file).await), Some(Code::Unavailable), "a node that is alone has no data port");
    let end = client.read(job, &file, 2_000_000, 1).await.unwrap();
    assert_eq!((end.bytes.len(), end.total), (0, Some(2_000_000)));
    let (left, right) = futures::future::join(read(&client, job, 0), read(&client, job, 0)).await;
    assert!(left.unwrap() == content(1, 2_000_000) && right.unwrap() == content(1, 2_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_goes_when_its_time_is_over_and_who_asks_is_told() {
    let spill = tempfile::tempdir().unwrap();
    let node = Node::start(NodeOptions { results_kept: Duration::from_secs(1), ..alone(&spill) }).unwrap();
    let keep = async |futures: Futures| futures.keep_result("rows", &futures.put(b"for a second")?);
    let (job, outcome, _) = run(&node, keep).await;
    outcome.unwrap();
    let client = node.results(TENANT);
    until(|| node.store().stats().objects == 0).await;
    assert_eq!(code(client.read(job, &0.into(), 0, 1).await), Some(Code::Expired));
    assert_eq!(code(client.stat(job).await), Some(Code::Expired));
    assert!(client.list().await.unwrap().results.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_not_swept_while_its_job_runs_however_long_that_takes() {
    let spill = tempfile::tempdir().unwrap();
    let node = Node::start(NodeOptions { results_kept: Duration::from_secs(1), ..alone(&spill) }).unwrap();
    let store = node.store().clone();
    let (job, outcome, end) = run(&node, async move |futures: Futures| {
        let file = futures.result_file("rows")?;
        file.append(&futures.put(b"first")?)?;
        until(|| store.groups().contains(&futures.job().result_group())).await;
        let begun = futures.now();
        // Three times the time of a result.
        until(|| futures.now() > begun + Duration::from_secs(3)).await;
        file.append(&futures.put(b" and last")?)
    })
    .await;
    outcome.unwrap();
    assert!(matches!(end.kept, Some(JobKept::Result { bytes: 14, .. })), "{:?}", end.kept);
    assert_eq!(read(&node.results(TENANT), job, "rows").await.unwrap(), b"first and last");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_deleted_while_its_job_runs_is_not_begun_anew() {
    let spill = tempfile::tempdir().unwrap();
    let node = Node::start(alone(&spill)).unwrap();
    let client = node.results(TENANT);
    let (job, outcome, end) = run(&node, async move |futures: Futures| {
        let (file, job) = (futures.result_file("rows")?, futures.job());
        file.append(&futures.put(b"first")?)?;
        until_async(async || client.stat(job).await.is_ok_and(|info| info.bytes == 5)).await;
        client.delete(job).await.unwrap();
        file.append(&futures.put(b" and last")?)
    })
    .await;
    outcome.unwrap();
    let Some(JobKept::Nothing { why }) = &end.kept else { panic!("{:?}", end.kept) };
    assert!(why.contains("deleted"), "{why}");
    assert_eq!(code(node.results(TENANT).stat(job).await), Some(Code::Unknown));
    until(|| node.store().stats().objects == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_grows_while_its_job_runs_and_its_length_is_known_when_it_is_complete() {
    let spill = tempfile::tempdir().unwrap();
    let node = Node::start(alone(&spill)).unwrap();
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let (go_on, mut goes_on) = tokio::sync::mpsc::unbounded_channel::<()>();
    let job = node.new_job();
    let program = async move |futures: Futures| {
        let file = futures.result_file("rows")?;
        for seed in 0..3 {
            file.append(&futures.submit(result_bytes, &(seed, 600_000), &[])?)?;
            told.send(seed).unwrap();
            goes_on.recv().await.unwrap();
        }
        Ok::<_, JobError>(())
    };
    let running = node.run(job, "test", None, program);
    let client = node.results(TENANT);
    let watching = async {
        for appended in 1..=3_u64 {
            heard.recv().await.unwrap();
            let here = async || client.stat(job).await.is_ok_and(|info| info.bytes == 600_000 * appended);
            until_async(here).await;
            let piece = client.read(job, &0.into(), 600_000 * (appended - 1), 1000).await.unwrap();
            assert_eq!(piece.bytes, content(appended - 1, 600_000)[..1000]);
            assert_eq!(piece.total, None, "more may come");
            let nothing_yet = client.read(job, &0.into(), 600_000 * appended, 1000).await.unwrap();
            assert_eq!((nothing_yet.bytes.len(), nothing_yet.total), (0, None));
            assert_eq!(code(client.read(job, &0.into(), 600_000 * appended + 1, 1).await), Some(Code::OffsetBeyondEnd));
            go_on.send(()).unwrap();
        }
    };
    // Who follows it from the beginning gets all of it, in order, and its end.
    let following = async {
        until_async(async || client.stat(job).await.is_ok_and(|info| !info.files.is_empty())).await;
        read(&client, job, "rows").await.unwrap()
    };
    let ((outcome, end), (), followed) = tokio::join!(running, watching, following);
    outcome.unwrap();
    assert!(matches!(end.kept, Some(JobKept::Result { bytes: 1_800_000, files: 1, .. })), "{:?}", end.kept);
    let all: Vec<u8> = (0..3).flat_map(|seed| content(seed, 600_000)).collect();
    assert!(followed == all);
    assert_eq!(client.stat(job).await.unwrap().files[0].total, Some(1_800_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_or_is_cancelled_has_no_result() {
    let spill = tempfile::tempdir().unwrap();
    let node = Node::start(alone(&spill)).unwrap();
    let store = node.store().clone();
    let (job, outcome, end) = run(&node, async move |futures: Futures| {
        futures.keep_result("rows", &futures.put(b"what was kept before")?)?;
        until(|| store.groups().contains(&futures.job().result_group())).await;
        Err(JobError::program("it has changed its mind"))
    })
    .await;
    assert!(outcome.is_err());
    assert_eq!(end.kept, None);
    until(|| node.store().stats().objects == 0).await;
    assert_eq!(code(node.results(TENANT).stat(job).await), Some(Code::Unknown));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_may_not_keep_is_told_to_it() {
    let spill = tempfile::tempdir().unwrap();
    let node = Node::start(alone(&spill)).unwrap();
    let (_, outcome, end) = run(&node, async |futures: Futures| {
        let object = futures.put(b"bytes")?;
        for (refused, word) in [
            (futures.keep_result("", &object), "no name"),
            (futures.keep_result("line\nend", &object), "no name"),
            (futures.keep_result(&"n".repeat(256), &object), "no name"),
            (futures.keep_result("part", &object.part(0)), "whole objects"),
        ] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        futures.keep_result("rows", &object)?;
        assert!(futures.keep_result("rows", &object).unwrap_err().to_string().contains("already"));
        Ok(())
    })
    .await;
    outcome.unwrap();
    assert!(matches!(end.kept, Some(JobKept::Result { bytes: 5, .. })), "{:?}", end.kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_disk_takes_a_result_the_end_says_so_and_the_job_has_not_failed() {
    let spill = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
    let node = Node::start(NodeOptions { disk: Arc::new(disk.clone()), ..alone(&spill) }).unwrap();
    disk.always(Op::Write, spill.path(), Fault::Errno(28));
    let (job, outcome, end) = run(&node, async |futures: Futures| {
        futures.keep_result("rows", &futures.submit(result_bytes, &(1, 1_000_000), &[])?)
    })
    .await;
    outcome.unwrap();
    assert!(disk.fired() > 0);
    let Some(JobKept::Nothing { why }) = end.kept else { panic!("{:?}", end.kept) };
    assert!(why.contains("no node has room") && why.contains("local"), "{why}");
    assert_eq!(code(node.results(TENANT).stat(job).await), Some(Code::Unknown));
    until(|| node.store().stats().objects == 0).await;
}

fn on(node: &str) -> TaskOptions {
    TaskOptions { place: Place::Node { node: NodeId::new(node), soft: false }, ..TaskOptions::default() }
}

/// A program that keeps so many bytes that a node makes.
pub(crate) fn keeps(
    at: &'static str,
    bytes: u64,
) -> impl AsyncFnOnce(Futures) -> Result<(), JobError> + Send + 'static {
    async move |futures: Futures| {
        futures.keep_result("rows", &futures.submit_with(result_bytes, &(1, bytes), &[], on(at))?)
    }
}

/// A node that hosts jobs, whose disk is full.
pub(crate) async fn host_that_keeps_nothing(cluster: &Cluster) -> Node {
    let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
    let mut host = cluster.elsewhere("n1", true, &cluster.bus);
    host.disk = Arc::new(disk.clone());
    disk.always(Op::Write, &host.store.spill_dirs[0], Fault::Errno(28));
    started(host).await
}

pub(crate) async fn started(options: NodeOptions) -> Node {
    tokio::task::spawn_blocking(|| Node::start(options)).await.unwrap().unwrap()
}

pub(crate) async fn stopped(node: Node) {
    tokio::task::spawn_blocking(|| node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_is_asked_and_the_one_that_has_the_bytes_answers() {
    let cluster = Cluster::new();
    cluster.start("n1");
    cluster.start("n2");
    let host = cluster.node("n1");
    let (job, outcome, _) = run(&host, keeps("n2", 2_000_000)).await;
    outcome.unwrap();
    assert!(!host.store().groups().contains(&job.result_group()), "nothing was copied");
    assert_eq!(cluster.node("n2").store().groups(), [job.result_group()]);
    for name in ["n1", "n2"] {
        let bytes = read(&cluster.node(name).results(TENANT), job, 0).await.unwrap();
        assert!(bytes == content(1, 2_000_000), "{name}");
    }
    // For whom a request is its subject says, whatever a client writes above it.
    let foreign = cluster.subjects.api("another", VERB).unwrap();
    let request = format!(r#"{{"id": "{job}", "length": 10}}"#);
    let request = Message::new(request).with_header("Exo-Tenant", TENANT).unwrap();
    let answer = cluster.bus.request(foreign, request, Duration::from_secs(10)).await.unwrap();
    assert_eq!(answer.headers.get("Exo-Error"), Some("unknown"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_hands_its_results_to_another_one() {
    let cluster = Cluster::new();
    cluster.start("n1");
    cluster.start("n2");
    let host = cluster.node("n1");
    let (job, outcome, _) = run(&host, keeps("n2", 2_000_000)).await;
    outcome.unwrap();
    tokio::task::block_in_place(|| cluster.stop("n2"));
    assert_eq!(host.store().groups(), [job.result_group()]);
    assert!(read(&host.results(TENANT), job, 0).await.unwrap() == content(1, 2_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_nobody_takes_over_is_there_again_with_its_node_and_until_then_who_asks_is_told() {
    let cluster = Cluster::new();
    let host = host_that_keeps_nothing(&cluster).await;
    let (options, again) = (cluster.elsewhere("n2", false, &cluster.bus), cluster.elsewhere("n2", false, &cluster.bus));
    let spill = options.store.spill_dirs.clone();
    let holder = started(options).await;
    let (job, outcome, _) = run(&host, keeps("n2", 2_000_000)).await;
    outcome.unwrap();
    stopped(holder).await;
    let client = host.results(TENANT);
    let error = client.read(job, &0.into(), 0, 1).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unreachable), "{error}");
    assert!(error.to_string().contains("n2"), "{error}");
    assert_eq!(client.stat(job).await.unwrap().bytes, 2_000_000, "what is known of it is known");
    let mut again = again;
    again.store.spill_dirs = spill;
    let holder = started(again).await;
    assert!(read(&client, job, 0).await.unwrap() == content(1, 2_000_000));
    stopped(holder).await;
    stopped(host).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_opens_the_data_port_for_its_result_alone_and_for_a_while() {
    let cluster = Cluster::over(Arc::new(RealNetwork::new()));
    cluster.start("n1");
    cluster.start("n2");
    let host = cluster.node("n1");
    let (job, outcome, _) = run(&host, keeps("n2", 3_000_000)).await;
    outcome.unwrap();
    let (other, outcome, _) = run(&host, keeps("n2", 1_000)).await;
    outcome.unwrap();
    let (client, clock) = (host.results(TENANT), Arc::new(SystemClock::new()));
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let taken = bytes.clone();
    let take = move |piece: &[u8]| {
        taken.lock().extend_from_slice(piece);
        Ok(())
    };
    assert_eq!(client.fetch_file(job, &0.into(), clock.clone(), take).await.unwrap(), 3_000_000);
    assert!(*bytes.lock() == content(1, 3_000_000));

    let ticket = client.ticket(job, &0.into()).await.unwrap();
    let foreign = client.ticket(other, &0.into()).await.unwrap();
    let download = |shown: &str, group: &str| {
        let member = &ticket.members[0];
        let number = |text: &str| u128::from_str_radix(text, 16).unwrap();
        let object = CopyId::new(number(group), number(&member.object));
        let peer = PeerName { node: member.node.clone(), address: member.address.clone() };
        let options = exobus_actors::transfer::ClientOptions::default();
        exobus_actors::transfer::download(&peer, shown, object, &options, clock.clone(), |_| Ok(())).map_err(Box::new)
    };
    tokio::task::block_in_place(|| {
        assert_eq!(download(&ticket.ticket, &ticket.group).unwrap(), 3_000_000);
        let absent = download(&foreign.ticket, &ticket.group).unwrap_err();
        assert!(matches!(*absent, TransferError::Absent { .. }), "{absent}");
        let job_s = download(&ticket.ticket, &job.to_string()).unwrap_err();
        assert!(matches!(*job_s, TransferError::Absent { .. }), "{job_s}");
        let forged = ticket.ticket.replace(&ticket.group, &foreign.group);
        let refused = download(&forged, &foreign.group).unwrap_err();
        assert!(matches!(*refused, TransferError::Refused { .. }), "{refused}");
        // Who takes no more has the connection closed; others get theirs.
        let peer = PeerName { node: String::new(), address: ticket.members[0].address.clone() };
        let object = CopyId::new(job.result_group(), 0);
        let options = exobus_actors::transfer::ClientOptions::default();
        let gone = exobus_actors::transfer::download(&peer, &ticket.ticket, object, &options, clock.clone(), |_| {
            Err(std::io::Error::other("enough"))
        });
        assert!(matches!(gone, Err(TransferError::Taken { .. })), "{gone:?}");
        assert_eq!(download(&ticket.ticket, &ticket.group).unwrap(), 3_000_000);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_was_fetched_to_be_kept_is_there_again_when_its_node_is_started_again() {
    let cluster = Cluster::new();
    let host = host_that_keeps_nothing(&cluster).await;
    let options = cluster.elsewhere("n2", false, &cluster.bus);
    let spill = options.store.spill_dirs.clone();
    let holder = started(options).await;
    // A node fetches from one that it has heard of.
    let kept = Mutex::new(None);
    until_async(async || {
        let (job, _, end) = run(&host, keeps("n1", 2_000_000)).await;
        let there = matches!(end.kept, Some(JobKept::Result { bytes: 2_000_000, .. }));
        *kept.lock() = there.then_some(job);
        there
    })
    .await;
    let job = kept.into_inner().unwrap();
    assert!(holder.store().groups().contains(&job.result_group()), "it was fetched");
    stopped(holder).await;
    let mut again = cluster.elsewhere("n2", false, &cluster.bus);
    again.store.spill_dirs = spill;
    let holder = started(again).await;
    assert!(read(&host.results(TENANT), job, 0).await.unwrap() == content(1, 2_000_000));
    stopped(holder).await;
    stopped(host).await;
}
