//! Names of things. A type for each, so that two ids never swap by accident:
//!
//! ```compile_fail
//! use exobus_actors::ids::{JobId, TaskId};
//! fn cancel(_task: TaskId) {}
//! cancel(JobId::from_u128(7)); // a job is not a task
//! ```

use std::fmt;
use std::sync::Arc;

use exobus_store::{Clock, SystemClock};
pub use exobus_store::{ObjectId, RowHash};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::random::{Random, SystemRandom};

macro_rules! id128 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(#[serde(with = "as_bytes")] u128);

        impl $name {
            /// The id with exactly these 128 bits.
            pub const fn from_u128(bits: u128) -> Self {
                Self(bits)
            }

            /// The 128 bits of the id.
            pub const fn as_u128(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:032x})", stringify!($name), self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                u128::from_str_radix(text, 16).map(Self)
            }
        }
    };
}

/// MessagePack has no 128-bit integers: ids travel as 16 big-endian bytes. People read 32 hexadecimal digits.
pub(crate) mod as_bytes {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bits: &u128, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            return to.collect_str(&format_args!("{bits:032x}"));
        }
        serde_bytes::serialize(&bits.to_be_bytes()[..], to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        if from.is_human_readable() {
            let text = String::deserialize(from)?;
            return u128::from_str_radix(&text, 16).map_err(D::Error::custom);
        }
        serde_bytes::deserialize::<serde_bytes::ByteArray<16>, D>(from).map(|bytes| u128::from_be_bytes(*bytes))
    }
}

id128!(
    /// One job: a coordinator program and everything that it started.
    JobId
);
id128!(
    /// A task is its description (law 2): the hash of job, function, parameters, arguments, returns and salt.
    TaskId
);
id128!(
    /// An interned list of objects: the hash of their ids, in order.
    SetId
);

impl JobId {
    /// A new job, by the clock and the random numbers of the operating system. Inside a node there are its own:
    /// [`Node::new_job`](crate::node::Node::new_job).
    pub fn new() -> Self {
        Self::made(&SystemClock::new(), &SystemRandom)
    }

    /// A new job: a version 7 UUID, so that jobs sort by the millisecond of their start.
    pub fn made(clock: &dyn Clock, random: &dyn Random) -> Self {
        let [time, random] = [u128::from(clock.unix_ms()), random.next_u128()];
        // RFC 9562, section 5.7: 48 bits of time, the version, 12 random bits, the variant, 62 random bits.
        let bits = time << 80 | (random & !(u128::MAX << 80));
        Self(
            uuid::Builder::from_u128(bits)
                .with_variant(uuid::Variant::RFC4122)
                .with_version(uuid::Version::SortRand)
                .into_uuid()
                .as_u128(),
        )
    }

    /// When it was made, milliseconds since 1970 by the wall clock of who made it.
    pub const fn made_unix_ms(self) -> u64 {
        (self.0 >> 80) as u64
    }

    /// The group under which a store keeps the objects of this job.
    pub fn group(self) -> u128 {
        self.0
    }
}

impl Default for JobId {
    fn default() -> Self {
        Self::new()
    }
}

/// Odd, so that multiplying by it permutes the 128-bit numbers: the outputs of one task never collide.
const OUTPUT_STRIDE: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

impl TaskId {
    /// The id of the output `index` of this task; known before the task runs.
    pub const fn output(self, index: u32) -> ObjectId {
        ObjectId(self.0.wrapping_add(OUTPUT_STRIDE.wrapping_mul(index as u128 + 1)))
    }
}

impl SetId {
    /// The set of these objects, in this order.
    pub fn of(members: &[ObjectId]) -> Self {
        let mut hasher = XxHash3_128::new();
        for member in members {
            hasher.write(&member.0.to_be_bytes());
        }
        Self(hasher.finish_128())
    }

    /// This set with something declared of it: another set, with books of its own.
    pub fn declared(self, declaration: &[u8]) -> Self {
        let mut hasher = XxHash3_128::new();
        hasher.write(&self.0.to_be_bytes());
        hasher.write(declaration);
        Self(hasher.finish_128())
    }
}

/// A node: a token `[A-Za-z0-9_-]+`, unique in its cluster, kept in the node's spill directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// The node of this name.
    ///
    /// # Panics
    /// When the name is not a subject token: names are checked where they enter, in the configuration.
    pub fn new(name: &str) -> Self {
        assert!(Self::is_valid(name), "node name {name:?} is not a token of [A-Za-z0-9_-]");
        Self(name.into())
    }

    /// Whether `name` can name a node: 1 to 64 characters of `[A-Za-z0-9_-]`.
    pub fn is_valid(name: &str) -> bool {
        (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    }

    /// The name as a subject token.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({})", self.0)
    }
}

/// Which life of a node: larger is later. A restarted or fenced node comes back with a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// Which try of a task, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Attempt(pub u32);

impl Attempt {
    /// Each run of a job counts on from this many times its number: nobody has made so many attempts of a task, and an attempt of
    /// an earlier run is never taken for one of this run.
    pub const PER_RUN: u32 = 10_000;

    /// The run of the job that it was made in, from 0.
    pub fn run(self) -> u32 {
        self.0 / Self::PER_RUN
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which reign of a Scheduler: messages of an older one are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// A loan of slots on a node to a job; unique within an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_the_wire_and_text() {
        let task = TaskId::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        let bytes = rmp_serde::to_vec_named(&task).unwrap();
        assert_eq!(bytes.len(), 18, "bin8 header and 16 bytes");
        assert_eq!(rmp_serde::from_slice::<TaskId>(&bytes).unwrap(), task);
        assert_eq!(task.to_string().parse::<TaskId>().unwrap(), task);
        let json = serde_json::to_string(&task).unwrap();
        assert_eq!(json, "\"0123456789abcdef0123456789abcdef\"");
        assert_eq!(serde_json::from_str::<TaskId>(&json).unwrap(), task);
    }

    #[test]
    fn outputs_of_a_task_have_different_ids() {
        let task = TaskId::from_u128(42);
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|index| task.output(index)).collect();
        assert_eq!(ids.len(), 1000);
    }

    #[test]
    fn a_set_depends_on_the_order_of_its_members() {
        let (a, b) = (ObjectId(1), ObjectId(2));
        assert_ne!(SetId::of(&[a, b]), SetId::of(&[b, a]));
    }

    #[test]
    fn node_names_are_tokens() {
        assert!(NodeId::is_valid("n-1_A"));
        for bad in ["", "a.b", "a b", "ä", "*"] {
            assert!(!NodeId::is_valid(bad), "{bad}");
        }
    }
}
