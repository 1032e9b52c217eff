//! The thread that shows progress.

use std::{
    io::{self, IsTerminal, Write},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::JoinHandle,
    time::Duration,
};

use exobus_actors::event::{Event, EventKind, EventSink};
use exobus_queries::snapshot::Snapshot;
use exobus_store::{Clock, SystemClock};

use super::{Progress, Views, bars::Bars, estimates::Estimates};
use crate::{exit::Failure, stdout};

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Bars that are drawn over and over.
    Bars,
    /// A line every few seconds.
    Lines,
}

impl Style {
    /// Bars when stderr is a terminal.
    pub fn of_stderr() -> Self {
        if io::stderr().is_terminal() { Self::Bars } else { Self::Lines }
    }
}

/// How often bars are drawn.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// How often a line is written; short jobs write none.
const LINE_EVERY: Duration = Duration::from_secs(3);

/// Shows what the events of a job tell, until [`Reporter::finish`].
pub struct Reporter {
    events: Sender<Message>,
    thread: JoinHandle<(Progress, Views)>,
    sample_ms: u64,
}

/// An event, or the word that no more will come.
type Message = Option<Event>;

impl Reporter {
    /// Starts the thread; `views` hear of everything, too.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start(style: Style, views: Views) -> io::Result<Self> {
        Self::with_hint(style, views, "")
    }

    /// The same with a line below what is known of the result, where that is drawn: what whoever sees it can do.
    ///
    /// # Errors
    /// See [`start`](Self::start).
    pub fn with_hint(style: Style, mut views: Views, hint: &'static str) -> io::Result<Self> {
        let (events, received) = mpsc::channel();
        let sample_ms = views.sample_ms();
        let run = move || {
            let progress = show((style, hint), &received, &mut views);
            (progress, views)
        };
        let thread = std::thread::Builder::new().name("report".into()).spawn(run)?;
        Ok(Self { events, thread, sample_ms })
    }

    /// Where the events go; never blocks.
    pub fn sink(&self) -> EventSink {
        let events = self.events.clone();
        // After `finish` nobody listens, and nobody needs to.
        EventSink::new(move |event| drop(events.send(Some(event)))).sampled_every(self.sample_ms)
    }

    /// Removes what is drawn over and over, and writes the views; gives what the events added up to, and whether the views
    /// could be written: a job that went well is done, whatever became of its pictures.
    pub fn finish(self) -> (Progress, Result<(), Failure>) {
        let _ = self.events.send(None);
        let (progress, views) = match self.thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let written = views.write().map(|said| said.iter().for_each(|line| say(line)));
        (progress, written)
    }
}

fn show((style, hint): (Style, &str), received: &Receiver<Message>, views: &mut Views) -> Progress {
    let clock = SystemClock::new();
    let mut progress = Progress::default();
    let mut estimates = Estimates::default();
    let mut bars: Option<Bars> = None;
    let (mut next_at, every) = match style {
        Style::Bars => (DRAW_EVERY, DRAW_EVERY),
        Style::Lines => (LINE_EVERY, LINE_EVERY),
    };
    // The job's clock began when it was accepted, ours when this thread did.
    let mut offset_ms = 0;
    let mut last_line = String::new();
    loop {
        match received.recv_timeout(next_at.saturating_sub(clock.now())) {
            Ok(Some(event)) => {
                if event.at_us > 0 {
                    offset_ms = (event.at_us / 1000) as i64 - clock.now().as_millis() as i64;
                }
                views.on(&event);
                if let EventKind::Estimated { snapshot } = &event.kind {
                    let bars = bars.as_mut().map(|bars| (bars, hint));
                    show_estimate(snapshot, (&mut estimates, views.are_estimates_json()), bars);
                }
                if let Some(news) = progress.on(&event) {
                    match &bars {
                        Some(bars) => Bars::say(bars, &news),
                        None => say(&news),
                    }
                }
            }
            Ok(None) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if clock.now() >= next_at {
            next_at = clock.now() + every;
            let now_ms = (clock.now().as_millis() as i64 + offset_ms).max(0) as u64;
            if style == Style::Bars {
                bars.get_or_insert_with(Bars::new).draw(&progress, now_ms);
            } else {
                let line = progress.line(now_ms);
                if !line.is_empty() && line != last_line {
                    say(&line);
                    last_line = line;
                }
            }
        }
    }
    if let Some(bars) = &mut bars {
        bars.draw(&progress, progress.last_at_ms());
    }
    progress
}

/// Shows what is known of a result; who looks seldom is told none of some looks.
fn show_estimate(snapshot: &str, (estimates, as_json): (&mut Estimates, bool), bars: Option<(&mut Bars, &str)>) {
    let Ok(known) = serde_json::from_str::<Snapshot>(snapshot) else { return };
    match bars {
        _ if as_json => stdout::print_line(snapshot),
        Some((bars, hint)) => bars.show(&known, &estimates.line(&known), hint),
        None => say(&estimates.line(&known)),
    }
}

fn say(line: &str) {
    // A closed stderr is no reason to stop working.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use exobus_actors::ids::NodeId;

    use super::*;

    #[test]
    fn every_event_before_the_end_is_counted() {
        let reporter = Reporter::start(Style::Lines, Views::default()).unwrap();
        let sink = reporter.sink();
        for _ in 0..1000 {
            let kind = EventKind::StagePlanned { stage: "noop".into(), tasks: 1, bytes: 0 };
            sink.emit(Event { at_us: 1, node: NodeId::new("n1"), job: None, kind });
        }
        let (progress, written) = reporter.finish();
        assert_eq!(progress.stages().next().unwrap().tasks, 1000);
        assert!(written.is_ok());
        sink.emit(Event { at_us: 2, node: NodeId::new("n1"), job: None, kind: EventKind::JobFinished { error: None } });
    }
}
