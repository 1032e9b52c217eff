//! Logs go to stderr, above the progress bars where there are any.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
};

use indicatif::MultiProgress;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// Bars that are on the screen now: a log line must not be written into them.
static BARS: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// From here on log lines appear above these bars; `None` when the bars are gone.
pub fn bars_on_screen(bars: Option<MultiProgress>) {
    *BARS.lock().unwrap_or_else(PoisonError::into_inner) = bars;
}

/// Starts logging at `level` and above, unless `EXOBUS_LOG` or `RUST_LOG` say otherwise.
pub fn start(level: &str) {
    let from_environment = ["EXOBUS_LOG", "RUST_LOG"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|text| !text.is_empty());
    // What nats.rs tells about each reconnect is told by ourselves.
    let default = format!("{level},async_nats=error");
    let (filter, wrong) = match from_environment {
        Some(text) => match EnvFilter::try_new(&text) {
            Ok(filter) => (filter, None),
            Err(error) => (EnvFilter::new(&default), Some(error)),
        },
        None => (EnvFilter::new(&default), None),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .with_writer(AboveBars)
        .init();
    if let Some(error) = wrong {
        tracing::warn!(%error, "log filter not understood, using {default:?}");
    }
}

struct AboveBars;

impl<'a> MakeWriter<'a> for AboveBars {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(Vec::with_capacity(256))
    }
}

/// One event's text, written as a whole.
struct Line(Vec<u8>);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let bars = BARS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A closed stderr is no reason to stop working.
        let write = || drop(io::stderr().lock().write_all(&self.0));
        match bars {
            Some(bars) => bars.suspend(write),
            None => write(),
        }
    }
}
