use super::*;
use crate::ids::LeaseId;

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn node(name: &str, cpu: u64) -> NodeSpec {
    NodeSpec {
        node: NodeId::new(name),
        incarnation: Incarnation(1),
        resources: Resources::cpu(cpu),
        labels: BTreeMap::new(),
        functions: vec!["f@1".into()],
        data_address: String::new(),
        memory_bytes: 0,
    }
}

fn job(number: u128) -> JobId {
    JobId::from_u128(number)
}

/// A Scheduler, fed by hand, and what it told the Owners last.
struct World {
    state: State,
    leases: BTreeMap<JobId, Vec<Lease>>,
    waits: BTreeMap<JobId, Option<Wait>>,
    log: Vec<Effect>,
    sequence: u64,
}

impl World {
    fn new(nodes: &[NodeSpec]) -> Self {
        let state = State::new(Epoch(1), SchedulerOptions::default());
        let mut world = Self { state, leases: BTreeMap::new(), waits: BTreeMap::new(), log: Vec::new(), sequence: 0 };
        for node in nodes {
            world.on(0.0, Event::NodeUp(node.clone()));
        }
        world
    }

    fn on(&mut self, at: f64, event: Event) {
        let mut effects = Vec::new();
        self.state.on(secs(at), event, &mut effects);
        for effect in &effects {
            match effect {
                Effect::Leases { job, leases, wait, .. } => {
                    if let Some(leases) = leases {
                        self.leases.insert(*job, leases.clone());
                    }
                    self.waits.insert(*job, wait.clone());
                }
                Effect::Answer { .. }
                | Effect::HomeLost { .. }
                | Effect::Resume { .. }
                | Effect::EndJob { .. }
                | Effect::Look => {}
            }
        }
        self.log.extend(effects);
    }

    fn demand_with(&mut self, at: f64, number: u128, shapes: Vec<Shape>, leases: Vec<LeaseUse>) {
        self.sequence += 1;
        let demand = Event::Demand(JobDemand {
            job: job(number),
            tenant: format!("tenant-{number}").into(),
            owner: NodeId::new("home"),
            incarnation: Incarnation(1),
            sequence: self.sequence,
            shapes,
            leases,
            held: Vec::new(),
        });
        self.on(at, demand);
    }

    fn demand(&mut self, at: f64, number: u128, cpus: u32) {
        self.demand_with(at, number, vec![Shape::anywhere(Resources::cpu(1000), cpus)], Vec::new());
    }

    /// Repeats the demands of both jobs each second in `from..to`.
    fn keep(&mut self, from: u32, to: u32, demands: &[(u128, u32)]) {
        for second in from..to {
            self.on(f64::from(second), Event::Tick);
            for (number, cpus) in demands {
                self.demand(f64::from(second), *number, *cpus);
            }
        }
    }

    /// Milli-cpus lent to a job.
    fn cpu(&self, number: u128) -> u64 {
        self.leases.get(&job(number)).map_or(0, |leases| leases.iter().map(|lease| lease.resources.get("cpu")).sum())
    }

    fn lease(&self, number: u128) -> &Lease {
        &self.leases[&job(number)][0]
    }

    fn wait(&self, number: u128) -> Option<(&str, bool)> {
        self.waits.get(&job(number))?.as_ref().map(|wait| (wait.reason.as_str(), wait.never.is_some()))
    }
}

#[test]
fn a_demand_is_met_at_once_and_says_where_and_how_long() {
    let mut world = World::new(&[node("a", 2000), node("b", 2000)]);
    world.demand(0.5, 1, 3);
    assert_eq!(world.cpu(1), 3000);
    let lease = world.lease(1);
    assert_eq!((lease.epoch, lease.job, lease.incarnation, lease.lasts_ms), (Epoch(1), job(1), Incarnation(1), 4000));
    assert_eq!(world.wait(1), None);
}

#[test]
fn a_lease_is_renewed_while_demanded_and_runs_out_when_it_is_not() {
    let mut world = World::new(&[node("a", 2000)]);
    world.keep(0, 20, &[(1, 2)]);
    assert_eq!(world.cpu(1), 2000);
    let id = world.lease(1).id;
    assert_eq!(id, LeaseId(1), "renewed, not made anew");
    // The Owner falls silent at 19 s. Another job finds nothing at first, then everything.
    world.keep(20, 22, &[(2, 2)]);
    assert_eq!(world.cpu(2), 0);
    world.keep(22, 28, &[(2, 2)]);
    assert_eq!((world.cpu(1), world.cpu(2)), (0, 2000));
}

#[test]
fn a_second_job_gets_its_half_when_the_first_gives_it_back() {
    let mut world = World::new(&[node("a", 4000)]);
    world.demand(0.0, 1, 4);
    assert_eq!(world.cpu(1), 4000);
    world.demand(1.0, 2, 4);
    assert_eq!((world.cpu(1), world.cpu(2)), (2000, 0), "taken back, but perhaps in use still");
    // A report from before the first job knew says nothing.
    let stale = LeaseUse { epoch: Epoch(1), lease: LeaseId(1), version: 1, in_use: Resources::cpu(2000) };
    world.on(1.1, Event::Release { job: job(1), lease: stale.clone() });
    assert_eq!(world.cpu(2), 0);
    let version = world.lease(1).version;
    world.on(
        1.2,
        Event::Release { job: job(1), lease: LeaseUse { version, in_use: Resources::cpu(3000), ..stale.clone() } },
    );
    assert_eq!(world.cpu(2), 1000, "one slot is idle, one still in use");
    world.on(1.3, Event::Release { job: job(1), lease: LeaseUse { version, in_use: Resources::cpu(1000), ..stale } });
    assert_eq!((world.cpu(1), world.cpu(2)), (2000, 2000));
}

