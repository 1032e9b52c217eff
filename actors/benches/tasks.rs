//! What a task costs, embedded: no-op tasks with distinct parameters, their results read.
//!
//! `throughput` keeps up to 10 000 tasks outstanding; `latency` has one: from submit to its result. Good on the reference
//! machine (2 cores): 100 000 tasks a second or more, 30 us or less. `exobus bench tasks` and `latency` measure the
//! same on clusters, too; this is for comparing two states of the code (`--save-baseline`, `--baseline`).
#![allow(missing_docs, reason = "the macros of criterion make functions without any")]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use exobus_actors::futures::{Futures, Window};
use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::JobError;
use exobus_store::{Clock, SystemClock};

const EXECUTORS: usize = 2;
const MEMORY_BYTES: u64 = 1 << 30;
const OUTSTANDING: usize = 10_000;
/// Tasks of one iteration of `throughput`.
const BATCH: u64 = 20_000;
/// Tasks before each measurement: leases come, and the Owner learns how short the tasks are.
const WARM_UP: u64 = 2_000;

#[task(name = "bench.noop")]
fn noop(_context: &mut TaskContext<'_>, _number: u64) -> Result<(), TaskError> {
    Ok(())
}

async fn read_one(futures: &Futures, window: &mut Window) -> Result<bool, JobError> {
    let Some(result) = window.next(futures).await? else { return Ok(false) };
    futures.get(&result).await?;
    Ok(true)
}

async fn many(futures: &Futures, from: u64, count: u64) -> Result<(), JobError> {
    let mut window = Window::new(OUTSTANDING);
    for number in from..from + count {
        while window.len() >= OUTSTANDING {
            read_one(futures, &mut window).await?;
        }
        window.track(futures, &futures.submit(noop, &number, &[])?)?;
    }
    while read_one(futures, &mut window).await? {}
    Ok(())
}

async fn one_by_one(futures: &Futures, from: u64, count: u64) -> Result<(), JobError> {
    for number in from..from + count {
        let result = futures.submit(noop, &number, &[])?;
        futures.get(&result).await?;
    }
    Ok(())
}

/// The time that `tasks` tasks take in a job of their own.
fn measure<P>(node: &Node, tasks: u64, program: P) -> Duration
where
    P: AsyncFn(&Futures, u64, u64) -> Result<(), JobError> + Send + 'static,
{
    let timed = async move |futures: Futures| {
        program(&futures, 0, WARM_UP).await?;
        let clock = SystemClock::new();
        program(&futures, WARM_UP, tasks).await?;
        Ok(clock.now())
    };
    let (took, _) = futures::executor::block_on(node.run(JobId::new(), "bench", None, timed));
    took.expect("no task fails")
}

fn tasks(criterion: &mut Criterion) {
    let spill = tempfile::tempdir().expect("a folder");
    let mut options = NodeOptions::alone(EXECUTORS, MEMORY_BYTES);
    options.store.spill_dirs = vec![spill.path().to_owned()];
    let node = Node::start(options).expect("a node");

    let mut group = criterion.benchmark_group("tasks");
    group.sample_size(10);
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("throughput", |bencher| {
        bencher.iter_custom(|iterations| measure(&node, iterations * BATCH, many));
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("latency", |bencher| {
        bencher.iter_custom(|iterations| measure(&node, iterations, one_by_one));
    });
    group.finish();
    node.stop();
}

criterion_group!(benches, tasks);
criterion_main!(benches);
