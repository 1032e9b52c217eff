//! Groups of a table whose values are known better and better while it is read, and exactly in the end.
//!
//! 1. blocks of the table (splits, as of a [group](exobus_tables::jobs::group)) are read in an order that follows from a seed ([`order`](crate::estimators::order)); *map* says of its blocks, beside what goes into the
//!    exchange, what they have of which group: numbers of [`Totals`](crate::estimators::Totals), which add up;
//! 2. *look*, at each of [`Looks`](crate::estimators::Looks): what maps have told since the last look is added up, and estimated from; what people see goes to who watches the job ([`Futures::show_estimate`]). Looks follow from each
//!    other, and nothing waits for them but what stops the query;
//! 3. *reduce* and *write* are those of a group, so the answer in the end is the same as without, bit by bit; *final* shows it.
//!
//! # When it stops
//! A query has seen enough when what it waits for is met at a look, when its time is over, or when somebody says so ([`Word::Enough`]). It ends then, unless it is to be kept: then nothing
//! of it is dropped. Its program does not go on, so no tasks are submitted and those under way are the last; what they have made stays, in memory or on disk. [`Word::GoOn`] has it
//! go on from there to the end, without what it waits for; what was read is not read again.
//!
//! Words are logged with the number of looks that were shown by then: a query whose host is lost behind a word stops at the same look, or goes on. So is the look behind which a query waits that is kept. That a time is over is not logged otherwise.
//!
//! All groups are followed where they are 32 768 at most, and of more 8 192, which are chosen when it is first seen that there are more: where the query asks for the first groups, twice as many of these by what is known
//! then, and those that have the most rows; fewer where memory is small. Where even one map has more than it tells (262 144), nobody knows what is missing of which:
//! its look chooses and shows no values, and what is known of the groups that are followed begins behind it. So whatever is estimated is estimated from all blocks of a random sample.

mod answer;
mod columns;
mod last;
mod look;
mod map;
mod moments;
mod sampler;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use exobus_actors::futures::{Futures, Listener, Notes};
use exobus_actors::ids::JobId;
use exobus_actors::program;
use exobus_actors::registry::{Paths, TaskContext, TaskError};
use exobus_actors::task::JobError;
use exobus_actors::words::Word;
use exobus_shuffle::jobs::outputs;
use exobus_tables::jobs::group::GroupTable;
use exobus_tables::jobs::group::sampled::group_sampled;
use exobus_tables::jobs::{Rewritten, TableJob as _};
use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::future::{Either, select};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub use self::answer::{OfAggregates, OnlineAnswer, OnlineKey, OnlineValue, is_chosen_at_the_end};
use self::look::Looked;
use self::sampler::BySeed;
use crate::estimators::Kind;
use crate::snapshot::Snapshot;
use crate::stopping::{Ended, Until};

/// What a query for groups is told that answers early.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnlineGroup {
    /// The table, what is asked of it, and where the answer goes when all of it was read.
    pub group: GroupTable,
    /// From what the order follows in which the table is read.
    pub seed: u64,
    /// When it has read enough; `None`: when it has read everything.
    pub until: Option<Until>,
    /// With which probability bounds are wrong, at all looks together.
    pub error_probability: f64,
    /// Which bounds are given.
    pub bounds: Kind,
    /// Whether the error probability is that of all groups of a look together, and not that of each.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simultaneous: bool,
    /// How long it can go on after it has seen enough; `None`: it is over then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_for: Option<Duration>,
    /// How many groups are told and followed, at most; `None`: as the module says.
    pub followed_max: Option<u64>,
    /// What is shown of each group; `None`: what is written of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<OnlineAnswer>,
}

/// How it is shown what is known before everything was read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Online {
    /// As [`OnlineGroup::seed`].
    pub seed: u64,
    /// As [`OnlineGroup::until`].
    pub until: Option<Until>,
    /// As [`OnlineGroup::bounds`].
    pub bounds: Kind,
    /// As [`OnlineGroup::simultaneous`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simultaneous: bool,
    /// As [`OnlineGroup::keep_for`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_for: Option<Duration>,
}

impl Online {
    /// Of these groups.
    pub fn of(self, group: GroupTable) -> OnlineGroup {
        let Self { seed, until, bounds, simultaneous, keep_for } = self;
        OnlineGroup { until, seed, bounds, simultaneous, keep_for, ..OnlineGroup::new(group) }
    }
}

impl OnlineGroup {
    /// Of groups, to the end, with approximate bounds of 95 %.
    pub fn new(group: GroupTable) -> Self {
        Self {
            group,
            seed: 0,
            until: None,
            error_probability: 0.05,
            bounds: Kind::Approximate,
            simultaneous: false,
            keep_for: None,
            followed_max: None,
            answer: None,
        }
    }
}

/// What a query has done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// Why it ended.
    pub ended: Ended,
    /// What was written; `None`: nothing, since not everything was read.
    pub written: Option<Rewritten>,
    /// What people were shown last: its `seconds` are those of then.
    pub snapshot: Snapshot,
}

