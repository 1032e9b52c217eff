//! [`Output`]: what one attempt, or one run of a program, prints.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::secrets::Filter;
use super::{JOB_BYTES_MAX, JobPrints, PrintedBy, Printing, Prints, TASK_BYTES_MAX};
use crate::ids::JobId;
use crate::task::TaskSpec;

/// So much of a line waits for its end.
const PIECE_BYTES: usize = 8 << 10;

/// What is printed comes in here, in whatever pieces, and goes on in lines: without secrets, as far as it may, and never waits.
pub(crate) struct Output {
    printing: Arc<Printing>,
    of: Origin,
    /// What its job has printed, looked up when there is something.
    of_job: OnceLock<Arc<JobPrints>>,
    /// There when something was printed.
    state: Mutex<Option<Box<State>>>,
}

/// Who prints.
pub(super) enum Origin {
    /// The program of this job.
    Program(JobId),
    /// This attempt.
    Task(Arc<TaskSpec>),
}

impl Origin {
    fn job(&self) -> JobId {
        match self {
            Self::Program(job) => *job,
            Self::Task(spec) => spec.job,
        }
    }

    fn bytes_max(&self) -> usize {
        match self {
            Self::Program(_) => JOB_BYTES_MAX,
            Self::Task(_) => TASK_BYTES_MAX,
        }
    }

    fn by(&self) -> PrintedBy {
        match self {
            Self::Program(_) => PrintedBy::Program,
            Self::Task(spec) => {
                PrintedBy::Task { task: spec.id, attempt: spec.attempt, function: spec.function.clone() }
            }
        }
    }
}

struct State {
    filter: Filter,
    /// What has no end of a line yet.
    line: Vec<u8>,
    /// Bytes that it may print still.
    left: usize,
    /// It was said that it is cut.
    cut: bool,
    /// Bytes that were dropped, and of which nobody has been told.
    dropped: usize,
    sent: u64,
}

impl Output {
    pub(super) fn new(printing: Arc<Printing>, of: Origin) -> Self {
        Self { printing, of, of_job: OnceLock::new(), state: Mutex::default() }
    }

    fn begin(&self) -> Box<State> {
        let filter = Filter::new(self.printing.secrets().clone());
        Box::new(State { filter, line: Vec::new(), left: self.of.bytes_max(), cut: false, dropped: 0, sent: 0 })
    }

    /// Nothing more comes, as far as is known: what waits for the end of its line goes.
    pub(crate) fn flush(&self) {
        if let Some(state) = &mut *self.state.lock() {
            let rest = state.filter.finish();
            state.line.extend(rest);
            self.send_lines(state, true);
        }
    }

    /// Bytes that it has sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.state.lock().as_ref().map_or(0, |state| state.sent)
    }

    /// Bytes that were dropped, and of which nobody has been told.
    #[cfg(test)]
    pub(super) fn dropped(&self) -> usize {
        self.state.lock().as_ref().map_or(0, |state| state.dropped)
    }

    fn send_lines(&self, state: &mut State, all: bool) {
        let line = std::mem::take(&mut state.line);
        let mut rest = &line[..];
        while !rest.is_empty() && !state.cut {
            let line_end = rest.iter().take(PIECE_BYTES).rposition(|byte| *byte == b'\n');
            let bytes = match line_end {
                Some(end) => end + 1,
                None if all || rest.len() >= PIECE_BYTES => whole_letters(&rest[..rest.len().min(PIECE_BYTES)]),
                None => break,
            };
            self.send(state, &rest[..bytes]);
            rest = &rest[bytes..];
        }
        if !state.cut {
            state.line = rest.to_vec();
        }
    }

    /// Sends a piece, as much of it as may be printed.
    fn send(&self, state: &mut State, piece: &[u8]) {
        if state.cut {
            return;
        }
        let of_task = piece.len().min(state.left);
        let job = self.of_job.get_or_init(|| self.printing.job(self.of.job(), None));
        let bytes = job.take(of_task);
        state.left -= bytes;
        let mut text = String::new();
        if state.dropped > 0 {
            text =
                format!("[exobus: {} bytes are not shown, since more was printed than could be sent]\n", state.dropped);
        }
        text.push_str(&String::from_utf8_lossy(&piece[..bytes]));
        if bytes < piece.len() {
            state.cut = true;
            let why = match bytes < of_task {
                true => job.is_cut_now().then(|| format!("a job may print {JOB_BYTES_MAX} bytes")),
                false => Some(format!("a task may print {} bytes", self.of.bytes_max())),
            };
            if let Some(why) = why {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(&format!("[exobus: cut here: {why}]\n"));
            }
        }
        if text.is_empty() {
            return;
        }
        match self.printing.send(job, self.of.by(), text) {
            true => (state.dropped, state.sent) = (0, state.sent + bytes as u64),
            false => state.dropped += bytes,
        }
    }
}

/// Up to the end of the last letter that is whole, where what follows may be the beginning of one.
pub(super) fn whole_letters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

impl Prints for Output {
    fn print(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        let state = state.get_or_insert_with(|| self.begin());
        // What is cut takes no work and no memory.
        if state.cut {
            return;
        }
        let clear = state.filter.push(bytes);
        state.line.extend(clear);
        self.send_lines(state, false);
    }

    fn hide(&self, text: &mut String) {
        self.printing.secrets().hide(text);
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.flush();
    }
}
