//! Settings of a NATS connection, and the context files that the `nats` command writes.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::context::Context;
use crate::error::BusError;
use crate::subject::{Subject, check_token};

/// Where and how to connect. Secrets come from files that only their owner can read, never from the URL.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// `nats://host:port` or `tls://host:port`; several separated by commas. Default `nats://127.0.0.1:4222`.
    pub url: String,
    /// Name of the connection, for the server's monitoring. Default `exobus`.
    pub name: String,
    /// A context file: JSON as the `nats` command writes it below `~/.config/nats/context/NAME.json`
    /// ([`context_path`](super::context_path) finds it by its name). A value set here wins over the file's.
    pub context_file: Option<PathBuf>,
    /// `.creds` file: user JWT with nkey seed.
    pub creds_file: Option<PathBuf>,
    /// File that holds an nkey seed (`SU...`).
    pub nkey_seed_file: Option<PathBuf>,
    /// Certificates of the authorities to trust, PEM. Default: the system's.
    pub tls_ca_file: Option<PathBuf>,
    /// Client certificate, PEM; goes with `tls_key_file`.
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the client certificate, PEM.
    pub tls_key_file: Option<PathBuf>,
    /// Start with TLS instead of upgrading after the server's greeting.
    pub tls_first: bool,
    /// What subjects for answers begin with; give each role its own to keep others from reading its answers.
    /// Default `_INBOX`.
    pub inbox_prefix: Option<String>,
    /// JetStream domain whose streams are used; `None`: that of the server. A token.
    pub stream_domain: Option<String>,
    /// How many servers keep each new stream: 1, 3 or 5. Default 1.
    pub stream_replicas: usize,
    /// How long to try the first connect, an unreachable server included. Default 10 s.
    pub connect_deadline: Duration,
    /// Messages that may wait for the socket. Default 16384.
    pub queue_messages_max: usize,
    /// Bytes that may wait for the socket. Default 64 MiB.
    pub queue_bytes_max: usize,
    /// How often the client pings an idle connection; two unanswered ones end it. Default 2 s.
    pub ping_interval: Duration,
}

impl Default for NatsOptions {
    fn default() -> Self {
        Self {
            url: String::new(),
            name: "exobus".to_owned(),
            context_file: None,
            creds_file: None,
            nkey_seed_file: None,
            tls_ca_file: None,
            tls_cert_file: None,
            tls_key_file: None,
            tls_first: false,
            inbox_prefix: None,
            stream_domain: None,
            stream_replicas: 1,
            connect_deadline: Duration::from_secs(10),
            queue_messages_max: 16 * 1024,
            queue_bytes_max: 64 * 1024 * 1024,
            ping_interval: Duration::from_secs(2),
        }
    }
}

impl NatsOptions {
    /// Defaults with a URL.
    pub fn url(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }

    /// Defaults with a context file.
    pub fn context(path: impl Into<PathBuf>) -> Self {
        Self { context_file: Some(path.into()), ..Self::default() }
    }
}

/// A text that prints as `***`.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How to prove who we are.
#[derive(Debug, Clone)]
pub(super) enum Login {
    None,
    Creds(Secret),
    Nkey(Secret),
    Token(Secret),
    Password(String, Secret),
}

/// Options with the context merged in and the secrets read.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    /// Server addresses; may hold user and password when they came from a context file.
    pub(super) servers: Vec<async_nats::ServerAddr>,
    /// For messages: no secrets.
    pub(super) shown_url: String,
    pub(super) login: Login,
    pub(super) tls_ca: Option<PathBuf>,
    pub(super) tls_pair: Option<(PathBuf, PathBuf)>,
    pub(super) tls_first: bool,
    pub(super) inbox_prefix: String,
    /// What requests to JetStream begin with.
    pub(super) api_prefix: String,
}

