//! The real actors, shells and all, on a paused clock: a cluster in one process and on one thread, in which time passes when nobody can
//! go on.
//!
//! What is real here: Node, all actors and what they say to each other over sessions on the in-process bus, its streams and leases, the
//! futures API, the log of jobs, the store with its files (on a disk in memory), fetches (over a network in memory, with threads of their
//! own), functions that read and write objects. What is not: processes, which are tasks that are dropped; how long functions take; disks,
//! sockets and the clock.
//!
//! ```text
//! mod.rs        worlds, faults, what must hold       program.rs    a shuffle whose result is known
//! cluster.rs    nodes that are killed and frozen     executors.rs  attempts that take a while
//! clock.rs      time                               client.rs      who submits jobs
//! ```
//!
//! # Promises
//! - Chance follows from the seed. The order of what threads do does not, so a finding may need more than one run to be seen again.
//! - All that actors log is there to be read, with virtual times and the names of nodes.
//! - Time stands still while a thread works (`Clock::hold`), so a slow machine makes no deadline pass.
//!
//! # What is checked
//! The results, which are known beforehand, and for jobs that stop an edge follow from what they had waited for till then: at least that, each
//! row once; that jobs end within two minutes of the last fault; that no actor panics; and that nothing of them is left in any store.

mod client;
mod clock;
mod cluster;
mod executors;
mod program;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod transition_tests;

use std::sync::Arc;
use std::time::Duration;

use exobus_bus::chaos::{Direction, Faults};
use exobus_bus::{Bus, Subjects};
use exobus_store::disk::{Fault as DiskFault, Op};
use tokio::time::{sleep, sleep_until};
use tracing::info;

use self::client::{Ended, Submission};
use self::clock::PausedClock;
use self::cluster::{Seat, Setup};
use self::program::{Shuffle, ShuffleEnd};
use super::dice::Dice;
use crate::ids::JobId;
use crate::task::{FailureKind, JobError};
use crate::transfer::network::MemoryNetwork;

/// How long a job may take once everything is well.
const LIVES_FOR: Duration = Duration::from_secs(120);
/// How long after its end something may be left of it.
const SETTLES_IN: Duration = Duration::from_secs(30);
/// Bytes of what a map makes, and of what a reduce reads: all of them are in memory at a time.
const BYTES_MAX: u64 = 3 << 20;
/// When a process is started that is to follow one that is still leaving.
const START_AGAIN: Duration = Duration::from_millis(250);

/// How a run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What it was drawn from.
    pub seed: u64,
    /// What did not hold, if something did not.
    pub finding: Option<String>,
    /// Virtual time that it took.
    pub took: Duration,
    /// Attempts that completed.
    pub finished: u64,
    /// Tasks that were made again.
    pub replayed: u64,
    /// Faults that found somebody.
    pub faults: u64,
    /// Jobs that said of themselves that they stopped an edge, and went on.
    pub stopped: u64,
    /// Those of them that did not read all rows.
    pub cut: u64,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill {
        node: usize,
        back: Duration,
    },
    Freeze {
        node: usize,
        lasts: Duration,
    },
    /// Told to leave; it comes back.
    Leave {
        node: usize,
        back: Duration,
    },
    CutBus {
        node: usize,
        direction: Direction,
        lasts: Duration,
    },
    /// Nobody hears anybody.
    Silence {
        lasts: Duration,
    },
    /// The server of the bus loses all that it holds.
    Empty,
    /// Connections between nodes break.
    Break {
        node: usize,
    },
    /// A request to the disk of a node goes wrong.
    Disk {
        node: usize,
        op: Op,
        nth: u64,
        fault: DiskFault,
    },
    /// The disk of a node takes so many more bytes.
    Full {
        node: usize,
        bytes: u64,
        lasts: Duration,
    },
}

/// The fate of a world.
#[derive(Clone, Debug)]
struct Plan {
    /// Executors of each node.
    nodes: Vec<usize>,
    faults: Vec<(Duration, Fault)>,
    heals: Duration,
    messages: Faults,
    memory_bytes: u64,
    takes_ms: std::ops::Range<u64>,
}

