//! Results whose node dies while they are kept, whose record another release wrote, and tickets whose time is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exobus_actors::event::NodeState;
use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::ids::{CopyId, JobId, NodeId};
use exobus_actors::membership::Change;
use exobus_actors::node::Node;
use exobus_actors::protocol::host::JobEnd;
use exobus_actors::protocol::results::JobKept;
use exobus_actors::results::ResultError;
use exobus_actors::results::record::{RECORD_VERSION, ResultRecord};
use exobus_actors::results::request::{Code, TicketInfo};
use exobus_actors::task::{JobError, Place, TaskOptions};
use exobus_actors::transfer::network::RealNetwork;
use exobus_actors::transfer::{PeerName, TransferError};
use exobus_bus::chaos::{Chaos, Direction, Faults};
use exobus_bus::codec;
use exobus_bus::kv::{Kv, KvConfig};
use exobus_store::disk::{Disk, FaultyDisk};
use exobus_store::{Clock, RealDisk, SystemClock};
use parking_lot::Mutex;

use crate::harness::{Cluster, until, until_async};
use crate::results::{TENANT, content, host_that_keeps_nothing, keeps, read, result_bytes, run, started, stopped};

/// On this node, as long as it is there.
fn at_first_on(node: &str) -> TaskOptions {
    TaskOptions { place: Place::Node { node: NodeId::new(node), soft: true }, ..TaskOptions::default() }
}

/// An object that the second node makes, and another one where that is gone.
async fn made_on_n2(futures: &Futures, bytes: u64) -> Result<ObjectRef, JobError> {
    // When it has done something the Scheduler knows that it is there.
    let place = Place::Node { node: NodeId::new("n2"), soft: false };
    let known = futures.submit_with(result_bytes, &(9, 1), &[], TaskOptions { place, ..TaskOptions::default() })?;
    futures.ready(&known).await?;
    let made = futures.submit_with(result_bytes, &(1, bytes), &[], at_first_on("n2"))?;
    futures.ready(&made).await?;
    Ok(made)
}

/// What becomes of the second node.
struct Changes(tokio::sync::broadcast::Receiver<Change>);

impl Changes {
    async fn until(&mut self, state: NodeState) {
        let so = |change: Change| change.node.as_str() == "n2" && change.state == state;
        until(|| self.0.try_recv().is_ok_and(so)).await;
    }
}

/// Two nodes that know each other, the second of which can be cut off.
async fn host_and_holder(cluster: &Cluster, disk: Option<Arc<dyn Disk>>) -> (Arc<Node>, Node, Chaos) {
    cluster.start("n1");
    let host = cluster.node("n1");
    let chaos = Chaos::around(&cluster.bus, 1, Faults::default());
    let mut changes = Changes(host.changes());
    let mut options = cluster.elsewhere("n2", false, &chaos.bus());
    options.disk = disk.unwrap_or(options.disk);
    let holder = started(options).await;
    changes.until(NodeState::Up).await;
    (host, holder, chaos)
}

