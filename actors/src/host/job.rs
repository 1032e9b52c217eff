//! One run of a job, from its start to its end: its Owner, its program, and who tells the Owner of nodes.
//!
//! When the end is in the log, and before anybody is told, what the job took outside (a claimed output folder) is given back (`clean_up`, which calls what
//! programs have left with `Futures::when_over`: of output folders, in `shuffle/src/jobs/outputs.rs`); where the host dies in between, the next one
//! does it (`accept` in `host/mod.rs`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::{oneshot, watch};
use tracing::warn;

use super::close;
use crate::admission::Ticket;
use crate::event::{Event, EventKind, EventSink};
use crate::futures::{Choices, CleanUp, Compute, Futures, FuturesParts, KeepCalls, OtherJobs, ProgramCall};
use crate::host::NodeParts;
use crate::ids::{Incarnation, JobId, JobSecret, NodeId};
use crate::joblog::NodeShape;
use crate::joblog::Run;
use crate::membership::Change;
use crate::owner::{JobOutcome, OwnerActor, OwnerEvent, OwnerLog, OwnerParts};
use crate::printing::Printer;
use crate::protocol;
use crate::protocol::host::JobEnd;
use crate::protocol::results::JobKept;
use crate::protocol::scheduler::{Leader, NodeInfo, SchedulerMsg};

use crate::results::{Keeper, KeeperParts, discard};
use crate::shell::{self, Inbox};
use crate::task::JobError;
use crate::words::Words;

/// How long the Scheduler may take to say which nodes there are.
pub(crate) const NODES_DEADLINE: Duration = Duration::from_secs(10);

/// A run of a job that is about to begin.
pub(crate) struct JobRun {
    pub(crate) job: JobId,
    pub(crate) tenant: Arc<str>,
    pub(crate) name: String,
    pub(crate) events: Option<EventSink>,
    /// Its log, if it has one.
    pub(crate) log: Option<Box<Run>>,
    /// Whether it may begin.
    pub(crate) admission: Ticket,
    /// What people say to its program.
    pub(crate) words: Words,
    /// Called when the job is over, after what its program has asked for: see [`Program`](crate::registry::Program).
    pub(crate) give_back: Option<CleanUp>,
}

/// How a run ended.
pub(crate) enum RunEnd {
    /// With its job.
    Over(JobEnd),
    /// Without it: the job is run again, here or elsewhere.
    Abandoned(String),
}

/// What of an error a program has worded itself may have secrets of the node in it; those of tasks are worded where they ran.
fn without_secrets(mut error: JobError, printer: &Printer) -> JobError {
    if let JobError::Program { message, .. } | JobError::Panic { message } = &mut error {
        printer.hide(message);
    }
    error
}

impl RunEnd {
    /// How it ended, for who cannot run the job again.
    pub(crate) fn job_end(self) -> JobEnd {
        match self {
            Self::Over(end) => end,
            Self::Abandoned(reason) => JobEnd::failed(JobError::Runtime { reason }),
        }
    }
}

