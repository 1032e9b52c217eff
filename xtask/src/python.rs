//! Provides Pythons with what tests compare themselves with, in the versions that the tests' `requirements.txt` pin, below `target/`.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{
    programs::on_path,
    workspace::{Workspace, run_quietly},
};

/// What is installed for some tests.
pub struct Wheels {
    /// Where it is, below `target/`.
    pub folder: &'static str,
    /// Tells tests which Python it is.
    pub variable: &'static str,
    /// The wheels, with their hashes.
    pub requirements: &'static str,
    /// What a Python that has them imports.
    pub imports: &'static str,
}

/// DuckDB and pyarrow, which results of tables are compared with, and the client that docs/nats.md is tried with.
pub const DUCKDB: Wheels = Wheels {
    folder: "duckdb",
    variable: "EXOBUS_DUCKDB_PYTHON",
    requirements: "pipelines/tables/tests/duckdb/requirements.txt",
    imports: "duckdb, nats, pyarrow.parquet",
};

/// A second server of S3.
pub const MOTO: Wheels = Wheels {
    folder: "moto",
    variable: "EXOBUS_MOTO_PYTHON",
    requirements: "store/objects/tests/moto/requirements.txt",
    imports: "moto.server",
};

/// Finds or fetches them: what is compared must be there, so that it is missing is an error.
///
/// # Errors
/// There is no Python, it is too old for the wheels, or they could not be fetched.
pub fn provide(workspace: &Workspace, wheels: &Wheels) -> Result<PathBuf> {
    if let Some(python) = env::var_os(wheels.variable).filter(|value| !value.is_empty()) {
        return check(PathBuf::from(python), wheels);
    }
    let folder = workspace.target_dir.join(wheels.folder);
    let (requirements, installed) = (workspace.root.join(wheels.requirements), folder.join("requirements.txt"));
    let wanted = std::fs::read(&requirements).with_context(|| format!("read {}", requirements.display()))?;
    let venv = folder.join("venv");
    if std::fs::read(&installed).ok() != Some(wanted.clone()) {
        fetch(&venv, &requirements).with_context(|| {
            format!("provide {}, which tests need; {} may name a Python that has it", wheels.imports, wheels.variable)
        })?;
        std::fs::write(&installed, wanted).with_context(|| format!("write {}", installed.display()))?;
    }
    check(venv.join("bin/python"), wheels)
}

fn fetch(venv: &Path, requirements: &Path) -> Result<()> {
    let python = on_path("python3").context("no python3 on PATH")?;
    eprintln!("xtask: fetching {} from PyPI into {}", requirements.display(), venv.display());
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
fn check(python: PathBuf, wheels: &Wheels) -> Result<PathBuf> {
    let import = format!("import {}; print('all')", wheels.imports);
    let said = run_quietly(Command::new(&python).args(["-c", &import]))?;
    ensure!(said.trim() == "all", "{} says {said:?}", python.display());
    Ok(python)
}
