//! A job in this process: a node that is alone, without bus and sockets.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use exobus_actors::{
    event::EventSink,
    futures::Futures,
    ids::NodeId,
    joblog::LogsLink,
    node::{Node, NodeOptions},
    protocol::host::{JobEnd, JobSpec},
    task::JobError,
    words::{Word, Words},
};
use exobus_queries::snapshot::Snapshot;
use futures::future::{Either, select};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    commands::{
        kept::{self, Stop},
        node::{failure, options, options_within},
    },
    config::NodeSection,
    enough::EnoughKey,
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    objects,
    temporary::Temporary,
};

/// How soon it is tried again to say something to a program that does not listen yet.
const LISTENS_AGAIN: Duration = Duration::from_millis(20);

/// Who attends a job.
pub(super) struct Attended<'a> {
    /// What Ctrl-C is seen by.
    pub(super) interrupt: &'a Interrupt,
    /// What says that somebody has seen enough.
    pub(super) key: &'a EnoughKey,
    /// Whether somebody has it go on that has seen enough.
    pub(super) goes_on: bool,
}

/// How a job is kept that has seen enough.
pub(super) struct Kept<'a> {
    /// Where its store has its files.
    pub(super) folder: &'a Path,
    /// Sees when it has stopped; `None`: it goes on, and is not kept a second time.
    pub(super) stop: Option<&'a Stop>,
}

/// What became of a job.
pub(super) enum Ran<T> {
    /// It is over.
    Over(Box<(Result<T, JobError>, JobEnd)>),
    /// It has stopped, with this; it is kept.
    Stopped(Box<Snapshot>),
}

/// Runs a program under `spec`, logged where `logs` leads; on the first Ctrl-C cancels its job and waits until everything is
/// put away. When the key is pressed its program is told that somebody has seen enough. One that is kept and stops is brought to disk, and left.
pub(super) fn run<T: Serialize + DeserializeOwned + 'static>(
    section: &NodeSection,
    spec: JobSpec,
    logs: LogsLink,
    program: impl AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
    events: EventSink,
    attended: Attended<'_>,
    kept: Option<Kept<'_>>,
) -> Result<Ran<T>, Failure> {
    let options = NodeOptions { logs, ..options(section, NodeId::new("local"))? };
    let words = Words::default();
    let said = words.clone();
    let (over, is_over) = mpsc::channel::<Infallible>();
    if attended.goes_on {
        let said = words.clone();
        let say = move || {
            // A program that is run again listens when it is so far.
            while !said.say(Word::GoOn) && is_over.recv_timeout(LISTENS_AGAIN) == Err(RecvTimeoutError::Timeout) {}
        };
        std::thread::Builder::new().name("words".into()).spawn(say).or_exit(Exit::InputOutput)?;
    }
    let interrupted = async {
        let pressing = std::pin::pin!(async {
            let mut pressed = 0;
            loop {
                pressed = attended.key.pressed(pressed).await;
                // Where nobody listens any more everything was read.
                said.say(Word::Enough);
            }
        });
        let _: Either<((), _), (Infallible, _)> = select(std::pin::pin!(attended.interrupt.wait()), pressing).await;
    };
    let ran = run_on((options, kept), section, spec, program, (Some(events), words, interrupted));
    drop(over);
    ran
}

/// Runs a program under `spec` without a log as a part of somebody's process, whose allocator and signals are left alone.
pub(crate) fn alone<T: Serialize + DeserializeOwned + 'static>(
    section: &NodeSection,
    spec: JobSpec,
    program: impl AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
) -> Result<Result<T, JobError>, Failure> {
    alone_watched(section, spec, program, (None, Words::default(), std::future::pending()))
}

