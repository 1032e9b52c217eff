//! What nodes count for a job: from the first word of each node on, over the incarnations of its process.

use std::collections::BTreeMap;

use crate::event::NodeFigures;
use crate::ids::NodeId;

/// Figures of the nodes that work for a job.
#[derive(Debug, Default)]
pub(super) struct JobFigures(BTreeMap<NodeId, Counted>);

#[derive(Debug, Default)]
struct Counted {
    /// What this incarnation of the node had counted when the job came to it.
    first: NodeFigures,
    last: NodeFigures,
    /// What earlier incarnations counted for the job.
    before: NodeFigures,
}

impl Counted {
    fn of_job(&self) -> NodeFigures {
        self.last.since(&self.first).after(&self.before)
    }
}

impl JobFigures {
    /// A node says what it has counted since its process started; returns what of it is the job's.
    pub(super) fn said(&mut self, node: &NodeId, figures: NodeFigures) -> NodeFigures {
        let known = self.0.contains_key(node);
        let counted = self.0.entry(node.clone()).or_default();
        if !known {
            counted.first = figures;
        } else if figures.control_messages < counted.last.control_messages {
            // It sends at least its figures, so this counter rises as long as the process lives: a new one.
            counted.before = counted.of_job();
            counted.first = NodeFigures::default();
        }
        counted.last = figures;
        counted.of_job()
    }

    /// What all of them counted.
    pub(super) fn into_nodes(self) -> BTreeMap<NodeId, NodeFigures> {
        self.0.into_iter().map(|(node, counted)| (node, counted.of_job())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(spilled_bytes: u64, control_messages: u64, used_bytes: u64) -> NodeFigures {
        let peak_memory_bytes = spilled_bytes;
        NodeFigures { spilled_bytes, control_messages, used_bytes, peak_memory_bytes, ..NodeFigures::default() }
    }

    #[test]
    fn what_a_node_did_before_the_job_is_not_the_jobs() {
        let (mut all, node) = (JobFigures::default(), NodeId::new("n"));
        let first = all.said(&node, figures(500, 100, 7));
        assert_eq!((first.spilled_bytes, first.control_messages, first.used_bytes), (0, 0, 7));
        let later = all.said(&node, figures(800, 120, 9));
        assert_eq!((later.spilled_bytes, later.control_messages, later.used_bytes), (300, 20, 9));
        assert_eq!(later.peak_memory_bytes, 800, "a peak is the process's");
        assert_eq!(all.into_nodes()[&node], later);
    }

    #[test]
    fn a_node_that_starts_again_counts_on() {
        let (mut all, node) = (JobFigures::default(), NodeId::new("n"));
        all.said(&node, figures(500, 100, 7));
        all.said(&node, figures(800, 120, 9));
        let again = all.said(&node, figures(10, 5, 1));
        assert_eq!((again.spilled_bytes, again.control_messages, again.used_bytes), (310, 25, 1));
        assert_eq!(again.peak_memory_bytes, 800);
        let more = all.said(&node, figures(30, 9, 1));
        assert_eq!((more.spilled_bytes, more.control_messages), (330, 29));
    }
}
