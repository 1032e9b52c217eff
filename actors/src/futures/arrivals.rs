//! Several streams as one.

use futures::stream::{SelectAll, StreamExt};

use super::api::{Futures, not_deterministic};
use super::reference::{ObjectRef, ObjectStream};
use crate::ids::ObjectId;
use crate::joblog::Choice;
use crate::task::JobError;

/// The outputs of several streams, as they are announced: in which order is a choice, so it is logged. What comes may
/// [join](super::Edge::join) an edge, whose members are in the order of the log then.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Those that have not ended.
    streams: SelectAll<ObjectStream>,
    /// Whether all have, and the program knows.
    ended: bool,
}

impl Arrivals {
    /// Of these streams.
    pub fn of(streams: Vec<ObjectStream>) -> Self {
        Self { streams: streams.into_iter().collect(), ended: false }
    }

    /// The next output of any of them, when it is sealed; `None` when all have ended.
    ///
    /// # Errors
    /// One of the tasks failed.
    pub async fn next(&mut self, futures: &Futures) -> Result<Option<ObjectRef>, JobError> {
        if self.ended {
            return Ok(None);
        }
        match futures.replayed_arrival()? {
            Some(Some(object)) => return self.again(object).await,
            Some(None) => {
                self.ended = true;
                return Ok(None);
            }
            None => {}
        }
        // Those that have something are asked in turn: who has many ready does not hide the others.
        let object = self.streams.next().await.transpose()?;
        // That there is no more is learned, too: what the program asks next has its place behind it.
        futures.log_arrival(object.as_ref().map(ObjectRef::id));
        self.ended = object.is_none();
        Ok(object)
    }

    /// What came next in the run that is replayed comes again.
    async fn again(&mut self, object: ObjectId) -> Result<Option<ObjectRef>, JobError> {
        let logged = Choice::Ready(vec![object]);
        let stream = self.streams.iter_mut().find(|stream| stream.next_id() == object);
        let stream = stream.ok_or_else(|| not_deterministic("the next output of other streams", &logged))?;
        match stream.next().await? {
            Some(object) => Ok(Some(object)),
            // It was made by a function that may give another result, and had not ended when it was read.
            None => Err(not_deterministic("the end of a stream", &logged)),
        }
    }
}
