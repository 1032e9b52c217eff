//! Windows of tasks whose arguments are streams: the same for all jobs.

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_store::{Scratch, StoreError};

/// Windows of a task whose runs are streams: this for all of them together, bytes.
const RUN_WINDOWS_BYTES: usize = 2 << 20;
/// No run gets less, bytes.
const RUN_WINDOW_MIN_BYTES: usize = 4 << 10;
/// More is of no use to a run, bytes.
const RUN_WINDOW_MAX_BYTES: usize = 256 << 10;

/// A window for each run: as large as is of use and as memory allows.
///
/// # Errors
/// There is no memory for the smallest windows.
pub(crate) fn run_windows(context: &mut TaskContext<'_>, runs: usize) -> Result<Vec<Scratch>, TaskError> {
    let mut bytes = (RUN_WINDOWS_BYTES / runs.max(1)).clamp(RUN_WINDOW_MIN_BYTES, RUN_WINDOW_MAX_BYTES);
    loop {
        let windows = (0..runs).map(|_| context.scratch(bytes as u64)).collect::<Result<Vec<_>, _>>();
        match windows {
            Err(StoreError::Denied { .. }) if bytes > RUN_WINDOW_MIN_BYTES => {
                bytes = (bytes / 4).max(RUN_WINDOW_MIN_BYTES);
            }
            windows => return Ok(windows?),
        }
    }
}
