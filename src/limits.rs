//! What the system lets this process have, looked at before anything is started: a clear word then instead of a strange
//! failure later.

use exobus_actors::node::memory::GROUP_SPARE_BYTES;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::exit::{Exit, Failure};

/// A node that is alone opens some 20 files and sockets; one of a cluster, with a few peers, some 50.
const OPEN_FILES_MIN: u64 = 64;

/// Refuses a memory that the control group of this process, which may have `group_bytes`, would be killed for.
///
/// # Errors
/// The group may not have so much.
pub fn memory(memory_bytes: u64, group_bytes: Option<u64>) -> Result<(), Failure> {
    let needed_bytes = memory_bytes.saturating_add(GROUP_SPARE_BYTES);
    match group_bytes {
        Some(group_bytes) if group_bytes < needed_bytes => Err(Failure::text(
            Exit::Usage,
            format!(
                "{memory_bytes} bytes of memory need a control group of {needed_bytes}, with what the kernel counts beside \
                 them, and that of this process has {group_bytes}: use less (--memory, node.memory), or raise the limit \
                 of the group"
            ),
        )),
        _ => Ok(()),
    }
}

/// Raises the limit of open files as far as this process may, and refuses to go on with too few.
///
/// # Errors
/// The limit is too low.
pub fn check() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Many systems give 1024 at first and far more to who asks. Where it does not work, what there is has to do.
    let files = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    match files {
        Some(files) if files < OPEN_FILES_MIN => Err(Failure::text(
            Exit::Usage,
            format!(
                "this process may have {files} open files, at least {OPEN_FILES_MIN} are needed: raise `ulimit -n`"
            ),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_beyond_the_control_group_is_refused_with_both_sizes() {
        const MIB: u64 = 1 << 20;
        assert!(memory(64 * MIB, None).is_ok());
        assert!(memory(64 * MIB, Some(96 * MIB)).is_ok());
        let refused = memory(64 * MIB, Some(95 * MIB)).unwrap_err().to_string();
        assert!(refused.contains("67108864") && refused.contains("99614720"), "{refused}");
        assert!(memory(u64::MAX, Some(79 * MIB)).is_err());
    }
}
