//! Faults of durable streams: of requests and answers, as they travel like messages.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Direction, State};
use crate::error::BusError;
use crate::streams::{
    Append, Appended, ConsumerBackend, ConsumerConfig, Fetched, Purge, ReadFrom, Record, Settle, Source, StreamBackend,
    StreamConfig, StreamState, Usage,
};
use crate::subject::{Pattern, Subject};

/// Streams that faults strike.
pub(super) struct ChaosStreams {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) inner: Arc<dyn StreamBackend>,
}

/// What happens to one call.
struct Strike {
    lost: bool,
    repeated: bool,
    answer_lost: bool,
    delay: Duration,
}

fn draw(state: &Mutex<State>, subject: Option<&Subject>) -> Strike {
    let mut state = state.lock();
    state.stats.published += 1;
    let mut strike = Strike { lost: false, repeated: false, answer_lost: false, delay: Duration::ZERO };
    if let Some(subject) = subject {
        if state.is_cut(subject, Direction::Outgoing) {
            state.stats.cut_outgoing += 1;
            strike.lost = true;
            return strike;
        }
        if state.is_cut(subject, Direction::Incoming) {
            state.stats.cut_incoming += 1;
            strike.answer_lost = true;
        }
    }
    let faults = state.faults.clone();
    if state.chance(faults.drop) {
        state.stats.dropped += 1;
        strike.lost = true;
        return strike;
    }
    if state.chance(faults.repeat) {
        state.stats.repeated += 1;
        strike.repeated = true;
    }
    if state.chance(faults.drop_answer) {
        state.stats.answers_dropped += 1;
        strike.answer_lost = true;
    }
    if let Some((least, most)) = faults.delay {
        state.stats.delayed += 1;
        strike.delay = state.between(least, most);
    }
    strike
}

/// Makes the call as its strike says; one that is lost ends at its deadline.
async fn through<T>(
    strike: Strike,
    deadline: Duration,
    call: impl Future<Output = Result<T, BusError>>,
) -> Result<T, BusError> {
    let end = Instant::now() + deadline;
    let timed_out = || BusError::TimedOut { what: "stream call through chaos".to_owned(), after: deadline };
    if !strike.delay.is_zero() {
        sleep(strike.delay).await;
    }
    if strike.lost {
        sleep_until(end).await;
        return Err(timed_out());
    }
    let answer = call.await;
    if strike.answer_lost {
        sleep_until(end).await;
        return Err(timed_out());
    }
    answer
}

#[async_trait]
impl StreamBackend for ChaosStreams {
    async fn usage(&self, deadline: Duration) -> Result<Usage, BusError> {
        through(draw(&self.state, None), deadline, self.inner.usage(deadline)).await
    }

    async fn open(&self, config: &StreamConfig, deadline: Duration) -> Result<(), BusError> {
        through(draw(&self.state, None), deadline, self.inner.open(config, deadline)).await
    }

    async fn append(&self, stream: &str, append: Append, deadline: Duration) -> Result<Appended, BusError> {
        let mut strike = draw(&self.state, Some(&append.subject));
        strike.lost |= self.state.lock().faults.disk_full;
        if strike.repeated && !strike.lost {
            // The copy arrives first; its answer is nobody's.
            let _ = self.inner.append(stream, append.clone(), deadline).await;
        }
        through(strike, deadline, self.inner.append(stream, append, deadline)).await
    }

    async fn last(&self, stream: &str, subject: &Subject, deadline: Duration) -> Result<Option<Record>, BusError> {
        through(draw(&self.state, Some(subject)), deadline, self.inner.last(stream, subject, deadline)).await
    }

    async fn state(&self, stream: &str, deadline: Duration) -> Result<StreamState, BusError> {
        through(draw(&self.state, None), deadline, self.inner.state(stream, deadline)).await
    }

    async fn purge(&self, stream: &str, purge: &Purge, deadline: Duration) -> Result<u64, BusError> {
        through(draw(&self.state, None), deadline, self.inner.purge(stream, purge, deadline)).await
    }

    async fn delete(&self, stream: &str, deadline: Duration) -> Result<bool, BusError> {
        through(draw(&self.state, None), deadline, self.inner.delete(stream, deadline)).await
    }

    async fn read(
        &self,
        stream: &str,
        from: ReadFrom,
        subjects: Option<Pattern>,
        deadline: Duration,
    ) -> Result<Box<dyn Source>, BusError> {
        // What a source reads heals itself below, so there is nothing to strike later.
        through(draw(&self.state, None), deadline, self.inner.read(stream, from, subjects, deadline)).await
    }

    async fn consume(
        &self,
        stream: &str,
        config: &ConsumerConfig,
        deadline: Duration,
    ) -> Result<Arc<dyn ConsumerBackend>, BusError> {
        let inner = through(draw(&self.state, None), deadline, self.inner.consume(stream, config, deadline)).await?;
        Ok(Arc::new(ChaosConsumer { state: self.state.clone(), inner }))
    }

    async fn delete_consumer(&self, stream: &str, name: &str, deadline: Duration) -> Result<bool, BusError> {
        through(draw(&self.state, None), deadline, self.inner.delete_consumer(stream, name, deadline)).await
    }
}

struct ChaosConsumer {
    state: Arc<Mutex<State>>,
    inner: Arc<dyn ConsumerBackend>,
}

#[async_trait]
impl ConsumerBackend for ChaosConsumer {
    async fn fetch(&self, max: usize, wait: Duration) -> Result<Vec<Fetched>, BusError> {
        through(draw(&self.state, None), wait, self.inner.fetch(max, wait)).await
    }

    async fn settle(&self, fetched: &Fetched, settle: Settle, deadline: Duration) -> Result<(), BusError> {
        let strike = draw(&self.state, Some(&fetched.record.subject));
        through(strike, deadline, self.inner.settle(fetched, settle, deadline)).await
    }
}
