//! Edges (law 1): what went into an edge is what came out of it.
//!
//! ```text
//!   opened --> members join --> released by the program, and no set of it is left --> balanced, and forgotten
//!                   |                                                                      ^
//!                   +--> parts are declared unread, or all of it: it is stopped -----------+
//! ```
//! The program opens an edge and says which objects join it. What is read of it are sets: its first n members, or some that exist by now. The
//! ledger counts each member when it is made for the first time, and each read of an accepted attempt, by part: a part is read so often
//! by the readers of all sets together as was declared, of each member, unless it is declared *unread*. A limit, or a program
//! that has seen enough, *stops* an edge: all that is not read is unread. Tasks that would read it are cancelled then, and so are
//! those that make members which nobody else needs.
//!
//! Where nothing is unread, rows, bytes and hashes of what was sealed are those of what was read. Where something is, they are so for each
//! read by itself, which [`check_read`](OwnerState::check_read) sees to; of all of it the Owner knows how often parts were read, but not
//! what is in each. What is read of a single object, or of a set that is of no edge, is not declared: each read by itself is checked.

use std::collections::BTreeSet;
use std::ops::Range;

use super::referrers::Referrers;
use super::set::Set;
use super::state::Effect;
use super::tables::{ArgEntry, EntrySource, OwnerState};
use super::task::Task;
use crate::arena::Index;
use crate::ids::{EdgeId, ObjectId, TaskId};
use crate::task::{Consumed, EdgeShape, JobError, Left, Output, Parts};

/// An entry of the table of edges.
#[derive(Debug)]
pub(super) struct EdgeEntry {
    pub(super) id: EdgeId,
    shape: EdgeShape,
    /// In the order in which they joined; an object may have been forgotten since.
    members: Vec<Index>,
    /// Those of which parts had been freed when they joined, by this run of the job or by one before, and that no set was made of since.
    late: Vec<Index>,
    /// How many sets are of it, and which.
    sets: u32,
    listed: Referrers,
    /// Whether members have joined another edge, too.
    shared: bool,
    /// Whether the program can let nothing join any more.
    released: bool,
    stopped: bool,
    sealed: Output,
    read: Output,
    /// What readers have left, and have said so.
    left: Output,
    /// How often all parts of a member were read together.
    reads: u64,
    /// How often each part of a member was read by itself; empty: never.
    part_reads: Vec<u64>,
    /// In order, and apart from each other.
    unread: Vec<Range<u32>>,
    /// Parts that were read and that members do not have, as far as is declared.
    beyond: Option<Range<u32>>,
}

impl EdgeEntry {
    fn new(id: EdgeId, shape: EdgeShape) -> Self {
        Self {
            id,
            shape,
            members: Vec::new(),
            late: Vec::new(),
            sets: 0,
            listed: Referrers::default(),
            shared: false,
            released: false,
            stopped: false,
            sealed: Output::default(),
            read: Output::default(),
            left: Output::default(),
            reads: 0,
            part_reads: Vec::new(),
            unread: Vec::new(),
            beyond: None,
        }
    }

    /// What people call it.
    #[cfg(feature = "simulation")]
    pub(super) fn name(&self) -> &str {
        &self.shape.name
    }

    /// A member was made.
    fn seal(&mut self, output: Output) {
        self.sealed.add(output);
    }

    /// An accepted attempt has read parts of so many members.
    fn count(&mut self, parts: Parts, members: usize, consumed: &[Consumed]) {
        for consumed in consumed {
            // Who reads an edge says what it has read.
            if !consumed.unsaid {
                self.read.add(consumed.read);
            }
            if let Left::Unread(left) = consumed.left {
                self.left.add(left);
            }
        }
        match parts {
            Parts::All => self.reads += members as u64,
            Parts::Range(start, end) if start > end || end > self.shape.parts => self.beyond = Some(start..end),
            Parts::Range(start, end) => {
                self.part_reads.resize(self.shape.parts as usize, 0);
                let parts = &mut self.part_reads[start as usize..end as usize];
                parts.iter_mut().for_each(|reads| *reads += members as u64);
            }
        }
    }

