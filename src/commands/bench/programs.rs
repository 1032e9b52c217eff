//! Programs that measure: what a task costs, what an object costs.

use std::collections::BTreeMap;

use exobus_actors::futures::{Futures, ObjectRef, Window};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::{JobError, Place, TaskOptions};
use exobus_actors::{ids::RowHash, program, task};
use exobus_store::{Clock, SystemClock};
use serde::{Deserialize, Serialize};

use super::shuffle;

/// Figures by name; the name ends with the unit.
pub type Figures = BTreeMap<String, f64>;

/// What to measure.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct BenchParams {
    /// Which figure.
    pub what: What,
}

/// Which figure to measure.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum What {
    /// No-op tasks a second.
    Tasks,
    /// Submit to result of one task at a time.
    Latency,
    /// Bytes and objects put a second.
    Put,
    /// Bytes between nodes a second.
    Transfer,
    /// Memory of the Owner for a million references.
    Metadata,
    /// A shuffle of parts of one row.
    Shuffle {
        /// Maps.
        maps: u32,
        /// Partitions.
        partitions: u32,
    },
    /// The same small shuffles through sets and through edges.
    Edges,
}

/// Outstanding tasks while throughput is measured.
const OUTSTANDING: usize = 10_000;
/// No-op tasks of one measurement.
const TASKS: u64 = 500_000;
/// Tasks before measuring: the first ones teach the scheduler how short they are, and touch memory.
const WARM_UP_TASKS: u64 = 20_000;
/// Tasks whose latency is measured.
const LATENCY_TASKS: usize = 20_000;
/// A large object.
const LARGE_BYTES: usize = 100_000_000;
/// Large objects put, or moved.
const LARGE_OBJECTS: usize = 20;
/// A small object.
const SMALL_BYTES: usize = 1_000;
/// Small objects put.
const SMALL_OBJECTS: u64 = 400_000;
/// References that are held at the same time.
const REFERENCES: u64 = 1_000_000;

/// Does nothing.
#[task(name = "bench.noop")]
fn noop(_context: &mut TaskContext<'_>, _number: u64) -> Result<(), TaskError> {
    Ok(())
}

/// Makes an object of so many bytes.
#[task(name = "bench.make")]
fn make(context: &mut TaskContext<'_>, params: (u64, u64)) -> Result<(), TaskError> {
    let (seed, bytes) = params;
    let writer = context.output_sized(bytes)?;
    writer.begin_part(Some(bytes))?;
    let mut left = bytes as usize;
    while left > 0 {
        let spare = writer.spare()?;
        let n = spare.len().min(left);
        spare[..n].fill(seed as u8);
        writer.advance(n);
        left -= n;
    }
    writer.end_part(0, RowHash::default());
    Ok(())
}

/// Takes an object and looks at its length.
#[task(name = "bench.take")]
fn take(context: &mut TaskContext<'_>, _number: u64) -> Result<u64, TaskError> {
    Ok(context.block(0).len() as u64)
}

/// The program behind `exobus bench`.
///
/// # Errors
/// A task failed.
#[program(name = "bench", version = 1)]
pub async fn bench(futures: Futures, params: BenchParams) -> Result<Figures, JobError> {
    match params.what {
        What::Tasks => tasks(&futures).await,
        What::Latency => latency(&futures).await,
        What::Put => put(&futures).await,
        What::Transfer => transfer(&futures).await,
        What::Metadata => metadata(&futures).await,
        What::Shuffle { maps, partitions } => shuffle::shuffle(&futures, maps, partitions).await,
        What::Edges => shuffle::edges(&futures).await,
    }
}

