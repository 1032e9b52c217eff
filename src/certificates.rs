//! Authorities and certificates, made where nobody has others: `exobus config ca`, `exobus config cert`, `exobus dev --secure`.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use exobus_actors::transfer::tls::CertifiedNode;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Clocks of machines differ by less.
const EARLIER: Duration = Duration::from_secs(60 * 60);
/// The files of an authority, in its folder.
pub const AUTHORITY_FILE: &str = "ca.pem";
const AUTHORITY_KEY_FILE: &str = "ca.key";

/// Who signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    now: Duration,
}

/// Whose a certificate is.
pub enum Subject<'a> {
    /// A node's: for its data connections, and to show to a NATS server.
    Node(&'a CertifiedNode),
    /// A NATS server's, which listens on these names and addresses.
    Server(&'a [String]),
    /// Of somebody else who connects to a NATS server.
    Client(&'a str),
}

impl Authority {
    /// Makes one in a folder, for so many days from now on (`now` since 1970): `ca.pem` for everybody, `ca.key` for who signs.
    ///
    /// # Errors
    /// The folder has one, or cannot be written.
    pub fn make(folder: &Path, days: u32, now: Duration) -> Result<Self> {
        let key = KeyPair::generate().context("make a key")?;
        let mut params = authority_params(&key);
        set_time(&mut params, days, now);
        let certificate = params.self_signed(&key).context("sign the authority's certificate")?;
        let files = [
            (folder.join(AUTHORITY_KEY_FILE), key.serialize_pem(), 0o600),
            (folder.join(AUTHORITY_FILE), certificate.pem(), 0o644),
        ];
        fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
        write_new(&files)?;
        Ok(Self { issuer: Issuer::new(authority_params(&key), key), now })
    }

    /// The one that [`make`](Self::make) has made there.
    ///
    /// # Errors
    /// There is none.
    pub fn open(folder: &Path, now: Duration) -> Result<Self> {
        let path = folder.join(AUTHORITY_KEY_FILE);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("read {} (`exobus config ca` makes one)", path.display()))?;
        let key = KeyPair::from_pem(&text).with_context(|| format!("{}: no private key is in it", path.display()))?;
        Ok(Self { issuer: Issuer::new(authority_params(&key), key), now })
    }

    /// Writes a certificate and its key as `<name>.pem` and `<name>.key` into a folder.
    ///
    /// # Errors
    /// There is one of them, or the folder cannot be written.
    pub fn sign(&self, subject: &Subject<'_>, days: u32, folder: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let key = KeyPair::generate().context("make a key")?;
        let (names, purposes) = match subject {
            Subject::Node(_) => {
                (Vec::new(), vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth])
            }
            Subject::Server(hosts) => (hosts.to_vec(), vec![ExtendedKeyUsagePurpose::ServerAuth]),
            Subject::Client(_) => (Vec::new(), vec![ExtendedKeyUsagePurpose::ClientAuth]),
        };
        let mut params = CertificateParams::new(names).context("a name of the certificate")?;
        if let Subject::Node(node) = subject {
            params.subject_alt_names.push(SanType::URI(node.uri().try_into().context("the node's name")?));
        }
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = purposes;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        set_time(&mut params, days, self.now);
        let certificate = params.signed_by(&key, &self.issuer).context("sign the certificate")?;
        fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
        let at = |ending: &str| folder.join(format!("{name}.{ending}"));
        let files = [(at("key"), key.serialize_pem(), 0o600), (at("pem"), certificate.pem(), 0o644)];
        write_new(&files)?;
        let [(key, ..), (certificate, ..)] = files;
        Ok((certificate, key))
    }
}

/// What the certificate of an authority says, but for its time. All of it follows from its key, so that who signs needs nothing else.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let number: String = key.public_key_raw()[1..9].iter().map(|byte| format!("{byte:02x}")).collect();
    let mut params = CertificateParams::default();
    // Two authorities that are believed at a time have two names.
    params.distinguished_name.push(DnType::CommonName, format!("exobus authority {number}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn set_time(params: &mut CertificateParams, days: u32, now: Duration) {
    params.not_before = (UNIX_EPOCH + now.saturating_sub(EARLIER)).into();
    params.not_after = (UNIX_EPOCH + now + DAY * days).into();
}

/// Writes new files of these modes, all of them or none.
fn write_new(files: &[(PathBuf, String, u32)]) -> Result<()> {
    for (path, ..) in files {
        ensure!(!path.exists(), "{} exists: nothing is overwritten", path.display());
    }
    for (path, text, mode) in files {
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(*mode).open(path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
