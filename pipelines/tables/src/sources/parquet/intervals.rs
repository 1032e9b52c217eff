//! Intervals: Parquet has months, days and milliseconds of each, and Arrow's types have either the months or the others.

use std::ops::Range;

use arrow_schema::{DataType, IntervalUnit};
use parquet::basic::{ConvertedType, Encoding};
use parquet::schema::types::ColumnDescPtr;

/// Bytes of an interval: three numbers of four bytes.
const BYTES: usize = 12;
const MONTHS: Range<usize> = 0..4;
const DAYS_AND_MILLISECONDS: Range<usize> = 4..BYTES;

/// Of which intervals a leaf is decoded to, if it has such. `root`: the type of the column that it is in, as its leaf of this number.
pub(super) fn unit_of(descriptor: &ColumnDescPtr, root: &DataType, leaf: usize) -> Option<IntervalUnit> {
    if descriptor.converted_type() != ConvertedType::INTERVAL {
        return None;
    }
    let mut leaves = Vec::new();
    add_leaves(root, &mut leaves);
    match leaves.get(leaf) {
        Some(DataType::Interval(unit)) => Some(*unit),
        _ => None,
    }
}

fn add_leaves<'a>(of: &'a DataType, leaves: &mut Vec<&'a DataType>) {
    match of {
        DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _) | DataType::Map(of, _) => {
            add_leaves(of.data_type(), leaves);
        }
        DataType::Struct(fields) => fields.iter().for_each(|field| add_leaves(field.data_type(), leaves)),
        flat => leaves.push(flat),
    }
}

/// Refuses intervals of which the decoder would drop something: it passes over what the type does not have.
pub(super) fn check(unit: IntervalUnit, encoding: Encoding, values: &[u8]) -> Result<(), &'static str> {
    let dropped = match unit {
        IntervalUnit::YearMonth => DAYS_AND_MILLISECONDS,
        IntervalUnit::DayTime | IntervalUnit::MonthDayNano => MONTHS,
    };
    let count = values.len() / BYTES;
    let is_kept = match encoding {
        Encoding::PLAIN => values.chunks_exact(BYTES).all(|value| value[dropped.clone()].iter().all(|byte| *byte == 0)),
        // Bytes of the same place of all values lie beside each other.
        Encoding::BYTE_STREAM_SPLIT => values[dropped.start * count..dropped.end * count].iter().all(|byte| *byte == 0),
        // Its dictionary was looked at.
        Encoding::RLE_DICTIONARY => true,
        #[allow(deprecated, reason = "what old files call it")]
        Encoding::PLAIN_DICTIONARY => true,
        _ => return Err("it has intervals in an encoding that this release does not read: write them as plain values"),
    };
    match is_kept {
        true => Ok(()),
        false => Err(
            "it has an interval of months with days or milliseconds, or of both kinds in one column, which Arrow has no one type for: \
             make it text, or a column of months and one of the rest",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_an_interval_is_dropped() {
        let value =
            |months: u32, days: u32, milliseconds: u32| [months, days, milliseconds].map(u32::to_le_bytes).concat();
        let days = [value(0, 2, 5), value(0, 0, 0)].concat();
        let months = [value(0, 0, 0), value(7, 0, 0)].concat();
        let both = [value(0, 2, 5), value(7, 0, 0)].concat();
        let split = |values: &[u8]| -> Vec<u8> {
            (0..BYTES).flat_map(|at| values.chunks_exact(BYTES).map(move |value| value[at])).collect()
        };
        for (unit, kept, dropped) in
            [(IntervalUnit::DayTime, &days, [&months, &both]), (IntervalUnit::YearMonth, &months, [&days, &both])]
        {
            assert_eq!(check(unit, Encoding::PLAIN, kept), Ok(()));
            assert_eq!(check(unit, Encoding::BYTE_STREAM_SPLIT, &split(kept)), Ok(()));
            for dropped in dropped {
                assert!(check(unit, Encoding::PLAIN, dropped).is_err());
                assert!(check(unit, Encoding::BYTE_STREAM_SPLIT, &split(dropped)).is_err());
            }
            assert!(check(unit, Encoding::DELTA_BYTE_ARRAY, kept).is_err());
        }
    }
}
