//! A sample of each message. The `match` of each `variant` has no wildcard: a message that is added to a protocol does
//! not compile until it has a line here, and a test asks for its sample.

use std::collections::BTreeMap;

use exobus_actors::{
    event::{NodeFigures, Received},
    ids::{Attempt, CopyNumber, Epoch, Incarnation, JobId, LeaseId, NodeId, ObjectId, RowHash, SetId, TaskId},
    protocol::copies::{CopyIds, LocatedObjects, Whereabouts},
    protocol::host::{HostMsg, Look},
    protocol::job::{Bodies, BodiesAt, Carried, Digest, JobRecord, JobState, Outcome, Submission, Used},
    protocol::membership::{Beat, Figures, MembershipMsg},
    protocol::merger::MergerMsg,
    protocol::node_manager::NodeMsg,
    protocol::owner::OwnerMsg,
    protocol::results::ResultsMsg,
    protocol::scheduler::{JobDemand, Leader, Lease, LeaseUse, NodeSpec, SchedulerMsg, Shape, Wait},
    shell::{Reply, Wire},
    task::{
        Align, Consumed, LocatedArg, LocatedSource, Loss, LostObject, Output, Parts, Resources, Returns, StillRunning,
        TaskFailure, TaskFigures, TaskSpec, TaskTiming,
    },
    words::Word,
};

use super::Sample;

/// All of them, in the order of the protocols' rows in `docs/subjects.md`.
pub(super) fn all() -> anyhow::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for message in scheduler() {
        samples.push(Sample::of(SchedulerMsg::PROTOCOL, scheduler_variant(&message), &message)?);
    }
    for message in host() {
        samples.push(Sample::of(HostMsg::PROTOCOL, host_variant(&message), &message)?);
    }
    for message in owner() {
        samples.push(Sample::of(OwnerMsg::PROTOCOL, owner_variant(&message), &message)?);
    }
    for message in node_manager() {
        samples.push(Sample::of(NodeMsg::PROTOCOL, node_variant(&message), &message)?);
    }
    for message in results() {
        samples.push(Sample::of(ResultsMsg::PROTOCOL, results_variant(&message), &message)?);
    }
    for message in merger() {
        samples.push(Sample::of(MergerMsg::PROTOCOL, merger_variant(&message), &message)?);
    }
    for message in membership() {
        samples.push(Sample::of(MembershipMsg::PROTOCOL, membership_variant(&message), &message)?);
    }
    Ok(samples)
}

fn job() -> JobId {
    JobId::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001)
}

fn task() -> TaskId {
    TaskId::from_u128(0x7a5c)
}

fn node() -> NodeId {
    NodeId::new("n1")
}

const INCARNATION: Incarnation = Incarnation(1_790_000_000_000);

fn output() -> Output {
    Output { bytes: 128_000_000, rows: 1_280_000, row_hash: RowHash(0xabcd) }
}

fn object(number: u128) -> ObjectId {
    ObjectId::from_u128(number << 32)
}

fn copies() -> CopyIds {
    [1, 2].map(|number| object(number).copy(job(), CopyNumber::FIRST)).into_iter().collect()
}

fn located(second: Whereabouts) -> LocatedObjects {
    [(object(1), Whereabouts::At(node(), CopyNumber::FIRST)), (object(2), second)].into_iter().collect()
}

fn failure() -> TaskFailure {
    let lost = LostObject { object: object(42), number: CopyNumber::FIRST, node: node(), loss: Loss::Gone };
    TaskFailure::argument_lost(format!("object {} is not on n1 at 127.0.0.1:7001", object(42)), [lost])
}

fn task_figures() -> TaskFigures {
    let timing = TaskTiming { executor: 1, started_us: 7_654_321, memory_us: 2_000, ..TaskTiming::default() };
    TaskFigures { micros: 183_000, timing, ..TaskFigures::default() }
}