#[test]
fn slots_come_back_at_the_end_of_the_loan_when_nobody_speaks_of_them() {
    let mut world = World::new(&[node("a", 4000)]);
    world.keep(0, 3, &[(1, 4)]);
    world.keep(3, 7, &[(1, 4), (2, 4)]);
    assert_eq!((world.cpu(1), world.cpu(2)), (2000, 0));
    world.keep(7, 10, &[(1, 4), (2, 4)]);
    assert_eq!((world.cpu(1), world.cpu(2)), (2000, 2000));
}

#[test]
fn a_started_task_keeps_its_slot_for_as_long_as_it_is_reported() {
    let mut world = World::new(&[node("a", 2000)]);
    world.demand(0.0, 1, 2);
    let shapes = |count| vec![Shape::anywhere(Resources::cpu(1000), count)];
    let busy = |world: &World| LeaseUse {
        epoch: Epoch(1),
        lease: LeaseId(1),
        version: world.lease(1).version,
        in_use: Resources::cpu(2000),
    };
    for second in 1..60 {
        world.demand(f64::from(second), 2, 1);
        let in_use = busy(&world);
        world.demand_with(f64::from(second), 1, shapes(2), vec![in_use]);
        world.on(f64::from(second), Event::Tick);
        assert_eq!(world.cpu(2), 0, "at {second}");
    }
    assert_eq!(world.cpu(1), 1000);
    let (reason, ever) = world.wait(2).unwrap();
    assert!(reason.contains("0 of 1 slots of 1 cpu") && reason.contains("giving back") && !ever, "{reason}");
    let idle = LeaseUse { in_use: Resources::cpu(1000), ..busy(&world) };
    world.on(60.0, Event::Release { job: job(1), lease: idle });
    assert_eq!(world.cpu(2), 1000);
}

#[test]
fn a_job_takes_back_what_it_was_giving_back_itself() {
    let mut world = World::new(&[node("a", 4000)]);
    world.demand(0.0, 1, 4);
    world.demand(0.1, 1, 1);
    assert_eq!(world.cpu(1), 1000);
    world.demand(0.2, 1, 4);
    assert_eq!(world.cpu(1), 4000, "without waiting for the loan to end");
    // Slots of another size likewise.
    world.demand_with(0.3, 1, vec![Shape::anywhere(Resources::cpu(2000), 2)], Vec::new());
    assert_eq!(world.cpu(1), 4000);
}

#[test]
fn a_dead_node_takes_its_leases_along_and_its_old_incarnation_does_not_come_back() {
    let mut world = World::new(&[node("a", 2000), node("b", 2000)]);
    world.demand(0.0, 1, 4);
    let down = Event::NodeDown { node: NodeId::new("a"), incarnation: Incarnation(1) };
    world.on(1.0, down.clone());
    assert_eq!(world.cpu(1), 2000);
    assert!(world.leases[&job(1)].iter().all(|lease| lease.node.as_str() == "b"));
    world.on(1.1, Event::NodeUp(node("a", 3000)));
    assert_eq!(world.cpu(1), 2000, "that incarnation is over");
    world.on(1.2, Event::NodeUp(NodeSpec { incarnation: Incarnation(2), ..node("a", 2000) }));
    assert_eq!(world.cpu(1), 4000);
    world.on(1.3, down);
    assert_eq!(world.cpu(1), 4000, "late news of the older one");
}

#[test]
fn a_node_that_comes_back_without_a_death_between_ends_its_old_leases() {
    let mut world = World::new(&[node("a", 2000)]);
    world.demand(0.0, 1, 2);
    world.on(0.5, Event::NodeUp(NodeSpec { incarnation: Incarnation(2), ..node("a", 2000) }));
    let lease = world.lease(1);
    assert_eq!((lease.id, lease.incarnation, lease.resources.get("cpu")), (LeaseId(2), Incarnation(2), 2000));
}

