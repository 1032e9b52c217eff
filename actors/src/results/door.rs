//! The door: requests from outside on `api.<tenant>.result`, and those that other nodes hand on to who has the bytes.
//!
//! Any node may get a request. It looks up the record, and answers what the record knows; bytes are read by the node that has them, to which the
//! request is handed on (`node.<node>.result`), and which answers the client itself. A request that is lost on the way is missed by its client
//! alone, who asks again.

use std::collections::BTreeSet;
use std::sync::Arc;

use exobus_bus::auth::sign;
use exobus_bus::{BusError, Delivery, Message, SubscribeOptions, Subscription};
use exobus_store::{Beside, StoreError};
use tokio::sync::Semaphore;
use tracing::{debug, warn};
use twox_hash::XxHash3_128;

use super::list::Latest;
use super::record::{FilePlace, FileRecord, MemberRecord, ResultRecord, kept_name};
use super::records::{RecordsError, Scanned};
use super::request::{self, Code, Op, Refused, Request, TicketInfo, TicketMember, hex};
use super::{READS_MAX, ResultsParts, WAITING_BYTES, holder};
use crate::causes;
use crate::ids::{JobId, NodeId};
use crate::protocol::results::{ACTOR, ResultsMsg};
use crate::transfer::TransferTicket;

/// The queue group of the nodes of a cluster.
pub(crate) const QUEUE: &str = "results";
/// Header of a request that another node has handed on: for whom it is.
const TENANT: &str = "Exo-Tenant";
/// Header of it: how often that was done.
const HANDED_ON: &str = "Exo-Handed-On";
/// What that adds to a request.
const HANDED_ON_BYTES: usize = 512;
/// A result moves while nodes leave: a request follows it so often.
const HANDED_ON_MAX: u32 = 4;
/// How long a ticket opens the data ports, from when it was asked for.
const TICKET_FOR_MS: u64 = 5 * 60 * 1000;

/// Answers requests from now on, as long as the current arbiter lives.
pub(super) async fn open(parts: &ResultsParts) -> Result<(), BusError> {
    let options = SubscribeOptions {
        queue: Some(QUEUE.to_owned()),
        capacity_bytes: WAITING_BYTES,
        ..SubscribeOptions::small(request::REQUEST_BYTES_MAX)
    };
    let all = parts.subjects.every_api(request::VERB)?;
    let outside = parts.bus.subscribe(all, options.clone()).await?;
    let own = parts.subjects.node(parts.post.node().as_str(), request::VERB)?;
    let handed_on = parts
        .bus
        .subscribe(
            own.into(),
            SubscribeOptions {
                queue: None,
                message_bytes_max: request::REQUEST_BYTES_MAX + HANDED_ON_BYTES,
                ..options
            },
        )
        .await?;
    let reads = Arc::new(Semaphore::new(READS_MAX));
    actix_rt::spawn(serve(parts.clone(), outside, reads.clone(), true));
    actix_rt::spawn(serve(parts.clone(), handed_on, reads, false));
    Ok(())
}

/// Answers requests; those from outside are `counted`.
async fn serve(parts: ResultsParts, mut requests: Subscription, reads: Arc<Semaphore>, counted: bool) {
    while let Some(delivery) = requests.recv().await {
        // Who asks for more than can be read waits in the subscription, which is bounded.
        let Ok(permit) = reads.clone().acquire_owned().await else { return };
        let parts = parts.clone();
        actix_rt::spawn(async move {
            let clock = parts.post.clock();
            let begun = clock.now();
            let answer = asked(&parts, &delivery).await;
            if counted {
                let error =
                    answer.as_ref().err().map(|refused| format!("{}: {}", refused.code.token(), refused.message));
                parts.calls.note(clock.now().saturating_sub(begun), error);
            }
            let answer = match answer {
                Ok(Some(answer)) => answer,
                Ok(None) => return,
                Err(refused) => request::refusal(&refused),
            };
            if let Err(error) = delivery.try_reply(answer) {
                debug!(subject = %delivery.subject, %error, "a request about a result is not answered");
            }
            drop(permit);
        });
    }
}

/// For whom a request is, and how often it was handed on.
fn origin(delivery: &Delivery) -> Option<(Arc<str>, u32)> {
    match delivery.message.headers.get(TENANT) {
        // Only nodes speak on subjects of nodes, and what comes from outside says on its subject for whom it is.
        Some(tenant) if delivery.subject.tokens().nth(3) == Some("node") => {
            let count = delivery.message.headers.get(HANDED_ON).and_then(|count| count.parse().ok());
            Some((tenant.into(), count.unwrap_or(HANDED_ON_MAX)))
        }
        _ => Some((request::tenant_of(&delivery.subject)?.into(), 0)),
    }
}