/// Says of the groups of a table what is asked, better and better, and in the end as [`group`](exobus_tables::jobs::group::group) does. Where it ends before that, nothing is written.
///
/// # Errors
/// As of [`group`](exobus_tables::jobs::group::group).
#[program(name = "query.group", version = 3, give_back = give_back, paths = paths)]
pub async fn online_group(futures: Futures, params: OnlineGroup) -> Result<Answered, JobError> {
    let seen = Seen {
        futures: &futures,
        began: Instant::now(),
        until: params.until,
        words: Hearing::new(futures.listen()),
        stops: Stops::new(futures.notes()),
        looks: Cell::new(0),
        is_met: Cell::new(false),
        last: RefCell::default(),
    };
    let (tells, mut told) = mpsc::unbounded();
    let sampler = BySeed::new(&params, tells);
    let ended = {
        let mut run = pin!(group_sampled(futures.clone(), OnlineGroup::NAME, params.group.clone(), &sampler));
        loop {
            let stopped = {
                let watch = pin!(seen.watch(&mut told, &sampler));
                // What an earlier run of the program has stopped before is not begun until that look is shown again.
                let run = poll_fn(|context| match seen.stops.is_ahead(&sampler, seen.looks()) {
                    true => seen.stops.hold(context),
                    false => run.as_mut().poll(context),
                });
                match select(pin!(run), watch).await {
                    Either::Left((written, _)) => break Ok(written?),
                    Either::Right((stopped, _)) => stopped?,
                }
            };
            match params.keep_for {
                // What is under way stays, and nothing new is submitted: nobody asks the run to go on.
                Some(time) if seen.goes_on_within(time, stopped).await => {}
                // What is under way goes with it.
                _ => break Err(stopped),
            }
        }
    };
    let (written, ended) = match (ended, sampler.answer()) {
        (Ok(written), Some(answer)) => {
            // Those that the end was quicker than.
            while seen.show_next(&sampler).await? {}
            let snapshot: Snapshot = futures.get_value(&answer).await?;
            seen.show(Snapshot { rows_seen: snapshot.rows_seen.max(written.rows_read), ..snapshot });
            let missed = match params.until {
                Some(Until::Error(goal)) if !seen.is_met.get() => Some(goal),
                _ => None,
            };
            (Some(written), Ended::Exact { missed })
        }
        (Ok(written), None) => {
            futures.stop_edges()?;
            (Some(written), Ended::Exact { missed: None })
        }
        (Err(stopped), _) => {
            futures.stop_edges()?;
            (None, stopped)
        }
    };
    let snapshot = seen.last.into_inner().unwrap_or_default();
    Ok(Answered { ended, written, snapshot })
}

/// What people were shown.
struct Seen<'a> {
    futures: &'a Futures,
    /// When this run of the query began: how long it was away before does not count.
    began: Instant,
    until: Option<Until>,
    words: Hearing,
    stops: Stops,
    /// How many looks were shown.
    looks: Cell<usize>,
    /// Whether what is waited for was met at one of them.
    is_met: Cell<bool>,
    last: RefCell<Option<Snapshot>>,
}

