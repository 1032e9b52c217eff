//! What processes make is what threads make.

use std::path::PathBuf;

use exobus_actors::futures::Futures;
use exobus_actors::isolation::ExecutorKind;
use exobus_actors::task::{Align, EdgeShape, JobError, Place, TaskOptions};

use crate::functions::{
    End, Ends, Make, count_up, ends, join, join_stream, make, peek, remembers, several, whereabouts,
};
use crate::harness::World;

const MAPS: u64 = 12;
const PARTS: u32 = 7;

/// A shuffle: every part of every map, joined whole and as a stream. `killed`: some processes die among it, and leave
/// their marks in this folder.
async fn shuffle(futures: Futures, rows: u64, align: Align, killed: Option<PathBuf>) -> Result<Vec<Vec<u8>>, JobError> {
    let options = || TaskOptions { align, ..TaskOptions::default() };
    let maps = (0..MAPS).map(|map| futures.submit_with(make, &Make { map, parts: PARTS, rows }, &[], options()));
    let maps = maps.collect::<Result<Vec<_>, _>>()?;
    let deaths = killed.iter().flat_map(|marks| {
        (0..6).map(|salt| {
            let how = if salt % 2 == 0 { End::Abort } else { End::Exit(1) };
            let mark = Some(marks.join(salt.to_string()));
            futures.submit(ends, &Ends { salt, mark, ..Ends::once(how) }, &[])
        })
    });
    let deaths = deaths.collect::<Result<Vec<_>, _>>()?;
    let set = futures.closed_edge(EdgeShape { readers: 2, ..EdgeShape::new("test", PARTS) }, &maps)?;
    let mut joined = Vec::new();
    for part in 0..PARTS {
        joined.push(futures.submit(join, &0, &[set.part(part)])?);
        joined.push(futures.submit(join_stream, &0, &[set.part(part)])?);
    }
    drop((maps, set));
    let mut bytes = Vec::new();
    for object in &joined {
        bytes.push(futures.get(object).await?.to_vec());
    }
    for death in &deaths {
        futures.get_value::<u64>(death).await?;
    }
    Ok(bytes)
}

#[test]
fn a_shuffle_in_processes_gives_the_same_bytes_whatever_dies_and_spills() {
    let threads = World::new(ExecutorKind::Thread, 2, 64 << 20);
    let (expected, _) = threads.run(async |futures| shuffle(futures, 10_000, Align::One, None).await);
    let expected = expected.unwrap();
    assert_eq!(
        expected.iter().map(Vec::len).sum::<usize>(),
        2 * expected.iter().step_by(2).map(Vec::len).sum::<usize>()
    );
    // Aligned or not, the ledger of the edge balances and the bytes are the same.
    let aligned = World::new(ExecutorKind::Thread, 2, 64 << 20)
        .run(async |futures| shuffle(futures, 10_000, Align::SixtyFour, None).await);
    assert!(aligned.0.unwrap() == expected);
    for (memory_bytes, align, killed) in [
        (96 << 20, Align::One, false),
        (96 << 20, Align::SixtyFour, true),
        (21 << 20, Align::One, true),
        (21 << 20, Align::SixtyFour, true),
    ] {
        let world = World::new(ExecutorKind::Process, 2, memory_bytes);
        let marks = tempfile::tempdir().unwrap();
        let deaths = killed.then(|| marks.path().to_owned());
        let (result, failures) = world.run(async move |futures| shuffle(futures, 10_000, align, deaths).await);
        let result = result.unwrap();
        assert!(result == expected, "{memory_bytes} {align:?} {killed}");
        assert_eq!(failures.len(), if killed { 6 } else { 0 }, "{failures:?}");
        let stats = world.node.store().stats();
        let to_disk = stats.spilled_bytes + stats.written_through_bytes;
        assert_eq!(to_disk > 0, memory_bytes < 64 << 20, "{stats:?}");
        world.assert_nothing_is_held();
    }
}

#[test]
fn everything_that_a_context_can_do_can_be_done_in_a_process() {
    let all = async |futures: Futures| {
        let made = futures.submit(make, &Make { map: 3, parts: 4, rows: 100 }, &[])?;
        futures.ready(&made).await?;
        let place = Place::Node { node: futures.locations(&made).await?.remove(0), soft: false };
        let bound = TaskOptions { place, ..TaskOptions::default() };
        let peeked = futures.submit_with(peek, &0, &[made.arg()], bound)?;
        let peeked = futures.get_value::<Vec<(u64, Vec<u8>)>>(&peeked).await?;
        let mut stream = futures.submit_stream(count_up, &9, &[], TaskOptions::default())?;
        let mut counted = Vec::new();
        while let Some(object) = stream.next().await? {
            counted.push(futures.get_value::<u64>(&object).await?);
        }
        let options = TaskOptions::default();
        let outputs = futures.submit_many(several, &40, &[], 3, options)?;
        let values = (futures.get_value::<u64>(&outputs[0]).await?, futures.get_value::<u64>(&outputs[1]).await?);
        let empty = futures.get(&outputs[2]).await?.len();
        let options = TaskOptions { scratch_bytes: vec![100 * 32], ..TaskOptions::default() };
        let granted = futures.submit_with(make, &Make { map: 3, parts: 5, rows: 100 }, &[], options)?;
        let granted = futures.get(&granted).await?.to_vec();
        Ok((peeked, counted, values, empty, granted))
    };
    let (expected, _) = World::new(ExecutorKind::Thread, 1, 64 << 20).run(all);
    let world = World::one();
    let (result, failures) = world.run(all);
    assert_eq!(result.unwrap(), expected.unwrap());
    assert!(failures.is_empty(), "{failures:?}");
    world.assert_nothing_is_held();
}

#[test]
fn a_process_serves_many_attempts_and_keeps_what_functions_set_up() {
    let world = World::one();
    let program = async |futures: Futures| {
        let mut last = 0;
        for number in 0..50 {
            last = futures.get_value::<u64>(&futures.submit(remembers, &number, &[])?).await?;
        }
        Ok(last)
    };
    assert_eq!(world.run(program).0.unwrap(), 50);
}

#[test]
fn functions_run_where_the_kind_of_the_executor_says() {
    for (kind, inside) in
        [(ExecutorKind::Thread, true), (ExecutorKind::Process, false), (ExecutorKind::ProcessAll, false)]
    {
        let world = World::new(kind, 1, 64 << 20);
        let program = async |futures: Futures| {
            let task = futures.submit(whereabouts, &0, &[])?;
            futures.get_value::<u32>(&task).await
        };
        assert_eq!(world.run(program).0.unwrap() == std::process::id(), inside, "{kind:?}");
    }
}