/// The same, with events for whoever looks, words that its program is told, and until somebody interrupts it.
pub(crate) fn alone_watched<T: Serialize + DeserializeOwned + 'static>(
    section: &NodeSection,
    spec: JobSpec,
    program: impl AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
    watched: (Option<EventSink>, Words, impl Future<Output = ()>),
) -> Result<Result<T, JobError>, Failure> {
    objects::register_by_itself();
    let (options, _) = options_within(section, NodeId::new("local"))?;
    match run_on((options, None), section, spec, program, watched)? {
        Ran::Over(over) => Ok(over.0),
        Ran::Stopped(_) => unreachable!("it is not kept"),
    }
}

fn run_on<T: Serialize + DeserializeOwned + 'static>(
    (mut options, kept): (NodeOptions, Option<Kept<'_>>),
    section: &NodeSection,
    spec: JobSpec,
    program: impl AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
    (events, words, interrupted): (Option<EventSink>, Words, impl Future<Output = ()>),
) -> Result<Ran<T>, Failure> {
    let spill = match &kept {
        None => {
            let spill = SpillFolders::make(section)?;
            options.store.spill_dirs = spill.paths();
            Some(spill)
        }
        Some(Kept { folder, .. }) => {
            let made = std::fs::create_dir_all(folder).or_exit(Exit::InputOutput);
            made.map_err(|failure| failure.context(format!("make {}", folder.display())))?;
            options.store.spill_dirs = vec![folder.to_path_buf()];
            options.store.keep_files = true;
            None
        }
    };
    let node = Node::start(options).map_err(failure)?;

    let job = spec.job;
    let outcome = futures::executor::block_on(async {
        let stopped = std::pin::pin!(async {
            match kept.as_ref().and_then(|kept| kept.stop) {
                Some(stop) => stop.stopped().await,
                None => std::future::pending().await,
            }
        });
        let running = std::pin::pin!(node.run_told(spec, (events, words), program));
        let interrupted = std::pin::pin!(interrupted);
        match select(running, select(interrupted, stopped)).await {
            Either::Left((over, _)) => Ran::Over(Box::new(over)),
            Either::Right((Either::Left(((), _)), running)) => {
                node.cancel(job);
                Ran::Over(Box::new(running.await))
            }
            Either::Right((Either::Right((snapshot, _)), _)) => Ran::Stopped(Box::new(snapshot)),
        }
    });
    if let (Ran::Stopped(_), Some(Kept { stop: Some(stop), .. })) = (&outcome, &kept) {
        kept::put_away(&node, job, stop);
        // A node that stops in order has its programs let go of what they have made. This one is left as one that is killed: the job is found so by who has it go on.
        std::mem::forget(node);
        return Ok(outcome);
    }
    // Before the folders go: the store closes its files first.
    node.stop();
    drop(spill);
    Ok(outcome)
}

/// A folder of our own in each of the user's, so that two sorts never meet.
struct SpillFolders {
    own: Vec<Temporary>,
    /// Folders of the user that were made for us.
    made: Vec<PathBuf>,
}

impl SpillFolders {
    fn make(section: &NodeSection) -> Result<Self, Failure> {
        let mut folders = Self { own: Vec::new(), made: Vec::new() };
        for parent in section.spill_dirs_or(crate::machine::big_temporary_folder) {
            let context = |failure: Failure| failure.context(format!("make a spill folder in {}", parent.display()));
            if !parent.exists() {
                std::fs::create_dir_all(&parent).or_exit(Exit::InputOutput).map_err(context)?;
                folders.made.push(parent.clone());
            }
            let own = Temporary::make(&parent, "exobus-spill-").or_exit(Exit::InputOutput).map_err(context)?;
            folders.own.push(own);
        }
        Ok(folders)
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.own.iter().map(|folder| folder.path().to_owned()).collect()
    }
}

impl Drop for SpillFolders {
    fn drop(&mut self) {
        self.own.clear();
        for folder in &self.made {
            // Only the folder itself and only when it is empty.
            let _ = std::fs::remove_dir(folder);
        }
    }
}
