//! NodeManager: decides which task starts next on its node, and gets arguments ready. One per node.
//!
//! A task is *queued* until its arguments are being *staged*, is *ready* when all of them are in memory (or open as
//! streams), and is *handed* to the executors when one is free. Tasks are staged in the order in which they came; one
//! task more than executors is kept staged, so that arguments are fetched while earlier tasks run.

mod actor;
mod core;
mod event;
mod executor;
mod gate;
mod losses;
mod pushed;
mod remote;
mod sets;
mod spared;
mod staging;
mod state;
mod suspicions;
mod waits;
mod why;
mod windows;

pub use actor::{NodeManager, NodeManagerParts};
#[cfg(feature = "simulation")]
pub(crate) use core::{NodeCore, NodeCounts, NodeEffect};
pub use event::{FiguresTaken, NodeEvent, NodeTimer, StagingDone};
#[cfg(feature = "simulation")]
pub(crate) use executor::{Executor, Flags};
pub use executor::{ExecutorLink, Report, Work};
pub(crate) use executor::{ExecutorParts, SPIN, ThreadExecutors};
pub use gate::Gate;
#[cfg(feature = "simulation")]
pub(crate) use losses::{lost, with_losses};
pub(crate) use pushed::{Look, Pushed, PushedCall, Take};
#[cfg(feature = "simulation")]
pub(crate) use sets::{Arguments, Piece};
pub(crate) use spared::{Spared, Unneeded};
pub use staging::Prepared;
pub(crate) use staging::Stager;
#[cfg(feature = "simulation")]
pub(crate) use state::Key;
pub(crate) use suspicions::Suspicions;
pub(crate) use waits::Tally;
#[cfg(feature = "simulation")]
pub(crate) use waits::Waits;

#[cfg(test)]
mod core_tests;
#[cfg(test)]
mod lost_tests;
