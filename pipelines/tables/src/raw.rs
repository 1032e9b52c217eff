//! Arrays as bytes.

use arrow_array::{Array, cast::AsArray, downcast_primitive_array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::DataType;

/// The values of an array of a fixed width (numbers, times, intervals, decimals): so many bytes a row, whatever is under nulls.
/// `None`: it is another type.
pub(crate) fn fixed_values(array: &dyn Array) -> Option<(usize, Buffer)> {
    let width = array.data_type().primitive_width()?;
    let values = downcast_primitive_array!(array => array.values().inner().clone(), _ => return None);
    Some((width, values.slice_with_length(0, width * array.len())))
}

/// Whole numbers of an array: integers, dates, times, durations, or the unscaled values of decimals.
#[derive(Clone, Debug)]
pub(crate) struct WholeNumbers {
    width: usize,
    is_signed: bool,
    bytes: Buffer,
}

impl WholeNumbers {
    /// `None`: they are something else.
    pub(crate) fn of(array: &dyn Array) -> Option<Self> {
        let is_whole = match array.data_type() {
            DataType::Interval(_) => false,
            other => !other.is_floating(),
        };
        let (width, bytes) = fixed_values(array).filter(|_| is_whole)?;
        Some(Self { width, is_signed: !array.data_type().is_unsigned_integer(), bytes })
    }

    /// Bytes of each.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// One of up to 128 bits; of wider ones the lowest 128.
    #[inline]
    pub(crate) fn narrow(&self, row: usize) -> i128 {
        let bytes = &self.bytes.as_slice()[row * self.width..(row + 1) * self.width];
        let signed = self.is_signed;
        match *bytes {
            [one] if signed => i128::from(one as i8),
            [one] => i128::from(one),
            [a, b] if signed => i128::from(i16::from_le_bytes([a, b])),
            [a, b] => i128::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] if signed => i128::from(i32::from_le_bytes([a, b, c, d])),
            [a, b, c, d] => i128::from(u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] if signed => i128::from(i64::from_le_bytes([a, b, c, d, e, f, g, h])),
            [a, b, c, d, e, f, g, h] => i128::from(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            _ => i128::from_le_bytes(*bytes.first_chunk().expect("16 bytes or 32")),
        }
    }

    /// One of any width.
    #[inline]
    pub(crate) fn wide(&self, row: usize) -> i256 {
        match self.width {
            32 => {
                let bytes = &self.bytes.as_slice()[row * 32..(row + 1) * 32];
                i256::from_le_bytes(bytes.try_into().expect("32 bytes"))
            }
            _ => i256::from_i128(self.narrow(row)),
        }
    }
}

/// A view of no more bytes has these in itself.
const INLINE_MAX: usize = 12;

/// Whether one of the bytes is zero.
fn has_zero(bytes: &[u8]) -> bool {
    // Some at a time without an end in between, so that it is done many bytes at once.
    bytes.chunks(4096).any(|some| some.iter().fold(false, |has, byte| has | (*byte == 0)))
}

/// Whether one of the 16 bytes of a number is zero: to take one from each sets the highest bit of a byte that was zero, and those whose highest bit was set before are left out. What is borrowed may set that of a byte
/// above one that is zero, and of none where there is no zero (Warren, "Hacker's Delight", section 6-1).
#[inline]
fn has_zero_byte(bytes: u128) -> bool {
    const ONES: u128 = u128::MAX / 255;
    bytes.wrapping_sub(ONES) & !bytes & (ONES << 7) != 0
}

/// Where the bytes of each row of a column of bytes or text are.
#[derive(Clone, Debug)]
pub(crate) enum ByteRanges {
    Small(OffsetBuffer<i32>, Buffer),
    Large(OffsetBuffer<i64>, Buffer),
    View(ScalarBuffer<u128>, Vec<Buffer>),
    Fixed(usize, Buffer),
}

impl ByteRanges {
    /// Of binary and text of any layout, `FixedSizeBinary` too; `None`: it is another type.
    pub(crate) fn of(array: &dyn Array) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Utf8 => {
                let array = array.as_string::<i32>();
                Self::Small(array.offsets().clone(), array.values().clone())
            }
            DataType::Binary => {
                let array = array.as_binary::<i32>();
                Self::Small(array.offsets().clone(), array.values().clone())
            }
            DataType::LargeUtf8 => {
                let array = array.as_string::<i64>();
                Self::Large(array.offsets().clone(), array.values().clone())
            }
            DataType::LargeBinary => {
                let array = array.as_binary::<i64>();
                Self::Large(array.offsets().clone(), array.values().clone())
            }
            DataType::Utf8View => {
                let array = array.as_string_view();
                Self::View(array.views().clone(), array.data_buffers().to_vec())
            }
            DataType::BinaryView => {
                let array = array.as_binary_view();
                Self::View(array.views().clone(), array.data_buffers().to_vec())
            }
            DataType::FixedSizeBinary(width) => {
                let width = *width as usize;
                Self::Fixed(width, array.as_fixed_size_binary().values().slice_with_length(0, width * array.len()))
            }
            _ => return None,
        })
    }

    /// The bytes of a row, whatever is under nulls.
    #[inline(always)]
    pub(crate) fn get(&self, row: usize) -> &[u8] {
        match self {
            Self::Small(offsets, values) => &values.as_slice()[offsets[row] as usize..offsets[row + 1] as usize],
            Self::Large(offsets, values) => &values.as_slice()[offsets[row] as usize..offsets[row + 1] as usize],
            Self::View(views, buffers) => {
                let (views, len) = (views.inner().as_slice(), views[row] as u32 as usize);
                match len {
                    0..=INLINE_MAX => &views[row * 16 + 4..row * 16 + 4 + len],
                    _ => {
                        let view = u128::from_le_bytes(views[row * 16..row * 16 + 16].try_into().expect("16 bytes"));
                        let (buffer, from) = ((view >> 64) as u32 as usize, (view >> 96) as usize);
                        &buffers[buffer].as_slice()[from..from + len]
                    }
                }
            }
            Self::Fixed(width, values) => &values.as_slice()[row * width..(row + 1) * width],
        }
    }
}

