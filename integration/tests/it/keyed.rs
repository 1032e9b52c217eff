//! Jobs over keyed rows on three nodes of a cluster: they give what one node gives.

use std::path::{Path, PathBuf};

use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_shuffle::Strategy;
use exobus_shuffle::files::MANIFEST;
use exobus_shuffle::jobs::{RandomShuffle, WordCount};
use exobus_shuffle::keyed::{self, KeyedParams, Registered};
use exobus_shuffle::records::{Generator, Mode, RECORD_BYTES};

use crate::strategies::three_nodes;

/// The part files, one behind the other.
async fn run<J: Registered>(node: &Node, folder: &Path, job: J, strategy: Option<Strategy>) -> Vec<u8> {
    let output = folder.join("out");
    let (inputs, partitions) = (vec![folder.join("in")], Some(24));
    let params = KeyedParams { inputs, output: output.clone(), partitions, strategy, partial: false, job };
    let program = async move |futures| keyed::run(futures, params).await;
    let report = node.run(JobId::new(), J::NAME, None, program).await.0.unwrap();
    assert!(report.maps > 3, "{report:?}");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&output).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| !path.ends_with(MANIFEST));
    assert_eq!(paths.len(), 24);
    let bytes = paths.iter().flat_map(|path| std::fs::read(path).unwrap()).collect();
    std::fs::remove_dir_all(&output).unwrap();
    bytes
}

#[tokio::test]
async fn three_nodes_give_the_same_bytes_as_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("in")).unwrap();
    let mut records = vec![0; 150_000 * RECORD_BYTES];
    Generator::new(Mode { ascii: true, ..Mode::default() }).fill(0, &mut records);
    std::fs::write(folder.path().join("in/records"), &records).unwrap();

    let mut options = NodeOptions::alone(2, 256 << 20);
    options.store.spill_dirs = vec![folder.path().join("spill")];
    let one = Node::start(options).unwrap();
    let shuffled = run(&one, folder.path(), RandomShuffle { seed: 5 }, None).await;
    let counted = run(&one, folder.path(), WordCount {}, None).await;
    assert_eq!(shuffled.len(), records.len());
    assert_ne!(shuffled, records);

    let world = three_nodes().await;
    for strategy in Strategy::ALL {
        let node = &world.nodes[0];
        assert!(run(node, folder.path(), RandomShuffle { seed: 5 }, Some(strategy)).await == shuffled);
        assert!(run(node, folder.path(), WordCount {}, Some(strategy)).await == counted, "{}", strategy.name());
    }
}
