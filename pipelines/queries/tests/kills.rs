//! How often bounds hold that the engine shows, where nodes are killed among looks: 300 seeds, a third of which are asked a second time by a cluster that loses a node.
//!
//! What is shown at a look follows from the seed and the table alone: it is the same with a kill, and what the estimators say of the blocks that come first in the order of the seed. So everything that is
//! checked here is the same each time, whenever a node dies.

mod noise;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use exobus_actors::event::{Event, EventKind, EventSink};
use exobus_actors::ids::{JobId, NodeId, TaskId};
use exobus_actors::membership::MembershipOptions;
use exobus_actors::node::{ClusterOptions, Node, NodeOptions};
use exobus_actors::transfer::network::MemoryNetwork;
use exobus_bus::chaos::{Chaos, Direction, Faults};
use exobus_bus::{Bus, Subjects};
use exobus_queries::estimators::{Dual, Estimate, Look, Looks, Population, Sample, Totals, approximate, spread_order};
use exobus_queries::online::{OnlineGroup, online_group};
use exobus_queries::snapshot::Snapshot;
use exobus_tables::aggregates::parse_list;
use exobus_tables::arrow_array::{Int64Array, RecordBatch, StringArray};
use exobus_tables::jobs::Rewrite;
use exobus_tables::jobs::group::{GroupQuery, GroupTable};
use exobus_tables::sinks::{ParquetOptions, ParquetSink};
use exobus_tables::sources::{FixedBudget, MemoryBudget};

use self::noise::Noise;

const SEEDS: u64 = 300;
/// A node is killed at each seed that this divides.
const KILLED_EACH: u64 = 3;
const BLOCKS: u64 = 120;
const BLOCK_ROWS: u64 = 30;
/// What may be wrong at all looks of a seed together.
const ERROR: f64 = 0.05;
/// Somebody stops where the error is as small as this.
const TARGETS: [f64; 4] = [0.2, 0.1, 0.05, 0.02];
/// How many things are said of a group: how many rows it has, the sum of their values, and the mean of these.
const VALUES: usize = 3;
/// How rare it may be that as many bounds are wrong as are.
const CHANCE: f64 = 1e-3;

/// How many rows a block has of a group, and the sum of their values.
type BlockTotals = BTreeMap<&'static str, [f64; 2]>;

/// A table of groups whose totals are about even: one in all blocks alike, one that becomes more frequent, and the rest.
struct Table {
    folder: tempfile::TempDir,
    blocks: Vec<BlockTotals>,
}

