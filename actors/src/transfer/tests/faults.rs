//! Bytes that are wrong, missing, or late are never seen; the error says whose they are.

use std::net::Shutdown;
use std::sync::atomic::Ordering;

use super::proxy::{Harm, Proxy};
use super::*;
use crate::transfer::network::{ChaosNetwork, Socket};
use crate::transfer::{FetchItem, PeerName, wire};

on_each_network! {
    a_proxy_that_does_no_harm_does_none,
    a_flipped_bit_is_found_dropped_counted_and_ends_the_connection,
    after_corrupt_bytes_the_items_before_are_good_and_those_behind_are_not_read,
    six_hundred_flipped_bits_none_gets_through,
    a_stream_that_ends_early_is_an_error_that_says_so,
    a_silent_peer_is_given_up_in_time,
    a_peer_that_trickles_is_given_up_in_time,
    a_client_that_does_not_read_is_given_up,
    garbage_is_counted_and_harms_nobody,
    a_cancelled_fetch_gives_its_memory_back_and_its_connection_up,
    a_corrupt_copy_leaves_nothing_behind,
    a_connection_cut_in_a_body_fails_the_fetch_and_the_next_one_connects_anew,
    connections_that_broke_while_nobody_used_them_are_made_anew,
}

/// Random enough; the same ones each time, so that a failure is found again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

const PART: usize = 3_000_000;

/// A connection by hand.
fn connect(network: &Arc<dyn Network>, pair: &Pair) -> Arc<dyn Socket> {
    network.connect(&pair.server.address().to_string(), STALL).unwrap()
}

/// A pair that talks through a proxy, with one large object.
fn through(network: &Arc<dyn Network>, up: Harm, down: Harm) -> (Pair, Proxy) {
    let options = ClientOptions { stall: STALL, ..ClientOptions::default() };
    let pair = Pair::with(network, 64, 64, ServerOptions::default(), options);
    write(&pair.served, 1, Align::One, &[PART, 100]);
    let proxy = Proxy::start(network, pair.server.address(), up, down);
    (pair, proxy)
}

const LARGE: Item = (id(1), Parts::Range(0, 1));

/// Fetches the large part through the proxy; afterwards nothing of a failed fetch is left here, and the next fetch,
/// straight from the server, works.
fn fetch_through(pair: &Pair, proxy: &Proxy) -> Result<Vec<Block>, TransferError> {
    let fills = pair.fills(&[LARGE]);
    let peer = PeerName { node: "serving".to_owned(), address: proxy.address.to_string() };
    let result = pair.client.fetch(&peer, vec![LARGE], fills).wait();
    if result.is_err() {
        assert_eq!(pair.here.stats().used_bytes, 0, "the room is free again");
    }
    pair.check(&pair.fetch(&[LARGE]).unwrap()[0], 1, LARGE.1);
    result
}

fn a_proxy_that_does_no_harm_does_none(network: &Arc<dyn Network>) {
    let (pair, proxy) = through(network, Harm::None, Harm::None);
    pair.check(&fetch_through(&pair, &proxy).unwrap()[0], 1, LARGE.1);
    assert!(proxy.passed.load(Ordering::SeqCst) > PART as u64);
}

fn a_flipped_bit_is_found_dropped_counted_and_ends_the_connection(network: &Arc<dyn Network>) {
    let (pair, proxy) = through(network, Harm::None, Harm::Flip { at: 1_234_567, bit: 3 });
    let error = fetch_through(&pair, &proxy).unwrap_err();
    proxy.done.try_recv().expect("the bit was flipped");
    assert!(matches!(error, TransferError::Corrupt { object, .. } if object == id(1)), "{error}");
    assert!(error.to_string().contains("serving at 127.0.0.1:"), "{error}");
    assert!(error.is_worth_a_retry());
    assert_eq!(pair.client.stats().corrupt, 1);
    proxy.closed.recv_timeout(Duration::from_secs(10)).expect("the connection was closed");
}

