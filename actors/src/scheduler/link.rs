//! [`SchedulerLink`]: the way to whoever is the Scheduler now.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::ids::{Epoch, NodeId};
use crate::protocol::scheduler::Leader;
use crate::protocol::scheduler::{ACTOR, SchedulerMsg};
use crate::shell::{Address, AskError, Post, Reply, Undeliverable};

/// How long one Scheduler may take to answer before it is asked again; the question may have gone to one that is over.
const TRY: Duration = Duration::from_secs(2);
/// Between two questions when the first could not even be sent.
const AGAIN: Duration = Duration::from_millis(100);
/// A Scheduler that was not heard for so long does not speak: beats come every half second.
const SPEAKS_FOR: Duration = Duration::from_secs(2);

/// The way to the Scheduler, whoever that is; clones follow together.
#[derive(Clone)]
pub struct SchedulerLink(Arc<Inner>);

struct Inner {
    post: Post,
    leader: watch::Sender<Option<Leader>>,
    /// The highest epoch that was heard of; it stays when this node is the Scheduler no longer. `leader` becomes another one while this is written.
    epoch: watch::Sender<Epoch>,
    /// When the Scheduler's node was last heard, microseconds on the node's clock.
    heard_us: AtomicU64,
}

impl fmt::Debug for SchedulerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SchedulerLink({:?})", self.leader())
    }
}

impl SchedulerLink {
    /// A way that leads nowhere yet.
    pub fn new(post: Post) -> Self {
        Self(Arc::new(Inner {
            post,
            leader: watch::Sender::new(None),
            epoch: watch::Sender::new(Epoch(0)),
            heard_us: AtomicU64::new(0),
        }))
    }

    /// Who is the Scheduler, as far as is known.
    pub fn leader(&self) -> Option<Leader> {
        self.0.leader.borrow().clone()
    }

    /// The highest epoch that was heard of; zero before any.
    pub fn epoch(&self) -> Epoch {
        *self.0.epoch.borrow()
    }

    /// Follows `leader`, if it is later than all that were heard of; true when it is.
    pub fn follow(&self, leader: &Leader) -> bool {
        self.raise(leader.epoch, || drop(self.0.leader.send_replace(Some(leader.clone()))))
    }

    /// Somebody has heard of this epoch: no Scheduler of one below it is followed from now on that is not followed already.
    pub fn hears(&self, epoch: Epoch) {
        self.raise(epoch, || {});
    }

    /// Whether this is the highest epoch that was heard of; if so, it is from now on, and `then` is done.
    fn raise(&self, epoch: Epoch, then: impl FnOnce()) -> bool {
        self.0.epoch.send_if_modified(|known| {
            let later = *known < epoch;
            if later {
                then();
                *known = epoch;
            }
            later
        })
    }

    /// The Scheduler of this node acts no longer, if it did: until another one is heard of, nobody is followed.
    pub fn end_own(&self) {
        self.0.leader.send_if_modified(|known| known.take_if(|leader| leader.node == *self.0.post.node()).is_some());
    }

    /// The node `node` was heard, and says that it follows `leader`.
    pub fn heard(&self, node: &NodeId, leader: &Leader) {
        self.follow(leader);
        if self.leader().is_some_and(|known| known.node == *node && known == *leader) {
            self.0.heard_us.store(self.0.post.clock().now().as_micros() as u64, Ordering::Relaxed);
        }
    }

    /// Whether the Scheduler was heard a moment ago. False where there are no heartbeats.
    pub fn speaks(&self) -> bool {
        let heard = Duration::from_micros(self.0.heard_us.load(Ordering::Relaxed));
        !heard.is_zero() && self.0.post.clock().now().saturating_sub(heard) < SPEAKS_FOR
    }

    /// Told whenever another Scheduler is followed, or none any more.
    pub fn changes(&self) -> watch::Receiver<Option<Leader>> {
        self.0.leader.subscribe()
    }

    /// Told whenever a higher epoch was heard of, that of the Scheduler that is followed or not.
    pub fn epochs(&self) -> watch::Receiver<Epoch> {
        self.0.epoch.subscribe()
    }

    /// Hands a message to the Scheduler.
    ///
    /// # Errors
    /// None is known; as [`Address::send`].
    pub fn send(&self, message: SchedulerMsg) -> Result<(), Undeliverable> {
        match self.leader() {
            Some(leader) => self.address(&leader).send(message),
            None => {
                let node = self.0.post.node().clone();
                let reason = "no Scheduler is known".to_owned();
                Err(Undeliverable { node, actor: ACTOR.to_owned(), reason, lasting: false })
            }
        }
    }

