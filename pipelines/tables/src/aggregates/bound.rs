//! An aggregate of columns of a schema.

use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::i256;
use arrow_schema::{DataType, Field, Schema};

use super::bytes::{ExtremeBytes, ExtremeTexts};
use super::checked::Checked;
use super::columns::reached;
use super::counts::Counts;
use super::extremes::Extremes;
use super::floats::FloatTotals;
use super::keys::ExtremeKeys;
use super::places::Placed;
use super::totals::{Total, Totals};
use super::variances::{FloatVariances, Variance, Variances};
use super::{Accumulator, Aggregate, Function};
use crate::TableError;
use crate::hint::no_column;
use crate::semantics::{ExactSum, check_order, find_column};

/// An [`Aggregate`] whose column was found.
#[derive(Clone, Debug)]
pub struct Bound {
    aggregate: Aggregate,
    argument: Option<Argument>,
}

#[derive(Clone, Debug)]
struct Argument {
    /// The path of names.
    column: String,
    /// Number in the schema, and of each field on the way down.
    path: Vec<usize>,
    /// Without encodings.
    data_type: DataType,
}

impl Aggregate {
    /// Looks its column up and checks that its values can be asked this.
    ///
    /// # Errors
    /// [`TableError::NoColumn`], [`TableError::NamesAlike`]; [`TableError::Unsupported`]: numbers were needed; [`TableError::NoOrder`]: an order was.
    pub fn bind(&self, schema: &Schema) -> Result<Bound, TableError> {
        let Some(column) = &self.column else {
            return Ok(Bound { aggregate: self.clone(), argument: None });
        };
        let (path, data_type) = find_column(schema.fields(), column)?.ok_or_else(|| no_column(schema, column))?;
        self.check(column, &data_type)?;
        let argument = Some(Argument { column: column.clone(), path, data_type });
        Ok(Bound { aggregate: self.clone(), argument })
    }

    fn check(&self, column: &str, data_type: &DataType) -> Result<(), TableError> {
        let why = match self.function {
            Function::Count | Function::First | Function::Last => return Ok(()),
            Function::Min | Function::Max | Function::CountDistinct | Function::Quantile(_) => {
                return check_order(column, data_type);
            }
            _ if data_type.is_numeric() => return Ok(()),
            Function::Sum => "sum adds integers, decimals and floats; count, min and max take what is no number",
            Function::Avg => "avg is of integers, decimals and floats; count, min and max take what is no number",
            Function::QuantileCont(_) => {
                "quantile_cont and median are of integers, decimals and floats; quantile takes all that has an order"
            }
            _ => "variance and stddev are of integers, decimals and floats; count_distinct takes what is no number",
        };
        Err(TableError::Unsupported { column: column.to_owned(), data_type: data_type.clone(), why })
    }
}

impl Bound {
    /// What was bound.
    pub fn aggregate(&self) -> &Aggregate {
        &self.aggregate
    }

    /// Number of the column in the schema, and of each field of structs on the way down; `None`: it is of rows.
    pub fn path(&self) -> Option<&[usize]> {
        self.argument.as_ref().map(|argument| &argument.path[..])
    }

    /// Type of the argument without encodings; `None`: it is of rows.
    pub fn argument_type(&self) -> Option<&DataType> {
        self.argument.as_ref().map(|argument| &argument.data_type)
    }

    /// The argument of the rows of a batch: its column, or fields of structs, null where these are. Without dictionaries and run ends on the outside; what is inside, and views, stay.
    /// `None`: it is of rows.
    ///
    /// # Errors
    /// Arrow's, for what no batch of tables has.
    ///
    /// # Panics
    /// The batch is of a schema without such columns.
    pub fn argument(&self, batch: &RecordBatch) -> Result<Option<ArrayRef>, TableError> {
        let of = |argument: &Argument| reached(batch.column(argument.path[0]), &argument.path[1..]);
        self.argument.as_ref().map(of).transpose()
    }

    /// Whether it follows from the sorted values of a group and has no accumulator.
    pub fn is_of_values(&self) -> bool {
        self.aggregate.function.is_of_values()
    }

    /// Whether rows have to say where they stand in the whole input.
    pub fn needs_places(&self) -> bool {
        self.aggregate.function.needs_places()
    }

