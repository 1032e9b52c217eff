//! What is fetched is what was written.

use super::*;

on_each_network! {
    parts_arrive_as_they_were_written,
    directories_are_those_of_the_objects_and_what_is_not_there_is_none,
    a_request_for_nothing_is_answered_with_nothing,
    ten_thousand_tiny_parts_come_in_one_request,
    more_items_than_one_request_takes_are_split,
    objects_come_from_disk_as_from_memory,
    many_fetches_at_once_share_few_connections,
    a_copy_is_an_object_of_its_own_even_when_it_is_larger_than_memory,
    a_copy_of_what_is_not_there_is_an_error,
    nothing_of_another_group_is_served_to_who_knows_its_bits,
}

fn parts_arrive_as_they_were_written(network: &Arc<dyn Network>) {
    let pair = Pair::new(network);
    write(&pair.served, 1, Align::One, &[1000, 0, 1, 300_000, 77]);
    write(&pair.served, 2, Align::SixtyFour, &[10, 0, 100, 5_000_000, 3, 0]);
    write(&pair.served, 3, Align::One, &[]);
    let cases = [
        (1, Parts::All),
        (1, Parts::Range(0, 1)),
        (1, Parts::Range(1, 2)),
        (1, Parts::Range(1, 4)),
        (1, Parts::Range(2, 2)),
        (1, Parts::Range(3, 5)),
        (2, Parts::All),
        (2, Parts::Range(1, 5)),
        (2, Parts::Range(2, 4)),
        (2, Parts::Range(5, 6)),
        (3, Parts::All),
    ];
    let items: Vec<Item> = cases.iter().map(|(object, parts)| (id(*object), *parts)).collect();
    let blocks = pair.fetch(&items).unwrap();
    for (block, (object, parts)) in blocks.iter().zip(cases) {
        pair.check(block, object, parts);
    }
    let stats = pair.client.stats();
    assert_eq!((stats.items, stats.failed, stats.corrupt, stats.connected), (11, 0, 0, 1));
    let bytes: usize = blocks.iter().map(|block| block.len()).sum();
    assert_eq!((stats.bytes, pair.server.stats().bytes), (bytes as u64, bytes as u64));
}

fn directories_are_those_of_the_objects_and_what_is_not_there_is_none(network: &Arc<dyn Network>) {
    let pair = Pair::new(network);
    let meta = write(&pair.served, 1, Align::SixtyFour, &[10, 20, 30]);
    let items = [(id(1), Parts::All), (id(2), Parts::All), (id(1), Parts::Range(1, 3)), (id(1), Parts::Range(0, 0))];
    let expected = [Some(meta.parts.to_vec()), None, Some(meta.parts[1..].to_vec()), Some(vec![])];
    assert_eq!(pair.directory(&items), expected);
}

fn a_request_for_nothing_is_answered_with_nothing(network: &Arc<dyn Network>) {
    let pair = Pair::new(network);
    assert_eq!(pair.directory(&[]), Vec::<Option<Vec<PartMeta>>>::new());
    assert_eq!(pair.fetch(&[]).unwrap().len(), 0);
}

fn ten_thousand_tiny_parts_come_in_one_request(network: &Arc<dyn Network>) {
    let pair = Pair::new(network);
    for object in 0..10_000 {
        write(&pair.served, object, Align::One, &[3, 10 + object as usize % 50]);
    }
    let items: Vec<Item> = (0..10_000).map(|object| (id(object), Parts::Range(1, 2))).collect();
    let blocks = pair.fetch(&items).unwrap();
    for (object, block) in blocks.iter().enumerate() {
        pair.check(block, object as u128, Parts::Range(1, 2));
    }
    assert_eq!(pair.client.stats().connected, 1);
    assert_eq!(pair.server.stats().items, 20_000, "one directory and one read of each");
}

fn more_items_than_one_request_takes_are_split(network: &Arc<dyn Network>) {
    let pair = Pair::new(network);
    write(&pair.served, 1, Align::One, &[5; 10]);
    let items: Vec<Item> =
        (0..crate::transfer::wire::ITEMS_MAX as u32 + 10).map(|at| (id(1), Parts::one(at % 10))).collect();
    let blocks = pair.fetch(&items).unwrap();
    assert_eq!(blocks.len(), items.len());
    for (block, at) in blocks.iter().zip(0..) {
        assert_eq!(**block, content(1, at % 10, 5)[..], "item {at}");
    }
}

