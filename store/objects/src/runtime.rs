//! The threads that requests run on.

use std::future::Future;
use std::sync::LazyLock;
use std::sync::mpsc::sync_channel;

use tokio::runtime::{Builder, Runtime};

/// Of the process, as the registry of file systems is. Two threads: encryption and hashes of what is sent take time.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).max_blocking_threads(16).thread_name("objects").enable_io().enable_time();
    builder.build().expect("threads for requests to object stores")
});

/// Begins work on these threads.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    RUNTIME.spawn(work);
}

/// Does work on these threads, and waits for it: on any thread but these, one that runs a runtime of its own, too.
///
/// # Panics
/// The work does.
pub(crate) fn wait_for<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let (done, outcome) = sync_channel(1);
    RUNTIME.spawn(async move {
        let _ = done.send(work.await);
    });
    outcome.recv().expect("work on an object store has panicked")
}
