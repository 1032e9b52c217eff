//! The lock of a claim: the system takes it back when the process ends that has it, however that ends.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::{CLAIM, ClaimLock, LockState};

/// Locks the claim on `folder`.
pub(in crate::local) fn lock(folder: &Path) -> io::Result<LockState> {
    let file = File::open(folder.join(CLAIM))?;
    #[cfg(test)]
    if super::tests::PLAIN.get() {
        return Ok(LockState::Unknown);
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(LockState::Ours(ClaimLock::of(file))),
        Err(Errno::WOULDBLOCK) => Ok(LockState::Held),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK | Errno::INVAL | Errno::BADF) => Ok(LockState::Unknown),
        Err(error) => Err(error.into()),
    }
}
