//! Logs that are cut: at their quota, in a stream that is full, on a server that stores nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exobus_bus::chaos::{Chaos, Faults};
use exobus_bus::streams::{Append, Expect};
use exobus_bus::{Bus, BusError, InProcessOptions, Pattern, Subjects};
use exobus_store::Clock;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use super::LOG_VERSION;
use super::{Choice, Cut, Entry, JobLog, JobLogs, LogNews, Opened, QUOTA_BYTES, Run};
use crate::ids::{Incarnation, JobId, JobSecret, NodeId};
use crate::protocol::host::JobSpec;
use crate::task::JobError;

const DEADLINE: Duration = Duration::from_secs(5);
const AT_MS: u64 = 1_800_000_000_000;
/// The same for people.
const AT: &str = "2027-01-15T08:00:00Z";
/// Within this time a job that runs looks at its log.
const LOOKS_WITHIN: Duration = Duration::from_secs(11);

/// A clock that stands still.
struct Noon;

impl Clock for Noon {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn unix_ms(&self) -> u64 {
        AT_MS
    }
}

fn spec(job: u128) -> JobSpec {
    let (program, params) = ("sort@1".to_owned(), Vec::new().into());
    JobSpec { job: JobId::from_u128(job), tenant: "default".into(), program, params, sample_ms: 0, plan_pieces: 0 }
}

fn learned() -> Entry {
    Entry::Choice(Choice::Computed(7, Ok(Bytes::from_static(&[7; 1000]))))
}

/// A job that runs on node a, and its log.
struct World {
    faults: Chaos,
    logs: JobLogs,
    log: JobLog,
    news: Rc<RefCell<Vec<LogNews>>>,
    noted: u64,
}

async fn opened(logs: &JobLogs, job: u128, node: &str) -> Opened {
    logs.accept(&spec(job)).await.unwrap();
    logs.open_job(&spec(job), (&NodeId::new(node), Incarnation(1)), JobSecret::from_u128(9)).await.unwrap()
}

async fn runs(logs: &JobLogs, job: u128, node: &str) -> Run {
    match opened(logs, job, node).await {
        Opened::Runs(run) => *run,
        Opened::Over(end) | Opened::Ended(end) => panic!("{end:?}"),
    }
}

/// The words with which a job ends that somebody would take up.
async fn refused(logs: &JobLogs, job: u128) -> String {
    match opened(logs, job, "b").await {
        Opened::Ended(end) => end.result.unwrap_err().to_string(),
        opened => panic!("{opened:?}"),
    }
}

impl World {
    async fn on(bus: &Bus, quota_bytes: u64) -> Self {
        let faults = Chaos::around(bus, 1, Faults::default());
        let logs =
            JobLogs::open(&faults.bus(), &Subjects::new("test").unwrap(), false, DEADLINE).await.unwrap().unwrap();
        let run = runs(&logs, 7, "a").await;
        Self::of(run, faults, logs, quota_bytes)
    }

    fn of(run: Run, faults: Chaos, logs: JobLogs, quota_bytes: u64) -> Self {
        let news = Rc::<RefCell<Vec<LogNews>>>::default();
        let told = news.clone();
        let tell = move |news| told.borrow_mut().push(news);
        let log = JobLog::start(&logs, run.head, (quota_bytes, Arc::new(Noon)), tell).unwrap();
        Self { faults, logs, log, news, noted: 0 }
    }

    /// Notes something, and waits until nothing waits for it; what was said besides.
    async fn note(&mut self, entry: Entry) -> Vec<LogNews> {
        self.log.add(entry);
        self.noted += 1;
        let mut besides = Vec::new();
        loop {
            match self.heard().await {
                LogNews::Durable(noted) if noted == self.noted => return besides,
                news => besides.push(news),
            }
        }
    }

