//! Rows of small tables that are looked up for each row: a join of which one side is at hand, and has one row of each key at most.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow_array::{Array as _, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_expr::Expr;
use datafusion_physical_expr::PhysicalExpr;
use exobus_tables::TableError;
use exobus_tables::block::Layout;
use exobus_tables::jobs::join::Lookup;
use exobus_tables::reading::Computed;
use exobus_tables::sources::{BATCH_ROWS_MAX, MemoryBudget, MemoryDenied, SourceError};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::constants::Constants;
use super::scalar::{NoScalar, Scalar};
use super::{Program, as_types, evaluated, viewed};

/// A small table in which rows are looked up, as it is planned.
#[derive(Clone, Debug)]
pub struct LookUp {
    /// The step that writes it.
    pub step: usize,
    /// The columns that it has.
    pub schema: SchemaRef,
    /// Those that are its key, and what has to be equal to them.
    pub key: Vec<(String, Expr)>,
    /// What the column is called that says whether there is such a row.
    pub found: String,
    /// What its columns are called beside those of the rows, and what it calls them.
    pub columns: Vec<(String, String)>,
}

impl LookUp {
    /// The columns that it adds to rows.
    pub fn fields(&self) -> Vec<Field> {
        fields(&self.found, &self.columns, &self.schema)
    }
}

/// The same as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LookedUp {
    /// The layout of its columns.
    layout: ByteBuf,
    key: Vec<(String, Scalar)>,
    found: String,
    columns: Vec<(String, String)>,
}

fn fields(found: &str, columns: &[(String, String)], schema: &Schema) -> Vec<Field> {
    let of_column = |(name, own): &(String, String)| {
        let field = schema.field_with_name(own).ok()?;
        Some(field.clone().with_name(name).with_nullable(true))
    };
    let found = Field::new(found, DataType::Boolean, false);
    std::iter::once(found).chain(columns.iter().filter_map(of_column)).collect()
}

impl LookedUp {
    pub(super) fn of(table: &LookUp, names: &mut Vec<String>, constants: &mut Constants) -> Result<Self, NoScalar> {
        let layout = Layout::new(&table.schema).map_err(|error| NoScalar::NoOperator { what: error.to_string() })?;
        let key = table.key.iter().map(|(name, one)| Ok((name.clone(), Scalar::of(one, names, constants)?)));
        Ok(Self {
            layout: ByteBuf::from(layout.encode()),
            key: key.collect::<Result<_, NoScalar>>()?,
            found: table.found.clone(),
            columns: table.columns.clone(),
        })
    }

    /// The columns that it adds to rows.
    pub(super) fn fields(&self) -> Result<Vec<Field>, String> {
        let layout = Layout::decode(&self.layout).map_err(|error| error.to_string())?;
        Ok(fields(&self.found, &self.columns, &viewed(layout.schema())))
    }

    pub(super) fn key(&self) -> impl Iterator<Item = &Scalar> {
        self.key.iter().map(|(_, one)| one)
    }
}

/// The same, ready for rows.
pub(super) struct BoundLookUp {
    schema: SchemaRef,
    /// Names of the columns that are the key.
    key: Vec<String>,
    /// What has to be equal to them.
    values: Vec<Arc<dyn PhysicalExpr>>,
    /// Columns of the small table that are given.
    columns: Vec<String>,
    /// The columns that rows have when it has added its own.
    seen: SchemaRef,
    table: OnceLock<Lookup>,
}

impl BoundLookUp {
    /// `before`: the columns that rows have without its own; `values`: of the key.
    pub(super) fn new(of: &LookedUp, before: &Schema, values: Vec<Arc<dyn PhysicalExpr>>) -> Result<Self, String> {
        let layout = Layout::decode(&of.layout).map_err(|error| error.to_string())?;
        let fields = before.fields().iter().map(|field| field.as_ref().clone()).chain(of.fields()?);
        Ok(Self {
            schema: Arc::new(viewed(layout.schema())),
            key: of.key.iter().map(|(name, _)| name.clone()).collect(),
            values,
            columns: of.columns.iter().map(|(_, own)| own.clone()).collect(),
            seen: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            table: OnceLock::new(),
        })
    }

    /// Reads the table, unless that was done.
    pub(super) fn prepare(&self, folder: &PathBuf, budget: &Arc<dyn MemoryBudget>) -> Result<(), SourceError> {
        if self.table.get().is_none() {
            let table = read(folder, &self.schema, &self.key, budget)?;
            // Another thread may have been quicker: it has read the same.
            let _ = self.table.set(table);
        }
        Ok(())
    }

