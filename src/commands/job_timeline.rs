//! `exobus job <id> timeline`: what a job of a cluster did and when, drawn from the events that the cluster still has.

use exobus_actors::event::Event;
use serde_json::{Value, json};

use super::{
    client_failure,
    jobs::{Hearing, find, skipped, with_client},
};
use crate::{
    cli::TimelineArgs,
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
    report::{Views, count},
    stdout::print_line,
};

/// What has been heard of a job, and what of it could not be.
struct Heard {
    views: Views,
    events: u64,
    missing: u64,
}

impl Heard {
    fn take(&mut self, status: &Value) {
        let missing = skipped(status);
        self.missing += missing;
        self.views.miss(missing);
        for event in status["events"].as_array().into_iter().flatten() {
            // One that a later release has is none of ours.
            if let Ok(event) = serde_json::from_value::<Event>(event.clone()) {
                self.events += 1;
                self.views.on(&event);
            }
        }
    }
}

/// Draws the job of these digits.
pub(super) fn draw(digits: &str, args: &TimelineArgs) -> Result<Exit, Failure> {
    with_client(&args.look, "job", async |client| {
        let job = find(client, digits).await?.to_string();
        let interrupt = Interrupt::listen().or_exit(Exit::InputOutput)?;
        let mut heard = Heard { views: args.open()?, events: 0, missing: 0 };
        let hearing = Hearing { follow: args.follow, from_first: true };
        let mut take = |status: &Value| heard.take(status);
        let ended = tokio::select! {
            biased;
            () = interrupt.wait() => None,
            ended = hearing.hear(client, &job, &mut take) => Some(ended),
        };
        let Heard { views, events, missing } = heard;
        if events == 0 {
            return match ended {
                None => Ok(Exit::Interrupted),
                Some(Err(error)) => Err(client_failure(error)),
                Some(Ok(_)) => Err(Failure::text(Exit::Usage, nothing(&job, missing))),
            };
        }
        let said = views.write()?;
        let over = matches!(ended, Some(Ok(true)));
        match args.look.json {
            true => print_line(json!({ "job": job, "events": events, "missing": missing, "over": over })),
            false => said.iter().for_each(print_line),
        }
        if missing > 0 {
            let kept = "the cluster keeps the last ones only; --follow from the beginning of a job misses none";
            eprintln!("{} events are missing, and so is what they told: {kept}", count(missing));
        }
        match ended {
            None => Ok(Exit::Interrupted),
            Some(Err(error)) => Err(client_failure(error)),
            Some(Ok(true)) => Ok(Exit::Success),
            Some(Ok(false)) => {
                eprintln!("the job is not over: this is what there is by now");
                Ok(Exit::Success)
            }
        }
    })
}

/// Of a job of which there is no event.
fn nothing(job: &str, missing: u64) -> String {
    let gone = if missing > 0 { format!(", and {} are not kept any more", count(missing)) } else { String::new() };
    format!(
        "there are no events of job {job}{gone}: it has not begun, or it is over and the node that hosted it is gone or has \
         forgotten it"
    )
}
