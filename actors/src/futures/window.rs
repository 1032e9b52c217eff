//! A bound on what is in flight.

use hashbrown::HashMap;

use super::api::{Futures, not_deterministic};
use super::queue::{self, Teller, Told};
use super::reference::ObjectRef;
use crate::ids::ObjectId;
use crate::joblog::Choice;
use crate::task::JobError;

/// What came of something in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came<T = ObjectId> {
    /// It exists.
    Made(T),
    /// It was overdue: it will not be made.
    GivenUp(T),
}

impl<T> Came<T> {
    /// Of what.
    pub fn object(&self) -> &T {
        match self {
            Self::Made(object) | Self::GivenUp(object) => object,
        }
    }

    /// The same of what `name` makes of it.
    pub fn map<U>(self, name: impl FnOnce(T) -> U) -> Came<U> {
        match self {
            Self::Made(object) => Came::Made(name(object)),
            Self::GivenUp(object) => Came::GivenUp(name(object)),
        }
    }
}

/// Keeps at most `limit` objects in the making, and tells in which order they came (a choice, so it is logged).
#[derive(Debug)]
pub struct Window {
    limit: usize,
    /// With whether it may be given up.
    flying: HashMap<ObjectId, (ObjectRef, bool)>,
    queue: Teller<(ObjectId, Result<(), JobError>)>,
    news: Told<(ObjectId, Result<(), JobError>)>,
}

impl Window {
    /// A window of `limit` objects; at least one.
    pub fn new(limit: usize) -> Self {
        let (queue, news) = queue::queue(|_| true);
        Self { limit: limit.max(1), flying: HashMap::new(), queue, news }
    }

    /// Waits until there is room for one more.
    ///
    /// # Errors
    /// A task in the window failed, or the runtime has ended.
    pub async fn admit(&mut self, futures: &Futures) -> Result<(), JobError> {
        while self.flying.len() >= self.limit {
            self.next(futures).await?;
        }
        Ok(())
    }

    /// Counts an object until it exists.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn track(&mut self, futures: &Futures, object: &ObjectRef) -> Result<(), JobError> {
        self.add(futures, object, false)
    }

    /// Counts an object until it exists, or the task that makes it is given up: where none of those that the program can do
    /// without has ended for a second, the Owner cancels those that are overdue, all of whose attempts have been on an
    /// executor for more than a second and more than three times the median of their function, of which five or more are
    /// done; where nothing of the job ends, for ten seconds. What a task would have read that was given up is still there for
    /// others as long as the program refers to it, and what it makes all the same is dropped.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn track_best_effort(&mut self, futures: &Futures, object: &ObjectRef) -> Result<(), JobError> {
        futures.may_give_up(object.id())?;
        self.add(futures, object, true)
    }

    fn add(&mut self, futures: &Futures, object: &ObjectRef, best_effort: bool) -> Result<(), JobError> {
        if self.flying.insert(object.id(), (object.clone(), best_effort)).is_none() {
            futures.track(object.id(), &self.queue)?;
        }
        Ok(())
    }

    /// How many are in flight.
    pub fn len(&self) -> usize {
        self.flying.len()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }

    /// The next object that exists; `None` when nothing is in flight. What was given up is left out.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn next(&mut self, futures: &Futures) -> Result<Option<ObjectRef>, JobError> {
        loop {
            match self.next_came(futures).await? {
                Some(Came::Made(object)) => return Ok(Some(object)),
                Some(Came::GivenUp(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// What comes of the next object in flight; `None` when nothing is.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn next_came(&mut self, futures: &Futures) -> Result<Option<Came<ObjectRef>>, JobError> {
        while !self.flying.is_empty() {
            let came = match futures.replayed_came()? {
                Some(came) => {
                    match (came, self.flying.get(came.object())) {
                        (Came::Made(_), Some((object, _))) => futures.ready(object).await?,
                        // The program has submitted it again.
                        (Came::GivenUp(_), Some((object, _))) => futures.cancel(object)?,
                        (Came::Made(id) | Came::GivenUp(id), None) => {
                            return Err(not_deterministic("a window of other objects", &Choice::Ready(vec![id])));
                        }
                    }
                    came
                }
                None => {
                    let (id, outcome) = self.told().await?;
                    let given_up = outcome == Err(JobError::Cancelled) && self.flying[&id].1;
                    let came = if given_up { Came::GivenUp(id) } else { outcome.map(|()| Came::Made(id))? };
                    futures.log_came(came);
                    came
                }
            };
            if let Some((object, _)) = self.flying.remove(came.object()) {
                return Ok(Some(came.map(|_| object)));
            }
        }
        Ok(None)
    }

    /// What is told next of something in flight.
    async fn told(&mut self) -> Result<(ObjectId, Result<(), JobError>), JobError> {
        loop {
            let told = self.news.recv().await.ok_or(JobError::Cancelled)?;
            // Others were told before, while the log was replayed.
            if self.flying.contains_key(&told.0) {
                return Ok(told);
            }
        }
    }

    /// Waits until everything in the window exists.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn drain(&mut self, futures: &Futures) -> Result<(), JobError> {
        while self.next(futures).await?.is_some() {}
        Ok(())
    }
}
