//! More objects than the store has memory, in and out again, beside what the disk itself does.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    thread,
    time::Duration,
};

use exobus_shuffle::files::AlignedBuffer;
use exobus_store::{Clock, Parts, Store, StoreError, SystemClock};
use rustix::fs::OFlags;

use super::{Figures, Place, data::noise};
use crate::{
    exit::{Exit, Failure, OrExit},
    report::bytes,
};

/// What is put for.
const GROUP: u128 = 0x5911;
/// Memory of the store unless it is said.
const MEMORY_BYTES: u64 = 1 << 30;
/// Bytes of one direct request.
const REQUEST_BYTES: usize = 8 << 20;
/// Requests under way at once: enough for one disk.
const REQUESTS: usize = 3;

/// Objects of 100 kB and of 1 MB, and the disk alone before and after, as its speed changes.
pub(super) fn run(place: &Place<'_>) -> Result<Figures, Failure> {
    if place.args.cluster.is_some() {
        return Err(Failure::text(Exit::Usage, "spilling is a node's own business: measure it without --cluster"));
    }
    let total = place.args.size.unwrap_or(4_000_000_000);
    let mut figures = vec![("bytes", total as f64)];
    let folder = tempfile::Builder::new()
        .prefix("exobus-bench-")
        .tempdir_in(&place.config.node.spill_dirs_or(crate::machine::big_temporary_folder)[0])
        .or_exit(Exit::InputOutput)?;
    let (write, read) = raw(folder.path(), total.min(4_000_000_000)).or_exit(Exit::InputOutput)?;
    figures.extend([("disk_write_gb_per_s", write), ("disk_read_gb_per_s", read)]);
    for (object_bytes, names) in [
        (100_000, ["spill_100kb_gb_per_s", "restore_100kb_gb_per_s", "of_disk_100kb"]),
        (1_000_000, ["spill_1mb_gb_per_s", "restore_1mb_gb_per_s", "of_disk_1mb"]),
    ] {
        eprintln!("{} as objects of {}", bytes(total), bytes(object_bytes));
        let mut options = place.node_options().store;
        options.memory_bytes = place.args.memory.map_or(MEMORY_BYTES, |_| options.memory_bytes);
        options.spill_dirs = vec![folder.path().to_owned()];
        let store = super::open_store(options)?;
        let (spilled, restored) = through(&store, total, object_bytes as usize).or_exit(Exit::InputOutput)?;
        // In and out against in and out: the same bytes over the time of both.
        let share = (1.0 / write + 1.0 / read) / (1.0 / spilled + 1.0 / restored);
        figures.extend([(names[0], spilled), (names[1], restored), (names[2], share)]);
    }
    Ok(figures)
}

/// Puts objects until all bytes are in, then reads all in the order of the puts; GB/s of both.
fn through(store: &Store, total: u64, object_bytes: usize) -> Result<(f64, f64), StoreError> {
    let clock = SystemClock::new();
    let mut object = vec![0; object_bytes];
    noise(&mut object, 1);
    let count = (total / object_bytes as u64).max(1);
    let mut ids = Vec::with_capacity(count as usize);
    let began = clock.now();
    for number in 0..count {
        object[..8].copy_from_slice(&number.to_le_bytes());
        ids.push(store.put(GROUP, &object)?.id);
    }
    let put = clock.now() - began;
    let began = clock.now();
    // Several at a time, as the arguments of tasks are.
    let mut ahead = std::collections::VecDeque::new();
    let mut next = ids.iter().enumerate();
    loop {
        while ahead.len() < 64
            && let Some((number, id)) = next.next()
        {
            ahead.push_back((number as u64, store.get(id, Parts::All)));
        }
        let Some((number, get)) = ahead.pop_front() else { break };
        let block = get.wait()?;
        assert_eq!(block[..8], number.to_le_bytes(), "the store gives back what was put");
    }
    let got = clock.now() - began;
    store.delete_group(GROUP);
    Ok((rate(count * object_bytes as u64, put), rate(count * object_bytes as u64, got)))
}

/// What the disk does with direct requests, without anything of ours: GB/s of writing and of reading.
fn raw(folder: &Path, total: u64) -> io::Result<(f64, f64)> {
    let path = folder.join("raw");
    let direct = OFlags::DIRECT.bits().cast_signed();
    let open = |options: &mut OpenOptions| options.custom_flags(direct).open(&path);
    let file = open(OpenOptions::new().read(true).write(true).create_new(true))?;
    let requests = (total / REQUEST_BYTES as u64).max(1);
    let done = requests * REQUEST_BYTES as u64;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, done)?;
    let clock = SystemClock::new();
    each_request(&file, requests, |file, buffer, offset| file.write_all_at(buffer, offset))?;
    file.sync_data()?;
    let wrote = clock.now();
    each_request(&file, requests, |file, buffer, offset| file.read_exact_at(buffer, offset))?;
    let read = clock.now() - wrote;
    std::fs::remove_file(&path)?;
    Ok((rate(done, wrote), rate(done, read)))
}

fn each_request(
    file: &File,
    requests: u64,
    act: impl Fn(&File, &mut [u8], u64) -> io::Result<()> + Sync,
) -> io::Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..REQUESTS as u64)
            .map(|first| {
                let act = &act;
                scope.spawn(move || {
                    let mut buffer = AlignedBuffer::new(REQUEST_BYTES);
                    noise(&mut buffer, first);
                    (first..requests)
                        .step_by(REQUESTS)
                        .try_for_each(|number| act(file, &mut buffer, number * REQUEST_BYTES as u64))
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the requests do not panic"))
    })
}

fn rate(total: u64, time: Duration) -> f64 {
    total as f64 / 1e9 / time.as_secs_f64()
}
