//! The post office of a process: local actors, open questions, and the sessions to other processes.
//!
//! Items on the wire: one tag byte, then
//! - [`MESSAGE`]: the encoded message;
//! - [`ABOUT`]: job and task (16 bytes each, big-endian) and attempt (4 bytes, big-endian), then the encoded message;
//! - [`REPLY`]: slot (8 bytes, big-endian), then the encoded answer;
//! - [`REJECTED`]: job, task and attempt, then the reason as UTF-8.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use exobus_bus::session::{Endpoint, SessionError};
use exobus_bus::{Refusals, Role, Speaker, codec};
use exobus_store::Clock;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

use super::address::{Address, Door, Inbox, Reply, Undeliverable, Wire, actor_of_job};
use super::census::Census;
use crate::ids::{Attempt, CopyNumber, Incarnation, JobId, NodeId, TaskId};

const MESSAGE: u8 = 0;
const ABOUT: u8 = 1;
const REPLY: u8 = 2;
const REJECTED: u8 = 3;

/// The actor name under which answers arrive.
const REPLIES: &str = "replies";

/// Why the process (or the embedded runtime) must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fatal {
    /// The actor that panicked.
    pub actor: String,
    /// The panic's text.
    pub reason: String,
}

/// Called with the reason when an actor panicked.
type OnFatal = Box<dyn Fn(Fatal) + Send + Sync>;

/// What a [`Post`] needs to know.
pub struct PostOptions {
    /// The name of this process's node.
    pub node: NodeId,
    /// Which incarnation of it this is.
    pub incarnation: Incarnation,
    /// The clock of the process.
    pub clock: Arc<dyn Clock>,
    /// Called once for each actor that panicked.
    pub on_fatal: OnFatal,
}

/// A handle to the post office; cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Post(Arc<Inner>);

struct Inner {
    node: NodeId,
    incarnation: AtomicU64,
    clock: Arc<dyn Clock>,
    endpoint: RwLock<Option<Endpoint>>,
    routes: RwLock<HashMap<Arc<str>, Arc<dyn Route>>>,
    waiting: Mutex<HashMap<u64, Box<dyn Waiting>>>,
    next_slot: AtomicU64,
    messages: AtomicU64,
    refusals: Refusals,
    stale: AtomicU64,
    census: Census,
    on_fatal: OnFatal,
}

/// A local actor, as the post sees it.
trait Route: Send + Sync {
    fn deliver(&self, from: &Speaker, body: &[u8]) -> Result<(), String>;
    fn reject(&self, task: TaskId, attempt: Attempt, node: NodeId, reason: String);
    /// An `Arc<dyn Door<M>>`, `M` being the protocol of the actor.
    fn door(&self) -> &dyn Any;
}

struct Mailbox<M>(Arc<dyn Door<M>>);

impl<M: Wire> Route for Mailbox<M> {
    fn deliver(&self, from: &Speaker, body: &[u8]) -> Result<(), String> {
        let message = codec::decode::<M>(body).map_err(|error| format!("{}: {error}", M::PROTOCOL))?;
        if !message.said_by().allows(from) {
            return Err(format!("{}: it is not for {} to say that", M::PROTOCOL, from.name()));
        }
        // An actor that has just ended reads nothing any more; its peers learn so from the protocol, not from here.
        let _ = self.0.put(message);
        Ok(())
    }

    fn reject(&self, task: TaskId, attempt: Attempt, node: NodeId, reason: String) {
        if let Some(message) = M::rejected(task, attempt, node, reason) {
            let _ = self.0.put(message);
        }
    }

    fn door(&self) -> &dyn Any {
        &self.0
    }
}

/// Somebody who waits for an answer.
trait Waiting: Send {
    fn answer_value(self: Box<Self>, value: Box<dyn Any>);
    fn answer_bytes(self: Box<Self>, body: &[u8]) -> Result<(), String>;
}

struct Asker<T>(oneshot::Sender<T>, PhantomData<T>);

impl<T: DeserializeOwned + Send + 'static> Waiting for Asker<T> {
    fn answer_value(self: Box<Self>, value: Box<dyn Any>) {
        let value = value.downcast::<T>().expect("a reply carries its type");
        let _ = self.0.send(*value);
    }

    fn answer_bytes(self: Box<Self>, body: &[u8]) -> Result<(), String> {
        let value = codec::decode::<T>(body).map_err(|error| error.to_string())?;
        let _ = self.0.send(value);
        Ok(())
    }
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Post({} incarnation {})", self.0.node, self.incarnation().0)
    }
}

