//! The log of the job, and what waits for it: a mirror of `owner/logging.rs`.

use bytes::Bytes;

use super::{CALL_DEADLINE, JobResult, Outcome, Owner, PAUSE, RECORD};
use crate::ids::NodeId;
use crate::joblog::Choice;
use crate::joblog::{Entry, LogNews};
use crate::protocol::node_manager::NodeMsg;

use crate::owner::{Freed, OwnerEvent};
use crate::simulation::acts::{Cx, Timer, Who};
use crate::simulation::server::{Answered, Question};

impl Owner {
    pub(super) fn free_when_durable(&mut self, node: NodeId, freed: Freed, cx: &mut Cx<'_>) {
        let log = self.log.as_ref().map_or((0, 0), |log| (log.noted, log.written));
        if let Some((node, freed)) = self.deferred.free(log, node, freed) {
            self.free_now(node, freed, cx);
        }
    }

    pub(super) fn free_now(&mut self, node: NodeId, freed: Freed, cx: &mut Cx<'_>) {
        match freed {
            Freed::Copy(copy) => {
                cx.note(|| format!("{copy} is to be freed on {node}"));
                self.frees.entry(node).or_default().push(copy);
            }
            Freed::Parts(set, version, parts) => {
                let (job, run) = (self.job, self.state.run());
                self.tell(&node, NodeMsg::FreeParts { job, run, set, version, parts }, cx);
            }
        }
    }

    pub(super) fn note_choice(&mut self, choice: Choice) {
        self.note(Entry::Choice(choice));
    }

    pub(super) fn note(&mut self, entry: Entry) {
        if let Some(log) = &mut self.log {
            log.noted += 1;
            log.waiting.push_back(entry);
        }
    }

    /// Writes what gathered, one record at a time.
    pub(super) fn write(&mut self, cx: &mut Cx<'_>) {
        if let Some(log) = self.log.as_mut().filter(|log| log.asked.is_none() && !log.waiting.is_empty()) {
            log.asked = Some(log.waiting.len().min(RECORD));
            self.append(cx);
        }
    }

    pub(super) fn append(&mut self, cx: &mut Cx<'_>) {
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
                LogNews::Durable(log.written + count as u64)
            }
            Answered::Conflict => LogNews::TakenOver,
            _ => {
                log.asked = Some(count);
                return cx.after(PAUSE, Timer::LogAgain);
            }
        };
        self.handle(OwnerEvent::Log(news), cx);
    }

    /// The pause before a record is tried again, under the same name, is over.
    pub(in crate::simulation) fn write_again(&mut self, cx: &mut Cx<'_>) {
        self.append(cx);
    }

    pub(super) fn log_news(&mut self, news: LogNews, cx: &mut Cx<'_>) {
        match news {
            LogNews::Durable(position) => {
                if let Some(log) = &mut self.log {
                    log.written = position;
                }
                for (node, freed) in self.deferred.durable(position) {
                    self.free_now(node, freed, cx);
                }
                if let Some(result) = self.deferred.last_word(position) {
                    self.end(result, cx);
                }
            }
            LogNews::TakenOver => self.taken_over(),
        }
    }

    pub(super) fn taken_over(&mut self) {
        self.log = None;
        self.outcome.get_or_insert(Outcome::Abandoned("another node has taken the job up".to_owned()));
    }

    pub(super) fn end_when_durable(&mut self, result: JobResult, cx: &mut Cx<'_>) {
        if self.deferred.is_ending() {
            return;
        }
        match &mut self.log {
            Some(_) => {
                self.note(Entry::End(result.clone().map(Bytes::from)));
                let position = self.log.as_ref().map_or(0, |log| log.noted);
                self.deferred.end(position, result);
            }
            None => self.end(result, cx),
        }
    }
}
