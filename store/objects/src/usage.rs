//! What requests were made: object stores are paid for by them.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Requests that were made, and bytes that were moved, since the process began. A request that was repeated counts each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Requests that read an object or what is known of it: GET and HEAD.
    pub reads: u64,
    /// Requests that write or list: PUT, POST, and GET of a list, which cost as much.
    pub writes: u64,
    /// Requests that cost nothing: DELETE.
    pub deletes: u64,
    /// Those of all of them that repeated another one.
    pub repeated: u64,
    /// Bytes of bodies that were sent.
    pub bytes_sent: u64,
    /// Bytes of bodies that came.
    pub bytes_received: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    deletes: AtomicU64,
    repeated: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
}

pub(crate) static COUNTERS: Counters = Counters {
    reads: AtomicU64::new(0),
    writes: AtomicU64::new(0),
    deletes: AtomicU64::new(0),
    repeated: AtomicU64::new(0),
    bytes_sent: AtomicU64::new(0),
    bytes_received: AtomicU64::new(0),
};

impl Usage {
    /// How many requests these are.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.deletes
    }

    /// As it is now.
    pub fn now() -> Self {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            reads: read(&COUNTERS.reads),
            writes: read(&COUNTERS.writes),
            deletes: read(&COUNTERS.deletes),
            repeated: read(&COUNTERS.repeated),
            bytes_sent: read(&COUNTERS.bytes_sent),
            bytes_received: read(&COUNTERS.bytes_received),
        }
    }
}

impl Counters {
    pub(crate) fn request(&self, method: &http::Method, is_list: bool, is_repeated: bool, bytes: u64) {
        let counter = match *method {
            http::Method::DELETE => &self.deletes,
            http::Method::GET | http::Method::HEAD if !is_list => &self.reads,
            _ => &self.writes,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.repeated.fetch_add(u64::from(is_repeated), Ordering::Relaxed);
        self.bytes_sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
