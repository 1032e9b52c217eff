//! What changes something: handing jobs in, telling them something, and ending them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::Message;
use exobus_files::Location;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::answer::{ApiError, Standing, json_message};
use super::door::{Asked, Door, EXPLAIN, JOB, SAMPLE_MS, WHO};
use super::look;
use crate::causes;
use crate::ids::JobId;
use crate::joblog::{PLAN, SPEC_TEXT};
use crate::jobs::book::INLINE_BYTES_MAX;
use crate::protocol;
use crate::protocol::host::HostMsg;
use crate::protocol::job::{Bodies, Carried, Digest, JobRecord, JobState, Pieces, Reason, Submission, WORDS_BYTES_MAX};
use crate::protocol::scheduler::{NodeInfo, SchedulerMsg};
use crate::registry::{Paths, Roots};
use crate::spec::{Plan, Spec, SpecCode, SpecError, shown};
use crate::words::Word;

/// How long it is waited for the end of a job that is cancelled.
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// A spec with which nothing is wrong, and what came of it.
pub(super) struct Planned<T> {
    pub(super) spec: Spec,
    pub(super) paths: Paths,
    pub(super) plan: T,
}

/// A spec with which nothing is wrong, as `plan` finds that may look below these roots; `None`: its program is one that only other nodes
/// know, and one of them answers.
pub(super) async fn planned<T: Send + 'static>(
    door: &Door,
    asked: &Asked<'_>,
    plan: fn(&Spec, &Roots) -> Result<T, SpecError>,
) -> Result<Option<Planned<T>>, ApiError> {
    let error = match planned_here(door, asked, plan).await {
        Err(error) if error.code == SpecCode::UnknownKind.token() && !asked.is_handed_on => error,
        planned => return planned.map(Some),
    };
    let Ok(spec) = Spec::parse(&asked.message.payload) else { return Err(error) };
    let is_it =
        |function: &str| function == spec.kind || function.rsplit_once('@').is_some_and(|(name, _)| name == spec.kind);
    let knows = |info: &&NodeInfo| info.up && info.spec.functions.iter().any(|function| is_it(function));
    let nodes = look::nodes(door).await?;
    let knowing = nodes.iter().find(knows).ok_or(error)?;
    door.hand_on(asked, &knowing.spec.node).map(|()| None)
}

/// Looks at everything that can be wrong with a spec.
async fn planned_here<T: Send + 'static>(
    door: &Door,
    asked: &Asked<'_>,
    plan: fn(&Spec, &Roots) -> Result<T, SpecError>,
) -> Result<Planned<T>, ApiError> {
    let payload = asked.message.payload.clone();
    if payload.is_empty() {
        return Err(ApiError::new("bad_spec", "the request is empty: a spec is TOML or JSON"));
    }
    let roots = door.tenant(&asked.tenant)?.roots.clone();
    let work = move || {
        let spec = Spec::parse(&payload)?;
        // Before anything of the files is looked at.
        let paths = spec.paths()?;
        paths.reads.iter().chain(&paths.writes).try_for_each(|path| {
            allowed(&roots, path)?;
            let system = Location::from(path).system();
            system.map(drop).map_err(|error| ApiError::new(SpecCode::Invalid.token(), causes(&error)))
        })?;
        let plan = plan(&spec, &roots)?;
        Ok(Planned { spec, paths, plan })
    };
    // Kinds look at files.
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(ApiError::unavailable(error.to_string())))
}

/// Whether jobs may use a path. One that is relative is relative to nothing that whoever hands a job in knows; what a URL names is below
/// no root, unless it is a file of this machine.
pub(super) fn allowed(roots: &Roots, path: &Path) -> Result<(), ApiError> {
    let forbidden = |text: String| Err(ApiError::new("forbidden_path", text));
    let location = Location::from(path);
    if location.as_path().is_some_and(|path| !path.is_absolute()) {
        return forbidden(format!("{}: a path of a job of a cluster begins with /", shown(&path.to_string_lossy())));
    }
    roots.check(location.as_ref()).or_else(|error| forbidden(causes(&error)))
}

/// The name of a client, as he says it, cut to what a record has of it.
fn words(text: &str) -> String {
    let mut words = String::new();
    for char in text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }) {
        if words.len() + char.len_utf8() > WORDS_BYTES_MAX {
            break;
        }
        words.push(char);
    }
    words
}

