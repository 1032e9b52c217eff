//! How often bounds hold, over 10 000 seeds: at looks that are fixed, and at the one where somebody stops who likes what is shown.
//!
//! Tables are blocks of 25 000 rows, about, with a group in them; how it lies there is what differs. Everything follows from fixed seeds, so the table in `docs/online.md` is what these tests find: `EXOBUS_RENEW=1` writes it.

mod noise;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use exobus_queries::estimators::guaranteed::{Range, TotalRanges};
use exobus_queries::estimators::{
    Dual, Estimate, Kind, Look, Looks, Population, Sample, Totals, approximate, guaranteed, random_order, spread_order,
};

use self::noise::Noise;

const SEEDS: u64 = 10_000;
const BLOCKS: u64 = 1_000;
const ROWS: f64 = 25_000.0;
/// What may be wrong in all.
const ERROR: f64 = 0.05;
/// Somebody stops where the error is as small as this.
const TARGETS: [f64; 4] = [0.2, 0.1, 0.05, 0.02];

/// A table with a group.
struct Table {
    name: &'static str,
    /// Rows of each block, those of the group among them, and the sum of a value between 0 and 10 over these.
    blocks: Vec<[f64; 3]>,
    /// Whether the totals of its blocks have a coefficient of variation of 1 at most, so that bounds have to hold.
    is_even: bool,
}

impl Noise {
    /// About normal, with mean 0 and variance 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.even().ln()).sqrt() * (std::f64::consts::TAU * self.even()).cos()
    }
}

/// A table whose group has this share of the rows of a block, by its number and noise.
fn table(name: &'static str, is_even: bool, blocks: u64, mut share: impl FnMut(u64, &mut Noise) -> f64) -> Table {
    let mut noise = Noise(blocks);
    let blocks = (0..blocks).map(|block| {
        let rows = (ROWS * (1.0 + 0.1 * (noise.even() - 0.5))).round();
        let of_group = (rows * share(block, &mut noise).clamp(0.0, 1.0)).round();
        // Their mean is another one in each block.
        let mean = (5.0 + noise.normal()).clamp(0.0, 10.0);
        [rows, of_group, of_group * mean]
    });
    Table { name, blocks: blocks.collect(), is_even }
}

/// A share that rows have by chance, as if each of a block were drawn.
fn drawn(share: f64, noise: &mut Noise) -> f64 {
    share + (share * (1.0 - share) / ROWS).sqrt() * noise.normal()
}

/// The share of the group of this rank, from 1, where a million groups are as Zipf says (exponent 1.07, as titles of pages are).
fn zipf(rank: u64) -> f64 {
    const ALL: f64 = 9.6;
    (rank as f64).powf(-1.07) / ALL
}

fn tables(blocks: u64) -> Vec<Table> {
    let part = move |block: u64| block as f64 / blocks as f64;
    vec![
        table("uniform, 25 % of all rows", true, blocks, |_, noise| drawn(0.25, noise)),
        table("drifting from 5 % to 25 %", true, blocks, |block, noise| drawn(0.05 + 0.2 * part(block), noise)),
        table("now 10 %, now 30 %, by turns", true, blocks, |block, noise| {
            drawn(if block % 2 == 0 { 0.1 } else { 0.3 }, noise)
        }),
        table("Zipf, rank 1", true, blocks, |_, noise| drawn(zipf(1) * (0.3 * noise.normal()).exp(), noise)),
        table("Zipf, rank 20, drifting", true, blocks, |block, noise| {
            drawn(zipf(20) * (0.5 + part(block)) * (0.3 * noise.normal()).exp(), noise)
        }),
        table("lognormal, sigma 1.5", false, blocks, |_, noise| 0.002 * (1.5 * noise.normal()).exp()),
        table("Pareto, exponent 1.3", false, blocks, |_, noise| 0.001 * noise.even().powf(-1.0 / 1.3)),
        table("sorted by key, in 5 % of the blocks", false, blocks, |block, _| f64::from(part(block) < 0.05)),
        table("in one block", false, blocks, |block, _| f64::from(block == blocks / 3)),
    ]
}

/// What is asked: how many rows the group has, the sum of their values, and the mean of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Count,
    Sum,
    Mean,
}

const ASKED: [Asked; 3] = [Asked::Count, Asked::Sum, Asked::Mean];

impl Asked {
    fn truth(self, [_, count, sum]: [f64; 3]) -> f64 {
        match self {
            Self::Count => count,
            Self::Sum => sum,
            Self::Mean => sum / count,
        }
    }

    fn approximately(self, look: &Look, sample: &Sample, totals: &Totals) -> Estimate {
        approximate::estimate(look, sample, totals, |of: &[Dual]| match self {
            Self::Count => of[0].clone(),
            Self::Sum => of[1].clone(),
            Self::Mean => &of[1] / &of[0],
        })
    }

