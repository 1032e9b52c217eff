//! How an executor process ended, in words, and on which input: pure.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use crate::task::{FailureKind, LocatedSource, Parts, TaskSpec};

/// Letters of the parameters that are shown.
const PARAMS_SHOWN: usize = 400;
/// Arguments that are named.
const ARGS_SHOWN: usize = 4;

/// Why an executor process was ended, where it did not end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was cancelled, or had run out of time, and did not look.
    Cancelled,
    /// Somebody stopped it.
    Stopped,
    /// It said what cannot be understood: its memory is not what it should be.
    Nonsense,
    /// It took far more memory than its task has declared.
    Memory { used_bytes: u64, max_bytes: u64 },
    /// It took more memory than its task has declared (0: nothing), and the node has no room for it.
    NoRoom { used_bytes: u64, declared_bytes: u64, free_bytes: u64 },
}

/// What became of the process, for people. `oom_kills`: whether the kernel has killed anybody for want of memory since the
/// attempt began.
pub(super) fn describe(verdict: Option<Verdict>, status: Option<ExitStatus>, oom_kills: bool) -> String {
    match (verdict, status) {
        (Some(Verdict::Cancelled), _) => "killed, since it was cancelled and went on".into(),
        (Some(Verdict::Stopped), _) => "stopped by a signal, and not continued".into(),
        (Some(Verdict::Nonsense), _) => "killed, since what it said made no sense".into(),
        (Some(Verdict::Memory { used_bytes, max_bytes }), _) => {
            format!("out of memory: {used_bytes} bytes where the task has declared {max_bytes}")
        }
        (Some(Verdict::NoRoom { used_bytes, declared_bytes, free_bytes }), _) => format!(
            "out of memory: {used_bytes} bytes where the task has declared {declared_bytes}, and its node has no more than {free_bytes} for the rest"
        ),
        (None, None) => "gone".into(),
        (None, Some(status)) => match (status.signal(), status.code()) {
            (Some(9), _) if oom_kills => "out of memory: killed by the kernel (signal 9, SIGKILL)".into(),
            (Some(signal), _) => match name(signal) {
                Some(name) => format!("killed by signal {signal} ({name})"),
                None => format!("killed by signal {signal}"),
            },
            (None, Some(code)) => format!("it exited with code {code}"),
            (None, None) => "gone".into(),
        },
    }
}

/// The same, for whoever decides about the next attempt.
pub(super) fn kind(verdict: Option<Verdict>, status: Option<ExitStatus>, oom_kills: bool) -> FailureKind {
    match (verdict, status.and_then(|status| status.signal())) {
        (Some(Verdict::Cancelled), _) => FailureKind::Cancelled,
        (Some(Verdict::Memory { .. } | Verdict::NoRoom { .. }), _) => FailureKind::OutOfMemory,
        (None, Some(9)) if oom_kills => FailureKind::OutOfMemory,
        _ => FailureKind::ExecutorLost,
    }
}

fn name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        31 => "SIGSYS",
        _ => return None,
    })
}

/// What an attempt was given, for people who want to try it themselves.
pub(super) fn input(spec: &TaskSpec) -> String {
    let params = match crate::task::decode::<serde_json::Value>(&spec.params) {
        Ok(value) => value.to_string(),
        Err(_) => format!("{} bytes", spec.params.len()),
    };
    let mut text = format!("parameters {}", shorten(&params, PARAMS_SHOWN));
    for located in spec.args.iter().take(ARGS_SHOWN) {
        let source = match &located.source {
            LocatedSource::Object { object, .. } => format!("object {object}"),
            LocatedSource::Set { set, .. } => format!("set {set}"),
        };
        let parts = match located.parts {
            Parts::All => String::new(),
            Parts::Range(from, to) => format!(" parts {from}..{to}"),
        };
        text.push_str(&format!(", {source}{parts}"));
    }
    if spec.args.len() > ARGS_SHOWN {
        text.push_str(&format!(" and {} more arguments", spec.args.len() - ARGS_SHOWN));
    }
    text
}

