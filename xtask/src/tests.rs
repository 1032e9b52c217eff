//! `cargo xtask test`: everything, in the order in which failures are cheapest to read.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::{
    chromium::{self, CHROMIUM_VARIABLE},
    nats::{self, SERVER_VARIABLE},
    python::{self, DUCKDB, MOTO},
    workspace::{Workspace, run_visibly},
};

/// Tells tests of other packages where the binary under test is.
const BINARY_VARIABLE: &str = "EXOBUS_BIN";

/// Provides a NATS server, DuckDB, a server of S3 and a Chromium, builds the binary, runs unit and integration tests, then doc tests.
pub fn run(workspace: &Workspace, runner_args: &[String]) -> Result<()> {
    let server = nats::provide(workspace)?;
    eprintln!("xtask: {} at {}", server.version, server.path.display());
    let pythons =
        [&DUCKDB, &MOTO].map(|wheels| python::provide(workspace, wheels).map(|python| (wheels.variable, python)));
    let pythons = pythons.into_iter().collect::<Result<Vec<_>>>()?;
    let chromium = chromium::provide(workspace)?;
    eprintln!("xtask: {} at {}", chromium.version, chromium.path.display());

    // The same selection of packages and features as the test run: one build serves both.
    run_visibly(&mut workspace.cargo(&["build", "--workspace", "--all-features", "--bins"]))?;
    let with_environment = |mut command: Command| {
        command.env(SERVER_VARIABLE, &server.path).env(CHROMIUM_VARIABLE, &chromium.path);
        command.envs(pythons.iter().map(|(variable, python)| (variable, python)));
        command.env(BINARY_VARIABLE, workspace.target_dir.join("debug/exobus"));
        command
    };

    let threads = tests_at_once().to_string();
    let runner: &[&str] = if has_nextest(workspace) {
        &["nextest", "run", "--workspace", "--all-features", "--test-threads", &threads]
    } else {
        eprintln!("xtask: cargo-nextest is not installed, `cargo test` runs the tests instead");
        &["test", "--workspace", "--all-features", "--lib", "--bins", "--tests"]
    };
    run_visibly(with_environment(workspace.cargo(runner)).args(runner_args))?;

    if runner_args.is_empty() {
        run_visibly(&mut with_environment(workspace.cargo(&["test", "--workspace", "--all-features", "--doc"])))?;
        eprintln!("xtask: all tests passed, doc tests included");
    }
    Ok(())
}

/// How many tests run side by side: on few processors more than there are, since most of the time tests of clusters wait.
fn tests_at_once() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).max(4)
}

fn has_nextest(workspace: &Workspace) -> bool {
    workspace
        .cargo(&["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
