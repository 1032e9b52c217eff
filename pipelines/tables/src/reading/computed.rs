//! Columns that are computed of those of a table, row by row, by whoever knows a language of expressions: the seam between such a language and all that reads rows.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use exobus_actors::inventory;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::Reading;
use crate::TableError;
use crate::block::Layout;
use crate::semantics::conformed;
use crate::sources::{MemoryBudget, SourceError};

/// What is computed of the columns of a table: rows have these columns instead of those of the table.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Computed {
    /// The name of the [`Language`] that knows how.
    pub language: String,
    /// What that is told.
    pub program: ByteBuf,
    /// The columns of the table that are read for it; `None`: the language says which, when it is known what there are.
    pub reads: Option<Vec<String>>,
    /// Whether there are rows that it leaves out.
    pub leaves_out: bool,
    /// Of columns whose numbers are those that a column of the table has: their names, and its name. What files say of the one is so of the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchanged: Vec<(String, String)>,
    /// Small tables in which it looks rows up.
    #[serde(default, skip_serializing_if = "Beside::is_nothing")]
    pub beside: Beside,
}

/// Small tables that are at hand while rows of another one are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    /// A folder of files for each of them.
    #[serde(with = "exobus_actors::paths")]
    pub folders: Vec<PathBuf>,
    /// Bytes that all of them take in memory, at most.
    pub bytes: u64,
}

impl Beside {
    fn is_nothing(&self) -> bool {
        self.folders.is_empty()
    }
}

/// A language in which is said what is computed. One that is submitted to the [`inventory`] is known to all tasks of the process.
pub struct Language {
    /// Its name.
    pub name: &'static str,
    /// Makes what is said in it ready for rows of such columns, those that are [read](Computed::reads).
    pub bind: fn(program: &[u8], columns: &SchemaRef) -> Result<DynComputation, String>,
    /// Which columns are read of a table that has all of these.
    pub reads: fn(program: &[u8], table: &SchemaRef) -> Result<Vec<String>, String>,
}

/// What was made ready.
pub type DynComputation = Arc<dyn Computation>;

inventory::collect!(Language);

/// What computes columns.
pub trait Computation: Send + Sync {
    /// The columns that it gives.
    fn schema(&self) -> &SchemaRef;

    /// Makes small tables ready in which rows are looked up. Called before the first rows, and again before others: it is done once.
    ///
    /// # Errors
    /// Those of reading them; more memory is needed than there is.
    fn prepare(&self, beside: &Beside, budget: &Arc<dyn MemoryBudget>) -> Result<(), SourceError>;

    /// Rows as the others see them, with what is looked up for them, of rows of the columns that are read.
    ///
    /// # Errors
    /// A value by which nothing can be looked up.
    fn seen(&self, rows: &RecordBatch) -> Result<RecordBatch, String>;

    /// Which of these rows stay, which were [seen](Self::seen); `None`: all.
    ///
    /// # Errors
    /// A value of which it cannot be said.
    fn kept(&self, rows: &RecordBatch) -> Result<Option<BooleanArray>, String>;

    /// What is computed of rows that stay, of those that were [seen](Self::seen).
    ///
    /// # Errors
    /// A value of which a column cannot be computed, such as one that is divided by zero.
    fn compute(&self, rows: &RecordBatch) -> Result<RecordBatch, String>;
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { language, program, reads, leaves_out, unchanged, beside } = self;
        let program = String::from_utf8_lossy(program);
        f.debug_struct("Computed")
            .field("language", language)
            .field("program", &program)
            .field("reads", reads)
            .field("leaves_out", leaves_out)
            .field("unchanged", unchanged)
            .field("beside", beside)
            .finish()
    }
}

/// The language of lists of columns and expressions, as `SELECT` has them: a text.
const SELECT_LANGUAGE: &str = "sql";