impl Post {
    /// A post office without sessions: everybody is local until [`Post::connect`].
    pub fn new(options: PostOptions) -> Self {
        Self(Arc::new(Inner {
            node: options.node,
            incarnation: AtomicU64::new(options.incarnation.0),
            clock: options.clock,
            endpoint: RwLock::default(),
            routes: RwLock::default(),
            waiting: Mutex::default(),
            next_slot: AtomicU64::new(1),
            messages: AtomicU64::new(0),
            refusals: Refusals::default(),
            stale: AtomicU64::new(0),
            census: Census::default(),
            on_fatal: options.on_fatal,
        }))
    }

    /// The node of this process.
    pub fn node(&self) -> &NodeId {
        &self.0.node
    }

    /// The incarnation of this node. It changes only while it has no actors.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.0.incarnation.load(Ordering::Acquire))
    }

    /// The clock of this process.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Where the actors of this process say how much they keep.
    pub(crate) fn census(&self) -> &Census {
        &self.0.census
    }

    /// How many there are of what comes with jobs, clients and questions and goes with them, by what it is called.
    pub fn living(&self) -> BTreeMap<&'static str, u64> {
        let mut living = self.0.census.read();
        let peers = self.0.endpoint.read().as_ref().map_or(0, |endpoint| endpoint.stats().peers);
        let (actors, questions) = (self.0.routes.read().len() as u64, self.0.waiting.lock().len() as u64);
        living.extend([("actors", actors), ("open questions", questions), ("sessions", peers)]);
        living
    }

    /// Bytes that wait in sessions for other processes.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.0.endpoint.read().as_ref().map_or(0, Endpoint::waiting_bytes)
    }

    /// Messages handed over by this process so far, to local actors and to others.
    pub fn messages(&self) -> u64 {
        self.0.messages.load(Ordering::Relaxed)
    }

    /// Messages from other processes that were refused so far: malformed, too large, of a foreign version, or of a
    /// node that they do not come from; or not authentic, so that nobody knows who sent them. Each is counted; of known senders
    /// the first one is logged, of strangers one a minute.
    pub fn refused(&self) -> u64 {
        let endpoint = self.0.endpoint.read();
        let in_sessions = endpoint.as_ref().map(|endpoint| endpoint.stats());
        let in_sessions = in_sessions.map_or(0, |stats| stats.frames_malformed + stats.frames_of_strangers);
        self.0.refusals.count() + self.0.refusals.strangers() + in_sessions
    }

    /// Counts a message of `sender` for `receiver`, an actor or a subject, that is refused for `reason`.
    pub fn refuse(&self, sender: &str, receiver: &str, reason: &dyn fmt::Display) {
        self.0.refusals.refuse(sender, receiver, reason);
    }

    /// Counts a message for `receiver` that is not authentic; `claimed` is who is said to have sent it.
    pub fn refuse_stranger(&self, claimed: &str, receiver: &str, reason: &dyn fmt::Display) {
        self.0.refusals.refuse_stranger(claimed, receiver, reason);
    }

    /// Messages that were dropped because they came from an incarnation of a node, or a Scheduler of an epoch, that is over.
    pub fn stale(&self) -> u64 {
        self.0.stale.load(Ordering::Relaxed)
    }

    /// Counts messages of what is over.
    pub(crate) fn count_stale(&self, messages: u64) {
        self.0.stale.fetch_add(messages, Ordering::Relaxed);
    }

    /// Opens the way to other processes. Called once in each incarnation, before anything is sent to another node.
    pub fn connect(&self, endpoint: Endpoint) {
        let before = self.0.endpoint.write().replace(endpoint);
        assert!(before.is_none(), "the post is connected once");
    }

    /// A node is this incarnation by now, or a later one: what is said to it from now on is for that one. True: what was said to it
    /// before may be lost.
    pub(crate) fn hears_of(&self, node: &NodeId, incarnation: Incarnation) -> bool {
        self.0.endpoint.read().as_ref().is_some_and(|endpoint| endpoint.hears_of(node.as_str(), incarnation.0))
    }

    /// Begins another incarnation: the actors of the last one are gone, and so are its sessions and questions.
    pub(crate) fn renew(&self, incarnation: Incarnation) {
        *self.0.endpoint.write() = None;
        self.0.routes.write().clear();
        self.0.waiting.lock().clear();
        self.0.incarnation.store(incarnation.0, Ordering::Release);
    }

    /// Registers a local actor under `name`: what is said to it in the protocol `M` goes into its mailbox.
    pub(super) fn register<M: Wire, E: From<M> + Send + 'static>(
        &self,
        name: &str,
        mailbox: mpsc::UnboundedSender<E>,
    ) -> Inbox<E> {
        let actor: Arc<str> = name.into();
        let door: Arc<dyn Door<M>> = Arc::new(mailbox.clone());
        self.0.routes.write().insert(actor.clone(), Arc::new(Mailbox(door)));
        Inbox { post: self.clone(), actor, mailbox }
    }

    /// Removes a local actor: what arrives for it from now on is dropped.
    pub fn unregister(&self, name: &str) {
        self.0.routes.write().remove(name);
    }

    /// The address of the actor `name` on `node`, local where the node is this one.
    pub fn address<M: Wire>(&self, node: &NodeId, name: &str) -> Address<M> {
        let local = if *node == self.0.node {
            let routes = self.0.routes.read();
            routes.get(name).and_then(|route| route.door().downcast_ref::<Arc<dyn Door<M>>>().cloned())
        } else {
            None
        };
        Address { post: self.clone(), node: node.clone(), actor: name.into(), local }
    }

    /// Answers a question, wherever the asker is. An asker who no longer waits is no error.
    pub fn answer<T: Serialize + Send + 'static>(&self, reply: Reply<T>, value: T) {
        if reply.node == self.0.node {
            if let Some(waiting) = self.0.waiting.lock().remove(&reply.slot) {
                waiting.answer_value(Box::new(value));
            }
            return;
        }
        match codec::encode(&value) {
            Ok(body) => {
                let mut item = BytesMut::with_capacity(9 + body.len());
                item.put_u8(REPLY);
                item.put_u64(reply.slot);
                item.put_slice(&body);
                if let Err(error) = self.post_item(&reply.node, REPLIES, item.freeze()) {
                    warn!(node = %reply.node, %error, "answer not sent");
                }
            }
            Err(error) => warn!(node = %reply.node, %error, "answer not encoded"),
        }
    }

    /// Ends the process (or the embedded runtime), because an actor panicked.
    pub fn fatal(&self, fatal: Fatal) {
        (self.0.on_fatal)(fatal);
    }

    /// Takes in one item that arrived from `from` for the local actor `actor`. The one way from other processes to actors: that a
    /// [`Speaker`] is needed is what keeps words of strangers from them.
    pub fn deliver(&self, from: &Speaker, actor: &str, item: &[u8]) {
        match self.try_deliver(from, actor, item) {
            Ok(()) => {}
            // A word to a job that has just ended, say: late, not wrong.
            Err(reason) if reason == no_actor(actor) => {
                debug!(node = from.name(), actor, "message for an actor that is gone")
            }
            Err(reason) => self.refuse(from.name(), actor, &reason),
        }
    }

    fn try_deliver(&self, from: &Speaker, actor: &str, item: &[u8]) -> Result<(), String> {
        let (&tag, rest) = item.split_first().ok_or("empty item")?;
        match tag {
            MESSAGE => self.route(actor)?.deliver(from, rest),
            _ if from.role() != Role::Node => {
                Err("a submitter answers nothing, and has nothing to do with tasks".into())
            }
            ABOUT => {
                let (job, task, attempt, body) = split_about(rest)?;
                self.route(actor).and_then(|route| route.deliver(from, body)).inspect_err(|reason| {
                    let item = about(REJECTED, (job, task, attempt), reason.as_bytes());
                    let from = NodeId::new(from.name());
                    if let Err(error) = self.post_item(&from, &actor_of_job(job), item) {
                        warn!(node = %from, %error, "rejection not sent");
                    }
                })
            }
            REPLY => {
                let (slot, body) = rest.split_first_chunk::<8>().ok_or("reply without slot")?;
                let waiting = self.0.waiting.lock().remove(&u64::from_be_bytes(*slot));
                waiting.map_or(Ok(()), |waiting| waiting.answer_bytes(body))
            }
            REJECTED => {
                let (_, task, attempt, reason) = split_about(rest)?;
                let reason = String::from_utf8_lossy(reason).into_owned();
                self.route(actor)?.reject(task, attempt, NodeId::new(from.name()), reason);
                Ok(())
            }
            other => Err(format!("unknown item tag {other}")),
        }
    }

    fn route(&self, actor: &str) -> Result<Arc<dyn Route>, String> {
        self.0.routes.read().get(actor).cloned().ok_or_else(|| no_actor(actor))
    }

    pub(super) fn count_message(&self) {
        self.0.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn send_remote<M: Wire>(&self, node: &NodeId, actor: &str, message: M) -> Result<(), Undeliverable> {
        let undeliverable = |reason: String, lasting| {
            let (node, actor) = (node.clone(), actor.to_owned());
            Undeliverable { node, actor, reason, lasting }
        };
        if *node == self.0.node {
            let local = self.address::<M>(node, actor);
            return match &local.local {
                Some(door) if door.put(message) => Ok(()),
                Some(_) => Err(undeliverable("it has ended".into(), false)),
                None => Err(undeliverable("no such actor here".into(), false)),
            };
        }
        let body = codec::encode(&message).map_err(|error| undeliverable(error.to_string(), true))?;
        let item = match message.about() {
            Some(attempt) => about(ABOUT, attempt, &body),
            None => {
                let mut item = BytesMut::with_capacity(1 + body.len());
                item.put_u8(MESSAGE);
                item.put_slice(&body);
                item.freeze()
            }
        };
        self.post_item(node, actor, item)
    }

    fn post_item(&self, node: &NodeId, actor: &str, item: Bytes) -> Result<(), Undeliverable> {
        let undeliverable = |reason: String, lasting| {
            let (node, actor) = (node.clone(), actor.to_owned());
            Undeliverable { node, actor, reason, lasting }
        };
        let endpoint = self.0.endpoint.read();
        let endpoint = endpoint.as_ref().ok_or_else(|| undeliverable("this process has no bus".into(), false))?;
        self.count_message();
        let lasting = |error: &SessionError| matches!(error, SessionError::ItemTooLarge { .. });
        let sent = endpoint.send(node.as_str(), actor, item);
        sent.map_err(|error| undeliverable(error.to_string(), lasting(&error)))
    }

    /// A question that waits for its answer until what is returned last is dropped.
    pub(super) fn expect_reply<T>(&self) -> (Reply<T>, oneshot::Receiver<T>, Question)
    where
        T: DeserializeOwned + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let slot = self.0.next_slot.fetch_add(1, Ordering::Relaxed);
        self.0.waiting.lock().insert(slot, Box::new(Asker(sender, PhantomData)));
        (Reply::to(self.0.node.clone(), slot), receiver, Question { post: self.clone(), slot })
    }
}