impl Table {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(1 << 30));
        let (mut noise, mut blocks) = (Noise(17), Vec::new());
        for file in 0..4 {
            let (mut kinds, mut values) = (Vec::new(), Vec::new());
            for _ in 0..BLOCKS / 4 {
                let (mut totals, base) = (BlockTotals::new(), 200.0 + 400.0 * noise.even());
                let drifting = 0.1 + 0.4 * blocks.len() as f64 / BLOCKS as f64;
                for _ in 0..BLOCK_ROWS {
                    let drawn = noise.even();
                    let kind = match drawn {
                        drawn if drawn < 0.3 => "even",
                        drawn if drawn < 0.3 + drifting => "drifting",
                        _ => "rest",
                    };
                    let value = (base + 400.0 * noise.even()) as i64;
                    let [rows, sum] = totals.entry(kind).or_default();
                    (*rows, *sum) = (*rows + 1.0, *sum + value as f64);
                    kinds.push(kind);
                    values.push(value);
                }
                blocks.push(totals);
            }
            let kinds = Arc::new(StringArray::from_iter_values(kinds));
            let rows =
                RecordBatch::try_from_iter([("kind", kinds as _), ("value", Arc::new(Int64Array::from(values)) as _)]);
            let rows = rows.unwrap();
            let options = ParquetOptions { group_rows: BLOCK_ROWS, ..ParquetOptions::default() };
            let mut sink = ParquetSink::new(Vec::new(), &rows.schema(), &options, &budget).unwrap();
            sink.write(&rows).unwrap();
            fs::write(folder.path().join(format!("in/{file}.parquet")), sink.finish().unwrap().0).unwrap();
        }
        Self { folder, blocks }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn query(&self, seed: u64, output: &str) -> OnlineGroup {
        let aggregates = parse_list("count(*) as rows, sum(value) as sum, avg(value) as mean").unwrap();
        let query = GroupQuery { by: vec!["kind".to_owned()], aggregates, having: None, top: None };
        let table = Rewrite::new(vec![self.path("in")], self.path(output));
        OnlineGroup { seed, error_probability: ERROR, ..OnlineGroup::new(GroupTable { table, query }) }
    }

    /// What a group is in all of the table.
    fn truth(&self, group: &str) -> [f64; VALUES] {
        let of_blocks = self.blocks.iter().filter_map(|block| block.get(group));
        let [rows, sum] = of_blocks.fold([0.0; 2], |all, of| [all[0] + of[0], all[1] + of[1]]);
        [rows, sum, sum / rows]
    }

    /// The coefficient of variation of the totals that blocks have of a group.
    fn variation(&self, group: &str, term: usize) -> f64 {
        let of_blocks: Vec<f64> = self.blocks.iter().map(|block| block.get(group).map_or(0.0, |of| of[term])).collect();
        let mean = of_blocks.iter().sum::<f64>() / BLOCKS as f64;
        (of_blocks.iter().map(|of| (of - mean).powi(2)).sum::<f64>() / BLOCKS as f64).sqrt() / mean
    }

    /// What the estimators say of a group at a look that sees the first blocks of the order of a seed.
    fn estimates(&self, seed: u64, seen: u64, group: &str) -> [Estimate; VALUES] {
        let (mut sample, mut totals) = (Sample::default(), Totals::new(2));
        for block in spread_order(BLOCKS, seed).into_iter().take(seen as usize) {
            sample.add(BLOCK_ROWS as f64);
            if let Some(of_group) = self.blocks[block as usize].get(group) {
                totals.add(BLOCK_ROWS as f64, of_group);
            }
        }
        let population = Population { blocks: BLOCKS, size: (BLOCKS * BLOCK_ROWS) as f64 };
        let look = Look { population, error_probability: Looks::new(BLOCKS).share(ERROR) };
        let of = |value: fn(&[Dual]) -> Dual| approximate::estimate(&look, &sample, &totals, value);
        [of(|of| of[0].clone()), of(|of| of[1].clone()), of(|of| &of[1] / &of[0])]
    }
}

/// Two nodes in this process: one that hosts jobs, and one that may be killed.
struct Cluster {
    bus: Bus,
    subjects: Subjects,
    network: MemoryNetwork,
    spill: tempfile::TempDir,
    host: Option<Node>,
    worker: Option<Worker>,
    /// How many workers there were, and what is left of those that were killed: they do not know that nobody hears them.
    workers: u64,
    dying: Vec<JoinHandle<()>>,
}

struct Worker {
    node: Node,
    bus: Chaos,
}

impl Worker {
    /// Kills it: nobody hears a word of it from now on, so others hold it dead and what it has lost.
    fn kill(self) -> JoinHandle<()> {
        self.bus.cut(Direction::Both, None);
        let stop = move || self.node.stop();
        std::thread::Builder::new().name("stops".to_owned()).spawn(stop).expect("there are threads")
    }
}

/// What was lost with a node.
#[derive(Debug, Default)]
struct Lost {
    /// How often a task was placed or replayed that had been placed before.
    again: u64,
    placed: HashSet<TaskId>,
}

impl Cluster {
    fn new() -> Self {
        let (bus, subjects, network) = (Bus::in_process(), Subjects::new("kills").unwrap(), MemoryNetwork::new());
        let spill = tempfile::tempdir().unwrap();
        let mut cluster =
            Self { bus, subjects, network, spill, host: None, worker: None, workers: 0, dying: Vec::new() };
        cluster.host = Some(Node::start(cluster.options("host", &cluster.bus)).unwrap());
        cluster
    }

    fn options(&self, name: &str, bus: &Bus) -> NodeOptions {
        let mut options = NodeOptions::alone(1, 64 << 20);
        options.name = NodeId::new(name);
        options.store.spill_dirs = vec![self.spill.path().to_owned()];
        options.network = Arc::new(self.network.clone());
        // Whoever is silent is soon held dead.
        let (beat_every, dead_after) = (Duration::from_millis(50), Duration::from_millis(400));
        let membership = MembershipOptions { beat_every, dead_after, ..MembershipOptions::default() };
        options.cluster = Some(ClusterOptions {
            bus: bus.clone(),
            subjects: self.subjects.clone(),
            scheduler: name == "host",
            membership,
            listen: "127.0.0.1:0".parse().unwrap(),
            join_deadline: Duration::from_secs(30),
        });
        options
    }

