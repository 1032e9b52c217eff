//! Scheduler: which job gets which slots on which nodes. One per cluster.
//!
//! | message     | from                              | answer                             | if repeated                  | if lost                                  |
//! |-------------|-----------------------------------|------------------------------------|------------------------------|------------------------------------------|
//! | `NodeUp`    | NodeManager, at start and every few seconds | –                        | replaces what was known      | the next one comes                       |
//! | `SubmitJob` | client                            | `Result<Placement, Refusal>`       | same answer again            | asked again after the deadline           |
//! | `Demand`    | Owner, on change and every second | `Leases`                           | ignored by sequence          | the next one comes; leases run out after |
//! | `Release`   | Owner                             | –                                  | harmless                     | the next `Demand` says the same          |
//! | `JobDone`   | Owner                             | –                                  | ignored                      | leases run out                           |
//! | `JobsOver`  | each node, to a new Scheduler     | –                                  | ignored                      | a late word may bring the job back       |
//! | `Holds`     | NodeManager, every two seconds    | `EndJob` for those that are over   | same answer again            | the next one comes                       |
//! | `ListNodes` | anybody                           | `Vec<NodeInfo>`                    | –                            | asked again after the deadline           |
//! | `ListJobs`  | anybody                           | `Vec<JobInfo>`                     | –                            | asked again after the deadline           |
//! | `Accept`    | a door                            | `Result<Standing, Reason>`         | one job, where it has a key  | asked again after the deadline           |
//! | `Cancel`    | a door                            | `Result<Standing, Reason>`         | same answer again            | asked again after the deadline           |
//! | `Describe`  | a door                            | `Option<Described>`                | –                            | asked again after the deadline           |
//! | `ListRecords` | a door                          | `RecordPage`                       | –                            | asked again after the deadline           |
//! | `Find`, `QueueBefore` | a door                | ids; a number                      | –                            | asked again after the deadline           |
//! | `JobStarted` | Host, also to a new Scheduler    | –                                  | ignored                      | the end of the job says the same         |
//! | `JobCommitting` | Host                          | –                                  | ignored                      | the end of the job says the same         |
//! | `JobTurnedAway` | Host                          | –                                  | ignored                      | it is started again after a while        |
//! | `JobEnded`  | Host                              | –                                  | ignored                      | it is looked up in the job's log         |
//!
//! A candidate that is not the Scheduler drops everything: who asked asks the one that is.
//!
//! What it tells others: `OwnerMsg::Leases`, with its epoch: all leases of the job and why it has no more, replacing what was said
//! before. Whatever is said of leases says why, too, so that no word of one takes back the other, and both are said again at every
//! renewal.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::job::{JobRecord, Outcome, Reason, Standing, Submission};
use crate::ids::{Epoch, Incarnation, JobId, LeaseId, NodeId};
use crate::shell::{Reply, SaidBy, Wire};
use crate::task::Resources;

