//! What is done with the rows of a table.

use std::path::PathBuf;

use exobus_actors::task::{FunctionName, Resources, TaskFunction, TaskOptions};
use exobus_tables::aggregates::{Aggregate, AggregateError, parse_list};
use exobus_tables::expression::Expression;
use exobus_tables::jobs::convert::ConvertTable;
use exobus_tables::jobs::dedupe::{DedupeTable, Keep};
use exobus_tables::jobs::group::{GroupQuery, GroupTable, Top};
use exobus_tables::jobs::join::{Broadcast, JoinKind, JoinQuery, JoinTables, NoPair, Pair};
use exobus_tables::jobs::map_batches::{Batches, MapTable, MappedFile};
use exobus_tables::jobs::repartition::RepartitionTable;
use exobus_tables::jobs::shuffle::ShuffleTable;
use exobus_tables::jobs::sort::SortTable;
use exobus_tables::jobs::{FileSize, Folders, Rewrite, TableJob};
use exobus_tables::reading::ReadOptions;
use exobus_tables::semantics::{KeyColumn, NoKeyColumn};

use super::{Table, TableJobError, all_absolute};

mod sealed {
    pub trait Sealed {}
}

/// What a [`Table`] does with its rows.
pub trait Verb: sealed::Sealed + Sized {
    /// What the program of it is told.
    type Params: TableJob;
    /// The program that does it, as clients of a cluster name it.
    const PROGRAM: &'static str;

    #[doc(hidden)]
    fn params(self, table: Rewrite) -> Result<Self::Params, TableJobError>;

    /// Names of another table that it reads besides, and how that is read.
    #[doc(hidden)]
    fn other_table(&self) -> Option<(&[PathBuf], &ReadOptions)> {
        None
    }
}

/// Rows stay in their order.
#[derive(Clone, Copy, Debug)]
pub struct Convert;

/// Rows get the order of a key.
#[derive(Clone, Debug)]
pub struct Sort(Key);

/// Rows get a random order.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    seed: u64,
}

/// One row of each key stays.
#[derive(Clone, Debug)]
pub struct Dedupe {
    key: Key,
    keep: Keep,
    order_by: Key,
}

/// Groups of rows are said something of.
#[derive(Clone, Debug)]
pub struct Group {
    by: Vec<String>,
    aggregates: Result<Vec<Aggregate>, AggregateError>,
    having: Option<Expression>,
    /// How many groups stay.
    top: Option<u64>,
    order_by: Key,
    per: Vec<String>,
}

/// Rows are written beside those of another table that have the same key.
#[derive(Clone, Debug)]
pub struct Join {
    right: Vec<PathBuf>,
    right_reading: ReadOptions,
    on: Result<Vec<Pair>, NoPair>,
    kind: JoinKind,
    suffix: Option<String>,
    broadcast: Broadcast,
}

/// Rows go to so many files, those of a key together, or to folders.
#[derive(Clone, Debug)]
pub struct Repartition {
    by: Key,
    partition_by: Vec<String>,
    folders_max: u64,
}

/// Rows become what a function makes of them.
#[derive(Clone, Debug)]
pub struct MapBatches {
    function: FunctionName,
    resources: Resources,
}

/// Columns, or which of them is none.
type Key = Result<Vec<KeyColumn>, NoKeyColumn>;

/// A column of a key: a [`KeyColumn`], or its text as `--key` has it, `ts:desc:nulls-first`.
pub trait IntoKeyColumn {
    /// It.
    ///
    /// # Errors
    /// The text is none.
    fn into_key_column(self) -> Result<KeyColumn, NoKeyColumn>;
}

impl IntoKeyColumn for KeyColumn {
    fn into_key_column(self) -> Result<KeyColumn, NoKeyColumn> {
        Ok(self)
    }
}

macro_rules! key_text {
    ($($text:ty),*) => {$(
        impl IntoKeyColumn for $text {
            fn into_key_column(self) -> Result<KeyColumn, NoKeyColumn> {
                self.parse()
            }
        }
    )*};
}
key_text!(&str, String, &String);

