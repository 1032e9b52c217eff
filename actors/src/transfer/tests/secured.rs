//! Transfers over TLS: what comes is right, and who is not who it says is told so, on both sides.

use std::sync::atomic::Ordering;

use super::proxy::{Harm, Proxy};
use super::*;
use crate::transfer::tls::test_authority::{Authority, clock as system_clock, node, replace};
use crate::transfer::tls::{DataTls, OwnFiles, TlsFiles};
use crate::transfer::{PeerName, ServerStats, TransferTicket, download};

on_each_network! {
    objects_of_memory_and_disk_arrive_and_are_right,
    keys_that_are_used_up_are_changed_in_the_middle,
    a_flipped_bit_wherever_it_is_is_never_used,
    a_peer_that_says_nothing_of_a_handshake_is_given_up,
    a_stream_that_ends_in_the_handshake_or_in_a_body_is_an_error,
    another_nodes_certificate_is_not_believed,
    a_certificate_of_another_authority_is_not_believed,
    a_certificate_of_another_cluster_is_not_believed,
    a_certificate_whose_time_is_over_is_not_believed,
    a_hello_of_another_node_than_the_certificates_is_refused,
    who_has_no_certificate_shows_a_ticket_and_nothing_else,
    a_plain_node_is_told_that_it_needs_tls,
    a_node_with_tls_says_that_the_other_one_has_none,
    other_certificates_are_used_by_connections_that_are_made_from_then_on,
}

/// A serving node `serving` and a fetching one `fetching`, each with what it shows.
fn pair(network: &Arc<dyn Network>, serving: Option<DataTls>, fetching: Option<DataTls>) -> Pair {
    let server = ServerOptions { stall: STALL, tls: serving, ..ServerOptions::default() };
    let client = ClientOptions { stall: STALL, tls: fetching, ..ClientOptions::default() };
    let pair = Pair::with(network, 64, 64, server, client);
    write(&pair.served, 1, Align::One, &[PART, 100]);
    pair
}

/// The same, of one authority.
fn friends(network: &Arc<dyn Network>, authority: &Authority) -> Pair {
    pair(network, Some(authority.of_node("serving")), Some(authority.of_node("fetching")))
}

const PART: usize = 3_000_000;
const LARGE: Item = (id(1), Parts::Range(0, 1));

fn serving_at(address: std::net::SocketAddr) -> PeerName {
    PeerName { node: "serving".to_owned(), address: address.to_string() }
}

/// Asks for a directory, as the first thing that is ever asked for.
fn look(pair: &Pair) -> Result<(), TransferError> {
    let peer = serving_at(pair.server.address());
    pair.client.directory(&peer, vec![LARGE]).wait().map(drop)
}

fn stats_when(pair: &Pair, enough: impl Fn(&ServerStats) -> bool) -> ServerStats {
    let (clock, deadline) = (clock(), clock().now() + Duration::from_secs(20));
    loop {
        let stats = pair.server.stats();
        if enough(&stats) {
            return stats;
        }
        assert!(clock.now() < deadline, "{stats:?}");
        std::thread::yield_now();
    }
}

/// Looks in vain, and says why; meanwhile, and afterwards, the server serves who is in order.
fn look_in_vain(network: &Arc<dyn Network>, authority: &Authority, pair: &Pair) -> TransferError {
    let friend = ClientOptions {
        node: "friend".to_owned(),
        network: Arc::clone(network),
        tls: Some(authority.of_node("friend")),
        ..ClientOptions::default()
    };
    let friend = TransferClient::with(friend, TOKEN, clock());
    let peer = serving_at(pair.server.address());
    friend.directory(&peer, vec![LARGE]).wait().unwrap();
    let error = look(pair).unwrap_err();
    stats_when(pair, |stats| stats.refused == 1);
    let metas = friend.directory(&peer, vec![LARGE]).wait().unwrap().remove(0).unwrap();
    let fill = fills(&pair.here, vec![(LARGE.0, metas)]);
    pair.check(&friend.fetch(&peer, vec![LARGE], fill).wait().unwrap()[0], 1, LARGE.1);
    assert_eq!(friend.stats().connected, 1, "its connection was not touched");
    assert!(!error.is_worth_a_retry() && error.is_about_the_peer() && !error.is_silence(), "{error:?}");
    error
}

