//! Questions why the job stands still: the Owner looks once a second, asks the nodes what attempts wait for, and says what it found.
//!
//! Nodes are asked only when the job has been quiet for a while or somebody wants to know, and each has a deadline: one
//! that does not answer is a cause by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tracing::{info, warn};

use super::{OwnerCore, Surroundings};
use crate::event::{EventKind, NodeState};
use crate::ids::NodeId;
use crate::owner::why::chain::{self, Answer, AttemptFacts, Facts, text};
use crate::owner::why::watchdog::{Look, STALLED, Watchdog};
use crate::protocol::node_manager::Doing;
use crate::protocol::owner::{Standing, Why};
use crate::shell::{AskError, Reply};

/// How long a node may take to say what it does: less than it takes to declare it dead, which may end the job.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);
/// Most questions of others that are open at a time; more are answered without asking the nodes.
const QUESTIONS_MAX: usize = 16;

/// A question that some nodes have not answered yet.
#[derive(Debug)]
struct OpenQuestion {
    asked: Vec<AttemptFacts>,
    awaited: BTreeSet<NodeId>,
    answers: BTreeMap<NodeId, Answer>,
    /// Whose question it is; `None`: the watchdog's.
    reply: Option<Reply<Why>>,
}

/// What is known of a wait beside the tables, and who wants to know of it.
#[derive(Debug)]
pub(super) struct Questions {
    pub(super) watchdog: Watchdog,
    open: BTreeMap<u64, OpenQuestion>,
    last: u64,
    /// Nodes that are silent, and since when.
    suspected: BTreeMap<NodeId, Duration>,
    /// Why the Scheduler does not give what is asked for.
    pub(super) scheduler_waits_for: Option<String>,
}

impl Questions {
    /// Of a job that starts `now`.
    pub(super) fn new(now: Duration) -> Self {
        Self {
            watchdog: Watchdog::new(now),
            open: BTreeMap::new(),
            last: 0,
            suspected: BTreeMap::new(),
            scheduler_waits_for: None,
        }
    }

    /// What became of a node.
    pub(super) fn heard_of(&mut self, node: &NodeId, state: NodeState, now: Duration) {
        match state {
            NodeState::Suspected => drop(self.suspected.entry(node.clone()).or_insert(now)),
            NodeState::Up | NodeState::Dead | NodeState::Left => drop(self.suspected.remove(node)),
        }
    }

    /// How many questions of others are open.
    fn of_others(&self) -> usize {
        self.open.values().filter(|question| question.reply.is_some()).count()
    }
}

impl OwnerCore {
    /// A second has passed.
    pub(super) fn watch(&mut self, around: &dyn Surroundings) {
        let (finished, calls) = (self.state.counts().finished, self.program.calls());
        match self.questions.watchdog.look(around.now(), finished, calls) {
            Look::Fine => {}
            Look::Quiet(_) => self.ask_nodes(None, around),
            Look::GoesOn(after) => {
                let (what, after_ms) = (format!("job {}", self.job()), after.as_millis() as u64);
                if after >= STALLED {
                    warn!(job_id = %self.job(), "job goes on after {}", text(after));
                }
                self.emit_here(EventKind::GoesOn { what, after_ms });
            }
        }
    }

    /// Somebody wants to know what the job waits for; `ask`: also of its nodes.
    pub(super) fn asked_why(&mut self, ask: bool, reply: Reply<Why>, around: &dyn Surroundings) {
        if ask && !self.ending.has_begun() && self.questions.of_others() < QUESTIONS_MAX {
            return self.ask_nodes(Some(reply), around);
        }
        let attempts = self.state.attempt_facts().into_values().flatten().collect();
        let why = self.why(attempts, BTreeMap::new(), around);
        self.answer(reply, why);
    }

    fn ask_nodes(&mut self, reply: Option<Reply<Why>>, around: &dyn Surroundings) {
        let by_node = self.state.attempt_facts();
        self.questions.last += 1;
        let question = self.questions.last;
        for (node, attempts) in &by_node {
            let attempts = attempts.iter().map(|attempt| (attempt.task, attempt.attempt)).collect();
            self.ask_doing(question, node, attempts, ANSWER_DEADLINE);
        }
        let awaited = by_node.keys().cloned().collect();
        let asked = by_node.into_values().flatten().collect();
        self.questions.open.insert(question, OpenQuestion { asked, awaited, answers: BTreeMap::new(), reply });
        self.tell_if_answered(question, around);
    }

    /// A node has said what attempts there do, or has not in time.
    pub(super) fn answered(&mut self, question: u64, node: NodeId, answer: Answer, around: &dyn Surroundings) {
        let Some(open) = self.questions.open.get_mut(&question) else { return };
        open.awaited.remove(&node);
        open.answers.insert(node, answer);
        self.tell_if_answered(question, around);
    }