impl ByteRanges {
    /// Whether a byte of some row is zero, whatever is under nulls.
    pub(crate) fn have_zeros(&self) -> bool {
        match self {
            Self::Small(offsets, values) => {
                has_zero(&values.as_slice()[offsets[0] as usize..offsets[offsets.len() - 1] as usize])
            }
            Self::Large(offsets, values) => {
                has_zero(&values.as_slice()[offsets[0] as usize..offsets[offsets.len() - 1] as usize])
            }
            Self::View(views, _) => {
                (0..).zip(views.iter()).any(|(row, view)| match *view as u32 as usize {
                    // Zeros behind the bytes of a short one are none of its own.
                    len @ 0..=INLINE_MAX => has_zero_byte(view >> 32 | u128::MAX << (8 * len)),
                    _ => has_zero(self.get(row)),
                })
            }
            Self::Fixed(_, values) => has_zero(values.as_slice()),
        }
    }

    /// Adds how many bytes each row has, and so many more; what does not fit stays at the most that does.
    pub(crate) fn add_lengths(&self, more: u32, lengths: &mut [u32]) {
        let add = |(length, bytes): (&mut u32, u64)| {
            let bytes = u32::try_from(bytes + u64::from(more)).unwrap_or(u32::MAX);
            *length = length.saturating_add(bytes);
        };
        match self {
            Self::Small(offsets, _) => {
                let bytes = offsets.windows(2).map(|ends| (ends[1] - ends[0]) as u64);
                lengths.iter_mut().zip(bytes).for_each(add);
            }
            Self::View(views, _) => {
                let bytes = views.iter().map(|view| u64::from(*view as u32));
                lengths.iter_mut().zip(bytes).for_each(add);
            }
            Self::Large(..) | Self::Fixed(..) => {
                (0..).zip(lengths).for_each(|(row, length)| add((length, self.bytes_of(row) as u64)));
            }
        }
    }

    /// Where it is said what bytes a row has, to be asked for before they are.
    #[inline(always)]
    pub(crate) fn said_at(&self, row: usize) -> &[u8] {
        match self {
            Self::Small(offsets, _) => &offsets.inner().inner().as_slice()[row * 4..row * 4 + 4],
            Self::Large(offsets, _) => &offsets.inner().inner().as_slice()[row * 8..row * 8 + 8],
            Self::View(views, _) => &views.inner().as_slice()[row * 16..row * 16 + 16],
            Self::Fixed(..) => &[],
        }
    }

