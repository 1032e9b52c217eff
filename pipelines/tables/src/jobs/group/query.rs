//! What is asked of the groups of a table, and what of its rows is on the way to them.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, BinaryArray, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use exobus_actors::registry::TaskError;
use serde::{Deserialize, Serialize};

use crate::TableError;
use crate::aggregates::{Accumulator, Aggregate, Bound};
use crate::block::Layout;
use crate::expression::Expression;
use crate::jobs::budget::of_table;
use crate::look::Value;
use crate::semantics::{KEY_VERSION, KeyColumn, KeyDecoder, KeyEncoder, KeyRows, UnifiedSchema};

/// What is asked of the groups of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupQuery {
    /// Columns, or paths to fields of structs: rows that are alike in all of them are a group. Without any, all rows are one, which is there also where there are no rows.
    pub by: Vec<String>,
    /// What is said of each group.
    pub aggregates: Vec<Aggregate>,
    /// What a group has to meet, by its columns as they are written.
    pub having: Option<Expression>,
    /// Which of the groups stay.
    pub top: Option<Top>,
}

/// The first groups in some order, of all or of each part of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Top {
    /// How many, 1 at least.
    pub rows: u64,
    /// The order, by columns as they are written; groups that it does not tell apart are in the order of their keys.
    pub order_by: Vec<KeyColumn>,
    /// Some of the columns of the groups: so many groups stay for each of their values.
    pub per: Vec<String>,
}

impl GroupQuery {
    /// Refuses what is none for any table: the field of a spec that says it, and why not.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        if self.by.is_empty() && self.aggregates.is_empty() {
            let what =
                "without columns of `by` all rows are one group, of which nothing is said: `agg = \"count(*)\"`, say";
            return Err(("agg", what.to_owned()));
        }
        if let Some(column) = twice(&self.by) {
            return Err(("by", format!("`by` names {column} twice")));
        }
        let Some(top) = &self.top else { return Ok(()) };
        if top.rows == 0 {
            return Err(("top", "`top = 0` leaves no group: 1 is the least".to_owned()));
        }
        if let Some(per) = top.per.iter().find(|per| !self.by.contains(per)) {
            let by = self.by.join(", ");
            return Err((
                "per",
                format!("`per = \"{per}\"` is no column of the groups, which are those of `by`: {by}"),
            ));
        }
        twice(&top.per).map_or(Ok(()), |column| Err(("per", format!("`per` names {column} twice"))))
    }

    /// The key by which groups are told apart, and in whose order they are written: that of the columns, those first of each of whose values some stay.
    pub(super) fn key(&self) -> Vec<KeyColumn> {
        let per = self.top.iter().flat_map(|top| &top.per);
        let others = self.by.iter().filter(|column| !self.is_per(column));
        per.chain(others).map(KeyColumn::rising).collect()
    }

    fn is_per(&self, column: &str) -> bool {
        self.top.as_ref().is_some_and(|top| top.per.iter().any(|per| per == column))
    }

    /// Whether all rows are one group.
    pub(super) fn is_of_all(&self) -> bool {
        self.by.is_empty()
    }

    /// Whether values of groups are counted one by one.
    pub(super) fn counts_values(&self) -> bool {
        self.aggregates.iter().any(|aggregate| aggregate.function.is_of_values())
    }

    /// The columns that are read.
    pub(super) fn columns(&self) -> Vec<String> {
        let arguments = self.aggregates.iter().filter_map(|aggregate| aggregate.column.clone());
        let mut columns: Vec<String> = self.by.iter().cloned().chain(arguments).collect();
        columns.sort();
        columns.dedup();
        columns
    }

    /// In which order groups are written.
    pub(super) fn order(&self) -> Vec<KeyColumn> {
        match &self.top {
            None => self.key(),
            Some(top) => top.per.iter().map(KeyColumn::rising).chain(top.order_by.iter().cloned()).collect(),
        }
    }
}

/// The first name that is there twice.
fn twice(names: &[String]) -> Option<&String> {
    (1..names.len()).find(|at| names[..*at].contains(&names[*at])).map(|at| &names[at])
}

/// Of which kind a message is on its way from a map to a reduce: which of [`Grouping::layouts`] it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rows of the table: their keys, and the columns that aggregates look at.
    Rows,
    /// What became of several rows of a group.
    States,
    /// Of these values of some column how often each is there: keys of groups with the value behind them.
    Values(usize),
}

impl Kind {
    /// Of a number among the layouts.
    pub(super) fn of(number: usize) -> Self {
        match number {
            0 => Self::Rows,
            1 => Self::States,
            more => Self::Values(more - 2),
        }
    }

