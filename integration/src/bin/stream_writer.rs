//! Appends 1, 2, 3 ... to a stream in a file, eight at a time, and prints each number once its append was acknowledged,
//! until it is killed. For the test that kills it.
//!
//!     stream_writer FILE

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use exobus_bus::streams::{Append, Stream, StreamConfig};
use exobus_bus::{Bus, InProcessOptions, Message, Pattern, Subject};
use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let path = PathBuf::from(std::env::args_os().nth(1).context("usage: stream_writer FILE")?);
    let bus = Bus::in_process_durable(InProcessOptions::default(), &path).await?;
    let deadline = Duration::from_secs(20);
    let stream = Stream::open(&bus, &StreamConfig::new("kept", Pattern::parse("kept.>")?), deadline).await?;
    let subject = Subject::parse("kept.x")?;
    let mut number = stream.state().await?.last_sequence;
    loop {
        let mut appends = JoinSet::new();
        for number in number + 1..=number + 8 {
            let (stream, append) = (stream.clone(), Append::new(subject.clone(), Message::new(number.to_string())));
            appends.spawn(async move {
                stream.append(append, deadline).await?;
                // Flushed, so that the parent reads what was acknowledged however this ends.
                let mut stdout = std::io::stdout().lock();
                writeln!(stdout, "{number}")?;
                stdout.flush()?;
                anyhow::Ok(())
            });
        }
        while let Some(appended) = appends.join_next().await {
            appended??;
        }
        number += 8;
    }
}
