//! The shipped configurations: the examples are right, and each wrong one gives the error that it promises.

use std::{
    fs,
    path::{Path, PathBuf},
};

use exobus::config::{
    ConfigError, NodeConfig, Overrides, Setting, keys,
    layers::{Layers, Origin, Sources},
    units::size,
};
use serde_json::Value;

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
            Some(rest) if rest.starts_with('[') => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    // The files of the examples do not exist, which is the first thing after the keys that is checked.
    let error = load(Some(written(&uncommented).path()), &[]).unwrap_err();
    assert!(matches!(error, ConfigError::Unsafe(_)), "{error}");
}

#[test]
fn local_examples_load() {
    for file in folder("local") {
        let config = load(Some(&file), &[]).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(config.node.name.is_some(), "{}", file.display());
    }
}

/// The files of a cluster of so many machines, loaded with this environment; the secrets that they name are elsewhere, so others are put
/// in their place.
fn cluster(size: &str, environment: &[(&str, &str)]) -> (Vec<NodeConfig>, NodeConfig) {
    let secret = written("0123456789abcdef0123456789abcdef\n");
    let other = written("fedcba9876543210fedcba9876543210\n");
    let (mut nodes, mut clients) = (Vec::new(), Vec::new());
    for file in folder(&format!("cluster/{size}")) {
        let text = fs::read_to_string(&file).unwrap();
        let here: String = text
            .lines()
            .map(|line| match line.split_once(" = \"/etc/exobus/") {
                Some(("submitters_token_file", _)) => format!("submitters_token_file = {:?}\n", other.path()),
                Some((key, _)) => format!("{key} = {:?}\n", secret.path()),
                None => format!("{line}\n"),
            })
            .collect();
        let is_client = file.ends_with("client.toml");
        let environment = if is_client { &[] } else { environment };
        let config = load(Some(written(&here).path()), environment);
        let config = config.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(config.cluster.name, "lab");
        let inbox = if is_client { "_INBOX_submitter" } else { "_INBOX_node" };
        assert_eq!(config.cluster.nats_inbox_prefix.as_deref(), Some(inbox), "as the server's file allows");
        match is_client {
            true => config.submitter_credentials().map(drop).unwrap(),
            false => config.node_credentials().map(drop).unwrap(),
        }
        if is_client { clients.push(config) } else { nodes.push(config) }
    }
    assert_eq!(clients.len(), 1, "one file for whoever submits");
    (nodes, clients.remove(0))
}

/// What nodes and clients have to say alike.
fn agree(nodes: &[NodeConfig], client: &NodeConfig) {
    for node in nodes {
        assert_eq!(node.security.roots, nodes[0].security.roots, "all nodes see the same folders");
        assert_eq!(node.cluster.jetstream_replicas, nodes[0].cluster.jetstream_replicas);
    }
    assert!(nodes[0].security.data_ca_file.is_some() && client.security.data_ca_file.is_some());
}

#[test]
fn the_files_of_a_cluster_of_one_machine_load() {
    let (nodes, client) = cluster("one", &[]);
    agree(&nodes, &client);
    assert_eq!(nodes.len(), 1);
    assert!(nodes[0].node.scheduler, "there is no other");
}

#[test]
fn the_files_of_a_cluster_of_three_machines_load() {
    let (nodes, client) = cluster("three", &[]);
    agree(&nodes, &client);
    let names: std::collections::BTreeSet<_> = nodes.iter().map(|node| node.node.name.clone()).collect();
    let schedulers = nodes.iter().filter(|node| node.node.scheduler).count();
    assert_eq!((names.len(), schedulers), (3, 3), "three nodes of different names, each of which may be the Scheduler");
}

#[test]
fn one_file_serves_a_hundred_machines_which_differ_by_their_environment() {
    let mut seen = std::collections::BTreeSet::new();
    for machine in 1..=100 {
        let (name, listen) = (format!("n{machine:03}"), format!("10.0.{}.{machine}:7400", machine % 5));
        let rack = format!("r{}", machine % 5);
        let mut environment = vec![
            ("EXOBUS_NODE__NAME", name.as_str()),
            ("EXOBUS_NODE__LISTEN", &listen),
            ("EXOBUS_NODE__LABELS__RACK", &rack),
        ];
        if machine <= 5 {
            environment.push(("EXOBUS_NODE__SCHEDULER", "true"));
        }
        let (nodes, client) = cluster("hundred", &environment);
        agree(&nodes, &client);
        let [node] = nodes.as_slice() else { panic!("one file for all nodes") };
        assert_eq!((node.node.labels["rack"].as_str(), node.node.scheduler), (rack.as_str(), machine <= 5));
        let servers = node.cluster.nats_url.as_deref().unwrap();
        assert_eq!((servers.split(',').count(), node.cluster.jetstream_replicas), (3, 3));
        assert_eq!(client.cluster.nats_url.as_deref(), Some(servers));
        seen.insert((node.node.name.clone(), node.node.listen));
    }
    assert_eq!(seen.len(), 100);
    // A machine whose environment says nothing has no certificate of its name, and listens to itself.
    let (nodes, _) = cluster("hundred", &[]);
    let error = nodes[0].node_tls(std::sync::Arc::new(exobus::store::SystemClock::new())).unwrap_err();
    assert!(error.to_string().contains("node.name is not"), "{error}");
}

