//! Programs that tests start: the first one that works, of several ways to get it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::run_quietly;

/// A program that answered `--version`.
pub struct Program {
    /// Absolute path.
    pub path: PathBuf,
    /// What it calls itself, for example `nats-server: v2.15.1`.
    pub version: String,
}

/// What a way to get a program is called, and where the program is then.
pub type Way<'a> = (&'a str, &'a dyn Fn() -> Result<PathBuf>);

/// The first program that `check` accepts. `otherwise` says what people can do when there is none.
///
/// # Errors
/// When nothing worked: every way that was tried, with its reason, one a line.
pub fn first_that_works(
    name: &str,
    ways: &[Way<'_>],
    check: impl Fn(&Path) -> Result<Program>,
    otherwise: &str,
) -> Result<Program> {
    let mut tried = Vec::new();
    for (way, find) in ways {
        match find().and_then(|path| check(&path)) {
            Ok(program) => return Ok(program),
            Err(error) => tried.push(format!("  {way}: {error:#}")),
        }
    }
    bail!("no {name}, and none could be provided; tried\n{}\n{otherwise}", tried.join("\n"))
}

/// The one that a variable of the environment names.
pub fn from_variable(variable: &str) -> Result<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from).context("not set")
}

pub fn on_path(program: &str) -> Option<PathBuf> {
    // Debian installs servers where PATH of an ordinary user does not look.
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders)
        .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Installs a Debian package that has a program of its name.
pub fn from_apt(package: &str) -> Result<PathBuf> {
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
