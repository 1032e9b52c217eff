//! The clients of a soak: each runs a job after the other and judges what comes of it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Signal, kill_process};

use super::super::cluster::pid;
use super::super::flips::Random;
use super::super::ground::Run;
use super::super::output::{has_files, is_claimed, is_empty};
use super::faults::{Fault, note};
use super::inputs::Kind;
use super::{PATIENCE, Soak, around, texts};

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// For how long a folder has no claim before its job is held to be over: jobs claim it when they begin to run.
const UNCLAIMED: Duration = Duration::from_secs(15);

/// How a job ended that went as it must.
enum End {
    /// It has the right result.
    Right,
    /// It failed, or was refused, and said why.
    Failed,
    /// It was given up by its client.
    Cancelled,
}

impl End {
    fn name(&self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Failed => "failed, explained",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What happens to a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    None,
    Interrupted,
    Killed,
    SameFolder,
    Alone,
    NoInput,
}

const FATES: [(Fate, u64); 6] = [
    (Fate::None, 60),
    (Fate::Interrupted, 8),
    (Fate::Killed, 8),
    (Fate::SameFolder, 8),
    (Fate::Alone, 12),
    (Fate::NoInput, 4),
];

/// Runs one job, and notes what came of it.
pub(super) fn one(soak: &Soak<'_>, random: &mut Random) {
    let kind = Kind::ALL[random.below(Kind::ALL.len() as u64) as usize];
    let mut drawn = random.below(FATES.iter().map(|(_, weight)| weight).sum());
    let fate = FATES.iter().find(|(_, weight)| {
        let is_it = drawn < *weight;
        drawn = drawn.saturating_sub(*weight);
        is_it
    });
    let fate = fate.map_or(Fate::None, |(fate, _)| *fate);
    let job = Job { soak, kind, number: soak.jobs.fetch_add(1, std::sync::atomic::Ordering::Relaxed) };
    let mut name = kind.name().to_owned();
    let ended = match fate {
        Fate::None => job.plain(random),
        Fate::Interrupted => job.interrupted(random),
        Fate::Killed => job.killed(random),
        Fate::SameFolder => job.same_folder(random),
        Fate::Alone => {
            name += ", alone";
            job.alone(random)
        }
        Fate::NoInput => job.no_input(random),
    };
    let end = match ended {
        Ok(end) => end.name(),
        Err(error) => {
            soak.wrong(format!("job {} ({}): {error:#}", job.number, job.kind.name()));
            "wrong"
        }
    };
    if let Ok(mut tally) = soak.tally.lock() {
        *tally.ends.entry((name, end)).or_default() += 1;
    }
    if end != "wrong" {
        job.remove();
    }
}

struct Job<'a, 'g> {
    soak: &'a Soak<'g>,
    kind: Kind,
    number: u64,
}

/// A client that runs.
struct Client {
    child: Child,
    said: [PathBuf; 2],
    begun: Duration,
}

impl<'g> Job<'_, 'g> {
    fn path(&self, name: &str) -> PathBuf {
        self.soak.ground.path(&format!("soak-{name}-{}", self.number))
    }

    fn output(&self) -> PathBuf {
        self.path("out")
    }