impl Seen<'_> {
    /// Shows what looks show, until enough was seen; why. When everything was read it goes on to the end.
    async fn watch(&self, told: &mut mpsc::UnboundedReceiver<()>, sampler: &BySeed<'_>) -> Result<Ended, JobError> {
        loop {
            if sampler.answer().is_some() {
                self.words.close();
                return std::future::pending().await;
            }
            if let Some(stopped) = self.stopped() {
                return Ok(stopped);
            }
            let next = pin!(async {
                while !self.show_next(sampler).await? {
                    if told.next().await.is_none() {
                        std::future::pending().await
                    }
                }
                Ok::<(), JobError>(())
            });
            // Words first: one that was said before this run of the program is known before its looks are.
            let heard = pin!(self.words.hear(&self.looks));
            let is_over = pin!(self.time_is_over());
            if let Either::Right((Either::Left((shown, _)), _)) = select(heard, select(next, is_over)).await {
                shown?;
            }
        }
    }

    /// Why enough was seen, if it was.
    fn stopped(&self) -> Option<Ended> {
        let looks = self.looks();
        match self.words.said.get() {
            // Who has it go on wants its answer, until he says that he has seen enough of that.
            Some((Word::GoOn, _)) => None,
            // That is the look that was shown when it was said, whichever run of the program that was in; or the first.
            Some((Word::Enough, at)) if looks >= at.max(1) => Some(Ended::Asked),
            said => {
                let until = self.until.filter(|_| !self.words.goes_on.get() && said.is_none())?;
                let is_over = match self.stops.at {
                    Some(at) => looks >= at,
                    None => self.is_met.get() || until.is_over(self.began.elapsed(), looks),
                };
                is_over.then_some(Ended::Met(until))
            }
        }
    }

    /// Shows why it stopped, and waits until it is to go on; whether it is, before so much time is over.
    async fn goes_on_within(&self, time: Duration, stopped: Ended) -> bool {
        if self.words.goes_on.get() {
            // It has gone on once, which is what it was kept for.
            return false;
        }
        self.stops.note(self.looks());
        let shown = self.last.borrow().clone().unwrap_or_default();
        self.tell(&Snapshot { stopped: Some(stopped), ..shown.clone() });
        let goes_on = pin!(async {
            while !self.words.goes_on.get() {
                self.words.hear(&self.looks).await;
            }
        });
        let goes_on = tokio::time::timeout(time, goes_on).await.is_ok();
        // What is shown last is not that it waits.
        self.tell(&shown);
        goes_on
    }

    fn looks(&self) -> u64 {
        self.looks.get() as u64
    }

    /// Shows what the next look shows, when it was taken; whether there is one.
    async fn show_next(&self, sampler: &BySeed<'_>) -> Result<bool, JobError> {
        let Some(look) = sampler.looked(self.looks.get()) else { return Ok(false) };
        let Looked { snapshot, is_met } = self.futures.get_value(&look).await?;
        self.looks.set(self.looks.get() + 1);
        self.stops.go_on();
        self.is_met.set(self.is_met.get() || is_met);
        self.show(snapshot);
        Ok(true)
    }

    /// Resolves when a time is over that is waited for, and there was a look.
    async fn time_is_over(&self) {
        match self.until {
            Some(until @ Until::Time(time))
                if !self.words.goes_on.get()
                    && self.words.said.get().is_none()
                    && self.stops.at.is_none()
                    && until.is_over(time, self.looks()) =>
            {
                tokio::time::sleep_until(self.began + time).await;
            }
            _ => std::future::pending().await,
        }
    }

    fn show(&self, mut snapshot: Snapshot) {
        snapshot.seconds = self.began.elapsed().as_secs_f64();
        self.tell(&snapshot);
        self.last.replace(Some(snapshot));
    }

    fn tell(&self, snapshot: &Snapshot) {
        // What does not fit a message is not shown, and no reason to end.
        if let Err(error) = self.futures.show_estimate(snapshot) {
            self.futures.print(&format!("look {} is not shown: {error}", snapshot.snapshot));
        }
    }
}

/// Behind which look it has stopped, to be kept: its host may be lost, and what a look shows is there again later than what is read behind it.
struct Stops {
    notes: Notes,
    /// Behind so many looks an earlier run of the program has.
    at: Option<u64>,
    /// Wakes who is held until they are shown.
    held: Cell<Option<Waker>>,
}

impl Stops {
    fn new(notes: Notes) -> Self {
        let at = notes.noted().map(|(_, looks)| looks);
        Self { notes, at, held: Cell::new(None) }
    }

    /// Whether all was submitted that the look needs behind which it has stopped, and that is not shown yet.
    fn is_ahead(&self, sampler: &BySeed<'_>, looks: u64) -> bool {
        self.at.is_some_and(|at| {
            looks < at && at.checked_sub(1).is_some_and(|last| sampler.looked(last as usize).is_some())
        })
    }

    /// Holds who would go on, until the next look is shown.
    fn hold<T>(&self, context: &Context<'_>) -> Poll<T> {
        self.held.set(Some(context.waker().clone()));
        Poll::Pending
    }

    fn go_on(&self) {
        if let Some(held) = self.held.take() {
            held.wake();
        }
    }

    fn note(&self, looks: u64) {
        if self.at.is_none() {
            self.notes.note(Word::Enough, looks);
        }
    }
}

/// What people say to the query.
struct Hearing {
    /// `None`: nobody listens any more.
    listener: RefCell<Option<Rc<Listener>>>,
    /// What was said last, and how many looks were shown then.
    said: Cell<Option<(Word, u64)>>,
    /// Whether it was said once that it is to go on.
    goes_on: Cell<bool>,
}

impl Hearing {
    fn new(listener: Listener) -> Self {
        Self { listener: RefCell::new(Some(Rc::new(listener))), said: Cell::new(None), goes_on: Cell::new(false) }
    }

    /// Resolves when something else is said.
    async fn hear(&self, looks: &Cell<usize>) {
        let listener = self.listener.borrow().clone();
        let Some(listener) = listener else { return std::future::pending().await };
        let (word, at) = listener.hears(|| looks.get() as u64).await;
        self.said.set(Some((word, at)));
        self.goes_on.set(self.goes_on.get() || word == Word::GoOn);
    }

    /// Whoever says something hears from now on that it is too late.
    fn close(&self) {
        self.listener.take();
    }
}

impl OnlineGroup {
    /// The name of the program.
    pub const NAME: &'static str = "query.group";
}

fn paths(params: &OnlineGroup) -> Paths {
    Paths { reads: params.group.reads(), writes: vec![params.group.table().output.clone()] }
}

fn give_back(job: JobId, params: OnlineGroup) {
    outputs::give_back(job, &params.group.table().output);
}

/// The value that a task has as an argument.
fn value_of<T: DeserializeOwned>(context: &TaskContext<'_>, argument: usize) -> Result<T, TaskError> {
    rmp_serde::from_slice(&context.block(argument)).map_err(TaskError::fatal)
}
