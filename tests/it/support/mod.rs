//! Runs the real binary.

pub mod chromium;
pub mod cluster;

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    sync::mpsc::{self, Receiver},
    time::Duration,
};

/// How a run ended.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The token of those who hand in jobs, the same for all clusters and clients of a test program.
pub fn submitters_token() -> &'static Path {
    static TOKEN: OnceLock<tempfile::NamedTempFile> = OnceLock::new();
    let make = || {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "the submitters' token of these tests\n").unwrap();
        file
    };
    TOKEN.get_or_init(make).path()
}

/// The binary, with an environment that holds nothing of ours but the submitters' token; jobs that do not end leave their logs in the
/// folder that the tests have for themselves, unless a test has its own.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exobus"));
    command.args(args).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("EXOBUS_") && name != "EXOBUS_NATS_SERVER" || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command.env("EXOBUS_SECURITY__SUBMITTERS_TOKEN_FILE", submitters_token());
    command.env("XDG_STATE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("state"));
    command
}

/// Runs it to its end.
pub fn exobus(args: &[&str]) -> Run {
    finish(command(args))
}

/// Runs it with a spill folder of its own, so that what it leaves there is seen.
#[track_caller]
pub fn with_own_spill(scratch: &Scratch, args: &[&str]) -> Run {
    let spill = scratch.text("spill");
    let run = exobus(&[args, &["--spill", &spill]].concat());
    assert_eq!(names(&scratch.path("spill")), [""; 0], "spill files are left: {run:#?}");
    run
}

pub fn finish(mut command: Command) -> Run {
    let output = command.output().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Run {
    /// Exit code as expected, and every text on stderr.
    #[track_caller]
    pub fn expect(&self, code: i32, on_stderr: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for text in on_stderr {
            assert!(self.stderr.contains(text), "{text:?} is not in {self:#?}");
        }
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        assert!(!self.stderr.contains("stack backtrace"), "{self:#?}");
        self
    }

    /// stdout as one JSON object.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// Names of what is in a folder, hidden things included; none for a folder that is not there.
pub fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Names of what is in a folder of output but the manifest, without which it is not whole; none for a folder that is not there.
#[track_caller]
pub fn parts(folder: &Path) -> Vec<String> {
    let mut names = names(folder);
    assert!(names.is_empty() || names.remove(0) == "_exobus.json", "{} has no manifest: {names:?}", folder.display());
    names
}

/// A temporary folder and paths in it as text.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub fn root(&self) -> &Path {
        self.0.path()
    }
}

/// What `--timeline` wrote, checked: lanes have names, attempts are on executors, within the job's time, one after the other.
pub struct Trace {
    pub outcome: String,
    /// Name, process and lane of each attempt that ran.
    pub attempts: Vec<(String, String, String)>,
    pub trace: serde_json::Value,
}

impl Trace {
    #[track_caller]
    pub fn read(path: &Path) -> Self {
        let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let number =
            |event: &serde_json::Value, key: &str| event[key].as_u64().unwrap_or_else(|| panic!("{key}: {event}"));
        let name_of = |what: &str, pid: u64, tid: Option<u64>| {
            let named = |event: &&serde_json::Value| {
                event["name"] == what && event["pid"] == pid && (tid.is_none() || event["tid"].as_u64() == tid)
            };
            let found: Vec<_> = events.iter().filter(named).collect();
            assert_eq!(found.len(), 1, "{what} {pid} {tid:?}: {found:?}");
            found[0]["args"]["name"].as_str().unwrap().to_owned()
        };
        let duration_us = trace["otherData"]["duration_us"].as_u64().unwrap();
        let mut lanes: std::collections::BTreeMap<_, Vec<(u64, u64)>> = Default::default();
        let (mut attempts, mut seen) = (Vec::new(), std::collections::BTreeSet::new());
        for event in events.iter().filter(|event| event["ph"] == "X") {
            let (pid, tid) = (number(event, "pid"), number(event, "tid"));
            let (from, to) = (number(event, "ts"), number(event, "ts") + number(event, "dur"));
            assert!(to <= duration_us, "after the end, {duration_us}: {event}");
            lanes.entry((pid, tid)).or_default().push((from, to));
            if event["cat"].as_str().unwrap().starts_with("task") {
                assert!(
                    seen.insert(format!("{}/{}", event["args"]["task"], event["args"]["attempt"])),
                    "twice: {event}"
                );
                let lane = name_of("thread_name", pid, Some(tid));
                attempts.push((event["name"].as_str().unwrap().to_owned(), name_of("process_name", pid, None), lane));
            }
        }
        for (lane, mut spans) in lanes {
            spans.sort_unstable();
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{lane:?} overlaps: {spans:?}");
        }
        let outcome = trace["otherData"]["outcome"].as_str().unwrap().to_owned();
        Self { outcome, attempts, trace }
    }

    pub fn count(&self, stage: &str) -> usize {
        self.attempts.iter().filter(|(name, ..)| name == stage).count()
    }

    pub fn count_category(&self, category: &str) -> usize {
        self.trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == category).count()
    }
}

/// A process that is still running; killed when dropped.
pub struct Running {
    pub child: Child,
    lines: Receiver<String>,
    pub seen: Vec<String>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (told, lines) = mpsc::channel();
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for output in outputs {
            let told = told.clone();
            let read = move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if told.send(line).is_err() {
                        return;
                    }
                }
            };
            std::thread::Builder::new().spawn(read).unwrap();
        }
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line that contains `text`; `None` when the outputs are closed before.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str, within: Duration) -> Option<String> {
        loop {
            match self.lines.recv_timeout(within) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return Some(line);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("no line with {text:?}; seen: {:#?}", self.seen),
            }
        }
    }

    /// Waits until the nodes of `exobus dev` are ready; the URL of this scheme, with "://", where they are.
    pub fn ready_at(&mut self, scheme: &str, within: Duration) -> String {
        let ready = self.wait_for(&format!("ready at {scheme}"), within).unwrap_or_else(|| panic!("{:#?}", self.seen));
        ready.split_whitespace().find(|word| word.starts_with(scheme)).unwrap().to_owned()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end; the exit code and everything that was said.
    pub fn end(mut self, within: Duration) -> (Option<i32>, Vec<String>) {
        // The outputs close when the process and all that inherited them have ended.
        assert_eq!(self.wait_for("\u{0}never", within), None);
        (self.child.wait().unwrap().code(), std::mem::take(&mut self.seen))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes of this machine whose command line holds `text`.
pub fn processes_with(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(text) && entry.file_name() != OsStr::new(&std::process::id().to_string()) {
            found.push(line);
        }
    }
    found
}

/// The node that was started with this configuration.
pub fn node_process(config: &Path) -> rustix::process::Pid {
    let wanted = format!("--config {}", config.display());
    let of = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // What starts it is another process for a moment.
        (line.contains(&wanted) && !line.contains("run-with-parent")).then_some(pid)
    };
    let pid: i32 = std::fs::read_dir("/proc").unwrap().flatten().find_map(of).expect("the node runs");
    rustix::process::Pid::from_raw(pid).unwrap()
}
