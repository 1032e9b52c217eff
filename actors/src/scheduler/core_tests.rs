use super::*;
use crate::ids::Incarnation;
use crate::jobs::quotas::TenantQuotas;
use crate::protocol::job::{Carried, Submission};
use crate::protocol::scheduler::{JobDemand, NodeSpec, Shape};
use crate::task::Resources;

const OPTIONS: fn() -> SchedulerOptions = SchedulerOptions::default;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn job(number: u128) -> JobId {
    JobId::from_u128(number)
}

fn node(name: &str) -> NodeId {
    NodeId::new(name)
}

fn node_up(name: &str) -> SchedulerEvent {
    let (resources, functions) = (Resources::cpu(2000), vec!["program".into()]);
    let (labels, data_address) = Default::default();
    let node = NodeId::new(name);
    let spec =
        NodeSpec { node, incarnation: Incarnation(1), resources, labels, functions, data_address, memory_bytes: 0 };
    SchedulerMsg::NodeUp(spec).into()
}

fn demand(job: JobId, owner: &str) -> SchedulerEvent {
    let shapes = vec![Shape::anywhere(Resources::cpu(1000), 1)];
    let demand = JobDemand {
        job,
        tenant: "default".into(),
        owner: node(owner),
        incarnation: Incarnation(1),
        sequence: 1,
        shapes,
        leases: Vec::new(),
        held: Vec::new(),
    };
    SchedulerMsg::Demand(demand).into()
}

fn submit(slot: u64) -> SchedulerEvent {
    let reply = Reply::to(node("client"), slot);
    SchedulerMsg::SubmitJob { job: job(1), tenant: "default".into(), functions: vec!["program".into()], reply }.into()
}

fn list_nodes(slot: u64) -> SchedulerEvent {
    SchedulerMsg::ListNodes { reply: Reply::to(node("asker"), slot) }.into()
}

fn list_jobs(settled: bool, slot: u64) -> SchedulerEvent {
    SchedulerMsg::ListJobs { settled, reply: Reply::to(node("asker"), slot) }.into()
}

fn elected(epoch: u64, until: Duration, succeeds: bool) -> SchedulerEvent {
    SchedulerEvent::Elected { epoch: Epoch(epoch), until, succeeds }
}

fn unfinished(jobs: Option<&[JobId]>) -> SchedulerEvent {
    let known = |job: &JobId| (*job, "default".into(), vec!["program".into()]);
    SchedulerEvent::Unfinished(jobs.map(|jobs| jobs.iter().map(known).collect()))
}

/// One effect in short.
fn said(effect: &SchedulerEffect) -> String {
    match effect {
        SchedulerEffect::TellOwner(_, node, OwnerMsg::Leases { epoch, leases, .. }) => {
            format!("{} leases of {} to {node}", leases.as_ref().map_or(0, Vec::len), epoch.0)
        }
        SchedulerEffect::TellOwner(_, node, _) => format!("owner on {node} is over"),
        SchedulerEffect::TellNode(_, node, _) => format!("{node} ends the job"),
        SchedulerEffect::TellHost(_, node, _) => format!("{node} resumes"),
        SchedulerEffect::AnswerPlacement(_, answer) => {
            format!("placed on {:?}", answer.as_ref().ok().map(|placement| placement.node.as_str()))
        }
        SchedulerEffect::AnswerNodes(_, nodes) => format!("{} nodes", nodes.len()),
        SchedulerEffect::AnswerJobs(_, jobs) => format!("{} jobs", jobs.len()),
        SchedulerEffect::After(_, SchedulerEvent::Tick) => "tick".to_owned(),
        SchedulerEffect::After(delay, event) => format!("{event:?} in {delay:?}"),
        SchedulerEffect::LookForUnfinished { deadline } => format!("look within {deadline:?}"),
        SchedulerEffect::OpenJournal(epoch) => format!("opens the journal as {}", epoch.0),
        other => format!("{other:?}"),
    }
}

/// What comes of these events, which wait together.
fn on(core: &mut SchedulerCore, now: Duration, events: impl IntoIterator<Item = SchedulerEvent>) -> Vec<String> {
    events.into_iter().for_each(|event| core.on(event, now));
    core.flush(now);
    core.effects().iter().map(said).collect()
}

/// A Scheduler that has been told nothing.
fn idle() -> SchedulerCore {
    let mut core = SchedulerCore::new(OPTIONS(), TenantQuotas::default());
    assert_eq!(on(&mut core, ms(0), []), ["tick"], "before any event");
    core
}