/// What is answered; `None`: another node answers.
async fn asked(parts: &ResultsParts, delivery: &Delivery) -> Result<Option<Message>, Refused> {
    let payload = &delivery.message.payload;
    let request = request::parse(payload)?;
    let (tenant, handed_on) =
        origin(delivery).ok_or_else(|| Refused::new(Code::BadRequest, "the subject names no tenant"))?;
    if request.op == Op::List {
        return list(parts, &tenant).await.map(Some);
    }
    let job = request.job()?;
    let length = request.length()?;
    let record = parts.records.get(&tenant, job).await.map_err(unavailable)?;
    let mut record = record.ok_or_else(|| Refused::unknown(&job.to_string()))?;
    if is_elsewhere(parts, &record, &request) {
        // What is remembered of the record may be from before the result was handed over.
        record = parts.records.now(&tenant, job).await.map_err(unavailable)?.unwrap_or(record);
    }
    let now = parts.post.clock().unix_ms();
    match request.op {
        Op::Stat => {
            request::in_time(&record, now)?;
            Ok(Some(request::json(&request::info(job, &record, true))))
        }
        Op::Delete => delete(parts, &tenant, job).await.map(Some),
        Op::Ticket => {
            let (_, file) = request::file_of(&record, &request.file, now)?;
            ticket(parts, job, file, now).map(Some)
        }
        Op::Read | Op::List => {
            let (_, file) = request::file_of(&record, &request.file, now)?;
            let (place, headers) = (file.place(request.offset), headers(file, request.offset));
            let (member, begins) = match place {
                FilePlace::AtEnd => return Ok(Some(request::answer(Vec::new(), &headers))),
                FilePlace::Beyond => return Err(beyond(file, &request)),
                FilePlace::In { member, begins } => (&file.members[member as usize], begins),
            };
            if member.node != *parts.post.node() {
                return hand_on(parts, delivery, (&tenant, handed_on), &member.node).map(|()| None);
            }
            read(parts, job, member, (request.offset, length, begins), headers).await.map(Some)
        }
    }
}

/// Whether a node that has bytes which are asked for is not there, as the record says: where they are read the one that has these, where a ticket is
/// asked for any.
fn is_elsewhere(parts: &ResultsParts, record: &ResultRecord, request: &Request) -> bool {
    let Some((_, file)) = record.file(&request.file) else { return false };
    let is_gone = |member: &MemberRecord| parts.directory.is_gone(&member.node);
    match (request.op, file.place(request.offset)) {
        (Op::Ticket, _) => file.members.iter().any(is_gone),
        (Op::Read, FilePlace::In { member, .. }) => is_gone(&file.members[member as usize]),
        _ => false,
    }
}

fn unavailable(error: RecordsError) -> Refused {
    let causes = causes(&error);
    match error.is_unreadable() {
        true => Refused::new(Code::Unreadable, causes),
        false => Refused::new(Code::Unavailable, format!("what results there are cannot be looked up now: {causes}")),
    }
}

fn beyond(file: &FileRecord, request: &Request) -> Refused {
    let has = if file.complete { "has" } else { "has so far" };
    let text = format!(
        "offset {} is beyond the end of file {:?}, which {has} {} bytes",
        request.offset,
        file.name,
        file.bytes()
    );
    Refused::new(Code::OffsetBeyondEnd, text)
}

/// What is said of a file beside its bytes.
fn headers(file: &FileRecord, offset: u64) -> Vec<(&'static str, String)> {
    let mut headers = vec![
        (request::OFFSET, offset.to_string()),
        (request::COMPLETE, file.complete.to_string()),
        (request::AVAILABLE, file.bytes().to_string()),
    ];
    if file.complete {
        headers.push((request::TOTAL, file.bytes().to_string()));
    }
    headers.extend(request::file_hash(file).map(|hash| (request::FILE_HASH, hash)));
    headers
}

