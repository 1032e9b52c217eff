//! What the tests run: functions that end in every way, and honest ones.

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use exobus_actors::ids::{Attempt, RowHash};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use exobus_store::StoreError;
use serde::{Deserialize, Serialize};

/// How a function ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum End {
    Well,
    Abort,
    Exit(i32),
    Panic,
    /// Stores to an argument, which nobody may.
    Scribble,
    /// Calls itself for ever.
    Overflow,
    /// Writes its process id to a file and waits to be killed.
    Wait(PathBuf),
    /// Takes memory until it is killed.
    Hog(PathBuf),
}

/// Ends so in its first attempts, and well after these; writes something before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ends {
    pub how: End,
    pub attempts: u32,
    /// Instead: in the first that runs, which makes this file. One that an executor has not begun when it dies is given back, and
    /// the next one has another number.
    pub mark: Option<PathBuf>,
    pub salt: u64,
}

impl Ends {
    pub fn once(how: End) -> Self {
        Self { how, attempts: 1, mark: None, salt: 0 }
    }

    pub fn always(how: End) -> Self {
        Self { how, attempts: u32::MAX, mark: None, salt: 0 }
    }
}

/// Paths that a function checks one after the other, and whether it aborts then, in its first attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checks {
    pub paths: Vec<PathBuf>,
    pub aborts: bool,
}

/// Checks these paths.
#[task(name = "test.checks")]
pub fn checks(context: &mut TaskContext<'_>, params: Checks) -> Result<(), TaskError> {
    for path in &params.paths {
        context.check_path(path)?;
    }
    if params.aborts && context.attempt() == Attempt::FIRST {
        std::process::abort();
    }
    Ok(())
}

/// Returns the length of its argument, if it gets that far.
#[task(name = "test.ends")]
pub fn ends(context: &mut TaskContext<'_>, params: Ends) -> Result<u64, TaskError> {
    let argument = (context.args() > 0).then(|| context.block(0));
    let length = argument.as_ref().map_or(0, |block| block.len() as u64);
    eprintln!("the last words of attempt {}", context.attempt());
    let is_over = match &params.mark {
        Some(mark) => std::fs::File::create_new(mark).is_err(),
        None => context.attempt().makes().counted() > params.attempts,
    };
    if is_over {
        return Ok(length);
    }
    // What is under way goes with the process.
    let scratch = context.scratch(1 << 20)?;
    let output = context.output()?;
    output.begin_part(None)?;
    output.write(&scratch[..1000])?;
    match params.how {
        End::Well => {}
        End::Abort => std::process::abort(),
        End::Exit(code) => std::process::exit(code),
        End::Panic => panic!("on purpose"),
        End::Scribble => scribble(&argument.expect("an argument")),
        End::Overflow => drop(black_box(overflow(black_box(1)))),
        End::Wait(path) => {
            write_pid(&path);
            loop {
                std::thread::park_timeout(Duration::from_secs(1));
            }
        }
        End::Hog(path) => {
            write_pid(&path);
            let mut taken = Vec::new();
            // Not faster than anybody can look.
            loop {
                taken.push(vec![black_box(7_u8); 1 << 20]);
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
    }
    output.end_part(1, RowHash::default());
    Ok(length)
}

/// Memory that a function takes by itself, from when it says so in a file until there is another file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Takes {
    pub bytes: u64,
    pub said: PathBuf,
    pub go: PathBuf,
}

/// Takes memory that it was granted, and gives the grant back before the memory; the process that it runs in.
#[task(name = "test.keeps")]
pub fn keeps(context: &mut TaskContext<'_>, params: Keeps) -> Result<u32, TaskError> {
    let granted = context.outside(params.granted_bytes)?;
    let taken: Vec<_> = (0..params.takes.bytes >> 20).map(|_| vec![black_box(7_u8); 1 << 20]).collect();
    write_pid(&params.takes.said);
    wait_for(context, &params.gives_back)?;
    drop(granted);
    wait_for(context, &params.takes.go)?;
    drop(black_box(taken));
    Ok(std::process::id())
}

/// Memory that a function takes, of which so much is granted until there is a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Keeps {
    pub takes: Takes,
    pub granted_bytes: u64,
    pub gives_back: PathBuf,
}

/// Takes memory; the process that it runs in.
#[task(name = "test.takes")]
pub fn takes(context: &mut TaskContext<'_>, params: Takes) -> Result<u32, TaskError> {
    let taken: Vec<_> = (0..params.bytes >> 20).map(|_| vec![black_box(7_u8); 1 << 20]).collect();
    write_pid(&params.said);
    wait_for(context, &params.go)?;
    drop(black_box(taken));
    Ok(std::process::id())
}

