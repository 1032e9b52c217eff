//! Answers on their way to a program, counted: who looks at a job learns how many it has not taken.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use tokio::sync::mpsc::{self, error::TryRecvError};

/// The end of the Owner.
#[derive(Debug)]
pub struct Teller<T> {
    sender: mpsc::UnboundedSender<T>,
    unread: Arc<AtomicU64>,
    counts: fn(&T) -> bool,
}

impl<T> Clone for Teller<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), unread: self.unread.clone(), counts: self.counts }
    }
}

/// The end of the program.
#[derive(Debug)]
pub(crate) struct Told<T> {
    receiver: mpsc::UnboundedReceiver<T>,
    unread: Arc<AtomicU64>,
    counts: fn(&T) -> bool,
}

/// A queue for answers, of which those that `counts` says are results.
pub(crate) fn queue<T>(counts: fn(&T) -> bool) -> (Teller<T>, Told<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let unread = Arc::<AtomicU64>::default();
    (Teller { sender, unread: unread.clone(), counts }, Told { receiver, unread, counts })
}

impl<T> Teller<T> {
    /// Whether the program will see it: false when it has gone away.
    pub fn send(&self, item: T) -> bool {
        let counted = u64::from((self.counts)(&item));
        self.unread.fetch_add(counted, Ordering::Relaxed);
        let sent = self.sender.send(item).is_ok();
        if !sent {
            self.unread.fetch_sub(counted, Ordering::Relaxed);
        }
        sent
    }

    /// The number of results in it, for as long as one of the ends is there.
    pub(crate) fn unread(&self) -> Weak<AtomicU64> {
        Arc::downgrade(&self.unread)
    }
}

impl<T> Told<T> {
    fn took(&self, item: &T) {
        self.unread.fetch_sub(u64::from((self.counts)(item)), Ordering::Relaxed);
    }

    /// The next answer; `None` when no more can come.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        self.receiver.recv().await.inspect(|item| self.took(item))
    }

    /// The same, for who polls.
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.receiver.poll_recv(cx).map(|item| item.inspect(|item| self.took(item)))
    }

    /// The next answer, if one is there.
    pub(crate) fn try_recv(&mut self) -> Result<T, TryRecvError> {
        self.receiver.try_recv().inspect(|item| self.took(item))
    }

    /// Takes no more than is there.
    pub(crate) fn close(&mut self) {
        self.receiver.close();
    }
}

impl<T> Drop for Told<T> {
    fn drop(&mut self) {
        self.close();
        while self.try_recv().is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_and_not_taken_is_unread() {
        let (teller, mut told) = queue(|item| *item != 4);
        let count = teller.unread();
        let unread = || count.upgrade().map(|count| count.load(Ordering::Relaxed));
        assert!((0..5).all(|item| teller.send(item)));
        assert_eq!(unread(), Some(4), "the last one does not count");
        assert_eq!(told.try_recv(), Ok(0));
        assert_eq!(futures::executor::block_on(told.recv()), Some(1));
        assert_eq!(unread(), Some(2));
        told.close();
        assert!(!teller.send(9), "nobody will read it");
        assert_eq!(unread(), Some(2));
        drop(told);
        assert_eq!(unread(), Some(0), "nobody will read the rest");
        drop(teller);
        assert_eq!(unread(), None);
    }
}