    /// Its number among the layouts.
    pub(super) fn number(self) -> usize {
        match self {
            Self::Rows => 0,
            Self::States => 1,
            Self::Values(column) => column + 2,
        }
    }
}

/// A query whose columns were looked up.
pub(super) struct Grouping {
    encoder: KeyEncoder,
    decoder: KeyDecoder,
    /// Where in the key each column of a group stands.
    by: Vec<usize>,
    /// The columns that aggregates look at.
    arguments: Vec<Argument>,
    pub(super) aggregates: Vec<Grouped>,
    /// The arguments whose values are counted one by one.
    pub(super) values: Vec<CountedValues>,
    has_places: bool,
    /// Of messages, by the numbers of their kinds.
    pub(super) layouts: Vec<Arc<Layout>>,
    /// Of groups, as they are known: columns first, then aggregates.
    pub(super) schema: SchemaRef,
}

/// A column that aggregates look at, as one of them is bound to it.
struct Argument {
    bound: Bound,
    data_type: DataType,
}

/// An aggregate, and from what it is made.
pub(super) struct Grouped {
    pub(super) bound: Bound,
    /// The number of its argument.
    pub(super) argument: Option<usize>,
    pub(super) made_from: MadeFrom,
}

/// What an aggregate is made from.
#[derive(Clone, Debug)]
pub(super) enum MadeFrom {
    /// States that are so many columns behind the first of those of all aggregates.
    States(std::ops::Range<usize>),
    /// Values that are counted: the number of these.
    Values(usize),
}

/// An argument whose values are counted one by one.
pub(super) struct CountedValues {
    pub(super) argument: usize,
    encoder: KeyEncoder,
    decoder: KeyDecoder,
}

impl CountedValues {
    fn new(number: usize, argument: &Argument) -> Result<Self, TableError> {
        let schema = Schema::new(vec![argument.field(number)]);
        let key = [KeyColumn::rising(argument_name(number))];
        let (encoder, decoder) = (KeyEncoder::new(&schema, &key)?, KeyDecoder::new(&schema, &key)?);
        Ok(Self { argument: number, encoder, decoder })
    }

    /// The bytes of a null, which is behind all values.
    pub(super) fn null(&self) -> &'static [u8] {
        &[2]
    }

    /// Values of these bytes.
    ///
    /// # Errors
    /// Bytes that are none.
    pub(super) fn decode(&self, bytes: &BinaryArray) -> Result<ArrayRef, TableError> {
        let mut columns = self.decoder.decode(bytes.iter().flatten())?;
        Ok(columns.swap_remove(0))
    }
}

/// Columns of messages before those of states: key, rows.
const BEFORE_STATES: usize = 2;

impl Grouping {
    /// Of a query over a table of this schema.
    ///
    /// # Errors
    /// Columns that are not there, types that have no order or that an aggregate does not take, two columns of a group with one name, `per` that is no column of groups.
    pub(super) fn new(query: &GroupQuery, table: &Schema) -> Result<Self, TableError> {
        let key = query.key();
        let (encoder, decoder) = (KeyEncoder::new(table, &key)?, KeyDecoder::new(table, &key)?);
        let place_of = |column: &String| key.iter().position(|key| key.column == *column);
        let by: Vec<usize> = query.by.iter().filter_map(place_of).collect();
        let mut grouping = Self {
            encoder,
            decoder,
            by,
            arguments: Vec::new(),
            aggregates: Vec::new(),
            values: Vec::new(),
            has_places: false,
            layouts: Vec::new(),
            schema: Arc::new(Schema::empty()),
        };
        let mut states = Vec::new();
        for aggregate in &query.aggregates {
            grouping.add(aggregate.bind(table)?, &mut states)?;
        }
        let types: Vec<&DataType> = grouping.decoder.data_types().collect();
        let of_key = |(column, place): (&String, &usize)| Field::new(column, types[*place].clone(), true);
        let by = query.by.iter().zip(&grouping.by).map(of_key);
        let aggregates = grouping.aggregates.iter().map(|aggregate| aggregate.bound.output_field());
        let schema = Schema::new(by.chain(aggregates).collect::<Vec<_>>());
        UnifiedSchema::new("what is written", &schema)?;
        grouping.schema = Arc::new(schema);
        grouping.layouts = grouping.new_layouts(states)?;
        Ok(grouping)
    }

