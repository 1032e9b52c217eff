//! Keys with revisions.

use std::time::Duration;

use super::{PATIENCE, pattern, unique};
use crate::kv::{Change, Entry, Kv, KvConfig, Watch, WatchEvent};
use crate::subject::unique_token;
use crate::{Bus, BusError};

fn config() -> KvConfig {
    KvConfig {
        bytes_max: 1024 * 1024,
        deadline: PATIENCE,
        ..KvConfig::new(&format!("contract_{}", unique_token()), unique("kv"))
    }
}

async fn both(a: &Bus, b: &Bus, config: &KvConfig) -> (Kv, Kv) {
    (Kv::open(a, config).await.unwrap(), Kv::open(b, config).await.unwrap())
}

fn entry(key: &str, value: &str, revision: u64) -> Entry {
    Entry { key: key.to_owned(), value: value.to_owned().into(), revision }
}

fn put(key: &str, value: &str, revision: u64) -> WatchEvent {
    WatchEvent::Changed(Change::Put(entry(key, value, revision)))
}

async fn next(watch: &mut Watch) -> WatchEvent {
    watch.next(PATIENCE).await.unwrap().expect("an event was expected and none came")
}

/// What is put is got, on any handle, with the revision that the put returned.
pub async fn what_is_put_is_got(a: Bus, b: Bus) {
    let (ours, theirs) = both(&a, &b, &config()).await;
    assert_eq!(theirs.get("x.y").await.unwrap(), None);
    let first = ours.put("x.y", "1").await.unwrap();
    assert_eq!(theirs.get("x.y").await.unwrap(), Some(entry("x.y", "1", first)));
    let second = theirs.put("x.y", "").await.unwrap();
    assert!(second > first);
    assert_eq!(ours.get("x.y").await.unwrap(), Some(entry("x.y", "", second)));
    assert_eq!(ours.get("x").await.unwrap(), None);
    for bad in ["", "a b", "*", "a..b", ">"] {
        assert!(matches!(ours.get(bad).await, Err(BusError::Subject(_))), "{bad:?}");
    }
}

/// Of two who create, or update at one revision, one wins.
pub async fn a_stale_revision_is_refused(a: Bus, b: Bus) {
    let (ours, theirs) = both(&a, &b, &config()).await;
    let (one, other) = tokio::join!(ours.create("k", "ours"), theirs.create("k", "theirs"));
    let revision = match (one, other) {
        (Ok(revision), Err(BusError::Conflict { .. })) | (Err(BusError::Conflict { .. }), Ok(revision)) => revision,
        both => panic!("{both:?}"),
    };
    // Another key's change is none of this key's business.
    ours.put("other", "x").await.unwrap();
    let next = ours.update("k", "next", revision).await.unwrap();
    let stale = theirs.update("k", "stale", revision).await;
    assert!(matches!(stale, Err(BusError::Conflict { .. })), "{stale:?}");
    let stale = theirs.delete("k", Some(revision)).await;
    assert!(matches!(stale, Err(BusError::Conflict { .. })), "{stale:?}");
    assert_eq!(theirs.get("k").await.unwrap(), Some(entry("k", "next", next)));
    let absent = theirs.update("absent", "x", 1).await;
    assert!(matches!(absent, Err(BusError::Conflict { .. })), "{absent:?}");
}

/// A deleted key has no value, may be created anew, and its old revision is refused.
pub async fn a_deleted_key_can_be_created_again(a: Bus, b: Bus) {
    let (ours, theirs) = both(&a, &b, &config()).await;
    let first = ours.create("k", "1").await.unwrap();
    ours.delete("k", Some(first)).await.unwrap();
    ours.delete("k", None).await.unwrap();
    ours.delete("never", None).await.unwrap();
    assert_eq!(theirs.get("k").await.unwrap(), None);
    let stale = theirs.update("k", "x", first).await;
    assert!(matches!(stale, Err(BusError::Conflict { .. })), "{stale:?}");
    let second = theirs.create("k", "2").await.unwrap();
    assert!(second > first);
    assert_eq!(ours.entries().await.unwrap(), [entry("k", "2", second)]);
}

/// A forgotten key has no value, and who follows it hears nothing of that; it may be created anew.
pub async fn a_forgotten_key_is_gone_without_a_word(a: Bus, b: Bus) {
    let (ours, theirs) = both(&a, &b, &config()).await;
    ours.create("k", "1").await.unwrap();
    let kept = ours.create("other", "2").await.unwrap();
    let mut watch = theirs.watch(None).await.unwrap();
    while next(&mut watch).await != WatchEvent::CaughtUp {}
    ours.forget("k").await.unwrap();
    ours.forget("never").await.unwrap();
    assert_eq!(ours.entries().await.unwrap(), [entry("other", "2", kept)]);
    let again = ours.create("k", "3").await.unwrap();
    assert_eq!(next(&mut watch).await, put("k", "3", again));
}

