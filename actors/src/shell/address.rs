//! Where messages and answers go.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::{Role, Speaker};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::post::Post;
use crate::ids::{Attempt, Incarnation, JobId, NodeId, TaskId};

/// Who may say a message to another process. Nothing that its sender may not say reaches an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaidBy<'a> {
    /// Nodes.
    Nodes,
    /// The node that it is about, in this incarnation.
    ThatNode(&'a NodeId, Incarnation),
}

impl SaidBy<'_> {
    /// Whether this one may.
    pub(super) fn allows(self, speaker: &Speaker) -> bool {
        let is = |node: &NodeId| node.as_str() == speaker.name();
        match (self, speaker.role()) {
            (Self::ThatNode(node, incarnation), Role::Node) => is(node) && incarnation.0 == speaker.incarnation(),
            (Self::Nodes, Role::Node) => true,
            // Who hands jobs in asks at the door, and says nothing in sessions.
            (_, Role::Submitter) => false,
        }
    }
}

/// What a message owes to cross a process border.
pub trait Wire: Serialize + DeserializeOwned + Send + 'static {
    /// The name of the protocol, for logs and `exobus protocols`.
    const PROTOCOL: &'static str;

    /// Who may say it. Unless a protocol says otherwise: nodes.
    fn said_by(&self) -> SaidBy<'_> {
        SaidBy::Nodes
    }

    /// The attempt that this message is about. When the receiver cannot decode the message, that attempt fails with the
    /// reason, instead of the message being lost without a word.
    fn about(&self) -> Option<(JobId, TaskId, Attempt)> {
        None
    }

    /// The message that tells this actor that what it sent about this attempt of `task` could not be decoded by `node`.
    fn rejected(_task: TaskId, _attempt: Attempt, _node: NodeId, _reason: String) -> Option<Self> {
        None
    }
}

/// The name under which the actor is registered that answers for a job: it is told when what it sent about a task could not be decoded.
pub fn actor_of_job(job: JobId) -> String {
    format!("owner-{job}")
}

/// The message could not be handed over: the actor has ended, or the peer's queue is full.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot send to {actor} on {node}: {reason}")]
pub struct Undeliverable {
    /// The node that was addressed.
    pub node: NodeId,
    /// The actor that was addressed.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Whether the message can never be handed over: it has no form on the wire, or is too large for it.
    pub lasting: bool,
}

/// Why an `ask` got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The question could not be sent.
    #[error(transparent)]
    Undeliverable(#[from] Undeliverable),
    /// The actor dropped the question.
    #[error("{actor} on {node} dropped the question")]
    Dropped {
        /// The node that was asked.
        node: NodeId,
        /// The actor that was asked.
        actor: String,
    },
    /// There is no such actor anywhere, as far as is known.
    #[error("no {actor} in the cluster within {deadline:?}")]
    Nobody {
        /// What was looked for.
        actor: String,
        /// How long the caller was willing to wait.
        deadline: Duration,
    },
    /// No answer in time.
    #[error("{actor} on {node} did not answer within {deadline:?}")]
    Deadline {
        /// The node that was asked.
        node: NodeId,
        /// The actor that was asked.
        actor: String,
        /// How long the caller was willing to wait.
        deadline: Duration,
    },
}

/// The address of an actor, typed by its protocol: for everybody, wherever the actor lives.
pub struct Address<M> {
    pub(super) post: Post,
    pub(super) node: NodeId,
    pub(super) actor: Arc<str>,
    pub(super) local: Option<Arc<dyn Door<M>>>,
}

/// A mailbox of this process, as those see it who know the protocol of its actor and nothing else of it.
pub(super) trait Door<M>: Send + Sync {
    /// Puts a message in; false: the actor has ended.
    fn put(&self, message: M) -> bool;
}

impl<M, E: From<M> + Send> Door<M> for mpsc::UnboundedSender<E> {
    fn put(&self, message: M) -> bool {
        self.send(message.into()).is_ok()
    }
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { post: self.post.clone(), node: self.node.clone(), actor: self.actor.clone(), local: self.local.clone() }
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.actor, self.node)
    }
}

impl<M: Wire> Address<M> {
    /// The node on which the actor lives.
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// Hands a message over; order is kept between one sender and one actor.
    ///
    /// # Errors
    /// The actor has ended, or the bytes waiting for its process have reached their bound.
    pub fn send(&self, message: M) -> Result<(), Undeliverable> {
        match &self.local {
            Some(door) => {
                self.post.count_message();
                if door.put(message) { Ok(()) } else { Err(self.undeliverable("it has ended")) }
            }
            None => self.post.send_remote(&self.node, &self.actor, message),
        }
    }

