//! The commands that need no runtime: exit codes, texts, and that nothing is left behind.

use crate::support;

use std::{fs, os::unix::fs::PermissionsExt};

use support::{Running, Scratch, command, exobus, finish, names};

#[test]
fn no_command_shows_the_help_with_the_exit_codes() {
    let run = exobus(&[]);
    run.expect(2, &["Usage: exobus", "Exit codes:", "130  interrupted"]);
    let run = exobus(&["--help"]);
    assert_eq!(run.code, Some(0));
    for command in ["generate", "validate", "sort", "bench", "node", "dev", "config", "protocols", "doctor"] {
        assert!(run.stdout.contains(command), "{command}: {}", run.stdout);
    }
    assert!(!run.stdout.contains("run-with-parent"), "hidden");
}

#[test]
fn slips_on_the_command_line_end_with_2_and_say_what_was_expected() {
    exobus(&["srot"]).expect(2, &["unrecognized subcommand 'srot'", "'sort'"]);
    exobus(&["sort", "in", "--output", "out", "--memory", "lots"]).expect(2, &["no size such as 4GiB"]);
    exobus(&["sort", "in", "--output", "out", "--strategy", "magic"]).expect(2, &["invalid value 'magic'", "simple"]);
    exobus(&["sort", "in", "--output", "out", "--cluster", "localhost"]).expect(2, &["expected a URL such as"]);
    exobus(&["node", "--name", "a.b"]).expect(2, &["1 to 64 characters"]);
}

#[test]
fn generated_records_validate_and_nothing_is_overwritten() {
    let scratch = Scratch::new();
    let file = scratch.text("records");
    let made = exobus(&["generate", "--records", "1000", "--json", &file]);
    made.expect(0, &[]);
    assert_eq!(fs::metadata(&file).unwrap().len(), 100_000);

    // Random records are not in order: the exit code says so, the checksum is the one that was announced.
    let checked = exobus(&["validate", "--json", &file]);
    checked.expect(1, &[]);
    assert_eq!(checked.json()["checksum"], made.json()["checksum"]);

    exobus(&["generate", "--records", "10", &file]).expect(3, &["exists already"]);
    assert_eq!(names(scratch.root()), ["records"]);
}

#[test]
fn half_a_record_is_wrong_data_with_file_and_offset() {
    let scratch = Scratch::new();
    fs::write(scratch.path("torn"), vec![7; 250]).unwrap();
    exobus(&["validate", &scratch.text("torn")]).expect(1, &["error: ", "torn", "offset 200"]);
    exobus(&["validate", &scratch.text("missing")]).expect(3, &["missing"]);
}

#[test]
fn wrong_configuration_stops_everything_with_2() {
    let root = env!("CARGO_MANIFEST_DIR");
    let file = format!("{root}/configs/invalid/unknown_key.toml");
    let expected = "unknown_key.toml:5:1: unknown key `node.memroy`; did you mean `node.memory`?";
    exobus(&["config", "check", &file]).expect(2, &[expected]);
    exobus(&["node", "--config", &file]).expect(2, &[expected]);
    exobus(&["doctor", "--config", &file]).expect(2, &[expected]);
    exobus(&["node", "--config", "/nowhere/node.toml"])
        .expect(2, &["read the configuration /nowhere/node.toml", "No such file"]);

    let mut command = support::command(&["doctor"]);
    command.env("EXOBUS_NODE__MEMROY", "1GiB");
    finish(command).expect(2, &["environment variable EXOBUS_NODE__MEMROY", "did you mean `node.memory`?"]);
}

