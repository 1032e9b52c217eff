//! A bound on what is in flight.

use std::collections::BTreeMap;
use std::time::Duration;

use super::api::Futures;
use super::queue::{self, Teller, Told};
use super::reference::ObjectRef;
use crate::ids::ObjectId;
use crate::task::JobError;

/// Keeps at most `limit` objects in the making, and tells in which order they came (a choice, so it is logged).
#[derive(Debug)]
pub struct Window {
    limit: usize,
    flying: BTreeMap<ObjectId, ObjectRef>,
    queue: Teller<(ObjectId, Result<(), JobError>)>,
    news: Told<(ObjectId, Result<(), JobError>)>,
}

impl Window {
    /// A window of `limit` objects; at least one.
    pub fn new(limit: usize) -> Self {
        let (queue, news) = queue::queue(|_| true);
        Self { limit: limit.max(1), flying: BTreeMap::new(), queue, news }
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
        if self.flying.insert(object.id(), object.clone()).is_none() {
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

    /// The next object that exists; `None` when nothing is in flight.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn next(&mut self, futures: &Futures) -> Result<Option<ObjectRef>, JobError> {
        self.next_of(futures, None).await
    }

    /// The next object that exists; `None` when nothing is in flight, and when none came within `limit`.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn next_within(&mut self, futures: &Futures, limit: Duration) -> Result<Option<ObjectRef>, JobError> {
        self.next_of(futures, Some(limit)).await
    }

    async fn next_of(&mut self, futures: &Futures, limit: Option<Duration>) -> Result<Option<ObjectRef>, JobError> {
        while !self.flying.is_empty() {
            let id = match futures.replayed_ready()? {
                Some(None) => return Ok(None),
                Some(Some(id)) => {
                    if let Some(object) = self.flying.get(&id) {
                        futures.ready(object).await?;
                    }
                    id
                }
                None => {
                    let Some((id, outcome)) = self.told(limit).await? else {
                        futures.log_ready(None);
                        return Ok(None);
                    };
                    outcome?;
                    futures.log_ready(Some(id));
                    id
                }
            };
            if let Some(object) = self.flying.remove(&id) {
                return Ok(Some(object));
            }
        }
        Ok(None)
    }

    /// What is told next of something in flight; `None`: nothing within `limit`.
    async fn told(&mut self, limit: Option<Duration>) -> Result<Option<(ObjectId, Result<(), JobError>)>, JobError> {
        let (news, flying) = (&mut self.news, &self.flying);
        let told = async {
            loop {
                let told = news.recv().await.ok_or(JobError::Cancelled)?;
                // Others were told before, while the log was replayed, or are not waited for any more.
                if flying.contains_key(&told.0) {
                    return Ok(told);
                }
            }
        };
        match limit {
            None => told.await.map(Some),
            Some(limit) => tokio::time::timeout(limit, told).await.ok().transpose(),
        }
    }

    /// Counts an object no longer, whether it will exist or not.
    pub fn forget(&mut self, object: &ObjectRef) {
        self.flying.remove(&object.id());
    }

    /// What is in flight.
    pub fn flying(&self) -> impl Iterator<Item = &ObjectRef> {
        self.flying.values()
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
