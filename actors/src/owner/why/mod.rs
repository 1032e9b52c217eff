//! Why a job stands still. Pure: what is known goes in, and words come out; the [core](super::core) asks.
//!
//! ```text
//! watchdog.rs   whether the job goes on, and when to say that it does not      chain.rs   from facts to a chain of causes
//! ```

pub(super) mod chain;
pub(super) mod watchdog;
