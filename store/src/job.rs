//! The name of a job: whose the copies of a store are, and the files of a folder.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::{Uuid, Variant, Version};

use crate::{Clock as _, SystemClock, as_bytes};

/// Where a UUID has its version,
const UUID_KIND_SHIFT: u32 = 76;
/// ... that of jobs' ids,
const UUID_KIND_OF_JOBS: u128 = 7;
/// ... and what stands there in the groups of results: "custom".
const UUID_KIND_OF_RESULTS: u128 = 8;

/// One job: a coordinator program and everything that it started. Printed as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(#[serde(with = "as_bytes")] u128);

impl JobId {
    /// A new job, by the clock and the random numbers of the operating system. Inside a node there are its own.
    #[allow(clippy::disallowed_methods, reason = "for who has no source of randomness: tools and tests")]
    pub fn new() -> Self {
        // What of a UUID is no random bit is none of a job's either.
        Self::made(SystemClock::new().unix_ms(), Uuid::new_v4().as_u128())
    }

    /// The job that was made then, milliseconds since 1970, with these random bits: a version 7 UUID, so that jobs sort by the millisecond of
    /// their start.
    pub fn made(unix_ms: u64, random: u128) -> Self {
        // RFC 9562, section 5.7: 48 bits of time, the version, 12 random bits, the variant, 62 random bits.
        let bits = u128::from(unix_ms) << 80 | (random & !(u128::MAX << 80));
        let uuid = uuid::Builder::from_u128(bits).with_variant(Variant::RFC4122).with_version(Version::SortRand);
        Self(uuid.into_uuid().as_u128())
    }

    /// The id with exactly these 128 bits.
    pub const fn from_u128(bits: u128) -> Self {
        Self(bits)
    }

    /// The 128 bits of the id.
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// When it was made, milliseconds since 1970 by the wall clock of who made it.
    pub const fn made_unix_ms(self) -> u64 {
        (self.0 >> 80) as u64
    }

    /// The group under which a store keeps the objects of this job.
    pub const fn group(self) -> u128 {
        self.0
    }

    /// The group under which a store keeps the result of this job: no id of a job, as it is no version 7 UUID.
    pub const fn result_group(self) -> u128 {
        self.0 & !(0xf << UUID_KIND_SHIFT) | UUID_KIND_OF_RESULTS << UUID_KIND_SHIFT
    }

    /// The job whose result is kept under this group; `None`: it is none of a result.
    pub const fn of_result_group(group: u128) -> Option<Self> {
        match Self(group).is_taken() {
            true => Some(Self(group & !(0xf << UUID_KIND_SHIFT) | UUID_KIND_OF_JOBS << UUID_KIND_SHIFT)),
            false => None,
        }
    }

    /// Whether the group of this job would be that of a result: no job may have such an id.
    pub const fn is_taken(self) -> bool {
        self.0 >> UUID_KIND_SHIFT & 0xf == UUID_KIND_OF_RESULTS
    }
}

impl Default for JobId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({:032x})", self.0)
    }
}

impl std::str::FromStr for JobId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_result_is_that_of_no_job_and_says_whose_it_is() {
        let job = JobId::new();
        assert_ne!(job.result_group(), job.group());
        assert_eq!(JobId::of_result_group(job.result_group()), Some(job));
        assert_eq!(JobId::of_result_group(job.group()), None);
        assert!(JobId::from_u128(job.result_group()).is_taken() && !job.is_taken());
    }
}
