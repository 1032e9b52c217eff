//! Provides a Python with DuckDB, pyarrow and nats-py, in the versions that `requirements.txt` of the tests pins, below `target/duckdb/`.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{
    nats::on_path,
    workspace::{Workspace, run_quietly},
};

/// Tells tests which Python it is.
pub const PYTHON_VARIABLE: &str = "EXOBUS_DUCKDB_PYTHON";

/// What is installed, with the hash of each wheel.
const REQUIREMENTS: &str = "pipelines/tables/tests/duckdb/requirements.txt";

/// Finds or fetches it: results are compared, so that it is missing is an error.
///
/// # Errors
/// There is no Python, it is too old for the wheels, or they could not be fetched.
pub fn provide(workspace: &Workspace) -> Result<PathBuf> {
    if let Some(python) = env::var_os(PYTHON_VARIABLE).filter(|value| !value.is_empty()) {
        return check(PathBuf::from(python));
    }
    let folder = workspace.target_dir.join("duckdb");
    let (requirements, installed) = (workspace.root.join(REQUIREMENTS), folder.join("requirements.txt"));
    let wanted = std::fs::read(&requirements).with_context(|| format!("read {}", requirements.display()))?;
    let venv = folder.join("venv");
    if std::fs::read(&installed).ok() != Some(wanted.clone()) {
        fetch(&venv, &requirements).with_context(|| {
            format!("provide DuckDB, which results are compared with; {PYTHON_VARIABLE} may name a Python that has it")
        })?;
        std::fs::write(&installed, wanted).with_context(|| format!("write {}", installed.display()))?;
    }
    check(venv.join("bin/python"))
}

fn fetch(venv: &Path, requirements: &Path) -> Result<()> {
    let python = on_path("python3").context("no python3 on PATH")?;
    eprintln!("xtask: fetching DuckDB and pyarrow from PyPI into {}", venv.display());
    let install = |pip: &mut Command| {
        pip.args(["install", "--quiet", "--require-hashes", "--only-binary", ":all:", "--requirement"]);
        run_quietly(pip.arg(requirements)).map(|_| ())
    };
    let make = |more: &[&str]| run_quietly(Command::new(&python).args(["-m", "venv", "--clear"]).args(more).arg(venv));
    match make(&[]) {
        Ok(_) => install(Command::new(venv.join("bin/python")).args(["-m", "pip"])),
        // Debian's Python makes none with a pip of its own; that of the system can do it too.
        Err(_) => {
            make(&["--without-pip"])?;
            install(Command::new(&python).args(["-m", "pip", "--python"]).arg(venv.join("bin/python")))
        }
    }
}

/// One that does not import all is none.
fn check(python: PathBuf) -> Result<PathBuf> {
    let said = run_quietly(Command::new(&python).args(["-c", "import duckdb, nats, pyarrow.parquet; print('all')"]))?;
    ensure!(said.trim() == "all", "{} says {said:?}", python.display());
    Ok(python)
}
