//! exobus: the object store.

pub mod clock;
pub mod error;
pub mod ids;
pub mod meta;
pub mod options;

pub use clock::{Clock, SystemClock};
pub use error::{DirState, StoreError};
pub use ids::{ObjectId, RowHash};
pub use meta::{ObjectMeta, PartMeta, Parts};
pub use options::{Align, Class, EventHook, StoreEvent, StoreOptions, StoreStats, WriterOptions};
