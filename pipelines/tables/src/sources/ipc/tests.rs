use ::arrow_schema::DataType;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use proptest::prelude::*;

use super::super::FixedBudget;
use super::*;
use crate::samples::{MemoryFile, Seeded, Value, batch_of, data_type, flat_types, row};

fn budget(bytes: u64) -> (Arc<FixedBudget>, Arc<dyn MemoryBudget>) {
    let fixed = Arc::new(FixedBudget::new(bytes));
    (fixed.clone(), fixed)
}

fn open(bytes: Vec<u8>, budget: &Arc<dyn MemoryBudget>) -> Result<Arc<IpcFile>, SourceError> {
    IpcFile::open(MemoryFile::input("t.arrow", bytes), budget).map(Arc::new)
}

fn read(bytes: Vec<u8>, budget: &Arc<dyn MemoryBudget>) -> Result<Vec<SourceBatch>, SourceError> {
    let file = open(bytes, budget)?;
    let mut all = Vec::new();
    for split in file.splits() {
        let mut next = 0;
        for one in file.read(split.index, None, budget)? {
            let one = one?;
            assert_eq!((one.split, one.first_row), (split.index, next));
            next += one.batch.num_rows() as u64;
            all.push(one);
        }
    }
    Ok(all)
}

fn rows(batches: &[SourceBatch]) -> Vec<Vec<Value>> {
    batches.iter().flat_map(|one| (0..one.batch.num_rows()).map(|at| row(&one.batch, at))).collect()
}

/// Whether the library writes the type, and reads what it has written (arrow-ipc 59.3): of run ends none that are empty or cut, and no dictionaries whose values have others inside.
fn is_written(data_type: &DataType) -> bool {
    match data_type {
        DataType::RunEndEncoded(..) => false,
        DataType::Dictionary(_, values) => flat_types().contains(values),
        DataType::List(of) | DataType::LargeList(of) | DataType::ListView(of) | DataType::LargeListView(of) => {
            is_written(of.data_type())
        }
        DataType::FixedSizeList(of, _) | DataType::Map(of, _) => is_written(of.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| is_written(field.data_type())),
        _ => true,
    }
}

/// Columns of any types that are written.
fn batch(seed: u64, count: usize) -> RecordBatch {
    let mut seeded = Seeded(seed);
    let types = std::iter::repeat_with(|| data_type(&mut seeded, 2));
    let types = types.filter(is_written);
    let types: Vec<_> = types.take(1 + (seed % 5) as usize).collect();
    batch_of(&mut seeded, &types, count)
}

fn written(batch: &RecordBatch, seeded: &mut Seeded, is_stream: bool) -> Vec<u8> {
    let alignment = seeded.pick(&[8, 16, 64]);
    let options = IpcWriteOptions::try_new(alignment, false, MetadataVersion::V5).unwrap();
    let mut bytes = Vec::new();
    let middle = batch.num_rows() / 2;
    // A file has one dictionary for a column.
    let parts = [batch.slice(0, middle), batch.slice(middle, batch.num_rows() - middle)];
    let whole = [batch.clone()];
    if is_stream {
        let mut writer = StreamWriter::try_new_with_options(&mut bytes, &batch.schema(), options).unwrap();
        parts.iter().for_each(|part| writer.write(part).unwrap());
        writer.finish().unwrap();
    } else {
        let mut writer = FileWriter::try_new_with_options(&mut bytes, &batch.schema(), options).unwrap();
        whole.iter().for_each(|part| writer.write(part).unwrap());
        writer.finish().unwrap();
    }
    bytes
}

