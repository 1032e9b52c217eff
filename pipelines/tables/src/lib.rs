//! Tables: rows of Arrow in objects, what their values mean, and the hash that proves that none was lost.
//!
//! - [`semantics`]: what null, NaN, -0.0, time zones and overflow mean, in one place for all that orders, compares or sums values
//!   (`docs/semantics.md` in words);
//! - [`row_hash`]: the hash of a row (law 1), the same for any encoding, batch border, format and node;
//! - [`block`]: how rows lie in the part of an object: messages of Arrow IPC, gathered straight into memory of the store and read there
//!   without a copy;
//! - [`reading`]: the rows of files that are wanted: some of their columns, and what meets a condition;
//! - [`sources`]: files of Parquet, text, JSON lines and Arrow, cut into splits and read within memory that is asked for;
//! - [`sinks`]: files of Parquet, text, JSON lines and Arrow, written within memory that is asked for;
//! - [`expression`]: conditions that rows have to meet, as text or built, evaluated by columns;
//! - [`aggregates`]: sums, means, extremes and the like of groups of rows, the same whatever the order of the rows;
//! - [`look`]: tables as people look at them, without a job;
//! - [`plain`]: types without their encodings. Dictionaries, run ends and views are ways to write values down, not other values.
//!
//! All of Arrow's types are known but unions, which have neither an order nor one layout.

#[cfg(target_endian = "big")]
compile_error!("blocks and hashes are little-endian, as the bytes of Arrow are on this kind of machine");

pub mod aggregates;
pub mod block;
mod error;
pub mod expression;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod guard;
pub mod hint;
mod hive;
mod ipc_schema;
pub mod jobs;
pub mod kinds;
pub mod look;
pub mod plain;
mod raw;
pub mod reading;
pub mod row_hash;
pub mod semantics;
pub mod sinks;
pub mod sources;

/// Most elements that a list, and all lists of a message together, may have in one column, however few bytes they take: a file of some bytes can say that it has
/// billions of nulls in a list.
pub const ELEMENTS_MAX: u64 = 1 << 26;

pub use error::TableError;
pub use row_hash::RowHasher;
/// The libraries whose types stand in signatures here: rows and schemas, for who does not name them among dependencies.
pub use {arrow_array, arrow_schema};

#[cfg(test)]
mod samples;
