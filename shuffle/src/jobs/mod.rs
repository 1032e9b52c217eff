//! Jobs: what a shuffle does to data.

pub mod aggregate;
pub(crate) mod inputs;
pub mod outputs;
pub mod pieces;
pub mod random_shuffle;
pub mod reads;
pub mod sort;
pub mod values;
pub mod wordcount;

pub use aggregate::Aggregate;
pub use random_shuffle::RandomShuffle;
pub use wordcount::WordCount;
