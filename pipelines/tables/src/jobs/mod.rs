//! Jobs over tables, on the strategies of [`exobus_shuffle`].
//!
//! - [`sort`]: rows in the order of a key;
//! - [`shuffle`]: rows in a random order that a seed decides, in files of even length;
//! - [`dedupe`]: one row of each key;
//! - [`convert`]: rows as they are, in files of another format or length.
//!
//! All of them read files within memory that is asked for ([`ReadOptions`](crate::reading::ReadOptions)), write files whose bytes follow from the input and the options alone ([`WriteOptions`]), and prove that no
//! row was lost (law 1).

mod budget;
pub mod convert;
mod count;
pub mod dedupe;
mod described;
mod output;
mod rewrite;
pub mod shuffle;
pub mod sort;
mod table;

pub use output::{FileSize, WriteOptions};
pub use rewrite::{Rewrite, Rewritten};
