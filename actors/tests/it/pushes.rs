//! Parts that are pushed ahead of the tasks that merge them: their bytes move once, they give way to arguments, and they go.

use std::sync::Arc;

use exobus_actors::event::{Event, EventKind};
use exobus_actors::futures::{Edge, Fold, Futures, ObjectRef, Pushes};
use exobus_actors::ids::NodeId;
use exobus_actors::node::Node;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{EdgeShape, JobError, Place, TaskOptions};

use crate::harness::{Cluster, until};

const PARTS: u32 = 4;
/// The pieces in which merges ask for what is pushed.
const PIECES: [std::ops::Range<u32>; 2] = [0..3, 3..4];

/// A block of so many bytes a part, each byte the number of the block.
#[task(name = "test.block")]
fn make_block(context: &mut TaskContext<'_>, (number, part_bytes): (u8, u64)) -> Result<(), TaskError> {
    let content = vec![number; part_bytes as usize];
    let writer = context.output_sized(part_bytes * u64::from(PARTS))?;
    for _ in 0..PARTS {
        writer.begin_part(Some(part_bytes))?;
        writer.write(&content)?;
        writer.end_part(0, Default::default());
    }
    Ok(())
}

/// Stands for a merge: adds up the bytes of its arguments.
#[task(name = "test.merged")]
fn merged(context: &mut TaskContext<'_>) -> Result<u64, TaskError> {
    let blocks = context.blocks(0);
    let bytes = blocks.iter().flat_map(|block| block.iter());
    let sum = bytes.map(|byte| u64::from(*byte)).sum();
    context.consumed(0, blocks.iter().map(|block| block.len() as u64).sum(), 0, Default::default());
    Ok(sum)
}

fn on(node: &str) -> Place {
    Place::Node { node: NodeId::new(node), soft: false }
}

fn at(node: &str) -> TaskOptions {
    TaskOptions { place: on(node), ..TaskOptions::default() }
}

/// Blocks 1 to `count`, made on the node "source".
async fn blocks(futures: &Futures, count: u8, part_bytes: u64) -> Result<Vec<ObjectRef>, JobError> {
    let blocks = (1..=count).map(|number| futures.submit_with(make_block, &(number, part_bytes), &[], at("source")));
    let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
    futures.wait_all(&blocks).await?;
    Ok(blocks)
}

/// Pushes blocks to the node "target".
fn push(futures: &Futures, blocks: &[ObjectRef], fold_at: usize) -> Result<Pushes, JobError> {
    let mut pushes = Pushes::open(futures, &[(on("target"), PIECES.to_vec())], fold_at)?;
    blocks.iter().try_for_each(|block| pushes.push(futures, block))?;
    Ok(pushes)
}

/// Waits for so many folds.
async fn folds(futures: &Futures, pushes: &mut Pushes, count: usize) -> Result<Vec<Fold>, JobError> {
    let mut folds = Vec::new();
    let mut failed = Ok(());
    until(|| {
        match pushes.due(futures) {
            Ok(due) => folds.extend(due),
            Err(error) => failed = Err(error),
        }
        folds.len() >= count || failed.is_err()
    })
    .await;
    failed.map(|()| folds)
}

/// Merges folds on the node "target", one after the other: what waits there could be recalled, and would be fetched again.
/// What all of their bytes add up to.
async fn merge(futures: &Futures, folds: &[Fold]) -> Result<u64, JobError> {
    let edge = futures.edge(EdgeShape { keep: true, ..EdgeShape::new("block -> merge", PARTS) })?;
    folds.iter().try_for_each(|fold| edge.join_all(&fold.blocks))?;
    merge_of(futures, &edge, folds).await
}

/// The same, of blocks that have joined an edge.
async fn merge_of(futures: &Futures, edge: &Edge, folds: &[Fold]) -> Result<u64, JobError> {
    let mut sum = 0;
    for fold in folds {
        let set = edge.of(&fold.blocks)?;
        for piece in PIECES {
            let merge = futures.submit_with(merged, &(), &[set.parts(piece)], at("target"))?;
            sum += futures.get_value::<u64>(&merge).await?;
        }
    }
    Ok(sum)
}

/// What the bytes of blocks 1 to `count` add up to.
fn expected(count: u64, part_bytes: u64) -> u64 {
    count * (count + 1) / 2 * part_bytes * u64::from(PARTS)
}

/// Two nodes, of which "target" has memory for `blocks_bytes` of objects besides its reserve of 2 MiB.
fn cluster(blocks_bytes: u64) -> Cluster {
    let cluster = Cluster::new();
    cluster.start("source");
    cluster.start_of("target", &[], blocks_bytes + (2 << 20));
    cluster
}

/// Folds that were said to be due: how many blocks, bytes here, whether memory was short.
fn folds_told(events: &[Event]) -> Vec<(u32, u64, bool)> {
    let fold = |event: &Event| match event.kind {
        EventKind::FoldDue { blocks, bytes, tight } if event.node == NodeId::new("target") => {
            Some((blocks, bytes, tight))
        }
        _ => None,
    };
    events.iter().filter_map(fold).collect()
}

fn used_bytes(node: &Node) -> u64 {
    node.store().stats().used_bytes
}

