use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::chaos::{Chaos, Direction, Faults};
use exobus_bus::{Bus, Message, Subjects};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::clock::PausedClock;
use super::cluster::{Seat, Setup};
use super::program::{PROGRAM, Shuffle, ShuffleEnd, Sums};
use super::{BYTES_MAX, LIVES_FOR, Report, run};
use crate::client::{Client, ClientError, ClientOptions};
use crate::election::Ground;
use crate::event::{Event, EventKind};
use crate::futures::Futures;
use crate::host::NodeParts;
use crate::ids::{Epoch, Incarnation, JobId, JobSecret, NodeId};
use crate::joblog::{Entry, JobLog, JobLogs, LogNews, Opened, QUOTA_BYTES};
use crate::joining::ClusterOptions;
use crate::membership::MembershipOptions;
use crate::program;
use crate::protocol::host::{JobEnd, JobSpec};
use crate::protocol::membership::{Beat, MembershipMsg};
use crate::random::SeededRandom;
use crate::simulation::dice::Dice;
use crate::simulation::tests::seeds_of;
use crate::task::JobError;
use crate::transfer::network::MemoryNetwork;

/// Seeds that found something once, and what.
const REGRESSIONS: &str = include_str!("regressions.txt");

fn check(seed: u64) -> Report {
    let report = run(seed);
    assert_eq!(report.finding, None, "exobus-sim --actors --seed {seed}");
    report
}

#[test]
fn seeds_that_found_something_once_find_nothing() {
    for seed in seeds_of(REGRESSIONS) {
        check(seed);
    }
}

#[test]
fn whatever_goes_wrong_each_job_of_real_actors_ends_right_and_nothing_is_left() {
    let runs = std::env::var("EXOBUS_SIM_ACTOR_RUNS").map_or(90, |runs| runs.parse().expect("a number"));
    let reports: Vec<_> = (0..runs).map(check).collect();
    // A world in which nothing happens shows nothing.
    let sum = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    assert!(sum(|report| report.finished) >= 5 * runs, "work is done");
    assert!(sum(|report| report.faults) >= runs, "faults fire");
    assert!(sum(|report| report.replayed) > 0, "they cost work");
    assert!(sum(|report| report.stopped) >= runs / 10, "edges are stopped");
    assert!(sum(|report| report.cut) >= runs / 20, "before all was read");
}

/// The least that may come of a shuffle.
fn least(shuffle: &Shuffle) -> ShuffleEnd {
    let whole = shuffle.sums();
    let (Some(waits_for), parts) = (shuffle.waits_for(), whole.len()) else {
        return ShuffleEnd { stopped: None, sums: whole };
    };
    let merges = shuffle.merges();
    let made = |number: usize| match merges {
        true => ((number % parts) as u32, vec![(number / parts) as u32]),
        false => (number as u32, whole[number].maps.clone()),
    };
    let stopped: Vec<_> = (0..waits_for).map(made).collect();
    ShuffleEnd { sums: shuffle.sums_of(&stopped), stopped: Some(stopped) }
}

