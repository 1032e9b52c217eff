//! `exobus query`: an answer of SQL over files.

use std::{io::Write, sync::Arc};

use exobus_actors::{ids::JobId, spec::path_value};
use exobus_sql::program::Answered;
use exobus_tables::{
    sinks::{FileForm, OutputFormat, SinkOptions, TableSink},
    sources::FixedBudget,
};

use super::{
    kept,
    planned::{self, Words},
    session::Session,
};
use crate::{
    cli::QueryArgs,
    cluster,
    config::Overrides,
    exit::{Exit, Failure, OrExit},
    machine,
    table::LOOK_BYTES,
    temporary::Temporary,
};

/// Answers a query and prints the answer, or the summary of what was written.
pub fn run(args: &QueryArgs) -> Result<Exit, Failure> {
    let process = &args.job.setup.process;
    if let Some(format) = args
        .printed()
        .filter(|format| !matches!(format, OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::JsonLines))
    {
        return Err(Failure::text(
            Exit::Usage,
            format!(
                "{format} is not printed: --output says a folder for its files, and --format csv, tsv or jsonl prints rows"
            ),
        ));
    }
    if let Some(job) = &args.online.go_on {
        return kept::go_on(&args.job, job, args.online.page, args.printed().map(Words::Printed));
    }
    let mut spec = args.spec();
    let on_cluster = cluster::place(&process.place, &Overrides::default())?.1;
    kept::check(&args.online, on_cluster)?;
    let keep = args.online.keep.as_deref();
    let is_nowhere = args.scratch.is_none() && args.output.is_none() && !on_cluster;
    if let Some(keep) = keep.filter(|_| is_nowhere) {
        spec.fields.insert("scratch".to_owned(), path_value(&keep.join(format!("{}{}", kept::STEPS, JobId::new()))));
    }
    // What steps write goes with this process, unless somebody says where it is.
    let own = match is_nowhere && keep.is_none() {
        false => None,
        true => {
            let parent = process.spill.first().cloned().unwrap_or_else(machine::big_temporary_folder);
            std::fs::create_dir_all(&parent).or_exit(Exit::InputOutput)?;
            let own = Temporary::make(&parent, "exobus-query-").or_exit(Exit::InputOutput);
            Some(own.map_err(|failure| failure.context(format!("make a folder in {}", parent.display())))?)
        }
    };
    if let Some(own) = &own {
        spec.fields.insert("scratch".to_owned(), path_value(&own.path().join("steps")));
    }
    let words = args.printed().map_or(Words::Answer, Words::Printed);
    spec.make_absolute().or_exit(Exit::InputOutput)?;
    if on_cluster {
        let session = Session::open(process, &args.job.views)?.with_page(args.online.page)?;
        return planned::hand_in(session, &args.job, &spec, (Some(words), None));
    }
    let plan = planned::plan(&spec, exobus_actors::spec::Spec::plan, args.job.setup.partial)?;
    let session = Session::open(process, &args.job.views)?.with_page(args.online.page)?.kept_in(keep)?;
    let session = if own.is_some() { session.unlogged() } else { session };
    let output = args.output.iter().map(|output| output.display().to_string()).collect::<String>();
    planned::tell_in(words, session, &plan, (process.json, &output))
}

/// Prints the rows of an answer in a format of text.
pub(super) fn print(answered: &Answered, format: OutputFormat) -> Result<(), Failure> {
    let (schema, batches) = answered.shown.batches().or_exit(Exit::JobFailed)?;
    let form = FileForm::new(format, None).map_err(|error| Failure::text(Exit::Usage, error.to_string()))?;
    let budget: Arc<dyn exobus_tables::sources::MemoryBudget> = Arc::new(FixedBudget::new(LOOK_BYTES));
    let printed = TableSink::new(Vec::new(), &schema, &SinkOptions::new(form), &budget).and_then(|mut sink| {
        batches.iter().try_for_each(|batch| sink.write(batch))?;
        sink.finish()
    });
    let (bytes, _) = printed.or_exit(Exit::DataWrong)?;
    // Whoever reads may have seen enough.
    let _ = std::io::stdout().lock().write_all(&bytes);
    if !answered.shown.is_all {
        eprintln!("these are the first {} rows: --rows prints more, --output writes all of them", answered.shown.rows);
    }
    Ok(())
}
