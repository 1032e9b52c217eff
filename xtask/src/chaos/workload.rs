//! The jobs that rows do harm to: what they read, how they are asked for, and how what they have made is checked.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde_json::Value;

use super::flips::{Random, all_files};
use super::ground::{Ground, Run, finish};

/// Records of a sort: twice what the memory of a row holds, so that every one spills.
const RECORDS: &str = "2M";
/// Rows of each table.
const ROWS: u64 = 1_200_000;
const FILES: u64 = 8;
/// So much memory has room for all at a time.
const PLENTY: &str = "3GiB";
/// The folder of a ground where files are that are right, as long as it is there.
pub(super) const RIGHT: &str = "right";
/// Files of the output, and partitions of sorts on clusters.
pub(super) const PARTITIONS: &str = "24";

/// A kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// A sort of 2 million records, checked by the hash of its records and their order.
    Sort,
    /// A table of 1.2 million rows in 622 000 groups with texts, compared byte by byte with what is made with plenty of memory.
    Group,
    /// Two tables of 1.2 million rows, some keys of which are in one of them alone, compared likewise.
    Join,
    /// SQL over such a table that is answered early: its files are those of the query without early answers, and each look is that of a run without faults.
    Online,
}

/// What is known of the right result.
pub(super) enum Right {
    /// Hash and number of the records, which are to be in order.
    Records((String, u64)),
    /// The files in the folder [`RIGHT`].
    Files,
}

/// The groups that each look of a query shows, by how many blocks it has seen. Who reads the newest one alone may have missed others.
#[derive(Default)]
pub(super) struct Looks(BTreeMap<u64, Value>);

impl Workload {
    /// Makes the input, and says what is to come of it.
    pub(super) fn prepare(self, ground: &Ground) -> Result<Right> {
        let input = ground.path("in");
        match self {
            Self::Sort => {
                let input = input.display().to_string();
                let made =
                    finish(ground.command(&["generate", "--records", RECORDS, "--files", "8", "--json", &input]))?;
                return records(&made).map(Right::Records);
            }
            Self::Group | Self::Online => write_table(ground, "in", 1)?,
            Self::Join => {
                fs::create_dir(&input)?;
                write_table(ground, "in/left", 2)?;
                write_table(ground, "in/right", 3)?;
            }
        }
        // What is answered early in the end is what is answered at once.
        let mut args = if self == Self::Online { query_args(ground) } else { self.args(ground) };
        args.extend(["--output".to_owned(), ground.text(RIGHT), "--memory".to_owned(), PLENTY.to_owned()]);
        let made = finish(ground.command(&args))?;
        ensure!(made.code == Some(0), "{self:?} without faults: {}", made.stderr);
        Ok(Right::Files)
    }

    /// Verb, inputs, and what is to be done with them.
    pub(super) fn args(self, ground: &Ground) -> Vec<String> {
        let input = ground.text("in");
        let [left, right] = ["left", "right"].map(|side| format!("{input}/{side}"));
        let args: &[&str] = match self {
            Self::Sort => &["sort", &input, "--json"],
            Self::Group => {
                let agg = "count(*) as n, sum(price) as total, max(note) as note, last(id)";
                &["group", &input, "--by", "key", "--agg", agg, "--files", PARTITIONS, "--json"]
            }
            Self::Join => {
                let how =
                    ["--how", "full", "--suffix", "_r", "--row-group-rows", "5000", "--files", PARTITIONS, "--json"];
                &[&["join", &left, &right, "--on", "key"], &how[..]].concat()
            }
            Self::Online => {
                return query_args(ground).into_iter().chain(["--online", "--seed", "5"].map(str::to_owned)).collect();
            }
        };
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    /// Whether an output is what it is to be; it is removed.
    pub(super) fn is_right(self, ground: &Ground, output: &str) -> Result<()> {
        let (right, output) = (ground.right_result(), ground.path(output));
        match right {
            Right::Records(right) => {
                let checked = finish(ground.command(&["validate", "--json", &output.display().to_string()]))?;
                ensure!(checked.code == Some(0), "the output is not valid: {}", checked.stderr);
                ensure!(records(&checked)? == *right, "other records came out than went in: {}", checked.stdout);
            }
            Right::Files => same_files(&output, &ground.path(RIGHT))?,
        }
        fs::remove_dir_all(output).context("remove the output")
    }
}

/// A query without early answers.
fn query_args(ground: &Ground) -> Vec<String> {
    let what = "SELECT key, count(*) AS n, sum(price) AS total, max(note) AS note";
    let sql = format!("{what} FROM '{}' GROUP BY key", ground.text("in"));
    ["query", &sql, "--row-group-rows", "5000", "--files", PARTITIONS, "--json"].map(str::to_owned).to_vec()
}

impl Looks {
    /// Those of a run; none where it is of another job.
    pub(super) fn of(run: &Run) -> Result<Self> {
        let mut looks = BTreeMap::new();
        for line in run.stdout.lines().filter(|line| line.starts_with('{')) {
            let line: Value = serde_json::from_str(line).context("read a line of JSON")?;
            if let (Some(seen), Some(groups)) = (line["blocks_seen"].as_u64(), line.get("groups")) {
                looks.insert(seen, groups.clone());
            }
        }
        Ok(Self(looks))
    }

