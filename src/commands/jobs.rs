//! `exobus jobs` and `exobus job <id> why`: how it stands with the jobs of a cluster.

use std::{io::Write, time::Duration};

use exobus_actors::{
    client::{Client, ClientError, ClientOptions, list_jobs},
    protocol::owner::{LogUse, Standing, Why},
    protocol::scheduler::JobInfo,
    scheduler::JobList,
};
use exobus_bus::BusError;
use exobus_store::{Clock, SystemClock};
use futures::future::join_all;
use serde::Serialize;
use serde_json::json;

use super::{client_failure, job_logs::follow};
use crate::{
    cli::{JobQueryArgs, JobQuestion, LookArgs},
    cluster,
    config::units::size,
    exit::{Exit, Failure, OrExit},
    report::duration,
};

/// How long the Scheduler may take.
pub(super) const SCHEDULER_DEADLINE: Duration = Duration::from_secs(10);
/// How long an Owner may take to say how it stands with its job.
const OWNER_DEADLINE: Duration = Duration::from_secs(3);
/// How long it may take when it asks its nodes, each of which has two seconds.
const WHY_DEADLINE: Duration = Duration::from_secs(8);

/// How it stands with a job.
#[derive(Debug, Serialize)]
struct Row {
    job: String,
    tenant: String,
    /// `running`, `quiet`, `stalled`, `program`, `ending`; `silent` where its Owner does not answer, `lost` where its node
    /// has died. `working` (it has slots) and `waiting` to who may not ask Owners.
    state: &'static str,
    /// For how long it has been in this state, where that is known, milliseconds.
    for_ms: Option<u64>,
    /// When it was submitted, milliseconds since 1970; the id tells.
    submitted_unix_ms: u64,
    home: Option<String>,
    slots: u64,
    wanted_slots: u64,
    /// Why it has no more slots.
    wait: Option<String>,
}

/// Lists them. Their Owners say how it stands with them, to who may talk to nodes.
pub fn list(args: &LookArgs) -> Result<Exit, Failure> {
    with_bus(args, async |options| {
        let JobList { jobs, more } = list_jobs(&options, SCHEDULER_DEADLINE).await.map_err(client_failure)?;
        let client = match jobs.is_empty() {
            true => None,
            false => match Client::connect(options).await {
                Ok(client) => Some(client),
                Err(ClientError::Bus(BusError::Denied { .. })) => None,
                Err(error) => return Err(client_failure(error)),
            },
        };
        let rows = match &client {
            Some(client) => {
                let asked = jobs.iter().map(async |info| match &info.home {
                    Some(home) => client.why(info.job, home, false, OWNER_DEADLINE).await.ok(),
                    None => None,
                });
                let whys = join_all(asked).await;
                jobs.iter().zip(&whys).map(|(info, why)| row(info, why.as_ref())).collect()
            }
            None => jobs.iter().map(unasked).collect::<Vec<_>>(),
        };
        match args.json {
            true => print(&json!({ "jobs": rows, "more": more }).to_string()),
            false => print(&table(&rows, SystemClock::new().unix_ms())),
        }
        if more > 0 {
            eprintln!("{more} more jobs are not listed");
        }
        if let Some(client) = client {
            client.close().await;
        }
        Ok(Exit::Success)
    })
}

/// Answers a question about one of them.
pub fn ask(args: &JobQueryArgs) -> Result<Exit, Failure> {
    let look = match &args.question {
        JobQuestion::Why(look) => look,
        JobQuestion::Logs(look) => return follow(&args.job, look),
    };
    with_client(look, async |client| {
        let jobs = client.jobs(SCHEDULER_DEADLINE).await.map_err(client_failure)?;
        let info = find(&jobs, &args.job)?;
        let why = match &info.home {
            Some(home) => {
                let why = client.why(info.job, home, true, WHY_DEADLINE).await;
                why.map_err(|error| format!("its Owner on {home} does not answer: {error}"))
            }
            None => Err("the node that hosted it has died".to_owned()),
        };
        let chains = match &why {
            Ok(why) => why.chains.clone(),
            Err(error) => vec![vec![error.clone()]],
        };
        let row = row(info, why.as_ref().ok());
        match look.json {
            true => {
                let mut value = serde_json::to_value(&row).or_exit(Exit::InputOutput)?;
                value["chains"] = json!(chains);
                let why = why.ok();
                value["moved"] = json!(why.as_ref().map(|why| why.moved));
                value["log"] = json!(why.and_then(|why| why.log));
                print(&value.to_string());
            }
            false => print(&told(&row, &chains, why.ok().and_then(|why| why.log).as_ref())),
        }
        Ok(Exit::Success)
    })
}

