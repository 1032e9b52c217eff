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
    /// It is being looked whether it is this run's still. One question is under way at a time.
    looking: bool,
    /// Since that began, it was to be looked again.
    look_again: bool,
}

impl Log {
    pub(super) fn new(run: String, last: u64) -> Self {
        Self { run, last, waiting: VecDeque::new(), asked: None, written: 0, looking: false, look_again: false }
    }

    pub(super) fn add(&mut self, entry: Entry) {
        self.waiting.push_back(entry);
    }

    fn is_busy(&self) -> bool {
        self.looking || self.asked.is_some()
    }
}

impl Owner {
    /// Writes what gathered, one record at a time.
    pub(super) fn write(&mut self, cx: &mut Cx<'_>) {
        if let Some(log) = self.log.as_mut().filter(|log| !log.is_busy() && !log.waiting.is_empty()) {
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
        let again = log.look_again;
        self.handle(OwnerEvent::Log(news), cx);
        if again {
            self.look(cx);
        }
    }

    /// From time to time it is looked whether the log is this run's still.
    pub(in crate::simulation) fn look_at_times(&mut self, cx: &mut Cx<'_>) {
        cx.after(LOOK_EVERY, Timer::LookAtLog);
        self.look(cx);
    }

    /// Looks now, or when what is being asked is answered.
    pub(super) fn look(&mut self, cx: &mut Cx<'_>) {
        let Some(log) = &mut self.log else { return };
        if log.is_busy() {
            return log.look_again = true;
        }
        (log.looking, log.look_again) = (true, false);
        cx.ask(Who::LogLook, Question::Last, CALL_DEADLINE);
    }

    /// The server has said which record is the last one.
    pub(in crate::simulation) fn looked(&mut self, answered: &Answered, cx: &mut Cx<'_>) {
        let Some(log) = self.log.as_mut().filter(|log| log.looking) else { return };
        log.looking = false;
        if matches!(answered, Answered::Last(last) if *last != log.last) {
            return self.handle(OwnerEvent::Log(LogNews::TakenOver), cx);
        }
        match log.look_again {
            true => self.look(cx),
            false => self.write(cx),
        }
    }

    /// The pause before a record is tried again, under the same name, is over.
    pub(in crate::simulation) fn write_again(&mut self, cx: &mut Cx<'_>) {
        self.append(cx);
    }
}
