//! What bytes of strangers reach in this crate, as functions for fuzzing: none may panic, whatever the bytes.

use std::time::Duration;

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::codec;
pub use crate::inproc::fuzzing::{open_stream_file, saved_rows, stream_files, stream_record, stream_rows};
use crate::message::Headers;
use crate::session::{frame, outbox::Outbox, state::Session, terms};
use crate::subject::{Pattern, Subject, Subjects};

/// A value in the codec, of whatever shape.
pub fn value(bytes: &[u8]) {
    let known = codec::check(bytes).is_ok();
    let any = codec::decode::<IgnoredAny>(bytes);
    assert!(known || any.is_err(), "what is not checked is not decoded");
    let _ = codec::decode::<Headers>(bytes);
    let _ = codec::decode::<Vec<(u64, String)>>(bytes);
}

/// With the right checksum: what is behind it is to be reached, too.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    if frame.len() >= frame::HEADER_BYTES {
        frame::seal(&mut frame);
    }
    frame
}

/// A frame of a session, and its items.
pub fn session_frame(bytes: &[u8]) {
    let _ = frame::Header::read(bytes);
    let bytes = &sealed(bytes)[..];
    let Ok(header) = frame::Header::read(bytes) else { return };
    let _ = frame::versions(bytes);
    let body = Bytes::copy_from_slice(&bytes[frame::HEADER_BYTES..]);
    let (items, _) = frame::read_items(&body, header.items, &mut frame::Actors::default());
    assert!(items.len() <= body.len() / 2, "an item has two bytes at least");
}

/// Frames, one after the other, to a session: each is preceded by its length, two bytes.
pub fn session(mut bytes: &[u8]) {
    let mut session = Session::new(7, terms::Settings::tight(), true);
    let mut outbox = Outbox::new(100_000, 300, 4096);
    let (mut effects, mut now) = (Vec::new(), Duration::ZERO);
    let mut actors = frame::Actors::default();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let (one, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        bytes = rest;
        now += Duration::from_millis(30);
        let _ = session.on_frame(now, &Bytes::from(sealed(one)), &mut outbox, &mut effects);
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
    let versions = [1, 0, 1, 0].to_vec();
    let frame = |kind, to, seq, items, body: &[u8]| {
        let header = frame::Header {
            version: 1,
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