#[test]
fn rows_that_are_lost_or_read_twice_are_found_where_an_edge_is_stopped_too() {
    let (mut stopped, mut waited) = (0, 0);
    for seed in 0..400 {
        let shuffle = Shuffle::draw(&mut Dice::new(seed), 10_000);
        stopped += u32::from(shuffle.waits_for().is_some());
        let wrong = |change: fn(&mut ShuffleEnd)| {
            let mut made = least(&shuffle);
            change(&mut made);
            !shuffle.may_make(&made)
        };
        assert!(!wrong(|_| {}), "{shuffle:?}");
        assert!(
            wrong(|made| made.stopped = made.stopped.is_none().then(Vec::new)),
            "whether it stops is another matter: {shuffle:?}"
        );
        if least(&shuffle).sums.is_empty() {
            continue;
        }
        waited += u32::from(shuffle.waits_for().is_some());
        assert!(wrong(|made| made.sums.clear()), "nothing came of it: {shuffle:?}");
        assert!(wrong(|made| made.sums[0].rows -= 1), "a row is lost: {shuffle:?}");
        assert!(wrong(|made| made.sums[0].maps.push(0)), "a map is read twice: {shuffle:?}");
        assert!(wrong(|made| made.sums[0].maps.clear()), "rows are of another map: {shuffle:?}");
        assert!(
            wrong(|made| {
                let again = first_of(&made.sums);
                made.sums.extend(again);
            }),
            "a part is read twice: {shuffle:?}"
        );
        assert!(wrong(|made| drop(made.sums.pop())), "a part is missing: {shuffle:?}");
        let Some(waited_for) = least(&shuffle).stopped else { continue };
        let with = |stopped: Vec<_>| ShuffleEnd { sums: shuffle.sums_of(&stopped), stopped: Some(stopped) };
        let fewer = with(waited_for[1..].to_vec());
        assert!(!shuffle.may_make(&fewer), "it did not wait: {shuffle:?}");
        let twice = with([&waited_for[..], &waited_for[..1]].concat());
        assert!(!shuffle.may_make(&twice), "a merge is read twice: {shuffle:?}");
        let lost = ShuffleEnd { stopped: Some(waited_for.clone()), ..fewer };
        assert!(!shuffle.may_make(&lost), "a merge is lost: {shuffle:?}");
        let nobody = with([&waited_for[..], &[(0, vec![99])]].concat());
        assert!(!shuffle.may_make(&nobody), "no map made that: {shuffle:?}");
    }
    assert!((60..200).contains(&stopped) && waited > 30, "{stopped}, {waited}");
}

fn first_of(sums: &Sums) -> Sums {
    rmp_serde::from_slice(&rmp_serde::to_vec_named(&sums[..1]).unwrap()).unwrap()
}

/// What a client hears, and when, of a job.
struct Heard {
    killed: Duration,
    news: Vec<(Duration, EventKind)>,
    end: Result<JobEnd, ClientError>,
}

/// Runs something in a world of its own.
pub(super) fn in_a_world<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

/// A world in which tasks take so long, milliseconds.
pub(super) fn setup(takes_ms: u64) -> Setup {
    Setup {
        bus: Bus::in_process(),
        subjects: Subjects::new("paused").unwrap(),
        network: MemoryNetwork::new(),
        clock: Arc::new(PausedClock::new()),
        memory_bytes: 64 << 20,
        takes_ms: takes_ms..takes_ms + 1,
        faults: Faults::default(),
    }
}

pub(super) async fn client(setup: &Setup) -> Client {
    let options = ClientOptions {
        clock: setup.clock.clone(),
        random: Arc::new(SeededRandom::new(8)),
        deadline: LIVES_FOR,
        ..ClientOptions::new(setup.bus.clone(), setup.subjects.clone())
    };
    Client::connect(options).await.unwrap()
}

fn spec(shuffle: &Shuffle) -> JobSpec {
    JobSpec::of(JobId::from_u128(1), PROGRAM, shuffle).unwrap()
}

/// Hears of a job, and tells on which node it has begun first.
fn first_host() -> (impl FnMut(Event), oneshot::Receiver<NodeId>) {
    let (started, has_started) = oneshot::channel();
    let mut started = Some(started);
    let hear = move |Event { node, kind, .. }: Event| {
        if let EventKind::JobStarted { .. } = kind {
            started.take().into_iter().for_each(|started| started.send(node.clone()).unwrap());
        }
    };
    (hear, has_started)
}

