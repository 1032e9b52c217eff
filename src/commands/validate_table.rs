//! `exobus validate` of tables: rows, their hash, their order, and whether they are what the manifest of a folder says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use exobus_files::{Location, Manifest};
use exobus_tables::look::{CheckedTable, Look};
use exobus_tables::sources::{FixedBudget, InputFormat};
use serde_json::json;

use super::generate::{failure, gb_per_s};
use super::show::{listed, source_failure};
use super::validate::ValidateArgs;
use crate::cli::TableReadArgs;
use crate::exit::{Exit, Failure};
use crate::report::counted;
use crate::stdout::print_line;

/// What reading may take, bytes: a batch, its pages, its keys.
const MEMORY_BYTES: u64 = 1 << 30;

/// Whether the files have a table: somebody says so, or the name of the first one.
///
/// # Errors
/// Files that cannot be listed.
pub(super) fn is_asked_for(args: &ValidateArgs) -> Result<bool, Failure> {
    if !args.key.is_empty() || args.read != TableReadArgs::default() {
        return Ok(true);
    }
    let is_table = |path: &Path| InputFormat::of(&path.into()) != InputFormat::Records;
    if args.inputs.iter().any(|path| path.is_dir()) {
        let files = listed((&args.inputs, args.partial), &args.read.options())?;
        return Ok(files.iter().any(|file| is_table(&file.location.to_path_buf())));
    }
    Ok(args.inputs.iter().any(|path| is_table(path)))
}

/// Reads the table, prints what it found, and ends with [`Exit::DataWrong`] when rows are out of order or not what a manifest says.
///
/// # Errors
/// A file that is missing or cannot be read as a table; columns, a condition or a key that do not fit it.
pub(super) fn run(args: &ValidateArgs, seconds: impl Fn() -> f64) -> Result<Exit, Failure> {
    let options = args.read.options();
    let files = listed((&args.inputs, args.partial), &options)?;
    let bytes = files.iter().map(|file| file.status.bytes).sum();
    let look = Look::new(files, options, Arc::new(FixedBudget::new(MEMORY_BYTES))).map_err(source_failure)?;
    let checked = look.check(&args.key).map_err(source_failure)?;
    let mut differences = Vec::new();
    let mut manifests = 0;
    // Rows that are left away are nobody's to count.
    let counts_all = args.read.rows.filter.is_none();
    for folder in args.inputs.iter().filter(|path| path.is_dir()) {
        if let Some(manifest) = Manifest::read(folder).map_err(failure)? {
            manifests += 1;
            differences.extend(compared(folder, &manifest, &checked, counts_all));
        }
    }
    let seconds = seconds();
    let found = Found {
        checked: &checked,
        has_key: !args.key.is_empty(),
        differences: &differences,
        manifests,
        bytes,
        seconds,
    };
    print_line(if args.json { found.json() } else { found.text() });
    Ok(if checked.unordered == 0 && differences.is_empty() { Exit::Success } else { Exit::DataWrong })
}

/// What is otherwise than a manifest says.
fn compared(folder: &Path, manifest: &Manifest, checked: &CheckedTable, counts_all: bool) -> Vec<String> {
    let location = Location::from(folder);
    let found: BTreeMap<&str, _> = checked.files.iter().map(|file| (file.name.as_str(), file)).collect();
    let (mut differences, mut named) = (Vec::new(), BTreeSet::new());
    for said in &manifest.files {
        let name = location.join(&said.name).to_string();
        match found.get(name.as_str()) {
            None => differences.push(format!("{name} is not there")),
            Some(file) if file.bytes != said.bytes => {
                differences.push(format!("{name} has {} bytes, not {}", file.bytes, said.bytes));
            }
            Some(file) if counts_all && file.rows != said.rows => {
                differences.push(format!("{name} has {} rows, not {}", file.rows, said.rows));
            }
            Some(_) => (),
        }
        named.insert(name);
    }
    let is_of_folder = |name: &str| Path::new(name).starts_with(folder);
    let more = found.keys().filter(|name| is_of_folder(name) && !named.contains(**name));
    differences.extend(more.map(|name| format!("{name} is more than there should be")));
    differences
}

fn there_are(unordered: u64) -> String {
    format!("there {} {}", if unordered == 1 { "is" } else { "are" }, counted(unordered, "unordered row"))
}

/// What is printed.
struct Found<'a> {
    checked: &'a CheckedTable,
    has_key: bool,
    differences: &'a [String],
    manifests: u64,
    bytes: u64,
    seconds: f64,
}

impl Found<'_> {
    fn text(&self) -> String {
        let checked = self.checked;
        let mut lines = Vec::new();
        if let Some(first) = &checked.first_unordered {
            lines.push(format!("First unordered row: {}, {}", first.file, first.place));
        }
        lines.push(format!("Rows: {}", checked.rows));
        lines.push(format!("Row hash: {}", checked.row_hash));
        if self.has_key {
            lines.push(format!("Duplicate keys: {}", checked.duplicate_keys));
        }
        lines.extend(self.differences.iter().map(|difference| format!("Manifest: {difference}")));
        lines.push(format!("Time: {:.2} s, {:.2} GB/s", self.seconds, gb_per_s(self.bytes, self.seconds)));
        lines.push(match (checked.unordered, self.differences.len() as u64) {
            (0, 0) => {
                let order =
                    if self.has_key { "all rows are in order" } else { "the order was not looked at: no --key" };
                let manifest = if self.manifests > 0 { ", files are those of the manifest" } else { "" };
                format!("SUCCESS - {order}{manifest}")
            }
            (0, differences) => format!("ERROR - {} from the manifest", counted(differences, "difference")),
            (unordered, 0) => format!("ERROR - {}", there_are(unordered)),
            (unordered, differences) => {
                format!(
                    "ERROR - {}, and {} from the manifest",
                    there_are(unordered),
                    counted(differences, "difference")
                )
            }
        });
        lines.join("\n")
    }

    fn json(&self) -> String {
        let checked = self.checked;
        let mut printed = json!({
            "rows": checked.rows,
            "files": checked.files.len(),
            "bytes": self.bytes,
            "seconds": self.seconds,
            "gb_per_s": gb_per_s(self.bytes, self.seconds),
            "row_hash": checked.row_hash.to_string(),
            "manifests": self.manifests,
            "differences": self.differences,
        });
        if self.has_key {
            printed["duplicate_keys"] = checked.duplicate_keys.into();
            printed["unordered_rows"] = checked.unordered.into();
        }
        if let Some(first) = &checked.first_unordered {
            printed["first_unordered"] =
                json!({ "file": first.file, "row": first.row, "place": first.place.to_string() });
        }
        printed.to_string()
    }
}
