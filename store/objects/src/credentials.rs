//! Whose keys are used: found as the AWS tools find them, or in one profile and nowhere else.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::failure::{Failure, GivenUp};

/// Keys are made anew so long before they end.
const BEFORE_END: Duration = Duration::from_secs(300);
const COMMAND_MAX: Duration = Duration::from_secs(60);

/// What the files of the AWS tools say of one profile.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Profile(BTreeMap<String, String>);

/// What is set, and not to what.
impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Profile {
    /// The profile `name` of the files of whoever runs this process; `None`: they have none of that name.
    pub(crate) fn read(name: &str) -> Option<Self> {
        let files = [
            ("AWS_CONFIG_FILE", ".aws/config", format!("profile {name}")),
            ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", name.to_owned()),
        ];
        let mut profile = Self::default();
        let mut any = false;
        for (variable, usual, section) in files {
            let path =
                std::env::var_os(variable).map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(usual)));
            let Some(text) = path.as_deref().and_then(readable) else { continue };
            for (of, values) in sections(&text) {
                // The first file calls only this one by its bare name.
                if of == section || name == "default" && of == name {
                    any = true;
                    profile.0.extend(values);
                }
            }
        }
        any.then_some(profile)
    }

    /// What is set.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Where its keys come from; `None`: it has none.
    ///
    /// # Errors
    /// In words: in a way that is not known here.
    pub(crate) fn keys(&self) -> Result<Option<Keys>, String> {
        if let (Some(id), Some(secret)) = (self.get("aws_access_key_id"), self.get("aws_secret_access_key")) {
            let token = self.get("aws_session_token").map(str::to_owned);
            let keys = checked(AwsCredential { key_id: id.to_owned(), secret_key: secret.to_owned(), token })?;
            return Ok(Some(Keys::Fixed(Arc::new(keys))));
        }
        if let Some(command) = self.get("credential_process") {
            return Ok(Some(Keys::Made(Made { command: command.to_owned(), last: Mutex::default() })));
        }
        match ["role_arn", "sso_session", "sso_start_url"].into_iter().find(|key| self.get(key).is_some()) {
            Some(key) => Err(format!(
                "its keys come by {key}, which is not known here: \
                 `credential_process = aws configure export-credentials --profile NAME` has the AWS tools find them"
            )),
            None => Ok(None),
        }
    }
}

/// A file that may be there.
fn readable(path: &Path) -> Option<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a file of the AWS tools cannot be read");
            None
        }
    }
}

/// The sections of a file of the AWS tools, in their order: names in brackets, and below each, lines of a key and a value. Lines that
/// are set in belong to the value before them, which is none that is known here.
fn sections(text: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let mut sections: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with([' ', '\t', '#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let words: Vec<_> = name.split_whitespace().collect();
            sections.push((words.join(" ").replace(['"', '\''], ""), BTreeMap::new()));
        } else if let (Some((key, value)), Some((_, values))) = (line.split_once('='), sections.last_mut()) {
            let value = value.split(" #").next().unwrap_or_default().split(" ;").next().unwrap_or_default();
            values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    sections
}

/// Refuses keys that no header can hold.
fn checked(keys: AwsCredential) -> Result<AwsCredential, String> {
    let is_text = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    let are_texts = [&keys.key_id, &keys.secret_key].into_iter().chain(&keys.token).all(|text| is_text(text));
    are_texts.then_some(keys).ok_or_else(|| "a key has characters that no key has".to_owned())
}

/// Where keys come from.
#[derive(Debug)]
pub(crate) enum Keys {
    /// They stand in a file.
    Fixed(Arc<AwsCredential>),
    /// A command makes them.
    Made(Made),
}

/// Keys that a command of the person who wrote the profile prints (`credential_process`).
#[derive(Debug)]
pub(crate) struct Made {
    command: String,
    last: Mutex<Option<Lent>>,
}

/// Keys, and when they end.
type Lent = (Arc<AwsCredential>, Option<DateTime<Utc>>);

/// What the command prints.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<DateTime<Utc>>,
}

#[async_trait]
impl CredentialProvider for Keys {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        match self {
            Self::Fixed(keys) => Ok(keys.clone()),
            Self::Made(made) => made.now().await.map_err(|reason| refused(&reason)),
        }
    }
}