fn after_corrupt_bytes_the_items_before_are_good_and_those_behind_are_not_read(network: &Arc<dyn Network>) {
    let (pair, proxy) = through(network, Harm::None, Harm::Flip { at: 1_234_567, bit: 0 });
    let items = [(id(1), Parts::one(1)), LARGE, (id(1), Parts::one(1))];
    let fills = pair.fills(&items);
    let items = items.into_iter().zip(fills).map(|((object, parts), fill)| FetchItem { object, parts, fill });
    let results = pair.client.fetch_each(proxy.address, items.collect()).wait().unwrap();
    pair.check(results[0].as_ref().unwrap(), 1, Parts::one(1));
    assert!(matches!(results[1], Err(TransferError::Corrupt { .. })), "{:?}", results[1]);
    assert!(matches!(results[2], Err(TransferError::Interrupted { .. })), "{:?}", results[2]);
}

/// Every single flipped bit, wherever it is, in either direction: the fetch fails, or what it brought is right. Small
/// objects, so that headers are hit as often as bytes of parts.
fn six_hundred_flipped_bits_none_gets_through(network: &Arc<dyn Network>) {
    let options = ClientOptions { stall: Duration::from_millis(300), ..ClientOptions::default() };
    let pair = Pair::with(
        network,
        64,
        64,
        ServerOptions { stall: Duration::from_millis(300), ..ServerOptions::default() },
        options,
    );
    write(&pair.served, 1, Align::One, &[40, 60]);
    write(&pair.served, 2, Align::One, &[100]);
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let items = [(id(1), Parts::one(1)), (id(2), Parts::All)];
    let mut fired = 0;
    let mut failed = 0;
    for round in 0..600 {
        let number = random.next() >> 20;
        // A fetch says 12 + 28 + 80 bytes, the answer has 15 + 24 + 60 + 24 + 100.
        let (at, bit, up) = ((number >> 8) % 118, (number & 7) as u8, number & 8 != 0);
        let flip = Harm::Flip { at: if up { at } else { at * 2 }, bit };
        let (up, down) = if up { (flip, Harm::None) } else { (Harm::None, flip) };
        let proxy = Proxy::start(network, pair.server.address(), up, down);
        let fills = pair.fills(&items);
        match pair.client.fetch(proxy.address, items.to_vec(), fills).wait() {
            Err(_) => failed += 1,
            Ok(blocks) => {
                for (block, (object, parts)) in blocks.iter().zip(items) {
                    pair.check(block, object.bits, parts);
                }
            }
        }
        fired += u32::from(proxy.done.try_recv().is_ok());
        assert_eq!(pair.here.stats().used_bytes, 0, "round {round}: {up:?} {down:?}");
    }
    assert!(fired >= 550, "{fired} of 600 bits were flipped");
    // Only a bit in a name that nobody looks at does no harm.
    assert!(failed >= fired * 8 / 10, "{failed} of {fired} were noticed");
}

fn a_stream_that_ends_early_is_an_error_that_says_so(network: &Arc<dyn Network>) {
    for at in [0, 5, 20, 40, 1_000_000, PART as u64] {
        let (pair, proxy) = through(network, Harm::None, Harm::Cut { at });
        let error = fetch_through(&pair, &proxy).unwrap_err();
        proxy.done.try_recv().expect("the stream was cut");
        assert!(matches!(error, TransferError::Interrupted { .. }), "cut at {at}: {error}");
        assert!(error.to_string().contains("serving at 127.0.0.1:"), "{error}");
    }
}

fn a_silent_peer_is_given_up_in_time(network: &Arc<dyn Network>) {
    for at in [0, 5, 20, 1_000_000] {
        let (pair, proxy) = through(network, Harm::None, Harm::Stall { at });
        let clock = clock();
        let begun = clock.now();
        let error = fetch_through(&pair, &proxy).unwrap_err();
        let took = clock.now() - begun;
        proxy.done.try_recv().expect("the stream stood still");
        assert!(matches!(error, TransferError::Stalled { .. }), "stalled at {at}: {error}");
        assert!(took < Duration::from_secs(5), "stalled at {at}: {took:?}");
    }
}

