//! Owner: keeps a job's truth: tasks, lineage, references, locations, attempts. One per job.
//!
//! ```text
//!   events --> shell --> core: on(event) ... on(event), flush() --> effects --> shell: sends, asks, puts, reads, appends
//!   core/      what it decides, which the simulation runs, too      shell.rs   does what was decided
//!   why/       why the job stands still                             event.rs, effect.rs   what goes in and out
//! ```
//!
//! # A task
//! ```text
//!             all arguments are there       placed                an attempt is accepted
//!   Waiting -------------------------> Ready ------> Running ------------------------------> Done
//!    ^   ^                              ^              |  |                                    |
//!    |   | an argument was lost         +--------------+  | the last try failed                | no output is referenced, or remembered
//!    |   +------------------------------  failed, lost    v                                    v by who could ask for it again
//!    |                                    or given back  Failed                              (forgotten; its id is remembered)
//!    +--------- Wanted <--- somebody needs an output that was freed or lost (law 2) ----------- Done
//! ```
//! A call of the program and a word of a node only change states; [`flush`](core::OwnerCore::flush), at the end of each batch of events, places
//! what became ready, on the leases that the job has.
//!
//! # An object
//! Its copies are in [`core::copy`](core): none yet, wanted, at a node, or gone. *References* (handles of the program, sets, tasks that have not
//! completed) keep its value; *lineage* (tasks and sets whose outputs or members could be asked for again) keeps its description.
//! ```text
//!   described --> wanted --> at a node --> freed (no reference) --> wanted again, while its description is kept
//!                    ^           |
//!                    +-----------+ the node died or lost it, and somebody needs it
//! ```
//!
//! # A set
//! ```text
//!   made (version v) --> all members there: tasks that read it are ready --> nodes are told (members and their copies, version v)
//!                             ^                                                   |
//!                             +--- a member was made again elsewhere: version v' -+      released: forgotten with its references
//! ```
//! Versions rise over all sets together; a task names the version that it is to read, and a node with an older one asks.

mod core;
mod effect;
mod event;
mod shell;
mod why;

#[cfg(feature = "simulation")]
pub(crate) use self::core::{Beginning, OwnerCore, OwnerPlace, OwnerState, Surroundings};
pub(crate) use self::effect::JobOutcome;
#[cfg(feature = "simulation")]
pub(crate) use self::effect::{OwnerEffect, OwnerTimer};
pub(crate) use self::event::OwnerEvent;
#[cfg(feature = "simulation")]
pub(crate) use self::event::ReadError;
pub(crate) use self::shell::{OwnerActor, OwnerLog, OwnerParts};
