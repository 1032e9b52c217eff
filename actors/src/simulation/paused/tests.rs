use super::{Report, run};
use crate::simulation::tests::seeds_of;

/// Seeds that found something once, and what.
const REGRESSIONS: &str = include_str!("regressions.txt");

fn check(seed: u64) -> Report {
    let report = run(seed);
    assert_eq!(report.finding, None, "exobus-sim --actors --seed {seed}");
    report
}

#[test]
fn seeds_that_found_something_once_find_nothing() {
    for seed in seeds_of(REGRESSIONS) {
        check(seed);
    }
}

#[test]
fn whatever_goes_wrong_each_job_of_real_actors_ends_right_and_nothing_is_left() {
    let runs = std::env::var("EXOBUS_SIM_ACTOR_RUNS").map_or(30, |runs| runs.parse().expect("a number"));
    let reports: Vec<_> = (0..runs).map(check).collect();
    // A world in which nothing happens shows nothing.
    let sum = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    assert!(sum(|report| report.finished) >= 5 * runs, "work is done");
    assert!(sum(|report| report.faults) >= runs, "faults fire");
    assert!(sum(|report| report.replayed) > 0, "they cost work");
}