/// Reads context and secrets.
///
/// # Errors
/// `Config` names the file and what is wrong with it.
pub(super) fn resolve(options: &NatsOptions) -> Result<Resolved, BusError> {
    let context = match &options.context_file {
        None => Context::default(),
        Some(path) => Context::read(path)?,
    };
    let given = |text: &str| (!text.is_empty()).then(|| PathBuf::from(expand_home(text)));
    let url_is_from_context = options.url.is_empty() && !context.url.is_empty();
    let url = match (options.url.as_str(), context.url.as_str()) {
        ("", "") => "nats://127.0.0.1:4222",
        ("", from_context) => from_context,
        (own, _) => own,
    };
    let mut servers = Vec::new();
    let mut shown = Vec::new();
    for part in url.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let without_user = part.rsplit_once('@').map_or(part, |(_, host)| host).to_owned();
        let server: async_nats::ServerAddr =
            part.parse().map_err(|error| BusError::Config(format!("URL {without_user}: {error}")))?;
        if server.has_user_pass() && !url_is_from_context {
            return Err(BusError::Config(format!(
                "the URL of {without_user} holds a user or password; put them into a context file that only you can read"
            )));
        }
        shown.push(format!("{}://{}:{}", server.scheme(), server.host(), server.port()));
        servers.push(server);
    }
    if servers.is_empty() {
        return Err(BusError::Config("no URL given".to_owned()));
    }
    let creds = options.creds_file.clone().or_else(|| given(&context.creds));
    let nkey = options.nkey_seed_file.clone().or_else(|| given(&context.nkey));
    let filled = |secret: Option<Secret>| secret.filter(|secret| !secret.0.is_empty());
    let login = if let Some(path) = creds {
        // The client's parser wants a line end after the last line.
        Login::Creds(Secret(secret_file(&path)?.0 + "\n"))
    } else if let Some(path) = nkey {
        Login::Nkey(secret_file(&path)?)
    } else if let Some(creds) = context.own_creds() {
        Login::Creds(creds)
    } else if let Some(token) = filled(context.token) {
        Login::Token(token)
    } else if !context.user.is_empty() {
        Login::Password(context.user, context.password.unwrap_or(Secret(String::new())))
    } else {
        Login::None
    };
    let cert = options.tls_cert_file.clone().or_else(|| given(&context.cert));
    let key = options.tls_key_file.clone().or_else(|| given(&context.key));
    let tls_pair = match (cert, key) {
        (Some(cert), Some(key)) => {
            check_private(&key)?;
            Some((cert, key))
        }
        (None, None) => None,
        _ => return Err(BusError::Config("a client certificate needs its key, and a key its certificate".to_owned())),
    };
    let inbox_prefix = match &options.inbox_prefix {
        Some(prefix) => prefix.clone(),
        None if !context.inbox_prefix.is_empty() => context.inbox_prefix,
        None => "_INBOX".to_owned(),
    };
    Subject::parse(&inbox_prefix)?;
    let domain = (!context.jetstream_domain.is_empty()).then_some(&context.jetstream_domain);
    let api_prefix = match options.stream_domain.as_ref().or(domain) {
        Some(domain) => {
            check_token(domain)?;
            format!("$JS.{domain}.API")
        }
        None => "$JS.API".to_owned(),
    };
    if !matches!(options.stream_replicas, 1 | 3 | 5) {
        return Err(BusError::Config(format!("stream_replicas is 1, 3 or 5, not {}", options.stream_replicas)));
    }
    Ok(Resolved {
        servers,
        shown_url: shown.join(","),
        login,
        tls_ca: options.tls_ca_file.clone().or_else(|| given(&context.ca)),
        tls_pair,
        tls_first: options.tls_first || context.tls_first,
        inbox_prefix,
        api_prefix,
    })
}

pub(super) fn read(path: &Path) -> Result<String, BusError> {
    std::fs::read_to_string(path).map_err(|error| BusError::Config(format!("read {}: {error}", path.display())))
}

/// Reads a secret, refusing files that others can read.
pub(super) fn secret_file(path: &Path) -> Result<Secret, BusError> {
    let text = read(path)?;
    check_private(path)?;
    Ok(Secret(text.trim().to_owned()))
}

