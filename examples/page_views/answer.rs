//! The query of the paper, as batch and online, and how wrong each look was.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use exobus::config::units::parse_size;
use exobus::queries::snapshot::{SHOWN_BYTES_MAX, SHOWN_MAX, Snapshot};
use exobus::report::count;
use exobus::tables::arrow_array::cast::AsArray as _;
use exobus::tables::arrow_array::types::Decimal128Type;
use exobus::{Answer, Query};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::convert::dumps;
use crate::divergence::{PAGES, Truth, Views};
use crate::plot::{self, Curve, Point};

/// Online, the paper knows the answer to so much after this part of the time of the batch.
pub const PAPER: Point = Point { part_of_batch: 1.0 / 22.0, divergence: 0.08 };

#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// A folder of Parquet, or files by a pattern in quotes
    pages: PathBuf,
    /// Pages of each language that are asked for; more than are judged, so that one whose place is not sure yet is shown
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(PAGES as u64..=1000))]
    top: u64,
    /// In which order blocks are read
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What each query may use in memory, such as 4GiB; 60 % of what is available unless it is said
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// How many tasks run side by side
    #[arg(long)]
    executors: Option<u32>,
    /// A folder for what does not fit in memory
    #[arg(long, value_name = "DIR")]
    spill: Option<PathBuf>,
    /// A file for the picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Prints one object of JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// A snapshot when it was there.
struct Look {
    seconds: f64,
    snapshot: Snapshot,
}

/// What was seen.
pub struct Outcome {
    /// Rows of all files.
    pub rows: u64,
    pub languages: usize,
    pub batch_seconds: f64,
    /// Until the exact answer.
    pub online_seconds: f64,
    pub looks: Vec<Judged>,
    pub truth: Truth,
    /// Why nothing was shown before the end.
    pub not_online: Option<String>,
}

pub fn run(args: &AnswerArgs) -> Result<()> {
    let outcome = ask(args)?;
    if let Some(warning) = outcome.warning(args.top) {
        eprintln!("{warning}");
    }
    if let Some(reason) = &outcome.not_online {
        eprintln!("nothing was shown before the end: {reason}");
    }
    if let Some(file) = &args.svg {
        std::fs::write(file, plot::svg(&outcome.curve())).with_context(|| format!("write {}", file.display()))?;
    }
    match args.json {
        true => println!("{}", outcome.json()),
        false => outcome.tell(),
    }
    Ok(())
}

/// Asks online and as batch.
pub fn ask(args: &AnswerArgs) -> Result<Outcome> {
    if args.pages.is_dir() && !dumps(&args.pages)?.is_empty() {
        let folder = args.pages.display();
        bail!(
            "{folder} has dumps of text, which exobus does not read: `convert {folder} FOLDER` makes Parquet of them"
        );
    }
    // First the looks: the system may have in memory what they have read when the batch reads it, and not the other way round.
    let (looks, online_seconds, answer) = online(args)?;
    let (batch_seconds, batch) = timed(|| query(args).answer())?;
    ensure!(batch.batches == answer.batches, "batch and online have different answers");
    let views = views(&answer)?;
    let truth = Truth::new(&views);
    let looks = looks.iter().map(|look| Judged::of(look, &truth, batch_seconds)).collect();
    let exobus::sql::program::Answered { rows_read: rows, not_online, .. } = answer.answered;
    Ok(Outcome { rows, languages: views.len(), batch_seconds, online_seconds, looks, truth, not_online })
}

fn query(args: &AnswerArgs) -> Query {
    let text = format!(
        "SELECT lang, title, sum(requests) AS views FROM pages GROUP BY lang, title \
         QUALIFY row_number() OVER (PARTITION BY lang ORDER BY sum(requests) DESC, title) <= {}",
        args.top
    );
    let mut query = Query::new(text).table("pages", &args.pages);
    if let Some(bytes) = args.memory {
        query = query.memory(bytes);
    }
    if let Some(executors) = args.executors {
        query = query.executors(executors);
    }
    if let Some(folder) = &args.spill {
        query = query.spill(folder);
    }
    query
}

#[allow(clippy::disallowed_methods, reason = "how long a query takes is what is looked at")]
fn timed<T, E: Into<anyhow::Error>>(work: impl FnOnce() -> Result<T, E>) -> Result<(f64, T)> {
    let begin = Instant::now();
    let done = work().map_err(Into::into)?;
    Ok((begin.elapsed().as_secs_f64(), done))
}

