//! The sort of a table by a key: files in, files in key order out.
//!
//! 1. *describe*: which files there are, their schemas as one, their splits;
//! 2. *sample*: keys of some of the splits; the cuts between partitions follow from them;
//! 3. *map*: splits in, one object with a part for each partition out, each in order;
//! 4. *merge*, where the strategy has it;
//! 5. *reduce*: one part of everything into a file of Parquet;
//! 6. *commit*: when all rows are accounted for.
//!
//! The files follow from the input and the options alone: how many there are from the bytes of the input, cuts from a sample whose rows follow from the input, the order of rows of one key
//! from their places in the input, which rows have on their way. Memory, nodes, strategies and faults change nothing of them (law 9).

mod program;
mod tasks;

pub use crate::reading::ReadOptions;
pub use program::{SortTable, SortedTable, sort};
pub use tasks::WriteOptions;
