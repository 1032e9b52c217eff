//! Rows about power cuts: what is on a disk below the file system, while processes believe that more is.
//!
//! The disk is a file with a file system, mounted. At the cut the process is stopped, the file is copied as it is (what the
//! kernel has not written is not in it), the process is killed, and the copy takes the disk's place.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use rustix::process::{Signal, kill_process};

use super::alone::Alone;
use super::cluster::Events;
use super::ground::{Ground, finish};
use super::{NotRun, Outcome};

/// Room for what a sort writes.
const DISK_BYTES: u64 = 800 << 20;

/// A disk in a file, mounted; unmounted and removed when it is dropped.
struct Disk {
    image: PathBuf,
    at: PathBuf,
    mounted: Cell<bool>,
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(args);
    let done = match finish(command) {
        Err(error)
            if error
                .root_cause()
                .downcast_ref::<std::io::Error>()
                .is_some_and(|it| it.kind() == std::io::ErrorKind::NotFound) =>
        {
            return Err(NotRun("mkfs.ext4, mount and cp").into());
        }
        done => done?,
    };
    ensure!(done.code == Some(0), "{program} {args:?}: {}", done.stderr);
    Ok(())
}

impl Disk {
    fn new(image: PathBuf, at: PathBuf) -> Result<Self> {
        fs::File::create(&image)?.set_len(DISK_BYTES)?;
        fs::create_dir_all(&at)?;
        let disk = Self { image, at, mounted: Cell::new(false) };
        run("mkfs.ext4", &["-q", "-F", &disk.image.display().to_string()])?;
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> Result<()> {
        run("mount", &["-o", "loop", &self.image.display().to_string(), &self.at.display().to_string()])?;
        self.mounted.set(true);
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        if self.mounted.replace(false) {
            run("umount", &[&self.at.display().to_string()])?;
        }
        Ok(())
    }

    /// What is on it now, below the file system.
    fn copied(&self) -> PathBuf {
        self.image.with_extension("copy")
    }

    fn copy(&self) -> Result<()> {
        run("cp", &["--sparse=always", &self.image.display().to_string(), &self.copied().display().to_string()])
    }

    /// The copy takes its place.
    fn cut(&self) -> Result<()> {
        self.unmount()?;
        fs::rename(self.copied(), &self.image)?;
        self.mount()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{error:#}");
        }
        let _ = fs::remove_dir(&self.at);
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_file(self.copied());
    }
}

/// Sorts alone, with the job's log and the output on a disk whose power is cut when so much of a stage is done; then goes on.
fn cut(ground: &Ground, stage: &str, percent: u64) -> Result<Outcome> {
    let alone = Alone::new(ground)?;
    let disk = Disk::new(ground.path("disk.image"), ground.path("disk"))?;
    let (state, output) = (disk.at.join("state"), disk.at.join("out"));
    let on_disk = |mut command: Command| {
        command.env("XDG_STATE_HOME", &state);
        command
    };
    let args = ground.sort_args().into_iter().map(|arg| match arg {
        arg if arg == ground.text("out") => output.display().to_string(),
        arg => arg,
    });
    let args: Vec<_> = args.chain(["--strategy", "simple"].map(str::to_owned)).collect();
    let (cut, before) = alone.run(on_disk(alone.command(&[], &args)), |events, process| {
        let now = events.are_done(percent, stage, "local");
        if now {
            kill_process(process, Signal::STOP)?;
            disk.copy()?;
            kill_process(process, Signal::KILL)?;
        }
        Ok(now)
    })?;
    ensure!(cut.code.is_none(), "it ended before the cut: {}", cut.stderr);
    disk.cut()?;
    let resume = [
        "resume",
        "--json",
        "--memory",
        super::ground::MEMORY,
        "--spill",
        &ground.text("spill"),
        "--timeline",
        &ground.text("trace"),
    ];
    let (resumed, after) = alone.run(on_disk(alone.command(&[], &resume)), |_, _| Ok(true))?;
    ensure!(resumed.code == Some(0), "code {:?}: {}", resumed.code, resumed.stderr);
    // Where the checks look for it.
    run("cp", &["-r", &output.display().to_string(), &ground.text("out")])?;
    let twice = made_again(&before, &after);
    let what = format!(
        "at {percent} % of {stage}: gone on; of {} partitions that were done {twice} made again: right",
        before.done("sort.reduce")
    );
    let outcome = ground.right(&resumed, &what);
    drop(disk);
    // What it had spilled is removed by the next sort.
    let _ = fs::remove_dir_all(ground.path("spill"));
    outcome
}

/// Partitions that were made before and after.
fn made_again(before: &Events, after: &Events) -> usize {
    before.tasks_done("sort.reduce").intersection(&after.tasks_done("sort.reduce")).count()
}

pub(super) fn cut_among_maps(ground: &Ground) -> Result<Outcome> {
    cut(ground, "sort.map", 50)
}

pub(super) fn cut_among_reduces(ground: &Ground) -> Result<Outcome> {
    cut(ground, "sort.reduce", 50)
}
