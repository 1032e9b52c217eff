//! One job from start to end: its Owner, its program, and who tells the Owner of nodes.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use tokio::sync::oneshot;

use super::JobEnd;
use crate::event::{Event, EventKind, EventSink};
use crate::futures::{Choices, Futures, FuturesParts, NodeShape, ProgramCall};
use crate::ids::{JobId, NodeId};
use crate::node::NodeParts;
use crate::owner::{self, OwnerActor, OwnerMsg, OwnerParts};
use crate::scheduler::{NodeInfo, SchedulerMsg};
use crate::shell;
use crate::task::JobError;

/// How long the Scheduler may take to say which nodes there are.
const NODES_DEADLINE: Duration = Duration::from_secs(10);

/// Runs `program` as the job `job`, on the current arbiter, and returns when everything of it is over, or the life of the
/// node is.
pub(crate) async fn run<'a>(
    node: &NodeParts,
    job: JobId,
    tenant: Arc<str>,
    name: &str,
    events: Option<EventSink>,
    program: impl FnOnce(Futures) -> LocalBoxFuture<'a, Result<Vec<u8>, JobError>>,
) -> JobEnd {
    tokio::select! {
        biased;
        end = run_to_its_end(node, job, tenant, name, events, program) => {
            node.over.add(job);
            end
        }
        // Not over for good: it may be run again, elsewhere.
        reason = node.life.over() => JobEnd::failed(JobError::Runtime { reason: reason.to_string() }),
    }
}

async fn run_to_its_end<'a>(
    node: &NodeParts,
    job: JobId,
    tenant: Arc<str>,
    name: &str,
    events: Option<EventSink>,
    program: impl FnOnce(Futures) -> LocalBoxFuture<'a, Result<Vec<u8>, JobError>>,
) -> JobEnd {
    let scheduler = node.scheduler.clone();
    let infos = match scheduler.ask(|reply| SchedulerMsg::ListNodes { reply }, NODES_DEADLINE).await {
        Ok(infos) => infos,
        Err(error) => return JobEnd::failed(JobError::Runtime { reason: error.to_string() }),
    };
    let mut functions: BTreeMap<Arc<str>, Vec<NodeId>> = BTreeMap::new();
    for info in infos.iter().filter(|info| info.up) {
        for function in &info.spec.functions {
            functions.entry(function.clone()).or_default().push(info.spec.node.clone());
        }
    }
    let shape = |info: &NodeInfo| NodeShape {
        node: info.spec.node.clone(),
        cpu_milli: info.spec.resources.get("cpu"),
        memory_bytes: info.spec.memory_bytes,
    };
    let nodes = infos.iter().filter(|info| info.up).map(shape).collect();

    if let Some(events) = &events {
        let kind = EventKind::JobStarted { program: name.to_owned() };
        events.emit(Event { at_us: 0, node: node.post.node().clone(), job: Some(job), kind });
    }
    let (done, ended) = oneshot::channel();
    let owner = shell::spawn(
        &node.post,
        &owner::actor_name(job),
        OwnerActor::new(OwnerParts {
            post: node.post.clone(),
            job,
            tenant,
            scheduler,
            store: node.store.clone(),
            stager: node.stager.clone(),
            cluster: infos,
            events,
            figures: node.figures.clone(),
            done,
        }),
    );
    let futures = Futures::new(FuturesParts {
        job,
        owner: owner.clone(),
        store: node.store.clone(),
        functions,
        nodes,
        choices: Choices::default(),
        // Odd, and different for every job; what it gives is in the log.
        seed: job.as_u128() as u64 ^ (job.as_u128() >> 64) as u64,
        clock: node.post.clock().clone(),
    });

    let mut changes = node.directory.changes();
    let mut reigns = node.scheduler.changes();
    let watch = async {
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                Ok(()) = reigns.changed() => {
                    let _ = owner.send(OwnerMsg::NewReign);
                    continue;
                }
            };
            match change {
                Ok(change) => {
                    let (node, incarnation, state) = (change.node, change.incarnation, change.state);
                    let _ = owner.send(OwnerMsg::NodeState { node, incarnation, state });
                }
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                Err(tokio::sync::broadcast::error::RecvError::Closed) => std::future::pending::<()>().await,
            }
        }
    };
    let drive = async {
        let result = AssertUnwindSafe(program(futures)).catch_unwind().await;
        let result = result.unwrap_or_else(|panic| Err(JobError::Panic { message: crate::panic_text(&*panic) }));
        let _ = owner.send(OwnerMsg::Program(ProgramCall::Finished(result)));
        std::future::pending::<()>().await
    };
    // The Owner has the last word: it ends the job when the program does, or before, when it cannot go on.
    let outcome = tokio::select! {
        biased;
        outcome = ended => outcome,
        () = drive => unreachable!("it waits for ever after it has told the Owner"),
        () = watch => unreachable!("it waits for ever"),
    };
    match outcome {
        Ok(outcome) => JobEnd {
            result: outcome.result.map(bytes::Bytes::from),
            owner_bytes: outcome.owner_bytes_peak,
            control_messages: outcome.nodes.values().map(|figures| figures.control_messages).sum(),
            nodes: outcome.nodes,
        },
        Err(_) => JobEnd::failed(JobError::Runtime { reason: "the job's owner ended without a word".to_owned() }),
    }
}
