//! What the asking side holds while it waits: a future that can say how far it is, and that cancels when it is dropped.

use std::future::Future;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use exobus_store::{Block, CopyId, Store};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::copy::Target;
use super::error::{PeerName, TransferError};
use super::network::Socket;
use super::pool::{Job, Queue, Work};
use super::{DirectoryList, FetchItem, Item, wire};

/// How far a job is; shared between who waits and the thread that works.
#[derive(Debug)]
pub(super) struct Progress {
    peer: PeerName,
    items: usize,
    begun: AtomicBool,
    bytes: AtomicU64,
    cancel: Mutex<Cancel>,
}

#[derive(Debug, Default)]
struct Cancel {
    wanted: bool,
    /// What to shut down for it.
    socket: Option<Arc<dyn Socket>>,
}

impl Progress {
    pub(super) fn new(peer: &PeerName, items: usize) -> Arc<Self> {
        Arc::new(Self {
            peer: peer.clone(),
            items,
            begun: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            cancel: Mutex::default(),
        })
    }

    pub(super) fn peer(&self) -> &PeerName {
        &self.peer
    }

    /// A thread works on it.
    pub(super) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// This socket is what to shut down to cancel.
    ///
    /// # Errors
    /// `Stopped`, when it was cancelled already.
    pub(super) fn holds(&self, socket: &Arc<dyn Socket>) -> Result<(), TransferError> {
        let mut cancel = self.cancel.lock();
        if cancel.wanted {
            return Err(TransferError::Stopped);
        }
        cancel.socket = Some(Arc::clone(socket));
        Ok(())
    }

    /// The socket may go to another job; false when it was shut down.
    pub(super) fn releases(&self) -> bool {
        let mut cancel = self.cancel.lock();
        cancel.socket = None;
        !cancel.wanted
    }

    pub(super) fn cancel(&self) {
        let mut cancel = self.cancel.lock();
        cancel.wanted = true;
        if let Some(socket) = cancel.socket.take() {
            // It may have been closed by the other side already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.lock().wanted
    }
}

/// Something that another node was asked for. Dropping it cancels.
#[derive(Debug)]
struct Waiting<T> {
    answer: oneshot::Receiver<T>,
    progress: Arc<Progress>,
    queue: Queue,
}

impl<T> Waiting<T> {
    fn begin(queue: &Queue, peer: &PeerName, items: usize, work: impl FnOnce(oneshot::Sender<T>) -> Work) -> Self {
        let (done, answer) = oneshot::channel();
        let progress = Progress::new(peer, items);
        queue.push(Job { progress: Arc::clone(&progress), work: work(done) });
        Self { answer, progress, queue: queue.clone() }
    }

    fn why(&self) -> String {
        let Progress { peer, items, .. } = &*self.progress;
        let plural = if *items == 1 { "" } else { "s" };
        if self.progress.begun.load(Ordering::Relaxed) {
            return format!("fetching {items} item{plural} from {peer}: {} bytes so far", self.progress.bytes());
        }
        let ahead = self.queue.ahead_of(&self.progress);
        format!("waiting to fetch {items} item{plural} from {peer}: {ahead} ahead")
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T, TransferError>> {
        Pin::new(&mut self.answer).poll(context).map(|answer| answer.map_err(|_| TransferError::Stopped))
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        // Nothing to do, and nothing wrong, when it has ended.
        self.progress.cancel();
        self.queue.forget(&self.progress);
    }
}

macro_rules! waiting {
    ($(#[$doc:meta])* $name:ident, $answer:ty, $output:ty, $done:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[must_use = "dropping it cancels"]
        pub struct $name(Waiting<$answer>);

        impl $name {
            /// What it waits for, or how far it is, for people.
            pub fn why(&self) -> String {
                self.0.why()
            }

            /// Bytes of parts that have arrived.
            pub fn bytes(&self) -> u64 {
                self.0.progress.bytes()
            }

            /// Waits on this thread, which must not be one of an asynchronous runtime.
            ///
            /// # Errors
            /// See [`TransferError`].
            pub fn wait(self) -> $output {
                futures::executor::block_on(self)
            }
        }

        impl Future for $name {
            type Output = $output;

            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                self.0.poll(context).map($done)
            }
        }
    };
}

waiting! {
    /// A fetch under way: the blocks, in the order of the items, or the first failure.
    Fetch, Vec<Result<Block, TransferError>>, Result<Vec<Block>, TransferError>,
    |results| results?.into_iter().collect()
}

waiting! {
    /// A fetch under way: for each item, in order, the block or why there is none. The outer error: it did not begin.
    FetchEach, Vec<Result<Block, TransferError>>, Result<Vec<Result<Block, TransferError>>, TransferError>,
    |results| results
}

waiting! {
    /// A question for directories under way.
    Directories, Result<DirectoryList, TransferError>, Result<DirectoryList, TransferError>,
    |list| list.flatten()
}

waiting! {
    /// A copy under way: its id.
    Copying, Result<CopyId, TransferError>, Result<CopyId, TransferError>,
    |copy| copy.flatten()
}

pub(super) fn directories(queue: &Queue, peer: &PeerName, kind: wire::Kind, items: Vec<Item>) -> Directories {
    let items: Vec<_> = items.into_iter().map(|(object, parts)| wire::Item { object, parts }).collect();
    Directories(Waiting::begin(queue, peer, items.len(), |done| Work::Directories { kind, items, done }))
}

pub(super) fn all(queue: &Queue, peer: &PeerName, items: Vec<FetchItem>) -> Fetch {
    Fetch(Waiting::begin(queue, peer, items.len(), |done| Work::Fetch { items, done }))
}

pub(super) fn each(queue: &Queue, peer: &PeerName, items: Vec<FetchItem>) -> FetchEach {
    FetchEach(Waiting::begin(queue, peer, items.len(), |done| Work::Fetch { items, done }))
}

pub(super) fn copy(queue: &Queue, peer: &PeerName, store: Store, item: Item, name: Option<CopyId>) -> Copying {
    let random = queue.random();
    let target = Target { store, object: item.0, parts: item.1, name, random };
    Copying(Waiting::begin(queue, peer, 1, |done| Work::Copy { target, done }))
}
