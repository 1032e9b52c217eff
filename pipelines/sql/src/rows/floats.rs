//! Floats as they compare: as keys of tables have them, with one zero, and one NaN above all numbers.

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array as _, ArrayRef};
use arrow_schema::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode as _};
use datafusion_common::{DFSchema, DataFusionError, ScalarValue};
use datafusion_expr::expr::{BinaryExpr, InList};
use datafusion_expr::{
    ColumnarValue, Expr, ExprSchemable as _, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The same expression, which compares floats as keys of tables compare.
pub(super) fn compared_as_keys(expression: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let ordered = |one: &mut Expr| {
        let is_float = one.get_type(schema).is_ok_and(|data_type| data_type.is_floating());
        if is_float {
            *one = match std::mem::take(one) {
                Expr::Literal(value, metadata) => {
                    let array = as_ordered(value.to_array()?);
                    Expr::Literal(ScalarValue::try_from_array(&array, 0)?, metadata)
                }
                other => AS_ORDERED.call(vec![other]),
            };
        }
        Ok::<_, DataFusionError>(is_float)
    };
    let of_expression = |mut expression: Expr| {
        let is_changed = match &mut expression {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
                ordered(left)? | ordered(right)?
            }
            Expr::InList(InList { expr, list, .. }) => {
                let mut is_changed = ordered(expr)?;
                for one in list {
                    is_changed |= ordered(one)?;
                }
                is_changed
            }
            _ => false,
        };
        Ok(Transformed::new_transformed(expression, is_changed))
    };
    Ok(expression.transform_up(of_expression)?.data)
}

static AS_ORDERED: LazyLock<ScalarUDF> = LazyLock::new(|| ScalarUDF::from(AsOrdered::default()));

/// [`as_ordered`] as a function; it never travels.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsOrdered {
    signature: Signature,
}

impl Default for AsOrdered {
    fn default() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for AsOrdered {
    fn name(&self) -> &str {
        "as_ordered"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, of: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(of[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        Ok(ColumnarValue::Array(as_ordered(arrays[0].clone())))
    }
}

/// With one zero, and one NaN; other values as they are.
pub(super) fn as_ordered(values: ArrayRef) -> ArrayRef {
    macro_rules! canonical {
        ($kind:ty, $float:ty, $zero:expr) => {
            Arc::new(values.as_primitive::<$kind>().unary::<_, $kind>(|value| {
                if value == $zero {
                    $zero
                } else if value.is_nan() {
                    <$float>::NAN
                } else {
                    value
                }
            }))
        };
    }
    match values.data_type() {
        DataType::Float16 => canonical!(Float16Type, half::f16, half::f16::ZERO),
        DataType::Float32 => canonical!(Float32Type, f32, 0.0),
        DataType::Float64 => canonical!(Float64Type, f64, 0.0),
        _ => values,
    }
}
