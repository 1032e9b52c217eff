//! What values mean: when two are equal, which comes first, what they add up to. `docs/semantics.md` says it in words.
//!
//! All that orders, compares, groups or sums goes through this module; nothing else decides what null, NaN, -0.0, a zone or an overflow
//! means. Values are normalised for that only: what is written is what was read, bit by bit.
//!
//! - [`UnifiedSchema`] is the schema of several files, [`unified`] the type of a column that has two; [`conformed`] makes batches of it.
//! - [`check_schema`] and [`check_type`] say which ways of writing values down are one type: all that hashes, compares or gathers rows asks them.
//! - [`KeyEncoder`] makes bytes of keys that compare as the keys do: sorts, merges, cuts, groups and deduplication know bytes only.
//! - [`KeyDecoder`] makes columns of them again.
//! - [`check_order`] refuses what has no order.
//! - [`ExactSum`] adds integers and decimals without rounding or overflow on the way.
//! - [`ExactFloatSum`] adds floats likewise, [`ExactSquareSum`] their squares: without any rounding, so that no order of additions shows.
//! - [`stored_schema`] says of which types columns are in files of a format that lacks theirs.

mod cells;
mod conformed;
mod decode;
mod floats;
mod keys;
mod levels;
mod stored;
mod sums;
mod types;
mod unified;

pub(crate) use cells::float_order;
pub(crate) use conformed::check_nulls;
pub use conformed::conformed;
pub use decode::KeyDecoder;
pub use floats::{ExactFloatSum, ExactSquareSum, FloatSum};
pub(crate) use floats::{bit_length, nearest};
pub(crate) use keys::find_column;
pub use keys::{KEY_VERSION, KeyColumn, KeyEncoder, KeyRows, MeasuredKeys, NoKeyColumn, Nulls, key_hash};
pub(crate) use levels::{Level, levels, place};
pub use stored::{FileTypes, stored_schema};
pub use sums::ExactSum;
pub(crate) use sums::range;
pub(crate) use types::ZONES;
pub use types::{check_order, check_schema, check_type};
pub use unified::{UnifiedSchema, unified};

#[cfg(test)]
mod tests;
