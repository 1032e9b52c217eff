//! `exobus generate`: records of the Sort Benchmark, the same bytes as gensort 1.5.

use std::path::PathBuf;

use clap::Args;
use exobus_files::FileError;
use exobus_shuffle::files::{Generated, generate_dir_until, generate_file_until};
use exobus_shuffle::records::{Mode, RECORD_BYTES};
use exobus_store::{Clock, SystemClock};

use crate::cli::FilesArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::objects::Usage;
use crate::stdout::print_line;

/// `exobus generate`
#[derive(Debug, Clone, Args)]
pub struct GenerateArgs {
    /// How many records of 100 bytes: 1000000, 1e6 and 1M are the same
    #[arg(long, value_name = "N", value_parser = parse_records)]
    pub records: u64,
    /// Number of the first record; numbers have 128 bits
    #[arg(long, value_name = "S", default_value = "0", value_parser = parse_count)]
    pub start: u128,
    /// Printable keys and readable records instead of random bytes
    #[arg(long)]
    pub ascii: bool,
    /// Keys that crowd together instead of being uniform
    #[arg(long)]
    pub skewed: bool,
    /// Make OUT a folder of K files part-00000, part-00001, ... with the records in order
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub files: Option<u32>,
    /// Print what was made as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// How object stores are reached
    #[command(flatten)]
    pub stores: FilesArgs,
    /// The file to make, or with --files the folder: made if missing, must be empty
    pub out: PathBuf,
}

/// Makes the records and prints how many, how fast, and their checksum.
///
/// # Errors
/// The output exists, cannot be written, the disk is full, or Ctrl-C came; nothing is left of it then.
pub fn run(args: GenerateArgs) -> Result<Exit, Failure> {
    args.stores.register()?;
    let interrupt = Interrupt::listen().or_exit(Exit::InputOutput)?;
    let stop = || interrupt.came();
    let clock = SystemClock::new();
    let mode = Mode { ascii: args.ascii, skewed: args.skewed };
    let threads = io_threads();
    let began = clock.now();
    let generated = match args.files {
        Some(files) => generate_dir_until(&args.out, mode, args.start, args.records, files as usize, threads, &stop),
        None => generate_file_until(&args.out, mode, args.start, args.records, threads, &stop),
    };
    let Some(generated) = generated.map_err(failure)? else { return Err(interrupted()) };
    let seconds = (clock.now() - began).as_secs_f64();
    print_line(if args.json { json(&generated, seconds) } else { text(&generated, seconds) });
    Ok(Exit::Success)
}

fn text(generated: &Generated, seconds: f64) -> String {
    format!(
        "Records: {}\nBytes: {}\nChecksum: {:x}\nRow hash: {}\nTime: {seconds:.2} s, {:.2} GB/s",
        generated.records,
        generated.bytes,
        generated.checksum,
        generated.row_hash,
        gb_per_s(generated.bytes, seconds),
    )
}

fn json(generated: &Generated, seconds: f64) -> String {
    serde_json::json!({
        "records": generated.records,
        "bytes": generated.bytes,
        "seconds": seconds,
        "gb_per_s": gb_per_s(generated.bytes, seconds),
        "checksum": format!("{:x}", generated.checksum),
        "row_hash": generated.row_hash.to_string(),
        "requests": Usage::now(),
    })
    .to_string()
}

/// Ctrl-C came.
pub(super) fn interrupted() -> Failure {
    Failure::text(Exit::Interrupted, "interrupted; what was begun is removed")
}

/// The failure that an error of a file is.
pub(super) fn failure(error: FileError) -> Failure {
    let exit = if error.is_about_data() { Exit::DataWrong } else { Exit::InputOutput };
    Failure::new(exit, error)
}

/// Two more requests under way than there are cpus, so that the disk has work while all cpus do.
pub(super) fn io_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) + 2
}

/// Billions of bytes a second; 0 for no time at all.
pub(super) fn gb_per_s(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / seconds / 1e9 } else { 0.0 }
}

