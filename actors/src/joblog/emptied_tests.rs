//! Servers that come back without what they held, under a job that is logged there.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::chaos::{Chaos, Faults};
use exobus_bus::{Bus, Subjects};
use exobus_store::{Clock, SystemClock};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

use super::{Entry, JobLog, JobLogs, LogNews, Opened, QUOTA_BYTES};
use crate::joblog::Choice;
use crate::protocol::host::{JobEnd, JobSpec};

use crate::ids::{Incarnation, JobId, JobSecret, NodeId, ObjectId};
use crate::task::JobError;

const SECRET: JobSecret = JobSecret::from_u128(9);
const DEADLINE: Duration = Duration::from_secs(5);
/// A job stands in streams that were made anew within this time, at the latest.
const NOTED_WITHIN: Duration = Duration::from_secs(11);

fn quota() -> (u64, Arc<dyn Clock>) {
    (QUOTA_BYTES, Arc::new(SystemClock::new()))
}

fn spec() -> JobSpec {
    let (program, params) = ("sort@1".to_owned(), Vec::new().into());
    JobSpec { job: JobId::from_u128(7), tenant: "default".into(), program, params, sample_ms: 0, plan_pieces: 0 }
}

fn end() -> Entry {
    Entry::End(Err(JobError::Cancelled))
}

fn learned() -> Entry {
    Entry::Choice(Choice::GivenUp(ObjectId::from_u128(1 << 32)))
}

struct World {
    /// What becomes of what the job says.
    faults: Chaos,
    bus: Bus,
    logs: JobLogs,
    log: JobLog,
    news: Rc<RefCell<Vec<LogNews>>>,
}

impl World {
    async fn logs_of(bus: &Bus, anew: bool) -> JobLogs {
        JobLogs::open(bus, &Subjects::new("test").unwrap(), anew, DEADLINE).await.unwrap().unwrap()
    }

    async fn runs(logs: &JobLogs, node: &str) -> (super::Past, super::logs::Head) {
        logs.accept(&spec()).await.unwrap();
        match logs.open_job(&spec(), (&NodeId::new(node), Incarnation(1)), SECRET).await.unwrap() {
            Opened::Runs(run) => (run.past, run.head),
            Opened::Over(end) | Opened::Ended(end) => panic!("{end:?}"),
        }
    }

    /// A job that runs on node a and has logged something.
    async fn new() -> Self {
        let bus = Bus::in_process();
        let faults = Chaos::around(&bus, 1, Faults::default());
        let logs = Self::logs_of(&faults.bus(), false).await;
        let (_, head) = Self::runs(&logs, "a").await;
        let news = Rc::<RefCell<Vec<LogNews>>>::default();
        let told = news.clone();
        let log = JobLog::start(&logs, head, quota(), move |news| told.borrow_mut().push(news)).unwrap();
        let world = Self { faults, bus, logs, log, news };
        world.log.add(Entry::Run { node: NodeId::new("a"), secret: SECRET });
        assert_eq!(world.heard().await, LogNews::Durable(1));
        world
    }

