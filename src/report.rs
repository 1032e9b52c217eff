//! What a job shows while it runs and when it is done, made from its events and nothing else.
//!
//! [`Progress`] folds events into figures and is pure; [`Reporter`] shows it, as bars on a terminal and as plain lines
//! otherwise, from a thread of its own: a slow terminal never holds up the job. All of it goes to stderr; stdout
//! belongs to results.

mod bars;
mod progress;
mod reporter;
mod summary;
mod text;

pub use self::{
    progress::{Progress, Stage},
    reporter::{Reporter, Style},
    summary::SortSummary,
    text::{bytes, count, rate},
};
