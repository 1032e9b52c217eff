//! The mean of numbers, as the aggregates of tables have it: a float, also of decimals. DataFusion's own has four digits more than these.

use datafusion_common::arrow::datatypes::DataType;
use datafusion_common::{DataFusionError, not_impl_err, plan_err};
use datafusion_expr::function::AccumulatorArgs;
use datafusion_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};

/// `avg`, as it is planned: none of it runs here.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Average {
    signature: Signature,
}

impl Default for Average {
    fn default() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        "avg"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _of: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(DataType::Float64)
    }

    fn coerce_types(&self, of: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        match of {
            [DataType::Null] => Ok(vec![DataType::Float64]),
            [of] if of.is_numeric() => Ok(vec![of.clone()]),
            _ => plan_err!("avg is of one number"),
        }
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>, DataFusionError> {
        not_impl_err!("avg is planned here, and worked out by operators of tables")
    }
}