fn assert_untrusted(error: &TransferError, said: &[&str]) {
    assert!(matches!(error, TransferError::Untrusted { .. }), "{error:?}");
    assert_says(error, said);
}

fn assert_refused(error: &TransferError, said: &[&str]) {
    assert!(matches!(error, TransferError::Refused { .. }), "{error:?}");
    assert_says(error, said);
}

fn assert_says(error: &TransferError, said: &[&str]) {
    for said in said {
        assert!(error.to_string().contains(said), "{said:?} is not in \"{error}\"");
    }
}

fn objects_of_memory_and_disk_arrive_and_are_right(network: &Arc<dyn Network>) {
    let authority = Authority::new();
    let pair = friends(network, &authority);
    // Large ones until some are on disk, and tiny ones.
    for object in 2..14 {
        write(&pair.served, object, Align::One, &[8_000_000, 1, 0, 77]);
    }
    assert!(pair.served.stats().spill_file_bytes > 0, "nothing was spilled");
    for object in 2..14 {
        for parts in [Parts::All, Parts::one(1), Parts::Range(1, 4)] {
            pair.check(&pair.fetch(&[(id(object), parts)]).unwrap()[0], object, parts);
        }
    }
    let items: Vec<Item> = (20..1020).map(|object| (id(object), Parts::All)).collect();
    for (object, _) in &items {
        write(&pair.served, object.bits, Align::One, &[object.bits as usize % 300]);
    }
    for (block, (object, parts)) in pair.fetch(&items).unwrap().iter().zip(&items) {
        pair.check(block, object.bits, *parts);
    }
    assert_eq!((pair.client.stats().corrupt, pair.client.stats().failed), (0, 0));
}

fn keys_that_are_used_up_are_changed_in_the_middle(network: &Arc<dyn Network>) {
    let authority = Authority::new();
    let serving = authority.of_hasty_node("serving", 20);
    let pair = pair(network, Some(serving), Some(authority.of_hasty_node("fetching", 3)));
    for _ in 0..20 {
        // Some 200 records each.
        pair.check(&pair.fetch(&[LARGE]).unwrap()[0], 1, LARGE.1);
    }
    // A connection that is not back in the pool yet makes a further one; neither was given up.
    let stats = pair.client.stats();
    assert!(stats.connected <= 2 && stats.failed == 0, "{stats:?}");
}

fn a_flipped_bit_wherever_it_is_is_never_used(network: &Arc<dyn Network>) {
    let authority = Authority::new();
    let pair = friends(network, &authority);
    let mut places: Vec<(bool, u64)> = (0..60).flat_map(|step| [(true, step * 31), (false, step * 43)]).collect();
    places.extend((1..10).map(|step| (false, step * 300_000)));
    let (mut fired, mut failed) = (0, 0);
    for (up, at) in places {
        let flip = Harm::Flip { at, bit: (at % 8) as u8 };
        let (up, down) = if up { (flip, Harm::None) } else { (Harm::None, flip) };
        let proxy = Proxy::start(network, pair.server.address(), up, down);
        let fills = pair.fills(&[LARGE]);
        let result = pair.client.fetch(serving_at(proxy.address), vec![LARGE], fills).wait();
        fired += u32::from(proxy.done.try_recv().is_ok());
        match result {
            Ok(blocks) => pair.check(&blocks[0], 1, LARGE.1),
            Err(error) => {
                failed += 1;
                // It is not even looked at.
                assert!(!matches!(error, TransferError::Corrupt { .. }), "{at}: {error}");
                assert!(error.to_string().contains("serving at"), "{at}: {error}");
            }
        }
        assert_eq!(pair.here.stats().used_bytes, 0);
    }
    assert!(fired > 90, "{fired} bits were flipped");
    // In front of the first records stand numbers of versions that nobody looks at.
    assert!(failed >= fired * 9 / 10, "{failed} of {fired} were noticed");
}