#[test]
fn a_demand_that_no_node_can_meet_says_why() {
    let gpu = |count: u64| Resources::cpu(1000).with("gpu", count * 1000);
    let labelled = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let spec = NodeSpec { labels: labelled("zone", "x"), ..node("a", 2000) };
    let anywhere = Shape::anywhere(gpu(1), 1);
    let table = [
        (vec![], anywhere.clone(), "needs 1 cpu, 1 gpu, cluster has no nodes"),
        (vec![spec.clone()], anywhere.clone(), "needs 1 gpu, cluster has 0"),
        (
            vec![spec.clone(), node("b", 3000)],
            Shape::anywhere(Resources::cpu(4000), 1),
            "needs 4 cpu on one node, the largest in cluster has 3",
        ),
        (
            vec![spec.clone()],
            Shape { labels: labelled("zone", "y"), ..Shape::anywhere(Resources::cpu(1), 1) },
            "needs a node with zone=y, cluster has none",
        ),
        (
            vec![spec.clone(), NodeSpec { resources: gpu(1), ..node("g", 0) }],
            Shape { labels: labelled("zone", "x"), ..anywhere.clone() },
            "needs 1 gpu, cluster (nodes with zone=x) has 0",
        ),
        (
            vec![spec.clone()],
            Shape { node: Some(NodeId::new("z")), ..Shape::anywhere(Resources::cpu(1), 1) },
            "needs node z, which is not in the cluster",
        ),
        (
            vec![spec.clone()],
            Shape { node: Some(NodeId::new("a")), ..Shape::anywhere(Resources::cpu(2500), 1) },
            "needs 2.5 cpu, a has 2",
        ),
        (
            vec![spec.clone(), node("b", 3000)],
            Shape { function: Some("g@1".into()), ..Shape::anywhere(Resources::cpu(1000), 1) },
            "needs a node with g@1; without it: a, b",
        ),
        (
            vec![node("b", 4000), NodeSpec { resources: gpu(1), ..node("g", 0) }],
            Shape::anywhere(Resources::cpu(2000).with("gpu", 1000), 1),
            "needs 2 cpu, 1 gpu on one node, cluster has none with all of it",
        ),
    ];
    for (nodes, shape, expected) in table {
        let mut world = World::new(&nodes);
        world.demand_with(0.0, 1, vec![shape], Vec::new());
        assert_eq!(world.wait(1), Some((expected, true)));
        // It is told again when it changes, and at each renewal: a node that can do it ends the waiting.
        let told = world.log.len();
        world.on(0.1, Event::Tick);
        assert_eq!(world.log.len(), told, "{:?}", world.log);
        let able = NodeSpec {
            resources: Resources::cpu(9000).with("gpu", 9000),
            labels: BTreeMap::from([("zone".to_owned(), if expected.contains("=y") { "y" } else { "x" }.to_owned())]),
            functions: vec!["g@1".into()],
            ..node(if expected.contains('z') && expected.contains("not in") { "z" } else { "new" }, 0)
        };
        let able = if expected.contains("a has") { NodeSpec { node: NodeId::new("a"), ..able } } else { able };
        world.on(0.2, Event::NodeUp(able));
        assert_eq!(world.wait(1), None, "{expected}");
    }
}

/// What the job has and why it has no more is one word: none of it is taken back by the other part.
#[test]
fn a_job_that_has_slots_hears_at_every_renewal_that_others_are_not_to_be_had() {
    let mut world = World::new(&[node("a", 2000)]);
    let shapes = || vec![Shape::anywhere(Resources::cpu(1000), 1), Shape::anywhere(Resources::cpu(9000), 1)];
    let mut said = 0;
    for second in 0..5 {
        world.demand_with(f64::from(second), 1, shapes(), Vec::new());
        world.on(f64::from(second) + 0.5, Event::Tick);
        assert_eq!(world.cpu(1), 1000);
        assert_eq!(world.wait(1), Some(("needs 9 cpu, cluster has 2", true)));
        assert!(world.log.len() > said, "not at {second}");
        said = world.log.len();
    }
}

/// A node that is cut off from the bus, or starts, comes to a Scheduler later than the demand for it.
#[test]
fn a_demand_that_a_node_could_meet_that_is_away_waits_for_it() {
    let bound = || Shape { node: Some(NodeId::new("b")), ..Shape::anywhere(Resources::cpu(1000), 1) };
    let reason = "needs node b, which is not in the cluster";
    let away = |lost: bool| {
        let mut world = World::new(&[node("a", 2000)]);
        if lost {
            world.on(0.0, Event::NodeUp(node("b", 2000)));
            world.on(1.0, Event::NodeDown { node: NodeId::new("b"), incarnation: Incarnation(1) });
        } else {
            world.state = State::take_over(Epoch(2), SchedulerOptions::default(), secs(1.0));
            world.on(1.2, Event::NodeUp(node("a", 2000)));
        }
        world.demand_with(2.0, 1, vec![bound()], Vec::new());
        assert_eq!(world.wait(1), Some((reason, false)), "lost: {lost}");
        world
    };
    for lost in [false, true] {
        let mut world = away(lost);
        world.demand_with(10.9, 1, vec![bound()], Vec::new());
        assert_eq!(world.wait(1), Some((reason, false)));
        world.demand_with(11.0, 1, vec![bound()], Vec::new());
        world.on(12.0, Event::Tick);
        assert_eq!(world.wait(1), Some((reason, true)), "it will not come any more");

        let mut world = away(lost);
        world.demand_with(8.9, 1, vec![bound()], Vec::new());
        world.on(9.0, Event::NodeUp(NodeSpec { incarnation: Incarnation(2), ..node("b", 2000) }));
        assert_eq!(world.wait(1), None);
    }
}

