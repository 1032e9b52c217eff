//! Files that tables are written to, front to back.

mod error;
pub mod parquet;

pub use error::SinkError;
pub use parquet::{Compression, ParquetOptions, ParquetSink};
