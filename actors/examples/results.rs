//! How fast does a result leave the cluster? A node that keeps one, for clients to read, and a client that fetches it by ticket.
//!
//! ```text
//! cargo run --release -p exobus-actors --example results -- NATS_URL serve [megabytes: 1000] [memory of the node, MiB: 1024]
//! cargo run --release -p exobus-actors --example results -- NATS_URL nats ID
//! cargo run --release -p exobus-actors --example results -- NATS_URL ticket ID
//! ```
//!
//! `serve` starts a node of cluster `bench`, runs a job that keeps one object of so many megabytes, prints the id of its result, and answers
//! until standard input ends; then it says how much memory the process took at most. `nats` and `ticket` read it and say how fast;
//! `examples/read_result.py` does what `nats` does, in Python. Tenant: `local`.

use std::error::Error;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use exobus_actors::futures::Futures;
use exobus_actors::ids::{JobId, NodeId};
use exobus_actors::membership::MembershipOptions;
use exobus_actors::node::{ClusterOptions, Node, NodeOptions};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::results::ResultClient;
use exobus_actors::task;
use exobus_bus::{Bus, NatsOptions, Subjects};
use exobus_store::{Clock, RowHash, SystemClock};

const TENANT: &str = "local";
const PART_BYTES: u64 = 8 << 20;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// So many bytes that no compression would help with.
#[task(name = "bench.result_bytes")]
fn result_bytes(context: &mut TaskContext<'_>, bytes: u64) -> Result<(), TaskError> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut chunk = vec![0; 1 << 20];
    let writer = context.output_at_sized(0, bytes)?;
    let mut left = bytes;
    while left > 0 {
        let part = left.min(PART_BYTES);
        writer.begin_part(Some(part))?;
        let mut of_part = part;
        while of_part > 0 {
            for word in chunk.chunks_exact_mut(8) {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                word.copy_from_slice(&(state ^ state >> 29).to_le_bytes());
            }
            let count = of_part.min(chunk.len() as u64);
            writer.write(&chunk[..count as usize])?;
            of_part -= count;
        }
        writer.end_part(1, RowHash(u128::from(left)));
        left -= part;
    }
    Ok(())
}

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = "NATS_URL serve [megabytes] [MiB], NATS_URL nats ID, NATS_URL ticket ID";
    let (Some(url), Some(what)) = (args.first(), args.get(1)) else { return Err(usage.into()) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let bus = runtime.block_on(Bus::connect(NatsOptions::url(url)))?;
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    match what.as_str() {
        "serve" => serve(bus, number(2, 1000)? * 1_000_000, number(3, 1024)? << 20, &runtime),
        "nats" | "ticket" => {
            let job = args.get(2).ok_or(usage)?.parse()?;
            runtime.block_on(read(bus, job, what == "ticket"))
        }
        _ => Err(usage.into()),
    }
}

fn serve(bus: Bus, bytes: u64, memory_bytes: u64, runtime: &tokio::runtime::Runtime) -> Outcome {
    let spill = std::env::temp_dir().join(format!("exobus-results-{}", std::process::id()));
    let mut options = NodeOptions::within(2, memory_bytes)?;
    options.name = NodeId::new("n1");
    options.store.spill_dirs = vec![spill.clone()];
    options.cluster = Some(ClusterOptions {
        bus,
        subjects: Subjects::new("bench")?,
        scheduler: true,
        membership: MembershipOptions::default(),
        listen: ([127, 0, 0, 1], 0).into(),
        join_deadline: Duration::from_secs(10),
    });
    let node = Node::start(options)?;
    let (job, clock) = (node.new_job(), SystemClock::new());
    let begun = clock.now();
    let program =
        async move |futures: Futures| futures.keep_result("bytes", &futures.submit(result_bytes, &bytes, &[])?);
    let (outcome, end) = runtime.block_on(node.run(job, "results", None, program));
    outcome?;
    println!("{job} {:?} after {:.2} s", end.kept, (clock.now() - begun).as_secs_f64());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("at most {} MiB", node.figures().peak_memory_bytes >> 20);
    node.stop();
    std::fs::remove_dir_all(spill)?;
    Ok(())
}

async fn read(bus: Bus, job: JobId, by_ticket: bool) -> Outcome {
    let client = ResultClient::new(bus, Subjects::new("bench")?, TENANT);
    let clock = Arc::new(SystemClock::new());
    let begun = clock.now();
    let bytes = match by_ticket {
        true => client.fetch_file(job, &0.into(), clock.clone(), |_| Ok(())).await?,
        false => client.read_file(job, &0.into(), |_| Ok(())).await?,
    };
    let seconds = (clock.now() - begun).as_secs_f64();
    println!("{bytes} bytes in {seconds:.2} s: {:.3} GB/s", bytes as f64 / seconds / 1e9);
    Ok(())
}