#[test]
fn slots_for_a_function_are_lent_only_where_it_is() {
    let able = NodeSpec { functions: vec!["f@1".into(), "g@1".into()], ..node("b", 2000) };
    let mut world = World::new(&[node("a", 4000), able]);
    let shape = Shape { function: Some("g@1".into()), ..Shape::anywhere(Resources::cpu(1000), 6) };
    world.demand_with(0.0, 1, vec![shape], Vec::new());
    let leases = &world.leases[&job(1)];
    let lent: Vec<_> = leases.iter().map(|lease| (lease.node.as_str(), lease.resources.get("cpu"))).collect();
    assert_eq!(lent, [("b", 2000)]);
}

#[test]
fn a_demand_beyond_the_cluster_gets_all_and_says_how_much_waits() {
    let mut world = World::new(&[node("a", 2000)]);
    world.demand(0.0, 1, 10);
    assert_eq!(world.cpu(1), 2000);
    assert_eq!(world.wait(1), Some(("has 2 of 10 slots of 1 cpu; the cluster has no more", false)));
}

#[test]
fn slots_that_need_nothing_are_a_lease_all_the_same() {
    let mut world = World::new(&[node("a", 1000)]);
    world.demand(0.0, 1, 1);
    world.demand_with(0.1, 2, vec![Shape::anywhere(Resources::default(), 5)], Vec::new());
    assert_eq!(world.lease(2).resources, Resources::cpu(0));
    assert_eq!((world.cpu(1), world.wait(2)), (1000, None));
}

#[test]
fn repeated_and_late_demands_change_nothing() {
    let mut world = World::new(&[node("a", 4000)]);
    world.demand(0.0, 1, 1);
    world.demand(0.1, 1, 3);
    world.sequence = 0;
    world.demand(0.2, 1, 1);
    assert_eq!(world.cpu(1), 3000, "sequence 1 came again");
}

#[test]
fn a_job_that_is_over_leaves_nothing_and_does_not_come_back() {
    let mut world = World::new(&[node("a", 2000)]);
    world.demand(0.0, 1, 2);
    world.demand(0.0, 2, 2);
    world.on(0.5, Event::JobDone { job: job(1) });
    assert_eq!(world.cpu(2), 2000, "all of it, at once");
    world.demand(0.6, 1, 2);
    assert_eq!(world.state.jobs().len(), 1);
    let submit = Event::Submit { ask: 1, job: job(1), tenant: "t".into(), functions: Vec::new() };
    world.on(0.7, submit);
    assert_eq!(world.log.last(), Some(&Effect::Answer { ask: 1, answer: Err(Refusal::Over) }));
}

fn submit(world: &mut World, number: u128, functions: &[&str]) -> Result<Placement, Refusal> {
    let functions = functions.iter().map(|name| Arc::from(*name)).collect();
    world.on(0.0, Event::Submit { ask: 7, job: job(number), tenant: "t".into(), functions });
    match world.log.last() {
        Some(Effect::Answer { ask: 7, answer }) => answer.clone(),
        other => panic!("no answer but {other:?}"),
    }
}

#[test]
fn jobs_are_hosted_where_fewest_are_and_a_repeated_submission_gets_the_same_answer() {
    let mut world = World::new(&[]);
    assert_eq!(submit(&mut world, 1, &[]), Err(Refusal::NoNodes));
    world = World::new(&[node("a", 2000), node("b", 2000)]);
    let on = |name: &str| Ok(Placement { node: NodeId::new(name), incarnation: Incarnation(1) });
    assert_eq!(submit(&mut world, 1, &["f@1"]), on("a"));
    assert_eq!(submit(&mut world, 2, &["f@1"]), on("b"));
    assert_eq!(submit(&mut world, 1, &["f@1"]), on("a"));
    assert_eq!(
        submit(&mut world, 3, &["f@1", "g@1"]),
        Err(Refusal::UnknownFunction { missing: "g@1".into(), nodes: vec!["a".into(), "b".into()] })
    );
}

#[test]
fn a_lost_home_is_told_and_the_job_wants_nothing_until_it_speaks_again() {
    let mut world = World::new(&[node("a", 2000), node("home", 0)]);
    world.demand(0.0, 1, 2);
    world.on(1.0, Event::NodeDown { node: NodeId::new("home"), incarnation: Incarnation(1) });
    assert!(world.log.contains(&Effect::HomeLost { job: job(1), node: NodeId::new("home") }));
    world.demand(1.1, 1, 2);
    assert_eq!(world.state.jobs()[0].home, None, "a late word of the dead");
    world.on(7.0, Event::Tick);
    assert_eq!(world.state.nodes()[0].free, Resources::cpu(2000));
}

/// A lease of epoch 1 on `on`, of which one cpu is in use.
fn held(number: u128, on: &str, cpu: u64, in_use: u64) -> HeldLease {
    let lease = Lease {
        id: LeaseId(1),
        epoch: Epoch(1),
        version: 1,
        job: job(number),
        node: NodeId::new(on),
        incarnation: Incarnation(1),
        resources: Resources::cpu(cpu),
        lasts_ms: 4000,
    };
    HeldLease { lease, in_use: Resources::cpu(in_use) }
}

impl World {
    /// The Scheduler of epoch 2, which begins at `at`.
    fn takes_over(at: f64) -> Self {
        let mut world = Self::new(&[]);
        world.state = State::take_over(Epoch(2), SchedulerOptions::default(), secs(at));
        world
    }

