//! `exobus query`: an answer of SQL over files.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom},
    path::Path,
    sync::Arc,
};

use exobus_actors::{
    ids::JobId,
    spec::{Spec, path_value},
};
use exobus_files::Manifest;
use exobus_sql::program::Answered;
use exobus_tables::{
    sinks::{FileForm, OutputFormat, SinkOptions, TableSink},
    sources::FixedBudget,
};

use super::{
    generate::{failure as file_failure, interrupted},
    kept,
    planned::{self, Words},
    session::{Ran, Session},
};
use crate::{
    cli::{QueryArgs, TableWriteArgs},
    cluster,
    config::Overrides,
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    machine, stdout,
    table::LOOK_BYTES,
    temporary::Temporary,
};

/// How rows of an answer are printed.
#[derive(Clone, Copy)]
pub(super) struct Printed {
    /// As text of this format.
    format: OutputFormat,
    /// So many at most, where that was said; `None`: all.
    rows: Option<u32>,
}

/// Rows that a job returns at most, whatever it is asked for.
const ROWS_MAX: u32 = 1_000_000;
/// Bytes of files that are read and printed at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Answers a query and prints the answer, or the summary of what was written.
pub fn run(args: &QueryArgs) -> Result<Exit, Failure> {
    check(args)?;
    let process = &args.job.setup.process;
    let printed = args.printed().map(|format| Printed { format, rows: args.rows });
    let words = printed.map_or(Words::Answer, Words::Printed);
    if let Some(job) = &args.online.go_on {
        return kept::go_on(&args.job, job, args.online.page, printed.map(Words::Printed));
    }
    let mut spec = args.spec();
    let on_cluster = cluster::place(&process.place, &Overrides::default())?.1;
    kept::check(&args.online, on_cluster)?;
    let keep = args.online.keep.as_deref();
    // However many rows there are, files have them. The nodes of a cluster may write where nobody here can read, and what is kept goes on in another process: such jobs return their rows.
    let all = printed.filter(|printed| printed.rows.is_none());
    let in_files = all.filter(|_| !on_cluster && keep.is_none());
    if all.is_some() && in_files.is_none() {
        spec.fields.insert("rows".to_owned(), ROWS_MAX.into());
    }
    let is_nowhere = args.scratch.is_none() && args.output.is_none() && !on_cluster;
    if let Some(keep) = keep.filter(|_| is_nowhere) {
        spec.fields.insert("scratch".to_owned(), path_value(&keep.join(format!("{}{}", kept::STEPS, JobId::new()))));
    }
    // What steps write, and files that are only to be printed, go with this process, unless somebody says where they are.
    let own = match in_files.is_some() || is_nowhere && keep.is_none() {
        false => None,
        true => {
            let parent = process.spill.first().cloned().unwrap_or_else(machine::big_temporary_folder);
            std::fs::create_dir_all(&parent).or_exit(Exit::InputOutput)?;
            let own = Temporary::make(&parent, "exobus-query-").or_exit(Exit::InputOutput);
            Some(own.map_err(|failure| failure.context(format!("make a folder in {}", parent.display())))?)
        }
    };
    if let Some(own) = own.as_ref().filter(|_| is_nowhere) {
        spec.fields.insert("scratch".to_owned(), path_value(&own.path().join("steps")));
    }
    let files = own.as_ref().map(|own| own.path().join("answer")).zip(in_files);
    if let Some((folder, _)) = &files {
        spec.fields.insert("output".to_owned(), path_value(folder));
    }
    spec.make_absolute().or_exit(Exit::InputOutput)?;
    if on_cluster {
        let session = Session::open(process, &args.job.views)?.with_page(args.online.page)?;
        return planned::hand_in(session, &args.job, &spec, (Some(words), None));
    }
    let plan = planned::plan(&spec, Spec::plan, args.job.setup.partial)?;
    let session = Session::open(process, &args.job.views)?.with_page(args.online.page)?.kept_in(keep)?;
    let session = if own.is_some() { session.unlogged() } else { session };
    if let Some((folder, printed)) = files {
        let interrupt = session.interrupt().clone();
        let ran: Ran<Answered> = session.run(&plan)?;
        match ran.report.written {
            Some(_) => print_files(&folder, printed.format, &interrupt)?,
            None => print(&ran, printed)?,
        }
        return Ok(ran.exit());
    }
    let output = args.output.iter().map(|output| output.display().to_string()).collect::<String>();
    planned::tell_in(words, session, &plan, (process.json, &output))
}