/// Everything that others can tell a Scheduler; what its own process tells it is in
/// [`SchedulerEvent`](crate::scheduler::SchedulerEvent).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SchedulerMsg {
    /// A node is there, or has changed.
    NodeUp(NodeSpec),
    /// A job wants a node that hosts its Owner and coordinator.
    SubmitJob {
        /// The job.
        job: JobId,
        /// For whom it runs.
        tenant: Arc<str>,
        /// Functions, "name@version", that the hosting node must have: the coordinator's program.
        functions: Vec<Arc<str>>,
        /// The node, or why there is none.
        reply: Reply<Result<Placement, Refusal>>,
    },
    /// What a job could use now, all of it: replaces the demand before.
    Demand(JobDemand),
    /// Slots that the Owner was asked to give back are idle now.
    Release {
        /// The job.
        job: JobId,
        /// What is in use of the lease still.
        lease: LeaseUse,
    },
    /// A job is over: all its leases end, nothing of it runs any more.
    JobDone {
        /// The job.
        job: JobId,
    },
    /// These jobs have ended, as far as this node has seen: they do not come back.
    JobsOver {
        /// The latest of them.
        jobs: Vec<JobId>,
    },
    /// A node has something of these jobs. Those that are over have ended without its hearing of that.
    Holds {
        /// The node.
        node: NodeId,
        /// The first of them; at most [`JOBS_OVER_MAX`].
        jobs: Vec<JobId>,
    },
    /// Which nodes are there?
    ListNodes {
        /// All of them, by name.
        reply: Reply<Vec<NodeInfo>>,
    },
    /// Which jobs are there?
    ListJobs {
        /// Whoever is not listed is not there: answered when all that live had their time to be heard of.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        settled: bool,
        /// All of them, by id.
        reply: Reply<Vec<JobInfo>>,
    },
    /// Somebody hands a job in.
    Accept {
        /// The job.
        submission: Box<Submission>,
        /// How it stands with it when that is durable, or why it is refused.
        reply: Reply<Result<Standing, Reason>>,
    },
    /// Somebody wants a job to end.
    Cancel {
        /// For whom it runs.
        tenant: Arc<str>,
        /// The job.
        job: JobId,
        /// Who wants that, as he says.
        who: Option<String>,
        /// How it stands with it when that is noted; one that runs ends a moment later.
        reply: Reply<Result<Standing, Reason>>,
    },
    /// What is known of a job?
    Describe {
        /// For whom it runs.
        tenant: Arc<str>,
        /// The job.
        job: JobId,
        /// `None`: nothing.
        reply: Reply<Option<Described>>,
    },
    /// Which jobs of a tenant are there, and were?
    ListRecords {
        /// The tenant.
        tenant: Arc<str>,
        /// Those that are over, too.
        all: bool,
        /// Only those before this one.
        before: Option<JobId>,
        /// So many at most.
        most: u32,
        /// The latest first.
        reply: Reply<RecordPage>,
    },
    /// Which jobs of a tenant have ids that begin with these digits?
    Find {
        /// The tenant.
        tenant: Arc<str>,
        /// The digits, hexadecimal, fewer than 32.
        digits: String,
        /// Two of them at most.
        reply: Reply<Vec<JobId>>,
    },
    /// How many jobs of a tenant would have their turn before one of this priority that is handed in now?
    QueueBefore {
        /// The tenant.
        tenant: Arc<str>,
        /// The priority.
        priority: i32,
        /// So many.
        reply: Reply<u64>,
    },
    /// The program of a job begins on this node.
    JobStarted {
        /// The job.
        job: JobId,
        /// The node.
        host: NodeId,
    },
    /// A job makes its output visible.
    JobCommitting {
        /// The job.
        job: JobId,
    },
    /// The node that was to host a job has no room for it.
    JobTurnedAway {
        /// The job.
        job: JobId,
        /// Why.
        reason: String,
    },
    /// A job is over.
    JobEnded {
        /// The job.
        job: JobId,
        /// How it ended.
        outcome: Box<Outcome>,
    },
}

/// What the Scheduler knows of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Described {
    /// It is not over, or was so a moment ago.
    Live(Box<Live>),
    /// It is over: the history has its record.
    Archived,
}

/// A job that is not over, or was so a moment ago.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// What is noted of it.
    pub record: JobRecord,
    /// How many jobs have their turn before it, where it waits for it.
    pub before: Option<u64>,
    /// What it has, where it runs.
    pub info: Option<JobInfo>,
    /// Whether it is noted in a journal: else it ends with the Scheduler.
    pub durable: bool,
}

/// Jobs of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordPage {
    /// The latest first.
    pub jobs: Vec<RecordRow>,
    /// Whether there are more after the last one.
    pub more: bool,
}

/// A job in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RecordRow {
    /// All that is known.
    Record(Box<JobRecord>),
    /// It is over: the history has its record.
    Archived(JobId),
}

impl Wire for SchedulerMsg {
    const PROTOCOL: &'static str = "scheduler";

    fn said_by(&self) -> SaidBy<'_> {
        match self {
            Self::NodeUp(spec) => SaidBy::ThatNode(&spec.node, spec.incarnation),
            _ => SaidBy::Nodes,
        }
    }
}

/// Who is the Scheduler, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Rises from one Scheduler to the next.
    pub epoch: Epoch,
    /// The Scheduler's node.
    pub node: NodeId,
}

/// The name under which the Scheduler is registered on its node.
pub const ACTOR: &str = "scheduler";

/// Most shapes in one demand.
pub const SHAPES_MAX: usize = 128;

