//! Jobs over objects of S3: on a server in the test's process, by the binary.

use std::{
    fs,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use exobus_objects::server::{Fault, Server};
use rustix::process::{Signal, kill_process};

use crate::support::{Run, Running, Scratch, cluster::PATIENCE, cluster::watched, command, finish, names};
use crate::tables::write_table;

/// A bucket of its own.
struct Bucket {
    scratch: Scratch,
    server: Server,
}

impl Bucket {
    fn new() -> Self {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.path("s3/lake")).unwrap();
        let server = Server::start(&scratch.path("s3"), "127.0.0.1:0");
        Self { scratch, server }
    }

    /// The binary, which knows the server and has the keys.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
            command.env_remove(name);
        }
        command.env("EXOBUS_OBJECTS__S3_ENDPOINT", self.server.endpoint());
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "secret");
        command.env("HOME", self.scratch.root()).env("XDG_STATE_HOME", self.scratch.path("state"));
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        finish(self.command(args))
    }

    /// A job with little memory.
    fn job(&self, args: &[&str]) -> Command {
        let spill = self.scratch.text("spill");
        self.command(&[args, &["--memory", "128MiB", "--executors", "2", "--spill", &spill]].concat())
    }

    fn records(&self, count: &str) {
        self.run(&["generate", "--records", count, "--files", "4", "s3://lake/in"]).expect(0, &[]);
    }

    /// Neither objects nor uploads are left of a job.
    #[track_caller]
    fn nothing_is_left(&self, folder: &str) {
        let left = (self.server.objects("lake", folder), self.server.uploads("lake", folder));
        assert_eq!(left, (0, 0), "objects and uploads in {folder}");
    }

    /// All is completed, and nothing but files and the manifest is there.
    #[track_caller]
    fn is_whole(&self, folder: &str, files: usize) {
        let there = (self.server.objects("lake", folder), self.server.uploads("lake", folder));
        assert_eq!(there, (files + 1, 0), "objects and uploads in {folder}");
    }

    /// Hashes and lengths of the files that a manifest lists.
    fn listed(&self, manifest: &str) -> Vec<(String, String, String)> {
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(self.scratch.path(manifest)).unwrap()).unwrap();
        let file =
            |file: &serde_json::Value| (file["name"].to_string(), file["hash"].to_string(), file["bytes"].to_string());
        manifest["files"].as_array().unwrap().iter().map(file).collect()
    }
}

#[test]
fn records_are_made_sorted_and_checked_as_on_a_disk() {
    let bucket = Bucket::new();
    bucket.records("300000");
    bucket.is_whole("in/", 4);
    let sort = ["sort", "s3://lake/in", "--output", "s3://lake/out", "--partitions", "5", "--json"];
    let sorted = finish(bucket.job(&sort));
    sorted.expect(0, &[]);
    bucket.is_whole("out/", 5);
    let summary = sorted.json();
    assert_eq!((&summary["rows"], &summary["row_hash_in"]), (&300_000.into(), &summary["row_hash_out"]));
    let requests = &summary["requests"];
    assert!(requests["bytes_received"].as_u64().unwrap() >= 30_000_000, "{requests}");
    assert!(requests["bytes_sent"].as_u64().unwrap() >= 30_000_000, "{requests}");
    let checked = bucket.run(&["validate", "--json", "s3://lake/out"]);
    checked.expect(0, &[]);
    let made = bucket.run(&["validate", "--json", "s3://lake/in"]).json();
    assert_eq!((&checked.json()["checksum"], &checked.json()["unordered_records"]), (&made["checksum"], &0.into()));
    // The folder is taken.
    finish(bucket.job(&sort)).expect(3, &["s3://lake/out", "not empty"]);
}