/// Each look with the seconds since the query was asked, the seconds until the answer, and the answer.
#[allow(clippy::disallowed_methods, reason = "when a look is there is what is looked at")]
fn online(args: &AnswerArgs) -> Result<(Vec<Look>, f64, Answer)> {
    let begin = Instant::now();
    let mut snapshots = query(args).online(None, args.seed)?;
    let mut looks = Vec::new();
    while let Some(snapshot) = futures::executor::block_on(snapshots.next()) {
        let seconds = begin.elapsed().as_secs_f64();
        if !args.json {
            eprintln!("{seconds:8.2} s: {} of {} blocks", snapshot.blocks_seen, snapshot.blocks);
        }
        looks.push(Look { seconds, snapshot });
    }
    let answer = snapshots.answer()?;
    Ok((looks, begin.elapsed().as_secs_f64(), answer))
}

/// The views of the answer.
fn views(answer: &Answer) -> Result<Views> {
    ensure!(answer.is_all, "the answer has more than 4 MiB: ask for a smaller --top");
    let mut views = Views::new();
    for batch in &answer.batches {
        let (langs, titles) = (batch.column(0).as_string::<i32>(), batch.column(1).as_string::<i32>());
        let numbers = batch.column(2).as_primitive_opt::<Decimal128Type>().context("a sum of int64 is a decimal")?;
        for row in 0..batch.num_rows() {
            let pages = views.entry(langs.value(row).to_owned()).or_default();
            pages.insert(titles.value(row).to_owned(), numbers.value(row) as f64);
        }
    }
    Ok(views)
}

/// What a look shows, without groups of which it says no views.
fn shown(snapshot: &Snapshot) -> Views {
    let mut views = Views::new();
    for group in &snapshot.groups {
        if let ([Value::String(lang), Value::String(title)], [value]) = (&group.key[..], &group.values[..])
            && let Some(number) = value.estimate.as_f64().or_else(|| value.estimate.as_str()?.parse().ok())
        {
            views.entry(lang.clone()).or_default().insert(title.clone(), number);
        }
    }
    views
}

/// Whether there was no room for all groups that were asked for: as many are shown as can be, or the bytes that are left are fewer than the largest one takes.
fn is_cut(snapshot: &Snapshot) -> bool {
    let bytes = |group| serde_json::to_vec(group).map_or(0, |bytes| bytes.len());
    let bytes: Vec<usize> = snapshot.groups.iter().map(bytes).collect();
    let (all, largest) = (bytes.iter().sum::<usize>(), bytes.iter().max().copied().unwrap_or(0));
    snapshot.groups.len() >= SHOWN_MAX || all + largest > SHOWN_BYTES_MAX
}

/// A look beside the truth.
pub struct Judged {
    /// Since the query was asked.
    pub seconds: f64,
    pub part_of_batch: f64,
    /// How many were read, of how many.
    pub blocks: (u64, u64),
    pub rows_seen: u64,
    pub is_final: bool,
    pub is_cut: bool,
    /// In nats; not known of a look that was cut, nor of one that shows no views.
    pub divergence: Option<f64>,
    /// Of the largest groups.
    pub largest_error: Option<f64>,
}

impl Judged {
    fn of(Look { seconds, snapshot }: &Look, truth: &Truth, batch_seconds: f64) -> Self {
        let shown = shown(snapshot);
        // One that says no views has nothing that could be missing.
        let is_cut = is_cut(snapshot) && !shown.is_empty();
        Self {
            seconds: *seconds,
            part_of_batch: seconds / batch_seconds,
            blocks: (snapshot.blocks_seen, snapshot.blocks),
            rows_seen: snapshot.rows_seen,
            is_final: snapshot.is_final,
            is_cut,
            divergence: truth.divergence(&shown).filter(|_| !is_cut),
            largest_error: truth.largest_error(&shown).filter(|_| !is_cut),
        }
    }

    fn line(&self) -> String {
        let (read, blocks) = self.blocks;
        let (of_batch, of_blocks) = (100.0 * self.part_of_batch, 100.0 * read as f64 / blocks as f64);
        let (divergence, error) = (percent(self.divergence), percent(self.largest_error));
        let note = match (self.is_cut, self.divergence) {
            (true, _) => " cut",
            (false, None) => " no values",
            (false, Some(_)) => "",
        };
        format!("{:>9.2} {of_batch:>7.1} % {of_blocks:>7.1} % {divergence:>11} {error:>13}{note}", self.seconds)
    }

