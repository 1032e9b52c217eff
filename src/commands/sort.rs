//! `exobus sort`: files of 100-byte records in, part files in key order out, in this process or on a cluster.

use std::io::Write;

use exobus_shuffle::{
    files::{list_inputs, validate_files},
    jobs::sort::{SortParams, SortReport, sort},
};

use exobus_tables::sources::InputFormat;

use super::{
    folders::Folders,
    generate::{failure as file_failure, io_threads},
    session::{Ran, Session},
};
use crate::{
    cli::{CutsName, SortArgs},
    exit::{Exit, Failure},
    report::{JobSummary, bytes, count},
};

/// Sorts and prints the summary.
pub fn run(args: &SortArgs) -> Result<Exit, Failure> {
    if !args.key.is_empty() {
        return super::tables::sort_by_key(args, args.key.clone());
    }
    let is_table = |format| format != InputFormat::Records;
    let format = super::tables::input_format(&args.input, &args.read, args.job.setup.partial);
    if args.generate.is_none() && format.is_some_and(is_table) {
        let tables = args.input.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(Failure::text(
            Exit::Usage,
            format!("{tables}: a table is sorted by columns: say which, --key COLUMN"),
        ));
    }
    if let Some(option) = args.read.given().or(args.write.given()) {
        let is_records = args.generate.is_none() && format == Some(InputFormat::Records);
        return match args.cuts {
            CutsName::Sampled if is_records => super::tables::sort_by_key(args, super::tables::key_of_records()),
            _ if is_records => {
                let what =
                    format!("--cuts is for records that are sorted as they are, and {option} makes a table of them");
                Err(Failure::text(Exit::Usage, what))
            }
            _ => Err(Failure::text(
                Exit::Usage,
                format!(
                    "{option} is for tables, which are sorted by --key COLUMN, and for records: --input-format records"
                ),
            )),
        };
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
            Folders::named(&args.input, output, on_cluster, |inputs| list_inputs(inputs, partial))?
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
