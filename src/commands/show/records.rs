//! The first records of the sort benchmark.

use exobus_files::{Access, FileStatus, Location};
use exobus_shuffle::records::RECORD_BYTES;
use exobus_tables::look::Value;
use serde_json::json;

use crate::cli::{ShowArgs, TableRowsArgs};
use crate::exit::{Exit, Failure};
use crate::report::{DrawnColumn, DrawnTable, bytes, count};

/// Bytes of a record that are its key.
const KEY_BYTES: usize = 10;

/// What was asked for, of records.
pub(super) fn show(args: &ShowArgs, files: &[(Location, FileStatus)]) -> Result<String, Failure> {
    if args.schema
        || args.schema_text.is_some()
        || (TableRowsArgs { input_format: None, ..args.read.clone() }) != TableRowsArgs::default()
    {
        let text = format!("{}: records have no columns: say --input-format if it has a table", files[0].0);
        return Err(Failure::text(Exit::Usage, text));
    }
    let all: u64 = files.iter().map(|(_, status)| status.bytes).sum();
    let rows = all / RECORD_BYTES as u64;
    if args.stats {
        let files = files.len();
        return Ok(match args.json {
            true => json!({ "files": files, "bytes": all, "records": rows }).to_string(),
            false => format!("{} records, {files} files, {}", count(rows), bytes(all)),
        });
    }
    let wanted = usize::try_from(rows).unwrap_or(usize::MAX).min(args.rows as usize);
    let records = first(files, wanted).map_err(super::super::generate::failure)?;
    if args.json {
        let object = |record: &[u8]| {
            let (key, value) = record.split_at(KEY_BYTES);
            json!({ "key": Value::Bytes(key.to_vec()).to_string(), "value": Value::Bytes(value.to_vec()).to_string() })
        };
        let rows: Vec<_> = records.chunks(RECORD_BYTES).map(object).collect();
        return Ok(json!({ "records": rows, "is_all": wanted as u64 == all / RECORD_BYTES as u64 }).to_string());
    }
    let columns =
        ["key", "value"].map(|name| DrawnColumn { name: name.to_owned(), kind: "bytes".to_owned(), is_right: false });
    let values = |record: &[u8]| {
        let (key, value) = record.split_at(KEY_BYTES);
        vec![Value::Bytes(key.to_vec()), Value::Bytes(value.to_vec())]
    };
    let drawn = DrawnTable::new(columns.into(), records.chunks(RECORD_BYTES).map(values).collect());
    let said = if wanted as u64 == rows { "which are all" } else { "the first ones" };
    Ok(format!("{}\n{} records, {said}", drawn.drawn(args.width.map(usize::from)), count(wanted as u64)))
}

/// The bytes of the first records, of which there are as many; what is behind the last whole one of a file is none.
fn first(files: &[(Location, FileStatus)], wanted: usize) -> Result<Vec<u8>, exobus_files::FileError> {
    let mut records = Vec::with_capacity(wanted * RECORD_BYTES);
    for (location, status) in files {
        let left = wanted * RECORD_BYTES - records.len();
        let bytes = (status.bytes as usize / RECORD_BYTES * RECORD_BYTES).min(left);
        if bytes > 0 {
            let from = records.len();
            records.resize(from + bytes, 0);
            location.open(Access::Cached)?.read_at(0, &mut records[from..], bytes)?;
        }
    }
    Ok(records)
}