/// All shipped files that are right.
fn right() -> Vec<PathBuf> {
    let folders = ["local", "cluster/one", "cluster/three", "cluster/hundred"];
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/default.toml");
    std::iter::once(default).chain(folders.into_iter().flat_map(folder)).collect()
}

/// What is wrong with a value by a JSON schema, as far as such schemas go as ours are; a word of a schema that is not known here is wrong.
fn check_schema(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let wrong = |what: String| Err(format!("{at}: {what}"));
    for (word, rule) in schema.as_object().unwrap() {
        let right = match (word.as_str(), value) {
            ("$schema" | "title" | "description" | "default" | "examples", _) => true,
            ("type", _) => match rule.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_i64() || value.is_u64(),
                other => panic!("{at}: type {other}"),
            },
            ("enum", _) => rule.as_array().unwrap().contains(value),
            ("minimum", Value::Number(number)) => number.as_i64() >= rule.as_i64(),
            ("maximum", Value::Number(number)) => number.as_i64() <= rule.as_i64(),
            ("minLength", Value::String(text)) => text.chars().count() as u64 >= rule.as_u64().unwrap(),
            ("pattern", Value::String(text)) => regex::Regex::new(rule.as_str().unwrap()).unwrap().is_match(text),
            ("items", Value::Array(items)) => {
                items.iter().enumerate().try_for_each(|(n, item)| check_schema(rule, item, &format!("{at}[{n}]")))?;
                true
            }
            ("properties" | "additionalProperties", Value::Object(_)) => true,
            // They say nothing of values of another type.
            ("minimum" | "maximum" | "minLength" | "pattern" | "items" | "properties" | "additionalProperties", _) => {
                true
            }
            (other, _) => panic!("{at}: this test does not know {other:?}"),
        };
        if !right {
            return wrong(format!("{value} is not right by {word}: {rule}"));
        }
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        let rule = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
        if rule == &Value::Bool(false) {
            return wrong(format!("{name} is unknown"));
        }
        check_schema(rule, inner, &format!("{at}.{name}"))?;
    }
    Ok(())
}

fn as_json(text: &str) -> Option<Value> {
    let table: toml::Table = toml::from_str(text).ok()?;
    Some(serde_json::to_value(table).unwrap())
}

