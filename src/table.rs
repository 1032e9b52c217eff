//! Tables as a library: what `exobus sort --key`, `shuffle`, `dedupe`, `group`, `join`, `repartition`, `convert` and `show` do, as calls.
//!
//! A [`Table`] is read by names, told which rows and columns are wanted, and written: as it is, or in another order. What is wrong is
//! said by the call that does the work.
//!
//! ```
//! use exobus::{Table, col};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let (events, output) = (folder.path().join("events"), folder.path().join("by-user"));
//! std::fs::create_dir(&events)?;
//! std::fs::write(events.join("1.csv"), "user,ts,price\nbo,1,5\nal,2,1\n")?;
//! std::fs::write(events.join("2.csv"), "user,ts,price\nal,3,9\nal,4,4\n")?;
//!
//! let written = Table::read(events.join("*.csv"))
//!     .filter(col("price").gt(3))
//!     .select(["user", "ts"])
//!     .sort_by(["user", "ts:desc"])
//!     .files(1)
//! #   .memory(128 << 20).executors(2)
//!     .write(&output)?;
//! assert_eq!((written.rows, written.files), (3, 1));
//! assert_eq!(std::fs::read_to_string(output.join("part-00000.csv"))?, "user,ts\nal,4\nal,3\nbo,1\n");
//! # Ok(())
//! # }
//! ```

mod error;
#[cfg(test)]
mod tests;
mod verbs;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exobus_actors::ids::JobId;
use exobus_actors::protocol::host::JobSpec;
use exobus_files::{
    FileError, FileStatus, Location, OutputFolder, check_output_folder, visit_files, visit_table_files,
};
use exobus_shuffle::Strategy;
use exobus_tables::arrow_schema::SchemaRef;
use exobus_tables::expression::Expression;
use exobus_tables::jobs::{FileSize, Rewrite, Rewritten, TableJob as _, WriteOptions};
use exobus_tables::look::{FirstRows, Look};
use exobus_tables::reading::ReadOptions;
use exobus_tables::sinks::{Compression, OutputFormat};
use exobus_tables::sources::json::JsonMixed;
use exobus_tables::sources::{FixedBudget, ListedFile};

pub use self::error::TableJobError;
pub use self::verbs::{
    Convert, Dedupe, Group, IntoAggregates, IntoKeyColumn, IntoPair, Join, MapBatches, Repartition, Shuffle, Sort, Verb,
};
use crate::commands::alone;
use crate::config::{MemoryBudget, NodeConfig, Overrides};
use crate::objects;

/// What looking at a table may take unless it is said, bytes: no more than some rows are in memory.
pub(crate) const LOOK_BYTES: u64 = 1 << 30;

/// Files of a table, which rows and columns of them are wanted, and what is done with them (`V`).
///
/// Settings have the defaults of the commands: memory is 60 % of what is available, there are two executors for each cpu, what does not
/// fit goes to `/var/tmp`. Configuration files and the environment are not looked at.
#[derive(Clone, Debug)]
pub struct Table<V = Convert> {
    inputs: Vec<PathBuf>,
    reading: ReadOptions,
    writing: WriteOptions,
    strategy: Option<Strategy>,
    partial: bool,
    process: Overrides,
    verb: V,
}

/// Names of files: one, or several.
pub trait Inputs {
    /// They, in their order.
    fn paths(self) -> Vec<PathBuf>;
}

macro_rules! one_input {
    ($($name:ty),*) => {$(
        impl Inputs for $name {
            fn paths(self) -> Vec<PathBuf> {
                vec![self.into()]
            }
        }
    )*};
}
one_input!(&str, String, &String, &Path, PathBuf, &PathBuf);

