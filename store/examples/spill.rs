//! How close spilling comes to what the disk can do: `spill DIR [GB] [OBJECT_BYTES] [MEMORY_BYTES]`.
//!
//! Puts so many gigabytes of objects into a store with so little memory (defaults: 16 GB of 100 kB through 1 GiB), reads
//! all of them back in order, 64 requests ahead, and compares with direct I/O on the same directory before and after.
//! Good: both directions at 80 % or more of the disk.

use std::{collections::VecDeque, path::PathBuf, sync::Arc};

use exobus_store::{
    Clock, CopyId, GetFuture, Parts, RealDisk, Store, StoreOptions, SystemClock, WriterOptions, measure,
};

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("usage: spill DIR [GB] [OBJECT_BYTES] [MEMORY_BYTES]"));
    let mut number = |default: u64| args.next().map_or(default, |text| text.parse().expect("a number"));
    let total = number(16) * 1_000_000_000;
    let length = number(100_000);
    let memory_bytes = number(1 << 30);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let before = measure::direct_io(&dir, 4 << 30, 3).expect("measure the disk");
    let options = StoreOptions { memory_bytes, spill_dirs: vec![dir.clone()], ..StoreOptions::default() };
    let store = Store::open(options, Arc::new(RealDisk::new()), clock.clone()).expect("open a store");
    let count = total / length;
    let pattern: Vec<u8> = (0..length + 4096).map(|at| ((at * 2654435761) >> 9) as u8).collect();
    let content = |nth: u64| &pattern[(nth % 4096) as usize..][..length as usize];

    let begun = clock.now();
    for nth in 0..count {
        let meta =
            store.put_as(CopyId::new(1, nth.into()), WriterOptions::default(), content(nth), 0, Default::default());
        meta.expect("put");
    }
    let out = clock.now() - begun;
    store.wait_until_idle();
    let spilled = store.stats().spilled_bytes;
    let idle = clock.now() - begun;

    let begun = clock.now();
    let mut ahead: VecDeque<GetFuture> = VecDeque::new();
    for nth in 0..count + 64 {
        if nth < count {
            ahead.push_back(store.get(&CopyId::new(1, nth.into()), Parts::All));
        }
        if nth >= 64 {
            let block = ahead.pop_front().expect("one for each").wait().expect("get");
            assert!(*block == *content(nth - 64), "object {} came back different", nth - 64);
        }
    }
    let back = clock.now() - begun;
    let restored = store.stats().restored_bytes;
    println!("{:?}", store.stats());
    drop(store);
    let after = measure::direct_io(&dir, 4 << 30, 3).expect("measure the disk");
    println!("disk before: write {:.2} GB/s, read {:.2} GB/s", before.0, before.1);
    println!("disk after:  write {:.2} GB/s, read {:.2} GB/s", after.0, after.1);
    let rate = |bytes: u64, time: std::time::Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    println!("spill: {:.2} GB/s ({spilled} bytes; {:.2} GB/s until idle)", rate(spilled, out), rate(spilled, idle));
    println!("back:  {:.2} GB/s ({restored} bytes)", rate(restored, back));
}
