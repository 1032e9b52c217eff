//! Every message that crosses the bus: survives it, and stays far under its limit.

use std::collections::BTreeMap;

use bytes::Bytes;
use exobus_bus::codec;

use crate::event::Received;
use crate::protocol::copies::{CopyIds, LocatedObjects, Whereabouts};
use crate::protocol::host::{HostMsg, JobSpec};
use crate::protocol::membership::MembershipMsg;
use crate::protocol::merger::MergerMsg;
use crate::protocol::node_manager::{NodeMsg, SET_MEMBERS_PER_MESSAGE};
use crate::protocol::owner::OwnerMsg;
use crate::protocol::scheduler::{HeldLease, JobDemand, Lease, NodeSpec, SchedulerMsg, Shape, Wait};

use crate::ids::{Attempt, CopyNumber, Epoch, Incarnation, JobId, LeaseId, NodeId, ObjectId, RowHash, SetId, TaskId};

use crate::shell::{Reply, Wire};
use crate::task::{
    Consumed, LocatedArg, LocatedSource, Loss, LostObject, Output, Parts, Resources, StillRunning, TaskFailure,
    TaskSpec,
};

/// The last number that a copy can have.
const LAST: CopyNumber = CopyNumber::new(CopyNumber::RUNS - 1, CopyNumber::PER_RUN).unwrap();

fn lease(node: &NodeId, incarnation: Incarnation) -> Lease {
    Lease {
        id: LeaseId(1),
        epoch: Epoch(1),
        version: 1,
        job: JobId::from_u128(1),
        node: node.clone(),
        incarnation,
        resources: Resources::cpu(2000),
        lasts_ms: 4000,
    }
}

fn owner_messages(
    node: &NodeId,
    incarnation: Incarnation,
    task: TaskId,
    attempt: Attempt,
    output: Output,
) -> Vec<OwnerMsg> {
    let node = || node.clone();
    let lost = LostObject { object: object(usize::MAX), number: LAST, node: node(), loss: Loss::Unreachable };
    let failure = TaskFailure::argument_lost("in: no such file", vec![lost; 1000]);
    let lease = lease(&node(), incarnation);
    let never = Shape { node: Some(node()), function: Some("f@1".into()), ..Shape::anywhere(Resources::cpu(1), 1) };
    let wait = Wait { reason: "needs 1 gpu, cluster has 0".into(), never: Some(Box::new(never)) };
    vec![
        OwnerMsg::Leases { epoch: Epoch(u64::MAX), leases: Some(vec![lease]), wait: Some(wait) },
        OwnerMsg::Completed {
            node: node(),
            incarnation,
            task,
            attempt,
            outputs: vec![output],
            consumed: vec![Consumed { arg: 0, read: output, ..Consumed::default() }],
            figures: Box::default(),
            values: vec![(0, Bytes::from_static(b"small"))],
        },
        OwnerMsg::Yielded { node: node(), incarnation, task, attempt, index: 0, output },
        OwnerMsg::Failed { node: node(), incarnation, task, attempt, failure, figures: Some(Box::default()) },
        OwnerMsg::Recalled { node: node(), incarnation, task, attempt },
        OwnerMsg::Rejected { node: node(), task, attempt, reason: "node: depth 33, at most 32".into() },
        OwnerMsg::TakenOver { run: 1 },
        OwnerMsg::Inventory {
            node: node(),
            incarnation,
            copies: copies(1),
            makers: vec![u32::MAX],
            outputs: vec![Default::default()],
            last: true,
        },
        OwnerMsg::SetUnknown { node: node(), set: SetId::from_u128(8) },
        OwnerMsg::NodeFigures {
            node: node(),
            figures: Box::default(),
            received: vec![Received { from: node(), bytes: u64::MAX, micros: u64::MAX }],
            last: true,
            running: vec![StillRunning { task, attempt: Attempt::of(LAST), micros: u64::MAX }; 1000],
        },
        OwnerMsg::FoldDue { node: node(), lane: 1, blocks: copies(3), bytes: u64::MAX, tight: true },
        OwnerMsg::Why { ask: true, reply: Reply::to(node(), u64::MAX) },
        OwnerMsg::Cancel,
    ]
}

fn object(number: usize) -> ObjectId {
    ObjectId::from_u128((number as u128) << 32)
}

fn copies(many: usize) -> CopyIds {
    (0..many).map(|number| object(number).copy(JobId::from_u128(1), LAST)).collect()
}