    fn demand_holding(&mut self, at: f64, number: u128, cpus: u32, held: Vec<HeldLease>) {
        self.sequence += 1;
        let demand = JobDemand {
            job: job(number),
            tenant: format!("tenant-{number}").into(),
            owner: NodeId::new("home"),
            incarnation: Incarnation(1),
            sequence: self.sequence,
            shapes: vec![Shape::anywhere(Resources::cpu(1000), cpus)],
            leases: Vec::new(),
            held,
        };
        self.on(at, Event::Demand(demand));
    }
}

#[test]
fn a_scheduler_that_takes_over_listens_first_and_says_nothing_meanwhile() {
    let mut world = World::takes_over(10.0);
    world.demand_holding(10.1, 1, 2, vec![held(1, "a", 1000, 1000)]);
    world.on(10.2, Event::NodeUp(node("a", 2000)));
    world.on(10.4, Event::Tick);
    assert_eq!(world.log, [], "the Owner goes on with what it has");
    assert_eq!(world.state.next_wakeup(), Some(secs(10.5)));
    world.on(10.5, Event::Tick);
    assert_eq!((world.cpu(1), world.lease(1).epoch), (2000, Epoch(2)));
}

#[test]
fn what_is_in_use_under_leases_of_the_epoch_before_is_lent_to_nobody_else() {
    let mut world = World::takes_over(10.0);
    world.on(10.1, Event::NodeUp(node("a", 2000)));
    world.demand_holding(10.1, 1, 2, vec![held(1, "a", 2000, 2000)]);
    world.demand_holding(10.2, 2, 2, Vec::new());
    world.on(10.5, Event::Tick);
    // Fair are 1000 each; the job that had all is asked for half of it, and goes on using it for now.
    assert_eq!((world.cpu(1), world.cpu(2)), (1000, 0));
    let (lease, version) = (world.lease(1).id, world.lease(1).version);
    let shape = || vec![Shape::anywhere(Resources::cpu(1000), 2)];
    let in_use = |epoch, cpu| vec![LeaseUse { epoch: Epoch(epoch), lease, version, in_use: Resources::cpu(cpu) }];
    world.demand_with(10.6, 1, shape(), in_use(1, 0));
    assert_eq!(world.cpu(2), 0, "a report on another leader's lease says nothing of this one");
    world.demand_with(10.7, 1, shape(), in_use(2, 1000));
    assert_eq!((world.cpu(1), world.cpu(2)), (1000, 1000));
}

#[test]
fn leases_of_incarnations_that_are_over_or_of_this_epoch_are_not_taken_over() {
    let now = |held: &HeldLease| HeldLease { lease: Lease { epoch: Epoch(2), ..held.lease.clone() }, ..held.clone() };
    let later = NodeSpec { incarnation: Incarnation(2), ..node("a", 2000) };
    for node_first in [true, false] {
        let mut world = World::takes_over(10.0);
        let both = vec![held(1, "a", 2000, 2000), now(&held(1, "b", 2000, 2000))];
        let events = [Some(later.clone()), None];
        for event in if node_first { [0, 1] } else { [1, 0] } {
            match &events[event] {
                Some(spec) => world.on(10.1, Event::NodeUp(spec.clone())),
                None => world.demand_holding(10.1, 1, 2, both.clone()),
            }
        }
        world.on(10.1, Event::NodeUp(node("b", 2000)));
        world.demand_holding(10.2, 2, 4, Vec::new());
        world.on(10.5, Event::Tick);
        assert_eq!((world.cpu(1), world.cpu(2)), (2000, 2000), "node first: {node_first}");
    }
}

#[test]
fn a_lease_on_a_node_that_is_gone_is_no_burden() {
    let mut world = World::takes_over(10.0);
    world.on(10.1, Event::NodeUp(node("b", 2000)));
    world.demand_holding(10.1, 1, 2, vec![held(1, "a", 2000, 2000)]);
    world.on(10.5, Event::Tick);
    assert_eq!((world.cpu(1), world.leases[&job(1)].len()), (2000, 1));
}

#[test]
fn who_submits_while_the_scheduler_gathers_is_answered_when_it_knows_the_nodes() {
    let mut world = World::takes_over(10.0);
    let submit = |ask| Event::Submit { ask, job: job(1), tenant: "t".into(), functions: vec!["f@1".into()] };
    world.on(10.0, submit(1));
    world.on(10.3, Event::NodeUp(node("a", 2000)));
    assert_eq!((world.log.len(), world.state.next_wakeup()), (0, Some(secs(10.5))));
    world.on(10.5, Event::Tick);
    let home = Placement { node: NodeId::new("a"), incarnation: Incarnation(1) };
    assert_eq!(world.log, [Effect::Answer { ask: 1, answer: Ok(home) }]);
}

#[test]
fn jobs_that_nodes_say_are_over_stay_over_in_the_next_epoch() {
    let mut world = World::takes_over(10.0);
    world.on(10.0, Event::NodeUp(node("a", 2000)));
    world.on(10.1, Event::JobsOver(vec![job(1)]));
    world.demand_holding(10.2, 1, 2, vec![held(1, "a", 2000, 2000)]);
    world.on(10.5, Event::Submit { ask: 1, job: job(1), tenant: "t".into(), functions: Vec::new() });
    assert_eq!(world.log, [Effect::Answer { ask: 1, answer: Err(Refusal::Over) }]);
    assert_eq!(world.state.jobs(), [], "a late word does not bring it back");
}

