//! What a shuffle does to data, apart from when and where.

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::task::{Arg, JobError, Place};

/// A job that can be shuffled. Each method submits one task and returns at once.
pub trait Job {
    /// Names the stages and the exchanges between them, for progress and errors: "sort" gives "sort.map -> sort.reduce".
    fn name(&self) -> &'static str;

    /// Submits map `index`: one object with as many parts as there are partitions.
    ///
    /// # Errors
    /// The task cannot be submitted.
    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError>;

    /// Submits a merge: one object of `parts` parts, each made of the parts at the same position of all blocks of all
    /// `blocks`. Its result may be merged again and is reduced like the output of a map.
    ///
    /// # Errors
    /// The task cannot be submitted.
    fn merge(&self, futures: &Futures, blocks: &[Arg], parts: u32, place: Place) -> Result<ObjectRef, JobError>;

    /// Submits the reduce of `partition`; `column` is that part of everything that was not merged further.
    ///
    /// # Errors
    /// The task cannot be submitted.
    fn reduce(&self, futures: &Futures, partition: u32, column: Arg, place: Place) -> Result<ObjectRef, JobError>;
}
