//! Memory beside the store: of functions that ask for it, and of the processes that they run in, looked at from outside.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use exobus_actors::futures::Futures;
use exobus_actors::ids::JobId;
use exobus_actors::isolation::ExecutorKind;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::protocol::owner::{self, OwnerMsg, Why};
use exobus_actors::task::{FailureKind, JobError, TaskOptions};

use crate::functions::{
    End, Ends, Keeps, Needs, Starts, Takes, ends, hoards, holds, keeps, lingers, needs, starts, takes, whereabouts,
};
use crate::harness::{ControlGroup, PATIENCE, World, children, line_in, line_of, lives, until};

const MIB: u64 = 1 << 20;
/// What a node and its processes may have beside their memory in any sample.
const BESIDE_BYTES: u64 = 16 * MIB;

/// A figure of a process, bytes; 0: it has ended.
fn figure(process: &str, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    1024 * line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap()
}

/// What this process and its children have: the region once, since they share it.
fn memory() -> u64 {
    let own = figure("self", "RssAnon:") + figure("self", "RssShmem:");
    own + children().iter().map(|child| figure(&child.to_string(), "RssAnon:")).sum::<u64>()
}

/// The most that this process and its children have together while `work` goes on.
#[allow(clippy::disallowed_methods, reason = "what real processes take is looked at in real time")]
fn watched<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak = 0;
            while !over.load(Ordering::Relaxed) {
                peak = peak.max(memory());
                std::thread::sleep(Duration::from_millis(3));
            }
            peak
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        (result, sampler.join().unwrap())
    })
}

/// Why the job stands as it does, once these words are in it.
fn why(node: &Node, job: JobId, words: &str) -> String {
    let owner = node.post().address::<OwnerMsg>(node.post().node(), &owner::actor_name(job));
    let (runtime, mut line) =
        (tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(), String::new());
    let looked = async {
        while !line.contains(words) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let asked = owner.ask(|reply| OwnerMsg::Why { ask: true, reply }, PATIENCE);
            let Ok::<Why, _>(why) = asked.await else { continue };
            line = why.chains.iter().map(|chain| chain.join(" <- ")).collect::<Vec<_>>().join("; ");
        }
    };
    let came = runtime.block_on(async { tokio::time::timeout(PATIENCE, looked).await });
    assert!(came.is_ok(), "{words:?} is said within its time: {line}");
    line
}

fn touch(path: &Path) {
    std::fs::write(path, "").unwrap();
}

fn takes_in(world: &World, name: &str, bytes: u64, go: &Path) -> Takes {
    Takes { bytes, said: world.path(name), go: go.to_owned() }
}

fn declared(memory_max_bytes: u64) -> TaskOptions {
    TaskOptions { memory_max_bytes, ..TaskOptions::default() }
}

/// Twice as many objects as the store has room for.
async fn fill(futures: &Futures, bytes: u64) -> Result<Vec<exobus_actors::futures::ObjectRef>, JobError> {
    let block = |number: u64| number.to_le_bytes().repeat(MIB as usize / 8);
    (0..2 * bytes / MIB).map(|number| futures.put(&block(number))).collect()
}

#[test]
fn a_node_and_processes_that_take_what_they_declared_keep_to_the_memory_in_every_sample() {
    const MEMORY: u64 = 192 * MIB;
    let world = World::within(ExecutorKind::Process, 2, MEMORY);
    let go = world.path("go");
    let all = [takes_in(&world, "first", 40 * MIB, &go), takes_in(&world, "second", 40 * MIB, &go)];
    let program = async move |futures: Futures| {
        let kept = fill(&futures, MEMORY).await?;
        let tasks = all.each_ref().map(|params| futures.submit_with(takes, params, &[], declared(48 * MIB)));
        for params in &all {
            line_in(&params.said).await;
        }
        touch(&go);
        for task in tasks {
            futures.get_value::<u32>(&task?).await?;
        }
        Ok(kept.len())
    };
    let ((result, failures), peak) = watched(|| world.run(program));
    assert_eq!(result.unwrap() as u64, 2 * MEMORY / MIB);
    assert!(failures.is_empty(), "{failures:?}");
    eprintln!("{:.1} MiB at most, of {} MiB", peak as f64 / MIB as f64, MEMORY / MIB);
    assert!(peak > MEMORY - 48 * MIB, "the store was full: {peak}");
    assert!(peak <= MEMORY + BESIDE_BYTES, "{peak} bytes where {MEMORY} may be");
    world.assert_nothing_is_held();
}

