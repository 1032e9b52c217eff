//! Facts in, words out.

use super::*;
use crate::ids::JobId;
use crate::protocol::owner::{Moved, Why};

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn stage(done: u64, waiting: u64, ready: u64, running: u64) -> StageFacts {
    StageFacts { done, waiting, ready, running, needs: BTreeSet::new() }
}

fn attempt(number: u128, stage: &str, node: &str) -> AttemptFacts {
    AttemptFacts {
        stage: stage.into(),
        task: TaskId::from_u128(number << 96),
        attempt: Attempt::nth(2),
        node: NodeId::new(node),
    }
}

fn state(number: u128, doing: Doing, seconds: u64) -> AttemptState {
    let task = TaskId::from_u128(number << 96);
    AttemptState { task, attempt: Attempt::nth(2), doing, for_ms: seconds * 1000 }
}

/// A merge runs, or waits, on n2; 37 of 40 are done.
fn merges(answer: Answer) -> Facts {
    Facts {
        still: at(61),
        idle: at(61),
        asks: 1,
        stages: BTreeMap::from([("sort.merge".into(), stage(37, 0, 0, 3))]),
        attempts: vec![attempt(0x1f, "sort.merge", "n2")],
        answers: BTreeMap::from([(NodeId::new("n2"), answer)]),
        ..Facts::default()
    }
}

fn line(facts: &Facts) -> (Standing, String) {
    let (standing, chains) = why(facts);
    let why = Why { job: JobId::from_u128(1), standing, still_ms: 0, moved: Moved::default(), chains, log: None };
    (standing, why.line())
}

#[test]
fn a_job_that_was_not_admitted_says_what_it_waits_for() {
    let facts = Facts { still: at(12), admission: Some("memory for its tables on n1".into()), ..Facts::default() };
    let expected = "the job waits to begin <- memory for its tables on n1".to_owned();
    assert_eq!(line(&facts), (Standing::Quiet, expected));
}

#[test]
fn whatever_an_attempt_does_has_its_words() {
    let node = |name| NodeId::new(name);
    let memory = |wanted_bytes, outside_bytes, outside_wanted_bytes| Doing::Memory {
        ahead: 12,
        wanted_bytes,
        used_bytes: 3 << 30,
        budget_bytes: 4 << 30,
        outside_bytes,
        outside_wanted_bytes,
    };
    let cases = [
        (Doing::NotHere, "n2 does not have it: lost on the way, or just over"),
        (Doing::Queued { ahead: 7 }, "queued there, 7 before it"),
        (Doing::Staging, "staging: its arguments are made ready"),
        (Doing::Pushed, "staging: parts that were pushed there are on their way"),
        (Doing::Asking { from: vec![node("n3")] }, "staging: n3 asked for sizes of arguments"),
        (
            memory(1_288_490_189, 0, 0),
            "staging: memory, 1.2 GiB wanted there in all, 12 fetches ahead <- store of n2: 3.0 GiB of 4.0 GiB in use",
        ),
        (
            memory(1 << 30, 512 << 20, 20 << 20),
            "staging: memory, 1.0 GiB wanted there in all, 20.0 MiB of it beside the store for this task, 12 fetches ahead <- store of \
             n2: 3.0 GiB of 4.0 GiB in use, 512.0 MiB of it beside the store",
        ),
        (memory(0, 0, 0), "staging: arguments are loaded from disk, 12 fetches ahead"),
        (
            Doing::Fetching { from: vec![node("n1"), node("n3")], bytes: 5 << 20 },
            "staging: 5.0 MiB fetched from n1, n3",
        ),
        (Doing::Fetching { from: vec![node("n1")], bytes: 0 }, "staging: arguments fetched from n1"),
        (Doing::Ready { handed: 2, executors: 2 }, "ready there: 2 attempts are with its 2 executors"),
        (Doing::Running, "it runs there"),
        (
            Doing::Denied { bytes: 20 << 20, held_bytes: 4 << 20, times: 3, ago_ms: 2500 },
            "it runs there: 20.0 MiB beside the store were denied, 4.0 MiB are granted; denied 3 times, the last time 2 s ago",
        ),
        (
            Doing::BeyondDeclared { process: 4711, used_bytes: 120 << 20, declared_bytes: 100 << 20 },
            "it runs there: process 4711 has 120.0 MiB of memory where 100.0 MiB were declared, and gets no further task",
        ),
        (Doing::Cancelled, "it was cancelled, and has not looked since"),
    ];
    for (doing, words) in cases {
        let facts = merges(Ok(vec![state(0x1f, doing, 41)]));
        let whole =
            format!("job waits for sort.merge (3 of 40 tasks) <- task 0000001f attempt 2 on n2 for 41 s <- {words}");
        assert_eq!(line(&facts), (Standing::Stalled, whole));
    }
}

