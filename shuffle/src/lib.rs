//! Shuffle strategies and jobs over distributed futures, and the kernels that they run.
//!
//! A [`Job`] says *what* happens to data (map, reduce); a strategy says *when* and *where*. A [`Plan`] holds all counts and
//! sizes; they are derived in one place.
//!
//! | strategy | blocks | bytes moved | peak memory | when |
//! |---|---|---|---|---|
//! | [`simple`](strategies::simple) | maps x partitions parts in `maps` objects | D from maps to reduces | whatever the budget is; all of D is stored between the two phases | inputs up to some hundred GB, partitions up to some thousands |
//!
//! # How to add a job
//! Over rows with keys: a type that implements [`KeyedJob`](keyed::KeyedJob), see [`keyed`]; the ones that are here are in
//! `jobs/`, and all strategies run them. With kernels of its own, as the sort: a type that implements [`Job`].
//!
//! # How to add a strategy
//! A file in `strategies/` with one `run`, a variant of [`Strategy`], a row in the table above.

#[cfg(feature = "contract")]
pub mod contract;
pub mod cuts;
mod error;
pub mod files;
mod job;
pub mod jobs;
pub mod kernels;
pub mod keyed;
mod plan;
pub mod records;
pub mod rows;
pub mod strategies;

#[doc(hidden)]
pub use exobus_actors as actors;

pub use error::ShuffleError;
pub use job::Job;
pub use plan::{Plan, PlanError, Sizes};
pub use strategies::Strategy;
