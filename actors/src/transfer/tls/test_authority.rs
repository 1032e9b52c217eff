//! Authorities and certificates for tests.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exobus_store::{Clock, SystemClock};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::{CipherSuiteCommon, SupportedCipherSuite, Tls13CipherSuite};
use tempfile::TempDir;

use super::{CertifiedNode, DataTls, OwnFiles, TlsError, TlsFiles};

pub(crate) const CLUSTER: &str = "lab";

pub(crate) fn node(name: &str) -> CertifiedNode {
    CertifiedNode { cluster: CLUSTER.to_owned(), node: name.to_owned() }
}

/// An authority, and a folder with its certificate and those that it has signed.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        // Two authorities of tests are never taken for each other by their names.
        let name = format!("authority {:?}", &key.public_key_raw()[..8]);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a certificate of these URIs, and its key, as `name`; `change` changes what it says.
    pub(crate) fn sign(&self, name: &str, uris: &[String], change: impl FnOnce(&mut CertificateParams)) -> OwnFiles {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let uris = uris.iter().map(|uri| SanType::URI(uri.as_str().try_into().unwrap()));
        params.subject_alt_names.extend(uris);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let own = OwnFiles { certificate: self.path(&format!("{name}.pem")), key: self.path(&format!("{name}.key")) };
        replace(&own.certificate, &certificate.pem());
        replace(&own.key, &key.serialize_pem());
        own
    }

    /// Files of a node that knows this authority only.
    pub(crate) fn files(&self, name: &CertifiedNode) -> TlsFiles {
        let own = self.sign(&name.node, &[name.uri()], |_| {});
        TlsFiles { authorities: self.path("ca.pem"), own: Some(own) }
    }

    pub(crate) fn of_node(&self, name: &str) -> DataTls {
        DataTls::of_node(self.files(&node(name)), node(name), clock()).unwrap()
    }

    /// A node whose keys are changed after so many records.
    pub(crate) fn of_hasty_node(&self, name: &str, records: u64) -> DataTls {
        let mut provider = super::provider();
        let first = provider.cipher_suites[0].tls13().unwrap();
        let (suite, hash_provider) = (first.common.suite, first.common.hash_provider);
        let suite = Tls13CipherSuite {
            common: CipherSuiteCommon { suite, hash_provider, confidentiality_limit: records },
            hkdf_provider: first.hkdf_provider,
            aead_alg: first.aead_alg,
            quic: first.quic,
        };
        provider.cipher_suites = vec![SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))];
        DataTls::load_with(provider, self.files(&node(name)), node(name), clock()).unwrap()
    }

    pub(crate) fn of_client(&self) -> DataTls {
        DataTls::of_client(self.path("ca.pem"), CLUSTER, clock()).unwrap()
    }
}

pub(crate) fn load(files: &TlsFiles, name: &str) -> Result<DataTls, TlsError> {
    DataTls::of_node(files.clone(), node(name), clock())
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// Puts another file in the place of this one, at once, and readable by its owner only.
pub(crate) fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::set_permissions(&beside, Permissions::from_mode(0o600)).unwrap();
    fs::rename(beside, path).unwrap();
}
