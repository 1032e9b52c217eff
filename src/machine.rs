//! What this machine has: the memory that a process may use, and its cpus.

use std::{
    num::NonZero,
    path::{Path, PathBuf},
};

use sysinfo::{MemoryRefreshKind, ProcessRefreshKind, ProcessesToUpdate, RefreshKind, System};

/// Taken as available where the system does not tell.
const UNKNOWN_MEMORY_BYTES: u64 = 1 << 30;

/// Bytes that this process could use: what is free or can be freed, and not more than its control group leaves it.
pub fn available_memory_bytes() -> u64 {
    let memory = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    // Without /proc nobody knows; a share of this is still enough to work with.
    let Ok(mut system) = System::new_with_specifics(memory) else { return UNKNOWN_MEMORY_BYTES };
    let free = system.available_memory();
    let Ok(own) = sysinfo::get_current_pid() else { return free };
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), false, ProcessRefreshKind::nothing());
    let limit = system
        .process(own)
        .and_then(|process| process.cgroup_limits())
        // Page cache of the group can be freed: only what is resident counts.
        .map(|limits| limits.total_memory.saturating_sub(limits.rss));
    limit.map_or(free, |limit| limit.min(free))
}

/// Bytes that the control group of this process may have in all; `None`: it is in none, or nobody knows.
pub fn group_memory_bytes() -> Option<u64> {
    let own = sysinfo::get_current_pid().ok()?;
    let mut system = System::new_with_specifics(RefreshKind::nothing()).ok()?;
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), false, ProcessRefreshKind::nothing());
    Some(system.process(own)?.cgroup_limits()?.total_memory)
}

/// Cpus that this process may run on; at least 1.
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, NonZero::get).try_into().unwrap_or(u32::MAX)
}

/// Tasks that run at a time unless told otherwise: two for each cpu, so that one computes while another reads or writes.
pub fn executors() -> u32 {
    cpus().saturating_mul(2)
}

/// Where large temporary files go: `/var/tmp`, which is a disk, before `/tmp`, which often is memory. `TMPDIR` wins.
pub fn big_temporary_folder() -> PathBuf {
    let large = Path::new("/var/tmp");
    if std::env::var_os("TMPDIR").is_none() && large.is_dir() { large.to_owned() } else { std::env::temp_dir() }
}
