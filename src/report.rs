//! What a job shows while it runs and when it is done, made from its events and nothing else.
//!
//! [`Progress`] folds events into figures and is pure; [`Reporter`] shows it, as bars on a terminal and as plain lines
//! otherwise, from a thread of its own: a slow terminal never holds up the job. All of it goes to stderr; stdout
//! belongs to results.
//!
//! Who asks for it also gets a [`Timeline`] of the job as files ([`Views`]): a trace for Perfetto, and a picture.

#[cfg(feature = "sql")]
mod answer;
mod bars;
mod estimates;
mod eta;
pub mod plot;
mod progress;
mod reporter;
mod rows;
mod summary;
mod table;
mod text;
pub mod timeline;
pub mod trace;
mod views;

#[cfg(feature = "sql")]
pub use self::answer::{AnswerSummary, with_rows};
pub use self::{
    estimates::{GROUPS_DRAWN, largest_error, snapshot_table},
    progress::{Progress, Stage},
    reporter::{Reporter, Style},
    rows::ShownRows,
    summary::{JobSummary, KeyedSummary, KeyedWords, OnlineSummary, Place, TableSummary, TableWords},
    table::{DrawnColumn, DrawnTable},
    text::{about, bytes, count, counted, duration, rate},
    timeline::Timeline,
    views::{Views, command_line},
};
