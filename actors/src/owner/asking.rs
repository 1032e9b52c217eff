//! The watchdog's shell: looks once a second, asks the nodes what attempts wait for, and says why the job stands still.
//!
//! Nodes are asked only when the job has been quiet for a while or somebody wants to know, and each has a deadline: one
//! that does not answer is a cause by itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tracing::{info, warn};

use super::actor::OwnerActor;
use super::chain::{self, Answer, AttemptFacts, Facts, text};
use super::event::OwnerEvent;
use super::watchdog::{Look, STALLED};
use crate::event::EventKind;
use crate::ids::{NodeId, ObjectId};
use crate::protocol::node_manager::{Doing, NodeMsg};
use crate::protocol::owner::{Standing, Why};

use crate::shell::{AskError, Reply, Scope};

/// How long a node may take to say what it does: less than it takes to declare it dead, which may end the job.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);
/// Most questions of others that are open at a time; more are answered without asking the nodes.
const QUESTIONS_MAX: usize = 16;

/// What nodes answered, and what for.
#[derive(Debug)]
pub struct Told {
    asked: Vec<AttemptFacts>,
    answers: BTreeMap<NodeId, Answer>,
    /// Whose question it is, among the open ones; `None`: the watchdog's.
    question: Option<u64>,
}

/// Answers on their way to the program.
#[derive(Debug, Default)]
pub(super) struct Unread(HashMap<usize, Weak<AtomicU64>>);

impl Unread {
    /// One more queue, or one that is known.
    pub(super) fn add(&mut self, count: Weak<AtomicU64>) {
        self.0.entry(count.as_ptr() as usize).or_insert(count);
    }

