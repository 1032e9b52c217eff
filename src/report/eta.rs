//! How long a job may still take, by the wall clock of its stages.
//!
//! Tasks that are left are taken to be like those of their stage that are done; stages that have begun run side by side. One of which nothing is
//! done yet comes after them and reads what the first one writes: see [`behind_per_byte`]. The end is guessed anew when a task
//! is done; in between it stays where it was, and the time that is left runs down.

use std::time::Duration;

use super::Stage;

/// Nothing is said before this share of the time is over.
const GUESS_FROM: f64 = 0.03;

/// The time that is left, or nothing where that cannot be told yet, or where it was to be over by now. `executors`: how many
/// there are, 0 where not known.
pub(super) fn left(stages: &[Stage], executors: u64, now_ms: u64) -> Option<Duration> {
    let planned = || stages.iter().filter(|stage| stage.tasks > 0);
    let first = planned().find(|stage| stage.timed > 0)?;
    let began_ms = planned().filter_map(|stage| stage.started_ms).min()? as f64;
    let last_ms = planned().map(|stage| stage.finished_ms).max()? as f64;

    let begun = planned()
        .filter(|stage| stage.timed > 0 && rest(stage) > 0.0)
        .filter_map(|stage| Some(stage.started_ms? as f64 + whole_ms(stage, executors)));
    let behind = planned()
        .filter(|stage| stage.timed == 0 && rest(stage) > 0.0)
        .map(|stage| behind_ms(first, whole_ms(first, executors), stage));
    let end_ms = begun.fold(last_ms, f64::max) + behind.sum::<f64>();
    if last_ms - began_ms < GUESS_FROM * (end_ms - began_ms) {
        return None;
    }
    let left_ms = end_ms - now_ms as f64;
    (left_ms > 0.0).then(|| Duration::from_secs_f64(left_ms / 1000.0))
}

fn rest(stage: &Stage) -> f64 {
    stage.tasks.saturating_sub(stage.tasks_done) as f64
}

/// How long a stage, of which tasks are done, takes from its first task to its last.
fn whole_ms(stage: &Stage, executors: u64) -> f64 {
    let busy_ms = stage.busy().as_secs_f64() * 1000.0;
    let task_ms = stage.micros as f64 / 1000.0 / stage.timed as f64;
    let tasks = stage.timed as f64 + rest(stage);
    let pace_ms = match stage.timed {
        _ if rest(stage) == 0.0 => return busy_ms,
        // The others of the first round end soon after.
        timed if timed < executors => busy_ms / tasks.min(executors as f64),
        0 | 1 => busy_ms,
        // One after the other since the first one ended, unless all of a round end at once.
        timed => ((busy_ms - task_ms) / (timed - 1) as f64).max(task_ms / executors.max(1) as f64),
    };
    tasks * pace_ms
}

/// How long a stage takes that begins when `first`, which takes `first_ms` in all, is over.
fn behind_ms(first: &Stage, first_ms: f64, stage: &Stage) -> f64 {
    let share = first.timed as f64 / first.tasks as f64;
    let written = first.bytes_out as f64 / share;
    let touched = (first.bytes_in + first.bytes_out).max(1) as f64 / share;
    behind_per_byte(written, stage.bytes_planned as f64) * written * first_ms / touched
}

