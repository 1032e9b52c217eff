//! What jobs may say when they fail, each beside the faults that explain it. Anything else fails the soak.

use super::super::ground::Run;
use super::faults::Fault::{self, *};

/// A text, and what explains it.
pub(super) struct Text {
    /// The exit code that goes with it.
    code: i32,
    /// Stands in what the client says last.
    pub(super) says: &'static str,
    because: &'static [Fault],
}

/// Faults that take the Scheduler, the host of a job, or the way to them.
const GONE: &[Fault] = &[Node, TwoNodes, AllNodes, NodeStopped, NodeFrozen, Server, Everything];

const TEXTS: &[Text] = &[
    Text { code: 130, says: "interrupted", because: &[Cancelled] },
    Text { code: 3, says: "claimed by job", because: &[SameFolder] },
    // The other one was done before this one began.
    Text { code: 3, says: "directory is not empty (it holds \"_exobus.json\")", because: &[SameFolder] },
    Text { code: 3, says: "No such file", because: &[NoInput] },
    Text { code: 4, says: "cannot be reached", because: GONE },
];

impl Text {
    /// The names of the faults that explain it.
    pub(super) fn faults(&self) -> String {
        let names: Vec<_> = self.because.iter().map(|fault| fault.name()).collect();
        names.join(", ")
    }
}

/// The text that a run ended with, if one of the faults around it explains that.
pub(super) fn explained(run: &Run, faults: &[Fault]) -> Option<&'static Text> {
    TEXTS.iter().find(|text| {
        run.code == Some(text.code)
            && run.stderr.contains(text.says)
            && text.because.iter().any(|fault| faults.contains(fault))
    })
}
