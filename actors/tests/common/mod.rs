//! What several test binaries need.

use std::sync::Arc;

use exobus_actors::event::{Event, EventSink};
use exobus_actors::futures::Futures;
use exobus_actors::node::Node;
use exobus_actors::protocol::host::JobEnd;
use exobus_actors::task::JobError;
use parking_lot::Mutex;

/// Runs a program on a node; also returns how its job ended and its events.
pub fn run_on<T, P>(node: &Node, program: P) -> (Result<T, JobError>, JobEnd, Vec<Event>)
where
    P: AsyncFnOnce(Futures) -> Result<T, JobError> + Send + 'static,
    T: Send + 'static,
{
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let events = events.clone();
        EventSink::new(move |event| events.lock().push(event))
    };
    let (result, end) = futures::executor::block_on(node.run(node.new_job(), "test", Some(sink), program));
    let events = std::mem::take(&mut *events.lock());
    (result, end, events)
}