    /// Name and type of results.
    pub fn output_field(&self) -> Field {
        use Function::*;
        let data_type = match (self.aggregate.function, self.argument_type()) {
            (Count | CountDistinct, _) | (_, None) => return Field::new(&self.aggregate.name, DataType::Int64, false),
            (Sum, Some(of)) => ExactSum::data_type(of).unwrap_or(DataType::Float64),
            (Min | Max | First | Last | Quantile(_), Some(of)) => of.clone(),
            (Avg | Variance | Stddev | VariancePopulation | StddevPopulation | QuantileCont(_), _) => DataType::Float64,
        };
        Field::new(&self.aggregate.name, data_type, true)
    }

    /// Columns of states, of plain types. They are called by what they hold, such as `sum` and `count`, so two aggregates may have the same. None, where there is no accumulator.
    pub fn state_fields(&self) -> Vec<Field> {
        use Function::*;
        let count = || Field::new("count", DataType::Int64, false);
        let numbers = |name: &str, words: i32| match words {
            0 => Field::new(name, DataType::Binary, false),
            words => Field::new(name, DataType::FixedSizeBinary(8 * words), false),
        };
        let Some(of) = self.argument_type() else { return vec![count()] };
        let (words, square_words) = match of {
            DataType::Float16 | DataType::Float32 | DataType::Float64 => (0, 0),
            DataType::Decimal128(..) => (4, 5),
            DataType::Decimal256(..) => (5, 9),
            _ => (2, 3),
        };
        match self.aggregate.function {
            Count => vec![count()],
            Sum | Avg => vec![numbers("sum", words), count()],
            Variance | Stddev | VariancePopulation | StddevPopulation => {
                vec![numbers("sum", words), numbers("squares", square_words), count()]
            }
            Min | Max if is_by_key(of) => vec![Field::new("key", DataType::Binary, true)],
            Min | Max => vec![Field::new("value", of.clone(), true)],
            First | Last => {
                vec![Field::new("place", DataType::UInt64, true), Field::new("value", of.clone(), true)]
            }
            CountDistinct | Quantile(_) | QuantileCont(_) => vec![],
        }
    }

    /// What takes the values; `None`: it [is of values](Self::is_of_values).
    ///
    /// # Errors
    /// The type is none of tables.
    pub fn accumulator(&self) -> Result<Option<Box<dyn Accumulator>>, TableError> {
        use Function::*;
        let Some(Argument { column, data_type, .. }) = &self.argument else {
            return Ok(Some(self.checked(Counts::default())));
        };
        Ok(Some(match self.aggregate.function {
            Count => self.checked(Counts::default()),
            Sum => {
                let sum = ExactSum::data_type(data_type).unwrap_or(DataType::Float64);
                self.total(column, data_type, Total::Sum(sum))
            }
            Avg => self.total(column, data_type, Total::Mean),
            Variance | Stddev | VariancePopulation | StddevPopulation => self.variance(data_type),
            Min => self.extreme::<false>(data_type)?,
            Max => self.extreme::<true>(data_type)?,
            First => self.checked(Placed::<false>::new(data_type)?),
            Last => self.checked(Placed::<true>::new(data_type)?),
            CountDistinct | Quantile(_) | QuantileCont(_) => return Ok(None),
        }))
    }

    fn checked(&self, inner: impl Accumulator + 'static) -> Box<dyn Accumulator> {
        let argument = self.argument.as_ref().map(|argument| (argument.column.clone(), argument.data_type.clone()));
        Box::new(Checked { inner, argument, states: self.state_fields() })
    }

    fn total(&self, column: &str, data_type: &DataType, total: Total) -> Box<dyn Accumulator> {
        use DataType::*;
        let is_mean = matches!(total, Total::Mean);
        match data_type {
            Int8 => self.checked(Totals::<i8, 2>::new(column, total, 0)),
            Int16 => self.checked(Totals::<i16, 2>::new(column, total, 0)),
            Int32 => self.checked(Totals::<i32, 2>::new(column, total, 0)),
            UInt8 => self.checked(Totals::<u8, 2>::new(column, total, 0)),
            UInt16 => self.checked(Totals::<u16, 2>::new(column, total, 0)),
            UInt32 => self.checked(Totals::<u32, 2>::new(column, total, 0)),
            UInt64 => self.checked(Totals::<u64, 2>::new(column, total, 0)),
            Decimal32(_, scale) => self.checked(Totals::<i32, 2>::new(column, total, *scale)),
            Decimal64(_, scale) => self.checked(Totals::<i64, 2>::new(column, total, *scale)),
            Decimal128(_, scale) => self.checked(Totals::<i128, 4>::new(column, total, *scale)),
            Decimal256(_, scale) => self.checked(Totals::<i256, 5>::new(column, total, *scale)),
            Float16 => self.checked(FloatTotals::<Float16Type>::new(is_mean)),
            Float32 => self.checked(FloatTotals::<Float32Type>::new(is_mean)),
            Float64 => self.checked(FloatTotals::<Float64Type>::new(is_mean)),
            // Numbers alone were bound.
            _ => self.checked(Totals::<i64, 2>::new(column, total, 0)),
        }
    }

