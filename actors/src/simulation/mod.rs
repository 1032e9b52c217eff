//! A world of all cores together: virtual time, chance that follows from a seed, and whatever can go wrong.
//!
//! Owner, NodeManager, Scheduler, campaign and Membership are the *real* cores, and so are the futures API with its log of choices, and the
//! messages between all of them. Around them is a world in which nothing is real: processes that are killed, frozen, cut off, and started
//! again; sessions that lose what is under way when an incarnation begins; a server with a lease and a log whose disk takes its time and
//! loses what it had not written; stores that lose objects; executors that fail, run on after they were cancelled, or take for ever.
//!
//! ```text
//! world.rs      event queue, sessions, faults           chaos.rs   what goes wrong, and when, by seed
//! node.rs       a process: incarnations, Host           server.rs  the lease and the log, durable a while later
//! scheduler.rs  Scheduler                               store.rs   objects of a node
//! manager.rs    NodeManager                             program.rs functions, and the right value of each object
//! beside.rs     edges beside that of a program          job.rs     programs
//! owner.rs      Owner's core, its log, its program      oracle.rs  what must hold
//! ```
//!
//! # What is written twice
//! What the cores of Owner, NodeManager, Scheduler, campaign and Membership want done is done by their shells there, and by `owner.rs`,
//! `manager.rs`, `scheduler.rs` and `node/cores.rs` here, which decide nothing. Written again, so that who
//! changes one changes the other, are:
//! - how `host/` brings a job from its log to its end, and what `node/` does when a node is declared dead: `node.rs`;
//! - the writer of a job's log, `joblog/writer.rs`: a model of it in `owner/logging.rs`, whose records count entries and no bytes;
//! - sessions, `bus/src/session/` (which has a world of its own): a model in `world/sessions.rs`, in order, once, as long as both incarnations last;
//! - staging, executors and the store, `node_manager/staging.rs`, `executor.rs` and `exobus-store`: a model in `world/work.rs` and `store.rs`, in which an argument
//!   is there or not, and takes a while.
//!
//! # Promises
//! - One seed is one run: the same events in the same order, whatever machine.
//! - A finding names what did not hold; the trace of its seed tells what happened, with virtual times.
//!
//! # What is checked
//! Everything that is made is what its lineage says, by hashes of everything that was read; the job ends, in two minutes of virtual time
//! after the last fault, with the right result; no two Schedulers act at a time, and none of an older epoch is obeyed; objects are lost to
//! faults only; the log has a task done once; when the program has returned no edge is open and no object is anywhere; attempts are bounded by faults; and when the job is over nothing of it is left anywhere.

mod acts;
mod backlog;
mod beside;
mod chaos;
mod dice;
mod job;
mod manager;
mod node;
mod oracle;
mod owner;
pub mod paused;
mod program;
mod scheduler;
mod server;
mod store;
mod world;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use exobus_store::disk::MemoryDisk;
use exobus_store::{StoreOptions, SystemClock};

pub use oracle::Work;
use world::World;

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it was drawn from.
    pub seed: u64,
    /// What did not hold, if something did not.
    pub finding: Option<String>,
    /// What was done.
    pub work: Work,
    /// Virtual time that it took.
    pub took: Duration,
    /// Events that were handled.
    pub events: u64,
    /// What happened, if that was asked for.
    pub trace: Vec<String>,
}

/// Runs one seed.
///
/// # Panics
/// Where a core does: that is a finding, too.
pub fn run(seed: u64, traced: bool) -> Report {
    let mut world = World::new(seed, unused_store(), traced);
    world.run();
    Report {
        seed,
        finding: world.oracle.finding.take(),
        work: world.oracle.work,
        took: world.now(),
        events: world.events(),
        trace: world.trace.take().unwrap_or_default(),
    }
}

/// The futures API has a store for what programs put; ours put nothing.
fn unused_store() -> exobus_store::Store {
    static STORE: OnceLock<exobus_store::Store> = OnceLock::new();
    let open = || {
        let options = StoreOptions {
            memory_bytes: 12 << 20,
            reserve_per_executor_bytes: 4 << 20,
            spill_dirs: vec!["/spill".into()],
            ..StoreOptions::default()
        };
        exobus_store::Store::open(options, Arc::new(MemoryDisk::new()), Arc::new(SystemClock::new()))
            .expect("12 MiB of memory are to be had")
    };
    STORE.get_or_init(open).clone()
}
