//! Jobs over keyed rows, with one code path: `exobus wordcount`, `aggregate`, and `shuffle` of records as they are.

use std::path::{Path, PathBuf};

use exobus_files::FileError;
use exobus_shuffle::{
    files::{InputFile, list_files, list_inputs},
    jobs::{RandomShuffle, WordCount},
    keyed::{self, KeyedParams, Registered},
};

use super::{folders::Folders, session::Session};
use crate::{
    cli::{AggregateArgs, JobArgs, WordcountArgs},
    exit::{Exit, Failure},
    report::{KeyedSummary, KeyedWords},
};

pub(super) const COUNTED: KeyedWords = KeyedWords { did: "counted", rows: "words", keys: Some("different") };
pub(super) const AGGREGATED: KeyedWords = KeyedWords { did: "aggregated", rows: "records", keys: Some("groups") };
pub(super) const SHUFFLED: KeyedWords = KeyedWords { did: "shuffled", rows: "records", keys: None };

/// Counts words and prints the summary.
pub fn wordcount(args: &WordcountArgs) -> Result<Exit, Failure> {
    run(&args.job, &args.input, &args.output, list_files, WordCount {}, COUNTED)
}

/// Aggregates and prints the summary.
pub fn aggregate(args: &AggregateArgs) -> Result<Exit, Failure> {
    run(&args.job, &args.input, &args.output, list_files, args.columns.job()?, AGGREGATED)
}

/// Shuffles records as they are and prints the summary.
pub(super) fn shuffle_records(job: &JobArgs, input: &[PathBuf], output: &Path, seed: u64) -> Result<Exit, Failure> {
    run(job, input, output, list_inputs, RandomShuffle { seed }, SHUFFLED)
}

fn run<J: Registered>(
    args: &JobArgs,
    inputs: &[PathBuf],
    output: &Path,
    list: fn(&[PathBuf], bool) -> Result<Vec<InputFile>, FileError>,
    job: J,
    words: KeyedWords,
) -> Result<Exit, Failure> {
    let session = Session::open(args)?;
    let look = |inputs: &[PathBuf]| list(inputs, args.setup.partial).map(drop);
    let folders = Folders::named(inputs, output, session.on_cluster(), look)?;
    let params = KeyedParams {
        inputs: folders.inputs().to_vec(),
        output: folders.output().to_owned(),
        partitions: args.setup.partitions,
        strategy: args.strategy.strategy(),
        partial: args.setup.partial,
        job,
    };
    run_and_print(session, params, args.setup.json, words, &folders.describe_output())
}

/// Goes on with a job that was not finished.
pub(super) fn again<J: Registered>(
    session: Session,
    params: KeyedParams<J>,
    json: bool,
    words: KeyedWords,
) -> Result<Exit, Failure> {
    let output = params.output.display().to_string();
    run_and_print(session, params, json, words, &output)
}

fn run_and_print<J: Registered>(
    session: Session,
    params: KeyedParams<J>,
    json: bool,
    words: KeyedWords,
    output: &str,
) -> Result<Exit, Failure> {
    let folder = params.output.clone();
    let ran = session.run(J::NAME, Some(&folder), params, async |futures, params| keyed::run(futures, params).await)?;
    let summary = KeyedSummary::new(&ran.report, &ran.end, &ran.place, ran.seconds);
    ran.print(json, &summary, &summary.for_people(&words, &ran.place, output))?;
    Ok(ran.exit())
}
