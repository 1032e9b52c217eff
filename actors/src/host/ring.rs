//! [`Ring`]: what has happened to a job that runs here, for who asks. Nobody has a queue of his own: who asks too seldom misses events, and
//! learns from the progress what they added up to.
//!
//! Numbers of events grow over all runs of a job: who has heard of an earlier run hears of a later one from its first event on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::event::progress::Progress;
use crate::event::{Event, EventKind};
use crate::protocol::host::{Look, News, RUN};

/// Events that are kept of a job that runs, ...
const EVENTS_MAX: usize = 2048;
/// ... and of one that is over.
const EVENTS_MAX_OVER: usize = 256;
/// Events in one answer, and their bytes: they fit a message.
const ANSWERED_MAX: usize = 256;
const ANSWERED_BYTES_MAX: usize = 96 << 10;
/// Who wants no events hears no more often how far a job is.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// Bytes of a text of an event: what is longer is cut.
const TEXT_BYTES_MAX: usize = 4096;

/// What a job's events are put into; clones share it.
#[derive(Clone)]
pub(super) struct Ring {
    inner: Arc<Mutex<Inner>>,
    /// The number of the latest event, and whether the job is over.
    last: Arc<watch::Sender<(u64, bool)>>,
    /// The number of the latest event that said what the result looks like; 0: none has.
    estimated: Arc<watch::Sender<u64>>,
    began: Instant,
}

#[derive(Default)]
struct Inner {
    progress: Progress,
    events: VecDeque<Event>,
    last: u64,
    /// The number before that of the first event.
    base: u64,
    /// What the result looks like by now, and the number of the event that said so.
    estimate: Option<(u64, String)>,
}

impl Inner {
    /// An event with what it says: of estimates the latest alone is kept.
    fn event(&self, number: u64, event: &Event) -> Event {
        let mut event = event.clone();
        if let (EventKind::Estimated { snapshot }, Some((latest, text))) = (&mut event.kind, &self.estimate)
            && *latest == number
        {
            snapshot.clone_from(text);
        }
        event
    }
}

impl Default for Ring {
    fn default() -> Self {
        let last = Arc::new(watch::Sender::new((0, false)));
        Self { inner: Arc::default(), last, estimated: Arc::default(), began: Instant::now() }
    }
}

impl Ring {
    /// The job ran so often before. To be said before anything happens.
    pub(super) fn ran_before(&self, runs: u32) {
        let base = u64::from(runs) * RUN;
        let mut inner = self.inner.lock();
        (inner.base, inner.last) = (base, base);
        drop(inner);
        self.last.send_modify(|known| known.0 = base);
    }

    /// Something has happened.
    pub(super) fn push(&self, mut event: Event) {
        if let EventKind::TaskFailed { error: text, .. } | EventKind::Note { text } = &mut event.kind
            && text.len() > TEXT_BYTES_MAX
        {
            text.truncate((0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0));
        }
        let mut inner = self.inner.lock();
        inner.progress.on(&event);
        inner.last += 1;
        let last = inner.last;
        if let EventKind::Estimated { snapshot } = &mut event.kind {
            inner.estimate = Some((last, std::mem::take(snapshot)));
            self.estimated.send_replace(last);
        }
        inner.events.push_back(event);
        if inner.events.len() > EVENTS_MAX {
            inner.events.pop_front();
        }
        drop(inner);
        self.last.send_modify(|known| known.0 = last);
    }

    /// Nothing comes any more.
    pub(super) fn close(&self) {
        let mut inner = self.inner.lock();
        let beyond = inner.events.len().saturating_sub(EVENTS_MAX_OVER);
        inner.events.drain(..beyond);
        inner.events.shrink_to_fit();
        drop(inner);
        self.last.send_modify(|known| known.1 = true);
    }

    /// Resolves when there is something after `after`, or nothing will be.
    pub(super) async fn changed(&self, after: u64) {
        let _ = self.last.subscribe().wait_for(|(last, over)| *last != after || *over).await;
    }

    /// Resolves when there is a later estimate of the result than that of event `after`, or there will be none.
    pub(super) async fn estimated(&self, after: u64) {
        let mut estimated = self.estimated.subscribe();
        let is_over = async { drop(self.last.subscribe().wait_for(|(_, over)| *over).await) };
        tokio::select! {
            biased;
            _ = estimated.wait_for(|number| *number != 0 && *number != after) => {}
            () = is_over => {}
        }
    }

