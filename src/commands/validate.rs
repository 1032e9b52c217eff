//! `exobus validate`: order, duplicate keys and checksum of sorted records, as valsort 1.5 reports them; those of tables are in [`validate_table`](super::validate_table).

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use exobus_shuffle::files::{list_inputs, validate_files};
use exobus_shuffle::records::{RECORD_BYTES, RowHash, Summary};
use exobus_store::{Clock, SystemClock};
use exobus_tables::semantics::KeyColumn;

use super::generate::{failure, gb_per_s, io_threads};
use crate::cli::{FilesArgs, TableReadArgs};
use crate::exit::{Exit, Failure, OrExit};
use crate::objects::Usage;
use crate::stdout::print_line;

/// `exobus validate`
#[derive(Debug, Clone, Args)]
pub struct ValidateArgs {
    /// Columns that a table is to be in the order of, the first decides first: user,ts:desc,name:nulls-first; without it only
    /// the rows of a table are counted and hashed
    #[arg(long, value_name = "COLUMN[:desc][:nulls-first]", value_delimiter = ',', conflicts_with_all = ["summary", "summaries"])]
    pub key: Vec<KeyColumn>,
    /// How the table is read
    #[command(flatten)]
    pub read: TableReadArgs,
    /// Also write the 280-byte summary of all records to FILE, as valsort -o does
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// The files hold summaries of consecutive partitions, not records: check them together, as valsort -s does
    #[arg(long)]
    pub summaries: bool,
    /// Read a folder that another job writes to, or has not finished, too: as far as it is there
    #[arg(long)]
    pub partial: bool,
    /// Print the result as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// How object stores are reached
    #[command(flatten)]
    pub stores: FilesArgs,
    /// Files of 100-byte records in order, or of a table, or folders of such files, taken in order of their names
    #[arg(required = true, value_name = "FILE|DIR")]
    pub inputs: Vec<PathBuf>,
}

/// Reads the records, prints what it found, and ends with [`Exit::DataWrong`] when any is out of order.
///
/// # Errors
/// A file that is missing, unreadable or ends inside a record; a summary that cannot be written; a table that cannot be read, or has no such key.
pub fn run(args: ValidateArgs) -> Result<Exit, Failure> {
    args.stores.register()?;
    let clock = SystemClock::new();
    let began = clock.now();
    if !args.summaries && super::validate_table::is_asked_for(&args)? {
        return super::validate_table::run(&args, || (clock.now() - began).as_secs_f64());
    }
    let summary = if args.summaries { joined_summaries(&args.inputs)? } else { validated(&args.inputs, args.partial)? };
    let seconds = (clock.now() - began).as_secs_f64();
    if let Some(path) = &args.summary {
        let written = std::fs::write(path, summary.to_bytes());
        written.with_context(|| format!("write summary {}", path.display())).or_exit(Exit::InputOutput)?;
    }
    print_line(if args.json { json(&summary, seconds) } else { text(&summary, seconds, !args.summaries) });
    Ok(if summary.is_ordered() { Exit::Success } else { Exit::DataWrong })
}

fn validated(inputs: &[PathBuf], partial: bool) -> Result<Summary, Failure> {
    let files = list_inputs(inputs, partial).map_err(failure)?;
    validate_files(&files, io_threads()).map_err(failure)
}

fn joined_summaries(inputs: &[PathBuf]) -> Result<Summary, Failure> {
    let mut whole = Summary::default();
    for path in inputs {
        let what = || format!("read summaries {}", path.display());
        let bytes = std::fs::read(path).with_context(what).or_exit(Exit::InputOutput)?;
        whole.append(&Summary::concatenated(&bytes).with_context(what).or_exit(Exit::DataWrong)?);
    }
    Ok(whole)
}

fn text(summary: &Summary, seconds: f64, from_records: bool) -> String {
    let mut lines = summary.lines();
    if from_records {
        // The verdict stays the last line, as in valsort.
        let verdict = lines.pop();
        lines.push(format!("Row hash: {}", RowHash(summary.row_hash)));
        lines.push(format!("Time: {seconds:.2} s, {:.2} GB/s", gb_per_s(bytes(summary), seconds)));
        lines.extend(verdict);
    }
    lines.join("\n")
}

fn json(summary: &Summary, seconds: f64) -> String {
    let mut printed = serde_json::json!({
        "records": number(summary.records),
        "bytes": bytes(summary),
        "seconds": seconds,
        "gb_per_s": gb_per_s(bytes(summary), seconds),
        "checksum": format!("{:x}", summary.checksum),
        "row_hash": RowHash(summary.row_hash).to_string(),
        "duplicate_keys": number(summary.duplicate_keys),
        "unordered_records": number(summary.unordered),
        "requests": Usage::now(),
    });
    if !summary.is_ordered() {
        printed["first_unordered_record"] = number(summary.first_unordered).into();
    }
    printed.to_string()
}

