//! SQL over files: `SELECT .. FROM 'pages/*.parquet' WHERE .. GROUP BY .. ORDER BY ..`.
//!
//! DataFusion parses, binds and optimises a query ([`text`], [`logical`]) and works out expressions ([`rows`]); what brings rows together are the operators of [`exobus_tables`]. A query becomes a [`Plan`] of these
//! ([`lower`]), once, when its job begins, and a program does one after the other ([`program`]). What there is no operator for is refused, and nothing is approximated that is not asked to be.
//!
//! - [`text`]: the text as a tree, and which tables it names;
//! - [`catalog`]: these tables, and all functions;
//! - [`logical`], [`dialect`]: the query as DataFusion has it, and where it means something else;
//! - [`lower`], [`conditions`]: the same as operators that there are, and as conditions that tables have;
//! - [`plan`]: these operators;
//! - [`rows`]: what becomes of rows one by one: the language of [`exobus_tables::reading::Computed`];
//! - [`select`]: lists of expressions, for who reads tables otherwise;
//! - [`program`], [`answer`]: what does it, and what it answers;
//! - [`kinds`]: how people ask.

mod answer;
mod average;
mod catalog;
mod conditions;
mod dialect;
mod error;
#[cfg(test)]
mod format_tests;
pub mod kinds;
mod logical;
mod lower;
pub mod plan;
pub mod program;
pub mod rows;
mod select;
pub mod text;

pub use self::catalog::Catalog;
pub use self::error::{Position, SqlError};
use self::plan::Plan;
use self::text::Parsed;

/// Plans a query over these tables, whose rows have so many bytes. `now`: when it was asked, in microseconds since 1970. Where there is one, the second plan answers the same, and looks rows up where the first one joins them:
/// it is better as long as what is looked up is small and has one row of each key.
///
/// # Errors
/// What is wrong with it, or for what of it there is no operator.
pub fn plan(parsed: Parsed, catalog: &Catalog, bytes: &[u64], now: i64) -> Result<(Plan, Option<Plan>), SqlError> {
    text::with_room(|| {
        let (written, words) = (parsed.written.clone(), parsed.words.clone());
        let planned = || {
            let logical = logical::logical(parsed, catalog, Some(now))?;
            let plan = lower::lower(&logical, catalog, &written)?;
            let looking_up = match plan.online() {
                // Without a join there is nothing to look up, and each table would be tried in vain.
                Err(_) if plan.has_join() => lower::lower_looking_up(&logical, catalog, &written, bytes),
                _ => None,
            };
            Ok((plan, looking_up))
        };
        planned().map_err(|error: SqlError| error.placed_by(&words))
    })
}