fn a_peer_that_says_nothing_of_a_handshake_is_given_up(network: &Arc<dyn Network>) {
    let authority = Authority::new();
    for (up, down) in [(Harm::None, Harm::Stall { at: 0 }), (Harm::None, Harm::Stall { at: 300 })] {
        let server =
            ServerOptions { tls: Some(authority.of_node("serving")), welcome: 8 * STALL, ..ServerOptions::default() };
        let client =
            ClientOptions { tls: Some(authority.of_node("fetching")), connect: STALL, ..ClientOptions::default() };
        let pair = Pair::with(network, 64, 64, server, client);
        let proxy = Proxy::start(network, pair.server.address(), up, down);
        let begun = clock().now();
        let error = pair.client.directory(serving_at(proxy.address), vec![LARGE]).wait().unwrap_err();
        assert!(matches!(error, TransferError::Stalled { .. }), "{error:?}");
        assert!(clock().now().saturating_sub(begun) < Duration::from_secs(10));
        proxy.done.try_recv().expect("the stream stood still");
    }
    // Who connects and says nothing of it, or half a greeting, is no guest for longer than others.
    let server = ServerOptions { tls: Some(authority.of_node("serving")), welcome: STALL, ..ServerOptions::default() };
    let pair = Pair::with(network, 64, 64, server, ClientOptions::default());
    let silent = network.connect(&pair.server.address().to_string(), STALL).unwrap();
    let half = network.connect(&pair.server.address().to_string(), STALL).unwrap();
    std::io::Write::write_all(&mut &*half, &[0x16, 0x03, 0x01, 0x01, 0x00, 0x01]).unwrap();
    stats_when(&pair, |stats| stats.refused == 2);
    drop((silent, half));
}

fn a_stream_that_ends_in_the_handshake_or_in_a_body_is_an_error(network: &Arc<dyn Network>) {
    let authority = Authority::new();
    for at in [0, 3, 200, 700, 5_000, 1_000_000, PART as u64] {
        let pair = friends(network, &authority);
        let proxy = Proxy::start(network, pair.server.address(), Harm::None, Harm::Cut { at });
        let fills = pair.fills(&[LARGE]);
        let error = pair.client.fetch(serving_at(proxy.address), vec![LARGE], fills).wait().unwrap_err();
        proxy.done.try_recv().expect("the stream was cut");
        assert!(matches!(error, TransferError::Interrupted { .. }), "cut at {at}: {error}");
        assert!(proxy.passed.load(Ordering::SeqCst) <= at);
    }
}

fn another_nodes_certificate_is_not_believed(network: &Arc<dyn Network>) {
    let authority = Authority::new();
    let pair = friends(network, &authority);
    let peer = PeerName { node: "n5".to_owned(), address: pair.server.address().to_string() };
    let error = pair.client.directory(&peer, vec![LARGE]).wait().unwrap_err();
    let said = ["n5 at 127.0.0.1:", "of node serving of cluster lab is not of node n5 of cluster lab"];
    assert_untrusted(&error, &said);
    stats_when(&pair, |stats| stats.refused == 1);
    look(&pair).unwrap();
}

fn a_certificate_of_another_authority_is_not_believed(network: &Arc<dyn Network>) {
    let (ours, foreign) = (Authority::new(), Authority::new());
    // Of the one that connects: both believe in ours, and it has one of a foreign one.
    let own = foreign.sign("fetching", &[node("fetching").uri()], |_| {});
    fs_both(&ours, &foreign, "both.pem");
    let mixed = TlsFiles { authorities: ours.path("both.pem"), own: Some(own) };
    let fetching = DataTls::of_node(mixed, node("fetching"), system_clock()).unwrap();
    let pair_ = pair(network, Some(ours.of_node("serving")), Some(fetching));
    let error = look_in_vain(network, &ours, &pair_);
    let said = ["serving at 127.0.0.1:", "node fetching of cluster lab is signed by no authority that it knows"];
    assert_refused(&error, &said);
    // Of the one that listens.
    let pair_ = pair(network, Some(ours.of_node("serving")), Some(foreign.of_node("fetching")));
    let error = look_in_vain(network, &ours, &pair_);
    let said = ["serving at 127.0.0.1:", "of node serving of cluster lab is signed by no authority of", "ca.pem"];
    assert_untrusted(&error, &said);
}

fn fs_both(one: &Authority, other: &Authority, name: &str) {
    std::fs::write(one.path(name), one.pem() + &other.pem()).unwrap();
}