#[test]
fn tables_have_the_bytes_that_they_have_on_a_disk() {
    let bucket = Bucket::new();
    write_table(&bucket.scratch.path("table"));
    let local = bucket.scratch.text("table");
    finish(bucket.job(&["convert", &local, "--output", "s3://lake/table", "--format", "parquet"])).expect(0, &[]);
    for (verb, more) in [
        ("sort", &["--key", "city,ts:desc", "--files", "3"][..]),
        ("repartition", &["--partition-by", "ts", "--format", "csv"]),
        ("group", &["--by", "ts", "--agg", "count(*), sum(id)"]),
    ] {
        let (here, there) = (bucket.scratch.text(&format!("{verb}-here")), format!("s3://lake/{verb}"));
        let run = |input: &str, output: &str| {
            finish(bucket.job(&[&[verb, input, "--output", output][..], more].concat())).expect(0, &[]);
        };
        run(&bucket.scratch.text("s3/lake/table"), &here);
        run("s3://lake/table", &there);
        let manifests = [format!("s3/lake/{verb}/_exobus.json"), format!("{verb}-here/_exobus.json")];
        assert_eq!(bucket.listed(&manifests[0]), bucket.listed(&manifests[1]), "{verb}");
        assert_eq!(bucket.server.uploads("lake", ""), 0, "{verb}");
    }
    // Folders are columns, patterns match keys.
    let shown = bucket.run(&["show", "s3://lake/repartition", "--rows", "1"]);
    assert!(shown.expect(0, &[]).stdout.contains("ts"), "{shown:#?}");
    bucket.run(&["show", "s3://lake/sort/part-*.parquet", "--rows", "1"]).expect(0, &[]);
}

#[cfg(feature = "sql")]
#[test]
fn queries_read_and_write_objects_as_they_do_files() {
    let bucket = Bucket::new();
    write_table(&bucket.scratch.path("table"));
    let local = bucket.scratch.text("table");
    finish(bucket.job(&["convert", &local, "--output", "s3://lake/table", "--format", "parquet"])).expect(0, &[]);
    let query = |input: &str, more: &[&str]| {
        let text = format!("SELECT ts, count(*) AS n, sum(id) AS ids FROM '{input}' GROUP BY ts ORDER BY n DESC, ts");
        finish(bucket.job(&[&["query", &text, "--json"], more].concat())).expect(0, &[]).stdout.clone()
    };
    let rows =
        |told: &str| serde_json::from_str::<serde_json::Value>(told.lines().last().unwrap()).unwrap()["rows"].clone();
    let here = rows(&query(&bucket.scratch.text("s3/lake/table"), &[]));
    assert!(here.as_array().unwrap().len() > 1, "{here}");
    assert_eq!(rows(&query("s3://lake/table/*.parquet", &[])), here);
    assert_eq!(rows(&query("s3://lake/table", &["--online"])), here);
    let steps = bucket.scratch.text("steps");
    query("s3://lake/table", &["--output", "s3://lake/query", "--scratch", &steps]);
    assert!(bucket.server.objects("lake", "query") > 0 && names(&bucket.scratch.path("steps")).is_empty());
    assert_eq!(bucket.server.uploads("lake", ""), 0);
}

/// What needs no cluster and no process of its own for jobs is told of a store as jobs are.
#[test]
fn commands_that_only_look_are_told_of_a_store_by_a_configuration() {
    let bucket = Bucket::new();
    let (config, endpoint) = (bucket.scratch.text("mine.toml"), bucket.server.endpoint());
    fs::write(&config, format!("[objects]\ns3_endpoint = \"{endpoint}\"\n")).unwrap();
    let told = |args: &[&str]| {
        let mut command = bucket.command(args);
        command.env_remove("EXOBUS_OBJECTS__S3_ENDPOINT");
        finish(command)
    };
    told(&["generate", "--records", "100", "s3://lake/in", "--config", &config]).expect(0, &[]);
    let set = format!("objects.s3_endpoint={endpoint}");
    assert_eq!(told(&["validate", "s3://lake/in", "--json", "--set", &set]).json()["records"], 100);
    let shown = told(&["show", "s3://lake/in", "--input-format", "records", "--json", "--config", &config]);
    shown.expect(0, &[]);
    let wrong = told(&["show", "s3://lake/in", "--set", "objects.s3_endpont=x"]);
    wrong.expect(2, &["s3_endpont", "s3_endpoint"]);
    let other = told(&["show", "s3://lake/in", "--set", "cluster.name=lab"]);
    other.expect(2, &["cluster.name", "settings of [objects] alone"]);
    let mut lenient = bucket.command(&["show", "s3://lake/in", "--input-format", "records", "--lenient"]);
    lenient.env("EXOBUS_NODE__OF_ANOTHER_RELEASE", "1");
    finish(lenient).expect(0, &["node.of_another_release"]);
}

