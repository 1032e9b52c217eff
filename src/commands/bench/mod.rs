//! `exobus bench`: the runtime's figures, in one place for people and for `docs/benchmarks.md`.
//!
//! What tasks and objects cost is measured by programs (`programs`), which run in this process or on a node of
//! a cluster; what the store does with the disk is measured on a store of its own (`spill`).

mod data;
mod jobs;
mod programs;
mod shuffle;
mod spill;

use exobus_actors::ids::NodeId;
use exobus_actors::node::Node;
use exobus_actors::protocol::host::JobEnd;
use exobus_actors::spec::Plan;
use serde::Serialize;

use self::jobs::ManyJobs;
use self::programs::{BenchParams, Figures};
use super::{job_failure, node, submit::Submitted};
use crate::cli::{BenchArgs, BenchName};
use crate::cluster;
use crate::config::{NodeConfig, Overrides};
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::stdout::print_line;
use crate::temporary::Temporary;

/// Measures and prints.
pub fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen().or_exit(Exit::InputOutput)?;
    let process = Overrides {
        memory: args.memory,
        spill_dirs: args.spill.clone(),
        executors: args.executors,
        ..Overrides::default()
    };
    let (mut config, on_cluster) = cluster::place(&args.place, &process)?;
    // One for each cpu: these tasks only compute.
    config.node.executors = args.executors.unwrap_or_else(crate::machine::cpus);
    match args.what {
        BenchName::Spill if on_cluster => {
            Err(Failure::text(Exit::Usage, "spilling is a node's own business: measure it without a cluster (--local)"))
        }
        BenchName::Spill => print(args.json, &spill::measure(&config.node, args.memory.is_some(), args.size)?),
        BenchName::Transfer if !on_cluster => {
            Err(Failure::text(Exit::Usage, "transfer is between two nodes: give --cluster URL (see `exobus dev`)"))
        }
        BenchName::Jobs if !on_cluster => {
            Err(Failure::text(Exit::Usage, "jobs are handed in to a cluster: give --cluster URL (see `exobus dev`)"))
        }
        BenchName::Jobs => {
            let BenchArgs { jobs, clients, spec, detach, .. } = args;
            let many = ManyJobs { jobs: *jobs, clients: *clients, spec: spec.as_deref(), detach: *detach };
            print(args.json, &jobs::measure(&config, &many, &interrupt)?)
        }
        _ => {
            let params = params(args);
            let figures = match on_cluster {
                false => embedded(&config, params)?,
                true => measured_on_cluster(&config, &params, &args.place.flags(), &interrupt)?,
            };
            print(args.json, &figures)
        }
    }
}

/// Prints named figures as lines, or as one JSON object.
fn print<T: Serialize>(json: bool, figures: &T) -> Result<Exit, Failure> {
    let value = serde_json::to_value(figures).or_exit(Exit::InputOutput)?;
    match (json, value.as_object()) {
        (false, Some(fields)) => fields.iter().for_each(|(name, value)| print_line(format_args!("{name:<28} {value}"))),
        _ => print_line(value),
    }
    Ok(Exit::Success)
}

fn params(args: &BenchArgs) -> BenchParams {
    BenchParams {
        what: match args.what {
            BenchName::Tasks => programs::What::Tasks,
            BenchName::Latency => programs::What::Latency,
            BenchName::Put => programs::What::Put,
            BenchName::Transfer => programs::What::Transfer,
            BenchName::Metadata => programs::What::Metadata,
            BenchName::Shuffle => programs::What::Shuffle { maps: args.maps, partitions: args.partitions },
            BenchName::Edges => programs::What::Edges,
            BenchName::Spill | BenchName::Jobs => unreachable!("measured without a job of its own"),
        },
    }
}

fn embedded(config: &NodeConfig, params: BenchParams) -> Result<Figures, Failure> {
    let mut options = node::options(&config.node, NodeId::new("local"))?;
    // Nothing here is larger than memory; what does spill shall not lie around.
    let spill = Temporary::make(&crate::machine::big_temporary_folder(), "exobus-bench-").or_exit(Exit::InputOutput)?;
    options.store.spill_dirs = vec![spill.path().to_owned()];
    let node = Node::start(options).map_err(node::failure)?;
    let program = async move |futures| programs::bench(futures, params).await;
    let (figures, end) = futures::executor::block_on(node.run(node.new_job(), "bench", None, program));
    node.stop();
    Ok(with_cost(figures.map_err(job_failure)?, &end))
}

/// Adds what the job cost the control plane.
fn with_cost(mut figures: Figures, end: &JobEnd) -> Figures {
    figures.insert("owner_bytes_peak".into(), end.owner_bytes as f64);
    figures.insert("control_messages".into(), end.control_messages as f64);
    figures
}

fn measured_on_cluster(
    config: &NodeConfig,
    params: &BenchParams,
    look: &str,
    interrupt: &Interrupt,
) -> Result<Figures, Failure> {
    let plan = Plan::of("bench", params).or_exit(Exit::Usage)?;
    let end = Submitted { config, interrupt, look, events: None, key: None }.plan(&plan)?;
    let bytes = end.result.clone().map_err(job_failure)?;
    Ok(with_cost(rmp_serde::from_slice(&bytes).or_exit(Exit::JobFailed)?, &end))
}