fn parse_records(text: &str) -> Result<u64, String> {
    let records = parse_count(text)?;
    let most = u64::MAX / RECORD_BYTES as u64;
    u64::try_from(records).ok().filter(|records| *records <= most).ok_or_else(|| format!("more than {most} records"))
}

/// A whole number, exactly: digits (with `_` or a decimal point between them), then an exponent (`1e8`, `2.5e6`) or one
/// of the letters k, M, G, T for thousands of each other.
fn parse_count(text: &str) -> Result<u128, String> {
    let wrong = || format!("{text:?} is no whole number such as 1000000, 1e6 or 1M");
    let (digits, exponent) = match text.find(|letter: char| letter.is_ascii_alphabetic()) {
        None => (text, 0),
        Some(at) => {
            let exponent = match &text[at..] {
                "k" | "K" => 3,
                "m" | "M" => 6,
                "g" | "G" => 9,
                "t" | "T" => 12,
                power => power.strip_prefix(['e', 'E']).and_then(|power| power.parse().ok()).ok_or_else(wrong)?,
            };
            (&text[..at], exponent)
        }
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut number = 0u128;
    let mut exponent: u32 = exponent;
    let digit_of = |letter: char| letter.to_digit(10).ok_or_else(wrong);
    let shifted = |number: u128, digit: u32| {
        number.checked_mul(10).and_then(|number| number.checked_add(digit.into())).ok_or_else(wrong)
    };
    if !whole.starts_with(|letter: char| letter.is_ascii_digit()) {
        return Err(wrong());
    }
    for letter in whole.chars().filter(|letter| *letter != '_') {
        number = shifted(number, digit_of(letter)?)?;
    }
    for letter in fraction.chars() {
        number = shifted(number, digit_of(letter)?)?;
        exponent = exponent.checked_sub(1).ok_or_else(wrong)?;
    }
    10u128.checked_pow(exponent).and_then(|power| number.checked_mul(power)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_exactly() {
        for (text, expected) in [
            ("0", 0),
            ("1000000", 1_000_000),
            ("1_000_000", 1_000_000),
            ("1e8", 100_000_000),
            ("10M", 10_000_000),
            ("2.5e6", 2_500_000),
            ("1.5k", 1_500),
            ("3G", 3_000_000_000),
            ("340282366920938463463374607431768211455", u128::MAX),
        ] {
            assert_eq!(parse_count(text), Ok(expected), "{text}");
        }
        for text in ["", "-1", "1.5", "1e", "e8", ".5k", "1MB", "1e40", "ten", "_1", "1e-3", "1.25e1"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
        assert_eq!(parse_records("1e8"), Ok(100_000_000));
        assert!(parse_records("1e18").unwrap_err().contains("more than"));
    }

    #[test]
    fn what_was_made_is_printed_and_nothing_is_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let args = GenerateArgs {
            records: 50,
            start: 1000,
            ascii: false,
            skewed: false,
            files: None,
            json: false,
            stores: FilesArgs::default(),
            out: directory.path().join("out"),
        };
        assert_eq!(run(args.clone()).unwrap(), Exit::Success);
        let again = run(args.clone()).unwrap_err();
        assert_eq!(again.exit, Exit::InputOutput);
        assert!(again.to_string().contains("exists already"), "{again}");
        let folder = GenerateArgs { files: Some(3), json: true, out: directory.path().join("folder"), ..args };
        assert_eq!(run(folder.clone()).unwrap(), Exit::Success);
        assert!(run(folder).unwrap_err().to_string().contains("not empty"));
    }

    #[test]
    fn the_report_has_records_bytes_speed_and_checksum() {
        let generated = Generated { records: 20, bytes: 2_000, checksum: 255, ..Generated::default() };
        let printed = text(&generated, 2e-6);
        for line in ["Records: 20", "Bytes: 2000", "Checksum: ff", "1.00 GB/s"] {
            assert!(printed.contains(line), "{printed}");
        }
        let printed: serde_json::Value = serde_json::from_str(&json(&generated, 2e-6)).unwrap();
        assert_eq!(printed["checksum"], "ff");
        assert_eq!(printed["records"], 20);
    }
}
