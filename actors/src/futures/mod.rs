//! What strategies see: distributed futures.
//!
//! A program submits tasks and holds references to objects that may not exist yet; references are arguments of further
//! tasks. Dropping the last reference releases the object. Everything that a program learns and that could have been
//! different goes through [`Futures`] and is logged ([`Choices`]), so that a resumed program makes the same tasks
//! (law 3).

mod api;
mod arrivals;
mod call;
mod choices;
mod compute;
mod edges;
mod home;
mod keep;
mod listener;
mod pushes;
mod queue;
mod reference;
mod window;

pub use crate::joblog::NodeShape;
pub use api::Futures;
pub(crate) use api::{CleanUp, FuturesParts};
pub use arrivals::Arrivals;
pub use call::{FoundCopy, Notify, ProgramCall};
pub use choices::Choices;
pub use compute::{COMPUTED_BYTES_MAX, Computation, Compute, ComputeThreads};
pub use edges::Edge;
pub use home::Home;
pub(crate) use home::OtherJobs;
pub use keep::ResultFile;
pub(crate) use keep::{KeepCall, KeepCalls};
pub use listener::{Listener, Notes};
pub use pushes::{Fold, Pushes};
pub use queue::Teller;
#[cfg(test)]
pub(crate) use queue::queue;
pub use reference::{ObjectRef, ObjectSet, ObjectStream};
pub use window::{Came, Window};
