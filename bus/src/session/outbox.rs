//! What waits for one peer: items are written straight into the frame that will carry them. A frame closes when it is
//! full; one that is not full is taken as it is when the sender has nothing else to send.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::BytesMut;

use super::frame::{HEADER_BYTES, OVERHEAD_BYTES, put_varint};
use crate::auth::MAC_BYTES;

/// Most items in a frame; the least credit that a receiver may grant.
pub(crate) const FRAME_ITEMS_MAX: u32 = 8192;

/// How many actors of a frame are compared with an item's; one that is not found is named again.
const NAMES_SEARCHED_MAX: usize = 64;

/// A frame whose header is not written yet.
#[derive(Debug)]
pub(crate) struct Draft {
    /// `HEADER_BYTES` of room, then the items; the MAC is appended when it is sealed.
    pub(crate) bytes: BytesMut,
    pub(crate) items: u32,
}

impl Draft {
    pub(crate) fn body_bytes(&self) -> usize {
        self.bytes.len() - HEADER_BYTES
    }
}

/// Why an item was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// More than `queue_bytes_max` wait.
    Full { queued_bytes: usize },
    /// Larger than a frame can be.
    TooLarge { max_bytes: usize },
    /// The session is over: there may be another one.
    Over,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    closed: VecDeque<Draft>,
    open: Option<Draft>,
    /// Actors named in the open frame: where their text is. The latest is looked at first.
    named: Vec<Range<usize>>,
    queued_bytes: usize,
    queue_bytes_max: usize,
    frame_bytes_max: usize,
    payload_bytes_max: usize,
    /// The session is over, and takes nothing any more.
    over: bool,
    /// The latest incarnation of the peer that the session has met; 0: none.
    met: u64,
    /// The latest that was heard of otherwise: what is in here is for that one, or a later one.
    heard_of: u64,
}

impl Outbox {
    /// Frames are closed at `frame_bytes_max`; only an item larger than that makes one of up to `payload_bytes_max`.
    pub(crate) fn new(queue_bytes_max: usize, frame_bytes_max: usize, payload_bytes_max: usize) -> Self {
        let frame_bytes_max = frame_bytes_max.clamp(OVERHEAD_BYTES * 2, payload_bytes_max.max(OVERHEAD_BYTES * 2));
        Self {
            closed: VecDeque::new(),
            open: None,
            named: Vec::new(),
            queued_bytes: 0,
            queue_bytes_max,
            frame_bytes_max,
            payload_bytes_max,
            over: false,
            met: 0,
            heard_of: 0,
        }
    }

    /// The session has met this incarnation of the peer.
    pub(crate) fn meets(&mut self, incarnation: u64) {
        self.met = self.met.max(incarnation);
    }

    /// The peer is this incarnation by now, or a later one: what is queued for one that was met before it goes, and only that. Whether
    /// there was one.
    pub(crate) fn hears_of(&mut self, incarnation: u64) -> bool {
        let later = incarnation > self.met.max(self.heard_of);
        if later {
            self.heard_of = incarnation;
        }
        let over = later && self.met > 0;
        if over {
            self.clear();
        }
        over
    }

    /// The latest incarnation of the peer that was heard of otherwise.
    pub(crate) fn heard_of(&self) -> u64 {
        self.heard_of
    }

    /// Ends it with its session; what is queued goes.
    pub(crate) fn end(&mut self) {
        self.clear();
        self.over = true;
    }

