//! A durable consumer's place: what was delivered, what is due again, what comes next.

use std::collections::BTreeMap;

use super::records::SavedConsumer;
use crate::streams::{ConsumerConfig, Settle};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unacked {
    due_ms: u64,
    attempt: u64,
}

/// State of one consumer.
#[derive(Debug)]
pub(super) struct ConsumerState {
    config: ConsumerConfig,
    /// The first sequence that was never looked at.
    next: u64,
    unacked: BTreeMap<u64, Unacked>,
}

impl ConsumerState {
    /// What was not acknowledged is due at once.
    pub(super) fn restore(saved: SavedConsumer, now_ms: u64) -> Self {
        let unacked = saved.unacked.into_iter().map(|sequence| (sequence, Unacked { due_ms: now_ms, attempt: 0 }));
        Self { unacked: unacked.collect(), config: saved.config, next: saved.next }
    }

    pub(super) fn saved(&self) -> SavedConsumer {
        let unacked = self.unacked.keys().copied().collect();
        SavedConsumer { config: self.config.clone(), next: self.next, unacked }
    }

    pub(super) fn config(&self) -> &ConsumerConfig {
        &self.config
    }

    /// The oldest that is to be delivered again.
    pub(super) fn next_due(&self, now_ms: u64) -> Option<u64> {
        self.unacked.iter().find(|(_, unacked)| unacked.due_ms <= now_ms).map(|(sequence, _)| *sequence)
    }

    /// Where to look for one that was never delivered; none while too many are not acknowledged.
    pub(super) fn next_new(&self) -> Option<u64> {
        (self.unacked.len() < self.config.unacked_max).then_some(self.next)
    }

    /// `wanted` is gone; the next there is, if it was new, is `found`.
    pub(super) fn skip(&mut self, wanted: u64, found: u64) {
        if self.unacked.remove(&wanted).is_none() {
            self.next = self.next.max(found);
        }
    }

    /// Notes a delivery, says how manieth it is.
    pub(super) fn deliver(&mut self, sequence: u64, now_ms: u64) -> u64 {
        let due_ms = now_ms + self.ack_wait_ms();
        let unacked = self.unacked.entry(sequence).or_insert(Unacked { due_ms, attempt: 0 });
        *unacked = Unacked { due_ms, attempt: unacked.attempt + 1 };
        self.next = self.next.max(sequence + 1);
        unacked.attempt
    }

    /// Whether the place changed.
    pub(super) fn settle(&mut self, sequence: u64, settle: Settle, now_ms: u64) -> bool {
        let ack_wait_ms = self.ack_wait_ms();
        match (settle, self.unacked.get_mut(&sequence)) {
            (Settle::Ack, _) => return self.unacked.remove(&sequence).is_some(),
            (Settle::Nack(delay), Some(unacked)) => {
                unacked.due_ms = now_ms + u64::try_from(delay.as_millis()).unwrap_or(u64::MAX / 4);
            }
            (Settle::InProgress, Some(unacked)) => unacked.due_ms = now_ms + ack_wait_ms,
            // Acknowledged already.
            (_, None) => {}
        }
        false
    }

    /// When the next delivery falls due again.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.unacked.values().map(|unacked| unacked.due_ms).min()
    }

    fn ack_wait_ms(&self) -> u64 {
        u64::try_from(self.config.ack_wait.as_millis()).unwrap_or(u64::MAX / 4)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn consumer() -> ConsumerState {
        let config = ConsumerConfig { unacked_max: 2, ack_wait: Duration::from_secs(1), ..ConsumerConfig::new("c") };
        ConsumerState::restore(SavedConsumer { config, next: 1, unacked: Vec::new() }, 0)
    }

    #[test]
    fn what_is_not_acknowledged_falls_due_and_nothing_new_comes_beyond_the_bound() {
        let mut consumer = consumer();
        assert_eq!((consumer.deliver(1, 0), consumer.deliver(2, 10)), (1, 1));
        assert_eq!((consumer.next_new(), consumer.next_due(999), consumer.due_ms()), (None, None, Some(1000)));
        assert_eq!(consumer.next_due(1000), Some(1));
        assert_eq!(consumer.deliver(1, 1000), 2);
        assert!(consumer.settle(1, Settle::Ack, 1001) && !consumer.settle(1, Settle::Ack, 1002));
        assert_eq!(consumer.next_new(), Some(3));
    }

    #[test]
    fn nack_and_progress_move_the_due_time() {
        let mut consumer = consumer();
        consumer.deliver(1, 0);
        consumer.settle(1, Settle::InProgress, 900);
        assert_eq!(consumer.due_ms(), Some(1900));
        consumer.settle(1, Settle::Nack(Duration::from_millis(5)), 1000);
        assert_eq!(consumer.due_ms(), Some(1005));
    }

    #[test]
    fn a_restored_place_delivers_what_was_not_acknowledged() {
        let mut consumer = consumer();
        consumer.deliver(1, 0);
        consumer.deliver(2, 0);
        consumer.settle(1, Settle::Ack, 1);
        let restored = ConsumerState::restore(consumer.saved(), 50);
        assert_eq!((restored.next_due(50), restored.next), (Some(2), 3));
    }
}
