//! What arrived and made no sense: malformed, too large, of a foreign version. All of it is counted, and the first of
//! each sender is logged, so that a broken peer is seen and cannot flood the log.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Senders that are told apart. Who sends nonsense may make names up: beyond these, they are one more together.
const SENDERS_MAX: usize = 1024;
/// Characters of a sender's name that are kept and logged: it may come from a message.
const NAME_CHARS_MAX: usize = 128;

/// Counts refused messages of one receiver.
#[derive(Default)]
pub struct Refusals {
    count: AtomicU64,
    senders: Mutex<Senders>,
}

#[derive(Default)]
struct Senders {
    known: HashSet<Box<str>>,
    full: bool,
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refusals({})", self.count())
    }
}

impl Refusals {
    /// Counts a message of `sender` (a node, or a subject where that is all there is) for `receiver` (an actor or a
    /// subject) that was refused for `reason`, and logs it when it is the sender's first. Says whether it was logged.
    pub fn refuse(&self, sender: &str, receiver: &str, reason: &dyn fmt::Display) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        let name: String = sender.chars().take(NAME_CHARS_MAX).collect();
        let mut senders = self.senders.lock();
        if senders.full || senders.known.contains(name.as_str()) {
            return false;
        }
        if senders.known.len() == SENDERS_MAX {
            senders.full = true;
            drop(senders);
            tracing::warn!(
                senders = SENDERS_MAX,
                "messages of still more senders refused; from now on they are counted only"
            );
            return true;
        }
        senders.known.insert(name.as_str().into());
        drop(senders);
        let reason = reason.to_string();
        tracing::warn!(node = name, receiver, reason, "message refused; more from this sender are counted only");
        true
    }

    /// How many were refused so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_counted_and_the_first_of_each_sender_is_logged() {
        let refusals = Refusals::default();
        let logged = ["a", "b", "a", "a", "b", "c"].map(|sender| refusals.refuse(sender, "owner", &"no such version"));
        assert_eq!(logged, [true, true, false, false, false, true]);
        assert_eq!(refusals.count(), 6);
    }

    #[test]
    fn made_up_senders_are_logged_within_a_bound() {
        let refusals = Refusals::default();
        let all = 3 * SENDERS_MAX;
        let logged = (0..all).filter(|sender| refusals.refuse(&sender.to_string(), "beat", &"nonsense")).count();
        assert_eq!(logged, SENDERS_MAX + 1);
        assert_eq!(refusals.count(), all as u64);
    }

    #[test]
    fn long_names_are_cut() {
        let refusals = Refusals::default();
        let name = "ä".repeat(10_000);
        assert!(refusals.refuse(&name, "beat", &"nonsense"));
        let known: Vec<_> = refusals.senders.lock().known.iter().map(|name| name.chars().count()).collect();
        assert_eq!(known, [NAME_CHARS_MAX]);
    }
}
