//! The services of a node, made of what it counts. Pure.

use std::collections::BTreeMap;

use exobus_store::StoreStats;
use serde_json::{Value, json};

use super::answer::{Endpoint, Service};
use crate::event::NodeFigures;
use crate::shell::calls::Count;

/// Who answers.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) cluster: String,
    pub(super) node: String,
    pub(super) incarnation: u64,
    /// Since when this incarnation is there: RFC 3339, UTC.
    pub(super) started: String,
}

/// What the figures are made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) process: NodeFigures,
    pub(super) store: StoreStats,
    /// Attempts that wait, for their arguments or for an executor.
    pub(super) attempts_waiting: u64,
    /// Attempts that executors have, those included that were handed out ahead.
    pub(super) attempts_handed: u64,
    /// Lanes of the Merger, and blocks in them.
    pub(super) lanes: u64,
    pub(super) pushes: u64,
    /// Owners that live; jobs that the Host runs or looks up.
    pub(super) owners: u64,
    pub(super) hosted: u64,
    /// Where this node is the Scheduler.
    pub(super) scheduler: Option<SchedulerFigures>,
}

/// What the Scheduler counts.
#[derive(Clone, Debug, Default)]
pub(super) struct SchedulerFigures {
    pub(super) epoch: u64,
    pub(super) jobs_waiting: u64,
    /// Those that wait included.
    pub(super) jobs_not_over: u64,
    pub(super) leases: u64,
    pub(super) nodes: u64,
    pub(super) nodes_up: u64,
}

/// What was asked of this node: of each service its figures, of the door each verb, with the queue group that it has, and what other nodes hand on.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) figures: BTreeMap<&'static str, Count>,
    /// Name, subject and queue group of an endpoint, and what was counted.
    pub(super) verbs: Vec<(&'static str, String, &'static str, Count)>,
    /// Subject, and what was counted.
    pub(super) handed_on: (String, Count),
}

/// The services, in an order that is always the same.
pub(super) fn services(who: &Identity, figures: &Figures, asked: &Asked) -> Vec<Service> {
    let service = |role: &str, name: &'static str, description, endpoints: Vec<Endpoint>| Service {
        name,
        id: id(who, role),
        description,
        started: who.started.clone(),
        metadata: [
            ("cluster", who.cluster.clone()),
            ("node", who.node.clone()),
            ("incarnation", who.incarnation.to_string()),
        ]
        .into(),
        endpoints,
    };
    // A role that answers no requests over NATS is asked for its figures, and counts that.
    let shows = |role: &str, service: &'static str, name, data: Value| Endpoint {
        name,
        subject: format!("{}.STATS.{service}.{}", exobus_bus::SERVICES, id(who, role)),
        queue_group: "",
        count: asked.figures.get(service).cloned().unwrap_or_default(),
        data,
    };
    let (handed_on_at, handed_on) = asked.handed_on.clone();
    let verbs = asked.verbs.iter().map(|(name, subject, queue_group, count)| Endpoint {
        name,
        subject: subject.clone(),
        queue_group,
        count: count.clone(),
        data: json!({}),
    });
    let mut services = vec![
        service(
            "node",
            NODE,
            "A node of an exobus cluster: its process, its executors",
            vec![
                shows("node", NODE, "figures", node(figures)),
                Endpoint { name: "api", subject: handed_on_at, queue_group: "", count: handed_on, data: json!({}) },
            ],
        ),
        service(
            "store",
            STORE,
            "The objects of a node, and what spills them",
            vec![
                shows("store", STORE, "memory", memory(&figures.store)),
                shows("store", STORE, "spiller", spiller(&figures.store)),
            ],
        ),
        service(
            "merger",
            MERGER,
            "Copies blocks ahead of the tasks that merge them",
            vec![shows("merger", MERGER, "figures", merger(figures))],
        ),
        service("owner", OWNER, "The jobs that a node hosts", vec![shows("owner", OWNER, "figures", owner(figures))]),
        service("api", API, "The door of a node: what is asked of the cluster", verbs.collect()),
    ];
    if let Some(known) = &figures.scheduler {
        services.push(service(
            "scheduler",
            SCHEDULER,
            "The Scheduler of an exobus cluster",
            vec![shows("scheduler", SCHEDULER, "figures", scheduler(known))],
        ));
    }
    services
}

