//! A task of a job: what it is, in which state it is, and which attempts of it run. Nothing but the verbs here changes that; the states
//! are drawn in the module of the [Owner](crate::owner).

use smallvec::SmallVec;

use super::placement::NodeIndex;
use super::rare::{OfTask, Rare};
use super::state::Tracker;
use super::tables::{ArgEntry, EntrySource};
use crate::arena::Index;
use crate::ids::{Attempt, TaskId};
use crate::task::JobError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// To run again; its arguments have not been asked for yet.
    Wanted,
    Waiting {
        missing: u32,
    },
    Ready,
    Running,
    Done,
    Failed,
}

impl State {
    /// Whether nothing more comes of it unless somebody asks.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

/// What is so of a task, or not, beside its state: a bit each, for there are millions of them.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Flag {
    Recalled = 1,
    Dispensable = 2,
    Speculated = 4,
    Unread = 8,
}

/// What had become of a task before: what it made then is made again, and nothing else is counted or awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// It was cancelled, and runs again for what it had made until then.
    Cancelled,
    /// An attempt was accepted, and what it read is in the ledgers.
    Accepted,
}

/// An entry of the table of tasks.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: TaskId,
    pub(super) params: Box<[u8]>,
    pub(super) args: Box<[ArgEntry]>,
    pub(super) function: u32,
    pub(super) options: u32,
    outputs: u32,
    numbers: u32,
    tries: u32,
    flags: u8,
    before: Before,
    state: State,
    live: SmallVec<[(Attempt, NodeIndex); 1]>,
    pub(super) rare: Rare<OfTask>,
}

impl Task {
    /// One that has not looked for its arguments; `numbers`: how many it was given before, in this run.
    pub(super) fn new(
        id: TaskId,
        params: Box<[u8]>,
        args: Box<[ArgEntry]>,
        (function, options): (u32, u32),
        outputs: u32,
        numbers: u32,
    ) -> Self {
        Self {
            id,
            params,
            args,
            function,
            options,
            outputs,
            numbers,
            tries: 0,
            flags: 0,
            before: Before::Nothing,
            state: State::Waiting { missing: u32::MAX },
            live: SmallVec::new(),
            rare: Rare::default(),
        }
    }

    fn is(&self, flag: Flag) -> bool {
        self.flags & flag as u8 != 0
    }

    fn mark(&mut self, flag: Flag, on: bool) {
        self.flags = if on { self.flags | flag as u8 } else { self.flags & !(flag as u8) };
    }

    /// Whether a set is one of its arguments.
    pub(super) fn reads_set(&self, set: Index) -> bool {
        self.args.iter().any(|arg| arg.source == EntrySource::Set(set))
    }

    /// In which state it is.
    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Attempts of it that nodes have.
    pub(super) fn live(&self) -> &[(Attempt, NodeIndex)] {
        &self.live
    }

    /// The attempt that this node has.
    pub(super) fn live_at(&self, node: NodeIndex) -> Option<Attempt> {
        self.live.iter().find(|(_, at)| *at == node).map(|(attempt, _)| *attempt)
    }

    /// How many outputs it has, as far as is known: those of a stream are announced one by one.
    pub(super) fn outputs(&self) -> u32 {
        self.outputs
    }

    /// It has this output, too.
    pub(super) fn announces(&mut self, index: u32) {
        self.outputs = self.outputs.max(index + 1);
    }

    /// How many numbers were given in this run: to attempts, recalled ones too, and to what was put back. An old message never fits
    /// a new attempt.
    pub(super) fn numbers(&self) -> u32 {
        self.numbers
    }

    /// One number more was given.
    pub(super) fn numbered(&mut self) {
        self.numbers += 1;
    }

    /// Attempts that count against the limit.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    /// Whether it was taken back from the queue of a node, and has not been placed since.
    pub(super) fn was_recalled(&self) -> bool {
        self.is(Flag::Recalled)
    }

    /// Whether the program can do without it.
    pub(super) fn is_dispensable(&self) -> bool {
        self.is(Flag::Dispensable)
    }

    /// The program can do without it.
    pub(super) fn may_be_given_up(&mut self) {
        self.mark(Flag::Dispensable, true);
    }

    /// Whether an attempt was accepted, and what it read is in the ledgers.
    pub(super) fn is_counted(&self) -> bool {
        self.before == Before::Accepted
    }