    fn add(&mut self, bound: Bound, states: &mut Vec<Field>) -> Result<(), TableError> {
        let argument = bound.argument_type().map(|data_type| {
            let known = self.arguments.iter().position(|argument| argument.bound.path() == bound.path());
            known.unwrap_or_else(|| {
                self.arguments.push(Argument { bound: bound.clone(), data_type: data_type.clone() });
                self.arguments.len() - 1
            })
        });
        self.has_places |= bound.needs_places();
        let made_from = match argument {
            Some(argument) if bound.is_of_values() => {
                let known = self.values.iter().position(|values| values.argument == argument);
                MadeFrom::Values(match known {
                    Some(known) => known,
                    None => {
                        self.values.push(CountedValues::new(argument, &self.arguments[argument])?);
                        self.values.len() - 1
                    }
                })
            }
            _ => {
                let before = states.len();
                states.extend(bound.state_fields());
                MadeFrom::States(before..states.len())
            }
        };
        self.aggregates.push(Grouped { bound, argument, made_from });
        Ok(())
    }

    fn new_layouts(&self, states: Vec<Field>) -> Result<Vec<Arc<Layout>>, TableError> {
        let key = || Field::new("key", DataType::Binary, false);
        let number = |name: &str| Field::new(name, DataType::UInt64, false);
        let arguments = (0..).zip(&self.arguments).map(|(number, argument)| argument.field(number));
        let place = self.has_places.then(|| number("place"));
        let rows = std::iter::once(key()).chain(arguments).chain(place).collect();
        let named = |(number, field): (usize, Field)| field.with_name(format!("state {number}"));
        let states = [key(), number("rows")].into_iter().chain(states.into_iter().enumerate().map(named)).collect();
        // Which layout a message has is told by its names and types: those of no two are the same.
        let values = self.values.iter().map(|values| vec![key(), number(&format!("rows {}", values.argument))]);
        let schemas = [rows, states].into_iter().chain(values);
        schemas.map(|fields: Vec<Field>| Ok(Arc::new(Layout::new(&Schema::new(Fields::from(fields)))?))).collect()
    }

    /// Rows of the table as a message of [`Kind::Rows`] has them; the first has this place.
    ///
    /// # Errors
    /// Keys that are too large; as of [`KeyEncoder::append`].
    pub(super) fn rows(&self, batch: &RecordBatch, first_place: u64) -> Result<RecordBatch, TableError> {
        let keys = self.encoder.encode(batch)?.into_array()?;
        let mut columns: Vec<ArrayRef> = vec![Arc::new(keys)];
        for argument in &self.arguments {
            columns.extend(argument.bound.argument(batch)?);
        }
        if self.has_places {
            columns.push(Arc::new(UInt64Array::from_iter_values(first_place..first_place + batch.num_rows() as u64)));
        }
        let fields = self.layouts[0].schema().fields().iter().zip(&columns);
        let fields: Vec<Field> =
            fields.map(|(field, column)| field.as_ref().clone().with_data_type(column.data_type().clone())).collect();
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }

