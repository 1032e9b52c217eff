//! Edges, as programs use them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use super::api::{Futures, encode};
use super::call::ProgramCall;
use super::reference::{ObjectRef, ObjectSet};
use crate::ids::{EdgeId, ObjectId, SetId};
use crate::task::{EdgeShape, JobError};

/// What goes from the tasks that make objects to those that read them, part by part, with a ledger: the job fails unless rows, bytes and
/// hashes that come out are those that went in (law 1).
///
/// Objects *join* an edge, before or after they are made. Tasks read it by sets: the [first](Self::first) n members, some of them as they
/// come ([`of`](Self::of)), or all of them when it is [closed](Self::close). Each part of each member is read by as many tasks as was
/// declared, unless it is declared [unread](Self::unread), or the edge is [stopped](Self::stop): a program that has seen enough does
/// that, and its job ends well. An edge that is dropped is closed, not stopped.
///
/// The edge refers to its members until it is closed. Those that are read once ([`EdgeShape::readers`] is 1, and they are not kept) it
/// lets go as a set of [some](Self::of) is made of them, which holds them from then on.
pub struct Edge {
    futures: Futures,
    id: EdgeId,
    shape: EdgeShape,
    members: RefCell<Members>,
}

#[derive(Default)]
struct Members {
    /// All that have joined, in order.
    ids: Vec<ObjectId>,
    held: BTreeMap<ObjectId, ObjectRef>,
}

impl Futures {
    /// Opens an edge. Edges that are declared alike are told apart by the order in which the program opens them: branches of a program that go
    /// on at the same time, and in another order when the job is taken up again, give their edges different names. Where they do not,
    /// the result is right all the same, since the members of what is read are in the identity of who reads it; but tasks of the run before are
    /// not known again, and are done once more, or the program ends with an error that says that it is not deterministic.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn edge(&self, shape: EdgeShape) -> Result<Edge, JobError> {
        let declaration = encode(&shape)?;
        let id = EdgeId::of(&declaration, self.next_ordinal(&declaration));
        self.call(ProgramCall::OpenEdge { edge: id, shape: shape.clone() })?;
        Ok(Edge { futures: self.clone(), id, shape, members: RefCell::default() })
    }

    /// An edge of these objects, closed: a set of all of them.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn closed_edge(&self, shape: EdgeShape, objects: &[ObjectRef]) -> Result<ObjectSet, JobError> {
        let edge = self.edge(shape)?;
        edge.join_all(objects)?;
        edge.close()
    }

    /// Stops all edges of the job, as [`Edge::stop`] does one. What the program still refers to of them stays until it lets go.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn stop_edges(&self) -> Result<(), JobError> {
        self.call(ProgramCall::StopEdges(None))
    }
}

impl Edge {
    /// An object joins, as the last member so far, whether or not it was made.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn join(&self, object: &ObjectRef) -> Result<(), JobError> {
        self.futures.call(ProgramCall::JoinEdge { edge: self.id, object: object.id() })?;
        let mut members = self.members.borrow_mut();
        members.ids.push(object.id());
        members.held.insert(object.id(), object.clone());
        Ok(())
    }

    /// Objects join, in this order.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn join_all(&self, objects: &[ObjectRef]) -> Result<(), JobError> {
        objects.iter().try_for_each(|object| self.join(object))
    }

    /// How many members have joined.
    pub fn len(&self) -> usize {
        self.members.borrow().ids.len()
    }

    /// Whether nothing has joined.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The members that it refers to, in order.
    pub fn members(&self) -> Vec<ObjectRef> {
        let members = self.members.borrow();
        members.ids.iter().filter_map(|id| members.held.get(id)).cloned().collect()
    }

    /// The first `members` of it, as tasks read them, whatever joins later.
    ///
    /// # Errors
    /// So many have not joined, or the runtime has ended.
    pub fn first(&self, members: usize) -> Result<ObjectSet, JobError> {
        let joined = &self.members.borrow().ids;
        let Some(first) = joined.get(..members) else {
            let (name, joined) = (&self.shape.name, joined.len());
            return Err(JobError::program(format!(
                "{joined} objects have joined the edge {name}, {members} were asked for"
            )));
        };
        self.set_of(first.to_vec())
    }

    fn set_of(&self, members: Vec<ObjectId>) -> Result<ObjectSet, JobError> {
        self.futures.make_set(SetId::of_members(self.id, &members), members, Some(self.id))
    }

    /// These members of it, as tasks read them: for programs that read members as they come.
    ///
    /// # Errors
    /// The runtime has ended. One that has not joined fails the job.
    pub fn of(&self, members: &[ObjectRef]) -> Result<ObjectSet, JobError> {
        let ids: Vec<_> = members.iter().map(ObjectRef::id).collect();
        let set = self.set_of(ids)?;
        if self.shape.is_read_once() {
            let held = &mut self.members.borrow_mut().held;
            members.iter().for_each(|member| drop(held.remove(&member.id())));
        }
        Ok(set)
    }

    /// Nothing joins any more; all members, as tasks read them.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn close(self) -> Result<ObjectSet, JobError> {
        self.first(self.len())
    }

    /// Nobody will read these parts of any member, but for who has: they are done without, and tasks that would read them are cancelled.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn unread(&self, parts: Range<u32>) -> Result<(), JobError> {
        self.futures.call(ProgramCall::Unread { edge: self.id, parts })
    }

    /// Nobody will read anything more of it: the program has what it wants. Tasks that would have read it are cancelled, and so are
    /// those whose outputs would have been read through it only. What the program refers to otherwise stays.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn stop(self) -> Result<(), JobError> {
        self.let_go();
        self.futures.call(ProgramCall::StopEdges(Some(self.id)))
    }

    /// Refers to no member any more.
    fn let_go(&self) {
        drop(std::mem::take(&mut self.members.borrow_mut().held));
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.let_go();
        // An Owner that is gone has released everything.
        let _ = self.futures.call(ProgramCall::ReleaseEdge(self.id));
    }
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edge({}, {} members)", self.shape.name, self.len())
    }
}
