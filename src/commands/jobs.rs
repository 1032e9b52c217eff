//! `exobus jobs` and `exobus job <id> ...`: how it stands with the jobs of a cluster, and ending them.

use std::time::Duration;

use exobus_actors::{
    client::{Client, ClientError},
    event::Event,
    ids::JobId,
    protocol::job::JobState,
    task::JobError,
    words::Word,
};
use exobus_queries::snapshot::Snapshot;
use exobus_store::{Clock, SystemClock};
use serde_json::{Value, json};

use super::{client_failure, job_failure, job_logs::follow, job_timeline::draw};
use crate::{
    cli::{EstimateArgs, JobQueryArgs, JobQuestion, JobsArgs, LookArgs},
    cluster,
    config::units::size,
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    page::{Page, State},
    report::{GROUPS_DRAWN, Reporter, Style, Views, count, duration, snapshot_table},
    stdout::print_line,
};

/// Jobs in a page.
const PAGE: u32 = 50;

/// Lists them.
pub fn list(args: &JobsArgs) -> Result<Exit, Failure> {
    with_client(&args.look, "jobs", async |client| {
        let (mut jobs, mut next) = (Vec::new(), Value::Null);
        loop {
            let limit = (args.limit - jobs.len() as u32).min(PAGE);
            let mut request = json!({ "all": args.all, "limit": limit, "state": args.state });
            if !next.is_null() {
                request["next"] = next.clone();
            }
            let page: Value = client.ask("list", &request).await.map_err(client_failure)?;
            jobs.extend(page["jobs"].as_array().cloned().unwrap_or_default());
            next = page["next"].clone();
            if next.is_null() || jobs.len() >= args.limit as usize {
                break;
            }
        }
        match args.look.json {
            true => print_line(json!({ "jobs": jobs, "next": next })),
            false => print_line(table(&jobs, SystemClock::new().unix_ms())),
        }
        if !next.is_null() {
            eprintln!("there are more; --limit {} shows as many", u64::from(args.limit) * 10);
        }
        Ok(Exit::Success)
    })
}

/// Answers a question about one of them, or ends it.
pub fn ask(args: &JobQueryArgs) -> Result<Exit, Failure> {
    let (verb, look) = match &args.question {
        JobQuestion::Status(look) => ("status", look),
        JobQuestion::Why(look) => ("why", look),
        JobQuestion::Cancel(look) => ("cancel", look),
        JobQuestion::Enough(look) => return tell(&args.job, Word::Enough, look),
        JobQuestion::GoOn(look) => return tell(&args.job, Word::GoOn, look),
        JobQuestion::Result(look) => return result(&args.job, look),
        JobQuestion::Logs(look) => return follow(&args.job, look),
        JobQuestion::Watch(look) => return watch(&args.job, look),
        JobQuestion::Events(look) => return events(&args.job, look),
        JobQuestion::Estimate(asked) => return estimates(&args.job, asked),
        JobQuestion::Timeline(asked) => return draw(&args.job, asked),
    };
    with_client(look, "job", async |client| {
        let told: Value = client.ask(verb, &json!({ "job": args.job })).await.map_err(client_failure)?;
        match (look.json, verb) {
            (true, _) => print_line(told),
            (false, "why") => print_line(why(&told)),
            (false, "cancel") => print_line(format!("job {}: {}", text(&told["job"]), text(&told["state"]))),
            (false, _) => print_line(status(&told)),
        }
        Ok(Exit::Success)
    })
}

/// Tells the program of a job something, and prints that it has heard it.
fn tell(digits: &str, word: Word, look: &LookArgs) -> Result<Exit, Failure> {
    with_client(look, "job", async |client| {
        let job = find(client, digits).await?;
        let standing = client.tell(job, word).await.map_err(client_failure)?;
        print_line(match look.json {
            true => serde_json::to_string(&standing).or_exit(Exit::InputOutput)?,
            false => match word {
                Word::Enough => format!("job {job} was told that enough was seen"),
                Word::GoOn => format!("job {job} was told to go on"),
            },
        });
        Ok(Exit::Success)
    })
}

/// Prints what the program of a job returned; where it failed, this ends as it does for who waited for it.
fn result(digits: &str, look: &LookArgs) -> Result<Exit, Failure> {
    with_client(look, "job", async |client| {
        let job = find(client, digits).await?;
        let told: Value = match client.ask("value", &json!({ "job": job.to_string() })).await {
            Ok(told) => told,
            Err(refused @ ClientError::Refused(_)) => match client.end(job).await.map(|end| end.result) {
                Ok(Err(error)) => return Err(job_failure(error)),
                _ => return Err(client_failure(refused)),
            },
            Err(error) => return Err(client_failure(error)),
        };
        let told = readable(told);
        print_line(match look.json {
            true => told.to_string(),
            false => serde_json::to_string_pretty(&told["value"]).or_exit(Exit::InputOutput)?,
        });
        Ok(Exit::Success)
    })
}

