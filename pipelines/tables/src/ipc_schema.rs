//! Schemas of Arrow's IPC format, checked before the library makes one: it takes for granted that types make sense, and asserts it.

use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::{DateUnit, Endianness, Field, IntervalUnit, Precision, TimeUnit, Type, root_as_message_with_opts};
use arrow_schema::Schema;
use flatbuffers::VerifierOptions;

use crate::guard::guarded;

/// How flatbuffers are verified: what they say is no longer than a few times their bytes, since one place may be said to be many things.
pub(crate) fn verifier(bytes: usize) -> VerifierOptions {
    VerifierOptions { max_apparent_size: 4 * bytes + (64 << 10), ..VerifierOptions::default() }
}

/// Most bytes of memory of a schema that is made of so many.
pub(crate) fn made_bytes(bytes: u64) -> u64 {
    40 * bytes + (64 << 10)
}

/// What is wrong, without where in the tables of the library it was noticed, which is lines more.
pub(crate) fn one_line(error: flatbuffers::InvalidFlatbuffer) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// The schema in the header of a message, which may have a marker and its length before it.
pub(crate) fn of_message(bytes: &[u8]) -> Result<Schema, String> {
    let header = match bytes {
        [0xff, 0xff, 0xff, 0xff, _, _, _, _, header @ ..] => header,
        header => header,
    };
    let message = root_as_message_with_opts(&verifier(header.len()), header).map_err(one_line)?;
    made(message.header_as_schema().ok_or("a message that is no schema")?)
}

/// The schema that was written.
pub(crate) fn made(schema: arrow_ipc::Schema<'_>) -> Result<Schema, String> {
    if schema.endianness() != Endianness::Little {
        return Err("numbers that are big-endian, which this release does not read".to_owned());
    }
    let fields = schema.fields().ok_or("a schema without a list of columns")?;
    fields.iter().try_for_each(|field| check(&field))?;
    // What was checked above is all that the library of today asserts.
    guarded(|| Ok::<_, String>(fb_to_schema(schema)))
}

fn check(field: &Field<'_>) -> Result<(), String> {
    let is_int = |bits: i32| matches!(bits, 8 | 16 | 32 | 64);
    let is_unit = |unit: TimeUnit| (TimeUnit::SECOND..=TimeUnit::NANOSECOND).contains(&unit);
    let children = field.children();
    let count = children.map_or(0, |children| children.len());
    let is_known = match field.type_type() {
        Type::Null | Type::Bool | Type::Binary | Type::BinaryView | Type::LargeBinary => true,
        Type::Utf8 | Type::Utf8View | Type::LargeUtf8 | Type::Struct_ => true,
        Type::List | Type::LargeList | Type::ListView | Type::LargeListView => count == 1,
        Type::FixedSizeList => count == 1 && field.type_as_fixed_size_list().is_some_and(|of| of.listSize() >= 0),
        Type::FixedSizeBinary => field.type_as_fixed_size_binary().is_some_and(|of| of.byteWidth() >= 0),
        Type::RunEndEncoded => count == 2 && children.is_some_and(|of| is_run_ends(&of.get(0))),
        Type::Map => count == 1 && field.type_as_map().is_some() && children.is_some_and(|of| is_entries(&of.get(0))),
        Type::Int => field.type_as_int().is_some_and(|of| is_int(of.bitWidth())),
        Type::FloatingPoint => field
            .type_as_floating_point()
            .is_some_and(|of| (Precision::HALF..=Precision::DOUBLE).contains(&of.precision())),
        Type::Date => field.type_as_date().is_some_and(|of| matches!(of.unit(), DateUnit::DAY | DateUnit::MILLISECOND)),
        Type::Time => field.type_as_time().is_some_and(|of| {
            let is_short = matches!(of.unit(), TimeUnit::SECOND | TimeUnit::MILLISECOND);
            is_unit(of.unit()) && of.bitWidth() == if is_short { 32 } else { 64 }
        }),
        Type::Timestamp => field.type_as_timestamp().is_some_and(|of| is_unit(of.unit())),
        Type::Duration => field.type_as_duration().is_some_and(|of| is_unit(of.unit())),
        Type::Interval => field
            .type_as_interval()
            .is_some_and(|of| (IntervalUnit::YEAR_MONTH..=IntervalUnit::MONTH_DAY_NANO).contains(&of.unit())),
        Type::Decimal => field.type_as_decimal().is_some_and(|of| {
            let digits = match of.bitWidth() {
                32 => 9,
                64 => 18,
                128 => 38,
                256 => 76,
                _ => 0,
            };
            (1..=digits).contains(&of.precision()) && (-digits..=of.precision()).contains(&of.scale())
        }),
        // Tables have none.
        _ => false,
    };
    let is_index = |index: arrow_ipc::Int<'_>| is_int(index.bitWidth());
    let index_is_known = field.dictionary().is_none_or(|of| of.indexType().is_some_and(is_index));
    if !is_known || !index_is_known {
        let name = field.name().unwrap_or_default();
        return Err(format!("column {name} of a type that tables do not have ({:?})", field.type_type()));
    }
    children.into_iter().flatten().try_for_each(|child| check(&child))
}

