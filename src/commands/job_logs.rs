//! `exobus job <id> logs`: what the tasks and the program of a job print.

use std::time::Duration;

use exobus_actors::{
    client::{Client, ClientError},
    ids::JobId,
    printing::{Printed, subject},
    protocol::job::JobState,
};
use exobus_bus::{Delivery, SubscribeOptions, codec};
use tokio::time::{interval, sleep};

use super::{
    client_failure,
    jobs::{find, with_client},
};
use crate::{
    cli::LookArgs,
    exit::{Exit, Failure, OrExit},
    stdout::print_line,
};

/// How often it is looked whether the job is over.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What was printed last may be on its way when the job is over.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Bytes that wait while stdout is slow; what comes beyond is dropped and counted.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Prints what the job of these digits prints, until it is over.
pub(super) fn follow(digits: &str, args: &LookArgs) -> Result<Exit, Failure> {
    with_client(args, "logs", async |client| {
        let (job, options) = (find(client, digits).await?, client.options());
        let subject = subject(&options.subjects, &options.tenant, job).or_exit(Exit::Usage)?;
        let waits = SubscribeOptions { capacity_bytes: WAITING_BYTES_MAX, ..SubscribeOptions::default() };
        let heard = options.bus.subscribe(subject.into(), waits).await;
        let mut heard = heard.map_err(|error| client_failure(ClientError::Bus(error)))?;
        let mut looks = interval(LOOK_EVERY);
        loop {
            tokio::select! {
                biased;
                delivery = heard.recv() => match delivery {
                    Some(delivery) => show(&delivery, args.json),
                    None => return Err(Failure::text(Exit::Unreachable, "the connection to the cluster was closed")),
                },
                _ = looks.tick() => {
                    if is_over(client, job).await {
                        break;
                    }
                }
            }
        }
        sleep(LAST_WORDS).await;
        while let Some(delivery) = heard.try_recv() {
            show(&delivery, args.json);
        }
        if heard.dropped() > 0 {
            eprintln!("{} pieces are not shown: they came faster than they were read", heard.dropped());
        }
        Ok(Exit::Success)
    })
}

/// Whether it is; a cluster that does not answer says nothing.
async fn is_over(client: &Client, job: JobId) -> bool {
    let status = client.status(job).await.ok();
    let state = status.as_ref().and_then(JobState::of_answer);
    state.is_some_and(JobState::is_over)
}

fn show(delivery: &Delivery, json: bool) {
    // What cannot be read is none of ours.
    let Ok(printed) = codec::decode_checked::<Printed>(&delivery.message.payload) else { return };
    print_line(match json {
        true => serde_json::to_string(&printed).unwrap_or_default(),
        false => harmless(&printed.to_string()),
    });
}

/// What a job prints is not to move the cursor of a terminal.
fn harmless(text: &str) -> String {
    let letter = |letter: char| if letter.is_control() && !matches!(letter, '\n' | '\t') { '\u{fffd}' } else { letter };
    text.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing() {
        assert_eq!(harmless("a\tb\n\u{1b}[2Jc\u{9b}d"), "a\tb\n\u{fffd}[2Jc\u{fffd}d");
    }
}
