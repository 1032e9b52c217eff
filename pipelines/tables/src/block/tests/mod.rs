use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::*;
use arrow_buffer::{Buffer, i256};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{DataType, Field, Schema};
use exobus_store::{Align, CopyId, Parts, RealDisk, RowHash, Store, StoreOptions, SystemClock, WriterOptions};
use proptest::prelude::*;

use super::layout::VERSION;
use super::*;
use crate::samples::{self, Seeded};
use crate::{RowHasher, TableError};

mod gather;

/// What is in the stored sample.
fn sampled() -> RecordBatch {
    let mut lists = ListBuilder::new(Int64Builder::new());
    lists.append_value([Some(1), None]);
    lists.append_null();
    lists.append_value([]);
    let columns: [(&str, ArrayRef); 3] = [
        ("number", Arc::new(Int64Array::from(vec![Some(-1), None, Some(i64::MAX)]))),
        ("text", Arc::new(StringArray::from(vec![Some("grüße"), Some(""), None]))),
        ("list", Arc::new(lists.finish())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

#[test]
fn blocks_of_version_1_are_read_and_written() {
    let sample = include_bytes!("../../../tests/samples/block-1.bin");
    let layout = Arc::new(Layout::new(&sampled().schema()).unwrap());
    let (schema, part) = sample.split_at(layout.encode().len());
    let read = Arc::new(Layout::decode(schema).unwrap());
    assert_eq!(read.schema(), layout.schema());
    let batches: Vec<_> = Part::of_bytes(read, Buffer::from(part)).map(Result::unwrap).collect();
    assert_eq!(batches, [sampled()]);
    let picks = [0, 1, 2].map(|row| Pick { batch: 0, row });
    let gather = Gather::new(layout.clone(), &[sampled()]).unwrap();
    let (_, written) = written(&gather, &picks, &Limits::default());
    assert!(written == part, "what version 1 is has changed");
}

/// All messages of these rows, one behind the other, in memory that was not zero before.
fn written<'a>(gather: &'a Gather, picks: &'a [Pick], limits: &Limits) -> (Vec<Message<'a>>, Vec<u8>) {
    let messages = gather.messages(picks, limits).unwrap();
    let mut bytes = Vec::new();
    for message in &messages {
        let from = bytes.len();
        bytes.resize(from + message.bytes() as usize, 0xee);
        message.write(&mut bytes[from..]);
    }
    (messages, bytes)
}

/// The rows as the library reads them, with all its checks, from a stream of the schema and these messages.
fn by_library(layout: &Layout, bytes: &[u8]) -> Vec<RecordBatch> {
    let stream = [&layout.schema_message(), bytes].concat();
    let batches: Vec<_> = StreamReader::try_new(&stream[..], None).unwrap().map(Result::unwrap).collect();
    for batch in &batches {
        batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
    }
    batches
}

/// Takes random rows of these batches, with repetitions, and compares what the library reads, and what `Part` does, with the values.
fn check(seeded: &mut Seeded, batches: &[RecordBatch], limits: &Limits) {
    let layout = Arc::new(Layout::new(&batches[0].schema()).unwrap());
    let gather = Gather::new(layout.clone(), batches).unwrap();
    let rows: Vec<Pick> = (0..)
        .zip(batches)
        .flat_map(|(batch, of)| (0..of.num_rows() as u32).map(move |row| Pick { batch, row }))
        .collect();
    let picks: Vec<Pick> = match seeded.below(3) {
        0 => rows,
        _ if rows.is_empty() => rows,
        _ => (0..seeded.below(2 * rows.len())).map(|_| seeded.pick(&rows)).collect(),
    };
    let (messages, bytes) = written(&gather, &picks, limits);
    let expected: Vec<_> =
        picks.iter().map(|pick| samples::row(&batches[pick.batch as usize], pick.row as usize)).collect();
    let read: Vec<_> = Part::of_bytes(layout.clone(), Buffer::from(bytes.clone())).map(Result::unwrap).collect();
    for (who, batches) in [("library", by_library(&layout, &bytes)), ("part", read)] {
        let found: Vec<_> =
            batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| samples::row(batch, row))).collect();
        assert_eq!(found, expected, "{who}: {:?}", batches.first().map(|batch| batch.schema()));
        assert_eq!(batches.len(), messages.len());
        assert!(batches.iter().all(|batch| batch.schema() == *layout.schema()));
    }
    let made: Vec<_> = messages.iter().map(|message| message.batch().unwrap()).collect();
    let hasher = RowHasher::new(layout.schema()).unwrap();
    let hash = made.iter().map(|batch| hasher.sum(batch).unwrap()).sum::<RowHash>();
    assert_eq!(gather.row_hash(&hasher, &picks).unwrap(), hash, "rows where they lie");
    let made: Vec<_> = made.iter().flat_map(|of| (0..of.num_rows()).map(|row| samples::row(of, row))).collect();
    assert_eq!(made, expected, "batches of messages");
    let mut next = 0;
    for message in &messages {
        assert_eq!(message.rows().start, next);
        next = message.rows().end;
        assert!(message.bytes().is_multiple_of(64));
        assert!(message.rows().len() <= limits.rows_max);
        assert!(message.bytes() <= limits.bytes_max || message.rows().len() == 1, "{message:?}");
    }
    assert_eq!(next, picks.len());
    // Bytes follow from rows alone: the plain rows in one batch give the same message.
    if let ([message], false) = (&messages[..], picks.is_empty()) {
        let plain = by_library(&layout, &bytes);
        let again = Gather::new(layout.clone(), &plain).unwrap();
        let picks: Vec<_> = (0..message.rows().len() as u32).map(|row| Pick { batch: 0, row }).collect();
        assert!(written(&again, &picks, limits).1 == bytes, "other bytes for the same rows");
    }
}

