//! Jobs over tables: `exobus sort --key`, `shuffle`, `dedupe` and `convert`, in this process or on a cluster.

use std::path::{Path, PathBuf};

use exobus_actors::{futures::Futures, task::JobError};
use exobus_files::{FileError, visit_files};
use exobus_shuffle::files::InputFile;
use exobus_tables::{
    jobs::{
        Rewrite, Rewritten,
        convert::{ConvertTable, convert},
        dedupe::{DedupeTable, dedupe},
        shuffle::{ShuffleTable, shuffle},
        sort::{SortTable, sort},
    },
    sources::InputFormat,
};
use serde::Serialize;

use super::{folders::Folders, keyed, session::Session};
use crate::{
    cli::{ConvertArgs, DedupeArgs, JobArgs, ShuffleArgs, SortArgs, TableArgs, TableReadArgs},
    exit::{Exit, Failure},
    report::{TableSummary, TableWords},
};

const SORTED: TableWords = TableWords { did: "sorted" };
const SHUFFLED: TableWords = TableWords { did: "shuffled" };
const DEDUPLICATED: TableWords = TableWords { did: "deduplicated" };
const CONVERTED: TableWords = TableWords { did: "converted" };

/// Sorts a table and prints the summary.
pub(super) fn sort_by_key(args: &SortArgs) -> Result<Exit, Failure> {
    let output = args.output.as_deref().expect("clap requires it");
    let (session, folders) = open(&args.job, &args.input, output)?;
    let table = Rewrite {
        inputs: folders.inputs().to_vec(),
        output: folders.output().to_owned(),
        reading: args.read.options(),
        writing: args.write.options(args.job.setup.partitions, None),
        strategy: args.job.strategy.strategy(),
        partial: args.job.setup.partial,
    };
    let params = SortTable { table, key: args.key.clone() };
    sorted(session, params, args.job.setup.json, &folders.describe_output())
}

/// Shuffles a table, or records, and prints the summary.
pub fn shuffle_rows(args: &ShuffleArgs) -> Result<Exit, Failure> {
    let format = input_format(&args.table.input, &args.table.read, args.table.job.setup.partial);
    if format == Some(InputFormat::Records) {
        let given = args.table.read.given().or(args.table.write.given());
        if let Some(option) = given.or(args.rows_per_file.map(|_| "--rows-per-file")) {
            return Err(Failure::text(Exit::Usage, format!("{option} is for tables, and the input is records")));
        }
        return keyed::shuffle_records(&args.table.job, &args.table.input, &args.table.output, args.seed);
    }
    let (session, folders, table) = opened(&args.table, args.rows_per_file)?;
    let params = ShuffleTable { table, seed: args.seed };
    shuffled(session, params, args.table.job.setup.json, &folders.describe_output())
}

/// Leaves one row of each key and prints the summary.
pub fn dedupe_rows(args: &DedupeArgs) -> Result<Exit, Failure> {
    let (session, folders, table) = opened(&args.table, None)?;
    let DedupeArgs { key, keep, order_by, .. } = args.clone();
    let params = DedupeTable { table, key, keep, order_by };
    deduplicated(session, params, args.table.job.setup.json, &folders.describe_output())
}

/// Writes a table once more and prints the summary.
pub fn convert_files(args: &ConvertArgs) -> Result<Exit, Failure> {
    let (session, folders, table) = opened(&args.table, args.rows_per_file)?;
    converted(session, ConvertTable { table }, args.table.job.setup.json, &folders.describe_output())
}

/// Goes on with a sort that was not finished.
pub(super) fn sort_again(session: Session, params: SortTable, json: bool) -> Result<Exit, Failure> {
    let output = params.table.output.display().to_string();
    sorted(session, params, json, &output)
}

/// As [`sort_again`], with a shuffle.
pub(super) fn shuffle_again(session: Session, params: ShuffleTable, json: bool) -> Result<Exit, Failure> {
    let output = params.table.output.display().to_string();
    shuffled(session, params, json, &output)
}