impl<P: Into<PathBuf>, const N: usize> Inputs for [P; N] {
    fn paths(self) -> Vec<PathBuf> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<P: Into<PathBuf>> Inputs for Vec<P> {
    fn paths(self) -> Vec<PathBuf> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<P: AsRef<Path>> Inputs for &[P] {
    fn paths(self) -> Vec<PathBuf> {
        self.iter().map(|path| path.as_ref().to_owned()).collect()
    }
}

impl Table {
    /// The table of these files: a file, a folder, a pattern (`events/*.parquet`, `events/**/2024-*.csv`), or several of them in the order
    /// of their rows.
    pub fn read(inputs: impl Inputs) -> Self {
        Self {
            inputs: inputs.paths(),
            reading: ReadOptions::default(),
            writing: WriteOptions::default(),
            strategy: None,
            partial: false,
            process: Overrides::default(),
            verb: Convert,
        }
    }

    /// The first rows, as many at most, in memory that [`memory`](Self::memory) limits, 1 GiB unless it is said. Nothing is written, and no
    /// more files are opened than have these rows; the schema is that of these.
    ///
    /// ```
    /// use exobus::{Table, tables::look::Value};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let file = folder.path().join("cities.csv");
    /// std::fs::write(&file, "city,people\noslo,717710\nrome,2748109\nlima,10092000\n")?;
    /// let found = Table::read(&file).first_rows(2)?;
    /// let people = found.batches[0].column_by_name("people").unwrap();
    /// assert_eq!(Value::of(people, 1).to_string(), "2748109");
    /// assert!(!found.is_all);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TableJobError::File`], [`TableJobError::Table`].
    pub fn first_rows(&self, count: usize) -> Result<FirstRows, TableJobError> {
        Ok(self.look()?.first_rows(count)?)
    }

    /// Names and types of the columns of all files as one table, of those that are selected.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let file = folder.path().join("cities.csv");
    /// std::fs::write(&file, "city,people\noslo,717710\n")?;
    /// let schema = exobus::Table::read(&file).schema_of()?;
    /// let columns: Vec<_> = schema.fields().iter().map(|field| (field.name().as_str(), field.data_type().to_string())).collect();
    /// assert_eq!(columns, [("city", "Utf8".to_owned()), ("people", "Int64".to_owned())]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TableJobError::File`], [`TableJobError::Table`].
    pub fn schema_of(&self) -> Result<SchemaRef, TableJobError> {
        Ok(self.look()?.schema()?)
    }

    fn look(&self) -> Result<Look, TableJobError> {
        let memory = match self.process.memory {
            Some(MemoryBudget::Bytes(bytes)) => bytes,
            _ => LOOK_BYTES,
        };
        let files = listed((&self.inputs, self.partial), &self.reading)?;
        Ok(Look::new(files, self.reading.clone(), Arc::new(FixedBudget::new(memory)))?)
    }
}

impl<V> Table<V> {
    /// The format of all files: parquet, csv, tsv, jsonl, arrow or records. Default: by the names of files.
    #[must_use]
    pub fn format(mut self, name: impl Into<String>) -> Self {
        self.reading.format = Some(name.into());
        self
    }

    /// Types of columns of text: `id int64, price decimal(10,2)`. Those of others are inferred. Where no file is text, it is refused.
    #[must_use]
    pub fn schema(mut self, columns: impl Into<String>) -> Self {
        self.reading.schema = Some(columns.into());
        self
    }

    /// What is made of values of one column of JSON lines that have no one type. Default: they are refused. Where no file is JSON lines, it is refused.
    #[must_use]
    pub fn json_mixed(mut self, mixed: JsonMixed) -> Self {
        self.reading.json_mixed = Some(mixed);
        self
    }

    /// The columns that are read, in the order that they are to have; with the feature `sql` also expressions, as in `price * 1.2 AS gross`. Default: all.
    #[must_use]
    pub fn select<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        let columns: Vec<String> = columns.into_iter().map(Into::into).collect();
        self.reading = self.reading.selected_by(&columns);
        self
    }

    /// What rows that are read have to meet; it may look at columns that are not selected. Of several filters all are met.
    #[must_use]
    pub fn filter(mut self, condition: Expression) -> Self {
        self.reading.filter = Some(match self.reading.filter.take() {
            None => condition,
            Some(other) => other.and(condition),
        });
        self
    }

    /// Whether folders below those that are named, or behind what is fixed of a pattern, are columns whose names say so, as Hive has them
    /// (`day=2024-01-31/city=oslo`). Default: they are.
    #[must_use]
    pub fn hive(mut self, are_columns: bool) -> Self {
        self.reading.hive = Some(are_columns);
        self
    }

    /// Reads folders, too, that a job has claimed and not finished: as far as they are there.
    #[must_use]
    pub fn partial(mut self) -> Self {
        self.partial = true;
        self
    }

    /// The format of the files that are written. Default: that of the first file that is read.
    #[must_use]
    pub fn output_format(mut self, format: OutputFormat) -> Self {
        self.writing.format = Some(format);
        self
    }

    /// How files are compressed: the pages of Parquet one by one, text, by Zstandard or gzip, as a whole. Default: Snappy for Parquet, not
    /// at all for others. What the format cannot be is refused before anything is written.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.writing.compression = Some(compression);
        self
    }

    /// Rows of a row group of Parquet, at most, 1 at least; one ends at 64 MiB of values, too. Default: 122 880. Files of
    /// another format have none: it is refused before anything is written.
    #[must_use]
    pub fn row_group_rows(mut self, rows: u64) -> Self {
        self.writing.group_rows = Some(rows.max(1));
        self
    }

    /// How many files are written, 1 at least.
    #[must_use]
    pub fn files(mut self, files: u32) -> Self {
        self.writing.file_size = FileSize::Count(files.max(1));
        self
    }

    /// Reads each file back when it is written, before it has its name, and compares its rows with those that it was given.
    #[must_use]
    pub fn verify(mut self) -> Self {
        self.writing.verify = true;
        self
    }

    /// Bytes of the values of a file, about. Default: 256 MiB.
    #[must_use]
    pub fn file_bytes(mut self, bytes: u64) -> Self {
        self.writing.file_size = FileSize::Bytes(bytes);
        self
    }