fn key<K: IntoKeyColumn>(columns: impl IntoIterator<Item = K>) -> Key {
    columns.into_iter().map(IntoKeyColumn::into_key_column).collect()
}

/// A key that has a column.
fn some_column<C, E>(key: Result<Vec<C>, E>) -> Result<Vec<C>, TableJobError>
where
    TableJobError: From<E>,
{
    let key = key?;
    if key.is_empty() { Err(TableJobError::NoKey) } else { Ok(key) }
}

impl Table {
    /// Rows in the order of a key, of which the first column decides first; rows of one key stay in their order. What stands in the text
    /// of a column is that of `--key`: `ts:desc`, `name:nulls-first`, `address.city`.
    ///
    /// ```
    /// use exobus::Table;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let (file, output) = (folder.path().join("cities.csv"), folder.path().join("sorted"));
    /// std::fs::write(&file, "city,people\noslo,717710\nrome,2748109\nlima,10092000\n")?;
    /// let sorted = Table::read(&file).sort_by(["people:desc"]);
    /// # let sorted = sorted.memory(128 << 20).executors(2);
    /// sorted.write(&output)?;
    /// let text = std::fs::read_to_string(output.join("part-00000.csv"))?;
    /// assert_eq!(text, "city,people\nlima,10092000\nrome,2748109\noslo,717710\n");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sort_by<K: IntoKeyColumn>(self, columns: impl IntoIterator<Item = K>) -> Table<Sort> {
        self.with(Sort(key(columns)))
    }

    /// Rows in a random order, which follows from the seed and the input alone, as files whose lengths differ by one row at most: for
    /// training data and tests, not for secrets.
    ///
    /// ```
    /// use exobus::Table;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let (file, output) = (folder.path().join("numbers.csv"), folder.path().join("shards"));
    /// let numbers: String = (0..10).map(|number| format!("{number}\n")).collect();
    /// std::fs::write(&file, format!("number\n{numbers}"))?;
    /// let shuffled = Table::read(&file).shuffle(7).rows_per_file(4);
    /// # let shuffled = shuffled.memory(128 << 20).executors(2);
    /// let written = shuffled.write(&output)?;
    /// assert_eq!((written.rows, written.files), (10, 3));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shuffle(self, seed: u64) -> Table<Shuffle> {
        self.with(Shuffle { seed })
    }

    /// One row of each key, in the order of the key: the first unless [`keep`](Table::keep) says otherwise, in the order of
    /// [`order_by`](Table::order_by) and then of the input.
    ///
    /// ```
    /// use exobus::{Keep, Table};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let (file, output) = (folder.path().join("pages.csv"), folder.path().join("newest"));
    /// std::fs::write(&file, "url,ts\nb,5\na,3\na,9\na,4\n")?;
    /// let newest = Table::read(&file).dedupe(["url"]).order_by(["ts"]).keep(Keep::Last);
    /// # let newest = newest.memory(128 << 20).executors(2);
    /// let written = newest.write(&output)?;
    /// assert_eq!((written.rows_read, written.rows), (4, 2));
    /// assert_eq!(std::fs::read_to_string(output.join("part-00000.csv"))?, "url,ts\na,9\nb,5\n");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn dedupe<K: IntoKeyColumn>(self, columns: impl IntoIterator<Item = K>) -> Table<Dedupe> {
        self.with(Dedupe { key: key(columns), keep: Keep::default(), order_by: Ok(Vec::new()) })
    }

    /// Something of each group of rows that are alike in these columns, or paths to fields of structs: what
    /// [`agg`](Table::agg) says. Groups are in the order of their columns. Without columns (`group_by::<String>([])`) all rows are one group, also where there are none.
    ///
    /// ```
    /// use exobus::{Table, col};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let (file, output) = (folder.path().join("sales.csv"), folder.path().join("cities"));
    /// std::fs::write(&file, "city,price\nrome,3\noslo,4\nrome,8\nlima,1\n")?;
    /// let cities = Table::read(&file).group_by(["city"]).agg("count(*) as sales, sum(price) as total");
    /// let cities = cities.having(col("total").gt(1));
    /// # let cities = cities.memory(128 << 20).executors(2);
    /// let written = cities.write(&output)?;
    /// assert_eq!((written.rows_read, written.rows), (4, 2));
    /// let text = std::fs::read_to_string(output.join("part-00000.csv"))?;
    /// assert_eq!(text, "city,sales,total\noslo,1,4\nrome,2,11\n");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn group_by<S: Into<String>>(self, columns: impl IntoIterator<Item = S>) -> Table<Group> {
        let (by, aggregates, order_by) =
            (columns.into_iter().map(Into::into).collect(), Ok(Vec::new()), Ok(Vec::new()));
        self.with(Group { by, aggregates, having: None, top: None, order_by, per: Vec::new() })
    }

    /// Rows of this table, the left one, and of the right one that are the same in these columns, side by side: `id` where both tables have it, or `id=uid`. A null is
    /// like nothing, also not like null. Rows are in the order of the columns, unless a table is small and is [broadcast](Table::broadcast), those that are the same there in that of the left table and then of the right one. The columns are those of the left
    /// table and, behind them, the others of the right one; [`how`](Table::how) says which rows are written that match none.
    ///
    /// What is said of how the right table is read counts: its format, its types, which rows and columns. What is said of how it is written, and of the process that does it, does not.
    ///
    /// ```
    /// use exobus::{JoinKind, Table};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let (cities, prices) = (folder.path().join("cities.csv"), folder.path().join("prices.csv"));
    /// # let (output, all) = (folder.path().join("joined"), folder.path().join("all"));
    /// std::fs::write(&cities, "id,city\n2,rome\n1,oslo\n")?;
    /// std::fs::write(&prices, "uid,price\n1,5\n1,7\n3,9\n")?;
    /// let joined = Table::read(&cities).join(Table::read(&prices), ["id=uid"]);
    /// # let joined = joined.memory(128 << 20).executors(2);
    /// let written = joined.clone().write(&output)?;
    /// assert_eq!((written.rows_read, written.rows), (5, 2));
    /// let text = std::fs::read_to_string(output.join("part-00000.csv"))?;
    /// assert_eq!(text, "id,city,price\n1,oslo,5\n1,oslo,7\n");
    ///
    /// joined.how(JoinKind::Full).write(&all)?;
    /// let text = std::fs::read_to_string(all.join("part-00000.csv"))?;
    /// assert_eq!(text, "id,city,price\n1,oslo,5\n1,oslo,7\n2,rome,\n3,,9\n");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn join<P: IntoPair>(mut self, right: Table, on: impl IntoIterator<Item = P>) -> Table<Join> {
        let Table { inputs: right, reading: right_reading, partial, .. } = right;
        self.partial |= partial;
        let on = on.into_iter().map(IntoPair::into_pair).collect();
        let (kind, broadcast) = (JoinKind::default(), Broadcast::default());
        self.with(Join { right, right_reading, on, kind, suffix: None, broadcast })
    }

    /// The rows in so many files: in their order and of even length, unless [`by`](Table::by) puts rows of a key together, or
    /// [`partition_by`](Table::partition_by) has them in folders. With either, [`file_bytes`](Table::file_bytes) may say instead how
    /// large files are.
    ///
    /// ```
    /// use exobus::Table;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let (file, output) = (folder.path().join("sales.csv"), folder.path().join("by-city"));
    /// std::fs::write(&file, "city,price\nrome,3\noslo,4\nrome,8\n")?;
    /// let by_city = Table::read(&file).repartition(1).partition_by(["city"]);
    /// # let by_city = by_city.memory(128 << 20).executors(2);
    /// assert_eq!(by_city.write(&output)?.files, 2);
    /// assert_eq!(std::fs::read_to_string(output.join("city=rome/part-00000.csv"))?, "price\n3\n8\n");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn repartition(self, files: u32) -> Table<Repartition> {
        let verb = Repartition { by: Ok(Vec::new()), partition_by: Vec::new(), folders_max: Folders::MAX };
        self.with(verb).files(files)
    }

    /// What a function of the program's own makes of the rows, batch by batch and in their order. The function is a task, so nodes of a cluster
    /// run it whose binary has it; it says `deterministic` where it gives the same rows each time. Its columns are those that it gives
    /// for a batch without rows. Files end as without a verb, by the rows or bytes that are read.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use exobus::tables::arrow_array::{Int64Array, RecordBatch, cast::AsArray, types::Int64Type};
    /// use exobus::{Batches, MappedFile, Table, TaskContext, TaskError, task};
    ///
    /// #[task(name = "doubled", deterministic = true)]
    /// fn doubled(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    ///     batches.map(context, |batch| {
    ///         let numbers = batch.column(0).as_primitive::<Int64Type>();
    ///         let twice = Int64Array::from_iter(numbers.iter().map(|number| number.map(|number| 2 * number)));
    ///         RecordBatch::try_from_iter([("twice", Arc::new(twice) as _)]).map_err(TaskError::data)
    ///     })
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let (file, output) = (folder.path().join("numbers.csv"), folder.path().join("doubled"));
    /// std::fs::write(&file, "number\n1\n2\n21\n")?;
    /// let table = Table::read(&file).filter(exobus::col("number").gt(1)).map_batches(doubled);
    /// # let table = table.memory(128 << 20).executors(2);
    /// let written = table.write(&output)?;
    /// assert_eq!((written.rows_read, written.rows), (2, 2));
    /// assert_eq!(std::fs::read_to_string(output.join("part-00000.csv"))?, "twice\n4\n42\n");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn map_batches<F>(self, function: F) -> Table<MapBatches>
    where
        F: TaskFunction<Params = Batches, Value = MappedFile>,
    {
        self.with(MapBatches { function: FunctionName::of(function), resources: TaskOptions::default().resources })
    }

    /// Rows of a file, at most, 1 at least: without a verb rows stay in their order, in files of another format or length.
    ///
    /// ```
    /// use exobus::{OutputFormat, Table};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let (file, output) = (folder.path().join("cities.csv"), folder.path().join("cities"));
    /// std::fs::write(&file, "city,people\noslo,717710\nrome,2748109\nlima,10092000\n")?;
    /// let table = Table::read(&file).output_format(OutputFormat::Parquet).rows_per_file(2);
    /// # let table = table.memory(128 << 20).executors(2);
    /// assert_eq!(table.write(&output)?.files, 2);
    /// assert_eq!(Table::read(output.join("part-0000?.parquet")).first_rows(9)?.batches.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rows_per_file(mut self, rows: u64) -> Self {
        self.writing.file_size = FileSize::Rows(rows.max(1));
        self
    }
}