impl JobRun {
    /// Runs `program` on the current arbiter, and returns when everything of the job is over, and noted in its log, or the incarnation
    /// of the node is.
    pub(crate) async fn run<'a>(
        self,
        node: &NodeParts,
        program: impl FnOnce(Futures) -> LocalBoxFuture<'a, Result<Vec<u8>, JobError>>,
    ) -> RunEnd {
        let infos = match node.scheduler.ask(|reply| SchedulerMsg::ListNodes { reply }, NODES_DEADLINE).await {
            Ok(infos) => infos,
            // It may be run elsewhere, or later.
            Err(error) if self.log.is_some() => return RunEnd::Abandoned(error.to_string()),
            Err(error) => return RunEnd::Over(JobEnd::failed(JobError::Runtime { reason: error.to_string() })),
        };
        let Self { job, tenant, name, events, log, admission, words, give_back } = self;
        if let Some(events) = &events {
            let kind = EventKind::JobStarted { program: name };
            events.emit(Event { at_us: 0, node: node.post.node().clone(), job: Some(job), kind });
        }
        let (done, ended) = oneshot::channel();
        let (settled, may_begin) = oneshot::channel();
        let (logs, runs) = log.as_ref().map_or((None, 0), |run| (Some(run.logs.clone()), run.past.runs));
        let secret = log.as_ref().map_or_else(|| JobSecret::new(&*node.random), |run| run.head.secret());
        let mut choices = Choices::default();
        let log = log.map(|run| {
            choices = Choices::replaying(run.past.choices.clone());
            OwnerLog { run: *run, settled }
        });
        let (functions, nodes) = (offers(&infos), shapes(&infos));
        admission.brings(known_bytes(&infos));
        let admission = Arc::new(admission);
        let printer = node.printing.of_program(job, &tenant);
        let hides = printer.clone();
        let for_whom: Arc<str> = tenant.clone();
        let quotas = node.tenants.quotas_of(&tenant);
        let (keeps, to_keep) = KeepCalls::queue();
        let owner = shell::spawn(
            &node.post,
            &protocol::owner::actor_name(job),
            OwnerActor::new(OwnerParts {
                post: node.post.clone(),
                job,
                tenant,
                scheduler: node.scheduler.clone(),
                store: node.store.clone(),
                stager: node.stager.clone(),
                cluster: infos,
                events,
                figures: node.figures.clone(),
                admission: admission.clone(),
                done,
                log,
                log_quota_bytes: quotas.job_log_bytes.unwrap_or(node.log_quota_bytes),
                quotas,
            }),
        );
        let futures = Futures::new(FuturesParts {
            job,
            secret,
            run: runs,
            owner: owner.inlet(),
            store: node.store.clone(),
            functions,
            nodes,
            choices,
            // Odd, and different for every run of every job; what it gives is in the log.
            seed: (job.as_u128() as u64 ^ (job.as_u128() >> 64) as u64).rotate_left(runs),
            clock: node.post.clock().clone(),
            compute: node.compute.clone(),
            printer,
            home: node.home.clone(),
            others: OtherJobs::new(node.scheduler.clone(), node.logs.clone()),
            keeps,
            words,
        });
        let handle = futures.clone();
        let keeper = KeeperParts { results: node.results.clone(), futures: futures.clone(), tenant: for_whom.clone() };
        let keeping = Keeper::new(keeper).run(to_keep);
        let kept = Cell::new(None);
        let changes = (node.directory.changes(), node.directory.resets(), node.scheduler.changes());
        let mut drive = Box::pin(async {
            // Nobody holds the other end where nothing has to be found again.
            let _ = may_begin.await;
            admission.admitted().await;
            let program = async {
                let result = AssertUnwindSafe(program(futures)).catch_unwind().await;
                let result =
                    result.unwrap_or_else(|panic| Err(JobError::Panic { message: crate::panic_text(&*panic) }));
                result.map_err(|error| without_secrets(error, &hides))
            };
            let (result, outcome) = with_keeper(program, keeping, || handle.end_keeping()).await;
            kept.set(outcome);
            let _ = owner.send(OwnerEvent::Program(ProgramCall::Finished(result)));
            std::future::pending::<()>().await
        });
        // The Owner has the last word: it ends the job when the program does, or before, when it cannot go on.
        let outcome = tokio::select! {
            biased;
            outcome = ended => outcome.map_err(|_| "the job's owner ended without a word".to_owned()),
            reason = node.running.over() => Ok(JobOutcome::Abandoned { reason: reason.to_string() }),
            () = &mut drive => unreachable!("it waits for ever after it has told the Owner"),
            () = tell_changes(changes, &owner) => unreachable!("it waits for ever"),
        };
        drop(drive);
        let clean_ups: Vec<CleanUp> = handle.take_clean_ups().into_iter().rev().chain(give_back).collect();
        match outcome {
            Ok(JobOutcome::Over { result, nodes, owner_bytes_peak }) => {
                // Before others are told that it is over.
                clean_up(&*node.compute, clean_ups).await;
                node.over.add(job);
                let kept = match &result {
                    Ok(_) => kept.take(),
                    Err(_) => {
                        if handle.has_kept() {
                            discard(&node.results, &for_whom, job).await;
                        }
                        None
                    }
                };
                let end = JobEnd {
                    result: result.map(bytes::Bytes::from),
                    owner_bytes: owner_bytes_peak,
                    control_messages: nodes.values().map(|figures| figures.control_messages).sum(),
                    nodes,
                    kept,
                };
                if let Some(logs) = logs {
                    close(&logs, job, &end).await;
                }
                RunEnd::Over(end)
            }
            Ok(JobOutcome::Abandoned { reason }) | Err(reason) if logs.is_some() => RunEnd::Abandoned(reason),
            Ok(JobOutcome::Abandoned { reason }) | Err(reason) => {
                // Without a log nobody can take it up.
                clean_up(&*node.compute, clean_ups).await;
                RunEnd::Over(JobEnd::failed(JobError::Runtime { reason }))
            }
        }
    }
}