/// Records that were read fit 64 bits; only summary files can claim more.
fn number(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn bytes(summary: &Summary) -> u64 {
    number(summary.records).saturating_mul(RECORD_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use exobus_shuffle::records::{Generator, Mode, SUMMARY_BYTES};

    use super::*;

    fn args(inputs: Vec<PathBuf>) -> ValidateArgs {
        let (key, read) = (Vec::new(), TableReadArgs::default());
        ValidateArgs {
            key,
            read,
            summary: None,
            summaries: false,
            partial: false,
            json: false,
            stores: FilesArgs::default(),
            inputs,
        }
    }

    fn sorted_records(count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count * RECORD_BYTES];
        Generator::new(Mode::default()).fill(0, &mut bytes);
        let mut rows: Vec<&[u8]> = bytes.chunks(RECORD_BYTES).collect();
        rows.sort();
        rows.concat()
    }

    #[test]
    fn a_folder_of_parts_is_validated_as_one_and_so_are_their_summaries() {
        let directory = tempfile::tempdir().unwrap();
        let records = sorted_records(1000);
        let parts = directory.path().join("parts");
        fs::create_dir(&parts).unwrap();
        let mut summaries = Vec::new();
        for (index, part) in records.chunks(300 * RECORD_BYTES).enumerate() {
            let path = parts.join(format!("part-0000{index}"));
            fs::write(&path, part).unwrap();
            let summary = directory.path().join(format!("summary-{index}"));
            let one = ValidateArgs { summary: Some(summary.clone()), ..args(vec![path]) };
            assert_eq!(run(one).unwrap(), Exit::Success);
            summaries.push(summary);
        }
        let whole = directory.path().join("whole");
        let all = ValidateArgs { summary: Some(whole.clone()), ..args(vec![parts]) };
        assert_eq!(run(all).unwrap(), Exit::Success);
        let joined = directory.path().join("joined");
        let join = ValidateArgs { summary: Some(joined.clone()), summaries: true, ..args(summaries) };
        assert_eq!(run(join).unwrap(), Exit::Success);
        assert_eq!(fs::read(&whole).unwrap(), fs::read(&joined).unwrap());
        assert_eq!(fs::read(&whole).unwrap().len(), SUMMARY_BYTES);
    }

    #[test]
    fn unordered_records_end_with_the_exit_code_of_wrong_data() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        let mut records = sorted_records(100);
        records.rotate_left(RECORD_BYTES);
        fs::write(&path, &records).unwrap();
        assert_eq!(run(args(vec![path.clone()])).unwrap(), Exit::DataWrong);
        // Two ordered files in the wrong order are out of order as a whole.
        let (low, high) = (directory.path().join("low"), directory.path().join("high"));
        let records = sorted_records(100);
        fs::write(&low, &records[..5_000]).unwrap();
        fs::write(&high, &records[5_000..]).unwrap();
        assert_eq!(run(args(vec![low.clone(), high.clone()])).unwrap(), Exit::Success);
        assert_eq!(run(args(vec![high, low])).unwrap(), Exit::DataWrong);
    }

    #[test]
    fn a_truncated_file_is_named_with_its_offset() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("torn");
        fs::write(&path, &sorted_records(3)[..250]).unwrap();
        let error = run(args(vec![path])).unwrap_err();
        assert_eq!(error.exit, Exit::DataWrong);
        let text = error.to_string();
        assert!(text.contains("torn") && text.contains("offset 200"), "{text}");
        let missing = run(args(vec![directory.path().join("missing")])).unwrap_err();
        assert_eq!(missing.exit, Exit::InputOutput);
    }

    #[test]
    fn the_report_is_that_of_valsort_and_more() {
        let summary = Summary { records: 10, unordered: 2, first_unordered: 4, ..Summary::default() };
        let printed = text(&summary, 1e-6, true);
        assert!(printed.starts_with("First unordered record is record 4\nRecords: 10\nChecksum: 0\n"), "{printed}");
        assert!(printed.ends_with("ERROR - there are 2 unordered records"), "{printed}");
        assert!(printed.contains("1.00 GB/s") && printed.contains("Row hash: 0000"), "{printed}");
        let printed: serde_json::Value = serde_json::from_str(&json(&summary, 1e-6)).unwrap();
        assert_eq!(printed["first_unordered_record"], 4);
        assert_eq!(printed["bytes"], 1000);
    }
}