/// Values first, then that they were all, then changes, in order; only of the keys that are wanted.
pub async fn a_watch_tells_values_then_changes(a: Bus, b: Bus) {
    let (ours, theirs) = both(&a, &b, &config()).await;
    let mut empty = theirs.watch(None).await.unwrap();
    assert_eq!(next(&mut empty).await, WatchEvent::CaughtUp);
    let x = ours.put("a.x", "1").await.unwrap();
    let y = ours.put("a.y", "2").await.unwrap();
    assert_eq!((next(&mut empty).await, next(&mut empty).await), (put("a.x", "1", x), put("a.y", "2", y)));
    ours.put("b", "3").await.unwrap();
    let mut watch = theirs.watch(Some(&pattern("a.*"))).await.unwrap();
    assert_eq!((next(&mut watch).await, next(&mut watch).await), (put("a.x", "1", x), put("a.y", "2", y)));
    assert_eq!(next(&mut watch).await, WatchEvent::CaughtUp);
    assert_eq!(watch.next(Duration::ZERO).await.unwrap(), None);
    let waiting = next(&mut watch);
    let (event, again) = tokio::join!(waiting, ours.put("a.y", "4"));
    assert_eq!(event, put("a.y", "4", again.unwrap()));
    ours.put("b", "5").await.unwrap();
    ours.delete("a.x", None).await.unwrap();
    match next(&mut watch).await {
        WatchEvent::Changed(Change::Removed { key, revision }) => assert!(key == "a.x" && revision > y),
        other => panic!("{other:?}"),
    }
}

/// A lease: kept while it is updated, gone when not, told to who watches, free for another then.
pub async fn a_key_expires_unless_it_is_written(a: Bus, b: Bus) {
    let (ours, theirs) = both(&a, &b, &KvConfig { ttl: Duration::from_secs(1), ..config() }).await;
    let mut watch = theirs.watch(None).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::CaughtUp);
    let mut revision = ours.create("leader", "a").await.unwrap();
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(matches!(theirs.create("leader", "b").await, Err(BusError::Conflict { .. })));
        revision = ours.update("leader", "a", revision).await.unwrap();
    }
    loop {
        match next(&mut watch).await {
            WatchEvent::Changed(Change::Put(seen)) => assert!(seen.revision <= revision, "{seen:?}"),
            WatchEvent::Changed(Change::Removed { key, revision: gone }) => {
                assert!(key == "leader" && gone > revision);
                break;
            }
            WatchEvent::CaughtUp => panic!("told twice"),
        }
    }
    assert_eq!(theirs.get("leader").await.unwrap(), None);
    let stale = ours.update("leader", "a", revision).await;
    assert!(matches!(stale, Err(BusError::Conflict { .. })), "{stale:?}");
    let next = theirs.create("leader", "b").await.unwrap();
    assert!(next > revision);
}

/// A value that was given a time of its own is there until then; who writes the key again keeps it.
pub async fn a_value_with_a_time_of_its_own_is_gone_after_it(a: Bus, b: Bus) {
    let (ours, theirs) = both(&a, &b, &config()).await;
    let second = Duration::from_secs(1);
    for key in ["gone", "kept"] {
        let revision = ours.create(key, "1").await.unwrap();
        ours.update_for(key, "2", revision, second).await.unwrap();
        let stale = theirs.update_for(key, "3", revision, second).await;
        assert!(matches!(stale, Err(BusError::Conflict { .. })), "{stale:?}");
    }
    let lasting = theirs.get("kept").await.unwrap().unwrap();
    assert_eq!(lasting.value, "2");
    let kept = theirs.update("kept", "3", lasting.revision).await.unwrap();
    let gone = async {
        while theirs.get("gone").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("it is gone");
    assert_eq!(ours.entries().await.unwrap(), [entry("kept", "3", kept)]);
    ours.create("gone", "4").await.unwrap();
}

/// A thousand keys come out as they went in, whatever the size of a read.
pub async fn many_keys_are_all_listed(a: Bus, b: Bus) {
    let (ours, theirs) = both(&a, &b, &config()).await;
    let puts = (0..1000).map(|number| {
        let ours = &ours;
        async move { ours.put(&format!("k.{number:04}"), number.to_string()).await.unwrap() }
    });
    futures::future::join_all(puts).await;
    let listed = theirs.entries().await.unwrap();
    let expected: Vec<(String, String)> = (0..1000).map(|n| (format!("k.{n:04}"), n.to_string())).collect();
    let found: Vec<(String, String)> =
        listed.iter().map(|entry| (entry.key.clone(), String::from_utf8_lossy(&entry.value).into_owned())).collect();
    assert_eq!(found, expected);
}
