//! How fast are sessions between two processes over NATS, and what do they cost?
//!
//!     cargo run --release -p exobus-bus --example session_figures -- nats://127.0.0.1:4222
//!
//! A second process sends every item (64 bytes) back. Printed: round trip of a raw NATS request and of a session's
//! item with one outstanding; items/s there and back with 10 000 outstanding; CPU of both processes at a steady
//! 30 000 items/s. Good on the reference machine: item within 200 us of the raw request, >= 30 000 items/s each way,
//! well below half a core per process at 30 000/s.

use std::time::Duration;

use exobus_bus::session::{Endpoint, EndpointEvents, Event, Peer, SessionOptions};
use exobus_bus::{Bus, Message, NatsOptions, Subjects, SubscribeOptions};
use tokio::time::Instant;

type Error = Box<dyn std::error::Error>;

const ITEM_BYTES: usize = 64;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments.as_slice() {
        [url] => {
            let mut child = std::process::Command::new(std::env::current_exe()?).args([url, "echo"]).spawn()?;
            let result = runtime.block_on(measure(url, child.id()));
            child.kill()?;
            child.wait()?;
            result
        }
        [url, role] if role == "echo" => runtime.block_on(echo(url)),
        _ => Err("usage: session_figures URL".into()),
    }
}

async fn open(url: &str, node: &str) -> Result<(Bus, Subjects, Endpoint, EndpointEvents), Error> {
    let bus = Bus::connect(NatsOptions::url(url)).await?;
    let subjects = Subjects::new("figures")?;
    let me = Peer { node: node.to_owned(), incarnation: u64::from(std::process::id()) };
    let (endpoint, events) = Endpoint::open(bus.clone(), subjects.clone(), me, SessionOptions::default()).await?;
    Ok((bus, subjects, endpoint, events))
}

async fn echo(url: &str) -> Result<(), Error> {
    let (bus, subjects, endpoint, mut events) = open(url, "echo").await?;
    let mut requests = bus.subscribe(subjects.ctl("echo", "raw")?.into(), SubscribeOptions::default()).await?;
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(Event::Items { from, items }) => {
                    for (actor, item) in items {
                        endpoint.send(from.name(), &actor, item)?;
                    }
                }
                Some(other) => eprintln!("echo: {other:?}"),
                None => return Ok(()),
            },
            Some(request) = requests.recv() => request.reply(request.message.clone()).await?,
        }
    }
}

async fn items(events: &mut EndpointEvents) -> Result<usize, Error> {
    loop {
        match events.recv().await {
            Some(Event::Items { items, .. }) => return Ok(items.len()),
            Some(other) => eprintln!("main: {other:?}"),
            None => return Err("closed".into()),
        }
    }
}

async fn measure(url: &str, child: u32) -> Result<(), Error> {
    let (bus, subjects, endpoint, mut events) = open(url, "main").await?;
    let item = bytes::Bytes::from(vec![7_u8; ITEM_BYTES]);
    let send = || endpoint.send("echo", "owner-1", item.clone());

    send()?;
    items(&mut events).await?;
    let raw = subjects.ctl("echo", "raw")?;
    for round in ["first", "second"] {
        let mut times = Vec::new();
        for _ in 0..5_000 {
            let start = Instant::now();
            bus.request(raw.clone(), Message::new(item.clone()), Duration::from_secs(5)).await?;
            times.push(start.elapsed());
        }
        report(&format!("bus request, there and back, {round}"), times);
        let mut times = Vec::new();
        for _ in 0..5_000 {
            let start = Instant::now();
            send()?;
            items(&mut events).await?;
            times.push(start.elapsed());
        }
        report(&format!("session item, there and back, {round}"), times);
    }

    for outstanding_max in [100, 1_000, 10_000] {
        let total = 400_000;
        let (mut sent, mut received) = (0, 0);
        let before = (cpu(std::process::id())?, cpu(child)?, endpoint.stats());
        let start = Instant::now();
        while received < total {
            while sent < total && sent - received < outstanding_max {
                send()?;
                sent += 1;
            }
            received += items(&mut events).await?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let after = (cpu(std::process::id())?, cpu(child)?, endpoint.stats());
        println!(
            "{outstanding_max:>6} outstanding: {:>8.0} items/s each way, cores {:.2} + {:.2}, {:.1} items a frame, {} acks alone",
            f64::from(total as u32) / seconds,
            (after.0 - before.0) / seconds,
            (after.1 - before.1) / seconds,
            f64::from(total as u32) / (after.2.frames_sent - before.2.frames_sent) as f64,
            after.2.acks_sent - before.2.acks_sent,
        );
    }

    // Steady load: 30 items every millisecond.
    let before = (cpu(std::process::id())?, cpu(child)?, endpoint.stats());
    let start = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    let (mut sent, mut received) = (0, 0);
    while received < 150_000 {
        tokio::select! {
            _ = tick.tick(), if sent < 150_000 => for _ in 0..30 {
                send()?;
                sent += 1;
            },
            count = items(&mut events) => received += count?,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let after = (cpu(std::process::id())?, cpu(child)?, endpoint.stats());
    println!(
        "steady: {:.0} items/s each way, cores {:.2} + {:.2}, {:.1} items a frame",
        150_000.0 / seconds,
        (after.0 - before.0) / seconds,
        (after.1 - before.1) / seconds,
        150_000.0 / (after.2.frames_sent - before.2.frames_sent) as f64,
    );
    println!("{:?}\n{:?}", endpoint.stats(), bus.stats());
    Ok(())
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let of = |share: f64| times[(times.len() as f64 * share) as usize].as_micros();
    println!("{what}: p50 {} us, p99 {} us", of(0.5), of(0.99));
}

/// CPU seconds of a process so far.
fn cpu(process: u32) -> Result<f64, Error> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // utime and stime, in ticks of 10 ms.
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
}
