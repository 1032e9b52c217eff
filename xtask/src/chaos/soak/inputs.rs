//! What the jobs of a soak read, and what has to come out: references are made here, by nothing of exobus (but the order
//! of a random shuffle, which is that of a run without faults).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::super::flips::Random;
use super::super::ground::{Ground, finish};
use super::super::output::{is_whole, parts};

/// Bytes of a record, and of the key that it begins with.
const RECORD: usize = 100;
const KEY: usize = 10;
/// The seed of all random shuffles: their order is that of the reference.
pub(super) const SHUFFLE_SEED: &str = "42";

/// A kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sort,
    SortSkewed,
    WordCount,
    Aggregate,
    Shuffle,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [Self::Sort, Self::SortSkewed, Self::WordCount, Self::Aggregate, Self::Shuffle];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sort => "sort",
            Self::SortSkewed => "sort of skewed keys",
            Self::WordCount => "wordcount",
            Self::Aggregate => "aggregate",
            Self::Shuffle => "random-shuffle",
        }
    }
}

/// See the module.
pub(super) struct Inputs {
    folder: PathBuf,
    uniform: Records,
    skewed: Records,
    /// Lines in order.
    words: Vec<Vec<u8>>,
    groups: Vec<Vec<u8>>,
    /// Hash of the shuffled records, in their order.
    shuffled: u64,
}

/// Number and order-independent hash of records.
#[derive(Debug, Default, PartialEq, Eq)]
struct Records {
    rows: u64,
    sum: u128,
}

impl Records {
    /// Hashes with std's hasher, which exobus does not use.
    fn add(&mut self, bytes: &[u8]) {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        for record in bytes.chunks(RECORD) {
            let (mut low, mut high) = (hasher.build_hasher(), hasher.build_hasher());
            low.write(record);
            high.write_u8(1);
            high.write(record);
            self.rows += 1;
            self.sum = self.sum.wrapping_add(u128::from(high.finish()) << 64 | u128::from(low.finish()));
        }
    }
}

const FOLDER: &str = "soak";

/// Removes what [`Inputs::make`] has made.
pub(super) fn remove(ground: &Ground) -> Result<()> {
    fs::remove_dir_all(ground.path(FOLDER)).context("remove the inputs of the soak")
}

impl Inputs {
    /// Makes inputs and references.
    pub(super) fn make(ground: &Ground) -> Result<Self> {
        let folder = ground.path(FOLDER);
        fs::create_dir(&folder)?;
        let records = |name: &str, count: &str, more: &[&str]| {
            let path = folder.join(name).display().to_string();
            let args = ["generate", "--records", count, "--files", "6", path.as_str()];
            let made = finish(ground.command(&[&args, more].concat()))?;
            ensure!(made.code == Some(0), "no input: {}", made.stderr);
            let mut read = Records::default();
            for part in parts(Path::new(&path))? {
                read.add(&fs::read(part)?);
            }
            Ok(read)
        };
        let uniform = records("uniform", "1200k", &[])?;
        let skewed = records("skewed", "800k", &["--skewed"])?;
        let words = words(&folder.join("text"))?;
        let groups = groups(&folder.join("csv"))?;
        let mut inputs = Self { folder, uniform, skewed, words, groups, shuffled: 0 };
        let output = ground.path("soak-reference");
        let mut args = inputs.args(Kind::Shuffle, &output);
        args.extend(["--memory", "1GiB", "--spill"].map(str::to_owned));
        args.push(ground.text("spill"));
        let run = finish(ground.command(&args))?;
        ensure!(run.code == Some(0), "no reference: {}", run.stderr);
        inputs.shuffled = hash_in_order(&output)?;
        fs::remove_dir_all(output)?;
        Ok(inputs)
    }

    /// The command of a job, without what says where it runs.
    pub(super) fn args(&self, kind: Kind, output: &Path) -> Vec<String> {
        let (command, input, more): (_, _, &[&str]) = match kind {
            Kind::Sort => ("sort", "uniform", &[]),
            Kind::SortSkewed => ("sort", "skewed", &[]),
            Kind::WordCount => ("wordcount", "text", &[]),
            Kind::Aggregate => ("aggregate", "csv", &["--header", "--key", "city", "--value", "price"]),
            Kind::Shuffle => ("random-shuffle", "uniform", &["--seed", SHUFFLE_SEED]),
        };
        let input = self.folder.join(input).display().to_string();
        let output = output.display().to_string();
        [command, &input, "--output", &output, "--json"].iter().chain(more).map(|arg| (*arg).to_owned()).collect()
    }

