//! What viewers of a page are shown: the newest look, the errors of all, and how the job stands.

use std::sync::{Arc, Mutex, PoisonError};

use exobus_queries::snapshot::Snapshot;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::report::largest_error;

/// Errors of so many looks are shown, the latest; a query has about twenty.
const LOOKS_MAX: usize = 1000;

/// How a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It runs.
    Running,
    /// It is over, and everything was read: what is shown is the answer.
    Complete,
    /// It is over before everything was read, as enough was known.
    Partial,
    /// It failed.
    Failed,
    /// It was ended.
    Cancelled,
    /// It is over, and more is not known of that.
    Over,
}

/// How well the groups were known at a look.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Look {
    #[serde(skip)]
    snapshot: u64,
    /// Since the query began.
    seconds: f64,
    blocks_seen: u64,
    /// The largest of the groups that were shown, as a part of its value; null: there were no bounds.
    error: Option<f64>,
}

/// What is sent to viewers.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// `{"title", "state", "message", "looks": [{"seconds", "blocks_seen", "error"}], "snapshot"}`, a line.
    pub(super) text: Arc<str>,
    /// Nothing follows.
    pub(super) is_last: bool,
}

#[derive(Serialize)]
struct Message<'a> {
    title: &'a str,
    state: State,
    message: Option<&'a str>,
    looks: &'a [Look],
    snapshot: Option<&'a RawValue>,
}

/// Where looks at a job are put for who watches its page. Cheap to clone; nothing here waits for a viewer.
#[derive(Clone, Debug)]
pub struct Board(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    title: String,
    known: Mutex<Known>,
    shown: watch::Sender<Shown>,
}

#[derive(Debug, Default)]
struct Known {
    looks: Vec<Look>,
    /// The newest one as it came, and whether it is the answer.
    newest: Option<(Box<RawValue>, bool)>,
    is_over: bool,
}

impl Known {
    fn shown(&self, title: &str, state: State, message: Option<&str>) -> Shown {
        let snapshot = self.newest.as_ref().map(|(text, _)| &**text);
        let message = Message { title, state, message, looks: &self.looks, snapshot };
        // Numbers and texts have nothing that JSON cannot say.
        let text = serde_json::to_string(&message).unwrap_or_default();
        Shown { text: text.into(), is_last: self.is_over }
    }
}

impl Board {
    /// A board with nothing on it but what runs.
    pub fn new(title: String) -> Self {
        let shown = Known::default().shown(&title, State::Running, None);
        Self(Arc::new(Inner { title, known: Mutex::default(), shown: watch::Sender::new(shown) }))
    }

    /// Shows a look: a [`Snapshot`], as a line of JSON. What is none is not shown.
    pub fn look(&self, snapshot: &str) {
        let (Ok(look), Ok(text)) = (serde_json::from_str::<Snapshot>(snapshot), RawValue::from_string(snapshot.into()))
        else {
            return;
        };
        self.change(|known| {
            // A job that is taken up again looks again.
            known.looks.retain(|before| before.snapshot < look.snapshot);
            if known.looks.len() == LOOKS_MAX {
                known.looks.remove(0);
            }
            let Snapshot { snapshot, seconds, blocks_seen, is_final, .. } = look;
            let error = if is_final { Some(0.0) } else { largest_error(&look) };
            known.looks.push(Look { snapshot, seconds, blocks_seen, error });
            known.newest = Some((text, is_final));
            (State::Running, None)
        });
    }

    /// Says that the job has done what it was asked for, and whether what is shown is the answer.
    pub fn done(&self) {
        self.change(|known| {
            known.is_over = true;
            let state = match known.newest {
                None => State::Over,
                Some((_, true)) => State::Complete,
                Some((_, false)) => State::Partial,
            };
            (state, None)
        });
    }

    /// Says that the job has ended like this, and why.
    pub fn ended(&self, state: State, why: &str) {
        self.change(|known| {
            known.is_over = true;
            (state, Some(why).filter(|why| !why.is_empty()))
        });
    }

    /// What viewers are shown by now, and from now on.
    pub(super) fn watch(&self) -> watch::Receiver<Shown> {
        self.0.shown.subscribe()
    }

    fn change<'a>(&self, change: impl FnOnce(&mut Known) -> (State, Option<&'a str>)) {
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        // What comes after the end belongs to nothing that is shown.
        if known.is_over {
            return;
        }
        let (state, message) = change(&mut known);
        self.0.shown.send_replace(known.shown(&self.0.title, state, message));
    }
}
