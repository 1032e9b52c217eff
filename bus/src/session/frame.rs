//! What travels: one message on a subject of sessions ([`Subjects::session`](crate::Subjects::session)) is one frame: a header of 68 bytes, a body, a MAC of 16 bytes.
//!
//! | bytes  | field                                                                          |
//! |--------|--------------------------------------------------------------------------------|
//! | 0      | magic `0xe5`                                                                   |
//! | 1      | version of the layout of the body                                              |
//! | 2      | kind: 0 hello, 1 welcome, 2 refuse, 3 data, 4 ack, 5 bye                       |
//! | 3      | flags: bit 0 "a frame is missing here", bit 1 "acknowledge at once"            |
//! | 4..16  | half of the sender: incarnation u64, epoch u32                                 |
//! | 16..28 | half of the receiver as the sender knows it; zero in a hello                   |
//! | 28..36 | data: number of the frame, from 1                                              |
//! | 36..44 | all frames up to this number have arrived here                                 |
//! | 44..52 | credit: so many items in all may be sent here                                  |
//! | 52..60 | credit: so many body bytes in all may be sent here                             |
//! | 60..64 | data: how many items the body holds                                            |
//! | 64..68 | CRC-32 of all other bytes of the frame                                        |
//! | 68..   | data: items; hello, welcome, refuse: lowest and highest version spoken, u16 each, and the sender's challenge, 16 bytes |
//! | last 16 | MAC of all other bytes but the checksum (`session/opening.rs`)                 |
//!
//! Numbers are little-endian. An item is: actor, length (varint), bytes. The actor is a varint: 0 and then length
//! (varint) and text, which enters the frame's own table; n > 0 for the n-th entry of that table. Nothing refers to
//! another frame, so a frame can be sent again as it is. Sending node and receiving node are named by the subject
//! only, where the server's permissions can check them; the MAC binds them. Header and hello keep their layout for ever. (Before version
//! 2 of the body there were neither challenges nor MACs.)
//!
//! The checksum tells damage from forgery: a frame whose checksum is wrong was garbled on its way, one whose MAC is wrong was made by
//! who does not know the key.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::Item;
use crate::auth::{Key, MAC_BYTES};
use crate::subject::check_token;

/// Bytes before the body.
pub(crate) const HEADER_BYTES: usize = 68;
const CHECKSUM_AT: usize = 64;
/// Of the challenge in a hello, a welcome and a refusal.
const CHALLENGE_AT: usize = HEADER_BYTES + 4;
/// What a frame has beside its body.
pub(crate) const OVERHEAD_BYTES: usize = HEADER_BYTES + MAC_BYTES;
/// Those of this release take 104 bytes.
const GREETING_BYTES_MAX: usize = 256;
const MAGIC: u8 = 0xe5;
const FLAG_GAP: u8 = 1;
const FLAG_ACK_NOW: u8 = 2;

/// One side of a session: a process, and how often it started this session anew. Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Half {
    pub(crate) incarnation: u64,
    pub(crate) epoch: u32,
}

impl Half {
    /// Nobody yet.
    pub(crate) const NONE: Self = Self { incarnation: 0, epoch: 0 };
}

/// What makes one half of a session unlike any other.
pub(crate) type Challenge = [u8; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// "I am here; who are you?"
    Hello,
    /// Answer to a hello.
    Welcome,
    /// Answer to a hello: no version in common.
    Refuse,
    /// Items.
    Data,
    /// Acknowledgement and credit only.
    Ack,
    /// "I leave": nothing follows, and nothing need be kept.
    Bye,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) version: u8,
    pub(crate) kind: Kind,
    pub(crate) gap: bool,
    pub(crate) ack_now: bool,
    pub(crate) from: Half,
    pub(crate) to: Half,
    pub(crate) seq: u64,
    pub(crate) ack: u64,
    pub(crate) credit_items: u64,
    pub(crate) credit_bytes: u64,
    pub(crate) items: u32,
}

/// Why a frame, or the rest of its items, cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than a header, or another magic byte.
    #[error("no frame of a session")]
    NotAFrame,
    /// It is not what was sent.
    #[error("frame with another checksum than it was sent with")]
    Checksum,
    /// A kind, half or length that nothing produces.
    #[error("frame header makes no sense: {0}")]
    Header(&'static str),
    /// A layout of the body that was not agreed on.
    #[error("frame of version {0}")]
    Version(u8),
    /// A greeting of another release, which cannot prove what we ask for.
    #[error(
        "a greeting of a release that speaks versions {} to {} of sessions, this one speaks {} to {}: run one release on all \
         nodes and clients", theirs.0, theirs.1, ours.0, ours.1
    )]
    Release {
        /// Its lowest and highest version.
        theirs: (u16, u16),
        /// Ours.
        ours: (u16, u16),
    },
    /// The MAC is not what the token makes: nobody knows who sent it.
    #[error("not authentic: who sent it does not know the token that goes with its name")]
    NotAuthentic,
    /// The body breaks off or breaks its own rules at this byte.
    #[error("items cannot be read from byte {at} of the body: {why}")]
    Items {
        /// Offset in the body.
        at: usize,
        /// What is wrong there.
        why: &'static str,
    },
}

