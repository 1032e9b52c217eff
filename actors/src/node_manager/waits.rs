//! What getting arguments took, for who looks at a job afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::event::Received;
use crate::ids::NodeId;

/// What it took to get the arguments of an attempt ready.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    pub(super) memory: Duration,
    pub(super) load: Duration,
    pub(super) fetch: Duration,
}

/// What this node has received from others, since its start: bytes and time by node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Arc<Mutex<BTreeMap<NodeId, (u64, Duration)>>>);

impl Tally {
    pub(super) fn add(&self, from: &NodeId, bytes: u64, time: Duration) {
        let mut tally = self.0.lock();
        let entry = tally.entry(from.clone()).or_default();
        *entry = (entry.0 + bytes, entry.1 + time);
    }

    /// All of it, in order of the nodes.
    pub(crate) fn read(&self) -> Vec<Received> {
        let received = |(from, (bytes, time)): (&NodeId, &(u64, Duration))| Received {
            from: from.clone(),
            bytes: *bytes,
            micros: time.as_micros() as u64,
        };
        self.0.lock().iter().map(received).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_from_each_node_is_added_up() {
        let (tally, ms) = (Tally::default(), Duration::from_millis);
        for (from, bytes, time) in [("b", 10, 1), ("a", 5, 2), ("b", 20, 3)] {
            tally.add(&NodeId::new(from), bytes, ms(time));
        }
        let read: Vec<_> = tally.clone().read().iter().map(|it| (it.from.to_string(), it.bytes, it.micros)).collect();
        assert_eq!(read, [("a".to_owned(), 5, 2000), ("b".to_owned(), 30, 4000)]);
    }
}