#[test]
fn a_process_that_takes_more_than_was_declared_is_named_and_gets_no_further_task() {
    const MEMORY: u64 = 192 * MIB;
    let world = World::within(ExecutorKind::Process, 1, MEMORY);
    let (go, seen) = (world.path("go"), world.path("seen"));
    let params = takes_in(&world, "said", 56 * MIB, &go);
    let (job, said) = (world.node.new_job(), params.said.clone());
    let program = async move |futures: Futures| {
        let kept = fill(&futures, MEMORY).await?;
        let task = futures.submit_with(takes, &params, &[], declared(48 * MIB))?;
        let first: u32 = futures.get_value(&task).await?;
        let next = futures.submit(whereabouts, &1, &[])?;
        let next: u32 = futures.get_value(&next).await?;
        line_in(&seen).await;
        Ok((kept.len(), first, next))
    };
    let result = std::thread::scope(|threads| {
        let running = threads.spawn(|| futures::executor::block_on(world.node.run(job, "test", None, program)).0);
        let process = line_of(&said);
        let words = format!("process {process} has ");
        let line = why(&world.node, job, &words);
        assert!(line.contains("of memory where 48.0 MiB were declared, and gets no further task"), "{line}");
        // The store gives way for the excess, too.
        until(|| memory() <= MEMORY + BESIDE_BYTES);
        until(|| world.node.store().stats().granted_bytes >= 56 * MIB);
        touch(&go);
        until(|| !lives(process.parse().unwrap()));
        std::fs::write(world.path("seen"), "yes\n").unwrap();
        running.join().unwrap()
    });
    let (_, first, next) = result.unwrap();
    assert_ne!(first, next, "the next task has another process");
    world.assert_nothing_is_held();
}

/// Without a word of the function: nobody has told the node of what it has but the process itself, whose memory is looked at.
#[test]
fn what_a_task_begins_with_beside_the_store_is_its_own_and_costs_no_process() {
    let world = World::within(ExecutorKind::Process, 1, 256 * MIB);
    let go = world.path("go");
    let params = takes_in(&world, "said", 56 * MIB, &go);
    let program = async move |futures: Futures| {
        let options = TaskOptions { outside_bytes: 48 * MIB, ..declared(24 * MIB) };
        let task = futures.submit_with(takes, &params, &[], options)?;
        line_in(&params.said).await;
        // It is looked at several times meanwhile.
        tokio::time::sleep(Duration::from_millis(200)).await;
        touch(&go);
        let first: u32 = futures.get_value(&task).await?;
        let next: u32 = futures.get_value(&futures.submit(whereabouts, &1, &[])?).await?;
        Ok((first, next))
    };
    let (result, failures) = world.run(program);
    let (first, next) = result.unwrap();
    assert_eq!((first, failures), (next, Vec::new()));
    world.assert_nothing_is_held();
}

#[test]
fn what_a_function_has_given_back_and_keeps_is_more_than_was_declared() {
    let world = World::within(ExecutorKind::Process, 1, 256 * MIB);
    let (go, gives_back) = (world.path("go"), world.path("gives back"));
    let most = takes_in(&world, "said", 56 * MIB, &go);
    let (job, said) = (world.node.new_job(), most.said.clone());
    let params = Keeps { takes: most, granted_bytes: 24 * MIB, gives_back: gives_back.clone() };
    let program = async move |futures: Futures| {
        let task = futures.submit_with(keeps, &params, &[], declared(48 * MIB))?;
        futures.get_value::<u32>(&task).await
    };
    std::thread::scope(|threads| {
        let running = threads.spawn(|| futures::executor::block_on(world.node.run(job, "test", None, program)).0);
        let process = line_of(&said);
        touch(&gives_back);
        let line = why(&world.node, job, &format!("process {process} has "));
        assert!(line.contains("of memory where 48.0 MiB were declared, and gets no further task"), "{line}");
        touch(&go);
        assert_eq!(running.join().unwrap().unwrap().to_string(), process);
    });
    world.assert_nothing_is_held();
}

