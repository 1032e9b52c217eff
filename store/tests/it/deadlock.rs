//! Law 5 by scenario: memory being tight never stops or fails a job that can go on.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use exobus_store::{
    Class, Parts, RowHash, StageItem, StageRequest, StageTicket, StagedItem, Store, StoreError, StoreEvent,
    WriterOptions,
};

use crate::harness::{Fixture, MIB, bytes, copy, fixture, open, options, put, stream};

fn locals(store: &Store, seeds: &[u64], length: usize) -> Vec<StageItem> {
    seeds
        .iter()
        .map(|seed| StageItem::Local { object: put(store, 1, &bytes(*seed, length)).unwrap().id, parts: Parts::All })
        .collect()
}

fn remote(length: u64) -> StageItem {
    let part = exobus_store::PartMeta { offset: 0, bytes: length, rows: 0, row_hash: RowHash(0), checksum: 0 };
    StageItem::Remote { object: copy(77), metas: vec![part] }
}

fn arguments(store: &Store, items: Vec<StageItem>) -> StageTicket {
    store.stage(StageRequest { items, class: Class::Arguments })
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn two_tasks_that_would_each_hold_half_of_their_arguments() {
    // Each needs 6 MiB + 6 MiB of 16. Were they granted piece by piece, each would hold 6 and wait for the other.
    let Fixture { store, .. } = fixture(16 * MIB);
    let first = arguments(&store, vec![remote(6 * MIB), remote(6 * MIB)]);
    let second = arguments(&store, vec![remote(6 * MIB), remote(6 * MIB)]);
    let held = first.wait().unwrap();
    assert!(!second.is_ready());
    assert_eq!(second.why().unwrap(), format!("memory for {} bytes: 0 requests ahead", 12 * MIB));
    assert_eq!(store.stats().used_bytes, 12 * MIB, "the one that waits holds nothing");
    drop(held);
    assert_eq!(second.wait().unwrap().items.len(), 2);
}

#[test]
fn requests_are_served_in_order_even_when_a_later_one_would_fit() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let running = arguments(&store, vec![remote(10 * MIB)]).wait().unwrap();
    let large = arguments(&store, vec![remote(12 * MIB)]);
    let small = arguments(&store, vec![remote(MIB)]);
    assert!(!large.is_ready() && !small.is_ready(), "a stream of small ones cannot starve a large one");
    drop(large);
    store.wait_until_idle();
    assert!(small.is_ready(), "a request that was given up is in nobody's way");
    drop(running);
    drop(small);
    assert_eq!(store.stats().used_bytes, 0);
}

#[test]
fn generators_that_fill_all_slots_write_to_disk_and_finish() {
    // Both executors run generators, all memory is pinned by arguments of theirs: every output goes to disk.
    let Fixture { store, .. } = fixture(16 * MIB);
    let window = StageItem::Scratch { bytes: MIB };
    let mut arguments = arguments(&store, vec![remote(8 * MIB), remote(7 * MIB), window]).wait().unwrap();
    assert_eq!(store.stats().used_bytes, 16 * MIB);
    std::thread::scope(|scope| {
        for generator in 0..2u128 {
            let store = &store;
            scope.spawn(move || {
                for nth in 0..10u128 {
                    let mut writer = store.writer(copy(generator * 100 + nth), WriterOptions::default());
                    writer.begin_part(None).unwrap();
                    writer.write(&bytes(nth as u64, 1_500_000)).unwrap();
                    writer.end_part(1, RowHash(nth));
                    writer.begin_part(Some(10)).unwrap();
                    writer.write(&[nth as u8; 10]).unwrap();
                    writer.end_part(1, RowHash(0));
                    writer.seal().unwrap();
                }
            });
        }
    });
    let stats = store.stats();
    assert_eq!((stats.objects, stats.written_through_bytes), (20, 20 * 1_500_010));
    let Some(StagedItem::Scratch(window)) = arguments.items.pop() else { panic!("asked for last") };
    let mut reader = store.reader(&copy(105), Parts::one(0), window).unwrap();
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut content).unwrap();
    assert!(content == bytes(5, 1_500_000));
    drop((arguments, reader));
    assert_eq!(*store.get(&copy(105), Parts::one(1)).wait().unwrap(), [5; 10]);
    let whole = store.get(&copy(3), Parts::All).wait().unwrap();
    assert!(whole[..1_500_000] == bytes(3, 1_500_000) && whole[1_500_000..] == [3; 10]);
}