    /// An attempt was accepted, in this run or an earlier one, and what it read is in the ledgers.
    pub(super) fn count(&mut self) {
        self.before = Before::Accepted;
    }

    /// Whether it was cancelled, and runs again for what it had made before that.
    pub(super) fn is_revived(&self) -> bool {
        self.before == Before::Cancelled
    }

    /// Whether it runs only to make again what it has made before: nobody is to end it but who needs that.
    pub(super) fn is_replay(&self) -> bool {
        self.before != Before::Nothing
    }

    /// An edge that an output of it has joined is stopped: nobody reads more of it than what is referenced.
    pub(super) fn is_unread(&mut self) {
        self.mark(Flag::Unread, true);
    }

    /// Whether an edge that an output of it has joined was stopped, and may be forgotten by now.
    pub(super) fn was_unread(&self) -> bool {
        self.is(Flag::Unread)
    }

    /// Whether it has been given a second attempt beside one that runs.
    pub(super) fn is_speculated(&self) -> bool {
        self.is(Flag::Speculated)
    }

    /// Whether it has a second attempt; what was so before.
    pub(super) fn speculate(&mut self, speculated: bool) -> bool {
        let before = self.is(Flag::Speculated);
        self.mark(Flag::Speculated, speculated);
        before
    }

    /// It waits for so many arguments.
    pub(super) fn wait(&mut self, missing: u32) {
        self.state = State::Waiting { missing };
    }

    /// An argument is there; whether it waited for that and for nothing else.
    pub(super) fn lacks_one_less(&mut self) -> bool {
        let State::Waiting { missing } = &mut self.state else { return false };
        *missing -= 1;
        *missing == 0
    }

    /// It can run, and no attempt of it does.
    pub(super) fn is_ready(&mut self) {
        self.state = State::Ready;
    }

    /// It is handed out: a try that counts.
    pub(super) fn start(&mut self) {
        self.tries += 1;
        self.mark(Flag::Recalled, false);
        self.state = State::Running;
    }

    /// A node has this attempt.
    pub(super) fn attempt_begins(&mut self, attempt: Attempt, node: NodeIndex) {
        self.live.push((attempt, node));
    }

    /// A node has this attempt no more; false where it had not.
    pub(super) fn attempt_ends(&mut self, attempt: Attempt, node: NodeIndex) -> bool {
        let position = self.live.iter().position(|entry| *entry == (attempt, node));
        position.map(|position| self.live.remove(position)).is_some()
    }

    /// All attempts of it end.
    pub(super) fn attempts_end(&mut self) -> SmallVec<[(Attempt, NodeIndex); 1]> {
        std::mem::take(&mut self.live)
    }

    /// Its last try was none; `recalled`: it was taken back before it ran.
    pub(super) fn try_was_none(&mut self, recalled: bool) {
        self.tries = self.tries.saturating_sub(1);
        if recalled {
            self.mark(Flag::Recalled, true);
        }
    }

    /// It is done, and needs nothing more.
    pub(super) fn is_done(&mut self) {
        self.state = State::Done;
    }

    /// It will never be done.
    pub(super) fn fail(&mut self, error: JobError) {
        self.state = State::Failed;
        self.rare.change(|rare| rare.failure = Some(error));
    }

    /// One that failed begins anew, with these arguments.
    pub(super) fn begin_anew(&mut self, args: Box<[ArgEntry]>) {
        self.rare.change_if_there(|rare| rare.failure = None);
        (self.args, self.tries) = (args, 0);
    }

    /// What it made is wanted again, and gone.
    pub(super) fn want_again(&mut self) {
        (self.state, self.tries) = (State::Wanted, 0);
    }

    /// It is cancelled, and goes on for what it had made, or begins again for that.
    pub(super) fn revive(&mut self) {
        self.rare.change_if_there(|rare| rare.failure = None);
        if !self.is_counted() {
            self.before = Before::Cancelled;
        }
    }

    /// It is submitted again: what it will make is wanted, too.
    pub(super) fn is_submitted_again(&mut self) {
        if self.is_revived() {
            self.before = Before::Nothing;
        }
    }

    /// Why it failed.
    pub(super) fn failure(&self) -> Option<&JobError> {
        self.rare.get()?.failure.as_ref()
    }

    /// Takes who reads its outputs as they come.
    pub(super) fn take_readers(&mut self) -> SmallVec<[Tracker; 1]> {
        self.rare.change_if_there(|rare| std::mem::take(&mut rare.readers))
    }
}