/// The same file with each buffer compressed, as other writers of the format do it; the library that is used here is built without codecs.
fn compressed(batch: &RecordBatch, codec: CompressionType) -> Vec<u8> {
    use arrow_ipc::{BodyCompressionBuilder, RecordBatchBuilder};
    let mut stream = Vec::new();
    let mut writer = StreamWriter::try_new(&mut stream, &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    let file = MemoryFile::input("t", stream.clone());
    let (_, budget) = budget(1 << 30);
    let schema = Encapsulated::read(&file, 0, file.len(), &budget).unwrap().unwrap();
    let mut bytes = stream[..schema.end as usize].to_vec();
    let mut at = schema.end;
    while let Some(read) = Encapsulated::read(&file, at, file.len(), &budget).unwrap() {
        at = read.end;
        let message = read.message();
        let dictionary = message.header_as_dictionary_batch();
        let batch = dictionary.map_or_else(|| message.header_as_record_batch(), |of| of.data()).unwrap();
        let body = read.body(&file, &budget).unwrap();
        let mut builder = FlatBufferBuilder::new();
        let (mut packed, mut buffers) = (Vec::new(), Vec::new());
        for (number, buffer) in batch.buffers().unwrap().iter().enumerate() {
            let plain = &body.as_slice()[buffer.offset() as usize..(buffer.offset() + buffer.length()) as usize];
            let begin = packed.len();
            // Some are as they were, which a length of -1 says.
            let is_packed = number % 3 != 2;
            if !plain.is_empty() {
                let said = if is_packed { plain.len() as i64 } else { -1 };
                packed.extend(said.to_le_bytes());
                match (is_packed, codec) {
                    (false, _) => packed.extend(plain),
                    (true, CompressionType::ZSTD) => packed.extend(zstd::bulk::compress(plain, 1).unwrap()),
                    (true, _) => {
                        use std::io::Write;
                        let mut lz4 = lz4_flex::frame::FrameEncoder::new(&mut packed);
                        lz4.write_all(plain).unwrap();
                        lz4.finish().unwrap();
                    }
                }
            }
            buffers.push(arrow_ipc::Buffer::new(begin as i64, (packed.len() - begin) as i64));
            packed.resize(packed.len().next_multiple_of(8), 0);
        }
        let nodes: Vec<_> = batch.nodes().unwrap().iter().copied().collect();
        let (nodes, buffers) = (builder.create_vector(&nodes), builder.create_vector(&buffers));
        let counts: Option<Vec<i64>> = batch.variadicBufferCounts().map(|counts| counts.iter().collect());
        let counts = counts.map(|counts| builder.create_vector(&counts));
        let mut compression = BodyCompressionBuilder::new(&mut builder);
        compression.add_codec(codec);
        let compression = compression.finish();
        let mut made = RecordBatchBuilder::new(&mut builder);
        made.add_length(batch.length());
        made.add_nodes(nodes);
        made.add_buffers(buffers);
        made.add_compression(compression);
        if let Some(counts) = counts {
            made.add_variadicBufferCounts(counts);
        }
        let made = made.finish();
        let header = match dictionary {
            None => made.as_union_value(),
            Some(of) => {
                let mut dictionary = DictionaryBatchBuilder::new(&mut builder);
                dictionary.add_id(of.id());
                dictionary.add_data(made);
                dictionary.finish().as_union_value()
            }
        };
        let mut whole = MessageBuilder::new(&mut builder);
        whole.add_version(MetadataVersion::V5);
        whole.add_header_type(message.header_type());
        whole.add_header(header);
        whole.add_bodyLength(packed.len() as i64);
        let whole = whole.finish();
        builder.finish(whole, None);
        let header = builder.finished_data();
        let header_bytes = header.len().next_multiple_of(8);
        bytes.extend([0xff; 4]);
        bytes.extend((header_bytes as u32).to_le_bytes());
        bytes.extend(header);
        bytes.resize(bytes.len() + header_bytes - header.len(), 0);
        bytes.extend(packed);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_is_read(seed in any::<u64>(), count in 1..200_usize, is_stream in any::<bool>()) {
        let batch = batch(seed, count);
        let (fixed, budget) = budget(1 << 30);
        let file = open(written(&batch, &mut Seeded(seed), is_stream), &budget).unwrap();
        prop_assert_eq!(&**file.schema(), &plain_schema(&batch.schema()));
        drop(file);
        let all = read(written(&batch, &mut Seeded(seed), is_stream), &budget).unwrap();
        let expected: Vec<_> = (0..count).map(|at| row(&batch, at)).collect();
        prop_assert_eq!(rows(&all), expected);
        drop(all);
        prop_assert_eq!(fixed.used_bytes(), 0);
    }

    #[test]
    fn what_was_compressed_is_read(seed in any::<u64>(), count in 1..200_usize, zstd in any::<bool>()) {
        let batch = batch(seed, count);
        let codec = if zstd { CompressionType::ZSTD } else { CompressionType::LZ4_FRAME };
        let (fixed, budget) = budget(1 << 30);
        let all = read(compressed(&batch, codec), &budget).unwrap();
        let expected: Vec<_> = (0..count).map(|at| row(&batch, at)).collect();
        prop_assert_eq!(rows(&all), expected);
        drop(all);
        prop_assert_eq!(fixed.used_bytes(), 0);
    }

    #[test]
    fn a_damaged_file_is_an_error_or_rows(seed in any::<u64>(), count in 1..60_usize, way in 0..4, flips in 1..6_usize) {
        let batch = batch(seed, count);
        let mut seeded = Seeded(!seed);
        let mut bytes = match way {
            0 => written(&batch, &mut seeded, true),
            1 => written(&batch, &mut seeded, false),
            2 => compressed(&batch, CompressionType::ZSTD),
            _ => compressed(&batch, CompressionType::LZ4_FRAME),
        };
        for _ in 0..flips {
            let at = seeded.below(bytes.len());
            bytes[at] ^= 1 << seeded.below(8);
        }
        let (fixed, budget) = budget(64 << 20);
        match read(bytes, &budget) {
            Ok(all) => all.iter().for_each(|one| one.batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap())),
            Err(error) => prop_assert!(error.to_string().contains("t.arrow"), "{}", error),
        }
        prop_assert_eq!(fixed.used_bytes(), 0);
    }

    #[test]
    fn a_cut_file_is_an_error(seed in any::<u64>(), count in 1..60_usize) {
        let bytes = written(&batch(seed, count), &mut Seeded(seed), false);
        let at = Seeded(seed).below(bytes.len());
        let error = read(bytes[..at].to_vec(), &budget(1 << 30).1).unwrap_err();
        let is_right = matches!(error, SourceError::Damaged { place: Place::Footer, .. } | SourceError::OtherFormat { .. });
        prop_assert!(is_right, "{}", error);
    }
}

#[test]
fn a_buffer_is_not_believed_beyond_what_is_granted() {
    let values: ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![7; 1000]));
    let batch = RecordBatch::try_from_iter([("a", values)]).unwrap();
    for codec in [CompressionType::ZSTD, CompressionType::LZ4_FRAME] {
        let good = compressed(&batch, codec);
        let said = 8000_i64.to_le_bytes();
        let at = good.windows(8).position(|window| window == said).unwrap();
        let with = |bytes: i64| {
            let mut bad = good.clone();
            bad[at..at + 8].copy_from_slice(&bytes.to_le_bytes());
            read(bad, &budget(1 << 20).1).unwrap_err()
        };
        let error = with(1 << 40);
        assert!(matches!(&error, SourceError::Memory { denied, .. } if denied.wanted > 1 << 40), "{error}");
        for bytes in [100, 7999, 8001, -2] {
            let error = with(bytes);
            assert!(matches!(&error, SourceError::Damaged { .. }), "{error}");
        }
    }
}