#[test]
fn every_type_and_encoding_is_read_by_the_library() {
    let mut seeded = Seeded(1);
    for of in samples::flat_types() {
        let types = [
            of.clone(),
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(of.clone())),
            DataType::new_list(of.clone(), true),
            DataType::FixedSizeList(Arc::new(Field::new("item", of.clone(), true)), 2),
            DataType::Struct(vec![Field::new("a", of.clone(), true), Field::new("b", of, true)].into()),
        ];
        for rows in [0, 1, 7, 70] {
            let batches = [rows, 3].map(|rows| samples::batch_of(&mut seeded, &types, rows));
            check(&mut seeded, &batches, &Limits::default());
        }
    }
}

/// Columns that are hashed where they lie, each alone too, of more rows than are hashed at a time.
#[test]
fn rows_of_flat_columns_without_nulls_have_the_hash_of_a_batch_of_them() {
    let mut seeded = Seeded(2);
    let flat: Vec<ArrayRef> = vec![
        Arc::new(Int8Array::from_iter_values((0..900).map(|row| row as i8))),
        Arc::new(Float64Array::from_iter_values((0..900).map(|row| f64::from(row) / 7.0))),
        Arc::new(Decimal256Array::from_iter_values((0..900).map(i256::from))),
        Arc::new(FixedSizeBinaryArray::try_from_iter((0..900u32).map(|row| row.to_le_bytes()[..3].to_vec())).unwrap()),
        Arc::new(StringArray::from_iter_values((0..900).map(|row| "x".repeat(row % 200)))),
        Arc::new(StringViewArray::from_iter_values((0..900).map(|row| "y".repeat(row % 20)))),
        Arc::new(LargeBinaryArray::from_iter_values((0..900).map(|row| row.to_string()))),
    ];
    let all = flat.iter().enumerate().map(|(number, column)| (number.to_string(), column.clone()));
    let tables = [RecordBatch::try_from_iter(all).unwrap()].into_iter();
    let tables = tables.chain(flat.iter().map(|column| RecordBatch::try_from_iter([("c", column.clone())]).unwrap()));
    for table in tables {
        let batches = [table.slice(0, 100), table.slice(100, 0), table.slice(100, 800)];
        let layout = Arc::new(Layout::new(&table.schema()).unwrap());
        let gather = Gather::new(layout.clone(), &batches).unwrap();
        let pick = |_| match seeded.below(2) {
            0 => Pick { batch: 0, row: seeded.below(100) as u32 },
            _ => Pick { batch: 2, row: seeded.below(800) as u32 },
        };
        let picks: Vec<Pick> = (0..10_000).map(pick).collect();
        let hasher = RowHasher::new(layout.schema()).unwrap();
        let messages = gather.messages(&picks, &Limits::default()).unwrap();
        let expected = messages.iter().map(|message| hasher.sum(&message.batch().unwrap()).unwrap()).sum::<RowHash>();
        assert_eq!(gather.row_hash(&hasher, &picks).unwrap(), expected, "{:?}", table.schema());
        assert_ne!(gather.row_hash(&hasher, &picks[1..]).unwrap(), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn random_schemas_nested_two_deep_are_read_by_the_library(seed in any::<u64>()) {
        let mut seeded = Seeded(seed);
        let types: Vec<_> = (0..seeded.below(6)).map(|_| samples::data_type(&mut seeded, 2)).collect();
        let batches: Vec<_> = (0..1 + seeded.below(4))
            .map(|_| {
                let rows = seeded.pick(&[0, 1, 5, 40]);
                samples::batch_of(&mut seeded, &types, rows)
            })
            .collect();
        let limits = Limits { rows_max: seeded.pick(&[1, 3, 64, ROWS_MAX]), bytes_max: seeded.pick(&[1000, 5000, BYTES_MAX]), ..Limits::default() };
        check(&mut seeded, &batches, &limits);
    }
}

#[test]
fn every_type_is_read_without_validation_where_it_lies() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        memory_bytes: 64 << 20,
        spill_dirs: vec![dir.path().to_owned()],
        executors: 1,
        reserve_per_executor_bytes: 1 << 20,
        ..StoreOptions::default()
    };
    let store = Store::open(options, Arc::new(RealDisk::new()), Arc::new(SystemClock::new())).unwrap();
    let mut seeded = Seeded(11);
    let flat = samples::flat_types().into_iter().map(|of| vec![of]);
    let random: Vec<_> = (0..100).map(|_| (0..3).map(|_| samples::data_type(&mut seeded, 2)).collect()).collect();
    for (number, types) in (1u128..).zip(flat.chain(random)) {
        let batch = samples::batch_of(&mut seeded, &types, 50);
        let layout = Arc::new(Layout::new(&batch.schema()).unwrap());
        let gather = Gather::new(layout.clone(), std::slice::from_ref(&batch)).unwrap();
        let picks: Vec<_> = (0..50).map(|row| Pick { batch: 0, row: row * 7 % 50 }).collect();
        let id = CopyId::new(1, number << 32);
        let mut writer = store.writer(id, WriterOptions { align: Align::SixtyFour, ..WriterOptions::default() });
        // Two messages or more, and a part before the one that is read.
        let limits = Limits { rows_max: 30, ..Limits::default() };
        for _ in 0..2 {
            write_part(&mut writer, &gather, &picks, RowHash::default(), &limits, &mut vec![0; 1 << 20]).unwrap();
        }
        writer.seal().unwrap();
        let block = store.get(&id, Parts::All).wait().unwrap().part(1);
        // The arrays keep the part where it is, also when the object is gone.
        // SAFETY: the gather above wrote it.
        #[allow(unsafe_code, reason = "what is trusted is what is tested")]
        let part = unsafe { Part::new(layout.clone(), block.clone()) };
        let batches: Vec<_> = part.map(Result::unwrap).collect();
        let validated: Vec<_> = Part::of_block(layout, block).map(Result::unwrap).collect();
        assert_eq!(batches.len(), validated.len());
        store.delete(&[id]);
        for (batch, validated) in batches.iter().zip(&validated) {
            let rows = |of: &RecordBatch| (0..of.num_rows()).map(|row| samples::row(of, row)).collect::<Vec<_>>();
            assert_eq!(rows(batch), rows(validated));
        }
        let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| samples::row(batch, row)));
        let expected: Vec<_> = picks.iter().map(|pick| samples::row(&batch, pick.row as usize)).collect();
        assert_eq!(rows.collect::<Vec<_>>(), expected, "{types:?}");
        for column in batches.iter().chain(&validated).flat_map(RecordBatch::columns) {
            let data = column.to_data();
            data.validate_full().unwrap();
            assert_in_store(&store, &data);
        }
    }
}

