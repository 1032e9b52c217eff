//! `exobus sort`: files of 100-byte records in, part files in key order out, or tables by columns, in this process or on a cluster.

use exobus_shuffle::files::{list_inputs, validate_files};

use super::{
    folders::Folders,
    generate::{failure as file_failure, io_threads},
    planned,
    session::Session,
};
use crate::{
    cli::SortArgs,
    exit::{Exit, Failure},
    report::{bytes, count},
    stdout::print_line,
};

/// Sorts and prints the summary.
pub fn run(args: &SortArgs) -> Result<Exit, Failure> {
    match args.generate {
        None => planned::run(&args.job, args.spec(&args.input, args.output.as_deref())),
        Some(size) => run_generated(args, size),
    }
}

/// Makes the input, sorts it, and reads the output back.
fn run_generated(args: &SortArgs, size: u64) -> Result<Exit, Failure> {
    if let Some(option) = args.read.given().or(args.write.given()) {
        let what = format!(
            "{option} is for tables, and what --generate makes is sorted as records: leave {option} out, or make files with \
             `exobus generate` and sort these with it"
        );
        return Err(Failure::text(Exit::Usage, what));
    }
    let process = &args.job.setup.process;
    let session = Session::open(process, &args.job.views)?.unlogged();
    let folders = Folders::generate(size, args.output.as_deref(), session.interrupt())?;
    let spec = args.spec(folders.inputs(), Some(folders.output()));
    let exit = planned::run_in(session, &args.job, spec, Some(&folders.describe_output()))?;
    let checked = validated(&folders)?;
    match process.json {
        true => eprintln!("{checked}"),
        false => print_line(checked),
    }
    Ok(exit)
}

/// Reads the output back, as `exobus validate` does, and compares it with what was generated.
fn validated(folders: &Folders) -> Result<String, Failure> {
    let generated = folders.generated();
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
