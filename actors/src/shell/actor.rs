//! Running an actor on actix.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use actix::{ActorContext as _, ActorFutureExt as _, AsyncContext as _, StreamHandler};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::address::{Inbox, Wire};
use super::post::{Fatal, Post};

/// Events handled in one go before others on the arbiter get a turn.
const BATCH_EVENTS_MAX: usize = 1024;

/// A protocol, and what is done with its messages and with whatever else happens to the actor.
pub trait Actor: Sized + Unpin + 'static {
    /// The protocol: what others say, in this process or another one.
    type Message: Wire;
    /// What is in the mailbox: messages, and what only this process can say (timers, ends of work that it began). Nothing of the latter has a
    /// form on the wire. The messages themselves, where there is nothing else.
    type Event: From<Self::Message> + Send + Unpin + 'static;

    /// Called once, before the first event.
    fn started(&mut self, _scope: &mut Scope<'_, Self>) {}

    /// Handles one event. Never blocks, never does CPU or disk work.
    fn handle(&mut self, event: Self::Event, scope: &mut Scope<'_, Self>);

    /// Called after the events that were waiting have been handled: send what was collected.
    fn flush(&mut self, _scope: &mut Scope<'_, Self>) {}

    /// Called once, after the last event.
    fn stopped(&mut self) {}
}

/// What an actor can do to its own surroundings while it handles an event.
pub struct Scope<'a, A: Actor> {
    context: &'a mut actix::Context<Shell<A>>,
    inbox: &'a Inbox<A::Event>,
}

impl<A: Actor> Scope<'_, A> {
    /// The actor's own mailbox.
    pub fn inbox(&self) -> &Inbox<A::Event> {
        self.inbox
    }

    /// Delivers `event` to this actor after `delay`.
    pub fn after(&mut self, delay: Duration, event: A::Event) {
        let mut event = Some(event);
        self.context.run_later(delay, move |shell, context| {
            if let Some(event) = event.take() {
                shell.receive(std::iter::once(event), context);
            }
        });
    }

    /// Runs `work` on this arbiter and delivers what it makes to this actor.
    pub fn later(&mut self, work: impl Future<Output = Option<A::Event>> + 'static) {
        let work = actix::fut::wrap_future::<_, Shell<A>>(work).map(|event, shell, context| {
            shell.receive(event, context);
        });
        self.context.spawn(work);
    }

    /// Ends this actor after the current batch; events still in its mailbox are dropped.
    pub fn stop(&mut self) {
        self.context.stop();
    }
}

/// Starts `actor` on the current arbiter, registered as `name` (a subject token).
///
/// # Panics
/// Outside an arbiter.
pub fn spawn<A: Actor>(post: &Post, name: &str, actor: A) -> Inbox<A::Event> {
    spawn_at(post, name, |_| actor)
}

/// Like [`spawn`], for an actor that needs to know its own mailbox.
pub fn spawn_at<A: Actor>(post: &Post, name: &str, make: impl FnOnce(&Inbox<A::Event>) -> A) -> Inbox<A::Event> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let inbox = post.register::<A::Message, A::Event>(name, sender);
    let actor = make(&inbox);
    let shell = Shell { actor, inbox: inbox.clone(), name: name.to_owned(), broken: false };
    let batches = futures::StreamExt::ready_chunks(UnboundedReceiverStream::new(receiver), BATCH_EVENTS_MAX);
    <Shell<A> as actix::Actor>::create(move |context| {
        context.add_stream(batches.map(Batch));
        shell
    });
    inbox
}

/// A mailbox under `name` for who is no actor: messages of the protocol `M`, and other events, are read from the receiver.
pub fn mailbox<M: Wire, E: From<M> + Send + 'static>(
    post: &Post,
    name: &str,
) -> (Inbox<E>, mpsc::UnboundedReceiver<E>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (post.register::<M, E>(name, sender), receiver)
}

/// The actix side of an actor.
struct Shell<A: Actor> {
    actor: A,
    inbox: Inbox<A::Event>,
    name: String,
    broken: bool,
}

struct Batch<E>(Vec<E>);

impl<A: Actor> Shell<A> {
    fn receive(&mut self, events: impl IntoIterator<Item = A::Event>, context: &mut actix::Context<Self>) {
        self.guarded(context, |actor, scope| {
            for event in events {
                actor.handle(event, scope);
            }
            actor.flush(scope);
        });
    }

    /// Runs a step of the actor; a panic is reported as fatal and nothing of the actor runs after it.
    fn guarded(&mut self, context: &mut actix::Context<Self>, step: impl FnOnce(&mut A, &mut Scope<'_, A>)) {
        if self.broken {
            return;
        }
        let (actor, inbox) = (&mut self.actor, &self.inbox);
        let outcome = catch_unwind(AssertUnwindSafe(|| step(actor, &mut Scope { context, inbox })));
        if let Err(panic) = outcome {
            self.broken = true;
            let fatal = Fatal { actor: self.name.clone(), reason: crate::panic_text(&*panic) };
            self.inbox.post.fatal(fatal);
        }
    }
}

impl<A: Actor> actix::Actor for Shell<A> {
    type Context = actix::Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.guarded(context, |actor, scope| {
            actor.started(scope);
            actor.flush(scope);
        });
    }

    fn stopped(&mut self, _context: &mut Self::Context) {
        self.inbox.post.unregister(&self.name);
        if !self.broken {
            self.actor.stopped();
        }
    }
}

impl<A: Actor> StreamHandler<Batch<A::Event>> for Shell<A> {
    fn handle(&mut self, batch: Batch<A::Event>, context: &mut Self::Context) {
        self.receive(batch.0, context);
    }
}
