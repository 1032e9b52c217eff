//! Where rows are run: the binary, an input and what comes of it without faults, and the checks that hold for all rows.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::Outcome;
use super::workload::{Looks, RIGHT, Right, Workload};

/// Memory of a job, which its input is more than: 64 MiB of it are its store's.
pub const MEMORY: &str = "96MiB";

/// See the module. The folder is removed when it is dropped.
pub struct Ground {
    pub binary: PathBuf,
    pub nats_server: PathBuf,
    folder: PathBuf,
    pub workload: Workload,
    /// Known as soon as there is an input.
    right: Option<Right>,
    /// The job without faults.
    pub clean: Cost,
}

/// What a job took.
#[derive(Default)]
pub struct Cost {
    pub seconds: f64,
    /// Attempts of tasks.
    pub attempts: u64,
    pub spilled_bytes: u64,
    /// What it has shown before it was done.
    pub looks: Looks,
}

impl Cost {
    /// Fails where a job that is answered early has shown something else than without faults.
    pub fn has_shown(&self, workload: Workload, clean: &Self) -> Result<()> {
        let same = self.looks.are_those_of(&clean.looks)?;
        ensure!(workload != Workload::Online || same > 1, "{same} looks were shown that are shown without faults");
        Ok(())
    }
}

/// How a run of the binary ended.
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub seconds: f64,
}

/// A number from the environment of the chore.
pub fn told(variable: &str, otherwise: u64) -> Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable}={text}")),
        Err(_) => Ok(otherwise),
    }
}

impl Run {
    /// A refusal: this code, no panic, and all of these words.
    pub fn refused(&self, code: i32, words: &[&str]) -> Result<()> {
        self.is_orderly()?;
        ensure!(self.code == Some(code), "code {:?} instead of {code}: {}", self.code, self.stderr);
        for word in words {
            ensure!(self.stderr.contains(word), "it does not say {word:?}: {}", self.stderr);
        }
        Ok(())
    }

    /// No panic, no signal.
    pub fn is_orderly(&self) -> Result<()> {
        ensure!(self.code.is_some(), "ended by a signal: {}", self.stderr);
        ensure!(!self.stderr.contains("panicked"), "panicked: {}", self.stderr);
        Ok(())
    }

    /// The error, for the table.
    pub fn error(&self) -> &str {
        self.stderr
            .lines()
            .rfind(|line| line.starts_with("error: "))
            .unwrap_or("no error")
            .trim_start_matches("error: ")
    }

    /// How many jobs `exobus jobs --json` has listed.
    pub fn jobs(&self) -> Result<usize> {
        Ok(self.json("jobs")?.as_array().context("a list of jobs")?.len())
    }

    /// What the summary says: the last line of JSON, behind those of looks. A wrapper may have said something behind it.
    pub fn json(&self, key: &str) -> Result<serde_json::Value> {
        let line = self.stdout.lines().rfind(|line| line.starts_with('{')).context("no JSON")?;
        let value: serde_json::Value = serde_json::from_str(line).context("read its JSON")?;
        value.get(key).cloned().with_context(|| format!("no {key} in {value}"))
    }
}

/// Runs a command to its end.
#[allow(clippy::disallowed_methods, reason = "what real processes take is measured in real time")]
pub fn finish(mut command: Command) -> Result<Run> {
    let begun = Instant::now();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {command:?}"))?;
    Ok(Run {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        seconds: begun.elapsed().as_secs_f64(),
    })
}

impl Ground {
    /// Makes the input, and runs the job over it once without a fault.
    pub fn new(binary: PathBuf, nats_server: PathBuf, workload: Workload) -> Result<Self> {
        // The one before is removed when this one is there already.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("exobus-chaos-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
        let mut ground = Self { binary, nats_server, folder, workload, right: None, clean: Cost::default() };
        ground.right = Some(workload.prepare(&ground)?);
        let clean = finish(ground.command(&ground.job_args()))?;
        ground.clean = ground.is_right(&clean)?;
        ensure!(ground.clean.spilled_bytes > 0, "the input fits into memory");
        Ok(ground)
    }

    /// The same, with nothing of what a failed row left.
    pub fn renewed(&self) -> Result<Self> {
        Self::new(self.binary.clone(), self.nats_server.clone(), self.workload)
    }