    fn remove(&self) {
        for name in ["out", "1.stdout", "1.stderr", "2.stdout", "2.stderr", "spill", "state"] {
            let path = self.path(name);
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }

    fn on_the_cluster(&self, kind: Kind, random: &mut Random) -> Command {
        let mut command = self.soak.ground.command(&self.soak.inputs.args(kind, &self.output()));
        command.args(["--cluster", &self.soak.url]);
        let partitions = 1 + random.below(24);
        let strategies = ["auto", "simple", "riffle", "push", "two_stage", "streaming"];
        let strategy = strategies[random.below(strategies.len() as u64) as usize];
        command.args(["--strategy", strategy, "--partitions", &partitions.to_string()]);
        command
    }

    fn start(&self, mut command: Command, nth: u32) -> Result<Client> {
        let said = ["stdout", "stderr"].map(|name| self.path(&format!("{nth}.{name}")));
        let [out, err] = [File::create(&said[0])?, File::create(&said[1])?];
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn()?;
        Ok(Client { child, said, begun: self.soak.now() })
    }

    /// Waits for a client, and looks at what every end is held to.
    #[allow(clippy::disallowed_methods, reason = "real processes live in real time")]
    fn finish(&self, mut client: Client) -> Result<(Run, Duration)> {
        let status = loop {
            if let Some(status) = client.child.try_wait()? {
                break status;
            }
            if self.soak.now() > client.begun + PATIENCE {
                let jobs = self.soak.ground.command(&["jobs", "--cluster", &self.soak.url]).output()?;
                client.child.kill()?;
                client.child.wait()?;
                let [said, jobs] = [fs::read(&client.said[1])?, jobs.stdout];
                let [said, jobs] = [String::from_utf8_lossy(&said), String::from_utf8_lossy(&jobs)];
                anyhow::bail!("stuck for {PATIENCE:?}; it said: {said}; jobs: {jobs}");
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let text = |path: &Path| Ok::<_, std::io::Error>(String::from_utf8_lossy(&fs::read(path)?).into_owned());
        let (stdout, stderr) = (text(&client.said[0])?, text(&client.said[1])?);
        let seconds = (self.soak.now() - client.begun).as_secs_f64();
        ensure!(!stderr.contains("panicked"), "a client panicked: {stderr}");
        Ok((Run { code: status.code(), stdout, stderr, seconds }, client.begun))
    }

    /// The result is right, or there is none and what was said is explained by what happened.
    fn judge(&self, run: &Run, from: Duration, kind: Kind, own: &[Fault]) -> Result<End> {
        if run.code == Some(0) {
            self.soak.inputs.check(kind, &self.output()).context("a wrong result")?;
            return Ok(End::Right);
        }
        let mut faults = around(self.soak, from, self.soak.now());
        faults.extend(own);
        let text = texts::explained(run, &faults);
        let text = text.with_context(|| format!("code {:?} with {faults:?} around: {}", run.code, run.stderr))?;
        if let Ok(mut tally) = self.soak.tally.lock() {
            *tally.texts.entry((text.says, text.faults())).or_default() += 1;
        }
        if own.contains(&Fault::Cancelled) && run.code == Some(130) { Ok(End::Cancelled) } else { Ok(End::Failed) }
    }

    /// After a job that its client knows to have failed: nothing under the final names, nor a claim for long. A job whose
    /// client was told that it may go on may end well all the same.
    fn settles(&self, kind: Kind) -> Result<End> {
        let from = self.soak.now();
        let mut unclaimed_since = from;
        loop {
            let now = self.soak.now();
            let claimed = is_claimed(&self.output());
            if claimed {
                unclaimed_since = now;
            }
            if !claimed && has_files(&self.output()) {
                // The claim goes last.
                self.soak.inputs.check(kind, &self.output()).context("a wrong result, after its client had left")?;
                return Ok(End::Right);
            }
            if now - unclaimed_since > UNCLAIMED {
                return Ok(End::Failed);
            }
            ensure!(now - from < PATIENCE, "nobody ends what {} is claimed for", self.output().display());
            wait(LOOK_EVERY);
        }
    }

    fn plain(&self, random: &mut Random) -> Result<End> {
        let client = self.start(self.on_the_cluster(self.kind, random), 1)?;
        let (run, from) = self.finish(client)?;
        let end = self.judge(&run, from, self.kind, &[])?;
        if matches!(end, End::Failed) { self.settles(self.kind) } else { Ok(end) }
    }

    fn interrupted(&self, random: &mut Random) -> Result<End> {
        let client = self.start(self.on_the_cluster(self.kind, random), 1)?;
        wait(Duration::from_millis(random.below(5_000)));
        note(self.soak, Fault::Cancelled);
        kill_process(pid(&client.child)?, Signal::INT)?;
        let (run, from) = self.finish(client)?;
        let end = self.judge(&run, from, self.kind, &[Fault::Cancelled])?;
        match end {
            End::Right => Ok(end),
            _ => Ok(match self.settles(self.kind)? {
                // What was cancelled leaves nothing; the word may have come too late.
                End::Failed => End::Cancelled,
                other => other,
            }),
        }
    }

    fn killed(&self, random: &mut Random) -> Result<End> {
        let mut client = self.start(self.on_the_cluster(self.kind, random), 1)?;
        wait(Duration::from_millis(random.below(5_000)));
        note(self.soak, Fault::ClientKilled);
        client.child.kill()?;
        client.child.wait()?;
        self.settles(self.kind)
    }

    /// Two jobs of different kinds write to one folder: one has it, and the other says so.
    fn same_folder(&self, random: &mut Random) -> Result<End> {
        let other = if self.kind == Kind::Sort { Kind::WordCount } else { Kind::Sort };
        let first = self.start(self.on_the_cluster(self.kind, random), 1)?;
        wait(Duration::from_millis(random.below(400)));
        note(self.soak, Fault::SameFolder);
        let second = self.start(self.on_the_cluster(other, random), 2)?;
        let (first, from) = self.finish(first)?;
        let (second, _) = self.finish(second)?;
        match (first.code, second.code) {
            (Some(0), Some(0)) => anyhow::bail!("two jobs say that they wrote one folder"),
            (Some(0), _) => {
                self.judge(&second, from, other, &[Fault::SameFolder])?;
                self.judge(&first, from, self.kind, &[])
            }
            (_, Some(0)) => {
                self.judge(&first, from, self.kind, &[Fault::SameFolder])?;
                self.judge(&second, from, other, &[])
            }
            _ => {
                // One of them had the folder and failed for another reason.
                self.judge(&first, from, self.kind, &[Fault::SameFolder])?;
                self.judge(&second, from, other, &[Fault::SameFolder])?;
                let settled = self.settles(self.kind);
                if settled.is_err() { self.settles(other) } else { settled }
            }
        }
    }

    /// A job on this machine alone with little memory; killed at some time, perhaps, and then taken up again.
    fn alone(&self, random: &mut Random) -> Result<End> {
        let memory = ["64MiB", "80MiB", "96MiB"][random.below(3) as usize];
        let own = |args: &[String]| {
            let mut command = self.soak.ground.command(args);
            command.env("XDG_STATE_HOME", self.path("state")).args(["--memory", memory, "--spill"]);
            command.arg(self.path("spill"));
            command
        };
        let mut client = self.start(own(&self.soak.inputs.args(self.kind, &self.output())), 1)?;
        if random.below(2) == 0 {
            wait(Duration::from_millis(random.below(3_000)));
            if client.child.try_wait()?.is_none() {
                note(self.soak, Fault::AloneKilled);
                client.child.kill()?;
                client.child.wait()?;
                if is_empty(&self.output()) {
                    // Its log may not have begun.
                    return Ok(End::Cancelled);
                }
                client = self.start(own(&["resume".to_owned()]), 2)?;
            }
        }
        let (run, from) = self.finish(client)?;
        if run.code == Some(2) && run.stderr.contains("every job of this machine was finished") {
            // It was killed when its work was done.
            self.soak.inputs.check(self.kind, &self.output()).context("a wrong result of a job that was finished")?;
            return Ok(End::Right);
        }
        self.judge(&run, from, self.kind, &[])
    }

    fn no_input(&self, random: &mut Random) -> Result<End> {
        let mut args = self.soak.inputs.args(self.kind, &self.output());
        args[1] = self.path("no-such-input").display().to_string();
        let mut command = self.soak.ground.command(&args);
        command.args(["--cluster", &self.soak.url]);
        wait(Duration::from_millis(random.below(500)));
        note(self.soak, Fault::NoInput);
        let client = self.start(command, 1)?;
        let (run, from) = self.finish(client)?;
        ensure!(run.code != Some(0), "a job without input is done");
        self.judge(&run, from, self.kind, &[Fault::NoInput])?;
        ensure!(matches!(self.settles(self.kind)?, End::Failed), "there is output of no input");
        Ok(End::Failed)
    }
}

#[allow(clippy::disallowed_methods, reason = "real processes live in real time")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}