/// What a reduce takes for each byte that it reads, as a share of what a map takes for each that it reads or writes. A reduce
/// reads `written` bytes; it would read `planned`, or somewhat more, if no map had combined anything.
///
/// The fewer keys a map finds twice, the more there are, and the further apart in memory lies what a reduce combines. Measured on
/// two cores, from 100 thousand to nine million groups: 0.4 to 0.6 where a third is combined, 0.6 where a twentieth is, 1.1 to 1.3
/// where 5 in a thousand are; word counts 0.5; random shuffles 0.9, sorts 1.0 to 1.8, which combine nothing.
fn behind_per_byte(written: f64, planned: f64) -> f64 {
    let combined = if planned > 0.0 { (1.0 - written / planned).max(0.0) } else { 0.0 };
    (0.25 - 0.15 * combined.ln()).min(1.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stage of a job: tasks, bytes that one reads and writes and was planned to read, and how long it takes, milliseconds.
    struct Made {
        tasks: u64,
        bytes: (u64, u64),
        planned: u64,
        ms: u64,
    }

    /// Runs stages one after the other on some executors, and calls `each` with what is known after every task.
    fn run(made: &[Made], executors: u64, stagger_ms: u64, mut each: impl FnMut(&[Stage], u64)) -> u64 {
        let stage =
            |made: &Made| Stage { tasks: made.tasks, bytes_planned: made.tasks * made.planned, ..Stage::default() };
        let mut stages: Vec<Stage> = made.iter().map(stage).collect();
        let mut free_ms: Vec<u64> = (0..executors).map(|executor| executor * stagger_ms).collect();
        for (index, made) in made.iter().enumerate() {
            let begin_ms = free_ms.iter().copied().max().unwrap_or(0);
            if index > 0 {
                free_ms.iter_mut().for_each(|free| *free = begin_ms);
            }
            for task in 0..made.tasks {
                // A fifth more or less.
                let ms = made.ms * (80 + task * 17 % 41) / 100;
                let free = free_ms.iter_mut().min().unwrap();
                let began_ms = *free;
                *free += ms;
                let done_ms = *free;
                let stage = &mut stages[index];
                stage.started_ms.get_or_insert(began_ms);
                stage.tasks_done += 1;
                stage.timed += 1;
                stage.micros += ms * 1000;
                stage.bytes_in += made.bytes.0;
                stage.bytes_out += made.bytes.1;
                stage.finished_ms = stage.finished_ms.max(done_ms);
                each(&stages, done_ms);
            }
        }
        free_ms.into_iter().max().unwrap()
    }

    /// From a tenth of the time on, until there are less than two seconds left or the last round has begun, what is said is right
    /// within a third.
    fn right_within_a_third(made: &[Made], executors: u64, stagger_ms: u64) {
        let end_ms = run(made, executors, stagger_ms, |_, _| {});
        let tail_ms = made.iter().map(|made| made.ms * 3 / 2).max().unwrap().max(2000);
        let mut looked = 0;
        run(made, executors, stagger_ms, |stages, now_ms| {
            if now_ms < end_ms / 10 || end_ms - now_ms < tail_ms {
                return;
            }
            let left_ms = left(stages, executors, now_ms).map_or(0.0, |left| left.as_secs_f64() * 1000.0);
            let wrong = left_ms / (end_ms - now_ms) as f64;
            assert!((2.0 / 3.0..=4.0 / 3.0).contains(&wrong), "at {now_ms} of {end_ms} ms: {left_ms} ms left");
            looked += 1;
        });
        assert!(looked > 10, "{looked}");
    }

    #[test]
    fn aggregations_are_guessed_within_a_third() {
        let made = |tasks, read, written, planned, ms| Made { tasks, bytes: (read, written), planned, ms };
        // As they were measured on two cores, four executors: nine million groups of 25 million rows, which leave all to reduce, ...
        let (map, reduce) =
            (made(224, 1_886_000, 9_989_000, 1_886_000, 117), made(16, 139_800_000, 17_750_000, 140_500_000, 1_775));
        right_within_a_third(&[map, reduce], 4, 30);
        // ... and with an eighth of the memory, where two of them reduce at once, ...
        let map = made(224, 1_886_000, 9_989_000, 1_886_000, 111);
        right_within_a_third(&[map, made(29, 77_150_000, 9_790_000, 77_500_000, 980)], 4, 30);
        // ... ten million rows of a million groups, ...
        let (map, reduce) =
            (made(88, 3_132_000, 9_334_000, 3_132_000, 126), made(16, 51_300_000, 1_600_000, 54_000_000, 240));
        right_within_a_third(&[map, reduce], 4, 30);
        // ... of a hundred thousand, ...
        let (map, reduce) =
            (made(84, 3_043_000, 5_977_000, 3_043_000, 118), made(16, 31_400_000, 163_000, 50_900_000, 130));
        right_within_a_third(&[map, reduce], 4, 30);
        // ... and 500, which leave nothing.
        right_within_a_third(
            &[made(520, 4_188_000, 43_000, 4_188_000, 94), made(16, 140_000, 2_000, 26_250_000, 4)],
            4,
            20,
        );
    }

    #[test]
    fn a_stage_goes_on_as_fast_as_it_went_however_many_run_at_once() {
        // Eight executors map, and two find the memory to reduce.
        let stages = |reduced| {
            let map = Stage {
                tasks: 80,
                tasks_done: 80,
                timed: 80,
                micros: 80_000_000,
                bytes_in: 80,
                bytes_out: 80,
                started_ms: Some(0),
                finished_ms: 10_000,
                ..Stage::default()
            };
            let (micros, finished_ms) = (reduced * 1_000_000, 10_000 + reduced * 500);
            let reduce = Stage {
                tasks: 100,
                tasks_done: reduced,
                timed: reduced,
                micros,
                started_ms: Some(10_000),
                finished_ms,
                ..Stage::default()
            };
            [map, reduce]
        };
        for reduced in [10, 50, 90] {
            let left_s = left(&stages(reduced), 8, 10_000 + reduced * 500).unwrap().as_secs_f64();
            let right_s = (100 - reduced) as f64 / 2.0;
            assert!((left_s / right_s - 1.0).abs() < 0.2, "{reduced} are done: {left_s} s of {right_s}");
        }
    }

    #[test]
    fn nothing_is_said_before_there_is_a_guess_and_after_its_time() {
        let made = [Made { tasks: 100, bytes: (100, 100), planned: 100, ms: 1000 }];
        assert_eq!(left(&[Stage { tasks: 100, ..Stage::default() }], 2, 500), None, "nothing is done");
        let mut at_half = Vec::new();
        run(&made, 1, 0, |stages, now_ms| {
            if now_ms == 1000 {
                assert_eq!(left(stages, 1, now_ms), None, "a hundredth is done");
            }
            if now_ms <= 50_000 {
                at_half = stages.to_vec();
            }
        });
        let left_at = |now_ms| left(&at_half, 1, now_ms).map(|left| left.as_secs());
        assert_eq!(left_at(50_000), Some(49));
        assert_eq!(left_at(60_000), Some(39), "no task was done meanwhile");
        assert_eq!(left_at(101_000), None);
    }
}