#[test]
fn the_schema_takes_all_that_is_right_and_refuses_what_is_not_as_far_as_it_can_tell() {
    let schema = exobus::config::schema::schema();
    for file in right() {
        let value = as_json(&fs::read_to_string(&file).unwrap()).unwrap();
        check_schema(&schema, &value, "").unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    for file in folder("invalid") {
        let Some(value) = as_json(&fs::read_to_string(&file).unwrap()) else { continue };
        let refused = check_schema(&schema, &value, "");
        let is_wrong = matches!(load(Some(&file), &[]), Err(ConfigError::Wrong(_)));
        // What is wrong with the others is not in a single value.
        assert_eq!(refused.is_err(), is_wrong, "{}: {refused:?}", file.display());
    }
}

#[test]
fn the_schema_has_every_key_with_its_default_and_refuses_no_value_that_is_taken() {
    let schema = exobus::config::schema::schema();
    let texts = [
        "4GiB",
        " 1.5 GB",
        "60%",
        "95 %",
        "1000",
        "3s",
        "500ms",
        "1m 30s",
        "2 hours",
        "127.0.0.1:0",
        "[::1]:7400",
        "0.0.0.0:65535",
        "nats://h",
        "tls://a.b:4222,nats://[::1]:4222",
        "n1",
        "a_b-C",
        "thread",
        "process-all",
        "none",
        "/data",
        "no such",
        "",
        "nats://me:secret@host",
        "x:1",
        "n.1",
        "4 gigs",
        "soon",
    ];
    let mut refused = 0;
    for section in keys::SECTIONS {
        let place = section.name.split('.').fold(&schema, |schema, name| match name {
            "*" => &schema["additionalProperties"],
            name => &schema["properties"][name],
        });
        assert!(place["properties"].as_object().unwrap().len() >= section.keys.len(), "{}", section.name);
        for key in section.keys {
            let (name, rule) = (format!("{}.{}", section.name, key.name), &place["properties"][key.name]);
            assert_eq!(rule["description"], key.doc, "{name}");
            for value in key.default_value().into_iter().chain(key.example_value()) {
                check_schema(rule, &serde_json::to_value(value).unwrap(), &name).unwrap();
            }
            for text in texts {
                let taken = check_schema(rule, &Value::from(text), &name);
                assert!(taken.is_ok() || !key.kind.accepts_text(text), "{taken:?}");
                refused += u32::from(taken.is_err());
            }
        }
    }
    assert!(refused > 300, "it refuses what it can tell: {refused}");
}

#[test]
fn what_is_shown_is_what_is_in_effect_wherever_it_is_from() {
    for file in right() {
        let environment = [("EXOBUS_NODE__MEMORY", "1GiB"), ("EXOBUS_NODE__LABELS__ZONE", "a \"b\" # c")];
        let environment = || environment.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let settings = [Setting::parse("node.executors=3").unwrap(), Setting::parse("node.memory=2GiB").unwrap()];
        let sources = Sources { file: Some(&file), settings: &settings, lenient: false };
        let layers = Layers::gather(sources, environment()).unwrap();
        let config = NodeConfig::of(&layers).unwrap();
        assert_eq!((config.node.executors, config.node.memory.bytes(0)), (3, 2 << 30));
        for origins in [false, true] {
            let shown = written(&layers.to_toml(origins));
            let sources = Sources { file: Some(shown.path()), ..Sources::default() };
            let again = Layers::gather(sources, std::iter::empty()).unwrap();
            assert_eq!(NodeConfig::of(&again).unwrap(), config, "{}", file.display());
        }
        let text = layers.to_toml(true);
        for line in ["memory = \"2GiB\"  # --set", "executors = 3  # --set"] {
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
        assert!(text.contains("  # environment variable EXOBUS_NODE__LABELS__ZONE\n"), "{text}");
    }
}

#[test]
fn the_line_of_a_file_is_the_origin_of_what_it_says() {
    let file = written("[node]\n\nname = \"n1\"\nlabels.rack = \"r1\"\n[node.resources]\ngpus = [\n  \"a\",\n]\n");
    let sources = Sources { file: Some(file.path()), ..Sources::default() };
    let layers = Layers::gather(sources, std::iter::empty()).unwrap();
    let line = |path: &str| match layers.get(path).unwrap().1 {
        Origin::File(_, line) => Some(*line),
        _ => None,
    };
    let lines = ["node.name", "node.labels.rack", "node.resources.gpus", "node.memory"].map(line);
    assert_eq!(lines, [Some(3), Some(4), Some(6), None]);
}

#[test]
fn an_older_release_may_be_lenient_with_the_file_of_a_newer_one() {
    let file = written("[node]\nname = \"n1\"\nmemroy = \"4GiB\"\n[nodes]\nx = 1\n[node.newer]\ny = { z = 2 }\n");
    let environment = [("EXOBUS_NODE__COLOUR", "blue"), ("EXOBUS_LENIENT", "1")];
    let config = load(Some(file.path()), &environment).unwrap();
    assert_eq!(config.node.name.as_deref(), Some("n1"));
    let error = load(Some(file.path()), &environment[..1]).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 4, "{error}");

    let overrides = Overrides { lenient: true, ..Overrides::default() };
    let loaded = NodeConfig::load_with(Some(file.path()), &overrides, std::iter::empty()).unwrap();
    assert_eq!(loaded, config);
    let sources = Sources { file: Some(file.path()), lenient: true, ..Sources::default() };
    let layers = Layers::gather(sources, std::iter::empty()).unwrap();
    let ignored: Vec<_> = layers.ignored().iter().map(|problem| problem.text.as_str()).collect();
    let expected = [
        "unknown key `node.memroy`; did you mean `node.memory`?",
        "unknown section `nodes`; did you mean `node`?",
        "unknown section `node.newer`; `exobus config default` prints all that there are",
    ];
    assert_eq!(ignored, expected);

    // A key that is known has a right value all the same.
    let wrong = written("[node]\nmemroy = 4\nmemory = 4\n");
    let error = NodeConfig::load_with(Some(wrong.path()), &overrides, std::iter::empty()).unwrap_err().to_string();
    assert!(error.lines().count() == 1 && error.contains("`node.memory` cannot be 4"), "{error}");
    let error = load(None, &[("EXOBUS_LENIENT", "maybe")]).unwrap_err().to_string();
    assert_eq!(error, "environment variable EXOBUS_LENIENT: it cannot be \"maybe\"; expected 1 or 0");
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
    let environment = || environment.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let set = |text| Overrides { settings: vec![Setting::parse(text).unwrap()], ..overrides.clone() };
    let config = NodeConfig::load_with(Some(file.path()), &set("node.executors=4"), environment()).unwrap();
    assert_eq!(config.node.executors, 4, "what is set wins over the file, and over the environment:");
    let config = NodeConfig::load_with(Some(file.path()), &set("node.memory=3GiB"), environment()).unwrap();
    assert_eq!(size(config.node.memory.bytes(0)), size(3 << 30));
    let config = NodeConfig::load_with(Some(file.path()), &set("node.name=from-set"), environment()).unwrap();
    assert_eq!(config.node.name.as_deref(), Some("from-flag"), "an option of that name wins");
    let config = NodeConfig::load_with(Some(file.path()), &overrides, environment()).unwrap();
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
