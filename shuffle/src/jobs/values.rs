//! Values that tasks make.

use ::futures::stream::{self, Stream, StreamExt as _};
use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::JobError;
use exobus_store::RowHash;
use serde::Serialize;
use serde::de::DeserializeOwned;

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

/// Values that are asked for at a time: some may have been spilled. Where they were lost the tasks that made them run again, and those before them once for all that are asked for together: one by one,
/// each reduce would have all maps run again for it alone.
const ASKED_AT_ONCE: usize = 1024;

/// The values of these outputs, in their order.
pub fn read_values<T: DeserializeOwned + 'static>(
    futures: &Futures,
    outputs: &[ObjectRef],
) -> impl Stream<Item = Result<T, JobError>> {
    stream::iter(outputs.iter().map(|output| futures.get_value::<T>(output))).buffered(ASKED_AT_ONCE)
}
