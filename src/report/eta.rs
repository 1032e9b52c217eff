//! How long a job may still take: what is left in time of executors, as fast as they have got through it so far.
//!
//! Tasks that are done say how long they took, and those of their stage that are left are taken to be like them. A stage of
//! which nothing is done yet reads what the first one writes, all of it, and takes [`BEHIND_PER_BYTE`] of the first one's time
//! for each byte that it touches. The end is guessed anew when a task is done; in between it stays where it was, and the time
//! that is left runs down.

use std::time::Duration;

use super::Stage;

/// What a merge or a reduce takes for each byte that it reads, as a share of what a map takes for each that it reads or writes:
/// 0.4 to 0.5 was measured over aggregations and word counts, 0.6 over random shuffles, 0.7 to 1 over sorts, which end soon after.
const BEHIND_PER_BYTE: f64 = 0.5;
/// Nothing is said before this share of the work is done.
const GUESS_FROM: f64 = 0.03;

/// The time that is left, or nothing where that cannot be told yet, or where it was to be over by now. `executors`: how many
/// there are, 0 where not known.
pub(super) fn left(stages: &[Stage], executors: u64, now_ms: u64) -> Option<Duration> {
    let planned: Vec<&Stage> = stages.iter().filter(|stage| stage.tasks > 0).collect();
    let first = planned.iter().find(|stage| stage.timed > 0)?;
    let began_ms = planned.iter().filter_map(|stage| stage.started_ms).min()?;
    let last_ms = planned.iter().map(|stage| stage.finished_ms).max()?;

    let first_share = first.timed as f64 / first.tasks as f64;
    let per_byte = first.micros as f64 / (first.bytes_in + first.bytes_out).max(1) as f64;
    let behind_micros = BEHIND_PER_BYTE * per_byte * first.bytes_out as f64 / first_share;
    let rest = |stage: &Stage| stage.tasks.saturating_sub(stage.tasks_done) as f64;
    let task_micros = |stage: &Stage| match stage.timed {
        0 => behind_micros / stage.tasks as f64,
        timed => stage.micros as f64 / timed as f64,
    };

    // Besides the one that was the last to be done, others ran, which were half done on average.
    let running = planned.iter().find(|stage| rest(stage) > 0.0);
    let running =
        running.map_or(0.0, |stage| rest(stage).min(executors.saturating_sub(1) as f64) * task_micros(stage) / 2.0);
    let done = planned.iter().map(|stage| stage.micros as f64).sum::<f64>() + running;
    let rest = planned.iter().map(|stage| rest(stage) * task_micros(stage)).sum::<f64>() - running;
    if done < GUESS_FROM * (done + rest) {
        return None;
    }
    let took_ms = last_ms.saturating_sub(began_ms) as f64;
    let left_ms = took_ms * rest / done - now_ms.saturating_sub(last_ms) as f64;
    (left_ms > 0.0).then(|| Duration::from_secs_f64(left_ms / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stage of a job: tasks, bytes that one reads and writes, and how long it takes, milliseconds.
    struct Made {
        tasks: u64,
        bytes: (u64, u64),
        ms: u64,
    }

    /// Runs stages one after the other on some executors, and calls `each` with what is known after every task.
    fn run(made: &[Made], executors: u64, stagger_ms: u64, mut each: impl FnMut(&[Stage], u64)) -> u64 {
        let stage = |made: &Made| Stage { tasks: made.tasks, ..Stage::default() };
        let mut stages: Vec<Stage> = made.iter().map(stage).collect();
        let mut free_ms: Vec<u64> = (0..executors).map(|executor| executor * stagger_ms).collect();
        for (index, made) in made.iter().enumerate() {
            let begin_ms = free_ms.iter().copied().max().unwrap_or(0);
            if index > 0 {
                free_ms.iter_mut().for_each(|free| *free = begin_ms);
            }
            for _ in 0..made.tasks {
                let free = free_ms.iter_mut().min().unwrap();
                let began_ms = *free;
                *free += made.ms;
                let done_ms = *free;
                let stage = &mut stages[index];
                stage.started_ms.get_or_insert(began_ms);
                stage.tasks_done += 1;
                stage.timed += 1;
                stage.micros += made.ms * 1000;
                stage.bytes_in += made.bytes.0;
                stage.bytes_out += made.bytes.1;
                stage.finished_ms = stage.finished_ms.max(done_ms);
                each(&stages, done_ms);
            }
        }
        free_ms.into_iter().max().unwrap()
    }

    /// From a tenth of the time on, until there is less than a second left, what is said is right within a third.
    fn right_within_a_third(made: &[Made], executors: u64, stagger_ms: u64) {
        let end_ms = run(made, executors, stagger_ms, |_, _| {});
        let mut looked = 0;
        run(made, executors, stagger_ms, |stages, now_ms| {
            if now_ms < end_ms / 10 || end_ms - now_ms < 1000 {
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
        // As they were measured: five million groups, which leave as much to reduce as was mapped, ...
        let many = [
            Made { tasks: 42, bytes: (13_400_000, 69_300_000), ms: 1_600 },
            Made { tasks: 12, bytes: (242_000_000, 12_000_000), ms: 1_950 },
        ];
        right_within_a_third(&many, 2, 400);
        // ... and 500, which leave nothing.
        let few = [
            Made { tasks: 180, bytes: (7_800_000, 55_000), ms: 160 },
            Made { tasks: 80, bytes: (125_000, 60_000), ms: 2 },
        ];
        right_within_a_third(&few, 2, 70);
    }

    #[test]
    fn nothing_is_said_before_there_is_a_guess_and_after_its_time() {
        let made = [Made { tasks: 100, bytes: (100, 100), ms: 1000 }];
        assert_eq!(left(&[Stage { tasks: 100, ..Stage::default() }], 2, 500), None, "nothing is done");
        let mut at_half = Vec::new();
        run(&made, 1, 0, |stages, now_ms| {
            if now_ms == 1000 {
                assert_eq!(left(stages, 1, now_ms), None, "a hundredth is done");
            }
            if now_ms == 50_000 {
                at_half = stages.to_vec();
            }
        });
        let left_at = |now_ms| left(&at_half, 1, now_ms).map(|left| left.as_secs());
        assert_eq!(left_at(50_000), Some(50));
        assert_eq!(left_at(60_000), Some(40), "no task was done meanwhile");
        assert_eq!(left_at(101_000), None);
    }
}
