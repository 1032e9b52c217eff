//! Who is let in, how many, and what waits.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::proxy::{Harm, Proxy};
use super::*;
use crate::transfer::network::Socket;
use crate::transfer::wire::{self, Hello, encode_hello, encode_welcome};
use crate::transfer::{FetchItem, PeerName};

on_each_network! {
    a_wrong_token_is_refused_and_counted,
    an_address_that_passed_to_another_node_is_noticed,
    one_connection_too_many_is_told_that_the_node_is_busy,
    strangers_keep_no_peer_out,
    who_says_nothing_or_says_it_in_drops_is_closed,
    a_node_of_another_version_is_told_both_and_others_are_served,
    nobody_there_is_known_at_once,
    a_restarted_server_is_connected_to_anew,
    what_is_not_there_does_not_keep_the_rest_from_coming,
    bytes_of_another_length_than_the_directory_said_are_refused,
    a_wait_says_for_whom_and_behind_how_many,
    one_stuck_peer_does_not_keep_the_others_waiting,
    a_full_queue_says_so,
    what_is_under_way_ends_with_the_client,
}

/// What is bound to happen has so long.
const PATIENCE: Duration = Duration::from_secs(60);
const SMALL: Item = (id(1), Parts::All);

fn pair(network: &Arc<dyn Network>, server: ServerOptions, client: ClientOptions) -> Pair {
    let pair = Pair::with(network, 64, 64, server, client);
    write(&pair.served, 1, Align::One, &[1000, 10]);
    pair
}

/// A client beside the pair's own.
fn client(network: &Arc<dyn Network>, token: &str) -> TransferClient {
    TransferClient::with(ClientOptions { network: Arc::clone(network), ..ClientOptions::default() }, token, clock())
}

fn serve_at(network: &Arc<dyn Network>, listen: SocketAddr, store: Store) -> TransferServer {
    let options = ServerOptions { listen, network: Arc::clone(network), ..ServerOptions::default() };
    TransferServer::start_with(options, TOKEN, store, clock()).unwrap()
}

fn a_wrong_token_is_refused_and_counted(network: &Arc<dyn Network>) {
    let pair = pair(network, ServerOptions::default(), ClientOptions::default());
    for token in ["", "another token!!!", "a token of the testS", "a token of the test"] {
        let stranger = client(network, token);
        let error = stranger.directory(pair.server.address(), vec![SMALL]).wait().unwrap_err();
        assert!(matches!(&error, TransferError::Refused { reason, .. } if reason == "wrong cluster token"), "{error}");
    }
    assert_eq!(pair.server.stats().refused, 4);
    assert_eq!(pair.server.stats().items, 0);
}

#[test]
fn a_server_without_a_real_token_does_not_start() {
    let (store, _dir) = store(16);
    let error = TransferServer::start(([127, 0, 0, 1], 0).into(), "short", store, clock()).unwrap_err();
    assert_eq!(error.to_string(), "a cluster token has 16 to 256 bytes");
}

fn an_address_that_passed_to_another_node_is_noticed(network: &Arc<dyn Network>) {
    let pair = pair(network, ServerOptions::default(), ClientOptions::default());
    let peer = PeerName { node: "gone".to_owned(), address: pair.server.address().to_string() };
    let error = pair.client.directory(&peer, vec![SMALL]).wait().unwrap_err();
    let expected = format!("gone at {} refuses: this is node serving, not gone", pair.server.address());
    assert_eq!(error.to_string(), expected);
}

fn one_connection_too_many_is_told_that_the_node_is_busy(network: &Arc<dyn Network>) {
    let pair =
        pair(network, ServerOptions { connections_max: 1, ..ServerOptions::default() }, ClientOptions::default());
    pair.directory(&[SMALL]);
    let second = client(network, TOKEN);
    let error = second.directory(pair.server.address(), vec![SMALL]).wait().unwrap_err();
    assert!(matches!(error, TransferError::Busy { .. }) && error.is_worth_a_retry(), "{error}");
    // The first one goes on; it may be on its way back to the pool still.
    let again = || pair.client.directory(pair.server.address(), vec![SMALL]).wait();
    assert!((0..1000).any(|_| again().is_ok()));
}

