//! A node with a function and a program of its own, in one line: `cargo run --example own_node -- --help`.
//!
//! With `nats-server` running, `own_node --scheduler --insecure-no-token` is a cluster of one node, which takes the jobs of
//! `exobus sort --cluster nats://127.0.0.1:4222` and the like, and `own.squares@1` from a client such as that of
//! `tests/it/own_node.rs`.

use std::process::ExitCode;

use exobus::{Futures, JobError, TaskContext, TaskError, program, store::RowHash, task};

/// The square, and the process in which it was made. What it prints `exobus job <id> logs` shows, if it is in a process of its own.
#[task(name = "own.square", version = 1)]
fn square(_: &mut TaskContext<'_>, number: u64) -> Result<(u64, u32), TaskError> {
    println!("square of {number}");
    Ok((number * number, std::process::id()))
}

/// The sum of squares, and the processes in which they were made.
#[program(name = "own.squares", version = 1)]
async fn squares(futures: Futures, upto: u64) -> Result<(u64, Vec<u32>), JobError> {
    futures.print(&format!("{upto} squares"));
    let squares = (1..=upto).map(|number| futures.submit(square, &number, &[])).collect::<Result<Vec<_>, _>>()?;
    let (mut sum, mut processes) = (0, Vec::new());
    for value in &squares {
        let (number, process) = futures.get_value::<(u64, u32)>(value).await?;
        sum += number;
        processes.push(process);
    }
    Ok((sum, processes))
}

/// A line for each square.
#[task(name = "own.lines", version = 1)]
fn lines(context: &mut TaskContext<'_>, upto: u64) -> Result<(), TaskError> {
    let text: String = (1..=upto).map(|number| format!("{number} {}\n", number * number)).collect();
    let writer = context.output_at_sized(0, text.len() as u64)?;
    writer.begin_part(None)?;
    writer.write(text.as_bytes())?;
    writer.end_part(upto, RowHash(u128::from(upto)));
    Ok(())
}

/// Leaves these lines as a result, which `exobus result get` fetches for an hour.
#[program(name = "own.kept", version = 1)]
async fn kept(futures: Futures, upto: u64) -> Result<(), JobError> {
    futures.keep_result("squares.txt", &futures.submit(lines, &upto, &[])?)
}

fn main() -> ExitCode {
    exobus::node_main()
}
