//! Owner: keeps a job's truth: tasks, lineage, references, locations, attempts. One per job.

mod actor;
mod asking;
mod attempts;
mod chain;
mod commit;
#[cfg(test)]
mod commit_tests;
mod copy;
mod deferred;
mod event;
mod exchange;
mod facts;
mod figures;
mod lanes;
mod leasing;
mod lifetime;
mod logging;
#[cfg(test)]
mod mutant_tests;
mod offers;
mod placement;
mod placing;
#[cfg(test)]
mod placing_tests;
#[cfg(test)]
mod property_tests;
mod rare;
mod reach;
#[cfg(test)]
mod reach_tests;
mod reading;
mod replay;
#[cfg(test)]
mod replay_tests;
mod resume;
#[cfg(test)]
mod resume_tests;
mod retry_placement;
mod run_times;
mod state;
#[cfg(test)]
mod state_tests;
mod stragglers;
#[cfg(test)]
mod stragglers_tests;
mod tables;
mod watchdog;
#[cfg(test)]
mod world_tests;

pub(crate) use actor::{JobOutcome, OwnerActor, OwnerParts};
#[cfg(feature = "simulation")]
pub(crate) use deferred::{DeferredFrees, Freed};
pub(crate) use event::OwnerEvent;
#[cfg(feature = "simulation")]
pub(crate) use leasing::{Asker, Leasing};
pub(crate) use logging::OwnerLog;
#[cfg(feature = "simulation")]
pub(crate) use state::{Effect, Tracker};
#[cfg(feature = "simulation")]
pub(crate) use tables::OwnerState;
#[cfg(feature = "simulation")]
pub(crate) use watchdog::{Look, Watchdog};