impl FrameError {
    /// Whether nobody knows who sent the frame.
    pub fn is_strangers(&self) -> bool {
        !matches!(self, Self::Items { .. } | Self::Version(_))
    }
}

/// Of a frame, without the place where it stands.
fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[..CHECKSUM_AT]);
    hasher.update(&frame[HEADER_BYTES..]);
    hasher.finalize()
}

/// Ends a frame, header and body: appends its MAC, and puts its checksum into the header. Nothing in it may change after. `answers`
/// is the challenge that a welcome or a refusal answers.
///
/// # Panics
/// It is shorter than a header.
pub(crate) fn seal(frame: &mut BytesMut, key: &Key, answers: Option<&Challenge>) {
    let mac = key.mac(&authenticated(frame, answers));
    frame.extend_from_slice(&mac);
    let checksum = checksum(frame);
    frame[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// Makes the checksum fit whatever is in the frame, as who forges one does.
#[cfg(test)]
pub(super) fn fix_checksum(frame: &mut [u8]) {
    let checksum = checksum(frame);
    frame[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// Whether who has sealed this frame knows the key.
pub(crate) fn is_authentic(frame: &[u8], key: &Key, answers: Option<&Challenge>) -> bool {
    if frame.len() < OVERHEAD_BYTES {
        return false;
    }
    let (frame, mac) = frame.split_at(frame.len() - MAC_BYTES);
    key.verifies(&authenticated(frame, answers), mac)
}

/// Whether who has sealed this greeting, or answer to one, knows the key. What is longer than any that there will be is none, and not
/// worth the MAC of all its bytes: anybody may send one.
pub(crate) fn is_authentic_greeting(frame: &[u8], key: &Key, answers: Option<&Challenge>) -> bool {
    frame.len() <= GREETING_BYTES_MAX && is_authentic(frame, key, answers)
}

/// What the MAC of a frame is made of. Who verifies it knows whether it is to answer a challenge: a welcome and a refusal that count do.
fn authenticated<'a>(frame: &'a [u8], answers: Option<&'a Challenge>) -> [&'a [u8]; 3] {
    let challenge = answers.map_or(&[][..], |challenge| &challenge[..]);
    [&frame[..CHECKSUM_AT], challenge, &frame[HEADER_BYTES..]]
}

/// The body of a frame that is authentic.
///
/// # Panics
/// It is shorter than a header and a MAC.
pub(crate) fn body(frame: &Bytes) -> Bytes {
    frame.slice(HEADER_BYTES..frame.len() - MAC_BYTES)
}

impl Header {
    pub(crate) fn write(&self, out: &mut [u8]) {
        out[0] = MAGIC;
        out[1] = self.version;
        out[2] = match self.kind {
            Kind::Hello => 0,
            Kind::Welcome => 1,
            Kind::Refuse => 2,
            Kind::Data => 3,
            Kind::Ack => 4,
            Kind::Bye => 5,
        };
        out[3] = u8::from(self.gap) * FLAG_GAP + u8::from(self.ack_now) * FLAG_ACK_NOW;
        out[4..12].copy_from_slice(&self.from.incarnation.to_le_bytes());
        out[12..16].copy_from_slice(&self.from.epoch.to_le_bytes());
        out[16..24].copy_from_slice(&self.to.incarnation.to_le_bytes());
        out[24..28].copy_from_slice(&self.to.epoch.to_le_bytes());
        out[28..36].copy_from_slice(&self.seq.to_le_bytes());
        out[36..44].copy_from_slice(&self.ack.to_le_bytes());
        out[44..52].copy_from_slice(&self.credit_items.to_le_bytes());
        out[52..60].copy_from_slice(&self.credit_bytes.to_le_bytes());
        out[60..64].copy_from_slice(&self.items.to_le_bytes());
    }

    pub(crate) fn read(frame: &[u8]) -> Result<Self, FrameError> {
        let Some(bytes) = frame.first_chunk::<HEADER_BYTES>().filter(|bytes| bytes[0] == MAGIC) else {
            return Err(FrameError::NotAFrame);
        };
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
        let short = |at: usize| bytes[at..].first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk));
        if short(CHECKSUM_AT) != checksum(frame) {
            return Err(FrameError::Checksum);
        }
        let kind = match bytes[2] {
            0 => Kind::Hello,
            1 => Kind::Welcome,
            2 => Kind::Refuse,
            3 => Kind::Data,
            4 => Kind::Ack,
            5 => Kind::Bye,
            _ => return Err(FrameError::Header("unknown kind")),
        };
        let header = Self {
            version: bytes[1],
            kind,
            gap: bytes[3] & FLAG_GAP != 0,
            ack_now: bytes[3] & FLAG_ACK_NOW != 0,
            from: Half { incarnation: long(4), epoch: short(12) },
            to: Half { incarnation: long(16), epoch: short(24) },
            seq: long(28),
            ack: long(36),
            credit_items: long(44),
            credit_bytes: long(52),
            items: short(60),
        };
        if header.from.epoch == 0 {
            return Err(FrameError::Header("nobody sent it"));
        }
        if (header.kind == Kind::Hello) != (header.to == Half::NONE) {
            return Err(FrameError::Header("addressed to nobody"));
        }
        if (header.kind == Kind::Data) != (header.seq > 0) {
            return Err(FrameError::Header("number of frame"));
        }
        Ok(header)
    }
}

/// Lowest and highest version, the body of hello, welcome and refuse.
pub(crate) fn versions(frame: &[u8]) -> Result<(u16, u16), FrameError> {
    match frame.get(HEADER_BYTES..HEADER_BYTES + 4) {
        Some(&[a, b, c, d]) => Ok((u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))),
        _ => Err(FrameError::Header("no versions")),
    }
}