    /// How many bytes a row has.
    #[inline(always)]
    pub(crate) fn bytes_of(&self, row: usize) -> usize {
        match self {
            Self::Small(offsets, _) => (offsets[row + 1] - offsets[row]) as usize,
            Self::Large(offsets, _) => (offsets[row + 1] - offsets[row]) as usize,
            Self::View(views, _) => views[row] as u32 as usize,
            Self::Fixed(width, _) => *width,
        }
    }
}

/// Where the elements of each row of a column of lists are in its child.
#[derive(Clone, Debug)]
pub(crate) enum ElementRanges {
    Small(OffsetBuffer<i32>),
    Large(OffsetBuffer<i64>),
    SmallView(ScalarBuffer<i32>, ScalarBuffer<i32>),
    LargeView(ScalarBuffer<i64>, ScalarBuffer<i64>),
    Fixed(usize),
}

impl ElementRanges {
    /// Of lists and maps of any layout, and their child; `None`: it is another type.
    pub(crate) fn of(array: &dyn Array) -> Option<(Self, arrow_array::ArrayRef)> {
        Some(match array.data_type() {
            DataType::List(_) => {
                let array = array.as_list::<i32>();
                (Self::Small(array.offsets().clone()), array.values().clone())
            }
            DataType::LargeList(_) => {
                let array = array.as_list::<i64>();
                (Self::Large(array.offsets().clone()), array.values().clone())
            }
            DataType::ListView(_) => {
                let array = array.as_list_view::<i32>();
                (Self::SmallView(array.offsets().clone(), array.sizes().clone()), array.values().clone())
            }
            DataType::LargeListView(_) => {
                let array = array.as_list_view::<i64>();
                (Self::LargeView(array.offsets().clone(), array.sizes().clone()), array.values().clone())
            }
            DataType::FixedSizeList(_, size) => {
                (Self::Fixed(*size as usize), array.as_fixed_size_list().values().clone())
            }
            DataType::Map(_, _) => {
                let array = array.as_map();
                (Self::Small(array.offsets().clone()), std::sync::Arc::new(array.entries().clone()))
            }
            _ => return None,
        })
    }

    /// First element and number of elements of a row, whatever is under nulls.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> (usize, usize) {
        match self {
            Self::Small(offsets) => (offsets[row] as usize, (offsets[row + 1] - offsets[row]) as usize),
            Self::Large(offsets) => (offsets[row] as usize, (offsets[row + 1] - offsets[row]) as usize),
            Self::SmallView(offsets, sizes) => (offsets[row] as usize, sizes[row] as usize),
            Self::LargeView(offsets, sizes) => (offsets[row] as usize, sizes[row] as usize),
            Self::Fixed(size) => (row * size, *size),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, FixedSizeBinaryArray, LargeStringArray, StringArray, StringViewArray};

    use super::*;

    #[test]
    fn zeros_and_lengths_of_text_are_those_of_its_bytes_whatever_its_layout() {
        for len in 0..40 {
            for zero in std::iter::once(None).chain((0..len).map(Some)) {
                let text: String = (0..len).map(|at| if Some(at) == zero { '\0' } else { 'x' }).collect();
                let rows = ["", "short", &text, "a text of more than a dozen bytes"];
                let fixed = FixedSizeBinaryArray::try_from_iter([text.as_bytes(); 4].into_iter()).unwrap();
                let arrays: [ArrayRef; 4] = [
                    Arc::new(StringArray::from(rows.to_vec())),
                    Arc::new(LargeStringArray::from(rows.to_vec())),
                    Arc::new(StringViewArray::from(rows.to_vec())),
                    Arc::new(fixed),
                ];
                for array in arrays {
                    let of_rows = ByteRanges::of(array.slice(1, 3).as_ref()).unwrap();
                    assert_eq!(of_rows.have_zeros(), zero.is_some(), "{len}, {zero:?}, {}", array.data_type());
                    let mut lengths = [0, 7, u32::MAX - 1];
                    of_rows.add_lengths(3, &mut lengths);
                    let wanted = [0, 1].map(|row| [0, 7][row] + 3 + of_rows.get(row).len() as u32);
                    assert_eq!(lengths, [wanted[0], wanted[1], u32::MAX], "{}", array.data_type());
                }
            }
        }
    }
}
