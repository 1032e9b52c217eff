//! Aggregates of groups of rows: what `sum(price) as total, avg(price), quantile(x, 0.9)` gives, the same to the bit whatever the order of the rows and however they were
//! divided.
//!
//! An [`Aggregate`] is a text or what [`Aggregate::new`] makes, and is the same either way. [`Aggregate::bind`] looks its column up in a schema and says what comes out; then
//! [`Bound::accumulator`] makes the [`Accumulator`] that takes rows by columns, with the group of each row beside them. `docs/semantics.md` says what results mean.
//!
//! Promises:
//! - Sums, means and variances are of exact sums, of floats too, which are rounded once, at the end: no order of additions shows.
//! - Bytes of states follow from the values that were added, not from their order.
//! - Whether a sum overflows is judged at the end, by [`Accumulator::finish`].
//! - Nulls count nowhere but in `count(*)`, `first` and `last`; the result of no value is null, the count of none 0.
//! - A row takes no memory of its own: an accumulator takes some bytes a group, which [`Accumulator::bytes`] says.
//!
//! `count_distinct` and quantiles have no accumulator: they follow from the sorted values of a group. [`quantile_rank`], [`quantile_ranks`] and [`interpolated`] say how.
//!
//! ```text
//! aggregates := aggregate ("," aggregate)*
//! aggregate  := function "(" argument ["," number] ")" ["as" name]
//! argument   := "*" | ["distinct"] name
//! name       := characters but spaces, commas, brackets and quotes, or anything in double quotes, a quote doubled
//! ```

mod accumulator;
mod aggregate;
mod bound;
mod bytes;
mod checked;
mod columns;
mod counts;
mod error;
mod estimated;
mod extremes;
mod floats;
mod function;
mod keys;
mod parser;
mod picked;
mod places;
mod quantiles;
mod quotient;
mod totals;
mod variances;
mod whole;

pub use accumulator::Accumulator;
pub use aggregate::{Aggregate, parse_list};
pub use bound::Bound;
pub use error::AggregateError;
pub use estimated::Estimated;
pub use function::Function;
pub use quantiles::{interpolated, quantile_rank, quantile_ranks};

#[cfg(test)]
mod tests;
