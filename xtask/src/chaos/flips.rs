//! Rows about bits that flip on a disk.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use rustix::fs::OFlags;

use super::Outcome;
use super::alone::Alone;
use super::cluster::{Cluster, Events};
use super::ground::{Ground, Run};

/// Unit of direct I/O.
const PAGE: usize = 4096;
/// How many bits are flipped in each run.
const FLIPS: u32 = 60;

/// Numbers that are the same in every run (xorshift).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `limit`, which is not zero.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Files with this ending below a folder.
pub(super) fn files(below: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = all_files(below);
    found.retain(|path| path.extension().is_some_and(|found| found == ending));
    found
}

/// All files below a folder.
pub(super) fn all_files(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(all_files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Past the page cache, where the file system lets us: what others write there meanwhile is not to be written again.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
    options.clone().custom_flags(direct).open(path).or_else(|_| options.open(path))
}

/// Flips one bit of a page of a file in which something was written. `false`: it found none.
fn flip(path: &Path, random: &mut Random) -> Result<bool> {
    // It may be deleted at any moment.
    let Ok(file) = open(path) else { return Ok(false) };
    let pages = file.metadata()?.len() / PAGE as u64;
    let mut room = vec![0; 2 * PAGE];
    let start = room.as_ptr().align_offset(PAGE);
    let page = &mut room[start..start + PAGE];
    for _ in 0..50 {
        let at = random.below(pages.max(1)) * PAGE as u64;
        // Room was set aside ahead: what is zero was not written yet.
        if file.read_at(page, at)? < PAGE || page.iter().all(|byte| *byte == 0) {
            continue;
        }
        let within = random.below(PAGE as u64) as usize;
        page[within] ^= 1 << random.below(8);
        ensure!(file.write_at(page, at)? == PAGE, "half a page was written to {}", path.display());
        return Ok(true);
    }
    Ok(false)
}

/// Flips bits in spill files below a folder, some at each call; whether all are flipped.
fn flip_some(below: &Path, random: &mut Random, flipped: &Cell<u32>) -> Result<bool> {
    let files = files(below, "spill");
    for path in files.iter().cycle().take(files.len() * 4) {
        if flipped.get() < FLIPS && flip(path, random)? {
            flipped.set(flipped.get() + 1);
        }
    }
    Ok(flipped.get() >= FLIPS)
}

/// Objects of which a block was not what was written.
fn found(said: &str) -> usize {
    said.lines().filter(|line| line.contains("object lost") && line.contains("is corrupt")).count()
}

/// The outcome, where all flips were made and some were met.
fn met(found: usize, events: &Events, run: &Run) -> Result<String> {
    ensure!(found > 0 && events.replayed() > 0, "no flipped bit was met: {}", run.stderr);
    let again = events.replayed();
    Ok(format!(
        "{FLIPS} bits flipped, {found} objects found to be corrupt, the others not read any more; {again} tasks made again"
    ))
}

/// A job alone with flipped bits in what it spilled.
pub(super) fn in_spill_files(ground: &Ground) -> Result<Outcome> {
    let alone = Alone::new(ground)?;
    let (flipped, mut random) = (Cell::new(0), Random::new(21));
    let (run, events) = alone.run(alone.job(&[], &["--strategy", "simple"]), |events, _| {
        Ok(events.done("reduce") > 0 && flip_some(&ground.path("spill"), &mut random, &flipped)?)
    })?;
    let what = met(found(&run.stderr), &events, &run)?;
    ground.right(&run, &format!("{what}: right"))
}

/// The same on all nodes of a cluster: what is flipped is read by other nodes, too.
pub(super) fn in_spill_files_of_nodes(ground: &Ground) -> Result<Outcome> {
    let cluster = Cluster::start(ground)?;
    let clean = cluster.clean("simple")?;
    let (flipped, mut random) = (Cell::new(0), Random::new(2121));
    let (run, events) = cluster.run("simple", |events| {
        Ok(events.done("reduce") > 0 && flip_some(&ground.path("spill"), &mut random, &flipped)?)
    })?;
    let logs = ["n1", "n2", "n3"].iter().map(|name| cluster.log_of(name)).collect::<Result<String>>()?;
    let outcome = cluster.right(&clean, &run, &events, &met(found(&logs), &events, &run)?)?;
    cluster.end()?;
    Ok(outcome)
}