fn figures() -> NodeFigures {
    NodeFigures { budget_bytes: 4 << 30, used_bytes: 1 << 30, control_messages: 1234, ..NodeFigures::default() }
}

fn scheduler() -> Vec<SchedulerMsg> {
    let lease = LeaseUse { epoch: Epoch(17), lease: LeaseId(3), version: 2, in_use: Resources::cpu(1000) };
    vec![
        SchedulerMsg::NodeUp(NodeSpec {
            node: node(),
            incarnation: INCARNATION,
            resources: Resources::cpu(2000),
            labels: BTreeMap::from([("rack".into(), "r1".into())]),
            functions: vec!["sort.map@1".into(), "sort.reduce@1".into()],
            data_address: "127.0.0.1:7400".into(),
            memory_bytes: 4 << 30,
        }),
        SchedulerMsg::SubmitJob {
            job: job(),
            tenant: "default".into(),
            functions: vec!["sort@1".into()],
            reply: Reply::to(node(), 7),
        },
        SchedulerMsg::Demand(JobDemand {
            job: job(),
            tenant: "default".into(),
            owner: node(),
            incarnation: INCARNATION,
            sequence: 12,
            shapes: vec![Shape::anywhere(Resources::cpu(1000), 40)],
            leases: vec![lease.clone()],
            held: Vec::new(),
        }),
        SchedulerMsg::Release { job: job(), lease },
        SchedulerMsg::JobDone { job: job() },
        SchedulerMsg::JobsOver { jobs: vec![job()] },
        SchedulerMsg::Holds { node: node(), jobs: vec![job()] },
        SchedulerMsg::ListNodes { reply: Reply::to(node(), 8) },
        SchedulerMsg::ListJobs { settled: false, reply: Reply::to(node(), 9) },
        SchedulerMsg::Accept {
            submission: Box::new(Submission { record: record(), carried: Carried::Here(bodies()) }),
            reply: Reply::to(node(), 10),
        },
        SchedulerMsg::Cancel {
            tenant: "default".into(),
            job: job(),
            who: Some("ada@lab".into()),
            reply: Reply::to(node(), 11),
        },
        SchedulerMsg::Describe { tenant: "default".into(), job: job(), reply: Reply::to(node(), 12) },
        SchedulerMsg::ListRecords {
            tenant: "default".into(),
            all: true,
            before: None,
            most: 50,
            reply: Reply::to(node(), 13),
        },
        SchedulerMsg::Find { tenant: "default".into(), digits: "019e".into(), reply: Reply::to(node(), 14) },
        SchedulerMsg::QueueBefore { tenant: "default".into(), priority: 0, reply: Reply::to(node(), 15) },
        SchedulerMsg::JobStarted { job: job(), host: node() },
        SchedulerMsg::JobCommitting { job: job() },
        SchedulerMsg::JobTurnedAway { job: job(), reason: "too many jobs wait on n1".into() },
        SchedulerMsg::JobEnded { job: job(), outcome: Box::new(outcome()) },
    ]
}

fn scheduler_variant(message: &SchedulerMsg) -> &'static str {
    match message {
        SchedulerMsg::NodeUp(..) => "NodeUp",
        SchedulerMsg::SubmitJob { .. } => "SubmitJob",
        SchedulerMsg::Demand(..) => "Demand",
        SchedulerMsg::Release { .. } => "Release",
        SchedulerMsg::JobDone { .. } => "JobDone",
        SchedulerMsg::JobsOver { .. } => "JobsOver",
        SchedulerMsg::Holds { .. } => "Holds",
        SchedulerMsg::ListNodes { .. } => "ListNodes",
        SchedulerMsg::ListJobs { .. } => "ListJobs",
        SchedulerMsg::Accept { .. } => "Accept",
        SchedulerMsg::Cancel { .. } => "Cancel",
        SchedulerMsg::Describe { .. } => "Describe",
        SchedulerMsg::ListRecords { .. } => "ListRecords",
        SchedulerMsg::Find { .. } => "Find",
        SchedulerMsg::QueueBefore { .. } => "QueueBefore",
        SchedulerMsg::JobStarted { .. } => "JobStarted",
        SchedulerMsg::JobCommitting { .. } => "JobCommitting",
        SchedulerMsg::JobTurnedAway { .. } => "JobTurnedAway",
        SchedulerMsg::JobEnded { .. } => "JobEnded",
    }
}