fn with_client(args: &LookArgs, work: impl AsyncFnOnce(&Client) -> Result<Exit, Failure>) -> Result<Exit, Failure> {
    with_bus(args, async |options| {
        let client = Client::connect(options).await.map_err(client_failure)?;
        let outcome = work(&client).await;
        client.close().await;
        outcome
    })
}

pub(super) fn with_bus(
    args: &LookArgs,
    work: impl AsyncFnOnce(ClientOptions) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let config = cluster::config(&args.place)?;
    let runtime = cluster::runtime()?;
    runtime.block_on(async {
        let options = cluster::connect_client(&config, "jobs").await?;
        let bus = options.bus.clone();
        let outcome = work(options).await;
        // What is lost with the connection now nobody waits for.
        let _ = bus.drain().await;
        outcome
    })
}

/// The job whose id begins with these digits.
pub(super) fn find<'a>(jobs: &'a [JobInfo], digits: &str) -> Result<&'a JobInfo, Failure> {
    let mut like = jobs.iter().filter(|info| info.job.to_string().starts_with(digits));
    match (like.next(), like.next()) {
        (Some(info), None) => Ok(info),
        (Some(_), Some(_)) => {
            Err(Failure::text(Exit::Usage, format!("several jobs begin with {digits}; `exobus jobs` lists them")))
        }
        (None, _) => {
            let text = format!(
                "no job {digits} in the cluster: it is over, or was never there; `exobus jobs` lists those that are"
            );
            Err(Failure::text(Exit::Usage, text))
        }
    }
}

/// `why`: what its Owner says, `None` where it says nothing.
fn row(info: &JobInfo, why: Option<&Why>) -> Row {
    let (state, for_ms) = match why {
        Some(why) => (standing(why.standing), Some(why.still_ms)),
        None if info.home.is_none() => ("lost", None),
        None => ("silent", None),
    };
    Row {
        job: info.job.to_string(),
        tenant: info.tenant.to_string(),
        state,
        // Of what moves nobody needs to know for how many milliseconds it has not.
        for_ms: for_ms.filter(|_| state != "running"),
        submitted_unix_ms: info.job.made_unix_ms(),
        home: info.home.as_ref().map(ToString::to_string),
        slots: info.slots,
        wanted_slots: info.wanted_slots,
        wait: info.wait.as_ref().map(|wait| wait.reason.clone()),
    }
}

/// A job whose Owner may not be asked.
fn unasked(info: &JobInfo) -> Row {
    let state = match (&info.home, info.slots) {
        (None, _) => "lost",
        (Some(_), 0) => "waiting",
        (Some(_), _) => "working",
    };
    Row { state, ..row(info, None) }
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Running => "running",
        Standing::Quiet => "quiet",
        Standing::Stalled => "stalled",
        Standing::Program => "program",
        Standing::Ending => "ending",
    }
}

fn state(row: &Row) -> String {
    let lasts = row.for_ms.map(|ms| format!(" for {}", duration(Duration::from_millis(ms))));
    let words = match row.state {
        "program" => "its program is busy",
        other => other,
    };
    format!("{words}{}", lasts.unwrap_or_default())
}

