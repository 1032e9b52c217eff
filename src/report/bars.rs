//! Progress bars on a terminal.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Progress, Stage, text};
use crate::logging;

/// A bar for each stage, and a line of state below.
pub(super) struct Bars {
    all: MultiProgress,
    /// By name: a stage may appear between others.
    stages: Vec<(String, ProgressBar)>,
    state: ProgressBar,
}

impl Bars {
    pub(super) fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let state = all.add(ProgressBar::new_spinner().with_style(template("{wide_msg}")));
        logging::bars_on_screen(Some(all.clone()));
        Self { all, stages: Vec::new(), state }
    }

    pub(super) fn draw(&mut self, progress: &Progress, now_ms: u64) {
        for stage in progress.stages() {
            let bar = self.bar(stage);
            bar.set_length(stage.tasks.max(stage.tasks_done));
            bar.set_position(stage.tasks_done);
            bar.set_message(message(stage, now_ms));
        }
        self.state.set_message(progress.state_line(now_ms));
    }

    fn bar(&mut self, stage: &Stage) -> &ProgressBar {
        let known = self.stages.iter().position(|(name, _)| *name == stage.name);
        let index = known.unwrap_or_else(|| {
            let style = template("{prefix:<14} {bar:30} {pos:>5}/{len} {msg}").progress_chars("=> ");
            let bar = ProgressBar::new(stage.tasks).with_style(style).with_prefix(stage.name.clone());
            self.stages.push((stage.name.clone(), self.all.insert_before(&self.state, bar)));
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
    }
}

fn message(stage: &Stage, now_ms: u64) -> String {
    match stage.started_ms {
        None => String::new(),
        Some(_) => {
            let planned = match stage.bytes_planned {
                0 => String::new(),
                planned => format!(" of {}", text::bytes(planned)),
            };
            format!("{}{planned} {}", text::bytes(stage.bytes_in), text::rate(stage.bytes_in, stage.busy(now_ms)))
        }
    }
}

fn template(text: &str) -> ProgressStyle {
    ProgressStyle::with_template(text).expect("templates are literals of this file")
}
