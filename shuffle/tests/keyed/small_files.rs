//! Inputs of many small files: one task reads many of them, and what comes out is what one file with the same bytes gives.

use std::fs;
use std::path::PathBuf;

use exobus_shuffle::files::SMALL_FILE_BYTES;
use exobus_shuffle::jobs::{RandomShuffle, WordCount};
use exobus_shuffle::records::{Generator, Mode, RECORD_BYTES};

use crate::bench::{Bench, Ran, numbers};
use crate::tables::aggregate;

/// Below this the Owner keeps nothing for each file: paths alone would be more.
const OWNER_BYTES_MAX: u64 = 100 << 10;

/// `in/`: a file for each piece, and some that are empty; and `one`: the same in one file.
fn inputs(bench: &Bench, pieces: &[Vec<u8>]) -> [Vec<PathBuf>; 2] {
    fs::create_dir(bench.path("in")).unwrap();
    for (index, piece) in pieces.iter().enumerate() {
        bench.file(&format!("in/file-with-a-name-of-some-length-{index:06}"), piece);
        if index % 500 == 0 {
            bench.file(&format!("in/file-with-a-name-of-some-length-{index:06}-empty"), "");
        }
    }
    [vec![bench.path("in")], vec![bench.file("one", pieces.concat())]]
}

/// Records of which many have the same key, in files of one to three, and one file in the middle that is cut.
fn records() -> Vec<Vec<u8>> {
    let mut all = vec![0; 60_000 * RECORD_BYTES];
    Generator::new(Mode::default()).fill(0, &mut all);
    for (record, number) in all.chunks_mut(RECORD_BYTES).zip(numbers(3)) {
        record[..10].copy_from_slice(format!("key-{:06}", number % 9_000).as_bytes());
    }
    let (large, mut small) = all.split_at(20_000 * RECORD_BYTES);
    assert!(large.len() as u64 > SMALL_FILE_BYTES);
    let mut pieces = Vec::new();
    for length in (1..=3).cycle() {
        if pieces.len() == 4_000 {
            pieces.push(large.to_vec());
        }
        let (piece, rest) = small.split_at((length * RECORD_BYTES).min(small.len()));
        pieces.push(piece.to_vec());
        small = rest;
        if small.is_empty() {
            return pieces;
        }
    }
    unreachable!("the records come to an end")
}

fn same([small, one]: &[Ran; 2], maps: std::ops::RangeInclusive<u64>) {
    assert!(small.output == one.output, "{:?}, {:?}", small.report, one.report);
    assert_eq!((small.report.input_bytes, small.report.emitted), (one.report.input_bytes, one.report.emitted));
    assert!(maps.contains(&small.report.maps), "{:?}", small.report);
    assert!(small.report.owner_bytes < OWNER_BYTES_MAX, "{:?}", small.report);
}

#[tokio::test]
async fn equal_keys_of_a_sort_stay_in_the_order_of_the_files() {
    let bench = Bench::new();
    let pieces = records();
    let [small, one] = inputs(&bench, &pieces);
    let mut expected: Vec<Vec<u8>> = pieces.concat().chunks(RECORD_BYTES).map(<[u8]>::to_vec).collect();
    expected.sort_by(|a, b| a[..10].cmp(&b[..10]));
    let (report, output) = bench.sort_with_output(&small).await.unwrap();
    assert!(output == expected.concat(), "{report:?}");
    // Small files before and after the large one, which is cut in two or three, 4 MB of them in all.
    assert!((4..=9).contains(&report.maps), "{report:?}");
    assert!(report.owner_bytes < OWNER_BYTES_MAX, "{report:?}");
    let (_, of_one) = bench.sort_with_output(&one).await.unwrap();
    assert!(of_one == output);
}

#[tokio::test]
async fn a_random_shuffle_numbers_records_through_small_files() {
    let bench = Bench::new();
    let [small, one] = inputs(&bench, &records());
    let job = || RandomShuffle { seed: 3 };
    let ran = [bench.run(job(), &small, None).await.unwrap(), bench.run(job(), &one, None).await.unwrap()];
    same(&ran, 4..=11);
}

