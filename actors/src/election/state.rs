//! What a candidate does, decided without a clock and a bus. One question is under way at a time.
//!
//! | event                                          | then                                                         |
//! |------------------------------------------------|--------------------------------------------------------------|
//! | time to try, the key is not ours               | [`Effect::Create`]                                           |
//! | time to renew                                  | [`Effect::Update`] at the last revision of ours              |
//! | written                                        | is the Scheduler, until a ttl after the write was begun      |
//! | written, but a ttl ago                         | is not the Scheduler; writes again                           |
//! | refused                                        | it is another's: steps down, tries again later               |
//! | no answer                                      | not known: [`Effect::Look`] whose it is; acts to the end     |
//! | found ours                                     | writes at that revision, and is the Scheduler when that is done |
//! | found another's, or none                       | steps down, tries again                                      |
//! | a ttl has passed since the last write was begun| steps down                                                   |
//! | heard of a higher epoch                        | steps down; is elected again, above it, when a write succeeds |
//! | there is no bucket for the key                 | steps down; looks again                                      |
//! | ... for 10 s, or it is there again             | [`Effect::Make`], then tries at once                         |

use std::time::Duration;

use crate::ids::Epoch;

/// The times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionOptions {
    /// How long the key lasts without a write.
    pub ttl: Duration,
    /// How often the holder writes.
    pub renew_every: Duration,
    /// How often the others try.
    pub try_every: Duration,
}

impl Default for ElectionOptions {
    fn default() -> Self {
        Self { ttl: super::TTL, renew_every: super::RENEW_EVERY, try_every: super::TRY_EVERY }
    }
}

/// What happens to a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The question that was asked last has come to an end.
    Answered(Answer),
    /// Somebody has heard of this epoch.
    Heard(Epoch),
    /// This node is about to stop.
    Leave,
}

/// How a question ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The key is ours, under this revision.
    Written(u64),
    /// It is somebody else's; nothing was written.
    Refused,
    /// Looked: the key is there, under this revision, and says that it is ours.
    Ours(u64),
    /// Looked: the key is somebody else's, under this revision, or gone.
    NotOurs(Option<u64>),
    /// Nobody knows.
    Lost,
    /// The servers answer, and have no bucket for the key: they were emptied.
    Missing,
    /// They have another bucket than the one that was opened: they were emptied, and somebody has made it anew.
    Another,
    /// The bucket is there, made anew or not; its revisions count from here.
    Made {
        /// See [`State::new`].
        base: u64,
    },
}

/// What a candidate wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Make the key.
    Create,
    /// Write the key, if this is its revision.
    Update(u64),
    /// Look whose the key is.
    Look,
    /// Remove the key, if this is its revision.
    Release(u64),
    /// Make the bucket, and everything else that the cluster keeps on its servers, as they were emptied; open what is there.
    Make,
    /// Act as the Scheduler of this epoch, until that time.
    Lead {
        /// The epoch; higher than all that were heard of.
        epoch: Epoch,
        /// When to stop by oneself.
        until: Duration,
        /// Whether there was a Scheduler before, as far as is known.
        succeeds: bool,
    },
    /// Go on until that time.
    Extend(Duration),
    /// Act no longer.
    StepDown(Why),
}

/// Why a candidate is the Scheduler no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No write succeeded in time: the bus is away, or this process was frozen.
    RanOut,
    /// The key is another's, or gone.
    Deposed,
    /// The servers were emptied: there is no bucket for the key.
    Emptied,
    /// There is, or was, a Scheduler of a higher epoch.
    Outranked,
    /// This node stops.
    Leaving,
}

impl Why {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Self::RanOut => "the lease could not be renewed in time",
            Self::Deposed => "the lease is another node's, or gone",
            Self::Emptied => "the NATS server was emptied, and the lease is gone with it",
            Self::Outranked => "a higher epoch was heard of",
            Self::Leaving => "this node stops",
        }
    }
}