/// Of one whose nodes all die as soon as it has started; `back`: after how long they are started again.
fn all_nodes_die(back: Option<Duration>) -> Heard {
    in_a_world(async {
        let setup = setup(1000);
        let mut dice = Dice::new(7);
        let shuffle = Shuffle::draw(&mut dice, BYTES_MAX);
        let mut seats = [Seat::new(0, 1), Seat::new(1, 1)];
        let mut start = |seat: &mut Seat| assert!(seat.start(&setup, &mut dice), "nobody is about to end");
        seats.iter_mut().for_each(&mut start);
        let client = client(&setup).await;
        let (started, has_started) = oneshot::channel();
        let (mut started, mut news) = (Some(started), Vec::new());
        let clock = setup.clock.clone();
        let hear = |event: Event| {
            if let EventKind::JobStarted { .. } = event.kind {
                started.take().into_iter().for_each(|started| started.send(()).unwrap());
            }
            news.push((clock.now(), event.kind));
        };
        let die = async {
            has_started.await.unwrap();
            for seat in &mut seats {
                seat.kill().await;
            }
            let killed = clock.now();
            if let Some(back) = back {
                sleep(back).await;
                seats.iter_mut().for_each(start);
            }
            killed
        };
        let (end, killed) = tokio::join!(client.run_spec(spec(&shuffle), hear, std::future::pending()), die);
        for seat in &mut seats {
            seat.kill().await;
        }
        Heard { killed, news, end }
    })
}

#[test]
fn a_client_says_within_five_seconds_that_all_nodes_are_gone_and_leaves_in_the_end() {
    let Heard { killed, news, end } = all_nodes_die(None);
    let first = |text: &str| {
        let says = |kind: &EventKind| matches!(kind, EventKind::Waiting { reason, .. } if reason.contains(text));
        news.iter().find(|(_, kind)| says(kind)).map(|(at, _)| *at - killed)
    };
    assert!(first("which hosts it, is silent").is_some_and(|after| after < Duration::from_secs(4)), "{news:?}");
    assert!(first("so is the cluster").is_some_and(|after| after < Duration::from_secs(6)), "{news:?}");
    assert!(matches!(end, Err(ClientError::HostSilent { .. })), "{end:?}");
}

#[test]
fn a_client_whose_cluster_comes_back_says_that_its_job_goes_on() {
    let Heard { news, end, .. } = all_nodes_die(Some(Duration::from_secs(10)));
    let waits = news.iter().position(|(_, kind)| matches!(kind, EventKind::Waiting { what, .. } if what == "the job"));
    let goes_on =
        news.iter().rposition(|(_, kind)| matches!(kind, EventKind::GoesOn { what, .. } if what == "the job"));
    assert!(waits.is_some() && waits < goes_on, "{news:?}");
    assert!(end.is_ok_and(|end| end.result.is_ok()));
}

#[test]
fn a_job_goes_on_whose_host_dies_a_while_after_the_server_was_emptied_under_a_long_task() {
    in_a_world(async {
        let setup = setup(30_000);
        let mut dice = Dice::new(7);
        let shuffle = Shuffle::draw(&mut dice, BYTES_MAX);
        let mut seats = [Seat::new(0, 2), Seat::new(1, 2)];
        seats.iter_mut().for_each(|seat| assert!(seat.start(&setup, &mut dice)));
        let client = client(&setup).await;
        let (hear, has_started) = first_host();
        // Nobody else knows the job: its client leaves when it has begun.
        let host = tokio::select! {
            host = has_started => host.unwrap(),
            ended = client.run_spec(spec(&shuffle), hear, std::future::pending()) => panic!("{ended:?}"),
        };
        crate::election::lose(&setup.bus, &setup.subjects).await.unwrap();
        // The streams are made anew, and no task ends: there is nothing to note.
        sleep(Duration::from_secs(15)).await;
        let host = seats.iter_mut().find(|seat| *seat.name() == host).unwrap();
        host.kill().await;
        let logs = JobLogs::open(&setup.bus, &setup.subjects, true, LIVES_FOR).await.unwrap().unwrap();
        let until = setup.clock.now() + 10 * LIVES_FOR;
        let end = loop {
            if let Some(end) = logs.end(spec(&shuffle).job).await.unwrap() {
                break end;
            }
            assert!(setup.clock.now() < until, "the job is gone");
            sleep(Duration::from_secs(1)).await;
        };
        assert!(shuffle.may_make(&rmp_serde::from_slice::<ShuffleEnd>(&end.result.unwrap()).unwrap()));
        for seat in &mut seats {
            seat.kill().await;
        }
    });
}