/// No buffer is a copy.
fn assert_in_store(store: &Store, data: &arrow_data::ArrayData) {
    for buffer in data.buffers().iter().filter(|buffer| !buffer.is_empty()) {
        assert!(store.place_of(buffer.as_slice()).is_some(), "a copy of {}", data.data_type());
    }
    data.child_data().iter().for_each(|child| assert_in_store(store, child));
}

#[test]
fn batches_of_one_table_may_be_encoded_each_in_its_way() {
    let text = || vec![Some("a"), None, Some("longer than twelve bytes")];
    let schema = |of: &ArrayRef| Arc::new(Schema::new(vec![Field::new("t", of.data_type().clone(), true)]));
    let arrays: [ArrayRef; 3] = [
        Arc::new(StringArray::from(text())),
        Arc::new(StringViewArray::from(text())),
        Arc::new(text().into_iter().collect::<DictionaryArray<Int32Type>>()),
    ];
    let batches = arrays.map(|array| RecordBatch::try_new(schema(&array), vec![array]).unwrap());
    check(&mut Seeded(3), &batches, &Limits::default());
}

#[test]
fn a_thousand_columns_take_as_many_bytes_as_the_module_says() {
    let types = vec![DataType::Utf8; 1000];
    let mut seeded = Seeded(5);
    let batch = samples::batch_of(&mut seeded, &types, 3);
    check(&mut seeded, std::slice::from_ref(&batch), &Limits::default());
    let layout = Arc::new(Layout::new(&batch.schema()).unwrap());
    let gather = Gather::new(layout, std::slice::from_ref(&batch)).unwrap();
    let picks = [Pick { batch: 0, row: 0 }];
    let message = &gather.messages(&picks, &Limits::default()).unwrap()[0];
    assert!((120_000..260_000).contains(&message.bytes()), "{}", message.bytes());
}

