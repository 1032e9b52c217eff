//! What a function of the user makes of the rows of a table, batch by batch.
//!
//! The function is a task: it gets what it reads and writes as its parameter ([`Batches`]), and says what becomes of each batch. So it runs where functions of users do, with their limits, and
//! its columns are those that it gives for a batch without rows.

use std::path::PathBuf;

use arrow_array::RecordBatch;
use exobus_actors::futures::Futures;
use exobus_actors::program;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::{FunctionName, JobError, Resources, TaskFunction, TaskOptions};
use serde::{Deserialize, Serialize};

use super::TableJob;
use super::budget::TaskBudget;
use super::convert::{ConvertParams, Converted, Function, rewritten, write_file};
use super::mapping::Given;
use super::rewrite::{Rewrite, Rewritten};

/// What mapping the batches of a table is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapTable {
    /// Which table, and where what becomes of it goes. How much is in a file is counted in rows and bytes that are read for it.
    pub table: Rewrite,
    /// The function.
    pub function: FunctionName,
    /// What each of its tasks needs of a node.
    #[serde(default = "of_a_task", skip_serializing_if = "is_of_a_task")]
    pub resources: Resources,
}

/// What a task needs unless more is said.
fn of_a_task() -> Resources {
    TaskOptions::default().resources
}

fn is_of_a_task(resources: &Resources) -> bool {
    *resources == of_a_task()
}

impl MapTable {
    /// Writes what a function makes of these files, or files of these folders.
    pub fn new<F>(inputs: Vec<PathBuf>, output: PathBuf, function: F) -> Self
    where
        F: TaskFunction<Params = Batches, Value = MappedFile>,
    {
        Self { table: Rewrite::new(inputs, output), function: FunctionName::of(function), resources: of_a_task() }
    }
}

impl TableJob for MapTable {
    const NAME: &'static str = "table.map_batches";

    fn table(&self) -> &Rewrite {
        &self.table
    }

    fn run(self, futures: Futures) -> impl Future<Output = Result<Rewritten, JobError>> {
        map_batches(futures, self)
    }
}

/// The rows of one file, as the task gets them that is to write it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Batches(ConvertParams);

/// A file that was written, as the task returns it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MappedFile(Converted);

impl Batches {
    /// Calls `function` with a batch without rows, and then with all batches in their order, and writes what it returns: batches of the columns and types that it
    /// has given for the one without rows, with as many rows as it likes. All of these columns may have nulls, whatever is said of the one without rows.
    ///
    /// Batches have the types that the table has, whatever those are that the format has which is written. A batch has up to 65 536 rows; where it ends is not to be relied upon. What `function` itself allocates is not counted until it returns.
    ///
    /// # Errors
    /// Those of `function`, of reading and of writing; batches of other columns or types than the first one, names in another order aside.
    pub fn map(
        self,
        context: &mut TaskContext<'_>,
        mut function: impl FnMut(RecordBatch) -> Result<RecordBatch, TaskError>,
    ) -> Result<MappedFile, TaskError> {
        let budget = TaskBudget::new(context);
        let mut function = |batch: RecordBatch, given: Given<'_>| given(function(batch)?);
        write_file(context, self.0, &budget, Some(&mut function)).map(MappedFile)
    }
}

fn needs(params: &MapTable) -> Resources {
    params.resources.clone()
}

/// Writes what a function makes of a table.
///
/// # Errors
/// As of [`convert`](super::convert::convert()), and those of the function.
#[program(name = "table.map_batches", version = 3, give_back = super::give_back, paths = super::paths, needs = needs)]
pub async fn map_batches(futures: Futures, params: MapTable) -> Result<Rewritten, JobError> {
    let function = Function { name: params.function, resources: params.resources, args: Vec::new(), outside_bytes: 0 };
    rewritten(futures, MapTable::NAME, (params.table, None), Some(function)).await
}