/// Bytes of a member that is here.
async fn read(
    parts: &ResultsParts,
    job: JobId,
    member: &MemberRecord,
    (offset, length, begins): (u64, u64, u64),
    mut headers: Vec<(&'static str, String)>,
) -> Result<Message, Refused> {
    let (store, name) = (parts.store.clone(), kept_name(job, member.kept));
    // Until it is handed to the bus it is this node's memory.
    let mut beside = store.told(Beside::Tables);
    beside.set(length);
    let work = move || {
        let bytes = holder::read_member(&store, &name, offset - begins, length)?;
        let hash = XxHash3_128::oneshot(&bytes);
        drop(beside);
        Ok::<_, StoreError>((bytes, hash))
    };
    let read = tokio::task::spawn_blocking(work).await;
    let read = read.map_err(|error| Refused::new(Code::Unavailable, format!("the thread that read ended: {error}")))?;
    let (bytes, hash) = read.map_err(|error| {
        warn!(job_id = %job, %error, "bytes of a result cannot be read");
        let text = format!("node {} does not have these bytes any more: {error}", parts.post.node());
        Refused::new(Code::Lost, text)
    })?;
    headers.extend([
        (request::HASH, hex(hash)),
        (request::MEMBER_OFFSET, begins.to_string()),
        (request::MEMBER_BYTES, member.bytes.to_string()),
        (request::MEMBER_HASH, hex(member.hash)),
    ]);
    Ok(request::answer(bytes, &headers))
}

/// Has the node answer that has the bytes.
fn hand_on(
    parts: &ResultsParts,
    delivery: &Delivery,
    (tenant, handed_on): (&str, u32),
    to: &NodeId,
) -> Result<(), Refused> {
    if parts.directory.is_gone(to) || parts.directory.data_address(to).is_none() {
        return Err(gone(to));
    }
    if handed_on >= HANDED_ON_MAX {
        return Err(Refused::new(Code::Unavailable, "the result moves from node to node: ask again"));
    }
    let Some(reply) = delivery.inbox() else {
        return Err(Refused::new(Code::BadRequest, "the request names no inbox for its answer"));
    };
    let failed =
        |error: BusError| Refused::new(Code::Unavailable, format!("node {to}, which has it, cannot be asked: {error}"));
    let subject = parts.subjects.node(to.as_str(), request::VERB).map_err(|error| failed(error.into()))?;
    let message = Message::new(delivery.message.payload.clone());
    let headers = [(TENANT, tenant.to_owned()), (HANDED_ON, (handed_on + 1).to_string())];
    let message = headers.iter().try_fold(message, |message, (name, value)| message.with_header(name, value));
    let message = message.map_err(|error| Refused::new(Code::BadRequest, error.to_string()))?;
    parts.bus.publish_with_reply(subject, reply.clone(), message).map_err(failed)
}

fn gone(node: &NodeId) -> Refused {
    let text = format!(
        "node {node}, which has these bytes, is not there; they are there again when it is started with its spill folders before the time of the result is over"
    );
    Refused::new(Code::Unreachable, text)
}

async fn list(parts: &ResultsParts, tenant: &str) -> Result<Message, Refused> {
    let now = parts.post.clock().unix_ms();
    let take = |latest: &mut Latest, scanned| match scanned {
        Scanned::Record((_, job, Ok(record))) if record.is_over(now) => latest.remove(job),
        Scanned::Record((_, job, Ok(record))) => latest.insert(job, request::info(job, &record, false)),
        Scanned::Record((_, job, Err(error))) => latest.insert_unreadable(job, causes(&error)),
        Scanned::Gone(_, job) => latest.remove(job),
    };
    let latest = parts.records.fold(Some(tenant), Latest::default, take).await.map_err(unavailable)?;
    Ok(request::json(&latest.into_list()))
}

/// Nothing of it is there from now on.
async fn delete(parts: &ResultsParts, tenant: &str, job: JobId) -> Result<Message, Refused> {
    let record = parts.records.remove(tenant, job).await.map_err(unavailable)?;
    let nodes: BTreeSet<NodeId> = record.iter().flat_map(|record| record.nodes().cloned()).collect();
    tell_to_drop(parts, job, nodes);
    Ok(request::json(&serde_json::json!({ "deleted": record.is_some() })))
}

/// Tells nodes that nobody needs a result.
pub(super) fn tell_to_drop(parts: &ResultsParts, job: JobId, nodes: impl IntoIterator<Item = NodeId>) {
    for node in nodes {
        // Who is not told sweeps it.
        if let Err(error) = parts.post.address::<ResultsMsg>(&node, ACTOR).send(ResultsMsg::Drop { job }) {
            debug!(job_id = %job, %error, "a node is not told to drop a result");
        }
    }
}

/// What opens the data ports of who has the members of a file.
fn ticket(parts: &ResultsParts, job: JobId, file: &FileRecord, now_unix_ms: u64) -> Result<Message, Refused> {
    if parts.data_token.is_empty() {
        return Err(Refused::new(Code::Unavailable, "this node is alone and has no data port"));
    }
    let until_unix_ms = now_unix_ms + TICKET_FOR_MS;
    let ticket = TransferTicket { group: job.result_group(), until_unix_ms };
    let member = |member: &MemberRecord| {
        let address = match member.node == *parts.post.node() {
            true => Some(parts.data_address.clone()),
            false => parts.directory.data_address(&member.node).filter(|_| !parts.directory.is_gone(&member.node)),
        };
        Ok(TicketMember {
            node: member.node.to_string(),
            address: if member.bytes == 0 { String::new() } else { address.ok_or_else(|| gone(&member.node))? },
            object: hex(kept_name(job, member.kept).bits),
            bytes: member.bytes,
            hash: hex(member.hash),
        })
    };
    let members = file.members.iter().map(member).collect::<Result<_, _>>()?;
    Ok(request::json(&TicketInfo {
        ticket: ticket.signed(|text| sign(&parts.data_token, TransferTicket::PURPOSE, text)),
        until_unix_ms,
        group: hex(job.result_group()),
        members,
        complete: file.complete,
    }))
}