#[test]
fn messages_are_filled_and_a_large_row_is_alone() {
    let text = |bytes: usize| "x".repeat(bytes);
    let rows: Vec<String> = (0..2000).map(|row| text(if row == 700 { 50_000 } else { 100 + row % 7 })).collect();
    let array: ArrayRef = Arc::new(StringArray::from(rows));
    let batch = RecordBatch::try_from_iter([("t", array)]).unwrap();
    let layout = Arc::new(Layout::new(&batch.schema()).unwrap());
    let gather = Gather::new(layout.clone(), &[batch]).unwrap();
    let picks: Vec<_> = (0..2000).map(|row| Pick { batch: 0, row }).collect();
    let limits = Limits { bytes_max: 20_000, ..Limits::default() };
    let (messages, bytes) = written(&gather, &picks, &limits);
    assert!(messages.iter().all(|message| message.bytes() <= 20_000 || message.rows() == (700..701)), "{messages:?}");
    assert!(messages.iter().any(|message| message.rows() == (700..701) && message.bytes() > 50_000));
    assert!(messages.len() < 22, "{} messages for 14 times 20 kB", messages.len());
    assert_eq!(by_library(&layout, &bytes).iter().map(RecordBatch::num_rows).sum::<usize>(), 2000);
    let error = gather.messages(&picks, &Limits { row_bytes_max: 40_000, ..limits }).unwrap_err();
    let TableError::RowTooLarge { batch: 0, row: 700, bytes, bytes_max: 40_000 } = error else { panic!("{error}") };
    assert!((50_000..51_000).contains(&bytes));
}

