//! No-op tasks: how many a second, and how long one takes.

use std::time::Duration;

use exobus_actors::{
    futures::{Futures, Window},
    program,
    registry::{TaskContext, TaskError},
    task,
    task::JobError,
};
use exobus_store::{Clock, SystemClock};
use serde::{Deserialize, Serialize};

use super::{
    Figures, Place,
    percentiles::{micros, percentile},
};
use crate::exit::Failure;

/// Does nothing; distinct parameters make distinct tasks.
#[task(name = "bench.noop")]
pub(super) fn noop(_context: &mut TaskContext<'_>, number: u64) -> Result<u64, TaskError> {
    Ok(number)
}

/// What [`many`] is told.
#[derive(Clone, Serialize, Deserialize)]
struct Many {
    count: u64,
    outstanding: u64,
}

/// Submits tasks, at most `outstanding` at a time, and reads every result; seconds it took.
#[program(name = "bench.tasks", version = 1)]
async fn many(futures: Futures, params: Many) -> Result<f64, JobError> {
    // A bench is not replayed, so it may look at the clock.
    let clock = SystemClock::new();
    let mut window = Window::new(params.outstanding as usize);
    let mut sum = 0u64;
    for number in 0..params.count {
        if window.len() as u64 >= params.outstanding {
            sum = sum.wrapping_add(read_next(&futures, &mut window).await?);
        }
        let value = futures.submit(noop, &number, &[])?;
        window.track(&futures, &value)?;
    }
    while !window.is_empty() {
        sum = sum.wrapping_add(read_next(&futures, &mut window).await?);
    }
    let expected = (0..params.count).fold(0u64, u64::wrapping_add);
    if sum != expected {
        return Err(JobError::program(format!("the results add up to {sum}, not {expected}")));
    }
    Ok(clock.now().as_secs_f64())
}

async fn read_next(futures: &Futures, window: &mut Window) -> Result<u64, JobError> {
    match window.next(futures).await? {
        Some(value) => futures.get_value(&value).await,
        None => Ok(0),
    }
}

/// One task at a time: the time of each, submit to result, in nanoseconds.
#[program(name = "bench.latency", version = 1)]
async fn one_by_one(futures: Futures, count: u64) -> Result<Vec<u64>, JobError> {
    let clock = SystemClock::new();
    let mut times = Vec::with_capacity(count as usize);
    for number in 0..count {
        let began = clock.now();
        let value = futures.submit(noop, &number, &[])?;
        if futures.get_value::<u64>(&value).await? != number {
            return Err(JobError::program(format!("task {number} returned something else")));
        }
        times.push((clock.now() - began).as_nanos() as u64);
    }
    Ok(times)
}

pub(super) fn throughput(place: &Place<'_>) -> Result<Figures, Failure> {
    let params = Many { count: place.args.count.unwrap_or(500_000), outstanding: 10_000 };
    let count = params.count;
    let seconds = place.run("bench.tasks", params, many)?;
    Ok(vec![("tasks", count as f64), ("seconds", seconds), ("tasks_per_s", count as f64 / seconds)])
}

pub(super) fn latency(place: &Place<'_>) -> Result<Figures, Failure> {
    let count = place.args.count.unwrap_or(20_000);
    // The first ones find cold caches and unlent slots.
    let warm_up = count / 10;
    let times: Vec<u64> = place.run("bench.latency", count + warm_up, one_by_one)?;
    let mut times: Vec<Duration> = times.into_iter().skip(warm_up as usize).map(Duration::from_nanos).collect();
    Ok(vec![
        ("tasks", count as f64),
        ("p50_us", micros(percentile(&mut times, 0.5))),
        ("p99_us", micros(percentile(&mut times, 0.99))),
        ("max_us", micros(percentile(&mut times, 1.0))),
    ])
}
