//! Why a job stands still. Pure: what is known goes in, and words come out; the [core](super::core) asks.
//!
//! A new reason to wait is, where it is of a whole job, a field of `Facts`; of an attempt, a variant of `Doing` (found in `node_manager/why.rs`);
//! of a task that has no node, a case of `why_not_placed` (`core/handing_out.rs`); of a slot that is missing, one of `scheduler/why.rs`. All of them become
//! words in `chain.rs`.
//!
//! ```text
//! watchdog.rs   whether the job goes on, and when to say that it does not      chain.rs   from facts to a chain of causes
//! ```

pub(super) mod chain;
pub(super) mod watchdog;