fn a_peer_that_trickles_is_given_up_in_time(network: &Arc<dyn Network>) {
    let (pair, proxy) = through(network, Harm::None, Harm::Trickle { at: 100_000 });
    let clock = clock();
    let begun = clock.now();
    let error = fetch_through(&pair, &proxy).unwrap_err();
    proxy.done.try_recv().expect("the stream trickled");
    assert!(matches!(error, TransferError::Stalled { bytes: 1.., .. }), "{error}");
    assert!(clock.now() - begun < Duration::from_secs(5));
}

fn a_client_that_does_not_read_is_given_up(network: &Arc<dyn Network>) {
    let server = ServerOptions { stall: STALL, ..ServerOptions::default() };
    let pair = Pair::with(network, 64, 64, server, ClientOptions::default());
    write(&pair.served, 1, Align::One, &[40_000_000]);
    // Says hello and asks, then never reads.
    let socket = connect(network, &pair);
    let hello = wire::Hello { token: TOKEN.as_bytes(), from: "deaf", to: "" };
    let item = wire::Item { object: id(1), parts: Parts::All };
    let request = wire::encode_request(wire::Kind::Read, &[item]);
    std::io::Write::write_all(&mut &*socket, &[wire::encode_hello(&hello), request].concat()).unwrap();
    let clock = clock();
    let begun = clock.now();
    while pair.server.stats().stalled == 0 {
        assert!(clock.now() - begun < Duration::from_secs(20), "{:?}", pair.server.stats());
        std::thread::yield_now();
    }
    // What it got is what the kernel held; then the connection ends.
    let mut got = Vec::new();
    socket.set_receive_timeout(Duration::from_secs(20)).unwrap();
    let ended = std::io::Read::read_to_end(&mut &*socket, &mut got);
    assert!(ended.is_err() || got.len() < 40_000_000, "{} bytes came although the server gave up", got.len());
}

fn garbage_is_counted_and_harms_nobody(network: &Arc<dyn Network>) {
    let pair = Pair::with(
        network,
        64,
        64,
        ServerOptions { stall: STALL, welcome: STALL, ..ServerOptions::default() },
        ClientOptions::default(),
    );
    write(&pair.served, 1, Align::One, &[PART, 100]);
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let hello = wire::encode_hello(&wire::Hello { token: TOKEN.as_bytes(), from: "garbler", to: "serving" });
    for round in 0..60 {
        let garbage: Vec<u8> = (0..=random.next() % 300).map(|_| random.next() as u8).collect();
        let socket = connect(network, &pair);
        socket.set_receive_timeout(Duration::from_secs(10)).unwrap();
        // Half of it by somebody who knows the token.
        let said = if round % 2 == 0 { garbage } else { [hello.clone(), garbage].concat() };
        // The server may close while it is still being written.
        let _ = std::io::Write::write_all(&mut &*socket, &said);
        let _ = socket.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let read = std::io::Read::read_to_end(&mut &*socket, &mut answer);
        let closed = read.map_err(|error| error.kind());
        assert!(
            matches!(closed, Ok(_) | Err(std::io::ErrorKind::ConnectionReset)),
            "round {round}: not closed but {closed:?}"
        );
    }
    let stats = pair.server.stats();
    assert!(stats.refused >= 25 && stats.garbled >= 15, "{stats:?}");
    pair.check(&pair.fetch(&[LARGE]).unwrap()[0], 1, LARGE.1);
}