impl Computed {
    /// What is selected by texts some of which are no names, as in `price * 2 as double`; `None`: all are names. Names of columns may have all characters but those of calls and operators.
    pub fn selected(texts: &[&str]) -> Option<Self> {
        let is_expression =
            |text: &&&str| text.contains(['(', '*', '/', '+', '|', '\'']) || text.to_lowercase().contains(" as ");
        texts.iter().find(is_expression)?;
        // What was taken apart by commas may be of one call.
        let program = ByteBuf::from(texts.join(",").into_bytes());
        let (language, beside) = (SELECT_LANGUAGE.to_owned(), Beside::default());
        Some(Self { language, program, reads: None, leaves_out: false, unchanged: Vec::new(), beside })
    }

    /// The column of the table whose numbers a column has.
    pub(crate) fn unchanged(&self, column: &str) -> Option<&str> {
        self.unchanged.iter().find(|(name, _)| name == column).map(|(_, of)| of.as_str())
    }

    /// The columns that are read for it, of a table that has all of these.
    pub(super) fn read(&self, table: &Schema) -> Result<SchemaRef, TableError> {
        let said = match &self.reads {
            Some(reads) => reads.clone(),
            None => {
                let reads = (self.language()?.reads)(&self.program, &Arc::new(table.clone()));
                reads.map_err(|what| TableError::NoComputation { what })?
            }
        };
        let columns = said.iter().map(|name| table.index_of(name)).collect::<Result<Vec<_>, _>>();
        Ok(Arc::new(table.project(&columns?)?))
    }

    fn language(&self) -> Result<&'static Language, TableError> {
        let language = inventory::iter::<Language>.into_iter().find(|language| language.name == self.language);
        language.ok_or_else(|| {
            let what =
                format!("this program was built without {}: build it with the feature of that name", self.language);
            TableError::NoComputation { what }
        })
    }

    /// Makes it ready for rows of these columns.
    fn bind(&self, columns: &SchemaRef) -> Result<DynComputation, TableError> {
        (self.language()?.bind)(&self.program, columns).map_err(|what| TableError::NoComputation { what })
    }

    /// The columns that it gives of a table that has all of these.
    pub(super) fn schema(&self, table: &Schema) -> Result<SchemaRef, TableError> {
        Ok(self.bind(&self.read(table)?)?.schema().clone())
    }
}

/// A computation, and the columns of the table that it reads.
pub(super) struct Computing {
    pub(super) columns: SchemaRef,
    computation: DynComputation,
    beside: Beside,
}

impl Computing {
    /// Of a table of which all columns are at hand, and nothing beside.
    pub(super) fn over(computed: &Computed, table: &Schema) -> Result<Self, TableError> {
        let columns = computed.read(table)?;
        let (computation, beside) = (computed.bind(&columns)?, Beside::default());
        Ok(Self { columns, computation, beside })
    }

    pub(super) fn of(reading: &Reading) -> Result<Option<Self>, TableError> {
        let (Some(computed), Some(columns)) = (&reading.options.computed, &reading.computed_columns) else {
            return Ok(None);
        };
        let columns = Layout::decode(columns)?.schema().clone();
        let computation = computed.bind(&columns)?;
        Ok(Some(Self { columns, computation, beside: computed.beside.clone() }))
    }

    /// Makes it ready for rows.
    pub(super) fn prepare(&self, budget: &Arc<dyn MemoryBudget>) -> Result<(), SourceError> {
        self.computation.prepare(&self.beside, budget)
    }

    /// Rows as it sees them, of a batch that has their columns as far as its file has them.
    pub(super) fn seen(&self, batch: &RecordBatch) -> Result<RecordBatch, TableError> {
        let read = conformed(batch, &self.columns)?;
        self.computation.seen(&read).map_err(|what| TableError::NotComputed { what })
    }

    /// Which of these rows stay; `None`: all.
    pub(super) fn kept(&self, rows: &RecordBatch) -> Result<Option<BooleanArray>, TableError> {
        self.computation.kept(rows).map_err(|what| TableError::NotComputed { what })
    }

    /// What is computed of rows that stay.
    pub(super) fn compute(&self, rows: &RecordBatch) -> Result<RecordBatch, TableError> {
        self.computation.compute(rows).map_err(|what| TableError::NotComputed { what })
    }

    /// What it gives of no row.
    pub(super) fn none(&self) -> RecordBatch {
        RecordBatch::new_empty(self.computation.schema().clone())
    }
}
