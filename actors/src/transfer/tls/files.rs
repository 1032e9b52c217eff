//! The files of certificates, read again when they change.
//!
//! When a connection is made or taken in, and at most once a second, it is looked whether a file is another one by its time, size or number.
//! If so all are read. What is not right then (a certificate whose key has not been replaced yet, half a file) is said once, and the old ones
//! go on until the files change again.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exobus_store::Clock;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};
use tracing::{info, warn};

use super::error::because;
use super::{CertifiedNode, TlsError, WallTime, verify};

/// How often it is looked whether files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So long before its end a certificate is said to need another one.
const WARN_BEFORE_MS: u64 = 14 * 24 * 60 * 60 * 1000;

/// A certificate, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnFiles {
    /// The certificate, PEM; those of authorities between it and the one that is known may follow.
    pub certificate: PathBuf,
    /// Its private key, PEM; mode 0600.
    pub key: PathBuf,
}

/// Where the certificates of a process are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates of the authorities that are believed, PEM: one, or two while one takes the other's place.
    pub authorities: PathBuf,
    /// What a node shows; `None`: it is no node.
    pub own: Option<OwnFiles>,
}

impl TlsFiles {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let own = self.own.iter().flat_map(|own| [&own.certificate, &own.key]);
        std::iter::once(&self.authorities).chain(own).map(PathBuf::as_path)
    }
}

/// What stood in the files.
#[derive(Debug)]
pub(super) struct Material {
    pub(super) roots: Arc<RootCertStore>,
    pub(super) own: Option<Arc<CertifiedKey>>,
    /// Whom a node that listens lets in.
    pub(super) callers: Option<Arc<dyn ClientCertVerifier>>,
}

/// What tells a file from the one that was there before.
type Stamp = Vec<Option<(i64, i64, u64, u64)>>;

fn stamp(files: &TlsFiles) -> Stamp {
    let of =
        |path: &Path| fs::metadata(path).ok().map(|meta| (meta.mtime(), meta.mtime_nsec(), meta.size(), meta.ino()));
    files.paths().map(of).collect()
}

/// The files, and what stands in them now.
pub(super) struct Loaded {
    files: TlsFiles,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    material: Arc<Material>,
    stamp: Stamp,
    looked_at: Duration,
    /// Whether it was said that the certificate ends soon.
    warned: bool,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Loaded {
    pub(super) fn open(
        files: TlsFiles,
        me: &CertifiedNode,
        provider: Arc<CryptoProvider>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TlsError> {
        let stamp = stamp(&files);
        let material = Arc::new(read(&files, me, &provider, clock.unix_ms())?);
        let state = State { material, stamp, looked_at: clock.now(), warned: false };
        let loaded = Self { files, clock, state: Mutex::new(state) };
        loaded.warn_of_its_end(&mut loaded.state.lock(), &provider);
        Ok(loaded)
    }

    pub(super) fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// What stands in the files, as far as it is right.
    pub(super) fn now(&self, me: &CertifiedNode, provider: &Arc<CryptoProvider>) -> Arc<Material> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        if now.saturating_sub(state.looked_at) >= LOOK_EVERY {
            state.looked_at = now;
            let stamp = stamp(&self.files);
            if stamp != state.stamp {
                state.stamp = stamp;
                self.read_again(&mut state, me, provider);
            }
            self.warn_of_its_end(&mut state, provider);
        }
        Arc::clone(&state.material)
    }

    fn read_again(&self, state: &mut State, me: &CertifiedNode, provider: &Arc<CryptoProvider>) {
        match read(&self.files, me, provider, self.clock.unix_ms()) {
            Ok(material) => {
                info!(node = me.node, "certificates of data connections read again");
                (state.material, state.warned) = (Arc::new(material), false);
            }
            Err(error) => warn!(%error, "certificates of data connections not taken; the old ones are kept"),
        }
    }

    fn warn_of_its_end(&self, state: &mut State, provider: &CryptoProvider) {
        let (Some(own), Some(files)) = (&state.material.own, &self.files.own) else { return };
        let soon = self.clock.unix_ms() + WARN_BEFORE_MS;
        if !state.warned && !is_valid_at(own, &state.material.roots, provider, soon) {
            state.warned = true;
            let path = files.certificate.display();
            warn!(%path, "the certificate of data connections, or its authority's, ends within 14 days: replace it");
        }
    }
}

fn is_valid_at(own: &CertifiedKey, roots: &RootCertStore, provider: &CryptoProvider, unix_ms: u64) -> bool {
    let algorithms = &provider.signature_verification_algorithms;
    let Some((certificate, intermediates)) = own.cert.split_first() else { return false };
    verify::signed_for_listening(certificate, intermediates, roots, WallTime::of(unix_ms), algorithms).is_ok()
}

fn read(
    files: &TlsFiles,
    me: &CertifiedNode,
    provider: &Arc<CryptoProvider>,
    unix_ms: u64,
) -> Result<Material, TlsError> {
    let wrong = |path: &Path, what: String| TlsError::Wrong { path: path.to_owned(), what };
    let mut roots = RootCertStore::empty();
    for authority in certificates(&files.authorities)? {
        let added = roots.add(authority);
        added.map_err(|error| wrong(&files.authorities, format!("a certificate is no authority's: {error}")))?;
    }
    let roots = Arc::new(roots);
    let Some(own) = &files.own else { return Ok(Material { roots, own: None, callers: None }) };

    let chain = certificates(&own.certificate)?;
    match CertifiedNode::of(&chain[0]) {
        Some(node) if node == *me => {}
        Some(node) => {
            let what = format!("the certificate is of {node}, and this is {me}");
            return Err(wrong(&own.certificate, what));
        }
        None => {
            let what = format!("the certificate names no node; that of {me} has the URI {}", me.uri());
            return Err(wrong(&own.certificate, what));
        }
    }
    let key = CertifiedKey::from_der(chain, private_key(&own.key)?, provider)
        .map_err(|error| wrong(&own.key, format!("not the key of {}: {error}", own.certificate.display())))?;
    let callers = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider));
    let callers = callers.build().map_err(|error| wrong(&files.authorities, error.to_string()))?;
    // It is to listen, and to connect to others.
    let (now, algorithms) = (WallTime::of(unix_ms), &provider.signature_verification_algorithms);
    let valid = verify::signed_for_listening(&key.cert[0], &key.cert[1..], &roots, now, algorithms)
        .and_then(|()| callers.verify_client_cert(&key.cert[0], &key.cert[1..], now).map(drop));
    let authorities = files.authorities.display();
    valid.map_err(|error| match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            wrong(&own.certificate, format!("the certificate is signed by no authority of {authorities}"))
        }
        Error::InvalidCertificate(why) => wrong(&own.certificate, format!("the certificate {}", because(&why))),
        other => wrong(&own.certificate, other.to_string()),
    })?;
    Ok(Material { roots, own: Some(Arc::new(key)), callers: Some(callers) })
}

/// The certificates in a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |cause: String| TlsError::Unreadable { path: path.to_owned(), cause };
    let text = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match all.map_err(|error| unreadable(error.to_string()))? {
        none if none.is_empty() => {
            Err(TlsError::Wrong { path: path.to_owned(), what: "no certificate is in it (PEM)".to_owned() })
        }
        some => Ok(some),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let unreadable = |cause: String| TlsError::Unreadable { path: path.to_owned(), cause };
    let mode = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(TlsError::ReadableByOthers { path: path.to_owned(), mode });
    }
    let text = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        // What stands in the file is no business of a log.
        TlsError::Wrong { path: path.to_owned(), what: "no private key is in it (PEM)".to_owned() }
    })
}
