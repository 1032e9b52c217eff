//! What values mean: when two are equal, which comes first, what they add up to. `docs/semantics.md` says it in words.
//!
//! All that orders, compares, groups or sums goes through this module; nothing else decides what null, NaN, -0.0, a zone or an overflow
//! means. Values are normalised for that only: what is written is what was read, bit by bit.
//!
//! - [`KeyEncoder`] makes bytes of keys that compare as the keys do: sorts, merges, cuts, groups and deduplication know bytes only.
//! - [`canonical`] is a column as comparisons see it.
//! - [`check_order`] and [`check_comparable`] refuse what has no order and what does not compare.
//! - [`ExactSum`] adds integers and decimals without rounding or overflow on the way.

mod canonical;
mod keys;
mod sums;
mod types;

pub use canonical::canonical;
pub use keys::{KeyColumn, KeyEncoder, KeyRows, Nulls, key_hash};
pub use sums::ExactSum;
pub use types::{check_comparable, check_order};

#[cfg(test)]
mod tests;
