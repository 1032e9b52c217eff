//! `cargo xtask chaos`: real faults, done to real processes of the release binary.
//!
//! Each [`Row`] is a row of the fault matrix (`docs/reliability.md`): a function that does its harm to a run, proves that
//! the harm was done while work was going on, and says what came of it. What every row is held to is checked here: the
//! result is that of the run without faults or a refusal that names its cause, nobody panicked or died of a signal, and
//! nothing is left behind. To add one: a function in a file of this folder, and a line in [`ROWS`] with what it needs of the
//! machine.

mod alone;
mod bus;
mod bus_servers;
mod cluster;
mod disk;
mod disks;
mod executors;
mod faulty_disk;
mod flips;
mod ground;
mod lan;
mod limits;
mod many_jobs;
mod memory;
mod messages;
mod needs;
mod network;
mod nodes;
mod output;
mod poison;
mod power;
mod proxy;
mod servers;
pub mod soak;
mod spill;
mod truth;
mod workload;

use std::time::Instant;

use anyhow::{Result, bail};

use crate::nats;
use crate::workspace::{Workspace, run_visibly};
use ground::Ground;
pub use workload::Workload;

use needs::{CLOCKS, EXT4, FAULTY_DISK, GROUPS, HOSTS, NOTHING, Need, PROXIES, ROOT, SMALL_DISK};

/// What happened in a row.
pub struct Outcome {
    /// One line for people: what was done, and what came of it.
    pub what: String,
    /// Seconds that the run took beyond the one without faults; negative is noise. `None`: it was refused, as it must be.
    pub added: Option<f64>,
    /// Attempts of tasks beyond those of the run without faults.
    pub more_attempts: u64,
    /// Bytes that were written again, as far as they can be told.
    pub bytes_redone: u64,
}

/// A row of the fault matrix.
pub struct Row {
    /// Its number there; several rows here may belong to one there.
    number: u32,
    name: &'static str,
    /// What it needs of the machine: where something is missing it is not begun.
    needs: &'static [Need],
    run: fn(&Ground) -> Result<Outcome>,
}