#[test]
fn single_keys_are_set_on_the_command_line_of_everything_that_reads_a_configuration() {
    let slip = ["--set", "node.memroy=1GiB"];
    let expected = "--set node.memroy: unknown key `node.memroy`; did you mean `node.memory`?";
    let scratch = Scratch::new();
    let (input, output) = (scratch.text("in"), scratch.text("out"));
    exobus(&["generate", "--records", "100", &input]).expect(0, &[]);
    for command in [
        &["node"][..],
        &["jobs"],
        &["job", "0123456789", "status"],
        &["result", "list"],
        &["doctor"],
        &["sort", &input, "--output", &output],
        &["explain", "sort", &input],
        &["run", "own.program"],
        &["bench", "put"],
        &["config", "show"],
        &["dev"],
    ] {
        exobus(&[command, &slip].concat()).expect(2, &[expected]);
    }
    assert!(!scratch.path("out").exists());
    let set = ["--set", "node.memory=64MiB", "--set", "node.executors=1"];
    exobus(&[&["sort", &input, "--output", &output, "--json"], &set[..]].concat()).expect(0, &[]);
    let elsewhere =
        ["sort", &input, "--output", &output, "--cluster", "nats://127.0.0.1:1", "--set", "node.memory=64MiB"];
    exobus(&elsewhere).expect(2, &["--set node.memory is a setting of this process"]);
    exobus(&["dev", "--set", "node.name=n1"]).expect(2, &["--set node.name: exobus dev says it itself"]);
    exobus(&["node", "--set", "memory"]).expect(2, &["expected SECTION.KEY=VALUE, such as node.memory=4GiB"]);

    // What `submit` is told with --set is about the spec.
    fs::write(scratch.path("job.toml"), format!("kind = 'sort'\ninputs = ['{input}']\n")).unwrap();
    let (file, output) = (scratch.text("job.toml"), format!("output={}", scratch.text("by-spec")));
    let submit = |key| exobus(&["submit", &file, "--set", &output, "--json", "--set-config", key]);
    submit("node.memroy=1GiB").expect(2, &["--set-config node.memroy: unknown key"]);
    submit("node.memory=64MiB").expect(0, &[]);
}

#[test]
fn what_is_in_effect_is_shown_with_its_origin_and_no_secret() {
    let scratch = Scratch::new();
    let secret = "a-token-that-nobody-may-see";
    fs::write(scratch.path("token"), secret).unwrap();
    let text = format!("[node]\nname = \"n1\"\nmemroy = 1\n[security]\ntoken_file = {:?}\n", scratch.path("token"));
    fs::write(scratch.path("node.toml"), text).unwrap();
    let file = scratch.text("node.toml");
    let mut command =
        support::command(&["config", "show", "--origin", "--config", &file, "--lenient", "--set", "node.executors=2"]);
    command.env("EXOBUS_NODE__RESULTS_KEPT", "2h");
    let run = finish(command);
    run.expect(0, &["ignored: ", "node.toml:3:1: unknown key `node.memroy`; did you mean `node.memory`?"]);
    let lines: Vec<&str> = run.stdout.lines().collect();
    for line in [
        format!("name = \"n1\"  # {file}:2"),
        format!("token_file = {:?}  # {file}:5", scratch.path("token")),
        "results_kept = \"2h\"  # environment variable EXOBUS_NODE__RESULTS_KEPT".to_owned(),
        "executors = 2  # --set".to_owned(),
        "memory = \"60%\"  # default".to_owned(),
    ] {
        assert!(lines.contains(&line.as_str()), "{line}: {run:#?}");
    }
    assert!(!run.stdout.contains(secret) && !run.stderr.contains(secret), "{run:#?}");
    exobus(&["config", "show", "--config", &file]).expect(2, &["did you mean `node.memory`?"]);
    let mut lenient = support::command(&["config", "show", "--config", &file]);
    lenient.env("EXOBUS_LENIENT", "1");
    let run = finish(lenient);
    run.expect(0, &[]);
    assert!(run.stdout.starts_with("[cluster]\nname = \"local\"\n") && !run.stdout.contains('#'), "{run:#?}");
    assert_eq!(exobus(&["config", "schema"]).json(), exobus::config::schema::schema());
}

#[test]
fn a_node_does_not_listen_for_others_without_protection() {
    exobus(&["node", "--listen", "0.0.0.0:0"])
        .expect(2, &["can be reached from other machines", "security.token_file"]);
    exobus(&["node", "--listen", "0.0.0.0:0", "--insecure-no-token"]).expect(2, &["has no TLS", "--insecure-no-tls"]);
    exobus(&["node", "--listen", "0.0.0.0:0", "--insecure-no-token", "--insecure-no-tls"])
        .expect(2, &["has no security.roots", "--insecure-any-path"]);
    exobus(&["node"]).expect(2, &["a node needs security.token_file"]);
}