    /// How rows go from task to task. Default: what is estimated to be the fastest. The files are the same.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// Memory of the job, bytes, 64 MiB at least: beside what the rest of this process has.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.process.memory = Some(MemoryBudget::Bytes(bytes));
        self
    }

    /// How many tasks run at a time.
    #[must_use]
    pub fn executors(mut self, executors: u32) -> Self {
        self.process.executors = Some(executors);
        self
    }

    /// A folder for what does not fit into memory; said again, one more.
    #[must_use]
    pub fn spill(mut self, folder: impl Into<PathBuf>) -> Self {
        self.process.spill_dirs.push(folder.into());
        self
    }

    /// The same table with another verb.
    fn with<W>(self, verb: W) -> Table<W> {
        let Self { inputs, reading, writing, strategy, partial, process, verb: _ } = self;
        Table { inputs, reading, writing, strategy, partial, process, verb }
    }
}

impl<V: Verb> Table<V> {
    /// Writes it to a folder, which is empty or not there yet, as a job in this process, and waits for its end: async code calls it on a
    /// thread that may wait. The folder is whole when `_exobus.json` stands in it; a job that fails leaves nothing there.
    ///
    /// # Errors
    /// Each variant of [`TableJobError`]. Errors of the table name the file, column, line or row group.
    pub fn write(self, output: impl Into<PathBuf>) -> Result<Rewritten, TableJobError> {
        let output = output.into();
        let config = NodeConfig::load_with(None, &self.process, std::iter::empty())
            .map_err(|error| TableJobError::Node { message: error.to_string() })?;
        objects::register_by_itself();
        // The job looks again; here it costs nothing, and the error is the plain one.
        listed((&self.inputs, self.partial), &self.reading)?;
        if let Some((inputs, reading)) = self.verb.other_table() {
            listed((inputs, self.partial), reading)?;
        }
        check_output_folder(&output)?;
        let params = self.job(&output)?;
        let spec = JobSpec::of(JobId::new(), V::PROGRAM, &params)?;
        let folder = OutputFolder::new(&output, spec.job)?;
        let ran = alone(&config.node, spec, async move |futures| params.run(futures).await);
        let written = ran.map_err(|failure| TableJobError::Node { message: failure.to_string() })?;
        written.map_err(|error| match folder.withdraw(None) {
            Ok(()) => TableJobError::Job(error),
            Err(withdraw) => TableJobError::Withdraw { error: Box::new(error), withdraw: Box::new(withdraw) },
        })
    }

    /// The parameters of the job that writes it to a folder: for a node of one's own, or a cluster, whose nodes see all files under the
    /// same paths. What is said of memory, executors and spilling is the node's there.
    ///
    /// ```
    /// use exobus::tables::jobs::sort::sort;
    /// use exobus::{JobId, Node, NodeOptions, Table};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let (file, output) = (folder.path().join("cities.csv"), folder.path().join("sorted"));
    /// std::fs::write(&file, "city,people\noslo,717710\nlima,10092000\n")?;
    /// let params = Table::read(&file).sort_by(["people:desc"]).job(&output)?;
    /// # let mut options = NodeOptions::alone(2, 96 << 20);
    /// # options.store.spill_dirs = vec![folder.path().join("spill")];
    /// let node = Node::start(options)?; // NodeOptions
    /// let job = node.run(JobId::new(), "sorted", None, async move |futures| sort(futures, params).await);
    /// let (written, _end) = tokio::runtime::Runtime::new()?.block_on(job);
    /// assert_eq!(written?.rows, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A [`Client`](crate::Client) of a cluster submits it with [`JobSpec::of`](crate::JobSpec::of) and the name [`Verb::PROGRAM`].
    ///
    /// # Errors
    /// [`TableJobError::Key`], [`TableJobError::NoKey`], [`TableJobError::Pair`], [`TableJobError::Aggregate`], [`TableJobError::NoTop`]; the working directory is gone.
    pub fn job(self, output: impl Into<PathBuf>) -> Result<V::Params, TableJobError> {
        let Self { inputs, reading, writing, strategy, partial, verb, .. } = self;
        let (inputs, output) = (all_absolute(inputs)?, absolute(output.into())?);
        verb.params(Rewrite { inputs, output, reading, writing, strategy, partial })
    }
}

/// A path seen from the folder that this process works in.
fn absolute(path: PathBuf) -> Result<PathBuf, FileError> {
    let absolute = Location::from(&path).absolute();
    absolute.map(|location| location.to_path_buf()).map_err(|error| FileError::io(path, "find", 0, error))
}

fn all_absolute(paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, FileError> {
    paths.into_iter().map(absolute).collect()
}

/// The files that these names stand for, one at least; those of folders that are to be columns, too.
pub(crate) fn listed(
    (inputs, partial): (&[PathBuf], bool),
    reading: &ReadOptions,
) -> Result<Vec<ListedFile>, FileError> {
    let mut files = Vec::new();
    let mut add = |location: &Location, status: FileStatus, below| -> Result<(), FileError> {
        files.push(ListedFile { location: location.clone(), status, below });
        Ok(())
    };
    match reading.reads_folders() {
        true => visit_table_files((inputs, partial), |_| Ok(()), add)?,
        false => visit_files((inputs, partial), |_| Ok(()), |location, status| add(location, status, 0))?,
    }
    match files.is_empty() {
        true => Err(FileError::NoFiles { path: PathBuf::new(), folder: None }),
        false => Ok(files),
    }
}
