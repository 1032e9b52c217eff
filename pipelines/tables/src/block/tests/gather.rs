//! Taking rows: in the place of others, from where there are none, and how often they are measured.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_array::*;
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Fields, Schema};
use proptest::prelude::*;

use super::super::gather::MEASURED;
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_batch_in_the_place_of_another_gives_the_rows_of_a_gather_that_had_it_at_first(seed in any::<u64>()) {
        let mut seeded = Seeded(seed);
        let types: Vec<_> = (0..1 + seeded.below(4)).map(|_| samples::data_type(&mut seeded, 2)).collect();
        let mut batch = || {
            let batch = samples::batch_of(&mut seeded, &types, 9);
            // In its encodings or without them: columns of one gather differ in how many dictionaries lie around them.
            if seeded.below(2) == 0 { batch } else { samples::plain(&batch) }
        };
        let mut batches = [batch(), batch(), batch()];
        let layout = Arc::new(Layout::new(&batches[0].schema()).unwrap());
        let mut gather = Gather::new(layout.clone(), &batches).unwrap();
        let picks: Vec<_> = (0..9).flat_map(|row| (0..3).map(move |batch| Pick { batch, row })).collect();
        for number in [1, 0, 1, 2] {
            batches[number as usize] = batch();
            gather.replace(number, &batches[number as usize]).unwrap();
            let fresh = Gather::new(layout.clone(), &batches).unwrap();
            let limits = Limits::default();
            prop_assert!(written(&gather, &picks, &limits).1 == written(&fresh, &picks, &limits).1, "{types:?}");
        }
    }
}

/// How many messages there are, or the panic.
fn cut(gather: &Gather, picks: &[Pick]) -> std::thread::Result<usize> {
    std::panic::catch_unwind(AssertUnwindSafe(|| gather.messages(picks, &Limits::default()).unwrap().len()))
}

#[test]
fn a_batch_that_was_replaced_gives_up_its_memory_and_its_rows() {
    let batch = |rows: i64| {
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from_iter_values(0..rows)) as ArrayRef)]).unwrap()
    };
    let large = batch(1000);
    let layout = Arc::new(Layout::new(&large.schema()).unwrap());
    let mut gather = Gather::new(layout.clone(), &[large.clone(), batch(1)]).unwrap();
    let memory = large.column(0).to_data().buffers()[0].clone();
    let owners = memory.strong_count();
    gather.replace(0, &RecordBatch::new_empty(large.schema())).unwrap();
    assert!(memory.strong_count() < owners, "the gather keeps it");
    let picks = [Pick { batch: 0, row: 0 }];
    assert!(cut(&gather, &picks).is_err(), "rows that are not there any more");
    let text = RecordBatch::try_from_iter([("n", Arc::new(StringArray::from(vec!["a"])) as ArrayRef)]).unwrap();
    let error = gather.replace(1, &text).unwrap_err();
    assert!(matches!(error, TableError::TypeDiffers { .. }), "{error}");
    assert_eq!(gather.messages(&[Pick { batch: 1, row: 0 }], &Limits::default()).unwrap().len(), 1);
}

#[test]
fn rows_that_no_batch_has_are_refused_even_where_they_have_no_bytes() {
    let batch = RecordBatch::try_from_iter([("n", Arc::new(NullArray::new(3)) as ArrayRef)]).unwrap();
    let gather = Gather::new(Arc::new(Layout::new(&batch.schema()).unwrap()), &[batch]).unwrap();
    let count = |batch, row| cut(&gather, &[Pick { batch, row }]);
    assert_eq!(count(0, 2).unwrap(), 1);
    for (batch, row) in [(0, 3), (1, 0)] {
        let text = *count(batch, row).unwrap_err().downcast::<String>().unwrap();
        assert_eq!(text, format!("there is no row {row} of batch {batch}"));
    }
}

