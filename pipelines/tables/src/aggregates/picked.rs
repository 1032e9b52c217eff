//! Rows of arrays, copied.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow_buffer::MutableBuffer;
use arrow_schema::{DataType, Field, Schema};
use arrow_select::{concat::concat, interleave::interleave, take::take};

use crate::TableError;
use crate::block::{Gather, Layout, Limits, Part, Pick};

/// Copies rows of arrays of one type, in whatever encoding, as one array of that type without encodings, which shares no memory with them.
#[derive(Clone, Debug)]
pub(super) struct Picker {
    data_type: DataType,
    layout: Arc<Layout>,
}

impl Picker {
    /// Of this plain type.
    pub(super) fn new(data_type: &DataType) -> Result<Self, TableError> {
        Ok(Self { data_type: data_type.clone(), layout: Arc::new(Layout::new(&schema(data_type))?) })
    }

    /// These rows of these arrays.
    pub(super) fn picked(&self, arrays: &[ArrayRef], picks: &[Pick]) -> Result<ArrayRef, TableError> {
        if picks.is_empty() {
            return Ok(new_null_array(&self.data_type, 0));
        }
        // The library's ways are the fastest for flat values, and panic for some nested ones: rows of structs whose fields have no nulls, lists of nulls.
        if is_flat(&self.data_type) && arrays.iter().all(|array| *array.data_type() == self.data_type) {
            return self.flat(arrays, picks);
        }
        let batch = |array: &ArrayRef| {
            let options = RecordBatchOptions::new().with_row_count(Some(array.len()));
            let schema = Arc::new(schema(array.data_type()));
            Ok(RecordBatch::try_new_with_options(schema, vec![array.clone()], &options)?)
        };
        let batches = arrays.iter().map(batch).collect::<Result<Vec<_>, TableError>>()?;
        let gather = Gather::new(self.layout.clone(), &batches)?;
        let mut parts = Vec::new();
        for message in gather.messages(picks, &Limits::default())? {
            let mut bytes = MutableBuffer::from_len_zeroed(message.bytes() as usize);
            message.write(bytes.as_slice_mut());
            for batch in Part::of_bytes(self.layout.clone(), bytes.into()) {
                parts.push(batch?.column(0).clone());
            }
        }
        match &parts[..] {
            [one] => Ok(one.clone()),
            all => Ok(concat(&all.iter().map(|one| one.as_ref()).collect::<Vec<_>>())?),
        }
    }

    fn flat(&self, arrays: &[ArrayRef], picks: &[Pick]) -> Result<ArrayRef, TableError> {
        if let [array] = arrays {
            let rows = UInt32Array::from_iter_values(picks.iter().map(|pick| pick.row));
            return Ok(take(array.as_ref(), &rows, None)?);
        }
        let arrays: Vec<&dyn Array> = arrays.iter().map(|array| array.as_ref()).collect();
        let places: Vec<_> = picks.iter().map(|pick| (pick.batch as usize, pick.row as usize)).collect();
        Ok(interleave(&arrays, &places)?)
    }
}

fn schema(data_type: &DataType) -> Schema {
    Schema::new(vec![Field::new("value", data_type.clone(), true)])
}

fn is_flat(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_primitive() || matches!(data_type, Boolean | Utf8 | LargeUtf8 | Binary | LargeBinary)
}
