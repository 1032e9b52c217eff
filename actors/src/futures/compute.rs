//! Computations of programs, apart from the thread that all jobs of a node share.
//!
//! A program that plans for a second on the thread of jobs would stall the heartbeats of their leases, their watchdogs and their calls. So
//! what takes long goes to a thread of its own, with owned data and without the futures API. What comes of it could have been different, so
//! it is logged as everything else that a program learns (law 3), unless it is declared [pure](Futures::compute_pure).
//!
//! Nobody waits for the end of a thread: a function cannot be stopped from outside. A job that is over, and a node that stops, leave one
//! that still computes behind, and say what its thread is called.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::api::Futures;
use super::call::ProgramCall;
use crate::shell::Inlet;
use crate::task::{JobError, decode};

/// Bytes of a result that is logged, as MessagePack; a quarter of what a value on the bus may have. What is larger belongs into an object.
pub const COMPUTED_BYTES_MAX: usize = 64 << 10;
/// So many computations of a job run at a time; others wait until one of these is over.
const AT_A_TIME: usize = 8;

/// What is to be computed.
pub type Computation = Box<dyn FnOnce() + Send>;

/// Where programs compute.
///
/// Implementers owe that [`begin`](Self::begin) returns at once, and that the computation runs once, apart from every arbiter and for as
/// long as it takes. Nobody waits for its end, and a node that stops does not, either. A computation does not panic.
pub trait Compute: fmt::Debug + Send + Sync {
    /// Begins a computation, on a thread that people find under this name.
    ///
    /// # Errors
    /// The system refuses a thread.
    fn begin(&self, thread: &str, computation: Computation) -> io::Result<()>;
}

/// A thread for each computation: one that never ends takes no room from the computations of other jobs.
#[derive(Clone, Copy, Debug, Default)]
pub struct ComputeThreads;

impl Compute for ComputeThreads {
    fn begin(&self, thread: &str, computation: Computation) -> io::Result<()> {
        std::thread::Builder::new().name(thread.to_owned()).spawn(computation).map(drop)
    }
}

/// The name of a thread, as no other one of this process has it, in the 15 bytes that the system shows.
fn thread_name() -> String {
    static BEGUN: AtomicU64 = AtomicU64::new(0);
    format!("exobus-comp-{}", BEGUN.fetch_add(1, Ordering::Relaxed))
}

/// What the computations of a job need.
pub(super) struct Computing {
    on: Arc<dyn Compute>,
    /// How many the program has asked for.
    asked: Cell<u64>,
    slots: Arc<Semaphore>,
}

impl Computing {
    pub(super) fn new(on: Arc<dyn Compute>) -> Self {
        Self { on, asked: Cell::new(0), slots: Arc::new(Semaphore::new(AT_A_TIME)) }
    }

    /// The number of a computation: the same one when the program is run again.
    fn next_number(&self) -> u64 {
        let number = self.asked.get();
        self.asked.set(number + 1);
        number
    }
}

/// A computation on its thread. Dropped, when it is over or was never begun, its Owner is told.
struct Begun {
    number: u64,
    owner: Inlet<ProgramCall>,
    _slot: OwnedSemaphorePermit,
}

impl Drop for Begun {
    fn drop(&mut self) {
        // The job may be over by now.
        let _ = self.owner.send(ProgramCall::Computed { number: self.number });
    }
}

impl Futures {
    /// Computes something that takes long, on a thread of its own, while other jobs and the calls of this one go on. The function owns
    /// what it works on, and has no futures API; several computations may be under way, of which eight run at a time.
    ///
    /// What it returns is logged: when the program is run again, it gets the same without computing it. It is taken apart and put together
    /// again in between, as parameters of tasks are. A panic of the function is one of the program: it fails the job with its words.
    ///
    /// ```compile_fail
    /// # async fn program(futures: exobus_actors::futures::Futures) -> Result<(), exobus_actors::task::JobError> {
    /// let within = futures.clone();
    /// futures.compute(move || within.random()).await?; // It has no futures API.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What it returns has more than [`COMPUTED_BYTES_MAX`] (the same error when the program is run again) or cannot be encoded, or the
    /// system has no thread for it.
    pub fn compute<T, F>(&self, function: F) -> impl Future<Output = Result<T, JobError>> + 'static
    where
        F: FnOnce() -> T + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let (futures, number) = (self.clone(), self.computing().next_number());
        async move {
            if let Some(noted) = futures.replayed_computed(number) {
                return noted.map_err(too_large).and_then(|bytes| decode(&bytes));
            }
            let (noted, value) = futures.apart(number, move || taken_apart(&function())).await??;
            futures.log_computed(number, noted);
            value
        }
    }

    /// As [`compute`](Self::compute), of a function that always returns the same for what it owns: nothing is logged, and it is computed
    /// again when the program is run again. What it returns may have any size.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn compute_pure<T, F>(&self, function: F) -> impl Future<Output = Result<T, JobError>> + 'static
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (futures, number) = (self.clone(), self.computing().next_number());
        async move { futures.apart(number, function).await }
    }

    async fn apart<R: Send + 'static>(
        &self,
        number: u64,
        function: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, JobError> {
        let slots = self.computing().slots.clone();
        let slot = slots.acquire_owned().await.map_err(|_| JobError::Cancelled)?;
        let thread = thread_name();
        self.call(ProgramCall::Computes { number, thread: thread.clone() })?;
        let begun = Begun { number, owner: self.owner().clone(), _slot: slot };
        let (answer, result) = oneshot::channel();
        let computation = move || {
            let result = catch_unwind(AssertUnwindSafe(function));
            drop(begun);
            // The program may not wait for it any more.
            let _ = answer.send(result);
        };
        let began = self.computing().on.begin(&thread, Box::new(computation));
        began.map_err(|error| JobError::Runtime { reason: format!("a thread to compute on: {error}") })?;
        match result.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(JobError::Runtime { reason: format!("the computation on thread {thread} was dropped") }),
        }
    }
}

/// What is logged of a result, or how many bytes it has where these are too many.
pub(super) type Noted = Result<Bytes, u64>;

/// A result as it is logged, and as the program gets it: the same in each of its runs.
fn taken_apart<T: Serialize + DeserializeOwned>(value: &T) -> Result<(Noted, Result<T, JobError>), JobError> {
    let bytes = rmp_serde::to_vec_named(value).map_err(JobError::program)?;
    if bytes.len() > COMPUTED_BYTES_MAX {
        let bytes = bytes.len() as u64;
        return Ok((Err(bytes), Err(too_large(bytes))));
    }
    let value = decode(&bytes);
    Ok((Ok(bytes.into()), value))
}

fn too_large(bytes: u64) -> JobError {
    JobError::program(format!(
        "the program computed a result of {bytes} bytes, and the log of the job takes {COMPUTED_BYTES_MAX}: return what it is made from, \
         put it into an object (Futures::put) in a task, or declare that it is pure (Futures::compute_pure)"
    ))
}
