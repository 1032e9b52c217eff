//! The log of what a program learned and that could have been different (law 3).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::ids::{NodeId, ObjectId};
use crate::joblog::{Choice, NodeShape};
use crate::words::Word;

/// The log: first what an earlier run learned is given again, then what is new is appended.
///
/// Most choices are given in the order in which they were made, so a program makes them in one place. Where an object is
/// may be asked by several at a time: each gets what was answered for its object; so may several computations be under way, and somebody who listens is told words while others wait. Which nodes there are is the
/// same all along.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    nodes: Option<Vec<NodeShape>>,
    /// Whether this run's log has them.
    nodes_told: bool,
    located: BTreeMap<ObjectId, VecDeque<Vec<NodeId>>>,
    computed: BTreeMap<u64, Result<Bytes, u64>>,
    /// What each listener was told, and how far the program was then.
    told: BTreeMap<u64, VecDeque<(Word, u64)>>,
    replay: VecDeque<Choice>,
    /// What is ready in `replay`, sooner or later.
    ready: BTreeSet<ObjectId>,
    log: Vec<Choice>,
}

impl Choices {
    /// A log that gives the choices of an earlier run again.
    pub fn replaying(choices: Vec<Choice>) -> Self {
        let mut replaying = Self::default();
        for choice in choices {
            match choice {
                Choice::Nodes(nodes) => replaying.nodes = Some(nodes),
                Choice::Located(object, nodes) => replaying.located.entry(object).or_default().push_back(nodes),
                Choice::Computed(number, noted) => drop(replaying.computed.insert(number, noted)),
                Choice::Told(listener, word, at) => {
                    replaying.told.entry(listener).or_default().push_back((word, at));
                }
                choice => {
                    if let Choice::Ready(objects) = &choice {
                        replaying.ready.extend(objects);
                    }
                    replaying.replay.push_back(choice);
                }
            }
        }
        replaying
    }

    /// Whether an earlier run was told, sooner or later, that an object was there.
    pub fn was_ready(&self, object: ObjectId) -> bool {
        self.ready.contains(&object)
    }

    /// The next choice of the earlier run; `None` once the program is live. It is appended to this run's log as well.
    pub fn replayed(&mut self) -> Option<Choice> {
        let choice = self.replay.pop_front()?;
        self.log.push(choice.clone());
        Some(choice)
    }

    /// Where an object was when that was asked in the earlier run, if it was.
    pub fn located(&mut self, object: ObjectId) -> Option<Vec<NodeId>> {
        let nodes = self.located.get_mut(&object)?.pop_front()?;
        self.log.push(Choice::Located(object, nodes.clone()));
        Some(nodes)
    }

    /// What came of a computation of the earlier run, if that is known.
    pub fn computed(&mut self, number: u64) -> Option<Result<Bytes, u64>> {
        let noted = self.computed.remove(&number)?;
        self.log.push(Choice::Computed(number, noted.clone()));
        Some(noted)
    }

    /// What a listener was told next in the earlier run, if it was told anything more.
    pub fn told(&mut self, listener: u64) -> Option<(Word, u64)> {
        let (word, at) = self.told.get_mut(&listener)?.pop_front()?;
        self.log.push(Choice::Told(listener, word, at));
        Some((word, at))
    }

    /// The nodes that there were in the earlier run, if that was asked.
    pub fn nodes(&mut self) -> Option<Vec<NodeShape>> {
        let nodes = self.nodes.clone()?;
        if !std::mem::replace(&mut self.nodes_told, true) {
            self.log.push(Choice::Nodes(nodes.clone()));
        }
        Some(nodes)
    }

    /// Appends something new.
    ///
    /// # Panics
    /// While choices of the earlier run are left that are made in order: the program is not deterministic.
    pub fn append(&mut self, choice: Choice) {
        match &choice {
            Choice::Nodes(nodes) => (self.nodes, self.nodes_told) = (Some(nodes.clone()), true),
            Choice::Located(..) | Choice::Computed(..) | Choice::Told(..) => {}
            _ => {
                let left = self.replay.front();
                assert!(left.is_none(), "the program asked for {choice:?} where the log has {left:?}");
            }
        }
        self.log.push(choice);
    }

    /// Everything that this run has learned so far.
    pub fn log(&self) -> &[Choice] {
        &self.log
    }
}
