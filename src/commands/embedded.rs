//! A job in this process: a node that is alone, without bus and sockets.

use std::path::PathBuf;

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
use futures::future::{Either, select};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    commands::node::{failure, options, options_within},
    config::NodeSection,
    enough::EnoughKey,
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    objects,
    temporary::Temporary,
};

/// Runs a program under `spec`, logged where `logs` leads; on the first Ctrl-C cancels its job and waits until everything is
/// put away. When the key is pressed its program is told that somebody has seen enough.
pub(super) fn run<T: Serialize + DeserializeOwned + 'static>(
    section: &NodeSection,
    spec: JobSpec,
    logs: LogsLink,
    program: impl AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
    events: EventSink,
    (interrupt, key): (&Interrupt, &EnoughKey),
) -> Result<(Result<T, JobError>, JobEnd), Failure> {
    let options = NodeOptions { logs, ..options(section, NodeId::new("local"))? };
    let words = Words::default();
    let said = words.clone();
    let interrupted = async {
        let pressing = std::pin::pin!(async {
            let mut pressed = 0;
            loop {
                pressed = key.pressed(pressed).await;
                // Where nobody listens any more everything was read.
                said.say(Word::Enough);
            }
        });
        let _: Either<((), _), (std::convert::Infallible, _)> =
            select(std::pin::pin!(interrupt.wait()), pressing).await;
    };
    run_on(options, section, spec, program, (Some(events), words, interrupted))
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
    let (result, _) = run_on(options, section, spec, program, watched)?;
    Ok(result)
}

fn run_on<T: Serialize + DeserializeOwned + 'static>(
    mut options: NodeOptions,
    section: &NodeSection,
    spec: JobSpec,
    program: impl AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
    (events, words, interrupted): (Option<EventSink>, Words, impl Future<Output = ()>),
) -> Result<(Result<T, JobError>, JobEnd), Failure> {
    let spill = SpillFolders::make(section)?;
    options.store.spill_dirs = spill.paths();
    let node = Node::start(options).map_err(failure)?;

    let job = spec.job;
    let outcome = futures::executor::block_on(async {
        let running = std::pin::pin!(node.run_told(spec, (events, words), program));
        let interrupted = std::pin::pin!(interrupted);
        match select(running, interrupted).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(((), running)) => {
                node.cancel(job);
                running.await
            }
        }
    });
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
