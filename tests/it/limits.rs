//! A machine that is short of descriptors, threads, addresses or disk: a clear word, or a result that is right; no panic, no
//! hang, and nothing is left.

use crate::support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use support::{Run, Scratch, command, exobus, finish, names, parts};

/// The binary below `wrapper`, a command and its arguments.
fn within(wrapper: &[&str], args: &[&str]) -> Command {
    let bare = command(args);
    let mut wrapped = Command::new(wrapper[0]);
    wrapped.args(&wrapper[1..]).arg(bare.get_program()).args(bare.get_args()).stdin(std::process::Stdio::null());
    for (name, value) in bare.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    wrapped
}

/// Records in eight files, twice as much as the memory that the sorts here have.
fn input(scratch: &Scratch) -> Vec<u8> {
    let input = scratch.text("in");
    exobus(&["generate", "--records", "800k", "--files", "8", &input]).expect(0, &[]);
    let mut all: Vec<[u8; 100]> = Vec::new();
    for name in parts(&scratch.path("in")) {
        let bytes = fs::read(scratch.path("in").join(name)).unwrap();
        all.extend(bytes.as_chunks().0);
    }
    all.sort_unstable_by(|one, other| one[..10].cmp(&other[..10]));
    all.concat()
}

fn sort_args(scratch: &Scratch) -> [String; 8] {
    let [input, output, spill] = ["in", "out", "spill"].map(|name| scratch.text(name));
    ["sort", &input, "--output", &output, "--memory", "72MiB", "--spill", &spill].map(str::to_owned)
}

/// Code 0 and every record in order, or another code and nothing of an output; nothing is left in either case.
#[track_caller]
fn right_or_refused(scratch: &Scratch, run: &Run, sorted: &[u8]) -> bool {
    let code = run.code.unwrap_or_else(|| panic!("ended by a signal: {run:#?}"));
    run.expect(code, &[]);
    assert!(!run.stderr.contains("ERROR"), "{run:#?}");
    let out = scratch.path("out");
    if code == 0 {
        let output: Vec<u8> = parts(&out).into_iter().flat_map(|name| fs::read(out.join(name)).unwrap()).collect();
        assert!(output == sorted, "{} bytes are not {} sorted ones", output.len(), sorted.len());
        fs::remove_dir_all(out).unwrap();
    } else {
        assert!(!out.exists(), "{:?} is left: {run:#?}", names(&out));
    }
    assert_eq!(names(&scratch.path("spill")), [""; 0], "{run:#?}");
    code == 0
}

#[test]
fn too_few_open_files_are_refused_at_once_and_few_are_enough() {
    let scratch = Scratch::new();
    let sorted = input(&scratch);
    let args = sort_args(&scratch);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    for files in ["6", "10", "14", "19", "40", "63"] {
        let run = finish(within(&["prlimit", &format!("--nofile={files}:{files}")], &args));
        run.expect(2, &[files, "open files", "ulimit -n"]);
        assert!(!right_or_refused(&scratch, &run, &sorted));
    }
    let run = finish(within(&["prlimit", "--nofile=64:64"], &args));
    assert!(right_or_refused(&scratch, &run, &sorted), "{run:#?}");
    // What the system gives at first is raised to what it allows.
    let run = finish(within(&["prlimit", "--nofile=20:4096"], &args));
    assert!(right_or_refused(&scratch, &run, &sorted), "{run:#?}");
}