fn is_kept(end: &JobEnd, expected: u64) -> bool {
    matches!(end.kept, Some(JobKept::Result { bytes, .. }) if bytes == expected)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_kept_that_dies_before_the_job_has_ended_is_kept_anew_by_another_one() {
    let cluster = Cluster::new();
    let (host, holder, chaos) = host_and_holder(&cluster, None).await;
    let (client, mut changes, cut) = (host.results(TENANT), Changes(host.changes()), chaos.clone());
    let asked = client.clone();
    let (job, outcome, end) = run(&host, async move |futures: Futures| {
        let file = futures.result_file("rows")?;
        file.append(&made_on_n2(&futures, 2_000_000).await?)?;
        let job = futures.job();
        until_async(async || asked.stat(job).await.is_ok_and(|info| info.bytes == 2_000_000)).await;
        cut.cut(Direction::Both, None);
        changes.until(NodeState::Dead).await;
        file.append(&futures.submit_with(result_bytes, &(2, 1_000), &[], at_first_on("n1"))?)
    })
    .await;
    outcome.unwrap();
    assert!(holder.store().groups().contains(&job.result_group()), "the node that died had it");
    assert!(is_kept(&end, 2_001_000), "{:?}", end.kept);
    assert!(host.store().groups().contains(&job.result_group()));
    // A process that has died takes no requests; this one is there, and would.
    chaos.heal();
    stopped(holder).await;
    let all = [content(1, 2_000_000), content(2, 1_000)].concat();
    assert!(read(&client, job, 0).await.unwrap() == all);
}

/// Who waits for its answer does not wait for longer than the node is there.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_was_about_to_keep_when_it_died_is_kept_by_another_one() {
    let cluster = Cluster::new();
    let disk = FaultyDisk::new(Arc::new(RealDisk::new()));
    let (host, holder, chaos) = host_and_holder(&cluster, Some(Arc::new(disk.clone()))).await;
    let (mut changes, cut, held) = (Changes(host.changes()), chaos.clone(), disk.clone());
    let running = run(&host, async move |futures: Futures| {
        let made = made_on_n2(&futures, 2_000_000).await?;
        held.hold_writes();
        futures.keep_result("rows", &made)?;
        tokio::task::spawn_blocking(move || held.wait_for_a_held_write()).await.unwrap();
        cut.cut(Direction::Both, None);
        changes.until(NodeState::Dead).await;
        Ok::<_, JobError>(())
    });
    // Longer than it takes to see that a node is dead, and not as long as a disk may take.
    let ended = tokio::time::timeout(Duration::from_secs(30), running).await;
    disk.heal();
    chaos.heal();
    stopped(holder).await;
    let (job, outcome, end) = ended.expect("nobody waits for a node that is dead");
    outcome.unwrap();
    assert!(is_kept(&end, 2_000_000), "{:?}", end.kept);
    assert_eq!(host.store().groups(), [job.result_group()]);
    assert!(read(&host.results(TENANT), job, 0).await.unwrap() == content(1, 2_000_000));
}