fn starts_in(world: &World, name: &str) -> Starts {
    let path = |what: &str| world.path(&format!("{name} {what}"));
    let (said, begin, taken, go) = (path("said"), path("begin"), path("taken"), world.path("go"));
    Starts { bytes: 64 * MIB, said, begin, taken, go }
}

#[test]
fn a_process_in_a_control_group_of_its_own_has_what_it_started_with_it() {
    let Some(group) = ControlGroup::new() else { return };
    let world = World::within(ExecutorKind::Process, 1, 256 * MIB);
    let (params, job) = (starts_in(&world, "one"), world.node.new_job());
    let Starts { said, begin, taken, go, .. } = params.clone();
    let program = async move |futures: Futures| {
        let task = futures.submit_with(starts, &params, &[], declared(48 * MIB))?;
        futures.get_value::<u32>(&task).await
    };
    std::thread::scope(|threads| {
        let running = threads.spawn(|| futures::executor::block_on(world.node.run(job, "test", None, program)).0);
        let process = line_of(&said);
        group.take(&process);
        touch(&begin);
        line_of(&taken);
        let line = why(&world.node, job, &format!("process {process} has "));
        assert!(line.contains("of memory where 48.0 MiB were declared, and gets no further task"), "{line}");
        until(|| world.node.store().stats().granted_bytes >= 64 * MIB);
        touch(&go);
        assert_eq!(running.join().unwrap().unwrap().to_string(), process);
        until(|| !lives(process.parse().unwrap()));
    });
    world.assert_nothing_is_held();
}

#[test]
fn what_is_in_a_control_group_of_several_processes_is_not_counted_for_each() {
    let Some(group) = ControlGroup::new() else { return };
    let world = World::within(ExecutorKind::Process, 2, 256 * MIB);
    let (both, job) = (["one", "other"].map(|name| starts_in(&world, name)), world.node.new_job());
    let params = both.clone();
    let program = async move |futures: Futures| {
        let submit = |params: &Starts| futures.submit_with(starts, params, &[], declared(80 * MIB));
        let tasks = params.iter().map(submit).collect::<Result<Vec<_>, _>>()?;
        futures.wait_all(&tasks).await?;
        let next = futures.submit(whereabouts, &1, &[])?;
        futures.get_value::<u32>(&next).await
    };
    let (next, processes) = std::thread::scope(|threads| {
        let running = threads.spawn(|| futures::executor::block_on(world.node.run(job, "test", None, program)).0);
        let processes = both.each_ref().map(|params| line_of(&params.said));
        processes.iter().for_each(|process| group.take(process));
        for params in &both {
            touch(&params.begin);
            line_of(&params.taken);
        }
        // All of it would be far more than either of them has declared, and more than may be left when they have ended.
        touch(&both[0].go);
        (running.join().unwrap(), processes)
    });
    let next = next.expect("nobody was killed").to_string();
    assert!(processes.contains(&next), "no process was replaced: {next} {processes:?}");
    world.assert_nothing_is_held();
}

#[test]
fn a_thread_that_outlives_its_task_asks_and_gives_back_between_tasks_and_costs_no_process() {
    let world = World::new(ExecutorKind::Process, 1, 64 << 20);
    let (go, gone) = (world.path("go"), world.path("gone"));
    let params = Takes { bytes: 3 * MIB, said: gone.clone(), go: go.clone() };
    let program = async move |futures: Futures| {
        let first = futures.submit(lingers, &params, &[])?;
        let first = futures.get_value::<u32>(&first).await?;
        for number in 0..50 {
            let options = TaskOptions { outside_bytes: 5 * MIB, ..TaskOptions::default() };
            let next = futures.submit_with(whereabouts, &number, &[], options)?;
            assert_eq!(futures.get_value::<u32>(&next).await?, first, "task {number} has another process");
        }
        touch(&go);
        // While something runs, what is given back is heard.
        let last = Takes { bytes: MIB, said: params.said.with_file_name("held"), go: gone };
        let last = futures.submit(holds, &last, &[])?;
        futures.get_value::<u64>(&last).await
    };
    let (result, failures) = world.run(program);
    assert_eq!(result.unwrap(), MIB);
    assert!(failures.is_empty(), "{failures:?}");
    world.assert_nothing_is_held();
}

