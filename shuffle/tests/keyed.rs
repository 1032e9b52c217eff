//! Word count, aggregation and random shuffle on one node, compared with what is computed in memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::registry::TaskError;
use exobus_actors::task::{JobError, Output};
use exobus_shuffle::Strategy;
use exobus_shuffle::jobs::aggregate::Operation;
use exobus_shuffle::jobs::{Aggregate, RandomShuffle, WordCount};
use exobus_shuffle::keyed::{self, Emit, Input, KeyedJob, KeyedParams, KeyedReport, Registered, Split, Values};
use exobus_shuffle::records::{Generator, Mode, RECORD_BYTES};
use serde::{Deserialize, Serialize};

/// Little enough that a few megabytes of rows are spilled.
const LITTLE: u64 = 24 << 20;

struct Ran {
    report: KeyedReport,
    /// The part files, one behind the other.
    output: Vec<u8>,
    spilled_bytes: u64,
}

struct Bench {
    folder: tempfile::TempDir,
    memory: u64,
    partitions: Option<u32>,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), memory: LITTLE, partitions: Some(5) }
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    async fn run<J: Registered>(
        &self,
        job: J,
        inputs: &[PathBuf],
        strategy: Option<Strategy>,
    ) -> Result<Ran, JobError> {
        let output = self.folder.path().join("out");
        let mut options = NodeOptions::alone(2, self.memory);
        options.store.spill_dirs = vec![self.folder.path().join("spill")];
        let node = Node::start(options).unwrap();
        let params =
            KeyedParams { inputs: inputs.to_vec(), output: output.clone(), partitions: self.partitions, strategy, job };
        let (result, end) =
            node.run(JobId::new(), J::NAME, None, async move |futures| keyed::run(futures, params).await).await;
        node.stop();
        let report = match result {
            Ok(report) => report,
            Err(error) => {
                assert!(!output.exists(), "a job that fails leaves nothing: {error}");
                return Err(error);
            }
        };
        let files = parts(&output);
        assert_eq!(files.len(), report.partitions as usize);
        let bytes = files.concat();
        assert_eq!(bytes.len() as u64, report.output_bytes);
        fs::remove_dir_all(&output).unwrap();
        let spilled_bytes = end.nodes.values().map(|node| node.spilled_bytes).sum();
        Ok(Ran { report, output: bytes, spilled_bytes })
    }
}

fn parts(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// The same numbers in every run.
fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    })
}

fn counted(output: &[u8]) -> BTreeMap<Vec<u8>, u64> {
    let lines: Vec<&[u8]> = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let pair = |line: &&[u8]| {
        let tab = line.iter().position(|byte| *byte == b'\t').unwrap();
        (line[..tab].to_vec(), std::str::from_utf8(&line[tab + 1..]).unwrap().parse().unwrap())
    };
    let counts: BTreeMap<Vec<u8>, u64> = lines.iter().map(pair).collect();
    assert_eq!(counts.len(), lines.len(), "each word once");
    counts
}

fn reference<'a>(words: impl Iterator<Item = &'a str>) -> BTreeMap<Vec<u8>, u64> {
    let mut counts = BTreeMap::new();
    words.for_each(|word| *counts.entry(word.as_bytes().to_vec()).or_insert(0) += 1);
    counts
}

/// Words of which some are frequent, most are rare; and all kinds of white space.
fn text(words: usize) -> String {
    let spaces = [" ", "\n", "\t", "  \r\n", "\u{3000}", "\u{a0}", " \u{2003} "];
    let mut text = String::new();
    for number in numbers(1).take(words) {
        let word = if number % 3 == 0 { number % 7 } else { number };
        text += &format!("wörd{word}{}", spaces[(number / 7) as usize % spaces.len()]);
    }
    text
}

#[tokio::test]
async fn words_are_counted_by_every_strategy_with_little_memory() {
    let mut bench = Bench::new();
    bench.partitions = None;
    let text = text(1_000_000);
    let expected = reference(text.split_whitespace());
    let half = text.floor_char_boundary(text.len() / 2);
    let half = half + text[half..].find(' ').unwrap();
    let inputs = [bench.file("a", &text[..half]), bench.file("b", &text[half..])];
    for strategy in Strategy::ALL {
        let ran = bench.run(WordCount {}, &inputs, Some(strategy)).await.unwrap();
        assert!(counted(&ran.output) == expected, "{}", strategy.name());
        assert_eq!(ran.report.input_bytes, text.len() as u64);
        assert_eq!(ran.report.keys, expected.len() as u64);
        assert_eq!(ran.report.emitted.rows, expected.values().sum::<u64>());
        assert!(ran.report.shuffled.rows < ran.report.emitted.rows, "maps combine");
        assert!(ran.report.maps > 2 && ran.report.partitions > 2, "{:?}", ran.report);
        assert!(ran.spilled_bytes > 0, "{}: {:?}", strategy.name(), ran.report);
    }
}