fn holds(number: u128) -> Event {
    Event::Holds { node: NodeId::new("a"), jobs: vec![job(number)] }
}

fn end_job(number: u128) -> Effect {
    Effect::EndJob { node: NodeId::new("a"), job: job(number) }
}

#[test]
fn a_node_that_has_something_of_a_job_that_is_over_is_told_so() {
    let mut world = World::new(&[node("a", 2000)]);
    world.demand(0.0, 1, 1);
    world.log.clear();
    world.on(0.1, holds(1));
    assert_eq!(world.log, [], "it goes on");
    world.on(0.2, Event::JobDone { job: job(1) });
    world.on(0.3, holds(1));
    assert_eq!(world.log, [end_job(1)]);
}

#[test]
fn a_job_of_which_nothing_is_heard_but_what_a_node_has_is_over_if_no_log_and_no_owner_says_otherwise() {
    let unfinished = |jobs: &[u128]| {
        let of = |number: &u128| (job(*number), Arc::from("t"), vec!["lacking@1".into()]);
        Event::Unfinished(jobs.iter().map(of).collect())
    };
    // Logged as unfinished; an Owner speaks; neither.
    for (logged, speaks) in [(true, false), (false, true), (false, false)] {
        let mut world = World::new(&[node("a", 2000)]);
        world.on(0.0, unfinished(&[]));
        world.on(1.0, holds(1));
        assert_eq!(world.log, [Effect::Look], "what was looked before says nothing of it");
        world.log.clear();
        world.on(1.1, unfinished(if logged { &[1] } else { &[] }));
        world.on(10.9, holds(1));
        assert_eq!(world.log, [], "its Owner may be looking for the Scheduler");
        if speaks {
            world.demand(10.95, 1, 1);
            world.log.clear();
        }
        world.on(11.0, holds(1));
        let told = if logged || speaks { vec![] } else { vec![end_job(1)] };
        assert_eq!(world.log, told, "logged: {logged}, an Owner speaks: {speaks}");
    }
}

#[test]
fn an_owner_that_has_gone_again_does_not_keep_what_a_node_has_of_a_job_that_is_over() {
    let mut world = World::new(&[node("a", 2000)]);
    // It had been replaced, and the job has ended under an earlier Scheduler.
    world.demand(0.0, 1, 1);
    world.log.clear();
    for at in [2.0, 5.0] {
        world.on(at, holds(1));
    }
    world.on(5.1, Event::Unfinished(Vec::new()));
    world.on(16.0, holds(1));
    assert!(world.log.contains(&end_job(1)), "{:?}", world.log);
}

#[test]
fn a_job_whose_end_was_not_written_down_before_its_host_was_gone_is_given_to_a_node_for_that() {
    let mut world = World::takes_over(10.0);
    world.on(10.0, Event::NodeUp(node("a", 2000)));
    world.on(10.1, Event::JobsOver(vec![job(1)]));
    world.on(12.0, Event::Unfinished(vec![(job(1), "t".into(), Vec::new())]));
    assert_eq!(world.log, [Effect::Resume { job: job(1), on: NodeId::new("a") }]);
    assert_eq!(world.state.jobs(), [], "it is over all the same");
}

#[test]
fn a_job_that_its_log_says_is_not_over_is_lent_what_it_wants_when_it_runs_again() {
    let mut world = World::takes_over(10.0);
    world.on(10.0, Event::NodeUp(node("a", 2000)));
    world.on(10.1, Event::JobsOver(vec![job(1)]));
    world.demand(11.0, 1, 2);
    world.on(11.1, Event::Holds { node: NodeId::new("a"), jobs: vec![job(1)] });
    assert_eq!(world.cpu(1), 0);
    assert_eq!(world.log, [Effect::EndJob { node: NodeId::new("a"), job: job(1) }], "as far as is known");
    world.on(12.0, Event::Unfinished(vec![(job(1), "t".into(), Vec::new())]));
    world.log.clear();
    world.demand(13.0, 1, 2);
    assert_eq!(world.cpu(1), 2000, "its end was lost with a server that was emptied");
    world.on(13.1, Event::Holds { node: NodeId::new("a"), jobs: vec![job(1)] });
    assert!(!world.log.iter().any(|effect| matches!(effect, Effect::EndJob { .. })), "{:?}", world.log);
}

#[test]
fn a_node_that_shrinks_is_lent_from_again_when_there_is_room() {
    let mut world = World::new(&[node("a", 4000)]);
    world.demand(0.0, 1, 4);
    world.on(0.1, Event::NodeUp(node("a", 1000)));
    assert_eq!(world.cpu(1), 1000);
    world.demand(0.2, 2, 1);
    assert_eq!(world.cpu(2), 0);
    assert_eq!(world.state.nodes()[0].free, Resources::default());
}