#[test]
fn elements_without_bytes_are_counted_all_the_same() {
    // More elements in two rows than a message may have, and not one byte.
    let elements = (1 << 25) + 1;
    let child: ArrayRef = Arc::new(NullArray::new(elements));
    let field = Arc::new(Field::new("item", DataType::Null, true));
    let lists: ArrayRef =
        Arc::new(ListArray::new(field, arrow_buffer::OffsetBuffer::new(vec![0, elements as i32].into()), child, None));
    let batch = RecordBatch::try_from_iter([("l", lists)]).unwrap();
    let gather = Gather::new(Arc::new(Layout::new(&batch.schema()).unwrap()), &[batch]).unwrap();
    let picks = [Pick { batch: 0, row: 0 }; 3];
    let messages = gather.messages(&picks, &Limits::default()).unwrap();
    assert_eq!(messages.iter().map(Message::rows).collect::<Vec<_>>(), [0..1, 1..2, 2..3]);
}

#[test]
fn what_is_not_seen_is_zero() {
    let numbers = PrimitiveArray::<Int32Type>::new(vec![1, 77, 3].into(), Some(vec![true, false, true].into()));
    let offsets = arrow_buffer::OffsetBuffer::new(vec![0, 1, 3, 5].into());
    let nulls = || Some(vec![true, false, true].into());
    let field = Arc::new(Field::new("item", DataType::Int64, true));
    let elements = Arc::new(Int64Array::from(vec![Some(1), Some(77), Some(77), Some(3), None]));
    let lists = ListArray::new(field, offsets.clone(), elements, nulls());
    let text = StringArray::new(offsets, Buffer::from(b"aMMbc"), nulls());
    let bools = BooleanArray::new(vec![false, true, false].into(), nulls());
    let fixed = FixedSizeBinaryArray::new(3, Buffer::from(b"aaaMMMccc"), nulls());
    let inner = || Arc::new(Int64Array::from(vec![1, 77, 3])) as ArrayRef;
    let structs = StructArray::new(vec![Field::new("x", DataType::Int64, false)].into(), vec![inner()], nulls());
    let field = Arc::new(Field::new("item", DataType::Int64, false));
    let pairs = FixedSizeListArray::new(field, 1, inner(), nulls());
    let columns: [(&str, ArrayRef); 7] = [
        ("s", Arc::new(structs)),
        ("p", Arc::new(pairs)),
        ("n", Arc::new(numbers)),
        ("l", Arc::new(lists)),
        ("t", Arc::new(text)),
        ("b", Arc::new(bools)),
        ("f", Arc::new(fixed)),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let layout = Arc::new(Layout::new(&batch.schema()).unwrap());
    let gather = Gather::new(layout.clone(), &[batch]).unwrap();
    let picks = [0, 1, 2].map(|row| Pick { batch: 0, row });
    let (_, bytes) = written(&gather, &picks, &Limits::default());
    let body = &bytes[layout.header_bytes()..];
    assert!(!body.contains(&0xee), "memory as it was before shows");
    assert!(!body.contains(&77), "what is under a null shows");
    assert!(!body.contains(&2), "the bool under a null shows");
    let batch = &by_library(&layout, &bytes)[0];
    assert_eq!(batch.column(2).as_primitive::<Int32Type>().values().as_ref(), [1, 0, 3]);
}

#[test]
fn headers_of_a_layout_are_all_of_one_length() {
    for columns in 0..40 {
        let fields: Vec<_> = (0..columns).map(|at| Field::new(format!("c{at}"), DataType::Int64, true)).collect();
        let layout = Layout::new(&Schema::new(fields)).unwrap();
        let (nodes, buffers) = (vec![(7, 1); columns], vec![1 << 40; 2 * columns]);
        assert_eq!(layout.header(7, &nodes, &buffers).len(), layout.header_bytes(), "{columns} columns");
    }
}

#[test]
fn batches_of_other_schemas_are_refused() {
    let batch = |types: &[DataType]| samples::batch_of(&mut Seeded(1), types, 1);
    let one = batch(&[DataType::Int64]);
    let layout = Arc::new(Layout::new(&one.schema()).unwrap());
    let refused = |other: RecordBatch| Gather::new(layout.clone(), &[one.clone(), other]).unwrap_err().to_string();
    assert_eq!(refused(batch(&[DataType::Int32])), "column c0 is int32, not int64");
    assert_eq!(refused(batch(&[DataType::Int64, DataType::Int64])), "2 columns, not 1");
    let union = arrow_schema::UnionFields::from_fields(vec![Field::new("a", DataType::Int32, true)]);
    let union = Field::new("u", DataType::Union(union, arrow_schema::UnionMode::Dense), true);
    let nested = Schema::new(vec![Field::new("l", DataType::List(Arc::new(union)), true)]);
    assert!(Layout::new(&nested).unwrap_err().to_string().starts_with("column l.u is Union"));
}

#[test]
fn bytes_that_are_no_block_are_refused() {
    let batch = samples::batch_of(&mut Seeded(9), &[DataType::Utf8, DataType::Int64], 20);
    let layout = Arc::new(Layout::new(&batch.schema()).unwrap());
    let gather = Gather::new(layout.clone(), &[batch]).unwrap();
    let picks: Vec<_> = (0..20).map(|row| Pick { batch: 0, row }).collect();
    let (_, bytes) = written(&gather, &picks, &Limits::default());
    let read =
        |bytes: &[u8]| Part::of_bytes(layout.clone(), Buffer::from(bytes.to_vec())).collect::<Result<Vec<_>, _>>();
    assert_eq!(read(&bytes).unwrap().len(), 1);
    for end in (1..bytes.len()).step_by(13) {
        let error = read(&bytes[..end]).unwrap_err();
        assert!(matches!(error, TableError::NotABlock { at: 0, .. }), "{end}: {error}");
    }
    let other = Arc::new(Layout::new(&samples::batch_of(&mut Seeded(9), &[DataType::Utf8], 0).schema()).unwrap());
    let error = Part::of_bytes(other, Buffer::from(bytes.clone())).next().unwrap().unwrap_err();
    assert!(matches!(error, TableError::LayoutDiffers { at: 0, .. }), "{error}");
    // Any byte of a header may be wrong: an answer or an error, never a panic.
    for at in 0..layout.header_bytes() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            let _ = read(&bytes);
        }
    }
}