/// All rows, in order.
const ROWS: &[Row] = &[
    Row { number: 1, name: "executor SIGKILL", needs: NOTHING, run: executors::killed },
    Row { number: 1, name: "executor aborts", needs: NOTHING, run: executors::aborting },
    Row { number: 1, name: "executor stopped", needs: NOTHING, run: executors::stopped },
    Row { number: 2, name: "executor out of memory", needs: GROUPS, run: memory::executor_starved },
    Row { number: 2, name: "every executor out of memory", needs: GROUPS, run: memory::executors_starved },
    Row { number: 3, name: "node killed early among maps", needs: NOTHING, run: nodes::killed_among_maps },
    Row { number: 3, name: "node killed late among maps", needs: NOTHING, run: nodes::killed_halfway },
    Row { number: 3, name: "node killed among reduces", needs: NOTHING, run: nodes::killed_among_reduces },
    Row { number: 3, name: "node killed among merges (two_stage)", needs: NOTHING, run: nodes::killed_among_merges },
    Row { number: 3, name: "node killed among merges (push)", needs: NOTHING, run: nodes::killed_among_pushes },
    Row { number: 4, name: "node frozen 10 s, returns", needs: NOTHING, run: nodes::frozen },
    Row { number: 5, name: "node cut off from NATS", needs: HOSTS, run: network::no_bus },
    Row { number: 5, name: "host cut off from NATS", needs: HOSTS, run: network::no_bus_for_the_host },
    Row { number: 5, name: "Scheduler cut off from NATS", needs: HOSTS, run: network::no_bus_for_the_scheduler },
    Row { number: 6, name: "node cut off from peers", needs: HOSTS, run: network::no_peers },
    Row { number: 7, name: "nothing from a node to NATS", needs: HOSTS, run: network::nothing_to_the_bus },
    Row { number: 7, name: "nothing from NATS to a node", needs: HOSTS, run: network::nothing_from_the_bus },
    Row { number: 7, name: "nothing from a node to peers", needs: HOSTS, run: network::nothing_to_peers },
    Row { number: 7, name: "nothing from peers to a node", needs: HOSTS, run: network::nothing_from_peers },
    Row { number: 8, name: "slow node", needs: NOTHING, run: nodes::slow },
    Row { number: 9, name: "loss, repeats and jitter", needs: HOSTS, run: network::lossy },
    Row { number: 10, name: "NATS restart", needs: NOTHING, run: nodes::bus_restarted },
    Row { number: 11, name: "NATS gone", needs: NOTHING, run: nodes::bus_gone },
    Row { number: 12, name: "follower of three NATS servers lost", needs: NOTHING, run: bus_servers::follower_lost },
    Row { number: 12, name: "leader of three NATS servers lost", needs: NOTHING, run: bus_servers::leader_lost },
    Row { number: 13, name: "NATS frozen", needs: NOTHING, run: nodes::bus_frozen },
    Row { number: 14, name: "NATS power cut", needs: EXT4, run: bus_servers::power_cut_of_the_server },
    Row { number: 14, name: "NATS power cut, nodes too", needs: EXT4, run: bus_servers::power_cut_of_all },
    Row { number: 15, name: "NATS disk full", needs: SMALL_DISK, run: bus_servers::disk_full },
    Row { number: 16, name: "host SIGKILL among maps", needs: NOTHING, run: nodes::host_killed_among_maps },
    Row { number: 16, name: "host SIGKILL among reduces", needs: NOTHING, run: nodes::host_killed_among_reduces },
    Row { number: 16, name: "host SIGKILL among merges (push)", needs: NOTHING, run: nodes::host_killed_among_pushes },
    Row { number: 17, name: "Scheduler SIGKILL", needs: NOTHING, run: nodes::scheduler_killed },
    Row { number: 18, name: "full spill disk beside another", needs: SMALL_DISK, run: spill::full_beside_another },
    Row { number: 18, name: "full spill disk on one node", needs: SMALL_DISK, run: spill::full_on_one_node },
    Row { number: 18, name: "full spill disk, no other", needs: SMALL_DISK, run: spill::full_alone },
    Row { number: 19, name: "short writes on spill", needs: FAULTY_DISK, run: disks::short_writes },
    Row { number: 19, name: "EIO on writing a spill file", needs: FAULTY_DISK, run: disks::write_error },
    Row { number: 19, name: "EIO on reading spill files", needs: FAULTY_DISK, run: disks::read_error },
    Row { number: 20, name: "fsync failure of a spill file", needs: FAULTY_DISK, run: disks::sync_error },
    Row { number: 21, name: "bits flip in spill files", needs: NOTHING, run: flips::in_spill_files },
    Row { number: 21, name: "bits flip in spill files of nodes", needs: NOTHING, run: flips::in_spill_files_of_nodes },
    Row { number: 22, name: "bits flipped between nodes", needs: PROXIES, run: network::bits_flipped },
    Row { number: 23, name: "answers truncated", needs: PROXIES, run: network::frames_truncated },
    Row { number: 23, name: "connections reset", needs: PROXIES, run: network::connections_reset },
    Row { number: 23, name: "connections stalled", needs: PROXIES, run: network::connections_stalled },
    Row { number: 24, name: "truncated input", needs: NOTHING, run: limits::truncated_input },
    Row { number: 25, name: "malformed messages", needs: NOTHING, run: messages::malformed },
    Row { number: 26, name: "a job too large for a message", needs: NOTHING, run: poison::oversized },
    Row { number: 27, name: "messages repeated and out of order", needs: NOTHING, run: messages::repeated },
    Row { number: 28, name: "clocks jump by an hour", needs: CLOCKS, run: truth::clocks_jump },
    Row { number: 29, name: "less memory than told", needs: GROUPS, run: memory::group_below_the_budget },
    Row { number: 29, name: "just the memory told", needs: GROUPS, run: memory::group_of_the_budget },
    Row { number: 29, name: "little memory, no budget told", needs: GROUPS, run: memory::group_without_a_budget },
    Row { number: 29, name: "several jobs, nodes in groups", needs: GROUPS, run: memory::nodes_in_groups },
    Row { number: 30, name: "too few open files", needs: NOTHING, run: limits::too_few_files },
    Row { number: 30, name: "just enough open files", needs: NOTHING, run: limits::few_files },
    Row { number: 31, name: "partition larger than the store", needs: NOTHING, run: limits::larger_than_the_store },
    Row { number: 32, name: "no addresses for the region", needs: NOTHING, run: limits::no_addresses },
    Row { number: 33, name: "an input that is another on replay", needs: NOTHING, run: truth::input_changes },
    Row { number: 34, name: "poison task beside another job", needs: FAULTY_DISK, run: poison::killed_thrice },
    Row { number: 35, name: "SIGTERM", needs: NOTHING, run: nodes::told_to_stop },
    Row { number: 36, name: "second fault during recovery", needs: NOTHING, run: nodes::second_fault },
    Row { number: 37, name: "power cut of a job alone, among maps", needs: EXT4, run: power::cut_among_maps },
    Row { number: 37, name: "power cut of a job alone, among reduces", needs: EXT4, run: power::cut_among_reduces },
    Row { number: 37, name: "power cut of a node that works", needs: EXT4, run: power::cut_of_a_node },
    Row { number: 37, name: "power cut of a node that stopped", needs: EXT4, run: power::cut_after_the_end },
    Row { number: 38, name: "bits flip in the log of a job", needs: NOTHING, run: truth::in_the_job_log },
    Row { number: 38, name: "bits flip in index and footers", needs: NOTHING, run: truth::in_the_metadata_of_a_node },
    Row { number: 39, name: "thread limit", needs: ROOT, run: limits::few_threads },
    Row { number: 40, name: "whole cluster SIGKILL", needs: NOTHING, run: nodes::all_killed },
    Row { number: 41, name: "NATS comes back empty", needs: NOTHING, run: bus_servers::emptied },
    Row { number: 42, name: "many jobs, kills in turn", needs: NOTHING, run: many_jobs::killed_in_turn },
];

