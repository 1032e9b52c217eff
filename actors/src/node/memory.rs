//! What a process may use, and what of it is the store's: the one place where that is decided.
//!
//! The number that a user gives is what the *process* may use: anonymous and shared memory together, as its control group
//! counts them. [`SET_ASIDE_BYTES`] of it are for what is there whatever the jobs do; all the rest is the store's, whose
//! budget counts blocks, scratch, reserves and the tables of jobs. `docs/memory.md` says what the set-aside is made of.

use super::{NodeError, NodeOptions};

/// Of the memory of a process, what is not its store's: code that was written to, stacks, buffers of disk threads,
/// connections, the client of the bus, the index of spill files, and what the allocator keeps.
pub const SET_ASIDE_BYTES: u64 = 32 << 20;

/// The least memory of a process that runs a node: half of it is the store's.
pub const MEMORY_MIN_BYTES: u64 = 2 * SET_ASIDE_BYTES;

/// Beside the memory that a process is told to use, its control group has to have this: page tables, sockets, files that
/// are being read and written.
pub const GROUP_SPARE_BYTES: u64 = 32 << 20;

/// What each executor has to have of the store, so that a plan can be made for any job.
const STORE_PER_EXECUTOR_BYTES: u64 = 8 << 20;

/// What the store has of the memory of a process.
///
/// # Errors
/// [`NodeError::TooLittleMemory`].
pub fn store_bytes(memory_bytes: u64) -> Result<u64, NodeError> {
    if memory_bytes < MEMORY_MIN_BYTES {
        return Err(NodeError::TooLittleMemory {
            given: memory_bytes,
            set_aside_bytes: SET_ASIDE_BYTES,
            least_bytes: MEMORY_MIN_BYTES,
        });
    }
    Ok(memory_bytes - SET_ASIDE_BYTES)
}

/// How many of `wanted` executors a process with so much memory has work for, at least one.
pub fn executors_within(memory_bytes: u64, wanted: u32) -> u32 {
    let fit = memory_bytes.saturating_sub(SET_ASIDE_BYTES) / STORE_PER_EXECUTOR_BYTES;
    wanted.min(fit.try_into().unwrap_or(u32::MAX)).max(1)
}

impl NodeOptions {
    /// A node that is alone in a process that may use `memory_bytes`, with all that is beside objects: what
    /// `exobus node` and `exobus sort --memory` are told. See [`NodeOptions::alone`] for one whose store has a size.
    ///
    /// # Errors
    /// [`NodeError::TooLittleMemory`].
    pub fn within(executors: usize, memory_bytes: u64) -> Result<Self, NodeError> {
        Ok(Self::alone(executors, store_bytes(memory_bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_store_has_what_is_not_set_aside() {
        assert_eq!(store_bytes(64 * MIB).unwrap(), 32 * MIB);
        assert_eq!(store_bytes(1 << 30).unwrap(), (1 << 30) - 32 * MIB);
        assert_eq!(NodeOptions::within(2, 96 * MIB).unwrap().store.memory_bytes, 64 * MIB);
    }

    #[test]
    fn too_little_is_refused_in_words_that_say_what_to_do() {
        for (given, said) in [(0, "0 MiB"), (10 * MIB, "10 MiB"), (64 * MIB - 1, "67108863 bytes")] {
            let refused = store_bytes(given).unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("{said} of memory")) && refused.contains("64 MiB or more"),
                "{refused}"
            );
            assert!(refused.contains("--memory") && refused.contains("node.memory"), "{refused}");
        }
    }

    #[test]
    fn a_small_process_has_fewer_executors_than_cpus() {
        assert_eq!([64, 96, 1024].map(|mib| executors_within(mib * MIB, 32)), [4, 8, 32]);
        assert_eq!(executors_within(0, 4), 1);
    }
}
