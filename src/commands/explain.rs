//! `exobus explain`: what a job would do, and why.

use std::io::Write;
use std::path::PathBuf;

use exobus_actors::{futures::Futures, task::JobError};
use exobus_files::{FileError, Location};
use exobus_shuffle::{
    Sizes,
    files::{InputFile, list_files, list_inputs},
    jobs::{RandomShuffle, WordCount, sort},
    keyed::{self, Registered},
    strategies::auto::{Estimate, Explained},
};
use exobus_tables::jobs::{
    Rewrite,
    convert::{self, ConvertTable, ExplainedConvert},
    dedupe::{self, DedupeTable, Keep},
    shuffle::{self, ShuffleTable},
    sort::{self as sort_table, SortTable},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    generate::failure as file_failure,
    session::Session,
    sort::Way,
    tables::{check_inputs, is_shuffled_raw, key_of_dedupe},
};
use crate::{
    cli::{
        ExplainArgs, ExplainDedupeArgs, ExplainFilesArgs, ExplainRowsArgs, ExplainSortArgs, ExplainTableArgs,
        ExplainWhat,
    },
    exit::{Exit, Failure, OrExit},
    report::{bytes, count},
};

/// What a job would do.
enum Told {
    Shuffle(Explained),
    Convert(ExplainedConvert),
}

/// Prints it.
pub fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    let (files, told) = match &args.what {
        ExplainWhat::Sort(args) => (&args.table.files, Told::Shuffle(explain_any_sort(args)?)),
        ExplainWhat::Wordcount(files) => (files, Told::Shuffle(explain_keyed(files, list_files, WordCount {})?)),
        ExplainWhat::Aggregate(args) => {
            (&args.files, Told::Shuffle(explain_keyed(&args.files, list_files, args.columns.job()?)?))
        }
        ExplainWhat::Shuffle(args) => (&args.table.files, Told::Shuffle(explain_shuffle(args)?)),
        ExplainWhat::Dedupe(args) => (&args.table.files, Told::Shuffle(explain_dedupe(args)?)),
        ExplainWhat::Convert(args) => (&args.table.files, Told::Convert(explain_convert(args)?)),
    };
    let text = match (files.setup.json, &told) {
        (true, Told::Shuffle(explained)) => json(explained)?,
        (true, Told::Convert(explained)) => json(explained)?,
        (false, Told::Shuffle(explained)) => for_people(explained),
        (false, Told::Convert(explained)) => convert_for_people(explained),
    };
    // A closed stdout is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(Exit::Success)
}

fn json(explained: &impl Serialize) -> Result<String, Failure> {
    Ok(format!("{}\n", serde_json::to_string(explained).or_exit(Exit::InputOutput)?))
}

fn explain_any_sort(args: &ExplainSortArgs) -> Result<Explained, Failure> {
    let ExplainSortArgs { key, table } = args;
    let ExplainTableArgs { read, write, files } = table;
    match Way::of(key, (&files.input, files.setup.partial), (read, write))? {
        Way::Raw => explain_sort(files),
        Way::Table(key) => {
            let job = |table| SortTable { table, key };
            explain_table((table, None), "table.explain", job, async |futures, params| {
                sort_table::explain(futures, params).await
            })
        }
    }
}

fn explain_shuffle(args: &ExplainRowsArgs) -> Result<Explained, Failure> {
    let ExplainRowsArgs { rows_per_file, table } = args;
    let ExplainTableArgs { read, write, files } = table;
    // Which order it is changes nothing about the work.
    if is_shuffled_raw((&files.input, files.setup.partial), (read, write), *rows_per_file) {
        return explain_keyed(files, list_inputs, RandomShuffle { seed: 0 });
    }
    let job = |table| ShuffleTable { table, seed: 0 };
    explain_table((table, *rows_per_file), "table.shuffle.explain", job, async |futures, params| {
        shuffle::explain(futures, params).await
    })
}

fn explain_dedupe(args: &ExplainDedupeArgs) -> Result<Explained, Failure> {
    let ExplainDedupeArgs { key, order_by, table } = args;
    let files = &table.files;
    let key = key_of_dedupe(key, (&files.input, files.setup.partial), &table.read)?;
    // So does which row of a key stays.
    let job = |table| DedupeTable { table, key, keep: Keep::default(), order_by: order_by.clone() };
    explain_table((table, None), "table.dedupe.explain", job, async |futures, params| {
        dedupe::explain(futures, params).await
    })
}

fn explain_convert(args: &ExplainRowsArgs) -> Result<ExplainedConvert, Failure> {
    let ExplainRowsArgs { rows_per_file, table } = args;
    let job = |table| ConvertTable { table };
    explain_table((table, *rows_per_file), "table.convert.explain", job, async |futures, params| {
        convert::explain(futures, params).await
    })
}

fn explain_sort(args: &ExplainFilesArgs) -> Result<Explained, Failure> {
    let session = Session::without_views(&args.setup)?;
    let (partitions, partial) = (args.setup.partitions, args.setup.partial);
    let params = sort::ExplainParams {
        inputs: inputs(&session, args, |inputs, partial| list_inputs(inputs, partial).map(drop))?,
        partitions,
        partial,
    };
    Ok(session.run("sort.explain", None, params, async |futures, params| sort::explain(futures, params).await)?.report)
}

/// Asks a program what a job over the table of these arguments would do.
fn explain_table<J, R>(
    (table, rows_per_file): (&ExplainTableArgs, Option<u64>),
    name: &str,
    job: impl FnOnce(Rewrite) -> J,
    program: impl AsyncFnOnce(Futures, J) -> Result<R, JobError> + Send + 'static,
) -> Result<R, Failure>
where
    J: Serialize + Send + 'static,
    R: Serialize + DeserializeOwned + 'static,
{
    let ExplainTableArgs { read, write, files } = table;
    let session = Session::without_views(&files.setup)?;
    let (partitions, partial) = (files.setup.partitions, files.setup.partial);
    let (reading, writing) = (read.options(), write.options(partitions, rows_per_file));
    let table = Rewrite::new(inputs(&session, files, check_inputs)?, PathBuf::new());
    let params = job(Rewrite { reading, writing, partial, ..table });
    Ok(session.run(name, None, params, program)?.report)
}

fn explain_keyed<J: Registered>(
    args: &ExplainFilesArgs,
    list: fn(&[PathBuf], bool) -> Result<Vec<InputFile>, FileError>,
    job: J,
) -> Result<Explained, Failure> {
    let session = Session::without_views(&args.setup)?;
    let (partitions, partial) = (args.setup.partitions, args.setup.partial);
    let params = keyed::ExplainParams {
        inputs: inputs(&session, args, |inputs, partial| list(inputs, partial).map(drop))?,
        partitions,
        partial,
        job,
    };
    let name = format!("{}.explain", J::NAME);
    Ok(session.run(&name, None, params, async |futures, params| keyed::explain(futures, params).await)?.report)
}

/// The input as nodes find it. What is wrong with it is said here, unless only the nodes of a cluster can see it.
fn inputs(
    session: &Session,
    args: &ExplainFilesArgs,
    look: impl FnOnce(&[PathBuf], bool) -> Result<(), FileError>,
) -> Result<Vec<PathBuf>, Failure> {
    if !session.on_cluster() {
        look(&args.input, args.setup.partial).map_err(file_failure)?;
    }
    let absolute = |path| Location::from(path).absolute().map(|location| location.to_path_buf());
    args.input.iter().map(absolute).collect::<Result<_, _>>().or_exit(Exit::InputOutput)
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