fn is_run_ends(field: &Field<'_>) -> bool {
    field.dictionary().is_none()
        && field.type_as_int().is_some_and(|of| of.is_signed() && matches!(of.bitWidth(), 16 | 32 | 64))
}

fn is_entries(field: &Field<'_>) -> bool {
    field.type_type() == Type::Struct_ && field.children().is_some_and(|children| children.len() == 2)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_ipc::convert::IpcSchemaEncoder;
    use arrow_ipc::writer::DictionaryTracker;
    use arrow_schema::Field;
    use proptest::prelude::*;

    use super::*;
    use crate::samples::{Seeded, data_type};

    fn written(schema: &Schema) -> Vec<u8> {
        let mut tracker = DictionaryTracker::new(true);
        let mut encoder = IpcSchemaEncoder::new().with_dictionary_tracker(&mut tracker);
        let mut builder = encoder.schema_to_fb(schema);
        let _ = &mut builder;
        builder.finished_data().to_vec()
    }

    fn sample(seed: u64) -> Schema {
        let mut seeded = Seeded(seed);
        // A dictionary of a dictionary has no place in the format.
        let types = std::iter::repeat_with(|| data_type(&mut seeded, 2));
        let types = types.filter(|of| !format!("{of:?}").contains(", Dictionary("));
        let fields: Vec<_> = types.take(3).map(|of| Field::new("c", of, true)).collect();
        Schema::new(fields)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn schemas_are_read_and_damaged_ones_are_errors_without_a_panic(seed in any::<u64>(), flips in 0..5_usize) {
            let schema = sample(seed);
            let mut bytes = written(&schema);
            let mut seeded = Seeded(!seed);
            for _ in 0..flips {
                let at = seeded.below(bytes.len());
                bytes[at] ^= 1 << seeded.below(8);
            }
            let options = verifier(bytes.len());
            let read = flatbuffers::root_with_opts::<arrow_ipc::Schema<'_>>(&options, &bytes);
            let read = read.map_err(|error| error.to_string()).and_then(made);
            match read {
                Ok(read) if flips == 0 => prop_assert_eq!(read, schema),
                Err(what) => prop_assert!(flips > 0 && !what.contains("gave up"), "{}", what),
                Ok(_) => (),
            }
        }
    }

    #[test]
    fn a_message_may_have_its_length_before_it() {
        let schema = Schema::new(vec![Field::new("a", arrow_schema::DataType::Int64, true)]);
        let layout = crate::block::Layout::new(&Arc::new(schema.clone())).unwrap();
        let message = layout.schema_message();
        assert_eq!(of_message(&message).unwrap(), schema);
        assert_eq!(of_message(&message[8..]).unwrap(), schema);
        assert!(of_message(&message[..40]).is_err());
    }
}