fn located(many: usize, node: &NodeId) -> LocatedObjects {
    (0..many).map(|number| (object(number), Whereabouts::At(node.clone(), LAST))).collect()
}

/// `many`: how many entries each list has.
fn merger_messages(job: JobId, node: &NodeId, many: usize) -> Vec<MergerMsg> {
    let ranges = vec![Parts::Range(0, u32::MAX); many];
    vec![
        MergerMsg::Open { job, owner: node.clone(), lane: u32::MAX, ranges, fold_at: u32::MAX },
        MergerMsg::Push { job, lane: 0, objects: located(many, node) },
        MergerMsg::EndJob { job },
    ]
}

/// `many`: how many entries each list has.
fn node_messages(job: JobId, task: TaskId, set: SetId, attempt: Attempt, node: &NodeId, many: usize) -> Vec<NodeMsg> {
    let source = LocatedSource::Object { object: object(4), at: Some((node.clone(), LAST)) };
    let of_set = LocatedArg { source: LocatedSource::Set { set, version: u32::MAX }, parts: Parts::All };
    let mut args = vec![LocatedArg { source, parts: Parts::Range(0, 1) }; many.min(256)];
    args.last_mut().into_iter().for_each(|last| *last = of_set.clone());
    let spec = TaskSpec {
        attempt,
        params: Bytes::from_static(b"\x80"),
        args,
        whole_max_bytes: u64::MAX,
        ..TaskSpec::plain(job, task, "sort.map@1")
    };
    let (start, total) = (0, many as u32);
    vec![
        NodeMsg::Run { owner: node.clone(), spec: spec.into() },
        NodeMsg::DefineSet { job, run: 1, set, version: u32::MAX, start, total, members: located(many, node) },
        NodeMsg::Recall { job, tasks: vec![(task, attempt); many] },
        NodeMsg::Cancel { job, task, attempt },
        NodeMsg::Free { job, copies: copies(many) },
        NodeMsg::FreeParts { job, run: 1, set, version: u32::MAX, parts: Parts::Range(0, 1) },
        NodeMsg::EndJob { job },
        NodeMsg::Watch { job, owner: node.clone(), sample_ms: u64::MAX, tenant: "t".into() },
        NodeMsg::Doing { job, attempts: vec![(task, attempt); many], reply: Reply::to(node.clone(), u64::MAX) },
    ]
}

fn scheduler_messages(job: JobId, node: &NodeId, incarnation: Incarnation) -> Vec<SchedulerMsg> {
    let spec = NodeSpec {
        node: node.clone(),
        incarnation,
        resources: Resources::cpu(2000),
        labels: BTreeMap::new(),
        functions: vec!["sort.map@1".into()],
        data_address: "127.0.0.1:7000".into(),
        memory_bytes: 1 << 30,
    };
    let lease = lease(node, incarnation);
    vec![
        SchedulerMsg::NodeUp(spec),
        SchedulerMsg::SubmitJob {
            job,
            tenant: "default".into(),
            functions: vec!["sort@1".into()],
            reply: Reply::to(node.clone(), 1),
        },
        SchedulerMsg::Demand(JobDemand {
            job,
            tenant: "default".into(),
            owner: node.clone(),
            incarnation,
            sequence: 1,
            shapes: vec![Shape::anywhere(Resources::cpu(1000), 8)],
            leases: Vec::new(),
            held: vec![HeldLease { lease, in_use: Resources::cpu(1000) }],
        }),
        SchedulerMsg::JobDone { job },
        SchedulerMsg::JobsOver { jobs: vec![job; 3] },
        SchedulerMsg::Holds { node: node.clone(), jobs: vec![job; 3] },
        SchedulerMsg::ListNodes { reply: Reply::to(node.clone(), 2) },
        SchedulerMsg::ListJobs { settled: true, reply: Reply::to(node.clone(), 3) },
    ]
}

/// What the codec takes at most.
const LIMIT_BYTES: usize = 256 * 1024;

fn check<M: Wire + std::fmt::Debug>(message: &M) {
    let bytes = codec::encode(message).unwrap();
    let decoded: M = codec::decode(&bytes).unwrap();
    assert_eq!(format!("{decoded:?}"), format!("{message:?}"));
}

#[test]
fn every_message_survives_the_wire() {
    let (node, task, attempt) = (NodeId::new("n"), TaskId::from_u128(u128::MAX), Attempt::of(LAST));
    let output = Output { bytes: u64::MAX, rows: u64::MAX, row_hash: RowHash(u128::MAX) };
    owner_messages(&node, Incarnation(u64::MAX), task, attempt, output).iter().for_each(check);
    node_messages(JobId::from_u128(9), task, SetId::from_u128(8), attempt, &node, 3).iter().for_each(check);
    scheduler_messages(JobId::from_u128(9), &node, Incarnation(1)).iter().for_each(check);
    merger_messages(JobId::from_u128(9), &node, 3).iter().for_each(check);
}

