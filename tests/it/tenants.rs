//! Tenants of a cluster: each has its own files, jobs and quotas, and hears nothing of others.

use std::process::Command;

use rustix::process::Signal;

use crate::support::{Run, Running, Scratch, cluster::PATIENCE, command, exobus, finish};

struct Cluster {
    scratch: Scratch,
    dev: Running,
    url: String,
}

impl Cluster {
    /// Two nodes that know the tenants "a" and "b".
    fn start() -> Self {
        let scratch = Scratch::new();
        for (tenant, records) in [("a", "20000"), ("b", "20000")] {
            exobus(&["generate", "--records", records, "--files", "2", &scratch.text(&format!("{tenant}/in"))])
                .expect(0, &[]);
        }
        let mut nodes =
            command(&["dev", "--nodes", "2", "--port", "0", "--executors", "1", "--dir", &scratch.text("cluster")]);
        nodes.args(["--memory", "96MiB"]);
        nodes.env("EXOBUS_TENANTS__A__ROOTS", scratch.path("a"));
        nodes.env("EXOBUS_TENANTS__A__JOBS", "1000");
        nodes.env("EXOBUS_TENANTS__B__ROOTS", scratch.path("b"));
        nodes.env("EXOBUS_TENANTS__B__JOB_OUTPUT", "1MB");
        let mut dev = Running::start(nodes);
        let url = dev.ready_at("nats://", PATIENCE);
        Self { scratch, dev, url }
    }

    fn command(&self, tenant: &str, args: &[&str]) -> Command {
        let mut command = command(&[args, &["--cluster", &self.url]].concat());
        command.env("EXOBUS_CLUSTER__TENANT", tenant);
        command
    }

    fn run(&self, tenant: &str, args: &[&str]) -> Run {
        finish(self.command(tenant, args))
    }

    fn sort(&self, tenant: &str, input: &str, output: &str) -> Run {
        let (input, output) = (self.scratch.text(input), self.scratch.text(output));
        self.run(tenant, &["sort", &input, "--output", &output, "--partitions", "2", "--json"])
    }
}

#[test]
fn each_tenant_has_its_own_files_jobs_and_quotas() {
    let cluster = Cluster::start();
    cluster.sort("a", "a/in", "a/out").expect(0, &[]);
    // Neither read nor written in what is another one's.
    for (input, output) in [("b/in", "a/other"), ("a/in", "b/other"), ("a/../b/in", "a/other")] {
        cluster.sort("a", input, output).expect(2, &["jobs may use files below", "/a\"] only"]);
    }
    // 2 MB of output.
    let refused = cluster.sort("b", "b/in", "b/out");
    refused.expect(5, &["has written ", " of files, and jobs of its tenant may write "]);
    assert!(!cluster.scratch.path("b/out/_exobus.json").exists());

    let jobs = |tenant: &str| {
        let listed = cluster.run(tenant, &["jobs", "--all", "--json"]);
        let jobs = listed.expect(0, &[]).json()["jobs"].as_array().unwrap().clone();
        jobs.iter().map(|job| (job["job"].as_str().unwrap().to_owned(), job["state"].clone())).collect::<Vec<_>>()
    };
    let (of_a, of_b) = (jobs("a"), jobs("b"));
    assert_eq!((of_a.len(), &of_a[0].1), (1, &"succeeded".into()), "what is refused at the door is no job");
    assert_eq!((of_b.len(), &of_b[0].1), (1, &"failed".into()));
    let foreign = cluster.run("b", &["job", &of_a[0].0, "status"]);
    foreign.expect(2, &[&format!("tenant b has no job {}", of_a[0].0)]);
    for question in ["cancel", "events", "logs", "why", "result", "watch"] {
        cluster.run("b", &["job", &of_a[0].0, question]).expect(2, &["tenant b has no job"]);
    }
    // A link that leads to another tenant's files, made where a tenant may: nothing of them is told or read.
    std::os::unix::fs::symlink(cluster.scratch.path("b/in"), cluster.scratch.path("a/link")).unwrap();
    cluster.sort("a", "a/link", "a/other").expect(2, &["jobs may use files below"]);
    std::fs::create_dir(cluster.scratch.path("a/folder")).unwrap();
    let file = std::fs::read_dir(cluster.scratch.path("b/in")).unwrap().next().unwrap().unwrap().path();
    std::os::unix::fs::symlink(file, cluster.scratch.path("a/folder/link")).unwrap();
    let refused = cluster.sort("a", "a/folder", "a/other");
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("jobs may use files below"), "{refused:?}");
    for nobody in ["c", "default"] {
        cluster.sort(nobody, "a/in", "a/other").expect(2, &[&format!("there is no tenant {nobody}")]);
    }

    let Cluster { dev, .. } = cluster;
    dev.signal(Signal::INT);
    let (code, said) = dev.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
}