    /// A path in the folder of this ground.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Where a node of a cluster spills.
    pub fn spill_of(&self, node: &str) -> PathBuf {
        self.path("spill").join(format!("local.{node}"))
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The token of those who hand in jobs to a cluster, of nodes and clients alike.
    pub fn submitters_token(&self) -> PathBuf {
        self.path("cluster").join("submitters.token")
    }

    /// The binary, with an environment that holds nothing of ours but where that token is.
    pub fn command(&self, args: &[impl AsRef<str>]) -> Command {
        self.within(&[], args)
    }

    /// The binary below another program and its arguments.
    pub fn within(&self, wrapper: &[&str], args: &[impl AsRef<str>]) -> Command {
        let mut words = wrapper.iter().map(std::ffi::OsStr::new).chain([self.binary.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(args.iter().map(AsRef::as_ref));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("EXOBUS_") || name == "RUST_LOG" || name == "RUST_BACKTRACE" {
                command.env_remove(name);
            }
        }
        command.env("EXOBUS_NATS_SERVER", &self.nats_server).env("TMPDIR", &self.folder);
        command.env("EXOBUS_SECURITY__SUBMITTERS_TOKEN_FILE", self.submitters_token());
        command
    }

    /// A job over the input that spills.
    pub fn job_args(&self) -> Vec<String> {
        let [output, spill, trace] = ["out", "spill", "trace"].map(|name| self.text(name));
        let told = ["--output", &output, "--memory", MEMORY, "--spill", &spill, "--timeline", &trace];
        self.workload.args(self).into_iter().chain(told.map(str::to_owned)).collect()
    }

    /// What is to come of the input.
    pub(super) fn right_result(&self) -> &Right {
        self.right.as_ref().expect("it is known when the ground is made")
    }

    /// A row whose job has the right result, compared with the one without faults.
    pub fn right(&self, run: &Run, what: &str) -> Result<Outcome> {
        let cost = self.is_right(run)?;
        cost.has_shown(self.workload, &self.clean)?;
        Ok(Outcome {
            what: what.to_owned(),
            added: Some(cost.seconds - self.clean.seconds),
            more_attempts: cost.attempts.saturating_sub(self.clean.attempts),
            bytes_redone: cost.spilled_bytes.saturating_sub(self.clean.spilled_bytes),
        })
    }

    /// The right result; the output is removed.
    pub fn is_right(&self, run: &Run) -> Result<Cost> {
        run.is_orderly()?;
        ensure!(run.code == Some(0), "code {:?}: {}", run.code, run.stderr);
        self.has_made_right("out")?;
        let trace = std::fs::read_to_string(self.path("trace")).context("read the timeline")?;
        let trace: serde_json::Value = serde_json::from_str(&trace).context("read the timeline")?;
        let is_task = |event: &&serde_json::Value| {
            event["ph"] == "X" && event["cat"].as_str().is_some_and(|category| category.starts_with("task"))
        };
        let attempts = trace["traceEvents"].as_array().map_or(0, |events| events.iter().filter(is_task).count() as u64);
        // A query that is answered early says apart what it took.
        let spilled =
            run.json("online").map_or_else(|_| run.json("spilled_bytes"), |mut of| Ok(of["spilled_bytes"].take()))?;
        let spilled_bytes = spilled.as_u64().context("a number of bytes that is none")?;
        Ok(Cost { seconds: run.seconds, attempts, spilled_bytes, looks: Looks::of(run)? })
    }

    /// The right result in a folder of this ground; it is removed.
    pub fn has_made_right(&self, output: &str) -> Result<()> {
        self.workload.is_right(self, output)
    }

    /// Whether a process with this environment belongs to a run of the binary on this ground.
    pub fn is_in_environment(&self, environment: &[u8]) -> bool {
        let ours = format!("TMPDIR={}", self.folder.display());
        environment.split(|byte| *byte == 0).any(|variable| variable == ours.as_bytes())
    }

    /// Neither files nor processes.
    pub fn nothing_is_left(&self) -> Result<()> {
        for entry in std::fs::read_dir(&self.folder)?.flatten() {
            let name = entry.file_name();
            let hollow = || std::fs::read_dir(entry.path()).is_ok_and(|mut inside| inside.next().is_none());
            let stays = ["in", RIGHT, "trace"].iter().any(|stays| name == *stays);
            ensure!(stays || hollow(), "{} is left", entry.path().display());
        }
        let folder = self.folder.display().to_string();
        for process in std::fs::read_dir("/proc")?.flatten() {
            let Ok(line) = std::fs::read(process.path().join("cmdline")) else { continue };
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            // Executor processes say in their environment whose they are.
            let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
            if line.contains(&folder) || self.is_in_environment(&environment) {
                bail!("process {} is left: {line}", process.file_name().display());
            }
        }
        Ok(())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // What a row that failed left mounted or running is told by its error.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