/// One that begins to act at time 0, as the first one or after another.
fn acting(succeeds: bool) -> SchedulerCore {
    let mut core = idle();
    let told = on(&mut core, ms(0), [elected(1, Duration::MAX, succeeds)]);
    let gathered: &[_] = if succeeds { &["Gathered in 500ms"] } else { &[] };
    assert_eq!(told, [&["opens the journal as 1"], gathered, &["Look in 2.5s", "Sweep in 3600s"]].concat());
    core
}

#[test]
fn a_scheduler_that_does_not_act_answers_nothing() {
    let questions = || [node_up("n1"), submit(1), list_nodes(2), list_jobs(false, 3), demand(job(1), "n1")];
    let mut never = idle();
    let mut over = acting(false);
    over.on(SchedulerEvent::StepDown, ms(1));
    let mut ran_out = idle();
    on(&mut ran_out, ms(0), [elected(1, ms(10), false)]);
    for core in [&mut never, &mut over, &mut ran_out] {
        assert_eq!(on(core, ms(10), questions()), [""; 0]);
        assert_eq!(core.living(), [0; 3]);
        assert_eq!(on(core, ms(1000), [SchedulerEvent::Tick]), ["tick"], "it goes on all the same");
    }
    on(&mut ran_out, ms(20), [elected(1, ms(30), true)]);
    let answers = on(&mut ran_out, ms(20), questions());
    assert_eq!(answers, ["1 nodes", "1 jobs", "placed on Some(\"n1\")", "1 leases of 1 to n1"], "the epoch goes on");
}

#[test]
fn what_is_asked_while_it_gathers_is_answered_once_when_that_is_over() {
    let mut core = acting(true);
    let questions = [node_up("n1"), list_nodes(1), list_jobs(false, 2), list_jobs(true, 3), submit(4)];
    assert_eq!(on(&mut core, ms(499), questions), [""; 0]);
    let gathered = on(&mut core, ms(500), [SchedulerEvent::Gathered]);
    assert_eq!(gathered, ["1 nodes", "1 jobs", "placed on Some(\"n1\")"]);
    assert_eq!(on(&mut core, ms(9_999), [SchedulerEvent::Tick]), ["tick"], "the other list waits for all that live");
    assert_eq!(on(&mut core, ms(10_000), [SchedulerEvent::Tick]), ["1 jobs", "tick"]);
    assert_eq!(on(&mut core, ms(11_000), [SchedulerEvent::Tick]), ["tick"]);
}

#[test]
fn what_was_asked_in_an_epoch_is_not_answered_in_the_next_one() {
    let mut core = acting(true);
    on(&mut core, ms(1), [node_up("n1"), list_nodes(1), submit(2)]);
    core.on(SchedulerEvent::StepDown, ms(2));
    let told = on(&mut core, ms(3), [elected(2, Duration::MAX, true)]);
    assert_eq!(told, ["opens the journal as 2", "Gathered in 500ms"], "it looks already");
    assert_eq!(on(&mut core, ms(503), [SchedulerEvent::Gathered]), [""; 0]);
}

