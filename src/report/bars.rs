//! Progress bars on a terminal: a line for each stage and one for the state of the job, each of which fits.

use console::Term;
use exobus_queries::snapshot::Snapshot;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    Progress, Stage,
    estimates::{notes, snapshot_table},
    text,
};
use crate::logging;

/// Cells of a bar at most, and at least: where there is room for fewer there is none.
const BAR_CELLS: std::ops::RangeInclusive<usize> = 6..=30;
/// Cells of a stage's name at least, so that bars begin below each other.
const NAME_CELLS: usize = 14;

/// A bar for each stage, and a line of state below.
pub(super) struct Bars {
    all: MultiProgress,
    /// By name: a stage may appear between others.
    stages: Vec<(String, ProgressBar)>,
    state: ProgressBar,
    /// What is known of the result, above all others.
    result: Option<ProgressBar>,
    terminal: Term,
}

impl Bars {
    pub(super) fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let state = all.add(line());
        logging::bars_on_screen(Some(all.clone()));
        Self { all, stages: Vec::new(), state, result: None, terminal: Term::stderr() }
    }

    pub(super) fn draw(&mut self, progress: &Progress, now_ms: u64) {
        // The last cell stays free: some terminals begin a new line there.
        let cells = usize::from(self.terminal.size().1).saturating_sub(1);
        let stages: Vec<&Stage> = progress.stages().collect();
        let name_cells = stages.iter().map(|stage| stage.name.len()).max().unwrap_or(0).max(NAME_CELLS);
        for stage in stages {
            self.bar(&stage.name).set_message(stage_line(stage, name_cells, cells));
        }
        self.state.set_message(fitting(&progress.state_line(now_ms), cells));
    }

    /// What is known of the result by now, in the place of what was known before: as many groups as fit above the bars.
    pub(super) fn show(&mut self, known: &Snapshot, line: &str, hint: &str) {
        let (rows, columns) = self.terminal.size();
        let cells = usize::from(columns).saturating_sub(1);
        let hint = if hint.is_empty() { String::new() } else { format!("\n{}", fitting(hint, cells)) };
        // Head, line below it, what it says of all, what can be done, and the bars themselves.
        let groups = usize::from(rows).saturating_sub(self.stages.len() + 7 + notes(known).len());
        let table = snapshot_table(known, groups, Some(cells));
        let result = self.result.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{msg}").expect("templates are literals of this file");
            self.all.insert(0, ProgressBar::new_spinner().with_style(style))
        });
        result.set_message(format!("{table}\n{}{hint}", fitting(line, cells)));
    }

    fn bar(&mut self, name: &str) -> &ProgressBar {
        let known = self.stages.iter().position(|(known, _)| known == name);
        let index = known.unwrap_or_else(|| {
            self.stages.push((name.to_owned(), self.all.insert_before(&self.state, line())));
            self.stages.len() - 1
        });
        &self.stages[index].1
    }

    /// A line that stays, above the bars.
    pub(super) fn say(&self, line: &str) {
        // A closed stderr is no reason to stop working.
        let _ = self.all.println(line);
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        logging::bars_on_screen(None);
        for (_, bar) in &self.stages {
            bar.abandon();
        }
        self.state.finish_and_clear();
        // The summary shows it.
        self.result.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// A line that shows what it is told.
fn line() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_msg}").expect("templates are literals of this file");
    ProgressBar::new_spinner().with_style(style)
}

/// `sort.map       ======>      292/480 1.22 GB of 2.00 GB 464 MB/s`: the bar has what cells are left, and where they are few
/// there is none, then less is said.
fn stage_line(stage: &Stage, name_cells: usize, cells: usize) -> String {
    let tasks = stage.tasks.max(stage.tasks_done);
    let count = format!("{:>5}/{tasks}", stage.tasks_done);
    let (full, short) = match stage.started_ms {
        None => (String::new(), String::new()),
        Some(_) => {
            let (read, rate) = (text::bytes(stage.bytes_in), text::rate(stage.bytes_in, stage.busy()));
            let planned = match stage.bytes_planned {
                0 => String::new(),
                planned => format!(" of {}", text::bytes(planned)),
            };
            (format!(" {read}{planned} {rate}"), format!(" {rate}"))
        }
    };
    let name = format!("{:<name_cells$} ", stage.name);
    // Room for the longest that is said, so that all bars are as long.
    let bar_cells = cells.saturating_sub(name_cells + 2 + "12345/12345 999 MB of 999 MB 99.9 MB/s".len());
    let bar = match bar_cells.min(*BAR_CELLS.end()) {
        few if few < *BAR_CELLS.start() => String::new(),
        cells => format!("{} ", bar(stage.tasks_done, tasks, cells)),
    };
    let whole = format!("{name}{bar}{count}{full}");
    if whole.chars().count() <= cells {
        whole
    } else {
        fitting(&format!("{} {}{short}", stage.name, count.trim()), cells)
    }
}

fn bar(done: u64, all: u64, cells: usize) -> String {
    let full = (cells as u64 * done / all.max(1)) as usize;
    let tip = if full < cells && done > 0 { ">" } else { "" };
    format!("{:<cells$}", format!("{}{tip}", "=".repeat(full)))
}

/// What does not fit ends in dots.
pub(super) fn fitting(text: &str, cells: usize) -> String {
    if text.chars().count() <= cells {
        return text.to_owned();
    }
    let beginning: String = text.chars().take(cells.saturating_sub(1)).collect();
    format!("{beginning}{}", if cells > 0 { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str, done: u64, tasks: u64) -> Stage {
        Stage {
            name: name.to_owned(),
            tasks,
            tasks_done: done,
            bytes_planned: 200_000_000_000,
            bytes_in: 122_000_000_000,
            started_ms: Some(0),
            finished_ms: 2_000,
            ..Stage::default()
        }
    }

    #[test]
    fn a_line_fits_whatever_the_width_and_says_the_more_the_wider_it_is() {
        for (name, done, tasks) in [("sort.map", 292, 480), ("random_shuffle.reduce", 99_999, 100_000)] {
            let stage = stage(name, done, tasks);
            for cells in 0..200 {
                let line = stage_line(&stage, 21, cells);
                assert!(line.chars().count() <= cells, "{cells}: {line:?}");
            }
        }
        let line = |cells| stage_line(&stage("sort.map", 240, 480), 14, cells);
        assert_eq!(line(39), "sort.map 240/480 61.0 GB/s");
        assert_eq!(line(59), "sort.map         240/480 122 GB of 200 GB 61.0 GB/s");
        assert_eq!(line(79), "sort.map       ============>               240/480 122 GB of 200 GB 61.0 GB/s");
        assert_eq!(line(120), "sort.map       ===============>                 240/480 122 GB of 200 GB 61.0 GB/s");
    }

    #[test]
    fn a_state_that_does_not_fit_shows_its_beginning() {
        assert_eq!(fitting("about 5 s left, store 1.0 GiB", 29), "about 5 s left, store 1.0 GiB");
        assert_eq!(fitting("about 5 s left, store 1.0 GiB", 15), "about 5 s left…");
    }
}