fn a_certificate_of_another_cluster_is_not_believed(network: &Arc<dyn Network>) {
    let authority = Authority::new();
    let abroad = crate::transfer::tls::CertifiedNode { cluster: "other".to_owned(), node: "fetching".to_owned() };
    let fetching = DataTls::of_node(authority.files(&abroad), abroad, system_clock()).unwrap();
    let pair = pair(network, Some(authority.of_node("serving")), Some(fetching));
    // It looks for a node of its own cluster.
    let error = look_in_vain(network, &authority, &pair);
    assert_untrusted(&error, &["of node serving of cluster lab is not of node serving of cluster other"]);
}

/// A certificate that lasts for as long as it takes to load it.
fn short(authority: &Authority, name: &str) -> DataTls {
    let until = std::time::UNIX_EPOCH + Duration::from_millis(clock().unix_ms()) + Duration::from_secs(2);
    let own = authority.sign(&format!("short-{name}"), &[node(name).uri()], |params| params.not_after = until.into());
    let files = TlsFiles { authorities: authority.path("ca.pem"), own: Some(own) };
    DataTls::of_node(files, node(name), system_clock()).unwrap()
}

fn a_certificate_whose_time_is_over_is_not_believed(network: &Arc<dyn Network>) {
    let authority = Authority::new();
    let late_server = pair(network, Some(short(&authority, "serving")), Some(authority.of_node("fetching")));
    let late_client = pair(network, Some(authority.of_node("serving")), Some(short(&authority, "fetching")));
    // Seconds of certificates are whole ones.
    let (_keep, never) = crossbeam_channel::bounded::<()>(0);
    let _ = never.recv_timeout(Duration::from_millis(3100));
    let error = look(&late_server).unwrap_err();
    assert_untrusted(&error, &["serving at 127.0.0.1:", "of node serving of cluster lab has expired"]);
    stats_when(&late_server, |stats| stats.refused == 1);
    let error = look_in_vain(network, &authority, &late_client);
    assert_refused(&error, &["serving at 127.0.0.1:", "node fetching of cluster lab has expired"]);
}

fn a_hello_of_another_node_than_the_certificates_is_refused(network: &Arc<dyn Network>) {
    let authority = Authority::new();
    let pair = pair(network, Some(authority.of_node("serving")), Some(authority.of_node("n7")));
    let error = look_in_vain(network, &authority, &pair);
    assert_refused(&error, &["the hello is of node fetching, the certificate of node n7 of cluster lab"]);
}

fn who_has_no_certificate_shows_a_ticket_and_nothing_else(network: &Arc<dyn Network>) {
    let authority = Authority::new();
    let pair = pair(network, Some(authority.of_node("serving")), Some(authority.of_client()));
    let error = look_in_vain(network, &authority, &pair);
    assert_refused(&error, &["serving at 127.0.0.1:", "node fetching has shown no certificate"]);

    let options = |tls| ClientOptions { network: Arc::clone(network), tls, ..ClientOptions::default() };
    let get = |shown: &str, options: &ClientOptions, at: &PeerName| {
        let mut bytes = Vec::new();
        download(at, shown, id(1), options, clock(), |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })
        .map(|_| bytes)
    };
    let (client, peer) = (options(Some(authority.of_client())), serving_at(pair.server.address()));
    let error = get(TOKEN, &client, &peer).unwrap_err();
    assert_refused(&error, &["the token of nodes needs the certificate of one"]);
    let until_unix_ms = clock().unix_ms() + 60_000;
    let ticket = TransferTicket { group: GROUP, until_unix_ms };
    let ticket = ticket.signed(|text| exobus_bus::auth::sign(TOKEN, TransferTicket::PURPOSE, text));
    let bytes = get(&ticket, &client, &peer).unwrap();
    assert!(bytes == [content(1, 0, PART), content(1, 1, 100)].concat(), "other bytes");
    // It checks whom it shows it to.
    let another = PeerName { node: "n5".to_owned(), ..peer.clone() };
    assert_untrusted(&get(&ticket, &client, &another).unwrap_err(), &["is not of node n5"]);
    let foreign = options(Some(Authority::new().of_client()));
    assert_untrusted(&get(&ticket, &foreign, &peer).unwrap_err(), &["is signed by no authority of"]);
    assert_refused(&get(&ticket, &options(None), &peer).unwrap_err(), &["node serving need TLS"]);
}

