//! A bound on what is in flight.

use std::collections::BTreeMap;

use tokio::sync::mpsc;

use super::api::Futures;
use super::reference::ObjectRef;
use crate::ids::ObjectId;
use crate::task::JobError;

/// Keeps at most `limit` objects in the making, and tells in which order they came (a choice, so it is logged).
#[derive(Debug)]
pub struct Window {
    limit: usize,
    flying: BTreeMap<ObjectId, ObjectRef>,
    queue: mpsc::UnboundedSender<(ObjectId, Result<(), JobError>)>,
    news: mpsc::UnboundedReceiver<(ObjectId, Result<(), JobError>)>,
}

impl Window {
    /// A window of `limit` objects; at least one.
    pub fn new(limit: usize) -> Self {
        let (queue, news) = mpsc::unbounded_channel();
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
        while !self.flying.is_empty() {
            let id = match futures.replayed_ready()? {
                Some(id) => {
                    if let Some(object) = self.flying.get(&id) {
                        futures.ready(object).await?;
                    }
                    id
                }
                None => {
                    let (id, outcome) = self.news.recv().await.ok_or(JobError::Cancelled)?;
                    if !self.flying.contains_key(&id) {
                        continue; // told before, while the log was replayed
                    }
                    outcome?;
                    futures.log_ready(id);
                    id
                }
            };
            if let Some(object) = self.flying.remove(&id) {
                return Ok(Some(object));
            }
        }
        Ok(None)
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
