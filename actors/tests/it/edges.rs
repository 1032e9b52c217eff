//! What goes from task to task is what arrives, and programs that have seen enough end well.

use std::sync::atomic::{AtomicU64, Ordering};

use exobus_actors::futures::{Arrivals, Futures, ObjectRef};
use exobus_actors::ids::{NodeId, RowHash};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{EdgeShape, JobError, Place, TaskOptions};

use crate::harness::{Cluster, until};

const ROW: usize = 8;

fn row(number: u64) -> [u8; ROW] {
    number.to_le_bytes()
}

/// Rows of these numbers as the next part of the output.
fn write(context: &mut TaskContext<'_>, numbers: std::ops::Range<u64>) -> Result<(), TaskError> {
    let writer = context.output()?;
    writer.begin_part(None)?;
    let (rows, mut hash) = (numbers.end - numbers.start, RowHash::default());
    for number in numbers {
        writer.write(&row(number))?;
        hash += RowHash::of(&row(number));
    }
    writer.end_part(rows, hash);
    Ok(())
}

/// Two parts of ten rows each.
#[task(name = "test.edges.make", deterministic = true)]
fn make(context: &mut TaskContext<'_>, number: u64) -> Result<(), TaskError> {
    (0..2).try_for_each(|part| write(context, (2 * number + part) * 10..(2 * number + part + 1) * 10))
}

/// So many objects of one row.
#[task(name = "test.edges.announce")]
fn announce(context: &mut TaskContext<'_>, (first, count): (u64, u64)) -> Result<(), TaskError> {
    for number in first..first + count {
        write(context, number..number + 1)?;
        context.next_output()?;
    }
    Ok(())
}

/// How a function reads its argument.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
enum Reads {
    All,
    /// So many rows, and says that it wants no more.
    Limit(u64),
    /// One row less than it was given.
    Loses,
}

/// The sum of what it reads.
#[task(name = "test.edges.add", arguments = [stream], deterministic = true)]
fn add(context: &mut TaskContext<'_>, reads: Reads) -> Result<u64, TaskError> {
    let (mut sum, mut rows, mut hash) = (0, 0, RowHash::default());
    'readers: for mut reader in context.readers(0) {
        while let Some(chunk) = reader.next_chunk()? {
            for row in chunk.chunks(ROW) {
                if matches!(reads, Reads::Limit(limit) if rows == limit) {
                    break 'readers;
                }
                sum += u64::from_le_bytes(row.try_into().expect("rows have eight bytes"));
                (rows, hash) = (rows + 1, hash + RowHash::of(row));
            }
        }
    }
    match reads {
        Reads::All => {}
        Reads::Limit(_) => context.reads_no_further(0),
        Reads::Loses => rows -= 1,
    }
    context.consumed(0, rows * ROW as u64, rows, hash);
    Ok(sum)
}

/// Says nothing of what it reads.
#[task(name = "test.edges.count")]
fn count_rows(context: &mut TaskContext<'_>) -> Result<u64, TaskError> {
    Ok(context.blocks(0).iter().map(|block| block.len() as u64 / ROW as u64).sum())
}

static STARTED: AtomicU64 = AtomicU64::new(0);

/// Runs until it is cancelled.
#[task(name = "test.edges.goes_on")]
fn goes_on(context: &mut TaskContext<'_>, _number: u64) -> Result<(), TaskError> {
    STARTED.fetch_add(1, Ordering::SeqCst);
    while !context.cancelled() {
        std::thread::yield_now();
    }
    Err(TaskError::Cancelled)
}

fn at(node: &str) -> TaskOptions {
    TaskOptions { place: Place::Node { node: NodeId::new(node), soft: false }, ..TaskOptions::default() }
}

fn makes(futures: &Futures, count: u64) -> Result<Vec<ObjectRef>, JobError> {
    (0..count)
        .map(|number| futures.submit_with(make, &number, &[], at(if number % 2 == 0 { "a" } else { "b" })))
        .collect()
}

fn cluster() -> Cluster {
    let cluster = Cluster::new();
    ["a", "b"].iter().for_each(|node| cluster.start(node));
    cluster
}

#[test]
fn a_function_that_reads_as_far_as_its_limit_says_so_and_the_ledger_balances() {
    let program = async |futures: Futures| {
        let made = makes(&futures, 3)?;
        let set = futures.closed_edge(EdgeShape::new("make -> add", 2), &made)?;
        let read = futures.submit(add, &Reads::Limit(13), &[set.part(0)])?;
        let rest = futures.submit(add, &Reads::All, &[set.part(1)])?;
        Ok((futures.get_value::<u64>(&read).await?, futures.get_value::<u64>(&rest).await?))
    };
    let (result, ..) = cluster().run("a", program);
    let sum = |from: u64, to: u64| (from..to).sum::<u64>();
    assert_eq!(result, Ok((sum(0, 10) + sum(20, 23), sum(10, 20) + sum(30, 40) + sum(50, 60))));
}

#[test]
fn a_row_that_a_function_loses_is_missed_wherever_it_has_read_it() {
    for how in ["edge", "set", "object", "part"] {
        let program = async move |futures: Futures| {
            let made = makes(&futures, 1)?;
            let set = match how {
                "edge" => futures.closed_edge(EdgeShape::new("make -> add", 1), &made)?,
                _ => futures.set(&made)?,
            };
            let arg = match how {
                "edge" => set.part(0),
                "set" => set.arg(),
                "object" => made[0].arg(),
                _ => made[0].part(1).arg(),
            };
            futures.get_value::<u64>(&futures.submit(add, &Reads::Loses, &[arg])?).await
        };
        let (result, ..) = cluster().run("a", program);
        match result {
            Err(JobError::Conservation { edge, detail }) => {
                let expected = if how == "edge" { "make -> add" } else { "test.edges.make -> test.edges.add" };
                assert_eq!(edge, expected);
                assert!(detail.contains("has read 1 rows in 8 bytes less than it was given"), "{detail}");
            }
            other => panic!("{how}: {other:?}"),
        }
    }
}