impl Plan {
    fn draw(dice: &mut Dice) -> Self {
        let nodes: Vec<usize> = (0..2 + dice.below(3)).map(|_| 1 + dice.below(2) as usize).collect();
        let heals = dice.millis(3000..15_000);
        // One seed in ten shows that all is well where nothing goes wrong.
        let count = if dice.chance(100) { 0 } else { 1 + dice.below(5) };
        let mut faults: Vec<_> = (0..count)
            .map(|_| {
                let at = Duration::from_millis(dice.between(300..heals.as_millis() as u64));
                (at, Self::fault(nodes.len(), dice))
            })
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        let share = *dice.pick(&[0.0, 0.0, 0.005, 0.05]).expect("some");
        let messages = Faults {
            drop: share,
            repeat: share,
            reorder: share,
            hold_max: Duration::from_millis(50),
            delay: dice.chance(700).then_some((Duration::from_micros(100), Duration::from_millis(3))),
            ..Faults::default()
        };
        let memory_bytes = *dice.pick(&[12 << 20, 64 << 20]).expect("some");
        let longest = *dice.pick(&[20, 200, 1500]).expect("some");
        Self { nodes, faults, heals, messages, memory_bytes, takes_ms: 1..longest }
    }

    /// Whether a job may fail for want of a disk: each node has one.
    fn harms_disks(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Disk { .. } | Fault::Full { .. }))
    }

    fn fault(nodes: usize, dice: &mut Dice) -> Fault {
        let node = dice.below(nodes as u64) as usize;
        let lasts = match dice.below(3) {
            0 => dice.millis(50..1000),
            1 => dice.millis(1000..4000),
            _ => dice.millis(4000..10_000),
        };
        match dice.below(13) {
            0..=3 => Fault::Kill { node, back: lasts },
            4 | 5 => Fault::Freeze { node, lasts },
            6 => {
                let direction = *dice.pick(&[Direction::Both, Direction::Outgoing, Direction::Incoming]).expect("some");
                Fault::CutBus { node, direction, lasts }
            }
            7 => Fault::Leave { node, back: lasts },
            8 => Fault::Silence { lasts },
            9 => Fault::Break { node },
            10 => Fault::Full { node, bytes: dice.below(4 << 20), lasts },
            _ => {
                let eio = DiskFault::Errno(rustix::io::Errno::IO.raw_os_error());
                let bit = dice.below(4096 * 8);
                let (op, fault) = *dice
                    .pick(&[
                        (Op::Write, eio),
                        (Op::Write, DiskFault::Short(4096)),
                        (Op::Write, DiskFault::FlipWritten(bit)),
                        (Op::Read, eio),
                        (Op::Read, DiskFault::FlipBit(bit)),
                        (Op::Create, eio),
                        (Op::Sync, eio),
                    ])
                    .expect("some");
                Fault::Disk { node, op, nth: dice.below(6), fault }
            }
        }
    }
}

/// Runs one seed, on a runtime of its own.
///
/// # Panics
/// Where there is no runtime to be had.
pub fn run(seed: u64) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without sockets");
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, World::run(seed))
}

/// Something that is due.
enum Due {
    Fault(Fault),
    Start(usize),
    Thaw(usize),
    MendBus(usize),
    MendDisk(usize),
    MendAll,
}

struct World {
    plan: Plan,
    setup: Setup,
    seats: Vec<Seat>,
    dice: Dice,
    due: Vec<(Duration, Due)>,
    report: Report,
}