#[test]
fn a_token_is_made_once_and_for_its_owner_only() {
    let scratch = Scratch::new();
    let file = scratch.text("token");
    exobus(&["config", "token", &file]).expect(0, &[]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = fs::read_to_string(&file).unwrap();
    assert_eq!(token.trim().len(), 64);
    exobus(&["config", "token", &file]).expect(3, &["make the token file", "exists"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), token);
}

#[test]
fn the_defaults_are_a_right_file_but_for_the_token() {
    let run = exobus(&["config", "default"]);
    run.expect(0, &[]);
    let scratch = Scratch::new();
    fs::write(scratch.path("node.toml"), &run.stdout).unwrap();
    exobus(&["config", "check", &scratch.text("node.toml")]).expect(2, &["a node needs security.token_file"]);
    let with_token = format!("{}token_file = {:?}\n", run.stdout, scratch.text("token"));
    fs::write(scratch.path("node.toml"), &with_token).unwrap();
    exobus(&["config", "token", &scratch.text("token")]).expect(0, &[]);
    let check = || exobus(&["config", "check", &scratch.text("node.toml")]);
    check().expect(2, &["security.token_file is set and security.roots is not"]);
    let with_roots = format!("{with_token}roots = [\"/tmp\"]\n");
    fs::write(scratch.path("node.toml"), &with_roots).unwrap();
    // With the submitters' token that the environment names.
    check().expect(0, &[]);
    let mut without = support::command(&["config", "check", &scratch.text("node.toml")]);
    without.env_remove("EXOBUS_SECURITY__SUBMITTERS_TOKEN_FILE");
    finish(without).expect(2, &["a node needs security.submitters_token_file"]);
    let mut twice = support::command(&["config", "check", &scratch.text("node.toml")]);
    twice.env("EXOBUS_SECURITY__SUBMITTERS_TOKEN_FILE", scratch.path("token"));
    finish(twice).expect(2, &["hold the same token"]);
    let mut undecided = support::command(&["config", "check", &scratch.text("node.toml")]);
    undecided.env("EXOBUS_SECURITY__SUBMITTERS", "nats");
    finish(undecided).expect(2, &["remove security.submitters_token_file"]);
}

#[test]
fn doctor_looks_at_memory_and_spill_folders() {
    let scratch = Scratch::new();
    let spill = scratch.text("spill");
    let with_spill = |folder: &str| {
        let mut command = support::command(&["doctor"]);
        command.env("EXOBUS_NODE__SPILL_DIRS", folder);
        finish(command)
    };
    let run = with_spill(&spill);
    for what in ["memory", "cpus", "open files", &spill] {
        assert!(run.stdout.contains(what), "{what}: {run:#?}");
    }
    assert_eq!(names(scratch.root()), [""; 0], "it looks and leaves nothing");
    with_spill("/proc/spill").expect(3, &["marked BAD"]);
}

#[test]
fn doctor_says_that_a_cluster_is_not_there() {
    let mut command = support::command(&["doctor", "--cluster", "nats://127.0.0.1:9"]);
    command.env("EXOBUS_CLUSTER__CONNECT_DEADLINE", "300ms");
    let run = finish(command);
    run.expect(3, &["marked BAD"]);
    assert!(run.stdout.contains("cannot connect to NATS at nats://127.0.0.1:9"), "{run:#?}");
}

#[test]
fn a_log_filter_that_is_wrong_is_told_and_does_not_stop_anything() {
    let mut command = support::command(&["config", "default"]);
    command.env("EXOBUS_LOG", "exobus=loud");
    finish(command).expect(0, &["log filter not understood"]);
}

#[test]
fn generating_that_is_interrupted_leaves_nothing() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("out")).unwrap();
    // More than is made before the signal comes: it is sent as soon as the file is there.
    let file = scratch.text("out/records");
    let running = Running::start(command(&["generate", "--records", "50M", &file]));
    while names(&scratch.path("out")).is_empty() {
        std::thread::yield_now();
    }
    running.signal(rustix::process::Signal::INT);
    let (code, seen) = running.end(std::time::Duration::from_secs(60));
    assert_eq!(code, Some(130), "{seen:#?}");
    assert!(seen.iter().any(|line| line.contains("interrupted")), "{seen:#?}");
    assert_eq!(names(&scratch.path("out")), [""; 0]);
}
