//! Memory of the Owner while a program holds many references.

use exobus_actors::{
    futures::{Futures, ObjectRef},
    program,
    task::JobError,
};
use exobus_store::{Clock, SystemClock};
use serde::{Deserialize, Serialize};

use super::{Figures, Place, tasks::noop};
use crate::exit::Failure;

/// What was found.
#[derive(Serialize, Deserialize)]
struct Held {
    owner_bytes: u64,
    seconds: f64,
}

/// How many may be submitted before they are waited for.
const AHEAD: usize = 10_000;

/// Makes tasks that have the outputs of the two before them as arguments, and holds on to all references.
#[program(name = "bench.metadata", version = 1)]
async fn hold(futures: Futures, count: u64) -> Result<Held, JobError> {
    let clock = SystemClock::new();
    let mut held: Vec<ObjectRef> = Vec::with_capacity(count as usize);
    for number in 0..count {
        let arguments = match held.len() {
            0 | 1 => Vec::new(),
            length => vec![held[length - 2].arg(), held[length - 1].arg()],
        };
        held.push(futures.submit(noop, &number, &arguments)?);
        if held.len() > AHEAD {
            futures.ready(&held[held.len() - AHEAD]).await?;
        }
    }
    futures.wait_all(&held[held.len().saturating_sub(AHEAD)..]).await?;
    let owner_bytes = futures.owner_bytes().await?;
    Ok(Held { owner_bytes, seconds: clock.now().as_secs_f64() })
}

pub(super) fn run(place: &Place<'_>) -> Result<Figures, Failure> {
    let count = place.args.count.unwrap_or(1_000_000);
    let held = place.run("bench.metadata", count, hold)?;
    Ok(vec![
        ("references", count as f64),
        ("owner_bytes", held.owner_bytes as f64),
        ("owner_bytes_per_reference", held.owner_bytes as f64 / count.max(1) as f64),
        ("seconds", held.seconds),
    ])
}