    /// Sends the message that `question` makes around a [`Reply`] and waits for the answer.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn ask<T>(&self, question: impl FnOnce(Reply<T>) -> M, deadline: Duration) -> Result<T, AskError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let (reply, answer, _question) = self.post.expect_reply::<T>();
        self.send(question(reply))?;
        let (node, actor) = (self.node.clone(), self.actor.to_string());
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => Err(AskError::Dropped { node, actor }),
            Err(_) => Err(AskError::Deadline { node, actor, deadline }),
        }
    }

    fn undeliverable(&self, reason: &str) -> Undeliverable {
        Undeliverable {
            node: self.node.clone(),
            actor: self.actor.to_string(),
            reason: reason.to_owned(),
            lasting: false,
        }
    }
}

/// The mailbox of an actor of this process, typed by its events: for those who tell it what never crosses the wire.
pub struct Inbox<E> {
    pub(super) post: Post,
    pub(super) actor: Arc<str>,
    pub(super) mailbox: mpsc::UnboundedSender<E>,
}

impl<E> Clone for Inbox<E> {
    fn clone(&self) -> Self {
        Self { post: self.post.clone(), actor: self.actor.clone(), mailbox: self.mailbox.clone() }
    }
}

impl<E> fmt::Debug for Inbox<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.actor, self.post.node())
    }
}

impl<E: Send + 'static> Inbox<E> {
    /// Puts an event, or a message of the actor's protocol, into the mailbox; order is kept between one sender and one actor.
    ///
    /// # Errors
    /// The actor has ended.
    pub fn send(&self, event: impl Into<E>) -> Result<(), Undeliverable> {
        self.post.count_message();
        self.mailbox.send(event.into()).map_err(|_| ended(&self.post, &self.actor))
    }

    /// The same mailbox, for events of one kind.
    pub fn inlet<C>(&self) -> Inlet<C>
    where
        E: From<C>,
    {
        Inlet { post: self.post.clone(), actor: self.actor.clone(), door: Arc::new(self.mailbox.clone()) }
    }

    /// The same actor, for who knows only its protocol.
    pub fn address<M>(&self) -> Address<M>
    where
        E: From<M>,
    {
        let local: Arc<dyn Door<M>> = Arc::new(self.mailbox.clone());
        let node = self.post.node().clone();
        Address { post: self.post.clone(), node, actor: self.actor.clone(), local: Some(local) }
    }
}

/// A way into the mailbox of an actor of this process for events of one kind: who has it knows nothing else of that actor.
pub struct Inlet<C> {
    post: Post,
    actor: Arc<str>,
    door: Arc<dyn Door<C>>,
}

impl<C> Clone for Inlet<C> {
    fn clone(&self) -> Self {
        Self { post: self.post.clone(), actor: self.actor.clone(), door: self.door.clone() }
    }
}

impl<C> fmt::Debug for Inlet<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.actor, self.post.node())
    }
}

impl<C> Inlet<C> {
    /// Puts an event into the mailbox; order is kept between one sender and one actor.
    ///
    /// # Errors
    /// The actor has ended.
    pub fn send(&self, event: C) -> Result<(), Undeliverable> {
        self.post.count_message();
        if self.door.put(event) { Ok(()) } else { Err(ended(&self.post, &self.actor)) }
    }
}

fn ended(post: &Post, actor: &str) -> Undeliverable {
    let reason = "it has ended".to_owned();
    Undeliverable { node: post.node().clone(), actor: actor.to_owned(), reason, lasting: false }
}

/// Where an answer of type `T` goes. Crosses the bus unchanged; answered through [`Post::answer`].
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Reply<T> {
    pub(super) node: NodeId,
    pub(super) slot: u64,
    #[serde(skip)]
    pub(super) answer: PhantomData<fn() -> T>,
}

impl<T> Clone for Reply<T> {
    fn clone(&self) -> Self {
        Self { node: self.node.clone(), slot: self.slot, answer: PhantomData }
    }
}

impl<T> PartialEq for Reply<T> {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node && self.slot == other.slot
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({}#{})", self.node, self.slot)
    }
}

impl<T> Reply<T> {
    /// A reply to a slot of a node: for samples of messages, and for tests.
    pub fn to(node: NodeId, slot: u64) -> Self {
        Self { node, slot, answer: PhantomData }
    }

    /// The process that is answered.
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// The node and the slot that it goes to.
    #[cfg(feature = "simulation")]
    pub(crate) fn goes_to(&self) -> (&NodeId, u64) {
        (&self.node, self.slot)
    }
}
