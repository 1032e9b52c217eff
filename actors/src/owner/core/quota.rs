//! What the tenant of a job lets it use, and how much of that it has.
//!
//! An object counts from when it is made until all of it is freed, wherever its bytes are. Adding up what all objects have costs a look at each: between
//! two such sums what was made since is added to the last one, which is never less than what there is.

use super::state::Effect;
use super::tables::OwnerState;
use crate::jobs::quotas::Quotas;
use crate::spec::units::size;
use crate::task::JobError;

/// After a sum another one is taken when this part of the quota was made since.
const SUM_AGAIN: u64 = 64;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct QuotaUse {
    quotas: Quotas,
    /// The last sum.
    summed_bytes: u64,
    /// What was made since.
    since_bytes: u64,
    written_bytes: u64,
}

impl OwnerState {
    /// What the job may use from now on.
    pub(super) fn may_use(&mut self, quotas: Quotas) {
        self.quota.quotas = quotas;
    }

    /// An object of so many bytes was made.
    pub(super) fn has_stored(&mut self, bytes: u64) {
        let Some(most) = self.quota.quotas.job_stored_bytes else { return };
        self.quota.since_bytes += bytes;
        let QuotaUse { summed_bytes, since_bytes, .. } = self.quota;
        if summed_bytes + since_bytes <= most || since_bytes < most / SUM_AGAIN {
            return;
        }
        let stored = self.stored_bytes();
        (self.quota.summed_bytes, self.quota.since_bytes) = (stored, 0);
        if stored > most {
            self.is_beyond(format!(
                "has {} of intermediate data, and jobs of its tenant may have {}",
                size(stored),
                size(most)
            ));
        }
    }

    /// A task that is done has written so many bytes of files.
    pub(super) fn has_written(&mut self, bytes: u64) {
        let Some(most) = self.quota.quotas.job_output_bytes else { return };
        self.quota.written_bytes += bytes;
        let written = self.quota.written_bytes;
        if bytes > 0 && written > most {
            self.is_beyond(format!(
                "has written {} of files, and jobs of its tenant may write {}",
                size(written),
                size(most)
            ));
        }
    }

    /// Bytes of all objects of which something is there.
    fn stored_bytes(&self) -> u64 {
        let here = self.objects.iter().filter(|(_, object)| object.is_here());
        here.map(|(_, object)| object.output().bytes).sum()
    }

    fn is_beyond(&mut self, what: String) {
        if self.committed {
            // What is published stays.
            return;
        }
        self.effects.push(Effect::Fail(JobError::Quota { what }));
    }
}

#[cfg(test)]
mod tests {
    use super::super::world_tests::{World, output};
    use super::*;

    fn world(quotas: Quotas) -> World {
        let mut world = World::new(&[("a", 4)]);
        world.owner.may_use(quotas);
        world
    }

    fn why(world: &World) -> Option<String> {
        world.failed.as_ref().map(|error| {
            assert_eq!(error.code(), "quota");
            error.to_string()
        })
    }

    #[test]
    fn what_was_freed_counts_no_more_and_a_job_that_has_too_much_fails_in_words() {
        let mut world = world(Quotas { job_stored_bytes: Some(10 << 20), ..Quotas::default() });
        let made = |world: &mut World, name: &str| {
            let task = world.submit(name, &[]);
            world.settle();
            world.complete_with(task, &[output(4 << 20, 1)], &[]);
            world.settle();
            task
        };
        for round in 0..10 {
            let task = made(&mut world, &format!("freed {round}"));
            world.release(task);
            world.settle();
        }
        assert_eq!(why(&world), None, "4 MiB at a time");
        made(&mut world, "one");
        made(&mut world, "two");
        assert_eq!(why(&world), None, "8 of 10 MiB");
        made(&mut world, "three");
        assert_eq!(
            why(&world).unwrap(),
            "the job has 12.0 MiB of intermediate data, and jobs of its tenant may have 10.0 MiB"
        );
    }

    #[test]
    fn a_job_that_has_written_too_much_fails_in_words() {
        let mut world = world(Quotas { job_output_bytes: Some(1 << 20), ..Quotas::default() });
        let wrote = |world: &mut World, bytes| {
            world.owner.has_written(bytes);
            world.settle();
        };
        wrote(&mut world, 1 << 20);
        assert_eq!(why(&world), None);
        wrote(&mut world, 1 << 10);
        assert_eq!(
            why(&world).unwrap(),
            "the job has written 1.0 MiB of files, and jobs of its tenant may write 1.0 MiB"
        );
    }
}
