//! Conditions that rows have to meet: `price > 3 and city in ('x', 'y')`.
//!
//! An [`Expression`] is a text or what [`col`] builds, and is the same either way: it travels as its text. [`Expression::bind`] looks its columns up in a schema and its values
//! into their types, once; [`Bound`] then goes over batches by columns. `docs/semantics.md` says what comparisons mean; a row stays where the condition is *true*, not where it
//! is null.
//!
//! ```text
//! condition  := and ("or" and)*
//! and        := not ("and" not)*
//! not        := "not" not | "(" condition ")" | test
//! test       := column | "true" | "false" | "null"
//!             | value ("=" | "!=" | "<>" | "<" | "<=" | ">" | ">=") value
//!             | column "is" ["not"] "null"
//!             | column ["not"] "in" "(" literal ("," literal)* ")"
//!             | value ["not"] "between" value "and" value
//!             | column ["not"] "like" text ["escape" text]
//! value      := column | literal
//! column     := name ("." name)*          name: letters, digits and _, or anything in double quotes, a quote doubled
//! literal    := 3 | -2.5 | 1e9 | 'text', a quote doubled | true | false | null | date '2024-01-31' | timestamp '2024-01-31 12:30:15Z'
//! ```
//!
//! Words are known in any case, names letter by letter. Promises: no text and no batch makes it panic; what is wrong with a text is said with its place; nesting is bounded
//! ([`DEPTH_MAX`]), and so is what evaluating takes: two bits a row for each level of it.

mod bind;
mod bound;
mod build;
mod columns;
mod error;
mod extents;
mod like;
mod parser;
mod points;
mod ranges;
mod tokens;
mod tree;
mod truth;

pub use bound::Bound;
pub use build::{Column, col, lit};
pub use error::ExpressionError;
pub use extents::Extent;
pub use tree::{Comparison, DEPTH_MAX, Expression, Literal, Operand, TEXT_BYTES_MAX};

#[cfg(test)]
mod tests;