    /// Rows with what is looked up for them.
    pub(super) fn seen(&self, rows: &RecordBatch) -> Result<RecordBatch, String> {
        let table = self.table.get().ok_or("a table in which rows are looked up was not read")?;
        let key = |(name, value): (&String, &Arc<dyn PhysicalExpr>)| {
            let (value, field) = (evaluated(value, rows)?, self.schema.field_with_name(name));
            cast(&value, field.map_err(|error| error.to_string())?.data_type()).map_err(|error| error.to_string())
        };
        let keys = self.key.iter().zip(&self.values).map(key).collect::<Result<Vec<ArrayRef>, String>>()?;
        let of_table = |error: TableError| error.to_string();
        let places = table.places(keys).map_err(of_table)?;
        let found = BooleanArray::from_iter((0..places.len()).map(|row| Some(places.is_valid(row))));
        let mut columns = rows.columns().to_vec();
        columns.push(Arc::new(found));
        for column in &self.columns {
            columns.push(table.column(column, &places).map_err(of_table)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(self.seen.clone(), columns, &options).map_err(|error| error.to_string())
    }
}

/// The rows that a step has written for look-ups, which have these columns.
///
/// # Errors
/// Those of [`Lookup::read`].
fn read(
    folder: &PathBuf,
    schema: &SchemaRef,
    key: &[String],
    budget: &Arc<dyn MemoryBudget>,
) -> Result<Lookup, SourceError> {
    let as_seen = |rows: &RecordBatch| {
        let names = schema.fields().iter().map(|field| rows.schema_ref().index_of(field.name()));
        let rows = rows.project(&names.collect::<Result<Vec<_>, _>>()?)?;
        Ok::<_, TableError>(as_types(&rows, schema)?)
    };
    Lookup::read(folder, key, as_seen, budget)
}

/// What it takes to look rows up in small tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Measured {
    /// So many bytes of memory, while they are read and from then on.
    Bytes(u64),
    /// It is not possible, for people.
    Not(String),
}

/// Reads the tables in which a computation looks rows up, once their folders are known, in memory of so many bytes.
///
/// # Errors
/// Those of reading.
pub(crate) fn measure(
    computed: &Computed,
    most: u64,
    budget: &Arc<dyn MemoryBudget>,
) -> Result<Result<Measured, SourceError>, String> {
    let program = Program::decode(&computed.program)?;
    let limited = Arc::new(Limited { budget: budget.clone(), most, taken: Mutex::default() });
    let within: Arc<dyn MemoryBudget> = limited.clone();
    let (mut tables, mut row_bytes) = (Vec::new(), 0);
    for (table, folder) in program.looked_up.iter().zip(&computed.beside.folders) {
        let layout = Layout::decode(&table.layout).map_err(|error| error.to_string())?;
        let key: Vec<String> = table.key.iter().map(|(name, _)| name.clone()).collect();
        match read(folder, &Arc::new(viewed(layout.schema())), &key, &within) {
            Ok(read) if read.is_unique() => {
                let given: Vec<String> = table.columns.iter().map(|(_, own)| own.clone()).collect();
                row_bytes += read.largest_row(&given).map_err(|error| error.to_string())?;
                tables.push(read);
            }
            Ok(_) => {
                let key = key.join(", ");
                return Ok(Ok(Measured::Not(format!(
                    "a table has several rows of one key ({key}) for each row of another"
                ))));
            }
            Err(SourceError::Memory { .. }) if limited.was_denied() => {
                let most = most >> 20;
                return Ok(Ok(Measured::Not(format!("tables that are joined take more than {most} MiB of memory"))));
            }
            Err(error) => return Ok(Err(error)),
        }
    }
    // Each of the rows that are read at a time may have the largest of those that are looked up.
    let of_batch = row_bytes * BATCH_ROWS_MAX as u64;
    Ok(Ok(match of_batch > most {
        true => Measured::Not(format!("rows of tables that are joined have up to {row_bytes} bytes")),
        false => Measured::Bytes(limited.peak() + of_batch),
    }))
}

/// A part of a budget.
struct Limited {
    budget: Arc<dyn MemoryBudget>,
    most: u64,
    taken: Mutex<Taken>,
}

/// What was taken of it.
#[derive(Default)]
struct Taken {
    now: u64,
    peak: u64,
    was_denied: bool,
}

impl Limited {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether more was asked for than the part has.
    fn was_denied(&self) -> bool {
        self.taken().was_denied
    }

    /// The most that was taken at a time.
    fn peak(&self) -> u64 {
        self.taken().peak
    }
}

impl MemoryBudget for Limited {
    fn take(&self, bytes: u64) -> Result<(), MemoryDenied> {
        let mut taken = self.taken();
        if taken.now.saturating_add(bytes) > self.most {
            taken.was_denied = true;
            return Err(MemoryDenied { wanted: bytes });
        }
        self.budget.take(bytes)?;
        taken.now += bytes;
        taken.peak = taken.peak.max(taken.now);
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.taken().now -= bytes;
        self.budget.give_back(bytes);
    }
}