#[tokio::test]
async fn odd_texts_are_counted_right() {
    let bench = Bench::new();
    let line =
        |words: usize, space: &str| (0..words).map(|word| format!("w{}{space}", word % 1000)).collect::<String>();
    for (name, text) in [
        ("empty", String::new()),
        ("only spaces", " \n\u{3000}\n ".to_owned()),
        ("no newline at the end", "one two\ntwo".to_owned()),
        ("one giant line", line(700_000, " ")),
        ("one giant line of other spaces", line(30_000, "\u{2003}")),
        ("one key", "same ".repeat(700_000)),
        ("all keys distinct", (0..400_000).map(|word| format!("{word} ")).collect()),
    ] {
        let file = bench.file("text", &text);
        let ran = bench.run(WordCount {}, &[file], None).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(counted(&ran.output) == reference(text.split_whitespace()), "{name}");
    }
    let file = bench.file("text", b"\xff\xfe \xff\xfe x\xe2\x80 x");
    let counts = counted(&bench.run(WordCount {}, &[file], None).await.unwrap().output);
    let expected = [(&b"x"[..], 1), (b"x\xe2\x80", 1), (b"\xff\xfe", 2)].map(|(word, count)| (word.to_vec(), count));
    assert_eq!(counts, BTreeMap::from(expected), "bytes that are no UTF-8 are counted as they are");
}

#[tokio::test]
async fn a_word_that_does_not_fit_is_named() {
    let bench = Bench::new();
    let file = bench.file("text", format!("a word and {}", "x".repeat(8 << 20)));
    let error = bench.run(WordCount {}, &[file], None).await.err().unwrap().to_string();
    assert!(error.contains("text at offset 11: a row of more than"), "{error}");
}

fn aggregate(key: &str, value: Option<&str>, header: bool) -> Aggregate {
    let operations = vec![Operation::Count, Operation::Sum, Operation::Min, Operation::Max];
    Aggregate { key: key.into(), value: value.map(str::to_owned), operations, delimiter: b',', header }
}