#[test]
fn a_row_of_more_elements_than_can_be_counted_is_refused_in_words() {
    let elements = crate::ELEMENTS_MAX as usize + 1;
    let field = Arc::new(Field::new("item", DataType::Null, true));
    let offsets = OffsetBuffer::new(vec![0, elements as i32].into());
    let lists: ArrayRef = Arc::new(ListArray::new(field, offsets, Arc::new(NullArray::new(elements)), None));
    let batch = RecordBatch::try_from_iter([("l", lists)]).unwrap();
    let gather = Gather::new(Arc::new(Layout::new(&batch.schema()).unwrap()), &[batch]).unwrap();
    let error = gather.messages(&[Pick { batch: 0, row: 0 }], &Limits::default()).unwrap_err();
    let expected = "row 0 of batch 0 takes more than can be gathered; a row may take 2147483647 bytes";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn what_is_noted_of_elements_is_bounded_by_the_messages() {
    // Elements of a bit in the message, each looked up in a dictionary: 16 bytes on the way.
    let elements = 1_000_000;
    let mut seeded = Seeded(6);
    let keys = Int8Array::from_iter_values((0..3 * elements).map(|_| seeded.below(2) as i8));
    let bits: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(BooleanArray::from(vec![false, true]))));
    let field = Arc::new(Field::new("item", bits.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths([elements as usize; 3]);
    let lists: ArrayRef = Arc::new(ListArray::new(field, offsets, bits, None));
    let batch = RecordBatch::try_from_iter([("c", lists)]).unwrap();
    let gather = Gather::new(Arc::new(Layout::new(&batch.schema()).unwrap()), &[batch]).unwrap();
    let picks = [0, 1, 2].map(|row| Pick { batch: 0, row });
    let limits = |bytes_max, row_bytes_max| Limits { bytes_max, row_bytes_max, ..Limits::default() };
    assert_eq!(gather.messages(&picks, &limits(16 << 20, 16 << 20)).unwrap().len(), 1, "48 MB");
    let messages = gather.messages(&picks, &limits(1 << 20, 16 << 20)).unwrap();
    assert!(messages.iter().map(Message::rows).eq([0..1, 1..2, 2..3]), "{messages:?}");
    let error = gather.messages(&picks, &limits(1 << 20, 1 << 20)).unwrap_err();
    assert!(matches!(error, TableError::RowTooLarge { row: 0, bytes: u64::MAX, .. }), "{error}");
}

/// How often a row is measured on average until all rows of the batch are cut into messages.
fn measured(column: ArrayRef) -> usize {
    let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
    let rows = batch.num_rows();
    let gather = Gather::new(Arc::new(Layout::new(&batch.schema()).unwrap()), &[batch]).unwrap();
    let picks: Vec<_> = (0..rows as u32).map(|row| Pick { batch: 0, row }).collect();
    MEASURED.with(|measured| measured.set(0));
    gather.messages(&picks, &Limits { bytes_max: 1 << 20, ..Limits::default() }).unwrap();
    MEASURED.with(std::cell::Cell::get).div_ceil(rows)
}

#[test]
fn rows_are_measured_a_few_times_whatever_their_sizes() {
    let texts = |bytes: fn(usize) -> usize, rows| -> ArrayRef {
        Arc::new(StringArray::from_iter_values((0..rows).map(|row| "x".repeat(bytes(row)))))
    };
    assert!(measured(texts(|_| 100, 200_000)) <= 3, "of one size");
    // A message holds so few of them that the first guess is too many.
    assert!(measured(texts(|_| 20_000, 1000)) <= 3, "large ones");
    let one_in_ten = measured(texts(|row| if row % 10 == 9 { 2 << 20 } else { 1000 }, 200));
    assert!(one_in_ten <= 20, "large ones among small ones: {one_in_ten}");
    let lists = ListArray::from_iter_primitive::<arrow_array::types::Int8Type, _, _>(
        (0..3000).map(|_| Some((0..1000).map(|at| Some(at as i8)))),
    );
    assert!(measured(Arc::new(lists)) <= 3, "lists");
}

#[test]
fn schemas_as_deep_and_as_wide_as_tables_may_be_are_read_again() {
    let deep = |levels: usize| {
        let of = (1..levels).fold(DataType::Int8, |of, level| match level % 3 {
            0 => DataType::new_list(of, true),
            1 => DataType::Struct(vec![Field::new("f", of, true)].into()),
            _ => {
                let key = Field::new("keys", DataType::Utf8, false);
                let entries = DataType::Struct(vec![key, Field::new("values", of, true)].into());
                DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
            }
        });
        Schema::new(vec![Field::new("c", of, true)])
    };
    let wide = |columns: usize| {
        let fields: Fields = (0..columns).map(|at| Field::new(at.to_string(), DataType::Utf8, true)).collect();
        Schema::new(fields)
    };
    // A map is two levels.
    let mut deepest = 0;
    for levels in 1..20 {
        match Layout::new(&deep(levels)) {
            Ok(layout) => {
                let decoded = Layout::decode(&layout.encode()).unwrap();
                assert_eq!(decoded.schema(), layout.schema(), "{levels} levels");
                deepest = levels;
            }
            Err(error) => assert!(error.to_string().contains("16 deep at most"), "{error}"),
        }
    }
    assert_eq!(deepest, 12, "four of these are maps");
    let layout = Layout::new(&wide(100_000)).unwrap();
    assert_eq!(Layout::decode(&layout.encode()).unwrap().schema().fields().len(), 100_000);
    let error = Layout::new(&wide(100_001)).unwrap_err();
    assert!(error.to_string().contains("100 000 columns at most"), "{error}");
}
