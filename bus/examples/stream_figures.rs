//! How fast are durable streams and key-value, and what does durability cost?
//!
//!     cargo run --release -p exobus-bus --example stream_figures -- memory
//!     cargo run --release -p exobus-bus --example stream_figures -- file DIR
//!     cargo run --release -p exobus-bus --example stream_figures -- nats://127.0.0.1:4222
//!
//! Records have 200 bytes and a dedupe id. Printed: appends/s and latency with 1, 16 and 256 under way, records/s of a
//! reader, put-if/s of one key (each needs the revision of the one before) and of 64 keys at a time. Every acknowledged
//! append to a file is synced; 256 under way share syncs. Good on the reference machine: memory >= 100 000 appends/s,
//! file >= 5 000/s with 256 under way, a synced server >= 300/s with 1.

use std::path::Path;
use std::time::Duration;

use exobus_bus::kv::{Kv, KvConfig};
use exobus_bus::streams::{Append, ReadFrom, Stream, StreamConfig};
use exobus_bus::{Bus, InProcessOptions, Message, NatsOptions, Subjects};
use futures::StreamExt;
use tokio::time::Instant;

type Error = Box<dyn std::error::Error>;

const RECORD_BYTES: usize = 200;
const DEADLINE: Duration = Duration::from_secs(60);
/// One figure takes about so long.
const FIGURE: Duration = Duration::from_secs(3);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let bus = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["memory"] => Bus::in_process(),
        ["file", dir] => {
            let path = Path::new(dir).join("stream_figures.redb");
            Bus::in_process_durable(InProcessOptions::default(), &path).await?
        }
        [url] => Bus::connect(NatsOptions::url(url)).await?,
        _ => return Err("usage: stream_figures memory | file DIR | URL".into()),
    };
    let subjects = Subjects::new("figures")?;
    let name = format!("run_{}", std::process::id());
    appends(&bus, &subjects, &name).await?;
    keys(&bus, &subjects, &name).await?;
    bus.drain().await?;
    Ok(())
}

async fn appends(bus: &Bus, subjects: &Subjects, name: &str) -> Result<(), Error> {
    let prefix = subjects.stream(name)?;
    let pattern = format!("{prefix}.>").parse()?;
    let config =
        StreamConfig { bytes_max: 512 << 20, ..StreamConfig::new(&subjects.durable_name("log", name)?, pattern) };
    let stream = Stream::open(bus, &config, DEADLINE).await?;
    let subject: exobus_bus::Subject = format!("{prefix}.x").parse()?;
    let payload = bytes::Bytes::from(vec![7_u8; RECORD_BYTES]);
    let mut number = 0_u64;
    for under_way in [1, 16, 256] {
        let start = Instant::now();
        let append = |number: u64| {
            let append = Append::new(subject.clone(), Message::new(payload.clone())).dedupe(&format!("n-{number}"));
            let stream = &stream;
            async move {
                let start = Instant::now();
                let appended = stream.append(append.map_err(exobus_bus::BusError::from)?, DEADLINE).await?;
                if appended.duplicate {
                    eprintln!("{number} was there already");
                }
                Ok::<_, exobus_bus::BusError>(start.elapsed())
            }
        };
        let numbers = number..;
        let running = futures::stream::iter(numbers).map(append).buffer_unordered(under_way);
        let mut running = std::pin::pin!(running.take_while(|_| std::future::ready(start.elapsed() < FIGURE)));
        let mut times = Vec::new();
        while let Some(time) = running.next().await {
            times.push(time?);
        }
        number += (times.len() + 2 * under_way) as u64;
        report(&format!("append, {under_way} under way"), times, start.elapsed());
    }
    let start = Instant::now();
    let mut reader = stream.read(ReadFrom::First, None).await?;
    let mut read = 0;
    loop {
        let batch = reader.next(500, Duration::ZERO).await?;
        read += batch.records.len();
        if batch.caught_up {
            break;
        }
    }
    println!("read, 500 at a time: {:.0}/s", read as f64 / start.elapsed().as_secs_f64());
    stream.delete().await?;
    Ok(())
}

async fn keys(bus: &Bus, subjects: &Subjects, name: &str) -> Result<(), Error> {
    let config =
        KvConfig { deadline: DEADLINE, ..KvConfig::new(&subjects.durable_name("kv", name)?, subjects.kv(name)?) };
    let kv = Kv::open(bus, &config).await?;
    for under_way in [1, 64] {
        let start = Instant::now();
        let counters = (0..under_way).map(|key| {
            let kv = &kv;
            async move {
                let key = format!("k.{under_way}.{key}");
                let mut revision = kv.create(&key, "0").await?;
                let mut times = Vec::new();
                while start.elapsed() < FIGURE {
                    let begun = Instant::now();
                    revision = kv.update(&key, vec![7_u8; RECORD_BYTES], revision).await?;
                    times.push(begun.elapsed());
                }
                Ok::<_, exobus_bus::BusError>(times)
            }
        });
        let times = futures::future::try_join_all(counters).await?.concat();
        report(&format!("put-if, {under_way} keys at a time"), times, start.elapsed());
    }
    kv.stream().delete().await?;
    Ok(())
}

fn report(what: &str, mut times: Vec<Duration>, took: Duration) {
    times.sort();
    let of = |share: f64| times.get((times.len() as f64 * share) as usize).map_or(0, Duration::as_micros);
    let rate = times.len() as f64 / took.as_secs_f64();
    println!("{what}: {rate:.0}/s, p50 {} us, p99 {} us", of(0.5), of(0.99));
}
