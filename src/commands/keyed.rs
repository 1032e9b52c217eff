//! Jobs over keyed rows, with one code path: `exobus wordcount`, `aggregate` and `random-shuffle`.

use std::path::{Path, PathBuf};

use exobus_shuffle::{
    files::{FileError, InputFile, list_files, list_inputs},
    jobs::{Aggregate, RandomShuffle, WordCount, aggregate::Operation},
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
    let operations: Vec<Operation> = args.ops.iter().map(|name| name.operation()).collect();
    if let Some(operation) = operations.iter().find(|operation| **operation != Operation::Count)
        && args.value.is_none()
    {
        let text = format!("--ops {} needs --value, the column of the values", operation.name());
        return Err(Failure::text(Exit::Usage, text));
    }
    let value = args.value.clone().filter(|_| operations.iter().any(|operation| *operation != Operation::Count));
    let job = Aggregate { key: args.key.clone(), value, operations, delimiter: args.delimiter, header: args.header };
    let words = KeyedWords { did: "aggregated", rows: "records", keys: Some("groups") };
    run(&args.job, &args.input, &args.output, list_files, job, words)
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
    let mut folders = Folders::named(inputs, output, args.cluster.is_some(), list)?;
    let params = KeyedParams {
        inputs: folders.inputs().to_vec(),
        output: folders.output().to_owned(),
        partitions: args.partitions,
        strategy: args.strategy.strategy(),
        job,
    };
    let ran = session.run(J::NAME, params, async |futures, params| keyed::run(futures, params).await)?;
    folders.keep_output();
    let summary = KeyedSummary::new(&ran.report, &ran.end, ran.seconds);
    ran.print(args.json, &summary, &summary.for_people(&words, &folders.describe_output()))?;
    Ok(ran.exit())
}
