//! Jobs over tables: `exobus sort --key`, `shuffle`, `dedupe` and `convert`, in this process or on a cluster.

use std::path::{Path, PathBuf};

use exobus_files::{FileError, Location, visit_files};
use exobus_tables::{
    jobs::{
        Rewrite, TableJob, WriteOptions, convert::ConvertTable, dedupe::DedupeTable, shuffle::ShuffleTable,
        sort::SortTable,
    },
    reading::ReadOptions,
    semantics::KeyColumn,
    sources::{InputFormat, records},
};

use super::{folders::Folders, keyed, session::Session};
use crate::{
    cli::{ConvertArgs, DedupeArgs, JobArgs, ShuffleArgs, SortArgs, TableArgs, TableReadArgs, TableWriteArgs},
    exit::{Exit, Failure},
    report::{TableSummary, TableWords},
};

pub(super) const SORTED: TableWords = TableWords { did: "sorted" };
pub(super) const SHUFFLED: TableWords = TableWords { did: "shuffled" };
pub(super) const DEDUPLICATED: TableWords = TableWords { did: "deduplicated" };
pub(super) const CONVERTED: TableWords = TableWords { did: "converted" };

/// Sorts a table and prints the summary.
pub(super) fn sort_by_key(args: &SortArgs, key: Vec<KeyColumn>) -> Result<Exit, Failure> {
    let output = args.output.as_deref().expect("clap requires it");
    let writing = args.write.options(args.job.setup.partitions, None);
    let named = (&args.input[..], output);
    let (session, folders, table) = open(&args.job, named, args.read.options(), writing)?;
    let params = SortTable { table, key };
    run_and_print(session, params, SORTED, args.job.setup.json, &folders.describe_output())
}

/// Shuffles a table, or records where nothing else is asked for, and prints the summary.
pub fn shuffle_rows(args: &ShuffleArgs) -> Result<Exit, Failure> {
    let TableArgs { input, output, read, write, job } = &args.table;
    if is_shuffled_raw((input, job.setup.partial), (read, write), args.rows_per_file) {
        return keyed::shuffle_records(job, input, output, args.seed);
    }
    run(&args.table, args.rows_per_file, SHUFFLED, |table| ShuffleTable { table, seed: args.seed })
}

/// Leaves one row of each key and prints the summary.
pub fn dedupe_rows(args: &DedupeArgs) -> Result<Exit, Failure> {
    let DedupeArgs { key, keep, order_by, table } = args;
    let key = key_of_dedupe(key, (&table.input, table.job.setup.partial), &table.read)?;
    let (keep, order_by) = (*keep, order_by.clone());
    run(&args.table, None, DEDUPLICATED, |table| DedupeTable { table, key, keep, order_by })
}

/// Writes a table once more and prints the summary.
pub fn convert_files(args: &ConvertArgs) -> Result<Exit, Failure> {
    run(&args.table, args.rows_per_file, CONVERTED, |table| ConvertTable { table })
}

/// What records are sorted and deduplicated by unless told.
pub(super) fn key_of_records() -> Vec<KeyColumn> {
    vec![KeyColumn::rising(records::KEY)]
}

/// Whether records are shuffled as they are: where nothing is asked for that tables alone have.
pub(super) fn is_shuffled_raw(
    (input, partial): (&[PathBuf], bool),
    (read, write): (&TableReadArgs, &TableWriteArgs),
    rows_per_file: Option<u64>,
) -> bool {
    let is_more = read.given().or(write.given()).is_some() || rows_per_file.is_some();
    !is_more && input_format(input, read, partial) == Some(InputFormat::Records)
}

/// By which columns this input is deduplicated.
pub(super) fn key_of_dedupe(
    key: &[KeyColumn],
    (input, partial): (&[PathBuf], bool),
    read: &TableReadArgs,
) -> Result<Vec<KeyColumn>, Failure> {
    if !key.is_empty() {
        return Ok(key.to_vec());
    }
    if input_format(input, read, partial) != Some(InputFormat::Records) {
        let what = "a table is deduplicated by columns: say which, --key COLUMN; records are by theirs: --input-format records";
        return Err(Failure::text(Exit::Usage, what));
    }
    Ok(key_of_records())
}

/// Runs a job over the table of these arguments.
fn run<J: TableJob>(
    args: &TableArgs,
    rows_per_file: Option<u64>,
    words: TableWords,
    job: impl FnOnce(Rewrite) -> J,
) -> Result<Exit, Failure> {
    let writing = args.write.options(args.job.setup.partitions, rows_per_file);
    let (session, folders, table) = open(&args.job, (&args.input, &args.output), args.read.options(), writing)?;
    run_and_print(session, job(table), words, args.job.setup.json, &folders.describe_output())
}

/// Goes on with a job that was not finished.
pub(super) fn again<J: TableJob>(session: Session, params: J, words: TableWords, json: bool) -> Result<Exit, Failure> {
    let output = params.table().output.display().to_string();
    run_and_print(session, params, words, json, &output)
}

fn run_and_print<J: TableJob>(
    session: Session,
    params: J,
    words: TableWords,
    json: bool,
    output: &str,
) -> Result<Exit, Failure> {
    let folder = params.table().output.clone();
    let ran = session.run(J::NAME, Some(&folder), params, async |futures, params: J| params.run(futures).await)?;
    let summary = TableSummary::new(&ran.report, &ran.end, &ran.place, ran.seconds);
    ran.print(json, &summary, &summary.for_people(words, &ran.place, output))?;
    Ok(ran.exit())
}

/// A session, the folders of a job in it, and what the job is told of its table.
fn open(
    args: &JobArgs,
    (input, output): (&[PathBuf], &Path),
    reading: ReadOptions,
    writing: WriteOptions,
) -> Result<(Session, Folders, Rewrite), Failure> {
    let session = Session::open(args)?;
    let partial = args.setup.partial;
    let folders = Folders::named(input, output, session.on_cluster(), |inputs| check_inputs(inputs, partial))?;
    let (inputs, output) = (folders.inputs().to_vec(), folders.output().to_owned());
    let table = Rewrite { inputs, output, reading, writing, strategy: args.strategy.strategy(), partial };
    Ok((session, folders, table))
}

/// The format of the input, as is said, or by the name of its first file; `None`: that is not known here, as on a cluster, where folders are those of the nodes.
pub(super) fn input_format(input: &[PathBuf], read: &TableReadArgs, partial: bool) -> Option<InputFormat> {
    if read.rows.input_format.is_some() {
        return read.rows.input_format;
    }
    // What is wrong with any is said by the job.
    first_file(input, partial).ok().flatten().as_ref().map(InputFormat::of)
}

/// Refuses names of input that stand for no file, or may not be read. The files behind the first one of each name are the job's to list: there may be very many.
///
/// # Errors
/// Those of [`visit_files`].
pub(super) fn check_inputs(input: &[PathBuf], partial: bool) -> Result<(), FileError> {
    input.iter().try_for_each(|name| first_file(std::slice::from_ref(name), partial).map(drop))
}

/// The first file that these names stand for.
fn first_file(input: &[PathBuf], partial: bool) -> Result<Option<Location>, FileError> {
    let mut first = None;
    let found = visit_files::<Option<FileError>>(
        (input, partial),
        |_| Ok(()),
        |location, _| {
            first = Some(location.clone());
            Err(None)
        },
    );
    match found {
        Err(Some(error)) => Err(error),
        Ok(()) | Err(None) => Ok(first),
    }
}
