//! Lists of copies and objects, as short on the wire as they can be.

use serde::{Deserialize, Serialize};

use crate::ids::{CopyId, CopyNumber, JobId, NodeId, ObjectId};

/// Names of copies as raw bytes: 16 each, big-endian. Whose they are is said beside the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyIds(#[serde(with = "serde_bytes")] Vec<u8>);

impl FromIterator<CopyId> for CopyIds {
    fn from_iter<I: IntoIterator<Item = CopyId>>(copies: I) -> Self {
        Self(copies.into_iter().flat_map(|copy| copy.bits.to_be_bytes()).collect())
    }
}

impl CopyIds {
    /// The copies, of this job, in order; a torn last one is left out.
    pub fn iter(&self, job: JobId) -> impl Iterator<Item = CopyId> + '_ {
        self.0.as_chunks::<16>().0.iter().map(move |bytes| CopyId::new(job.group(), u128::from_be_bytes(*bytes)))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len() / 16
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where an object is, as far as its Owner knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// This copy of it, on this node.
    At(NodeId, CopyNumber),
    /// It has no bytes, so it is nowhere.
    NoBytes,
    /// It has bytes, and they are nowhere just now. Who is told so must not take it for one without.
    Lost,
}

/// Objects in order, and where each is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocatedObjects {
    names: CopyIds,
    /// The nodes that hold them ...
    nodes: Vec<NodeId>,
    /// ... and which of these holds each, or one of the numbers below.
    at: Vec<u16>,
}

const NO_BYTES: u16 = u16::MAX;
const LOST: u16 = u16::MAX - 1;

impl FromIterator<(ObjectId, Whereabouts)> for LocatedObjects {
    fn from_iter<I: IntoIterator<Item = (ObjectId, Whereabouts)>>(objects: I) -> Self {
        let (mut names, mut nodes, mut all) = (Vec::new(), Vec::<NodeId>::new(), Vec::new());
        for (object, at) in objects {
            let (name, at) = match at {
                Whereabouts::At(node, number) => {
                    let at = nodes.iter().position(|known| *known == node).unwrap_or_else(|| {
                        nodes.push(node);
                        nodes.len() - 1
                    });
                    (object.copy(JOB, number), at as u16)
                }
                Whereabouts::NoBytes => (object.bare(JOB), NO_BYTES),
                Whereabouts::Lost => (object.bare(JOB), LOST),
            };
            names.push(name);
            all.push(at);
        }
        Self { names: names.into_iter().collect(), nodes, at: all }
    }
}

/// The names in a list say nothing of their job.
const JOB: JobId = JobId::from_u128(0);

impl LocatedObjects {
    /// The objects in order. One without a number, or at a node that is not in the list, is lost to who hears of it.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, Whereabouts)> + '_ {
        self.names.iter(JOB).zip(&self.at).map(|(name, at)| {
            let (object, number) = ObjectId::of_copy(name);
            let at = match (*at, self.nodes.get(usize::from(*at)), number) {
                (NO_BYTES, ..) => Whereabouts::NoBytes,
                (_, Some(node), Some(number)) => Whereabouts::At(node.clone(), number),
                _ => Whereabouts::Lost,
            };
            (object, at)
        })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_come_back_with_where_they_are() {
        let [a, b] = ["a", "b"].map(NodeId::new);
        let object = |number: u128| ObjectId::from_u128(number << 32);
        let at = |node: &NodeId, number| Whereabouts::At(node.clone(), CopyNumber::new(0, number).unwrap());
        let objects = vec![
            (object(1), at(&b, 7)),
            (object(2), Whereabouts::NoBytes),
            (object(3), at(&a, 1)),
            (object(4), Whereabouts::Lost),
            (object(5), at(&b, 1)),
        ];
        let located: LocatedObjects = objects.iter().cloned().collect();
        assert_eq!(located.nodes, [b, a], "each once");
        let bytes = rmp_serde::to_vec_named(&located).unwrap();
        let located: LocatedObjects = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!((located.len(), located.iter().collect::<Vec<_>>()), (5, objects));
    }

    #[test]
    fn an_object_at_a_node_that_is_not_named_is_lost() {
        let name = ObjectId::from_u128(1 << 32).copy(JOB, CopyNumber::FIRST);
        let located = LocatedObjects { names: [name].into_iter().collect(), nodes: Vec::new(), at: vec![3] };
        assert_eq!(located.iter().collect::<Vec<_>>(), [(ObjectId::from_u128(1 << 32), Whereabouts::Lost)]);
    }
}