#[test]
fn a_node_that_does_not_answer_is_the_cause() {
    let mut facts = merges(Err("no answer within 3 s".into()));
    facts.suspected.insert(NodeId::new("n2"), at(2));
    let whole = "job waits for sort.merge (3 of 40 tasks) <- task 0000001f attempt 2 on n2 <- node n2 does not say what it \
                 does: no answer within 3 s <- node n2 suspected since 2 s";
    assert_eq!(line(&facts), (Standing::Stalled, whole.into()));
}

#[test]
fn a_node_that_is_fetched_from_and_is_silent_is_the_cause() {
    let from = vec![NodeId::new("n2"), NodeId::new("n3")];
    let mut facts = merges(Ok(vec![state(0x1f, Doing::Fetching { from, bytes: 0 }, 30)]));
    facts.suspected.insert(NodeId::new("n3"), at(2));
    let line = line(&facts).1;
    assert!(line.ends_with("arguments fetched from n2, n3 <- node n3 suspected since 2 s"), "{line}");
}

#[test]
fn the_chain_goes_through_the_stages_that_need_each_other() {
    let mut facts = merges(Ok(vec![state(0x1f, Doing::Running, 70)]));
    let reduce = StageFacts { needs: BTreeSet::from(["sort.merge".into()]), ..stage(0, 9, 0, 0) };
    let commit = StageFacts { needs: BTreeSet::from(["sort.reduce".into()]), ..stage(0, 1, 0, 0) };
    facts.stages.extend([("sort.reduce".into(), reduce), ("sort.commit".into(), commit)]);
    let whole = "job waits for sort.commit (1 of 1 tasks) <- its arguments: sort.reduce (9 of 9 tasks) <- its arguments: \
                 sort.merge (3 of 40 tasks) <- task 0000001f attempt 2 on n2 for 70 s <- it runs there";
    assert_eq!(line(&facts), (Standing::Stalled, whole.into()));
}

#[test]
fn stages_that_need_each_other_in_a_circle_end() {
    let mut facts = merges(Ok(vec![state(0x1f, Doing::Running, 70)]));
    facts.stages.get_mut("sort.merge").unwrap().needs = BTreeSet::from(["a".into()]);
    let a = StageFacts { needs: BTreeSet::from(["sort.merge".into()]), ..stage(0, 9, 0, 0) };
    facts.stages.insert("a".into(), a);
    assert!(line(&facts).1.starts_with("job waits for a (9 of 9 tasks) <- its arguments: sort.merge"));
}

#[test]
fn alike_ones_are_one_and_what_is_queued_behind_them_is_no_cause() {
    let numbers = 1..=50;
    let mut facts = merges(Ok(Vec::new()));
    facts.attempts = numbers.clone().map(|number| attempt(number, "sort.merge", "n2")).collect();
    let doing = |number: u128| match number {
        ..=2 => Doing::Running,
        3..=40 => Doing::Queued { ahead: 1 },
        _ => Doing::Ready { handed: 2, executors: 2 },
    };
    let states = numbers.map(|number| state(number, doing(number), 60 + number as u64)).collect();
    facts.answers = BTreeMap::from([(NodeId::new("n2"), Ok(states))]);
    let (_, chains) = why(&facts);
    assert_eq!(chains.len(), 1, "{chains:?}");
    assert_eq!(chains[0][1], "task 00000002 attempt 2 on n2 for 62 s and 1 more", "the longest");

    // Only those that wait for their turn: then they are the cause.
    facts.attempts.drain(..2);
    assert_eq!(why(&facts).1.len(), 2);
}

#[test]
fn what_cannot_be_placed_says_what_it_needs() {
    let facts = Facts {
        still: at(12),
        asks: 1,
        stages: BTreeMap::from([("train".into(), stage(0, 0, 8, 0))]),
        unplaced: vec![("train".into(), "8 tasks wait for a lease of 1 gpu".into())],
        scheduler: Some("needs 1 gpu, cluster has 0".into()),
        ..Facts::default()
    };
    let whole = "job waits for train (8 of 8 tasks) <- 8 tasks wait for a lease of 1 gpu <- needs 1 gpu, cluster has 0";
    assert_eq!(line(&facts), (Standing::Quiet, whole.into()));
}