/// A job of which everything is known that can be.
fn record() -> JobRecord {
    let digest = |bytes| Digest { bytes, hash: 0x0123_4567_89ab_cdef };
    JobRecord {
        job: job(),
        tenant: "default".into(),
        kind: "sort".into(),
        name: Some("nightly".into()),
        program: "sort@1".into(),
        who: Some("ada@lab".into()),
        key: Some("2026-11-26".into()),
        priority: 0,
        limit_ms: Some(3_600_000),
        sample_ms: 0,
        spec: digest(80),
        plan: digest(96),
        state: JobState::Running,
        accepted_unix_ms: 1_795_566_000_000,
        started_unix_ms: Some(1_795_566_000_040),
        ended_unix_ms: None,
        host: Some(node()),
        runs: 1,
        stop: None,
        outcome: None,
    }
}

/// How one ended.
fn outcome() -> Outcome {
    let used = Used {
        nodes: 3,
        spilled_bytes: 1 << 30,
        received_bytes: 600_000_000,
        peak_memory_bytes: 3 << 30,
        owner_bytes: 123_456,
    };
    Outcome { result: Ok(Digest { bytes: 120, hash: 0x0123_4567_89ab_cdef }), value: None, cancelled: false, used }
}

fn bodies() -> Bodies {
    Bodies { spec: "{}".into(), plan: vec![0x80].into() }
}

fn host() -> Vec<HostMsg> {
    vec![
        HostMsg::Run { record: Box::new(record()), bodies: BodiesAt::Here(bodies()) },
        HostMsg::Look {
            job: job(),
            look: Look { after: 17, wait_ms: 1000, events: 256, estimate: false },
            reply: Reply::to(node(), 7),
        },
        HostMsg::TellEnd { job: job(), reply: Reply::to(node(), 8) },
        HostMsg::Resume { job: job() },
        HostMsg::Cancel { job: job() },
        HostMsg::Tell { job: job(), word: Word::Enough, reply: Reply::to(node(), 9) },
    ]
}

fn host_variant(message: &HostMsg) -> &'static str {
    match message {
        HostMsg::Run { .. } => "Run",
        HostMsg::Look { .. } => "Look",
        HostMsg::TellEnd { .. } => "TellEnd",
        HostMsg::Resume { .. } => "Resume",
        HostMsg::Cancel { .. } => "Cancel",
        HostMsg::Tell { .. } => "Tell",
    }
}

