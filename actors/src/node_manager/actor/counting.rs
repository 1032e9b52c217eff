//! What a node keeps in memory for jobs of any Owner, told to the store: attempts that wait or run, where members of sets are, and what
//! the sessions of the process hold back.

use exobus_store::Told;

/// What was counted last.
pub(super) struct Counted {
    /// Attempts and sets.
    tables: Told,
    sessions: Told,
}

impl Counted {
    pub(super) fn new(told: impl Fn() -> Told) -> Self {
        Self { tables: told(), sessions: told() }
    }

    /// So many bytes each.
    pub(super) fn set(&mut self, tables: u64, sessions: u64) {
        self.tables.set(tables);
        self.sessions.set(sessions);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;
    use tokio::time::sleep;

    use super::super::test_world::{JOB, World};
    use crate::ids::{Attempt, CopyNumber, NodeId, ObjectId, SetId};
    use crate::node_manager::core::TICK;
    use crate::protocol::copies::Whereabouts;
    use crate::protocol::node_manager::NodeMsg;
    use crate::task::{Returns, TaskSpec};

    impl World {
        fn run(&self, number: u128, params: usize) {
            let spec = World::spec(number, Attempt::FIRST, Returns::One);
            self.tell(NodeMsg::Run {
                owner: NodeId::new("here"),
                spec: TaskSpec { params: vec![0; params].into(), ..spec }.into(),
            });
        }

        /// What is counted after a tick.
        async fn bytes(&self) -> u64 {
            sleep(2 * TICK).await;
            self.store.stats().outside_bytes
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_and_sets_are_counted_as_long_as_they_are_there() {
        let test = async {
            let world = World::new().await;
            assert_eq!(world.bytes().await, 0);
            for number in 0..100 {
                world.run(number, 64 << 10);
            }
            // It grows too fast to be counted with ticks only.
            tokio::task::yield_now().await;
            let attempts = world.store.stats().outside_bytes;
            assert!(attempts > 5 << 20, "{attempts}");
            let attempts = world.bytes().await;
            assert!(attempts > 100 * (64 << 10), "{attempts}");
            let objects: Vec<_> = (0..1000).map(|number: u128| ObjectId::from_u128(number << 32)).collect();
            let at = Whereabouts::At(NodeId::new("there"), CopyNumber::FIRST);
            let members = objects.iter().map(|object| (*object, at.clone())).collect();
            let set = SetId::of(&objects);
            let define = NodeMsg::DefineSet { job: JOB, run: 0, set, version: 0, start: 0, total: 1000, members };
            world.tell(define);
            let both = world.bytes().await;
            assert!(both > attempts + 16_000, "{both}");
            world.tell(NodeMsg::EndJob { job: JOB });
            assert_eq!(world.bytes().await, 0);
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_another_node_is_counted_until_nobody_waits_for_it() {
        let test = async {
            let world = World::new().await;
            for _ in 0..100 {
                world.endpoint.send("there", "actor", vec![0; 64 << 10].into()).unwrap();
            }
            let waiting = world.bytes().await;
            assert!(waiting > 100 * (64 << 10), "{waiting}");
            world.endpoint.forget("there");
            assert_eq!(world.bytes().await, 0);
        };
        LocalSet::new().run_until(test).await;
    }
}
