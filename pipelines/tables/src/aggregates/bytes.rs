//! Least and greatest texts and binary values.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;
use exobus_shuffle::cuts::key_prefix;

use super::Accumulator;
use super::columns::{each_row, valid};
use crate::TableError;
use crate::raw::ByteRanges;

/// The least bytes of each group, or the greatest, one behind the other.
#[derive(Default)]
pub(super) struct ExtremeBytes<const GREATEST: bool> {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    /// How many of the bytes nobody has any more.
    unused: usize,
}

/// Where the bytes of a group are.
#[derive(Clone, Copy)]
struct Slot {
    /// The first eight, as a number that compares as they do: mostly all that is looked at.
    prefix: u64,
    start: usize,
    /// [`NONE`]: there are none yet.
    len: usize,
}

const NONE: usize = usize::MAX;

impl<const GREATEST: bool> ExtremeBytes<GREATEST> {
    pub(super) fn resize(&mut self, groups: usize) {
        if let Some(forgotten) = self.slots.get(groups..) {
            self.unused += forgotten.iter().filter(|slot| slot.len != NONE).map(|slot| slot.len).sum::<usize>();
        }
        self.slots.resize(groups, Slot { prefix: 0, start: 0, len: NONE });
    }

    /// Notes the bytes if they are better than those that the group has.
    #[inline]
    pub(super) fn offer(&mut self, group: usize, value: &[u8]) {
        let (slot, prefix) = (self.slots[group], key_prefix(value));
        let order = match prefix.cmp(&slot.prefix) {
            Ordering::Equal if slot.len != NONE => value.cmp(&self.bytes[slot.start..slot.start + slot.len]),
            other => other,
        };
        if slot.len == NONE || order == if GREATEST { Ordering::Greater } else { Ordering::Less } {
            self.note(group, prefix, value);
        }
    }

    fn note(&mut self, group: usize, prefix: u64, value: &[u8]) {
        let slot = &mut self.slots[group];
        if slot.len != NONE && value.len() <= slot.len {
            self.unused += slot.len - value.len();
            self.bytes[slot.start..slot.start + value.len()].copy_from_slice(value);
            (slot.prefix, slot.len) = (prefix, value.len());
            return;
        }
        self.unused += if slot.len == NONE { 0 } else { slot.len };
        *slot = Slot { prefix, start: self.bytes.len(), len: value.len() };
        self.bytes.extend_from_slice(value);
        // Once for as many bytes as are looked at then.
        if self.unused > self.bytes.len() / 2 && self.unused > 16 * self.slots.len() + (64 << 10) {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let mut bytes = Vec::with_capacity(self.bytes.len() - self.unused);
        for slot in self.slots.iter_mut().filter(|slot| slot.len != NONE) {
            let from = std::mem::replace(&mut slot.start, bytes.len());
            bytes.extend_from_slice(&self.bytes[from..from + slot.len]);
        }
        (self.bytes, self.unused) = (bytes, 0);
    }

    /// The bytes of a group, if it has any.
    pub(super) fn get(&self, group: u32) -> Option<&[u8]> {
        let slot = self.slots[group as usize];
        (slot.len != NONE).then(|| &self.bytes[slot.start..slot.start + slot.len])
    }

    /// Those of some groups as a column.
    pub(super) fn column(&self, data_type: &DataType, order: &[u32]) -> Result<ArrayRef, TableError> {
        let nulls = valid(order.iter().map(|group| self.get(*group).is_some()));
        let values = order.iter().map(|group| self.get(*group).unwrap_or_default());
        let mut bytes: Vec<u8> = Vec::new();
        if let DataType::FixedSizeBinary(width) = data_type {
            for value in values {
                bytes.extend_from_slice(value);
                bytes.resize(bytes.len() + *width as usize - value.len(), 0);
            }
            let array = FixedSizeBinaryArray::try_new_with_len(*width, bytes.into(), nulls, order.len())?;
            return Ok(Arc::new(array));
        }
        let mut ends: Vec<i64> = vec![0];
        for value in values {
            bytes.extend_from_slice(value);
            ends.push(bytes.len() as i64);
        }
        let offsets = match data_type {
            DataType::LargeUtf8 | DataType::LargeBinary => Buffer::from_vec(ends),
            _ if i32::try_from(bytes.len()).is_err() => {
                return Err(TableError::StatesTooLarge { rows: order.len() });
            }
            _ => ends.into_iter().map(|end| end as i32).collect::<Vec<i32>>().into(),
        };
        let data = ArrayData::builder(data_type.clone()).len(order.len()).nulls(nulls);
        Ok(make_array(data.add_buffer(offsets).add_buffer(bytes.into()).build()?))
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (size_of::<Slot>() * self.slots.capacity() + self.bytes.capacity()) as u64
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.bytes.clear();
        self.unused = 0;
    }
}

/// Of a column of text or binary.
pub(super) struct ExtremeTexts<const GREATEST: bool> {
    pub(super) data_type: DataType,
    pub(super) found: ExtremeBytes<GREATEST>,
}

impl<const GREATEST: bool> Accumulator for ExtremeTexts<GREATEST> {
    fn resize(&mut self, groups: usize) {
        self.found.resize(groups);
    }

    fn update(&mut self, groups: &[u32], argument: Option<&ArrayRef>, _: Option<&[u64]>) -> Result<(), TableError> {
        let argument = argument.expect("values");
        let found = &mut self.found;
        match ByteRanges::of(argument.as_ref()).expect("the type was checked") {
            ByteRanges::Small(offsets, bytes) => {
                let bytes = bytes.as_slice();
                each_row(groups, argument.nulls(), |group, row| {
                    found.offer(group, &bytes[offsets[row] as usize..offsets[row + 1] as usize]);
                });
            }
            ranges => each_row(groups, argument.nulls(), |group, row| found.offer(group, ranges.get(row))),
        }
        Ok(())
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> Result<(), TableError> {
        self.update(groups, Some(&states[0]), None)
    }

    fn states(&self, order: &[u32]) -> Result<Vec<ArrayRef>, TableError> {
        Ok(vec![self.finish(order)?])
    }

    fn finish(&self, order: &[u32]) -> Result<ArrayRef, TableError> {
        self.found.column(&self.data_type, order)
    }

    fn bytes(&self) -> u64 {
        self.found.memory_bytes()
    }

    fn clear(&mut self) {
        self.found.clear();
    }
}