/// Most jobs in one [`SchedulerMsg::JobsOver`].
pub const JOBS_OVER_MAX: usize = 4096;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The node.
    pub node: NodeId,
    /// Which incarnation.
    pub incarnation: Incarnation,
    /// What can be lent there.
    pub resources: Resources,
    /// Key=value labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Functions and programs that it can run, "name@version".
    #[serde(default)]
    pub functions: Vec<Arc<str>>,
    /// Where its Transfer listens, `host:port`; empty where it has none.
    #[serde(default)]
    pub data_address: String,
    /// Byte budget of its store; what plans are made with, not lent.
    #[serde(default)]
    pub memory_bytes: u64,
}

/// What a job could use now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDemand {
    /// The job.
    pub job: JobId,
    /// For whom it runs.
    pub tenant: Arc<str>,
    /// The node of its Owner: where `Leases` go.
    pub owner: NodeId,
    /// Which incarnation of that node.
    pub incarnation: Incarnation,
    /// Rises with every demand of this Owner; older ones are ignored.
    pub sequence: u64,
    /// Slots wanted. At most [`SHAPES_MAX`]; the rest is ignored.
    pub shapes: Vec<Shape>,
    /// What is in use of each lease that the Owner knows of.
    pub leases: Vec<LeaseUse>,
    /// Leases of earlier epochs that it goes on with, until this one says which it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldLease>,
}

/// Slots that a job could use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// What one slot has. Nothing at all is allowed and never scarce.
    pub resources: Resources,
    /// How many such slots.
    pub count: u32,
    /// Labels that the node must have.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The node, where only this one will do.
    #[serde(default)]
    pub node: Option<NodeId>,
    /// The function, "name@version", that the node must have; `None`: any node will do.
    #[serde(default)]
    pub function: Option<Arc<str>>,
}

impl Shape {
    /// `count` slots of `resources`, anywhere.
    pub fn anywhere(resources: Resources, count: u32) -> Self {
        Self { resources, count, labels: BTreeMap::new(), node: None, function: None }
    }
}

/// Slots of one node, lent to one job. A later `version` of a lease replaces the earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The loan.
    pub id: LeaseId,
    /// The epoch of the Scheduler that made it; those of older ones are void.
    pub epoch: Epoch,
    /// Rises whenever `resources` change.
    pub version: u64,
    /// Who may use it.
    pub job: JobId,
    /// Where.
    pub node: NodeId,
    /// Which incarnation of the node; it ends with it.
    pub incarnation: Incarnation,
    /// What may be used, in all. Empty: everything is to be given back; start nothing new there.
    pub resources: Resources,
    /// How long from now, milliseconds; longer while no Scheduler speaks.
    pub lasts_ms: u64,
}

/// A lease of an earlier epoch that its Owner goes on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLease {
    /// The lease.
    pub lease: Lease,
    /// What started tasks occupy there.
    pub in_use: Resources,
}

/// What an Owner uses of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseUse {
    /// The epoch in which the lease was made; other epochs have leases of the same numbers.
    pub epoch: Epoch,
    /// The lease.
    pub lease: LeaseId,
    /// The version of it that the Owner keeps to. A report on an older version releases nothing.
    pub version: u64,
    /// What started tasks occupy there.
    pub in_use: Resources,
}

/// Where the Owner and the coordinator of a job are to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The node.
    pub node: NodeId,
    /// Which incarnation of it.
    pub incarnation: Incarnation,
}

/// Why a job cannot be hosted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// There is no node at all.
    #[error("the cluster has no nodes")]
    NoNodes,
    /// No node has all the functions that were asked for.
    #[error("no node has {missing}; asked: {}", .nodes.join(", "))]
    UnknownFunction {
        /// The first function that is missing somewhere.
        missing: Arc<str>,
        /// Nodes that lack it.
        nodes: Vec<String>,
    },
    /// The job was done before.
    #[error("the job is over")]
    Over,
}

/// Why a demand, or part of it, is not met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// For people.
    pub reason: String,
    /// Slots of the demand that no node of the cluster could lend, even when idle, and none is about to come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never: Option<Box<Shape>>,
}

/// A node as the Scheduler sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// What it says of itself.
    pub spec: NodeSpec,
    /// Whether this incarnation is alive.
    pub up: bool,
    /// What could be lent there now.
    pub free: Resources,
    /// How many jobs have their Owner there.
    pub hosts: u32,
    /// How many leases there are on it.
    pub leases: u32,
}