/// What a job has returned, with rows in place of the bytes that have them.
#[cfg(feature = "sql")]
fn readable(mut told: Value) -> Value {
    told["value"] = crate::report::with_rows(told["value"].take());
    told
}

/// Without queries nothing returns rows.
#[cfg(not(feature = "sql"))]
fn readable(told: Value) -> Value {
    told
}

/// Shows how far a job comes, until it is over.
fn watch(digits: &str, look: &LookArgs) -> Result<Exit, Failure> {
    with_client(look, "job", async |client| {
        let job = find(client, digits).await?;
        wait_for(client, job, look.json, true).await
    })
}

/// Hands a spec in. Its job is named, or waited for: `wait` says whether with a view of how far it comes.
pub(super) fn hand_in(look: &LookArgs, spec: &[u8], wait: Option<bool>) -> Result<Exit, Failure> {
    with_client(look, "submit", async |client| {
        let standing = client.submit(spec).await.map_err(client_failure)?;
        let Some(shown) = wait else {
            let text = format!("job {}: {}", standing.job, standing.state);
            print_line(if look.json { serde_json::to_string(&standing).or_exit(Exit::InputOutput)? } else { text });
            return Ok(Exit::Success);
        };
        let strange = |_| client_failure(ClientError::Strange("a job without an id".into()));
        let job = standing.job.parse().map_err(strange)?;
        eprintln!("job {job}");
        wait_for(client, job, look.json, shown).await
    })
}

/// Waits until a job is over, and prints how it ended; Ctrl-C leaves it alone.
async fn wait_for(client: &Client, job: JobId, json: bool, shown: bool) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen().or_exit(Exit::InputOutput)?;
    let reporter = shown.then(|| Reporter::start(Style::of_stderr(), Views::default())).transpose();
    let reporter = reporter.or_exit(Exit::InputOutput)?;
    let events = reporter.as_ref().map(Reporter::sink);
    let tell = |event| events.iter().for_each(|events| events.emit(Event::clone(&event)));
    let ended = tokio::select! {
        biased;
        () = interrupt.wait() => None,
        ended = client.follow(job, tell, std::future::pending()) => Some(ended),
    };
    reporter.map_or(Ok(()), |reporter| reporter.finish().1)?;
    let Some(ended) = ended else { return Ok(Exit::Interrupted) };
    let end = ended.map_err(client_failure)?;
    let state = client.status(job).await.map_err(client_failure)?;
    print_line(if json { state.to_string() } else { status(&state) });
    match end.result {
        Ok(_) => Ok(Exit::Success),
        Err(JobError::Cancelled) => Ok(Exit::JobFailed),
        Err(error) => Err(job_failure(error)),
    }
}

/// Prints what happens to a job, until it is over.
fn events(digits: &str, look: &LookArgs) -> Result<Exit, Failure> {
    with_client(look, "job", async |client| {
        let hearing = Hearing { follow: true, from_first: false };
        hearing.hear(client, digits, &mut show_events).await.map_err(client_failure)?;
        Ok(Exit::Success)
    })
}

/// How long a request waits for the next look.
const LOOK_WAIT: Duration = Duration::from_secs(10);

/// Prints what the result of a job looks like, look by look, until it is over; Ctrl-C leaves it alone.
fn estimates(digits: &str, EstimateArgs { page, look }: &EstimateArgs) -> Result<Exit, Failure> {
    with_client(look, "job", async |client| {
        let job = find(client, digits).await?;
        let interrupt = Interrupt::listen().or_exit(Exit::InputOutput)?;
        let page = Page::told(*page, || format!("job {job}"))?;
        let mut after = 0;
        loop {
            let said = tokio::select! {
                biased;
                () = interrupt.wait() => return Ok(Exit::Interrupted),
                said = client.estimate(job, after, LOOK_WAIT) => said.map_err(client_failure)?,
            };
            if !said["snapshot"].is_null() {
                page.iter().for_each(|page| page.board().look(&said["snapshot"].to_string()));
                print_line(match look.json {
                    true => said["snapshot"].to_string(),
                    false => {
                        let known: Snapshot =
                            serde_json::from_value(said["snapshot"].clone()).or_exit(Exit::InputOutput)?;
                        let (seen, blocks) = (count(known.blocks_seen), count(known.blocks));
                        format!(
                            "{}\n{seen} of {blocks} blocks after {:.1} s\n",
                            snapshot_table(&known, GROUPS_DRAWN, None),
                            known.seconds
                        )
                    }
                });
            }
            after = said["last"].as_u64().unwrap_or(after);
            if said["over"] == true {
                if let Some(page) = page {
                    match said["state"].as_str() {
                        Some("failed") => page.board().ended(State::Failed, ""),
                        Some("cancelled") => page.board().ended(State::Cancelled, ""),
                        _ => page.board().done(),
                    }
                    page.close(&interrupt);
                }
                return Ok(Exit::Success);
            }
        }
    })
}

