//! What goes into a session's [state](super::state) and what comes out of it.

use std::time::Duration;

use bytes::Bytes;

use super::frame::Half;

/// Times and sizes; the rest of [`super::SessionOptions`] concerns the driver.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) credit_items: u64,
    pub(crate) credit_bytes: u64,
    pub(crate) ack_delay: Duration,
    pub(crate) retry_min: Duration,
    pub(crate) retry_max: Duration,
    pub(crate) silent_after: Duration,
    pub(crate) versions: (u16, u16),
}

#[cfg(any(test, feature = "fuzzing"))]
impl Settings {
    /// So small that credit runs out all the time.
    pub(crate) fn tight() -> Self {
        Self {
            credit_items: 40,
            credit_bytes: 1500,
            ack_delay: Duration::from_millis(5),
            retry_min: Duration::from_millis(100),
            retry_max: Duration::from_millis(500),
            silent_after: Duration::from_secs(3),
            versions: super::state::VERSIONS,
        }
    }
}

/// So many items and body bytes of one half, in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Consumed {
    pub(crate) items: u64,
    pub(crate) bytes: u64,
}

/// Why a session was reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResetReason {
    /// Another process runs under the node's name now.
    NewIncarnation,
    /// The same process, but it forgot this session.
    PeerForgot,
    /// The peer was silent for so long that it was given up.
    GivenUp,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Publish this frame to the peer.
    Send(Bytes),
    /// The next data frame in order.
    Deliver { from: Half, items: u32, body: Bytes },
    /// All that was queued or unacknowledged is gone; `incarnation` is the peer's.
    Reset { incarnation: u64, reason: ResetReason },
    /// Nothing heard for so long, although an answer is due.
    Silent { incarnation: u64, silent_for: Duration },
    /// No version in common; what was queued is gone.
    Unsupported { incarnation: u64, theirs: (u16, u16) },
}

/// Counters of one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) frames_sent: u64,
    pub(crate) frames_resent: u64,
    pub(crate) acks_sent: u64,
    pub(crate) hellos_sent: u64,
    pub(crate) items_sent: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) frames_received: u64,
    pub(crate) items_received: u64,
    pub(crate) bytes_received: u64,
    pub(crate) frames_repeated: u64,
    pub(crate) frames_out_of_order: u64,
    pub(crate) frames_stale: u64,
    pub(crate) resets: u64,
}