    /// An argument of rows.
    pub(super) fn argument<'a>(&self, rows: &'a RecordBatch, argument: usize) -> &'a ArrayRef {
        rows.column(1 + argument)
    }

    /// The places of rows, where they have some.
    pub(super) fn places<'a>(&self, rows: &'a RecordBatch) -> Option<&'a [u64]> {
        let place = self.has_places.then(|| rows.column(1 + self.arguments.len()))?;
        place.as_any().downcast_ref::<UInt64Array>().map(|places| places.values().as_ref())
    }

    /// What says how the aggregates of groups stand that are made from states.
    ///
    /// # Errors
    /// As of [`Bound::accumulator`].
    pub(super) fn accumulators(&self) -> Result<Vec<Box<dyn Accumulator>>, TableError> {
        self.aggregates.iter().filter_map(|aggregate| aggregate.bound.accumulator().transpose()).collect()
    }

    /// The aggregates that are made from states, in the order of their accumulators.
    pub(super) fn of_states(&self) -> impl Iterator<Item = (&Grouped, std::ops::Range<usize>)> {
        self.aggregates.iter().filter_map(|aggregate| match &aggregate.made_from {
            MadeFrom::States(columns) => Some((aggregate, BEFORE_STATES + columns.start..BEFORE_STATES + columns.end)),
            MadeFrom::Values(_) => None,
        })
    }

    /// Adds the rows of a message to what is made from states: each to this group.
    ///
    /// # Errors
    /// What accumulators say.
    pub(super) fn update(
        &self,
        accumulators: &mut [Box<dyn Accumulator>],
        groups: &[u32],
        message: &RecordBatch,
    ) -> Result<(), TableError> {
        let places = self.places(message);
        for ((aggregate, _), accumulator) in self.of_states().zip(accumulators) {
            let argument = aggregate.argument.map(|argument| self.argument(message, argument));
            accumulator.update(groups, argument, places)?;
        }
        Ok(())
    }

    /// States of groups as a message: their keys, of how many rows each is, and where they are among accumulators.
    ///
    /// # Errors
    /// What accumulators say; Arrow's.
    pub(super) fn states(
        &self,
        keys: BinaryArray,
        rows: UInt64Array,
        (accumulators, order): (&[Box<dyn Accumulator>], &[u32]),
    ) -> Result<RecordBatch, TableError> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(rows)];
        for accumulator in accumulators {
            columns.extend(accumulator.states(order)?);
        }
        Ok(RecordBatch::try_new(self.layouts[Kind::States.number()].schema().clone(), columns)?)
    }

    /// Keys of the values of rows: those of their groups, and the values behind them.
    ///
    /// # Errors
    /// Keys that are too large.
    pub(super) fn value_keys(&self, values: &CountedValues, rows: &RecordBatch) -> Result<BinaryArray, TableError> {
        let argument = self.argument(rows, values.argument);
        let field = Field::new(argument_name(values.argument), argument.data_type().clone(), true);
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![argument.clone()])?;
        let (of_values, of_groups) = (values.encoder.encode(&batch)?, keys(rows));
        let bytes = of_groups.value_data().len() + of_values.memory_bytes();
        let mut both = KeyRows::default();
        if bytes > i32::MAX as usize {
            return Err(TableError::KeysTooLarge { rows: rows.num_rows() });
        }
        both.reserve(rows.num_rows(), bytes);
        for row in 0..rows.num_rows() {
            both.push_parts([of_groups.value(row), of_values.get(row)]);
        }
        both.into_array()
    }

    /// What is wrong with one of some groups, which have these columns: with the group, where it is said which of them it is.
    pub(super) fn of_group(&self, error: TableError, columns: &[ArrayRef]) -> TableError {
        let TableError::SumOverflows { row: Some(row), .. } = error else { return error };
        if self.by.is_empty() {
            return error;
        }
        let shown = |(field, column): (&FieldRef, &ArrayRef)| format!("{} = {}", field.name(), Value::of(column, row));
        let named = self.schema.fields().iter().zip(columns).take(self.by.len());
        let group = named.map(shown).collect::<Vec<_>>().join(", ");
        TableError::OfGroup { group, source: Box::new(error) }
    }

    /// The columns of groups of these keys, in the order in which they are written.
    ///
    /// # Errors
    /// Bytes that are no keys.
    pub(super) fn columns(&self, keys: &BinaryArray) -> Result<Vec<ArrayRef>, TableError> {
        let columns = self.decoder.decode(keys.iter().flatten())?;
        Ok(self.by.iter().map(|place| columns[*place].clone()).collect())
    }
}

impl Argument {
    fn field(&self, number: usize) -> Field {
        Field::new(argument_name(number), self.data_type.clone(), true)
    }
}

fn argument_name(number: usize) -> String {
    format!("argument {number}")
}

/// The keys of the rows of a message.
pub(super) fn keys(message: &RecordBatch) -> &BinaryArray {
    message.column(0).as_any().downcast_ref().expect("the first column of a message has keys")
}

/// How many rows of the table each row of a message of states or values stands for.
pub(super) fn counts(message: &RecordBatch) -> &[u64] {
    let counts = message.column(1).as_any().downcast_ref::<UInt64Array>();
    counts.expect("the second column of a message has counts").values()
}

/// What tasks are told of a query: what they make follows from the version of the bytes of keys, too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    query: GroupQuery,
    version: u32,
}

impl Asked {
    pub(super) fn new(query: GroupQuery) -> Self {
        Self { query, version: KEY_VERSION }
    }

    pub(super) fn query(&self) -> &GroupQuery {
        &self.query
    }

    /// The query over a table of this schema.
    pub(super) fn grouping(&self, table: &Schema) -> Result<Arc<Grouping>, TaskError> {
        if self.version != KEY_VERSION {
            let version = self.version;
            return Err(TaskError::fatal(format!(
                "keys are of version {version}, this release makes version {KEY_VERSION}"
            )));
        }
        Grouping::new(&self.query, table).map(Arc::new).map_err(|error| match error {
            // Names of what is written are said by whoever asks.
            TableError::NamesAlike { .. } => TaskError::request(error),
            error => of_table(error),
        })
    }
}