/// Hands a job in.
pub(super) async fn submit(door: &Door, asked: &Asked<'_>) -> Result<Option<Message>, ApiError> {
    let explains = asked.header(EXPLAIN).is_some();
    let plan = if explains { Spec::explain_within } else { Spec::plan_within };
    let Some(Planned { spec, plan, .. }) = planned(door, asked, plan).await? else { return Ok(None) };
    let spec = if explains { without_key(spec) } else { spec };
    let job = match asked.header(JOB) {
        None => new_job(door),
        Some(wanted) => {
            let wanted = wanted.parse::<JobId>().ok().filter(|job| wanted.len() == 32 && !job.is_taken());
            wanted.ok_or_else(|| ApiError::new("bad_request", format!("{JOB} is no id of a job")))?
        }
    };
    standing(accept(door, asked, (job, spec, plan)).await?).map(Some)
}

/// A spec as a job has it that explains it: its key stands for the job itself.
pub(super) fn without_key(spec: Spec) -> Spec {
    Spec { key: None, ..spec }
}

pub(super) fn new_job(door: &Door) -> JobId {
    JobId::made(door.parts.post.clock().unix_ms(), door.parts.random.next_u128())
}

/// What the Scheduler says of a job that is to run a plan of a spec.
pub(super) async fn accept(
    door: &Door,
    asked: &Asked<'_>,
    (job, spec, plan): (JobId, Spec, Plan),
) -> Result<Result<crate::protocol::job::Standing, Reason>, ApiError> {
    let text = spec.canonical();
    if spec.name.as_ref().is_some_and(|name| name.len() > WORDS_BYTES_MAX) {
        let text = format!("a name has at most {WORDS_BYTES_MAX} bytes");
        return Err(ApiError { at: Some("name".into()), ..ApiError::new("invalid", text) });
    }
    offered(door, &plan).await?;
    let record = JobRecord {
        name: spec.name,
        who: asked.header(WHO).map(words),
        key: spec.key,
        priority: spec.priority,
        limit_ms: spec.timeout.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        sample_ms: asked.header(SAMPLE_MS).and_then(|ms| ms.parse().ok()).unwrap_or(0),
        spec: Digest::of(&text),
        plan: Digest::of(&plan.params),
        ..JobRecord::queued(job, &asked.tenant, &spec.kind, &plan.program)
    };
    let carried = carried(door, job, text, plan).await?;
    let in_pieces = matches!(carried, Carried::Pieces(_));
    let submission = Box::new(Submission { record, carried });
    let accept = |reply| SchedulerMsg::Accept { submission: submission.clone(), reply };
    let answer = door.scheduler(accept).await?;
    let is_none = match &answer {
        Ok(standing) => standing.job != job,
        // Of another reason for a refusal the id may be another job's, which needs its log.
        Err(reason) => reason.code == "quota",
    };
    if in_pieces && is_none {
        // Nobody needs what was put into the log of a job that is none.
        forget(door, job).await;
    }
    Ok(answer)
}

fn standing(answer: Result<crate::protocol::job::Standing, Reason>) -> Result<Message, ApiError> {
    let crate::protocol::job::Standing { job, state, known } = answer?;
    Ok(json_message(&Standing { job: job.to_string(), state, known }))
}

/// Whether some node has the program, and one what its tasks need.
pub(super) async fn offered(door: &Door, Plan { program, needs, .. }: &Plan) -> Result<(), ApiError> {
    let nodes = look::nodes(door).await?;
    let up: Vec<&NodeInfo> = nodes.iter().filter(|info| info.up).collect();
    if up.is_empty() {
        return Ok(());
    }
    if !up.iter().any(|info| info.spec.functions.iter().any(|function| **function == **program)) {
        let names: Vec<&str> = nodes.iter().map(|info| info.spec.node.as_str()).collect();
        return Err(ApiError::new("unknown_function", format!("no node offers {program}: {}", names.join(", "))));
    }
    // One that is away may come back.
    if !nodes.iter().any(|info| info.spec.resources.times(needs) > 0) {
        let has: Vec<_> = nodes.iter().map(|info| format!("{} has {}", info.spec.node, info.spec.resources)).collect();
        let text = format!("a task needs {needs}, which no node has: {}", has.join("; "));
        return Err(ApiError::new("unplaceable", text));
    }
    Ok(())
}

