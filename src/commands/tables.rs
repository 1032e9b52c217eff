//! `exobus sort --key`: tables in, tables in key order out, in this process or on a cluster.

use exobus_files::visit_files;
use exobus_shuffle::files::InputFile;
use exobus_tables::jobs::sort::{SortTable, SortedTable, WriteOptions, sort};

use super::{
    folders::Folders,
    session::{Ran, Session},
};
use crate::{
    cli::SortArgs,
    exit::{Exit, Failure},
    report::JobSummary,
};

/// Sorts and prints the summary.
pub(super) fn sort_by_key(args: &SortArgs) -> Result<Exit, Failure> {
    let session = Session::open(&args.job)?;
    let partial = args.job.setup.partial;
    let output = args.output.as_deref().expect("clap requires it");
    let folders = Folders::named(&args.input, output, session.on_cluster(), |inputs| {
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
    let params = SortTable {
        inputs: folders.inputs().to_vec(),
        output: folders.output().to_owned(),
        key: args.key.clone(),
        files: args.job.setup.partitions,
        reading: args.read.options(),
        writing: WriteOptions { compression: args.compression, group_rows: args.row_group_rows },
        strategy: args.job.strategy.strategy(),
        partial,
    };
    run_and_print(session, params, args.job.setup.json, &folders.describe_output()).map(Ran::exit)
}

/// Goes on with a sort that was not finished.
pub(super) fn again(session: Session, params: SortTable, json: bool) -> Result<Exit, Failure> {
    let output = params.output.display().to_string();
    run_and_print(session, params, json, &output).map(Ran::exit)
}

fn run_and_print(session: Session, params: SortTable, json: bool, output: &str) -> Result<Ran<SortedTable>, Failure> {
    let folder = params.output.clone();
    let ran = session.run("table.sort", Some(&folder), params, async |futures, params| sort(futures, params).await)?;
    let summary = JobSummary::of_table(&ran.report, &ran.end, &ran.place, ran.seconds);
    ran.print(json, &summary, &summary.of_rows_for_people(&ran.place, output))?;
    Ok(ran)
}