#[test]
fn arguments_larger_than_memory_are_refused_whole_and_read_as_a_stream() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let mut writer = store.writer(copy(1), WriterOptions::default());
    let content = bytes(1, 40 << 20);
    for piece in content.chunks(4 << 20) {
        writer.begin_part(Some(piece.len() as u64)).unwrap();
        writer.write(piece).unwrap();
        writer.end_part(1, RowHash::of(piece));
    }
    let meta = writer.seal().unwrap();
    assert_eq!((meta.bytes, meta.parts.len()), (40 << 20, 10));
    let error = store.get(&copy(1), Parts::All).wait().unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { need, capacity } if need == 40 * MIB && capacity == 16 * MIB));
    let mut reader = stream(&store, &copy(1), Parts::All, 1 << 20).unwrap();
    let mut at = 0;
    while let Some(chunk) = reader.next_chunk().unwrap() {
        assert!(*chunk == content[at..at + chunk.len()]);
        at += chunk.len();
    }
    assert_eq!(at, content.len());
    assert!(store.stats().peak_bytes <= 16 * MIB);
}

#[test]
fn one_part_larger_than_memory_goes_to_disk() {
    let Fixture { store, .. } = fixture(8 * MIB);
    let content = bytes(9, 20 << 20);
    let mut writer = store.writer(copy(1), WriterOptions::default());
    writer.begin_part(None).unwrap();
    for piece in content.chunks(123_457) {
        writer.write(piece).unwrap();
    }
    writer.end_part(1, RowHash(1));
    writer.seal().unwrap();
    let mut reader = stream(&store, &copy(1), Parts::All, 256 << 10).unwrap();
    let mut back = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut back).unwrap();
    assert!(back == content);
}

#[test]
fn any_number_of_writers_go_to_disk_when_everything_is_full() {
    const WRITERS: u64 = 60;
    let Fixture { store, .. } = fixture(8 * MIB);
    let all = arguments(&store, vec![remote(8 * MIB)]).wait().unwrap();
    let mut writers: Vec<_> = (0..WRITERS).map(|id| store.writer(copy(id.into()), WriterOptions::default())).collect();
    // All are open at the same time, more than there are pages in the executors' reserve for large chunks.
    for (id, writer) in (0..).zip(&mut writers) {
        writer.begin_part(None).unwrap();
        writer.write(&bytes(id, 5_000)).unwrap();
    }
    for (id, mut writer) in (0..).zip(writers) {
        writer.write(&bytes(WRITERS + id, 20_000)).unwrap();
        writer.end_part(1, RowHash(id.into()));
        writer.seal().unwrap();
    }
    let stats = store.stats();
    assert_eq!((stats.objects, stats.written_through_bytes), (WRITERS, WRITERS * 25_000));
    drop(all);
    for id in 0..WRITERS {
        let block = store.get(&copy(id.into()), Parts::All).wait().unwrap();
        assert!(block[..5_000] == bytes(id, 5_000) && block[5_000..] == bytes(WRITERS + id, 20_000), "object {id}");
    }
    // What was taken of the reserve is back: the next one writes with a large chunk again.
    let _all = arguments(&store, vec![remote(8 * MIB)]).wait().unwrap();
    let mut writer = store.writer(copy(1000), WriterOptions::default());
    writer.begin_part(None).unwrap();
    assert_eq!(writer.spare().unwrap().len() as u64, MIB);
}

#[test]
fn streams_that_were_opened_ask_for_no_memory() {
    // Each has the few pages that it was granted, and nothing else is free.
    const STREAMS: u64 = 500;
    let Fixture { store, .. } = fixture(8 * MIB);
    for id in 0..STREAMS {
        store.put_as(copy(id.into()), WriterOptions::default(), &bytes(id, 40_000), 1, RowHash(0)).unwrap();
    }
    let windows = (0..STREAMS).map(|id| 4096 * (1 + id % 4));
    let mut items: Vec<_> = windows.clone().map(|bytes| StageItem::Scratch { bytes }).collect();
    items.push(remote(8 * MIB - windows.sum::<u64>()));
    let mut granted = arguments(&store, items).wait().unwrap();
    assert_eq!(store.stats().used_bytes, 8 * MIB);
    let windows = granted.items.drain(..STREAMS as usize);
    let mut readers: Vec<_> = (0..STREAMS)
        .zip(windows)
        .map(|(id, window)| {
            let StagedItem::Scratch(window) = window else { panic!("{window:?}") };
            store.reader(&copy(id.into()), Parts::All, window).unwrap()
        })
        .collect();
    let mut read = vec![Vec::new(); STREAMS as usize];
    while readers.iter().any(|reader| reader.remaining() > 0) {
        for (read, reader) in read.iter_mut().zip(&mut readers) {
            read.extend_from_slice(reader.next_chunk().unwrap().unwrap_or_default());
        }
    }
    assert!((0..STREAMS).zip(&read).all(|(id, read)| *read == bytes(id, 40_000)));
    drop((granted, readers));
    let none = store.reader(&copy(0), Parts::All, store.scratch(0).unwrap());
    assert!(matches!(none, Err(StoreError::Denied { .. })), "{none:?}");
}

