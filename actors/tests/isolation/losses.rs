//! Processes that die cost one attempt each, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use exobus_actors::event::EventKind;
use exobus_actors::futures::Futures;
use exobus_actors::ids::NodeId;
use exobus_actors::isolation::ExecutorKind;
use exobus_actors::node::{ClusterOptions, Node, NodeOptions};
use exobus_actors::task::{FailureKind, JobError, TaskOptions};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::run_on;
use crate::functions::{Checks, End, Ends, checks, ends, remembers, whereabouts};
use crate::harness::{World, children, descriptors, isolation, line_of, lives, until};

fn kill(process: &str, signal: Signal) {
    kill_process(Pid::from_raw(process.parse().unwrap()).unwrap(), signal).unwrap();
}

/// Runs a function that ends so once, over an argument; what the failed attempts said.
fn survives(world: &World, how: End) -> Vec<String> {
    let program = async move |futures: Futures| {
        let argument = futures.put(&[5; 100_000])?;
        let task = futures.submit(ends, &Ends::once(how), &[argument.arg()])?;
        let length = futures.get_value::<u64>(&task).await?;
        let kept = futures.get(&argument).await?;
        assert!(kept.iter().all(|byte| *byte == 5), "what was sealed is as it was");
        Ok(length)
    };
    let (result, failures) = world.run(program);
    assert_eq!(result.unwrap(), 100_000);
    world.assert_nothing_is_held();
    failures
}

#[test]
fn a_function_that_ends_its_process_costs_one_attempt_and_says_of_what_it_died() {
    let world = World::one();
    for (how, died) in [
        (End::Abort, "killed by signal 6 (SIGABRT)"),
        (End::Exit(0), "it exited with code 0"),
        (End::Exit(3), "it exited with code 3"),
        (End::Scribble, "killed by signal 11 (SIGSEGV)"),
        (End::Overflow, "killed by signal 6 (SIGABRT)"),
    ] {
        let failures = survives(&world, how.clone());
        assert_eq!(failures.len(), 1, "{how:?}: {failures:?}");
        assert!(failures[0].starts_with(&format!("lost with its executor: {died}; ")), "{how:?}: {failures:?}");
        assert!(failures[0].contains("the last words of attempt 1"), "{how:?}: {failures:?}");
        assert!(failures[0].contains("input: parameters {\"attempts\":1,"), "{how:?}: {failures:?}");
    }
}

#[test]
fn who_dies_leaves_the_path_that_it_checked_last_and_not_one_of_an_attempt_before() {
    let world = World::one();
    let (result, failures) = world.run(async |futures: Futures| {
        for (paths, aborts) in [(&["/in/other"][..], false), (&[], true), (&["/in/part-1", "/in/part-poison"], true)] {
            let params = Checks { paths: paths.iter().map(Into::into).collect(), aborts };
            futures.wait_all(&[futures.submit(checks, &params, &[])?]).await?;
        }
        Ok(())
    });
    result.unwrap();
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert!(!failures[0].contains("path that it used last"), "{failures:?}");
    assert!(failures[1].contains("; the path that it used last: /in/part-poison"), "{failures:?}");
}

#[test]
fn a_panic_costs_an_attempt_and_no_process() {
    // There is room for what the process keeps of the symbols that it has read for a backtrace.
    let world = World::new(ExecutorKind::Process, 1, 512 << 20);
    let program = async |futures: Futures| {
        let before = futures.get_value::<u32>(&futures.submit(whereabouts, &0, &[])?).await?;
        let task = futures.submit(ends, &Ends::once(End::Panic), &[])?;
        futures.get_value::<u64>(&task).await?;
        Ok((before, futures.get_value::<u32>(&futures.submit(whereabouts, &1, &[])?).await?))
    };
    let (result, failures) = world.run(program);
    let (before, after) = result.unwrap();
    assert_eq!(before, after);
    assert_ne!(before, std::process::id());
    assert_eq!(failures, ["panicked: on purpose"]);
}

#[test]
fn a_process_that_is_killed_or_stopped_from_outside_is_replaced() {
    for (signal, died) in [(Signal::KILL, "killed by signal 9 (SIGKILL)"), (Signal::STOP, "stopped by a signal")] {
        let world = World::one();
        let path = world.path("pid");
        let failures = std::thread::scope(|threads| {
            let running = threads.spawn(|| survives(&world, End::Wait(path.clone())));
            kill(&line_of(&path), signal);
            running.join().unwrap()
        });
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].contains(died), "{failures:?}");
    }
}

