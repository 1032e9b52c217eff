//! The promises of the Scheduler under random demands, with Owners that use what they were lent, learn late, fall
//! silent, and nodes that die and come back. What is checked is what the Owners were told, not what the state holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::state::{Effect, Event, SchedulerOptions, State};
use crate::ids::{Epoch, Incarnation, JobId, LeaseId, NodeId};
use crate::protocol::scheduler::{JobDemand, Lease, LeaseUse, NodeSpec, Shape};
use crate::task::Resources;

/// What happens in one step of 100 ms.
#[derive(Clone, Debug)]
enum Step {
    Nothing,
    Want {
        job: usize,
        shape: usize,
        count: u32,
    },
    /// Tasks of the job end, so that at most this percentage of its slots is in use.
    Idle {
        job: usize,
        percent: u64,
    },
    Mute {
        job: usize,
        steps: u32,
    },
    Kill {
        node: usize,
    },
    Revive {
        node: usize,
    },
    Done {
        job: usize,
    },
}

const JOBS: usize = 5;

fn shapes() -> [Resources; 4] {
    [Resources::cpu(1000), Resources::cpu(500), Resources::cpu(2500), Resources::cpu(1000).with("gpu", 1000)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let job = 0..JOBS;
    let step = prop_oneof![
        6 => Just(Step::Nothing),
        4 => (job.clone(), 0..4_usize, 0..12_u32).prop_map(|(job, shape, count)| Step::Want { job, shape, count }),
        3 => (job.clone(), 0..100_u64).prop_map(|(job, percent)| Step::Idle { job, percent }),
        1 => (job.clone(), 0..120_u32).prop_map(|(job, steps)| Step::Mute { job, steps }),
        1 => (0..4_usize).prop_map(|node| Step::Kill { node }),
        1 => (0..4_usize).prop_map(|node| Step::Revive { node }),
        1 => job.prop_map(|job| Step::Done { job }),
    ];
    proptest::collection::vec(step, 1..250)
}

fn nodes() -> impl Strategy<Value = Vec<Resources>> {
    let node = (1..9_u64, 0..3_u64).prop_map(|(cpu, gpu)| match gpu {
        0 => Resources::cpu(cpu * 1000),
        gpu => Resources::cpu(cpu * 1000).with("gpu", gpu * 1000),
    });
    proptest::collection::vec(node, 1..5)
}

struct Owner {
    id: JobId,
    tenant: Arc<str>,
    wants: Vec<Shape>,
    sequence: u64,
    silent_until: u32,
    /// Told, not yet arrived: (step of arrival, leases).
    coming: Vec<(u32, Vec<Lease>)>,
    /// Known: lease and the millisecond at which it ends.
    known: BTreeMap<LeaseId, (Lease, u64)>,
    in_use: BTreeMap<LeaseId, (NodeId, Incarnation, Resources)>,
}

struct World {
    state: State,
    nodes: Vec<(NodeSpec, bool)>,
    owners: Vec<Owner>,
    step: u32,
    /// Steps that a message to an Owner takes.
    delay: u32,
    log: Vec<Effect>,
}

impl World {
    fn new(nodes: &[Resources], tenants: usize, delay: u32) -> Self {
        let spec = |(at, resources): (usize, &Resources)| NodeSpec {
            node: NodeId::new(&format!("n{at}")),
            incarnation: Incarnation(1),
            resources: resources.clone(),
            labels: BTreeMap::new(),
            functions: Vec::new(),
            data_address: String::new(),
            memory_bytes: 0,
        };
        let owner = |at: usize| Owner {
            id: JobId::from_u128(at as u128 + 1),
            tenant: format!("t{}", at % tenants).into(),
            wants: Vec::new(),
            sequence: 0,
            silent_until: 0,
            coming: Vec::new(),
            known: BTreeMap::new(),
            in_use: BTreeMap::new(),
        };
        let mut world = Self {
            state: State::new(Epoch(1), SchedulerOptions::default()),
            nodes: nodes.iter().enumerate().map(|node| (spec(node), true)).collect(),
            owners: (0..JOBS).map(owner).collect(),
            step: 0,
            delay,
            log: Vec::new(),
        };
        for (spec, _) in world.nodes.clone() {
            world.on(Event::NodeUp(spec));
        }
        world
    }

    fn millis(&self) -> u64 {
        u64::from(self.step) * 100
    }

    fn on(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.state.on(Duration::from_millis(self.millis()), event, &mut effects);
        for effect in &effects {
            if let Effect::Leases { job, leases: Some(leases), .. } = effect {
                let owner = self.owners.iter_mut().find(|owner| owner.id == *job).unwrap();
                owner.coming.push((self.step + self.delay, leases.clone()));
            }
        }
        self.log.extend(effects);
    }

    fn speak(&mut self, at: usize) {
        let owner = &mut self.owners[at];
        owner.sequence += 1;
        let report = |(id, (lease, _)): (&LeaseId, &(Lease, u64))| LeaseUse {
            epoch: lease.epoch,
            lease: *id,
            version: lease.version,
            in_use: owner.in_use.get(id).map(|(_, _, amounts)| amounts.clone()).unwrap_or_default(),
        };
        let event = Event::Demand(JobDemand {
            job: owner.id,
            tenant: Arc::clone(&owner.tenant),
            owner: NodeId::new("elsewhere"),
            incarnation: Incarnation(1),
            sequence: owner.sequence,
            shapes: owner.wants.clone(),
            leases: owner.known.iter().map(report).collect(),
            held: Vec::new(),
        });
        self.on(event);
    }

    /// Owners learn what has arrived, and use all that they are lent.
    fn live(&mut self) {
        let (step, now) = (self.step, self.millis());
        for owner in &mut self.owners {
            let (here, coming) = owner.coming.drain(..).partition(|(due, _)| *due <= step);
            owner.coming = coming;
            let here: Vec<(u32, Vec<Lease>)> = here;
            if let Some((_, leases)) = here.last() {
                owner.known = leases.iter().map(|lease| (lease.id, (lease.clone(), now + lease.lasts_ms))).collect();
            }
            owner.known.retain(|_, (_, ends_at)| now < *ends_at);
            if owner.silent_until > step {
                // Its tasks are not watched while it is silent: it may be dead.
                owner.in_use.clear();
                continue;
            }
            for (id, (lease, _)) in &owner.known {
                let entry = || (lease.node.clone(), lease.incarnation, Resources::default());
                let (_, _, used) = owner.in_use.entry(*id).or_insert_with(entry);
                for (kind, amount) in &lease.resources.0 {
                    let used = used.0.entry(Arc::clone(kind)).or_default();
                    *used = (*used).max(*amount);
                }
            }
            let nodes = &self.nodes;
            owner.in_use.retain(|_, (node, incarnation, _)| {
                nodes.iter().any(|(spec, up)| *up && spec.node == *node && spec.incarnation == *incarnation)
            });
        }
    }

    /// Nothing of a node that lives is promised, or in use, twice.
    fn check_no_over_commit(&self) -> Result<(), TestCaseError> {
        for (spec, _) in self.nodes.iter().filter(|(_, up)| *up) {
            let mut sum: BTreeMap<&str, u64> = BTreeMap::new();
            for owner in &self.owners {
                let here =
                    |node: &NodeId, incarnation: Incarnation| *node == spec.node && incarnation == spec.incarnation;
                let ids: BTreeSet<_> = owner.known.keys().chain(owner.in_use.keys()).collect();
                for id in ids {
                    let known = owner.known.get(id).filter(|(lease, _)| here(&lease.node, lease.incarnation));
                    let used = owner.in_use.get(id).filter(|(node, incarnation, _)| here(node, *incarnation));
                    for kind in ["cpu", "gpu"] {
                        let known = known.map_or(0, |(lease, _)| lease.resources.get(kind));
                        let used = used.map_or(0, |(_, _, amounts)| amounts.get(kind));
                        *sum.entry(kind).or_default() += known.max(used);
                    }
                }
            }
            for (kind, sum) in sum {
                let has = spec.resources.get(kind);
                prop_assert!(sum <= has, "{sum} {kind} on {} with {has}, at step {}", spec.node, self.step);
            }
        }
        Ok(())
    }

    fn play(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        for step in steps {
            self.step += 1;
            match step {
                Step::Nothing => {}
                Step::Want { job, shape, count } => {
                    self.owners[*job].wants = vec![Shape::anywhere(shapes()[*shape].clone(), *count)];
                    if self.owners[*job].silent_until <= self.step {
                        self.speak(*job);
                    }
                }
                Step::Idle { job, percent } => {
                    for (_, _, used) in self.owners[*job].in_use.values_mut() {
                        used.0.values_mut().for_each(|amount| *amount = *amount * percent / 100);
                    }
                }
                Step::Mute { job, steps } => self.owners[*job].silent_until = self.step + steps,
                Step::Kill { node } => {
                    let at = node % self.nodes.len();
                    self.nodes[at].1 = false;
                    let NodeSpec { node, incarnation, .. } = self.nodes[at].0.clone();
                    self.on(Event::NodeDown { node, incarnation });
                }
                Step::Revive { node } => {
                    let at = node % self.nodes.len();
                    if !self.nodes[at].1 {
                        self.nodes[at].0.incarnation.0 += 1;
                        self.nodes[at].1 = true;
                        self.on(Event::NodeUp(self.nodes[at].0.clone()));
                    }
                }
                Step::Done { job } => {
                    // A new job takes the place of the old one.
                    let owner = &mut self.owners[*job];
                    let id = owner.id;
                    owner.id = JobId::from_u128(id.as_u128() + JOBS as u128);
                    (owner.wants, owner.sequence) = (Vec::new(), 0);
                    owner.coming.clear();
                    owner.known.clear();
                    owner.in_use.clear();
                    self.on(Event::JobDone { job: id });
                }
            }
            self.live();
            self.check_no_over_commit()?;
            for job in 0..JOBS {
                // Every second, each at its own time.
                if (self.step as usize + job * 3).is_multiple_of(10) && self.owners[job].silent_until <= self.step {
                    self.speak(job);
                }
            }
            if self.state.next_wakeup().is_some_and(|due| due <= Duration::from_millis(self.millis())) {
                self.on(Event::Tick);
            }
            self.live();
            self.check_no_over_commit()?;
        }
        Ok(())
    }

    /// Lets everybody speak, and end what is not lent any more, until nothing moves.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for owner in &mut self.owners {
            owner.silent_until = 0;
        }
        for _ in 0..150 {
            for owner in &mut self.owners {
                for (id, (_, _, used)) in &mut owner.in_use {
                    *used = owner.known.get(id).map(|(lease, _)| lease.resources.clone()).unwrap_or_default();
                }
            }
            self.play(&[Step::Nothing])?;
        }
        Ok(())
    }

    fn slots(&self, at: usize) -> u64 {
        let jobs = self.state.jobs();
        jobs.iter().find(|job| job.job == self.owners[at].id).map_or(0, |job| job.slots)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever happens, no node is over-committed; and when the dust has settled no slot that fits an unmet demand
    /// is left, and everything went the same way twice.
    #[test]
    fn nodes_are_never_over_committed_and_nothing_is_left_unlent(
        nodes in nodes(), tenants in 1..4_usize, delay in 0..9_u32, steps in steps(),
    ) {
        let mut world = World::new(&nodes, tenants, delay);
        world.play(&steps)?;
        let mut again = World::new(&nodes, tenants, delay);
        again.play(&steps)?;
        prop_assert!(world.log == again.log, "the same events, other effects");
        world.settle()?;
        // Where there are more jobs than slots, a slot may just be on its way from one whose turn is over to the next; if the next
        // one needs more, what is free already waits for the rest.
        let mut unlent = unlent_in(&world);
        for _ in 0..STEPS_OF_A_TURN {
            if unlent.is_none() {
                break;
            }
            world.play(&[Step::Nothing])?;
            unlent = unlent_in(&world);
        }
        prop_assert_eq!(unlent, None);
    }

    /// A demand of one shape that the cluster can meet is met at once when the job is alone.
    #[test]
    fn a_satisfiable_demand_is_met_when_alone(nodes in nodes(), shape in 0..4_usize, part in 0.0..1.0_f64) {
        let need = shapes()[shape].clone();
        let most: u64 = nodes.iter().map(|node| node.times(&need)).sum();
        let count = (most as f64 * part).ceil() as u32;
        let mut world = World::new(&nodes, 1, 0);
        world.owners[0].wants = vec![Shape::anywhere(need, count)];
        world.speak(0);
        prop_assert_eq!(world.slots(0), u64::from(count));
    }

    /// Max-min with slots of one size: who wants more has at most one slot less than anybody else of its tenant, and
    /// its tenant at most one less than any other.
    #[test]
    fn slots_are_shared_fairly(
        nodes in nodes(), tenants in 1..4_usize, wants in proptest::collection::vec(0..20_u32, JOBS), steps in steps(),
    ) {
        let mut world = World::new(&nodes, tenants, 2);
        let no_mess = |step: &Step| matches!(step, Step::Want { .. } | Step::Idle { .. } | Step::Nothing);
        let steps: Vec<_> = steps.into_iter().filter(no_mess).collect();
        world.play(&steps)?;
        for (owner, count) in world.owners.iter_mut().zip(&wants) {
            owner.wants = vec![Shape::anywhere(Resources::cpu(1000), *count)];
        }
        world.settle()?;
        // Where there are more jobs than slots, a slot may just be on its way from one whose turn is over to the next.
        let mut envy = envy_of(&world, &wants, tenants);
        for _ in 0..STEPS_OF_A_TURN {
            if envy.is_none() {
                break;
            }
            world.play(&[Step::Nothing])?;
            envy = envy_of(&world, &wants, tenants);
        }
        prop_assert_eq!(envy, None);
    }
}