const NODE: &str = "exobus-node";
const STORE: &str = "exobus-store";
const MERGER: &str = "exobus-merger";
const OWNER: &str = "exobus-owner";
const API: &str = "exobus-api";
const SCHEDULER: &str = "exobus-scheduler";

/// What there may be.
pub(super) const NAMES: [&str; 6] = [NODE, STORE, MERGER, OWNER, API, SCHEDULER];

/// No two services have one id, nor do two incarnations of a node.
fn id(who: &Identity, role: &str) -> String {
    format!("{}-{:x}-{role}", who.node, who.incarnation)
}

fn node(figures: &Figures) -> Value {
    let process = &figures.process;
    let slots = u64::from(process.executors);
    // Short tasks are handed out ahead of free executors: those wait still.
    let used = figures.attempts_handed.min(slots);
    json!({
        "process_bytes": process.memory_bytes,
        "process_peak_bytes": process.peak_memory_bytes,
        "budget_bytes": process.budget_bytes,
        "used_bytes": process.used_bytes,
        "disk_bytes": figures.store.spill_file_bytes,
        "disk_read_bytes": process.disk_read_bytes,
        "disk_written_bytes": process.disk_written_bytes,
        "slots": slots,
        "slots_used": used,
        "queue_depth": figures.attempts_waiting + figures.attempts_handed - used,
        "cpus": process.cpus,
        "cpu_us": process.cpu_us,
        "received_bytes": process.received_bytes,
        "sent_bytes": process.sent_bytes,
        "control_messages": process.control_messages,
        "refused_messages": process.refused_messages,
    })
}

fn memory(store: &StoreStats) -> Value {
    json!({
        "objects": store.objects,
        "budget_bytes": store.budget_bytes,
        "used_bytes": store.used_bytes,
        "peak_bytes": store.peak_bytes,
        "pinned_bytes": store.pinned_bytes,
        "clean_bytes": store.clean_bytes,
        "waiting": store.waiting,
        "waiting_bytes": store.waiting_bytes,
        "lost_objects": store.lost_objects,
    })
}

fn spiller(store: &StoreStats) -> Value {
    json!({
        "spilled_bytes": store.spilled_bytes,
        "early_bytes": store.early_bytes,
        "written_through_bytes": store.written_through_bytes,
        "restored_bytes": store.restored_bytes,
        "spill_us": store.spill_us,
        "restore_us": store.restore_us,
        "files": store.spill_files,
        "file_bytes": store.spill_file_bytes,
        "corrupt_blocks": store.corrupt_blocks,
        "retired_dirs": store.retired_dirs,
    })
}

fn merger(figures: &Figures) -> Value {
    json!({
        "lanes": figures.lanes,
        "blocks": figures.pushes,
        "pushed_bytes": figures.process.pushed_bytes,
        "revoked_bytes": figures.process.revoked_bytes,
    })
}

fn owner(figures: &Figures) -> Value {
    json!({
        "jobs": figures.owners,
        "jobs_hosted": figures.hosted,
        "tables_bytes": figures.process.tables_bytes,
    })
}

