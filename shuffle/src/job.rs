//! What a shuffle does to data, apart from when and where.

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::ids::NodeId;
use exobus_actors::task::{Arg, JobError, Place};
use serde::{Deserialize, Serialize};

/// A job that can be shuffled. Each method submits one task and returns at once.
pub trait Job {
    /// Names the stages and the edges between them, for progress and errors: "sort" gives "sort.map -> sort.reduce".
    fn name(&self) -> &'static str;

    /// Submits map `index`: one object with as many parts as there are partitions.
    ///
    /// # Errors
    /// The task cannot be submitted.
    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError>;

    /// Submits a merge: an object for each of `pieces`, with that many parts. All blocks of all `blocks` have as many parts
    /// as the pieces together; each part that is made is made of those at its position, counted over the pieces. What
    /// is made may be merged again and is reduced like the output of a map.
    ///
    /// A merge is to write piece after piece, sealing each
    /// ([`seal_output`](exobus_actors::registry::TaskContext::seal_output)), so that it holds no more of what it makes than
    /// one.
    ///
    /// # Errors
    /// The task cannot be submitted.
    fn merge(
        &self,
        futures: &Futures,
        blocks: &[Arg],
        pieces: &[u32],
        place: Place,
    ) -> Result<Vec<ObjectRef>, JobError>;

    /// Submits the reduce of `partition`; `columns` are that part of everything that was not merged further.
    ///
    /// # Errors
    /// The task cannot be submitted.
    fn reduce(&self, futures: &Futures, partition: u32, columns: &[Arg], place: Place) -> Result<ObjectRef, JobError>;

    /// How a partition is divided that is far larger than others; `None`: it cannot be.
    fn key_ranges(&self) -> Option<&dyn KeyRanges> {
        None
    }
}

/// A job whose partitions can be divided by key, so that several reduces work on one of them. Each method submits one task
/// and returns at once.
pub trait KeyRanges {
    /// Looks at `column`, all of it on `node`, and returns the keys of random rows as a `Vec<Key>`: any row as likely as
    /// any other. Takes no memory for the rows.
    ///
    /// # Errors
    /// The task cannot be submitted.
    fn sample(&self, futures: &Futures, column: Arg, draw: Draw, node: &NodeId) -> Result<ObjectRef, JobError>;

    /// Makes one object of `column` with as many parts as `cuts`, a [`Cuts`](crate::Cuts) as MessagePack, divide its
    /// keys into. Each of them is reduced, or divided further, like the output of a map.
    ///
    /// # Errors
    /// The task cannot be submitted.
    fn split(&self, futures: &Futures, column: Arg, cuts: &ObjectRef, place: Place) -> Result<ObjectRef, JobError>;

    /// Submits the reduce of one range of keys of `partition`. `range` is its number; where that range was divided again,
    /// the number in there follows, and so on. What is made of ranges in lexical order is in the order of keys.
    ///
    /// # Errors
    /// The task cannot be submitted.
    fn reduce_range(
        &self,
        futures: &Futures,
        partition: u32,
        range: &[u32],
        columns: &[Arg],
        place: Place,
    ) -> Result<ObjectRef, JobError>;
}

/// Which rows are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draw {
    /// How many of all there are, repeats included.
    pub keys: u32,
    /// Bytes of all, of which a task sees some.
    pub of_bytes: u64,
    /// Decides which.
    pub seed: u64,
}

impl Draw {
    /// How many of `bytes` bytes: in proportion, and at least one where there is something.
    pub fn keys_of(&self, bytes: u64) -> u64 {
        (u128::from(self.keys) * u128::from(bytes)).div_ceil(u128::from(self.of_bytes.max(1))) as u64
    }
}

/// A key, on the wire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(#[serde(with = "serde_bytes")] pub Vec<u8>);