pub(super) fn figures<const N: usize>(named: [(&str, f64); N]) -> Figures {
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

async fn noops(futures: &Futures, from: u64, count: u64) -> Result<(), JobError> {
    let mut window = Window::new(OUTSTANDING);
    for number in from..from + count {
        while window.len() >= OUTSTANDING {
            read_one(futures, &mut window).await?;
        }
        window.track(futures, &futures.submit(noop, &number, &[])?)?;
    }
    while read_one(futures, &mut window).await? {}
    Ok(())
}

async fn read_one(futures: &Futures, window: &mut Window) -> Result<bool, JobError> {
    let Some(result) = window.next(futures).await? else { return Ok(false) };
    futures.get(&result).await?;
    Ok(true)
}

async fn tasks(futures: &Futures) -> Result<Figures, JobError> {
    let clock = SystemClock::new();
    noops(futures, 0, WARM_UP_TASKS).await?;
    let mut rates = Vec::new();
    for round in 0..5 {
        let started = clock.now();
        noops(futures, WARM_UP_TASKS + round * TASKS / 5, TASKS / 5).await?;
        rates.push((TASKS / 5) as f64 / (clock.now() - started).as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    Ok(figures([
        ("tasks_per_s_median", rates[2].round()),
        ("tasks_per_s_min", rates[0].round()),
        ("tasks_per_s_max", rates[4].round()),
        ("outstanding", OUTSTANDING as f64),
    ]))
}

async fn latency(futures: &Futures) -> Result<Figures, JobError> {
    let nodes = futures.nodes();
    let mut all = Figures::new();
    for shape in &nodes {
        // Where there are several nodes, one is the host of this program, and the others are over the bus.
        let suffix = if nodes.len() > 1 { format!("_{}", shape.node) } else { String::new() };
        let place = Place::Node { node: shape.node.clone(), soft: false };
        let micros = latencies(futures, TaskOptions { place, ..TaskOptions::default() }).await?;
        let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize];
        for (name, share) in [("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99)] {
            all.insert(format!("{name}{suffix}"), at(share));
        }
    }
    Ok(all)
}

/// Microseconds from submit to result, ascending.
async fn latencies(futures: &Futures, options: TaskOptions) -> Result<Vec<f64>, JobError> {
    let clock = SystemClock::new();
    let mut micros = Vec::with_capacity(LATENCY_TASKS);
    let warm_up = LATENCY_TASKS / 10;
    for number in 0..LATENCY_TASKS + warm_up {
        let started = clock.now();
        // The salt keeps the tasks of different nodes apart: where a task runs is no part of its identity.
        let options = TaskOptions { salt: futures.random(), ..options.clone() };
        let result = futures.submit_with(noop, &(number as u64), &[], options)?;
        futures.get(&result).await?;
        if number >= warm_up {
            micros.push((clock.now() - started).as_nanos() as f64 / 1000.0);
        }
    }
    micros.sort_by(f64::total_cmp);
    Ok(micros)
}

async fn put(futures: &Futures) -> Result<Figures, JobError> {
    let clock = SystemClock::new();
    let mut bytes = vec![7u8; LARGE_BYTES];
    // The first ones touch the memory that the measured ones use again.
    let mut seconds = Vec::new();
    let mut get_copies = false;
    for number in 0..LARGE_OBJECTS as u64 + 3 {
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let started = clock.now();
        let object = futures.put(&bytes)?;
        let took = (clock.now() - started).as_secs_f64();
        if number >= 3 {
            seconds.push(took);
        }
        let (one, other) = (futures.get(&object).await?, futures.get(&object).await?);
        get_copies |= one.as_ptr() != other.as_ptr();
    }
    seconds.sort_by(f64::total_cmp);
    let large = LARGE_BYTES as f64 / seconds[seconds.len() / 2] / 1e9;

    let mut small = vec![1u8; SMALL_BYTES];
    let mut held: Vec<ObjectRef> = Vec::new();
    let started = clock.now();
    for number in 0..SMALL_OBJECTS {
        small[..8].copy_from_slice(&number.to_le_bytes());
        held.push(futures.put(&small)?);
        if held.len() == OUTSTANDING {
            held.clear();
            // Lets the Owner hear of it, as a real program would.
            tokio::task::yield_now().await;
        }
    }
    futures.owner_bytes().await?;
    let rate = SMALL_OBJECTS as f64 / (clock.now() - started).as_secs_f64();
    Ok(figures([
        ("put_100mb_gb_per_s", large),
        ("get_copies_bytes", f64::from(u8::from(get_copies))),
        ("put_1kb_per_s", rate.round()),
    ]))
}

async fn transfer(futures: &Futures) -> Result<Figures, JobError> {
    let nodes = futures.nodes();
    let [from, to, ..] = nodes.as_slice() else {
        return Err(JobError::program("transfer needs a cluster of at least two nodes"));
    };
    let on = |node: &exobus_actors::ids::NodeId| TaskOptions {
        place: Place::Node { node: node.clone(), soft: false },
        ..TaskOptions::default()
    };
    let clock = SystemClock::new();
    let mut seconds = Vec::new();
    for number in 0..LARGE_OBJECTS as u64 + 3 {
        let object = futures.submit_with(make, &(number, LARGE_BYTES as u64), &[], on(&from.node))?;
        futures.ready(&object).await?;
        let started = clock.now();
        let taken = futures.submit_with(take, &number, &[object.arg()], on(&to.node))?;
        futures.ready(&taken).await?;
        if number >= 3 {
            seconds.push((clock.now() - started).as_secs_f64());
        }
        let length: u64 = futures.get_value(&taken).await?;
        assert_eq!(length, LARGE_BYTES as u64, "the whole object arrived");
    }
    seconds.sort_by(f64::total_cmp);
    let rate = |seconds: f64| LARGE_BYTES as f64 / seconds / 1e9;
    Ok(figures([
        ("transfer_100mb_gb_per_s_median", rate(seconds[seconds.len() / 2])),
        ("transfer_100mb_gb_per_s_min", rate(seconds[seconds.len() - 1])),
        ("transfer_100mb_gb_per_s_max", rate(seconds[0])),
    ]))
}

async fn metadata(futures: &Futures) -> Result<Figures, JobError> {
    let clock = SystemClock::new();
    let started = clock.now();
    let first = futures.submit(noop, &u64::MAX, &[])?;
    let second = futures.submit(noop, &(u64::MAX - 1), &[])?;
    let mut held: Vec<ObjectRef> = vec![first, second];
    let mut window = Window::new(OUTSTANDING);
    for number in 0..REFERENCES {
        window.admit(futures).await?;
        let args = [held[held.len() - 1].arg(), held[held.len() - 2].arg()];
        // Arguments from a while ago, so that the tasks do not form one long chain.
        let args = if held.len() > OUTSTANDING {
            [held[number as usize / 2].arg(), held[number as usize / 3].arg()]
        } else {
            args
        };
        let object = futures.submit(noop, &number, &args)?;
        window.track(futures, &object)?;
        held.push(object);
    }
    window.drain(futures).await?;
    let owner_bytes = futures.owner_bytes().await?;
    Ok(figures([
        ("references", held.len() as f64),
        ("owner_bytes", owner_bytes as f64),
        ("owner_bytes_per_reference", (owner_bytes as f64 / held.len() as f64).round()),
        ("seconds", (clock.now() - started).as_secs_f64()),
    ]))
}
