//! `cargo xtask fuzz`: every decoder over inputs that coverage guides.
//!
//! No cargo-fuzz and no nightly toolchain: the passes that count coverage are LLVM's and can be asked for with any
//! compiler, and libFuzzer comes with `libfuzzer-sys`. Inputs that reach something new are kept in `target/fuzz/`, and
//! with `--keep` the smallest set of them that reaches as much goes into the repository.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::{Workspace, run_visibly};

/// What `cargo fuzz --sanitizer none` passes, but for the sanitizer.
const FLAGS: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];
/// Longer inputs reach no more.
const LENGTH_MAX: &str = "16384";
/// What is kept of a target in the repository, bytes: all of them stay below 300 kB.
const KEPT_BYTES_MAX: u64 = 12_000;
/// How many files are kept of a target in the repository.
const KEPT_FILES_MAX: usize = 40;

/// What is asked for.
pub struct Options {
    /// For how long each target runs.
    pub seconds: u64,
    /// How many inputs each gets at most; `None`: as many as there is time for.
    pub runs: Option<u64>,
    /// The target; all of them where there is none.
    pub target: Option<String>,
    /// Whether what was found goes into the kept corpus.
    pub keep: bool,
}

/// Builds the fuzzer and runs targets.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let host = host_triple()?;
    let manifest = workspace.root.join("fuzz/Cargo.toml");
    let folder = workspace.target_dir.join("fuzz");
    // A target that is named keeps the flags away from build scripts and macros.
    let mut build = workspace.cargo(&["build", "--release", "--locked", "--target", &host, "--manifest-path"]);
    build.arg(&manifest);
    build.arg("--target-dir").arg(&folder).env("RUSTFLAGS", FLAGS.join(" ")).env_remove("CARGO_ENCODED_RUSTFLAGS");
    run_visibly(&mut build)?;
    let fuzzer = Fuzzer {
        program: folder.join(&host).join("release/exobus-fuzz"),
        corpus: workspace.root.join("fuzz/corpus"),
        folder,
    };
    let names = target_names(&workspace.root)?;
    let chosen: Vec<_> =
        names.iter().filter(|name| options.target.as_ref().is_none_or(|wanted| wanted == *name)).collect();
    ensure!(!chosen.is_empty(), "no such target; there are {}", names.join(", "));
    let mut wrong = Vec::new();
    for name in chosen {
        match fuzzer.run(name, options)? {
            Ok(figures) => eprintln!("xtask: {name}: {figures}"),
            Err(input) => {
                eprintln!("xtask: {name}: failed, the input is {}", input.display());
                wrong.push(input);
            }
        }
    }
    match wrong.as_slice() {
        [] => Ok(()),
        inputs => bail!("{} targets failed; put their inputs into fuzz/corpus with the mending", inputs.len()),
    }
}

struct Fuzzer {
    program: PathBuf,
    /// In the repository.
    corpus: PathBuf,
    /// What was found, and the program.
    folder: PathBuf,
}

impl Fuzzer {
    /// How many inputs it ran, or the input that was wrong.
    fn run(&self, target: &str, options: &Options) -> Result<Result<String, PathBuf>> {
        let (kept, found) = (self.corpus.join(target), self.folder.join("corpus").join(target));
        let inputs = self.folder.join("inputs").join(target);
        for folder in [&kept, &found, &inputs] {
            fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        let log = self.folder.join(format!("{target}.log"));
        let mut command = self.command(target);
        if let Some(runs) = options.runs {
            command.arg(format!("-runs={runs}"));
        }
        // What writes files is a hundred times slower than the others.
        command.arg(format!("-max_total_time={}", options.seconds));
        command.arg(format!("-max_len={LENGTH_MAX}")).args([
            "-timeout=10",
            "-print_final_stats=1",
            "-rss_limit_mb=2048",
        ]);
        command.arg(format!("-artifact_prefix={}/", inputs.display())).args([&found, &kept]);
        command.env("EXOBUS_FUZZ_SEEDS", &found);
        let before = names(&inputs)?;
        let file = fs::File::create(&log).with_context(|| format!("make {}", log.display()))?;
        let status = command.stdout(Stdio::null()).stderr(file).status().context("run the fuzzer")?;
        let said = fs::read_to_string(&log).unwrap_or_default();
        if !status.success() {
            let new = names(&inputs)?.into_iter().find(|path| !before.contains(path));
            return Ok(Err(new.unwrap_or(log)));
        }
        if options.keep {
            self.keep(target, &found, &kept)?;
        }
        let figure = |name: &str| {
            let line = said.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.rsplit(' ').next().unwrap_or_default().to_owned()
        };
        let (inputs, rate) = (figure("stat::number_of_executed_units:"), figure("stat::average_exec_per_sec:"));
        Ok(Ok(format!("{inputs} inputs, {rate} a second, {} kept", names(&kept)?.len())))
    }

    /// The smallest set of inputs that reaches as much, as far as it is small enough.
    fn keep(&self, target: &str, found: &Path, kept: &Path) -> Result<()> {
        let smallest = self.folder.join("smallest").join(target);
        let _ = fs::remove_dir_all(&smallest);
        fs::create_dir_all(&smallest)?;
        let mut command = self.command(target);
        command.args(["-merge=1", "-timeout=10"]).args([&smallest, &kept.to_owned(), &found.to_owned()]);
        ensure!(
            command.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success(),
            "merging the corpus of {target}"
        );
        let mut inputs = Vec::new();
        for path in names(&smallest)? {
            inputs.push((fs::metadata(&path)?.len(), path));
        }
        inputs.sort();
        let (mut bytes, mut files) = (0, 0);
        for path in names(kept)? {
            bytes += fs::metadata(path)?.len();
            files += 1;
        }
        // Of all lengths some: the short ones alone are those that were refused early.
        let every = inputs.len().div_ceil(KEPT_FILES_MAX).max(1);
        for (length, path) in inputs.into_iter().step_by(every) {
            let to = kept.join(path.file_name().unwrap_or_default());
            if bytes + length > KEPT_BYTES_MAX || files == KEPT_FILES_MAX || to.exists() {
                continue;
            }
            (bytes, files) = (bytes + length, files + 1);
            fs::copy(&path, &to).with_context(|| format!("copy {}", path.display()))?;
        }
        Ok(())
    }

    fn command(&self, target: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env("EXOBUS_FUZZ_TARGET", target).env_remove("RUST_BACKTRACE");
        command
    }
}

/// The names in the list that the test of the targets has: it holds the list to what there is.
fn target_names(root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join("tests/it/fuzz.rs")).context("read tests/it/fuzz.rs")?;
    let (_, list) = text.rsplit_once("targets! {").context("find the list of targets in tests/it/fuzz.rs")?;
    Ok(list.split_whitespace().filter(|word| *word != "}").map(str::to_owned).collect())
}

fn names(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut names: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}

fn host_triple() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("ask rustc what it builds for")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned);
    host.context("rustc does not say what it builds for")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_are_those_of_the_test() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let names = target_names(root).unwrap();
        assert!(names.len() > 10 && names.contains(&"session_frame".to_owned()), "{names:?}");
    }
}
