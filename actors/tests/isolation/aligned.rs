//! Parts that a job wants aligned begin at multiples of 64 bytes of the region, where the functions that read them find them: on
//! threads and in processes, on the node that made them and on another, from memory and from disk.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::ids::{NodeId, RowHash};
use exobus_actors::isolation::ExecutorKind;
use exobus_actors::membership::MembershipOptions;
use exobus_actors::node::{ClusterOptions, Node, NodeOptions};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_actors::task::{Align, Arg, JobError, Parts, Place, TaskOptions};
use exobus_bus::{Bus, Subjects};

use crate::common::run_on;
use crate::harness::isolation;

/// A part, or a chunk of a stream, as a function finds it: where it begins in the region of its node's store, and its length.
type Found = (u64, u64);

const PARTS: u32 = 64;
/// None, one byte, about 64, about a page, and more than the window of a stream shows at a time.
const LENGTHS: [u64; 16] = [0, 1, 63, 64, 65, 0, 0, 4095, 4096, 4097, 100_001, 65_535, 65_537, 7, 300_033, 0];

fn length(part: u32) -> u64 {
    LENGTHS[part as usize % LENGTHS.len()]
}

/// An object of [`PARTS`] parts of [`LENGTHS`], every other one without saying beforehand how long it will be.
#[task(name = "test.write_parts", deterministic = true)]
fn write_parts(context: &mut TaskContext<'_>, seed: u64) -> Result<(), TaskError> {
    let output = context.output()?;
    for part in 0..PARTS {
        let bytes: Vec<u8> = (0..length(part)).map(|at| (seed + u64::from(part) + at % 251) as u8).collect();
        output.begin_part((part % 2 == 0).then_some(bytes.len() as u64))?;
        bytes.chunks(10_000).try_for_each(|piece| output.write(piece))?;
        output.end_part(1, RowHash::of(&bytes));
    }
    Ok(())
}

/// Where some bytes begin in the region of a store, by the mappings of this process: bytes anywhere else are a copy.
fn offset_in_region(bytes: &[u8]) -> Result<u64, TaskError> {
    let address = bytes.as_ptr() as u64;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let offset = maps.lines().filter(|line| line.contains("memfd:exobus-store")).find_map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let (start, end, offset) = (number(start)?, number(end)?, number(fields.nth(1)?)?);
        (start..end).contains(&address).then(|| address - start + offset)
    });
    offset.ok_or_else(|| TaskError::fatal(format!("{} bytes are not in the region of a store", bytes.len())))
}

/// The parts of a whole argument, those without bytes left out.
#[task(name = "test.find_parts", arguments = [whole])]
fn find_parts(context: &mut TaskContext<'_>, _number: u64) -> Result<Vec<Found>, TaskError> {
    let mut found = Vec::new();
    for block in context.blocks(0) {
        if block.verify().is_err() {
            return Err(TaskError::fatal("other bytes than were written"));
        }
        for part in (0..block.parts().len()).map(|part| block.part(part)).filter(|part| !part.is_empty()) {
            found.push((offset_in_region(&part)?, part.len() as u64));
        }
    }
    Ok(found)
}

/// The chunks of a streamed argument.
#[task(name = "test.find_chunks", arguments = [stream])]
fn find_chunks(context: &mut TaskContext<'_>, _number: u64) -> Result<Vec<Found>, TaskError> {
    let mut found = Vec::new();
    for mut reader in context.readers(0) {
        while let Some(chunk) = reader.next_chunk()? {
            found.push((offset_in_region(chunk)?, chunk.len() as u64));
        }
    }
    Ok(found)
}

fn at(node: &str) -> TaskOptions {
    TaskOptions { place: Place::Node { node: NodeId::new(node), soft: false }, ..TaskOptions::default() }
}

fn bytes_of(parts: std::ops::Range<u32>) -> u64 {
    parts.map(length).sum()
}

/// What functions on a node find of the object: of part 7, of runs of parts, of all; whole, and as streams.
async fn look(futures: &Futures, object: &ObjectRef, options: &TaskOptions, salt: u64) -> Result<Vec<Found>, JobError> {
    let mut all = Vec::new();
    for (from, to) in [(7, 8), (2, 3), (5, 12), (13, PARTS), (0, PARTS)] {
        let arg = Arg { parts: Parts::Range(from, to), ..object.arg() };
        let options = || TaskOptions { salt, ..options.clone() };
        let parts = futures.submit_with(find_parts, &0, &[arg], options())?;
        let chunks = futures.submit_with(find_chunks, &0, &[arg], options())?;
        let parts = futures.get_value::<Vec<Found>>(&parts).await?;
        let chunks = futures.get_value::<Vec<Found>>(&chunks).await?;
        let lengths: Vec<u64> = (from..to).map(length).filter(|length| *length > 0).collect();
        assert_eq!(parts.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), lengths, "{from} to {to}");
        assert_eq!(chunks.iter().map(|(_, bytes)| bytes).sum::<u64>(), bytes_of(from..to), "{from} to {to}");
        all.extend(parts);
        all.extend(chunks);
    }
    Ok(all)
}

