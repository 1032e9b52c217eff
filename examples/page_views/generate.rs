//! Hourly page views at any scale. Languages and titles are Zipf; what is popular follows the hour, in two ways: a language is read most at its own time of day, and titles change places.
//!
//! A row is drawn: it is what one of many servers has counted for a page. So a page has as many rows of an hour as it is popular, where a dump of Wikimedia has one.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::files::{Format, HourFile, PageView, ParquetArgs, empty_folder, for_each_file};
use crate::zipf::{Numbers, Zipf, mixed};

/// Of languages by their views.
const LANGUAGES_EXPONENT: f64 = 1.0;
/// Of titles of a language by theirs.
const TITLES_EXPONENT: f64 = 0.95;
/// By this part a language is read more and less than on average, as the day goes by.
const DAY_AMPLITUDE: f64 = 0.5;
/// Hours until titles of a band have changed places once around.
const TURN_HOURS: u64 = 48;
/// Views of a row, on average, beside the first one.
const MORE_REQUESTS: f64 = 4.0;
/// The largest languages of Wikipedia; further ones have numbers.
const LANGUAGES: &str = "en ja es de ru fr it zh pt pl nl tr ar id sv fa ko cs fi uk hu vi no he da th ro el bg hr \
                         sr sk ca lt hi sl et ms az simple bn ta eu ka gl te hy uz lv mk";

#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// A folder, which is empty or made
    folder: PathBuf,
    /// Rows of all files together, such as 100M
    #[arg(long, value_parser = crate::number)]
    rows: u64,
    /// Files, one for each hour
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=8784))]
    hours: u64,
    /// Languages; a look shows no more than 1 000 pages, and 160 KiB of them
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    languages: u64,
    /// Titles of the largest language; the second has half of them, the third a third
    #[arg(long, default_value = "1M", value_parser = crate::some)]
    titles: u64,
    #[arg(long, value_enum, default_value = "parquet")]
    format: Format,
    /// An hour's rows follow from this number and the hour alone
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    parquet: ParquetArgs,
}

pub fn run(args: &GenerateArgs) -> Result<()> {
    empty_folder(&args.folder)?;
    let languages = languages(args.languages, args.titles);
    for_each_file(args.hours as usize, |hour| {
        let hour = hour as u64;
        let rows = args.rows / args.hours + u64::from(hour < args.rows % args.hours);
        let name = name(hour)?;
        let mut file = HourFile::create(&args.folder, &name, args.format, &args.parquet)?;
        generate(&languages, (args.seed, hour), rows, |row| file.write(row)).with_context(|| format!("make {name}"))?;
        file.finish()
    })?;
    println!("{} rows in {} files", args.rows, args.hours);
    Ok(())
}

/// The name of the file of an hour, counted from the first one of 2016 on, without an extension.
fn name(hour: u64) -> Result<String> {
    let (mut month, mut day) = (1, hour / 24 + 1);
    for days in [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day <= days {
            return Ok(format!("pageviews-2016{month:02}{day:02}-{:02}0000", hour % 24));
        }
        (month, day) = (month + 1, day - days);
    }
    bail!("a year has 8784 hours")
}

struct Language {
    name: String,
    titles: u64,
    zipf: Zipf,
    /// Of all views, on average over a day; not scaled.
    weight: f64,
    /// When it is read most, as a part of the day.
    phase: f64,
}

fn languages(languages: u64, titles: u64) -> Vec<Language> {
    let mut names = LANGUAGES.split_whitespace();
    let language = |rank: u64| {
        // The tops of small languages are tops, too.
        let titles = (titles / rank).max(titles.min(100));
        Language {
            name: names.next().map_or_else(|| format!("x{rank}"), str::to_owned),
            titles,
            zipf: Zipf::new(titles, TITLES_EXPONENT),
            weight: (rank as f64).powf(-LANGUAGES_EXPONENT),
            phase: mixed(rank) as f64 / u64::MAX as f64,
        }
    };
    (1..=languages).map(language).collect()
}