    /// The same for who wants to know how far the job is: he hears that at the next half second, or when the job is over.
    pub(super) async fn progressed(&self, after: u64) {
        self.changed(after).await;
        let halves = self.began.elapsed().as_millis() / PROGRESS_EVERY.as_millis() + 1;
        let next = self.began + PROGRESS_EVERY * u32::try_from(halves).unwrap_or(u32::MAX);
        let is_over = async { drop(self.last.subscribe().wait_for(|(_, over)| *over).await) };
        tokio::select! {
            biased;
            () = is_over => {}
            () = sleep_until(next) => {}
        }
    }

    /// What is asked for, as it is now.
    pub(super) fn news(&self, tenant: &Arc<str>, look: Look) -> News {
        let over = self.last.borrow().1;
        let inner = self.inner.lock();
        // Who has heard of an earlier run begins anew. That an earlier one was is not known where its log was lost with the servers.
        let after = if look.after > inner.last { inner.base } else { look.after.max(inner.base) };
        let first = inner.last + 1 - inner.events.len() as u64;
        let (progress, last) = (inner.progress.clone(), inner.last);
        // What is missing cannot be told apart from what is there in the progress: who has missed some goes on from here.
        let skipped = first.saturating_sub(after + 1);
        let estimate = inner.estimate.as_ref().filter(|(number, _)| look.estimate && *number != look.after).cloned();
        if look.events == 0 || skipped > 0 {
            return News { tenant: tenant.clone(), last, progress, events: Vec::new(), skipped, over, estimate };
        }
        let most = (look.events as usize).min(ANSWERED_MAX);
        let numbered = (first..).zip(&inner.events).skip((after + 1 - first) as usize).take(most);
        let mut bytes = 0;
        let fit = numbered.map(|(number, event)| (number, inner.event(number, event))).take_while(|(_, event)| {
            let before = bytes;
            bytes += rmp_serde::to_vec_named(event).map_or(0, |event| event.len());
            before == 0 || bytes <= ANSWERED_BYTES_MAX
        });
        let events: Vec<_> = fit.collect();
        let told = events.last().map_or(after, |(number, _)| *number);
        News { tenant: tenant.clone(), last: told, progress, events, skipped, over: over && told == last, estimate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;

    fn ring(events: u64) -> Ring {
        let ring = Ring::default();
        for at_us in 1..=events {
            let kind = EventKind::StagePlanned { stage: "map".into(), tasks: 1, bytes: 10 };
            ring.push(Event { at_us, node: NodeId::new("n1"), job: None, kind });
        }
        ring
    }

    fn numbers(news: &News) -> Vec<u64> {
        news.events.iter().map(|(number, _)| *number).collect()
    }

    #[test]
    fn who_asks_hears_what_came_after_what_he_has_heard() {
        let ring = ring(5);
        let look = |after, events| Look { after, wait_ms: 0, events, estimate: false };
        let news = ring.news(&"a".into(), look(0, 3));
        assert_eq!((numbers(&news), news.last, news.skipped), (vec![1, 2, 3], 3, 0));
        let news = ring.news(&"a".into(), look(3, 100));
        assert_eq!((numbers(&news), news.last, news.over), (vec![4, 5], 5, false));
        ring.close();
        assert!(!ring.news(&"a".into(), look(3, 1)).over, "one more is to be heard");
        assert!(ring.news(&"a".into(), look(5, 100)).over);
        assert_eq!(ring.news(&"a".into(), look(0, 0)).progress.tasks(), (0, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn who_wants_no_events_hears_twice_a_second_and_at_once_that_the_job_is_over() {
        let ring = ring(0);
        let happens = async {
            for at_us in 0..300 {
                let kind = EventKind::StagePlanned { stage: "map".into(), tasks: 1, bytes: 10 };
                ring.push(Event { at_us, node: NodeId::new("n1"), job: None, kind });
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            ring.close();
            Instant::now()
        };
        let hears = async {
            let (mut after, mut heard) = (0, 0);
            loop {
                ring.progressed(after).await;
                let news = ring.news(&"a".into(), Look { after, ..Look::default() });
                (after, heard) = (news.last, heard + 1);
                if news.over {
                    return (heard, news.progress.tasks(), Instant::now());
                }
            }
        };
        let (ended, (heard, tasks, knows)) = tokio::join!(happens, hears);
        assert!((6..=7).contains(&heard), "in 3 s {heard} times");
        assert_eq!((tasks, knows), ((0, 300), ended));
    }

    #[test]
    fn who_asks_too_seldom_goes_on_from_what_they_add_up_to() {
        let events = EVENTS_MAX as u64 + 10;
        let ring = ring(events);
        let news = ring.news(&"a".into(), Look { after: 3, events: 100, ..Look::default() });
        assert_eq!((news.events.len(), news.skipped, news.last), (0, 7, events));
        assert_eq!(news.progress.tasks(), (0, events));
        assert_eq!(news.first(3), Some(11), "for who wants those that are there");
        let news = ring.news(&"a".into(), Look { after: 10, events: 100, ..Look::default() });
        assert_eq!((numbers(&news)[0], news.first(10)), (11, None));
        let news = ring.news(&"a".into(), Look { after: events - 2, events: 100, ..Look::default() });
        assert_eq!(numbers(&news), [events - 1, events]);
    }

    #[test]
    fn who_has_heard_an_earlier_run_begins_anew() {
        let ring = ring(3);
        let news = ring.news(&"a".into(), Look { after: 1000, events: 10, ..Look::default() });
        assert_eq!((numbers(&news), news.last), (vec![1, 2, 3], 3));
        let end = ring.news(&"a".into(), Look { after: u64::MAX, events: 0, ..Look::default() });
        assert_eq!(end.last, 3);
    }

    #[test]
    fn who_has_heard_an_earlier_run_misses_nothing_of_a_later_one() {
        let later = Ring::default();
        later.ran_before(1);
        let look = |after| Look { after, events: 10, ..Look::default() };
        assert_eq!(later.news(&"a".into(), look(2)).last, RUN);
        for at_us in 1..=3 {
            later.push(Event { at_us, node: NodeId::new("n2"), job: None, kind: EventKind::Committing });
        }
        let news = later.news(&"a".into(), look(2));
        assert_eq!((numbers(&news), news.skipped), (vec![RUN + 1, RUN + 2, RUN + 3], 0));
        assert_eq!(numbers(&later.news(&"a".into(), look(RUN + 2))), [RUN + 3]);
        for at_us in 4..=EVENTS_MAX as u64 + 10 {
            later.push(Event { at_us, node: NodeId::new("n2"), job: None, kind: EventKind::Committing });
        }
        for after in [0, 2, RUN + 3, 7 * RUN] {
            assert_eq!(later.news(&"a".into(), look(after)).first(after), Some(RUN + 11), "{after}");
        }
    }

    #[test]
    fn an_answer_fits_a_message_however_long_the_texts_are() {
        let ring = Ring::default();
        for at_us in 0..300 {
            let kind = EventKind::Note { text: "ä".repeat(10_000) };
            ring.push(Event { at_us, node: NodeId::new("n1"), job: None, kind });
        }
        let news = ring.news(&"a".into(), Look { after: 0, events: 256, ..Look::default() });
        assert!(news.events.len() > 10);
        assert!(rmp_serde::to_vec_named(&news).unwrap().len() < 128 << 10);
    }

    #[tokio::test]
    async fn who_looks_at_estimates_gets_the_latest_one_at_once_and_earlier_ones_are_not_kept() {
        let ring = ring(3);
        let estimated = |text: &str| {
            let kind = EventKind::Estimated { snapshot: text.to_owned() };
            ring.push(Event { at_us: 9, node: NodeId::new("n1"), job: None, kind });
        };
        let looks = |after| ring.news(&"a".into(), Look { after, estimate: true, ..Look::default() }).estimate;
        assert_eq!(looks(0), None);
        estimated("first");
        ring.estimated(0).await;
        assert_eq!(looks(0), Some((4, "first".to_owned())));
        let waits = tokio::time::timeout(Duration::from_millis(20), ring.estimated(4)).await;
        assert!(waits.is_err() && looks(4).is_none(), "there is no later one");
        estimated("second");
        assert_eq!(looks(4), Some((5, "second".to_owned())));
        assert_eq!(ring.news(&"a".into(), Look::default()).estimate, None, "only for who asks");
        let news = ring.news(&"a".into(), Look { after: 3, events: 9, ..Look::default() });
        let texts = news.events.iter().map(|(_, event)| match &event.kind {
            EventKind::Estimated { snapshot } => snapshot.as_str(),
            other => panic!("{other:?}"),
        });
        assert_eq!(texts.collect::<Vec<_>>(), ["", "second"]);
        ring.close();
        ring.estimated(5).await;
    }

    #[tokio::test]
    async fn who_waits_is_answered_when_something_happens_or_the_job_is_over() {
        let ring = ring(1);
        let waits = tokio::spawn({
            let ring = ring.clone();
            async move { ring.changed(1).await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        ring.close();
        waits.await.unwrap();
    }
}