#[test]
fn the_largest_message_of_each_kind_stays_far_under_the_limit() {
    let node = NodeId::new(&"n".repeat(64));
    let (job, task, set) = (JobId::from_u128(u128::MAX), TaskId::from_u128(u128::MAX), SetId::from_u128(1));
    for message in node_messages(job, task, set, Attempt::of(LAST), &node, SET_MEMBERS_PER_MESSAGE) {
        let bytes = codec::encode(&message).unwrap().len();
        assert!(bytes < LIMIT_BYTES * 3 / 4, "{bytes} bytes: {:.80?}", message);
    }
    for message in merger_messages(job, &node, SET_MEMBERS_PER_MESSAGE) {
        let bytes = codec::encode(&message).unwrap().len();
        assert!(bytes < LIMIT_BYTES * 3 / 4, "{bytes} bytes: {:.80?}", message);
    }
}

#[test]
fn what_hosts_clients_and_members_say_survives_the_wire() {
    let (job, node) = (JobId::from_u128(1), NodeId::new("n1"));
    let spec = JobSpec {
        job,
        tenant: "default".into(),
        program: "sort@1".into(),
        params: Bytes::from_static(b"\x80"),
        sample_ms: 100,
        plan_pieces: 0,
    };
    let record = Box::new(crate::protocol::job::JobRecord::queued(job, "default", "sort", "sort@1"));
    let bodies = crate::protocol::job::Bodies { spec: Bytes::new(), plan: spec.params };
    check(&HostMsg::Run { record, bodies: crate::protocol::job::BodiesAt::Here(bodies) });
    check(&HostMsg::Resume { job });
    check(&HostMsg::Tell { job, word: crate::words::Word::Enough, reply: Reply::to(node.clone(), 7) });
    let look = crate::protocol::host::Look { after: 3, wait_ms: 100, events: 10, estimate: false };
    check(&HostMsg::Look { job, look, reply: Reply::to(node, 7) });
}

#[test]
fn a_task_without_arguments_is_small_on_the_wire() {
    let node = NodeId::new("n1");
    let (job, task, set) = (JobId::from_u128(1), TaskId::from_u128(2), SetId::from_u128(3));
    let run = &node_messages(job, task, set, Attempt::nth(1), &node, 0)[0];
    let bytes = codec::encode(run).unwrap().len();
    assert!(bytes < 400, "{bytes} bytes");
}

/// One `Tick` of a stranger would have started a second timer of the Owner, for ever.
#[test]
fn what_an_actor_tells_itself_has_no_form_on_the_wire() {
    fn refused<M: Wire>(words: &[&str]) {
        for word in words {
            // Not that what follows does not fit: that there is no such word.
            let unknown = |bytes: Bytes| {
                let error = codec::decode::<M>(&bytes).err().map(|error| error.to_string()).unwrap_or_default();
                error.contains(&format!("unknown variant `{word}`"))
            };
            let with_fields = BTreeMap::from([(*word, BTreeMap::<&str, u8>::new())]);
            assert!(unknown(codec::encode(word).unwrap()), "{} takes {word}", M::PROTOCOL);
            assert!(unknown(codec::encode(&with_fields).unwrap()), "{} takes {word} with fields", M::PROTOCOL);
        }
    }
    refused::<OwnerMsg>(&[
        "Tick",
        "Settle",
        "Close",
        "NewEpoch",
        "NodeState",
        "SessionReset",
        "Log",
        "Told",
        "Program",
    ]);
    refused::<NodeMsg>(&["Tick", "Sample", "Staged", "Executor"]);
    refused::<MembershipMsg>(&["Tick", "Leave", "Speak", "Refused"]);
    refused::<MergerMsg>(&["Tight", "Look", "Take", "News"]);
    refused::<SchedulerMsg>(&["Tick", "StepDown", "NodeDown", "Gathered", "Look", "Elected", "Unfinished"]);
    refused::<HostMsg>(&["Ended"]);
    let cancel = codec::decode::<OwnerMsg>(&codec::encode(&"Cancel").unwrap());
    assert!(matches!(cancel, Ok(OwnerMsg::Cancel)), "such words are understood where there are any");
}