/// As [`sort_again`], with a deduplication.
pub(super) fn dedupe_again(session: Session, params: DedupeTable, json: bool) -> Result<Exit, Failure> {
    let output = params.table.output.display().to_string();
    deduplicated(session, params, json, &output)
}

/// As [`sort_again`], with a conversion.
pub(super) fn convert_again(session: Session, params: ConvertTable, json: bool) -> Result<Exit, Failure> {
    let output = params.table.output.display().to_string();
    converted(session, params, json, &output)
}

fn sorted(session: Session, params: SortTable, json: bool, output: &str) -> Result<Exit, Failure> {
    let folder = params.table.output.clone();
    let program = async |futures, params| sort(futures, params).await;
    run_and_print(session, ("table.sort", SORTED), (&folder, params), program, (json, output))
}

fn shuffled(session: Session, params: ShuffleTable, json: bool, output: &str) -> Result<Exit, Failure> {
    let folder = params.table.output.clone();
    let program = async |futures, params| shuffle(futures, params).await;
    run_and_print(session, ("table.shuffle", SHUFFLED), (&folder, params), program, (json, output))
}

fn deduplicated(session: Session, params: DedupeTable, json: bool, output: &str) -> Result<Exit, Failure> {
    let folder = params.table.output.clone();
    let program = async |futures, params| dedupe(futures, params).await;
    run_and_print(session, ("table.dedupe", DEDUPLICATED), (&folder, params), program, (json, output))
}

fn converted(session: Session, params: ConvertTable, json: bool, output: &str) -> Result<Exit, Failure> {
    let folder = params.table.output.clone();
    let program = async |futures, params| convert(futures, params).await;
    run_and_print(session, ("table.convert", CONVERTED), (&folder, params), program, (json, output))
}

fn run_and_print<P: Serialize + Send + 'static>(
    session: Session,
    (name, words): (&str, TableWords),
    (folder, params): (&Path, P),
    program: impl AsyncFnOnce(Futures, P) -> Result<Rewritten, JobError> + Send + 'static,
    (json, output): (bool, &str),
) -> Result<Exit, Failure> {
    let ran = session.run(name, Some(folder), params, program)?;
    let summary = TableSummary::new(&ran.report, &ran.end, &ran.place, ran.seconds);
    ran.print(json, &summary, &summary.for_people(words, &ran.place, output))?;
    Ok(ran.exit())
}

/// A session, and the folders of a job in it.
fn open(args: &JobArgs, input: &[PathBuf], output: &Path) -> Result<(Session, Folders), Failure> {
    let session = Session::open(args)?;
    let partial = args.setup.partial;
    let folders = Folders::named(input, output, session.on_cluster(), |inputs| {
        let mut files = Vec::new();
        visit_files(
            (inputs, partial),
            |_| Ok(()),
            |location, status| {
                files.push(InputFile { path: location.to_path_buf(), bytes: status.bytes });
                Ok(())
            },
        )?;
        Ok(files)
    })?;
    Ok((session, folders))
}

/// The same, and what the job is told of its table.
fn opened(args: &TableArgs, rows_per_file: Option<u64>) -> Result<(Session, Folders, Rewrite), Failure> {
    let (session, folders) = open(&args.job, &args.input, &args.output)?;
    let table = Rewrite {
        inputs: folders.inputs().to_vec(),
        output: folders.output().to_owned(),
        reading: args.read.options(),
        writing: args.write.options(args.job.setup.partitions, rows_per_file),
        strategy: args.job.strategy.strategy(),
        partial: args.job.setup.partial,
    };
    Ok((session, folders, table))
}

/// The format of the input, as is said, or by the name of its first file; `None`: that is not known here, as on a cluster, where folders are those of the nodes.
pub(super) fn input_format(input: &[PathBuf], read: &TableReadArgs, partial: bool) -> Option<InputFormat> {
    if read.rows.input_format.is_some() {
        return read.rows.input_format;
    }
    let mut format = None;
    // What is wrong with a file is said by the job.
    let _ = visit_files::<FileError>(
        (input, partial),
        |_| Ok(()),
        |location, _| {
            format.get_or_insert_with(|| InputFormat::of(location));
            Ok(())
        },
    );
    format
}
