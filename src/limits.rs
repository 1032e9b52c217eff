//! What the system lets this process have, looked at before anything is started: a clear word then instead of a strange
//! failure later.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::exit::{Exit, Failure};

/// A node that is alone opens some 20 files and sockets; one of a cluster, with a few peers, some 50.
const OPEN_FILES_MIN: u64 = 64;

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
