//! Time, memory and cancellation of functions that never look.

use std::time::Duration;

use exobus_actors::futures::Futures;
use exobus_actors::isolation::ExecutorKind;
use exobus_actors::task::{FailureKind, JobError, TaskFailure, TaskOptions};

use crate::functions::{End, Ends, ends, looks};
use crate::harness::{ControlGroup, World, line_in, line_of, lives, until};

fn failure_of(error: &JobError) -> &TaskFailure {
    let JobError::Task { failure, .. } = error else { panic!("{error}") };
    failure
}

#[test]
fn a_function_that_runs_out_of_time_is_killed_where_it_does_not_look() {
    let world = World::one();
    let path = world.path("pid");
    let how = End::Wait(path.clone());
    let program = async move |futures: Futures| {
        let options = TaskOptions { timeout: Some(Duration::from_millis(200)), attempts: 1, ..TaskOptions::default() };
        let task = futures.submit_with(ends, &Ends::always(how), &[], options)?;
        futures.get_value::<u64>(&task).await
    };
    let (result, _) = world.run(program);
    let error = result.unwrap_err();
    assert_eq!(failure_of(&error).kind, FailureKind::Timeout, "{error}");
    assert!(error.to_string().contains("timed out: after 200 ms"), "{error}");
    assert!(!lives(line_of(&path).parse().unwrap()));
    world.assert_nothing_is_held();
}

#[test]
fn a_stopped_process_with_a_time_limit_is_lost_once_and_the_next_attempt_is_well() {
    let world = World::one();
    let path = world.path("pid");
    let how = End::Wait(path.clone());
    let program = async move |futures: Futures| {
        let options = TaskOptions { timeout: Some(Duration::from_secs(30)), ..TaskOptions::default() };
        let task = futures.submit_with(ends, &Ends::once(how), &[], options)?;
        futures.get_value::<u64>(&task).await
    };
    let (result, failures) = std::thread::scope(|threads| {
        let running = threads.spawn(|| world.run(program));
        let process = rustix::process::Pid::from_raw(line_of(&path).parse().unwrap()).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
        running.join().unwrap()
    });
    assert_eq!(result.unwrap(), 0);
    assert_eq!(failures.len(), 1, "{failures:?}");
}

#[test]
fn a_cancelled_function_that_never_looks_is_killed_and_its_slot_is_free() {
    let world = World::one();
    let path = world.path("pid");
    let (how, there) = (End::Wait(path.clone()), path.clone());
    let program = async move |futures: Futures| {
        let task = futures.submit(ends, &Ends::always(how), &[])?;
        line_in(&there).await;
        futures.cancel(&task)?;
        // On the only executor.
        let next = futures.submit(crate::functions::whereabouts, &1, &[])?;
        futures.get_value::<u32>(&next).await
    };
    let (result, failures) = world.run(program);
    assert_ne!(result.unwrap().to_string(), line_of(&path));
    assert!(failures.is_empty(), "{failures:?}");
    let killed = line_of(&path).parse().unwrap();
    until(|| !lives(killed));
    world.assert_nothing_is_held();
}

#[test]
fn a_cancelled_function_that_looks_keeps_its_process() {
    let world = World::one();
    let paths = (world.path("began"), world.path("saw"));
    let given = paths.clone();
    let program = async move |futures: Futures| {
        let task = futures.submit(looks, &given, &[])?;
        line_in(&given.0).await;
        futures.cancel(&task)?;
        let next = futures.submit(crate::functions::whereabouts, &1, &[])?;
        futures.get_value::<u32>(&next).await
    };
    let (result, _) = world.run(program);
    let process = result.unwrap().to_string();
    assert_eq!((line_of(&paths.0), line_of(&paths.1)), (process.clone(), process));
}

