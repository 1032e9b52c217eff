//! Very many jobs of one tenant at once, and what others see of that. Needs a nats-server.

use std::collections::BTreeMap;

use exobus::{
    bus::{Bus, BusError, Message, NatsOptions, Subject},
    cluster,
};
use futures::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Running, Scratch, cluster::PATIENCE, command};

/// Requests at once: more than wait at a door.
const JOBS: usize = 12_000;
/// Jobs of that tenant that may not be over.
const QUOTA: usize = 100;

#[test]
fn of_twelve_thousand_jobs_at_once_each_is_accepted_or_refused_and_another_tenant_goes_on() {
    let scratch = Scratch::new();
    let mut nodes = command(&["dev", "--nodes", "1", "--port", "0", "--memory", "128MiB", "--executors", "2"]);
    nodes.args(["--dir", &scratch.text("cluster")]);
    nodes.env("EXOBUS_TENANTS__CROWD__JOBS", QUOTA.to_string()).env("EXOBUS_TENANTS__CROWD__JOBS_RUNNING", "1");
    nodes.env("EXOBUS_TENANTS__OTHER__JOBS", "10");
    let mut dev = Running::start(nodes);
    let url = dev.ready_at("nats://", PATIENCE);

    let runtime = cluster::runtime().unwrap();
    let connect = || runtime.block_on(Bus::connect(NatsOptions::url(&url))).unwrap();
    let (crowd, other) = (connect(), connect());
    let ask = async |bus: &Bus, tenant: &str, verb: &str, request: &Value| {
        let subject = Subject::parse(&format!("exo.v1.local.api.{tenant}.{verb}")).unwrap();
        let answer = bus.request(subject, Message::new(request.to_string()), PATIENCE).await?;
        Ok::<Value, BusError>(serde_json::from_slice(&answer.payload).unwrap())
    };
    // One that goes on until it is cancelled, and others after it.
    let long = json!({ "kind": "bench", "params": { "what": { "Shuffle": { "maps": 100_000, "partitions": 1000 } } } });
    let job = json!({ "kind": "bench.job" });
    let (answers, ended) = runtime.block_on(async {
        let first = ask(&crowd, "crowd", "submit", &long).await.unwrap()["job"].as_str().unwrap().to_owned();
        let burst = join_all((0..JOBS).map(|_| ask(&crowd, "crowd", "submit", &job)));
        // Somebody else asks again where the node has no room for a question, as the page on jobs over NATS says.
        let again = async |verb: &str, request: &Value| loop {
            let told = ask(&other, "other", verb, request).await.unwrap();
            if told["error"]["code"] != "unavailable" {
                return told;
            }
        };
        let one_job = async {
            let job = again("submit", &job).await["job"].as_str().unwrap().to_owned();
            loop {
                let status = again("watch", &json!({ "job": job, "wait_ms": 1000 })).await;
                if status["ended_at"].is_string() {
                    return status["state"].as_str().unwrap().to_owned();
                }
            }
        };
        let answered = tokio::join!(burst, one_job);
        // While they wait, and when they are cancelled, questions are answered.
        let status = ask(&crowd, "crowd", "status", &json!({ "job": first })).await.unwrap();
        assert_eq!(status["state"], "running", "{status}");
        // One that has not ended within 5 s is answered with what it is until then.
        while ask(&crowd, "crowd", "cancel", &json!({ "job": first })).await.unwrap()["state"] != "cancelled" {}
        answered
    });
    assert_eq!(ended, "succeeded", "the job of the other tenant");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for answer in answers {
        let what = match answer {
            Ok(told) => match (told["job"].as_str(), told["error"]["code"].as_str()) {
                (Some(_), None) => "accepted".to_owned(),
                (None, Some("unavailable")) => {
                    let message = told["error"]["message"].as_str().unwrap();
                    assert!(message.starts_with("more requests wait at this node than it can keep"), "{message}");
                    "no room".to_owned()
                }
                (None, Some(code)) => code.to_owned(),
                _ => panic!("{told}"),
            },
            Err(error) => panic!("a request is not answered: {error}"),
        };
        *counts.entry(what).or_default() += 1;
    }
    let known = ["accepted", "quota", "no room"];
    assert!(counts.keys().all(|what| known.contains(&what.as_str())), "{counts:?}");
    assert_eq!(counts["accepted"], QUOTA - 1, "beside the one that runs: {counts:?}");
    assert!(counts["quota"] > 0, "{counts:?}");

    dev.signal(Signal::INT);
    let (code, said) = dev.end(PATIENCE);
    assert_eq!(code, Some(0), "{said:#?}");
}
