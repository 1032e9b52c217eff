//! `exobus explain`: what a job would do, and why.

use std::io::Write;

use exobus_shuffle::{
    jobs::sort::{ExplainParams, Explained, explain},
    strategies::auto::Estimate,
};

use super::{embedded, job_failure, submit};
use crate::{
    cli::{ExplainArgs, ExplainSortArgs, ExplainWhat},
    config::{NodeConfig, Overrides},
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    report::{bytes, count},
};

/// The program that nodes know.
const PROGRAM: &str = "sort.explain@1";

/// Prints it.
pub fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    let ExplainWhat::Sort(args) = &args.what;
    let explained = explained(args)?;
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string(&explained).or_exit(Exit::InputOutput)?),
        false => for_people(&explained),
    };
    // A closed stdout is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(Exit::Success)
}

fn explained(args: &ExplainSortArgs) -> Result<Explained, Failure> {
    let interrupt = Interrupt::listen().or_exit(Exit::InputOutput)?;
    let overrides = Overrides {
        nats_url: args.cluster.clone(),
        memory: args.memory,
        executors: args.executors,
        ..Overrides::default()
    };
    let config = NodeConfig::load(args.config.as_deref(), &overrides).or_exit(Exit::Usage)?;
    let inputs = args.input.iter().map(std::path::absolute).collect::<Result<_, _>>().or_exit(Exit::InputOutput)?;
    let params = ExplainParams { inputs, partitions: args.partitions };
    if args.cluster.is_none() {
        let program = async move |futures| explain(futures, params).await;
        return embedded::run(&config.node, "sort.explain", program, None, &interrupt)?.0.map_err(job_failure);
    }
    let end = submit::run(&config.cluster, "exobus explain", PROGRAM, &params, None, &interrupt)?;
    rmp_serde::from_slice(&end.result.map_err(job_failure)?).or_exit(Exit::JobFailed)
}

fn for_people(explained: &Explained) -> String {
    let Explained { sizes, maps, plan, estimates } = explained;
    let chosen = &estimates[0];
    let mut text = format!(
        "{} on {} with {} of memory and {} executors each:\n\
         {} maps of {}, {} partitions of {}\n\n",
        bytes(sizes.input_bytes),
        if sizes.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", sizes.nodes) },
        bytes(sizes.memory_bytes),
        sizes.executors_per_node,
        count(*maps),
        bytes(plan.chunk_bytes.min(sizes.input_bytes)),
        count(u64::from(plan.partitions)),
        bytes(sizes.input_bytes / u64::from(plan.partitions)),
    );
    let head = ["", "strategy", "tasks", "blocks", "block", "moved", "merged", "spilled", "peak", "seconds"];
    let mut rows = vec![head.map(str::to_owned)];
    for estimate in estimates {
        rows.push([
            if estimate.strategy == chosen.strategy { "*" } else { "" }.to_owned(),
            estimate.strategy.name().to_owned(),
            count(estimate.tasks),
            count(estimate.blocks),
            bytes(estimate.block_bytes),
            bytes(estimate.moved_bytes),
            bytes(estimate.merged_bytes),
            bytes(estimate.spilled_bytes),
            bytes(estimate.peak_bytes),
            format!("{:.1}", estimate.seconds),
        ]);
    }
    let widths: Vec<usize> =
        (0..head.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text.push_str(&format!("\n{}: {}\n", chosen.strategy.name(), reason(chosen, estimates)));
    text.push_str("Seconds are those besides reading the input and writing the output.\n");
    text
}

/// Why the first of `estimates` is the first.
fn reason(chosen: &Estimate, estimates: &[Estimate]) -> String {
    if chosen.spilled_bytes == 0 {
        return format!("everything fits into memory, and {} blocks are few", count(chosen.blocks));
    }
    match estimates.get(1) {
        Some(next) if next.block_bytes < chosen.block_bytes => format!(
            "{} have to be spilled, and are read back in blocks of {} instead of {} with {}",
            bytes(chosen.spilled_bytes),
            bytes(chosen.block_bytes),
            bytes(next.block_bytes),
            next.strategy.name()
        ),
        _ => format!(
            "{} have to be spilled, in blocks of {}: large enough to be read back as they are",
            bytes(chosen.spilled_bytes),
            bytes(chosen.block_bytes)
        ),
    }
}