impl Table<Repartition> {
    /// Columns; rows that are alike in them are in one file, or in one of each folder, in the order of these columns.
    #[must_use]
    pub fn by<K: IntoKeyColumn>(mut self, columns: impl IntoIterator<Item = K>) -> Self {
        self.verb.by = key(columns);
        self
    }

    /// Columns whose values are folders, as Hive has them (`day=2024-01-31/city=oslo`), and which are in no file.
    #[must_use]
    pub fn partition_by<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.verb.partition_by = columns.into_iter().map(Into::into).collect();
        self
    }

    /// How many folders there may be, 1 at least. Default: 10 000.
    #[must_use]
    pub fn max_folders(mut self, folders: u64) -> Self {
        self.verb.folders_max = folders.max(1);
        self
    }
}

impl Table<MapBatches> {
    /// What each task of the function needs of its node; one processor, unless it is said. Where no node has that, the job is refused.
    #[must_use]
    pub fn resources(mut self, resources: Resources) -> Self {
        self.verb.resources = resources;
        self
    }
}

impl Table<Shuffle> {
    /// Rows of a file, at most, 1 at least.
    #[must_use]
    pub fn rows_per_file(mut self, rows: u64) -> Self {
        self.writing.file_size = FileSize::Rows(rows.max(1));
        self
    }
}

