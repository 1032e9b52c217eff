//! What a shuffle does to data, apart from when and where.

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::task::{Arg, JobError, Place};

/// A job that can be shuffled. Each method submits one task and returns at once.
pub trait Job {
    /// Names the exchange between maps and reduces, for errors: "sort.map -> sort.reduce".
    fn exchange(&self) -> &'static str;

    /// Submits map `index`: one object with as many parts as there are partitions.
    ///
    /// # Errors
    /// The task cannot be submitted.
    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError>;

    /// Submits the reduce of `partition`; `column` is that part of all map outputs.
    ///
    /// # Errors
    /// The task cannot be submitted.
    fn reduce(&self, futures: &Futures, partition: u32, column: Arg, place: Place) -> Result<ObjectRef, JobError>;
}