fn strangers_keep_no_peer_out(network: &Arc<dyn Network>) {
    let options = ServerOptions {
        connections_max: 1,
        strangers_max: 3,
        welcome: Duration::from_secs(600),
        ..ServerOptions::default()
    };
    let pair = pair(network, options, ClientOptions::default());
    let address = pair.server.address().to_string();
    // They connect, and say nothing; more than the server has places for, of either kind.
    let strangers: Vec<_> = (0..20).map(|_| network.connect(&address, PATIENCE).unwrap()).collect();
    pair.directory(&[SMALL]);
    // The oldest had to go; those that came last have their time.
    let closed = |socket: &Arc<dyn Socket>| {
        socket.set_receive_timeout(PATIENCE).unwrap();
        socket.receive(&mut [0]).is_ok_and(|count| count == 0)
    };
    assert!(strangers[..16].iter().all(closed), "strangers stay");
    assert!(pair.server.stats().refused >= 16, "{:?}", pair.server.stats());
    drop(strangers);
}

fn who_says_nothing_or_says_it_in_drops_is_closed(network: &Arc<dyn Network>) {
    let options = ServerOptions { welcome: Duration::from_millis(50), ..ServerOptions::default() };
    let pair = pair(network, options, ClientOptions::default());
    let hello = encode_hello(&Hello { token: TOKEN.as_bytes(), from: "drop by drop", to: "" });
    for drops in [&[][..], &hello[..1], &hello[..hello.len() - 1]] {
        let socket = network.connect(&pair.server.address().to_string(), PATIENCE).unwrap();
        socket.set_receive_timeout(PATIENCE).unwrap();
        if !drops.is_empty() {
            socket.send(&[std::io::IoSlice::new(drops)]).unwrap();
        }
        assert_eq!(socket.receive(&mut [0]).unwrap(), 0, "{} bytes of a hello keep a place", drops.len());
    }
    // Nobody else has noticed.
    pair.directory(&[SMALL]);
}

/// Whichever side is of another release, the one that reports it says both numbers and what to do.
fn a_node_of_another_version_is_told_both_and_others_are_served(network: &Arc<dyn Network>) {
    let pair = pair(network, ServerOptions::default(), ClientOptions::default());
    for version in [wire::VERSION - 1, wire::VERSION + 1] {
        let mut hello = encode_hello(&Hello { token: TOKEN.as_bytes(), from: "other", to: "" });
        hello[4..6].copy_from_slice(&version.to_le_bytes());
        let socket = network.connect(&pair.server.address().to_string(), PATIENCE).unwrap();
        socket.set_receive_timeout(PATIENCE).unwrap();
        socket.send(&[std::io::IoSlice::new(&hello)]).unwrap();
        let mut said = Vec::new();
        let mut piece = [0; 256];
        while let Ok(count @ 1..) = socket.receive(&mut piece) {
            said.extend_from_slice(&piece[..count]);
        }
        let expected = format!("speaks version {version} of transfers, this node 2: run one release on all nodes");
        assert!(said == encode_welcome(Err(&expected)), "{}", String::from_utf8_lossy(&said));
        pair.directory(&[SMALL]);
    }
    assert_eq!(pair.server.stats().refused, 2);
    // A server of another release, which takes the hello for one of its own.
    let other = network.listen(([127, 0, 0, 1], 0).into()).unwrap();
    let address = other.address();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (socket, _) = other.accept().unwrap();
            let mut welcome = encode_welcome(Ok("other"));
            welcome[4..6].copy_from_slice(&(wire::VERSION + 1).to_le_bytes());
            socket.send(&[std::io::IoSlice::new(&welcome)]).unwrap();
            // Until the client has read it and goes.
            while let Ok(1..) = socket.receive(&mut [0; 256]) {}
        });
        let error = pair.client.directory(address, vec![SMALL]).wait().unwrap_err().to_string();
        assert!(error.contains("speaks version 3 of transfers, this node 2: run one release on all nodes"), "{error}");
    });
    pair.directory(&[SMALL]);
}