fn a_plain_node_is_told_that_it_needs_tls(network: &Arc<dyn Network>) {
    let authority = Authority::new();
    let pair = pair(network, Some(authority.of_node("serving")), None);
    let error = look_in_vain(network, &authority, &pair);
    assert_refused(&error, &["serving at 127.0.0.1:", "node serving need TLS", "security.data_ca_file"]);
}

fn a_node_with_tls_says_that_the_other_one_has_none(network: &Arc<dyn Network>) {
    let authority = Authority::new();
    let pair = pair(network, None, Some(authority.of_node("fetching")));
    let error = look(&pair).unwrap_err();
    assert_untrusted(&error, &["serving at 127.0.0.1:", "it speaks without TLS"]);
    stats_when(&pair, |stats| stats.refused == 1);
}

/// Step by step as the documentation says, with a connection after each.
fn other_certificates_are_used_by_connections_that_are_made_from_then_on(network: &Arc<dyn Network>) {
    let (old, new) = (Authority::new(), Authority::new());
    let pair = friends(network, &old);
    let first = pair.client.stats().connected;
    look(&pair).unwrap();
    let both = old.pem() + &new.pem();
    let renew = |name: &str| {
        let own = new.sign(name, &[node(name).uri()], |_| {});
        for kind in ["key", "pem"] {
            let path = if kind == "key" { &own.key } else { &own.certificate };
            replace(&old.path(&format!("{name}.{kind}")), &std::fs::read_to_string(path).unwrap());
        }
    };
    let steps: [(&str, &dyn Fn()); 4] = [
        ("both authorities are believed", &|| replace(&old.path("ca.pem"), &both)),
        ("the one that listens has another certificate", &|| renew("serving")),
        ("so does the one that connects", &|| renew("fetching")),
        ("the old authority is not believed any more", &|| replace(&old.path("ca.pem"), &new.pem())),
    ];
    for (step, change) in steps {
        change();
        let (_keep, never) = crossbeam_channel::bounded::<()>(0);
        let _ = never.recv_timeout(Duration::from_millis(1100));
        // Another connection: a friend's, of a node that has what `fetching` has.
        let peer = serving_at(pair.server.address());
        let there = futures::executor::block_on(pair.client.is_there(&peer, STALL));
        assert!(there, "{step}");
        let files = TlsFiles {
            authorities: old.path("ca.pem"),
            own: Some(OwnFiles { certificate: old.path("fetching.pem"), key: old.path("fetching.key") }),
        };
        let tls = DataTls::of_node(files, node("fetching"), system_clock()).unwrap();
        let options = ClientOptions {
            node: "fetching".to_owned(),
            network: Arc::clone(network),
            tls: Some(tls),
            ..ClientOptions::default()
        };
        let fresh = TransferClient::with(options, TOKEN, clock());
        fresh.directory(&peer, vec![LARGE]).wait().unwrap_or_else(|error| panic!("{step}: {error}"));
    }
    // The connection that was there all the time goes on.
    look(&pair).unwrap();
    assert_eq!(pair.client.stats().connected, first + 1);
    // Who has nothing but the old ones is not believed.
    let late = pair_client(network, &old);
    let error = late.directory(serving_at(pair.server.address()), vec![LARGE]).wait().unwrap_err();
    assert_untrusted(&error, &["is signed by no authority of"]);
}

/// A node with certificates of this authority, which its file has alone.
fn pair_client(network: &Arc<dyn Network>, authority: &Authority) -> TransferClient {
    std::fs::write(authority.path("old.pem"), authority.pem()).unwrap();
    let own = authority.sign("late", &[node("late").uri()], |_| {});
    let files = TlsFiles { authorities: authority.path("old.pem"), own: Some(own) };
    let tls = DataTls::of_node(files, node("late"), system_clock()).unwrap();
    let options = ClientOptions {
        node: "late".to_owned(),
        network: Arc::clone(network),
        tls: Some(tls),
        ..ClientOptions::default()
    };
    TransferClient::with(options, TOKEN, clock())
}
