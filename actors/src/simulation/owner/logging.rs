//! The writer of the job's log: a model of `joblog/writer.rs`, whose records count entries and no bytes.

use std::collections::VecDeque;
use std::time::Duration;

use super::Owner;
use crate::joblog::{Entry, LogNews};
use crate::owner::OwnerEvent;
use crate::simulation::acts::{Cx, Timer, Who};
use crate::simulation::server::{Answered, Question};

const CALL_DEADLINE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Most entries of a record.
const RECORD: usize = 64;

#[derive(Debug)]
pub(super) struct Log {
    run: String,
    last: u64,
    waiting: VecDeque<Entry>,
    /// Entries of the record that is being written.
    asked: Option<usize>,
    written: u64,
    /// It is being looked whether it is this run's still, ...
    looking: bool,
    /// ... or that is to be done next.
    look_due: bool,
}

impl Log {
    pub(super) fn new(run: String, last: u64) -> Self {
        Self { run, last, waiting: VecDeque::new(), asked: None, written: 0, looking: false, look_due: false }
    }

    pub(super) fn add(&mut self, entry: Entry) {
        self.waiting.push_back(entry);
    }

    fn is_busy(&self) -> bool {
        self.looking || self.asked.is_some()
    }
}

impl Owner {
    /// One question at a time: a look that is due, or a record of what gathered.
    pub(super) fn write(&mut self, cx: &mut Cx<'_>) {
        let Some(log) = self.log.as_mut().filter(|log| !log.is_busy()) else { return };
        if std::mem::take(&mut log.look_due) {
            log.looking = true;
            cx.ask(Who::LogLook, Question::Last, CALL_DEADLINE);
        } else if !log.waiting.is_empty() {
            log.asked = Some(log.waiting.len().min(RECORD));
            self.append(cx);
        }
    }

    fn append(&mut self, cx: &mut Cx<'_>) {
        if let Some(log) = &self.log
            && let Some(count) = log.asked
        {
            let entries = log.waiting.iter().take(count).cloned().collect();
            let (last, id) = (log.last, format!("{}-{}", log.run, log.last));
            cx.ask(Who::Log, Question::Append { entries, last, id }, CALL_DEADLINE);
        }
    }

    /// The server has said what became of a record.
    pub(in crate::simulation) fn wrote(&mut self, answered: Answered, cx: &mut Cx<'_>) {
        let Some(log) = &mut self.log else { return };
        let Some(count) = log.asked.take() else { return };
        let news = match answered {
            Answered::Appended(sequence) => {
                log.waiting.drain(..count);
                log.last = sequence;
                log.written += count as u64;
                LogNews::Durable(log.written)
            }
            Answered::Conflict => LogNews::TakenOver,
            _ => {
                log.asked = Some(count);
                return cx.after(PAUSE, Timer::LogAgain);
            }
        };
        self.handle(OwnerEvent::Log(news), cx);
    }

    /// From time to time it is looked whether the log is this run's still.
    pub(in crate::simulation) fn look_at_times(&mut self, cx: &mut Cx<'_>) {
        cx.after(LOOK_EVERY, Timer::LookAtLog);
        self.look(cx);
    }

    /// Looks as soon as nothing else is asked.
    pub(super) fn look(&mut self, cx: &mut Cx<'_>) {
        if let Some(log) = &mut self.log {
            log.look_due = true;
        }
        self.write(cx);
    }

    /// The server has said which record is the last one.
    pub(in crate::simulation) fn looked(&mut self, answered: &Answered, cx: &mut Cx<'_>) {
        let Some(log) = self.log.as_mut().filter(|log| log.looking) else { return };
        log.looking = false;
        if matches!(answered, Answered::Last(last) if *last != log.last) {
            return self.handle(OwnerEvent::Log(LogNews::TakenOver), cx);
        }
        self.write(cx);
    }

    /// The pause before a record is tried again, under the same name, is over.
    pub(in crate::simulation) fn write_again(&mut self, cx: &mut Cx<'_>) {
        self.append(cx);
    }
}