    /// Whether nobody else will read parts that one task has read.
    pub(super) fn is_read_once(&self) -> bool {
        self.shape.is_read_once()
    }

    /// Bytes on the heap of its lists: members, those that joined late, reads by part, what is unread, and sets.
    pub(super) fn bytes(&self) -> [usize; 5] {
        let (members, reads) =
            (self.members.capacity() * size_of::<Index>(), self.part_reads.capacity() * size_of::<u64>());
        let late = self.late.capacity() * size_of::<Index>();
        [members, late, reads, self.unread.capacity() * size_of::<Range<u32>>(), self.listed.bytes()]
    }

    /// Nobody reads these parts any more.
    fn unread(&mut self, parts: Range<u32>) {
        if parts.is_empty() {
            return;
        }
        let first = self.unread.partition_point(|before| before.end < parts.start);
        let last = self.unread.partition_point(|other| other.start <= parts.end);
        let all = |all: Range<u32>, other: &Range<u32>| all.start.min(other.start)..all.end.max(other.end);
        let joined = self.unread[first..last].iter().fold(parts, all);
        self.unread.splice(first..last, [joined]);
    }

    fn is_unread(&self, part: u32) -> bool {
        let after = self.unread.partition_point(|parts| parts.end <= part);
        self.stopped || self.unread.get(after).is_some_and(|parts| parts.contains(&part))
    }

    /// Whether what went in is what came out.
    ///
    /// # Errors
    /// The name of the edge and what differs.
    pub(super) fn balance(&self) -> Result<(), JobError> {
        let refuse = |detail: String| Err(JobError::Conservation { edge: self.shape.name.clone(), detail });
        let EdgeShape { parts, readers, .. } = self.shape;
        let each = self.members.len() as u64 * u64::from(readers);
        if let Some(beyond) = &self.beyond {
            return refuse(format!("parts {beyond:?} were read of members that have {parts}"));
        }
        let of_part = |part: u32| self.reads + self.part_reads.get(part as usize).copied().unwrap_or_default();
        let (mut sum, mut wrong, mut complete) = (0, false, true);
        for part in 0..parts {
            let reads = of_part(part);
            sum += reads;
            complete &= reads == each;
            wrong |= reads > each || reads < each && !self.is_unread(part);
        }
        if wrong {
            return refuse(format!("{sum} part reads, expected {}", each * u64::from(parts)));
        }
        let (expected, mut read) = (self.sealed.times(readers), self.read);
        read.add(self.left);
        if complete && read == expected {
            return Ok(());
        }
        if !complete && read.rows <= expected.rows && read.bytes <= expected.bytes {
            return Ok(());
        }
        if expected.rows != read.rows || expected.bytes != read.bytes {
            let Output { rows, bytes, .. } = expected;
            return refuse(format!(
                "sealed {rows} rows in {bytes} bytes, read {} rows in {} bytes",
                read.rows, read.bytes
            ));
        }
        refuse(format!("row hashes differ: sealed {:032x}, read {:032x}", expected.row_hash.0, read.row_hash.0))
    }
}

impl OwnerState {
    /// The program opens an edge.
    pub(super) fn open_edge(&mut self, id: EdgeId, shape: EdgeShape) {
        if !self.by_edge.contains_key(&id) {
            let edge = self.edges.insert(EdgeEntry::new(id, shape));
            self.by_edge.insert(id, edge);
        }
    }

