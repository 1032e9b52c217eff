//! The sets that a node was told of, and the arguments of attempts taken apart: which copy of each object is meant, and where it is.
//!
//! An attempt names the version of a set that it means. Where that is not known here, the attempt fails as one whose arguments are lost, and the
//! Owner is asked (`SetUnknown`); where a copy is not there any more, fetching it fails, and the Owner makes it again.

use hashbrown::HashMap;

use crate::ids::{CopyId, CopyNumber, JobId, NodeId, ObjectId, SetId};
use crate::protocol::copies::{LocatedObjects, Whereabouts};
use crate::task::{FailureKind, LocatedArg, LocatedSource, Parts, TaskFailure, TaskSpec};

/// What an attempt or a set has in maps, queues and allocations of its own, about.
pub(super) const ENTRY_BYTES: usize = 256;

/// Which copies of its members a set means: the run of the job that says so, and its count. Compared together.
pub(super) type Version = (u32, u32);

/// The copy that is meant, and where it is. `None`: the object has no bytes and is nowhere, and the name is its bare one.
type Located = (CopyId, Option<NodeId>);

/// One object of an argument.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The copy that is meant; the bare name of an object that has no bytes.
    pub(crate) name: CopyId,
    /// Where it is. `None`: the object has no bytes, and is nowhere.
    pub(crate) at: Option<NodeId>,
    pub(crate) parts: Parts,
}

/// The arguments of an attempt, object by object.
pub(crate) type Arguments = Vec<Vec<Piece>>;

impl Piece {
    /// The copy that is meant, where the object has bytes.
    pub(super) fn copy(&self) -> Option<CopyId> {
        self.at.as_ref().map(|_| self.name)
    }

    /// What is asked for on another node than `here`, and where.
    pub(super) fn elsewhere(&self, here: &NodeId) -> Option<((CopyId, Parts), &NodeId)> {
        let node = self.at.as_ref().filter(|node| *node != here)?;
        Some(((self.name, self.parts), node))
    }
}

/// The members of a set, as far as they have been told.
#[derive(Debug, Default)]
struct Members {
    version: Version,
    members: Vec<Located>,
    total: usize,
    /// One of them that is lost, and is being made again: until this is told anew, nobody can read the set.
    lost: Option<ObjectId>,
}

impl Members {
    /// Whether this version of the set, or a later one, is known, all of it.
    fn is_known(&self, version: Version) -> bool {
        self.version >= version && self.members.len() == self.total
    }
}

/// All sets that a node knows.
#[derive(Debug, Default)]
pub(super) struct Sets(HashMap<(JobId, SetId), Members>);

impl Sets {
    /// The next members of a version of a set; a later version replaces an earlier one. False: a later one is known.
    pub(super) fn define(
        &mut self,
        (job, set): (JobId, SetId),
        version: Version,
        start: u32,
        total: u32,
        members: &LocatedObjects,
    ) -> bool {
        let known = self.0.entry((job, set)).or_default();
        if version < known.version {
            return false;
        }
        if version > known.version || start == 0 {
            *known = Members { version, ..Members::default() };
        }
        // Though its beginning may not have been heard: it is not empty.
        known.total = total as usize;
        if known.members.len() == start as usize {
            for (object, at) in members.iter() {
                known.members.push(match at {
                    Whereabouts::At(node, number) => (object.copy(job, number), Some(node)),
                    Whereabouts::NoBytes => (object.bare(job), None),
                    Whereabouts::Lost => {
                        known.lost = Some(object);
                        (object.bare(job), None)
                    }
                });
            }
        }
        true
    }

    /// The sets that an attempt reads and that are not known in the version that it means, or a later one.
    pub(super) fn unknown(&self, spec: &TaskSpec) -> Vec<SetId> {
        let unknown = spec.args.iter().filter_map(|arg| match arg.source {
            LocatedSource::Set { set, version } => self.known(spec, set, version).is_none().then_some(set),
            LocatedSource::Object { .. } => None,
        });
        unknown.collect()
    }

    fn known(&self, spec: &TaskSpec, set: SetId, version: u32) -> Option<&Members> {
        self.0.get(&(spec.job, set)).filter(|known| known.is_known((spec.attempt.run(), version)))
    }

    /// The arguments of an attempt, object by object.
    ///
    /// # Errors
    /// A set is not known in this version, or a member of it is lost.
    pub(super) fn arguments(&self, spec: &TaskSpec) -> Result<Arguments, TaskFailure> {
        spec.args.iter().map(|arg| self.argument(spec, arg)).collect()
    }

    fn argument(&self, spec: &TaskSpec, arg: &LocatedArg) -> Result<Vec<Piece>, TaskFailure> {
        let parts = arg.parts;
        let (id, version) = match &arg.source {
            LocatedSource::Object { object, at } => {
                let (name, at) = located(spec.job, *object, at);
                return Ok(vec![Piece { name, at, parts }]);
            }
            LocatedSource::Set { set, version } => (set, *version),
        };
        let set = self.known(spec, *id, version).ok_or_else(|| {
            let message = format!("set {id} is not known on this node in version {version}, and was asked for");
            TaskFailure::new(FailureKind::ArgumentLost, message)
        })?;
        if let Some(object) = set.lost {
            let message = format!("object {object} of set {id} is lost, and not made again yet");
            return Err(TaskFailure::new(FailureKind::ArgumentLost, message));
        }
        Ok(set.members.iter().map(|(name, at)| Piece { name: *name, at: at.clone(), parts }).collect())
    }

    /// The copies on `node` that an attempt reads, as far as its sets are known, in whatever version.
    pub(super) fn read_on(&self, node: &NodeId, spec: &TaskSpec) -> Vec<CopyId> {
        let mut copies = Vec::new();
        for arg in &spec.args {
            match &arg.source {
                LocatedSource::Object { object, at } => copies.extend(on(node, &[located(spec.job, *object, at)])),
                LocatedSource::Set { set, .. } => {
                    copies.extend(self.0.get(&(spec.job, *set)).into_iter().flat_map(|set| on(node, &set.members)));
                }
            }
        }
        copies
    }

    /// The copies on `node` that this version of a set means; none where another one is known.
    pub(super) fn meant_on(&self, node: &NodeId, set: (JobId, SetId), version: Version) -> Vec<CopyId> {
        let set = self.0.get(&set).filter(|set| set.version == version);
        set.into_iter().flat_map(|set| on(node, &set.members)).collect()
    }

    /// The sets of a job go.
    pub(super) fn end_job(&mut self, job: JobId) {
        self.0.retain(|(of, _), _| *of != job);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The jobs that have sets here.
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.0.keys().map(|(job, _)| *job)
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.0.values().map(|set| Self::bytes_of(set.members.len())).sum()
    }

    /// Bytes of a set of so many members.
    pub(super) fn bytes_of(members: usize) -> u64 {
        (ENTRY_BYTES + size_of::<((JobId, SetId), Members)>() + members * size_of::<Located>()) as u64
    }
}

/// The copy of an object that is an argument, as an Owner names it.
fn located(job: JobId, object: ObjectId, at: &Option<(NodeId, CopyNumber)>) -> Located {
    match at {
        Some((node, number)) => (object.copy(job, *number), Some(node.clone())),
        None => (object.bare(job), None),
    }
}

fn on(node: &NodeId, located: &[Located]) -> impl Iterator<Item = CopyId> {
    located.iter().filter(move |(_, at)| at.as_ref() == Some(node)).map(|(copy, _)| *copy)
}