async fn forget(door: &Door, job: JobId) {
    let Ok(Some(logs)) = door.parts.logs.get().await else { return };
    if let Err(error) = logs.forget(job).await {
        debug!(job_id = %job, error = causes(&error), "what was put into the log of a job that was refused is not removed");
    }
}

/// What a job is handed in with: small ones go with the record, others into the job's log first.
async fn carried(door: &Door, job: JobId, text: Vec<u8>, plan: Plan) -> Result<Carried, ApiError> {
    if text.len() + plan.params.len() <= INLINE_BYTES_MAX {
        return Ok(Carried::Here(Bodies { spec: text.into(), plan: plan.params }));
    }
    let failed = |error: &dyn std::error::Error| {
        ApiError::unavailable(format!("the job cannot be written down now: {}", causes(error)))
    };
    let Some(logs) = door.parts.logs.get().await.map_err(|error| failed(&error))? else {
        let text = format!(
            "spec and plan have {} bytes together; without JetStream they may have {INLINE_BYTES_MAX}",
            text.len() + plan.params.len()
        );
        return Err(ApiError::new("too_large", text));
    };
    let spec = logs.put_pieces(job, SPEC_TEXT, &text).await.map_err(|error| failed(&error))?;
    let plan = logs.put_pieces(job, PLAN, &plan.params).await.map_err(|error| failed(&error))?;
    Ok(Carried::Pieces(Pieces { spec, plan }))
}

/// Tells the program of a job something; answered when it has heard that.
pub(super) async fn tell(door: &Door, asked: &Asked<'_>) -> Result<Message, ApiError> {
    let request = look::Request::parse(&asked.message.payload)?;
    let word = request.word.ok_or_else(|| {
        let words = Word::ALL.map(|word| format!("{:?}", word.token())).join(" or ");
        ApiError::new("bad_request", format!("the request says nothing to the job: {{\"word\": {words}}}"))
    })?;
    let job = look::job_of(door, asked, &request).await?;
    let known = look::known(door, asked, job).await?;
    let JobRecord { state, host, .. } = known.record();
    let heard = match host {
        Some(host) if *state > JobState::Queued => {
            let address = door.parts.post.address::<HostMsg>(host, protocol::host::ACTOR);
            address.ask(|reply| HostMsg::Tell { job, word, reply }, look::HOST_DEADLINE).await.ok().flatten()
        }
        _ => None,
    };
    match heard {
        Some(true) => Ok(json_message(&Standing { job: job.to_string(), state: *state, known: false })),
        _ if state.is_over() => {
            Err(ApiError::new("over", format!("job {job} is over: it has {state}, and hears nothing any more")))
        }
        Some(false) => {
            let text = format!(
                "job {job} does not listen: it shows nothing before its end, not yet, or not any more since it has read everything"
            );
            Err(ApiError::new("not_listening", text))
        }
        None if *state < JobState::Running => {
            Err(ApiError::new("not_running", format!("job {job} is {state}: it shows nothing yet")))
        }
        None => Err(ApiError::unavailable(format!("the host of job {job} does not answer: ask again"))),
    }
}

/// Ends a job; answered when it is over, or with how it stands until then.
pub(super) async fn cancel(door: &Door, asked: &Asked<'_>, work: OwnedSemaphorePermit) -> Result<Message, ApiError> {
    let request = look::Request::parse(&asked.message.payload)?;
    let job = look::job_of(door, asked, &request).await?;
    let (tenant, who): (Arc<str>, _) = (asked.tenant.clone(), asked.header(WHO).map(words));
    let until = Instant::now() + CANCEL_WAIT;
    let mut pause = Duration::from_millis(20);
    // Who waits keeps nobody from being worked for; beyond what may wait it is answered with what there is.
    let waits = door.waits.clone().try_acquire_owned().ok();
    drop(work);
    loop {
        let cancel = |reply| SchedulerMsg::Cancel { tenant: tenant.clone(), job, who: who.clone(), reply };
        let answer = door.scheduler(cancel).await?;
        if answer.as_ref().is_ok_and(|standing| !standing.state.is_over()) && waits.is_some() && Instant::now() < until
        {
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(250));
            continue;
        }
        return standing(answer);
    }
}
