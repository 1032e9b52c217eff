//! Rows about disks that are full.

use anyhow::{Result, ensure};

use super::Outcome;
use super::cluster::Cluster;
use super::disk::Disk;
use super::ground::{Ground, Run, finish};

/// Runs a job in a mount namespace of its own, where `folder` is a disk of so many mebibytes. Nothing is left on it.
fn on_a_small_disk(ground: &Ground, folder: &str, mebibytes: u32, args: &[String]) -> Result<Run> {
    std::fs::create_dir_all(folder)?;
    let script = format!(
        "mount -t tmpfs -o size={mebibytes}m none {folder} && \"$@\"; code=$?; echo left: $(ls -A {folder}); exit $code"
    );
    let run = finish(ground.within(&["unshare", "--mount", "sh", "-c", &script, "sh"], args))?;
    ensure!(run.stdout.lines().last() == Some("left:"), "on the full disk is left: {}", run.stdout);
    Ok(run)
}

pub(super) fn full_beside_another(ground: &Ground) -> Result<Outcome> {
    let small = ground.text("small");
    let mut args = ground.job_args();
    args.extend(["--spill".to_owned(), small.clone()]);
    let run = on_a_small_disk(ground, &small, 16, &args)?;
    ensure!(run.stderr.contains("No space left"), "it was never full: {}", run.stderr);
    ground.right(&run, "the other directory took over: right")
}

pub(super) fn full_alone(ground: &Ground) -> Result<Outcome> {
    let run = on_a_small_disk(ground, &ground.text("spill"), 16, &ground.job_args())?;
    run.refused(3, &["no spill directory can take", "bytes free", "No space left"])?;
    ensure!(run.seconds < ground.clean.seconds + 10.0, "it took {:.1} s to say so", run.seconds);
    Ok(Outcome { what: run.error().to_owned(), added: None, more_attempts: 0, bytes_redone: 0 })
}

/// What finds no room on one node of three is done by the others.
pub(super) fn full_on_one_node(ground: &Ground) -> Result<Outcome> {
    std::fs::create_dir_all(ground.path("spill"))?;
    let disk = Disk::small(ground.spill_of("n2"), 8)?;
    let cluster = Cluster::start(ground)?;
    let (run, events) = cluster.run("push", |events| Ok(events.failures().contains("no spill directory can take")))?;
    let what = format!("{}; the other nodes took over: right", events.failures());
    let outcome = ground.right(&run, &what)?;
    cluster.end()?;
    drop(disk);
    std::fs::remove_dir_all(ground.path("spill"))?;
    Ok(outcome)
}
