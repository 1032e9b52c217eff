//! What may listen where: a listener that others can reach needs a token, TLS and roots for the files of jobs, or the word for
//! each that is missing.

use std::{
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{NodeConfig, Secret};

/// A configuration that would be unsafe, or secrets that are not kept as such.
#[derive(Debug, Error)]
pub enum SecurityError {
    /// Others can reach the listener, and a protection is missing.
    #[error(
        "node.listen = \"{listen}\" can be reached from other machines and {missing}, or say {flag} if that is meant"
    )]
    OpenListener {
        /// The address.
        listen: String,
        /// What to add.
        missing: &'static str,
        /// The flag that goes without it.
        flag: &'static str,
    },
    /// A node without a token.
    #[error(
        "a node needs security.token_file, the same token on all nodes of a cluster (`exobus config token FILE` makes one), \
         or say --insecure-no-token if everybody who reaches its port may read the data"
    )]
    NoToken,
    /// Others on this machine can read the secret.
    #[error("{path}: mode is {mode:04o}, but a secret must be readable by its owner only; chmod 600 it")]
    ReadableByOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file cannot be read.
    #[error("read the secret in {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The token is too short to keep anybody out.
    #[error("{path}: the token has {length} characters; 16 are the least (`exobus config token FILE` makes one)")]
    TokenTooShort {
        /// The file.
        path: PathBuf,
        /// How many it has.
        length: usize,
    },
    /// A certificate without its key, or the other way round.
    #[error("cluster.nats_cert_file and cluster.nats_key_file go together; only one is set")]
    HalfAKeyPair,
}

/// Shortest token that is accepted, characters.
const TOKEN_LENGTH_MIN: usize = 16;

/// Checks listeners and the files of secrets.
pub fn check(config: &NodeConfig) -> Result<(), SecurityError> {
    let cluster = &config.cluster;
    if cluster.nats_cert_file.is_some() != cluster.nats_key_file.is_some() {
        return Err(SecurityError::HalfAKeyPair);
    }
    for path in [&cluster.nats_creds_file, &cluster.nats_nkey_seed_file, &cluster.nats_key_file].into_iter().flatten() {
        readable_by_owner_only(path)?;
    }

    if is_loopback(config.node.listen.ip()) {
        return Ok(());
    }
    let open = |missing, flag| SecurityError::OpenListener { listen: config.node.listen.to_string(), missing, flag };
    if config.security.token_file.is_none() && !config.security.insecure_no_token {
        return Err(open("needs security.token_file", "--insecure-no-token"));
    }
    // The data plane speaks no TLS yet, so an open listener is always without.
    if !config.security.insecure_no_tls {
        return Err(open("has no TLS: put it on a private network or behind a tunnel", "--insecure-no-tls"));
    }
    if config.security.roots.is_empty() && !config.security.insecure_any_path {
        return Err(open("has no security.roots, the folders that jobs are kept to", "--insecure-any-path"));
    }
    Ok(())
}

/// Reads a token file: its first line.
pub fn read_token(path: &Path) -> Result<Secret, SecurityError> {
    readable_by_owner_only(path)?;
    let text =
        std::fs::read_to_string(path).map_err(|source| SecurityError::Unreadable { path: path.to_owned(), source })?;
    let token = text.lines().next().unwrap_or_default().trim().to_owned();
    let length = token.chars().count();
    if length < TOKEN_LENGTH_MIN {
        return Err(SecurityError::TokenTooShort { path: path.to_owned(), length });
    }
    Ok(Secret::new(token))
}

fn readable_by_owner_only(path: &Path) -> Result<(), SecurityError> {
    let metadata =
        std::fs::metadata(path).map_err(|source| SecurityError::Unreadable { path: path.to_owned(), source })?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(SecurityError::ReadableByOthers { path: path.to_owned(), mode });
    }
    Ok(())
}

/// An IPv4 address in IPv6 clothes counts as what it is.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
