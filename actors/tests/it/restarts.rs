//! A node whose process is stopped and started again, and what it still has on disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::ids::{CopyId, JobId, NodeId};
use exobus_actors::joblog::LogsLink;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::protocol::host::JobSpec;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, Place, TaskOptions};
use exobus_bus::{Bus, InProcessOptions, Subjects};

use crate::harness::{Cluster, MEMORY_BYTES, until};

const BLOCK_BYTES: u64 = 4 << 20;
/// Three times what the node holds in memory.
const BLOCKS: u64 = 3 * MEMORY_BYTES / BLOCK_BYTES;

static MADE: AtomicU64 = AtomicU64::new(0);

#[task(name = "test.kept_block")]
fn kept_block(context: &mut TaskContext<'_>, number: u64) -> Result<(), TaskError> {
    MADE.fetch_add(1, Ordering::SeqCst);
    let content = vec![number as u8; BLOCK_BYTES as usize];
    let writer = context.output_sized(BLOCK_BYTES)?;
    writer.begin_part(Some(BLOCK_BYTES))?;
    writer.write(&content)?;
    writer.end_part(0, Default::default());
    Ok(())
}

#[task(name = "test.sum_block")]
fn sum_block(context: &mut TaskContext<'_>) -> Result<u64, TaskError> {
    Ok(context.blocks(0).iter().flat_map(|block| block.iter()).map(|byte| u64::from(*byte)).sum())
}

fn rather_on(node: &str, soft: bool) -> TaskOptions {
    TaskOptions { place: Place::Node { node: NodeId::new(node), soft }, ..TaskOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_restarted_is_asked_what_it_still_has() {
    let cluster = Arc::new(Cluster::new());
    cluster.start("a");
    cluster.start("b");
    let host = cluster.node("a");
    // Of a job that nobody runs any more: it is in the way of nobody.
    let foreign = JobId::from_u128(77);
    for number in 0..BLOCKS {
        let content = vec![100 + number as u8; BLOCK_BYTES as usize];
        cluster.node("b").store().put(&content, |content| CopyId::new(foreign.group(), content)).unwrap();
    }

    let restarted = cluster.clone();
    let program = async move |futures: Futures| {
        let blocks = (0..BLOCKS).map(|number| futures.submit_with(kept_block, &number, &[], rather_on("b", true)));
        let blocks: Vec<ObjectRef> = blocks.collect::<Result<_, _>>()?;
        futures.wait_all(&blocks).await?;
        let had = restarted.node("b").store().inventory(futures.job().group()).len() as u64;
        let again = restarted.clone();
        tokio::task::spawn_blocking(move || {
            again.stop("b");
            assert!(again.spill_files("b") > 0);
            again.start("b");
        })
        .await
        .unwrap();
        let b = restarted.node("b");
        let kept = b.store().inventory(futures.job().group()).len() as u64;
        assert!(kept > 0, "what was spilled is there");
        assert!(b.store().inventory(foreign.group()).is_empty(), "and nothing of a job that is over");
        let (mut sum, made) = (0, MADE.load(Ordering::SeqCst));
        for block in &blocks {
            let whole = futures.submit_with(sum_block, &(), &[block.arg()], rather_on("b", true))?;
            sum += futures.get_value::<u64>(&whole).await?;
        }
        Ok((sum, had - kept, made))
    };
    let spec = JobSpec {
        job: host.new_job(),
        tenant: "local".into(),
        program: "test".into(),
        params: Default::default(),
        sample_ms: 0,
        plan_pieces: 0,
    };
    let (outcome, _) = host.run_logged(spec, None, program).await;
    let (sum, lost, made) = outcome.unwrap();
    assert_eq!(sum, (0..BLOCKS).sum::<u64>() * BLOCK_BYTES);
    // What was in memory only is lost, and so may be the first that was asked for before the node had said what it has.
    let again = MADE.load(Ordering::SeqCst) - made;
    assert!(again <= lost + 1, "{again} were made again, and {lost} were lost");
    until(|| cluster.node("b").store().ids().is_empty()).await;
    cluster.stop("b");
    assert!(!cluster.spill_dir("b").exists(), "nothing is kept for nobody");
}

/// Its process was killed after its end was noted, say, and before anybody had heard of it.
#[test]
fn what_a_job_has_returned_is_known_to_who_takes_it_up_when_it_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bus = runtime.block_on(Bus::in_process_durable(InProcessOptions::default(), &file)).unwrap();
    let mut options = NodeOptions::alone(1, 32 << 20);
    options.logs = LogsLink::in_file(bus, Subjects::new("local").unwrap(), file);
    let node = Node::start(options).unwrap();
    let (job, program, tenant) = (node.new_job(), "test".to_owned(), "local".into());
    let spec = JobSpec { job, tenant, program, params: Default::default(), sample_ms: 0, plan_pieces: 0 };
    let first = async |_: Futures| -> Result<(String, u64), JobError> { Ok(("rows".to_owned(), 7)) };
    let (value, _) = runtime.block_on(node.run_logged(spec.clone(), None, first));
    assert_eq!(value.unwrap(), ("rows".to_owned(), 7));
    let second = async |_: Futures| -> Result<(String, u64), JobError> { panic!("it had ended and runs again") };
    let (value, end) = runtime.block_on(node.run_logged(spec, None, second));
    assert_eq!(value.unwrap(), ("rows".to_owned(), 7), "{end:?}");
    node.stop();
}