/// The rows about disks and nodes: they do harm to whatever job. The others are about what a sort reads or says, or about the network, which carries the same whatever the job is.
const OF_ANY_JOB: &[u32] = &[1, 3, 4, 8, 10, 11, 16, 17, 18, 19, 20, 21, 35, 36, 37, 40];

/// Prints the rows.
pub fn list() {
    for Row { number, name, needs, .. } in ROWS {
        let needs = if needs.is_empty() { String::new() } else { format!("  (needs {})", needs::text(needs)) };
        println!("{number:>3}  {name}{needs}");
    }
}

/// Runs the rows of these numbers, all where there are none; a table on stdout at the end.
///
/// # Errors
/// A row did not end as it must.
#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
pub fn run(workspace: &Workspace, numbers: &[u32], (workload, dev): (Workload, bool)) -> Result<()> {
    let can_run = |number: u32| workload == Workload::Sort || OF_ANY_JOB.contains(&number);
    if let Some(number) = numbers.iter().find(|number| !can_run(**number)) {
        bail!("row {number} is of sorts alone; those of other jobs are {OF_ANY_JOB:?}");
    }
    if let Some(unknown) = numbers.iter().find(|number| ROWS.iter().all(|row| row.number != **number)) {
        bail!("there is no row {unknown} yet: see --list");
    }
    let (profile, folder) = if dev { ("dev", "debug") } else { ("release", "release") };
    let build = ["build", "--profile", profile, "--workspace", "--all-features", "--bins"];
    run_visibly(&mut workspace.cargo(&build))?;
    let server = nats::provide(workspace)?;
    let mut ground = Ground::new(workspace.target_dir.join(folder).join("exobus"), server.path, workload)?;
    let mut table = vec!["| # | fault | outcome | added s | more attempts | bytes redone |".to_owned()];
    table.push("|---|---|---|---|---|---|".to_owned());
    let mut failed = 0;
    let is_wanted = |number: u32| can_run(number) && (numbers.is_empty() || numbers.contains(&number));
    for row in ROWS.iter().filter(|row| is_wanted(row.number)) {
        let (number, name) = (row.number, row.name);
        eprint!("row {number}: {name} ... ");
        let missing = needs::missing(row.needs);
        if !missing.is_empty() {
            let missing = needs::text(&missing);
            eprintln!("not run: needs {missing}");
            table.push(format!("| {number} | {name} | not run: needs {missing} | | | |"));
            continue;
        }
        let begun = Instant::now();
        let outcome = (row.run)(&ground).and_then(|outcome| ground.nothing_is_left().map(|()| outcome));
        let took = begun.elapsed().as_secs_f64();
        match outcome {
            Ok(Outcome { what, added, more_attempts, bytes_redone }) => {
                eprintln!("ok ({took:.1} s): {what}");
                let added = added.map_or_else(|| "refused".to_owned(), |added| format!("{added:.1}"));
                table.push(format!("| {number} | {name} | {what} | {added} | {more_attempts} | {bytes_redone} |"));
            }
            Err(error) => {
                eprintln!("FAILED ({took:.1} s): {error:#}");
                table.push(format!("| {number} | {name} | **failed**: {error:#} | | | |"));
                failed += 1;
                // The next row is not to pay for it.
                ground = ground.renewed()?;
            }
        }
    }
    println!("{}", table.join("\n"));
    if failed > 0 { bail!("{failed} rows did not end as they must") } else { Ok(()) }
}