    async fn heard(&self) -> LogNews {
        let wait = async {
            loop {
                if let Some(news) = self.news.borrow_mut().pop() {
                    return news;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), wait).await.expect("there is news")
    }

    /// The server loses everything, and somebody makes the streams anew.
    async fn emptied(&self) -> JobLogs {
        self.logs.lose().await.unwrap();
        Self::logs_of(&self.bus, true).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_log_was_lost_is_not_taken_over_but_begins_it_anew() {
    let test = async {
        let world = World::new().await;
        let anew = world.emptied().await;
        // Others use the streams.
        let other = JobSpec { job: JobId::from_u128(8), ..spec() };
        anew.accept(&other).await.unwrap();
        world.log.add(learned());
        assert_eq!(world.heard().await, LogNews::Durable(2), "nothing waits for it");
        // Whoever takes it up does so from its beginning, and then it is taken over.
        assert_eq!(anew.unfinished().await.unwrap(), [other, spec()]);
        let (past, head) = World::runs(&anew, "b").await;
        assert_eq!((past.runs, past.choices, past.end, head.forgets()), (1, Vec::new(), None, false));
        world.log.add(end());
        assert_eq!(world.heard().await, LogNews::TakenOver);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_nothing_to_note_stands_in_each_log_that_is_made_anew_within_a_bound() {
    let test = async {
        let world = World::new().await;
        for _ in 0..2 {
            world.logs.lose().await.unwrap();
            sleep(Duration::from_secs(60)).await;
            let anew = World::logs_of(&world.bus, true).await;
            sleep(NOTED_WITHIN).await;
            assert_eq!(anew.unfinished().await.unwrap(), [spec()]);
        }
        let anew = world.emptied().await;
        // Whoever made them is the Scheduler next, and Owners hear of it.
        world.log.look();
        sleep(Duration::from_millis(100)).await;
        assert_eq!(anew.unfinished().await.unwrap(), [spec()]);
        assert_eq!(World::runs(&anew, "b").await.0.runs, 1, "it runs there");
        assert!(world.news.borrow().is_empty(), "the job goes on");
    };
    LocalSet::new().run_until(test).await;
}

/// Whoever was frozen between opening the log and beginning may get nothing to do, and so have nothing to write, for ever.
#[tokio::test(start_paused = true)]
async fn a_run_that_has_nothing_to_note_hears_of_a_later_one_within_a_bound() {
    let test = async {
        let world = World::new().await;
        sleep(NOTED_WITHIN).await;
        assert!(world.news.borrow().is_empty(), "it is the last one");
        World::runs(&world.logs, "b").await;
        sleep(NOTED_WITHIN).await;
        assert_eq!(*world.news.borrow(), [LogNews::TakenOver]);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_begun_anew_at_once_is_begun_later() {
    let test = async {
        let world = World::new().await;
        let anew = world.emptied().await;
        // Questions are answered, and nothing is stored.
        world.faults.set(Faults { disk_full: true, ..Faults::default() });
        world.log.add(learned());
        sleep(Duration::from_secs(60)).await;
        assert_eq!(anew.unfinished().await.unwrap(), []);
        assert_eq!(world.heard().await, LogNews::Durable(2));
        world.faults.set(Faults::default());
        // One try may be under way.
        sleep(2 * NOTED_WITHIN).await;
        assert_eq!(anew.unfinished().await.unwrap(), [spec()]);
        assert_eq!(World::runs(&anew, "b").await.0.runs, 1);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_to_be_written_is_counted_until_nothing_waits_for_it() {
    let test = async {
        let world = World::new().await;
        assert_eq!(world.log.waiting_bytes(), 0);
        world.faults.set(Faults { drop: 1.0, ..Faults::default() });
        let value = vec![0; 1000];
        for _ in 0..100 {
            world.log.add(Entry::Choice(Choice::GivenUp(ObjectId::from_u128(1 << 32))));
        }
        world.log.add(Entry::End(Ok(value.into())));
        assert!((100 * 128 + 1000..1 << 20).contains(&world.log.waiting_bytes()), "{}", world.log.waiting_bytes());
        sleep(Duration::from_secs(30)).await;
        assert!(world.log.waiting_bytes() > 1000, "nothing was written");
        world.faults.set(Faults::default());
        while world.heard().await != LogNews::Durable(102) {}
        assert_eq!(world.log.waiting_bytes(), 0);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_was_begun_anew_says_how_the_job_ends() {
    let test = async {
        let world = World::new().await;
        let anew = world.emptied().await;
        world.log.add(learned());
        world.log.add(end());
        assert_eq!(world.heard().await, LogNews::Durable(3));
        match anew.open_job(&spec(), (&NodeId::new("b"), Incarnation(1)), SECRET).await.unwrap() {
            Opened::Ended(end) => assert_eq!(end.result, Err(JobError::Cancelled)),
            opened => panic!("{opened:?}"),
        }
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_begun_again_after_its_log_was_lost_is_taken_over() {
    for has_something_to_note in [true, false] {
        let test = async {
            let world = World::new().await;
            let (past, head) = World::runs(&world.emptied().await, "b").await;
            assert_eq!((past.runs, head.forgets()), (0, true), "nodes may know of earlier runs");
            if has_something_to_note {
                world.log.add(learned());
            }
            assert_eq!(world.heard().await, LogNews::TakenOver);
        };
        LocalSet::new().run_until(test).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_log_is_waited_for_a_while_and_then_the_job_ends_without() {
    for made_after_s in [10, 60] {
        let test = async {
            let world = World::new().await;
            world.logs.lose().await.unwrap();
            world.log.add(end());
            let again = async {
                sleep(Duration::from_secs(made_after_s)).await;
                World::logs_of(&world.bus, true).await
            };
            let (news, logs) = tokio::join!(world.heard(), again);
            assert_eq!(news, LogNews::Durable(2));
            sleep(2 * NOTED_WITHIN).await;
            let noted = logs.spec(spec().job).await.unwrap();
            assert_eq!(noted.is_some(), made_after_s < 20, "one that is over is not noted any more");
        };
        LocalSet::new().run_until(test).await;
    }
}

#[tokio::test(start_paused = true)]
async fn that_a_job_is_not_in_streams_that_were_made_anew_is_not_that_it_is_over() {
    let test = async {
        let world = World::new().await;
        let job = JobId::from_u128(8);
        assert!(world.logs.is_over(job).await.unwrap() && !world.logs.is_over(spec().job).await.unwrap());
        let anew = world.emptied().await;
        assert!(!anew.is_over(job).await.unwrap(), "its Owner may be about to note it");
        anew.close_job(job, &JobEnd::failed(JobError::Cancelled)).await.unwrap();
        assert!(anew.is_over(job).await.unwrap());
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_begins_in_the_streams_that_are_there_whenever_they_were_made_anew_while_it_opened_its_log() {
    let mut took = Duration::MAX;
    let mut after = Duration::ZERO;
    while after <= took {
        let test = async {
            let bus = Bus::in_process();
            let delay = Some((Duration::from_millis(100), Duration::from_millis(100)));
            let slow = Chaos::around(&bus, 1, Faults { delay, ..Faults::default() });
            let (logs, direct) = (World::logs_of(&slow.bus(), false).await, World::logs_of(&bus, false).await);
            direct.accept(&spec()).await.unwrap();
            let begun = Instant::now();
            let opens = async {
                let opened = logs.open_job(&spec(), (&NodeId::new("a"), Incarnation(1)), SECRET).await.unwrap();
                took = begun.elapsed();
                match opened {
                    Opened::Runs(run) => run.head,
                    Opened::Over(end) | Opened::Ended(end) => panic!("{end:?}"),
                }
            };
            let emptied = async {
                sleep(after).await;
                direct.lose().await.unwrap();
                World::logs_of(&bus, true).await
            };
            let (head, anew) = tokio::join!(opens, emptied);
            let news = Rc::<RefCell<Vec<LogNews>>>::default();
            let told = news.clone();
            let _log = JobLog::start(&logs, head, quota(), move |news| told.borrow_mut().push(news)).unwrap();
            sleep(2 * NOTED_WITHIN).await;
            assert!(news.borrow().is_empty(), "no other run has begun; emptied after {after:?}");
            assert_eq!(anew.unfinished().await.unwrap(), [spec()], "emptied after {after:?}");
        };
        LocalSet::new().run_until(test).await;
        after += Duration::from_millis(50);
    }
    assert!(after > Duration::from_millis(500), "it asks, and that takes a while");
}