/// The bucket of records, as another release has it.
async fn bucket(cluster: &Cluster) -> Kv {
    let config = KvConfig {
        bytes_max: 64 << 20,
        deletions_kept: Duration::from_secs(60),
        ..KvConfig::new(
            &cluster.subjects.durable_name("kv", "results").unwrap(),
            cluster.subjects.kv("results").unwrap(),
        )
    };
    Kv::open(&cluster.bus, &config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_whose_record_another_release_wrote_outlives_a_restart_beside_others_that_are_served() {
    let cluster = Cluster::new();
    let host = host_that_keeps_nothing(&cluster).await;
    let options = cluster.elsewhere("n2", false, &cluster.bus);
    let spill = options.store.spill_dirs.clone();
    let holder = started(options).await;
    let (theirs, outcome, _) = run(&host, keeps("n2", 2_000_000)).await;
    outcome.unwrap();
    let (neighbour, outcome, _) = run(&host, keeps("n2", 1_000_000)).await;
    outcome.unwrap();
    let (bucket, key) = (bucket(&cluster).await, format!("{TENANT}.{theirs}"));
    let ours = bucket.get(&key).await.unwrap().unwrap().value;
    let record: ResultRecord = codec::decode_checked_as(RECORD_VERSION, &ours).unwrap();
    bucket.put(&key, codec::encode_checked_as(RECORD_VERSION + 1, &record).unwrap()).await.unwrap();
    stopped(holder).await;
    let mut again = cluster.elsewhere("n2", false, &cluster.bus);
    again.store.spill_dirs = spill;
    // It sweeps often.
    again.results_kept = Duration::from_secs(1);
    let holder = started(again).await;

    let client = host.results(TENANT);
    // What a node has read of it before it believes for a moment.
    let refused = Mutex::new(None);
    until_async(async || {
        *refused.lock() = client.stat(theirs).await.err();
        refused.lock().is_some()
    })
    .await;
    let error = refused.into_inner().unwrap();
    assert_eq!(error.code(), Some(Code::Unreadable), "{error}");
    let both = format!("is of version {}, this exobus reads version {RECORD_VERSION}", RECORD_VERSION + 1);
    assert!(error.to_string().contains(&both) && error.to_string().contains("use the exobus that wrote it"), "{error}");
    assert_eq!(client.delete(theirs).await.unwrap_err().code(), Some(Code::Unreadable));
    let list = client.list().await.unwrap();
    let ids = |ids: Vec<&String>| ids.into_iter().map(|id| id.parse::<JobId>().unwrap()).collect::<Vec<_>>();
    assert_eq!(ids(list.results.iter().map(|result| &result.id).collect()), [neighbour]);
    assert_eq!(ids(list.unreadable.iter().map(|result| &result.id).collect()), [theirs]);
    assert!(list.unreadable[0].message.contains(&both), "{list:?}");
    assert!(read(&client, neighbour, 0).await.unwrap() == content(1, 1_000_000));
    assert!(holder.store().groups().contains(&theirs.group()), "its job is over, and its objects are there");

    bucket.put(&key, ours).await.unwrap();
    let all = content(1, 2_000_000);
    until_async(async || read(&client, theirs, 0).await.is_ok_and(|bytes| bytes == all)).await;
    stopped(holder).await;
    stopped(host).await;
}

/// A clock that is set forward.
#[derive(Default)]
struct SetForward(SystemClock, AtomicU64);

impl Clock for SetForward {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn unix_ms(&self) -> u64 {
        self.0.unix_ms() + self.1.load(Ordering::SeqCst)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_whose_time_is_over_opens_nothing_and_who_shows_it_is_told() {
    let cluster = Cluster::over(Arc::new(RealNetwork::new()));
    cluster.start("n1");
    let (host, time) = (cluster.node("n1"), Arc::new(SetForward::default()));
    let mut options = cluster.elsewhere("n2", false, &cluster.bus);
    options.clock = time.clone();
    let holder = started(options).await;
    let (job, outcome, _) = run(&host, keeps("n2", 3_000_000)).await;
    outcome.unwrap();
    let client = host.results(TENANT);
    let ticket = client.ticket(job, &0.into()).await.unwrap();
    let download = |ticket: &TicketInfo| {
        let member = &ticket.members[0];
        let number = |text: &str| u128::from_str_radix(text, 16).unwrap();
        let object = CopyId::new(number(&ticket.group), number(&member.object));
        let peer = PeerName { node: member.node.clone(), address: member.address.clone() };
        let (options, clock) = (exobus_actors::transfer::ClientOptions::default(), Arc::new(SystemClock::new()));
        tokio::task::block_in_place(|| {
            exobus_actors::transfer::download(&peer, &ticket.ticket, object, &options, clock, |_| Ok(()))
                .map_err(Box::new)
        })
    };
    assert_eq!(download(&ticket).unwrap(), 3_000_000);
    time.1.store(5 * 60 * 1000, Ordering::SeqCst);
    let refused = download(&ticket).unwrap_err();
    assert!(
        matches!(&*refused, TransferError::Refused { reason, .. } if reason.contains("ask for another")),
        "{refused}"
    );
    // By the clock of the node that is shown it: that one is ahead of who gave it.
    let fetched = client.fetch_file(job, &0.into(), Arc::new(SystemClock::new()), |_| Ok(())).await;
    let Err(ResultError::Transfer(refused)) = fetched else { panic!("{fetched:?}") };
    assert!(matches!(*refused, TransferError::Refused { .. }), "{refused}");
    time.1.store(0, Ordering::SeqCst);
    assert_eq!(download(&ticket).unwrap(), 3_000_000);
    stopped(holder).await;
}
