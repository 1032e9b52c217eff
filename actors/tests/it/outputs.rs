//! What tasks write: one blob, or several outputs that are sealed one after the other.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::ids::{Attempt, ObjectId, RowHash};
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, TaskOptions};
use exobus_store::{Store, StoreStats};

use crate::harness::{MEMORY_BYTES, until};

fn alone(spill: &tempfile::TempDir) -> Node {
    let mut options = NodeOptions::alone(2, MEMORY_BYTES);
    options.store.spill_dirs = vec![spill.path().to_owned()];
    Node::start(options).unwrap()
}

fn run<T: Send + 'static>(
    node: &Node,
    program: impl AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
) -> Result<T, JobError> {
    futures::executor::block_on(node.run(node.new_job(), "test", None, program)).0
}

/// One part of so many bytes, all of them `byte`.
fn write(context: &mut TaskContext<'_>, index: usize, byte: u8, bytes: u64) -> Result<(), TaskError> {
    let writer = context.output_at_sized(index, bytes)?;
    writer.begin_part(Some(bytes))?;
    let chunk = [byte; 1 << 12];
    for _ in 0..bytes >> 12 {
        writer.write(&chunk)?;
    }
    writer.end_part(1, RowHash(u128::from(byte)));
    Ok(())
}

async fn first_bytes(futures: &Futures, outputs: &[ObjectRef]) -> Result<Vec<u8>, JobError> {
    let mut first = Vec::new();
    for output in outputs {
        first.push(futures.get(output).await?[0]);
    }
    Ok(first)
}

/// Fails once, after the first of three outputs.
#[task(name = "test.fails_between")]
fn fails_between(context: &mut TaskContext<'_>) -> Result<(), TaskError> {
    let attempt = context.attempt().makes().counted() as u8;
    write(context, 0, attempt, 1 << 12)?;
    context.seal_output(0)?;
    if attempt == 1 {
        return Err(TaskError::failed("between two outputs"));
    }
    write(context, 2, 2, 1 << 12)
}

#[test]
fn outputs_that_an_attempt_sealed_before_it_failed_are_not_those_of_the_next() {
    let spill = tempfile::tempdir().unwrap();
    let node = alone(&spill);
    let store = node.store().clone();
    let program = async move |futures: Futures| {
        let outputs = futures.submit_many(fails_between, &(), &[], 3, TaskOptions::default())?;
        futures.wait_all(&outputs).await?;
        assert_eq!(futures.stat(&outputs[1]).await?.bytes, 0, "never written");
        // What the first attempt had sealed went with it: other bytes, under another name.
        let sealed = store.inventory(futures.job().group());
        let makers: Vec<_> = sealed.iter().filter_map(|(meta, _)| ObjectId::of_copy(meta.id).1).collect();
        assert_eq!(makers, [Attempt::nth(2).makes(); 2]);
        let first = first_bytes(&futures, &[outputs[0].clone(), outputs[2].clone()]).await?;
        drop(outputs);
        until(|| store.stats().objects == 0).await;
        Ok(first)
    };
    assert_eq!(run(&node, program).unwrap(), [2, 2]);
}

static STARTED: AtomicBool = AtomicBool::new(false);
static SEALED: AtomicBool = AtomicBool::new(false);
static GO_ON: AtomicBool = AtomicBool::new(false);

/// Seals an output long after it was cancelled, and stops only then.
#[task(name = "test.late")]
fn late(context: &mut TaskContext<'_>) -> Result<(), TaskError> {
    STARTED.store(true, Ordering::SeqCst);
    while !GO_ON.load(Ordering::SeqCst) {
        std::thread::park_timeout(Duration::from_millis(2));
    }
    write(context, 0, 1, 1 << 12)?;
    context.seal_output(0)?;
    SEALED.store(true, Ordering::SeqCst);
    context.check_cancelled()
}

#[task(name = "test.short")]
fn short(_context: &mut TaskContext<'_>) -> Result<u8, TaskError> {
    Ok(7)
}

#[test]
fn an_output_that_is_sealed_after_the_task_was_cancelled_is_freed_while_the_job_goes_on() {
    let spill = tempfile::tempdir().unwrap();
    let node = alone(&spill);
    let store = node.store().clone();
    let program = async move |futures: Futures| {
        let outputs = futures.submit_many(late, &(), &[], 2, TaskOptions::default())?;
        until(|| STARTED.load(Ordering::SeqCst)).await;
        futures.cancel(&outputs[0])?;
        drop(outputs);
        // The node is told of it after it was told to cancel, and to free what is there.
        let seven: u8 = futures.get_value(&futures.submit(short, &(), &[])?).await?;
        GO_ON.store(true, Ordering::SeqCst);
        until(|| SEALED.load(Ordering::SeqCst)).await;
        until(|| store.stats().objects == 0).await;
        Ok(seven)
    };
    assert_eq!(run(&node, program).unwrap(), 7);
}

static STORE: OnceLock<Store> = OnceLock::new();

