//! A node, a job on it, and what came of it.

use std::fs;
use std::path::{Path, PathBuf};

use exobus_actors::futures::Futures;
use exobus_actors::ids::JobId;
use exobus_actors::node::{Node, NodeOptions};
use exobus_actors::protocol::host::JobEnd;
use exobus_actors::task::JobError;
use exobus_shuffle::Strategy;
use exobus_shuffle::files::MANIFEST;
use exobus_shuffle::jobs::sort::{CutsFrom, SortParams, SortReport, sort};
use exobus_shuffle::keyed::{self, KeyedParams, KeyedReport, Registered};

/// As little as two executors can work with: a few megabytes of rows are spilled.
const LITTLE: u64 = 24 << 20;
/// The same for one.
const LEAST: u64 = 12 << 20;

pub struct Ran {
    pub report: KeyedReport,
    /// The part files, one behind the other.
    pub output: Vec<u8>,
    pub spilled_bytes: u64,
}

pub struct Bench {
    pub folder: tempfile::TempDir,
    pub executors: usize,
    pub memory: u64,
    pub partitions: Option<u32>,
}

impl Bench {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), executors: 2, memory: LITTLE, partitions: Some(5) }
    }

    /// With as little as works at all, so that little data is more than that, and as many partitions as are chosen for it.
    pub fn least() -> Self {
        Self { executors: 1, memory: LEAST, partitions: None, ..Self::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    pub async fn run<J: Registered>(
        &self,
        job: J,
        inputs: &[PathBuf],
        strategy: Option<Strategy>,
    ) -> Result<Ran, JobError> {
        let (inputs, output) = (inputs.to_vec(), self.path("out"));
        let params =
            KeyedParams { inputs, output: output.clone(), partitions: self.partitions, strategy, partial: false, job };
        let (report, end) = self.run_program(J::NAME, async move |futures| keyed::run(futures, params).await).await?;
        let files = parts(&output);
        assert_eq!(files.len(), report.partitions as usize);
        let bytes = files.concat();
        assert_eq!(bytes.len() as u64, report.output_bytes);
        fs::remove_dir_all(&output).unwrap();
        let spilled_bytes = end.nodes.values().map(|node| node.spilled_bytes).sum();
        Ok(Ran { report, output: bytes, spilled_bytes })
    }

    pub async fn sort(&self, inputs: &[PathBuf]) -> Result<SortReport, JobError> {
        self.sort_by(inputs, CutsFrom::default()).await
    }

    /// The part files of a sort, one behind the other, too; equal keys are in the order of the input with this strategy.
    pub async fn sort_with_output(&self, inputs: &[PathBuf]) -> Result<(SortReport, Vec<u8>), JobError> {
        let (inputs, output) = (inputs.to_vec(), self.path("out"));
        let params = SortParams {
            inputs,
            output,
            partitions: self.partitions,
            strategy: Some(Strategy::Simple),
            cuts: CutsFrom::default(),
            partial: false,
        };
        let (report, _) = self.run_program("sort", async move |futures| sort(futures, params).await).await?;
        let bytes = parts(&self.path("out")).concat();
        fs::remove_dir_all(self.path("out")).unwrap();
        Ok((report, bytes))
    }

    pub async fn sort_by(&self, inputs: &[PathBuf], cuts: CutsFrom) -> Result<SortReport, JobError> {
        let (inputs, output) = (inputs.to_vec(), self.path("out"));
        let params = SortParams { inputs, output, partitions: self.partitions, strategy: None, cuts, partial: false };
        let (report, _) = self.run_program("sort", async move |futures| sort(futures, params).await).await?;
        fs::remove_dir_all(self.path("out")).unwrap();
        Ok(report)
    }

    /// Runs it on a node of its own. Nothing may be left where blocks are spilled, and of a job that fails nothing at all.
    async fn run_program<R: Send + 'static>(
        &self,
        name: &str,
        program: impl AsyncFnOnce(Futures) -> Result<R, JobError> + Send + 'static,
    ) -> Result<(R, JobEnd), JobError> {
        let mut options = NodeOptions::alone(self.executors, self.memory);
        options.store.spill_dirs = vec![self.path("spill")];
        let node = Node::start(options).unwrap();
        let (result, end) = node.run(JobId::new(), name, None, program).await;
        assert!(node.fatal().is_none(), "{:?}", node.fatal());
        node.stop();
        assert_eq!(spill_files(&self.path("spill")), [""; 0]);
        if let Err(error) = &result {
            assert!(!self.path("out").exists(), "a job that fails leaves nothing: {error}");
        }
        Ok((result?, end))
    }

    /// The error of a job that has to fail.
    pub async fn error<J: Registered>(&self, job: J, inputs: &[PathBuf], strategy: Option<Strategy>) -> String {
        match self.run(job, inputs, strategy).await {
            Ok(ran) => panic!("it went well: {:?}", ran.report),
            Err(error) => error.to_string(),
        }
    }
}

/// What is in a folder and its folders, without empty files and what a node keeps from one life to the next.
fn spill_files(folder: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => left.extend(spill_files(&path)),
            false => left.push(path.display().to_string()),
        }
    }
    left
}

fn parts(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let manifest = paths.iter().position(|path| path.ends_with(MANIFEST)).expect("a folder that is whole says so");
    paths.remove(manifest);
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// The same numbers in every run.
pub fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    })
}

/// Lines of part files without their header, in order.
pub fn sorted_lines(output: &[u8], header: &str) -> Vec<String> {
    let text = std::str::from_utf8(output).unwrap();
    let mut lines: Vec<String> = text.lines().filter(|line| *line != header).map(str::to_owned).collect();
    lines.sort();
    lines
}
