//! Dumps of text as Parquet: exobus reads text with commas or tabs and a header, and these have neither.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use clap::Args;
use flate2::read::MultiGzDecoder;

use crate::files::{Format, HourFile, PageView, ParquetArgs, empty_folder, for_each_file};

#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// A folder of dumps, `*.gz`
    dumps: PathBuf,
    /// A folder for Parquet, a file for each dump
    output: PathBuf,
    #[command(flatten)]
    parquet: ParquetArgs,
}

pub fn run(args: &ConvertArgs) -> Result<()> {
    let dumps = dumps(&args.dumps)?;
    ensure!(!dumps.is_empty(), "no file of {} ends with .gz", args.dumps.display());
    empty_folder(&args.output)?;
    let (rows, skipped) = (AtomicU64::new(0), AtomicU64::new(0));
    for_each_file(dumps.len(), |file| {
        let dump = &dumps[file];
        let (of_file, skipped_of_file) =
            convert(dump, &args.output, &args.parquet).with_context(|| format!("convert {}", dump.display()))?;
        rows.fetch_add(of_file, Ordering::Relaxed);
        skipped.fetch_add(skipped_of_file, Ordering::Relaxed);
        Ok(())
    })?;
    println!("{} rows of {} files; {} lines are no rows", rows.into_inner(), dumps.len(), skipped.into_inner());
    Ok(())
}

/// The dumps of a folder, in the order of their names.
pub fn dumps(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "gz"));
    files.sort();
    Ok(files)
}

/// How many rows there are, and how many lines that are none: the dumps have some.
fn convert(dump: &Path, output: &Path, parquet: &ParquetArgs) -> Result<(u64, u64)> {
    let name = dump.file_stem().context("find its name")?.to_string_lossy();
    let mut lines = BufReader::new(MultiGzDecoder::new(File::open(dump)?));
    let mut file = HourFile::create(output, &name, Format::Parquet, parquet)?;
    let (mut line, mut rows, mut skipped) = (Vec::new(), 0, 0);
    while lines.read_until(b'\n', &mut line)? > 0 {
        match row(&String::from_utf8_lossy(&line)) {
            Some(row) => {
                file.write(&row)?;
                rows += 1;
            }
            None => skipped += 1,
        }
        line.clear();
    }
    file.finish()?;
    Ok((rows, skipped))
}

/// The row of a line; a title may have spaces, and others have none.
fn row(line: &str) -> Option<PageView<'_>> {
    let mut from_behind = line.trim_end_matches(['\n', '\r']).rsplitn(3, ' ');
    let (size, requests) = (from_behind.next()?.parse().ok()?, from_behind.next()?.parse().ok()?);
    let (lang, title) = from_behind.next()?.split_once(' ')?;
    Some(PageView { lang, title, requests, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_four_fields() {
        let of = |lang, title| Some(PageView { lang, title, requests: 7, size: 90 });
        assert_eq!(row("en Main_Page 7 90\n"), of("en", "Main_Page"));
        assert_eq!(row("de.m A b 7 90"), of("de.m", "A b"));
        assert_eq!(row("en  7 90\n"), of("en", ""));
        for line in ["", "\n", "en Main_Page 7\n", "en Main_Page many 90\n", "7 90\n"] {
            assert_eq!(row(line), None, "{line:?}");
        }
    }
}