/// The sender's challenge, after the versions.
pub(crate) fn challenge(frame: &[u8]) -> Result<Challenge, FrameError> {
    let challenge = frame.get(CHALLENGE_AT..).and_then(<[u8]>::first_chunk);
    challenge.copied().ok_or(FrameError::Header("no challenge"))
}

/// Appends a varint: 7 bits a byte, lowest first.
pub(crate) fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.extend_from_slice(&[value as u8 | 0x80]);
        value >>= 7;
    }
    out.extend_from_slice(&[value as u8]);
}

fn varint(body: &[u8], at: &mut usize) -> Result<usize, FrameError> {
    let start = *at;
    let mut value = 0_u64;
    // Five bytes are enough for every length that fits in a message.
    for shift in (0..35).step_by(7) {
        let Some(&byte) = body.get(*at) else { break };
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value as usize);
        }
    }
    Err(FrameError::Items { at: start, why: "a number without end" })
}

/// Actor tokens seen, so that equal ones share memory. Bounded, since peers choose them.
#[derive(Default)]
pub(crate) struct Actors {
    known: HashMap<Box<str>, Arc<str>>,
}

impl Actors {
    const KNOWN_MAX: usize = 512;

    fn intern(&mut self, actor: &str) -> Arc<str> {
        if let Some(known) = self.known.get(actor) {
            return known.clone();
        }
        if self.known.len() >= Self::KNOWN_MAX {
            self.known.clear();
        }
        let shared: Arc<str> = actor.into();
        self.known.insert(actor.into(), shared.clone());
        shared
    }
}

/// Reads the items of a body. What comes before a broken one is returned with the error.
pub(crate) fn read_items(body: &Bytes, declared: u32, actors: &mut Actors) -> (Vec<Item>, Result<(), FrameError>) {
    // An item takes two bytes at least, so a declared count is never trusted beyond what is there.
    let mut items = Vec::with_capacity((declared as usize).min(body.len() / 2));
    let mut table: Vec<Arc<str>> = Vec::new();
    let mut at = 0;
    while at < body.len() {
        match read_item(body, &mut at, &mut table, actors) {
            Ok(item) => items.push(item),
            Err(error) => return (items, Err(error)),
        }
    }
    let whole = items.len() == declared as usize;
    let result =
        if whole { Ok(()) } else { Err(FrameError::Items { at, why: "another number of items than declared" }) };
    (items, result)
}