    fn json(&self) -> Value {
        json!({
            "seconds": self.seconds,
            "part_of_batch": self.part_of_batch,
            "blocks_seen": self.blocks.0,
            "blocks": self.blocks.1,
            "rows_seen": self.rows_seen,
            "final": self.is_final,
            "cut": self.is_cut,
            "divergence": self.divergence,
            "largest_error": self.largest_error,
        })
    }
}

impl Outcome {
    /// What is to be known of looks that were cut.
    pub fn warning(&self, top: u64) -> Option<String> {
        let cut = self.looks.iter().filter(|look| look.is_cut).count();
        (cut > 0).then(|| {
            format!(
                "{cut} of {} looks were cut, so nobody knows how wrong they were: the first {top} pages of {} languages are more than the {SHOWN_MAX} groups and {} KiB that are shown; \
                 ask for a smaller --top, or generate fewer --languages",
                self.looks.len(),
                self.languages,
                SHOWN_BYTES_MAX >> 10
            )
        })
    }

    fn json(&self) -> Value {
        json!({
            "rows": self.rows,
            "languages": self.languages,
            "batch_seconds": self.batch_seconds,
            "online_seconds": self.online_seconds,
            "looks": self.looks.iter().map(Judged::json).collect::<Vec<_>>(),
            "tops": self.truth.tops(),
        })
    }

    fn curve(&self) -> Curve {
        let point = |look: &Judged| Some(Point { part_of_batch: look.part_of_batch, divergence: look.divergence? });
        let blocks = self.looks.last().map_or(0, |look| look.blocks.1);
        let Self { rows, languages, batch_seconds, .. } = self;
        Curve {
            about: format!(
                "{} rows in {} blocks, {languages} languages; the batch takes {batch_seconds:.1} s",
                count(*rows),
                count(blocks)
            ),
            points: self.looks.iter().filter_map(point).collect(),
            paper: PAPER,
        }
    }

    fn tell(&self) {
        println!("{:>9} {:>9} {:>9} {:>11} {:>13}", "seconds", "of batch", "of blocks", "divergence", "largest error");
        self.looks.iter().for_each(|look| println!("{}", look.line()));
        let Self { batch_seconds: batch, online_seconds: online, .. } = self;
        println!("batch {batch:.2} s; online {online:.2} s until the exact answer, which is that of the batch");
        let is_near = |look: &&Judged| look.divergence.is_some_and(|divergence| divergence <= PAPER.divergence);
        if let Some(look) = self.looks.iter().find(is_near) {
            println!("8 % after 1/{:.1} of the time of the batch; in the paper after 1/22", 1.0 / look.part_of_batch);
        }
        let mut languages: Vec<_> = self.truth.tops().iter().collect();
        let views = |pages: &[(String, f64)]| pages.iter().map(|(_, views)| views).sum::<f64>();
        languages.sort_by(|one, other| views(other.1).total_cmp(&views(one.1)));
        for (lang, pages) in languages.into_iter().take(3) {
            let pages: Vec<_> = pages.iter().take(3).map(|(title, views)| format!("{title} {views}")).collect();
            println!("{lang}: {}", pages.join(", "));
        }
    }
}

fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.3} %", 100.0 * part))
}

#[cfg(test)]
mod tests {
    use exobus::queries::snapshot::{ShownGroup, ShownValue};

    use super::*;

    fn snapshot(groups: usize, title: &str) -> Snapshot {
        let group = |number: usize| ShownGroup {
            key: vec![json!("en"), json!(format!("{title}{number}"))],
            values: vec![ShownValue::exact(json!("7"))],
        };
        Snapshot { groups: (0..groups).map(group).collect(), ..Snapshot::default() }
    }

    #[test]
    fn a_look_without_room_is_noticed() {
        assert!(!is_cut(&snapshot(0, "")) && !is_cut(&snapshot(800, "p")));
        assert!(is_cut(&snapshot(1000, "p")));
        // 300 bytes more each.
        assert!(is_cut(&snapshot(410, &"p".repeat(300))) && !is_cut(&snapshot(300, &"p".repeat(300))));
    }

    #[test]
    fn digits_stand_in_groups() {
        assert_eq!([0, 999, 1_000, 100_000_000].map(count), ["0", "999", "1 000", "100 000 000"]);
    }

    #[test]
    fn groups_without_views_are_not_shown() {
        let mut snapshot = snapshot(2, "p");
        snapshot.groups[1].values = vec![ShownValue::unknown("exact at the end")];
        assert_eq!(shown(&snapshot)["en"], [("p0".to_owned(), 7.0)].into());
    }
}
