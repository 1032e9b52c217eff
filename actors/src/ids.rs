//! Names of things. A type for each, so that two ids never swap by accident:
//!
//! ```compile_fail
//! use exobus_actors::ids::{JobId, TaskId};
//! fn cancel(_task: TaskId) {}
//! cancel(JobId::from_u128(7)); // a job is not a task
//! ```

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

pub(crate) use exobus_store::as_bytes;
pub use exobus_store::{CopyId, JobId, RowHash};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::random::Random;

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

/// The same for the name of a copy: its group, then its bits.
pub(crate) mod copy_as_bytes {
    use exobus_store::CopyId;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Name(#[serde(with = "super::as_bytes")] u128, #[serde(with = "super::as_bytes")] u128);

    pub fn serialize<S: Serializer>(copy: &CopyId, to: S) -> Result<S::Ok, S::Error> {
        Name(copy.group, copy.bits).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<CopyId, D::Error> {
        Name::deserialize(from).map(|Name(group, bits)| CopyId::new(group, bits))
    }
}

id128!(
    /// A task is its description (law 2): the hash of job, function, parameters, arguments, returns and salt.
    TaskId
);
id128!(
    /// An object, as programs and lineage know it: an output of a task, or what a program put into the store. Its low 32 bits are
    /// zero: the name of a [copy](Self::copy) has its number there.
    ObjectId
);
id128!(
    /// An interned list of objects: the hash of their ids, in order; of members of an edge, with that of the edge.
    SetId
);
id128!(
    /// An edge of a job: the hash of what is declared of it and of how many the program has opened before that are declared alike.
    EdgeId
);

/// Odd, so that multiplying by it permutes the 96-bit numbers: the outputs of one task never collide.
const OUTPUT_STRIDE: u128 = 0x7f4a_7c15_f39c_c060_5ced_c835;

impl TaskId {
    /// The id of the output `index` of this task; known before the task runs.
    pub const fn output(self, index: u32) -> ObjectId {
        // Shifting cuts off what is beyond 96 bits.
        ObjectId(
            (self.0 >> CopyNumber::BITS).wrapping_add(OUTPUT_STRIDE.wrapping_mul(index as u128 + 1))
                << CopyNumber::BITS,
        )
    }
}

impl ObjectId {
    /// What a program puts into the store: the hash of the job's secret and of the xxh3-128 of the content.
    pub fn of_content(secret: JobSecret, content: u128) -> Self {
        let hash = XxHash3_128::oneshot([secret.0.to_le_bytes(), content.to_le_bytes()].as_flattened());
        Self(hash & !CopyNumber::MASK)
    }

    /// The copy of it that has this number, in this job.
    pub const fn copy(self, job: JobId, number: CopyNumber) -> CopyId {
        CopyId::new(job.group(), self.0 | number.get() as u128)
    }

    /// Its name where no copy of it is meant, in this job.
    pub(crate) const fn bare(self, job: JobId) -> CopyId {
        CopyId::new(job.group(), self.0)
    }

    /// The object of which this is a copy, and which one; `None`: it is no name that an Owner gives.
    pub const fn of_copy(copy: CopyId) -> (Self, Option<CopyNumber>) {
        (Self(copy.bits & !CopyNumber::MASK), CopyNumber::of_bits((copy.bits & CopyNumber::MASK) as u32))
    }
}

/// Which copy of an object. Each task has one counter, for all that is made of its outputs: an attempt takes the next number, and so
/// does what is put back; so a number never means two things, and who frees a copy, however late, never frees another one (law 4).
/// The run of the job in which it was given stands above the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CopyNumber(NonZeroU32);

impl CopyNumber {
    /// How many bits of the name of a copy are its number.
    const BITS: u32 = 32;
    const MASK: u128 = (1 << Self::BITS) - 1;
    /// How many of these count within a run.
    const COUNTER_BITS: u32 = 20;
    /// Most copies of the outputs of a task in a run.
    pub const PER_RUN: u32 = (1 << Self::COUNTER_BITS) - 1;
    /// Of what a program puts, so many numbers of a run, the last ones, are for copies that the Owner puts back.
    const PUT_BACK: u32 = 1 << 10;
    /// Most runs of a job.
    pub const RUNS: u32 = 1 << (Self::BITS - Self::COUNTER_BITS);
    /// The first one of a job.
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// The number `counted`, from 1, of a run, from 0; `None`: there is no such number.
    pub const fn new(run: u32, counted: u32) -> Option<Self> {
        if run >= Self::RUNS || counted == 0 || counted > Self::PER_RUN {
            return None;
        }
        match NonZeroU32::new(run << Self::COUNTER_BITS | counted) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number of a copy that a program puts, as the `counted` one of its object in a run, from 1; `None`: there is no such number.
    pub const fn put(run: u32, counted: u32) -> Option<Self> {
        if counted > Self::PER_RUN - Self::PUT_BACK { None } else { Self::new(run, counted) }
    }

    /// The number of a copy that the Owner puts back of what a program had put, as the `counted` one of a run, from 0; `None`: there is no such number.
    pub const fn put_back(run: u32, counted: u32) -> Option<Self> {
        if counted >= Self::PUT_BACK { None } else { Self::new(run, Self::PER_RUN - counted) }
    }

    /// The run of the job in which it was given, from 0.
    pub const fn run(self) -> u32 {
        self.0.get() >> Self::COUNTER_BITS
    }

    /// The how manieth of its run it is, from 1.
    pub const fn counted(self) -> u32 {
        self.0.get() & Self::PER_RUN
    }

    /// As the store keeps it beside a copy ([`WriterOptions::maker`](exobus_store::WriterOptions::maker)).
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// The number with these bits; `None`: there is none with them.
    pub const fn of_bits(bits: u32) -> Option<Self> {
        Self::new(bits >> Self::COUNTER_BITS, bits & Self::PER_RUN)
    }
}

/// 128 random bits from which all ids of a job start: who does not know them guesses none. They stand in the job's log, so that a job
/// that is taken up again has the same ids, and are shown nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSecret(#[serde(with = "as_bytes")] u128);

impl JobSecret {
    /// Another one than ever before.
    pub fn new(random: &dyn Random) -> Self {
        Self(random.next_u128())
    }

    /// The one with exactly these bits.
    pub const fn from_u128(bits: u128) -> Self {
        Self(bits)
    }

    pub(crate) const fn to_le_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

impl fmt::Debug for JobSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobSecret")
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

    /// These members of an edge, in this order. What is read of an edge is in the identity of who reads it with its members, not only with their
    /// number: a run of the job whose log has lost its end may let others join.
    pub fn of_members(edge: EdgeId, members: &[ObjectId]) -> Self {
        let listed = Self::of(members).0.to_be_bytes();
        Self(XxHash3_128::oneshot([&edge.0.to_be_bytes()[..], b"members", &listed].concat().as_slice()))
    }
}

impl EdgeId {
    /// The edge with this ordinal, from 0, of those that are declared alike.
    pub fn of(declaration: &[u8], ordinal: u64) -> Self {
        let mut hasher = XxHash3_128::new();
        hasher.write(&ordinal.to_be_bytes());
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

/// Tells each beginning of a node from those before: larger is later. A restarted or fenced node comes back with a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// Which try of a task: the number of the copies that it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(CopyNumber);

impl Attempt {
    /// The first one of a task.
    pub const FIRST: Self = Self(CopyNumber::FIRST);

    /// Attempt `counted`, from 1, of the first run of a job.
    ///
    /// # Panics
    /// No run has so many.
    pub const fn nth(counted: u32) -> Self {
        Self(CopyNumber::new(0, counted).expect("a run has fewer attempts of a task"))
    }

    /// The attempt whose copies have this number.
    pub const fn of(number: CopyNumber) -> Self {
        Self(number)
    }

    /// The run of the job that it was made in, from 0.
    pub const fn run(self) -> u32 {
        self.0.run()
    }

    /// What the copies that it makes are called.
    pub const fn makes(self) -> CopyNumber {
        self.0
    }
}

/// What people read: which one of its task it is; of a job that was taken up again, with the run before it, from 0.
impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.run() {
            0 => self.0.counted().fmt(f),
            run => write!(f, "{run}.{}", self.0.counted()),
        }
    }
}

/// The number of a Scheduler: it rises from one to the next, and messages of an older one are dropped.
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
        let last = TaskId::from_u128(u128::MAX);
        assert!(
            (0..1000).all(|index| last.output(index).as_u128() & CopyNumber::MASK == 0),
            "copies have their number there"
        );
    }

    #[test]
    fn a_copy_names_its_object_its_run_and_its_number() {
        let (job, object) = (JobId::from_u128(7), TaskId::from_u128(u128::MAX).output(3));
        let number = CopyNumber::new(5, 1).unwrap();
        assert_eq!((number.run(), number.counted()), (5, 1));
        let copy = object.copy(job, number);
        assert_eq!(copy.group, job.as_u128());
        assert_eq!(ObjectId::of_copy(copy), (object, Some(number)));
        assert_eq!((Attempt::of(number).to_string(), Attempt::FIRST.to_string()), ("5.1".to_owned(), "1".to_owned()));
        let put = ObjectId::of_content(JobSecret::from_u128(1), 2);
        assert_eq!(ObjectId::of_copy(put.copy(job, number)), (put, Some(number)));
    }

    #[test]
    fn a_run_has_only_so_many_numbers_and_a_job_only_so_many_runs() {
        let last = CopyNumber::new(CopyNumber::RUNS - 1, CopyNumber::PER_RUN).unwrap();
        assert_eq!((last.get(), CopyNumber::of_bits(last.get())), (u32::MAX, Some(last)));
        assert_eq!(CopyNumber::new(0, CopyNumber::PER_RUN + 1), None);
        assert_eq!(CopyNumber::new(CopyNumber::RUNS, 1), None);
        assert_eq!((CopyNumber::new(3, 0), CopyNumber::of_bits(3 << 20), CopyNumber::of_bits(0)), (None, None, None));
    }

    #[test]
    fn what_the_program_puts_and_what_is_put_back_of_it_have_different_numbers() {
        let last_put = CopyNumber::PER_RUN - CopyNumber::PUT_BACK;
        let (put, back) = (CopyNumber::put(3, last_put).unwrap(), CopyNumber::put_back(3, CopyNumber::PUT_BACK - 1));
        assert_eq!((put.counted() + 1, put.run()), (back.unwrap().counted(), 3));
        assert_eq!((CopyNumber::put(3, last_put + 1), CopyNumber::put_back(3, CopyNumber::PUT_BACK)), (None, None));
        assert_eq!(CopyNumber::put_back(3, 0).map(CopyNumber::counted), Some(CopyNumber::PER_RUN));
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", JobSecret::from_u128(0xabc)), "JobSecret");
    }

    #[test]
    fn a_set_depends_on_the_order_of_its_members() {
        let [a, b] = [1, 2].map(|number| ObjectId::from_u128(number << 32));
        assert_ne!(SetId::of(&[a, b]), SetId::of(&[b, a]));
    }

    #[test]
    fn what_is_read_of_an_edge_is_named_by_the_edge_and_the_members() {
        let [first, second] = [0, 1].map(|ordinal| EdgeId::of(b"map -> reduce", ordinal));
        let members = [1, 2].map(|number| ObjectId::from_u128(number << 32));
        let names = [
            SetId::of(&members),
            SetId::of_members(first, &members[..1]),
            SetId::of_members(first, &members),
            SetId::of_members(second, &members),
        ];
        assert_eq!(names.into_iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn node_names_are_tokens() {
        assert!(NodeId::is_valid("n-1_A"));
        for bad in ["", "a.b", "a b", "ä", "*"] {
            assert!(!NodeId::is_valid(bad), "{bad}");
        }
    }
}