    /// An object joins an edge, whether or not it was made; the program holds a reference to it.
    pub(super) fn join_edge(&mut self, id: EdgeId, object: ObjectId) {
        let (Some(edge), Some(member)) = (self.by_edge.get(&id).copied(), self.object_of(object)) else {
            let error = JobError::program(format!("object {object} was released before it joined an edge"));
            return self.effects.push(Effect::Fail(error));
        };
        self.objects[member].joins(edge);
        if self.objects[member].edges().nth(1).is_some() {
            self.objects[member].edges().for_each(|edge| self.edges[edge].shared = true);
        }
        if self.edges[edge].stopped
            && let Some(task) = self.objects[member].task
        {
            self.tasks[task].is_unread();
        }
        self.edges[edge].members.push(member);
        // Of a copy that an earlier run has left and that has not come back yet the entry of its object says nothing.
        if self.objects[member].copy().is_spent() || self.resumed.is_spent(object) {
            self.edges[edge].late.push(member);
        }
        if self.objects[member].was_made() {
            let output = self.objects[member].output();
            self.edges[edge].seal(output);
        }
    }

    /// Members of which another edge had freed parts when they joined are made again, whole, for who reads them here.
    pub(super) fn make_whole_what_joined_late(&mut self, edge: Index) {
        let mut late = BTreeSet::from_iter(std::mem::take(&mut self.edges[edge].late));
        late.retain(|member| self.objects.get(*member).is_some_and(|object| object.edges().any(|of| of == edge)));
        if !late.is_empty() {
            self.make_whole(late);
        }
    }

    /// An object was made for the first time: the edges that it has joined count it.
    pub(super) fn enter_edges(&mut self, object: Index) {
        let output = self.objects[object].output();
        for edge in self.objects[object].edges() {
            self.edges[edge].seal(output);
        }
    }

    /// The program lets nothing join any more.
    pub(super) fn release_edge(&mut self, id: EdgeId) {
        if let Some(edge) = self.by_edge.get(&id).copied() {
            self.edges[edge].released = true;
            self.forget_edge_if_over(edge);
        }
    }

    /// A set is of this edge.
    pub(super) fn edge_has_set(&mut self, edge: Index, set: Index) {
        let Self { edges, sets, .. } = self;
        edges[edge].sets += 1;
        edges[edge].listed.add(set, |other| sets.get(other).is_some_and(|other| other.edge() == Some(edge)));
    }

