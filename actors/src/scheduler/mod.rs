//! Scheduler: lends the slots of nodes to jobs, fairly. One per cluster.
//!
//! It sees leases, never single tasks: an Owner says how many slots of which shape its job could use
//! ([`Demand`](crate::protocol::scheduler::SchedulerMsg::Demand)), the Scheduler lends slots on nodes for a few seconds and renews the
//! loan while the demand is repeated. Which task runs in which slot is the Owner's business.
//!
//! # Promises
//! - A node is never over-committed: what is lent on it, plus what is being given back but may still be in use, never
//!   exceeds what it has.
//! - Fair, max-min by dominant share, first between tenants, then between the jobs of a tenant: a second job makes the
//!   leases of the first one shrink. What is taken away is free again when the Owner says so, or when the old loan
//!   would have ended, not before.
//! - Nobody starves: jobs for which there is no slot take turns with those that have one ([`SchedulerOptions::turn`]).
//! - Work conserving: no slot that fits an unmet demand stays unlent.
//! - A demand that waits says why; one that no node of the cluster can ever meet says so ("needs 1 gpu, cluster has 0").
//! - The death of a node ends its leases at once; words of older incarnations change nothing.
//! - Deterministic: the same events at the same times give the same effects.
//!
//! # Time and silence
//! A lease names how long it lasts from its arrival ([`Lease::lasts_ms`](protocol::Lease::lasts_ms)), never a point in
//! time: clocks of nodes are not compared. The Scheduler itself waits a grace longer before it lends the slots again.
//! While no Scheduler speaks, Owners extend the leases they have; one that is heard and does not renew a lease has ended it.
//!
//! # One after the other
//! Who is the Scheduler is [elected](crate::election), and may change: a [`SchedulerLink`] leads to whoever it is. One that
//! begins knows nothing. Nodes register at once when they hear of it and name the jobs that have ended there; Owners say
//! what they want and which leases of earlier epochs they go on with, and these are *taken over*: nobody else gets what
//! they use. So that it does not lend what it will hear of in a moment, it lends and answers nothing for
//! [`SchedulerOptions::gather`]. Its first word to an Owner, of a higher [`Epoch`](crate::ids::Epoch), replaces the leases of
//! all earlier epochs; words of those change nothing from then on.
//!
//! # Deliberately absent
//! Preemption of started tasks (their slots come back when they end), weights and quotas of tenants, reservations in
//! advance, gang scheduling. Packing is greedy: a demand
//! of one shape is met whenever it can be, several shapes of different sizes may leave a gap that a perfect packing
//! would not.

mod actor;
mod core;
pub mod event;
mod lend;
mod link;
mod loan;
pub mod plan;
pub mod state;
mod why;

#[cfg(feature = "simulation")]
pub(crate) use self::core::{SchedulerCore, SchedulerEffect};
pub use actor::Scheduler;
pub use event::{SchedulerEvent, UnfinishedJob};
pub use link::SchedulerLink;
pub use state::{Effect, Event, SchedulerOptions, State};

#[cfg(test)]
mod property_tests;