/// Steps in which a slot that is given back has been lent again.
const STEPS_OF_A_TURN: u32 = 50;

/// Whose demand is not met though a slot of it is free, if anybody's.
fn unlent_in(world: &World) -> Option<String> {
    let free: Vec<_> = world.state.nodes().into_iter().filter(|node| node.up).map(|node| node.free).collect();
    (0..JOBS).find_map(|at| {
        let wants = world.owners[at].wants.first()?;
        let unmet = world.slots(at) < u64::from(wants.count);
        let room = free.iter().any(|free| free.times(&wants.resources) > 0);
        (unmet && room).then(|| format!("job {at} has {} of {wants:?}, free is {free:?}", world.slots(at)))
    })
}

/// Who has less than it should beside another, if anybody has.
fn envy_of(world: &World, wants: &[u32], tenants: usize) -> Option<String> {
    let slots: Vec<_> = (0..JOBS).map(|at| world.slots(at)).collect();
    let of_tenant =
        |at: usize| (0..JOBS).filter(|job| job % tenants == at % tenants).map(|job| slots[job]).sum::<u64>();
    let fair = |one: usize, other: usize| match one % tenants == other % tenants {
        true => slots[one] + 1 >= slots[other],
        false => of_tenant(one) + 1 >= of_tenant(other),
    };
    let short = (0..JOBS).filter(|job| slots[*job] < u64::from(wants[*job]));
    let envious =
        short.flat_map(|one| (0..JOBS).map(move |other| (one, other))).find(|(one, other)| !fair(*one, *other));
    envious.map(|(one, other)| format!("{one} envies {other}: {slots:?} of {wants:?}, {tenants} tenants"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// More jobs than slots: each one has a slot again and again.
    #[test]
    fn nobody_starves(cpus in 1..4_u64, tenants in 1..4_usize) {
        let mut world = World::new(&[Resources::cpu(cpus * 1000)], tenants, 1);
        for owner in &mut world.owners {
            owner.wants = vec![Shape::anywhere(Resources::cpu(1000), 3)];
        }
        // A round of turns of all jobs, with what it takes to give a slot back, twice over.
        let options = SchedulerOptions::default();
        let round = (options.turn + options.renew_every * 2) * JOBS as u32 * 2;
        for _ in 0..2 {
            let mut served = BTreeSet::new();
            for _ in 0..round.as_millis() / 1000 {
                for _ in 0..10 {
                    // Tasks are short: what is taken back is idle at once.
                    for owner in &mut world.owners {
                        owner.in_use.clear();
                    }
                    world.play(&[Step::Nothing])?;
                }
                served.extend((0..JOBS).filter(|job| !world.owners[*job].in_use.is_empty()));
            }
            prop_assert_eq!(served.len(), JOBS, "only {:?} had a slot", served);
        }
    }
}

#[test]
fn one_slot_and_a_large_demand_beside_small_ones_take_turns() {
    let mut world = World::new(&[Resources::cpu(4000)], 5, 1);
    for (at, size) in [4000, 1000, 1000, 1000, 1000].into_iter().enumerate() {
        world.owners[at].wants = vec![Shape::anywhere(Resources::cpu(size), 4)];
    }
    let mut large = 0;
    let mut small = 0;
    for _ in 0..1200 {
        for owner in &mut world.owners {
            owner.in_use.clear();
        }
        world.play(&[Step::Nothing]).unwrap();
        large += world.slots(0);
        small += world.slots(1);
    }
    // In 120 s the large one, which excludes all others, still gets its part of the time, and so do they.
    assert!(large > 100 && small > 300, "{large} {small}");
}

#[test]
fn one_slot_alternates_between_tenants_however_many_jobs_each_has() {
    let mut world = World::new(&[Resources::cpu(1000)], 2, 1);
    for owner in &mut world.owners {
        owner.wants = vec![Shape::anywhere(Resources::cpu(1000), 1)];
    }
    let mut slots = [0, 0];
    for _ in 0..2000 {
        for owner in &mut world.owners {
            owner.in_use.clear();
        }
        world.play(&[Step::Nothing]).unwrap();
        for at in 0..JOBS {
            slots[at % 2] += world.slots(at);
        }
    }
    // Three jobs of one tenant, two of the other: each tenant has half of the 200 s, give or take a turn.
    assert!(slots.iter().all(|steps| (840..1160).contains(steps)), "{slots:?}");
}
