//! Why a job stands still. Pure: what is known goes in, and words come out; the [core](super::core) asks.
//!
//! A new reason to wait is, where it is of a whole job, a field of `Facts`; filled in `core/asking.rs` (`wait_facts`); of an attempt, a variant of `Doing`, which
//! crosses the wire (`protocol/node_manager.rs`) and is found in `node_manager/core/saying.rs` and, while its arguments come, `node_manager/why.rs`. These become words
//! in `chain.rs`. Of a task that has no node it is a case of `why_not_placed` (`core/handing_out.rs`), of a slot that is missing, one of `scheduler/why.rs`, each
//! in words already.
//!
//! ```text
//! watchdog.rs   whether the job goes on, and when to say that it does not      chain.rs   from facts to a chain of causes
//! ```

pub(super) mod chain;
pub(super) mod watchdog;