/// Calls what is to be called when a job is over, on a thread: an object store answers when it does, and others live on this one.
async fn clean_up(compute: &dyn Compute, clean_ups: Vec<CleanUp>) {
    if clean_ups.is_empty() {
        return;
    }
    let (done, ended) = oneshot::channel();
    let clean_ups = Arc::new(Mutex::new(clean_ups));
    let call_all = |clean_ups: &Mutex<Vec<CleanUp>>| {
        for clean_up in std::mem::take(&mut *clean_ups.lock()) {
            // One that fails so is no reason to leave the others.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(clean_up)) {
                warn!(panic = crate::panic_text(&*panic), "what a job has made outside may not be given back");
            }
        }
    };
    let on_thread = clean_ups.clone();
    let computation = move || {
        call_all(&on_thread);
        let _ = done.send(());
    };
    match compute.begin("exobus-over", Box::new(computation)) {
        // It sends when it ends.
        Ok(()) => drop(ended.await),
        Err(_) => call_all(&clean_ups),
    }
}

/// Runs a program and, beside it, what keeps what it wants kept; `ends` is called when the program has returned. Where it has failed, nobody
/// waits for what is being kept.
async fn with_keeper<T, E>(
    program: impl Future<Output = Result<T, E>>,
    keeping: impl Future<Output = Option<JobKept>>,
    ends: impl FnOnce(),
) -> (Result<T, E>, Option<JobKept>) {
    let (mut program, mut keeping) = (std::pin::pin!(program), std::pin::pin!(keeping));
    let mut kept = None;
    let result = loop {
        tokio::select! {
            biased;
            result = &mut program => break result,
            // It may have given up before.
            outcome = &mut keeping, if kept.is_none() => kept = Some(outcome),
        }
    };
    ends();
    let kept = match (kept, &result) {
        (Some(kept), _) => kept,
        (None, Ok(_)) => keeping.await,
        (None, Err(_)) => None,
    };
    (result, kept)
}

/// What an Owner and a program keep of these nodes, about: the name of each function that each offers, in tables of both.
fn known_bytes(infos: &[NodeInfo]) -> u64 {
    let of = |info: &NodeInfo| size_of::<NodeInfo>() + info.spec.functions.len() * 4 * size_of::<(Arc<str>, NodeId)>();
    infos.iter().map(of).sum::<usize>() as u64
}

/// Which nodes offer each function.
pub(crate) fn offers(infos: &[NodeInfo]) -> BTreeMap<Arc<str>, Vec<NodeId>> {
    let mut functions: BTreeMap<Arc<str>, Vec<NodeId>> = BTreeMap::new();
    for info in infos.iter().filter(|info| info.up) {
        for function in &info.spec.functions {
            functions.entry(function.clone()).or_default().push(info.spec.node.clone());
        }
    }
    functions
}

/// What plans know of the nodes that are up.
pub(crate) fn shapes(infos: &[NodeInfo]) -> Vec<NodeShape> {
    let shape = |info: &NodeInfo| NodeShape {
        node: info.spec.node.clone(),
        cpu_milli: info.spec.resources.get("cpu"),
        memory_bytes: info.spec.memory_bytes,
    };
    infos.iter().filter(|info| info.up).map(shape).collect()
}

/// What an Owner is told of while its job runs: what becomes of nodes, of sessions with them, and of the Scheduler.
type Changes = (Receiver<Change>, Receiver<(NodeId, Incarnation)>, watch::Receiver<Option<Leader>>);

/// Tells the Owner, for ever.
async fn tell_changes((mut changes, mut resets, mut leaders): Changes, owner: &Inbox<OwnerEvent>) {
    let tell_reset = |(node, incarnation)| drop(owner.send(OwnerEvent::SessionReset { node, incarnation }));
    loop {
        let change = tokio::select! {
            reset = resets.recv() => {
                match reset {
                    Ok(reset) => tell_reset(reset),
                    // What so many resets at once have lost is handed out again when the job makes no progress.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => std::future::pending::<()>().await,
                }
                continue;
            }
            change = changes.recv() => {
                // Of resets first: they are about what was said to a node before the Owner heard of the change, which it may answer.
                while let Ok(reset) = resets.try_recv() {
                    tell_reset(reset);
                }
                change
            }
            Ok(()) = leaders.changed() => {
                let _ = owner.send(OwnerEvent::NewEpoch);
                continue;
            }
        };
        match change {
            Ok(change) => {
                let (node, incarnation, state) = (change.node, change.incarnation, change.state);
                let _ = owner.send(OwnerEvent::NodeState { node, incarnation, state });
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending::<()>().await,
        }
    }
}
