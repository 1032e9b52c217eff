//! A look from outside at the memory of all processes that were given a budget, again and again.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Soak;

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What a process may use beyond its budget: law 5 of the design.
const BEYOND: u64 = 16 << 20;

/// The most that was seen of each budget, and in how many samples.
#[derive(Default)]
pub(super) struct Peaks {
    peaks: BTreeMap<u64, u64>,
    samples: u64,
}

impl std::fmt::Display for Peaks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "memory in {} samples (RssAnon + RssShmem):", self.samples)?;
        for (budget, peak) in &self.peaks {
            write!(f, " {:.1} MiB at most of a budget of {} MiB;", *peak as f64 / f64::from(1 << 20), budget >> 20)?;
        }
        Ok(())
    }
}

/// Looks until all is settled; a sample beyond a budget is wrong.
#[allow(clippy::disallowed_methods, reason = "real processes live in real time")]
pub(super) fn sample(soak: &Soak<'_>, settled: &AtomicBool) -> Peaks {
    let (mut peaks, mut known, mut told) = (Peaks::default(), HashMap::new(), HashMap::new());
    while !settled.load(Ordering::Relaxed) {
        for process in processes() {
            // One that was just forked is not yet what it will be: who has no budget is asked again.
            let budget = known.get(&process).copied().or_else(|| budget_of(soak, process));
            let Some(budget) = budget else { continue };
            known.insert(process, budget);
            let Some(bytes) = used(process) else {
                known.remove(&process);
                continue;
            };
            peaks.samples += 1;
            let peak = peaks.peaks.entry(budget).or_default();
            *peak = bytes.max(*peak);
            if bytes > budget + BEYOND && told.insert(process, ()).is_none() {
                soak.wrong(format!("process {process} uses {bytes} bytes of a budget of {budget}"));
            }
        }
        known.retain(|process, _| fs::exists(format!("/proc/{process}")).unwrap_or(false));
        std::thread::sleep(LOOK_EVERY);
    }
    peaks
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The budget of a process of this soak that has one.
fn budget_of(soak: &Soak<'_>, process: u32) -> Option<u64> {
    let environment = fs::read(format!("/proc/{process}/environ")).ok()?;
    if !soak.ground.is_in_environment(&environment) {
        return None;
    }
    let line = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    if words.get(1) == Some(&&b"node"[..]) {
        return mebibytes(super::MEMORY);
    }
    let at = words.iter().position(|word| *word == b"--memory")?;
    mebibytes(std::str::from_utf8(words.get(at + 1)?).ok()?)
}

fn mebibytes(text: &str) -> Option<u64> {
    Some(text.strip_suffix("MiB")?.parse::<u64>().ok()? << 20)
}

fn used(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let of = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? << 10)
    };
    Some(of("RssAnon:")? + of("RssShmem:")?)
}
