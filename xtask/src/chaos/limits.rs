//! Rows about a machine, or an input, that has less than is needed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;

use anyhow::{Result, ensure};

use super::Outcome;
use super::ground::{Ground, Run, finish};

/// A refusal, as it must be.
fn refused(run: &Run) -> Outcome {
    Outcome { what: run.error().to_owned(), added: None, more_attempts: 0, bytes_redone: 0 }
}

pub(super) fn truncated_input(ground: &Ground) -> Result<Outcome> {
    let input = ground.path("cut");
    fs::create_dir(&input)?;
    fs::copy(ground.path("in/part-00000"), input.join("part-00000"))?;
    fs::write(input.join("part-00001"), [b'x'; 12_345])?;
    let args = ground.job_args().into_iter().map(|arg| if arg == ground.text("in") { ground.text("cut") } else { arg });
    let run = finish(ground.command(&args.collect::<Vec<_>>()))?;
    fs::remove_dir_all(input)?;
    run.refused(1, &["cut/part-00001", "truncated", "offset 12300"])?;
    Ok(refused(&run))
}

pub(super) fn too_few_files(ground: &Ground) -> Result<Outcome> {
    let run = finish(ground.within(&["prlimit", "--nofile=20:20"], &ground.job_args()))?;
    run.refused(2, &["open files"])?;
    Ok(refused(&run))
}

pub(super) fn few_files(ground: &Ground) -> Result<Outcome> {
    let run = finish(ground.within(&["prlimit", "--nofile=64:64"], &ground.job_args()))?;
    ground.right(&run, "64 open files: right")
}

pub(super) fn larger_than_the_store(ground: &Ground) -> Result<Outcome> {
    // One partition: what a reduce merges is all of the input, three times what the store has.
    let mut args = ground.job_args();
    args.extend(["--partitions", "1"].map(str::to_owned));
    let run = finish(ground.command(&args))?;
    ground.right(&run, "a partition of 200 MB with 96 MiB of memory: right")
}

pub(super) fn no_addresses(ground: &Ground) -> Result<Outcome> {
    let args = ground.job_args().into_iter().map(|arg| if arg == super::ground::MEMORY { "4GiB".into() } else { arg });
    let run = finish(ground.within(&["prlimit", "--as=3000000000"], &args.collect::<Vec<_>>()))?;
    run.refused(3, &["no memory for", "of the region"])?;
    Ok(refused(&run))
}

pub(super) fn few_threads(ground: &Ground) -> Result<Outcome> {
    // Of all processes of a user the threads are counted together: one that has none.
    const NOBODY_ELSE: u32 = 61_378;
    // The binary and the folder are below folders that may be shut for others.
    let (work, binary) = (ground.path("work"), ground.path("work/exobus"));
    fs::create_dir(&work)?;
    fs::set_permissions(&work, fs::Permissions::from_mode(0o777))?;
    fs::copy(&ground.binary, &binary)?;
    let args = ground.job_args().into_iter().map(|arg| match arg {
        arg if arg == ground.text("out") => ground.text("work/out"),
        arg if arg == ground.text("spill") => ground.text("work/spill"),
        arg if arg == ground.text("trace") => ground.text("work/trace"),
        arg => arg,
    });
    let args: Vec<_> = args.collect();
    let (mut refusals, mut rights) = (0, 0);
    for threads in [1, 2, 3, 5, 8, 10, 12, 14, 16, 24] {
        let mut command = std::process::Command::new("prlimit");
        command.arg(format!("--nproc={threads}:{threads}")).arg(&binary).args(&args).env("TMPDIR", &work);
        command.uid(NOBODY_ELSE).gid(NOBODY_ELSE);
        let run = finish(command)?;
        run.is_orderly()?;
        if run.code == Some(0) {
            fs::rename(ground.path("work/out"), ground.path("out"))?;
            fs::rename(ground.path("work/trace"), ground.path("trace"))?;
            ground.is_right(&run)?;
            rights += 1;
        } else {
            run.refused(3, &["Resource temporarily unavailable"])?;
            refusals += 1;
        }
    }
    fs::remove_dir_all(work)?;
    ensure!(refusals > 0 && rights > 0, "{refusals} refused, {rights} right");
    let what = format!("of 10 limits from 1 to 24 threads, {refusals} refused at start and {rights} right");
    Ok(Outcome { what, added: None, more_attempts: 0, bytes_redone: 0 })
}
