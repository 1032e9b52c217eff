//! Who may hand in jobs: `security.submitters`, and the permissions of the NATS server. Needs a nats-server.

use std::{fs, time::Duration};

use rustix::process::Signal;

use crate::support::{Running, Scratch, command, exobus, finish};

/// Starting processes on a busy machine takes its time; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn a_node_does_not_leave_it_to_a_server_that_asks_nobody() {
    let scratch = Scratch::new();
    let mut dev = command(&["dev", "--nodes", "1", "--port", "0", "--memory", "64MiB", "--executors", "1"]);
    dev.args(["--dir", &scratch.text("cluster")]);
    let mut dev = Running::start(dev);
    let said = dev.wait_for("Any account of this machine may hand in jobs", PATIENCE);
    assert!(said.is_some_and(|line| line.contains("which read and write what these processes can")), "{:#?}", dev.seen);
    let text = fs::read_to_string(scratch.path("cluster/n1.toml")).unwrap();
    assert!(text.contains("submitters = \"none\"\n") && text.contains("# Any account of this machine"), "{text}");

    // Another node, which leaves it to that server.
    let text = text.replace("name = \"n1\"", "name = \"n2\"").replace("submitters = \"none\"", "submitters = \"nats\"");
    fs::write(scratch.path("n2.toml"), text).unwrap();
    let mut node = command(&["node", "--config", &scratch.text("n2.toml")]);
    node.env_remove("EXOBUS_SECURITY__SUBMITTERS_TOKEN_FILE");
    let node = finish(node);
    node.expect(
        2,
        &["security.submitters is \"nats\"", "the server asks nobody who he is", "or set a submitters' token"],
    );
    assert_eq!(node.stdout, "", "it was never in the cluster");

    dev.signal(Signal::INT);
    let (code, said) = dev.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
}

#[test]
fn who_may_not_ask_that_is_told_so_by_the_server_and_does_not_wait() {
    let scratch = Scratch::new();
    let mut dev =
        command(&["dev", "--secure", "--nodes", "1", "--port", "0", "--memory", "128MiB", "--executors", "1"]);
    dev.args(["--dir", &scratch.text("cluster")]);
    let mut dev = Running::start(dev);
    dev.wait_for("ready at tls://", PATIENCE).unwrap_or_else(|| panic!("{:#?}", dev.seen));
    let said = dev.seen.iter().any(|line| line.contains("Any account of this machine"));
    assert!(!said, "here it is asked for a token: {:#?}", dev.seen);

    let submitter = scratch.text("cluster/client.toml");
    let text = fs::read_to_string(&submitter).unwrap();
    let viewer = scratch.text("viewer.toml");
    let roles = ["submitter.pem", "submitter.key", "submitter.nk", "_INBOX_submitter"];
    let text = roles.into_iter().fold(text, |text, role| {
        assert!(text.contains(role), "{role}: {text}");
        text.replace(role, &role.replace("submitter", "viewer"))
    });
    fs::write(&viewer, text).unwrap();
    let (input, output) = (scratch.text("cluster/data/in"), scratch.text("cluster/data/out"));
    exobus(&["generate", "--records", "1000", &input]).expect(0, &[]);
    let spec = scratch.text("job.toml");
    fs::write(&spec, format!("kind = \"sort\"\ninputs = [{input:?}]\noutput = {output:?}\n")).unwrap();

    let of_viewer = |args: &[&str]| exobus(&[args, &["--config", &viewer]].concat());
    let denied = |verb: &str, args: &[&str]| {
        let said =
            format!("the NATS server does not let this account ask for \"{verb}\" in the name of the tenant default");
        let words = format!("Permissions Violation for Publish to \"exo.v1.local.api.default.{verb}\"");
        of_viewer(args).expect(2, &[&said, &words]);
    };
    denied("submit", &["submit", &spec]);
    denied("submit", &["submit", &spec, "--wait"]);
    denied("submit", &["run", "bench.job"]);
    denied("submit", &["sort", &input, "--output", &output]);
    assert!(!scratch.path("cluster/data/out").exists());
    // It may look.
    assert_eq!(of_viewer(&["jobs", "--all"]).expect(0, &[]).stdout, "no jobs\n");
    let run = exobus(&["submit", &spec, "--wait", "--json", "--config", &submitter]);
    run.expect(0, &[]);
    let job = run.json()["job"].as_str().unwrap().to_owned();
    assert!(of_viewer(&["job", &job, "status"]).expect(0, &[]).stdout.starts_with(&format!("job {job}: succeeded\n")));
    of_viewer(&["job", &job, "events"]).expect(0, &[]);
    denied("value", &["job", &job, "result"]);
    denied("cancel", &["job", &job, "cancel"]);

    // In the name of another tenant it may ask nothing at all.
    let mut foreign = command(&["jobs", "--config", &submitter]);
    foreign.env("EXOBUS_CLUSTER__TENANT", "lab-a");
    let said = "the NATS server does not let this account ask for \"cluster\" in the name of the tenant lab-a";
    finish(foreign).expect(2, &[said]);

    dev.signal(Signal::INT);
    let (code, said) = dev.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
}