/// Refuses options that have no effect beside others, and names that mean two things.
fn check(args: &QueryArgs) -> Result<(), Failure> {
    let usage = |text: String| Err(Failure::text(Exit::Usage, text));
    let mut names = BTreeSet::new();
    for (name, _) in args.table.iter().filter_map(|table| table.split_once('=')) {
        if !names.insert(name.trim().to_lowercase()) {
            return usage(format!(
                "--table says twice what {} is, and names are compared without case: say another name, or a folder or pattern of all files",
                name.trim()
            ));
        }
    }
    if args.output.is_some() {
        return Ok(());
    }
    if let Some(option) = (TableWriteArgs { format: None, ..args.write.clone() }).given() {
        return usage(format!("{option} says how the files of an answer are written: it has them with --output alone"));
    }
    let Some(format) = args.printed() else { return Ok(()) };
    if !matches!(format, OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::JsonLines) {
        return usage(format!(
            "{format} is not printed: --output says a folder for its files, and --format csv, tsv or jsonl prints rows"
        ));
    }
    if args.job.setup.process.json {
        return usage(format!(
            "--json prints one object with the first rows and the summary, and --format {format} the rows alone: say one of them"
        ));
    }
    if args.online.until.is_some() {
        return usage(format!(
            "--until ends the query when its answer is known well enough, and --format {format} prints the rows of the exact one: --json prints what is known, look by look"
        ));
    }
    Ok(())
}

/// Prints what a job has returned: rows of its answer, or how it would be done.
pub(super) fn print(ran: &Ran<Answered>, Printed { format, rows }: Printed) -> Result<(), Failure> {
    let Answered { shown, written, explained, online, .. } = &ran.report;
    if let Some(explained) = explained {
        stdout::print_line(explained);
        return Ok(());
    }
    if let Some(online) = online.as_ref().filter(|online| online.written.is_none()) {
        let text = format!(
            "{}, so there are no rows of an exact answer to be printed: without --format, or with --json, it is printed what is known",
            online.ended
        );
        if ran.kept_job().is_none() {
            return Err(Failure::text(Exit::JobFailed, text));
        }
        eprintln!("{text}");
        return Ok(());
    }
    if written.is_some() {
        eprintln!("the answer is in the folder that --output said when the query began");
        return Ok(());
    }
    let (schema, batches) = shown.batches().or_exit(Exit::JobFailed)?;
    let form = FileForm::new(format, None).map_err(|error| Failure::text(Exit::Usage, error.to_string()))?;
    let budget: Arc<dyn exobus_tables::sources::MemoryBudget> = Arc::new(FixedBudget::new(LOOK_BYTES));
    let printed = TableSink::new(Vec::new(), &schema, &SinkOptions::new(form), &budget).and_then(|mut sink| {
        batches.iter().try_for_each(|batch| sink.write(batch))?;
        sink.finish()
    });
    let (bytes, _) = printed.or_exit(Exit::DataWrong)?;
    // Whether that went well is told when the command ends.
    let _ = stdout::write(&bytes);
    match rows.map(u64::from) {
        _ if shown.is_all => Ok(()),
        Some(rows) if rows == shown.rows => {
            eprintln!("these are the first {rows} rows: --rows prints more, --output writes all of them");
            Ok(())
        }
        _ => Err(Failure::text(
            Exit::InputOutput,
            format!(
                "these are the first {} rows, and there are more: a job returns 4 MiB of them at most, some 200 KiB on a cluster or where it is kept, and one that goes on as many as --rows said when it began; --output writes all of them",
                shown.rows
            ),
        )),
    }
}

/// Prints the files of an answer, one behind the other, until Ctrl-C.
fn print_files(folder: &Path, format: OutputFormat, interrupt: &Interrupt) -> Result<(), Failure> {
    let manifest = Manifest::read(folder).map_err(file_failure)?;
    let mut piece = Vec::new();
    for (number, file) in manifest.iter().flat_map(|manifest| &manifest.files).enumerate() {
        let path = folder.join(&file.name);
        let failed =
            |error: io::Error| Failure::new(Exit::InputOutput, error).context(format!("read {}", path.display()));
        let mut file = File::open(&path).map_err(failed)?;
        if number > 0 && format != OutputFormat::JsonLines {
            let header = header_bytes(BufReader::new(&file)).map_err(failed)?;
            file.seek(SeekFrom::Start(header)).map_err(failed)?;
        }
        loop {
            piece.clear();
            (&file).take(PIECE_BYTES).read_to_end(&mut piece).map_err(failed)?;
            if piece.is_empty() {
                break;
            }
            if interrupt.came() {
                return Err(interrupted());
            }
            if stdout::write(&piece).is_err() {
                // Why is told when the command ends.
                return Ok(());
            }
        }
    }
    Ok(())
}

/// How many bytes the names of the columns take at the beginning of a text; in quotes they may have line ends.
fn header_bytes(text: impl BufRead) -> io::Result<u64> {
    let (mut bytes, mut is_quoted) = (0, false);
    for byte in text.bytes() {
        bytes += 1;
        match byte? {
            b'"' => is_quoted = !is_quoted,
            b'\n' if !is_quoted => break,
            _ => (),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_ends_with_the_first_line_end_that_is_in_no_name() {
        let bytes = |text: &str| header_bytes(text.as_bytes()).unwrap();
        assert_eq!(bytes("a,b\n1,2\n"), 4);
        assert_eq!(bytes("\"a\n\"\"b\"\"\n\",c\n1,2\n"), 13);
        assert_eq!((bytes("\n1\n"), bytes("")), (1, 0));
    }
}