fn read_item(body: &Bytes, at: &mut usize, table: &mut Vec<Arc<str>>, actors: &mut Actors) -> Result<Item, FrameError> {
    let start = *at;
    let bad = |why| FrameError::Items { at: start, why };
    let take = |at: &mut usize| {
        let bytes = varint(body, at)?;
        let range = *at..at.saturating_add(bytes);
        if range.end > body.len() {
            return Err(bad("longer than the frame"));
        }
        *at = range.end;
        Ok(range)
    };
    let reference = varint(body, at)?;
    let actor = if reference == 0 {
        let range = take(at)?;
        let text = std::str::from_utf8(&body[range]).map_err(|_| bad("actor is no text"))?;
        check_token(text).map_err(|_| bad("actor is no token"))?;
        let actor = actors.intern(text);
        table.push(actor.clone());
        actor
    } else {
        table.get(reference - 1).cloned().ok_or(bad("actor was not named before"))?
    };
    let range = take(at)?;
    Ok((actor, body.slice(range)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header and hello are those of every release, so that one is understood that speaks no version of ours.
    #[test]
    fn the_stored_sample_is_what_is_written_and_read() {
        let (hello, data) = (
            &include_bytes!("../../tests/samples/session-hello-1.bin")[..],
            &include_bytes!("../../tests/samples/session-5.bin")[..],
        );
        let key = Key::from_text("exobus test of frames", "a token");
        let header = Header {
            version: 1,
            kind: Kind::Hello,
            gap: false,
            ack_now: false,
            from: Half { incarnation: 7, epoch: 1 },
            to: Half::NONE,
            seq: 0,
            ack: 0,
            credit_items: 100,
            credit_bytes: 1000,
            items: 0,
        };
        let check = |header: Header, body: &[u8], stored: &'static [u8]| {
            let mut frame = BytesMut::zeroed(HEADER_BYTES);
            header.write(&mut frame);
            frame.extend_from_slice(body);
            seal(&mut frame, &key, None);
            assert!(frame == stored, "other bytes than in the sample");
            let stored = Bytes::from_static(stored);
            assert_eq!(Header::read(&stored), Ok(header));
            assert!(is_authentic(&stored, &key, None));
            stored
        };
        let greeting = check(header, &[&[2, 0, 9, 0][..], &[7; 16]].concat(), hello);
        assert_eq!((versions(&greeting), challenge(&greeting)), (Ok((2, 9)), Ok([7; 16])));
        let current = super::super::state::VERSIONS.1;
        assert_eq!(current, 5, "another version has a sample of its own");
        let to = Half { incarnation: 9, epoch: 2 };
        let header = Header { version: 5, kind: Kind::Data, to, seq: 3, ack: 2, items: 2, ..header };
        let said = check(header, &[0, 1, b'a', 2, 5, 6, 1, 1, 7], data);
        let (items, whole) = read_items(&body(&said), 2, &mut Actors::default());
        let items: Vec<_> = items.iter().map(|(actor, item)| (&**actor, &item[..])).collect();
        assert_eq!((items, whole), (vec![("a", &[5, 6][..]), ("a", &[7])], Ok(())));
    }

    #[test]
    fn a_flipped_bit_anywhere_makes_it_no_frame() {
        let half = |incarnation| Half { incarnation, epoch: 1 };
        let header = Header {
            version: 1,
            kind: Kind::Data,
            gap: false,
            ack_now: false,
            from: half(7),
            to: half(9),
            seq: 3,
            ack: 2,
            credit_items: 100,
            credit_bytes: 1000,
            items: 1,
        };
        let mut frame = BytesMut::zeroed(HEADER_BYTES);
        header.write(&mut frame);
        frame.extend_from_slice(&[0, 1, b'a', 2, 5, 6]);
        let key = Key::random();
        seal(&mut frame, &key, None);
        assert_eq!(Header::read(&frame), Ok(header));
        assert!(is_authentic(&frame, &key, None));
        assert!(!is_authentic(&frame, &Key::random(), None), "under another key");
        assert!(!is_authentic(&frame, &key, Some(&[0; 16])), "as the answer to a challenge");
        let sealed = |body_bytes: usize| {
            let mut frame = BytesMut::zeroed(HEADER_BYTES + body_bytes);
            seal(&mut frame, &key, None);
            frame
        };
        assert!(is_authentic_greeting(&sealed(100), &key, None));
        assert!(!is_authentic_greeting(&sealed(1000), &key, None), "longer than any greeting");
        for bit in 0..frame.len() * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::read(&frame).is_err(), "bit {bit}");
            let forged = !(CHECKSUM_AT * 8..HEADER_BYTES * 8).contains(&bit);
            assert_eq!(is_authentic(&frame, &key, None), !forged, "bit {bit}");
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..frame.len() {
            assert!(Header::read(&frame[..length]).is_err(), "cut after {length} bytes");
            assert!(!is_authentic(&frame[..length], &key, None), "cut after {length} bytes");
        }
    }
}
