//! [`Queue`]: what was printed on its way out of the process, on a thread of its own that is started when somebody prints.

use std::fmt;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use exobus_bus::{Bus, Message, Subjects, codec};
use parking_lot::Mutex;
use tracing::{debug, warn};

use super::{Printed, subject};
use crate::ids::JobId;

/// So many pieces wait.
const PIECES_MAX: usize = 256;
/// After so many bytes it is waited until the server has them: what is printed is in nobody's way.
const UNFLUSHED_BYTES: usize = 64 << 10;
/// How long the end of a node waits for what was printed last.
const CLOSE_DEADLINE: Duration = Duration::from_secs(1);

/// A piece, of whose job.
pub(super) type Piece = (Arc<str>, JobId, Printed);

/// Where pieces wait.
pub(super) struct Queue {
    /// Where they go: `None`: to stderr.
    bus: Option<(Bus, Subjects)>,
    state: Mutex<State>,
}

enum State {
    /// Nobody has printed.
    Unused,
    Open {
        pieces: SyncSender<Piece>,
        /// Is at its end when the thread is.
        ended: Receiver<()>,
    },
    Closed,
}

impl State {
    /// With nothing in it; for who takes pieces out, and drops the other one when there can be no more.
    fn open() -> (Self, Receiver<Piece>, SyncSender<()>) {
        let (pieces, queue) = sync_channel(PIECES_MAX);
        let (end, ended) = sync_channel(0);
        (Self::Open { pieces, ended }, queue, end)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.bus.is_some() { "Queue(to the bus)" } else { "Queue(to stderr)" })
    }
}

impl Queue {
    pub(super) fn new(bus: Option<(Bus, Subjects)>) -> Self {
        Self { bus, state: Mutex::new(State::Unused) }
    }

    /// One of which a test takes what waits, and says when it is at its end.
    #[cfg(test)]
    pub(super) fn taken_by_hand() -> (Self, Receiver<Piece>, SyncSender<()>) {
        let (open, queue, end) = State::open();
        (Self { bus: None, state: Mutex::new(open) }, queue, end)
    }

    /// False: too much waits, or it is closed.
    pub(super) fn send(&self, tenant: Arc<str>, job: JobId, printed: Printed) -> bool {
        let mut state = self.state.lock();
        if let State::Unused = *state {
            *state = self.start().unwrap_or_else(|error| {
                warn!(%error, "what jobs print is not shown");
                State::Closed
            });
        }
        match &*state {
            State::Open { pieces, .. } => pieces.try_send((tenant, job, printed)).is_ok(),
            State::Unused | State::Closed => false,
        }
    }

    fn start(&self) -> std::io::Result<State> {
        let (open, queue, end) = State::open();
        let bus = self.bus.clone();
        let run = move || {
            let _end = end;
            match bus {
                Some((bus, subjects)) => publish(&queue, &bus, &subjects),
                None => write(&queue),
            }
        };
        std::thread::Builder::new().name("exobus-prints".to_owned()).spawn(run)?;
        Ok(open)
    }

    /// Takes nothing more, and waits a moment for what is there.
    pub(super) fn close(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Closed);
        if let State::Open { pieces, ended } = before {
            drop(pieces);
            // An error either way: it has ended, or takes too long.
            let _ = ended.recv_timeout(CLOSE_DEADLINE);
        }
    }
}

/// To stderr. A closed one is no reason to end anything.
fn write(queue: &Receiver<Piece>) {
    while let Ok((_, _, printed)) = queue.recv() {
        let _ = writeln!(std::io::stderr().lock(), "{printed}");
    }
}

/// To who watches.
fn publish(queue: &Receiver<Piece>, bus: &Bus, subjects: &Subjects) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return warn!(%error, "what jobs print is not shown"),
    };
    let mut unflushed = 0;
    while let Ok((tenant, job, printed)) = queue.recv() {
        let (Ok(subject), Ok(payload)) = (subject(subjects, &tenant, job), codec::encode_checked(&printed)) else {
            debug!(job_id = %job, "a piece of what was printed cannot be sent");
            continue;
        };
        unflushed += payload.len();
        // Nobody waits for it: what does not go now does not go.
        let sent = bus.try_publish(subject, Message::new(payload));
        let flushed = match sent {
            Ok(()) if unflushed < UNFLUSHED_BYTES => continue,
            Ok(()) => runtime.block_on(bus.flush()),
            Err(error) => Err(error),
        };
        unflushed = 0;
        if let Err(error) = flushed {
            debug!(job_id = %job, %error, "what was printed may not have been sent");
        }
    }
}