#[test]
fn what_was_decided_comes_to_nothing_where_the_epoch_ends_before_it_is_said() {
    let ends = [(SchedulerEvent::StepDown, None), (elected(2, Duration::MAX, false), Some("opens the journal as 2"))];
    for (end, comes_of_it) in ends {
        let mut core = acting(false);
        on(&mut core, ms(1), [node_up("n1")]);
        let told = on(&mut core, ms(2), [submit(1), demand(job(1), "n1"), end]);
        assert_eq!(told, comes_of_it.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_scheduler_looks_once_at_a_time_which_jobs_are_not_over_and_again_after_an_answer_that_was_lost() {
    let holds = || SchedulerEvent::from(SchedulerMsg::Holds { node: node("n1"), jobs: vec![job(7)] });
    for (answer, comes_of_it) in [(None, None), (Some(&[][..]), None), (Some(&[job(7)][..]), Some("n1 resumes"))] {
        let mut core = acting(false);
        on(&mut core, ms(1), [node_up("n1")]);
        assert_eq!(on(&mut core, ms(2), [holds(), holds()]), ["look within 30s"]);
        assert_eq!(on(&mut core, ms(3), [SchedulerEvent::Look]), ["Look in 15s"], "it is looked already");
        let told = on(&mut core, ms(4), [unfinished(answer)]);
        assert_eq!(told, comes_of_it.into_iter().collect::<Vec<_>>(), "{answer:?}");
        assert_eq!(on(&mut core, ms(5), [SchedulerEvent::Look]), ["look within 30s", "Look in 15s"], "{answer:?}");
    }
}

#[test]
fn a_scheduler_looks_from_time_to_time_which_jobs_are_not_over_as_long_as_it_acts() {
    let mut core = acting(false);
    on(&mut core, ms(1), [SchedulerEvent::Look]);
    core.on(SchedulerEvent::StepDown, ms(2));
    assert_eq!(on(&mut core, ms(3), [SchedulerEvent::Look]), [""; 0]);
    // The answer comes when nobody acts: the next Scheduler may look.
    on(&mut core, ms(4), [unfinished(None)]);
    assert_eq!(on(&mut core, ms(5), [elected(2, Duration::MAX, false)]), ["opens the journal as 2", "Look in 2.5s"]);
    assert_eq!(on(&mut core, ms(6), [SchedulerEvent::Look]), ["look within 30s", "Look in 15s"]);
}

#[test]
fn a_node_that_has_something_of_a_job_that_is_over_is_told_and_so_is_an_owner_there() {
    let mut core = acting(false);
    let done = SchedulerMsg::JobDone { job: job(7) };
    let holds = SchedulerMsg::Holds { node: node("n2"), jobs: vec![job(7)] };
    let told = on(&mut core, ms(1), [done.into(), holds.into()]);
    assert_eq!(told, ["n2 ends the job", "owner on n2 is over"]);
}

#[test]
fn a_job_that_nodes_take_for_over_and_of_which_no_log_says_how_it_ended_is_placed() {
    let mut core = acting(false);
    let over = SchedulerMsg::JobsOver { jobs: vec![job(1)] };
    let told = on(&mut core, ms(1), [node_up("n1"), over.into(), submit(1)]);
    assert_eq!(told, ["placed on None"]);
    let told = on(&mut core, ms(2), [SchedulerEvent::LookedForEnd(job(1), None), submit(2)]);
    assert_eq!(told, ["placed on Some(\"n1\")"]);
}

#[test]
fn what_is_left_of_a_job_that_is_none_is_removed_when_it_is_found_twice() {
    let mut core = acting(false);
    on(&mut core, ms(1), [node_up("n1"), SchedulerEvent::JournalOpened(Epoch(1), None)]);
    assert_eq!(on(&mut core, ms(2), [SchedulerEvent::Sweep]), ["LookForPieces", "Sweep in 3600s"]);
    let found = |jobs: &[u128]| SchedulerEvent::Pieces(jobs.iter().copied().map(job).collect());
    // Somebody may be handing it in.
    assert_eq!(on(&mut core, ms(3), [found(&[5, 6])]), [""; 0]);
    let told = on(&mut core, ms(4), [found(&[6, 7])]);
    assert_eq!(told, [format!("{:?}", SchedulerEffect::ForgetPieces(vec![job(6)]))]);
    // One that it knows.
    let submission = Submission { record: JobRecord::queued(job(7), "a", "sort", "sort@1"), carried: Carried::Nowhere };
    let reply = Reply::to(node("client"), 1);
    on(&mut core, ms(5), [SchedulerMsg::Accept { submission: Box::new(submission), reply }.into()]);
    on(&mut core, ms(5), [SchedulerEvent::Noted(Epoch(1), Noted::Appended(1))]);
    assert_eq!(on(&mut core, ms(6), [found(&[7])]), [""; 0]);
}

#[test]
fn a_job_whose_host_died_is_looked_for() {
    let mut core = acting(false);
    on(&mut core, ms(1), [node_up("n1"), node_up("n2"), demand(job(1), "n1")]);
    let down = SchedulerEvent::NodeDown { node: node("n1"), incarnation: Incarnation(1), reason: "silent".into() };
    assert_eq!(on(&mut core, ms(2), [down]), ["look within 30s"]);
    assert_eq!(on(&mut core, ms(3), [unfinished(Some(&[job(1)]))]), ["n2 resumes"]);
}

#[test]
fn a_tick_comes_when_there_is_something_to_do_and_not_too_often() {
    let delay_at = |core: &mut SchedulerCore, now: Duration| {
        core.on(SchedulerEvent::Tick, now);
        core.flush(now);
        core.effects().into_iter().find_map(|effect| match effect {
            SchedulerEffect::After(delay, SchedulerEvent::Tick) => Some(delay),
            _ => None,
        })
    };
    assert_eq!(delay_at(&mut idle(), ms(0)), Some(TICK_MAX));
    let mut core = acting(true);
    on(&mut core, ms(0), [submit(1)]);
    assert_eq!(delay_at(&mut core, ms(100)), Some(ms(400)), "then it has gathered");
    assert_eq!(delay_at(&mut core, ms(499)), Some(TICK_MIN));
}