fn owner() -> Vec<OwnerMsg> {
    let lease = Lease {
        id: LeaseId(3),
        epoch: Epoch(1),
        version: 2,
        job: job(),
        node: node(),
        incarnation: INCARNATION,
        resources: Resources::cpu(2000),
        lasts_ms: 10_000,
    };
    let gpu = Shape::anywhere(Resources::default().with("gpu", 1000), 1);
    let wait = Wait { reason: "needs 1 gpu, cluster has 0".into(), never: Some(Box::new(gpu)) };
    let consumed = Consumed { arg: 0, read: output(), ..Consumed::default() };
    vec![
        OwnerMsg::Leases { epoch: Epoch(1), leases: Some(vec![lease]), wait: Some(wait) },
        OwnerMsg::Completed {
            node: node(),
            incarnation: INCARNATION,
            task: task(),
            attempt: Attempt::nth(1),
            outputs: vec![output()],
            consumed: vec![consumed],
            figures: Box::new(task_figures()),
            values: vec![(0, vec![0x80].into())],
        },
        OwnerMsg::Yielded {
            node: node(),
            incarnation: INCARNATION,
            task: task(),
            attempt: Attempt::nth(1),
            index: 4,
            output: output(),
        },
        OwnerMsg::Failed {
            node: node(),
            incarnation: INCARNATION,
            task: task(),
            attempt: Attempt::nth(2),
            failure: failure(),
            figures: Some(Box::new(task_figures())),
        },
        OwnerMsg::Recalled { node: node(), incarnation: INCARNATION, task: task(), attempt: Attempt::nth(1) },
        OwnerMsg::Rejected {
            node: node(),
            task: task(),
            attempt: Attempt::nth(1),
            reason: "parameters: missing field `chunk`".into(),
        },
        OwnerMsg::Inventory {
            node: node(),
            incarnation: INCARNATION,
            copies: copies(),
            makers: vec![CopyNumber::FIRST.get(), 0],
            outputs: vec![output(), output()],
            last: true,
        },
        OwnerMsg::SetUnknown { node: node(), set: SetId::from_u128(0x5e7) },
        OwnerMsg::TakenOver { run: 1 },
        OwnerMsg::NodeFigures {
            node: node(),
            figures: Box::new(figures()),
            received: vec![Received { from: NodeId::new("n2"), bytes: 9_000_000, micros: 12_000 }],
            last: false,
            running: vec![StillRunning { task: task(), attempt: Attempt::nth(1), micros: 4_200_000 }],
        },
        OwnerMsg::FoldDue { node: node(), lane: 0, blocks: copies(), bytes: 64_000_000, tight: true },
        OwnerMsg::Why { ask: true, reply: Reply::to(NodeId::new("client-1"), 3) },
        OwnerMsg::Cancel,
    ]
}

fn owner_variant(message: &OwnerMsg) -> &'static str {
    match message {
        OwnerMsg::Leases { .. } => "Leases",
        OwnerMsg::Completed { .. } => "Completed",
        OwnerMsg::Yielded { .. } => "Yielded",
        OwnerMsg::Failed { .. } => "Failed",
        OwnerMsg::Recalled { .. } => "Recalled",
        OwnerMsg::Rejected { .. } => "Rejected",
        OwnerMsg::Inventory { .. } => "Inventory",
        OwnerMsg::SetUnknown { .. } => "SetUnknown",
        OwnerMsg::NodeFigures { .. } => "NodeFigures",
        OwnerMsg::FoldDue { .. } => "FoldDue",
        OwnerMsg::Why { .. } => "Why",
        OwnerMsg::Cancel => "Cancel",
        OwnerMsg::TakenOver { .. } => "TakenOver",
    }
}

fn node_manager() -> Vec<NodeMsg> {
    let set = SetId::from_u128(0x5e7);
    let spec = TaskSpec {
        job: job(),
        id: task(),
        attempt: Attempt::nth(1),
        function: "sort.reduce@1".into(),
        params: vec![0x80].into(),
        args: vec![LocatedArg { source: LocatedSource::Set { set, version: 1 }, parts: Parts::one(7) }],
        returns: Returns::One,
        target_bytes: 0,
        align: Align::SixtyFour,
        resources: Resources::cpu(1000),
        scratch_bytes: vec![8_192_000; 2],
        whole_max_bytes: 64 << 20,
        memory_max_bytes: 0,
        outside_bytes: 0,
        alone: false,
        silent: false,
        timeout_ms: 0,
    };
    vec![
        NodeMsg::Run { owner: node(), spec: spec.into() },
        NodeMsg::DefineSet {
            job: job(),
            run: 1,
            set,
            version: 1,
            start: 0,
            total: 2,
            members: located(Whereabouts::Lost),
        },
        NodeMsg::Recall { job: job(), tasks: vec![(task(), Attempt::nth(1))] },
        NodeMsg::Cancel { job: job(), task: task(), attempt: Attempt::nth(1) },
        NodeMsg::Free { job: job(), copies: copies() },
        NodeMsg::FreeParts { job: job(), run: 1, set, version: 1, parts: Parts::one(7) },
        NodeMsg::EndJob { job: job() },
        NodeMsg::Watch { job: job(), owner: node(), sample_ms: 100, tenant: "default".into() },
        NodeMsg::TakeInventory { job: job(), owner: node(), run: 1 },
        NodeMsg::SuspectUnreachable { job: job(), nodes: vec![node()] },
        NodeMsg::Doing { job: job(), attempts: vec![(task(), Attempt::nth(1))], reply: Reply::to(node(), 4) },
    ]
}

