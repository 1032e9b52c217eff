//! Processes that have the same memory all the time, and stores to count it: what the tests here share.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use exobus_store::{RealDisk, Store, StoreOptions, SystemClock};

use super::watch;

pub(super) const MIB: u64 = 1 << 20;

/// A store with so much memory and one executor.
pub(super) fn store_of(memory_bytes: u64) -> Store {
    let options = StoreOptions { memory_bytes, executors: 1, ..StoreOptions::default() };
    Store::open(options, Arc::new(RealDisk::default()), Arc::new(SystemClock::new())).unwrap()
}

/// A process that does nothing.
pub(super) struct Idle(Child);

impl Idle {
    pub(super) fn new() -> Self {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // It has begun when it answers.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(child)
    }

    /// One that has so much, about.
    pub(super) fn with(bytes: u64) -> Self {
        let child = Command::new("tail")
            .args(["-c", &bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // It keeps what may be the end of it, and has read all of it but for what fits into the pipe.
        let mut stdin = child.stdin.as_ref().unwrap();
        (0..bytes / MIB).for_each(|_| stdin.write_all(&vec![b'x'; MIB as usize]).unwrap());
        Self(child)
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn used_bytes(&self) -> u64 {
        watch::own_bytes(self.id()).unwrap()
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
