//! Large objects from one node to another.

use std::time::Duration;

use exobus_actors::{
    futures::Futures,
    program,
    registry::{TaskContext, TaskError},
    task,
    task::{JobError, Place as TaskPlace, TaskOptions},
};
use exobus_store::{Clock, RowHash, SystemClock};

use super::{
    Figures, Place,
    data::noise,
    percentiles::percentile,
};
use crate::exit::{Exit, Failure};

const OBJECT_BYTES: u64 = 100_000_000;

/// Makes an object of so many bytes.
#[task(name = "bench.make")]
fn make(context: &mut TaskContext<'_>, (bytes, seed): (u64, u64)) -> Result<(), TaskError> {
    let writer = context.output()?;
    writer.begin_part(Some(bytes))?;
    let mut left = bytes as usize;
    while left > 0 {
        let spare = writer.spare()?;
        let length = spare.len().min(left);
        noise(&mut spare[..length], seed);
        writer.advance(length);
        left -= length;
    }
    writer.end_part(0, RowHash::default());
    Ok(())
}

/// Takes an object, which must be there for that; returns its length.
#[task(name = "bench.take")]
fn take(context: &mut TaskContext<'_>, _number: u64) -> Result<u64, TaskError> {
    Ok(context.block(0).len() as u64)
}

/// Makes objects on one node and takes them on another, one at a time; nanoseconds of each taking.
#[program(name = "bench.transfer", version = 1)]
async fn send(futures: Futures, count: u64) -> Result<Vec<u64>, JobError> {
    let clock = SystemClock::new();
    let nodes = futures.nodes();
    let [from, to, ..] = &nodes[..] else {
        return Err(JobError::program(format!("needs two nodes, the cluster has {}", nodes.len())));
    };
    let on = |node: &exobus_actors::ids::NodeId| TaskOptions {
        place: TaskPlace::Node { node: node.clone(), soft: false },
        ..TaskOptions::default()
    };
    let mut times = Vec::new();
    for number in 0..count {
        let object = futures.submit_with(make, &(OBJECT_BYTES, number), &[], on(&from.node))?;
        futures.ready(&object).await?;
        let began = clock.now();
        let taken = futures.submit_with(take, &number, &[object.arg()], on(&to.node))?;
        if futures.get_value::<u64>(&taken).await? != OBJECT_BYTES {
            return Err(JobError::program("an object arrived with another length"));
        }
        times.push((clock.now() - began).as_nanos() as u64);
    }
    Ok(times)
}

pub(super) fn run(place: &Place<'_>) -> Result<Figures, Failure> {
    if place.args.cluster.is_none() {
        let text = "needs two node processes: start `exobus dev --nodes 2` and say --cluster URL";
        return Err(Failure::text(Exit::Usage, text));
    }
    let count = place.args.count.unwrap_or(40);
    // The first ones make connections and touch memory.
    let warm_up = (count / 4).max(1);
    let times: Vec<u64> = place.run("bench.transfer", count + warm_up, send)?;
    let mut times: Vec<Duration> = times.into_iter().skip(warm_up as usize).map(Duration::from_nanos).collect();
    let rate = |time: Duration| OBJECT_BYTES as f64 / 1e9 / time.as_secs_f64();
    Ok(vec![
        ("objects_of_100mb", count as f64),
        ("gb_per_s_p50", rate(percentile(&mut times, 0.5))),
        ("gb_per_s_slowest", rate(percentile(&mut times, 1.0))),
    ])
}
