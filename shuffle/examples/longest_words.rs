//! A job of one's own: the three longest words of each first letter, with functions to map, combine, merge and reduce.
//!
//! ```sh
//! cargo run --release -p exobus-shuffle --example longest_words -- TEXT... OUTPUT
//! ```
//!
//! OUTPUT is a folder, empty or not there yet; its files have a line for each first letter: how many words begin with it,
//! and the longest three. It all runs in this process, with a gigabyte of memory; a node of a cluster that has this job in
//! its binary runs it when it is submitted as "longest_words@1".

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::registry::TaskError;
use exobus_actors::task::Output;
use exobus_shuffle::keyed::{self, Emit, Input, Keep, KeyedJob, KeyedParams, Split, Values};
use serde::{Deserialize, Serialize};

/// Keys are first letters (bytes). A value is how many words it stands for, 8 bytes, little-endian, and the longest of
/// them, with a space before each.
#[derive(Serialize, Deserialize)]
struct LongestWords {
    /// How many words of a letter are kept.
    kept: usize,
}

exobus_shuffle::keyed_job!(LongestWords, "longest_words", 1);

/// What values stand for, taken together.
#[derive(Default)]
struct Longest {
    count: u64,
    words: Vec<Vec<u8>>,
}

impl Longest {
    fn add(&mut self, value: &[u8], kept: usize) {
        let (count, words) = value.split_first_chunk().expect("a value begins with a count");
        self.count += u64::from_le_bytes(*count);
        self.words.extend(words.split(|byte| *byte == b' ').skip(1).map(<[u8]>::to_vec));
        // The longest first, and between words of a length the order of their bytes, so that the result is always the same.
        self.words.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.words.dedup();
        self.words.truncate(kept);
    }

    fn write(&self, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(&self.count.to_le_bytes());
        for word in &self.words {
            value.push(b' ');
            value.extend_from_slice(word);
        }
    }
}

impl KeyedJob for LongestWords {
    fn split(&self) -> Split {
        Split::Anywhere
    }

    fn map(&self, input: &mut Input<'_>, emit: Emit<'_>) -> Result<(), TaskError> {
        let mut value = Vec::new();
        while let Some(word) = input.next_token(|byte| byte.is_ascii_whitespace())? {
            value.clear();
            value.extend_from_slice(&1u64.to_le_bytes());
            value.push(b' ');
            value.extend_from_slice(word);
            emit(&word[..1], &value)?;
        }
        Ok(())
    }

    /// In maps, word by word: what leaves a map has one row for each letter.
    fn combines(&self) -> bool {
        true
    }

    fn combine(&self, _key: &[u8], into: &mut Vec<u8>, value: &[u8]) -> Result<(), TaskError> {
        let mut longest = Longest::default();
        longest.add(into, self.kept);
        longest.add(value, self.kept);
        longest.write(into);
        Ok(())
    }

    /// Where a strategy merges: all values of a letter at once, which costs less than two by two.
    fn merges(&self) -> bool {
        true
    }

    fn merge(&self, _key: &[u8], values: Values<'_>, keep: Keep<'_>) -> Result<(), TaskError> {
        let mut longest = Longest::default();
        values.for_each(|value| longest.add(value, self.kept));
        let mut value = Vec::new();
        longest.write(&mut value);
        keep(&value)
    }

    fn reduce(&self, key: &[u8], values: Values<'_>, file: &mut dyn Write) -> Result<(), TaskError> {
        let mut longest = Longest::default();
        values.for_each(|value| longest.add(value, self.kept));
        write!(file, "{} {}", key.escape_ascii(), longest.count)?;
        for word in &longest.words {
            file.write_all(b" ")?;
            file.write_all(word)?;
        }
        Ok(file.write_all(b"\n")?)
    }

    /// No word may get lost on the way: as many as were emitted are counted when they are reduced.
    fn conserved(&self, _key: &[u8], value: &[u8]) -> Output {
        let count = value.first_chunk().map_or(0, |count| u64::from_le_bytes(*count));
        Output { rows: count, ..Output::default() }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let Some(output) = paths.pop().filter(|_| !paths.is_empty()) else {
        return Err("give text files, and a folder for the output".into());
    };
    let mut options = NodeOptions::alone(2, 1 << 30);
    options.store.spill_dirs = vec![std::env::temp_dir().join(format!("longest-words-{}", std::process::id()))];
    let spill = options.store.spill_dirs.clone();
    let node = Node::start(options)?;
    let job = LongestWords { kept: 3 };
    let params = KeyedParams { inputs: paths, output, partitions: None, strategy: None, partial: false, job };
    let program = async move |futures| keyed::run(futures, params).await;
    let (report, _) = futures::executor::block_on(node.run(JobId::new(), "longest_words", None, program));
    node.stop();
    spill.iter().for_each(|folder| drop(std::fs::remove_dir_all(folder)));
    let report = report?;
    println!("{} words of {} letters", report.emitted.rows, report.keys);
    Ok(())
}