#[test]
fn a_candidate_that_comes_back_to_an_emptied_server_hears_of_plain_nodes_and_makes_everything_anew() {
    in_a_world(async {
        let setup = setup(1);
        let mut dice = Dice::new(7);
        let mut seats = [Seat::new(0, 1), Seat::new(1, 1), Seat::new(2, 1)];
        seats[1..].iter_mut().for_each(|seat| seat.scheduler = false);
        seats.iter_mut().for_each(|seat| assert!(seat.start(&setup, &mut dice)));
        let identity = async || {
            let logs = JobLogs::open(&setup.bus, &setup.subjects, false, LIVES_FOR).await.unwrap().unwrap();
            logs.identity().await.unwrap()
        };
        client(&setup).await;
        assert!(!identity().await.starts_with("anew-"), "nobody was there before");
        sleep(Duration::from_secs(5)).await;
        seats[0].kill().await;
        crate::election::lose(&setup.bus, &setup.subjects).await.unwrap();
        assert!(seats[0].start(&setup, &mut dice));
        client(&setup).await;
        assert!(identity().await.starts_with("anew-"), "taken for a first start");
        // Names that are not kept are not free.
        let mut second = Seat::new(2, 1);
        second.scheduler = false;
        assert!(second.start(&setup, &mut dice));
        sleep(Duration::from_secs(20)).await;
        assert!(seats.iter().all(Seat::lives) && !second.lives());
        for seat in &mut seats {
            seat.kill().await;
        }
    });
}

