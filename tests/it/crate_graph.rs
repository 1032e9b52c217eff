//! Holds the crates to the design: dependencies go down only, and each heavy library has one home.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

/// Crate, and the crates of the workspace that it may use. A new edge is a commit of its own, with the reason.
const ALLOWED: &[(&str, &[&str])] = &[
    ("exobus-bus", &[]),
    ("exobus-store", &[]),
    // Whose folders are: jobs are named by the store.
    ("exobus-files", &["exobus-store"]),
    ("exobus-objects", &["exobus-files", "exobus-store"]),
    ("exobus-macros", &[]),
    ("exobus-actors", &["exobus-bus", "exobus-files", "exobus-macros", "exobus-store"]),
    ("exobus-shuffle", &["exobus-actors", "exobus-files", "exobus-store"]),
    ("exobus-tables", &["exobus-actors", "exobus-files", "exobus-shuffle", "exobus-store"]),
    // Its jobs are those of tables with looks at what is known beside them; its estimators know none of that.
    ("exobus-queries", &["exobus-actors", "exobus-shuffle", "exobus-tables"]),
    // The same, and queries: the only one that knows SQL.
    ("exobus-sql", &["exobus-actors", "exobus-files", "exobus-queries", "exobus-shuffle", "exobus-tables"]),
    // Which object stores there are is for who makes a process to say: jobs know none of them.
    (
        "exobus",
        &[
            "exobus-actors",
            "exobus-bus",
            "exobus-files",
            "exobus-objects",
            "exobus-queries",
            "exobus-shuffle",
            "exobus-sql",
            "exobus-store",
            "exobus-tables",
        ],
    ),
    (
        "exobus-integration",
        &["exobus", "exobus-actors", "exobus-bus", "exobus-files", "exobus-shuffle", "exobus-store", "exobus-tables"],
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
    ("object_store", &["exobus-objects"]),
    ("axum", &["exobus"]),
    ("hyper", &["exobus-objects"]),
    ("rustls", &["exobus-actors", "exobus-objects"]),
    ("rustls-webpki", &["exobus-actors"]),
    ("rcgen", &["exobus"]),
    ("flate2", &["exobus-tables"]),
    ("glob", &["exobus-files"]),
    ("lz4_flex", &["exobus-tables"]),
    ("snap", &["exobus-tables"]),
    ("zstd", &["exobus-tables"]),
    ("datafusion-expr", &["exobus-sql"]),
    ("datafusion-sql", &["exobus-sql"]),
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

/// Whoever needs a table or an object store below comes by them through what they are registered with.
#[test]
fn nothing_below_pipelines_names_what_tables_are_made_of() {
    let graph = dependencies();
    assert!(graph["exobus-tables"].iter().any(|library| comes_once(library)), "{:?}", graph["exobus-tables"]);
    let is_of_tables = |name: &str| ["exobus-tables", "exobus-sql"].contains(&name);
    for (name, all) in graph.iter().filter(|(name, _)| !is_of_tables(name)) {
        let named: Vec<_> = all.iter().filter(|library| comes_once(library)).collect();
        assert!(named.is_empty(), "{name} must not depend on {named:?}: that is of pipelines/");
    }
}

/// What of a source is no test: `#[cfg(test)]` modules stand at the end.
fn without_tests(source: &str) -> &str {
    source.split("#[cfg(test)]\nmod ").next().unwrap_or(source)
}

/// The files below a folder whose names end with `.rs`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// Files that people name are reached through `exobus-files` (docs/decisions/031-one-seam-for-files.md). Of `shuffle`, all of it; of the command
/// line, what looks at inputs and outputs of jobs.
#[test]
fn files_that_people_name_are_reached_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut guarded = sources(&root.join("shuffle/src"));
    guarded.extend(
        ["explain", "folders", "generate", "planned", "sort", "tables"]
            .map(|name| root.join(format!("src/commands/{name}.rs"))),
    );
    assert!(guarded.len() > 40, "{} files", guarded.len());
    for path in guarded {
        let source = std::fs::read_to_string(&path).unwrap();
        for way in ["std::fs", "fs::", "rustix", "File::open", "path::absolute", "DirectFile::"] {
            let found =
                without_tests(&source).lines().find(|line| line.contains(way) && !line.trim_start().starts_with("//"));
            assert!(found.is_none(), "{}: {way}: go through exobus_files: {found:?}", path.display());
        }
    }
}

/// Libraries whose types stand in the signatures of other libraries: with two versions of one in a build, what one library gives
/// another does not take. `deny.toml` has the same list.
fn comes_once(library: &str) -> bool {
    library.starts_with("arrow-") || ["arrow", "flatbuffers", "parquet"].contains(&library)
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
