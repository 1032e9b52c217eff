//! Values that tasks make beside their parts.

use exobus_actors::registry::{TaskContext, TaskError};
use exobus_store::RowHash;
use serde::Serialize;

/// Writes a value as the output of this number of a task that has several: what programs read of it is the value.
///
/// # Errors
/// There is no memory for it.
pub fn write_value<T: Serialize>(context: &mut TaskContext<'_>, output: usize, value: &T) -> Result<(), TaskError> {
    let bytes = rmp_serde::to_vec_named(value).map_err(TaskError::fatal)?;
    let writer = context.output_at(output)?;
    writer.begin_part(Some(bytes.len() as u64))?;
    writer.write(&bytes)?;
    writer.end_part(1, RowHash::default());
    Ok(())
}
