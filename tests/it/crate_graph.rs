//! Holds the crates to the design: dependencies go down only, and each heavy library has one home.

use std::{collections::BTreeMap, process::Command};

/// Crate, and the crates of the workspace that it may use. A new edge is a commit of its own, with the reason.
const ALLOWED: &[(&str, &[&str])] = &[
    ("exobus-bus", &[]),
    ("exobus-store", &[]),
    ("exobus-files", &[]),
    ("exobus-macros", &[]),
    ("exobus-actors", &["exobus-bus", "exobus-macros", "exobus-store"]),
    ("exobus-shuffle", &["exobus-actors", "exobus-store"]),
    ("exobus-tables", &["exobus-files", "exobus-store"]),
    ("exobus", &["exobus-actors", "exobus-bus", "exobus-shuffle", "exobus-store", "exobus-tables"]),
    (
        "exobus-integration",
        &["exobus", "exobus-actors", "exobus-bus", "exobus-shuffle", "exobus-store", "exobus-tables"],
    ),
    ("xtask", &[]),
];

/// Library, and the only crates that may name it: behind their own types it can be replaced.
const HOMES: &[(&str, &[&str])] = &[
    ("actix", &["exobus-actors"]),
    ("actix-rt", &["exobus-actors"]),
    ("async-nats", &["exobus-bus"]),
    ("sled", &["exobus-store"]),
    ("redb", &["exobus-bus"]),
    ("arrow-array", &["exobus-tables"]),
    ("arrow-buffer", &["exobus-tables"]),
    ("arrow-data", &["exobus-tables"]),
    ("arrow-ipc", &["exobus-tables"]),
    ("arrow-row", &["exobus-tables"]),
    ("arrow-schema", &["exobus-tables"]),
    ("arrow-select", &["exobus-tables"]),
    ("flate2", &["exobus-tables"]),
    ("flatbuffers", &["exobus-tables"]),
    ("lz4_flex", &["exobus-tables"]),
    ("parquet", &["exobus-tables"]),
    ("snap", &["exobus-tables"]),
    ("zstd", &["exobus-tables"]),
    ("clap", &["exobus", "xtask"]),
    ("indicatif", &["exobus"]),
    ("config", &["exobus"]),
    // In libraries errors are types.
    ("anyhow", &["exobus", "exobus-integration", "xtask"]),
];

/// Name of each crate of the workspace, and of everything that it depends on outside its tests.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let of = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap();
        all.iter().filter(|one| one["kind"] != "dev").map(|one| text(&one["name"])).collect()
    };
    metadata["packages"].as_array().unwrap().iter().map(|package| (text(&package["name"]), of(package))).collect()
}

#[test]
fn dependencies_go_down_only() {
    let graph = dependencies();
    let known: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    for name in graph.keys() {
        assert!(known.contains(&name.as_str()), "{name} is new: give it a line in ALLOWED");
    }
    for (name, allowed) in ALLOWED {
        for dependency in graph[*name].iter().filter(|dependency| known.contains(&dependency.as_str())) {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
        }
    }
}

#[test]
fn libraries_stay_where_they_belong() {
    let graph = dependencies();
    for (library, homes) in HOMES {
        let users: Vec<&String> =
            graph.iter().filter(|(_, all)| all.iter().any(|one| one == library)).map(|(name, _)| name).collect();
        assert!(!users.is_empty(), "nobody uses {library} any more: drop its line");
        for user in users {
            assert!(homes.contains(&user.as_str()), "{user} must not depend on {library}; it lives in {homes:?}");
        }
    }
}

/// Libraries whose types stand in the signatures of other libraries: with two versions of one in a build, what one library gives
/// another does not take. `deny.toml` has the same list.
fn comes_once(library: &str) -> bool {
    library.starts_with("arrow-") || ["arrow", "flatbuffers", "object_store", "parquet"].contains(&library)
}

#[test]
fn arrow_and_its_kin_come_in_one_version() {
    let lock: toml::Value = include_str!("../../Cargo.lock").parse::<toml::Table>().unwrap().into();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in lock["package"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        if comes_once(name) {
            versions.entry(name).or_default().push(package["version"].as_str().unwrap());
        }
    }
    assert!(versions.contains_key("arrow-array"), "no Arrow in Cargo.lock: {versions:?}");
    for (library, versions) in &versions {
        assert_eq!(versions.len(), 1, "{library} comes in versions {versions:?}");
        assert!(
            include_str!("../../deny.toml").contains(&format!("crate = \"{library}\", deny-multiple-versions = true")),
            "deny.toml would let a second version of {library} in"
        );
    }
    let arrows: Vec<_> =
        versions.iter().filter(|(library, _)| library.starts_with("arrow")).map(|(_, v)| v[0]).collect();
    assert!(arrows.windows(2).all(|pair| pair[0] == pair[1]), "crates of Arrow are of one release: {versions:?}");
}
