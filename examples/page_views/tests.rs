//! The commands over a small table, as text and as Parquet.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use parquet::file::reader::{FileReader as _, SerializedFileReader};

use super::*;
use crate::answer::Outcome;
use crate::convert::dumps;

fn run(args: &[&str]) -> Result<()> {
    super::run(Cli::try_parse_from([&["page_views"], args].concat())?)
}

fn answer(folder: &Path, pages: &str, more: &[&str]) -> Result<Outcome> {
    let (pages, spill) = (folder.join(pages), folder.display().to_string());
    let args =
        ["page_views", "answer", pages.to_str().unwrap(), "--spill", &spill, "--memory", "128MiB", "--executors", "2"];
    match Cli::try_parse_from([&args, more].concat())?.command {
        Command::Answer(args) => answer::ask(&args),
        other => bail!("{other:?} is not asked here"),
    }
}

/// The first pages of each language, counted here.
fn counted(folder: &Path) -> BTreeMap<String, Vec<(String, f64)>> {
    let mut views: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for dump in dumps(folder).unwrap() {
        let mut text = String::new();
        flate2::read::GzDecoder::new(File::open(dump).unwrap()).read_to_string(&mut text).unwrap();
        for line in text.lines() {
            let [lang, title, requests, _] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
            *views.entry(lang.to_owned()).or_default().entry(title.to_owned()).or_default() +=
                requests.parse::<f64>().unwrap();
        }
    }
    let top = |pages: BTreeMap<String, f64>| {
        let mut pages: Vec<_> = pages.into_iter().collect();
        pages.sort_by(|one, other| other.1.total_cmp(&one.1));
        pages.truncate(divergence::PAGES);
        pages
    };
    views.into_iter().map(|(lang, pages)| (lang, top(pages))).collect()
}

#[test]
fn numbers_have_units() {
    let read = |text| number(text).map_err(|error| error.to_string());
    assert_eq!((read("7"), read("25k"), read("100M")), (Ok(7), Ok(25_000), Ok(100_000_000)));
    assert!(read("1.5M").unwrap_err().contains("is no number"));
    assert!(read("99999999999G").unwrap_err().contains("too large"));
    assert!(some("0").is_err() && some("1").is_ok());
}

#[test]
fn text_and_parquet_have_one_answer_and_looks_come_nearer_to_it() {
    let scratch = tempfile::tempdir().unwrap();
    let [dumps, made, converted] =
        ["dumps", "made", "converted"].map(|name| scratch.path().join(name).display().to_string());
    let small = ["--rows", "30k", "--hours", "3", "--languages", "6", "--titles", "300", "--seed", "5"];
    let groups = ["--row-group-rows", "300"];
    run(&[&["generate", &dumps, "--format", "text"], &small[..]].concat()).unwrap();
    run(&[&["generate", &made, "--compression", "zstd"], &small[..], &groups].concat()).unwrap();
    run(&[&["convert", &dumps, &converted], &groups[..]].concat()).unwrap();

    let outcome = answer(scratch.path(), "made", &["--seed", "2"]).unwrap();
    let expected = counted(Path::new(&dumps));
    assert_eq!((outcome.truth.tops(), outcome.rows, outcome.languages), (&expected, 30_000, 6));
    assert_eq!(answer(scratch.path(), "converted", &[]).unwrap().truth.tops(), &expected);

    let looks = &outcome.looks;
    let (first, last) = (looks.first().unwrap(), looks.last().unwrap());
    assert!(looks.len() > 8 && first.blocks.0 < 5 && outcome.not_online.is_none(), "{} looks", looks.len());
    assert_eq!((last.is_final, last.blocks, last.rows_seen), (true, (102, 102), 30_000));
    assert_eq!((last.divergence, last.largest_error), (Some(0.0), Some(0.0)));
    let of = |look: usize| looks[look].divergence.unwrap();
    assert!(of(0) > of(looks.len() - 2) && of(looks.len() - 2) > 0.0 && of(looks.len() - 2) < 0.02, "{}", of(0));
    assert_eq!(outcome.warning(16), None);

    let refused = answer(scratch.path(), "dumps", &[]).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("which exobus does not read"), "{refused}");
    let refused = run(&["generate", &made, "--rows", "1"]).unwrap_err().to_string();
    assert!(refused.contains("is not empty"), "{refused}");
    let refused = run(&["convert", &made, &converted]).unwrap_err().to_string();
    assert!(refused.contains("ends with .gz"), "{refused}");
}

#[test]
fn more_pages_than_are_shown_are_noticed() {
    let scratch = tempfile::tempdir().unwrap();
    let made = scratch.path().join("made").display().to_string();
    let small = ["--rows", "40k", "--hours", "2", "--languages", "70", "--titles", "1k", "--row-group-rows", "1k"];
    run(&[&["generate", &made], &small[..]].concat()).unwrap();
    let outcome = answer(scratch.path(), "made", &[]).unwrap();
    let cut: Vec<_> = outcome.looks.iter().filter(|look| look.is_cut).collect();
    assert!(!cut.is_empty() && cut.iter().all(|look| look.divergence.is_none()));
    assert!(outcome.warning(16).unwrap().contains("pages of 70 languages are more"));
}

#[test]
fn parquet_has_row_groups_and_an_index_of_their_pages() {
    let scratch = tempfile::tempdir().unwrap();
    let made = scratch.path().join("made");
    let args = ["generate", made.to_str().unwrap(), "--rows", "12001", "--hours", "1", "--row-group-rows", "10k"];
    run(&args).unwrap();
    let names: Vec<_> = std::fs::read_dir(&made).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names, [made.join("pageviews-20160101-000000.parquet")]);
    let reader = SerializedFileReader::new(File::open(&names[0]).unwrap()).unwrap();
    let groups: Vec<_> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups, [10_000, 2_001]);
    for column in reader.metadata().row_groups().iter().flat_map(|group| group.columns()) {
        assert!(column.column_index_offset().is_some() && column.offset_index_offset().is_some(), "{column:?}");
    }
}