    /// The sets of an edge.
    fn sets_of(&self, edge: Index) -> impl Iterator<Item = Index> + '_ {
        let of_edge = move |set: &Index| self.sets.get(*set).is_some_and(|set| set.edge() == Some(edge));
        self.edges[edge].listed.listed().iter().copied().filter(of_edge)
    }

    /// The tasks that read sets of an edge and are not over, each with how.
    fn readers_of(&self, edge: Index) -> impl Iterator<Item = (&Task, Parts)> + '_ {
        let readers = self.sets_of(edge).flat_map(|set| self.sets[set].readers().iter().map(move |task| (set, *task)));
        let unfinished = readers.filter_map(|(set, task)| {
            let task = self.tasks.get(task).filter(|task| !task.state().is_over())?;
            Some((set, task))
        });
        unfinished.flat_map(|(set, task)| {
            let of_set = task.args.iter().filter(move |arg| arg.source == EntrySource::Set(set));
            of_set.map(move |arg| (task, arg.parts))
        })
    }

    /// A set of this edge is forgotten.
    pub(super) fn edge_lost_set(&mut self, edge: Index) {
        self.edges[edge].sets -= 1;
        self.forget_edge_if_over(edge);
    }

    /// Forgets an edge of which nothing more can be read. One that does not balance stays: it may still be stopped, or fails the job.
    fn forget_edge_if_over(&mut self, index: Index) {
        let edge = &self.edges[index];
        if !edge.released || edge.sets > 0 || edge.balance().is_err() {
            return;
        }
        let Some(edge) = self.edges.remove(index) else { return };
        self.by_edge.remove(&edge.id);
        for member in edge.members {
            if let Some(object) = self.objects.get_mut(member) {
                object.leaves(index);
            }
        }
    }

    /// Nobody reads these parts of the members of an edge, but for who has.
    pub(super) fn unread(&mut self, id: EdgeId, parts: Range<u32>) {
        let Some(edge) = self.by_edge.get(&id).copied() else { return };
        self.edges[edge].unread(parts.clone());
        self.cancel_readers(edge, |read| overlap(read, &parts));
        if !self.edges[edge].is_read_once() {
            return;
        }
        // Who has read them, and runs again, needs them. In an earlier run nobody may have, and they were freed.
        let needed = self.is_read_again(edge);
        for set in self.sets_of(edge).collect::<Vec<_>>() {
            match needed {
                true => self.may_have_been_freed(set),
                false => self.free_parts(set, Parts::Range(parts.start, parts.end)),
            }
        }
    }

    /// Nobody reads anything more of an edge, or of any.
    pub(super) fn stop_edges(&mut self, id: Option<EdgeId>) {
        let stopped: Vec<Index> = match id {
            Some(id) => self.by_edge.get(&id).copied().into_iter().collect(),
            None => self.edges.iter().map(|(edge, _)| edge).collect(),
        };
        for edge in &stopped {
            self.edges[*edge].stopped = true;
            for position in 0..self.edges[*edge].members.len() {
                let member = self.edges[*edge].members[position];
                let object = self.objects.get(member).filter(|object| object.edges().any(|of| of == *edge));
                if let Some(task) = object.and_then(|object| object.task) {
                    self.tasks[task].is_unread();
                }
            }
        }
        for edge in &stopped {
            if self.edges.get(*edge).is_some() {
                self.cancel_readers(*edge, |_| true);
            }
        }
        for edge in stopped {
            // With the last of those who would have read it, it may have gone.
            let members = self.edges.get(edge).map_or_else(Vec::new, |edge| edge.members.clone());
            for member in members {
                let maker = self.objects.get(member).filter(|object| object.edges().any(|of| of == edge));
                if let Some(task) = maker.and_then(|object| object.task) {
                    self.end_if_nobody_needs_it(task);
                }
            }
            if self.edges.get(edge).is_some() {
                self.forget_edge_if_over(edge);
            }
        }
    }

    /// Whether a task that has read of an edge is to read it again, since what it made was lost.
    fn is_read_again(&self, edge: Index) -> bool {
        self.readers_of(edge).any(|(task, _)| task.is_replay())
    }

    /// Cancels tasks that have not read what they would of an edge; one that has and runs again goes on.
    fn cancel_readers(&mut self, edge: Index, would: impl Fn(Parts) -> bool) {
        let waiting = self.readers_of(edge).filter(|(task, parts)| !task.is_replay() && would(*parts));
        let readers: Vec<TaskId> = waiting.map(|(task, _)| task.id).collect();
        readers.into_iter().for_each(|task| self.cancel(task));
    }

    /// A task whose outputs nobody refers to, and would have gone through an edge that was stopped, is not wanted any more; nor is one
    /// that runs again for nobody.
    pub(super) fn end_if_nobody_needs_it(&mut self, task: Index) {
        let Some(entry) = self.tasks.get(task).filter(|entry| !entry.state().is_over()) else { return };
        if entry.is_replay() {
            return self.unless_still_wanted(task);
        }
        if !entry.was_unread() {
            return;
        }
        let id = entry.id;
        if !self.entries_of(task).any(|object| self.objects[object].uses.is_referenced()) {
            self.cancel(id);
        }
    }

    /// The edge of a set of these objects, which have joined it.
    ///
    /// # Errors
    /// They have not.
    pub(super) fn edge_with(&self, id: EdgeId, members: &[Index]) -> Result<Index, JobError> {
        let edge = self.by_edge.get(&id).copied();
        let edge = edge.ok_or_else(|| JobError::program(format!("edge {id} was released")))?;
        let stranger = members.iter().find(|member| self.objects[**member].edges().all(|of| of != edge));
        match stranger {
            None => Ok(edge),
            Some(stranger) => {
                let (object, name) = (self.objects[*stranger].id, &self.edges[edge].shape.name);
                Err(JobError::program(format!("object {object} has not joined the edge {name}")))
            }
        }
    }

    /// The edge of a set, where it is of one.
    pub(super) fn edge_of(&self, set: Index) -> Option<&EdgeEntry> {
        self.sets[set].edge().map(|edge| &self.edges[edge])
    }

    /// An accepted attempt has read an argument: the ledger of its edge counts that, once.
    pub(super) fn count_read(&mut self, set: Index, parts: Parts, consumed: &[Consumed]) {
        let Some(edge) = self.sets[set].edge() else { return };
        let members = self.sets[set].members.len();
        self.edges[edge].count(parts, members, consumed);
    }

    /// Whether an accepted attempt has read what it was given, and was given what was sealed.
    ///
    /// # Errors
    /// The edge, or who made it and who has read it, and what differs.
    pub(super) fn check_read(&mut self, task: Index, position: usize, consumed: &[Consumed]) -> Result<(), JobError> {
        let ArgEntry { source, parts } = self.tasks[task].args[position];
        let (mut given, mut missing) = (Output::default(), None);
        for consumed in consumed {
            given.add(consumed.read);
            match consumed.left {
                Left::Nothing => {}
                Left::Unread(left) => given.add(left),
                Left::Missing(left) => missing = Some(left),
            }
        }
        let refuse = |owner: &Self, detail: String| {
            let detail = format!("{} (task {}) {detail}", owner.stage(task), owner.tasks[task].id);
            Err(JobError::Conservation { edge: owner.name_of(source, task), detail })
        };
        if let Some(Output { rows, bytes, row_hash }) = missing {
            return refuse(
                self,
                match (rows, bytes) {
                    (0, 0) => {
                        format!("has read rows whose hashes differ by {:032x} from those that it was given", row_hash.0)
                    }
                    _ => format!("has read {} rows in {} bytes less than it was given", rows as i64, bytes as i64),
                },
            );
        }
        // What is in single parts the Owner does not know; edges sum up what was read of them.
        if consumed.is_empty() || parts != Parts::All {
            return Ok(());
        }
        let sealed = match source {
            EntrySource::Object(object) => self.objects[object].output(),
            EntrySource::Set(set) if self.sets[set].edge().is_some() => return Ok(()),
            EntrySource::Set(set) => {
                let objects = &self.objects;
                self.sets[set].sealed(|member| objects[member].output())
            }
        };
        if given == sealed {
            return Ok(());
        }
        let Output { rows, bytes, row_hash } = sealed;
        refuse(
            self,
            match (rows, bytes) == (given.rows, given.bytes) {
                true => format!("was given row hashes {:032x}, sealed {:032x}", given.row_hash.0, row_hash.0),
                false => format!(
                    "was given {} rows in {} bytes, sealed {rows} rows in {bytes} bytes",
                    given.rows, given.bytes
                ),
            },
        )
    }

    /// What people call what an argument is read from.
    fn name_of(&self, source: EntrySource, reader: Index) -> String {
        let made = |object: Index| self.objects[object].task.map_or("put".into(), |task| self.stage(task));
        let from = match source {
            EntrySource::Object(object) => made(object),
            EntrySource::Set(set) => match self.edge_of(set) {
                Some(edge) => return edge.shape.name.clone(),
                None => self.sets[set].members.first().map_or("nothing".into(), |member| made(*member)),
            },
        };
        format!("{from} -> {}", self.stage(reader))
    }

    /// Parts of all members of a set are freed, wherever they are, and its next version says so; where one of them has joined another edge,
    /// whose readers need them, all stay.
    pub(super) fn free_parts(&mut self, set: Index, parts: Parts) {
        let shared = self.sets[set].edge().is_none_or(|edge| self.edges[edge].shared);
        if shared && self.sets[set].members.iter().any(|member| self.objects[*member].edges().nth(1).is_some()) {
            return self.may_have_been_freed(set);
        }
        for node in self.spend(set) {
            self.define_set(set, node);
            let (node, Set { id, .. }) = (self.nodes[usize::from(node)].id.clone(), &self.sets[set]);
            let version = self.sets[set].version();
            self.effects.push(Effect::FreeParts { node, set: *id, version, parts });
        }
    }

    /// Parts of the members of a set may have been freed by an earlier run of the job, for which nobody needed them any more.
    /// Readers of this run need whole ones: copies that an earlier run has left are done without, whether they are here or come back.
    fn may_have_been_freed(&mut self, set: Index) {
        let run = self.numbering.run;
        if run == 0 {
            return;
        }
        for member in &self.sets[set].members {
            let object = &mut self.objects[*member];
            object.spend_of_run_before(run);
            self.resumed.spend(object.id);
        }
        let members = self.sets[set].members.iter().copied().collect();
        self.make_whole(members);
    }
}