#[test]
fn a_task_that_takes_far_more_memory_than_it_declared_is_killed_and_says_so() {
    let world = World::new(ExecutorKind::Process, 1, 256 << 20);
    let path = world.path("pid");
    let how = End::Hog(path.clone());
    let program = async move |futures: Futures| {
        let limited = |memory_max_bytes| TaskOptions { memory_max_bytes, ..TaskOptions::default() };
        let modest =
            futures.submit_with(ends, &Ends { attempts: 0, ..Ends::once(End::Well) }, &[], limited(64 << 20))?;
        futures.get_value::<u64>(&modest).await?;
        let hog = futures.submit_with(ends, &Ends::always(how), &[], limited(100 << 20))?;
        futures.get_value::<u64>(&hog).await
    };
    let (result, failures) = world.run(program);
    let error = result.unwrap_err();
    assert_eq!(failure_of(&error).kind, FailureKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("out of memory: "), "{error}");
    assert!(error.to_string().contains("where the task has declared 104857600"), "{error}");
    assert_eq!(failures.len(), 3, "{failures:?}");
    assert!(!lives(line_of(&path).parse().unwrap()));
    world.assert_nothing_is_held();
}

#[test]
fn what_the_kernel_kills_for_want_of_memory_is_called_so() {
    let Some(group) = ControlGroup::new() else { return };
    group.limit(32 << 20);
    let world = World::one();
    let path = world.path("pid");
    let how = End::Hog(path.clone());
    let program = async move |futures: Futures| {
        let task = futures.submit(ends, &Ends::once(how), &[])?;
        futures.get_value::<u64>(&task).await
    };
    let (result, failures) = std::thread::scope(|threads| {
        let running = threads.spawn(|| world.run(program));
        group.take(&line_of(&path));
        running.join().unwrap()
    });
    assert_eq!(result.unwrap(), 0);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("out of memory: killed by the kernel"), "{failures:?}");
    world.assert_nothing_is_held();
}

/// No test: what the next one starts as an executor.
#[test]
fn a_main_that_starts_a_node() {
    if exobus_actors::isolation::is_executor() {
        let started = exobus_actors::node::Node::start(exobus_actors::node::NodeOptions::alone(1, 64 << 20));
        eprintln!("{}", started.unwrap_err());
    }
}

#[test]
fn a_main_that_does_not_enter_starts_no_node() {
    let mut options = exobus_actors::node::NodeOptions::alone(1, 64 << 20);
    let spill = tempfile::tempdir().unwrap();
    options.store.spill_dirs = vec![spill.path().to_owned()];
    options.isolation = crate::harness::isolation(ExecutorKind::Process);
    options.isolation.arguments[1] = "limits::a_main_that_starts_a_node".into();
    let node = exobus_actors::node::Node::start(options).unwrap();
    let program = async |futures: Futures| {
        let task = futures.submit(ends, &Ends::once(End::Well), &[])?;
        futures.get_value::<u64>(&task).await
    };
    let error = crate::common::run_on(&node, program).0.unwrap_err().to_string();
    assert!(error.contains("this process was started as an executor: main has to call"), "{error}");
}

#[test]
fn a_node_without_processes_refuses_a_memory_limit() {
    let world = World::new(ExecutorKind::Thread, 1, 64 << 20);
    let program = async |futures: Futures| {
        let options = TaskOptions { memory_max_bytes: 1 << 30, ..TaskOptions::default() };
        let task = futures.submit_with(ends, &Ends::once(End::Well), &[], options)?;
        futures.get_value::<u64>(&task).await
    };
    let error = world.run(program).0.unwrap_err();
    assert_eq!(failure_of(&error).kind, FailureKind::Rejected, "{error}");
    assert!(error.to_string().contains("node.executor"), "{error}");
}

#[test]
fn a_program_that_is_no_executor_is_named() {
    let mut options = exobus_actors::node::NodeOptions::alone(1, 64 << 20);
    let spill = tempfile::tempdir().unwrap();
    options.store.spill_dirs = vec![spill.path().to_owned()];
    options.isolation.executor = ExecutorKind::Process;
    options.isolation.program = "/bin/false".into();
    let node = exobus_actors::node::Node::start(options).unwrap();
    let program = async |futures: Futures| {
        let task = futures.submit(ends, &Ends::once(End::Well), &[])?;
        futures.get_value::<u64>(&task).await
    };
    let (result, ..) = crate::common::run_on(&node, program);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("/bin/false did not become an executor"), "{error}");
    assert!(error.contains("it exited with code 1") && error.contains("isolation::enter()"), "{error}");
}