pub(super) fn check_private(path: &Path) -> Result<(), BusError> {
    let metadata =
        std::fs::metadata(path).map_err(|error| BusError::Config(format!("read {}: {error}", path.display())))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let shown = path.display();
        return Err(BusError::Config(format!(
            "{shown} holds a secret but its mode is {mode:o}; others must not read it: chmod 600 {shown}"
        )));
    }
    Ok(())
}

pub(super) fn expand_home(text: &str) -> String {
    match (text.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn file(dir: &tempfile::TempDir, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_context_file_of_the_nats_command_is_understood() {
        let dir = tempfile::tempdir().unwrap();
        let seed = file(&dir, "seed.nk", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n", 0o600);
        let text = format!(
            r#"{{"description":"test","url":"nats://10.0.0.1:4222,nats://10.0.0.2","socks_proxy":"","token":"",
                "user":"","password":"","creds":"","nkey":"{}","cert":"","key":"","ca":"/etc/ca.pem","nsc":"",
                "jetstream_domain":"hub","inbox_prefix":"_INBOX_n1","tls_first":true}}"#,
            seed.display()
        );
        let resolved = resolve(&NatsOptions::context(file(&dir, "c.json", &text, 0o644))).unwrap();
        assert_eq!(resolved.shown_url, "nats://10.0.0.1:4222,nats://10.0.0.2:4222");
        assert_eq!(resolved.inbox_prefix, "_INBOX_n1");
        assert_eq!(resolved.tls_ca, Some("/etc/ca.pem".into()));
        assert_eq!(resolved.api_prefix, "$JS.hub.API");
        assert!(resolved.tls_first);
        assert!(matches!(&resolved.login, Login::Nkey(seed) if seed.0.starts_with("SUAC") && !seed.0.ends_with('\n')));
        assert!(!format!("{resolved:?}").contains("SUAC"), "a secret was printed");
    }

    #[test]
    fn options_win_over_the_context() {
        let dir = tempfile::tempdir().unwrap();
        let context = file(&dir, "c.json", r#"{"url":"nats://10.0.0.1:4222","inbox_prefix":"_A"}"#, 0o644);
        let options = NatsOptions {
            url: "nats://10.0.0.9:1".to_owned(),
            inbox_prefix: Some("_B".to_owned()),
            ..NatsOptions::context(context)
        };
        let resolved = resolve(&options).unwrap();
        assert_eq!(resolved.shown_url, "nats://10.0.0.9:1");
        assert_eq!(resolved.inbox_prefix, "_B");
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let seed = file(&dir, "seed.nk", "SU", 0o640);
        let options = NatsOptions { nkey_seed_file: Some(seed), ..NatsOptions::default() };
        assert!(matches!(resolve(&options), Err(BusError::Config(text)) if text.contains("640")));
        for secret in [r#""user":"u","password":"p""#, r#""user_jwt":"j","user_seed":"s""#, r#""token":"t""#] {
            let context = file(&dir, "c.json", &format!("{{{secret}}}"), 0o644);
            assert!(matches!(resolve(&NatsOptions::context(context)), Err(BusError::Config(_))), "{secret}");
            let context = file(&dir, "c.json", &format!("{{{secret}}}"), 0o600);
            let login = resolve(&NatsOptions::context(context)).unwrap().login;
            assert!(!matches!(login, Login::None), "{secret}");
        }
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_not_repeated() {
        let error = resolve(&NatsOptions::url("nats://me:sesame@host:4222")).unwrap_err().to_string();
        assert!(error.contains("host:4222") && !error.contains("sesame"), "{error}");
    }

    #[test]
    fn an_inbox_prefix_must_be_a_subject() {
        let options = NatsOptions { inbox_prefix: Some("_INBOX.>".to_owned()), ..NatsOptions::default() };
        assert!(matches!(resolve(&options), Err(BusError::Subject(_))));
    }
}