impl Made {
    async fn now(&self) -> Result<Arc<AwsCredential>, String> {
        let mut last = self.last.lock().await;
        if let Some((keys, ends)) = &*last
            && ends.is_none_or(|ends| Utc::now() + BEFORE_END < ends)
        {
            return Ok(keys.clone());
        }
        let mut command = tokio::process::Command::new("/bin/sh");
        command.args(["-c", &self.command]).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(COMMAND_MAX, command.output()).await;
        let output = output.map_err(|_| format!("credential_process has not ended in {} s", COMMAND_MAX.as_secs()))?;
        let output = output.map_err(|error| format!("credential_process cannot be run: {error}"))?;
        if !output.status.success() {
            // What it prints may be a secret.
            return Err(format!("credential_process has failed: {}", output.status));
        }
        let printed: Printed = serde_json::from_slice(&output.stdout)
            .map_err(|_| "credential_process has not printed what it should".to_owned())?;
        if printed.version != 1 {
            return Err(format!("credential_process prints version {}, known is 1", printed.version));
        }
        let Printed { access_key_id, secret_access_key, session_token, expiration, .. } = printed;
        let keys = AwsCredential { key_id: access_key_id, secret_key: secret_access_key, token: session_token };
        let keys = Arc::new(checked(keys)?);
        *last = Some((keys.clone(), expiration));
        Ok(keys)
    }
}

/// There are no keys that can be used.
pub(crate) fn refused(reason: &str) -> object_store::Error {
    let failure = Failure::Credentials(format!("credentials of S3: {reason}"));
    let source = Box::new(GivenUp { failure, attempts: 1, since: Duration::ZERO });
    object_store::Error::Generic { store: "S3", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "# people write these\n[default]\nregion = eu-west-1 # home\ns3 =\n  endpoint_url = http://inner\n\n\
        [profile  \"team a\"]\nendpoint_url=http://127.0.0.1:9000\nAWS_ACCESS_KEY_ID = one\naws_secret_access_key = se=cret#1\n\
        [sso-session x]\nsso_region = y\n";

    #[test]
    fn the_files_of_the_tools_are_read_as_they_read_them() {
        let sections = sections(CONFIG);
        let names: Vec<_> = sections.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["default", "profile team a", "sso-session x"]);
        assert_eq!(sections[0].1.get("region").map(String::as_str), Some("eu-west-1"));
        assert_eq!(sections[0].1.get("endpoint_url"), None, "a line that is set in is of the value before it");
        let profile = Profile(sections[1].1.clone());
        assert_eq!(profile.get("endpoint_url"), Some("http://127.0.0.1:9000"));
        let Ok(Some(Keys::Fixed(keys))) = profile.keys() else { panic!("they stand there") };
        assert_eq!((keys.key_id.as_str(), keys.secret_key.as_str(), &keys.token), ("one", "se=cret#1", &None));
    }

    #[test]
    fn keys_that_come_in_a_way_that_is_not_known_are_refused_with_what_to_do() {
        let profile = Profile([("role_arn".to_owned(), "arn:aws:iam::1:role/x".to_owned())].into());
        assert!(profile.keys().unwrap_err().contains("credential_process"));
        assert!(Profile::default().keys().unwrap().is_none());
    }

    #[test]
    fn a_command_makes_keys_and_is_asked_again_when_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let count = folder.path().join("count");
        let ends = Utc::now() + Duration::from_secs(3600);
        let print = |ends: DateTime<Utc>| {
            format!(
                "echo x >> {}; echo '{{\"Version\":1,\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\",\"Expiration\":\"{}\"}}'",
                count.display(),
                ends.to_rfc3339()
            )
        };
        let runs = || std::fs::read_to_string(&count).unwrap().lines().count();
        let ask = |command: String, times: usize| {
            crate::runtime::wait_for(async move {
                let made = Made { command, last: Mutex::default() };
                for _ in 0..times {
                    assert_eq!(made.now().await.unwrap().key_id, "a");
                }
            });
        };
        ask(print(ends), 3);
        assert_eq!(runs(), 1);
        ask(print(Utc::now() + Duration::from_secs(60)), 2);
        assert_eq!(runs(), 3, "they end soon");
        let failed = crate::runtime::wait_for(async {
            Made { command: "echo secret; exit 3".to_owned(), last: Mutex::default() }.now().await.map(|_| ())
        });
        assert!(failed.as_ref().is_err_and(|reason| reason.contains("3") && !reason.contains("secret")), "{failed:?}");
    }
}