#[test]
fn a_process_that_dies_while_it_has_nothing_to_do_costs_nothing() {
    let world = World::one();
    let mut seen = BTreeSet::new();
    for number in 0..3_u64 {
        let program = async move |futures: Futures| {
            let task = futures.submit(whereabouts, &number, &[])?;
            futures.get_value::<u32>(&task).await
        };
        let (result, failures) = world.run(program);
        let process = result.unwrap();
        assert!(failures.is_empty(), "{failures:?}");
        assert!(seen.insert(process));
        kill(&process.to_string(), Signal::KILL);
        until(|| !lives(process));
    }
}

#[test]
fn a_poison_task_fails_its_job_with_its_name_its_input_and_its_last_words() {
    let world = World::new(ExecutorKind::Process, 2, 64 << 20);
    let program = async |futures: Futures| {
        let options = TaskOptions { attempts: 50, ..TaskOptions::default() };
        let params = Ends { salt: 4711, ..Ends::always(End::Abort) };
        let poison = futures.submit_with(ends, &params, &[], options)?;
        // Others are none the worse for it.
        let others = (0..200).map(|number| futures.submit(remembers, &number, &[])).collect::<Result<Vec<_>, _>>()?;
        futures.wait_all(&others).await?;
        futures.get_value::<u64>(&poison).await
    };
    let (result, failures) = world.run(program);
    assert_eq!(failures.len(), 3, "{failures:?}");
    let error = result.unwrap_err();
    let JobError::Task { function, failure, .. } = &error else { panic!("{error}") };
    assert_eq!((&**function, failure.kind), ("test.ends", FailureKind::ExecutorLost));
    for part in ["SIGABRT", "4711", "the last words of attempt 3"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_poison_task_is_tried_on_more_than_one_node() {
    let (bus, subjects) = (exobus_bus::Bus::in_process(), exobus_bus::Subjects::new("test").unwrap());
    let network = std::sync::Arc::new(exobus_actors::transfer::network::MemoryNetwork::new());
    let spill = tempfile::tempdir().unwrap();
    let start = |name: &str, scheduler: bool| {
        let mut options = NodeOptions::alone(1, 64 << 20);
        options.name = NodeId::new(name);
        options.store.spill_dirs = vec![spill.path().join(name)];
        options.network = network.clone();
        options.isolation = isolation(ExecutorKind::Process);
        options.cluster = Some(ClusterOptions {
            bus: bus.clone(),
            subjects: subjects.clone(),
            scheduler,
            membership: exobus_actors::membership::MembershipOptions::default(),
            listen: "127.0.0.1:0".parse().unwrap(),
            join_deadline: std::time::Duration::from_secs(30),
        });
        Node::start(options).unwrap()
    };
    let first = start("a", true);
    let second = start("b", false);
    // It alone in its job: for the other node a lease has to be asked for.
    let program = async |futures: Futures| {
        let poison = futures.submit(ends, &Ends::always(End::Abort), &[])?;
        futures.get_value::<u64>(&poison).await
    };
    let (result, _, events) = run_on(&first, program);
    assert!(result.unwrap_err().to_string().contains("SIGABRT"));
    let mut tried = BTreeMap::<_, u32>::new();
    for event in events.iter().filter(|event| matches!(event.kind, EventKind::TaskPlaced { .. })) {
        *tried.entry(event.node.as_str()).or_default() += 1;
    }
    assert_eq!(tried.len(), 2, "{tried:?}");
    assert_eq!(tried.values().sum::<u32>(), 3, "{tried:?}");
    second.stop();
    first.stop();
}

#[test]
fn nothing_is_left_of_processes_that_died_or_ended_with_their_node() {
    // What any node leaves open for the next one.
    drop(World::new(ExecutorKind::Thread, 2, 64 << 20));
    let before = descriptors();
    let mut processes = Vec::new();
    {
        let world = World::new(ExecutorKind::Process, 2, 64 << 20);
        for how in [End::Abort, End::Exit(0), End::Scribble] {
            survives(&world, how);
        }
        for number in 0..4_u64 {
            let program = async move |futures: Futures| {
                let task = futures.submit(whereabouts, &number, &[])?;
                futures.get_value::<u32>(&task).await
            };
            processes.push(world.run(program).0.unwrap());
        }
        assert!(children().contains(&processes[0]), "it is there while its node is");
    }
    assert_eq!(children(), Vec::<u32>::new(), "{processes:?}");
    // Threads that read what processes wrote have seen the end of it, and are about to end.
    until(|| descriptors().len() == before.len());
    assert_eq!(descriptors(), before);
}