/// Whether who reads `read` reads any of these parts.
fn overlap(read: Parts, parts: &Range<u32>) -> bool {
    match read {
        Parts::All => !parts.is_empty(),
        Parts::Range(start, end) => start < parts.end && parts.start < end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RowHash;

    fn output(bytes: u64, rows: u64, hash: u128) -> Output {
        Output { bytes, rows, row_hash: RowHash(hash) }
    }

    fn reads(read: Output) -> [Consumed; 1] {
        [Consumed { read, ..Consumed::default() }]
    }

    fn edge_of(shape: EdgeShape) -> EdgeEntry {
        let mut edge = EdgeEntry::new(EdgeId::from_u128(1), shape);
        let mut arena = crate::arena::Arena::default();
        edge.members = vec![arena.insert(()), arena.insert(())];
        edge.seal(output(10, 2, u128::MAX));
        edge.seal(output(20, 3, 5));
        edge
    }

    fn shape() -> EdgeShape {
        EdgeShape::new("a -> b", 2)
    }

    fn detail(edge: &EdgeEntry) -> String {
        match edge.balance() {
            Err(JobError::Conservation { edge, detail }) if edge == "a -> b" => detail,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_edge_of_which_everything_is_read_once_balances() {
        let mut edge = edge_of(shape());
        edge.count(Parts::Range(0, 1), 2, &reads(output(12, 2, 1)));
        assert_eq!(detail(&edge), "2 part reads, expected 4");
        edge.count(Parts::Range(1, 2), 2, &reads(output(18, 3, 3)));
        assert_eq!(edge.balance(), Ok(()), "hashes wrap");
        assert!(edge.is_read_once());
    }

    #[test]
    fn every_declared_reader_counts() {
        let mut edge = edge_of(EdgeShape { readers: 2, ..shape() });
        edge.count(Parts::All, 2, &reads(output(30, 5, 4)));
        assert_eq!(detail(&edge), "4 part reads, expected 8");
        edge.count(Parts::All, 2, &reads(output(30, 5, 4)));
        assert_eq!(edge.balance(), Ok(()));
        assert!(!edge.is_read_once());
    }

    #[test]
    fn members_may_be_read_in_different_company() {
        let mut edge = edge_of(EdgeShape { keep: true, ..shape() });
        // The first parts of both together, the second ones each for itself.
        edge.count(Parts::Range(0, 1), 2, &reads(output(12, 2, 1)));
        edge.count(Parts::Range(1, 2), 1, &reads(output(8, 1, 4)));
        assert_eq!(detail(&edge), "3 part reads, expected 4");
        edge.count(Parts::Range(1, 2), 1, &reads(output(10, 2, u128::MAX)));
        assert_eq!(edge.balance(), Ok(()));
    }

    #[test]
    fn a_part_that_is_read_twice_does_not_stand_for_one_that_is_not_read() {
        let mut edge = edge_of(shape());
        edge.count(Parts::Range(0, 1), 2, &reads(output(15, 3, 2)));
        edge.count(Parts::Range(0, 1), 2, &reads(output(15, 2, 2)));
        assert_eq!(detail(&edge), "4 part reads, expected 4");
        edge.stopped = true;
        assert_eq!(detail(&edge), "4 part reads, expected 4", "nor where the rest is unread");
    }

    #[test]
    fn a_lost_row_and_a_changed_row_are_found() {
        for (read, text) in [(output(30, 4, 4), "sealed 5 rows"), (output(30, 5, 9), "row hashes differ")] {
            let mut edge = edge_of(shape());
            edge.count(Parts::All, 2, &reads(read));
            assert!(detail(&edge).contains(text), "{read:?}");
        }
    }

    #[test]
    fn who_says_nothing_of_what_it_has_read_of_an_edge_has_read_nothing() {
        let mut edge = edge_of(shape());
        edge.count(Parts::All, 2, &[Consumed { read: output(30, 5, 4), unsaid: true, ..Consumed::default() }]);
        assert!(detail(&edge).contains("read 0 rows"));
    }

    #[test]
    fn what_a_reader_leaves_and_says_so_is_in_the_ledger() {
        let mut edge = edge_of(shape());
        let left = Left::Unread(output(20, 3, 5));
        edge.count(Parts::All, 2, &[Consumed { read: output(10, 2, u128::MAX), left, ..Consumed::default() }]);
        assert_eq!(edge.balance(), Ok(()));
        let mut edge = edge_of(shape());
        let left = Left::Missing(output(20, 3, 5));
        edge.count(Parts::All, 2, &[Consumed { read: output(10, 2, u128::MAX), left, ..Consumed::default() }]);
        assert!(edge.balance().is_err());
    }

    #[test]
    fn parts_that_are_declared_unread_are_not_awaited_and_others_are() {
        let mut edge = edge_of(shape());
        edge.unread(1..2);
        assert_eq!(detail(&edge), "0 part reads, expected 4");
        edge.count(Parts::Range(0, 1), 2, &reads(output(12, 2, 1)));
        assert_eq!(edge.balance(), Ok(()));
        edge.count(Parts::Range(1, 2), 1, &reads(output(99, 9, 1)));
        assert!(detail(&edge).contains("read 11 rows"), "more than there is");
    }

    #[test]
    fn what_is_declared_unread_piece_by_piece_is_kept_as_few_ranges() {
        let mut edge = edge_of(EdgeShape::new("a -> b", 20));
        for parts in [4..5, 10..12, 6..8, 5..6, 3..3, 0..1, 11..15, 19..20] {
            edge.unread(parts);
        }
        assert_eq!(edge.unread, [0..1, 4..8, 10..15, 19..20]);
        let unread: Vec<u32> = (0..20).filter(|part| edge.is_unread(*part)).collect();
        assert_eq!(unread, [0, 4, 5, 6, 7, 10, 11, 12, 13, 14, 19]);
        edge.unread(0..20);
        assert_eq!((edge.unread.len(), &edge.unread[0]), (1, &(0..20)));
    }

    #[test]
    fn an_edge_that_is_stopped_balances_whatever_was_read_of_it() {
        let mut edge = edge_of(shape());
        edge.stopped = true;
        assert_eq!(edge.balance(), Ok(()));
        edge.count(Parts::Range(1, 2), 1, &reads(output(8, 1, 4)));
        assert_eq!(edge.balance(), Ok(()));
    }

    #[test]
    fn parts_beyond_those_that_are_declared_are_refused() {
        let mut edge = edge_of(shape());
        edge.stopped = true;
        edge.count(Parts::Range(1, 3), 2, &reads(output(8, 1, 4)));
        edge.count(Parts::Range(0, 1), 2, &reads(output(8, 1, 4)));
        assert_eq!(detail(&edge), "parts 1..3 were read of members that have 2");
        let mut edge = edge_of(shape());
        edge.count(Parts::Range(u32::MAX, 1), 2, &[]);
        assert!(edge.balance().is_err());
    }

    #[test]
    fn ranges_of_parts_overlap_where_one_part_is_in_both() {
        let cases = [
            (Parts::All, 0..1, true),
            (Parts::All, 2..2, false),
            (Parts::Range(2, 4), 0..2, false),
            (Parts::Range(2, 4), 3..9, true),
            (Parts::Range(2, 4), 4..9, false),
        ];
        for (read, parts, expected) in cases {
            assert_eq!(overlap(read, &parts), expected, "{read:?} {parts:?}");
        }
    }
}