impl World {
    async fn run(seed: u64) -> Report {
        let mut dice = Dice::new(seed);
        let plan = Plan::draw(&mut dice);
        let first = Shuffle::draw(&mut dice, BYTES_MAX);
        let setup = Setup {
            bus: Bus::in_process(),
            subjects: Subjects::new("paused").expect("a name"),
            network: MemoryNetwork::new(),
            clock: Arc::new(PausedClock::new()),
            memory_bytes: plan.memory_bytes,
            takes_ms: plan.takes_ms.clone(),
            faults: plan.messages.clone(),
        };
        let seats = plan.nodes.iter().enumerate().map(|(index, executors)| Seat::new(index, *executors)).collect();
        let mut due: Vec<_> = plan.faults.iter().map(|(at, fault)| (*at, Due::Fault(*fault))).collect();
        let emptied = &mut Dice::new(seed.rotate_left(32) ^ 0xE);
        if emptied.chance(150) {
            due.push((emptied.millis(300..plan.heals.as_millis() as u64), Due::Fault(Fault::Empty)));
        }
        due.push((plan.heals, Due::MendAll));
        let report = Report { seed, ..Report::default() };
        let mut world = Self { plan, setup, seats, dice, due, report };
        info!("{:?}", world.plan);
        for index in 0..world.seats.len() {
            let at = world.dice.millis(0..200);
            world.due.push((at, Due::Start(index)));
        }
        let clients = futures::future::join_all(world.submissions(first).into_iter().map(Submission::run));
        let deadline = world.plan.heals + LIVES_FOR;
        let mut clients = tokio::task::spawn_local(clients);
        let mut ended = None;
        // To the last fault, and the end of the last job.
        while ended.is_none() || !world.due.is_empty() {
            let next = world.due.iter().map(|(at, _)| *at).min().unwrap_or(deadline).min(deadline);
            tokio::select! {
                biased;
                end = &mut clients, if ended.is_none() => ended = Some(end),
                () = world.until(next) => {
                    if world.setup.clock.now() >= deadline {
                        let what = if ended.is_none() { "a job is not over" } else { "a node has not left" };
                        world.found(format!("{what} {LIVES_FOR:?} after everything was mended"));
                        break;
                    }
                    world.next().await;
                }
            }
            world.look();
        }
        match ended {
            Some(Ok(ended)) => {
                for ended in ended {
                    match ended {
                        Ok(ended) => world.judge(&ended).await,
                        Err(error) => world.found(format!("a client gave up: {error}")),
                    }
                }
            }
            Some(Err(error)) => world.found(format!("a client panicked: {error}")),
            None => {}
        }
        world.report.took = world.setup.clock.now();
        for seat in &mut world.seats {
            seat.kill().await;
        }
        world.report
    }

    /// One job, or two at a time.
    fn submissions(&mut self, first: Shuffle) -> Vec<Submission> {
        let (setup, dice) = (&self.setup, &mut self.dice);
        let submission = |dice: &mut Dice, number, shuffle, after| {
            let (job, seed) = (JobId::from_u128(number), dice.below(u64::MAX));
            let (bus, subjects, clock) = (setup.bus.clone(), setup.subjects.clone(), setup.clock.clone());
            Submission { job, shuffle, after, bus, subjects, clock, seed }
        };
        let mut submissions = vec![submission(dice, 1, first, Duration::ZERO)];
        let dice = &mut Dice::new(!self.report.seed);
        if dice.chance(300) {
            let (shuffle, after) = (Shuffle::draw(dice, BYTES_MAX), dice.millis(0..2000));
            submissions.push(submission(dice, 2, shuffle, after));
        }
        submissions
    }

    async fn until(&self, at: Duration) {
        let now = self.setup.clock.now();
        sleep_until(tokio::time::Instant::now() + at.saturating_sub(now)).await;
    }

    fn found(&mut self, finding: String) {
        self.report.finding.get_or_insert(finding);
    }

