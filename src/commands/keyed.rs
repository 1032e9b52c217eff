//! Jobs over keyed rows, with one code path: `exobus wordcount`, `aggregate` and `random-shuffle`.

use std::path::{Path, PathBuf};

use exobus_shuffle::{
    files::{FileError, InputFile, list_files, list_inputs},
    jobs::{RandomShuffle, WordCount},
    keyed::{self, KeyedParams, Registered},
};

use super::{folders::Folders, session::Session};
use crate::{
    cli::{AggregateArgs, JobArgs, RandomShuffleArgs, WordcountArgs},
    exit::{Exit, Failure},
    report::{KeyedSummary, KeyedWords},
};

/// Counts words and prints the summary.
pub fn wordcount(args: &WordcountArgs) -> Result<Exit, Failure> {
    let words = KeyedWords { did: "counted", rows: "words", keys: Some("different") };
    run(&args.job, &args.input, &args.output, list_files, WordCount {}, words)
}

/// Aggregates and prints the summary.
pub fn aggregate(args: &AggregateArgs) -> Result<Exit, Failure> {
    let words = KeyedWords { did: "aggregated", rows: "records", keys: Some("groups") };
    run(&args.job, &args.input, &args.output, list_files, args.columns.job()?, words)
}

/// Shuffles records and prints the summary.
pub fn random_shuffle(args: &RandomShuffleArgs) -> Result<Exit, Failure> {
    let words = KeyedWords { did: "shuffled", rows: "records", keys: None };
    run(&args.job, &args.input, &args.output, list_inputs, RandomShuffle { seed: args.seed }, words)
}

fn run<J: Registered>(
    args: &JobArgs,
    inputs: &[PathBuf],
    output: &Path,
    list: fn(&[PathBuf]) -> Result<Vec<InputFile>, FileError>,
    job: J,
    words: KeyedWords,
) -> Result<Exit, Failure> {
    let session = Session::open(args)?;
    let mut folders = Folders::named(inputs, output, args.setup.cluster.is_some(), list)?;
    let params = KeyedParams {
        inputs: folders.inputs().to_vec(),
        output: folders.output().to_owned(),
        partitions: args.setup.partitions,
        strategy: args.strategy.strategy(),
        job,
    };
    let ran = session.run(J::NAME, params, async |futures, params| keyed::run(futures, params).await)?;
    folders.keep_output();
    let summary = KeyedSummary::new(&ran.report, &ran.end, ran.seconds);
    ran.print(args.setup.json, &summary, &summary.for_people(&words, &folders.describe_output()))?;
    Ok(ran.exit())
}
