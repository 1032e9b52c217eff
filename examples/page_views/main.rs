//! The online aggregation of the Exoshuffle paper: the most viewed pages of each language, known better and better while hourly page views are read.
//!
//! ```sh
//! page_views="cargo run --release --features sql --example page_views --"
//! $page_views generate views --rows 100M               # 24 files of Parquet, an hour each
//! $page_views answer views --svg page-views.svg        # looks, how wrong each of them was, and a picture
//!
//! $page_views generate dumps --rows 100M --format text # as Wikimedia has them: `lang title requests size`, gzip
//! $page_views convert dumps views                      # also dumps of Wikimedia
//! ```
//!
//! - [`generate`]: rows whose popular titles drift from hour to hour, and [`zipf`], which they are drawn by;
//! - [`files`]: hourly files as text and as Parquet, and [`convert`] from one to the other;
//! - [`answer`]: the query, as batch and online, and [`divergence`]: how far a look is from the truth;
//! - [`plot`]: the picture.

mod answer;
mod convert;
mod divergence;
mod files;
mod generate;
mod plot;
mod zipf;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

/// Hourly page views: how early the most viewed pages of each language are known
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes hourly files, the same for the same seed
    Generate(generate::GenerateArgs),
    /// Makes Parquet of dumps of text, file by file
    Convert(convert::ConvertArgs),
    /// Asks for the most viewed pages of each language, as batch and online, and says how wrong each look was
    Answer(answer::AnswerArgs),
}

fn main() -> Result<()> {
    run(Cli::parse())
}

fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Generate(args) => generate::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Answer(args) => answer::run(&args),
    }
}

/// A number that may end with k, M or G: thousands, millions, milliards.
fn number(text: &str) -> Result<u64> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().with_context(|| format!("{text:?} is no number such as 500k or 100M"))?;
    number.checked_mul(unit).with_context(|| format!("{text:?} is too large"))
}

/// The same, of which there is one at least.
fn some(text: &str) -> Result<u64> {
    match number(text)? {
        0 => bail!("it is 1 at least"),
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests;