fn show_events(status: &Value) {
    let skipped = skipped(status);
    if skipped > 0 {
        print_line(json!({ "skipped": skipped, "progress": status["progress"] }));
    }
    for event in status["events"].as_array().into_iter().flatten() {
        print_line(event);
    }
}

/// How many events are not there any more, as an answer says.
pub(super) fn skipped(status: &Value) -> u64 {
    status["skipped"].as_u64().unwrap_or(0)
}

/// How somebody hears of the events of a job.
pub(super) struct Hearing {
    /// Until it is over; else until there are no more now.
    pub(super) follow: bool,
    /// Where some are not there any more: go on with the first that is; else with what happens next.
    pub(super) from_first: bool,
}

impl Hearing {
    /// Asks, and has each answer taken. Whether the job is over then, and all that there was of it has been heard.
    pub(super) async fn hear(
        &self,
        client: &Client,
        digits: &str,
        take: &mut impl FnMut(&Value),
    ) -> Result<bool, ClientError> {
        let job = id_of(client, digits).await?;
        let wait = if self.follow { Duration::from_secs(2) } else { Duration::ZERO };
        let mut after = 0;
        loop {
            let status = client.changed("events", job, after, wait).await?;
            take(&status);
            let is_over = JobState::of_answer(&status).is_some_and(JobState::is_over);
            let Some(last) = status["last"].as_u64() else {
                // Nobody tells of it.
                if is_over || !self.follow {
                    return Ok(is_over);
                }
                continue;
            };
            if let (Some(first), true) = (status["first"].as_u64(), self.from_first) {
                after = first - 1;
                continue;
            }
            after = last;
            if is_over && status["over"].as_bool().unwrap_or(true) {
                return Ok(true);
            }
            if !self.follow && status["events"].as_array().is_none_or(Vec::is_empty) {
                return Ok(is_over);
            }
        }
    }
}

/// Does something with a client of the cluster.
pub(super) fn with_client(
    args: &LookArgs,
    command: &str,
    work: impl AsyncFnOnce(&Client) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let config = cluster::config(&args.place)?;
    let runtime = cluster::runtime()?;
    runtime.block_on(async {
        let options = cluster::connect_client(&config, command).await?;
        let bus = options.bus.clone();
        let client = Client::connect(options).await.map_err(client_failure)?;
        let outcome = work(&client).await;
        // What is lost with the connection now nobody waits for.
        let _ = bus.drain().await;
        outcome
    })
}

/// The job whose id begins with these digits.
pub(super) async fn find(client: &Client, digits: &str) -> Result<JobId, Failure> {
    id_of(client, digits).await.map_err(client_failure)
}

