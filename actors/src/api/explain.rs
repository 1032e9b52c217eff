//! What would come of a spec.

use std::path::PathBuf;
use std::time::Duration;

use exobus_bus::Message;
use exobus_files::FileError;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use super::answer::{ApiError, json_message};
use super::door::{Asked, Door};
use super::look;
use super::submit::{Planned, accept, allowed, new_job, offered, planned, without_key};
use crate::causes;
use crate::protocol::job::Digest;
use crate::registry::{Paths, Roots};
use crate::spec::{Field, Plain, Plan, Spec, SpecCode, SpecError, Takes, kinds};

/// What a job would take is looked for that long: who asks over the bus does not wait for ever.
const COST_WITHIN: Duration = Duration::from_secs(4);

/// What would run, unless it is not said where to, and what explains it, unless nothing does.
type Explained = (Option<Plan>, Result<Plan, SpecError>);

fn explained(spec: &Spec, roots: &Roots) -> Result<Explained, SpecError> {
    match (spec.plan_within(roots), spec.explain_within(roots)) {
        (Ok(plan), explained) => Ok((Some(plan), explained)),
        (Err(error), Ok(explained)) if is_output(spec, &error) => Ok((None, Ok(explained))),
        (Err(error), _) => Err(error),
    }
}

/// Whether nothing is wrong but that it is not said where the output goes.
fn is_output(spec: &Spec, error: &SpecError) -> bool {
    let fields = kinds().get(spec.kind.as_str()).map_or(&[][..], |kind| kind.fields);
    let writes = |field: &Field| matches!(field.takes, Takes::Writes) && error.at.as_deref() == Some(field.name);
    error.code == SpecCode::Missing && fields.iter().any(writes)
}

/// Says what would come of a spec.
pub(super) async fn answer(
    door: &Door,
    asked: &Asked<'_>,
    work: OwnedSemaphorePermit,
) -> Result<Option<Message>, ApiError> {
    let Some(Planned { spec, paths, plan: (plan, explained) }) = planned(door, asked, explained).await? else {
        return Ok(None);
    };
    if let Some(plan) = &plan {
        offered(door, plan).await?;
    }
    let nodes = look::nodes(door).await?;
    let up: Vec<_> = nodes.iter().filter(|info| info.up).collect();
    let Paths { reads, writes } = plan.as_ref().map_or(paths, |plan| {
        let Plan { reads, writes, .. } = plan.clone();
        Paths { reads, writes }
    });
    let roots = door.tenant(&asked.tenant)?.roots.clone();
    let inputs = reads.clone();
    let found = tokio::task::spawn_blocking(move || files_of(&inputs, &roots)).await;
    let input = match found.unwrap_or_else(|error| Err(error.to_string())) {
        Ok((files, bytes)) => json!({ "files": files, "bytes": bytes }),
        Err(error) => json!({ "error": error }),
    };
    let waiting = look::jobs_before(door, &asked.tenant, spec.priority).await?;
    // Who waits keeps nobody from being worked for.
    drop(work);
    let cost = match explained {
        Ok(explained) => cost(door, asked, (&spec, explained)).await,
        Err(error) => json!({ "unknown": error.message }),
    };
    let shown = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    let digest =
        |plan: &Plan| json!({ "bytes": plan.params.len(), "hash": format!("{:032x}", Digest::of(&plan.params).hash) });
    Ok(Some(json_message(&json!({
        "kind": spec.kind,
        "program": plan.as_ref().map(|plan| &plan.program),
        "reads": shown(&reads),
        "writes": shown(&writes),
        "spec_bytes": spec.canonical().len(),
        "needs": plan.as_ref().map(|plan| &plan.needs),
        "plan": plan.as_ref().map(digest),
        "input": input,
        "cost": cost,
        "jobs_before": waiting,
        "nodes": up.len(),
        "executors_milli": up.iter().map(|info| info.spec.resources.get("cpu")).sum::<u64>(),
        "memory_bytes": up.iter().map(|info| info.spec.memory_bytes).sum::<u64>(),
    }))))
}

/// What the kind of a spec expects the job to take: its bytes, stages, and an estimate of each way to run it. A job finds that out, which may read
/// files: one like any other, with its turn and its quotas.
async fn cost(door: &Door, asked: &Asked<'_>, (spec, plan): (&Spec, Plan)) -> Value {
    let Ok(_waits) = door.waits.clone().try_acquire_owned() else {
        return json!({ "error": ApiError::unavailable("too many wait at this node: ask again") });
    };
    found_out(door, asked, (spec, plan)).await.unwrap_or_else(|error| json!({ "error": error }))
}

async fn found_out(door: &Door, asked: &Asked<'_>, (spec, plan): (&Spec, Plan)) -> Result<Value, ApiError> {
    let (until, mut pause) = (Instant::now() + COST_WITHIN, Duration::from_millis(4));
    let job = accept(door, asked, (new_job(door), without_key(spec.clone()), plan)).await??.job;
    loop {
        let known = look::known(door, asked, job).await?;
        if known.record().state.is_over() {
            let end = look::end_of(door, known.record()).await?;
            let value = end.result.map_err(|error| ApiError::new(error.code(), error.to_string()))?;
            let Plain(value) = Plain::of(&value).map_err(|error| ApiError::new("unreadable", error.to_string()))?;
            return Ok(value);
        }
        if Instant::now() + pause > until {
            let text = format!(
                "it is not known within {} s: job {job} goes on to find that out, and its `value` says it",
                COST_WITHIN.as_secs()
            );
            return Err(ApiError::unavailable(text));
        }
        sleep(pause).await;
        pause = (2 * pause).min(Duration::from_millis(100));
    }
}

/// Files that are counted at most.
const FILES_MAX: u64 = 100_000;

/// Why files are counted no further.
enum Uncounted {
    /// There are enough.
    Enough,
    /// Jobs may not look there.
    Forbidden(ApiError),
    Unreadable(FileError),
}

impl From<FileError> for Uncounted {
    fn from(error: FileError) -> Self {
        Self::Unreadable(error)
    }
}

/// How many files there are below these names, and their bytes, as far as jobs may look.
fn files_of(inputs: &[PathBuf], roots: &Roots) -> Result<(u64, u64), String> {
    let (mut files, mut bytes) = (0, 0);
    let visited = exobus_files::visit_table_files(
        (inputs, true),
        |at| allowed(roots, at.as_ref()).map_err(Uncounted::Forbidden),
        |_, status, _| {
            files += 1;
            bytes += status.bytes;
            if files < FILES_MAX { Ok(()) } else { Err(Uncounted::Enough) }
        },
    );
    match visited {
        Ok(()) | Err(Uncounted::Enough) => Ok((files, bytes)),
        Err(Uncounted::Forbidden(error)) => Err(error.message),
        Err(Uncounted::Unreadable(error)) => Err(causes(&error)),
    }
}
