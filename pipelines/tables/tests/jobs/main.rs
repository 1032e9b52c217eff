//! Jobs over tables in nodes of this process.

mod convert;
mod dedupe;
mod shuffle;
mod sort;
mod support;