#[track_caller]
fn assert_aligned(found: &[Found], what: &str) {
    assert!(!found.is_empty());
    for (offset, bytes) in found {
        assert!(offset.is_multiple_of(64), "{what}: {bytes} bytes at {offset} of the region");
    }
}

fn node(name: &str, bus: &Bus, executor: ExecutorKind, memory_bytes: u64, folder: &tempfile::TempDir) -> Node {
    let mut options = NodeOptions::alone(1, memory_bytes);
    options.name = NodeId::new(name);
    options.store.spill_dirs = vec![folder.path().join(name)];
    options.isolation = isolation(executor);
    options.cluster = Some(ClusterOptions {
        bus: bus.clone(),
        subjects: Subjects::new("test").unwrap(),
        scheduler: name == "first",
        membership: MembershipOptions::default(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        join_deadline: Duration::from_secs(10),
    });
    Node::start(options).unwrap()
}

/// The whole way of an aligned object: made, read, pushed out to disk, read again, read on the other node.
async fn everywhere(futures: Futures, first: Arc<Node>) -> Result<(), JobError> {
    let aligned = || TaskOptions { align: Align::SixtyFour, ..at("first") };
    let object = futures.submit_with(write_parts, &1, &[], aligned())?;
    futures.ready(&object).await?;
    assert_eq!(futures.stat(&object).await?.bytes, bytes_of(0..PARTS), "gaps do not count");
    let found = look(&futures, &object, &at("first"), 1).await?;
    assert_aligned(&found, "where it was made");
    // The same place in memory as here, so nothing was copied: part 7 is the first thing that was looked at.
    let block = futures.get(&object.part(7)).await?;
    let place = first.store().place_of(&block).expect("a block is in the region");
    assert_eq!(found[0], (place.offset, place.bytes));
    drop(block);

    // Others take its memory.
    let others = (2..40).map(|seed| futures.submit_with(write_parts, &seed, &[], aligned()));
    let others = others.collect::<Result<Vec<_>, _>>()?;
    futures.wait_all(&others).await?;
    drop(others);
    let before = first.store().stats();
    assert!(before.spilled_bytes > 0, "{before:?}");
    assert_aligned(&look(&futures, &object, &at("first"), 2).await?, "from disk");
    assert!(first.store().stats().restored_bytes > before.restored_bytes, "it was on disk");

    assert_aligned(&look(&futures, &object, &at("second"), 3).await?, "on another node");

    // What was put needs no word, what a task makes does: its parts touch each other otherwise.
    let put = futures.put(&[7; 1001])?;
    let put_found: Vec<Found> =
        futures.get_value(&futures.submit_with(find_parts, &0, &[put.arg()], at("first"))?).await?;
    assert_aligned(&put_found, "what was put");
    let packed = futures.submit_with(write_parts, &1, &[], at("first"))?;
    let packed_found = look(&futures, &packed, &at("first"), 4).await?;
    assert!(packed_found.iter().any(|(offset, _)| !offset.is_multiple_of(64)), "parts are packed by default");
    assert_ne!(packed.id(), object.id(), "another description is another task");
    assert_eq!(futures.stat(&packed).await?, futures.stat(&object).await?, "the same bytes, rows and hashes");
    Ok(())
}

#[test]
fn aligned_parts_begin_at_multiples_of_64_wherever_functions_read_them() {
    for executor in [ExecutorKind::Thread, ExecutorKind::Process] {
        let folder = tempfile::tempdir().unwrap();
        let bus = Bus::in_process();
        let first = Arc::new(node("first", &bus, executor, 24 << 20, &folder));
        let second = node("second", &bus, executor, 64 << 20, &folder);
        let program = {
            let first = first.clone();
            async move |futures: Futures| everywhere(futures, first).await
        };
        let (result, _, _) = run_on(&first, program);
        result.unwrap_or_else(|error| panic!("{executor:?}: {error}"));
        drop(second);
    }
}