/// One such write may be a lost answer.
const UNSTORED_MIN: u32 = 2;
/// Servers have nothing for so long before they are taken to have been emptied: others, which have what is missed, may come back meanwhile;
/// and all leases of before are over.
pub const MAKE_AFTER: Duration = Duration::from_secs(10);
/// What was answered longer ago than this says nothing about the time in between.
const ANSWERS_APART_MAX: Duration = Duration::from_secs(3);

/// The pure core of a candidate.
#[derive(Clone, Debug)]
pub struct State {
    options: ElectionOptions,
    /// What is added to a revision to make an epoch.
    base: u64,
    /// The revision of ours that was written last, and until when it counts.
    held: Option<(u64, Duration)>,
    epoch: Option<Epoch>,
    /// The highest epoch that was heard of, of other Schedulers.
    heard: Epoch,
    /// Whether the outcome of the last write is unknown.
    unsure: bool,
    /// What was found last when it was looked after a write of which nothing was heard, and how often in a row it was that.
    unstored: Option<(Option<u64>, u32)>,
    /// Whether the bucket may be another one than before, ...
    lost: bool,
    /// ... and from when to when there was none.
    missing: Option<(Duration, Duration)>,
    /// When the question was asked that is under way.
    asked_at: Option<Duration>,
    ask_at: Duration,
    left: bool,
}

impl State {
    /// A candidate that tries at once. `base` is added to a revision to make an epoch: it is another one for each bucket that is made, so
    /// that no two of them give the same epoch.
    /// `heard`: the highest epoch that this process has heard of, in earlier incarnations of its node.
    pub fn new(options: ElectionOptions, base: u64, heard: Epoch, now: Duration) -> Self {
        Self {
            options,
            base,
            held: None,
            epoch: None,
            heard,
            unsure: false,
            unstored: None,
            lost: false,
            missing: None,
            asked_at: None,
            ask_at: now,
            left: false,
        }
    }

    /// What is added to a revision to make an epoch, in the bucket that was opened.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The epoch under which this node acts.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Whether the keys can be read and not be written: the disk of their server may be full.
    pub fn stores_nothing(&self) -> bool {
        self.unstored.is_some_and(|(_, times)| times >= UNSTORED_MIN)
    }

    /// Whether the servers answer, and have nothing: they were emptied.
    pub fn is_emptied(&self) -> bool {
        self.missing.is_some()
    }

    /// Whether this node has left, and no question is under way.
    pub fn is_over(&self) -> bool {
        self.left && self.asked_at.is_none()
    }

    /// When the next tick has something to do; `None` while only an answer can change anything.
    pub fn next_wakeup(&self) -> Option<Duration> {
        let ask_at = (self.asked_at.is_none() && !self.left).then_some(self.ask_at);
        let ends_at = self.epoch.and(self.held).map(|(_, until)| until);
        ask_at.into_iter().chain(ends_at).min()
    }

    /// Takes one event in; what is to be done is appended to `effects`, in order.
    pub fn on(&mut self, now: Duration, event: Event, effects: &mut Vec<Effect>) {
        // Before anything else: nothing that waited while this process was frozen makes it act beyond its time.
        if self.held.is_some_and(|(_, until)| now >= until) {
            self.step_down(Why::RanOut, effects);
        }
        match event {
            Event::Tick => self.ask(now, effects),
            Event::Answered(answer) => {
                if let Some(asked_at) = self.asked_at.take() {
                    self.answered(now, asked_at, answer, effects);
                    self.ask(now, effects);
                }
            }
            Event::Heard(epoch) => {
                if self.epoch.is_some_and(|own| epoch > own) {
                    self.step_down(Why::Outranked, effects);
                    self.ask_at = now;
                }
                if self.epoch != Some(epoch) {
                    self.heard = self.heard.max(epoch);
                }
                self.ask(now, effects);
            }
            Event::Leave => {
                self.left = true;
                self.step_down(Why::Leaving, effects);
                if let Some((revision, _)) = self.held.take() {
                    effects.push(Effect::Release(revision));
                }
            }
        }
    }