/// A message of one column of this type.
fn message_of(array: ArrayRef) -> (Arc<Layout>, Vec<u8>) {
    let batch = RecordBatch::try_from_iter([("c", array)]).unwrap();
    let layout = Arc::new(Layout::new(&batch.schema()).unwrap());
    let gather = Gather::new(layout.clone(), std::slice::from_ref(&batch)).unwrap();
    let picks: Vec<_> = (0..batch.num_rows() as u32).map(|row| Pick { batch: 0, row }).collect();
    let bytes = written(&gather, &picks, &Limits::default()).1;
    (layout, bytes)
}

/// These bytes as the first part of an object, read in place and believed to be what a gather wrote.
fn trusted(layout: &Arc<Layout>, bytes: &[u8]) -> Result<Vec<RecordBatch>, TableError> {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        memory_bytes: 16 << 20,
        spill_dirs: vec![dir.path().to_owned()],
        executors: 1,
        reserve_per_executor_bytes: 1 << 20,
        ..StoreOptions::default()
    };
    let store = Store::open(options, Arc::new(RealDisk::new()), Arc::new(SystemClock::new())).unwrap();
    let id = CopyId::new(1, 1 << 32);
    let mut writer = store.writer(id, WriterOptions { align: Align::SixtyFour, ..WriterOptions::default() });
    writer.begin_part(Some(bytes.len() as u64)).unwrap();
    writer.write(bytes).unwrap();
    writer.end_part(1, RowHash::default());
    writer.seal().unwrap();
    let block = store.get(&id, Parts::All).wait().unwrap().part(0);
    // SAFETY: the tests that call this garble only what is checked also of parts that are trusted.
    #[allow(unsafe_code, reason = "what is trusted is what is tested")]
    let batches = unsafe { Part::new(layout.clone(), block) }.collect::<Result<_, _>>();
    batches.map_err(|error| match error {
        TableError::InPart { object, part: 0, source } if object == id => *source,
        error => panic!("it does not say in which part: {error}"),
    })
}