    /// How many there are.
    fn count(&mut self) -> u64 {
        self.0.retain(|_, count| count.strong_count() > 0);
        self.0.values().filter_map(Weak::upgrade).map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Objects that are being brought to the program from other nodes.
#[derive(Clone, Default)]
pub(super) struct Reads(Arc<Mutex<BTreeMap<u64, Begun>>>);

/// Which object, from where, since when.
type Begun = (ObjectId, NodeId, Duration);

/// One of them, until it is there.
pub(super) struct Read {
    reads: Reads,
    number: u64,
}

impl Reads {
    pub(super) fn begin(&self, object: ObjectId, from: &NodeId, now: Duration) -> Read {
        let mut reads = self.0.lock();
        let number = reads.last_key_value().map_or(0, |(number, _)| number + 1);
        reads.insert(number, (object, from.clone(), now));
        Read { reads: self.clone(), number }
    }

    fn list(&self, now: Duration) -> Vec<Begun> {
        let reads = self.0.lock();
        reads.values().map(|(object, node, since)| (*object, node.clone(), now.saturating_sub(*since))).collect()
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        self.reads.0.lock().remove(&self.number);
    }
}

impl OwnerActor {
    /// A second has passed.
    pub(super) fn watch(&mut self, scope: &mut Scope<'_, Self>) {
        let now = self.now();
        match self.watchdog.look(now, self.state.counts().finished, self.calls) {
            Look::Fine => {}
            Look::Quiet(_) => self.ask_nodes(None, scope),
            Look::GoesOn(after) => {
                let (what, after_ms) = (format!("job {}", self.job), after.as_millis() as u64);
                if after >= STALLED {
                    warn!(job_id = %self.job, "job goes on after {}", text(after));
                }
                self.emit_here(EventKind::GoesOn { what, after_ms });
            }
        }
    }

    /// Somebody wants to know what the job waits for; `ask`: also of its nodes.
    pub(super) fn asked_why(&mut self, ask: bool, reply: Reply<Why>, scope: &mut Scope<'_, Self>) {
        if ask && !self.is_ending() && self.questions.len() < QUESTIONS_MAX {
            let question = self.questions.last_key_value().map_or(0, |(last, _)| last + 1);
            self.questions.insert(question, reply);
            return self.ask_nodes(Some(question), scope);
        }
        let attempts = self.state.attempt_facts().into_values().flatten().collect();
        let why = self.why(attempts, BTreeMap::new());
        self.post.answer(reply, why);
    }

    fn ask_nodes(&mut self, question: Option<u64>, scope: &mut Scope<'_, Self>) {
        let by_node = self.state.attempt_facts();
        let job = self.job;
        let asked: Vec<_> = by_node.values().flatten().cloned().collect();
        let questions = by_node.into_iter().map(|(node, attempts)| {
            let address = self.node(&node).clone();
            let attempts = attempts.iter().map(|attempt| (attempt.task, attempt.attempt)).collect();
            async move {
                let answer = address.ask(|reply| NodeMsg::Doing { job, attempts, reply }, ANSWER_DEADLINE).await;
                (node, answer.map_err(|error| unanswered(&error)))
            }
        });
        let questions: Vec<_> = questions.collect();
        scope.later(async move {
            let answers = join_all(questions).await.into_iter().collect();
            Some(OwnerEvent::Told(Told { asked, answers, question }))
        });
    }

    /// The nodes have answered, or had their time.
    pub(super) fn told(&mut self, Told { asked, answers, question }: Told) {
        if question.is_none() {
            self.hand_out_again(&answers);
        }
        let why = self.why(asked, answers);
        if let Some(question) = question {
            if let Some(reply) = self.questions.remove(&question) {
                self.post.answer(reply, why);
            }
            return;
        }
        let quiet = Duration::from_millis(why.still_ms);
        let reason = why.line();
        match why.standing {
            // It went on while the nodes were asked.
            Standing::Running | Standing::Ending => return,
            Standing::Stalled => {
                warn!(job_id = %self.job, "job has made no progress for {}: {reason}", text(quiet));
            }
            Standing::Quiet | Standing::Program => {
                info!(job_id = %self.job, "job has made no progress for {}: {reason}", text(quiet));
            }
        }
        self.emit_here(EventKind::Waiting { what: format!("job {}", self.job), reason, for_ms: why.still_ms });
    }

    /// Attempts that their nodes do not have, in a job that has made no progress for a while, were lost on the way: a session
    /// that is made anew with the next life of a node forgets what was under way (law 7). Should one have ended just now,
    /// what it says later is as late as any other.
    fn hand_out_again(&mut self, answers: &BTreeMap<NodeId, Answer>) {
        for (node, states) in answers.iter().filter_map(|(node, answer)| Some((node, answer.as_ref().ok()?))) {
            for state in states.iter().filter(|state| state.doing == Doing::NotHere) {
                warn!(job_id = %self.job, task_id = %state.task, node = %node, "attempt lost on the way: handed out again");
                self.state.recalled((node, self.state.life_of(node)), state.task, state.attempt);
            }
        }
    }

    /// The job is over: nobody waits for the answers of its nodes any more.
    pub(super) fn answer_open_questions(&mut self) {
        for reply in std::mem::take(&mut self.questions).into_values() {
            let why = self.why(Vec::new(), BTreeMap::new());
            self.post.answer(reply, why);
        }
    }

    fn why(&mut self, attempts: Vec<AttemptFacts>, answers: BTreeMap<NodeId, Answer>) -> Why {
        let now = self.now();
        let still = self.watchdog.still(now);
        let moved = self.watchdog.moved(self.state.counts().finished);
        let (standing, chains) = match self.is_ending() {
            true => (Standing::Ending, vec![vec!["the job is over, and its nodes say their last figures".to_owned()]]),
            false => {
                let facts = self.wait_facts(now, still, attempts, answers);
                chain::why(&facts)
            }
        };
        Why { job: self.job, standing, still_ms: still.as_millis() as u64, moved, chains }
    }

    fn wait_facts(
        &mut self,
        now: Duration,
        still: Duration,
        attempts: Vec<AttemptFacts>,
        answers: BTreeMap<NodeId, Answer>,
    ) -> Facts {
        let suspected = self.suspected.iter().map(|(node, since)| (node.clone(), now.saturating_sub(*since)));
        Facts {
            still,
            idle: self.watchdog.idle(now),
            asks: self.open_questions(),
            unread: self.unread.count(),
            reads: self.reads.list(now),
            stages: self.state.stage_facts(),
            unplaced: self.state.unplaced(),
            admission: self.admission.reason(),
            scheduler: self.refused_for(),
            attempts,
            suspected: suspected.collect(),
            answers,
        }
    }
}

fn unanswered(error: &AskError) -> String {
    match error {
        AskError::Deadline { deadline, .. } => format!("no answer within {}", text(*deadline)),
        AskError::Dropped { .. } => "it dropped the question".to_owned(),
        AskError::Undeliverable(undeliverable) => undeliverable.reason.clone(),
        other @ AskError::Nobody { .. } => other.to_string(),
    }
}
