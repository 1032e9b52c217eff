//! Opening what needs durable streams, on servers that may have none.

use std::time::Duration;

use exobus_bus::BusError;
use tokio::time::{Instant, sleep};
use tracing::debug;

/// How often it is tried.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// A server that has just started answers nothing about streams for a moment.
const STREAMS_DEADLINE: Duration = Duration::from_secs(2);

/// Tries to `open` something for `deadline`. `Ok(Err(_))` says that the servers have no durable streams for this user.
///
/// # Errors
/// The bus does not answer, or refuses.
pub(crate) async fn open_durable<T>(
    deadline: Duration,
    open: impl AsyncFn() -> Result<T, BusError>,
) -> Result<Result<T, BusError>, BusError> {
    let end = Instant::now() + deadline;
    let no_streams_before = Instant::now() + STREAMS_DEADLINE.min(deadline);
    loop {
        match open().await {
            Err(error) if error.may_heal() => {
                // Nobody there to answer may also mean: not yet.
                let patience = if no_streams(&error) { no_streams_before } else { end };
                if Instant::now() < patience {
                    debug!(%error, "durable streams are not there yet");
                    sleep(TRY_EVERY).await;
                } else if no_streams(&error) {
                    return Ok(Err(error));
                } else {
                    return Err(error);
                }
            }
            Err(error) if no_streams(&error) => return Ok(Err(error)),
            other => return other.map(Ok),
        }
    }
}

/// Whether the servers have no durable streams for this user.
fn no_streams(error: &BusError) -> bool {
    matches!(error, BusError::Unsupported(_) | BusError::NoResponders { .. } | BusError::Denied { .. })
}