/// The parts of a node that is about to join.
async fn joined(seat: &Seat) -> NodeParts {
    loop {
        if let Some(parts) = seat.parts() {
            return parts;
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Such a node beats once, follows nobody and has heard of this epoch; a second passes.
async fn beats(setup: &Setup, node: &NodeId, incarnation: Incarnation, epoch: Epoch) {
    let beat = Beat { epoch, ..Beat::new(node.clone(), incarnation, 1) };
    let subject = setup.subjects.node(node.as_str(), "beat").unwrap();
    let beat = setup.bus.credentials().seal(&subject, &MembershipMsg::Beat(beat)).unwrap();
    setup.bus.publish(subject, Message::new(beat)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
}

/// The epochs of servers that were emptied begin anew, and may begin below those of before.
#[test]
fn a_scheduler_is_elected_anew_above_the_epoch_of_which_a_node_has_heard_that_follows_nobody() {
    in_a_world(async {
        let (setup, mut dice) = (setup(1), Dice::new(7));
        let mut seat = Seat::new(0, 1);
        assert!(seat.start(&setup, &mut dice));
        let link = joined(&seat).await.scheduler;
        let before = link.epoch();
        let above = Epoch(before.0 + 1000);
        beats(&setup, &NodeId::new("follows-nobody"), Incarnation(1), above).await;
        let leader = link.leader().expect("the only candidate is the Scheduler");
        assert!(leader.epoch > above, "{leader:?}, and before {before:?}");
        seat.kill().await;
    });
}

/// The next incarnation has said nothing yet. An Owner may have asked it what it holds, since the Scheduler lends it.
#[test]
fn who_talks_to_a_node_is_told_that_words_are_lost_when_a_heartbeat_tells_of_its_next_incarnation() {
    in_a_world(async {
        let (setup, mut dice) = (setup(1), Dice::new(7));
        let mut seats = [Seat::new(0, 1), Seat::new(1, 1)];
        seats[1].scheduler = false;
        seats.iter_mut().for_each(|seat| assert!(seat.start(&setup, &mut dice)));
        let (mut resets, goes) = (joined(&seats[0]).await.directory.resets(), joined(&seats[1]).await.post);
        seats[1].kill().await;
        let (node, incarnation) = (goes.node().clone(), Incarnation(goes.incarnation().0 + 1));
        beats(&setup, &node, incarnation, Epoch(0)).await;
        assert_eq!(resets.try_recv(), Ok((node, incarnation)));
        seats[0].kill().await;
    });
}

/// It is heard, and cut off before the Scheduler knows it; when it is back, it hears that the others have called it dead.
#[test]
fn a_node_that_is_declared_dead_while_it_joins_is_there_in_its_next_incarnation_soon_after() {
    in_a_world(async {
        let mut setup = setup(1);
        let mut dice = Dice::new(7);
        let mut seats = [Seat::new(0, 1), Seat::new(1, 1)];
        assert!(seats[0].start(&setup, &mut dice));
        let directory = joined(&seats[0]).await.directory;
        let late = Duration::from_millis(100);
        setup.faults.delay = Some((late, late));
        seats[1].scheduler = false;
        assert!(seats[1].start(&setup, &mut dice));
        let joins = seats[1].name().clone();
        let dead = loop {
            if let Some(member) = directory.members().into_iter().find(|member| member.node == joins) {
                break member.incarnation;
            }
            sleep(Duration::from_millis(1)).await;
        };
        seats[1].cut_bus(Direction::Both);
        assert!(seats[1].parts().is_none(), "the Scheduler does not know it");
        sleep(Duration::from_secs(5)).await;
        assert!(directory.is_gone(&joins));
        seats[1].mend_bus(None);
        sleep(Duration::from_secs(10)).await;
        assert!(seats[1].parts().is_some_and(|parts| parts.post.incarnation() > dead), "{:?}", seats[1].fatal());
        for seat in &mut seats {
            seat.kill().await;
        }
    });
}

/// That of a candidate.
fn cluster(setup: &Setup, bus: Bus) -> ClusterOptions {
    ClusterOptions {
        bus,
        subjects: setup.subjects.clone(),
        scheduler: true,
        membership: MembershipOptions::default(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        join_deadline: LIVES_FOR,
    }
}

/// Starts a candidate again and again, and does something to the server at each moment of its start in turn.
fn at_each_moment_of_the_start_of_a_candidate(happens: impl AsyncFn(&Setup, &Chaos)) {
    for number in 0.. {
        let after = Duration::from_millis(50) * number;
        let took = in_a_world(async {
            let setup = setup(1);
            let delay = Some((Duration::from_millis(100), Duration::from_millis(100)));
            let chaos = Chaos::around(&setup.bus, 7, Faults { delay, ..Faults::default() });
            let cluster = cluster(&setup, chaos.bus());
            let starts = async {
                let ground = Ground::of(&cluster).await;
                assert!(matches!(ground, Ok(Ground::Keys(_))), "it happened after {after:?}: {:?}", ground.err());
                setup.clock.now()
            };
            let meanwhile = async {
                sleep(after).await;
                happens(&setup, &chaos).await;
            };
            tokio::join!(starts, meanwhile).0
        });
        if took < after {
            assert!(number > 10, "it asks, and that takes a while");
            return;
        }
    }
}

/// For longer than any call waits.
#[test]
fn a_candidate_looks_again_what_the_servers_keep_whenever_they_fell_silent_meanwhile() {
    at_each_moment_of_the_start_of_a_candidate(async |_, chaos| {
        chaos.set(Faults { drop: 1.0, ..Faults::default() });
        sleep(Duration::from_secs(10)).await;
        chaos.set(Faults::default());
    });
}

#[test]
fn a_candidate_opens_anew_what_the_servers_keep_whenever_they_were_emptied_meanwhile() {
    at_each_moment_of_the_start_of_a_candidate(async |setup, _| {
        crate::election::lose(&setup.bus, &setup.subjects)
            .await
            .expect("nothing is in the way of a bus without faults");
    });
}

/// Before it has its name, and before it is elected: it joins all the same, under no epoch that a Scheduler of before has had.
fn a_candidate_joins_and_leads_though_meanwhile(happens: impl AsyncFn(&Setup)) {
    for number in 0.. {
        let after = Duration::from_millis(100) * number;
        let joined_before = in_a_world(async {
            let (mut setup, mut dice) = (setup(1), Dice::new(7));
            setup.faults.delay = Some((Duration::from_millis(100), Duration::from_millis(100)));
            let mut seat = Seat::new(0, 1);
            assert!(seat.start(&setup, &mut dice));
            sleep(after).await;
            let joined_before = seat.parts().is_some();
            let logs = JobLogs::open(&setup.bus, &setup.subjects, false, LIVES_FOR).await.unwrap();
            let first_epoch = crate::election::base(logs.as_ref()).await.unwrap() + 1;
            happens(&setup).await;
            sleep(Duration::from_secs(30)).await;
            let parts = seat.parts().unwrap_or_else(|| panic!("emptied after {after:?}: {:?}", seat.fatal()));
            let leader = parts.scheduler.leader().expect("the only candidate is the Scheduler");
            assert_ne!(leader.epoch, Epoch(first_epoch), "somebody's of before, emptied after {after:?}");
            seat.kill().await;
            joined_before
        });
        if joined_before {
            assert!(number > 10, "it asks, and that takes a while");
            return;
        }
    }
}

#[test]
fn a_candidate_joins_and_leads_whenever_the_servers_were_emptied_while_it_started() {
    a_candidate_joins_and_leads_though_meanwhile(async |setup| {
        crate::election::lose(&setup.bus, &setup.subjects).await.unwrap();
    });
}

#[test]
fn a_candidate_joins_and_leads_whenever_what_the_servers_keep_was_made_anew_while_it_started() {
    a_candidate_joins_and_leads_though_meanwhile(async |setup| {
        crate::election::lose(&setup.bus, &setup.subjects).await.unwrap();
        let made = Ground::of(&cluster(setup, setup.bus.clone())).await;
        assert!(matches!(made, Ok(Ground::Keys(_))));
    });
}

/// What runs of jobs did, in order, of all jobs of this process.
static DONE: Mutex<Vec<(JobId, &str)>> = Mutex::new(Vec::new());

fn done(job: JobId) -> Vec<&'static str> {
    DONE.lock().iter().filter(|(of, _)| *of == job).map(|(_, what)| *what).collect()
}

/// Makes something outside that is to be given back, and fails after a second.
#[program(name = "paused.fails")]
async fn fails(futures: Futures, _: ()) -> Result<(), JobError> {
    let note = {
        let job = futures.job();
        move |what| DONE.lock().push((job, what))
    };
    note("made");
    futures.when_over(move || note("given back"));
    sleep(Duration::from_secs(1)).await;
    note("failed");
    Err(JobError::program("it was the last attempt"))
}

/// Runs a job that fails on nodes to which something happens meanwhile; what is told of them is the one that hosts it.
fn a_job_fails(number: u128, nodes: usize, happens: impl AsyncFnOnce(JobId, &mut Seat, &mut dyn FnMut(&mut Seat))) {
    in_a_world(async {
        let (setup, mut dice, job) = (setup(1000), Dice::new(7), JobId::from_u128(number));
        let mut seats: Vec<_> = (0..nodes).map(|index| Seat::new(index, 1)).collect();
        let mut start = |seat: &mut Seat| assert!(seat.start(&setup, &mut dice), "nobody is about to end");
        seats.iter_mut().for_each(&mut start);
        let client = client(&setup).await;
        let spec = JobSpec::of(job, "paused.fails@1", &()).unwrap();
        let (hear, has_started) = first_host();
        let meanwhile = async {
            let host = has_started.await.unwrap();
            let host = (0..nodes).find(|index| host == NodeId::new(&format!("n{index}"))).unwrap();
            happens(job, &mut seats[host], &mut start).await;
        };
        let (end, ()) = tokio::join!(client.run_spec(spec, hear, std::future::pending()), meanwhile);
        let error = end.unwrap().result.unwrap_err().to_string();
        assert!(error.contains("the last attempt"), "{error}");
        // Whoever has anything left to say of it has said it by then.
        sleep(Duration::from_secs(30)).await;
        assert_eq!(done(job), ["made", "failed", "made", "failed", "given back"]);
        for seat in &mut seats {
            seat.kill().await;
        }
    });
}

async fn until_done(job: JobId, what: &[&str]) {
    while done(job) != what {
        assert!(done(job).len() < what.len(), "{:?}", done(job));
        sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn what_a_job_has_made_stays_until_its_failure_is_durable() {
    a_job_fails(0xA1, 1, async |job, host, start| {
        until_done(job, &["made"]).await;
        host.mend_bus(Some(Faults { disk_full: true, ..Faults::default() }));
        until_done(job, &["made", "failed"]).await;
        // Long enough to be told, and too short for anybody to do without the log.
        sleep(Duration::from_secs(3)).await;
        host.kill().await;
        assert_eq!(done(job), ["made", "failed"], "the job is run again, and uses it");
        start(host);
    });
}

#[test]
fn what_a_job_has_made_is_not_given_back_by_a_host_from_which_it_was_taken() {
    a_job_fails(0xB1, 2, async |job, host, _| {
        until_done(job, &["made"]).await;
        host.cut_bus(Direction::Both);
        until_done(job, &["made", "failed", "made"]).await;
        host.mend_bus(None);
    });
}

/// Makes something outside and never ends by itself.
#[program(name = "paused.takes", give_back = given_back)]
async fn takes(futures: Futures, _: ()) -> Result<(), JobError> {
    DONE.lock().push((futures.job(), "made"));
    std::future::pending().await
}

fn given_back(job: JobId, (): ()) {
    DONE.lock().push((job, "given back"));
}

/// Its host was killed between the two.
#[test]
fn what_a_job_has_made_is_given_back_by_who_finds_that_it_has_ended_and_was_not_closed() {
    in_a_world(async {
        let (setup, mut dice, job) = (setup(1000), Dice::new(7), JobId::from_u128(0xD1));
        let spec = JobSpec::of(job, "paused.takes@1", &()).unwrap();
        let logs = JobLogs::open(&setup.bus, &setup.subjects, true, LIVES_FOR).await.unwrap().unwrap();
        logs.accept(&spec).await.unwrap();
        let Opened::Runs(run) =
            logs.open_job(&spec, (&NodeId::new("gone"), Incarnation(1)), JobSecret::from_u128(1)).await.unwrap()
        else {
            panic!("it has just been accepted")
        };
        let (tell, mut told) = mpsc::unbounded_channel();
        let log = JobLog::start(&logs, run.head, (QUOTA_BYTES, setup.clock.clone()), move |news| {
            let _ = tell.send(news);
        })
        .unwrap();
        log.add(Entry::End(Err(JobError::Cancelled)));
        assert!(matches!(told.recv().await, Some(LogNews::Durable(_))));
        assert_eq!((done(job), logs.end(job).await.unwrap()), (vec![], None));
        let mut seat = Seat::new(0, 1);
        assert!(seat.start(&setup, &mut dice));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(done(job), ["given back"], "the program did not run again");
        assert_eq!(logs.end(job).await.unwrap().map(|end| end.result), Some(Err(JobError::Cancelled)));
        assert_eq!(logs.spec(job).await.unwrap(), None);
        seat.kill().await;
    });
}

#[test]
fn what_a_job_has_made_is_given_back_though_it_is_cancelled_before_another_host_has_begun_to_run_it() {
    in_a_world(async {
        let (setup, mut dice, job) = (setup(1000), Dice::new(7), JobId::from_u128(0xC1));
        let mut seats = [Seat::new(0, 1), Seat::new(1, 1)];
        seats.iter_mut().for_each(|seat| assert!(seat.start(&setup, &mut dice)));
        let client = client(&setup).await;
        let (hear, has_started) = first_host();
        let (cancel, cancelled) = oneshot::channel::<()>();
        let meanwhile = async {
            let host = has_started.await.unwrap();
            until_done(job, &["made"]).await;
            seats.iter_mut().find(|seat| *seat.name() == host).unwrap().kill().await;
            cancel.send(()).unwrap();
        };
        let spec = JobSpec::of(job, "paused.takes@1", &()).unwrap();
        let cancelled = async { cancelled.await.unwrap_or(()) };
        let (end, ()) = tokio::join!(client.run_spec(spec, hear, cancelled), meanwhile);
        assert_eq!(end.unwrap().result, Err(JobError::Cancelled));
        sleep(Duration::from_secs(30)).await;
        assert_eq!(done(job), ["made", "given back"], "the program did not run again");
        for seat in &mut seats {
            seat.kill().await;
        }
    });
}
