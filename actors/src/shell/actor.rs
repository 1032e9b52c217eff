//! Running an actor on actix.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use actix::{ActorContext as _, ActorFutureExt as _, AsyncContext as _, StreamHandler};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::address::{Address, Wire};
use super::post::{Fatal, Post};

/// Messages handled in one go before others on the arbiter get a turn.
const BATCH_MESSAGES_MAX: usize = 1024;

/// A protocol and what is done with its messages.
pub trait Actor: Sized + Unpin + 'static {
    /// The protocol.
    type Message: Wire + Unpin;

    /// Called once, before the first message.
    fn started(&mut self, _scope: &mut Scope<'_, Self>) {}

    /// Handles one message. Never blocks, never does CPU or disk work.
    fn handle(&mut self, message: Self::Message, scope: &mut Scope<'_, Self>);

    /// Called after the messages that were waiting have been handled: send what was collected.
    fn flush(&mut self, _scope: &mut Scope<'_, Self>) {}

    /// Called once, after the last message.
    fn stopped(&mut self) {}
}

/// What an actor can do to its own surroundings while it handles a message.
pub struct Scope<'a, A: Actor> {
    context: &'a mut actix::Context<Shell<A>>,
    address: &'a Address<A::Message>,
}

impl<A: Actor> Scope<'_, A> {
    /// The actor's own address.
    pub fn address(&self) -> &Address<A::Message> {
        self.address
    }

    /// Delivers `message` to this actor after `delay`.
    pub fn after(&mut self, delay: Duration, message: A::Message) {
        let mut message = Some(message);
        self.context.run_later(delay, move |shell, context| {
            if let Some(message) = message.take() {
                shell.receive(std::iter::once(message), context);
            }
        });
    }

    /// Runs `work` on this arbiter and delivers what it makes to this actor.
    pub fn later(&mut self, work: impl Future<Output = Option<A::Message>> + 'static) {
        let work = actix::fut::wrap_future::<_, Shell<A>>(work).map(|message, shell, context| {
            shell.receive(message, context);
        });
        self.context.spawn(work);
    }

    /// Ends this actor after the current batch; messages still in its mailbox are dropped.
    pub fn stop(&mut self) {
        self.context.stop();
    }
}

/// Starts `actor` on the current arbiter, registered as `name` (a subject token).
///
/// # Panics
/// Outside an arbiter.
pub fn spawn<A: Actor>(post: &Post, name: &str, actor: A) -> Address<A::Message> {
    spawn_at(post, name, |_| actor)
}

/// Like [`spawn`], for an actor that needs to know its own address.
pub fn spawn_at<A: Actor>(
    post: &Post,
    name: &str,
    make: impl FnOnce(&Address<A::Message>) -> A,
) -> Address<A::Message> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let address = post.register(name, sender);
    let actor = make(&address);
    let shell = Shell { actor, address: address.clone(), name: name.to_owned(), broken: false };
    let batches = futures::StreamExt::ready_chunks(UnboundedReceiverStream::new(receiver), BATCH_MESSAGES_MAX);
    <Shell<A> as actix::Actor>::create(move |context| {
        context.add_stream(batches.map(Batch));
        shell
    });
    address
}

/// A mailbox under `name` for who is no actor: messages are read from the receiver.
pub fn mailbox<M: Wire>(post: &Post, name: &str) -> (Address<M>, mpsc::UnboundedReceiver<M>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (post.register(name, sender), receiver)
}

/// The actix side of an actor.
struct Shell<A: Actor> {
    actor: A,
    address: Address<A::Message>,
    name: String,
    broken: bool,
}

struct Batch<M>(Vec<M>);

impl<A: Actor> Shell<A> {
    fn receive(&mut self, messages: impl IntoIterator<Item = A::Message>, context: &mut actix::Context<Self>) {
        self.guarded(context, |actor, scope| {
            for message in messages {
                actor.handle(message, scope);
            }
            actor.flush(scope);
        });
    }

    /// Runs a step of the actor; a panic is reported as fatal and nothing of the actor runs after it.
    fn guarded(&mut self, context: &mut actix::Context<Self>, step: impl FnOnce(&mut A, &mut Scope<'_, A>)) {
        if self.broken {
            return;
        }
        let (actor, address) = (&mut self.actor, &self.address);
        let outcome = catch_unwind(AssertUnwindSafe(|| step(actor, &mut Scope { context, address })));
        if let Err(panic) = outcome {
            self.broken = true;
            let fatal = Fatal { actor: self.name.clone(), reason: crate::panic_text(&*panic) };
            self.address.post.fatal(fatal);
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
        self.address.post.unregister(&self.name);
        if !self.broken {
            self.actor.stopped();
        }
    }
}

impl<A: Actor> StreamHandler<Batch<A::Message>> for Shell<A> {
    fn handle(&mut self, batch: Batch<A::Message>, context: &mut Self::Context) {
        self.receive(batch.0, context);
    }
}
