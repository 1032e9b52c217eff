//! Membership: one per node; knows who is alive.
//!
//! | message | from                                | answer         | if repeated                         | if lost                        |
//! |---------|-------------------------------------|----------------|-------------------------------------|--------------------------------|
//! | `Beat`  | Membership of every node, this one too | –           | ignored by incarnation and sequence, with whom it follows | the next one comes in 500 ms   |
//!
//! What only its own process tells it is in [`MembershipEvent`](crate::membership::MembershipEvent), beside the beats.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Incarnation, NodeId};
use crate::protocol::scheduler::Leader;

/// Everything that others can tell Membership.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MembershipMsg {
    /// A node lives. Published on `node.<node>.beat`, outside sessions.
    Beat(Beat),
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Who lives; must be the node in the subject that it came on.
    pub node: NodeId,
    /// Which incarnation.
    pub incarnation: Incarnation,
    /// Rises with every beat of an incarnation, from 1.
    pub sequence: u64,
    /// How busy the node is.
    #[serde(default)]
    pub figures: Figures,
    /// Where the node's Transfer listens, `host:port`; empty where it has none.
    #[serde(default)]
    pub data_address: String,
    /// The last beat: the node is stopping in an orderly way.
    #[serde(default)]
    pub stopping: bool,
    /// The Scheduler that the sender follows; its own node where that is it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// The highest epoch that the sender has heard of, that of `leader` or a later one; zero before any. A Scheduler of a lower one that
    /// hears of it begins a new one, above it: until then the sender follows no other one, and its Owners take no word of a lower one.
    #[serde(default)]
    pub epoch: Epoch,
    /// Incarnations that the sender holds dead and that still beat, at most [`ZOMBIES_MAX`]. Who finds itself here
    /// takes a new incarnation.
    #[serde(default)]
    pub zombies: Vec<(NodeId, Incarnation)>,
}

impl Beat {
    /// A beat that says no more than that its node is there.
    pub fn new(node: NodeId, incarnation: Incarnation, sequence: u64) -> Self {
        Self {
            node,
            incarnation,
            sequence,
            figures: Figures::default(),
            data_address: String::new(),
            stopping: false,
            leader: None,
            epoch: Epoch(0),
            zombies: Vec::new(),
        }
    }
}

/// Largest beat, sealed, in bytes: with room for fields to come. Anybody may send one, and its MAC is of all its bytes.
pub const BEAT_BYTES_MAX: usize = 16 * 1024;

/// Most zombies in one beat; more are told in later ones.
pub const ZOMBIES_MAX: usize = 32;

/// How busy a node is. All zero in the beat of a node that cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Logical processors of the machine.
    pub cpus: u32,
    /// Processor time in use on the machine, in thousandths of one processor.
    pub cpu_used_milli: u32,
    /// Memory of the machine, bytes.
    pub memory_total_bytes: u64,
    /// Memory of the machine that could be had without swapping, bytes.
    pub memory_available_bytes: u64,
    /// Anonymous plus shared memory of the node's process, each once, bytes.
    pub process_bytes: u64,
    /// The largest `process_bytes` that was seen since the process started.
    pub process_peak_bytes: u64,
    /// What the store may use, bytes.
    pub store_budget_bytes: u64,
    /// What the store uses, bytes.
    pub store_used_bytes: u64,
    /// What the store has on disk, bytes.
    pub store_spilled_bytes: u64,
}

/// What this node thinks of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Health {
    /// Heard in time.
    Alive,
    /// Three beats are missing: nothing new is sent there, nothing is taken away.
    Suspected,
    /// Silent for too long: this incarnation is over.
    Dead,
    /// Said goodbye.
    Left,
}

impl Health {
    /// Whether this incarnation of the node is over, as far as is known.
    pub fn is_gone(self) -> bool {
        matches!(self, Self::Dead | Self::Left)
    }
}

/// Whether an incarnation of a node of which `known` is thought `health` is over: declared dead, or followed by a later one. One that said
/// goodbye is not: what it said before may still come.
pub(crate) fn is_over(incarnation: Incarnation, known: Incarnation, health: Health) -> bool {
    incarnation < known || (incarnation == known && health == Health::Dead)
}

/// A node as this one sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// The newest incarnation heard of.
    pub incarnation: Incarnation,
    /// What is thought of it.
    pub health: Health,
    /// What it said of itself last.
    pub figures: Figures,
    /// Where its Transfer listens, `host:port`; empty where it has none.
    pub data_address: String,
    /// Milliseconds since it was heard.
    pub silent_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_beat_stays_far_under_the_limit() {
        let name = "n".repeat(64);
        let zombie = (NodeId::new(&name), Incarnation(u64::MAX));
        let all = u64::MAX;
        let beat = MembershipMsg::Beat(Beat {
            node: NodeId::new(&name),
            incarnation: Incarnation(all),
            sequence: all,
            figures: Figures {
                cpus: u32::MAX,
                cpu_used_milli: u32::MAX,
                memory_total_bytes: all,
                memory_available_bytes: all,
                process_bytes: all,
                process_peak_bytes: all,
                store_budget_bytes: all,
                store_used_bytes: all,
                store_spilled_bytes: all,
            },
            data_address: "x".repeat(64),
            stopping: true,
            leader: Some(Leader { epoch: Epoch(all), node: NodeId::new(&name) }),
            epoch: Epoch(all),
            zombies: vec![zombie; ZOMBIES_MAX],
        });
        let bytes = rmp_serde::to_vec_named(&beat).unwrap();
        assert!(bytes.len() < BEAT_BYTES_MAX / 4, "{} bytes", bytes.len());
        assert_eq!(rmp_serde::from_slice::<MembershipMsg>(&bytes).unwrap(), beat);
    }

    #[test]
    fn a_beat_of_an_older_version_without_the_newer_fields_is_understood() {
        #[derive(Serialize)]
        struct Short {
            node: NodeId,
            incarnation: Incarnation,
            sequence: u64,
        }
        let short = Short { node: NodeId::new("n1"), incarnation: Incarnation(3), sequence: 9 };
        let beat: Beat = rmp_serde::from_slice(&rmp_serde::to_vec_named(&short).unwrap()).unwrap();
        assert_eq!((beat.sequence, beat.stopping, beat.zombies.len()), (9, false, 0));
    }
}