#[test]
fn with_few_threads_a_job_is_refused_at_start_or_is_right() {
    // Another user's processes would count as well, so one that has none is taken; only root can.
    const NOBODY_ELSE: u32 = 61_377;
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root may become somebody who has no processes, so this was not tried");
        return;
    }
    let scratch = Scratch::new();
    fs::set_permissions(scratch.root(), fs::Permissions::from_mode(0o777)).unwrap();
    let sorted = input(&scratch);
    let args = sort_args(&scratch);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let limited = |threads: u32| {
        let mut command = within(&["prlimit", &format!("--nproc={threads}:{threads}")], &args);
        command.uid(NOBODY_ELSE).gid(NOBODY_ELSE).env("TMPDIR", scratch.root());
        command
    };
    let mut probe = within(&["prlimit", "--nproc=100:100"], &["--version"]);
    if !probe.uid(NOBODY_ELSE).output().is_ok_and(|output| output.status.success()) {
        eprintln!("the binary is out of reach for others, so this was not tried");
        return;
    }
    let (mut refused, mut right) = (0, 0);
    for threads in [1, 2, 3, 4, 9, 10, 12, 13, 14, 15, 16, 20] {
        let run = finish(limited(threads));
        match right_or_refused(&scratch, &run, &sorted) {
            true => right += 1,
            false => {
                run.expect(3, &["Resource temporarily unavailable"]);
                refused += 1;
            }
        }
    }
    assert!(refused >= 3 && right >= 3, "{refused} refused, {right} right");
}

#[test]
fn without_addresses_for_its_memory_a_job_is_refused_at_start() {
    let scratch = Scratch::new();
    let sorted = input(&scratch);
    let args = sort_args(&scratch).map(|arg| if arg == "72MiB" { "4GiB".to_owned() } else { arg });
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let run = finish(within(&["prlimit", "--as=3000000000"], &args));
    run.expect(3, &["no memory for 4261412864 bytes of the region"]);
    assert!(!right_or_refused(&scratch, &run, &sorted));
}

/// A command line for `sh`, in a mount namespace of its own where `full` has `mebibytes` of room.
fn on_a_small_disk(full: &str, mebibytes: u32, args: &[&str]) -> Option<Run> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root may mount, so this was not tried");
        return None;
    }
    fs::create_dir_all(full).unwrap();
    // The exit code is that of the binary; what it left on the disk is told on the last line.
    let script = format!(
        "mount -t tmpfs -o size={mebibytes}m none {full} && \"$@\"; code=$?; echo left: $(ls -A {full}); exit $code"
    );
    let run = finish(within(&["unshare", "--mount", "sh", "-c", &script, "sh"], args));
    let left = run.stdout.lines().last().unwrap_or_default();
    assert_eq!(left, "left:", "{run:#?}");
    Some(run)
}

#[test]
fn a_full_spill_disk_ends_the_job_with_its_name_and_room() {
    let scratch = Scratch::new();
    let sorted = input(&scratch);
    let args = sort_args(&scratch);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Some(run) = on_a_small_disk(&scratch.text("spill"), 8, &args) else { return };
    run.expect(3, &["no spill directory can take", "spill/", "bytes free", "No space left on device"]);
    assert!(!right_or_refused(&scratch, &run, &sorted));
}

#[test]
fn a_full_spill_disk_beside_another_costs_nothing_but_its_room() {
    let scratch = Scratch::new();
    let sorted = input(&scratch);
    let small = scratch.text("small");
    let args = sort_args(&scratch);
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    args.extend(["--spill", &small]);
    let Some(run) = on_a_small_disk(&small, 8, &args) else { return };
    assert!(right_or_refused(&scratch, &run, &sorted), "{run:#?}");
    assert!(run.stderr.contains("spill directory is out of use"), "it was full: {run:#?}");
}

#[test]
fn a_full_output_disk_ends_the_job_with_the_file_and_offset() {
    let scratch = Scratch::new();
    let sorted = input(&scratch);
    let outside = scratch.text("disk");
    let output = scratch.text("disk/out");
    let args = sort_args(&scratch).map(|arg| if arg == scratch.text("out") { output.clone() } else { arg });
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Some(run) = on_a_small_disk(&outside, 20, &args) else { return };
    run.expect(3, &["disk/out/.exobus-", "/part-", "disk full at offset"]);
    assert!(!right_or_refused(&scratch, &run, &sorted));
}