impl Table<Dedupe> {
    /// Which row of a key stays. Default: the first.
    #[must_use]
    pub fn keep(mut self, keep: Keep) -> Self {
        self.verb.keep = keep;
        self
    }

    /// In which order rows of a key are, before that of the input.
    #[must_use]
    pub fn order_by<K: IntoKeyColumn>(mut self, columns: impl IntoIterator<Item = K>) -> Self {
        self.verb.order_by = key(columns);
        self
    }
}

/// Aggregates: one or several, or their text as `--agg` has it, `count(*), sum(price) as total`.
pub trait IntoAggregates {
    /// They, in their order.
    ///
    /// # Errors
    /// The text is none.
    fn into_aggregates(self) -> Result<Vec<Aggregate>, AggregateError>;
}

impl IntoAggregates for Aggregate {
    fn into_aggregates(self) -> Result<Vec<Aggregate>, AggregateError> {
        Ok(vec![self])
    }
}

impl IntoAggregates for Vec<Aggregate> {
    fn into_aggregates(self) -> Result<Vec<Aggregate>, AggregateError> {
        Ok(self)
    }
}

macro_rules! aggregates_text {
    ($($text:ty),*) => {$(
        impl IntoAggregates for $text {
            fn into_aggregates(self) -> Result<Vec<Aggregate>, AggregateError> {
                parse_list(self.as_ref())
            }
        }
    )*};
}
aggregates_text!(&str, String, &String);