#[tokio::test]
async fn words_end_where_small_files_end() {
    let bench = Bench::new();
    let text = |number: u64| format!("word{} {}\tnext word{}", number % 700, number % 31, number % 5);
    let files: Vec<Vec<u8>> = numbers(5).take(5_000).map(|number| text(number).into_bytes()).collect();
    fs::create_dir(bench.path("in")).unwrap();
    for (index, file) in files.iter().enumerate() {
        bench.file(&format!("in/{index:06}"), file);
    }
    let one = vec![bench.file("one", files.join(&b'\n'))];
    let small = vec![bench.path("in")];
    let ran =
        [bench.run(WordCount {}, &small, None).await.unwrap(), bench.run(WordCount {}, &one, None).await.unwrap()];
    assert!(ran[0].output == ran[1].output);
    assert_eq!((ran[0].report.maps, ran[0].report.emitted), (1, ran[1].report.emitted));
    assert!(ran[0].report.owner_bytes < OWNER_BYTES_MAX, "{:?}", ran[0].report);
}

#[tokio::test]
async fn every_small_table_has_its_own_header() {
    let bench = Bench::new();
    fs::create_dir(bench.path("in")).unwrap();
    let mut rows = String::from("key,value\n");
    for (index, number) in numbers(7).take(6_000).enumerate() {
        let (key, value) = (number % 900, number % 1_000);
        rows += &format!("k{key},{value}\n");
        // The columns of every other file stand the other way round.
        let table = match index % 2 {
            0 => format!("key,value\nk{key},{value}\n"),
            _ => format!("\u{feff}value,key\n{value},k{key}"),
        };
        bench.file(&format!("in/{index:06}.csv"), table);
    }
    let one = vec![bench.file("one.csv", rows)];
    let small = vec![bench.path("in")];
    let job = || aggregate("key", Some("value"), true);
    let ran = [bench.run(job(), &small, None).await.unwrap(), bench.run(job(), &one, None).await.unwrap()];
    assert!(ran[0].output == ran[1].output);
    assert_eq!((ran[0].report.maps, ran[0].report.emitted), (1, ran[1].report.emitted));
    assert!(ran[0].report.owner_bytes < OWNER_BYTES_MAX, "{:?}", ran[0].report);
}

#[tokio::test]
async fn an_error_in_a_small_file_names_it() {
    let bench = Bench::new();
    fs::create_dir(bench.path("in")).unwrap();
    for index in 0..300 {
        let value = if index == 217 { "x12" } else { "12" };
        bench.file(&format!("in/{index:03}.csv"), format!("key,value\nk,1\nk,{value}\n"));
    }
    let error = bench.error(aggregate("key", Some("value"), true), &[bench.path("in")], None).await;
    assert!(error.contains("217.csv") && error.contains('3') && error.contains("x12"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_given_twice_is_read_twice() {
    let bench = Bench::new();
    let bytes = records()[..500].concat();
    let file = bench.file("one", &bytes);
    fs::create_dir(bench.path("in")).unwrap();
    bench.file("in/part-0", &bytes);
    let twice = [bench.path("in"), bench.path("in/part-0"), file.clone(), file];
    let (report, output) = bench.sort_with_output(&twice).await.unwrap();
    assert_eq!((report.bytes, output.len()), (4 * bytes.len() as u64, 4 * bytes.len()));
    let ran = bench.run(RandomShuffle { seed: 1 }, &twice, None).await.unwrap();
    assert_eq!(ran.output.len(), 4 * bytes.len());
}

/// Large enough that each time is a map of its own.
#[tokio::test]
async fn a_large_file_that_is_given_twice_is_two_maps() {
    let bench = Bench::new();
    let mut bytes = vec![0; SMALL_FILE_BYTES.next_multiple_of(RECORD_BYTES as u64) as usize];
    Generator::new(Mode::default()).fill(0, &mut bytes);
    let file = bench.file("one", &bytes);
    let (report, output) = bench.sort_with_output(&[file.clone(), file]).await.unwrap();
    assert_eq!((report.bytes, output.len()), (2 * bytes.len() as u64, 2 * bytes.len()));
}
