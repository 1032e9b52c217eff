//! One connection: a read buffer, and a watch over progress.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use exobus_store::Clock;

use super::error::LinkError;
use super::network::Socket;

/// Read ahead and kept here: headers, small parts.
const BUFFER_BYTES: usize = 128 * 1024;
/// So many bytes within [`Link::stall`] are progress: a peer that trickles is as bad as one that is silent.
const PROGRESS_BYTES: u64 = 64 * 1024;
/// How often a blocked call looks at the time.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Directories and texts are read in steps of this size: memory follows what has arrived, not what was declared.
const GROW_BYTES: u64 = 64 * 1024;

/// A connection to another node.
pub(super) struct Link {
    socket: Arc<dyn Socket>,
    clock: Arc<dyn Clock>,
    stall: Duration,
    buffer: Box<[u8]>,
    /// What of the buffer has arrived and was not taken yet.
    from: usize,
    to: usize,
    /// When there was progress last, and the bytes since.
    good_at: Duration,
    since: u64,
}

impl Link {
    /// Takes over a connected socket. A call that moves less than 64 KiB within `stall` fails.
    ///
    /// # Errors
    /// The socket cannot be set up.
    pub(super) fn new(socket: Arc<dyn Socket>, clock: Arc<dyn Clock>, stall: Duration) -> io::Result<Self> {
        let look_every = LOOK_EVERY.min(stall);
        socket.set_receive_timeout(look_every)?;
        socket.set_send_timeout(LOOK_EVERY)?;
        let good_at = clock.now();
        Ok(Self { socket, clock, stall, buffer: vec![0; BUFFER_BYTES].into(), from: 0, to: 0, good_at, since: 0 })
    }

    /// The socket, to shut it down from another thread.
    pub(super) fn socket(&self) -> &Arc<dyn Socket> {
        &self.socket
    }

    /// Nothing is said for a while.
    pub(super) fn rest(&self) {
        self.socket.rest();
    }

    /// From now on, other patience; the time begins anew.
    pub(super) fn set_stall(&mut self, stall: Duration) {
        self.stall = stall;
        self.begin();
    }

    /// Begins an exchange: the time of waiting before it does not count.
    pub(super) fn begin(&mut self) {
        self.good_at = self.clock.now();
        self.since = 0;
    }

    /// Waits up to `idle` for the first byte of the next exchange. False when none came, or the other side closed.
    pub(super) fn wait(&mut self, idle: Duration) -> io::Result<bool> {
        if self.from < self.to {
            return Ok(true);
        }
        self.socket.set_receive_timeout(idle)?;
        let arrived = loop {
            match self.socket.receive(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => break 0,
                other => break other?,
            }
        };
        self.socket.set_receive_timeout(LOOK_EVERY)?;
        (self.from, self.to) = (0, arrived);
        Ok(arrived > 0)
    }

    /// Whether the other side has closed, or said something unasked, while nobody was reading.
    pub(super) fn is_stale(&self) -> bool {
        self.from < self.to || self.socket.is_readable()
    }

    /// Reads some bytes, at least one, straight into `to` when it is large, else through the buffer.
    pub(super) fn read(&mut self, to: &mut [u8]) -> Result<usize, LinkError> {
        if self.from == self.to {
            if to.len() >= self.buffer.len() {
                return self.receive(to);
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            let received = self.receive(&mut buffer);
            self.buffer = buffer;
            (self.from, self.to) = (0, received?);
        }
        let count = to.len().min(self.to - self.from);
        to[..count].copy_from_slice(&self.buffer[self.from..self.from + count]);
        self.from += count;
        Ok(count)
    }

    fn receive(&mut self, to: &mut [u8]) -> Result<usize, LinkError> {
        loop {
            match self.socket.receive(to) {
                Ok(0) => return Err(LinkError::Ended),
                Ok(count) => {
                    self.progress(count)?;
                    return Ok(count);
                }
                Err(error) => self.retry(error)?,
            }
        }
    }

    /// Fills `to`.
    pub(super) fn read_exact(&mut self, mut to: &mut [u8]) -> Result<(), LinkError> {
        while !to.is_empty() {
            let count = self.read(to)?;
            to = &mut to[count..];
        }
        Ok(())
    }

    /// Reads so many bytes for nothing.
    pub(super) fn skip(&mut self, mut count: u64) -> Result<(), LinkError> {
        let mut nothing = [0; 64];
        while count > 0 {
            let step = count.min(nothing.len() as u64) as usize;
            count -= self.read(&mut nothing[..step])? as u64;
        }
        Ok(())
    }

    /// A header of a fixed size.
    pub(super) fn read_array<const N: usize>(&mut self) -> Result<[u8; N], LinkError> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// So many bytes, allocated as they arrive.
    pub(super) fn read_vec(&mut self, length: u64) -> Result<Vec<u8>, LinkError> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < length {
            let start = bytes.len();
            let step = (length - start as u64).min(GROW_BYTES) as usize;
            bytes.resize(start + step, 0);
            self.read_exact(&mut bytes[start..])?;
        }
        Ok(bytes)
    }

    /// Writes both, one after the other, in as few calls as the kernel takes.
    pub(super) fn write(&mut self, mut first: &[u8], mut second: &[u8]) -> Result<(), LinkError> {
        while !first.is_empty() || !second.is_empty() {
            match self.socket.send(&[IoSlice::new(first), IoSlice::new(second)]) {
                Ok(0) => return Err(LinkError::Ended),
                Ok(count) => {
                    let of_first = count.min(first.len());
                    first = &first[of_first..];
                    second = &second[count - of_first..];
                    self.progress(count)?;
                }
                Err(error) => self.retry(error)?,
            }
        }
        Ok(())
    }

    /// Counts what was moved. Bytes that come, but too few of them, are a stall too.
    fn progress(&mut self, count: usize) -> Result<(), LinkError> {
        self.since += count as u64;
        if self.since >= PROGRESS_BYTES {
            self.begin();
            return Ok(());
        }
        self.patience()
    }

    /// Whether a failed call is to be tried again.
    fn retry(&mut self, error: io::Error) -> Result<(), LinkError> {
        match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            io::ErrorKind::WouldBlock => self.patience(),
            _ => Err(error.into()),
        }
    }

    fn patience(&self) -> Result<(), LinkError> {
        let silent = self.clock.now().saturating_sub(self.good_at);
        match silent < self.stall {
            true => Ok(()),
            false => Err(LinkError::Stalled { millis: silent.as_millis() as u64 }),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
