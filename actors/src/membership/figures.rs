//! How busy this node is: the figures of a heartbeat.
//!
//! What a memory budget is held against is *anonymous plus shared* memory, each once: `RssAnon + RssShmem` of
//! `/proc/self/status`. File-backed pages (the binary, mapped input files) are the kernel's cache and not counted. Of a
//! region that several processes map, each process shows what it touched: the node's own figure has it once, and only
//! `anonymous_bytes` of its executor processes may be added to it.

use crate::protocol::membership::Figures;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

/// Memory of one process that counts against a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Private memory, bytes.
    pub anonymous_bytes: u64,
    /// Shared memory (memfd, tmpfs) that the process has touched, bytes.
    pub shared_bytes: u64,
}

impl ProcessMemory {
    /// This process, now. Zero where the kernel does not tell (`/proc` is not mounted).
    pub fn of_this_process() -> Self {
        std::fs::read_to_string("/proc/self/status").map(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// Reads the text of a `/proc/<pid>/status`; absent lines count as zero.
    pub fn parse(status: &str) -> Self {
        let field = |name: &str| -> u64 {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
                .map_or(0, |kilobytes| kilobytes.saturating_mul(1024))
        };
        Self { anonymous_bytes: field("RssAnon"), shared_bytes: field("RssShmem") }
    }

    /// Both, bytes.
    pub fn total_bytes(self) -> u64 {
        self.anonymous_bytes + self.shared_bytes
    }
}

/// What one process has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessWork {
    /// Bytes read from disks; what the page cache had is not counted.
    pub disk_read_bytes: u64,
    /// Bytes written to disks.
    pub disk_written_bytes: u64,
    /// Processor time of all its threads.
    pub cpu: Duration,
}

impl ProcessWork {
    /// This process, so far. No bytes where the kernel does not tell (`/proc` is not mounted, or it does not account).
    pub fn of_this_process() -> Self {
        let work = std::fs::read_to_string("/proc/self/io").map(|text| Self::parse(&text)).unwrap_or_default();
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Self { cpu: Duration::try_from(cpu).unwrap_or_default(), ..work }
    }

    /// Reads the text of a `/proc/<pid>/io`; absent lines count as zero.
    pub fn parse(io: &str) -> Self {
        let field = |name: &str| -> u64 {
            let value = io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        Self { disk_read_bytes: field("read_bytes"), disk_written_bytes: field("write_bytes"), cpu: Duration::ZERO }
    }
}

/// The most memory that was seen in use; shared by all who look. The kernel keeps a peak (`VmHWM`) too, but of a sum
/// that includes file-backed pages, so this one is only as good as the looking is frequent.
#[derive(Debug, Default)]
pub struct MemoryPeak(AtomicU64);

impl MemoryPeak {
    /// Nothing seen yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Looks now; returns what is in use, bytes.
    pub fn look(&self) -> u64 {
        let bytes = ProcessMemory::of_this_process().total_bytes();
        self.note(bytes);
        bytes
    }

    /// Takes in a figure that somebody else measured, bytes.
    pub fn note(&self, bytes: u64) {
        self.0.fetch_max(bytes, Ordering::Relaxed);
    }

    /// The most that was seen, bytes.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the store says of itself for a heartbeat, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUse {
    /// What it may use.
    pub budget_bytes: u64,
    /// What it uses.
    pub used_bytes: u64,
    /// What it has on disk.
    pub spilled_bytes: u64,
}

/// Samples the figures of this machine and this process. Holds the previous sample: processor use is a difference.
#[derive(Debug)]
pub struct Sampler {
    system: Option<System>,
}

impl Default for Sampler {
    fn default() -> Self {
        Self::new()
    }
}

impl Sampler {
    /// Takes the first sample, against which the next one's processor use is measured. Where the machine cannot be
    /// looked at, its figures stay zero: a node without figures is still a node.
    pub fn new() -> Self {
        let what = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing().with_usage())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        Self { system: System::new_with_specifics(what).ok() }
    }

    /// The figures now: about 100 us, reads `/proc` only. `peak` is updated on the way.
    pub fn sample(&mut self, peak: &MemoryPeak, store: StoreUse) -> Figures {
        let mut figures = Figures {
            process_bytes: peak.look(),
            store_budget_bytes: store.budget_bytes,
            store_used_bytes: store.used_bytes,
            store_spilled_bytes: store.spilled_bytes,
            ..Figures::default()
        };
        figures.process_peak_bytes = peak.bytes();
        if let Some(system) = &mut self.system {
            system.refresh_cpu_usage();
            system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
            let cpus = system.cpus().len() as u32;
            let used_share = f64::from(system.global_cpu_usage()) / 100.0;
            figures.cpus = cpus;
            figures.cpu_used_milli = (used_share * f64::from(cpus) * 1000.0).round().max(0.0) as u32;
            figures.memory_total_bytes = system.total_memory();
            figures.memory_available_bytes = system.available_memory();
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_and_shared_memory_count_and_files_do_not() {
        let status =
            "Name:\tx\nVmHWM:\t  99999 kB\nRssAnon:\t    1024 kB\nRssFile:\t  500000 kB\nRssShmem:\t      16 kB\n";
        let memory = ProcessMemory::parse(status);
        assert_eq!(memory, ProcessMemory { anonymous_bytes: 1024 * 1024, shared_bytes: 16 * 1024 });
        assert_eq!(memory.total_bytes(), 1040 * 1024);
    }

    #[test]
    fn a_status_that_says_nothing_or_nonsense_counts_as_zero() {
        for text in ["", "RssAnon: many kB", "RssAnon: 12 MB", "RssAnonymous: 12 kB"] {
            assert_eq!(ProcessMemory::parse(text), ProcessMemory::default(), "{text:?}");
        }
    }

    #[test]
    fn bytes_of_disks_are_told_apart_from_bytes_of_calls() {
        let io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n";
        let work = ProcessWork { disk_read_bytes: 5, disk_written_bytes: 6, cpu: Duration::ZERO };
        assert_eq!(ProcessWork::parse(io), work);
        assert_eq!(ProcessWork::parse("read_bytes: many\n"), ProcessWork::default());
        assert!(ProcessWork::of_this_process().cpu > Duration::ZERO, "this test has run on some processor");
    }

    #[test]
    fn memory_that_was_touched_shows_in_the_sample_and_stays_in_the_peak() {
        let peak = MemoryPeak::new();
        let before = peak.look();
        let block = std::hint::black_box(vec![1_u8; 64 << 20]);
        let with_block = Sampler::new().sample(&peak, StoreUse { budget_bytes: 7, used_bytes: 5, spilled_bytes: 3 });
        // Other tests of this process allocate and free beside it: half of the block is enough of a proof.
        assert!(with_block.process_bytes >= before + (32 << 20), "{before} then {with_block:?}");
        assert!(with_block.process_peak_bytes >= with_block.process_bytes);
        assert!(with_block.cpus >= 1 && with_block.memory_total_bytes > with_block.memory_available_bytes);
        assert_eq!(
            (with_block.store_budget_bytes, with_block.store_used_bytes, with_block.store_spilled_bytes),
            (7, 5, 3)
        );
        drop(block);
        peak.look();
        assert!(peak.bytes() >= with_block.process_bytes);
    }
}