#[test]
fn lists_tell_what_there_is() {
    let mut world = World::new(&[node("a", 4000)]);
    world.demand(0.0, 1, 3);
    let nodes = world.state.nodes();
    assert_eq!((nodes[0].up, nodes[0].leases, nodes[0].free.clone()), (true, 1, Resources::cpu(1000)));
    let jobs = world.state.jobs();
    assert_eq!((jobs[0].wanted_slots, jobs[0].slots, jobs[0].share_milli), (3, 3, 750));
    assert_eq!(jobs[0].resources, Resources::cpu(3000));
}

#[test]
fn a_host_that_is_silent_is_told_again_of_its_unfinished_job_and_one_that_speaks_is_not() {
    let mut world = World::new(&[node("a", 2000)]);
    for (at, told) in [(0.0, 1), (1.0, 1), (3.5, 2), (4.0, 2)] {
        world.on(at, Event::Unfinished(vec![(job(1), "tenant-1".into(), vec!["f@1".into()])]));
        let resume = Effect::Resume { job: job(1), on: NodeId::new("a") };
        assert_eq!(world.log.iter().filter(|effect| **effect == resume).count(), told, "at {at}");
        if at > 3.0 {
            world.sequence += 1;
            let (owner, incarnation, sequence) = (NodeId::new("a"), Incarnation(1), world.sequence);
            let (shapes, leases, held) = (Vec::new(), Vec::new(), Vec::new());
            let tenant = "tenant-1".into();
            let demand = JobDemand { job: job(1), tenant, owner, incarnation, sequence, shapes, leases, held };
            world.on(at, Event::Demand(demand));
        }
    }
}

#[test]
fn of_nodes_that_host_as_many_jobs_the_one_with_most_free_is_taken() {
    // What each has, how much of it is lent, and which is the host.
    for (all, lent, host) in
        [([8000, 1000], [4000, 0], "b"), ([1000, 2000], [1000, 0], "b"), ([2000, 4000], [0, 3000], "a")]
    {
        let nodes = ["a", "b"].into_iter().zip(all).map(|(name, cpu)| {
            // Of what it has nothing of, nobody can have anything.
            let resources = Resources::cpu(cpu).with("gpu", 0);
            NodeSpec { resources, ..node(name, 0) }
        });
        let mut world = World::new(&nodes.collect::<Vec<_>>());
        for (number, (name, cpu)) in (8..).zip(["a", "b"].into_iter().zip(lent)) {
            let shape = Shape { node: Some(NodeId::new(name)), ..Shape::anywhere(Resources::cpu(100), cpu / 100) };
            world.demand_with(0.0, number, vec![shape], Vec::new());
        }
        let answer = submit(&mut world, 1, &["f@1"]);
        assert_eq!(answer.map(|home| home.node), Ok(NodeId::new(host)), "{all:?} {lent:?}");
    }
}

#[test]
fn who_wanted_nothing_for_long_has_no_claim_for_that_time() {
    for (tenants, speaks) in [(["x", "x", "x"], true), (["x", "y", "z"], true), (["x", "x", "x"], false)] {
        let mut world = World::new(&[node("a", 1000)]);
        let mut had = [0, 0, 0];
        for second in 0..100 {
            world.on(f64::from(second), Event::Tick);
            // The second one begins late, and the third one never does.
            for (index, count) in [1, u32::from(second >= 40), 0].into_iter().enumerate() {
                if count == 0 && !speaks {
                    continue;
                }
                world.sequence += 1;
                let demand = JobDemand {
                    job: job(index as u128),
                    tenant: tenants[index].into(),
                    owner: NodeId::new("home"),
                    incarnation: Incarnation(1),
                    sequence: world.sequence,
                    shapes: vec![Shape::anywhere(Resources::cpu(1000), count)],
                    leases: Vec::new(),
                    held: Vec::new(),
                };
                world.on(f64::from(second), Event::Demand(demand));
                had[index] += u32::from(second >= 40 && world.cpu(index as u128) > 0);
            }
        }
        assert!(had[0].abs_diff(had[1]) <= 15 && had[2] == 0, "{tenants:?}: {had:?}");
    }
}

#[test]
fn a_demand_of_an_earlier_incarnation_of_its_host_is_not_heard_and_one_of_a_later_one_is() {
    let home = NodeSpec { incarnation: Incarnation(2), ..node("home", 0) };
    for (incarnation, heard) in [(1, false), (2, true), (3, true)] {
        let mut world = World::new(&[node("a", 2000), home.clone()]);
        let demand = JobDemand {
            job: job(1),
            tenant: "t".into(),
            owner: NodeId::new("home"),
            incarnation: Incarnation(incarnation),
            sequence: 1,
            shapes: vec![Shape::anywhere(Resources::cpu(1000), 1)],
            leases: Vec::new(),
            held: Vec::new(),
        };
        world.on(0.1, Event::Demand(demand));
        assert_eq!(world.cpu(1) > 0, heard, "incarnation {incarnation}");
    }
}

