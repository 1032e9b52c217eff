//! What bytes of strangers reach in this crate, as functions for fuzzing: none may panic, whatever the bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde::de::IgnoredAny;

use crate::auth::{Credentials, Key};
use crate::codec;
pub use crate::inproc::fuzzing::{open_stream_file, saved_rows, stream_files, stream_record, stream_rows};
use crate::message::Headers;
use crate::session::{Peer, frame, opening::Opening, outbox::Outbox, state::Session, terms};
use crate::subject::{Pattern, Subject, Subjects};

/// A value in the codec, of whatever shape.
pub fn value(bytes: &[u8]) {
    let known = codec::check(bytes).is_ok();
    let any = codec::decode::<IgnoredAny>(bytes);
    assert!(known || any.is_err(), "what is not checked is not decoded");
    let _ = codec::decode::<Headers>(bytes);
    let _ = codec::decode::<Vec<(u64, String)>>(bytes);
}

/// A frame of a session, and its items.
pub fn session_frame(bytes: &[u8]) {
    let _ = frame::Header::read(bytes);
    if bytes.len() < frame::HEADER_BYTES {
        return;
    }
    // With the right checksum and MAC: what is behind them is to be reached, too.
    let key = Key::from_text("fuzzing", "fuzzing");
    let mut sealed = BytesMut::from(bytes);
    frame::seal(&mut sealed, &key, None);
    let sealed = sealed.freeze();
    assert!(frame::is_authentic(&sealed, &key, None));
    let Ok(header) = frame::Header::read(&sealed) else { return };
    let _ = (frame::versions(&sealed), frame::challenge(&sealed));
    let body = frame::body(&sealed);
    let (items, _) = frame::read_items(&body, header.items, &mut frame::Actors::default());
    assert!(items.len() <= body.len() / 2, "an item has two bytes at least");
}

/// What is sealed outside of sessions: beats, questions and answers.
pub fn sealed_message(bytes: &[u8]) {
    let credentials = Credentials::open();
    let Ok(subjects) = Subjects::new("fuzz") else { return };
    let (Ok(beat), Ok(place)) = (subjects.node("n1", "beat"), subjects.ctl("scheduler", "where")) else { return };
    let me = Peer { node: "n1".to_owned(), incarnation: 1 };
    let Ok((question, _)) = credentials.ask(&place, &me, &()) else { return };
    let _ = credentials.unseal::<IgnoredAny>(&beat, bytes);
    let _ = credentials.asked::<IgnoredAny>(&place, bytes);
    let _ = credentials.answered::<IgnoredAny>(&question, bytes);
}

/// One of each: seeds for [`sealed_message`].
///
/// # Panics
/// They cannot be made.
pub fn sealed_messages() -> Vec<Vec<u8>> {
    let credentials = Credentials::open();
    let subjects = Subjects::new("fuzz").expect("a token");
    let (beat, place) =
        (subjects.node("n1", "beat").expect("a token"), subjects.ctl("scheduler", "where").expect("tokens"));
    let me = Peer { node: "n1".to_owned(), incarnation: 1 };
    let (_, question) = credentials.ask(&place, &me, &7).expect("it is small");
    let asked = credentials.asked::<u64>(&place, &question).expect("it was made here");
    let answer = credentials.answer(&asked, &me, &"n1").expect("it is small");
    let other = Credentials::node(Some("another token of this length"), None);
    let Err(crate::auth::MessageError::NotBelieved(denied)) = other.asked::<u64>(&place, &question) else {
        panic!("a token that everybody knows is taken for another one");
    };
    let sealed = credentials.seal(&beat, &1).expect("it is small");
    [sealed, question, answer, Credentials::deny(denied)].map(Vec::from).into()
}

/// Frames, one after the other, to a session: each is preceded by its length, two bytes.
pub fn session(mut bytes: &[u8]) {
    let key = || Key::from_text("fuzzing", "fuzzing");
    let Some(opening) = Opening::new(&Credentials::open(), "exo.v1.fuzz", "me", "peer", key()) else { return };
    let theirs = opening.mirrored(key());
    let mut session = Session::new(7, terms::Settings::tight(), Arc::new(opening), true);
    let mut outbox = Outbox::new(100_000, 300, 4096);
    let (mut effects, mut now) = (Vec::new(), Duration::ZERO);
    let mut actors = frame::Actors::default();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let (one, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        bytes = rest;
        now += Duration::from_millis(30);
        let as_it_is = Bytes::copy_from_slice(one);
        let _ = session.on_frame(now, &as_it_is, &mut outbox, &mut effects);
        if one.len() >= frame::HEADER_BYTES {
            let sealed = session.seal_as_peer(&theirs, BytesMut::from(one));
            let _ = session.on_frame(now, &sealed, &mut outbox, &mut effects);
        }
        for effect in effects.drain(..) {
            if let terms::Effect::Deliver { body, items, .. } = effect {
                let _ = frame::read_items(&body, items, &mut actors);
            }
        }
        session.on_time(now, &outbox, &mut effects);
        session.pump(now, &mut outbox, terms::Consumed::default(), &mut effects);
    }
}

/// A subject, a pattern, and what of the cluster they name.
pub fn subject(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let pattern = Pattern::parse(text);
    let Ok(subject) = Subject::parse(text) else { return };
    assert_eq!(subject.as_str(), text);
    if let (Ok(pattern), Ok(subjects)) = (pattern, Subjects::new("fuzz")) {
        assert!(pattern.matches(&subject), "a subject is a pattern of itself");
        let _ = subjects.parse(&subject);
    }
}

/// A greeting and its answers, and a frame with two items: seeds.
pub fn frames() -> Vec<Vec<u8>> {
    let (me, peer) = (frame::Half { incarnation: 7, epoch: 1 }, frame::Half { incarnation: 9, epoch: 1 });
    let items = [&[0, 5][..], b"owner", &[3, 1, 2, 3, 1, 2, 8, 9]].concat();
    let versions = [&[2, 0, 2, 0][..], &[7; 16]].concat();
    let frame = |kind, to, seq, items, body: &[u8]| {
        let header = frame::Header {
            version: if matches!(kind, frame::Kind::Data | frame::Kind::Ack) { 2 } else { 1 },
            kind,
            gap: false,
            ack_now: false,
            from: peer,
            to,
            seq,
            ack: 0,
            credit_items: 40,
            credit_bytes: 1500,
            items,
        };
        let mut bytes = vec![0; frame::HEADER_BYTES];
        header.write(&mut bytes);
        bytes.extend_from_slice(body);
        bytes
    };
    vec![
        frame(frame::Kind::Hello, frame::Half::NONE, 0, 0, &versions),
        frame(frame::Kind::Welcome, me, 0, 0, &versions),
        frame(frame::Kind::Data, me, 1, 2, &items),
        frame(frame::Kind::Ack, me, 0, 0, &[]),
        frame(frame::Kind::Refuse, me, 0, 0, &versions),
    ]
}