fn scheduler(figures: &SchedulerFigures) -> Value {
    json!({
        "epoch": figures.epoch,
        "jobs_waiting": figures.jobs_waiting,
        "jobs_under_way": figures.jobs_not_over.saturating_sub(figures.jobs_waiting),
        "leases": figures.leases,
        "nodes": figures.nodes,
        "nodes_up": figures.nodes_up,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who() -> Identity {
        Identity { cluster: "lab".into(), node: "n1".into(), incarnation: 0x1f, started: "2026".into() }
    }

    fn data<'a>(services: &'a [Service], name: &str, endpoint: &str) -> &'a Value {
        let service = services.iter().find(|service| service.name == name).unwrap();
        &service.endpoints.iter().find(|found| found.name == endpoint).unwrap().data
    }

    #[test]
    fn a_node_is_a_service_for_each_role_and_the_scheduler_only_where_it_is() {
        let names = |figures: &Figures| {
            let services = services(&who(), figures, &Asked::default());
            let ids: std::collections::BTreeSet<_> = services.iter().map(|service| service.id.clone()).collect();
            assert_eq!(ids.len(), services.len(), "{ids:?}");
            for service in &services {
                exobus_bus::Subjects::new(&service.id).expect("an id is a token");
                assert_eq!(service.metadata["node"], "n1");
            }
            services.iter().map(|service| service.name).collect::<Vec<_>>()
        };
        let all = [NODE, STORE, MERGER, OWNER, API];
        assert_eq!(names(&Figures::default()), all);
        let leads = Figures { scheduler: Some(SchedulerFigures::default()), ..Figures::default() };
        assert_eq!(names(&leads), [&all[..], &[SCHEDULER]].concat());
    }

    #[test]
    fn tasks_that_were_handed_out_ahead_of_executors_wait() {
        for (waiting, handed, used, depth) in [(0, 0, 0, 0), (3, 1, 1, 3), (3, 5, 2, 6)] {
            let process = NodeFigures { executors: 2, ..NodeFigures::default() };
            let figures = Figures { process, attempts_waiting: waiting, attempts_handed: handed, ..Figures::default() };
            let services = services(&who(), &figures, &Asked::default());
            let data = data(&services, NODE, "figures");
            let found = (data["slots"].as_u64(), data["slots_used"].as_u64(), data["queue_depth"].as_u64());
            assert_eq!(found, (Some(2), Some(used), Some(depth)), "{waiting} wait, {handed} are handed out");
        }
    }

    #[test]
    fn figures_are_those_of_the_roles() {
        let figures = Figures {
            process: NodeFigures { memory_bytes: 1, tables_bytes: 2, pushed_bytes: 3, ..NodeFigures::default() },
            store: StoreStats { objects: 4, spilled_bytes: 5, spill_file_bytes: 6, ..StoreStats::default() },
            lanes: 7,
            owners: 8,
            scheduler: Some(SchedulerFigures { jobs_waiting: 2, jobs_not_over: 11, ..SchedulerFigures::default() }),
            ..Figures::default()
        };
        let services = services(&who(), &figures, &Asked::default());
        for (name, endpoint, field, value) in [
            (NODE, "figures", "process_bytes", 1),
            (NODE, "figures", "disk_bytes", 6),
            (OWNER, "figures", "tables_bytes", 2),
            (OWNER, "figures", "jobs", 8),
            (MERGER, "figures", "pushed_bytes", 3),
            (MERGER, "figures", "lanes", 7),
            (STORE, "memory", "objects", 4),
            (STORE, "spiller", "spilled_bytes", 5),
            (SCHEDULER, "figures", "jobs_waiting", 2),
            (SCHEDULER, "figures", "jobs_under_way", 9),
        ] {
            assert_eq!(data(&services, name, endpoint)[field], value, "{name} {endpoint} {field}");
        }
    }

    #[test]
    fn requests_are_counted_where_they_were_made() {
        let count = |requests| Count { requests, ..Count::default() };
        let asked = Asked {
            figures: [(STORE, count(1))].into(),
            verbs: vec![("submit", "exo.submit".to_owned(), "api", count(2))],
            handed_on: ("exo.node".to_owned(), count(3)),
        };
        let services = services(&who(), &Figures::default(), &asked);
        let counts = |name: &str| {
            let service = services.iter().find(|service| service.name == name).unwrap();
            let counts = service.endpoints.iter();
            counts.map(|endpoint| (endpoint.name, &*endpoint.subject, endpoint.count.requests)).collect::<Vec<_>>()
        };
        assert_eq!(counts(API), [("submit", "exo.submit", 2)]);
        assert_eq!(counts(NODE), [("figures", "$SRV.STATS.exobus-node.n1-1f-node", 0), ("api", "exo.node", 3)]);
        let of_store = "$SRV.STATS.exobus-store.n1-1f-store";
        assert_eq!(counts(STORE), [("memory", of_store, 1), ("spiller", of_store, 1)]);
    }
}
