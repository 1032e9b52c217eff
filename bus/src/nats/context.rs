//! Contexts: the files in which the `nats` command keeps how a server is reached, `~/.config/nats/context/NAME.json`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::options::{Secret, check_private, expand_home, read, secret_file};
use crate::error::BusError;

/// Where the `nats` command keeps the context of this name: below `$XDG_CONFIG_HOME`, or else `~/.config`.
///
/// # Errors
/// `Config`: it is no name of a context, or there is no folder to look for it in.
pub fn context_path(name: &str) -> Result<PathBuf, BusError> {
    let folder = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    path_below(folder("XDG_CONFIG_HOME"), folder("HOME"), name)
}

fn path_below(config: Option<PathBuf>, home: Option<PathBuf>, name: &str) -> Result<PathBuf, BusError> {
    let is_name = !name.is_empty()
        && !name.starts_with('.')
        && name.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.'));
    if !is_name {
        let text = format!("{name:?} is no name of a context; a file of another place is named by its path");
        return Err(BusError::Config(text));
    }
    // As XDG says: what is not absolute is not looked at.
    let config = config.filter(|path| path.is_absolute()).or_else(|| home.map(|home| home.join(".config")));
    let config = config.ok_or_else(|| {
        BusError::Config(format!("the context {name} is looked for below XDG_CONFIG_HOME or HOME; neither is set"))
    })?;
    Ok(config.join("nats/context").join(format!("{name}.json")))
}

/// Everything in a context that is secret, and in the files that it names: what nobody may print.
///
/// # Errors
/// `Config` names the file and what is wrong with it.
pub fn context_secrets(path: &Path) -> Result<Vec<String>, BusError> {
    let context = Context::read(path)?;
    let mut secrets: Vec<String> = Vec::new();
    for file in [&context.creds, &context.nkey, &context.key].into_iter().filter(|file| !file.is_empty()) {
        let text = secret_file(&PathBuf::from(expand_home(file)))?.0;
        // Each line by itself, but for those that say what it is.
        secrets.extend(text.lines().map(str::trim).filter(|line| !line.starts_with('-')).map(str::to_owned));
    }
    for url in context.url.split(',') {
        let user = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).map(|(user, _)| user);
        secrets.extend(user.map(|user| user.split_once(':').map_or(user, |(_, password)| password).to_owned()));
    }
    let texts = [context.token, context.password, context.user_jwt, context.user_seed];
    secrets.extend(texts.into_iter().flatten().map(|secret| secret.0));
    Ok(secrets.into_iter().filter(|secret| !secret.is_empty()).collect())
}

/// The fields of a context that matter here; the file has more. Empty texts mean "not set".
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    pub(super) url: String,
    pub(super) token: Option<Secret>,
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    pub(super) creds: String,
    pub(super) nkey: String,
    pub(super) user_jwt: Option<Secret>,
    pub(super) user_seed: Option<Secret>,
    pub(super) cert: String,
    pub(super) key: String,
    pub(super) ca: String,
    pub(super) inbox_prefix: String,
    pub(super) jetstream_domain: String,
    pub(super) tls_first: bool,
    /// What we cannot do: to go without it would be to reach another server than was meant, or as somebody else.
    nsc: String,
    socks_proxy: String,
    jetstream_api_prefix: String,
}

impl Context {
    /// Reads a context, which only its owner may be able to read where a secret is in it.
    ///
    /// # Errors
    /// `Config` names the file and what is wrong with it.
    pub(super) fn read(path: &Path) -> Result<Self, BusError> {
        let wrong = |text: String| BusError::Config(format!("context file {}: {text}", path.display()));
        let context: Self = serde_json::from_str(&read(path)?).map_err(|error| wrong(error.to_string()))?;
        let secrets = [&context.token, &context.password, &context.user_jwt, &context.user_seed];
        if secrets.into_iter().flatten().any(|secret| !secret.0.is_empty()) || context.url.contains('@') {
            check_private(path)?;
        }
        let cannot = [
            (&context.nsc, "nsc", "`nsc generate creds` writes a file for `creds`"),
            (&context.socks_proxy, "socks_proxy", "there is no support for proxies"),
            (&context.jetstream_api_prefix, "jetstream_api_prefix", "only jetstream_domain is known"),
        ];
        if let Some((_, field, instead)) = cannot.into_iter().find(|(value, ..)| !value.is_empty()) {
            return Err(wrong(format!("{field} is set, which is not used here: {instead}")));
        }
        Ok(context)
    }

    /// A credentials file's text, made of the token and the seed that stand in the context itself.
    pub(super) fn own_creds(&self) -> Option<Secret> {
        let given = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.0.trim().to_owned());
        let (jwt, seed) = (given(&self.user_jwt)?, given(&self.user_seed)?);
        (!jwt.is_empty() && !seed.is_empty()).then(|| {
            Secret(format!(
                "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
                 -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn file(dir: &tempfile::TempDir, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_context_is_looked_for_where_the_nats_command_keeps_it() {
        let (config, home) = (Some(PathBuf::from("/x")), Some(PathBuf::from("/home/me")));
        let found = |config: &Option<PathBuf>, home: &Option<PathBuf>, name| {
            path_below(config.clone(), home.clone(), name).map_err(|error| error.to_string())
        };
        assert_eq!(found(&config, &home, "lab").unwrap(), Path::new("/x/nats/context/lab.json"));
        assert_eq!(found(&None, &home, "lab.eu").unwrap(), Path::new("/home/me/.config/nats/context/lab.eu.json"));
        let relative = Some(PathBuf::from("x"));
        assert_eq!(found(&relative, &home, "lab").unwrap(), Path::new("/home/me/.config/nats/context/lab.json"));
        assert!(found(&None, &None, "lab").unwrap_err().contains("HOME"));
        for name in ["", "..", "../lab", "a/b", "a b"] {
            assert!(found(&config, &home, name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn all_that_is_secret_in_a_context_is_named_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let seed = file(&dir, "user.nk", "SUSEED\n", 0o600);
        let creds = file(&dir, "user.creds", "-----BEGIN\nJWT\n------END\n", 0o600);
        let text = format!(
            r#"{{"url":"nats://me:sesame@host:1,nats://tok@host:2","password":"p4ss","token":"","nkey":"{}","creds":"{}"}}"#,
            seed.display(),
            creds.display()
        );
        let secrets = context_secrets(&file(&dir, "c.json", &text, 0o600)).unwrap();
        assert_eq!(secrets, ["JWT", "SUSEED", "sesame", "tok", "p4ss"]);
        let open = context_secrets(&file(&dir, "open.json", &text, 0o644)).unwrap_err().to_string();
        assert!(open.contains("644") && !open.contains("sesame"), "{open}");
    }

    #[test]
    fn what_cannot_be_done_is_said_and_not_left_out() {
        let dir = tempfile::tempdir().unwrap();
        for field in ["nsc", "socks_proxy", "jetstream_api_prefix"] {
            let path = file(&dir, field, &format!(r#"{{"{field}":"x"}}"#), 0o644);
            let error = Context::read(&path).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }
}