/// Rows of an hour, in no order.
fn generate(
    languages: &[Language],
    (seed, hour): (u64, u64),
    rows: u64,
    mut each: impl FnMut(&PageView<'_>) -> Result<()>,
) -> Result<()> {
    let numbers = Numbers::new(mixed(mixed(seed) ^ hour));
    let upto = upto(languages, hour);
    let (mut title, last) = (String::new(), languages.len() - 1);
    for _ in 0..rows {
        let (which, more) = numbers.two();
        let place = upto.partition_point(|upto| *upto <= which).min(last);
        let language = &languages[place];
        let number = title_of(language.zipf.draw(&numbers), language.titles, hour);
        title.clear();
        write!(title, "Page_{number:06}")?;
        // Geometric: most rows have few views.
        let requests = 1 + (-(1.0 - more).ln() * MORE_REQUESTS) as i64;
        let bytes = 4_000 + (mixed(number ^ ((place as u64) << 40)) % 60_000) as i64;
        each(&PageView { lang: &language.name, title: &title, requests, size: requests * bytes })?;
    }
    Ok(())
}

/// The parts of an hour's rows that the languages up to each of them have.
fn upto(languages: &[Language], hour: u64) -> Vec<f64> {
    let of = |language: &Language| {
        let time = (hour % 24) as f64 / 24.0;
        language.weight * (1.0 + DAY_AMPLITUDE * (std::f64::consts::TAU * (time - language.phase)).cos())
    };
    let all: f64 = languages.iter().map(of).sum();
    let mut upto = 0.0;
    let sums = languages.iter().map(|language| {
        upto += of(language) / all;
        upto
    });
    sums.collect()
}

/// The title, from 1 on, that has a rank in an hour: titles of ranks 1 to 3, of 4 to 15, of 16 to 63 and so on change places among themselves, each band once around in [`TURN_HOURS`], so that blocks of
/// different hours have other pages at their top. In any hour each title has one rank.
fn title_of(rank: u64, titles: u64, hour: u64) -> u64 {
    let begin = 1_u64 << (rank.ilog2() & !1);
    let len = (3 * begin).min(titles + 1 - begin);
    let shift = (u128::from(len) * u128::from(hour) / u128::from(TURN_HOURS)) as u64;
    begin + (rank - begin + shift) % len
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Rows of pages of the first language in an hour.
    fn hour(seed: u64, hour: u64, rows: u64) -> BTreeMap<String, u64> {
        let mut counted = BTreeMap::new();
        let languages = languages(5, 10_000);
        let count = |row: &PageView<'_>| {
            assert!(row.requests > 0 && row.size >= 4_000 * row.requests, "{row:?}");
            if row.lang == "en" {
                *counted.entry(row.title.to_owned()).or_insert(0) += 1;
            }
            Ok(())
        };
        generate(&languages, (seed, hour), rows, count).unwrap();
        counted
    }

    #[test]
    fn an_hour_follows_from_the_seed_and_from_itself() {
        assert_eq!(hour(7, 3, 2_000), hour(7, 3, 2_000));
        assert_ne!(hour(7, 3, 2_000), hour(7, 4, 2_000));
        assert_ne!(hour(7, 3, 2_000), hour(8, 3, 2_000));
    }

    #[test]
    fn each_title_has_one_rank_in_any_hour() {
        for (titles, hour) in [(1, 5), (3, 40), (100, 7), (1_000, 8_783)] {
            let mut all: Vec<u64> = (1..=titles).map(|rank| title_of(rank, titles, hour)).collect();
            all.sort_unstable();
            assert_eq!(all, (1..=titles).collect::<Vec<_>>(), "{titles} titles in hour {hour}");
        }
    }

    #[test]
    fn what_is_popular_drifts() {
        let top = |hour| (4..16).map(|rank| title_of(rank, 1_000, hour)).collect::<Vec<_>>();
        assert_eq!(top(0), (4..16).collect::<Vec<_>>());
        assert_eq!((top(3), top(4)[..2].to_vec(), top(48)), (top(0), vec![5, 6], top(0)));
        // And so rows do: of rank 9 in the first hour, of rank 4 in the 20th.
        let share = |at| {
            let counted = hour(1, at, 60_000);
            counted["Page_000009"] as f64 / counted.values().sum::<u64>() as f64
        };
        let (before, behind) = (share(0), share(20));
        assert!(behind > 1.6 * before && behind < 2.9 * before, "{before} {behind}");
    }

    #[test]
    fn languages_have_their_time_of_day_and_keep_their_weight() {
        let languages = languages(50, 1_000);
        assert_eq!((languages[0].name.as_str(), languages[49].name.as_str()), ("en", "mk"));
        let of_hour = |hour: u64| upto(&languages, hour);
        assert!(of_hour(0)[0] != of_hour(12)[0] && of_hour(0) == of_hour(24));
        assert!((of_hour(5)[49] - 1.0).abs() < 1e-9);
        let mean: f64 = (0..24).map(|hour| of_hour(hour)[0]).sum::<f64>() / 24.0;
        assert!((mean - 1.0 / (1..=50).map(|rank| 1.0 / f64::from(rank)).sum::<f64>()).abs() < 0.01, "{mean}");
    }

    #[test]
    fn files_are_named_by_the_hour() {
        assert_eq!(name(0).unwrap(), "pageviews-20160101-000000");
        assert_eq!(name(31 * 24 + 5).unwrap(), "pageviews-20160201-050000");
        assert_eq!(name(366 * 24 - 1).unwrap(), "pageviews-20161231-230000");
        assert!(name(366 * 24).is_err());
    }
}