#[test]
fn a_slow_consumer_is_no_stall() {
    let facts = Facts { still: at(600), idle: at(70), unread: 4, ..Facts::default() };
    let whole = "the program itself: it has not called the futures API for 70 s while 4 results are unread";
    assert_eq!(line(&facts), (Standing::Program, whole.into()));
    let facts = Facts { still: at(600), idle: at(601), ..Facts::default() };
    let whole =
        "the program itself: it has not called the futures API for 10 min 1 s and waits for nothing that the job makes";
    assert_eq!(line(&facts), (Standing::Program, whole.into()));
}

#[test]
fn a_program_that_computes_is_no_stall_and_its_threads_are_named() {
    let mut facts = Facts { still: at(600), idle: at(70), ..Facts::default() };
    facts.computing = vec![("exobus-comp-3".into(), at(71)), ("exobus-comp-4".into(), at(9))];
    let whole = "the program itself: it computes on thread exobus-comp-3 for 71 s, thread exobus-comp-4 for 9 s";
    assert_eq!(line(&facts), (Standing::Program, whole.into()));
    let facts = Facts { computing: facts.computing, ..merges(Ok(vec![state(0x1f, Doing::Running, 70)])) };
    let (standing, chains) = why(&Facts { idle: at(70), ..facts });
    assert_eq!((standing, chains.len()), (Standing::Stalled, 2), "beside a stuck task");
    assert_eq!(chains[1], [whole]);
}

#[test]
fn a_slow_consumer_beside_a_stuck_task_is_said_and_the_stall_stays_one() {
    let mut facts = merges(Ok(vec![state(0x1f, Doing::Running, 70)]));
    facts.unread = 4;
    let (standing, chains) = why(&facts);
    assert_eq!((standing, chains.len()), (Standing::Stalled, 2));
    assert!(chains[1][0].contains("while 4 results are unread"), "{chains:?}");
}

#[test]
fn what_nobody_makes_is_said() {
    let mut facts = Facts { still: at(90), asks: 1, ..Facts::default() };
    facts.stages.insert("reduce".into(), stage(1, 5, 0, 0));
    let whole = "job waits for reduce (5 of 6 tasks) <- its arguments are not there, and no task makes them";
    assert_eq!(line(&facts), (Standing::Stalled, whole.into()));
}

#[test]
fn a_result_that_is_read_from_a_silent_node_is_said() {
    let mut facts = Facts { still: at(90), asks: 1, ..Facts::default() };
    facts.reads.push((ObjectId::from_u128(0xabc << 96), NodeId::new("n3"), at(80)));
    facts.suspected.insert(NodeId::new("n3"), at(2));
    let whole = "the program reads object 00000abc of n3 for 80 s <- node n3 suspected since 2 s";
    assert_eq!(line(&facts), (Standing::Stalled, whole.into()));
}

#[test]
fn many_causes_are_cut_to_those_that_last_longest() {
    let mut facts = merges(Ok(Vec::new()));
    let nodes: Vec<_> = (0..30).map(|number| format!("n{number:02}")).collect();
    facts.attempts = nodes.iter().map(|node| attempt(1, "sort.merge", node)).collect();
    let answers = (0..).zip(&nodes).map(|(number, node)| {
        let states = vec![state(1, Doing::Running, 60 + number)];
        (NodeId::new(node), Ok(states))
    });
    facts.answers = answers.collect();
    let (_, chains) = why(&facts);
    assert_eq!(chains.len(), CHAINS_MAX);
    assert!(chains[0][1].contains("on n29 for 89 s"), "{chains:?}");
}

#[test]
fn numbers_are_for_people() {
    for (bytes, words) in
        [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 30, "1.0 GiB"), (u64::MAX, "16.0 EiB")]
    {
        assert_eq!(size(bytes), words);
    }
    for (ms, words) in [(0, "0 ms"), (999, "999 ms"), (1500, "1 s"), (99_000, "99 s"), (100_000, "1 min 40 s")] {
        assert_eq!(text(Duration::from_millis(ms)), words);
    }
}
