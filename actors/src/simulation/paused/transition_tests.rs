//! Somebody dies at each change of the state of a job, as soon as that is durable, and a moment later.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use exobus_bus::chaos::Direction;
use tokio::time::sleep;

use super::cluster::{Seat, Setup};
use super::tests::{client, in_a_world, setup};
use super::{LIVES_FOR, SETTLES_IN};
use crate::client::Client;
use crate::futures::{Futures, ObjectRef};
use crate::ids::{JobId, NodeId};
use crate::joblog::LogsLink;
use crate::jobs::journal::Journal;
use crate::jobs::transition::Transition;
use crate::protocol::host::JobSpec;
use crate::registry::{TaskContext, TaskError};
use crate::simulation::dice::Dice;
use crate::task::{JobError, TaskOptions};
use crate::{program, task};

const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long messages of nodes are under way: so that each state lasts.
const DELAY: Duration = Duration::from_millis(1);
/// The same where it has to last so long that somebody who asks hears of it.
const LONG_DELAY: Duration = Duration::from_millis(10);
/// How long who was killed is away.
const AWAY: Duration = Duration::from_secs(2);
/// How long tasks take, milliseconds.
const TAKES_MS: u64 = 100;

/// Makes a number.
#[task(name = "paused.number")]
fn number(_: &mut TaskContext<'_>, value: u64) -> Result<u64, TaskError> {
    Ok(value)
}

/// Makes what was made visible.
#[task(name = "paused.publish", commits = true)]
fn publish(_: &mut TaskContext<'_>) -> Result<u64, TaskError> {
    Ok(42)
}

/// Three tasks, and one that commits.
#[program(name = "paused.commits")]
async fn commits(futures: Futures, _: ()) -> Result<u64, JobError> {
    let made: Vec<_> = (0..3).map(|of| futures.submit(number, &of, &[])).collect::<Result<_, _>>()?;
    let args: Vec<_> = made.iter().map(ObjectRef::arg).collect();
    let published = futures.submit_with(publish, &(), &args, TaskOptions::default())?;
    futures.get_value(&published).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Scheduler,
    /// The node that hosts the job, once it has one.
    Host,
    /// The process of the nats-server: nobody hears anybody, and what is durable stays.
    Server,
}

/// What is known of a job.
#[derive(Default)]
struct Known {
    host: Option<NodeId>,
    states: BTreeSet<&'static str>,
    /// The records of the journal that say how it ended.
    ends: BTreeSet<u64>,
}

impl Known {
    async fn look(&mut self, journal: &Journal, job: JobId) {
        for (sequence, transition) in journal.found().await.unwrap().transitions {
            match transition {
                Transition::Accepted(record, _) if record.job == job => self.states.insert("queued"),
                Transition::Started { job: of, host, .. } if of == job => {
                    self.host = Some(host);
                    self.states.insert("running")
                }
                Transition::Committing(of) if of == job => self.states.insert("committing"),
                Transition::Ended { job: of, .. } if of == job => {
                    self.ends.insert(sequence);
                    self.states.insert("over")
                }
                _ => continue,
            };
        }
    }

    /// That a job starts is not noted.
    async fn ask(&mut self, client: &Client, job: JobId) {
        if let Ok(status) = client.status(job).await
            && status["state"] == "starting"
        {
            self.host = status["host"].as_str().map(NodeId::new);
            self.states.insert("starting");
        }
    }
}

/// What came of a job.
#[derive(Debug, PartialEq)]
struct Came {
    value: Result<u64, String>,
    state: Option<String>,
    /// How often its end was noted.
    ends: usize,
    /// Whether somebody was killed.
    killed: bool,
}

