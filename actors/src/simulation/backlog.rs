//! What waits for an actor of this world. An actor takes in one event at a time, and those together that came while it was busy.

use std::time::Duration;

use super::acts::{Cx, Timer};

/// Of a thousand events that find an actor with nothing to do, so many find it busy with what is none of this world.
const BUSY: u64 = 100;
/// For how long, at most.
const BUSY_MAX: Duration = Duration::from_millis(3);

/// The events that wait for an actor, in order.
#[derive(Debug)]
pub(super) struct Backlog<E>(Vec<E>);

impl<E> Default for Backlog<E> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<E> Backlog<E> {
    /// One more. What is returned is taken in now, as one batch; what is not waits until `later` comes.
    pub(super) fn add(&mut self, event: E, later: Timer, cx: &mut Cx<'_>) -> Vec<E> {
        self.0.push(event);
        if self.0.len() > 1 {
            return Vec::new();
        }
        if cx.dice.chance(BUSY) {
            let busy = cx.dice.micros(0..BUSY_MAX.as_micros() as u64);
            cx.after(busy, later);
            return Vec::new();
        }
        self.take()
    }

    /// All that waits.
    pub(super) fn take(&mut self) -> Vec<E> {
        std::mem::take(&mut self.0)
    }
}