/// One line for each job.
fn table(rows: &[Row], now_unix_ms: u64) -> String {
    if rows.is_empty() {
        return "no jobs".to_owned();
    }
    let line = |row: &Row| {
        let age = Duration::from_millis(now_unix_ms.saturating_sub(row.submitted_unix_ms));
        let home = row.home.as_ref().map(|home| format!(" on {home}"));
        let wait = row.wait.as_ref().map(|wait| format!(": {wait}"));
        format!(
            "{}  {}{}, submitted {} ago, {} of {} slots{}",
            row.job,
            state(row),
            home.unwrap_or_default(),
            duration(age),
            row.slots,
            row.wanted_slots,
            wait.unwrap_or_default()
        )
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// How it stands with a job, then each chain, a link a line, and what its log takes.
fn told(row: &Row, chains: &[Vec<String>], log: Option<&LogUse>) -> String {
    let mut text = format!("job {}: {}", row.job, state(row));
    for chain in chains {
        for (depth, link) in chain.iter().enumerate() {
            let arrow = if depth == 0 { "" } else { "<- " };
            text.push_str(&format!("\n{:1$}{arrow}{link}", "", 2 + 2 * depth));
        }
    }
    if let Some(LogUse { bytes, quota_bytes, cut }) = log {
        let cut = cut.as_ref().map(|cut| format!("; it cannot be taken up again: {cut}"));
        let (used, quota) = (size(*bytes), size(*quota_bytes));
        text.push_str(&format!("\n  its log has {used} of {quota}{}", cut.unwrap_or_default()));
    }
    text
}

pub(super) fn print(text: &str) {
    // A closed pipe (`| head`) is the reader's business.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use exobus_actors::{
        ids::{JobId, NodeId},
        protocol::owner::Moved,
        protocol::scheduler::Wait,
        task::Resources,
    };

    use super::*;

    const MADE_MS: u64 = 1_800_000_000_000;

    fn info(number: u128, home: Option<&str>) -> JobInfo {
        JobInfo {
            job: JobId::from_u128(u128::from(MADE_MS) << 80 | number),
            tenant: "default".into(),
            home: home.map(NodeId::new),
            wanted_slots: 8,
            slots: 2,
            resources: Resources::cpu(2000),
            share_milli: 500,
            wait: Some(Wait { reason: "has 2 of 8 slots of 1 cpu; the cluster has no more".into(), never: None }),
        }
    }

    fn why(standing: Standing, still_ms: u64) -> Why {
        let chains = vec![vec!["job waits for sort.merge (3 of 40 tasks)".into(), "it runs there".into()]];
        Why { job: info(1, None).job, standing, still_ms, moved: Moved::default(), chains, log: None }
    }

    #[test]
    fn each_job_has_a_line_that_says_how_it_stands() {
        let (alive, dead) = (info(1, Some("n2")), info(2, None));
        let stalled = why(Standing::Stalled, 72_000);
        let rows = [
            row(&alive, Some(&stalled)),
            row(&alive, Some(&why(Standing::Running, 400))),
            row(&alive, None),
            row(&dead, None),
        ];
        let text = table(&rows, MADE_MS + 90_000);
        let lines: Vec<_> = text.lines().map(|line| line.split_once("  ").unwrap().1).collect();
        let rest = "submitted 90.0 s ago, 2 of 8 slots: has 2 of 8 slots of 1 cpu; the cluster has no more";
        assert_eq!(
            lines,
            [
                format!("stalled for 72.0 s on n2, {rest}"),
                format!("running on n2, {rest}"),
                format!("silent on n2, {rest}"),
                format!("lost, {rest}"),
            ]
        );
        assert_eq!(table(&[], 0), "no jobs");
    }

    #[test]
    fn a_chain_is_written_a_link_a_line() {
        let why = why(Standing::Program, 72_000);
        let row = row(&info(1, Some("n2")), Some(&why));
        let text = told(&row, &why.chains, None);
        let (first, rest) = text.split_once('\n').unwrap();
        assert!(first.ends_with(": its program is busy for 72.0 s"), "{first}");
        assert_eq!(rest, "  job waits for sort.merge (3 of 40 tasks)\n    <- it runs there");
        let mut log = LogUse { bytes: 3 << 20, quota_bytes: 64 << 20, cut: None };
        let last = |log: &LogUse| told(&row, &why.chains, Some(log)).lines().last().unwrap().to_owned();
        assert_eq!(last(&log), "  its log has 3.0 MiB of 64.0 MiB");
        log.cut = Some("it ended before the job did".into());
        assert_eq!(
            last(&log),
            "  its log has 3.0 MiB of 64.0 MiB; it cannot be taken up again: it ended before the job did"
        );
    }

    #[test]
    fn a_job_is_found_by_its_first_digits() {
        let jobs = [info(1, None), info(2, None)];
        assert_eq!(find(&jobs, &jobs[1].job.to_string()).unwrap().job, jobs[1].job);
        for (digits, said) in [("01", "several"), ("fff", "no job fff in the cluster")] {
            let failure = find(&jobs, digits).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.to_string().contains(said), "{failure}");
        }
    }
}
