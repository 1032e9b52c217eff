//! The thread that shows progress.

use std::{
    io::{self, IsTerminal, Write},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::JoinHandle,
    time::Duration,
};

use exobus_actors::event::{Event, EventSink};
use exobus_store::{Clock, SystemClock};

use super::{Progress, bars::Bars};

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
    thread: JoinHandle<Progress>,
}

enum Message {
    Event(Event),
    End,
}

impl Reporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start(style: Style) -> io::Result<Self> {
        let (events, received) = mpsc::channel();
        let thread = std::thread::Builder::new().name("report".into()).spawn(move || show(style, &received))?;
        Ok(Self { events, thread })
    }

    /// Where the events go; never blocks.
    pub fn sink(&self) -> EventSink {
        let events = self.events.clone();
        // After `finish` nobody listens, and nobody needs to.
        EventSink::new(move |event| drop(events.send(Message::Event(event))))
    }

    /// Removes what is drawn over and over; gives what the events added up to.
    pub fn finish(self) -> Progress {
        let _ = self.events.send(Message::End);
        match self.thread.join() {
            Ok(progress) => progress,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn show(style: Style, received: &Receiver<Message>) -> Progress {
    let clock = SystemClock::new();
    let mut progress = Progress::default();
    let mut bars = None;
    let (mut next_at, every) = match style {
        Style::Bars => (DRAW_EVERY, DRAW_EVERY),
        Style::Lines => (LINE_EVERY, LINE_EVERY),
    };
    // The job's clock began when it was accepted, ours when this thread did.
    let mut offset_ms = 0;
    let mut last_line = String::new();
    loop {
        match received.recv_timeout(next_at.saturating_sub(clock.now())) {
            Ok(Message::Event(event)) => {
                if event.at_ms > 0 {
                    offset_ms = event.at_ms as i64 - clock.now().as_millis() as i64;
                }
                if let Some(news) = progress.on(&event) {
                    match &bars {
                        Some(bars) => Bars::say(bars, &news),
                        None => say(&news),
                    }
                }
            }
            Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
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

fn say(line: &str) {
    // A closed stderr is no reason to stop working.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use exobus_actors::{event::EventKind, ids::NodeId};

    use super::*;

    #[test]
    fn every_event_before_the_end_is_counted() {
        let reporter = Reporter::start(Style::Lines).unwrap();
        let sink = reporter.sink();
        for _ in 0..1000 {
            let kind = EventKind::StagePlanned { stage: "noop".into(), tasks: 1, bytes: 0 };
            sink.emit(Event { at_ms: 1, node: NodeId::new("n1"), job: None, kind });
        }
        assert_eq!(reporter.finish().stages().next().unwrap().tasks, 1000);
        sink.emit(Event { at_ms: 2, node: NodeId::new("n1"), job: None, kind: EventKind::JobFinished { error: None } });
    }
}