/// Has a program hold memory, when it is told to: the process that it runs in itself.
#[task(name = "test.starts")]
pub fn starts(context: &mut TaskContext<'_>, params: Starts) -> Result<u32, TaskError> {
    write_pid(&params.said);
    wait_for(context, &params.begin)?;
    // It keeps all that it has read until there is no more.
    let script = format!("(head -c {} /dev/zero; echo > {:?}; sleep 1000) | tail", params.bytes, params.taken);
    let mut program = std::process::Command::new("sh").args(["-c", &script]).spawn()?;
    let gone = wait_for(context, &params.go);
    // With what it has started: they are all in the group of this process, and end with it, or with their input.
    program.kill()?;
    program.wait()?;
    gone.map(|()| std::process::id())
}

/// What a program holds that a function starts, and where both say what they have come to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Starts {
    pub bytes: u64,
    pub said: PathBuf,
    pub begin: PathBuf,
    pub taken: PathBuf,
    pub go: PathBuf,
}

/// Leaves a thread behind that has memory beside the store, and asks for more and gives it back all the time, until it is told to go and says
/// that it is gone; the process that it runs in.
#[task(name = "test.lingers")]
pub fn lingers(context: &mut TaskContext<'_>, params: Takes) -> Result<u32, TaskError> {
    let mut held = context.outside(params.bytes)?;
    std::thread::Builder::new().spawn(move || {
        while !params.go.exists() {
            held.resize(params.bytes + 1).unwrap();
            held.resize(params.bytes).unwrap();
        }
        drop(held);
        write_pid(&params.said);
    })?;
    Ok(std::process::id())
}

/// Holds memory beside the store, from when it says so in a file until there is another file.
#[task(name = "test.holds")]
pub fn holds(context: &mut TaskContext<'_>, params: Takes) -> Result<u64, TaskError> {
    let held = context.outside(params.bytes)?;
    write_pid(&params.said);
    wait_for(context, &params.go)?;
    Ok(held.bytes())
}

/// What a function cannot go on without.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Needs {
    pub first_bytes: u64,
    pub more_bytes: u64,
    /// How often it asks for more.
    pub asks: u32,
    pub denied: PathBuf,
    pub go: PathBuf,
}