/// What did not have to go to disk as it was written.
fn spilled_from_memory(stats: &StoreStats) -> u64 {
    stats.spilled_bytes - stats.written_through_bytes
}

const OUTPUTS: u32 = 24;
const OUTPUT_BYTES: u64 = 4 << 20;

/// More than the store has memory for; were its outputs open, all of them, there would be no chunks to write them to disk
/// with either. Says how much of it was spilled before the task ended.
#[task(name = "test.many")]
fn many(context: &mut TaskContext<'_>) -> Result<(), TaskError> {
    let store = STORE.get().expect("set before the job");
    for index in 1..OUTPUTS {
        write(context, index as usize, index as u8, OUTPUT_BYTES)?;
        context.seal_output(index as usize)?;
    }
    let spilled = spilled_from_memory(&store.stats());
    let writer = context.output()?;
    writer.begin_part(None)?;
    writer.write(&spilled.to_le_bytes())?;
    writer.end_part(1, RowHash::default());
    Ok(())
}

#[test]
fn sealed_outputs_of_a_task_that_runs_are_spilled_so_that_it_makes_more_than_there_is_memory() {
    let spill = tempfile::tempdir().unwrap();
    let node = alone(&spill);
    let store = STORE.get_or_init(|| node.store().clone());
    assert!(u64::from(OUTPUTS - 1) * OUTPUT_BYTES > store.stats().budget_bytes);
    let program = async |futures: Futures| {
        let outputs = futures.submit_many(many, &(), &[], OUTPUTS, TaskOptions::default())?;
        let bytes: [u8; 8] = (*futures.get(&outputs[0]).await?).try_into().map_err(JobError::program)?;
        Ok((u64::from_le_bytes(bytes), first_bytes(&futures, &outputs[1..]).await?))
    };
    let (spilled, first) = run(&node, program).unwrap();
    assert!(spilled >= OUTPUT_BYTES, "{spilled} bytes");
    assert_eq!(first, (1..OUTPUTS as u8).collect::<Vec<_>>());
}

/// Misuses of outputs, each in a task of its own.
#[task(name = "test.misused")]
fn misused(context: &mut TaskContext<'_>, how: u8) -> Result<(), TaskError> {
    context.seal_output(0)?;
    match how {
        0 => context.output_at(0).map(drop),
        1 => context.seal_output(0),
        2 => context.seal_output(2),
        _ => Ok(()),
    }
}

#[test]
fn an_output_is_sealed_once_and_then_has_no_writer() {
    let spill = tempfile::tempdir().unwrap();
    let node = alone(&spill);
    let program = async |futures: Futures| {
        let mut said = Vec::new();
        for how in 0..3 {
            let outputs = futures.submit_many(misused, &how, &[], 2, TaskOptions::default())?;
            said.push(futures.wait_all(&outputs).await);
        }
        said.push(futures.ready(&futures.submit(misused, &3, &[])?).await);
        said.push(futures.wait_all(&futures.submit_many(misused, &4, &[], 2, TaskOptions::default())?).await);
        Ok(said)
    };
    let said = run(&node, program).unwrap();
    let message = |outcome: &Result<(), JobError>| match outcome {
        Err(JobError::Task { failure, attempt, .. }) => Some((failure.message.clone(), *attempt)),
        _ => None,
    };
    let refused = |message: &str| Some((message.to_owned(), Attempt::FIRST));
    assert_eq!(
        said.iter().map(message).collect::<Vec<_>>(),
        [
            refused("output 0 is sealed"),
            refused("output 0 is sealed"),
            refused("output 2 of 2"),
            refused("seal_output in a task that does not return several outputs"),
            None
        ]
    );
    assert_eq!(said[4], Ok(()), "outputs that are never written are empty");
}

/// A report of so many lines, written like a file.
#[task(name = "test.report")]
fn report(context: &mut TaskContext<'_>, lines: u64) -> Result<(), TaskError> {
    let file = context.output()?;
    for line in 0..lines {
        writeln!(file, "line {line}")?;
    }
    Ok(())
}

/// Goes on behind a part that it has ended.
#[task(name = "test.goes_on")]
fn goes_on(context: &mut TaskContext<'_>) -> Result<(), TaskError> {
    write(context, 0, 1, 1 << 12)?;
    Ok(context.output()?.write_all(b"more")?)
}

#[test]
fn a_task_writes_a_blob_like_a_file() {
    let spill = tempfile::tempdir().unwrap();
    let node = alone(&spill);
    let text = run(&node, async |futures: Futures| {
        assert_eq!(futures.stat(&futures.submit(report, &0, &[])?).await?.bytes, 0, "nothing at all");
        Ok(futures.get(&futures.submit(report, &100_000, &[])?).await?.to_vec())
    });
    let expected: String = (0..100_000).map(|line| format!("line {line}\n")).collect();
    assert!(text.unwrap() == expected.as_bytes());
    let error = run(&node, async |futures: Futures| futures.get(&futures.submit(goes_on, &(), &[])?).await.map(drop));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("begin_part before more bytes"), "{error}");
}