impl Table<Group> {
    /// What is said of each group, behind what was said before.
    #[must_use]
    pub fn agg(mut self, aggregates: impl IntoAggregates) -> Self {
        self.verb.aggregates = self.verb.aggregates.and_then(|before| {
            let more = aggregates.into_aggregates()?;
            Ok(before.into_iter().chain(more).collect())
        });
        self
    }

    /// What groups that are written have to meet, by their columns and by the names of what is said of them. Of several conditions all are met.
    #[must_use]
    pub fn having(mut self, condition: Expression) -> Self {
        self.verb.having = Some(match self.verb.having.take() {
            None => condition,
            Some(other) => other.and(condition),
        });
        self
    }

    /// Leaves the first groups in this order, and then in that of their columns: so many of all, or of [each value](Self::per) of some columns.
    ///
    /// ```
    /// use exobus::Table;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let (file, output) = (folder.path().join("pages.csv"), folder.path().join("top"));
    /// std::fs::write(&file, "lang,title,views\nen,a,3\nen,b,5\nde,c,1\nen,a,4\n")?;
    /// let pages = Table::read(&file).group_by(["lang", "title"]).agg("sum(views) as views");
    /// let first = pages.top(1, ["views:desc"]).per(["lang"]);
    /// # let first = first.memory(128 << 20).executors(2);
    /// first.write(&output)?;
    /// let text = std::fs::read_to_string(output.join("part-00000.csv"))?;
    /// assert_eq!(text, "lang,title,views\nde,c,1\nen,a,7\n");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn top<K: IntoKeyColumn>(mut self, groups: u64, order_by: impl IntoIterator<Item = K>) -> Self {
        (self.verb.top, self.verb.order_by) = (Some(groups), key(order_by));
        self
    }

    /// Some of the columns of groups, of each of whose values [`top`](Self::top) leaves some.
    #[must_use]
    pub fn per<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.verb.per = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Rows of a file, at most, 1 at least.
    #[must_use]
    pub fn rows_per_file(mut self, rows: u64) -> Self {
        self.writing.file_size = FileSize::Rows(rows.max(1));
        self
    }
}

/// Columns of two tables that have to be the same: a [`Pair`], or its text as `--on` has it, `id` or `id=uid`.
pub trait IntoPair {
    /// It.
    ///
    /// # Errors
    /// The text is none.
    fn into_pair(self) -> Result<Pair, NoPair>;
}

impl IntoPair for Pair {
    fn into_pair(self) -> Result<Pair, NoPair> {
        Ok(self)
    }
}

macro_rules! pair_text {
    ($($text:ty),*) => {$(
        impl IntoPair for $text {
            fn into_pair(self) -> Result<Pair, NoPair> {
                self.parse()
            }
        }
    )*};
}
pair_text!(&str, String, &String);

