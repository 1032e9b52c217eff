use super::{Report, run};

/// Seeds that found something once, and what.
const REGRESSIONS: &str = include_str!("regressions.txt");

/// The seeds of a list, which begin its lines.
pub(super) fn seeds_of(list: &str) -> impl Iterator<Item = u64> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(' ').next().and_then(|seed| seed.parse().ok()).expect("a line begins with its seed"))
}

fn check(seed: u64) -> Report {
    let report = run(seed, false);
    if let Some(finding) = &report.finding {
        let trace = run(seed, true).trace;
        let last = trace[trace.len().saturating_sub(60)..].join("\n");
        panic!("{last}\nseed {seed}: {finding}\nexobus-sim --seed {seed}");
    }
    report
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..5 {
        assert_eq!(run(seed, true), run(seed, true));
    }
}

#[test]
fn seeds_that_found_something_once_find_nothing() {
    for seed in seeds_of(REGRESSIONS) {
        check(seed);
    }
}

#[test]
fn whatever_goes_wrong_each_job_ends_right_and_nothing_is_left() {
    let runs = std::env::var("EXOBUS_SIM_RUNS").map_or(200, |runs| runs.parse().expect("a number"));
    let reports: Vec<_> = (0..runs).map(check).collect();
    // A world in which nothing happens shows nothing.
    let sum = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    assert!(sum(|report| report.work.tasks) >= 5 * runs);
    assert!(sum(|report| report.work.begun) > sum(|report| report.work.tasks), "faults cost work");
    assert!(
        reports.iter().filter(|report| report.work.runs > 1).count() as u64 >= runs / 20,
        "jobs are taken up again"
    );
}