    /// Fails where an output folder is not whole, or is not what a job of this kind must give.
    pub(super) fn check(&self, kind: Kind, output: &Path) -> Result<()> {
        is_whole(output)?;
        match kind {
            Kind::Sort => sorted(output, &self.uniform),
            Kind::SortSkewed => sorted(output, &self.skewed),
            Kind::WordCount => lines(output, b"", &self.words),
            Kind::Aggregate => lines(output, b"city,sum,count,min,max", &self.groups),
            Kind::Shuffle => {
                let found = hash_in_order(output)?;
                ensure!(found == self.shuffled, "the order of the shuffle is another");
                Ok(())
            }
        }
    }
}

fn sorted(output: &Path, expected: &Records) -> Result<()> {
    let (mut found, mut last) = (Records::default(), [0; KEY]);
    for part in parts(output)? {
        let bytes = fs::read(&part)?;
        ensure!(bytes.len().is_multiple_of(RECORD), "{} is torn", part.display());
        for (row, record) in bytes.chunks(RECORD).enumerate() {
            ensure!(record[..KEY] >= last[..], "{}, row {row}: not in order", part.display());
            last.copy_from_slice(&record[..KEY]);
        }
        found.add(&bytes);
    }
    ensure!(found == *expected, "{found:?} came out, {expected:?} went in");
    Ok(())
}

fn hash_in_order(output: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for part in parts(output)? {
        hasher.write(&fs::read(part)?);
    }
    Ok(hasher.finish())
}

/// Compares lines, in any order; `header` is not counted.
fn lines(output: &Path, header: &[u8], expected: &[Vec<u8>]) -> Result<()> {
    let mut found = Vec::new();
    for part in parts(output)? {
        let bytes = fs::read(part)?;
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && *line != header);
        found.extend(lines.map(<[u8]>::to_vec));
    }
    found.sort_unstable();
    let differs = found.iter().zip(expected).find(|(found, expected)| found != expected);
    let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
    if let Some((found, expected)) = differs {
        anyhow::bail!("{:?} came out instead of {:?}", text(found), text(expected));
    }
    ensure!(found.len() == expected.len(), "{} lines came out instead of {}", found.len(), expected.len());
    Ok(())
}

/// Text files whose words crowd together, and the lines of their counts.
fn words(folder: &Path) -> Result<Vec<Vec<u8>>> {
    fs::create_dir(folder)?;
    let mut random = Random::new(11);
    let mut counts = BTreeMap::<String, u64>::new();
    for file in 0..5 {
        let mut text = String::new();
        for word in 0..200_000 {
            let limit = 1 + random.below(60_000);
            let name = format!("w{}", random.below(limit));
            let end = if word % 12 == 11 { "\n" } else { " " };
            write!(text, "{name}{end}")?;
            *counts.entry(name).or_default() += 1;
        }
        fs::write(folder.join(format!("{file}.txt")), text)?;
    }
    let mut lines: Vec<_> = counts.iter().map(|(word, count)| format!("{word}\t{count}").into_bytes()).collect();
    lines.sort_unstable();
    Ok(lines)
}

/// CSV files, and the lines of sum, count, least and greatest value of each group.
fn groups(folder: &Path) -> Result<Vec<Vec<u8>>> {
    fs::create_dir(folder)?;
    let mut random = Random::new(13);
    let mut groups = BTreeMap::<u64, (i64, u64, i64, i64)>::new();
    for file in 0..5 {
        let mut text = String::from("city,day,price\n");
        for _ in 0..200_000 {
            let (city, day) = (random.below(90_000), random.below(365));
            let price = random.below(20_000).cast_signed() - 4_000;
            writeln!(text, "c{city},{day},{price}")?;
            let (sum, count, least, most) = groups.entry(city).or_insert((0, 0, price, price));
            *sum += price;
            *count += 1;
            *least = price.min(*least);
            *most = price.max(*most);
        }
        fs::write(folder.join(format!("{file}.csv")), text)?;
    }
    let line = |(city, (sum, count, least, most)): (&u64, &(i64, u64, i64, i64))| {
        format!("c{city},{sum},{count},{least},{most}").into_bytes()
    };
    let mut lines: Vec<_> = groups.iter().map(line).collect();
    lines.sort_unstable();
    Ok(lines)
}
