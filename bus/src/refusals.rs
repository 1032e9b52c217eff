//! What arrived and made no sense: malformed, too large, of a foreign version. All of it is counted, and the first of
//! each sender is logged, so that a broken peer is seen and cannot flood the log. What nobody has proven to have sent is
//! counted apart, and logged once a minute whoever it claims to be from: a stranger makes up as many names as it likes.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::pace::Pace;

/// Senders that are told apart. Who sends nonsense may make names up: beyond these, they are one more together.
const SENDERS_MAX: usize = 1024;
/// Characters of a sender's name that are kept and logged: it may come from a message.
const NAME_CHARS_MAX: usize = 128;

/// Counts refused messages of one receiver.
#[derive(Default)]
pub struct Refusals {
    count: AtomicU64,
    senders: Mutex<Senders>,
    strangers: AtomicU64,
    pace: Mutex<(Option<Instant>, Pace)>,
}

#[derive(Default)]
struct Senders {
    known: HashSet<Box<str>>,
    full: bool,
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refusals({}, of strangers {})", self.count(), self.strangers())
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

    /// Counts a message for `receiver` that is dropped since it is not authentic; `claimed` is who is said to have sent it. One a
    /// minute is logged. Says whether it was.
    pub fn refuse_stranger(&self, claimed: &str, receiver: &str, reason: &dyn fmt::Display) -> bool {
        self.strangers.fetch_add(1, Ordering::Relaxed);
        let mut pace = self.pace.lock();
        let begun = *pace.0.get_or_insert_with(Instant::now);
        let Some(messages) = pace.1.happened(begun.elapsed()) else { return false };
        drop(pace);
        let claimed: String = claimed.chars().take(NAME_CHARS_MAX).collect();
        let reason = reason.to_string();
        tracing::warn!(
            claimed,
            receiver,
            reason,
            messages,
            "messages of strangers dropped, this one and more; logged once a minute"
        );
        true
    }

    /// How many messages of strangers were dropped so far; [`count`](Self::count) is without them.
    pub fn strangers(&self) -> u64 {
        self.strangers.load(Ordering::Relaxed)
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

    #[tokio::test(start_paused = true)]
    async fn strangers_are_counted_apart_and_logged_once_a_minute_whatever_they_call_themselves() {
        let refusals = Refusals::default();
        let mut logged = Vec::new();
        for second in 0..130 {
            if refusals.refuse_stranger(&format!("n{second}"), "beat", &"not authentic") {
                logged.push(second);
            }
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [0, 60, 120]);
        assert_eq!((refusals.count(), refusals.strangers()), (0, 130));
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