    /// Says what a question has brought, when no node is awaited any more.
    fn tell_if_answered(&mut self, question: u64, around: &dyn Surroundings) {
        if self.questions.open.get(&question).is_none_or(|open| !open.awaited.is_empty()) {
            return;
        }
        let Some(OpenQuestion { asked, answers, reply, .. }) = self.questions.open.remove(&question) else { return };
        match reply {
            Some(reply) => {
                let why = self.why(asked, answers, around);
                self.answer(reply, why);
            }
            None => {
                self.hand_out_again(&answers);
                let why = self.why(asked, answers, around);
                self.say_why(&why);
            }
        }
    }

    /// Tells people why the job stands still, if it does.
    fn say_why(&mut self, why: &Why) {
        let quiet = Duration::from_millis(why.still_ms);
        let (job, reason) = (self.job(), why.line());
        match why.standing {
            // It went on while the nodes were asked.
            Standing::Running | Standing::Ending => return,
            Standing::Stalled => {
                warn!(job_id = %job, "job has made no progress for {}: {reason}", text(quiet));
            }
            Standing::Quiet | Standing::Program => {
                info!(job_id = %job, "job has made no progress for {}: {reason}", text(quiet));
            }
        }
        self.emit_here(EventKind::Waiting { what: format!("job {job}"), reason, for_ms: why.still_ms });
    }

    /// Attempts that their nodes do not have, in a job that has made no progress for a while, were lost on the way: a session
    /// that is made anew with the next incarnation of a node forgets what was under way (law 7). Should one have ended just now,
    /// what it says later is as late as any other.
    fn hand_out_again(&mut self, answers: &BTreeMap<NodeId, Answer>) {
        for (node, states) in answers.iter().filter_map(|(node, answer)| Some((node, answer.as_ref().ok()?))) {
            for state in states.iter().filter(|state| state.doing == Doing::NotHere) {
                warn!(job_id = %self.job(), task_id = %state.task, node = %node, "attempt lost on the way: handed out again");
                self.state.recalled((node, self.state.incarnation_of(node)), state.task, state.attempt);
            }
        }
    }

    /// The job is over: nobody waits for the answers of its nodes any more.
    pub(super) fn answer_open_questions(&mut self, around: &dyn Surroundings) {
        for open in std::mem::take(&mut self.questions.open).into_values() {
            if let Some(reply) = open.reply {
                let why = self.why(Vec::new(), BTreeMap::new(), around);
                self.answer(reply, why);
            }
        }
    }

    fn why(
        &mut self,
        attempts: Vec<AttemptFacts>,
        answers: BTreeMap<NodeId, Answer>,
        around: &dyn Surroundings,
    ) -> Why {
        let still = self.questions.watchdog.still(around.now());
        let moved = self.questions.watchdog.moved(self.state.counts().finished);
        let (standing, chains) = match self.ending.has_begun() {
            true => (Standing::Ending, vec![vec!["the job is over, and its nodes say their last figures".to_owned()]]),
            false => {
                let facts = self.wait_facts(still, attempts, answers, around);
                chain::why(&facts)
            }
        };
        Why { job: self.job(), standing, still_ms: still.as_millis() as u64, moved, chains, log: self.log_use(around) }
    }

    fn wait_facts(
        &mut self,
        still: Duration,
        attempts: Vec<AttemptFacts>,
        answers: BTreeMap<NodeId, Answer>,
        around: &dyn Surroundings,
    ) -> Facts {
        let now = around.now();
        let suspected = self.questions.suspected.iter();
        Facts {
            still,
            idle: self.questions.watchdog.idle(now),
            asks: self.program.unanswered(),
            unread: self.program.unread(),
            computing: self.program.computing(now),
            reads: self.program.reads(now),
            stages: self.state.stage_facts(),
            unplaced: self.state.unplaced(),
            admission: around.admission(),
            scheduler: self.questions.scheduler_waits_for.clone(),
            attempts,
            suspected: suspected.map(|(node, since)| (node.clone(), now.saturating_sub(*since))).collect(),
            answers,
        }
    }
}

/// Why a node did not answer, in words.
pub(in crate::owner) fn unanswered(error: &AskError) -> String {
    match error {
        AskError::Deadline { deadline, .. } => format!("no answer within {}", text(*deadline)),
        AskError::Dropped { .. } => "it dropped the question".to_owned(),
        AskError::Undeliverable(undeliverable) => undeliverable.reason.clone(),
        other @ AskError::Nobody { .. } => other.to_string(),
    }
}