/// Runs a job, and kills somebody `later` than it is in this state.
fn killed(at: &'static str, victim: Victim, later: Duration) -> Came {
    in_a_world(async {
        let mut setup = setup(TAKES_MS);
        let delay = if at == "starting" { LONG_DELAY } else { DELAY };
        setup.faults.delay = Some((delay, 2 * delay));
        let (mut dice, job) = (Dice::new(7), JobId::from_u128(0x7A));
        let mut seats: Vec<Seat> = (0..3).map(|index| Seat::new(index, 2)).collect();
        seats.iter_mut().for_each(|seat| assert!(seat.start(&setup, &mut dice)));
        let client = client(&setup).await;
        let over = Cell::new(false);
        let spec = JobSpec::of(job, "paused.commits@1", &()).unwrap();
        let runs = async {
            let end = client.run_spec(spec, |_| {}, std::future::pending()).await;
            sleep(SETTLES_IN).await;
            let value = end.map_err(|error| error.to_string());
            let value = value.and_then(|end| end.value().map_err(|error| error.to_string()));
            let status = client.status(job).await.unwrap();
            over.set(true);
            (value, status["state"].as_str().map(str::to_owned))
        };
        let harms = async {
            let logs = LogsLink::new(setup.bus.clone(), setup.subjects.clone());
            let journal = Journal::open((&setup.bus, &setup.subjects), logs, LIVES_FOR).await.unwrap().unwrap();
            let (mut known, mut killed) = (Known::default(), false);
            while !over.get() {
                known.look(&journal, job).await;
                if at == "starting" && !killed {
                    known.ask(&client, job).await;
                }
                if !killed && known.states.contains(at) {
                    killed = true;
                    sleep(later).await;
                    kill(&setup, &mut seats, (victim, known.host.as_ref()), &mut dice).await;
                }
                sleep(if killed { 3 * LOOK_EVERY } else { LOOK_EVERY }).await;
            }
            (known.ends.len(), killed)
        };
        let ((value, state), (ends, killed)) = tokio::join!(runs, harms);
        let left = |seat: &Seat| seat.parts().is_some_and(|parts| !parts.store.inventory(job.group()).is_empty());
        assert!(!seats.iter().any(left), "something of the job is left");
        for seat in &mut seats {
            assert_eq!(seat.fatal(), None);
            seat.kill().await;
        }
        Came { value, state, ends, killed }
    })
}

/// Kills somebody, who comes back after a while.
async fn kill(setup: &Setup, seats: &mut [Seat], (victim, host): (Victim, Option<&NodeId>), dice: &mut Dice) {
    let name = match victim {
        Victim::Scheduler => {
            let leader = |seat: &Seat| seat.parts().and_then(|parts| parts.scheduler.leader());
            seats.iter().find_map(leader).expect("the job is known to it").node
        }
        Victim::Host => host.expect("it has one by then").clone(),
        Victim::Server => {
            seats.iter().for_each(|seat| seat.cut_bus(Direction::Both));
            sleep(AWAY).await;
            return seats.iter().for_each(|seat| seat.mend_bus(None));
        }
    };
    let seat = seats.iter_mut().find(|seat| *seat.name() == name).expect("a node of this cluster");
    seat.kill().await;
    sleep(AWAY).await;
    assert!(seat.start(setup, dice));
}

/// At this change of state, as soon as it is durable, and when whoever made it has heard that it is.
fn whoever_dies_at(at: &'static str, victims: &[Victim]) {
    for victim in victims {
        for later in [0, 3, 20].map(Duration::from_millis) {
            let came = killed(at, *victim, later);
            let right = Came { value: Ok(42), state: Some("succeeded".to_owned()), ends: 1, killed: true };
            assert_eq!(came, right, "{victim:?} dies {later:?} after the job is {at}");
        }
    }
}

#[test]
fn a_job_ends_once_whoever_dies_when_it_is_accepted() {
    whoever_dies_at("queued", &[Victim::Scheduler, Victim::Server]);
}

#[test]
fn a_job_ends_once_whoever_dies_when_it_starts() {
    whoever_dies_at("starting", &[Victim::Scheduler, Victim::Host, Victim::Server]);
}

#[test]
fn a_job_ends_once_whoever_dies_when_it_runs() {
    whoever_dies_at("running", &[Victim::Scheduler, Victim::Host, Victim::Server]);
}

#[test]
fn a_job_ends_once_whoever_dies_when_it_commits() {
    whoever_dies_at("committing", &[Victim::Scheduler, Victim::Host, Victim::Server]);
}

#[test]
fn a_job_ends_once_whoever_dies_when_it_is_over() {
    whoever_dies_at("over", &[Victim::Scheduler, Victim::Host, Victim::Server]);
}