    /// Fails where one of them shows something else than it did without faults, on nodes of the same memory; how many did not.
    pub(super) fn are_those_of(&self, clean: &Self) -> Result<usize> {
        let both = self.0.iter().filter_map(|(seen, groups)| Some((seen, groups, clean.0.get(seen)?)));
        let mut same = 0;
        for (seen, groups, right) in both {
            ensure!(groups == right, "the look at {seen} blocks shows {groups} instead of {right}");
            same += 1;
        }
        Ok(same)
    }
}

fn records(run: &Run) -> Result<(String, u64)> {
    let hash = run.json("row_hash")?.as_str().context("a hash that is no text")?.to_owned();
    Ok((hash, run.json("records")?.as_u64().context("a number of records that is none")?))
}

/// Fails unless two folders have the same files, but for their manifests, which name the jobs that have made them.
fn same_files(found: &Path, right: &Path) -> Result<()> {
    let of = |folder: &Path| -> Vec<_> {
        let names = all_files(folder).into_iter().filter_map(|path| Some(path.strip_prefix(folder).ok()?.to_owned()));
        names.filter(|name| name != Path::new("_exobus.json")).collect()
    };
    let (names, wanted) = (of(found), of(right));
    ensure!(names == wanted, "it has the files {names:?} instead of {wanted:?}");
    for name in names {
        let same = fs::read(found.join(&name))? == fs::read(right.join(&name))?;
        ensure!(same, "{} is another one than without faults", name.display());
    }
    Ok(())
}

/// A table in small row groups whose keys are two thirds as many as its rows; which rows have which follows from `seed`.
fn write_table(ground: &Ground, name: &str, seed: u64) -> Result<()> {
    let text = ground.path("text");
    fs::create_dir(&text)?;
    let mut random = Random::new(seed);
    for file in 0..FILES {
        let mut out = BufWriter::new(File::create(text.join(format!("{file}.csv")))?);
        writeln!(out, "id,key,price,note")?;
        for id in file * ROWS / FILES..(file + 1) * ROWS / FILES {
            let key = random.below(ROWS * 2 / 3);
            let (whole, cents, note) = (random.below(1000), random.below(100), random.below(1 << 40));
            writeln!(
                out,
                "{id},{key},{whole}.{cents:02},{note:x} what somebody wrote about it and about {key} as well"
            )?;
        }
        out.flush()?;
    }
    let [from, to] = ["text", name].map(|name| ground.text(name));
    let made = finish(ground.command(&[
        "convert",
        &from,
        "--output",
        &to,
        "--files",
        "8",
        "--format",
        "parquet",
        "--row-group-rows",
        "20000",
    ]))?;
    ensure!(made.code == Some(0), "a table is made: {}", made.stderr);
    fs::remove_dir_all(&text).context("remove the text")
}