    /// `rows`: of the largest block, and of all that were not read.
    fn surely(self, look: &Look, sample: &Sample, totals: &Totals, rows: [f64; 2]) -> Estimate {
        let ranges = |value: f64| {
            let range = |rows: f64| Range { low: 0.0, high: value * rows };
            TotalRanges { of_block: range(rows[0]), of_rest: range(rows[1]) }
        };
        match self {
            Self::Count => guaranteed::total(look, sample, totals, 0, &ranges(1.0)),
            Self::Sum => guaranteed::total(look, sample, totals, 1, &ranges(10.0)),
            Self::Mean => guaranteed::mean(look, sample, totals, (0, 1), &Range { low: 0.0, high: 10.0 }, rows[0]),
        }
    }
}

/// Calls `each` at each look before the end at a sample of a seed, as one is drawn for bounds of a kind, with how many rows were not read.
fn look_at(
    table: &Table,
    looks: &[u64],
    (kind, seed): (Kind, u64),
    mut each: impl FnMut(usize, &Sample, &Totals, f64),
) {
    let (mut sample, mut totals) = (Sample::default(), Totals::new(2));
    let mut left: f64 = table.blocks.iter().map(|[rows, ..]| rows).sum();
    let order = match kind {
        Kind::Approximate => spread_order(table.blocks.len() as u64, seed),
        Kind::Guaranteed => random_order(table.blocks.len() as u64, seed),
    };
    for (number, seen) in looks.iter().enumerate() {
        while sample.blocks < *seen {
            let [rows, count, sum] = table.blocks[order[sample.blocks as usize] as usize];
            sample.add(rows);
            left -= rows;
            if count > 0.0 {
                totals.add(rows, &[count, sum]);
            }
        }
        each(number, &sample, &totals, left);
    }
}

/// How often bounds held, and how often there were some.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    held: u64,
    of: u64,
}

impl Held {
    fn count(&mut self, estimate: &Estimate, truth: f64) {
        if let Ok(bounds) = &estimate.bounds {
            self.of += 1;
            // What is rounded on the way is no error of a bound.
            let slack = 1e-9 * truth.abs();
            self.held += u64::from(bounds.low - slack <= truth && truth <= bounds.high + slack);
        }
    }

    fn part(self) -> Option<f64> {
        (self.of > 0).then(|| self.held as f64 / self.of as f64)
    }
}

/// Of one table and one value: at each look with all of the error probability, and where somebody stops at each of the targets, of guaranteed bounds and of approximate ones.
struct Coverage {
    at_looks: [Vec<Held>; 2],
    at_stops: [[Held; TARGETS.len()]; 2],
}

fn coverage(table: &Table, asked: Asked, looks: &Looks) -> Coverage {
    let before_end: Vec<u64> = looks.seen().filter(|seen| *seen < table.blocks.len() as u64).collect();
    let all = table.blocks.iter().fold([0.0; 3], |all, block| [0, 1, 2].map(|of| all[of] + block[of]));
    let rows_max = table.blocks.iter().map(|[rows, ..]| *rows).fold(0.0, f64::max);
    let population = Population { blocks: table.blocks.len() as u64, size: all[0] };
    let [fixed, shared] = [ERROR, looks.share(ERROR)].map(|error_probability| Look { population, error_probability });
    let truth = asked.truth(all);
    let mut coverage = Coverage {
        at_looks: [vec![Held::default(); before_end.len()], vec![Held::default(); before_end.len()]],
        at_stops: Default::default(),
    };
    for seed in 0..SEEDS {
        for (number, kind) in [Kind::Guaranteed, Kind::Approximate].into_iter().enumerate() {
            let (at_looks, at_stops) = (&mut coverage.at_looks[number], &mut coverage.at_stops[number]);
            let mut stopped = [false; TARGETS.len()];
            look_at(table, &before_end, (kind, seed), |number, sample, totals, left| {
                let estimate = |look: &Look| match kind {
                    Kind::Guaranteed => asked.surely(look, sample, totals, [rows_max, left]),
                    Kind::Approximate => asked.approximately(look, sample, totals),
                };
                at_looks[number].count(&estimate(&fixed), truth);
                let estimate = estimate(&shared);
                for (target, error) in TARGETS.iter().enumerate() {
                    if !stopped[target] && estimate.relative_error().is_some_and(|found| found <= *error) {
                        stopped[target] = true;
                        at_stops[target].count(&estimate, truth);
                    }
                }
            });
            // Who does not stop has the answer in the end.
            for (held, stopped) in at_stops.iter_mut().zip(stopped) {
                (held.held, held.of) = (held.held + u64::from(!stopped), held.of + u64::from(!stopped));
            }
        }
    }
    coverage
}

