//! Jobs that ran on this machine alone and were not finished: each has a log, a file in the user's state folder, as long as
//! it is not over.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use exobus_actors::{
    ids::JobId,
    joblog::{JobLogs, LogsLink},
    protocol::host::JobSpec,
};
use exobus_bus::{
    Bus, BusError, InProcessOptions, Subjects, codec,
    kv::{Kv, KvConfig},
};
use serde::{Deserialize, Serialize};
use tracing::debug;

use crate::exit::{Exit, Failure, OrExit};

/// How long a file of logs may take to open.
const OPEN_DEADLINE: Duration = Duration::from_secs(5);
/// The cluster of a process that is alone.
const CLUSTER: &str = "local";
const ENDING: &str = "log";

/// The log of one job, open; nobody else can have it open meanwhile.
pub struct JobFile {
    path: PathBuf,
    bus: Bus,
    subjects: Subjects,
}

/// How the process was set up that ran a job first: it is taken up again with the same, unless somebody says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Its command line, for people.
    pub command: String,
    /// Byte budget; `None`: a share of what was available.
    pub memory_bytes: Option<u64>,
    /// Folders for spill files; none: the one that is taken when none is set.
    #[serde(with = "exobus_actors::paths")]
    pub spill_dirs: Vec<PathBuf>,
    /// Tasks at a time; 0: two for each cpu.
    pub executors: u32,
    /// The folder in which what it has read is kept when it has stopped, where it is to be.
    #[serde(default, with = "exobus_actors::paths")]
    pub kept: Vec<PathBuf>,
}

/// Where the setup is in the file of a job: bucket and key.
const SETUP: &str = "setup";

/// A job that is not over.
pub enum Unfinished {
    /// Its process lives.
    Runs(JobId),
    /// Its process is gone.
    Stopped(JobFile, Box<JobSpec>, Setup),
    /// What its log says cannot be used.
    Damaged(PathBuf, Failure),
}

/// What the files are opened and removed on: it has no threads of its own, so it needs none of the system's.
///
/// # Errors
/// The system has no descriptors left.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().or_exit(Exit::InputOutput)
}

/// Where the logs are: in the folder for state of the XDG base directory specification.
fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("exobus/jobs"))
}

fn path_of(folder: &Path, job: JobId) -> PathBuf {
    folder.join(format!("{job}.{ENDING}"))
}

impl JobFile {
    /// Makes the log of a new job. `None`: there is nowhere to keep it, so the job cannot be taken up again.
    pub fn make(runtime: &tokio::runtime::Runtime, job: JobId, setup: &Setup) -> Option<Self> {
        let folder = folder()?;
        let made = make_private(&folder).map_err(|error| error.to_string());
        let open = async {
            let file = Self::open(path_of(&folder, job)).await?;
            file.keep(setup).await.map(|()| file)
        };
        let opened = made.and_then(|()| runtime.block_on(open).map_err(|error| error.to_string()));
        opened.inspect_err(|error| debug!(folder = %folder.display(), error, "the job is not logged")).ok()
    }

    async fn open(path: PathBuf) -> Result<Self, BusError> {
        let bus = Bus::in_process_durable(InProcessOptions::default(), &path).await?;
        Ok(Self { path, bus, subjects: Subjects::new(CLUSTER)? })
    }

    async fn keep(&self, setup: &Setup) -> Result<(), BusError> {
        let bytes = codec::encode(setup).map_err(|error| BusError::Config(error.to_string()))?;
        self.setups().await?.put(SETUP, bytes).await.map(drop)
    }

    /// As it was kept; without anything where it was not, or was by another version.
    async fn setup(&self) -> Setup {
        let kept = async { self.setups().await?.get(SETUP).await };
        let kept = kept.await.inspect_err(|error| debug!(%error, "the setup of a job cannot be read")).ok().flatten();
        kept.and_then(|kept| codec::decode(&kept.value).ok()).unwrap_or_default()
    }

    async fn setups(&self) -> Result<Kv, BusError> {
        Kv::open(&self.bus, &KvConfig::new(&self.subjects.durable_name("kv", SETUP)?, self.subjects.kv(SETUP)?)).await
    }

    /// The way to it, for a node.
    pub fn link(&self) -> LogsLink {
        LogsLink::in_file(self.bus.clone(), self.subjects.clone(), self.path.clone())
    }

    /// Removes it: the job is over, or is not to be taken up again.
    pub async fn remove(self) {
        // What is in it is of no use any more.
        let _ = self.bus.drain().await;
        let _ = fs::remove_file(&self.path);
    }

    /// What was accepted, if it is not over.
    async fn spec(&self) -> Result<Option<JobSpec>, Failure> {
        let logs = JobLogs::open(&self.bus, &self.subjects, false, OPEN_DEADLINE).await.or_exit(Exit::InputOutput)?;
        match logs {
            Some(logs) => Ok(logs.unfinished_if_readable().await.or_exit(Exit::InputOutput)?.pop()),
            None => Ok(None),
        }
    }
}

/// Only its user may read what jobs were told.
fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The jobs of this user that are not over, the oldest first.
pub async fn list() -> Vec<Unfinished> {
    let Some(folder) = folder() else { return Vec::new() };
    let mut paths: Vec<_> = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == ENDING));
    // Ids begin with the time.
    paths.sort();
    let mut jobs = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let job = name.parse::<JobId>().ok();
        match (JobFile::open(path.clone()).await, job) {
            (Ok(file), _) => match file.spec().await {
                Ok(Some(spec)) => {
                    let setup = file.setup().await;
                    jobs.push(Unfinished::Stopped(file, Box::new(spec), setup));
                }
                // It was over, or had not begun.
                Ok(None) => {
                    let Setup { kept, .. } = file.setup().await;
                    file.remove().await;
                    kept.iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
                }
                Err(failure) => jobs.push(Unfinished::Damaged(path, failure)),
            },
            (Err(error), Some(job)) if is_locked(&path) => {
                debug!(%job, %error, "the job runs");
                jobs.push(Unfinished::Runs(job));
            }
            (Err(error), _) => jobs.push(Unfinished::Damaged(path, Failure::new(Exit::InputOutput, error))),
        }
    }
    jobs
}

/// Whether another process has the file open: it holds the lock that its database takes.
fn is_locked(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return false };
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
}
