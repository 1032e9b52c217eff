//! Random programs on random nodes that die, come back, lose objects and speak late.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::state::Tracker;
use super::world_tests::{SECRET, World, output};
use crate::ids::{Attempt, ObjectId, SetId, TaskId};
use crate::task::{
    Arg, Description, FailureKind, Loss, LostObject, Parts, Returns, Source, StillRunning, TaskOptions, TaskSpec,
};

/// What a random program and random nodes do.
#[derive(Clone, Debug)]
enum Step {
    Submit {
        args: Vec<prop::sample::Index>,
        outputs: u32,
    },
    Repeat(prop::sample::Index),
    Set(Vec<prop::sample::Index>),
    Complete(prop::sample::Index),
    Fail(prop::sample::Index),
    Recall(prop::sample::Index),
    Cancel(prop::sample::Index),
    Release(prop::sample::Index),
    /// A node says that an attempt has been running for long.
    Slow(prop::sample::Index),
    /// An attempt that was cancelled completes.
    Late(prop::sample::Index),
    /// A node dies, and what it held with it, or not.
    Crash(prop::sample::Index, bool),
    /// A node comes back.
    Restart(prop::sample::Index),
    /// What was said last to a node, and by it, is lost.
    Reset(prop::sample::Index),
    /// An argument of an attempt is not where it should be.
    Lost(prop::sample::Index, prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let any = || any::<prop::sample::Index>();
    prop_oneof![
        4 => (prop::collection::vec(any(), 0..3), 1..4u32).prop_map(|(args, outputs)| Step::Submit { args, outputs }),
        1 => any().prop_map(Step::Repeat),
        1 => prop::collection::vec(any(), 0..4).prop_map(Step::Set),
        5 => any().prop_map(Step::Complete),
        1 => any().prop_map(Step::Fail),
        1 => any().prop_map(Step::Recall),
        1 => any().prop_map(Step::Cancel),
        3 => any().prop_map(Step::Release),
        2 => any().prop_map(Step::Slow),
        1 => any().prop_map(Step::Late),
        1 => (any(), proptest::bool::ANY).prop_map(|(node, keeps)| Step::Crash(node, keeps)),
        2 => any().prop_map(Step::Restart),
        1 => any().prop_map(Step::Reset),
        1 => (any(), any()).prop_map(|(attempt, object)| Step::Lost(attempt, object)),
    ]
}

/// What the program holds.
#[derive(Clone, Copy)]
enum Held {
    Object(ObjectId),
    Set(SetId),
}

impl Held {
    fn arg(self) -> Arg {
        let source = match self {
            Self::Object(object) => Source::Object(object),
            Self::Set(set) => Source::Set(set),
        };
        Arg { source, parts: Parts::All }
    }
}

/// Completes an attempt with all its outputs.
fn complete_all(world: &mut World, (task, attempt): (TaskId, Attempt)) {
    let (_, spec) = world.running.get(&(task, attempt)).unwrap_or_else(|| &world.zombies[&(task, attempt)]);
    let outputs = if let Returns::Many(outputs) = spec.returns { outputs as usize } else { 1 };
    world.complete_attempt(task, attempt, &vec![output(8, 1); outputs], &[]);
}

/// Whether what the Owner thinks exists does.
fn what_counts_is_stored(world: &World) -> bool {
    let here = world.owner.objects.iter().filter(|(_, object)| object.is_here()).map(|(index, _)| index);
    let mut copies = here.map(|object| world.owner.copy_that_counts(object).expect("it has bytes"));
    copies.all(|copy| world.stored.contains_key(&copy))
}

fn drop_held(world: &mut World, held: Held) {
    match held {
        Held::Object(object) => world.owner.release_object(object),
        Held::Set(set) => world.owner.release_set(set),
    }
}

fn do_step(world: &mut World, held: &mut Vec<Held>, submitted: &mut Vec<Description>, step: Step) {
    match step {
        Step::Submit { args, outputs } => {
            let args: Vec<_> =
                if held.is_empty() { vec![] } else { args.iter().map(|at| held[at.index(held.len())].arg()).collect() };
            let returns = if outputs == 1 { Returns::One } else { Returns::Many(outputs) };
            let options = TaskOptions { returns, ..TaskOptions::default() };
            let description = World::description(&format!("t{}", submitted.len()), &args, options);
            let id = description.id(SECRET);
            submitted.push(description.clone());
            world.owner.submit(id, description);
            held.extend((0..outputs).map(|index| Held::Object(id.output(index))));
        }
        Step::Repeat(at) => {
            // Only what has no arguments: those of others may have been released.
            let again: Vec<_> = submitted.iter().filter(|description| description.args.is_empty()).collect();
            if !again.is_empty() {
                let description = again[at.index(again.len())].clone();
                let id = description.id(SECRET);
                let outputs = match description.options.returns {
                    Returns::Many(n) => n,
                    _ => 1,
                };
                world.owner.submit(id, description);
                held.extend((0..outputs).map(|index| Held::Object(id.output(index))));
            }
        }
        Step::Set(members) => {
            let objects: Vec<_> = held
                .iter()
                .filter_map(|held| if let Held::Object(object) = held { Some(*object) } else { None })
                .collect();
            if !objects.is_empty() {
                let members: Vec<_> = members.iter().map(|at| objects[at.index(objects.len())]).collect();
                let set = SetId::of(&members);
                world.owner.make_set(set, &members, None);
                held.push(Held::Set(set));
            }
        }
        Step::Complete(at) => {
            if let Some(attempt) = world.any_running(&at) {
                complete_all(world, attempt);
            }
        }
        Step::Fail(at) => {
            if let Some((task, attempt)) = world.any_running(&at) {
                world.fail_attempt(task, attempt, FailureKind::Error);
            }
        }
        Step::Recall(at) => {
            if let Some((task, attempt)) = world.any_running(&at) {
                let (at, _) = world.running.remove(&(task, attempt)).unwrap();
                let incarnation = world.incarnation(&at);
                world.owner.recalled((&at, incarnation), task, attempt);
            }
        }
        Step::Slow(at) => {
            if let Some((task, attempt)) = world.any_running(&at) {
                let node = world.running[&(task, attempt)].0.clone();
                world.owner.still_running(&node, &[StillRunning { task, attempt, micros: u64::MAX }]);
            }
        }
        Step::Late(at) => {
            if !world.zombies.is_empty() {
                let attempt = *world.zombies.keys().nth(at.index(world.zombies.len())).unwrap();
                complete_all(world, attempt);
            }
        }
        Step::Crash(at, keeps) => world.crash_one(&at, keeps),
        Step::Restart(at) => world.restart_one(&at),
        Step::Reset(at) => world.reset_one(&at),
        Step::Lost(attempt, object) => {
            let reads = |spec: &TaskSpec| !spec.args.is_empty();
            let reading: Vec<_> =
                world.running.iter().filter(|(_, (_, spec))| reads(spec)).map(|(key, _)| *key).collect();
            let stored: Vec<_> = world.stored.keys().cloned().collect();
            if !reading.is_empty() && !stored.is_empty() {
                let (task, attempt) = reading[attempt.index(reading.len())];
                let (node, copy) = stored[object.index(stored.len())].clone();
                let loss = if (copy.bits >> 32) % 2 == 0 { Loss::Gone } else { Loss::Unreachable };
                if loss == Loss::Gone {
                    world.stored.remove(&(node.clone(), copy));
                }
                let (object, number) = ObjectId::of_copy(copy);
                let number = number.expect("an attempt made it, or the Owner put it back");
                world.lose_argument(task, attempt, LostObject { object, number, node, loss });
            }
        }
        Step::Cancel(at) => {
            if let Some((task, _)) = world.any_running(&at) {
                world.owner.cancel(task);
            }
        }
        Step::Release(at) => {
            if !held.is_empty() {
                let released = held.swap_remove(at.index(held.len()));
                drop_held(world, released);
            }
        }
    }
    world.settle();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_every_task_ends_once_and_nothing_is_left(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new(&[("a", 2), ("b", 1)]);
        let (mut held, mut submitted) = (Vec::new(), Vec::new());
        for step in steps {
            do_step(&mut world, &mut held, &mut submitted, step);
            prop_assert!(what_counts_is_stored(&world));
        }
        prop_assert_eq!(&world.failed, &None);
        world.restart_all();
        // Everything that runs completes, and with it all that waits.
        while let Some(attempt) = world.running.keys().next().copied() {
            complete_all(&mut world, attempt);
        }
        let waiting: BTreeSet<_> = held.iter().filter_map(|held| match held {
            Held::Object(object) => Some(*object),
            Held::Set(_) => None,
        }).collect();
        for (tracker, object) in waiting.iter().enumerate() {
            world.owner.track(*object, tracker as Tracker);
            world.settle();
            while let Some(attempt) = world.running.keys().next().copied() {
                complete_all(&mut world, attempt);
            }
            prop_assert!(world.resolved.contains_key(&(tracker as Tracker)), "whoever waits is told");
        }
        for held in held {
            drop_held(&mut world, held);
        }
        world.settle();
        while let Some(attempt) = world.zombies.keys().next().copied() {
            complete_all(&mut world, attempt);
        }
        prop_assert_eq!(&world.failed, &None);
        prop_assert_eq!(world.owner.sizes(), (0, 0, 0));
        prop_assert_eq!(world.owner.counts().running, 0);
        prop_assert_eq!(world.owner.counts.speculated, 0);
        prop_assert_eq!(world.stored, BTreeMap::new());
    }
}