#[test]
fn only_leases_of_the_job_itself_and_of_incarnations_that_go_on_are_taken_over() {
    type Change = fn(&mut Lease);
    let cases: [(&str, Change, bool); 6] = [
        ("as it should be", |_| {}, true),
        ("of an incarnation that is not known yet", |lease| lease.incarnation = Incarnation(3), true),
        ("of this epoch", |lease| lease.epoch = Epoch(2), false),
        ("of another job", |lease| lease.job = job(9), false),
        ("of an earlier incarnation", |lease| lease.incarnation = Incarnation(1), false),
        ("of a node that is dead", |lease| lease.node = NodeId::new("dead"), false),
    ];
    for (what, change, taken) in cases {
        let mut world = World::takes_over(10.0);
        for name in ["a", "dead"] {
            world.on(10.0, Event::NodeUp(NodeSpec { incarnation: Incarnation(2), ..node(name, 2000) }));
        }
        world.on(10.1, Event::NodeDown { node: NodeId::new("dead"), incarnation: Incarnation(2) });
        let mut lease = held(1, "a", 2000, 2000);
        lease.lease.incarnation = Incarnation(2);
        change(&mut lease.lease);
        let on = lease.lease.node.clone();
        world.demand_holding(10.2, 1, 2, vec![lease]);
        let loan = world.state.loans.get(&(job(1), on));
        assert_eq!(loan.map(|loan| loan.ends_at), taken.then(|| secs(15.2)), "{what}");
    }
}

#[test]
fn leases_that_are_taken_over_have_ids_of_their_own() {
    let mut world = World::takes_over(10.0);
    ["a", "b", "c"].iter().for_each(|name| world.on(10.0, Event::NodeUp(node(name, 1000))));
    world.demand_holding(10.2, 1, 3, ["a", "b", "c"].map(|name| held(1, name, 1000, 1000)).to_vec());
    let ids: Vec<_> = world.state.loans.values().map(|loan| loan.id).collect();
    assert_eq!(ids, [LeaseId(1), LeaseId(2), LeaseId(3)]);
}

#[test]
fn a_job_of_which_nothing_is_heard_for_a_minute_is_forgotten() {
    let mut world = World::new(&[node("a", 2000)]);
    world.demand(0.0, 1, 1);
    for second in 1..60 {
        world.on(f64::from(second), Event::Tick);
    }
    assert_eq!(world.state.jobs().len(), 1);
    world.on(61.0, Event::Tick);
    assert_eq!(world.state.jobs(), []);
    assert!(world.state.tenants_used.is_empty() && world.state.next_wakeup().is_none());
}

#[test]
fn of_jobs_that_are_over_the_last_few_thousand_are_remembered() {
    let mut world = World::new(&[node("a", 2000)]);
    for number in 0..=OVER_MAX as u128 {
        world.on(0.0, Event::JobDone { job: job(number) });
    }
    assert!(submit(&mut world, 0, &[]).is_ok(), "that is long ago");
    assert_eq!(submit(&mut world, 1, &[]), Err(Refusal::Over));
}

#[test]
fn a_node_that_changes_keeps_its_leases_and_one_in_a_later_incarnation_loses_its_jobs_too() {
    let mut world = World::new(&[node("a", 4000), node("home", 0)]);
    world.demand(0.0, 1, 2);
    world.on(0.1, Event::NodeUp(node("a", 3000)));
    assert_eq!((world.lease(1).id, world.lease(1).resources.get("cpu")), (LeaseId(1), 2000));
    world.on(0.2, Event::NodeUp(node("home", 1000)));
    assert!(!world.log.iter().any(|effect| matches!(effect, Effect::HomeLost { .. })));
    world.on(0.3, Event::NodeUp(NodeSpec { incarnation: Incarnation(2), ..node("home", 1000) }));
    assert!(world.log.contains(&Effect::HomeLost { job: job(1), node: NodeId::new("home") }));
}

#[test]
fn a_lease_that_was_taken_over_before_its_node_was_known_ends_when_that_is_in_a_later_incarnation() {
    for (incarnation, stays) in [(1, true), (2, false)] {
        let mut world = World::takes_over(10.0);
        world.demand_holding(10.1, 1, 2, vec![held(1, "a", 2000, 2000)]);
        world.on(10.2, Event::NodeUp(NodeSpec { incarnation: Incarnation(incarnation), ..node("a", 2000) }));
        assert_eq!(world.state.loans.len(), usize::from(stays), "incarnation {incarnation}");
    }
}

#[test]
fn what_a_job_uses_goes_on_its_bill_and_its_tenants() {
    let mut world = World::new(&[node("a", 4000)]);
    world.demand(1.0, 1, 2);
    world.on(11.0, Event::Tick);
    let used = u128::from(plan::WHOLE) / 2 * 10_000;
    assert_eq!((world.state.jobs[&job(1)].used, world.state.tenants_used["tenant-1"]), (used, used));
}

#[test]
fn the_next_tick_is_when_slots_that_are_given_back_are_free_or_at_the_next_renewal() {
    let mut world = World::new(&[node("a", 4000)]);
    world.demand(0.3, 1, 4);
    assert_eq!(world.state.next_wakeup(), Some(secs(1.0)));
    world.demand(0.5, 1, 2);
    world.keep(1, 6, &[(1, 2)]);
    assert_eq!(world.state.nodes()[0].free.get("cpu"), 0, "its Owner may use them for five seconds");
    assert_eq!(world.state.next_wakeup(), Some(secs(5.3)));
    world.on(5.3, Event::Tick);
    assert_eq!(world.state.nodes()[0].free.get("cpu"), 2000);
    assert_eq!(world.state.next_wakeup(), Some(secs(6.0)));
}