/// Asks for memory beside the store, and fails where that is denied, once it was told to go on: what it was granted in all, and how
/// often it began.
#[task(name = "test.needs")]
pub fn needs(context: &mut TaskContext<'_>, params: Needs) -> Result<(u64, u32), TaskError> {
    let mut held = context.outside(params.first_bytes)?;
    for _ in 0..params.asks {
        match context.outside(params.more_bytes) {
            Ok(more) => return Ok((held.bytes() + more.bytes(), context.attempt().makes().counted())),
            Err(StoreError::Denied { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Less is always to be had.
    held.resize(held.bytes())?;
    write_pid(&params.denied);
    wait_for(context, &params.go)?;
    Err(TaskError::failed("it cannot go on"))
}

fn wait_for(context: &TaskContext<'_>, path: &std::path::Path) -> Result<(), TaskError> {
    while !path.exists() {
        context.check_cancelled()?;
        std::thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}

fn write_pid(path: &std::path::Path) {
    let mut file = std::fs::File::create(path).unwrap();
    writeln!(file, "{}", std::process::id()).unwrap();
}

#[allow(unsafe_code, reason = "a stray pointer is what is to be survived")]
fn scribble(bytes: &[u8]) {
    // SAFETY: none; the page cannot be stored to, so that this ends the process before anything is changed.
    unsafe { bytes.as_ptr().cast_mut().write_volatile(!bytes[0]) };
}

#[allow(unconditional_recursion)]
fn overflow(depth: u64) -> [u64; 64] {
    let mut frame = overflow(black_box(depth + 1));
    frame[0] += depth;
    frame
}

/// Where it runs.
#[task(name = "test.where")]
pub fn whereabouts(_context: &mut TaskContext<'_>, _number: u64) -> Result<u32, TaskError> {
    Ok(std::process::id())
}

/// Goes on until it is cancelled, and says in a file that it has seen it.
#[task(name = "test.looks")]
pub fn looks(context: &mut TaskContext<'_>, paths: (PathBuf, PathBuf)) -> Result<u64, TaskError> {
    write_pid(&paths.0);
    while !context.cancelled() {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    write_pid(&paths.1);
    Err(TaskError::Cancelled)
}

/// What a map of the shuffle makes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Make {
    pub map: u64,
    pub parts: u32,
    pub rows: u64,
}

fn row(map: u64, part: u32, row: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (at, word) in [map, u64::from(part), row, map ^ row.wrapping_mul(0x9e37_79b9_7f4a_7c15)].iter().enumerate() {
        bytes[at * 8..][..8].copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// Rows for each part, by the ways that there are to write them.
#[task(name = "test.make", deterministic = true)]
pub fn make(context: &mut TaskContext<'_>, params: Make) -> Result<(), TaskError> {
    let mut scratch = context.scratch(params.rows * 32)?;
    for part in 0..params.parts {
        // Parts differ in length; one is empty.
        let rows = params.rows * u64::from(part) / u64::from(params.parts);
        let mut hash = 0_u128;
        for number in 0..rows {
            let row = row(params.map, part, number);
            scratch[number as usize * 32..][..32].copy_from_slice(&row);
            hash = hash.wrapping_add(RowHash::of(&row).0);
        }
        let bytes = &scratch[..rows as usize * 32];
        let output = context.output()?;
        output.begin_part((part % 2 == 0).then_some(bytes.len() as u64))?;
        if part % 3 == 0 {
            let mut rest = bytes;
            while !rest.is_empty() {
                let spare = output.spare()?;
                let count = spare.len().min(rest.len()).min(1000);
                spare[..count].copy_from_slice(&rest[..count]);
                output.advance(count);
                rest = &rest[count..];
            }
        } else {
            bytes.chunks(100).try_for_each(|piece| output.write(piece))?;
        }
        output.end_part(rows, RowHash(hash));
    }
    Ok(())
}

fn rows_of(bytes: &[u8]) -> (u64, RowHash) {
    let rows = bytes.as_chunks::<32>().0;
    let hash = rows.iter().fold(0_u128, |sum, row| sum.wrapping_add(RowHash::of(row).0));
    (rows.len() as u64, RowHash(hash))
}

/// Puts one part of every member together: whole.
#[task(name = "test.join", arguments = [whole], deterministic = true)]
pub fn join(context: &mut TaskContext<'_>, _params: u64) -> Result<(), TaskError> {
    let blocks = context.blocks(0);
    let all: Vec<u8> = blocks.iter().flat_map(|block| block.iter().copied()).collect();
    drop(blocks);
    context.release(0);
    finish_join(context, all)
}

/// The same: as streams, one of them by `Read`.
#[task(name = "test.join_stream", arguments = [stream], deterministic = true)]
pub fn join_stream(context: &mut TaskContext<'_>, _params: u64) -> Result<(), TaskError> {
    let mut all = Vec::new();
    for (number, mut reader) in context.readers(0).into_iter().enumerate() {
        if number == 0 {
            reader.read_to_end(&mut all)?;
        }
        while let Some(chunk) = reader.next_chunk()? {
            all.extend_from_slice(chunk);
        }
        if reader.remaining() > 0 {
            return Err(TaskError::fatal("a stream ended early"));
        }
    }
    finish_join(context, all)
}

fn finish_join(context: &mut TaskContext<'_>, all: Vec<u8>) -> Result<(), TaskError> {
    let (rows, hash) = rows_of(&all);
    context.consumed(0, all.len() as u64, rows, hash);
    let output = context.output_sized(all.len() as u64)?;
    output.begin_part(Some(all.len() as u64))?;
    output.write(&all)?;
    output.end_part(rows, hash);
    Ok(())
}

/// Lengths of the parts of an argument in place, and the first bytes of each.
#[task(name = "test.peek", arguments = [in_place])]
pub fn peek(context: &mut TaskContext<'_>, _params: u64) -> Result<Vec<(u64, Vec<u8>)>, TaskError> {
    let mut seen = Vec::new();
    for object in context.in_place(0) {
        for part in object.parts() {
            let mut bytes = vec![0; part.bytes.min(8) as usize];
            object.read(part.offset, &mut bytes)?;
            seen.push((part.bytes, bytes));
        }
    }
    Ok(seen)
}

/// A stream of outputs.
#[task(name = "test.count_up")]
pub fn count_up(context: &mut TaskContext<'_>, to: u64) -> Result<(), TaskError> {
    for number in 0..to {
        let output = context.output()?;
        output.begin_part(None)?;
        output.write(&rmp_serde::to_vec(&number).map_err(TaskError::fatal)?)?;
        output.end_part(1, RowHash::default());
        context.next_output()?;
    }
    Ok(())
}

/// Several outputs, one sealed ahead and one never written.
#[task(name = "test.several")]
pub fn several(context: &mut TaskContext<'_>, number: u64) -> Result<(), TaskError> {
    for index in [1, 0] {
        let output = context.output_at(index)?;
        output.begin_part(None)?;
        output.write(&rmp_serde::to_vec(&(number + index as u64)).map_err(TaskError::fatal)?)?;
        output.end_part(1, RowHash::default());
        if index == 1 {
            context.seal_output(1)?;
        }
    }
    Ok(())
}

fn begin() -> Result<u64, TaskError> {
    Ok(0)
}

/// How often this process has run it.
#[task(name = "test.remembers", setup = begin)]
pub fn remembers(context: &mut TaskContext<'_>, _number: u64) -> Result<u64, TaskError> {
    let count = context.state::<u64>();
    *count += 1;
    Ok(*count)
}

/// Keeps so many bytes for as long as its process lives. Which one that is.
#[task(name = "test.hoards")]
pub fn hoards(_: &mut TaskContext<'_>, bytes: u64) -> Result<u32, TaskError> {
    std::mem::forget(std::hint::black_box(vec![1u8; bytes as usize]));
    Ok(std::process::id())
}