/// Where endpoint and rights come from is handed on to executors in processes of their own.
#[test]
fn executor_processes_reach_what_their_node_does() {
    let bucket = Bucket::new();
    bucket.records("20000");
    fs::create_dir(bucket.scratch.path(".aws")).unwrap();
    fs::write(
        bucket.scratch.path(".aws/credentials"),
        "[default]\naws_access_key_id = nobody\naws_secret_access_key = nothing\n\
         [team]\naws_access_key_id = test\naws_secret_access_key = secret\n",
    )
    .unwrap();
    let sort = |profile: &str, output: &str| {
        let mut job =
            bucket.job(&["sort", "s3://lake/in", "--output", output, "--set", "node.executor=\"process-all\""]);
        job.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        job.args(["--set", &format!("objects.s3_profile={profile:?}")]);
        finish(job)
    };
    sort("team", "s3://lake/out").expect(0, &[]);
    bucket.run(&["validate", "s3://lake/out"]).expect(0, &[]);
    sort("default", "s3://lake/other").expect(3, &["403"]);
    sort("nowhere", "s3://lake/other").expect(3, &["profile \"nowhere\" is in no file of the AWS tools"]);
    bucket.nothing_is_left("other/");
}

#[test]
fn a_job_that_is_killed_is_gone_on_with_or_given_up() {
    for end in ["resume", "drop"] {
        let bucket = Bucket::new();
        bucket.records("300000");
        let sort = bucket.job(&["sort", "s3://lake/in", "--output", "s3://lake/out", "--partitions", "12"]);
        let mut killed = false;
        let (run, _) = watched(&bucket.scratch, sort, |events, pid| {
            if !killed && events.finished("sort.reduce") >= 4 {
                kill_process(pid, Signal::KILL).unwrap();
                killed = true;
            }
        });
        assert_eq!((killed, run.code), (true, None), "{run:#?}");
        assert!(bucket.server.uploads("lake", "out/") >= 4);
        let other = finish(bucket.job(&["sort", "s3://lake/in", "--output", "s3://lake/out"]));
        other.expect(3, &["s3://lake/out", "which was not finished", "exobus resume"]);
        let log = names(&bucket.scratch.path("state/exobus/jobs")).remove(0);
        let id = log.split('.').next().unwrap();
        match end {
            "resume" => {
                let resume = bucket.command(&["resume", "--json", "--spill", &bucket.scratch.text("spill")]);
                let (resumed, events) = watched(&bucket.scratch, resume, |_, _| {});
                resumed.expect(0, &[]);
                events.nothing_is_done_twice("sort.reduce");
                // An upload that each executor had begun, and not noted, is what a rule of the bucket is for.
                assert_eq!(bucket.server.objects("lake", "out/"), 13);
                assert!(bucket.server.uploads("lake", "out/") <= 2);
                bucket.run(&["validate", "s3://lake/out"]).expect(0, &[]);
            }
            _ => {
                bucket.run(&["resume", "--drop", id]).expect(0, &[]);
                assert_eq!(bucket.server.objects("lake", "out/"), 0);
                assert!(bucket.server.uploads("lake", "out/") <= 2);
            }
        }
    }
}

#[test]
fn a_job_that_ends_early_leaves_nothing() {
    let bucket = Bucket::new();
    bucket.records("300000");
    let sort = || bucket.job(&["sort", "s3://lake/in", "--output", "s3://lake/out", "--partitions", "12"]);
    let mut told = false;
    let (run, _) = watched(&bucket.scratch, sort(), |events, pid| {
        if !told && events.finished("sort.reduce") >= 2 {
            kill_process(pid, Signal::INT).unwrap();
            told = true;
        }
    });
    assert_eq!((told, run.code), (true, Some(130)), "{run:#?}");
    bucket.nothing_is_left("out/");
    // A right that is missing in the middle of it.
    let parts = AtomicUsize::new(0);
    let denied = move |_: &http::Method, path: &str| {
        let is_part = path.contains("partNumber");
        (is_part && parts.fetch_add(1, Ordering::Relaxed) >= 3).then_some(Fault::Status(403, None))
    };
    bucket.server.set_faults("/lake/out", Some(Box::new(denied)));
    finish(sort()).expect(3, &["s3://lake/out/part-", "403"]);
    bucket.nothing_is_left("out/");
    // One that goes wrong now and then does no harm.
    let asked = AtomicUsize::new(0);
    let now_and_then = move |_: &http::Method, _: &str| {
        asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(5).then_some(Fault::Status(503, None))
    };
    bucket.server.set_faults("/lake/out", Some(Box::new(now_and_then)));
    finish(sort()).expect(0, &[]);
    bucket.is_whole("out/", 12);
}