    /// Starts a worker where there is none, and waits until jobs have two nodes.
    async fn complete(&mut self) {
        if self.worker.is_none() {
            self.workers += 1;
            let bus = Chaos::around(&self.bus, self.workers, Faults::default());
            let node = Node::start(self.options(&format!("worker-{}", self.workers), &bus.bus())).unwrap();
            self.worker = Some(Worker { node, bus });
        }
        let host = self.host.as_ref().unwrap();
        let nodes = async || host.run(JobId::new(), "nodes", None, async |futures| Ok(futures.nodes().len())).await.0;
        while nodes().await.unwrap() != 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// What a query shows, without times. `kill_after`: after so many looks the worker is killed.
    async fn shown(&mut self, query: OnlineGroup, kill_after: Option<usize>) -> (Vec<Snapshot>, Lost) {
        self.complete().await;
        let shown = Arc::new(Mutex::new((Vec::new(), Lost::default())));
        let (seen, output) = (shown.clone(), query.group.table.output.clone());
        let doomed = Mutex::new(kill_after.and_then(|_| self.worker.take()));
        let (killed, dying) = std::sync::mpsc::channel();
        let events = EventSink::new(move |event: Event| {
            let (shown, lost) = &mut *seen.lock().unwrap();
            match event.kind {
                EventKind::Estimated { snapshot } => {
                    shown.push(Snapshot { seconds: 0.0, ..serde_json::from_str(&snapshot).unwrap() });
                    if Some(shown.len()) == kill_after
                        && let Some(worker) = doomed.lock().unwrap().take()
                    {
                        killed.send(worker.kill()).unwrap();
                    }
                }
                EventKind::TaskPlaced { task, .. } => lost.again += u64::from(!lost.placed.insert(task)),
                EventKind::TaskReplayed { .. } => lost.again += 1,
                _ => {}
            }
        });
        let host = self.host.as_ref().unwrap();
        let program = async move |futures| online_group(futures, query).await;
        host.run(JobId::new(), OnlineGroup::NAME, Some(events), program).await.0.unwrap();
        self.dying.extend(dying.try_iter());
        fs::remove_dir_all(output).unwrap();
        std::mem::take(&mut *shown.lock().unwrap())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The Scheduler's node last: the others say farewell to it.
        drop(self.worker.take());
        self.dying.drain(..).for_each(|dying| dying.join().unwrap());
        drop(self.host.take());
    }
}

/// How often bounds held, and how often there were some.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    held: u64,
    of: u64,
}

impl Held {
    fn count(&mut self, held: bool) {
        (self.held, self.of) = (self.held + u64::from(held), self.of + 1);
    }

    fn part(self) -> f64 {
        self.held as f64 / self.of as f64
    }
}

/// With which probability so many of the bounds, or more, are wrong of which each is with this probability.
fn tail(of: u64, wrong: u64, probability: f64) -> f64 {
    let chances = (0..=of).scan((1.0 - probability).powi(of as i32), |chance, wrong| {
        let this = *chance;
        *chance *= (of - wrong) as f64 / (wrong + 1) as f64 * probability / (1.0 - probability);
        Some(this)
    });
    chances.skip(wrong as usize).sum()
}

/// Bounds of groups by group and value: at each look, and where somebody stops at each of the targets.
#[derive(Default)]
struct Coverage {
    at_looks: BTreeMap<(String, usize, u64), Held>,
    at_stops: BTreeMap<(String, usize, usize), Held>,
}