#[test]
fn a_function_that_says_nothing_of_what_it_reads_may_read_objects_but_no_edge() {
    for of_edge in [false, true] {
        let program = async move |futures: Futures| {
            let made = makes(&futures, 2)?;
            let set = match of_edge {
                true => futures.closed_edge(EdgeShape::new("make -> count", 2), &made)?,
                false => futures.set(&made)?,
            };
            futures.get_value::<u64>(&futures.submit(count_rows, &(), &[set.arg()])?).await
        };
        let (result, ..) = cluster().run("a", program);
        match result {
            Ok(rows) => assert_eq!((rows, of_edge), (40, false)),
            Err(JobError::Conservation { detail, .. }) => {
                assert!(of_edge && detail.contains("sealed 40 rows in 320 bytes, read 0 rows"), "{detail}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_program_that_has_seen_enough_stops_and_nothing_stays_while_its_job_goes_on() {
    let cluster = cluster();
    let stores = ["a", "b"].map(|node| cluster.node(node).store().clone());
    let program = async move |futures: Futures| {
        let edge = futures.edge(EdgeShape::new("make -> add", 2))?;
        edge.join_all(&makes(&futures, 4)?)?;
        // This one will never be there.
        edge.join(&futures.submit_with(goes_on, &0, &[], at("b"))?)?;
        let few = edge.first(2)?;
        let sum = futures.submit_with(add, &Reads::All, &[few.part(0)], at("a"))?;
        let seen = futures.get_value::<u64>(&sum).await?;
        let _late = futures.submit(add, &Reads::All, &[edge.first(5)?.part(1)])?;
        until(|| STARTED.load(Ordering::SeqCst) == 1).await;
        drop((few, sum));
        edge.stop()?;
        until(|| stores.iter().all(|store| store.stats().objects == 0)).await;
        Ok(seen)
    };
    let (result, ..) = cluster.run("a", program);
    assert_eq!(result, Ok((0..10).chain(20..30).sum()));
}

#[test]
fn a_stop_before_the_first_member_balances_whatever_joins_later_and_other_edges_go_on() {
    let program = async |futures: Futures| {
        let stopped = futures.edge(EdgeShape::new("make -> nobody", 2))?;
        futures.stop_edges()?;
        let made = makes(&futures, 2)?;
        stopped.join_all(&made)?;
        drop(stopped.close()?);
        let set = futures.closed_edge(EdgeShape::new("make -> add", 2), &made)?;
        let sums = [0, 1].map(|part| futures.submit(add, &Reads::All, &[set.part(part)]));
        let [even, odd] = sums;
        Ok((futures.get_value::<u64>(&even?).await?, futures.get_value::<u64>(&odd?).await?))
    };
    let (result, ..) = cluster().run("a", program);
    assert_eq!(result, Ok(((0..10).chain(20..30).sum(), (10..20).chain(30..40).sum())));
}

#[test]
fn parts_that_are_declared_unread_are_freed_while_the_job_goes_on_and_it_ends_well() {
    let cluster = cluster();
    let stores = ["a", "b"].map(|node| cluster.node(node).store().clone());
    let program = async move |futures: Futures| {
        let edge = futures.edge(EdgeShape::new("make -> add", 2))?;
        edge.join_all(&makes(&futures, 4)?)?;
        let set = edge.first(4)?;
        let sum = futures.submit(add, &Reads::All, &[set.part(0)])?;
        let seen = futures.get_value::<u64>(&sum).await?;
        drop((set, sum));
        edge.unread(1..2)?;
        drop(edge.close()?);
        until(|| stores.iter().all(|store| store.stats().objects == 0)).await;
        Ok(seen)
    };
    let (result, ..) = cluster.run("a", program);
    assert_eq!(result, Ok((0..4).flat_map(|map| 20 * map..20 * map + 10).sum()));
}

#[test]
fn a_program_that_leaves_an_edge_without_a_word_fails() {
    let program = async |futures: Futures| {
        let made = makes(&futures, 2)?;
        let set = futures.closed_edge(EdgeShape::new("make -> add", 2), &made)?;
        futures.get_value::<u64>(&futures.submit(add, &Reads::All, &[set.part(0)])?).await
    };
    let (result, ..) = cluster().run("a", program);
    match result {
        Err(JobError::Conservation { edge, detail }) => {
            assert_eq!((&*edge, &*detail), ("make -> add", "2 part reads, expected 4"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_several_streams_announce_joins_an_edge_as_it_comes() {
    let program = async |futures: Futures| {
        let streams: Result<Vec<_>, _> = ["a", "b"]
            .iter()
            .zip([0, 100])
            .map(|(node, first)| futures.submit_stream(announce, &(first, 5), &[], at(node)))
            .collect();
        let mut arrivals = Arrivals::of(streams?);
        let edge = futures.edge(EdgeShape::new("announce -> add", 1))?;
        while let Some(object) = arrivals.next(&futures).await? {
            edge.join(&object)?;
        }
        let members = edge.len();
        let sum = futures.get_value::<u64>(&futures.submit(add, &Reads::All, &[edge.close()?.part(0)])?).await?;
        Ok((members, sum))
    };
    let (result, ..) = cluster().run("a", program);
    assert_eq!(result, Ok((10, (0..5).chain(100..105).sum())));
}