fn objects_come_from_disk_as_from_memory(network: &Arc<dyn Network>) {
    // 80 MiB of objects in a store of 24 MiB: most are on disk.
    let pair = Pair::with(network, 24, 128, ServerOptions::default(), ClientOptions::default());
    for object in 0..10 {
        write(&pair.served, object, Align::One, &[3 << 20, 100, 5 << 20]);
    }
    assert!(pair.served.stats().spilled_bytes > 40 << 20, "{:?}", pair.served.stats());
    for object in 0..10 {
        let items = [(id(object), Parts::Range(1, 3)), (id(object), Parts::one(0))];
        let blocks = pair.fetch(&items).unwrap();
        assert_eq!(blocks[0][..100], content(object, 1, 100)[..], "object {object}");
        assert!(blocks[0][100..] == content(object, 2, 5 << 20)[..], "object {object}");
        assert!(blocks[1][..] == content(object, 0, 3 << 20)[..], "object {object}");
    }
}

fn many_fetches_at_once_share_few_connections(network: &Arc<dyn Network>) {
    let pair = Pair::new(network);
    for object in 0..20 {
        write(&pair.served, object, Align::One, &[200_000]);
    }
    let items: Vec<Item> = (0..20).map(|object| (id(object), Parts::All)).collect();
    let mut fills = pair.fills(&items);
    let fetches: Vec<_> = items
        .iter()
        .rev()
        .map(|item| pair.client.fetch(pair.server.address(), vec![*item], vec![fills.pop().unwrap()]))
        .collect();
    for (fetch, object) in fetches.into_iter().zip((0..20).rev()) {
        pair.check(&fetch.wait().unwrap()[0], object, Parts::All);
    }
    assert!(pair.client.stats().connected <= 2, "{:?}", pair.client.stats());
}

fn a_copy_is_an_object_of_its_own_even_when_it_is_larger_than_memory(network: &Arc<dyn Network>) {
    let pair = Pair::with(network, 64, 16, ServerOptions::default(), ClientOptions::default());
    write(&pair.served, 1, Align::SixtyFour, &[100, 20 << 20, 0, 12 << 20, 3]);
    let item = (id(1), Parts::Range(1, 5));
    let copy = pair.client.copy_here(&pair.here, pair.server.address(), item).wait().unwrap();
    let other = pair.client.copy_here(&pair.here, pair.server.address(), item).wait().unwrap();
    assert!(copy != id(1) && copy != other && copy.group == GROUP && other.group == GROUP);
    let meta = pair.here.meta(&copy).unwrap();
    let original = pair.served.meta(&id(1)).unwrap();
    let what = |part: &PartMeta| (part.bytes, part.rows, part.row_hash, part.checksum);
    let expected: Vec<_> = original.parts[1..].iter().map(what).collect();
    assert_eq!(meta.parts.iter().map(what).collect::<Vec<_>>(), expected);
    let mut reader = pair.here.reader(&copy, Parts::All, pair.here.scratch(1 << 20).unwrap()).unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut bytes).unwrap();
    let written: Vec<u8> =
        [(1, 20 << 20), (3, 12 << 20), (4, 3)].into_iter().flat_map(|(part, bytes)| content(1, part, bytes)).collect();
    assert!(bytes.len() >= written.len() && bytes[..1000] == written[..1000], "{} bytes", bytes.len());
    drop(reader);
    pair.here.delete(&[copy, other]);
    assert_eq!(pair.here.stats().objects, 0);
}

fn a_copy_of_what_is_not_there_is_an_error(network: &Arc<dyn Network>) {
    let pair = Pair::new(network);
    let copy = pair.client.copy_here(&pair.here, pair.server.address(), (id(9), Parts::All)).wait();
    assert!(matches!(copy, Err(TransferError::Absent { object, .. }) if object == id(9)), "{copy:?}");
}

fn nothing_of_another_group_is_served_to_who_knows_its_bits(network: &Arc<dyn Network>) {
    let pair = Pair::new(network);
    let meta = write(&pair.served, 1, Align::One, &[1000, 10]);
    let other = CopyId::new(GROUP + 1, id(1).bits);
    assert_eq!(pair.directory(&[(other, Parts::All)]), [None]);
    let room = || fills(&pair.here, vec![(other, meta.parts.to_vec())]);
    let read = pair.client.fetch(pair.server.address(), vec![(other, Parts::All)], room()).wait();
    assert!(matches!(read, Err(TransferError::Absent { object, .. }) if object == other), "{read:?}");
    let copy = pair.client.copy_here(&pair.here, pair.server.address(), (other, Parts::All)).wait();
    assert!(matches!(copy, Err(TransferError::Absent { object, .. }) if object == other), "{copy:?}");
    pair.check(&pair.fetch(&[(id(1), Parts::All)]).unwrap()[0], 1, Parts::All);
}
