//! Finds the program of the nats-server.

use std::{
    env,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
};

use anyhow::{Result, bail, ensure};

/// Set by `cargo xtask test`.
const VARIABLE: &str = "EXOBUS_NATS_SERVER";

/// Where everybody expects a server.
pub const DEFAULT_PORT: u16 = 4222;

/// Whether a server could listen there.
#[allow(clippy::disallowed_methods, reason = "the server that will listen there is a program of its own")]
pub fn port_is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// The one that is given; else the environment's, one on PATH, or one that `cargo xtask nats` has fetched.
///
/// # Errors
/// When there is none, with all places that were looked at.
pub fn find(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = given {
        ensure!(path.is_file(), "no nats-server at {}", path.display());
        return Ok(path.to_owned());
    }
    if let Some(path) = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from) {
        ensure!(path.is_file(), "{VARIABLE} is {}, but no file is there", path.display());
        return Ok(path);
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    // Debian installs it where PATH of an ordinary user does not look.
    let on_path = env::split_paths(&folders).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    if let Some(path) = on_path.map(|folder| folder.join("nats-server")).find(|path| path.is_file()) {
        return Ok(path);
    }
    let Some(path) = fetched() else {
        bail!(
            "no nats-server: not given by --nats-server or {VARIABLE}, not on PATH, and none fetched by `cargo xtask nats`"
        );
    };
    Ok(path)
}

/// Below `target/`, when this program was built there.
fn fetched() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    program
        .ancestors()
        .skip(1)
        .take(3)
        .flat_map(|folder| ["nats/venv/bin/nats-server", "nats/target/bin/nats-server"].map(|path| folder.join(path)))
        .find(|path| path.is_file())
}