/// Lines of part files without their header, in order.
fn sorted_lines(output: &[u8], header: &str) -> Vec<String> {
    let text = std::str::from_utf8(output).unwrap();
    let mut lines: Vec<String> = text.lines().filter(|line| *line != header).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn groups_are_aggregated_by_every_strategy_with_little_memory() {
    let mut bench = Bench::new();
    bench.partitions = None;
    // Keys of which the line ends are inside quotes, and values in hundredths.
    let mut expected: BTreeMap<u64, (u64, i64, i64, i64)> = BTreeMap::new();
    let mut csv = String::from("note,\"the \"\"key\"\"\",value\n");
    for number in numbers(2).take(400_000) {
        let (key, value) = (number % 90_000, (number / 90_000) as i64 % 100_000 - 50_000);
        let sign = if value < 0 { "-" } else { "" };
        let (whole, hundredths) = (value.abs() / 100, value.abs() % 100);
        csv += &format!("\"a\n\"\"note,\"\"\r\n\",k{key},{sign}{whole}.{hundredths:02}\n");
        let group = expected.entry(key).or_insert((0, 0, i64::MAX, i64::MIN));
        *group = (group.0 + 1, group.1 + value, group.2.min(value), group.3.max(value));
    }
    let show = |value: i64| {
        let text = format!("{}{}.{:02}", if value < 0 { "-" } else { "" }, value.abs() / 100, value.abs() % 100);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let line = |(key, group): (&u64, &(u64, i64, i64, i64))| {
        format!("k{key},{},{},{},{}", group.0, show(group.1), show(group.2), show(group.3))
    };
    let mut lines: Vec<String> = expected.iter().map(line).collect();
    lines.sort();
    let file = bench.file("table.csv", &csv);
    for strategy in Strategy::ALL {
        let job = aggregate("the \"key\"", Some("value"), true);
        let ran = bench.run(job, std::slice::from_ref(&file), Some(strategy)).await.unwrap();
        let found = sorted_lines(&ran.output, "\"the \"\"key\"\"\",count,sum,min,max");
        assert!(found == lines, "{}: {} lines, {} expected", strategy.name(), found.len(), lines.len());
        assert_eq!(ran.report.emitted, Output { rows: 400_000, ..Output::default() });
        assert_eq!(ran.report.reduced, ran.report.emitted);
        assert!(ran.report.maps > 5, "a file with line ends in quotes is cut: {:?}", ran.report);
        assert!(ran.spilled_bytes > 0, "{}: {:?}", strategy.name(), ran.report);
    }
}

#[tokio::test]
async fn odd_tables_are_aggregated_right() {
    let bench = Bench::new();
    let run = async |csv: &str, job: Aggregate| {
        let file = bench.file("odd.csv", csv);
        let ran = bench.run(job, &[file], None).await;
        ran.map(|ran| sorted_lines(&ran.output, "k,count,sum,min,max")).map_err(|error| error.to_string())
    };
    let named = || aggregate("k", Some("v"), true);
    let numbered = || aggregate("1", Some("2"), false);
    assert_eq!(run("", named()).await.unwrap(), [""; 0]);
    assert_eq!(run("k,v\n", named()).await.unwrap(), [""; 0]);
    assert_eq!(run("\u{feff}k,v\r\n\r\na,1\r\n\r\nb,2", named()).await.unwrap(), ["a,1,1,1,1", "b,1,2,2,2"]);
    assert_eq!(run("a,1\rb,2\ra,3", numbered()).await.unwrap(), ["a,2,4,1,3", "b,1,2,2,2"]);
    assert_eq!(run("\"x,\"\"y\",1\n,2\n", numbered()).await.unwrap(), ["\"x,\"\"y\",1,1,1,1", ",1,2,2,2"]);
    assert_eq!(run("a,\na,\nb,5\n", numbered()).await.unwrap(), ["a,2,,,", "b,1,5,5,5"]);
    assert_eq!(run("v,k\n0.1,a\n0.2,a\n", named()).await.unwrap(), ["a,2,0.3,0.1,0.2"]);
    let counts = run("a\nb\na\n", Aggregate { operations: vec![Operation::Count], ..aggregate("1", None, false) });
    assert_eq!(counts.await.unwrap(), ["a,2", "b,1"]);
    // More than one piece, one key.
    assert_eq!(run(&"k,2\n".repeat(200_000), numbered()).await.unwrap(), ["k,200000,400000,2,2"]);

    let wrong = run("a,1\n\"b\n\",2\n\nc,x7\n", numbered()).await.unwrap_err();
    assert!(wrong.contains("odd.csv, line 5: column 2: \"x7\" is not a number"), "{wrong}");
    let wrong = run(&format!("{}a,\"x\ny\"\n", "k,2\n".repeat(200_000)), numbered()).await.unwrap_err();
    assert!(wrong.contains("odd.csv, line 200001: column 2: \"x\\ny\" is not a number"), "{wrong}");
    let wrong = run("a,1\nb\n", numbered()).await.unwrap_err();
    assert!(wrong.contains("odd.csv, line 2: there is no column 2, the record has 1"), "{wrong}");
    let wrong = run("key,v\na,1\n", named()).await.unwrap_err();
    assert!(wrong.contains("odd.csv, line 1: no column \"k\"; there are \"key\", \"v\""), "{wrong}");
    let wrong = run("k,v,k\na,1,b\n", named()).await.unwrap_err();
    assert!(wrong.contains("more than one column is called \"k\""), "{wrong}");
    let wrong = run("a,1\n", aggregate("k", Some("2"), false)).await.unwrap_err();
    assert!(wrong.contains("no column \"k\": without a header, columns are numbers from 1"), "{wrong}");
}

fn records(count: u64) -> Vec<u8> {
    let mut bytes = vec![0; count as usize * RECORD_BYTES];
    Generator::new(Mode::default()).fill(0, &mut bytes);
    bytes
}

#[tokio::test]
async fn a_seed_decides_the_order_and_nothing_else_does() {
    let mut bench = Bench::new();
    let bytes = records(200_000);
    let (first, second) = bytes.split_at(70_000 * RECORD_BYTES);
    let inputs = [bench.file("a", first), bench.file("b", second)];
    let job = |seed| RandomShuffle { seed };
    let expected = bench.run(job(7), &inputs, None).await.unwrap();
    assert_eq!(expected.report.emitted.row_hash, exobus_shuffle::records::row_hash_sum(&bytes));
    assert_eq!((expected.report.reduced.rows, expected.report.reduced.bytes), (200_000, 20_000_000));
    let sorted = |bytes: &[u8]| {
        let mut records = bytes.as_chunks::<RECORD_BYTES>().0.to_vec();
        records.sort_unstable();
        records
    };
    assert!(sorted(&expected.output) == sorted(&bytes), "every record once");
    for strategy in Strategy::ALL {
        let ran = bench.run(job(7), &inputs, Some(strategy)).await.unwrap();
        assert!(ran.output == expected.output, "{}", strategy.name());
        assert!(ran.spilled_bytes > 0, "{}", strategy.name());
    }
    for (memory, partitions) in [(256 << 20, Some(1)), (64 << 20, Some(13)), (1 << 30, None)] {
        (bench.memory, bench.partitions) = (memory, partitions);
        assert!(bench.run(job(7), &inputs, None).await.unwrap().output == expected.output, "{memory} {partitions:?}");
    }
    let other = bench.run(job(8), &inputs, None).await.unwrap().output;
    let both = other.chunks(RECORD_BYTES).zip(expected.output.chunks(RECORD_BYTES));
    let same = both.filter(|(a, b)| a == b).count();
    assert!(same < 20, "another seed leaves {same} records where they were");
    let torn = bench.file("torn", [0; 150]);
    let error = bench.run(job(1), &[torn], None).await.err().unwrap().to_string();
    assert!(error.contains("torn: truncated record file: 150 bytes"), "{error}");
    let empty = bench.file("empty", []);
    assert_eq!(bench.run(job(1), &[empty], None).await.unwrap().output, b"");
}

/// A job without combining, whose rows are far larger than its input, of one key or of many.
#[derive(Serialize, Deserialize)]
struct Expand {
    keys: u64,
    loses: bool,
}

exobus_shuffle::keyed_job!(Expand, "expand", 3);

impl KeyedJob for Expand {
    fn split(&self) -> Split {
        Split::Records(8)
    }

    fn map(&self, input: &mut Input<'_>, emit: Emit<'_>) -> Result<(), TaskError> {
        while let Some(record) = input.next_record(8)? {
            let number = u64::from_le_bytes(record.try_into().unwrap());
            emit(&(number % self.keys).to_be_bytes(), &[number as u8; 300])?;
        }
        Ok(())
    }

    fn reduce(&self, key: &[u8], values: Values<'_, '_>, file: &mut dyn std::io::Write) -> Result<(), TaskError> {
        let sum: u64 = values.map(|value| u64::from(value[299])).sum();
        Ok(writeln!(file, "{} {sum}", u64::from_be_bytes(key.try_into().unwrap()))?)
    }

    fn check(&self, input_bytes: u64, emitted: Output) -> Result<(), String> {
        if self.loses { Err(format!("{input_bytes} bytes, {} rows", emitted.rows)) } else { Ok(()) }
    }
}

#[tokio::test]
async fn rows_forty_times_as_large_as_their_input_go_through_little_memory() {
    let mut bench = Bench::new();
    bench.partitions = None;
    let input: Vec<u8> = (0..100_000u64).flat_map(u64::to_le_bytes).collect();
    let file = [bench.file("numbers", input)];
    for strategy in Strategy::ALL {
        let ran = bench.run(Expand { keys: 1000, loses: false }, &file, Some(strategy)).await.unwrap();
        let sum =
            |key: u64| -> u64 { (0..100_000).filter(|number| number % 1000 == key).map(|number| number & 255).sum() };
        let mut expected: Vec<String> = (0..1000).map(|key| format!("{key} {}", sum(key))).collect();
        expected.sort();
        assert!(sorted_lines(&ran.output, "") == expected, "{}", strategy.name());
        assert_eq!((ran.report.shuffled.rows, ran.report.emitted.rows), (100_000, 100_000));
        assert_eq!(ran.report.emitted.bytes, 100_000 * 308);
        assert!(ran.spilled_bytes > 0 && ran.report.partitions > 5, "{}: {:?}", strategy.name(), ran.report);
    }
    let error = bench.run(Expand { keys: 1000, loses: true }, &file, None).await.err().unwrap();
    assert!(matches!(&error, JobError::Conservation { edge, .. } if edge == "input -> output"), "{error}");
}
