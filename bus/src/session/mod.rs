//! Reliable messages between processes.
//!
//! An [`Endpoint`] is a process's end of all its sessions. What is sent to a node arrives there exactly once and in
//! order, as long as both processes live and neither [forgets](Endpoint::forget) the other; otherwise both learn of it
//! by [`Event::Reset`] and must exchange their full state, since an unknown end of what was sent is lost. Delivered is
//! not accepted: the receiving actor may still die before it acts.
//!
//! - Sending never blocks. Items queue per peer, up to [`SessionOptions::queue_bytes_max`], then `QueueFull`.
//! - Items travel in frames (layout: `session/frame.rs`). A frame is closed when there is nothing more to put into it or it is
//!   full, never by a timer: it goes out as soon as the session's task runs. At most 64 frames are unacknowledged.
//! - Acknowledgements ride on data frames; alone they go after 16 frames or [`SessionOptions::ack_delay`].
//! - The receiver grants credit in items and bytes by reading its events, so events never pile up without bound.
//! - What is lost is sent again after a timeout, a complaint of the receiver, or a reconnect (rules: `session/state.rs`).
//! - A session ends, and nothing of it stays, when the peer [says goodbye](Endpoint::leave), or has said nothing new for
//!   [`SessionOptions::forget_after`]. When one of both speaks again, they begin another one, whose halves have later epochs; what an
//!   old one had not delivered is lost, with [`Event::Reset`] where there was something.
//! - An item that cannot be read arrives as [`Event::Undecodable`]; its frame is acknowledged like any other.
//! - The first frames settle the version of the layout; no version in common is [`Event::Unsupported`].
//! - Both sides prove that they know the token that goes with their names ([`crate::auth`], [`Bus::with_credentials`]), and each frame that it is of this session
//!   (`session/opening.rs`). What does not is counted, logged once a minute, and changes nothing.
//!
//! Heartbeats do not belong here: a repeated heartbeat is worth nothing, so they are published plainly.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use exobus_bus::session::{Endpoint, Event, Peer, SessionOptions};
//! use exobus_bus::{Bus, Subjects};
//!
//! let (bus, subjects) = (Bus::in_process(), Subjects::new("docs").unwrap());
//! let me = |node: &str| Peer { node: node.to_owned(), incarnation: 1 };
//! let options = SessionOptions::default();
//! let (a, _) = Endpoint::open(bus.clone(), subjects.clone(), me("a"), options.clone()).await.unwrap();
//! let (_b, mut events) = Endpoint::open(bus, subjects, me("b"), options).await.unwrap();
//! a.send("b", "owner-7", "hello".into()).unwrap();
//! let Some(Event::Items { from, items }) = events.recv().await else { panic!("no items") };
//! assert_eq!(from.name(), "a");
//! assert_eq!(items, [("owner-7".into(), "hello".into())]);
//! # })
//! ```

mod driver;
mod endpoint;
pub(crate) mod frame;
pub(crate) mod opening;
pub(crate) mod outbox;
#[cfg(test)]
mod raw_tests;
pub(crate) mod state;
pub(crate) mod terms;
#[cfg(test)]
mod world_tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use endpoint::{Endpoint, EndpointEvents};
pub use frame::FrameError;
pub use terms::ResetReason;

#[cfg(doc)]
use crate::Bus;
use crate::auth::Speaker;
use crate::subject::SubjectError;

/// A process in the role of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// The node's token.
    pub node: String,
    /// Greater with every process that runs under this name; 0 when it is not known yet.
    pub incarnation: u64,
}

/// Settings of an [`Endpoint`]. The defaults do.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Bytes that may wait for one peer before `QueueFull`. Default 64 MiB.
    pub queue_bytes_max: usize,
    /// A frame is closed at this size; larger frames pass more bytes per message, smaller ones wait less. An item
    /// larger than it travels alone. Default 64 KiB.
    pub frame_bytes_max: usize,
    /// Items that one peer may send beyond what was read here. Default 65 536, at least 8192.
    pub credit_items: u64,
    /// Bytes that one peer may send beyond what was read here. Default 16 MiB, at least the bus's payload limit.
    pub credit_bytes: u64,
    /// Bytes of frames that may wait until the endpoint looks at them, of all peers and of strangers together; more are dropped, and sent
    /// again by who is honest. Default 8 MiB, at least two of the bus's largest payloads.
    pub inbox_bytes_max: usize,
    /// How long an acknowledgement waits for a data frame to ride on. Default 5 ms.
    pub ack_delay: Duration,
    /// First and shortest wait before sending again; measured round trips make it longer. Default 100 ms.
    pub retry_min: Duration,
    /// Longest wait before sending again. Default 500 ms, so that sessions go on within a second after an outage.
    pub retry_max: Duration,
    /// [`Event::Silent`] after a peer that owes an answer has said nothing new for so long. Default 3 s.
    pub silent_after: Duration,
    /// A peer that has said nothing new for so long while there was a connection is forgotten, with what was queued for it: clients come
    /// and go, and not all say goodbye. What it has said before is nothing new, as anybody can repeat it, so one that has read nothing for
    /// so long, and thus acknowledges and grants what it did, is forgotten as well. Who speaks again is met anew. Default 2 min, far more
    /// than it takes to hold a node dead.
    pub forget_after: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            queue_bytes_max: 64 * 1024 * 1024,
            frame_bytes_max: 64 * 1024,
            credit_items: 65_536,
            credit_bytes: 16 * 1024 * 1024,
            inbox_bytes_max: 8 * 1024 * 1024,
            ack_delay: Duration::from_millis(5),
            retry_min: Duration::from_millis(100),
            retry_max: Duration::from_millis(500),
            silent_after: Duration::from_secs(3),
            forget_after: Duration::from_secs(120),
        }
    }
}

