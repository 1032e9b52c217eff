//! How arguments are taken.

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::ids::{NodeId, RowHash};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{JobError, Place, TaskOptions};

use crate::harness::Cluster;

/// Part `p` of the object has `p + 1` times `number` bytes, each of them `p`.
const PARTS: u8 = 3;

#[task(name = "test.parts")]
fn parts(context: &mut TaskContext<'_>, number: usize) -> Result<(), TaskError> {
    let writer = context.output()?;
    for part in 0..PARTS {
        let bytes = vec![part; usize::from(part + 1) * number];
        writer.begin_part(None)?;
        writer.write(&bytes)?;
        writer.end_part(1, RowHash(u128::from(part)));
    }
    Ok(())
}

/// Whether the arguments came as streams.
#[task(name = "test.taken", arguments = [either])]
fn taken(context: &mut TaskContext<'_>) -> Result<Vec<bool>, TaskError> {
    Ok((0..context.args()).map(|arg| context.is_stream(arg)).collect())
}

/// Bytes and last byte of each part of each object.
#[task(name = "test.look", arguments = [in_place])]
fn look(context: &mut TaskContext<'_>) -> Result<Vec<Vec<(u64, u8)>>, TaskError> {
    let mut seen = Vec::new();
    for object in context.in_place(0) {
        let mut of_object = Vec::new();
        for part in object.parts() {
            let mut last = [0xff];
            if part.bytes > 0 {
                object.read(part.offset + part.bytes - 1, &mut last)?;
            }
            of_object.push((part.bytes, last[0]));
        }
        seen.push(of_object);
    }
    Ok(seen)
}

fn at(node: &str) -> TaskOptions {
    TaskOptions { place: Place::Node { node: NodeId::new(node), soft: false }, ..TaskOptions::default() }
}

fn made(futures: &Futures, number: usize, node: &str) -> Result<ObjectRef, JobError> {
    // Where a task runs does not make it another one; the salt does.
    let salt = u64::from(node.as_bytes()[0]);
    futures.submit_with(parts, &number, &[], TaskOptions { salt, ..at(node) })
}

#[test]
fn what_is_more_than_may_come_whole_comes_as_streams_all_of_it() {
    let cluster = Cluster::new();
    cluster.start("a");
    cluster.start("b");
    let program = async |futures: Futures| {
        let mut all = Vec::new();
        // Parts of 3000 bytes here, and of 3000 bytes there.
        let [here, there] = [made(&futures, 1000, "a")?, made(&futures, 1000, "b")?];
        let args = [here.part(2).arg(), there.part(2).arg()];
        for whole_max_bytes in [0, 6000, 5999] {
            // Other arguments make another task.
            let salt = whole_max_bytes;
            let options = TaskOptions { whole_max_bytes, salt, ..at("a") };
            all.push(futures.get_value::<Vec<bool>>(&futures.submit_with(taken, &(), &args, options)?).await?);
        }
        // All of it in the memory of its node already: of that, too.
        let options = TaskOptions { whole_max_bytes: 2999, ..at("a") };
        all.push(futures.get_value(&futures.submit_with(taken, &(), &args[..1], options)?).await?);
        Ok(all)
    };
    let (result, _, _) = cluster.run("a", program);
    assert_eq!(result.unwrap(), [vec![false; 2], vec![false; 2], vec![true; 2], vec![true]]);
}

#[test]
fn what_lies_in_place_is_looked_at_there_and_from_elsewhere_in_a_copy() {
    let cluster = Cluster::new();
    cluster.start("a");
    cluster.start("b");
    let program = async |futures: Futures| {
        let objects = [made(&futures, 10, "b")?, made(&futures, 0, "b")?, made(&futures, 7, "b")?];
        let set = futures.set(&objects)?;
        let seen: Vec<Vec<(u64, u8)>> =
            futures.get_value(&futures.submit_with(look, &(), &[set.parts(1..3)], at("b"))?).await?;
        let options = TaskOptions { attempts: 1, salt: 1, ..at("a") };
        // As when a task was bound to a node, and what it looks at was made again on another one.
        let elsewhere: Vec<Vec<(u64, u8)>> =
            futures.get_value(&futures.submit_with(look, &(), &[set.parts(1..3)], options)?).await?;
        Ok((seen, elsewhere))
    };
    let (result, _, _) = cluster.run("a", program);
    let (seen, elsewhere) = result.unwrap();
    assert_eq!((&seen[0], &seen[2]), (&vec![(20, 1), (30, 2)], &vec![(14, 1), (21, 2)]));
    assert!(seen[1].iter().all(|(bytes, _)| *bytes == 0), "{seen:?}");
    assert_eq!(elsewhere, seen);
}