    /// Asks the Scheduler; when it does not answer, or another one follows it, that one is asked.
    ///
    /// # Errors
    /// No answer within `deadline`, of anybody.
    pub async fn ask<T>(&self, question: impl Fn(Reply<T>) -> SchedulerMsg, deadline: Duration) -> Result<T, AskError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let end = Instant::now() + deadline;
        let mut changes = self.changes();
        loop {
            let known = timeout_at(end, changes.wait_for(Option::is_some)).await;
            let Some(leader) = known.ok().and_then(|known| known.ok()?.clone()) else {
                return Err(AskError::Nobody { actor: ACTOR.to_owned(), deadline });
            };
            let left = end.saturating_duration_since(Instant::now());
            let error = tokio::select! {
                biased;
                answer = async { self.address(&leader).ask(&question, left.min(TRY)).await } => match answer {
                    Ok(answer) => return Ok(answer),
                    Err(error) => error,
                },
                _ = changes.changed() => continue,
            };
            if end.saturating_duration_since(Instant::now()) <= AGAIN {
                return Err(error);
            }
            if !matches!(error, AskError::Deadline { .. }) {
                sleep(AGAIN).await;
            }
        }
    }

    fn address(&self, leader: &Leader) -> Address<SchedulerMsg> {
        self.0.post.address(&leader.node, ACTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Incarnation;
    use crate::shell::{PostOptions, mailbox};
    use exobus_store::SystemClock;

    fn link() -> (Post, SchedulerLink) {
        let post = Post::new(PostOptions {
            node: NodeId::new("here"),
            incarnation: Incarnation(1),
            clock: Arc::new(SystemClock::new()),
            on_fatal: Box::new(|_| {}),
        });
        (post.clone(), SchedulerLink::new(post))
    }

    fn leader(epoch: u64, node: &str) -> Leader {
        Leader { epoch: Epoch(epoch), node: NodeId::new(node) }
    }

    #[test]
    fn the_highest_epoch_is_followed_in_whatever_order_they_are_heard() {
        let (_, link) = link();
        assert!(link.send(SchedulerMsg::JobsOver { jobs: Vec::new() }).unwrap_err().reason.contains("no Scheduler"));
        assert!(link.follow(&leader(3, "a")));
        assert!(!link.follow(&leader(2, "b")), "an older leader is over");
        assert!(!link.follow(&leader(3, "a")), "known");
        assert!(link.follow(&leader(4, "b")));
        assert_eq!((link.leader(), link.epoch()), (Some(leader(4, "b")), Epoch(4)));
        link.end_own();
        assert_eq!(link.leader(), Some(leader(4, "b")), "not ours to end");
        link.follow(&leader(5, "here"));
        link.end_own();
        assert_eq!((link.leader(), link.epoch()), (None, Epoch(5)));
        assert!(!link.follow(&leader(5, "here")), "hearsay of what is over");
        assert!(link.follow(&leader(6, "b")));
    }

    #[test]
    fn nobody_is_followed_below_an_epoch_that_others_have_heard_of_and_who_watches_is_told_of_it() {
        let (_, link) = link();
        link.follow(&leader(3, "a"));
        let (epochs, leaders) = (link.epochs(), link.changes());
        link.hears(Epoch(3));
        assert!(!epochs.has_changed().unwrap(), "known");
        link.hears(Epoch(5));
        assert!(epochs.has_changed().unwrap(), "a Scheduler of a lower epoch begins a new one");
        assert!(!leaders.has_changed().unwrap(), "it is followed until then");
        assert_eq!((link.leader(), link.epoch()), (Some(leader(3, "a")), Epoch(5)));
        assert!(!link.follow(&leader(4, "b")));
        assert!(link.follow(&leader(6, "a")));
    }

    #[test]
    fn only_the_scheduler_itself_is_heard_to_speak() {
        let (_, link) = link();
        link.heard(&NodeId::new("c"), &leader(4, "b"));
        assert!(!link.speaks(), "that was hearsay");
        link.heard(&NodeId::new("b"), &leader(4, "b"));
        assert!(link.speaks());
    }

    #[tokio::test]
    async fn a_question_that_one_scheduler_does_not_answer_is_put_to_the_next() {
        let (post, link) = link();
        link.follow(&leader(1, "gone"));
        let (_, mut inbox) = mailbox::<SchedulerMsg, SchedulerMsg>(&post, ACTOR);
        let succeed = async {
            tokio::task::yield_now().await;
            link.follow(&leader(2, "here"));
            let Some(SchedulerMsg::ListNodes { reply }) = inbox.recv().await else { panic!("asked") };
            post.answer(reply, Vec::new());
        };
        let ask = link.ask(|reply| SchedulerMsg::ListNodes { reply }, Duration::from_secs(30));
        let (nodes, ()) = tokio::join!(ask, succeed);
        assert_eq!(nodes, Ok(Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_scheduler_a_question_ends_with_its_deadline() {
        let (_, link) = link();
        let asked = link.ask(|reply| SchedulerMsg::ListNodes { reply }, Duration::from_secs(30)).await;
        assert!(matches!(asked, Err(AskError::Nobody { .. })), "{asked:?}");
    }
}