impl Coverage {
    /// Counts what a seed has shown, which is what estimators say.
    fn add(&mut self, table: &Table, seed: u64, shown: &[Snapshot]) {
        let answer = shown.last().unwrap();
        assert!(answer.is_final && answer.groups.len() == 3, "{answer:?}");
        for group in &answer.groups {
            let key = group.key[0].as_str().unwrap();
            let (truth, mut stopped) = (table.truth(key), [[false; TARGETS.len()]; VALUES]);
            for (value, truth) in group.values.iter().zip(truth) {
                assert!((number(&value.estimate) / truth - 1.0).abs() < 1e-12, "{value:?} {truth}");
            }
            for snapshot in shown.iter().filter(|snapshot| !snapshot.is_final) {
                let Some(group) = snapshot.groups.iter().find(|group| group.key[0] == key) else { continue };
                let estimates = table.estimates(seed, snapshot.blocks_seen, key);
                for (value, ((shown, estimate), truth)) in group.values.iter().zip(estimates).zip(truth).enumerate() {
                    assert_eq!(shown.low.is_some(), estimate.bounds.is_ok(), "{shown:?} {estimate:?}");
                    let (Ok(bounds), Some((low, high))) = (estimate.bounds, shown.low.zip(shown.high)) else {
                        continue;
                    };
                    let rounded = 1e-9 * high.abs();
                    let is_that = (low - bounds.low).abs() <= rounded && (high - bounds.high).abs() <= rounded;
                    assert!(is_that && shown.level == Some(bounds.level), "{shown:?} {bounds:?}");
                    let holds = (low..=high).contains(&truth);
                    self.at_looks.entry((key.to_owned(), value, snapshot.blocks_seen)).or_default().count(holds);
                    for (target, error) in TARGETS.iter().enumerate() {
                        if !stopped[value][target] && (high - low) / 2.0 <= error * number(&shown.estimate) {
                            stopped[value][target] = true;
                            self.at_stops.entry((key.to_owned(), value, target)).or_default().count(holds);
                        }
                    }
                }
            }
            // Who does not stop has the answer in the end.
            for (value, stopped) in stopped.iter().enumerate() {
                for target in (0..TARGETS.len()).filter(|target| !stopped[*target]) {
                    self.at_stops.entry((key.to_owned(), value, target)).or_default().count(true);
                }
            }
        }
    }
}

/// A number as it is shown: a sum is an exact decimal, which JSON has as text.
fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).unwrap()
}

#[test]
fn how_rare_it_is_that_as_many_are_wrong_is_that_of_a_binomial() {
    assert!((tail(3, 1, 0.5) - 7.0 / 8.0).abs() < 1e-12 && (tail(3, 3, 0.5) - 1.0 / 8.0).abs() < 1e-12);
    assert!((tail(300, 0, 0.05) - 1.0).abs() < 1e-9 && tail(300, 15, 0.05) > 0.4 && tail(300, 30, 0.05) < CHANCE);
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_hold_as_often_as_they_say_in_a_cluster_that_loses_nodes() {
    let (table, mut cluster) = (Table::new(), Cluster::new());
    for group in ["even", "drifting", "rest"] {
        let variations = [0, 1].map(|term| table.variation(group, term));
        assert!(variations.iter().all(|variation| *variation < 1.0), "{group}: {variations:?}");
    }
    let (mut coverage, mut kills, mut with_losses) = (Coverage::default(), 0, 0);
    for seed in 0..SEEDS {
        let (shown, _) = cluster.shown(table.query(seed, "out"), None).await;
        coverage.add(&table, seed, &shown);
        if seed.is_multiple_of(KILLED_EACH) {
            let kill_after = 1 + (seed / KILLED_EACH) as usize % (shown.len() - 2);
            let (with_kill, lost) = cluster.shown(table.query(seed, "again"), Some(kill_after)).await;
            assert_eq!(with_kill, shown, "seed {seed}, killed after {kill_after} looks");
            kills += 1;
            with_losses += u64::from(lost.again > 0);
        }
    }
    // A node that dies may have had nothing to do.
    assert!(kills == 100 && with_losses >= 50, "{with_losses} of {kills} kills had work done again");
    let looks = Looks::new(BLOCKS);
    let bounded: Vec<u64> = looks.seen().filter(|seen| (40..BLOCKS).contains(seen)).collect();
    assert!(bounded.len() >= 3, "{bounded:?}");
    for ((group, value, seen), held) in &coverage.at_looks {
        let rarity = tail(held.of, held.of - held.held, looks.share(ERROR));
        assert!(rarity >= CHANCE, "{group}, value {value}, {seen} blocks: {held:?} is as rare as {rarity}");
    }
    for seen in bounded {
        let all = coverage.at_looks.iter().filter(|((.., of), held)| *of == seen && held.of == SEEDS);
        assert_eq!(all.count(), 3 * VALUES, "all groups have bounds from 40 blocks on, and not at {seen}");
    }
    for ((group, value, target), held) in &coverage.at_stops {
        assert!(held.of == SEEDS && held.part() >= 1.0 - ERROR, "{group}, value {value}, target {target}: {held:?}");
    }
    let least = |parts: &mut dyn Iterator<Item = f64>| parts.fold(f64::INFINITY, f64::min);
    let at_looks = least(&mut coverage.at_looks.values().filter(|held| held.of == SEEDS).map(|held| held.part()));
    let at_stops = least(&mut coverage.at_stops.values().map(|held| held.part()));
    println!(
        "bounds held at {at_looks} at least, where somebody stops at {at_stops}; {with_losses} kills of {kills} had work done again"
    );
}
