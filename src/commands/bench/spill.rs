//! More objects than the store has memory, in and out again, beside what the disk itself does.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use exobus_actors::ids::NodeId;
use exobus_files::AlignedBuffer;
use exobus_store::{Clock, CopyId, Parts, RealDisk, Store, StoreError, SystemClock};
use rustix::fs::OFlags;

use super::{data::noise, node, programs::Figures};
use crate::{
    config::NodeSection,
    exit::{Exit, Failure, OrExit},
    machine,
    report::bytes,
    temporary::Temporary,
};

/// What is put for.
const GROUP: u128 = 0x5911;
/// Memory of the store unless it is said.
const MEMORY_BYTES: u64 = 1 << 30;
/// The disk alone is measured with at most this much: its speed shows, and the folder needs no more room.
const RAW_BYTES_MAX: u64 = 4_000_000_000;
/// Bytes of one direct request.
const REQUEST_BYTES: usize = 8 << 20;
/// Requests under way at once: enough for one disk.
const REQUESTS: usize = 3;

/// Objects of 100 kB and of 1 MB, and the disk alone, through a store of `section`'s memory (1 GiB unless that is said).
pub(super) fn measure(section: &NodeSection, memory_given: bool, total: u64) -> Result<Figures, Failure> {
    let parent = &section.spill_dirs_or(machine::big_temporary_folder)[0];
    let folder = Temporary::make(parent, "exobus-bench-").or_exit(Exit::InputOutput)?;
    let (write, read) = raw(folder.path(), total.min(RAW_BYTES_MAX)).or_exit(Exit::InputOutput)?;
    let mut figures = BTreeMap::from([
        ("bytes".to_owned(), total as f64),
        ("disk_write_gb_per_s".to_owned(), write),
        ("disk_read_gb_per_s".to_owned(), read),
    ]);
    for (object_bytes, name) in [(100_000, "100kb"), (1_000_000, "1mb")] {
        eprintln!("{} as objects of {}", bytes(total), bytes(object_bytes));
        let mut options = node::options(section, NodeId::new("bench"))?.store;
        if !memory_given {
            options.memory_bytes = MEMORY_BYTES;
        }
        options.spill_dirs = vec![folder.path().to_owned()];
        let disk = Arc::new(RealDisk::default());
        let store =
            Store::open(options, disk, Arc::new(SystemClock::new())).map_err(|error| node::failure(error.into()))?;
        let (spilled, restored) = through(&store, total, object_bytes as usize).or_exit(Exit::InputOutput)?;
        // In and out against in and out: the same bytes over the time of both.
        let share = (1.0 / write + 1.0 / read) / (1.0 / spilled + 1.0 / restored);
        figures.insert(format!("spill_{name}_gb_per_s"), spilled);
        figures.insert(format!("restore_{name}_gb_per_s"), restored);
        figures.insert(format!("share_of_disk_{name}"), share);
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
        ids.push(store.put(&object, |content| CopyId::new(GROUP, content))?.id);
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
