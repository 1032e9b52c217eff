//! How fast can this machine sort files of records at all? A sort written by hand for one process and nothing else: the
//! yardstick for the `sort` job, which has to do the same with tasks and objects.
//!
//! ```text
//! exobus generate --records 100000000 --files 8 IN_DIR
//! cargo bench -p exobus-shuffle --bench monolith -- --memory 4GiB --partitions 80 --disk --json IN_DIR OUT_DIR
//! exobus validate OUT_DIR
//! ```
//!
//! Data: binary benchmark records in IN_DIR, in files of any number; OUT_DIR is empty or not there yet. The page cache is left
//! out on both sides. `--memory` limits records, buffers and scratch together; without it everything stays in memory.
//! `--disk` then measures the disk by the same requests and tells the least time in which its bytes can be moved.
//!
//! It does the checks that the job does: whole 10-byte keys, and the row hash of the bytes read against that of the bytes
//! written. Its algorithm is told in [`engine`]. It is not general: records of 100 bytes, one machine, no recovery.
//!
//! Good is the least time of the disk and some 10 %: two cores need less than that for everything else.

mod arguments;
mod disk;
mod engine;
mod report;

use std::process::ExitCode;

use arguments::Arguments;

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)).map_err(Into::into).and_then(|arguments| run(&arguments)) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("monolith: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<String, Box<dyn std::error::Error>> {
    let sorted = engine::sort(&arguments.options)?;
    let disk = match arguments.disk {
        true => Some(disk::measure(&arguments.options.output, sorted.bytes)?),
        false => None,
    };
    let summary = report::summary(&arguments.options, &sorted, disk.as_ref());
    Ok(if arguments.json { summary.to_string() } else { report::lines(&summary) })
}
