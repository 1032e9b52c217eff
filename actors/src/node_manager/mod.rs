//! NodeManager: decides which task starts next on its node, and gets arguments ready. One per node.
//!
//! A task is *queued* until its arguments are being *staged*, is *ready* when all of them are in memory (or open as
//! streams), and is *handed* to the executors when one is free. Tasks are staged in the order in which they came; one
//! task more than executors is kept staged, so that arguments are fetched while earlier tasks run.

mod actor;
mod doubts;
mod event;
mod executor;
mod gate;
mod losses;
mod pushed;
mod remote;
mod staging;
mod state;
mod waits;
mod why;
mod windows;

pub use actor::{NodeManager, NodeManagerParts};
pub(crate) use doubts::Doubts;
pub use event::NodeEvent;
#[cfg(feature = "simulation")]
pub(crate) use executor::{Executor, Flags};
pub use executor::{ExecutorLink, Report, Work};
pub(crate) use executor::{ExecutorParts, SPIN, ThreadExecutors};
pub use gate::Gate;
pub(crate) use pushed::{Look, Pushed, PushedCall, Take};
pub(crate) use staging::Stager;
pub use staging::StagingDone;
#[cfg(feature = "simulation")]
pub(crate) use state::{Effect, Key, NodeState, Phase};
pub(crate) use waits::Tally;

#[cfg(test)]
mod lost_tests;
