//! What is read from files, and when again.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exobus_store::Clock;
use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};

use super::test_authority::{Authority, CLUSTER, clock, load, node};
use super::*;

#[test]
fn what_is_wrong_with_files_is_said_with_the_file() {
    let (authority, other) = (Authority::new(), Authority::new());
    let files = authority.files(&node("n1"));
    load(&files, "n1").unwrap();
    let own = files.own.clone().unwrap();
    let check = |files: &TlsFiles, name: &str, said: &[&str]| {
        let error = load(files, name).unwrap_err().to_string();
        for said in said {
            assert!(error.contains(said), "{said:?} is not in {error:?}");
        }
    };
    check(
        &files,
        "n2",
        &["n1.pem", "the certificate is of node n1 of cluster lab, and this is node n2 of cluster lab"],
    );
    let with = |own| TlsFiles { own: Some(own), ..files.clone() };
    let of_other = TlsFiles { authorities: other.path("ca.pem"), ..files.clone() };
    check(&of_other, "n1", &["n1.pem", "signed by no authority of", "ca.pem"]);
    let nameless = authority.sign("nameless", &[], |_| {});
    check(&with(nameless), "n1", &["nameless.pem", "names no node", "exobus:node:lab:n1"]);
    let twice = authority.sign("twice", &[node("n1").uri(), node("n2").uri()], |_| {});
    check(&with(twice), "n1", &["twice.pem", "names no node"]);
    let old = authority.sign("old", &[node("n1").uri()], |params| {
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    });
    check(&with(old), "n1", &["old.pem", "the certificate has expired"]);
    let early = authority.sign("early", &[node("n1").uri()], |params| params.not_before = date_time_ymd(4000, 1, 1));
    check(&with(early), "n1", &["early.pem", "the certificate is not valid yet"]);
    for purpose in [ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth] {
        let half = authority.sign("half", &[node("n1").uri()], |params| params.extended_key_usages = vec![purpose]);
        check(&with(half), "n1", &["half.pem", "is not valid"]);
    }
    let mixed = OwnFiles { key: authority.sign("x", &[], |_| {}).key, ..own.clone() };
    check(&with(mixed), "n1", &["x.key", "not the key of", "n1.pem"]);
    check(&with(OwnFiles { certificate: own.key.clone(), ..own.clone() }), "n1", &["n1.key", "no certificate"]);
    check(&with(OwnFiles { key: own.certificate.clone(), ..own.clone() }), "n1", &["n1.pem", "no private key"]);
    check(&with(OwnFiles { key: authority.path("nothing"), ..own.clone() }), "n1", &["nothing", "No such file"]);
    fs::set_permissions(&own.key, Permissions::from_mode(0o640)).unwrap();
    check(&files, "n1", &["n1.key", "0640", "chmod 600"]);
    check(&TlsFiles { own: None, ..files.clone() }, "n1", &["a certificate of its own"]);
}

/// A clock that goes when it is told to.
#[derive(Default)]
struct Told(AtomicU64);

impl Clock for Told {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn unix_ms(&self) -> u64 {
        clock().unix_ms() + self.0.load(Ordering::SeqCst)
    }
}

/// The certificate that is shown now.
fn shown(tls: &DataTls) -> Vec<u8> {
    let Shared { loaded, me, provider, .. } = &*tls.0;
    loaded.now(me, provider).own.as_ref().unwrap().cert[0].to_vec()
}

#[test]
fn other_files_are_taken_once_they_are_right_and_looked_at_once_a_second() {
    let authority = Authority::new();
    let files = authority.files(&node("n1"));
    let time = Arc::new(Told::default());
    let tls = DataTls::of_node(files.clone(), node("n1"), time.clone()).unwrap();
    let first = shown(&tls);
    let pass = |millis| time.0.fetch_add(millis, Ordering::SeqCst);

    // The key is not there yet: what was there before goes on, and again when more of it is wrong.
    let (certificate, key) = (files.own.clone().unwrap().certificate, files.own.unwrap().key);
    let next = authority.sign("next", &[node("n1").uri()], |_| {});
    fs::rename(&next.certificate, &certificate).unwrap();
    pass(1000);
    assert_eq!(shown(&tls), first);
    fs::rename(&next.key, &key).unwrap();
    pass(999);
    assert_eq!(shown(&tls), first, "looked at more than once a second");
    pass(1);
    let second = shown(&tls);
    assert_ne!(second, first);

    fs::write(authority.path("ca.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    pass(1000);
    assert_eq!(shown(&tls), second);
    fs::remove_file(authority.path("ca.pem")).unwrap();
    pass(1000);
    assert_eq!(shown(&tls), second);
    // Another node's is no certificate of this one.
    fs::write(authority.path("ca.pem"), authority.pem()).unwrap();
    let anothers = authority.sign("n2", &[node("n2").uri()], |_| {});
    fs::rename(&anothers.certificate, &certificate).unwrap();
    fs::rename(&anothers.key, &key).unwrap();
    pass(1000);
    assert_eq!(shown(&tls), second);
}

#[test]
fn a_file_may_have_two_authorities_while_one_takes_the_place_of_the_other() {
    let (old, new) = (Authority::new(), Authority::new());
    fs::write(old.path("ca.pem"), old.pem() + &new.pem()).unwrap();
    for authority in [&old, &new] {
        let files = TlsFiles { authorities: old.path("ca.pem"), ..authority.files(&node("n1")) };
        load(&files, "n1").unwrap();
    }
    let client = DataTls::of_client(old.path("ca.pem"), CLUSTER, clock()).unwrap();
    assert!(!client.is_of_a_node() && old.of_node("n1").is_of_a_node());
}

#[test]
fn aes_of_128_bits_comes_first_and_all_is_tls_1_3() {
    let suites = provider().cipher_suites;
    assert_eq!(suites[0].suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
    assert!(suites.len() == 3 && suites.iter().all(|suite| suite.tls13().is_some()));
}