fn a_cancelled_fetch_gives_its_memory_back_and_its_connection_up(network: &Arc<dyn Network>) {
    let options = ClientOptions { threads: 1, ..ClientOptions::default() };
    let pair = Pair::with(network, 64, 64, ServerOptions::default(), options);
    write(&pair.served, 1, Align::One, &[PART, 100]);
    let proxy = Proxy::start(network, pair.server.address(), Harm::None, Harm::Stall { at: 1_000_000 });
    let fills = pair.fills(&[LARGE]);
    let fetch = pair.client.fetch(proxy.address, vec![LARGE], fills);
    proxy.done.recv_timeout(Duration::from_secs(10)).expect("the fetch is under way");
    assert!(pair.here.stats().used_bytes > 0);
    drop(fetch);
    proxy.closed.recv_timeout(Duration::from_secs(1)).expect("at once, not when it would have stalled");
    // The thread that worked on it drops the rest of it before it does anything else.
    pair.check(&pair.fetch(&[LARGE]).unwrap()[0], 1, LARGE.1);
    assert_eq!(pair.here.stats().used_bytes, 0);
}

fn a_corrupt_copy_leaves_nothing_behind(network: &Arc<dyn Network>) {
    let (pair, proxy) = through(network, Harm::None, Harm::Flip { at: 1_234_567, bit: 3 });
    let copy = pair.client.copy_here(&pair.here, proxy.address, LARGE).wait();
    assert!(matches!(copy, Err(TransferError::Corrupt { .. })), "{copy:?}");
    assert_eq!((pair.here.stats().objects, pair.here.stats().used_bytes), (0, 0));
    let (pair, proxy) = through(network, Harm::None, Harm::Cut { at: 1_234_567 });
    let copy = pair.client.copy_here(&pair.here, proxy.address, LARGE).wait();
    assert!(matches!(copy, Err(TransferError::Interrupted { .. })), "{copy:?}");
    assert_eq!((pair.here.stats().objects, pair.here.stats().used_bytes), (0, 0));
}

/// Without a proxy: what breaks is the connection itself.
fn a_connection_cut_in_a_body_fails_the_fetch_and_the_next_one_connects_anew(network: &Arc<dyn Network>) {
    let chaos = ChaosNetwork::new(Arc::clone(network));
    let through: Arc<dyn Network> = Arc::new(chaos.clone());
    let options = ClientOptions { stall: STALL, ..ClientOptions::default() };
    let pair = Pair::with(&through, 64, 64, ServerOptions::default(), options);
    write(&pair.served, 1, Align::One, &[PART, 100]);
    let fills = pair.fills(&[LARGE]);
    let clock = clock();
    let begun = clock.now();
    chaos.cut_after(1_234_567);
    let error = pair.client.fetch(pair.server.address(), vec![LARGE], fills).wait().unwrap_err();
    assert!(clock.now() - begun < STALL, "the end is seen, not waited for");
    assert_eq!(chaos.cuts(), 1);
    let TransferError::Interrupted { bytes, .. } = error else { panic!("{error}") };
    assert!((1_000_000..=1_234_567).contains(&bytes), "{bytes} bytes before the cut");
    assert!(error.is_worth_a_retry());
    assert_eq!(pair.here.stats().used_bytes, 0, "the room is free again");
    pair.check(&pair.fetch(&[LARGE]).unwrap()[0], 1, LARGE.1);
    // At least: a connection that is not back in the pool yet makes a further one.
    assert!(pair.client.stats().connected >= 2);
}

fn connections_that_broke_while_nobody_used_them_are_made_anew(network: &Arc<dyn Network>) {
    let chaos = ChaosNetwork::new(Arc::clone(network));
    let through: Arc<dyn Network> = Arc::new(chaos.clone());
    let pair = Pair::with(&through, 64, 64, ServerOptions::default(), ClientOptions::default());
    write(&pair.served, 1, Align::One, &[PART, 100]);
    pair.directory(&[LARGE]);
    chaos.cut_all();
    assert_eq!(chaos.cuts(), 1);
    pair.check(&pair.fetch(&[LARGE]).unwrap()[0], 1, LARGE.1);
    assert_eq!((pair.client.stats().connected, pair.client.stats().failed), (2, 0));
}
