//! `exobus explain`: what a job would do, and why.

use exobus_actors::spec::Spec;
use exobus_shuffle::{
    Sizes,
    strategies::auto::{Estimate, Explained},
};
use exobus_tables::jobs::convert::ExplainedConvert;
use exobus_tables::jobs::group::ExplainedGroup;
use exobus_tables::jobs::join::{ExplainedJoin, FrequentKey};
use serde::{Serialize, de::DeserializeOwned};

use super::{planned, session::Session};
use crate::{
    cli::{ExplainArgs, ExplainWhat, SetupArgs},
    exit::{Exit, Failure, OrExit},
    report::{bytes, count},
    stdout,
};

/// Prints it.
pub fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    let (mut spec, setup) = args.spec();
    let session = Session::without_views(&setup.process)?;
    spec.make_absolute().or_exit(Exit::InputOutput)?;
    let text = match &args.what {
        ExplainWhat::Group(_) => told(session, &spec, setup, group_for_people)?,
        ExplainWhat::Join(_) => told(session, &spec, setup, join_for_people)?,
        ExplainWhat::Convert(_) => told(session, &spec, setup, convert_for_people)?,
        ExplainWhat::Repartition(args) if !args.parts.move_rows() => told(session, &spec, setup, convert_for_people)?,
        _ => told(session, &spec, setup, for_people)?,
    };
    stdout::print(&text);
    Ok(Exit::Success)
}

/// What a program says that a job would do.
fn told<R: Serialize + DeserializeOwned + 'static>(
    session: Session,
    spec: &Spec,
    setup: &SetupArgs,
    for_people: fn(&R) -> String,
) -> Result<String, Failure> {
    let explained: R = match session.on_cluster() {
        true => session.hand_in(spec, true)?.0.decoded::<R>()?.report,
        false => session.run(&planned::plan(spec, Spec::explain, setup.partial)?)?.report,
    };
    match setup.process.json {
        true => Ok(format!("{}\n", serde_json::to_string(&explained).or_exit(Exit::InputOutput)?)),
        false => Ok(for_people(&explained)),
    }
}

fn convert_for_people(explained: &ExplainedConvert) -> String {
    let ExplainedConvert { input_bytes, sizes, files, task_bytes } = explained;
    format!(
        "{} with {} of values on {}:\n{} files of {} of values, each written by a task that begins with {} of memory; no row goes to another node\n",
        bytes(*input_bytes),
        bytes(sizes.input_bytes),
        nodes(sizes),
        count(*files),
        bytes(sizes.input_bytes / (*files).max(1)),
        bytes(*task_bytes),
    )
}

fn group_for_people(explained: &ExplainedGroup) -> String {
    let ExplainedGroup { partial, shuffled } = explained;
    format!("{partial}:\n\n{}", for_people(shuffled))
}

fn join_for_people(explained: &ExplainedJoin) -> String {
    let ExplainedJoin { broadcast, table_bytes, frequent, filtered, broadcast_bytes, shuffled } = explained;
    let [left, right] = table_bytes.map(bytes);
    let broadcast = match broadcast {
        None => {
            let left_out = |side: &String| {
                format!(
                    "; rows of the {side} table are left out where they are read, as far as a filter of the other one's keys knows that they match nothing"
                )
            };
            let left_out = filtered.as_ref().map_or_else(String::new, left_out);
            format!("no table is broadcast: rows of both come together by their keys{left_out}")
        }
        Some(side) => format!(
            "the {side} table is broadcast: each task that reads the other one has all of it, the output is in the order of that one, and no row of it goes to another node; \
             with --broadcast never rows of both would come together by their keys"
        ),
    };
    let of_sides = ["left", "right"].into_iter().zip(frequent.iter().zip(broadcast_bytes));
    let of_side = |(side, (frequent, broadcast_bytes)): (&str, (&Option<FrequentKey>, &Option<u64>))| {
        let frequent = frequent.map_or("no row with a key was sampled".to_owned(), |frequent| frequent.to_string());
        let moved = match broadcast_bytes {
            Some(moved) => format!("broadcasting it moves {} from node to node", bytes(*moved)),
            None => "it cannot be broadcast".to_owned(),
        };
        format!("{side} table: {frequent}; {moved}\n")
    };
    let of_sides: String = of_sides.map(of_side).collect();
    let exchanged = bytes(shuffled.estimates[0].moved_bytes);
    format!(
        "left table of {left} of values, right table of {right}: {broadcast}:\n\n{of_sides}without a broadcast {exchanged} move from node to node\n\n{}",
        for_people(shuffled)
    )
}

fn nodes(sizes: &Sizes) -> String {
    let nodes = if sizes.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", sizes.nodes) };
    format!("{nodes} with {} of memory and {} executors each", bytes(sizes.memory_bytes), sizes.executors_per_node)
}

fn for_people(explained: &Explained) -> String {
    let Explained { input_bytes, sizes, maps, plan, estimates } = explained;
    let chosen = &estimates[0];
    let made = match sizes.input_bytes == *input_bytes {
        true => String::new(),
        false => format!(", of which maps make {},", bytes(sizes.input_bytes)),
    };
    let mut text = format!(
        "{}{made} on {}:\n\
         {} maps of {}, {} partitions of {}\n\n",
        bytes(*input_bytes),
        nodes(sizes),
        count(*maps),
        bytes(input_bytes / (*maps).max(1)),
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
    if spare_memory(explained) {
        text.push_str(
            "Where memory that nobody has touched comes more slowly than the disk writes and reads, as on some virtual machines,\n\
             nodes spill early although there is room; the summary of the job says how much.\n",
        );
    }
    text
}

/// Whether nodes have more memory than the store touches before it asks what new memory costs.
fn spare_memory(explained: &Explained) -> bool {
    let sizes = &explained.sizes;
    sizes.memory_bytes.min(sizes.input_bytes / u64::from(sizes.nodes.max(1))) > exobus_store::GROW_FREELY_BYTES
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
