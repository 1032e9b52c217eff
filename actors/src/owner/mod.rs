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
//!   submitted --> Waiting <---------------------------------------- Wanted <------- Done, and an output is needed
//!     |             |   ^                                             ^             that was freed or lost (law 2)
//!     |   arguments |   | an argument was lost                        |
//!     |   are there v   |                                             |
//!     |            Ready  --- placed on a lease ---> Running          |
//!     |                                               |  |            |
//!     |    failed, lost or given back, may try again: |  | an attempt is accepted
//!     |    Waiting or Ready                         <-+  v
//!     +-- the log has it, or it was done before -------> Done ----> (forgotten but for its id, when nobody references its
//!                                                                    outputs or could ask for them again)
//! ```
//! A task becomes *Failed* from any state but Done: its last try failed, it was cancelled, or one that it needs failed. One that is to run again is *Done*
//! at once when the copies come back for which it was to. What was cancelled makes again what it had made before that (a stream, under way), for who needs it, and is
//! cancelled again then. A call of the program and a message of a node only change states; `OwnerCore::flush`,
//! at the end of each batch of events, places what became ready, on the leases that the job has.
//!
//! # An object
//! *References* (handles of the program, sets, tasks that have not completed) keep its value; *lineage* (tasks and sets whose outputs or
//! members could be asked for again) keeps its description. Which copy of it counts is drawn in `core/copy.rs`.
//!
//! # A set
//! ```text
//!   made, referenced again,          lacks members --> complete: tasks that read it are ready
//!   a member came, moved, was lost:         ^              |
//!   another version                         +--------------+ a member was lost
//! ```
//! Versions rise over all sets together. A task names the version that it is to read, and its node is told of that before; a node with an older
//! one asks. A set is forgotten when nobody references it or could ask for its members again.

mod core;
mod effect;
mod event;
mod shell;
mod why;

#[cfg(feature = "simulation")]
pub(crate) use self::core::{Beginning, JobResult, OwnerCore, OwnerPlace, OwnerState, Surroundings};
pub(crate) use self::effect::JobOutcome;
#[cfg(feature = "simulation")]
pub(crate) use self::effect::{OwnerEffect, OwnerTimer};
pub(crate) use self::event::OwnerEvent;
#[cfg(feature = "simulation")]
pub(crate) use self::event::ReadError;
pub(crate) use self::shell::{OwnerActor, OwnerLog, OwnerParts};
