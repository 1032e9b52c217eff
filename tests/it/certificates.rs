//! `exobus config ca` and `cert`, and what a node says of certificates when it starts. No server is needed: all of it comes first.

use crate::support;

use std::{fs, os::unix::fs::PermissionsExt as _};

use support::{Scratch, exobus};

/// An authority, and certificates of `n1` and `n2` of the cluster `lab`.
fn certified() -> Scratch {
    let scratch = Scratch::new();
    exobus(&["config", "ca", &scratch.text("ca")]).expect(0, &[]);
    let (ca, out) = (scratch.text("ca"), scratch.text("out"));
    let made = exobus(&["config", "cert", "--ca", &ca, "--cluster", "lab", "--node", "n1", "--node", "n2", &out]);
    made.expect(0, &[]);
    assert_eq!(made.stdout.lines().count(), 2, "{}", made.stdout);
    scratch
}

/// The configuration of a node of this name and cluster, with the certificate and the key of these names.
fn configuration(scratch: &Scratch, cluster: &str, name: &str, certificate: &str, key: &str) -> String {
    for token in ["nodes.token", "submitters.token"] {
        if !scratch.path(token).exists() {
            exobus(&["config", "token", &scratch.text(token)]).expect(0, &[]);
        }
    }
    let text = format!(
        "[cluster]\nname = {cluster:?}\n[node]\n{name}\nlisten = \"10.0.0.1:7400\"\n[security]\nroots = [\"/\"]\n\
         token_file = {:?}\nsubmitters_token_file = {:?}\n\
         data_ca_file = {:?}\ndata_cert_file = {:?}\ndata_key_file = {:?}\n",
        scratch.path("nodes.token"),
        scratch.path("submitters.token"),
        scratch.path("ca/ca.pem"),
        scratch.path(&format!("out/{certificate}.pem")),
        scratch.path(&format!("out/{key}.key")),
    );
    fs::write(scratch.path("node.toml"), text).unwrap();
    scratch.text("node.toml")
}

#[test]
fn keys_are_for_their_owner_and_nothing_is_overwritten() {
    let scratch = certified();
    for (file, mode) in [("ca/ca.key", 0o600), ("ca/ca.pem", 0o644), ("out/n1.key", 0o600), ("out/n1.pem", 0o644)] {
        assert_eq!(fs::metadata(scratch.path(file)).unwrap().permissions().mode() & 0o777, mode, "{file}");
    }
    let (ca, out) = (scratch.text("ca"), scratch.text("out"));
    let before = fs::read(scratch.path("ca/ca.key")).unwrap();
    exobus(&["config", "ca", &ca]).expect(3, &["ca/ca.key exists: nothing is overwritten"]);
    assert_eq!(fs::read(scratch.path("ca/ca.key")).unwrap(), before);
    // Not even half of a pair.
    fs::remove_file(scratch.path("out/n2.key")).unwrap();
    exobus(&["config", "cert", "--ca", &ca, "--node", "n2", &out]).expect(3, &["out/n2.pem exists"]);
    assert!(!scratch.path("out/n2.key").exists());
    exobus(&["config", "cert", "--ca", &out, "--node", "n3", &out]).expect(3, &["out/ca.key", "exobus config ca"]);
    exobus(&["config", "cert", "--ca", &ca, "--node", "n.3", &out]).expect(2, &["a node's name is 1 to 64 characters"]);
    exobus(&["config", "cert", "--ca", &ca, &out]).expect(2, &["--node"]);
}

#[test]
fn an_open_node_with_certificates_needs_no_word_and_has_the_name_of_its_certificate() {
    let scratch = certified();
    let check = |config: &str, code, said: &[&str]| {
        for command in [&["config", "check", config][..], &["node", "--config", config]] {
            // A node that is right would wait for its server.
            if code != 0 || command[0] == "config" {
                exobus(command).expect(code, said);
            }
        }
    };
    let (n1, n2) = ("name = \"n1\"", "name = \"n2\"");
    check(&configuration(&scratch, "lab", n1, "n1", "n1"), 0, &[]);
    let said = ["out/n1.pem", "the certificate is of node n1 of cluster lab, and this is node n2 of cluster lab"];
    check(&configuration(&scratch, "lab", n2, "n1", "n1"), 2, &said);
    let said = ["the certificate is of node n1 of cluster lab, and this is node n1 of cluster other"];
    check(&configuration(&scratch, "other", n1, "n1", "n1"), 2, &said);
    check(&configuration(&scratch, "lab", "", "n1", "n1"), 2, &["node.name is not: set the name"]);
    check(&configuration(&scratch, "lab", n1, "n1", "n2"), 2, &["out/n2.key: not the key of", "out/n1.pem"]);
    check(&configuration(&scratch, "lab", n1, "n3", "n1"), 2, &["read", "out/n3.pem"]);
    fs::set_permissions(scratch.path("out/n1.key"), fs::Permissions::from_mode(0o644)).unwrap();
    check(&configuration(&scratch, "lab", n1, "n1", "n1"), 2, &["out/n1.key", "mode is 0644", "chmod 600"]);

    // A client's file has the authority only; a node's has more.
    let text = format!(
        "[node]\nname = \"n1\"\n[security]\ninsecure_no_token = true\nroots = [\"/\"]\ndata_ca_file = {:?}\n",
        scratch.path("ca/ca.pem")
    );
    fs::write(scratch.path("half.toml"), text).unwrap();
    check(&scratch.text("half.toml"), 2, &["a node needs security.data_cert_file and security.data_key_file"]);
}
