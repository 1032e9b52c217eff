//! The shipped configurations: the examples are right, and each wrong one gives the error that it promises.

use std::{
    fs,
    path::{Path, PathBuf},
};

use exobus::config::{ConfigError, NodeConfig, Overrides, keys, units::size};

fn folder(name: &str) -> Vec<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(name);
    let mut files: Vec<PathBuf> = fs::read_dir(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{}", path.display());
    files
}

fn load(file: Option<&Path>, environment: &[(&str, &str)]) -> Result<NodeConfig, ConfigError> {
    let environment = environment.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    NodeConfig::load_with(file, &Overrides::default(), environment)
}

fn written(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn the_default_file_changes_nothing() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/default.toml");
    assert_eq!(load(Some(&path), &[]).unwrap(), load(None, &[]).unwrap());
}

#[test]
fn every_example_of_a_key_is_right() {
    let uncommented: String = keys::default_toml()
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.split_once(" = ").is_some_and(|(name, _)| !name.contains(' ')) => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    // The files of the examples do not exist, which is the first thing after the keys that is checked.
    let error = load(Some(written(&uncommented).path()), &[]).unwrap_err();
    assert!(matches!(error, ConfigError::Unsafe(_)), "{error}");
}

#[test]
fn local_and_cluster_examples_load() {
    for file in folder("local") {
        let config = load(Some(&file), &[]).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(config.node.name.is_some(), "{}", file.display());
    }
    // The secrets that these name are elsewhere, so put others in their place.
    let secret = written("0123456789abcdef0123456789abcdef\n");
    let other = written("fedcba9876543210fedcba9876543210\n");
    let mut names = std::collections::BTreeSet::new();
    let mut schedulers = 0;
    for file in folder("cluster") {
        let text = fs::read_to_string(&file).unwrap();
        let here: String = text
            .lines()
            .map(|line| match line.split_once(" = \"/etc/exobus/") {
                Some(("submitters_token_file", _)) => format!("submitters_token_file = {:?}\n", other.path()),
                Some((key, _)) => format!("{key} = {:?}\n", secret.path()),
                None => format!("{line}\n"),
            })
            .collect();
        let config =
            load(Some(written(&here).path()), &[]).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(config.cluster.name, "lab");
        let role = if file.ends_with("client.toml") { "_INBOX_submitter" } else { "_INBOX_node" };
        assert_eq!(config.cluster.nats_inbox_prefix.as_deref(), Some(role), "as the server's file allows");
        if role != "_INBOX_node" {
            config.submitter_credentials().unwrap();
            continue;
        }
        config.node_credentials().unwrap();
        schedulers += u32::from(config.node.scheduler);
        names.insert(config.node.name);
    }
    assert_eq!((names.len(), schedulers), (3, 3), "three nodes of different names, each of which may be the Scheduler");
}

#[test]
fn invalid_files_give_the_error_that_they_promise() {
    for file in folder("invalid") {
        let text = fs::read_to_string(&file).unwrap();
        let shown = file.display().to_string();
        let expected: Vec<String> = text
            .lines()
            .map_while(|line| line.strip_prefix("# error: "))
            .map(|line| line.replace("{file}", &shown))
            .collect();
        assert!(!expected.is_empty(), "{shown} names no error");
        let error = load(Some(&file), &[]).expect_err(&shown).to_string();
        let given: Vec<&str> = error.lines().map(str::trim).collect();
        assert_eq!(given, expected, "{shown}");
    }
}

#[test]
fn later_layers_win() {
    let file = written("[node]\nname = \"from-file\"\nmemory = \"1GiB\"\nexecutors = 2\n");
    let environment = [("EXOBUS_NODE__NAME", "from-environment"), ("EXOBUS_NODE__MEMORY", "2GiB")];
    let overrides = Overrides { name: Some("from-flag".into()), ..Overrides::default() };
    let environment = environment.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let config = NodeConfig::load_with(Some(file.path()), &overrides, environment).unwrap();
    assert_eq!(config.node.name.as_deref(), Some("from-flag"));
    assert_eq!(size(config.node.memory.bytes(0)), size(2 << 30));
    assert_eq!(config.node.executors, 2);
    assert_eq!(config.cluster.name, "local", "a default");
}

#[test]
fn environment_variables_are_checked_like_files() {
    let lists = load(None, &[("EXOBUS_NODE__SPILL_DIRS", "/a:/b"), ("EXOBUS_NODE__LABELS__zone", "z1")]).unwrap();
    assert_eq!(lists.node.spill_dirs, [PathBuf::from("/a"), PathBuf::from("/b")]);
    assert_eq!(lists.node.labels["zone"], "z1");
    assert_eq!(load(None, &[("EXOBUS_LOG", "debug"), ("EXOBUS_BIN", "x")]).unwrap(), load(None, &[]).unwrap());

    let message = |name, value| load(None, &[(name, value)]).unwrap_err().to_string();
    assert_eq!(
        message("EXOBUS_NODE__MEMROY", "1GiB"),
        "environment variable EXOBUS_NODE__MEMROY: unknown key `node.memroy`; did you mean `node.memory`?"
    );
    assert_eq!(
        message("EXOBUS_NODE__EXECUTORS", "many"),
        "environment variable EXOBUS_NODE__EXECUTORS: `node.executors` cannot be \"many\"; expected a whole number, 0 or more"
    );
}

#[test]
fn secrets_that_others_can_read_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (token, submitters) =
        (written("0123456789abcdef0123456789abcdef\n"), written("fedcba9876543210fedcba9876543210\n"));
    let file = written(&format!(
        "[security]\ntoken_file = {:?}\nsubmitters_token_file = {:?}\nroots = [\"/data\"]\n",
        token.path(),
        submitters.path()
    ));
    let config = load(Some(file.path()), &[]).unwrap();
    assert_eq!(format!("{:?}", config.node_credentials().unwrap()), "***");
    assert!(config.submitter_credentials().unwrap().data_token().is_none(), "a client knows no nodes' token");

    let error = load(None, &[]).unwrap().node_credentials().unwrap_err().to_string();
    assert!(error.contains("needs security.token_file"), "{error}");
    let open = load(None, &[("EXOBUS_SECURITY__INSECURE_NO_TOKEN", "true")]).unwrap().node_credentials().unwrap();
    assert_eq!(open.data_token(), exobus::bus::Credentials::open().data_token());
    load(None, &[]).unwrap().submitter_credentials().expect("the cluster says whether a client needs a token");

    let config = || load(Some(file.path()), &[]).unwrap();
    for secret in [&token, &submitters] {
        fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let error = config().node_credentials().unwrap_err().to_string();
        assert!(error.contains("mode is 0644"), "{error}");

        fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o600)).unwrap();
        let text = fs::read(secret.path()).unwrap();
        fs::write(secret.path(), "short\n").unwrap();
        assert!(config().node_credentials().unwrap_err().to_string().contains("the token has 5 characters"));
        fs::write(secret.path(), text).unwrap();
    }
}