#[test]
fn a_part_of_another_layout_or_release_is_refused_although_it_is_trusted() {
    let (layout, bytes) = message_of(Arc::new(BinaryArray::from_vec(vec![&[0xff]])));
    assert_eq!(trusted(&layout, &bytes).unwrap().len(), 1);
    // The same arrays and buffers, of the same lengths.
    let text = Schema::new(vec![Field::new("c", DataType::Utf8, false)]);
    let error = trusted(&Arc::new(Layout::new(&text).unwrap()), &bytes).unwrap_err();
    assert!(matches!(error, TableError::LayoutDiffers { at: 0, .. }), "{error}");
    let mark = format!("{VERSION:08x}");
    let at = bytes.windows(8).position(|window| window == mark.as_bytes()).unwrap();
    let mut other = bytes.clone();
    other[at..at + 8].copy_from_slice(format!("{:08x}", VERSION + 1).as_bytes());
    let error = trusted(&layout, &other).unwrap_err();
    assert!(matches!(error, TableError::BlockVersion { found, expected: VERSION } if found == VERSION + 1), "{error}");
}

#[test]
fn offsets_that_leave_their_buffer_or_fall_are_refused_although_they_are_trusted() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["abc", "de", "f"]));
    let wide: ArrayRef = Arc::new(LargeStringArray::from(vec!["abc", "de", "f"]));
    let numbers = [3, 2, 1].map(|len| Some(vec![Some(7); len]));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(numbers));
    for (array, width) in [(text, 4), (wide, 8), (lists, 4)] {
        let (layout, bytes) = message_of(array);
        assert_eq!(trusted(&layout, &bytes).unwrap()[0].num_rows(), 3);
        for (offset, value) in [(0, 1u8), (1, 9), (2, 2), (3, 5), (3, 200)] {
            let mut garbled = bytes.clone();
            garbled[layout.header_bytes() + offset * width] = value;
            let error = trusted(&layout, &garbled).unwrap_err();
            assert!(matches!(error, TableError::NotABlock { at: 0, .. }), "{offset} {value}: {error}");
        }
    }
}

