use std::collections::BTreeMap;

use exobus_actors::registry::TaskError;
use proptest::prelude::*;

use super::*;
use crate::cuts::key_prefix;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Few bytes, so that keys are equal, begin each other, and hold the smallest and largest byte.
fn pairs(rows: usize) -> impl Strategy<Value = Pairs> {
    let byte = || prop_oneof![Just(0u8), Just(1), Just(255), Just(b'x')];
    let bytes = move |len| proptest::collection::vec(byte(), 0..len);
    proptest::collection::vec((bytes(12), bytes(6)), 0..rows)
}

fn part_of(pairs: &Pairs) -> Vec<u8> {
    let mut bytes = Vec::new();
    pairs.iter().for_each(|(key, value)| push_row(&mut bytes, key, value));
    bytes
}

fn pairs_of(bytes: &[u8]) -> Pairs {
    Rows::new(bytes).map(|row| row.unwrap()).map(|row| (row.key().to_vec(), row.value().to_vec())).collect()
}

fn partition_of(key: &[u8]) -> u32 {
    key.first().map_or(0, |byte| u32::from(byte % 3))
}

/// Everything that comes out of a buffer, pass after pass, and how many there were.
fn through_buffer(memory: usize, pairs: &Pairs, combine: Option<Combine<'_>>) -> (Vec<(u32, Pairs)>, usize) {
    let mut memory = vec![7; memory];
    let mut buffer = RowBuffer::new(&mut memory, &partition_of, combine);
    let (mut out, mut passes): (Vec<(u32, Pairs)>, usize) = (Vec::new(), 0);
    loop {
        passes += 1;
        pairs.iter().for_each(|(key, value)| buffer.push(key, value).unwrap());
        let held = buffer.bytes();
        let mut shown = 0;
        for (partition, row) in buffer.sorted() {
            shown += row.bytes().len();
            if out.last().is_none_or(|(last, _)| *last != partition) {
                out.push((partition, Vec::new()));
            }
            out.last_mut().unwrap().1.push((row.key().to_vec(), row.value().to_vec()));
        }
        assert_eq!(held, shown);
        if !buffer.next_pass() {
            return (out, passes);
        }
    }
}

fn in_order(mut pairs: Pairs) -> Vec<(u32, Pairs)> {
    // Stable: rows of one key stay as they came.
    pairs.sort_by(|a, b| (partition_of(&a.0), &a.0).cmp(&(partition_of(&b.0), &b.0)));
    let mut parts: BTreeMap<u32, Pairs> = BTreeMap::new();
    pairs.into_iter().for_each(|pair| parts.entry(partition_of(&pair.0)).or_default().push(pair));
    parts.into_iter().collect()
}

/// A value that grows with each row that goes into it: bytes one behind the other, in order so that it is commutative.
fn gather(_key: &[u8], into: &mut Vec<u8>, value: &[u8]) -> Result<(), TaskError> {
    into.extend_from_slice(value);
    into.sort_unstable();
    Ok(())
}

fn gathered(pairs: &Pairs) -> Pairs {
    let mut sums: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for (key, value) in pairs {
        match sums.get_mut(key) {
            Some(into) => gather(key, into, value).unwrap(),
            None => drop(sums.insert(key.clone(), value.clone())),
        }
    }
    sums.into_iter().collect()
}

proptest! {
    #[test]
    fn rows_are_read_as_they_were_written(pairs in pairs(50)) {
        let bytes = part_of(&pairs);
        let lengths: usize = pairs.iter().map(|(key, value)| ROW_HEADER_BYTES + key.len() + value.len()).sum();
        prop_assert_eq!(bytes.len(), lengths);
        prop_assert_eq!(pairs_of(&bytes), pairs);
    }

    #[test]
    fn torn_rows_are_found(pairs in pairs(5), cut in 1usize..20) {
        let mut bytes = part_of(&pairs);
        push_row(&mut bytes, b"a key", b"and a value");
        bytes.truncate(bytes.len() - cut);
        let rows: Vec<_> = Rows::new(&bytes).collect();
        prop_assert_eq!(rows.len(), pairs.len() + 1);
        prop_assert!(rows.last().unwrap().is_err());
    }

    #[test]
    fn prefixes_order_as_keys_do(a in pairs(2), b in pairs(2)) {
        let key = |pairs: &Pairs| pairs.first().map(|pair| pair.0.clone()).unwrap_or_default();
        let (a, b) = (key(&a), key(&b));
        if key_prefix(&a) != key_prefix(&b) {
            prop_assert_eq!(key_prefix(&a).cmp(&key_prefix(&b)), a.cmp(&b));
        }
    }

    #[test]
    fn a_buffer_orders_rows_however_little_memory_it_has(pairs in pairs(200)) {
        for memory in [RowBuffer::BYTES_MIN, 3000, 1 << 20] {
            let (out, passes) = through_buffer(memory, &pairs, None);
            // A partition may end one pass and go on in the next.
            prop_assert_eq!(&out, &in_order(pairs.clone()), "{} passes", passes);
        }
    }

    #[test]
    fn a_buffer_combines_rows_however_little_memory_it_has(pairs in pairs(200)) {
        for memory in [RowBuffer::BYTES_MIN * 3, 1 << 20] {
            let (out, passes) = through_buffer(memory, &pairs, Some(&gather));
            prop_assert_eq!(&out, &in_order(gathered(&pairs)), "{} passes", passes);
        }
    }

    #[test]
    fn a_merge_is_in_order_and_keeps_the_order_of_runs(runs in proptest::collection::vec(pairs(20), 0..6)) {
        let sorted = |pairs: &Pairs| {
            let mut pairs = pairs.clone();
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            pairs
        };
        let parts: Vec<Vec<u8>> = runs.iter().map(|run| part_of(&sorted(run))).collect();
        let slices = parts.iter().map(|part| SliceRows::new(part)).collect();
        prop_assert_eq!(merged(slices, &parts), sorted(&runs.concat()));
        // Rows of up to 25 bytes through windows that hold no more than a header, one row, or several, and a reader that
        // gives a few bytes at a time.
        for window in [ROW_HEADER_BYTES, 25, 64] {
            let run = |part| ReadRows::new(Dribble(part), vec![7; window]);
            let streams = parts.iter().map(|part| run(part)).collect();
            prop_assert_eq!(merged(streams, &parts), sorted(&runs.concat()));
        }
    }

    #[test]
    fn torn_streams_are_found(pairs in pairs(5), cut in 1usize..20, window in ROW_HEADER_BYTES..40) {
        let mut bytes = part_of(&pairs);
        push_row(&mut bytes, b"a key", b"and a value");
        bytes.truncate(bytes.len() - cut);
        let mut run = ReadRows::new(Dribble(&bytes), vec![0; window]);
        for _ in &pairs {
            prop_assert!(run.advance().unwrap());
        }
        let torn_at = part_of(&pairs).len();
        let error = run.advance().unwrap_err();
        prop_assert!(matches!(&error, RowsError::Torn(torn) if torn.offset == torn_at), "{}", error);
    }
}