    /// Does what is due next.
    async fn next(&mut self) {
        let first = self.due.iter().enumerate().min_by_key(|(_, (at, _))| *at).map(|(index, _)| index);
        let Some(first) = first else { return };
        let (at, due) = self.due.swap_remove(first);
        let soon = |after: Duration| at + after;
        match due {
            Due::Fault(_) | Due::Thaw(_) | Due::MendBus(_) | Due::MendDisk(_) if at > self.plan.heals => {}
            Due::Fault(fault) => {
                info!("{fault:?}");
                self.report.faults += 1;
                match fault {
                    Fault::Kill { node, back } => {
                        self.seats[node].kill().await;
                        self.due.push((soon(back), Due::Start(node)));
                    }
                    Fault::Leave { node, back } => {
                        self.seats[node].stop();
                        self.due.push((soon(back), Due::Start(node)));
                    }
                    Fault::Freeze { node, lasts } => {
                        self.seats[node].freeze(true);
                        self.due.push((soon(lasts), Due::Thaw(node)));
                    }
                    Fault::CutBus { node, direction, lasts } => {
                        self.seats[node].cut_bus(direction);
                        self.due.push((soon(lasts), Due::MendBus(node)));
                    }
                    Fault::Silence { lasts } => {
                        for node in 0..self.seats.len() {
                            self.seats[node].cut_bus(Direction::Both);
                            self.due.push((soon(lasts), Due::MendBus(node)));
                        }
                    }
                    Fault::Empty => {
                        let lost = crate::election::lose(&self.setup.bus, &self.setup.subjects).await;
                        lost.expect("nothing is in the way of a bus without faults");
                    }
                    Fault::Break { node } => self.seats[node].break_connections(),
                    Fault::Disk { node, op, nth, fault } => self.seats[node].fail_disk(op, nth, fault),
                    Fault::Full { node, bytes, lasts } => {
                        self.seats[node].fill_disk(bytes);
                        self.due.push((soon(lasts), Due::MendDisk(node)));
                    }
                }
            }
            Due::Start(node) => self.start(node, at),
            Due::Thaw(node) => self.seats[node].freeze(false),
            Due::MendBus(node) => self.seats[node].mend_bus(None),
            Due::MendDisk(node) => self.seats[node].mend_disk(),
            Due::MendAll => {
                info!("everything is mended");
                self.setup.faults = Faults::default();
                for node in 0..self.seats.len() {
                    self.seats[node].freeze(false);
                    self.seats[node].mend_bus(Some(Faults::default()));
                    self.seats[node].mend_disk();
                    self.start(node, at);
                }
            }
        }
    }

    fn start(&mut self, node: usize, at: Duration) {
        info!("n{node} starts, if it is not there");
        if !self.seats[node].start(&self.setup, &mut self.dice) {
            self.due.push((at + START_AGAIN, Due::Start(node)));
        }
    }

    /// No actor panics.
    fn look(&mut self) {
        if let Some(fatal) = self.seats.iter().find_map(Seat::fatal) {
            self.found(format!("a node ended: {fatal}"));
        }
    }

    async fn judge(&mut self, Ended { job, shuffle, end, finished, replayed }: &Ended) {
        self.report.finished += finished;
        self.report.replayed += replayed;
        match &end.result {
            Err(JobError::Task { failure, .. }) if failure.kind == FailureKind::DiskFull && self.plan.harms_disks() => {
            }
            Err(error) => self.found(format!("a job failed: {error}")),
            Ok(bytes) => match rmp_serde::from_slice::<ShuffleEnd>(bytes) {
                Ok(made) if shuffle.may_make(&made) => {
                    self.report.stopped += u64::from(made.stopped.is_some());
                    self.report.cut += u64::from(made.sums != shuffle.sums());
                }
                Ok(made) => self.found(format!("a job made {made:?}, of {:?} ({shuffle:?})", shuffle.sums())),
                Err(error) => self.found(format!("a job made something else: {error}")),
            },
        }
        self.settles(*job).await;
    }

    /// Nothing of the job is left, soon after.
    async fn settles(&mut self, job: JobId) {
        let until = self.setup.clock.now() + SETTLES_IN;
        loop {
            self.look();
            let left: Vec<_> = self
                .seats
                .iter()
                .enumerate()
                .filter_map(|(index, seat)| {
                    let Some(parts) = seat.parts() else { return Some(format!("n{index} has not joined")) };
                    let objects = parts.store.inventory(job.group()).len();
                    (objects > 0).then(|| format!("n{index} has {objects} objects"))
                })
                .collect();
            if left.is_empty() {
                return;
            }
            if self.setup.clock.now() >= until {
                return self.found(format!("a job is over, and {}", left.join(", ")));
            }
            sleep(Duration::from_millis(250)).await;
        }
    }
}
