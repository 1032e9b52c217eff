//! Nodes whose executors are processes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use exobus_actors::event::{Event, EventKind};
use exobus_actors::futures::Futures;
use exobus_actors::isolation::{ExecutorKind, Isolation};
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::task::JobError;

use crate::common::run_on;

/// How long something may take that is bound to happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Processes that run [`executor_process`](crate::executor_process).
pub fn isolation(executor: ExecutorKind) -> Isolation {
    let arguments = ["--exact", "executor_process", "--nocapture", "--test-threads=1"];
    Isolation { executor, arguments: arguments.map(Into::into).to_vec(), ..Isolation::default() }
}

pub struct World {
    pub node: Arc<Node>,
    folder: tempfile::TempDir,
}

impl World {
    pub fn new(executor: ExecutorKind, executors: usize, memory_bytes: u64) -> Self {
        // With `EXOBUS_LOG=debug` tests show what their nodes do, and when.
        if let Ok(filter) = tracing_subscriber::EnvFilter::try_from_env("EXOBUS_LOG") {
            let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_test_writer().try_init();
        }
        let folder = tempfile::tempdir().unwrap();
        let mut options = NodeOptions::alone(executors, memory_bytes);
        options.store.spill_dirs = vec![folder.path().join("spill")];
        options.isolation = isolation(executor);
        Self { node: Arc::new(Node::start(options).unwrap()), folder }
    }

    /// One executor with a process.
    pub fn one() -> Self {
        Self::new(ExecutorKind::Process, 1, 64 << 20)
    }

    /// A path that nothing is at.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a program; also what the failed attempts said.
    pub fn run<T, P>(&self, program: P) -> (Result<T, JobError>, Vec<String>)
    where
        P: AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
        T: Send + 'static,
    {
        let (result, _, events) = run_on(&self.node, program);
        let failure = |event: Event| match event.kind {
            EventKind::TaskFailed { error, .. } => Some(error),
            _ => None,
        };
        (result, events.into_iter().filter_map(failure).collect())
    }

    /// Nothing is held once jobs are over, whatever became of their processes. What a process that waits for the next task has is nobody's.
    pub fn assert_nothing_is_held(&self) {
        until(|| {
            let stats = self.node.store().stats();
            (stats.pinned_bytes, stats.granted_bytes, stats.objects) == (0, 0, 0)
        });
    }
}

/// Gives others their turn until this is so.
#[track_caller]
pub fn until(mut so: impl FnMut() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let wait = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        runtime.block_on(async { tokio::time::timeout(PATIENCE, wait).await }).is_ok(),
        "it comes about within its time"
    );
}

/// What a file has, once it has a whole line.
pub fn line_of(path: &Path) -> String {
    let mut text = String::new();
    until(|| {
        text = std::fs::read_to_string(path).unwrap_or_default();
        text.ends_with('\n')
    });
    text.trim().to_owned()
}

/// The same, for programs.
pub async fn line_in(path: &Path) -> String {
    let line = async {
        loop {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if text.ends_with('\n') {
                return text.trim().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, line).await.expect("it is written within its time")
}

/// Whether there is a process of this id that has not ended.
pub fn lives(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Processes that this one has started and not taken leave of, dead ones included.
pub fn children() -> Vec<u32> {
    let me = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.split_whitespace().nth(1) == Some(&me))
    };
    processes.filter(is_child).collect()
}

/// What this process has open, but for the folder that is looked at.
pub fn descriptors() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let mut open: Vec<_> = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect();
    open.retain(|path| !path.ends_with("fd"));
    open.sort();
    open
}

/// A memory control group.
pub struct ControlGroup(PathBuf);

impl ControlGroup {
    /// `None`: the machine has none to be had, and it was said what is missing. Where it has, one is made.
    pub fn new() -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let groups = Path::new("/sys/fs/cgroup/memory");
        let version = groups.join("memory.limit_in_bytes");
        let root = rustix::process::geteuid().is_root();
        if !root || !version.exists() {
            let version = version.display();
            eprintln!("not tried: it needs root (is: {root}) and {version} (memory control groups, version 1)");
            return None;
        }
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let group = Self(groups.join(format!("exobus-test-{}-{number}", std::process::id())));
        std::fs::create_dir(&group.0).unwrap();
        Some(group)
    }

    pub fn limit(&self, bytes: u64) {
        std::fs::write(self.0.join("memory.limit_in_bytes"), bytes.to_string()).unwrap();
    }

    /// From now on this process is in it.
    pub fn take(&self, process: &str) {
        std::fs::write(self.0.join("cgroup.procs"), process).unwrap();
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // What was killed in it may take a moment to go.
        until(|| std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().is_empty());
        let _ = std::fs::remove_dir(&self.0);
    }
}
