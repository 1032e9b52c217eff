//! An endpoint and frames that no session makes: of a peer that knows the token and does wrong, of another release, and of one
//! that repeats what it has heard.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::timeout;

use super::frame::{
    Challenge, FrameError, HEADER_BYTES, Half, Header, Kind, challenge, fix_checksum, is_authentic, seal, versions,
};
use super::opening::{Opening, SessionKeys};
use super::state::VERSIONS;
use super::{Endpoint, EndpointEvents, Event, Peer, SessionError, SessionOptions};
use crate::auth::{Credentials, Key};
use crate::subject::{Subject, Subjects};
use crate::{Bus, Message, SubscribeOptions, Subscription};

/// Virtual, so it costs nothing.
const PATIENCE: Duration = Duration::from_secs(600);
const ME: Half = Half { incarnation: 1, epoch: 1 };
const MY_CHALLENGE: Challenge = [7; 16];
/// The versions that this build speaks, as they stand in a hello.
const OURS: [u8; 4] = [VERSIONS.0 as u8, 0, VERSIONS.1 as u8, 0];

fn subjects() -> Subjects {
    Subjects::new("test").unwrap()
}

fn bus() -> Bus {
    Bus::in_process().with_credentials(Credentials::node(Some("the nodes' token of a test"), None))
}

async fn open(bus: &Bus, node: &str, incarnation: u64) -> (Endpoint, EndpointEvents) {
    let me = Peer { node: node.to_owned(), incarnation };
    Endpoint::open(bus.clone(), subjects(), me, SessionOptions::default()).await.unwrap()
}

async fn next(events: &mut EndpointEvents) -> Event {
    timeout(PATIENCE, events.recv()).await.expect("no event").expect("the endpoint ended")
}

/// The node `a`, which makes its frames by hand, and talks to the endpoint `b`.
struct Raw {
    bus: Bus,
    to_b: Subject,
    from_b: Subscription,
    opening: Arc<Opening>,
    keys: Option<SessionKeys>,
    /// The half of `b`.
    peer: Half,
}

impl Raw {
    async fn new(bus: &Bus) -> Self {
        let opening = Opening::new(bus.credentials(), subjects().prefix(), "a", "b", Key::random()).unwrap();
        let pattern = subjects().session("a", "b").unwrap().into();
        Self {
            bus: bus.clone(),
            to_b: subjects().session("b", "a").unwrap(),
            from_b: bus.subscribe(pattern, SubscribeOptions::default()).await.unwrap(),
            opening: Arc::new(opening),
            keys: None,
            peer: Half::NONE,
        }
    }

    async fn hears(&mut self) -> Bytes {
        timeout(PATIENCE, self.from_b.recv()).await.expect("no frame").unwrap().message.payload
    }

    /// What `b` says in a frame of this kind, which is the next of it.
    async fn hears_a(&mut self, kind: Kind) -> (Header, Bytes) {
        loop {
            let frame = self.hears().await;
            let header = Header::read(&frame).unwrap();
            if header.kind == kind {
                return (header, frame);
            }
        }
    }

    fn frame(&self, kind: Kind, seq: u64, items: u32, body: &[u8]) -> BytesMut {
        let header = Header {
            version: if matches!(kind, Kind::Data | Kind::Ack) { VERSIONS.1 as u8 } else { 1 },
            kind,
            gap: false,
            ack_now: false,
            from: ME,
            to: if kind == Kind::Hello { Half::NONE } else { self.peer },
            seq,
            ack: 0,
            credit_items: 1_000_000,
            credit_bytes: 1_000_000,
            items,
        };
        let mut frame = BytesMut::zeroed(HEADER_BYTES);
        header.write(&mut frame);
        frame.extend_from_slice(body);
        frame
    }

    fn publish(&self, frame: Bytes) {
        self.bus.try_publish(self.to_b.clone(), Message::new(frame)).unwrap();
    }

    fn hello(&self, versions: [u8; 4]) -> Bytes {
        let mut frame = self.frame(Kind::Hello, 0, 0, &[&versions[..], &MY_CHALLENGE].concat());
        seal(&mut frame, self.opening.sending(), None);
        frame.freeze()
    }

