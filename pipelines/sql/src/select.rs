//! Lists of columns and expressions, as `SELECT` has them and `--select` takes them: `id, price * 1.2 AS gross`. They are planned where it is known which columns there are.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use exobus_actors::inventory;
use exobus_tables::reading::{Computed, DynComputation, Language};

use crate::logical::logical;
use crate::lower::selected;
use crate::rows::{Planned, bind as bind_rows};
use crate::{Catalog, SqlError, text};

inventory::submit! {
    Language { name: "sql", bind, reads }
}

/// A list over a table of these columns, planned.
fn planned(list: &[u8], table: &SchemaRef) -> Result<Computed, SqlError> {
    let list = std::str::from_utf8(list).map_err(|error| SqlError::new(format!("what is selected: {error}")))?;
    let mut catalog = Catalog::default();
    catalog.add("rows", Arc::clone(table));
    // On a line of its own, so that places in it are places in the list.
    let parsed = text::parse(&format!("SELECT\n{list}\nFROM rows"));
    let in_list = |error: SqlError| SqlError::new(format!("--select {list:?}: {}", error.in_line(2)));
    let parsed = parsed.map_err(in_list)?;
    let (written, words) = (parsed.written.clone(), parsed.words.clone());
    // What depends on when it is asked is refused: it has no time.
    let columns = text::with_room(|| selected(&logical(parsed, &catalog, None)?, &catalog, &written));
    let columns = columns.map_err(|error| in_list(error.placed_by(&words)))?;
    let spare = table.fields().first().map(|field| field.name().clone());
    Ok(Planned { columns: &columns, spare: spare.as_deref(), ..Planned::default() }.computed()?)
}

fn reads(list: &[u8], table: &SchemaRef) -> Result<Vec<String>, String> {
    let computed = planned(list, table).map_err(|error| error.to_string())?;
    Ok(computed.reads.unwrap_or_default())
}

fn bind(list: &[u8], columns: &SchemaRef) -> Result<DynComputation, String> {
    bind_rows(&planned(list, columns).map_err(|error| error.to_string())?.program, columns)
}