    fn ask(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if self.left || self.asked_at.is_some() || now < self.ask_at {
            return;
        }
        self.asked_at = Some(now);
        effects.push(match self.held {
            // It is there again, as somebody has made it, or it is time.
            _ if self.lost && self.missing.is_none_or(|(since, last)| last.saturating_sub(since) >= MAKE_AFTER) => {
                Effect::Make
            }
            _ if self.lost || self.unsure => Effect::Look,
            Some((revision, _)) => Effect::Update(revision),
            None => Effect::Create,
        });
    }

    fn answered(&mut self, now: Duration, asked_at: Duration, answer: Answer, effects: &mut Vec<Effect>) {
        let found = match answer {
            Answer::NotOurs(revision) => Some(revision),
            Answer::Ours(revision) => Some(Some(revision)),
            _ => None,
        };
        self.unstored = match (found, self.unstored) {
            // Nobody has written in between: not this candidate, nor who holds the key.
            (Some(found), Some((before, times))) if found == before => Some((found, times + 1)),
            (Some(found), _) => Some((found, 1)),
            // What a write was lost with is known when it has been looked.
            (None, unstored) if answer == Answer::Lost && !self.unsure => unstored,
            _ => None,
        };
        self.missing = match (answer, self.missing) {
            (Answer::Missing, Some((since, last))) if now.saturating_sub(last) <= ANSWERS_APART_MAX => {
                Some((since, now))
            }
            (Answer::Missing, _) => Some((now, now)),
            // Silence is no answer.
            (Answer::Lost, missing) => missing,
            _ => None,
        };
        match answer {
            Answer::Written(revision) if self.left => effects.push(Effect::Release(revision)),
            Answer::Written(revision) => {
                let until = asked_at + self.options.ttl;
                self.held = Some((revision, until));
                self.ask_at = asked_at + self.options.renew_every;
                match self.epoch {
                    _ if now >= until => {}
                    Some(_) => effects.push(Effect::Extend(until)),
                    None => {
                        let epoch = Epoch((self.base + revision).max(self.heard.0.saturating_add(1)));
                        // Of who was the Scheduler before a process that was just started, or an incarnation that has just begun, may not have heard; the key
                        // tells by its revision: only the first one of a bucket is 1.
                        let succeeds = self.heard > Epoch(0) || revision > 1;
                        self.heard = epoch;
                        self.epoch = Some(epoch);
                        effects.push(Effect::Lead { epoch, until, succeeds });
                    }
                }
            }
            Answer::Refused | Answer::NotOurs(_) => {
                let had = self.held.take().is_some();
                self.step_down(Why::Deposed, effects);
                self.unsure = false;
                // A key that has just been lost, or was never written, may be had at once.
                let look_again = had || answer != Answer::Refused;
                self.ask_at = if look_again { now } else { now + self.options.try_every };
            }
            Answer::Ours(revision) => {
                // How long ago it was written is not known: that does not make it act for longer.
                let until = self.held.map_or(Duration::ZERO, |(_, until)| until);
                self.held = Some((revision, until));
                self.unsure = false;
                self.ask_at = now;
            }
            Answer::Missing => {
                (self.held, self.lost, self.unsure) = (None, true, false);
                self.step_down(Why::Emptied, effects);
                self.ask_at = now + self.options.try_every;
            }
            // It is opened next.
            Answer::Another => {
                (self.held, self.lost, self.unsure) = (None, true, false);
                self.step_down(Why::Emptied, effects);
                self.ask_at = now;
            }
            Answer::Made { base } => {
                (self.base, self.lost, self.unsure) = (base, false, false);
                self.ask_at = now;
            }
            Answer::Lost => {
                self.unsure = true;
                self.ask_at = now + self.options.try_every;
            }
        }
    }

    fn step_down(&mut self, why: Why, effects: &mut Vec<Effect>) {
        if self.epoch.take().is_some() {
            effects.push(Effect::StepDown(why));
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
