//! Columns as comparisons see them.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, GenericListViewArray, OffsetSizeTrait, StructArray,
    cast::AsArray,
};
use arrow_schema::{DataType, Field, FieldRef};

use crate::TableError;
use crate::plain::unpacked;

/// The same column with values that compare equal made the same bits: one NaN, no -0.0, no dictionaries and run ends. Inside lists and structs, too. What has none of
/// these is shared, not copied.
///
/// # Errors
/// Arrow's, which no valid array gives.
pub fn canonical(array: &ArrayRef) -> Result<ArrayRef, TableError> {
    let array = unpacked(array)?;
    Ok(match array.data_type() {
        DataType::Float16 => {
            type Half = <Float16Type as ArrowPrimitiveType>::Native;
            let half = |value: Half| match value.to_bits() {
                bits if bits & 0x7fff > 0x7c00 => Half::from_bits(0x7e00),
                0x8000 => Half::from_bits(0),
                bits => Half::from_bits(bits),
            };
            Arc::new(array.as_primitive::<Float16Type>().unary::<_, Float16Type>(half))
        }
        // Adding a zero turns -0.0 into 0.0, and nothing else into anything else.
        DataType::Float32 => {
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(|value| {
                if value.is_nan() { f32::from_bits(0x7fc0_0000) } else { value + 0.0 }
            }))
        }
        DataType::Float64 => Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(|value| {
            if value.is_nan() { f64::from_bits(0x7ff8_0000_0000_0000) } else { value + 0.0 }
        })),
        DataType::List(field) => list(array.as_list::<i32>(), field)?,
        DataType::LargeList(field) => list(array.as_list::<i64>(), field)?,
        DataType::ListView(field) => list_view(array.as_list_view::<i32>(), field)?,
        DataType::LargeListView(field) => list_view(array.as_list_view::<i64>(), field)?,
        DataType::FixedSizeList(field, size) => {
            let (list, len) = (array.as_fixed_size_list(), array.len());
            let values = canonical(list.values())?;
            let (field, nulls) = (retyped(field, &values), list.nulls().cloned());
            Arc::new(FixedSizeListArray::try_new_with_length(field, *size, values, nulls, len)?)
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
            let fields = fields.iter().zip(&columns).map(|(field, column)| retyped(field, column)).collect();
            let (nulls, len) = (array.nulls().cloned(), array.len());
            Arc::new(StructArray::try_new_with_length(fields, columns, nulls, len)?)
        }
        _ => array,
    })
}

fn list<O: OffsetSizeTrait>(array: &GenericListArray<O>, field: &FieldRef) -> Result<ArrayRef, TableError> {
    let values = canonical(array.values())?;
    let (field, offsets, nulls) = (retyped(field, &values), array.offsets().clone(), array.nulls().cloned());
    Ok(Arc::new(GenericListArray::try_new(field, offsets, values, nulls)?))
}

fn list_view<O: OffsetSizeTrait>(array: &GenericListViewArray<O>, field: &FieldRef) -> Result<ArrayRef, TableError> {
    let values = canonical(array.values())?;
    let (field, nulls) = (retyped(field, &values), array.nulls().cloned());
    let (offsets, sizes) = (array.offsets().clone(), array.sizes().clone());
    Ok(Arc::new(GenericListViewArray::try_new(field, offsets, sizes, values, nulls)?))
}

/// The field with the type of this array. Nullable, since a dictionary may have nulls among its values.
fn retyped(field: &FieldRef, array: &ArrayRef) -> FieldRef {
    Arc::new(Field::new(field.name(), array.data_type().clone(), true))
}
