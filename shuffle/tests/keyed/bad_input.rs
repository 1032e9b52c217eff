//! What users get wrong. Every job says what it is and where, ends, and leaves nothing: `Bench` looks for that.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use exobus_shuffle::Strategy;
use exobus_shuffle::jobs::aggregate::Operation;
use exobus_shuffle::jobs::sort::CutsFrom;
use exobus_shuffle::jobs::{Aggregate, RandomShuffle, WordCount};
use exobus_shuffle::records::RECORD_BYTES;

use crate::bench::Bench;

fn count() -> Aggregate {
    let operations = vec![Operation::Count];
    Aggregate { key: "1".into(), value: None, operations, delimiter: b',', header: false }
}

/// Every job refuses these inputs, and says all of `texts`.
async fn all_refuse(bench: &Bench, inputs: &[PathBuf], texts: &[&str]) {
    let sorted = bench.sort(inputs).await.expect_err("sort").to_string();
    let shuffled = bench.error(RandomShuffle { seed: 1 }, inputs, None).await;
    let counted = bench.error(WordCount {}, inputs, None).await;
    let aggregated = bench.error(count(), inputs, None).await;
    for error in [sorted, shuffled, counted, aggregated] {
        for text in texts {
            assert!(error.contains(text), "{text:?} is not in {error:?}");
        }
    }
}

#[tokio::test]
async fn paths_that_are_no_input_are_named() {
    let bench = Bench::new();
    let good = bench.file("good", vec![b'x'; RECORD_BYTES]);
    let missing = bench.path("missing");
    all_refuse(&bench, &[good.clone(), missing], &["missing", "No such file"]).await;
    all_refuse(&bench, &[good.join("below")], &["good/below", "Not a directory"]).await;

    let folder = |name: &str| {
        std::fs::create_dir(bench.path(name)).unwrap();
        bench.path(name)
    };
    let hollow = folder("hollow");
    all_refuse(&bench, std::slice::from_ref(&hollow), &["hollow", "no files"]).await;
    let fifo = |path: PathBuf| {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    };
    // Who opened it would wait for a writer for ever.
    fifo(hollow.join("fifo"));
    all_refuse(&bench, &[hollow.join("fifo")], &["hollow/fifo", "not a regular file"]).await;
    all_refuse(&bench, &[hollow], &["hollow", "no files"]).await;

    let dangling = folder("dangling");
    symlink(bench.path("nowhere"), dangling.join("link")).unwrap();
    all_refuse(&bench, &[dangling], &["dangling/link", "No such file"]).await;
    let circle = folder("circle");
    symlink(circle.join("a"), circle.join("b")).unwrap();
    symlink(circle.join("b"), circle.join("a")).unwrap();
    all_refuse(&bench, std::slice::from_ref(&circle), &["circle/a", "symbolic links"]).await;
    all_refuse(&bench, &[circle.join("a/below")], &["circle/a/below", "symbolic links"]).await;
}

#[tokio::test]
async fn records_that_are_not_whole_are_named_with_their_place() {
    let bench = Bench::new();
    let inputs = [bench.file("whole", vec![1; 3 * RECORD_BYTES]), bench.file("torn", vec![1; 1234])];
    let sorted = bench.sort(&inputs).await.unwrap_err().to_string();
    let shuffled = bench.error(RandomShuffle { seed: 1 }, &inputs, None).await;
    for error in [sorted, shuffled] {
        assert!(error.contains("torn: truncated record file: 1234 bytes, the record at offset 1200"), "{error}");
    }
}

#[tokio::test]
async fn no_input_one_row_and_equal_keys_go_through_every_job() {
    let bench = Bench::new();
    for (name, rows) in [("none", 0), ("one", 1), ("equal", 30_000)] {
        let records = [bench.file(name, vec![b'k'; rows * RECORD_BYTES])];
        let lines = [bench.file("lines", "key,1\n".repeat(rows))];
        for strategy in Strategy::ALL {
            let case = format!("{name}, {}", strategy.name());
            let shuffled = bench.run(RandomShuffle { seed: 3 }, &records, Some(strategy)).await.unwrap();
            assert!(shuffled.output == vec![b'k'; rows * RECORD_BYTES], "{case}");
            assert_eq!((shuffled.report.keys, shuffled.report.reduced.rows), (rows as u64, rows as u64), "{case}");
            let keys = u64::from(rows > 0);
            let counted = bench.run(WordCount {}, &lines, Some(strategy)).await.unwrap();
            let expected = if rows > 0 { format!("key,1\t{rows}\n") } else { String::new() };
            assert_eq!((counted.report.keys, counted.output), (keys, expected.into_bytes()), "{case}");
            let aggregated = bench.run(count(), &lines, Some(strategy)).await.unwrap();
            let expected = if rows > 0 { format!("key,{rows}\n") } else { String::new() };
            assert_eq!((aggregated.report.keys, aggregated.output), (keys, expected.into_bytes()), "{case}");
        }
        let sorted = bench.sort(&records).await.unwrap();
        assert_eq!((sorted.rows, sorted.row_hash_in), (rows as u64, sorted.row_hash_out), "{name}");
    }
}

#[tokio::test]
async fn cuts_that_a_user_gives_a_sort_are_checked_and_used() {
    let mut bench = Bench { partitions: None, ..Bench::new() };
    let records: Vec<u8> = (0..=255u8).flat_map(|key| [key; RECORD_BYTES]).collect();
    let input = [bench.file("in", records)];
    let cuts = |keys: &[u8]| CutsFrom::Given(keys.iter().map(|key| vec![*key]).collect());
    let error = bench.sort_by(&input, cuts(&[10, 200, 100])).await.unwrap_err().to_string();
    assert!(error.contains("cut 2 is below the cut before it"), "{error}");
    let sorted = bench.sort_by(&input, cuts(&[10, 10, 200])).await.unwrap();
    assert_eq!((sorted.rows, sorted.partitions), (256, 4));
    bench.partitions = Some(3);
    let error = bench.sort_by(&input, cuts(&[10])).await.unwrap_err().to_string();
    assert!(error.contains("1 cuts make 2 partitions, not 3"), "{error}");
}