/// An item: the actor that it is for, and its bytes.
pub type Item = (Arc<str>, Bytes);

/// What an endpoint receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Items, in the order in which they were sent. The bytes share the memory of their frame.
    Items {
        /// Who sent them, proven.
        from: Speaker,
        /// Actor and bytes of each; never empty.
        items: Vec<Item>,
    },
    /// The rest of a frame could not be read; it will not come again. What came before it was delivered.
    Undecodable {
        /// Who sent it, proven.
        from: Speaker,
        /// What is wrong with it.
        error: FrameError,
    },
    /// An unknown end of what was sent to this peer before is lost: exchange the full state.
    Reset {
        /// The peer as it is now.
        peer: Peer,
        /// Why.
        reason: ResetReason,
    },
    /// A peer that owes an answer says nothing new; told once per silence. What is queued for it stays queued.
    Silent {
        /// Who.
        peer: Peer,
        /// For how long.
        since: Duration,
    },
    /// The peer speaks no version of ours; what was queued for it is gone, and sending fails until a later
    /// incarnation of it speaks.
    Unsupported {
        /// Who.
        peer: Peer,
        /// Its lowest and highest version.
        theirs: (u16, u16),
    },
}

/// Why an item was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// Node or actor is no token.
    #[error(transparent)]
    Name(#[from] SubjectError),
    /// Too much waits for that peer. Nothing was queued; try again when it has caught up, or give it up.
    #[error("{queued_bytes} bytes wait for node {node}, at most {max_bytes} may")]
    QueueFull {
        /// The peer's token.
        node: String,
        /// Bytes that wait.
        queued_bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// The item fits in no message of this bus.
    #[error("item of {bytes} bytes for node {node}, at most {max_bytes} are allowed")]
    ItemTooLarge {
        /// The peer's token.
        node: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// The peer speaks no version of ours.
    #[error(
        "node {node} speaks another version of sessions, as was said when it was met: run one release on all nodes and clients"
    )]
    Unsupported {
        /// The peer's token.
        node: String,
    },
    /// A node does not send to itself; hand the item over directly.
    #[error("node {node} sends to itself")]
    ToSelf {
        /// Our own token.
        node: String,
    },
    /// Two submitters have no token in common.
    #[error("{node} is a submitter as this process is; the two do not talk")]
    NoToken {
        /// The peer's token of subjects.
        node: String,
    },
    /// Not everything was acknowledged before the deadline.
    #[error("{items} items were not acknowledged within {after:?}")]
    NotDrained {
        /// Frames in flight, and 1 for each peer with something queued.
        items: usize,
        /// The deadline.
        after: Duration,
    },
    /// The endpoint was closed.
    #[error("the endpoint is closed")]
    Closed,
}

/// Counters of an endpoint, all peers together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Peers known.
    pub peers: u64,
    /// Data frames sent for the first time.
    pub frames_sent: u64,
    /// Data frames sent again.
    pub frames_resent: u64,
    /// Acknowledgements sent alone.
    pub acks_sent: u64,
    /// Items sent.
    pub items_sent: u64,
    /// Bytes of their frames' bodies.
    pub bytes_sent: u64,
    /// Data frames accepted.
    pub frames_received: u64,
    /// Items in them.
    pub items_received: u64,
    /// Bytes of their bodies.
    pub bytes_received: u64,
    /// Frames received twice or more often.
    pub frames_repeated: u64,
    /// Frames that came before their predecessor; they were dropped and come again.
    pub frames_out_of_order: u64,
    /// Frames of an ended incarnation or session.
    pub frames_stale: u64,
    /// Messages that were no frame, or made no sense, of who has proven who it is.
    pub frames_malformed: u64,
    /// Messages of which nobody knows who sent them: no frame, damaged, or not authentic.
    pub frames_of_strangers: u64,
    /// Frames that the bus did not take (its queue was full); they are sent again.
    pub frames_refused: u64,
    /// Sessions reset.
    pub resets: u64,
    /// Bytes of frames that were sent and are not acknowledged now.
    pub unacked_bytes: u64,
}
