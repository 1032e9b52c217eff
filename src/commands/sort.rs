//! `exobus sort`: files of 100-byte records in, part files in key order out, in this process or on a cluster.

use std::io::Write;
use std::path::PathBuf;

use exobus_shuffle::{
    files::{list_inputs, validate_files},
    jobs::sort::{SortParams, SortReport, sort},
};

use exobus_tables::{semantics::KeyColumn, sources::InputFormat};

use super::{
    folders::Folders,
    generate::{failure as file_failure, io_threads},
    session::{Ran, Session},
};
use crate::{
    cli::{CutsName, SortArgs, TableReadArgs, TableWriteArgs},
    exit::{Exit, Failure},
    report::{JobSummary, bytes, count},
};

/// How files are sorted.
pub(super) enum Way {
    /// Records, as they are.
    Raw,
    /// As a table, by this key.
    Table(Vec<KeyColumn>),
}

impl Way {
    /// What these options ask for of this input.
    pub(super) fn of(
        key: &[KeyColumn],
        (input, partial): (&[PathBuf], bool),
        (read, write): (&TableReadArgs, &TableWriteArgs),
    ) -> Result<Self, Failure> {
        if !key.is_empty() {
            return Ok(Self::Table(key.to_vec()));
        }
        let format = super::tables::input_format(input, read, partial);
        // Nothing else has no input.
        let is_generated = input.is_empty();
        if !is_generated && format.is_some_and(|format| format != InputFormat::Records) {
            let tables = input.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
            let what = format!("{tables}: a table is sorted by columns: say which, --key COLUMN");
            return Err(Failure::text(Exit::Usage, what));
        }
        match read.given().or(write.given()) {
            None => Ok(Self::Raw),
            Some(_) if !is_generated && format.is_some() => Ok(Self::Table(super::tables::key_of_records())),
            Some(option) if is_generated => {
                let what = format!(
                    "{option} is for tables, and what --generate makes is sorted as records: leave {option} out, or make \
                     files with `exobus generate` and sort these with it"
                );
                Err(Failure::text(Exit::Usage, what))
            }
            Some(option) => {
                let what = format!(
                    "{option} is for tables, which are sorted by --key COLUMN, and for records: --input-format records"
                );
                Err(Failure::text(Exit::Usage, what))
            }
        }
    }
}

/// Sorts and prints the summary.
pub fn run(args: &SortArgs) -> Result<Exit, Failure> {
    match Way::of(&args.key, (&args.input, args.job.setup.partial), (&args.read, &args.write))? {
        Way::Raw => (),
        Way::Table(key) if args.key.is_empty() && args.cuts != CutsName::Sampled => {
            let option = args.read.given().or(args.write.given()).expect("what makes a table of records");
            let key: Vec<&str> = key.iter().map(|key| key.column.as_str()).collect();
            let key = key.join(",");
            let what = format!(
                "--cuts is for records that are sorted as they are, and {option} makes a table of them, by --key {key}"
            );
            return Err(Failure::text(Exit::Usage, what));
        }
        Way::Table(key) => return super::tables::sort_by_key(args, key),
    }
    let mut session = Session::open(&args.job)?;
    if args.generate.is_some() {
        session = session.unlogged();
    }
    let on_cluster = session.on_cluster();
    let partial = args.job.setup.partial;
    let folders = match (args.generate, &args.output) {
        (Some(size), output) => Folders::generate(size, output.as_deref(), on_cluster, session.interrupt())?,
        (None, output) => {
            let output = output.as_deref().expect("clap requires one of them");
            Folders::named(&args.input, output, on_cluster, |inputs| list_inputs(inputs, partial).map(drop))?
        }
    };
    let params = SortParams {
        inputs: folders.inputs().to_vec(),
        output: folders.output().to_owned(),
        partitions: args.job.setup.partitions,
        strategy: args.job.strategy.strategy(),
        cuts: args.cuts.source(),
        partial,
    };
    let ran = run_and_print(session, params, args.job.setup.json, &folders.describe_output())?;
    if let Some(generated) = &folders.generated {
        let checked = validated(&folders, generated)?;
        let _ = match args.job.setup.json {
            true => writeln!(std::io::stderr().lock(), "{checked}"),
            false => writeln!(std::io::stdout().lock(), "{checked}"),
        };
    }
    Ok(ran.exit())
}

/// Goes on with a sort that was not finished.
pub(super) fn again(session: Session, params: SortParams, json: bool) -> Result<Exit, Failure> {
    let output = params.output.display().to_string();
    run_and_print(session, params, json, &output).map(Ran::exit)
}

fn run_and_print(session: Session, params: SortParams, json: bool, output: &str) -> Result<Ran<SortReport>, Failure> {
    let folder = params.output.clone();
    let ran = session.run("sort", Some(&folder), params, async |futures, params| sort(futures, params).await)?;
    let summary = JobSummary::of_sort(&ran.report, &ran.end, &ran.place, ran.seconds);
    ran.print(json, &summary, &summary.for_people(&ran.place, output))?;
    Ok(ran)
}

/// Reads the output back, as `exobus validate` does, and compares it with what was generated.
fn validated(folders: &Folders, generated: &exobus_shuffle::files::Generated) -> Result<String, Failure> {
    let files = list_inputs(&[folders.output().to_owned()], false).map_err(file_failure)?;
    let found = validate_files(&files, io_threads()).map_err(file_failure)?;
    let wrong = |text: String| Failure::text(Exit::DataWrong, format!("the output is wrong: {text}"));
    if !found.is_ordered() {
        return Err(wrong(format!("{} records are out of order", found.unordered)));
    }
    if found.records != u128::from(generated.records) || found.checksum != generated.checksum {
        return Err(wrong(format!(
            "{} records with checksum {:x}, but {} records with checksum {:x} were generated",
            found.records, found.checksum, generated.records, generated.checksum
        )));
    }
    Ok(format!(
        "validated {}: {} records in order, checksum {:x} as generated",
        bytes(generated.bytes),
        count(generated.records),
        generated.checksum
    ))
}