#[test]
fn what_is_wrong_is_told_with_what_to_do() {
    let bucket = Bucket::new();
    bucket.records("1000");
    let no_bucket = finish(bucket.job(&["sort", "s3://nowhere/in", "--output", "s3://lake/out"]));
    no_bucket.expect(3, &["s3://nowhere/in", "no such bucket"]);
    finish(bucket.job(&["sort", "s3://lake/nothing", "--output", "s3://lake/out"])).expect(3, &["s3://lake/nothing"]);
    finish(bucket.job(&["sort", "s3://lake/in", "--output", "s3://nowhere/out"])).expect(3, &["no such bucket"]);
    finish(bucket.job(&["sort", "gs://lake/in", "--output", "s3://lake/out"])).expect(3, &["gs", "s3"]);
    finish(bucket.job(&["sort", "s3://lake/in", "--output", "https://host/out"])).expect(3, &["read only"]);
    let mut wrong = bucket.job(&["sort", "s3://lake/in", "--output", "s3://lake/out"]);
    wrong.env("AWS_SECRET_ACCESS_KEY", "another");
    let refused = finish(wrong);
    refused.expect(3, &["403"]);
    assert!(!refused.stderr.contains("another"), "{refused:#?}");
    // A file that another writer replaces while the job runs: when it has been read once, as a sample.
    let replaced = Bucket::new();
    replaced.records("300000");
    let (asked, writer) = (AtomicUsize::new(0), replaced.server.clone());
    let replace = move |method: &http::Method, _: &str| {
        if *method != http::Method::GET {
            return None;
        }
        if asked.fetch_add(1, Ordering::Relaxed) > 0 {
            return Some(Fault::Slow(Duration::from_millis(500)));
        }
        let writer = writer.clone();
        std::thread::Builder::new().spawn(move || writer.put("lake", "in/part-00003", &vec![7; 7_500_000])).unwrap();
        None
    };
    replaced.server.set_faults("/lake/in/part-00003", Some(Box::new(replace)));
    let sort = replaced.job(&["sort", "s3://lake/in", "--output", "s3://lake/out", "--partitions", "4"]);
    finish(sort).expect(1, &["s3://lake/in/part-00003", "changed"]);
    replaced.nothing_is_left("out/");
}

/// Each tenant has the rights of its profile below its roots, and nobody else's.
#[test]
fn tenants_of_a_cluster_have_the_rights_of_their_profiles() {
    let bucket = Bucket::new();
    for tenant in ["a", "b"] {
        bucket
            .run(&["generate", "--records", "2000", "--files", "2", &format!("s3://lake/{tenant}/in")])
            .expect(0, &[]);
    }
    fs::create_dir(bucket.scratch.path(".aws")).unwrap();
    fs::write(
        bucket.scratch.path(".aws/credentials"),
        "[of-a]\naws_access_key_id = test\naws_secret_access_key = secret\n\
         [of-b]\naws_access_key_id = test\naws_secret_access_key = wrong\n",
    )
    .unwrap();
    let mut nodes = bucket.command(&["dev", "--nodes", "1", "--port", "0", "--dir", &bucket.scratch.text("cluster")]);
    nodes.args(["--memory", "96MiB"]);
    for tenant in ["A", "B"] {
        let lower = tenant.to_lowercase();
        nodes.env(format!("EXOBUS_TENANTS__{tenant}__S3_PROFILE"), format!("of-{lower}"));
        nodes.env(format!("EXOBUS_TENANTS__{tenant}__ROOTS"), format!("s3://lake/{lower}:/tmp"));
    }
    let mut dev = Running::start(nodes);
    let url = dev.ready_at("nats://", PATIENCE);
    let sort = |tenant: &str, input: &str, output: &str| {
        let mut sort = command(&["sort", input, "--output", output, "--cluster", &url]);
        sort.env("EXOBUS_CLUSTER__TENANT", tenant);
        finish(sort)
    };
    sort("a", "s3://lake/a/in", "s3://lake/a/out").expect(0, &[]);
    bucket.is_whole("a/out/", bucket.listed("s3/lake/a/out/_exobus.json").len());
    sort("a", "s3://lake/b/in", "s3://lake/a/other").expect(2, &["jobs may use files below"]);
    sort("b", "s3://lake/b/in", "s3://lake/b/out").expect(3, &["403"]);
    bucket.nothing_is_left("b/out/");
    dev.signal(Signal::INT);
    dev.end(PATIENCE);
}
