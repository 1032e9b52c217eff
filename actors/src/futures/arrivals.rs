//! Several streams as one.

use futures::future::select_all;

use super::api::{Futures, not_deterministic};
use super::reference::{ObjectRef, ObjectStream};
use super::window::Came;
use crate::joblog::Choice;
use crate::task::JobError;

/// The outputs of several streams, as they are announced: in which order is a choice, so it is logged. What comes may
/// [join](super::Edge::join) an edge, whose members are in the order of the log then.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Those that have not ended.
    streams: Vec<ObjectStream>,
}

impl Arrivals {
    /// Of these streams.
    pub fn of(streams: Vec<ObjectStream>) -> Self {
        Self { streams }
    }

    /// The next output of any of them, when it is sealed; `None` when all have ended.
    ///
    /// # Errors
    /// One of the tasks failed.
    pub async fn next(&mut self, futures: &Futures) -> Result<Option<ObjectRef>, JobError> {
        if let Some(came) = futures.replayed_came()? {
            let Came::Made(object) = came else {
                return Err(not_deterministic("the next output of several streams", &Choice::GivenUp(*came.object())));
            };
            let Some(stream) = self.streams.iter_mut().find(|stream| stream.next_id() == object) else {
                return Err(not_deterministic("the next output of other streams", &Choice::Ready(vec![object])));
            };
            return stream.next().await;
        }
        while !self.streams.is_empty() {
            // Who has many ready does not hide the others.
            self.streams.rotate_left(1);
            let (item, position, _) = select_all(self.streams.iter_mut().map(|stream| Box::pin(stream.next()))).await;
            if let Some(object) = item? {
                futures.log_came(Came::Made(object.id()));
                return Ok(Some(object));
            }
            self.streams.remove(position);
        }
        Ok(None)
    }
}