impl Table<Join> {
    /// Which rows are written. Default: pairs of rows that match.
    #[must_use]
    pub fn how(mut self, kind: JoinKind) -> Self {
        self.verb.kind = kind;
        self
    }

    /// What is behind the name of a column of the right table where the left one has a column of this name. Default: such names are refused.
    #[must_use]
    pub fn suffix(mut self, suffix: impl Into<String>) -> Self {
        self.verb.suffix = Some(suffix.into());
        self
    }

    /// Which table all tasks have as a whole: the output is in the order of the other one then. Default: a small one, where no row of it is written that matches none.
    #[must_use]
    pub fn broadcast(mut self, broadcast: Broadcast) -> Self {
        self.verb.broadcast = broadcast;
        self
    }
}

impl sealed::Sealed for Convert {}
impl sealed::Sealed for Sort {}
impl sealed::Sealed for Shuffle {}
impl sealed::Sealed for Dedupe {}
impl sealed::Sealed for Group {}
impl sealed::Sealed for Join {}
impl sealed::Sealed for Repartition {}
impl sealed::Sealed for MapBatches {}

impl Verb for Convert {
    type Params = ConvertTable;
    const PROGRAM: &'static str = "table.convert@2";

    fn params(self, table: Rewrite) -> Result<ConvertTable, TableJobError> {
        Ok(ConvertTable { table, rows: None })
    }
}

impl Verb for Sort {
    type Params = SortTable;
    const PROGRAM: &'static str = "table.sort@2";

    fn params(self, table: Rewrite) -> Result<SortTable, TableJobError> {
        Ok(SortTable { table, key: some_column(self.0)? })
    }
}

impl Verb for Shuffle {
    type Params = ShuffleTable;
    const PROGRAM: &'static str = "table.shuffle@2";

    fn params(self, table: Rewrite) -> Result<ShuffleTable, TableJobError> {
        Ok(ShuffleTable { table, seed: self.seed })
    }
}

impl Verb for Dedupe {
    type Params = DedupeTable;
    const PROGRAM: &'static str = "table.dedupe@2";

    fn params(self, table: Rewrite) -> Result<DedupeTable, TableJobError> {
        Ok(DedupeTable { table, key: some_column(self.key)?, keep: self.keep, order_by: self.order_by? })
    }
}

impl Verb for Group {
    type Params = GroupTable;
    const PROGRAM: &'static str = "table.group@1";

    fn params(self, table: Rewrite) -> Result<GroupTable, TableJobError> {
        let Self { by, aggregates, having, top, order_by, per } = self;
        let order_by = order_by?;
        let top = match top {
            Some(rows) => Some(Top { rows, order_by, per }),
            None if per.is_empty() => None,
            None => return Err(TableJobError::NoTop),
        };
        Ok(GroupTable { table, query: GroupQuery { by, aggregates: aggregates?, having, top } })
    }
}

impl Verb for Join {
    type Params = JoinTables;
    const PROGRAM: &'static str = "table.join@1";

    fn params(self, table: Rewrite) -> Result<JoinTables, TableJobError> {
        let Self { right, right_reading, on, kind, suffix, broadcast } = self;
        let query = JoinQuery { on: some_column(on)?, kind, suffix };
        Ok(JoinTables { table, right: all_absolute(right)?, right_reading, query, broadcast })
    }

    fn other_table(&self) -> Option<(&[PathBuf], &ReadOptions)> {
        Some((&self.right, &self.right_reading))
    }
}

impl Verb for Repartition {
    type Params = RepartitionTable;
    const PROGRAM: &'static str = "table.repartition@1";

    fn params(self, table: Rewrite) -> Result<RepartitionTable, TableJobError> {
        let Self { by, partition_by: columns, folders_max } = self;
        let folders = (!columns.is_empty()).then_some(Folders { columns, folders_max });
        Ok(RepartitionTable { table, by: by?, folders })
    }
}

impl Verb for MapBatches {
    type Params = MapTable;
    const PROGRAM: &'static str = "table.map_batches@3";

    fn params(self, table: Rewrite) -> Result<MapTable, TableJobError> {
        let Self { function, resources } = self;
        Ok(MapTable { table, function, resources })
    }
}