    /// That of a release without MACs, which anybody can make: the versions, and nothing else.
    fn hello_without_mac(&self, versions: [u8; 4]) -> Bytes {
        let mut hello = self.frame(Kind::Hello, 0, 0, &versions);
        fix_checksum(&mut hello);
        hello.freeze()
    }

    /// Says hello and hears the welcome, which answers the challenge.
    async fn meet(&mut self) {
        self.publish(self.hello(OURS));
        let (header, frame) = self.hears_a(Kind::Welcome).await;
        assert!(is_authentic(&frame, self.opening.receiving(), Some(&MY_CHALLENGE)));
        self.peer = header.from;
        self.keys = Some(self.opening.keys((ME, &MY_CHALLENGE), (header.from, &challenge(&frame).unwrap())));
    }

    fn data(&self, seq: u64, items: u32, body: &[u8]) -> Bytes {
        let mut frame = self.frame(Kind::Data, seq, items, body);
        seal(&mut frame, &self.keys.as_ref().unwrap().sending, None);
        frame.freeze()
    }
}

fn items(event: Event) -> Vec<(Arc<str>, Bytes)> {
    let Event::Items { from, items } = event else { panic!("{event:?}") };
    assert_eq!((from.name(), from.incarnation()), ("a", 1));
    items
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_item_is_told_once_and_what_follows_arrives() {
    let bus = bus();
    let (b, mut b_events) = open(&bus, "b", 1).await;
    let mut a = Raw::new(&bus).await;
    a.meet().await;
    // A good item, one that claims to be longer than the frame, one of an actor that is no token.
    a.publish(a.data(1, 2, b"\0\x01x\x02hi\x01\x7fshort"));
    a.publish(a.data(2, 1, b"\0\x03a.b\x01y"));
    a.publish(a.data(3, 1, b"\0\x01x\x03end"));
    assert_eq!(items(next(&mut b_events).await), [("x".into(), "hi".into())]);
    for offset in [6, 0] {
        let event = next(&mut b_events).await;
        let Event::Undecodable { error: FrameError::Items { at, .. }, .. } = &event else { panic!("{event:?}") };
        assert_eq!(*at, offset);
    }
    assert_eq!(items(next(&mut b_events).await), [("x".into(), "end".into())]);
    // All three are acknowledged, so none comes again.
    while a.hears_a(Kind::Ack).await.0.ack < 3 {}
    assert_eq!((b.stats().frames_malformed, b.stats().frames_of_strangers), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_said_in_one_session_is_nothing_in_the_next() {
    let bus = bus();
    let (b, mut b_events) = open(&bus, "b", 1).await;
    let mut a = Raw::new(&bus).await;
    a.meet().await;
    let (hello, said) = (a.hello(OURS), a.data(1, 1, b"\0\x01x\x03buy"));
    a.publish(said.clone());
    assert_eq!(items(next(&mut b_events).await), [("x".into(), "buy".into())]);
    // Again in the same session: it has the number of one that was taken.
    a.publish(said.clone());
    while b.stats().frames_repeated == 0 {
        a.hears().await;
    }
    // `b` is started anew, and somebody repeats all that he has heard of `a`. With the challenge of the new `b`, nothing of it fits.
    drop((b, b_events));
    let (b, mut b_events) = open(&bus, "b", 1).await;
    a.publish(hello);
    a.hears_a(Kind::Welcome).await;
    for _ in 0..10 {
        a.publish(said.clone());
    }
    let heard = timeout(Duration::from_secs(20), b_events.recv()).await;
    assert!(!matches!(heard, Ok(Some(Event::Items { .. }))), "{heard:?}");
    assert_eq!(b.stats().frames_of_strangers, 10, "{:?}", b.stats());
}

#[tokio::test(start_paused = true)]
async fn a_peer_of_another_version_is_told_and_refused() {
    // Of a build that speaks versions 7 to 9, and of the one before this.
    for (theirs, hello) in [((7, 9), [7, 0, 9, 0]), ((3, 3), [3, 0, 3, 0])] {
        check_another_version(theirs, hello).await;
    }
}

async fn check_another_version(expected: (u16, u16), hello: [u8; 4]) {
    let bus = bus();
    let (b, mut b_events) = open(&bus, "b", 1).await;
    b.send("a", "x", "waits".into()).unwrap();
    let mut raw = Raw::new(&bus).await;
    raw.publish(raw.hello(hello));
    let event = next(&mut b_events).await;
    let Event::Unsupported { peer, theirs } = &event else { panic!("{event:?}") };
    assert_eq!((peer.node.as_str(), *theirs), ("a", expected));
    let (_, refusal) = raw.hears_a(Kind::Refuse).await;
    assert_eq!(versions(&refusal), Ok(VERSIONS), "the refusal says what we speak");
    let (c, _c_events) = open(&bus, "c", 1).await;
    c.send("b", "x", "news".into()).unwrap();
    let event = next(&mut b_events).await;
    assert!(matches!(&event, Event::Items { from, .. } if from.name() == "c"), "others are heard: {event:?}");
    b.drain(PATIENCE).await.unwrap();
    assert!(matches!(b.send("a", "x", Bytes::new()), Err(SessionError::Unsupported { .. })));
    // A later incarnation of the node may speak ours.
    let (a, mut a_events) = open(&bus, "a", 2).await;
    a.send("b", "x", "news".into()).unwrap();
    assert!(matches!(next(&mut b_events).await, Event::Items { .. }));
    b.send("a", "x", "more".into()).unwrap();
    assert!(matches!(next(&mut a_events).await, Event::Items { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_release_without_macs_is_refused_with_both_versions() {
    let bus = bus();
    let (b, _b_events) = open(&bus, "b", 1).await;
    let mut raw = Raw::new(&bus).await;
    raw.publish(raw.hello_without_mac([1, 0, 1, 0]));
    let (_, refusal) = raw.hears_a(Kind::Refuse).await;
    assert_eq!(versions(&refusal), Ok(VERSIONS), "it hears what we speak");
    assert_eq!(b.stats().frames_of_strangers, 1);
    let error = FrameError::Release { theirs: (1, 1), ours: VERSIONS }.to_string();
    let (from, to) = VERSIONS;
    let words = format!("speaks versions 1 to 1 of sessions, this one speaks {from} to {to}: run one release");
    assert!(error.contains(&words), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_anybody_can_have_refused_is_no_refusal_to_who_was_met() {
    let bus = bus();
    let (b, mut b_events) = open(&bus, "b", 1).await;
    let mut a = Raw::new(&bus).await;
    a.meet().await;
    // Somebody says hello as a release without MACs, and as the half that `a` is.
    for versions in [[1, 0, 1, 0], OURS] {
        a.publish(a.hello_without_mac(versions));
        let (header, refusal) = a.hears_a(Kind::Refuse).await;
        assert_eq!(header.to, ME);
        let believed = is_authentic(&refusal, a.opening.receiving(), Some(&MY_CHALLENGE));
        assert!(!believed, "a stranger has made a refusal of `b`");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // However often that is said, others hear who `b` is.
    for _ in 0..100 {
        a.publish(a.hello_without_mac([1, 0, 1, 0]));
    }
    let stale = a.data(1, 1, b"\0\x01x\x03old");
    a.peer.epoch -= 1;
    a.publish(a.data(1, 1, b"\0\x01x\x03old"));
    a.hears_a(Kind::Hello).await;
    a.publish(stale);
    assert_eq!(items(next(&mut b_events).await), [("x".into(), "old".into())]);
    assert_eq!(b.stats().frames_of_strangers, 102);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_who_speaks_a_version_of_ours_is_none() {
    let bus = bus();
    let (b, mut b_events) = open(&bus, "b", 1).await;
    b.send("a", "x", "waits".into()).unwrap();
    let mut a = Raw::new(&bus).await;
    let (header, hello) = a.hears_a(Kind::Hello).await;
    a.peer = header.from;
    let mut refusal = a.frame(Kind::Refuse, 0, 0, &[&OURS[..], &MY_CHALLENGE].concat());
    seal(&mut refusal, a.opening.sending(), Some(&challenge(&hello).unwrap()));
    a.publish(refusal.freeze());
    a.meet().await;
    a.publish(a.data(1, 1, b"\0\x01x\x02hi"));
    assert_eq!(items(next(&mut b_events).await), [("x".into(), "hi".into())]);
    a.hears_a(Kind::Data).await;
}

/// What a process of this name has once said to `b`, and somebody has recorded.
fn recorded_hello(bus: &Bus, name: &str) -> Bytes {
    let header = Header {
        version: 1,
        kind: Kind::Hello,
        gap: false,
        ack_now: false,
        from: ME,
        to: Half::NONE,
        seq: 0,
        ack: 0,
        credit_items: 0,
        credit_bytes: 0,
        items: 0,
    };
    let mut frame = BytesMut::zeroed(HEADER_BYTES);
    header.write(&mut frame);
    frame.extend_from_slice(&OURS);
    frame.extend_from_slice(&MY_CHALLENGE);
    let opening = Opening::new(bus.credentials(), subjects().prefix(), name, "b", Key::random()).unwrap();
    seal(&mut frame, opening.sending(), None);
    frame.freeze()
}

/// They talk, both ways.
async fn talk(one: (&Endpoint, &mut EndpointEvents), other: (&Endpoint, &mut EndpointEvents), text: &'static str) {
    for (from, to) in [(one.0, other.0), (other.0, one.0)] {
        from.send(&to.me().node, "x", text.into()).unwrap();
    }
    for events in [one.1, other.1] {
        let Event::Items { items, .. } = next(events).await else { panic!("no items") };
        assert_eq!(items, [("x".into(), Bytes::from(text))]);
    }
}

#[tokio::test(start_paused = true)]
async fn recorded_hellos_of_many_names_take_no_place_from_who_lives() {
    let bus = bus();
    // It was started anew: whoever speaks has never spoken to this one.
    let (b, mut b_events) = open(&bus, "b", 2).await;
    let (n1, mut n1_events) = open(&bus, "n1", 1).await;
    talk((&n1, &mut n1_events), (&b, &mut b_events), "before").await;
    for (prefix, others) in [("client-", 1), ("gone", 1 + 1024)] {
        for number in 0..2000 {
            let name = format!("{prefix}{number}");
            let hello = Message::new(recorded_hello(&bus, &name));
            bus.try_publish(subjects().session("b", &name).unwrap(), hello).unwrap();
            if number % 100 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(b.stats().peers, others + 1024, "{prefix}");
        assert_eq!(b.stats().frames_of_strangers, 0, "all of them are authentic");
    }
    // A node and a client that live find their places, and who was known has kept its own.
    let (n2, mut n2_events) = open(&bus, "n2", 1).await;
    talk((&n2, &mut n2_events), (&b, &mut b_events), "n2").await;
    let (client, mut client_events) = open(&bus, "client-new", 1).await;
    talk((&client, &mut client_events), (&b, &mut b_events), "client").await;
    talk((&n1, &mut n1_events), (&b, &mut b_events), "after").await;
    assert_eq!(b.stats().resets, 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_said_before_is_no_sign_of_life() {
    let bus = bus();
    let (b, mut b_events) = open(&bus, "b", 1).await;
    let mut a = Raw::new(&bus).await;
    a.meet().await;
    let said = [a.hello(OURS), a.data(1, 1, b"\0\x01x\x02hi"), {
        let mut ack = a.frame(Kind::Ack, 0, 0, &[]);
        seal(&mut ack, &a.keys.as_ref().unwrap().sending, None);
        ack.freeze()
    }];
    a.publish(said[1].clone());
    assert_eq!(items(next(&mut b_events).await), [("x".into(), "hi".into())]);
    // It dies; somebody repeats all that it has said, again and again.
    b.send("a", "x", "never read".into()).unwrap();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        said.iter().for_each(|frame| a.publish(frame.clone()));
    }
    let mut given_up = 0;
    while let Some(event) = b_events.try_recv() {
        match event {
            Event::Silent { .. } => assert_eq!(given_up, 0),
            Event::Reset { peer, reason } => {
                assert_eq!((peer.node.as_str(), reason), ("a", super::ResetReason::GivenUp));
                given_up += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(given_up, 1);
    b.drain(PATIENCE).await.expect("nothing waits for it any more");
}