#[test]
fn pushed_bytes_are_there_before_their_merge_and_move_once() {
    const PART_BYTES: u64 = 100_000;
    const BYTES: u64 = 6 * PARTS as u64 * PART_BYTES;
    let cluster = cluster(56 << 20);
    let target = cluster.node("target");
    let watched = target.clone();
    let program = async move |futures: Futures| {
        let blocks = blocks(&futures, 6, PART_BYTES).await?;
        let mut pushes = push(&futures, &blocks, 3)?;
        let folds = folds(&futures, &mut pushes, 2).await?;
        assert!(folds.iter().all(|fold| fold.lane == 0 && fold.blocks.len() == 3), "{folds:?}");
        assert!(pushes.rest().is_empty());
        let figures = watched.figures();
        assert_eq!((figures.pushed_bytes, figures.received_bytes), (BYTES, BYTES), "no merge was submitted");
        merge(&futures, &folds).await
    };
    let (sum, end, events) = cluster.run("source", program);
    assert_eq!(sum.unwrap(), expected(6, PART_BYTES));
    let figures = &end.nodes[&NodeId::new("target")];
    assert_eq!(figures.received_bytes, BYTES, "merges fetched nothing that was there");
    assert_eq!((figures.pushed_bytes, figures.revoked_bytes), (BYTES, 0));
    assert_eq!(folds_told(&events), [(3, BYTES / 2, false); 2]);
    let received = events.iter().filter_map(|event| match &event.kind {
        EventKind::Received(received) => Some(received.bytes),
        _ => None,
    });
    assert_eq!(received.max(), Some(BYTES), "pushes are transfers like all others");
}

#[test]
fn pushed_copies_give_way_to_arguments_and_their_merges_fetch_again() {
    const PART_BYTES: u64 = 500_000;
    const BYTES: u64 = 3 * PARTS as u64 * PART_BYTES;
    let cluster = cluster(32 << 20);
    let target = cluster.node("target");
    let program = async move |futures: Futures| {
        let blocks = blocks(&futures, 3, PART_BYTES).await?;
        let mut pushes = push(&futures, &blocks, 100)?;
        until(|| target.figures().pushed_bytes == BYTES).await;
        // With the copies of 6 MB beside it, an argument of 30 MB does not fit into 32 MiB.
        let large = futures.submit_with(make_block, &(1, 7_500_000), &[], at("source"))?;
        let sum: u64 = futures.get_value(&futures.submit_with(merged, &(), &[large.arg()], at("target"))?).await?;
        assert_eq!(sum, 30_000_000);
        drop(large);
        assert!(target.figures().revoked_bytes > 0, "{:?}", target.figures());
        merge(&futures, &pushes.rest()).await
    };
    let (sum, end, _) = cluster.run("source", program);
    assert_eq!(sum.unwrap(), expected(3, PART_BYTES));
    let figures = &end.nodes[&NodeId::new("target")];
    assert!(figures.received_bytes > 30_000_000 + BYTES, "{figures:?}");
}

#[test]
fn a_push_that_finds_no_room_folds_what_is_there() {
    const PART_BYTES: u64 = 600_000;
    // A quarter of 32 MiB holds three blocks of 2.4 MB.
    const HERE: u64 = 3 * PARTS as u64 * PART_BYTES;
    let cluster = cluster(32 << 20);
    let program = async move |futures: Futures| {
        let blocks = blocks(&futures, 5, PART_BYTES).await?;
        let mut pushes = push(&futures, &blocks, 12)?;
        let mut folds = folds(&futures, &mut pushes, 1).await?;
        assert_eq!(folds[0].blocks.len(), 3);
        let mut sum = merge(&futures, &folds).await?;
        folds = pushes.rest();
        assert_eq!(folds[0].blocks.len(), 2);
        sum += merge(&futures, &folds).await?;
        Ok(sum)
    };
    let (sum, end, events) = cluster.run("source", program);
    assert_eq!(sum.unwrap(), expected(5, PART_BYTES));
    assert_eq!(folds_told(&events), [(3, HERE, true)]);
    let figures = &end.nodes[&NodeId::new("target")];
    assert_eq!(figures.received_bytes, 5 * u64::from(PARTS) * PART_BYTES, "{figures:?}");
}

#[test]
fn a_job_that_ends_leaves_no_copy_behind() {
    const PART_BYTES: u64 = 100_000;
    let cluster = cluster(56 << 20);
    let target: Arc<Node> = cluster.node("target");
    let (before, watched) = (used_bytes(&target), target.clone());
    let program = async move |futures: Futures| {
        let blocks = blocks(&futures, 4, PART_BYTES).await?;
        let _pushes = push(&futures, &blocks, 100)?;
        until(|| watched.figures().pushed_bytes == 4 * u64::from(PARTS) * PART_BYTES).await;
        assert!(used_bytes(&watched) >= before + 4 * u64::from(PARTS) * PART_BYTES);
        Ok(())
    };
    let (result, ..) = cluster.run("source", program);
    result.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(until(|| used_bytes(&target) == before));
    assert_eq!(target.figures().revoked_bytes, 4 * u64::from(PARTS) * PART_BYTES);
}

#[test]
fn a_row_that_is_merged_twice_or_never_fails_the_edge() {
    for twice in [false, true] {
        let cluster = cluster(56 << 20);
        let program = async move |futures: Futures| {
            let blocks = blocks(&futures, 2, 1000).await?;
            let fold = |blocks: &[ObjectRef]| Fold { lane: 0, blocks: blocks.to_vec() };
            let folds = if twice { vec![fold(&blocks), fold(&blocks[..1])] } else { vec![fold(&blocks[..1])] };
            let edge = futures.edge(EdgeShape { keep: true, ..EdgeShape::new("block -> merge", PARTS) })?;
            edge.join_all(&blocks)?;
            merge_of(&futures, &edge, &folds).await.map(drop)
        };
        let (result, ..) = cluster.run("source", program);
        let reads = if twice { 12 } else { 4 };
        let expected = format!("{reads} part reads, expected 8");
        match result {
            Err(JobError::Conservation { edge, detail }) => {
                assert_eq!(edge, "block -> merge");
                assert_eq!(detail, expected);
            }
            other => panic!("{other:?}"),
        }
    }
}
