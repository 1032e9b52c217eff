//! Whose certificates are believed.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore, SignatureScheme,
};

use super::CertifiedNode;

/// Whose certificate was shown, for who is told what was wrong with it.
type Shown = Arc<OnceLock<CertifiedNode>>;

/// A certificate that is good, and another's.
#[derive(Debug, thiserror::Error)]
#[error("is not of {0}")]
struct AnothersCertificate(CertifiedNode);

/// Whether a certificate, which an authority has signed, names who was wanted.
fn named(certificate: &CertificateDer<'_>, wanted: &CertifiedNode) -> Result<(), Error> {
    match CertifiedNode::of(certificate) {
        Some(node) if node.is(wanted) => Ok(()),
        _ => {
            let why = AnothersCertificate(wanted.clone());
            Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why)))))
        }
    }
}

fn note(shown: &Shown, certificate: &CertificateDer<'_>) {
    if let Some(node) = CertifiedNode::of(certificate) {
        // One connection shows one certificate.
        let _ = shown.set(node);
    }
}

/// Verifies a certificate of an authority among `roots`, at this time, for who listens.
pub(super) fn signed_for_listening(
    certificate: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    roots: &RootCertStore,
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms.all)
}

/// For who connects: the other side is the node that was wanted.
#[derive(Debug)]
pub(super) struct Wanted {
    wanted: CertifiedNode,
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
    shown: Shown,
}

impl Wanted {
    pub(super) fn new(
        wanted: CertifiedNode,
        roots: Arc<RootCertStore>,
        provider: &CryptoProvider,
        shown: Shown,
    ) -> Self {
        Self { wanted, roots, algorithms: provider.signature_verification_algorithms, shown }
    }
}

impl ServerCertVerifier for Wanted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        note(&self.shown, end_entity);
        signed_for_listening(end_entity, intermediates, &self.roots, now, &self.algorithms)?;
        named(end_entity, &self.wanted).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// For who listens: a caller has a certificate of a node of this cluster, or none.
#[derive(Debug)]
pub(super) struct Callers {
    wanted: CertifiedNode,
    signed: Arc<dyn ClientCertVerifier>,
    shown: Shown,
}

impl Callers {
    /// `signed` knows the authorities.
    pub(super) fn new(cluster: String, signed: Arc<dyn ClientCertVerifier>, shown: Shown) -> Self {
        Self { wanted: CertifiedNode { cluster, node: String::new() }, signed, shown }
    }
}

impl ClientCertVerifier for Callers {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Who has a certificate shows the one that it has.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        note(&self.shown, end_entity);
        let verified = self.signed.verify_client_cert(end_entity, intermediates, now)?;
        named(end_entity, &self.wanted).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
