//! Rows about disks that fail: short writes, errors of reading, writing and syncing.

use anyhow::{Result, ensure};

use super::Outcome;
use super::alone::Alone;
use super::faulty_disk::{Asked, Fault, FaultyDisk, Op};
use super::ground::{Ground, Run};

fn is_spill(asked: &Asked) -> bool {
    asked.file.to_string_lossy().ends_with(".spill")
}

/// What a disk was asked, and what came of it.
type Asks = Vec<(Asked, Option<Fault>)>;

/// A job that spills to a faulty disk, and to a good one as well where there is `another`.
fn on_a_faulty_disk(
    ground: &Ground,
    (another, refuses_direct): (bool, bool),
    plan: impl FnMut(&Asked) -> Option<Fault> + Send + 'static,
) -> Result<(Run, Asks, usize)> {
    let alone = Alone::new(ground)?;
    let folder = ground.path("spill");
    let disk = FaultyDisk::mount(&folder, refuses_direct, plan)?;
    let good = alone.path("good").display().to_string();
    let mut more = vec!["--strategy", "simple"];
    if another {
        more.extend(["--spill", &good]);
    }
    // Whether something failed while work was left is known at the end.
    let (run, events) =
        alone.run(alone.job(&[], &more), |_, _| Ok(disk.told().iter().any(|(_, fault)| fault.is_some())))?;
    let told = disk.told();
    let left = disk.end()?;
    ensure!(left.iter().all(|name| name.is_empty()), "on the faulty disk is left: {left:?}");
    Ok((run, told, events.replayed()))
}

/// Faults of a kind.
fn count(told: &[(Asked, Option<Fault>)], op: Op, fault: Fault) -> usize {
    told.iter().filter(|(asked, met)| asked.op == op && *met == Some(fault)).count()
}

pub(super) fn short_writes(ground: &Ground) -> Result<Outcome> {
    let plan = |asked: &Asked| {
        (asked.op == Op::Write && is_spill(asked) && asked.before % 3 == 1 && asked.bytes > 8192)
            .then_some(Fault::Short)
    };
    let (run, told, replayed) = on_a_faulty_disk(ground, (false, false), plan)?;
    let short = count(&told, Op::Write, Fault::Short);
    ensure!(replayed == 0 && !run.stderr.contains("retired"), "a short write was taken for a failure: {}", run.stderr);
    ground.right(&run, &format!("{short} writes cut short and continued: right"))
}

pub(super) fn write_error(ground: &Ground) -> Result<Outcome> {
    let plan = |asked: &Asked| (asked.op == Op::Write && is_spill(asked) && asked.before == 20).then_some(Fault::Error);
    let (run, told, _) = on_a_faulty_disk(ground, (true, false), plan)?;
    ensure!(count(&told, Op::Write, Fault::Error) == 1, "one write failed");
    ground.right(&run, "a write failed, its directory is out of use, the other took over: right")
}

pub(super) fn read_error(ground: &Ground) -> Result<Outcome> {
    let plan = |asked: &Asked| {
        (asked.op == Op::Read && is_spill(asked) && asked.before % 20 == 5 && asked.before < 100)
            .then_some(Fault::Error)
    };
    let (run, told, replayed) = on_a_faulty_disk(ground, (true, false), plan)?;
    let errors = count(&told, Op::Read, Fault::Error);
    ensure!(replayed > 0, "nothing was made again: {}", run.stderr);
    ground.right(&run, &format!("{errors} reads failed, {replayed} tasks made again: right"))
}

pub(super) fn sync_error(ground: &Ground) -> Result<Outcome> {
    let plan = |asked: &Asked| (asked.op == Op::Sync && is_spill(asked) && asked.before == 5).then_some(Fault::Error);
    let (run, told, _) = on_a_faulty_disk(ground, (true, true), plan)?;
    let failed = told.iter().position(|(asked, fault)| asked.op == Op::Sync && fault.is_some());
    let failed = anyhow::Context::context(failed, "no sync failed")?;
    let file = &told[failed].0.file;
    let again = told[failed + 1..].iter().filter(|(asked, _)| asked.op == Op::Sync && asked.file == *file).count();
    ensure!(again == 0, "{} was synced {again} times after a sync of it had failed", file.display());
    let what = "a sync failed and lost what was written: that file is not synced again, the other directory took over";
    ground.right(&run, &format!("{what}: right"))
}