    pub(crate) fn push(&mut self, actor: &str, item: &[u8]) -> Result<(), Refused> {
        if self.over {
            return Err(Refused::Over);
        }
        // Reference, length of the actor, length of the item: five bytes each at most.
        let most = actor.len() + item.len() + 15;
        if OVERHEAD_BYTES + most > self.payload_bytes_max {
            let max_bytes = self.payload_bytes_max.saturating_sub(OVERHEAD_BYTES + actor.len() + 15);
            return Err(Refused::TooLarge { max_bytes });
        }
        if self.queued_bytes + most > self.queue_bytes_max && self.queued_bytes > 0 {
            return Err(Refused::Full { queued_bytes: self.queued_bytes });
        }
        if let Some(open) = &self.open
            && (open.bytes.len() + most + MAC_BYTES > self.frame_bytes_max || open.items == FRAME_ITEMS_MAX)
        {
            self.closed.extend(self.open.take());
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                self.named.clear();
                let mut bytes = BytesMut::with_capacity((OVERHEAD_BYTES + most).next_power_of_two().max(1024));
                bytes.resize(HEADER_BYTES, 0);
                none.insert(Draft { bytes, items: 0 })
            }
        };
        let before = open.bytes.len();
        // The latest few only, or thousands of actors in one frame would cost their square.
        let named = self.named.iter().enumerate().rev().take(NAMES_SEARCHED_MAX);
        match named
            .map(|(index, range)| (index, &open.bytes[range.clone()]))
            .find(|(_, name)| *name == actor.as_bytes())
        {
            Some((index, _)) => put_varint(&mut open.bytes, index as u64 + 1),
            None => {
                put_varint(&mut open.bytes, 0);
                put_varint(&mut open.bytes, actor.len() as u64);
                let start = open.bytes.len();
                open.bytes.extend_from_slice(actor.as_bytes());
                self.named.push(start..open.bytes.len());
            }
        }
        put_varint(&mut open.bytes, item.len() as u64);
        open.bytes.extend_from_slice(item);
        open.items += 1;
        self.queued_bytes += open.bytes.len() - before;
        Ok(())
    }

    /// Items and body bytes of the next frame.
    pub(crate) fn next_size(&self) -> Option<(u32, usize)> {
        self.closed.front().or(self.open.as_ref()).map(|draft| (draft.items, draft.body_bytes()))
    }

    /// Takes the next frame, full or not.
    pub(crate) fn pop(&mut self) -> Option<Draft> {
        let draft = self.closed.pop_front().or_else(|| self.open.take())?;
        self.queued_bytes -= draft.body_bytes();
        Some(draft)
    }

    /// Body bytes of all that waits.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.open.is_none()
    }

    /// Throws everything away.
    pub(crate) fn clear(&mut self) {
        self.closed.clear();
        self.open = None;
        self.queued_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Actors, read_items};
    use super::*;

    fn items(draft: Draft) -> Vec<(String, Vec<u8>)> {
        let declared = draft.items;
        let body = draft.bytes.freeze().slice(HEADER_BYTES..);
        let (items, result) = read_items(&body, declared, &mut Actors::default());
        result.unwrap();
        items.into_iter().map(|(actor, bytes)| (actor.to_string(), bytes.to_vec())).collect()
    }

    #[test]
    fn items_of_several_actors_come_out_as_they_went_in() {
        let mut outbox = Outbox::new(1 << 20, 1 << 16, 1 << 20);
        let sent: Vec<(String, Vec<u8>)> =
            (0..100_u8).map(|i| (format!("owner-{}", i % 7), vec![i; usize::from(i) * 3])).collect();
        for (actor, item) in &sent {
            outbox.push(actor, item).unwrap();
        }
        assert_eq!(items(outbox.pop().unwrap()), sent);
        assert!(outbox.pop().is_none() && outbox.is_empty());
        assert_eq!(outbox.queued_bytes, 0);
    }

    #[test]
    fn a_frame_closes_when_it_is_full_and_a_large_item_gets_its_own() {
        let mut outbox = Outbox::new(1 << 20, 1024, 8192);
        for _ in 0..3 {
            outbox.push("a", &[1; 400]).unwrap();
        }
        outbox.push("a", &[2; 5000]).unwrap();
        outbox.push("a", &[3; 1]).unwrap();
        let counts: Vec<usize> = std::iter::from_fn(|| outbox.pop()).map(|draft| items(draft).len()).collect();
        assert_eq!(counts, [2, 1, 1, 1]);
    }

    #[test]
    fn a_full_queue_and_an_item_that_no_frame_holds_are_refused() {
        let mut outbox = Outbox::new(1000, 512, 2048);
        assert_eq!(outbox.push("a", &[0; 2048]), Err(Refused::TooLarge { max_bytes: 2048 - OVERHEAD_BYTES - 1 - 15 }));
        outbox.push("a", &[0; 900]).unwrap();
        assert!(matches!(outbox.push("a", &[0; 100]), Err(Refused::Full { .. })));
        outbox.pop().unwrap();
        outbox.push("a", &[0; 100]).unwrap();
    }
}
