//! [`Gate`]: whether executors may start tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

/// Executors go through it before they start a task; clones share it. A node that the others may hold dead closes it: what
/// runs goes on, nothing is started.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    closed: AtomicBool,
    /// How many wait.
    lock: Mutex<usize>,
    opened: Condvar,
}

impl Gate {
    /// Nothing is started from now on.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
    }

    /// What waits is started.
    pub fn open(&self) {
        let _held = self.0.lock.lock();
        self.0.closed.store(false, Ordering::Release);
        self.0.opened.notify_all();
    }

    /// Whether nothing is started.
    pub fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// How many executors have a task in hand and do not start it.
    pub fn waiting(&self) -> usize {
        *self.0.lock.lock()
    }

    /// Waits until it is open.
    pub(super) fn pass(&self) {
        if self.is_closed() {
            let mut waiting = self.0.lock.lock();
            *waiting += 1;
            while self.is_closed() {
                self.0.opened.wait(&mut waiting);
            }
            *waiting -= 1;
        }
    }
}
