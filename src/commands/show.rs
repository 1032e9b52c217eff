//! `exobus show`: the first rows of a table, its columns, or what its files say of it.

use std::path::PathBuf;
use std::sync::Arc;

use exobus_tables::look::{ColumnStatistics, FirstRows, Look, TableStatistics, Value};
use exobus_tables::reading::ReadOptions;
use exobus_tables::sources::{FixedBudget, ListedFile, SourceError, parse_schema, print_column, print_type};
use serde_json::json;

use crate::cli::ShowArgs;
use crate::exit::{Exit, Failure};
use crate::report::{DrawnColumn, DrawnTable, ShownRows, bytes, count, counted};
use crate::stdout::print_line;
use crate::table::{self, LOOK_BYTES};

/// Shows what was asked for.
///
/// # Errors
/// Files that are no table; columns and conditions that do not fit it.
pub fn run(args: &ShowArgs) -> Result<Exit, Failure> {
    args.stores.register()?;
    let options = args.read.options(args.schema_text.clone());
    let files = listed((&args.input, args.partial), &options);
    let files = files.map_err(|failure| types_for_names(args).unwrap_or(failure))?;
    let look = Look::new(files, options, Arc::new(FixedBudget::new(LOOK_BYTES))).map_err(source_failure)?;
    let text = match args {
        ShowArgs { schema: true, .. } => schema(&look, args.json),
        ShowArgs { stats: true, .. } => look.statistics().map(|found| statistics(&found, args)),
        _ => look.first_rows(args.rows as usize).map(|found| rows(&found, args)),
    }
    .map_err(source_failure)?;
    print_line(text);
    Ok(Exit::Success)
}

/// Elsewhere `--schema` takes the types of columns: where they are given for a name of a file, what says them here.
fn types_for_names(args: &ShowArgs) -> Option<Failure> {
    let is_types =
        |path: &&PathBuf| !path.exists() && parse_schema(&path.to_string_lossy()).is_ok_and(|of| !of.is_empty());
    let types = args.input.iter().find(is_types).filter(|_| args.schema)?.display().to_string();
    let what =
        "is no file: of show, --schema takes no value and prints names and types; types of columns of text are said by";
    Some(Failure::text(Exit::Usage, format!("{types:?} {what} --schema-text {types:?}")))
}

/// The files that these names stand for, one at least.
pub(super) fn listed(inputs: (&[PathBuf], bool), reading: &ReadOptions) -> Result<Vec<ListedFile>, Failure> {
    table::listed(inputs, reading).map_err(super::generate::failure)
}

/// What a table that cannot be read means for the shell.
pub(super) fn source_failure(error: SourceError) -> Failure {
    use exobus_tables::TableError::{Expression, KeyNotSelected, NoColumn, NoComputation, NoOrder, SelectedTwice};
    let exit = match &error {
        SourceError::File(_) | SourceError::Memory { .. } => Exit::InputOutput,
        SourceError::Schema { .. }
        | SourceError::NoJson { .. }
        | SourceError::OtherFormat { .. }
        | SourceError::NotKnown { .. } => Exit::Usage,
        SourceError::Table {
            error:
                Expression(_)
                | NoColumn { .. }
                | NoComputation { .. }
                | NoOrder { .. }
                | SelectedTwice { .. }
                | KeyNotSelected { .. },
            ..
        } => Exit::Usage,
        _ => Exit::DataWrong,
    };
    match error {
        SourceError::File(error) => super::generate::failure(error),
        // The file is only where it was noticed.
        SourceError::Table { error, .. } if exit == Exit::Usage => Failure::new(exit, error),
        error => Failure::new(exit, error),
    }
}

fn schema(look: &Look, as_json: bool) -> Result<String, SourceError> {
    let schema = look.schema()?;
    let fields = schema.fields().iter();
    Ok(match as_json {
        true => {
            let columns =
                fields.map(|field| column_json(field.name(), print_type(field.data_type()), field.is_nullable()));
            json!({ "columns": columns.collect::<Vec<_>>() }).to_string()
        }
        false => fields.map(|field| print_column(field.name(), field.data_type())).collect::<Vec<_>>().join(",\n"),
    })
}

fn column_json(name: &str, kind: String, nullable: bool) -> serde_json::Value {
    json!({ "name": name, "type": kind, "nullable": nullable })
}

fn rows(found: &FirstRows, args: &ShowArgs) -> String {
    let rows = ShownRows { schema: &found.schema, batches: &found.batches };
    if args.json {
        let (columns, rows) = (rows.columns_json(), rows.rows_json());
        return json!({ "columns": columns, "rows": rows, "is_all": found.is_all }).to_string();
    }
    let said = match (rows.count(), found.is_all) {
        (1, true) => "1 row, which is all".to_owned(),
        (shown, true) => format!("{}, which are all", counted(shown, "row")),
        (shown, false) => format!("the first {}", counted(shown, "row")),
    };
    format!("{}\n{said}", rows.drawn().drawn(args.width.map(usize::from)))
}

fn statistics(found: &TableStatistics, args: &ShowArgs) -> String {
    let columns = || found.schema.fields().iter().zip(&found.columns);
    if args.json {
        let columns = columns().map(|(field, said)| {
            let mut column = column_json(field.name(), print_type(field.data_type()), field.is_nullable());
            let (least, greatest) = said.bounds.clone().unzip();
            column["nulls"] = said.nulls.into();
            column["min"] = least.map_or(serde_json::Value::Null, Value::into_json);
            column["max"] = greatest.map_or(serde_json::Value::Null, Value::into_json);
            column
        });
        let columns: Vec<_> = columns.collect();
        let (files, splits, rows) = (found.files, found.splits, found.rows);
        return json!({ "files": files, "bytes": found.bytes, "splits": splits, "rows": rows, "columns": columns })
            .to_string();
    }
    let heads = [("column", false), ("type", false), ("nulls", true), ("min", false), ("max", false)];
    let heads = heads.map(|(name, is_right)| DrawnColumn { name: name.to_owned(), kind: String::new(), is_right });
    let unknown = || Value::Exact("?".to_owned());
    let rows: Vec<Vec<Value>> = columns()
        .map(|(field, said)| {
            let (least, greatest) = said.bounds.clone().unwrap_or((unknown(), unknown()));
            let nulls = said.nulls.map_or_else(unknown, |nulls| Value::Number(count(nulls)));
            let (name, kind) = (Value::Exact(field.name().clone()), Value::Exact(print_type(field.data_type())));
            vec![name, kind, nulls, least, greatest]
        })
        .collect();
    let is_unknown = |said: &ColumnStatistics| said.nulls.is_none() || said.bounds.is_none();
    let note = match found.columns.iter().any(is_unknown) {
        true => "\n? where not all files say it: Parquet mostly does, text and Arrow do not",
        false => "",
    };
    let said = found.rows.map_or_else(|| "rows: the files do not say".to_owned(), |rows| counted(rows, "row"));
    let drawn = DrawnTable::new(heads.into(), rows).drawn(args.width.map(usize::from));
    let splits = match found.splits {
        1 => "1 row group or piece".to_owned(),
        splits => format!("{} row groups or pieces", count(splits)),
    };
    let (files, bytes) = (counted(found.files, "file"), bytes(found.bytes));
    format!("{drawn}\n{said}, {files}, {bytes}, {splits}{note}")
}
