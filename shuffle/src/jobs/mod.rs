//! Jobs: what a shuffle does to data.

pub mod sort;