#[test]
fn run_ends_are_read() {
    let runs = arrow_array::RunArray::<arrow_array::types::Int32Type>::from_iter(["a", "a", "b", "a"].map(Some));
    let batch = RecordBatch::try_from_iter([("a", Arc::new(runs) as ArrayRef)]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let all = read(bytes, &budget(1 << 20).1).unwrap();
    let expected: Vec<_> = (0..4).map(|at| row(&batch, at)).collect();
    assert_eq!(rows(&all), expected);
}

#[test]
fn columns_come_as_they_are_asked_for_and_batches_make_splits() {
    let column = |from: i64| Arc::new(arrow_array::Int64Array::from_iter_values(from..from + 3_000_000)) as ArrayRef;
    let batches = [0, 3_000_000, 6_000_000, 9_000_000]
        .map(|from| RecordBatch::try_from_iter([("a", column(from)), ("b", column(-from))]).unwrap());
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    drop(writer);
    let (_, budget) = budget(1 << 30);
    let file = open(bytes, &budget).unwrap();
    // Each batch has 48 MB.
    assert_eq!(file.splits().len(), 4);
    let one: Vec<_> = file.read(1, Some(&[1]), &budget).unwrap().map(Result::unwrap).collect();
    assert!(one.iter().all(|one| one.batch.num_rows() <= super::super::BATCH_ROWS_MAX && one.batch.num_columns() == 1));
    assert_eq!(one[0].batch.schema().field(0).name(), "b");
    assert_eq!(one.iter().map(|one| one.batch.num_rows()).sum::<usize>(), 3_000_000);
}

#[test]
fn batches_make_splits_of_as_many_bytes_as_are_said_unless_there_are_dictionaries() {
    use arrow_array::types::Int32Type;
    use arrow_array::{DictionaryArray, Int64Array};
    let numbers = |from: i64| Arc::new(Int64Array::from_iter_values(from..from + 1_000)) as ArrayRef;
    let words = || Arc::new((0..1_000).map(|_| Some("a word")).collect::<DictionaryArray<Int32Type>>()) as ArrayRef;
    let file = |with_words: bool| {
        let batch = |number: i64| {
            let of_words = with_words.then(|| ("word", words()));
            RecordBatch::try_from_iter([("n", numbers(1_000 * number))].into_iter().chain(of_words)).unwrap()
        };
        let mut bytes = Vec::new();
        let mut writer = FileWriter::try_new(&mut bytes, &batch(0).schema()).unwrap();
        (0..30).for_each(|number| writer.write(&batch(number)).unwrap());
        writer.finish().unwrap();
        drop(writer);
        bytes
    };
    let (_, budget) = budget(1 << 30);
    let opened = |bytes: Vec<u8>, split_bytes: u64| {
        Arc::new(IpcFile::open_in_splits_of(split_bytes, MemoryFile::input("t.arrow", bytes), &budget).unwrap())
    };
    let whole = read(file(false), &budget).unwrap();
    let of_batch = opened(file(false), SPLIT_BYTES).splits()[0].bytes / 30;
    for (split_bytes, splits) in [(30 * of_batch, 1), (5 * of_batch, 6), (5 * of_batch - 1, 8), (1, 30)] {
        let file = opened(file(false), split_bytes);
        assert_eq!(file.splits().len(), splits, "{split_bytes}");
        let of_split = |split: Split| file.read(split.index, None, &budget).unwrap().map(Result::unwrap);
        let cut: Vec<_> = file.splits().into_iter().flat_map(of_split).collect();
        assert!(rows(&cut) == rows(&whole), "{split_bytes}");
    }
    assert_eq!(opened(file(true), 1).splits().len(), 1);
}

#[test]
fn what_is_no_arrow_is_said_to_be_none() {
    for bytes in [&b""[..], b"id,name\n1,x\n", b"PAR1xxxxxxxxxxxx", b"ARROW1", b"ARROW1\0\0xxxxxxxxxxxxxx"] {
        let error = open(bytes.to_vec(), &budget(1 << 20).1).err().unwrap();
        let is_right =
            matches!(error, SourceError::OtherFormat { .. } | SourceError::Damaged { place: Place::Footer, .. });
        assert!(is_right, "{error}");
    }
}