/// A job as the Scheduler sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobInfo {
    /// The job.
    pub job: JobId,
    /// For whom it runs.
    pub tenant: Arc<str>,
    /// Where its Owner runs; `None` when that node died.
    pub home: Option<NodeId>,
    /// Slots that it could use.
    pub wanted_slots: u64,
    /// Slots that it has.
    pub slots: u64,
    /// What it has, on all nodes.
    pub resources: Resources,
    /// Its dominant share of the cluster, thousandths.
    pub share_milli: u32,
    /// Why it has no more.
    pub wait: Option<Wait>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(prefix: &str) -> String {
        format!("{prefix}{}", "x".repeat(60 - prefix.len()))
    }

    fn resources() -> Resources {
        ["cpu", "gpu", "disk"].into_iter().fold(Resources::default(), |all, name| all.with(name, u64::MAX))
    }

    /// The session carries items of up to 256 KiB.
    const LIMIT: usize = 256 * 1024;

    #[test]
    fn the_largest_of_each_message_stays_far_under_the_payload_limit_and_survives_the_wire() {
        let labels: BTreeMap<_, _> = (0..4).map(|at| (long(&format!("k{at}")), long("v"))).collect();
        let (job, node, tenant) = (JobId::from_u128(u128::MAX), NodeId::new(&long("n")), Arc::from(long("t")));
        let in_use = |at| LeaseUse {
            epoch: Epoch(u64::MAX),
            lease: LeaseId(u64::MAX - at),
            version: u64::MAX,
            in_use: resources(),
        };
        let shape = Shape {
            resources: resources(),
            count: u32::MAX,
            labels: labels.clone(),
            node: Some(node.clone()),
            function: Some(long("f").into()),
        };
        let functions: Vec<Arc<str>> = (0..500).map(|at| long(&format!("f{at}")).into()).collect();
        let samples = [
            SchedulerMsg::NodeUp(NodeSpec {
                node: node.clone(),
                incarnation: Incarnation(u64::MAX),
                resources: resources(),
                labels,
                functions: functions.clone(),
                data_address: long("a"),
                memory_bytes: u64::MAX,
            }),
            SchedulerMsg::SubmitJob { job, tenant: Arc::clone(&tenant), functions, reply: Reply::to(node.clone(), 7) },
            SchedulerMsg::Demand(JobDemand {
                job,
                tenant,
                owner: node.clone(),
                incarnation: Incarnation(u64::MAX),
                sequence: u64::MAX,
                shapes: vec![shape; SHAPES_MAX],
                leases: (0..500).map(in_use).collect(),
                held: Vec::new(),
            }),
            SchedulerMsg::JobsOver { jobs: vec![job; JOBS_OVER_MAX] },
            SchedulerMsg::Holds { node: node.clone(), jobs: vec![job; JOBS_OVER_MAX] },
            SchedulerMsg::Release { job, lease: in_use(0) },
            SchedulerMsg::JobDone { job },
            SchedulerMsg::ListNodes { reply: Reply::to(node.clone(), 8) },
            SchedulerMsg::ListJobs { settled: false, reply: Reply::to(node, 9) },
        ];
        for sample in samples {
            let bytes = rmp_serde::to_vec_named(&sample).unwrap();
            let name = format!("{sample:.40?}").chars().take(20).collect::<String>();
            assert!(bytes.len() < LIMIT * 3 / 4, "{} bytes: {name}", bytes.len());
            assert!(rmp_serde::from_slice::<SchedulerMsg>(&bytes).unwrap() == sample, "{name}");
        }
    }

    #[test]
    fn a_thousand_leases_fit_into_one_message() {
        let lease = Lease {
            id: LeaseId(u64::MAX),
            epoch: Epoch(u64::MAX),
            version: u64::MAX,
            job: JobId::from_u128(u128::MAX),
            node: NodeId::new("node-0001"),
            incarnation: Incarnation(u64::MAX),
            resources: Resources::cpu(64_000).with("gpu", 8000),
            lasts_ms: 4000,
        };
        let bytes = rmp_serde::to_vec_named(&vec![lease; 1000]).unwrap();
        assert!(bytes.len() < LIMIT * 3 / 4, "{} bytes", bytes.len());
    }
}