async fn id_of(client: &Client, digits: &str) -> Result<JobId, ClientError> {
    let status: Value = client.ask("status", &json!({ "job": digits })).await?;
    let strange = || ClientError::Strange("a job without an id".into());
    status["job"].as_str().and_then(|job| job.parse().ok()).ok_or_else(strange)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// When a job was accepted, milliseconds since 1970; its id tells.
fn made_unix_ms(job: &Value) -> u64 {
    job["job"].as_str().and_then(|id| id.parse::<JobId>().ok()).map_or(0, JobId::made_unix_ms)
}

/// One line for each job.
fn table(jobs: &[Value], now_unix_ms: u64) -> String {
    if jobs.is_empty() {
        return "no jobs".to_owned();
    }
    let line = |job: &Value| {
        let age = Duration::from_millis(now_unix_ms.saturating_sub(made_unix_ms(job)));
        let name = job["name"].as_str().map(|name| format!(" {name:?}")).unwrap_or_default();
        let host = job["host"].as_str().map(|host| format!(" on {host}")).unwrap_or_default();
        let error = job["error"]["message"].as_str().map(|error| format!(": {error}")).unwrap_or_default();
        let (id, kind, state) = (text(&job["job"]), text(&job["kind"]), text(&job["state"]));
        format!("{id}  {state:<10} {kind}{name}{host}, submitted {} ago{error}", duration(age))
    };
    jobs.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// How it stands with a job, a fact a line.
fn status(told: &Value) -> String {
    let mut lines = vec![format!("job {}: {}", text(&told["job"]), text(&told["state"]))];
    let mut add = |name: &str, value: Option<String>| lines.extend(value.map(|value| format!("  {name:<10} {value}")));
    let word = |name: &str| told[name].as_str().map(str::to_owned);
    add("kind", word("kind"));
    add("name", word("name"));
    add("by", word("who"));
    add("host", word("host"));
    add("accepted", word("accepted_at"));
    add("started", word("started_at"));
    add("ended", word("ended_at"));
    add("waits for", told["jobs_before"].as_u64().map(|before| format!("its turn; {before} jobs come before it")));
    add("waits for", word("waiting"));
    let progress = &told["progress"];
    add("tasks", progress["tasks"].as_u64().map(|all| format!("{} of {all} done", progress["tasks_done"])));
    let used = &told["used"];
    let bytes = |name: &str| size(used[name].as_u64().unwrap_or(0));
    let nodes = used["nodes"].as_u64().filter(|nodes| *nodes > 0);
    add(
        "used",
        nodes.map(|nodes| {
            format!("{nodes} nodes, {} spilled, {} moved", bytes("spilled_bytes"), bytes("received_bytes"))
        }),
    );
    add("error", told["error"]["message"].as_str().map(str::to_owned));
    lines.join("\n")
}

/// How it stands with a job, then each chain, a link a line, and what its log takes.
fn why(told: &Value) -> String {
    let still = told["still_ms"].as_u64().map(|ms| duration(Duration::from_millis(ms)));
    let words = match told["standing"].as_str() {
        Some("Program") => Some("its program is busy".to_owned()),
        Some("Running") | None => None,
        Some(standing) => Some(standing.to_ascii_lowercase()),
    };
    let standing = words.map(|words| format!(", {words} for {}", still.unwrap_or_default())).unwrap_or_default();
    let mut lines = vec![format!("job {}: {}{standing}", text(&told["job"]), text(&told["state"]))];
    for chain in told["chains"].as_array().into_iter().flatten() {
        for (depth, link) in chain.as_array().into_iter().flatten().enumerate() {
            let arrow = if depth == 0 { "" } else { "<- " };
            lines.push(format!("{:1$}{arrow}{2}", "", 2 + 2 * depth, text(link)));
        }
    }
    let log = &told["log"];
    if let (Some(bytes), Some(quota)) = (log["bytes"].as_u64(), log["quota_bytes"].as_u64()) {
        let cut = log["cut"].as_str().map(|cut| format!("; it cannot be taken up again: {cut}")).unwrap_or_default();
        lines.push(format!("  its log has {} of {}{cut}", size(bytes), size(quota)));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE_MS: u64 = 1_800_000_000_000;

    fn job(number: u128) -> String {
        JobId::from_u128(u128::from(MADE_MS) << 80 | number).to_string()
    }

    #[test]
    fn each_job_has_a_line_that_says_how_it_stands() {
        let jobs = [
            json!({ "job": job(1), "state": "running", "kind": "sort", "host": "n2", "name": "nightly" }),
            json!({ "job": job(2), "state": "failed", "kind": "sort", "error": { "message": "no such file" } }),
        ];
        let text = table(&jobs, MADE_MS + 90_000);
        let lines: Vec<_> = text.lines().map(|line| line.split_once("  ").unwrap().1).collect();
        assert_eq!(
            lines,
            [
                "running    sort \"nightly\" on n2, submitted 90.0 s ago",
                "failed     sort, submitted 90.0 s ago: no such file"
            ]
        );
        assert_eq!(table(&[], 0), "no jobs");
    }

    #[test]
    fn a_chain_is_written_a_link_a_line() {
        let mut told = json!({
            "job": job(1), "state": "running", "standing": "Program", "still_ms": 72_000,
            "chains": [["job waits for sort.merge (3 of 40 tasks)", "it runs there"]],
        });
        let text = why(&told);
        let (first, rest) = text.split_once('\n').unwrap();
        assert!(first.ends_with(": running, its program is busy for 72.0 s"), "{first}");
        assert_eq!(rest, "  job waits for sort.merge (3 of 40 tasks)\n    <- it runs there");
        told["log"] = json!({ "bytes": 3 << 20, "quota_bytes": 64 << 20, "cut": "it ended before the job did" });
        let expected = "  its log has 3.0 MiB of 64.0 MiB; it cannot be taken up again: it ended before the job did";
        assert_eq!(why(&told).lines().last().unwrap(), expected);
    }

    #[test]
    fn a_status_is_a_fact_a_line() {
        let told = json!({
            "job": job(1), "state": "queued", "kind": "sort", "jobs_before": 3,
            "progress": { "tasks": 8, "tasks_done": 2 },
        });
        let told = status(&told);
        let lines: Vec<_> = told.lines().skip(1).collect();
        let expected =
            ["  kind       sort", "  waits for  its turn; 3 jobs come before it", "  tasks      2 of 8 done"];
        assert_eq!(lines, expected);
    }
}