    async fn heard(&self) -> LogNews {
        let wait = async {
            loop {
                if !self.news.borrow().is_empty() {
                    return self.news.borrow_mut().remove(0);
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(60), wait).await.expect("there is news")
    }

    /// Notes until the log is cut; how many entries are in it then, and how.
    async fn until_cut(&mut self) -> (u64, Cut) {
        loop {
            let before = self.noted;
            match &*self.note(learned()).await {
                [] => {}
                [LogNews::Cut(cut)] => return (before, cut.clone()),
                news => panic!("{news:?}"),
            }
        }
    }

    /// With a log that is cut, since no disk has room, behind a record of its own of which it does not know: the answer was lost.
    async fn cut_behind_a_record_of_its_own() -> (Self, Cut) {
        let mut world = Self::on(&Bus::in_process(), QUOTA_BYTES).await;
        world.note(learned()).await;
        world.faults.set(Faults { drop_answer: 1.0, ..Faults::default() });
        world.log.add(learned());
        sleep(Duration::from_secs(30)).await;
        world.faults.set(Faults { disk_full: true, ..Faults::default() });
        world.noted += 1;
        let (_, cut) = world.until_cut().await;
        world.faults.set(Faults::default());
        (world, cut)
    }

    /// Notes until the next entry does not go into the log any more.
    async fn until_full(&mut self) {
        loop {
            let before = self.log.written();
            assert_eq!(self.note(learned()).await, []);
            let after = self.log.written();
            if after.bytes + (after.bytes - before.bytes) > after.quota_bytes {
                return;
            }
        }
    }

    /// The server loses everything, and somebody makes the streams anew.
    async fn emptied(&self, bus: &Bus) {
        self.logs.lose().await.unwrap();
        JobLogs::open(bus, &Subjects::new("test").unwrap(), true, DEADLINE).await.unwrap().unwrap();
    }

    /// Records of the log of a job.
    async fn records(&self, job: u128) -> Vec<Entry> {
        let (stream, subject) = self.logs.continued(JobId::from_u128(job)).unwrap();
        let subject = Some(Pattern::from(subject));
        let mut reader = stream.read(exobus_bus::streams::ReadFrom::First, subject).await.unwrap();
        let batch = reader.next(1000, DEADLINE).await.unwrap();
        let decode = exobus_bus::codec::decode_checked_as::<Vec<Entry>>;
        batch.records.iter().flat_map(|record| decode(LOG_VERSION, &record.message.payload).unwrap()).collect()
    }
}

/// In memory, and in a file.
async fn buses(folder: &std::path::Path) -> [Bus; 2] {
    let file = Bus::in_process_durable(InProcessOptions::default(), &folder.join("log")).await.unwrap();
    [Bus::in_process(), file]
}

#[tokio::test]
async fn at_its_quota_a_log_is_cut_makes_its_room_free_and_who_would_take_the_job_up_fails_it_in_words() {
    let folder = tempfile::tempdir().unwrap();
    for bus in buses(folder.path()).await {
        let test = async {
            let mut world = World::on(&bus, 10_000).await;
            let (noted, cut) = world.until_cut().await;
            assert!((5..10).contains(&noted), "records of some 1300 bytes: {noted}");
            assert_eq!(cut, Cut { at_ms: AT_MS, reason: "its quota of 10000 bytes is used up".to_owned() });
            assert_eq!(world.records(7).await, [Entry::Cut(cut)], "and nothing else");
            let written = world.log.written();
            assert!(written.bytes <= 10_000 && written.bytes > 8000 && written.quota_bytes == 10_000, "{written:?}");
            // The job goes on: nothing waits for what is not noted.
            for _ in 0..20 {
                assert_eq!(world.note(learned()).await, []);
            }
            let words = refused(&world.logs, 7).await;
            for part in ["cannot be taken up again", AT, "its quota of 10000 bytes is used up"] {
                assert!(words.contains(part), "{words}");
            }
            assert_eq!(refused(&world.logs, 7).await, words, "whoever finds it next");
            world.log.add(Entry::End(Ok(Bytes::new())));
            assert_eq!(world.heard().await, LogNews::TakenOver, "it is not this run's to end any more");
        };
        LocalSet::new().run_until(test).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_log_is_cut_ends_as_any_other() {
    let test = async {
        let mut world = World::on(&Bus::in_process(), 10_000).await;
        world.until_cut().await;
        sleep(2 * LOOKS_WITHIN).await;
        assert_eq!(world.note(Entry::End(Ok(Bytes::from_static(b"7")))).await, []);
        match opened(&world.logs, 7, "b").await {
            Opened::Ended(end) => assert_eq!(end.result, Ok(Bytes::from_static(b"7"))),
            opened => panic!("{opened:?}"),
        }
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_log_is_cut_hears_within_a_bound_that_it_was_ended() {
    let test = async {
        let mut world = World::on(&Bus::in_process(), 10_000).await;
        world.until_cut().await;
        refused(&world.logs, 7).await;
        sleep(LOOKS_WITHIN).await;
        assert_eq!(*world.news.borrow(), [LogNews::TakenOver]);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn what_earlier_runs_have_noted_counts() {
    let test = async {
        let bus = Bus::in_process();
        let mut first = World::on(&bus, 10_000).await;
        for _ in 0..4 {
            assert_eq!(first.note(learned()).await, []);
        }
        let run = runs(&first.logs, 7, "b").await;
        let mut second = World::of(run, first.faults.clone(), first.logs.clone(), 10_000);
        let before = second.log.written().bytes;
        assert!((4000..8000).contains(&before), "{before}");
        assert!(second.until_cut().await.0 < 5);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_may_be_as_large_as_its_quota_and_no_larger() {
    let test = async {
        let mut world = World::on(&Bus::in_process(), QUOTA_BYTES).await;
        for _ in 0..4 {
            assert_eq!(world.note(learned()).await, []);
        }
        let bytes = world.log.written().bytes;
        for (quota_bytes, noted) in [(bytes, 4), (bytes - 1, 3)] {
            let mut world = World::on(&Bus::in_process(), quota_bytes).await;
            assert_eq!(world.until_cut().await.0, noted, "with a quota of {quota_bytes} of {bytes} bytes");
        }
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_for_which_too_much_waits_is_cut() {
    let test = async {
        let world = World::on(&Bus::in_process(), QUOTA_BYTES).await;
        world.faults.set(Faults { disk_full: false, drop_answer: 1.0, ..Faults::default() });
        world.log.add(learned());
        sleep(Duration::from_secs(1)).await;
        let large = Bytes::from(vec![7; 1 << 20]);
        for number in 0..=super::writer::WAITING_BYTES_MAX >> 20 {
            world.log.add(Entry::Choice(Choice::Computed(number, Ok(large.clone()))));
        }
        world.faults.set(Faults::default());
        loop {
            match world.heard().await {
                LogNews::Durable(_) => {}
                LogNews::Cut(cut) => break assert!(cut.reason.contains("bytes waited to be written"), "{cut}"),
                news => panic!("{news:?}"),
            }
        }
    };
    LocalSet::new().run_until(test).await;
}

#[test]
fn what_a_choice_names_and_what_was_computed_is_counted_while_it_waits() {
    let bytes = |choice: Choice| super::bytes_of(&Entry::Choice(choice));
    let ready = |count: usize| bytes(Choice::Ready(vec![crate::ids::ObjectId::from_u128(1 << 32); count]));
    assert!(ready(1000) >= ready(0) + 16_000, "{}", ready(1000));
    assert_eq!(bytes(Choice::Computed(1, Ok(Bytes::from_static(&[7; 500])))), bytes(Choice::Time(1)) + 500);
}

/// Another job's records take all the room.
async fn fill(logs: &JobLogs) {
    let (stream, subject) = logs.continued(JobId::from_u128(8)).unwrap();
    let mut payload = Bytes::from(vec![0; 200 << 10]);
    while !payload.is_empty() {
        let append = Append::new(subject.clone(), payload.clone()).expect(Expect::Any);
        match stream.append(append, DEADLINE).await {
            Ok(_) => {}
            Err(BusError::StreamFull { .. }) => payload = payload.slice(..payload.len() / 2),
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_stream_that_is_full_a_log_is_cut_in_its_own_room_and_others_keep_theirs() {
    let test = async {
        let mut world = World::on(&Bus::in_process(), QUOTA_BYTES).await;
        for _ in 0..3 {
            world.note(learned()).await;
        }
        fill(&world.logs).await;
        let others = world.logs.last(JobId::from_u128(8)).await.unwrap();
        let (_, cut) = world.until_cut().await;
        assert!(cut.reason.contains("it cannot be written any more") && cut.reason.contains("is full"), "{cut}");
        assert_eq!(world.records(7).await, [Entry::Cut(cut)]);
        assert_eq!(world.logs.last(JobId::from_u128(8)).await.unwrap(), others);
        let words = refused(&world.logs, 7).await;
        assert!(words.contains(AT) && words.contains("is full"), "{words}");
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stores_nothing_is_told_of_the_cut_when_it_does() {
    let test = async {
        let mut world = World::on(&Bus::in_process(), QUOTA_BYTES).await;
        world.note(learned()).await;
        world.faults.set(Faults { disk_full: true, ..Faults::default() });
        let (_, cut) = world.until_cut().await;
        assert!(cut.reason.contains("stores nothing"), "{cut}");
        assert_eq!(world.note(learned()).await, [], "the job goes on");
        world.faults.set(Faults::default());
        // One try may be under way.
        sleep(3 * LOOKS_WITHIN).await;
        assert_eq!(world.records(7).await, [Entry::Cut(cut)]);
        assert!(world.news.borrow().is_empty(), "{:?}", world.news);
        assert!(refused(&world.logs, 7).await.contains("stores nothing"));
    };
    LocalSet::new().run_until(test).await;
}

/// What was appended before the answers were lost, and what could not be noted at once, are this run's own.
#[tokio::test(start_paused = true)]
async fn a_record_of_its_own_of_which_it_does_not_know_is_nobody_elses() {
    let test = async {
        let (mut world, _) = World::cut_behind_a_record_of_its_own().await;
        assert_eq!(world.note(Entry::End(Err(JobError::Cancelled))).await, []);
        assert!(refused(&world.logs, 7).await.contains("cancelled"));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_without_its_beginning_is_none_to_go_on_from() {
    let test = async {
        let mut world = World::on(&Bus::in_process(), QUOTA_BYTES).await;
        world.note(learned()).await;
        // Whoever made room died before it could say so, after another run had begun.
        runs(&world.logs, 7, "b").await;
        let job = JobId::from_u128(7);
        let (_, subject) = world.logs.continued(job).unwrap();
        let last = world.logs.last(job).await.unwrap().unwrap();
        world.logs.remove_before(&subject, last).await.unwrap();
        assert!(matches!(&*world.records(7).await, [Entry::Run { .. }]), "as if it were the first one");
        assert!(refused(&world.logs, 7).await.contains("its beginning was removed to make room"));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_would_note_its_cut_after_another_run_has_begun_is_taken_over() {
    let test = async {
        let mut world = World::on(&Bus::in_process(), 10_000).await;
        world.until_full().await;
        runs(&world.logs, 7, "b").await;
        world.log.add(learned());
        assert_eq!(world.heard().await, LogNews::TakenOver);
        assert!(!world.records(7).await.iter().any(|entry| matches!(entry, Entry::Cut(_))), "its log is whole");
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_cut_is_noted_after_a_record_of_its_own_of_which_it_does_not_know() {
    let test = async {
        let (world, cut) = World::cut_behind_a_record_of_its_own().await;
        // It learns of its record, and notes the cut when it looks next; one try may be under way.
        sleep(4 * LOOKS_WITHIN).await;
        assert_eq!(world.records(7).await, [Entry::Cut(cut)]);
        assert!(world.news.borrow().is_empty(), "nobody has taken it over: {:?}", world.news);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_cut_is_so_in_each_stream_that_is_made_anew() {
    let test = async {
        let bus = Bus::in_process();
        let mut world = World::on(&bus, 10_000).await;
        world.until_full().await;
        // What it appends to is another stream by now, in which nobody has written its log.
        world.emptied(&bus).await;
        let (_, cut) = world.until_cut().await;
        for _ in 0..2 {
            sleep(LOOKS_WITHIN).await;
            assert_eq!(world.records(7).await, [Entry::Cut(cut.clone())]);
            world.emptied(&bus).await;
        }
        sleep(LOOKS_WITHIN).await;
        assert!(world.news.borrow().is_empty(), "the job goes on: {:?}", world.news);
        assert!(refused(&world.logs, 7).await.contains("its quota of 10000 bytes is used up"));
    };
    LocalSet::new().run_until(test).await;
}