/// The coefficient of variation of the totals of blocks.
fn variation(table: &Table, of: usize) -> f64 {
    let n = table.blocks.len() as f64;
    let mean = table.blocks.iter().map(|block| block[of]).sum::<f64>() / n;
    let variance = table.blocks.iter().map(|block| (block[of] - mean).powi(2)).sum::<f64>() / n;
    variance.sqrt() / mean
}

/// Checks a table, and says how often bounds held of it: rows of the table in the docs.
fn checked(table: &Table) -> String {
    let (looks, mut rows) = (Looks::new(BLOCKS), String::new());
    assert_eq!(table.is_even, variation(table, 2) <= 1.0, "{}: {}", table.name, variation(table, 2));
    for asked in ASKED {
        let Coverage { at_looks, at_stops } = coverage(table, asked, &looks);
        let what = format!("{asked:?} of {}", table.name);
        for held in at_looks[0].iter().chain(&at_stops[0]) {
            assert!(held.part().is_none_or(|part| part >= 0.95), "guaranteed, {what}: {held:?}");
        }
        if table.is_even {
            assert!(at_looks[1].iter().any(|held| held.of == SEEDS), "{what}");
            for held in &at_looks[1] {
                assert!(held.part().is_none_or(|part| part >= 0.935), "approximate, {what}: {held:?}");
            }
            for held in &at_stops[1] {
                assert!(held.part().is_some_and(|part| part >= 0.95), "approximate, {what}: {held:?}");
            }
        }
        let worst = |held: &[Held]| {
            let least = held.iter().filter_map(|held| held.part()).fold(f64::INFINITY, f64::min);
            if least.is_finite() { format!("{:.1} %", 100.0 * least) } else { "none".to_owned() }
        };
        let cells = [worst(&at_looks[1]), worst(&at_stops[1]), worst(&at_looks[0]), worst(&at_stops[0])].join(" | ");
        let asked = ["rows", "sum", "mean"][asked as usize];
        writeln!(rows, "| {} | {:.2} | {asked} | {cells} |", table.name, variation(table, 2)).unwrap();
    }
    rows
}

const BEGIN: &str = "<!-- coverage: made by `EXOBUS_RENEW=1 cargo test -p exobus-queries` -->\n";
const END: &str = "<!-- end of coverage -->";

#[test]
fn bounds_hold_as_often_as_they_say_and_the_docs_say_where_they_do_not() {
    let tables = tables(BLOCKS);
    let rows: Vec<String> = std::thread::scope(|scope| {
        let checks: Vec<_> = tables.iter().map(|table| scope.spawn(|| checked(table))).collect();
        checks.into_iter().map(|check| check.join().unwrap()).collect()
    });
    let head = "| the group | variation of totals | of its | approximate, any look | where somebody stops | guaranteed, any look | where somebody stops |\n|---|---|---|---|---|---|---|\n";
    let found = format!("{head}{}", rows.concat());
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/online.md");
    let text = fs::read_to_string(&docs).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the docs have a place for the table");
    let (said, after) = rest.split_once(END).expect("it has an end");
    if std::env::var_os("EXOBUS_RENEW").is_some() {
        fs::write(&docs, format!("{before}{BEGIN}{found}{END}{after}")).unwrap();
    } else {
        assert_eq!(said, found, "docs/online.md: EXOBUS_RENEW=1 writes it anew");
    }
}

/// With 4 000 blocks, groups of many rows have bounds early, and these are not much wider than where one looked once only.
#[test]
fn groups_of_many_rows_have_bounds_early_that_are_not_much_wider_than_those_of_a_single_look() {
    const BLOCKS: u64 = 4_000;
    let top = (1..=20).map(|rank| table("of the top 20", true, BLOCKS, move |_, noise| drawn(zipf(rank), noise)));
    let large = [0.15, 0.25, 0.3].map(|share| table("large", true, BLOCKS, move |_, noise| drawn(share, noise)));
    let looks = Looks::new(BLOCKS);
    for table in top.chain(large) {
        let size = table.blocks.iter().map(|[rows, ..]| rows).sum();
        let population = Population { blocks: BLOCKS, size };
        look_at(&table, &[BLOCKS / 22, BLOCKS / 4, BLOCKS / 2], (Kind::Approximate, 7), |_, sample, totals, _| {
            for asked in ASKED {
                let width = |error_probability| {
                    let estimate = asked.approximately(&Look { population, error_probability }, sample, totals);
                    estimate.bounds.unwrap_or_else(|why| panic!("{}: {why}", table.name)).half_width()
                };
                let (shared, single) = (width(looks.share(ERROR)), width(ERROR));
                assert!(shared <= 1.6 * single, "{}: {shared} {single}", table.name);
            }
        });
    }
}
