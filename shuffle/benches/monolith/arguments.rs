//! The command line.

use std::path::PathBuf;

use bytesize::ByteSize;

use crate::engine::Options;

const USAGE: &str = "usage: monolith [--memory BYTES] [--partitions N] [--disk] [--json] IN... OUT_DIR";

/// What the user wants.
#[derive(Debug)]
pub struct Arguments {
    /// What to sort.
    pub options: Options,
    /// Whether to measure the disk, too.
    pub disk: bool,
    /// Whether to print one JSON object instead of lines.
    pub json: bool,
}

impl Arguments {
    /// Reads the arguments behind the program's name.
    ///
    /// # Errors
    /// A text for the user.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let (mut paths, mut memory_bytes, mut partitions) = (Vec::new(), None, 80);
        let (mut disk, mut json) = (false, false);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value; {USAGE}"));
            let wrong = |error: &dyn std::fmt::Display| format!("{argument}: {error}; {USAGE}");
            match argument.as_str() {
                "--memory" => {
                    let size = value()?.parse::<ByteSize>().map_err(|error| wrong(&error))?;
                    memory_bytes = Some(size.as_u64());
                }
                "--partitions" => partitions = value()?.parse().map_err(|error| wrong(&error))?,
                "--disk" => disk = true,
                "--json" => json = true,
                // Said by `cargo bench` to every benchmark.
                "--bench" => {}
                _ if argument.starts_with('-') => return Err(wrong(&"unknown")),
                _ => paths.push(PathBuf::from(argument)),
            }
        }
        match paths.pop() {
            Some(output) if !paths.is_empty() && partitions > 0 => {
                let options = Options { inputs: paths, output, partitions, memory_bytes };
                Ok(Arguments { options, disk, json })
            }
            _ => Err(USAGE.to_owned()),
        }
    }
}
