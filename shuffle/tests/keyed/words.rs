//! Word count.

use std::collections::BTreeMap;

use exobus_shuffle::Strategy;
use exobus_shuffle::jobs::WordCount;

use crate::bench::{Bench, numbers};

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

for_every_strategy!(words_are_counted_with_little_memory, super::words_are_counted);

async fn words_are_counted(strategy: Strategy) {
    let bench = Bench::least();
    let text = text(300_000);
    let expected = reference(text.split_whitespace());
    let half = text.floor_char_boundary(text.len() / 2);
    let half = half + text[half..].find(' ').unwrap();
    let inputs = [bench.file("a", &text[..half]), bench.file("b", &text[half..])];
    let ran = bench.run(WordCount {}, &inputs, Some(strategy)).await.unwrap();
    assert!(counted(&ran.output) == expected);
    assert_eq!(ran.report.input_bytes, text.len() as u64);
    assert_eq!(ran.report.keys, expected.len() as u64);
    assert_eq!(ran.report.emitted.rows, expected.values().sum::<u64>());
    assert!(ran.report.shuffled.rows < ran.report.emitted.rows, "maps combine");
    assert!(ran.report.maps > 2 && ran.report.partitions > 2, "{:?}", ran.report);
    assert!(ran.spilled_bytes > 0, "{:?}", ran.report);
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
