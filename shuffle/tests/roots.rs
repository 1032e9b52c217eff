//! A sort and a shuffle on a node that keeps jobs to some folders: it works there, and touches nothing else.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::registry::Roots;
use exobus_actors::tenants::Tenants;
use exobus_shuffle::files::generate_dir;
use exobus_shuffle::jobs::RandomShuffle;
use exobus_shuffle::jobs::sort::{CutsFrom, SortParams, sort};
use exobus_shuffle::keyed::{self, KeyedParams};
use exobus_shuffle::records::Mode;

const RECORDS: u64 = 10_000;

struct World {
    folder: tempfile::TempDir,
    node: Node,
}

impl World {
    /// `allowed/` is the only root, `secret/` is beside it; each has records in `in/`.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["allowed", "secret"] {
            generate_dir(&folder.path().join(name).join("in"), Mode::default(), 0, RECORDS, 2, 1).unwrap();
        }
        let mut options = NodeOptions::alone(1, 256 << 20);
        options.tenants = Tenants::one(Roots::open(&[folder.path().join("allowed")]).unwrap());
        options.store.spill_dirs = vec![folder.path().join("spill")];
        Self { node: Node::start(options).unwrap(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sorts `input` to `output`, both relative to the folder; how many records, or the error.
    fn sort(&self, input: &str, output: &str) -> Result<u64, String> {
        let (inputs, output) = (vec![self.path(input)], self.path(output));
        let params =
            SortParams { inputs, output, partitions: None, strategy: None, cuts: CutsFrom::default(), partial: false };
        let program = async move |futures| sort(futures, params).await;
        let (report, _) = futures::executor::block_on(self.node.run(JobId::new(), "sort", None, program));
        report.map(|report| report.rows).map_err(|error| error.to_string())
    }

    /// The same with a job over keyed rows.
    fn shuffle(&self, input: &str, output: &str) -> Result<u64, String> {
        let (inputs, output) = (vec![self.path(input)], self.path(output));
        let params = KeyedParams {
            inputs,
            output,
            partitions: None,
            strategy: None,
            partial: false,
            job: RandomShuffle { seed: 1 },
        };
        let program = async move |futures| keyed::run(futures, params).await;
        let (report, _) = futures::executor::block_on(self.node.run(JobId::new(), "random_shuffle", None, program));
        report.map(|report| report.keys).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn refuses(&self, input: &str, output: &str) {
        for error in [self.sort(input, output).unwrap_err(), self.shuffle(input, output).unwrap_err()] {
            assert!(error.contains("jobs may use files below"), "{error}");
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_sort_below_the_roots_works() {
    let world = World::new();
    assert_eq!(world.sort("allowed/in", "allowed/new/out"), Ok(RECORDS));
    assert_eq!(world.sort("allowed/new/../in", "allowed/other"), Ok(RECORDS));
    assert_eq!(world.shuffle("allowed/in", "allowed/shuffled"), Ok(RECORDS));
}

#[test]
fn input_from_elsewhere_is_refused_by_whatever_name() {
    let world = World::new();
    world.refuses("secret/in", "allowed/out");
    world.refuses("allowed/../secret/in", "allowed/out");
    symlink(world.path("secret/in"), world.path("allowed/link")).unwrap();
    world.refuses("allowed/link", "allowed/out");
    // A folder that is allowed, and in it a file that is not.
    symlink("../../secret/in/part-00000", world.path("allowed/in/part-00002")).unwrap();
    world.refuses("allowed/in", "allowed/out");
    assert!(!world.path("allowed/out").exists(), "nothing is begun before all is known to be allowed");
}

#[test]
fn output_to_elsewhere_is_refused_and_nothing_is_made_there() {
    let world = World::new();
    world.refuses("allowed/in", "secret/out");
    world.refuses("allowed/in", "allowed/../secret/out");
    symlink("../secret", world.path("allowed/up")).unwrap();
    world.refuses("allowed/in", "allowed/up/out");
    symlink("../secret/out", world.path("allowed/dangling")).unwrap();
    world.refuses("allowed/in", "allowed/dangling");
    assert_eq!(names(&world.path("secret")), ["in"]);
}
