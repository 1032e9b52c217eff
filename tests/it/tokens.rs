//! Who may speak in a cluster, and what those hear who may not. Needs a nats-server.

use crate::support;

use std::{fs, time::Duration};

use rustix::process::Signal;
use support::{Run, Running, Scratch, command, exobus, finish};

/// Starting processes on a busy machine takes its time; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// Runs it with this submitters' token, or without any.
fn with_token(token: Option<&str>, args: &[&str]) -> Run {
    let mut command = command(args);
    command.env_remove("EXOBUS_SECURITY__SUBMITTERS_TOKEN_FILE");
    if let Some(token) = token {
        command.env("EXOBUS_SECURITY__SUBMITTERS_TOKEN_FILE", token);
    }
    finish(command)
}

#[test]
fn who_does_not_know_the_tokens_hears_which_one_and_does_nothing() {
    let scratch = Scratch::new();
    let mut dev = command(&["dev", "--nodes", "1", "--port", "0", "--memory", "256MiB", "--executors", "1"]);
    // A token of its own, where it asks for none by itself.
    let own = scratch.text("own.token");
    exobus(&["config", "token", &own]).expect(0, &[]);
    dev.args(["--dir", &scratch.text("cluster")]).env("EXOBUS_SECURITY__SUBMITTERS", "token");
    dev.env("EXOBUS_SECURITY__SUBMITTERS_TOKEN_FILE", &own);
    let mut dev = Running::start(dev);
    let url = dev.ready_at("nats://", PATIENCE);
    let (other, config) = (scratch.text("other.token"), scratch.text("cluster/client.toml"));
    exobus(&["config", "token", &other]).expect(0, &[]);

    // A client: a job, a question, doctor.
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    exobus(&["generate", "--records", "1000", &input]).expect(0, &[]);
    let sort = ["sort", &input, "--output", &output, "--cluster", &url];
    let (missing, wrong) = ("asks for its submitters' token", "submitters' token of this process is not the cluster's");
    for (token, said) in [(None, missing), (Some(other.as_str()), wrong)] {
        with_token(token, &sort).expect(2, &[said, "security.submitters_token_file"]);
        let cancel = ["job", "0123456789abcdef0123456789abcdef", "cancel", "--cluster", &url];
        with_token(token, &cancel).expect(2, &[said]);
        // Who only looks needs none.
        with_token(token, &["jobs", "--cluster", &url]).expect(0, &[]);
        let doctor = with_token(token, &["doctor", "--cluster", &url]);
        assert_eq!(doctor.code, Some(3), "{doctor:#?}");
        assert!(doctor.stdout.contains("BAD      token          the ") && doctor.stdout.contains(said), "{doctor:#?}");
    }
    assert!(!scratch.path("out").exists());
    with_token(Some(&own), &[&sort[..], &["--config", &config]].concat()).expect(0, &[]);

    // A node that has another token, and one that has none.
    let text = fs::read_to_string(scratch.path("cluster/n1.toml")).unwrap().replace("\"n1\"", "\"n4\"");
    let node_config = scratch.text("n4.toml");
    fs::write(&node_config, text.replace(&scratch.text("cluster/nodes.token"), &other)).unwrap();
    let node = || with_token(None, &["node", "--config", &node_config]);
    let said = "the nodes' token of this process is not the cluster's: copy the cluster's file to where security.token_file says";
    node().expect(2, &[said]);
    let doctor = with_token(None, &["doctor", "--config", &node_config]);
    assert_eq!(doctor.code, Some(3), "{doctor:#?}");
    assert!(doctor.stdout.contains("BAD      token") && doctor.stdout.contains(said), "{doctor:#?}");
    let without: String =
        text.lines().filter(|line| !line.contains("token_file")).map(|line| format!("{line}\n")).collect();
    fs::write(&node_config, without + "insecure_no_token = true\n").unwrap();
    node().expect(2, &["the cluster asks for its nodes' token, and this process has none"]);
    let doctor = with_token(None, &["doctor", "--config", &scratch.text("cluster/n1.toml")]);
    assert!(doctor.stdout.contains("ok       token          the cluster takes this nodes' token"), "{doctor:#?}");
    assert!(doctor.stdout.contains("n1: 1 cpu") && !doctor.stdout.contains("n4"), "{doctor:#?}");

    dev.signal(Signal::INT);
    let (code, said) = dev.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
}