/// What functions before have left there is not what the task has declared.
#[test]
fn a_process_that_has_more_than_a_quarter_of_what_a_task_declares_begins_anew_before_it() {
    let world = World::within(ExecutorKind::Process, 1, 512 * MIB);
    let program = async move |futures: Futures| {
        let first = futures.get_value::<u32>(&futures.submit(hoards, &(12 * MIB), &[])?).await?;
        let mut processes = vec![first];
        for (number, options) in [(0, declared(128 * MIB)), (1, declared(32 * MIB)), (2, declared(32 * MIB))] {
            let next = futures.submit_with(whereabouts, &number, &[], options)?;
            processes.push(futures.get_value::<u32>(&next).await?);
        }
        Ok(processes)
    };
    let (result, failures) = world.run(program);
    let [first, of_large, of_small, after] = result.unwrap()[..] else { panic!("four tasks have run") };
    assert_eq!(first, of_large, "a tenth of what the task declares is there");
    assert_ne!(of_large, of_small);
    assert_eq!(of_small, after, "one that has next to nothing stays");
    assert!(failures.is_empty(), "{failures:?}");
    world.assert_nothing_is_held();
}

#[test]
fn a_process_that_the_node_has_no_room_for_is_killed_and_its_task_tried_again() {
    let world = World::one();
    let path = world.path("pid");
    let how = End::Hog(path.clone());
    let program = async move |futures: Futures| {
        let task = futures.submit(ends, &Ends::once(how), &[])?;
        futures.get_value::<u64>(&task).await
    };
    let (result, failures) = world.run(program);
    assert_eq!(result.unwrap(), 0, "the next attempt is well");
    assert_eq!(failures.len(), 1, "{failures:?}");
    let words = "where the task has declared 0, and its node has no more than ";
    assert!(failures[0].contains("out of memory: ") && failures[0].contains(words), "{failures:?}");
    assert!(!lives(line_of(&path).parse().unwrap()));
    // The store of such a world has 64 MiB, and 32 MiB are set aside.
    assert!(memory() <= 96 * MIB + BESIDE_BYTES);
    world.assert_nothing_is_held();
}

/// A task holds most of what can be granted; another one needs more than is left, and cannot do without.
fn denied_and_tried_again(kind: ExecutorKind, asks: u32) {
    let world = World::new(kind, 2, 64 << 20);
    let (go, goes_on) = (world.path("go"), world.path("goes on"));
    let holder = takes_in(&world, "held", 30 * MIB, &go);
    let (held, denied) = (holder.said.clone(), world.path("denied"));
    let needy = Needs { first_bytes: 4 * MIB, more_bytes: 20 * MIB, asks, denied: denied.clone(), go: goes_on.clone() };
    let job = world.node.new_job();
    let program = async move |futures: Futures| {
        let once = || TaskOptions { attempts: 1, ..TaskOptions::default() };
        let holder = futures.submit_with(holds, &holder, &[], once())?;
        line_in(&held).await;
        let needy = futures.submit_with(needs, &needy, &[], once())?;
        let got: (u64, u32) = futures.get_value(&needy).await?;
        Ok((futures.get_value::<u64>(&holder).await?, got))
    };
    let result = std::thread::scope(|threads| {
        let running = threads.spawn(|| futures::executor::block_on(world.node.run(job, "test", None, program)).0);
        line_of(&denied);
        let words = format!("20.0 MiB beside the store were denied, 4.0 MiB are granted; denied {asks} times");
        why(&world.node, job, &words);
        assert_eq!(world.node.figures().denied, u64::from(asks));
        touch(&goes_on);
        why(&world.node, job, "24.0 MiB of it beside the store for this task");
        let figures = world.node.figures();
        assert_eq!(figures.granted_bytes, 30 * MIB, "who waits holds nothing");
        touch(&go);
        running.join().unwrap()
    });
    let (held, (granted, attempt)) = result.unwrap();
    assert_eq!((held, granted), (30 * MIB, 24 * MIB));
    assert_eq!(attempt, 2, "it began again once");
    world.assert_nothing_is_held();
}