#[test]
fn an_argument_that_waits_makes_others_spill() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let items = locals(&store, &[1, 2, 3], 4_000_000);
    let spilled_before = store.stats().spilled_bytes;
    let room = arguments(&store, vec![remote(15 * MIB)]).wait().unwrap();
    assert!(store.stats().spilled_bytes > spilled_before);
    drop(room);
    let staged = arguments(&store, items).wait().unwrap();
    for (item, seed) in staged.items.iter().zip([1, 2, 3]) {
        let StagedItem::Ready(block) = item else { panic!("{item:?}") };
        assert!(**block == bytes(seed, 4_000_000)[..]);
    }
}

#[test]
fn an_unclaimed_prefetch_is_revoked_for_arguments_and_served_again() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let prefetch = store.stage(StageRequest { items: vec![remote(8 * MIB)], class: Class::Prefetch });
    assert!(prefetch.has_memory());
    // A grant may need memory from the operating system first, which a disk thread gets.
    store.wait_until_idle();
    assert!(prefetch.is_ready());
    let argument = arguments(&store, vec![remote(12 * MIB)]);
    let held = argument.wait().unwrap();
    assert!(!prefetch.is_ready() && !prefetch.has_memory(), "revoked");
    assert!(prefetch.why().unwrap().starts_with("memory"), "{:?}", prefetch.why());
    drop(held);
    assert_eq!(prefetch.wait().unwrap().items.len(), 1);
}

#[test]
fn a_claimed_prefetch_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let told: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let hear = told.clone();
    let mut options = options(16 * MIB, vec![dir.path().to_owned()]);
    options.on_event = Some(Arc::new(move |event| {
        if let StoreEvent::MemoryTight { waiting_bytes, revocable_bytes } = event {
            hear.lock().unwrap().push((waiting_bytes, revocable_bytes));
        }
    }));
    let store = open(options);
    let prefetch = StageRequest { items: vec![remote(8 * MIB)], class: Class::Prefetch };
    let mut held = store.stage(prefetch.clone()).wait().unwrap();
    let argument = arguments(&store, vec![remote(12 * MIB)]);
    assert!(!argument.is_ready());
    assert_eq!(told.lock().unwrap()[..], [(12 * MIB, 8 * MIB)], "said once");
    held.promote();
    assert!(!argument.is_ready(), "its task runs; it will end");
    drop(held);
    argument.wait().unwrap();
}

#[test]
fn prefetch_takes_only_memory_that_is_free_anyhow() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let _running = arguments(&store, vec![remote(12 * MIB)]).wait().unwrap();
    let prefetch = store.stage(StageRequest { items: vec![remote(3 * MIB)], class: Class::Prefetch });
    assert!(!prefetch.is_ready());
    let argument = arguments(&store, vec![remote(4 * MIB)]);
    argument.wait().unwrap();
}

#[test]
fn a_future_is_woken_when_its_memory_comes_free() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let held = store.scratch(16 * MIB).unwrap();
    let mut ticket = pin!(arguments(&store, vec![remote(MIB)]));
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    assert!(ticket.as_mut().poll(&mut context).is_pending());
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    drop(held);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(matches!(ticket.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
}

#[test]
fn waits_end_when_the_store_closes() {
    let Fixture { store, .. } = fixture(16 * MIB);
    let held = store.scratch(16 * MIB).unwrap();
    let ticket = arguments(&store, vec![remote(MIB)]);
    drop(store);
    assert!(matches!(ticket.wait(), Err(StoreError::Cancelled)));
    assert_eq!(held.len(), 16 << 20, "what is held stays readable");
}

#[test]
fn a_request_without_any_way_to_make_room_fails_with_the_reason() {
    // No spill directory, and nobody runs who could free anything.
    let store = open(options(8 * MIB, Vec::new()));
    put(&store, 1, &bytes(1, 6 << 20)).unwrap();
    let error = arguments(&store, vec![remote(4 * MIB)]).wait().unwrap_err();
    assert!(
        matches!(&error, StoreError::DiskFull { needed, dirs } if *needed == 4 * MIB && dirs.is_empty()),
        "{error}"
    );
    let error = put(&store, 1, &bytes(2, 6 << 20)).unwrap_err();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
}