fn node_variant(message: &NodeMsg) -> &'static str {
    match message {
        NodeMsg::Run { .. } => "Run",
        NodeMsg::DefineSet { .. } => "DefineSet",
        NodeMsg::Recall { .. } => "Recall",
        NodeMsg::Cancel { .. } => "Cancel",
        NodeMsg::Free { .. } => "Free",
        NodeMsg::FreeParts { .. } => "FreeParts",
        NodeMsg::EndJob { .. } => "EndJob",
        NodeMsg::Watch { .. } => "Watch",
        NodeMsg::TakeInventory { .. } => "TakeInventory",
        NodeMsg::SuspectUnreachable { .. } => "SuspectUnreachable",
        NodeMsg::Doing { .. } => "Doing",
    }
}

fn results() -> Vec<ResultsMsg> {
    let copy = ObjectId::from_u128(7 << 64).copy(job(), CopyNumber::FIRST);
    let keep = ResultsMsg::Keep {
        tenant: "default".into(),
        job: job(),
        kept: 1,
        copy,
        at: node(),
        reply: Reply::to(node(), 7),
    };
    vec![keep, ResultsMsg::Drop { job: job() }]
}

fn results_variant(message: &ResultsMsg) -> &'static str {
    match message {
        ResultsMsg::Keep { .. } => "Keep",
        ResultsMsg::Drop { .. } => "Drop",
    }
}

fn merger() -> Vec<MergerMsg> {
    let ranges = vec![Parts::Range(40, 60), Parts::Range(60, 80)];
    vec![
        MergerMsg::Open { job: job(), owner: node(), lane: 0, ranges, fold_at: 8 },
        MergerMsg::Push { job: job(), lane: 0, objects: located(Whereabouts::NoBytes) },
        MergerMsg::EndJob { job: job() },
    ]
}

fn merger_variant(message: &MergerMsg) -> &'static str {
    match message {
        MergerMsg::Open { .. } => "Open",
        MergerMsg::Push { .. } => "Push",
        MergerMsg::EndJob { .. } => "EndJob",
    }
}

fn membership() -> Vec<MembershipMsg> {
    let beat = Beat {
        node: node(),
        incarnation: INCARNATION,
        sequence: 42,
        figures: Figures { cpus: 2, cpu_used_milli: 1800, ..Figures::default() },
        data_address: "127.0.0.1:7400".into(),
        stopping: false,
        leader: Some(Leader { epoch: Epoch(17), node: node() }),
        epoch: Epoch(17),
        zombies: Vec::new(),
    };
    vec![MembershipMsg::Beat(beat)]
}

fn membership_variant(message: &MembershipMsg) -> &'static str {
    match message {
        MembershipMsg::Beat(..) => "Beat",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_that_can_leave_the_process_has_a_sample() {
        let given: Vec<(&str, usize)> = ["scheduler", "host", "owner", "node", "results", "merger", "membership"]
            .into_iter()
            .map(|protocol| (protocol, all().unwrap().iter().filter(|sample| sample.protocol == protocol).count()))
            .collect();
        // As many as there are variants.
        assert_eq!(
            given,
            [
                ("scheduler", 19),
                ("host", 6),
                ("owner", 13),
                ("node", 11),
                ("results", 2),
                ("merger", 3),
                ("membership", 1)
            ]
        );
    }
}