fn nobody_there_is_known_at_once(network: &Arc<dyn Network>) {
    let pair = pair(network, ServerOptions::default(), ClientOptions::default());
    let address = pair.server.address();
    let Pair { server, client, .. } = pair;
    server.stop();
    let error = client.directory(address, vec![SMALL]).wait().unwrap_err();
    assert!(matches!(error, TransferError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    let error = client.directory("no.such.host.invalid:1", vec![SMALL]).wait().unwrap_err();
    assert!(matches!(error, TransferError::Unreachable { .. }), "{error}");
}

fn a_restarted_server_is_connected_to_anew(network: &Arc<dyn Network>) {
    let pair = pair(network, ServerOptions::default(), ClientOptions::default());
    let address = pair.server.address();
    pair.directory(&[SMALL]);
    let Pair { server, client, served, here: _here, _dirs } = pair;
    server.stop();
    let server = serve_at(network, address, served);
    assert!(client.directory(address, vec![SMALL]).wait().unwrap()[0].is_some());
    assert_eq!((client.stats().connected, server.stats().accepted), (2, 1));
}

fn what_is_not_there_does_not_keep_the_rest_from_coming(network: &Arc<dyn Network>) {
    let pair = pair(network, ServerOptions::default(), ClientOptions::default());
    let metas = pair.served.meta(&id(1)).unwrap().parts.to_vec();
    let wanted = [
        (id(1), Parts::All, metas.clone()),
        (id(5), Parts::All, metas.clone()),
        (id(1), Parts::Range(1, 3), metas[1..].to_vec()),
        (id(1), Parts::one(1), metas[1..].to_vec()),
    ];
    let fills = fills(&pair.here, wanted.iter().map(|(object, _, metas)| (*object, metas.clone())).collect());
    let items = wanted.into_iter().zip(fills).map(|((object, parts, _), fill)| FetchItem { object, parts, fill });
    let results = pair.client.fetch_each(pair.server.address(), items.collect()).wait().unwrap();
    pair.check(results[0].as_ref().unwrap(), 1, Parts::All);
    assert!(matches!(results[1], Err(TransferError::Absent { object, .. }) if object == id(5)), "{:?}", results[1]);
    let beyond = results[2].as_ref().unwrap_err().to_string();
    assert!(beyond.contains("it has 2 parts, Range(1, 3) were asked for"), "{beyond}");
    pair.check(results[3].as_ref().unwrap(), 1, Parts::one(1));
    assert_eq!((pair.client.stats().items, pair.client.stats().failed, pair.client.stats().connected), (2, 2, 1));
}

fn bytes_of_another_length_than_the_directory_said_are_refused(network: &Arc<dyn Network>) {
    let pair = pair(network, ServerOptions::default(), ClientOptions::default());
    let metas = pair.served.meta(&id(1)).unwrap().parts.to_vec();
    for metas in [metas[..1].to_vec(), metas[1..].to_vec(), Vec::new()] {
        let fills = fills(&pair.here, vec![(id(1), metas)]);
        let error = pair.client.fetch(pair.server.address(), vec![SMALL], fills).wait().unwrap_err();
        assert!(matches!(error, TransferError::Garbled { .. }), "{error}");
        assert!(error.to_string().contains("1010 bytes come, its directory said"), "{error}");
    }
    assert_eq!(pair.here.stats().used_bytes, 0);
}

fn a_wait_says_for_whom_and_behind_how_many(network: &Arc<dyn Network>) {
    let client = ClientOptions { connections_per_peer: 1, stall: STALL, ..ClientOptions::default() };
    let pair = pair(network, ServerOptions::default(), client);
    let proxy = Proxy::start(network, pair.server.address(), Harm::None, Harm::Stall { at: 60 });
    let mut fills = pair.fills(&[SMALL, SMALL]);
    let first = pair.client.fetch(proxy.address, vec![SMALL], vec![fills.pop().unwrap()]);
    proxy.done.recv_timeout(Duration::from_secs(10)).unwrap();
    let second = pair.client.fetch(proxy.address, vec![SMALL], vec![fills.pop().unwrap()]);
    let why = first.why();
    assert!(why.starts_with(&format!("fetching 1 item from {}: ", proxy.address)), "{why}");
    assert_eq!(second.why(), format!("waiting to fetch 1 item from {}: 1 ahead", proxy.address));
    // It frees its memory without its turn having come.
    let used = pair.here.stats().used_bytes;
    drop(second);
    assert!(pair.here.stats().used_bytes < used);
}

fn one_stuck_peer_does_not_keep_the_others_waiting(network: &Arc<dyn Network>) {
    let client = ClientOptions { threads: 2, connections_per_peer: 1, ..ClientOptions::default() };
    let pair = pair(network, ServerOptions::default(), client);
    let proxy = Proxy::start(network, pair.server.address(), Harm::None, Harm::Stall { at: 0 });
    let stuck: Vec<_> = (0..5).map(|_| pair.client.directory(proxy.address, vec![SMALL])).collect();
    proxy.done.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(pair.directory(&[SMALL])[0].is_some());
    assert!(stuck.iter().all(|stuck| stuck.bytes() == 0));
}

fn a_full_queue_says_so(network: &Arc<dyn Network>) {
    let client = ClientOptions { threads: 1, waiting_max: 1, ..ClientOptions::default() };
    let pair = pair(network, ServerOptions::default(), client);
    let proxy = Proxy::start(network, pair.server.address(), Harm::None, Harm::Stall { at: 0 });
    let first = pair.client.directory(proxy.address, vec![SMALL]);
    proxy.done.recv_timeout(Duration::from_secs(10)).unwrap();
    let second = pair.client.directory(proxy.address, vec![SMALL]);
    let error = pair.client.directory(proxy.address, vec![SMALL]).wait().unwrap_err();
    assert!(matches!(error, TransferError::QueueFull { waiting: 1 }), "{error}");
    drop((first, second));
}

fn what_is_under_way_ends_with_the_client(network: &Arc<dyn Network>) {
    let pair = pair(network, ServerOptions::default(), ClientOptions { threads: 1, ..ClientOptions::default() });
    let proxy = Proxy::start(network, pair.server.address(), Harm::None, Harm::Stall { at: 0 });
    let under_way = pair.client.directory(proxy.address, vec![SMALL]);
    proxy.done.recv_timeout(Duration::from_secs(10)).unwrap();
    let waiting = pair.client.directory(proxy.address, vec![SMALL]);
    let Pair { client, .. } = pair;
    drop(client);
    assert!(under_way.wait().is_err());
    assert!(matches!(waiting.wait(), Err(TransferError::Stopped)));
}

/// In a process of its own, because the limit is one of processes: the server has no descriptor left for a caller,
/// waits, and takes it in when there is one again.
#[test]
fn out_of_descriptors_it_backs_off_and_recovers() {
    const CHILD: &str = "EXOBUS_TEST_OUT_OF_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        let name = "transfer::tests::limits::out_of_descriptors_it_backs_off_and_recovers";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
        assert!(said.contains("1 passed"), "{said}");
        return;
    }
    let pair = pair(&tcp(), ServerOptions::default(), ClientOptions::default());
    // The callers have their descriptors beforehand. The server may have one as well, the kernel sets it aside when
    // accept begins; so there are two callers.
    let (family, kind) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
    let callers = [(); 2].map(|()| TcpStream::from(rustix::net::socket(family, kind, None).unwrap()));
    let limit = rustix::process::Rlimit { current: Some(200), maximum: Some(200) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let mut hoard = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        hoard.push(file);
    }
    let hello = encode_hello(&Hello { token: TOKEN.as_bytes(), from: "caller", to: "serving" });
    for mut caller in &callers {
        rustix::net::connect(caller, &pair.server.address()).unwrap();
        caller.write_all(&hello).unwrap();
    }
    let clock = clock();
    let begun = clock.now();
    while pair.server.stats().accept_errors < 2 {
        assert!(clock.now() - begun < Duration::from_secs(20), "{:?}", pair.server.stats());
        std::thread::yield_now();
    }
    drop(hoard);
    for mut caller in &callers {
        caller.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut welcome = vec![0; encode_welcome(Ok("serving")).len()];
        caller.read_exact(&mut welcome).unwrap();
        assert_eq!(welcome, encode_welcome(Ok("serving")));
    }
}
