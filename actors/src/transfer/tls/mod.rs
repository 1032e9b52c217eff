//! TLS on connections that carry data: TLS 1.3, and nodes that prove their names by certificates of the cluster's authority.
//!
//! A [`DataTls`] is what one process shows and believes. Around a [`Socket`](super::network::Socket) it puts another one, so that all that is
//! above (`link.rs`) and below (a [`Network`](super::network::Network), whichever) is as it is without TLS. The handshake happens in
//! the first call that sends or receives, under the same patience as any other.
//!
//! # Promises
//! - Who connects says nothing, the token least of all, before the other side has shown a certificate of an authority that this process
//!   knows, with the name of the node that was wanted and of this cluster ([`CertifiedNode`]).
//! - Who listens knows of each caller whether it has a certificate, and of which node; one of another authority or cluster goes no further.
//! - Certificates and authorities are read again when their files change: connections that are made from then on use the new ones.
//!
//! # Deliberately absent
//! Session tickets: each connection proves all of it anew, so that what was replaced is not believed any longer; a node keeps its connections.
//! Closing alerts: each answer says how long it is, so one that was cut short is seen all the same. Lists of revoked certificates: an
//! authority is replaced instead.

mod error;
mod files;
mod name;
mod session;
mod socket;
mod verify;

use std::sync::{Arc, OnceLock};

use exobus_store::Clock;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::SingleCertAndKey;
use rustls::time_provider::TimeProvider;
use rustls::{CipherSuite, ClientConfig, ServerConfig};

pub use error::TlsError;
pub use files::{OwnFiles, TlsFiles};
pub use name::CertifiedNode;

pub(super) use error::SecureError;
pub(super) use socket::{BUFFER_BYTES, TlsSocket};

use super::network::Socket;
use files::Loaded;
use session::Session;

/// What a process shows on connections that carry data, and whom it believes there. A cheap handle.
#[derive(Clone, Debug)]
pub struct DataTls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    me: CertifiedNode,
    loaded: Loaded,
    provider: Arc<CryptoProvider>,
    time: Arc<WallTime>,
}

impl DataTls {
    /// Of the node `me`: `files` have a certificate, and it is that node's.
    ///
    /// # Errors
    /// A file cannot be read or is not what it should be; the certificate is another's, of another authority, or its time is over.
    pub fn of_node(files: TlsFiles, me: CertifiedNode, clock: Arc<dyn Clock>) -> Result<Self, TlsError> {
        match files.own {
            Some(_) => Self::load(files, me, clock),
            None => Err(TlsError::NoCertificate),
        }
    }

    /// Of who is no node of the cluster, and shows no certificate.
    ///
    /// # Errors
    /// The file of authorities cannot be read, or is not what it should be.
    pub fn of_client(authorities: std::path::PathBuf, cluster: &str, clock: Arc<dyn Clock>) -> Result<Self, TlsError> {
        let me = CertifiedNode { cluster: cluster.to_owned(), node: String::new() };
        Self::load(TlsFiles { authorities, own: None }, me, clock)
    }

    fn load(files: TlsFiles, me: CertifiedNode, clock: Arc<dyn Clock>) -> Result<Self, TlsError> {
        Self::load_with(provider(), files, me, clock)
    }

    fn load_with(
        provider: CryptoProvider,
        files: TlsFiles,
        me: CertifiedNode,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(provider);
        let loaded = Loaded::open(files, &me, Arc::clone(&provider), Arc::clone(&clock))?;
        Ok(Self(Arc::new(Shared { me, loaded, provider, time: Arc::new(WallTime(clock)) })))
    }

    /// Whether it can listen.
    pub(super) fn is_of_a_node(&self) -> bool {
        !self.0.me.node.is_empty()
    }

    /// Who connected, over `socket`, to the node of this name; empty: to any node of the cluster.
    pub(super) fn ask(&self, socket: Arc<dyn Socket>, node: &str) -> Result<TlsSocket, TlsError> {
        let Shared { me, loaded, provider, time } = &*self.0;
        let (now, shown) = (loaded.now(me, provider), Arc::<OnceLock<_>>::default());
        let wanted = CertifiedNode { cluster: me.cluster.clone(), node: node.to_owned() };
        let builder = ClientConfig::builder_with_details(Arc::clone(provider), Arc::clone(time) as _);
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
        let verifier = verify::Wanted::new(wanted, Arc::clone(&now.roots), provider, Arc::clone(&shown));
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &now.own {
            Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own)))),
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        // Names are those of nodes, which the verifier compares; this one goes nowhere.
        let name = ServerName::try_from("node.exobus").map_err(|error| TlsError::Name(error.to_string()))?;
        let session = Session::asking(Arc::new(config), name)?;
        Ok(TlsSocket::new(socket, session, self.told(shown)))
    }

    /// Who listened, and was connected to over `socket`.
    pub(super) fn serve(&self, socket: Arc<dyn Socket>) -> Result<TlsSocket, TlsError> {
        let Shared { me, loaded, provider, time } = &*self.0;
        let (now, shown) = (loaded.now(me, provider), Arc::<OnceLock<_>>::default());
        let (Some(own), Some(callers)) = (&now.own, &now.callers) else { return Err(TlsError::NoCertificate) };
        let builder = ServerConfig::builder_with_details(Arc::clone(provider), Arc::clone(time) as _);
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
        let verifier = verify::Callers::new(me.cluster.clone(), Arc::clone(callers), Arc::clone(&shown));
        let builder = builder.with_client_cert_verifier(Arc::new(verifier));
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own))));
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(TlsSocket::new(socket, Session::serving(Arc::new(config))?, self.told(shown)))
    }

    fn told(&self, shown: Arc<OnceLock<CertifiedNode>>) -> error::Told {
        let authorities = self.0.loaded.files().authorities.display().to_string();
        error::Told { me: self.0.me.clone(), authorities, shown }
    }
}

/// The suites of ring for TLS 1.3, the cheapest for processors that have AES first.
fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider.cipher_suites.retain(|suite| suite.tls13().is_some());
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

/// The time of certificates, from the clock of the process.
struct WallTime(Arc<dyn Clock>);

impl WallTime {
    fn of(unix_ms: u64) -> UnixTime {
        UnixTime::since_unix_epoch(std::time::Duration::from_millis(unix_ms))
    }
}

impl std::fmt::Debug for WallTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WallTime").field(&self.0.unix_ms()).finish()
    }
}

impl TimeProvider for WallTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(Self::of(self.0.unix_ms()))
    }
}

#[cfg(test)]
pub(super) mod test_authority;
#[cfg(test)]
mod tests;