fn shorten(text: &str, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The state letter of `/proc/PID/stat`; what stands in brackets before it may be anything.
pub(super) fn state_of(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Bytes of memory that is the process's own, from `/proc/PID/statm`: what is shared, as the region is, does not count.
pub(super) fn own_bytes(statm: &str, page_bytes: u64) -> Option<u64> {
    let mut pages = statm.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(shared) * page_bytes)
}

/// How often the kernel has killed for want of memory, from `/proc/vmstat`.
pub(super) fn oom_kills(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::ids::{JobId, ObjectId, TaskId};
    use crate::task::LocatedArg;

    #[test]
    fn who_lacked_memory_is_told_from_who_died_of_something_else() {
        let killed = Some(ExitStatus::from_raw(9));
        let memory = Some(Verdict::Memory { used_bytes: 7, max_bytes: 5 });
        let no_room = Some(Verdict::NoRoom { used_bytes: 7, declared_bytes: 5, free_bytes: 1 });
        for (verdict, status, oom_kills, is) in [
            (memory, killed, false, FailureKind::OutOfMemory),
            (no_room, killed, false, FailureKind::OutOfMemory),
            (None, killed, true, FailureKind::OutOfMemory),
            (None, killed, false, FailureKind::ExecutorLost),
            (None, Some(ExitStatus::from_raw(11)), true, FailureKind::ExecutorLost),
            (Some(Verdict::Stopped), killed, true, FailureKind::ExecutorLost),
            (Some(Verdict::Cancelled), killed, true, FailureKind::Cancelled),
            (None, None, true, FailureKind::ExecutorLost),
        ] {
            assert_eq!(kind(verdict, status, oom_kills), is, "{verdict:?} {status:?} {oom_kills}");
        }
    }

    #[test]
    fn every_end_has_its_words() {
        let check = |verdict, raw: Option<i32>, oom, expected: &str| {
            assert_eq!(describe(verdict, raw.map(ExitStatus::from_raw), oom), expected);
        };
        check(None, Some(6), false, "killed by signal 6 (SIGABRT)");
        check(None, Some(9), false, "killed by signal 9 (SIGKILL)");
        check(None, Some(9), true, "out of memory: killed by the kernel (signal 9, SIGKILL)");
        check(None, Some(64), true, "killed by signal 64");
        check(None, Some(0), false, "it exited with code 0");
        check(None, Some(3 << 8), false, "it exited with code 3");
        check(Some(Verdict::Nonsense), Some(9), true, "killed, since what it said made no sense");
        check(Some(Verdict::Stopped), Some(9), true, "stopped by a signal, and not continued");
        let memory = Verdict::Memory { used_bytes: 7, max_bytes: 5 };
        check(Some(memory), Some(9), false, "out of memory: 7 bytes where the task has declared 5");
        let no_room = Verdict::NoRoom { used_bytes: 7, declared_bytes: 5, free_bytes: 1 };
        let words =
            "out of memory: 7 bytes where the task has declared 5, and its node has no more than 1 for the rest";
        check(Some(no_room), Some(9), false, words);
    }

    #[test]
    fn input_is_parameters_and_arguments() {
        let arg = |number: u128| {
            let source = LocatedSource::Object { object: ObjectId::from_u128(number << 32), at: None };
            LocatedArg { source, parts: Parts::Range(2, 3) }
        };
        let mut spec = TaskSpec {
            params: Bytes::from(rmp_serde::to_vec_named(&("a", 5)).unwrap()),
            args: vec![arg(1)],
            ..TaskSpec::plain(JobId::from_u128(1), TaskId::from_u128(2), "f@1")
        };
        let text = input(&spec);
        assert!(text.starts_with(r#"parameters ["a",5], object "#) && text.ends_with("parts 2..3"), "{text}");
        spec.args = (0..9).map(arg).collect();
        spec.params = Bytes::from(rmp_serde::to_vec_named(&"x".repeat(9000)).unwrap());
        let text = input(&spec);
        assert!(text.contains("x...") && text.ends_with("and 5 more arguments") && text.len() < 1000, "{text}");
        // Not MessagePack.
        spec.params = Bytes::from_static(&[0xc1]);
        assert!(input(&spec).starts_with("parameters 1 bytes, "));
    }

    #[test]
    fn what_the_kernel_says_of_a_process_is_read() {
        assert_eq!(state_of("42 (a (b) c) T 1 2"), Some('T'));
        assert_eq!(state_of("nonsense"), None);
        assert_eq!(own_bytes("5000 700 200 3 0 9 0\n", 4096), Some(500 * 4096));
        assert_eq!(own_bytes("5000 700", 4096), None);
        assert_eq!(oom_kills("pgfault 12\noom_kill 3\nother 1\n"), Some(3));
        assert_eq!(oom_kills("pgfault 12\n"), None);
    }
}