/// A question that somebody waits for; it goes with who waits, whatever way the wait ends.
pub(super) struct Question {
    post: Post,
    slot: u64,
}

impl Drop for Question {
    fn drop(&mut self) {
        self.post.0.waiting.lock().remove(&self.slot);
    }
}

fn no_actor(actor: &str) -> String {
    format!("no actor {actor} here")
}

fn about(tag: u8, (job, task, attempt): (JobId, TaskId, Attempt), body: &[u8]) -> Bytes {
    let mut item = BytesMut::with_capacity(37 + body.len());
    item.put_u8(tag);
    item.put_u128(job.as_u128());
    item.put_u128(task.as_u128());
    item.put_u32(attempt.makes().get());
    item.put_slice(body);
    item.freeze()
}

fn split_about(bytes: &[u8]) -> Result<(JobId, TaskId, Attempt, &[u8]), String> {
    let (job, rest) = bytes.split_first_chunk::<16>().ok_or("item without job")?;
    let (task, rest) = rest.split_first_chunk::<16>().ok_or("item without task")?;
    let (attempt, body) = rest.split_first_chunk::<4>().ok_or("item without attempt")?;
    let number = CopyNumber::of_bits(u32::from_be_bytes(*attempt)).ok_or("no attempt has this number")?;
    let (job, task) = (JobId::from_u128(u128::from_be_bytes(*job)), TaskId::from_u128(u128::from_be_bytes(*task)));
    Ok((job, task, Attempt::of(number), body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_about_an_attempt_names_it_and_one_that_is_cut_short_or_names_none_is_refused() {
        let (job, task, attempt) = (JobId::from_u128(1), TaskId::from_u128(2), Attempt::nth(3));
        let item = about(ABOUT, (job, task, attempt), b"message");
        assert_eq!(split_about(&item[1..]), Ok((job, task, attempt, &b"message"[..])));
        for short in 0..36 {
            assert!(split_about(&item[1..1 + short]).is_err(), "{short} bytes");
        }
        assert!(split_about(&[0; 36]).is_err(), "numbers of attempts begin at 1");
    }
}