    fn variance(&self, data_type: &DataType) -> Box<dyn Accumulator> {
        use DataType::*;
        let variance = Variance::of(self.aggregate.function);
        match data_type {
            Int8 => self.checked(Variances::<i8, 2, 3>::new(variance, 0)),
            Int16 => self.checked(Variances::<i16, 2, 3>::new(variance, 0)),
            Int32 => self.checked(Variances::<i32, 2, 3>::new(variance, 0)),
            UInt8 => self.checked(Variances::<u8, 2, 3>::new(variance, 0)),
            UInt16 => self.checked(Variances::<u16, 2, 3>::new(variance, 0)),
            UInt32 => self.checked(Variances::<u32, 2, 3>::new(variance, 0)),
            UInt64 => self.checked(Variances::<u64, 2, 3>::new(variance, 0)),
            Decimal32(_, scale) => self.checked(Variances::<i32, 2, 3>::new(variance, *scale)),
            Decimal64(_, scale) => self.checked(Variances::<i64, 2, 3>::new(variance, *scale)),
            Decimal128(_, scale) => self.checked(Variances::<i128, 4, 5>::new(variance, *scale)),
            Decimal256(_, scale) => self.checked(Variances::<i256, 5, 9>::new(variance, *scale)),
            Float16 => self.checked(FloatVariances::<Float16Type>::new(variance)),
            Float32 => self.checked(FloatVariances::<Float32Type>::new(variance)),
            Float64 => self.checked(FloatVariances::<Float64Type>::new(variance)),
            _ => self.checked(Variances::<i64, 2, 3>::new(variance, 0)),
        }
    }

    fn extreme<const GREATEST: bool>(&self, data_type: &DataType) -> Result<Box<dyn Accumulator>, TableError> {
        use DataType::*;
        Ok(match data_type {
            Int8 => self.checked(Extremes::<i8, GREATEST>::new(data_type)),
            Int16 => self.checked(Extremes::<i16, GREATEST>::new(data_type)),
            UInt8 => self.checked(Extremes::<u8, GREATEST>::new(data_type)),
            UInt16 => self.checked(Extremes::<u16, GREATEST>::new(data_type)),
            UInt32 => self.checked(Extremes::<u32, GREATEST>::new(data_type)),
            UInt64 => self.checked(Extremes::<u64, GREATEST>::new(data_type)),
            Float16 => self.checked(Extremes::<Float16Type, GREATEST>::new(data_type)),
            Float32 => self.checked(Extremes::<Float32Type, GREATEST>::new(data_type)),
            Float64 => self.checked(Extremes::<Float64Type, GREATEST>::new(data_type)),
            Int32 | Date32 | Time32(_) | Decimal32(..) => self.checked(Extremes::<i32, GREATEST>::new(data_type)),
            Int64 | Date64 | Time64(_) | Timestamp(..) | Duration(_) | Decimal64(..) => {
                self.checked(Extremes::<i64, GREATEST>::new(data_type))
            }
            Decimal128(..) => self.checked(Extremes::<i128, GREATEST>::new(data_type)),
            Decimal256(..) => self.checked(Extremes::<i256, GREATEST>::new(data_type)),
            Utf8 | LargeUtf8 | Binary | LargeBinary | FixedSizeBinary(_) => {
                let found = ExtremeBytes::<GREATEST>::default();
                self.checked(ExtremeTexts { data_type: data_type.clone(), found })
            }
            _ => self.checked(ExtremeKeys::<GREATEST>::new(data_type)?),
        })
    }
}

/// Whether the least of values of a type are found by the bytes of their keys.
fn is_by_key(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Null | DataType::Boolean) || data_type.is_nested()
}