#[test]
fn a_task_that_is_denied_twice_begins_again_with_what_it_needs() {
    denied_and_tried_again(ExecutorKind::Thread, 2);
}

#[test]
fn a_task_in_a_process_that_is_denied_twice_begins_again_with_what_it_needs() {
    denied_and_tried_again(ExecutorKind::Process, 2);
}

#[test]
fn a_task_that_fails_after_one_denial_has_failed() {
    let world = World::new(ExecutorKind::Thread, 2, 64 << 20);
    let go = world.path("go");
    let holder = takes_in(&world, "held", 30 * MIB, &go);
    let held = holder.said.clone();
    let needy = Needs { first_bytes: 0, more_bytes: 20 * MIB, asks: 1, denied: world.path("denied"), go: go.clone() };
    let program = async move |futures: Futures| {
        let holder = futures.submit(holds, &holder, &[])?;
        line_in(&held).await;
        let options = TaskOptions { attempts: 1, ..TaskOptions::default() };
        let needy = futures.submit_with(needs, &needy, &[], options)?;
        line_in(&world_path(&go, "denied")).await;
        touch(&go);
        futures.get_value::<u64>(&holder).await?;
        futures.get_value::<(u64, u32)>(&needy).await
    };
    let error = world.run(program).0.unwrap_err();
    assert!(error.to_string().contains("it cannot go on"), "{error}");
    world.assert_nothing_is_held();
}

fn world_path(beside: &Path, name: &str) -> PathBuf {
    beside.with_file_name(name)
}

#[test]
fn more_than_the_node_can_ever_grant_fails_the_task_with_both_sizes() {
    // Asked for by the function, with the task, and declared for its process; 64 MiB less the reserve, three quarters of it.
    let most = (64 - 2) * 3 / 4 * MIB;
    for kind in [ExecutorKind::Thread, ExecutorKind::Process] {
        let world = World::new(kind, 1, 64 << 20);
        let path = world.path("never");
        let params = Needs { first_bytes: 1 << 40, more_bytes: 0, asks: 0, denied: path.clone(), go: path.clone() };
        let modest = Needs { first_bytes: 0, ..params.clone() };
        let outside = TaskOptions { outside_bytes: 1 << 40, ..TaskOptions::default() };
        let mut asked = vec![(params, TaskOptions::default()), (modest.clone(), outside)];
        if kind == ExecutorKind::Process {
            asked.push((modest, declared(1 << 40)));
        }
        for (params, options) in asked {
            let program = async move |futures: Futures| {
                let task = futures.submit_with(needs, &params, &[], options)?;
                futures.get_value::<(u64, u32)>(&task).await
            };
            let (result, failures) = world.run(program);
            let error = result.unwrap_err();
            let JobError::Task { failure, .. } = &error else { panic!("{error}") };
            assert_eq!((failure.kind, failures.len()), (FailureKind::Final, 1), "{error}");
            let words = format!(
                "1099511627776 bytes of memory beside the region are more than can ever be granted here: {most}"
            );
            assert!(error.to_string().contains(&words), "{error}");
        }
        world.assert_nothing_is_held();
    }
}

impl World {
    /// A node that is alone in a process that may use so much memory.
    fn within(executor: ExecutorKind, executors: usize, memory_bytes: u64) -> Self {
        let store = NodeOptions::within(executors, memory_bytes).unwrap().store.memory_bytes;
        Self::new(executor, executors, store)
    }
}
