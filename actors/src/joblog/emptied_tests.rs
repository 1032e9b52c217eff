//! Servers that come back without what they held, under a job that is logged there.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use exobus_bus::{Bus, Subjects};
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::{Entry, JobLog, JobLogs, LogNews, Opened, Trouble};
use crate::host::JobSpec;
use crate::ids::{Incarnation, JobId, NodeId};
use crate::task::JobError;

const DEADLINE: Duration = Duration::from_secs(5);

fn spec() -> JobSpec {
    let (program, params) = ("sort@1".to_owned(), Vec::new().into());
    JobSpec { job: JobId::from_u128(7), tenant: "default".into(), program, params, sample_ms: 0 }
}

fn entry() -> Entry {
    Entry::End(Err(JobError::Cancelled))
}

struct World {
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
        match logs.open_job(&spec(), &NodeId::new(node), Incarnation(1)).await.unwrap() {
            Opened::Runs(run) => (run.past, run.head),
            Opened::Over(end) => panic!("{end:?}"),
        }
    }

    /// A job that runs on node a and has logged something.
    async fn new() -> Self {
        let bus = Bus::in_process();
        let logs = Self::logs_of(&bus, false).await;
        let (_, head) = Self::runs(&logs, "a").await;
        let news = Rc::<RefCell<Vec<LogNews>>>::default();
        let told = news.clone();
        let log = JobLog::start(&logs, head, move |news| told.borrow_mut().push(news)).unwrap();
        let mut world = Self { bus, logs, log, news };
        world.log.add(Entry::Run { node: NodeId::new("a") });
        assert_eq!(world.heard().await, LogNews::Durable(1));
        world
    }

    async fn heard(&self) -> LogNews {
        let wait = async {
            loop {
                if let Some(news) = self.news.borrow_mut().pop() {
                    return news;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), wait).await.expect("there is news")
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_log_was_lost_is_not_taken_over_but_begins_it_anew() {
    let test = async {
        let mut world = World::new().await;
        world.logs.lose().await.unwrap();
        // Others have made the streams anew, and use them.
        let anew = World::logs_of(&world.bus, true).await;
        let other = JobSpec { job: JobId::from_u128(8), ..spec() };
        anew.accept(&other).await.unwrap();
        world.log.add(entry());
        let LogNews::Trouble(Trouble::Refused { reason, last: Some(last) }) = world.heard().await else {
            panic!("taken for something else");
        };
        assert!(reason.contains("the NATS server was emptied"), "{reason}");
        assert!(anew.is_last(spec().job, &last).await.unwrap(), "nobody else has opened it");
        // Whoever takes it up does so from its beginning, and then it is taken over.
        assert_eq!(anew.unfinished().await.unwrap(), [other, spec()]);
        let (past, head) = World::runs(&anew, "b").await;
        assert_eq!((past.runs, past.end, head.forgets()), (1, None, false));
        assert!(!anew.is_last(spec().job, &last).await.unwrap());
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_begun_again_after_its_log_was_lost_is_taken_over() {
    let test = async {
        let mut world = World::new().await;
        world.logs.lose().await.unwrap();
        let (past, head) = World::runs(&World::logs_of(&world.bus, true).await, "b").await;
        assert_eq!((past.runs, head.forgets()), (0, true), "nodes may know of earlier runs");
        world.log.add(entry());
        assert_eq!(world.heard().await, LogNews::Trouble(Trouble::TakenOver));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_log_is_waited_for_a_while_and_then_done_without() {
    for made_after_s in [10, 60] {
        let test = async {
            let mut world = World::new().await;
            world.logs.lose().await.unwrap();
            world.log.add(entry());
            let again = async {
                tokio::time::sleep(Duration::from_secs(made_after_s)).await;
                World::logs_of(&world.bus, true).await
            };
            let (news, logs) = tokio::join!(world.heard(), again);
            let LogNews::Trouble(Trouble::Refused { reason, last: Some(last) }) = news else { panic!("{news:?}") };
            assert_eq!(reason.contains("emptied"), made_after_s < 20, "{reason}");
            assert!(logs.is_last(spec().job, &last).await.unwrap(), "what is not there says nothing");
        };
        LocalSet::new().run_until(test).await;
    }
}