/// Gives three bytes at a time.
struct Dribble<'a>(&'a [u8]);

impl std::io::Read for Dribble<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let few = to.len().min(3);
        self.0.read(&mut to[..few])
    }
}

/// All rows of a merge, whose books must close.
fn merged<R: RowRun>(runs: Vec<R>, parts: &[Vec<u8>]) -> Pairs {
    let mut merge = RowMerge::new(runs).unwrap();
    let mut merged = Pairs::new();
    while let Some(row) = merge.row() {
        let (pair, hash) = ((row.key().to_vec(), row.value().to_vec()), row.hash());
        assert_eq!(merge.goes_on(), merged.last().is_some_and(|last| last.0 == pair.0));
        assert_eq!(merge.take().unwrap(), Some(hash));
        assert_eq!(merge.key(), pair.0);
        merged.push(pair);
    }
    assert!(merge.take().unwrap().is_none() && !merge.goes_on());
    for (read, part) in merge.read().iter().zip(parts) {
        let hash: RowHash = Rows::new(part).map(|row| row.unwrap().hash()).sum();
        assert_eq!((read.bytes, read.row_hash), (part.len() as u64, hash));
    }
    merged
}

#[test]
fn a_run_that_is_not_sorted_is_named() {
    let pairs = |keys: &[&str]| keys.iter().map(|key| (key.as_bytes().to_vec(), Vec::new())).collect::<Pairs>();
    let parts = [
        part_of(&pairs(&["a", "b", "common prefix 2"])),
        part_of(&pairs(&["a", "common prefix 3", "common prefix 1"])),
    ];
    let mut merge = RowMerge::new(parts.iter().map(|part| SliceRows::new(part)).collect()).unwrap();
    let error = loop {
        match merge.take() {
            Ok(row) => assert!(row.is_some(), "the end, and nothing was found"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, RowsError::Unsorted { run: 1, row: 2 }), "{error}");
}

#[test]
fn many_keys_take_passes_and_few_take_one() {
    let pairs = |keys: u64| (0..4000u64).map(|row| (format!("{:05}", row % keys).into_bytes(), vec![1])).collect();
    let add = |_: &[u8], into: &mut Vec<u8>, value: &[u8]| {
        into[0] = into[0].wrapping_add(value[0]);
        Ok(())
    };
    let (few, passes) = through_buffer(16 << 10, &pairs(50), Some(&add));
    assert_eq!((passes, few.iter().map(|part| part.1.len()).sum()), (1, 50));
    let (many, passes) = through_buffer(16 << 10, &pairs(4000), Some(&add));
    assert_eq!(many.iter().map(|part| part.1.len()).sum::<usize>(), 4000);
    assert!((9..60).contains(&passes), "{passes} passes for some ten times as many rows as fit");
    let (hot, passes) = through_buffer(16 << 10, &pairs(1), None);
    assert_eq!(hot.iter().map(|part| part.1.len()).sum::<usize>(), 4000);
    assert!(passes > 3, "one key that does not fit is taken out piece by piece");
}

#[test]
fn a_row_that_is_too_large_is_refused_by_its_size() {
    let mut memory = vec![0; 4096];
    let mut buffer = RowBuffer::new(&mut memory, &partition_of, None);
    buffer.push(b"key", &[0; 1000]).unwrap();
    let error = buffer.push(b"key", &[0; 3000]).unwrap_err().to_string();
    assert!(error.contains("3 bytes of key and 3000 bytes of value"), "{error}");
}