#[test]
fn nulls_in_columns_without_any_and_columns_in_another_order_are_refused() {
    let values = StringArray::from(vec![Some("a"), None]);
    let dictionary = DictionaryArray::<Int32Type>::new(vec![0, 0, 1].into(), Arc::new(values));
    let schema = Arc::new(Schema::new(vec![Field::new("c", dictionary.data_type().clone(), false)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(dictionary)]).unwrap();
    let gather = Gather::new(Arc::new(Layout::new(&schema).unwrap()), &[batch]).unwrap();
    let picks = [0, 1, 2].map(|row| Pick { batch: 0, row });
    let error = gather.messages(&picks, &Limits::default()).unwrap_err();
    assert!(matches!(&error, TableError::NullInColumn { column, batch: 0, row: 2 } if column == "c"), "{error}");
    let number = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let [ab, ba] =
        [["a", "b"], ["b", "a"]].map(|names| RecordBatch::try_from_iter(names.map(|name| (name, number()))).unwrap());
    let error = Gather::new(Arc::new(Layout::new(&ab.schema()).unwrap()), std::slice::from_ref(&ba)).unwrap_err();
    assert!(matches!(error, TableError::NameDiffers { .. }), "{error}");
    let error = crate::RowHasher::new(&ab.schema()).unwrap().sum(&ba).unwrap_err();
    assert!(matches!(error, TableError::NameDiffers { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn damaged_bytes_are_an_answer_or_an_error(seed in any::<u64>()) {
        let mut seeded = Seeded(seed);
        let types: Vec<_> = (0..1 + seeded.below(3)).map(|_| samples::data_type(&mut seeded, 2)).collect();
        let batch = samples::batch_of(&mut seeded, &types, 9);
        let layout = Arc::new(Layout::new(&batch.schema()).unwrap());
        let gather = Gather::new(layout.clone(), &[batch]).unwrap();
        let picks: Vec<_> = (0..9).map(|row| Pick { batch: 0, row }).collect();
        let (_, mut bytes) = written(&gather, &picks, &Limits::default());
        for _ in 0..1 + seeded.below(4) {
            let at = seeded.below(bytes.len());
            bytes[at] = seeded.next() as u8;
        }
        for batch in Part::of_bytes(layout, Buffer::from(bytes)).flatten() {
            (0..batch.num_rows()).for_each(|row| drop(samples::row(&batch, row)));
        }
    }
}

#[test]
fn damaged_schemas_parts_and_sums_are_answers_or_errors() {
    use crate::fuzzing::{layout, layouts, part, parts, sums};
    let mut seeded = Seeded(4);
    let mut damaged = |run: fn(&[u8]), seeds: &[Vec<u8>], from: usize| {
        for seed in seeds {
            run(seed);
            for _ in 0..3000 {
                let mut bytes = seed.clone();
                for _ in 0..1 + seeded.below(3) {
                    let at = from + seeded.below(bytes.len() - from);
                    bytes[at] = if seeded.below(2) == 0 { seeded.next() as u8 } else { seeded.below(12) as u8 };
                }
                run(&bytes);
            }
        }
    };
    damaged(layout, &layouts(), 0);
    // Without what stands before the message, which then has a checksum that fits.
    damaged(layout, &layouts().into_iter().map(|bytes| bytes[16..].to_vec()).collect::<Vec<_>>(), 0);
    damaged(part, &parts(), 1);
    damaged(sums, &[include_bytes!("../../../tests/samples/exact-sum-1.bin").to_vec()], 0);
}

#[test]
fn the_schema_of_blocks_has_a_version_and_a_sample() {
    let mut seeded = Seeded(2);
    let types: Vec<_> = samples::flat_types();
    let layout = Layout::new(&samples::batch_of(&mut seeded, &types, 0).schema()).unwrap();
    let bytes = layout.encode();
    assert_eq!(Layout::decode(&bytes).unwrap().schema(), layout.schema());
    let mut other = bytes.clone();
    other[4] += 1;
    let error = Layout::decode(&other).unwrap_err();
    assert!(
        matches!(error, TableError::BlockVersion { found, expected } if found == VERSION + 1 && expected == VERSION)
    );
    for at in 8..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(matches!(Layout::decode(&damaged).unwrap_err(), TableError::NotABlock { at: 8, .. }), "{at}");
        assert!(matches!(Layout::decode(&bytes[..at]).unwrap_err(), TableError::NotABlock { at: 8, .. }), "{at}");
    }
    assert!(matches!(Layout::decode(&bytes[..5]).unwrap_err(), TableError::NotABlock { at: 4, .. }));
    assert!(matches!(Layout::decode(b"something else").unwrap_err(), TableError::NotABlock { at: 0, .. }));
}
