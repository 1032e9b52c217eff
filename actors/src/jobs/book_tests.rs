use super::super::keys::KEY_LASTS_MS;
use super::super::quotas::Quotas;
use super::*;
use crate::ids::Incarnation;
use crate::protocol::job::Bodies;
use crate::protocol::job::tests::record;

const SECOND: Duration = Duration::from_secs(1);

/// "a" and "b" may have five jobs that are not over, and "b" one that is under way.
fn quotas() -> TenantQuotas {
    let may = |name: &str, jobs_running| (Arc::from(name), Quotas { jobs: 5, jobs_running, ..Quotas::default() });
    TenantQuotas::of([may("a", None), may("b", Some(1))])
}

/// A book, and a journal that acknowledges when it is told to.
struct World {
    book: Book,
    now: Duration,
    sequence: u64,
    /// What stands in the journal.
    journal: Vec<(u64, Transition)>,
    /// What is under way to it.
    under_way: Option<Vec<Transition>>,
    answers: Vec<(Ask, Result<Standing, Refused>)>,
    others: Vec<BookEffect>,
}

impl World {
    fn new() -> Self {
        Self::after(Vec::new())
    }

    /// One that finds these in the journal.
    fn after(journal: Vec<(u64, Transition)>) -> Self {
        let sequence = journal.last().map_or(0, |(sequence, _)| *sequence);
        let book = Book::new(BookOptions { per_node: 2, first_per_node: 1 }, quotas());
        let (now, under_way) = (SECOND, None);
        let mut world =
            Self { book, now, sequence, journal: journal.clone(), under_way, answers: Vec::new(), others: Vec::new() };
        world.book.has_nodes(1);
        world.on(BookEvent::Loaded(Box::new(Found { transitions: journal, ended: Vec::new() })));
        world
    }

    fn on(&mut self, event: BookEvent) {
        self.book.on(self.now, 1000 * self.now.as_secs(), event);
        for effect in self.book.effects() {
            match effect {
                BookEffect::Append(transitions) => {
                    assert!(self.under_way.is_none(), "two records are under way");
                    self.under_way = Some(transitions);
                }
                BookEffect::Answer(ask, answer) => self.answers.push((ask, answer)),
                BookEffect::Show(_) => {}
                other => self.others.push(other),
            }
        }
    }

    /// What is under way is durable.
    fn durable(&mut self) {
        while let Some(transitions) = self.under_way.take() {
            self.sequence += 1;
            self.journal.extend(transitions.into_iter().map(|transition| (self.sequence, transition)));
            self.on(BookEvent::Appended(self.sequence));
        }
    }

    fn submit_as(&mut self, ask: Ask, record: JobRecord) {
        let carried = Carried::Here(Bodies { spec: "{}".into(), plan: "plan".into() });
        self.on(BookEvent::Submit { ask, submission: Box::new(Submission { record, carried }) });
    }

    fn submit(&mut self, job: u128) {
        self.submit_as(job as Ask, record(job, "a"));
        self.durable();
    }

    fn placed(&mut self, job: u128) {
        let answer = Ok(Placement { node: NodeId::new("n1"), incarnation: Incarnation(1) });
        self.on(BookEvent::Placed { job: JobId::from_u128(job), answer });
    }

    fn started(&mut self, job: u128) {
        self.placed(job);
        self.on(BookEvent::Started { job: JobId::from_u128(job), host: NodeId::new("n1") });
        self.durable();
    }

    fn ended(&mut self, job: u128, outcome: Outcome) {
        self.on(BookEvent::Ended { job: JobId::from_u128(job), outcome });
        self.durable();
    }

    fn cancel(&mut self, ask: Ask, job: u128) {
        self.on(BookEvent::Cancel { ask, tenant: "a".into(), job: JobId::from_u128(job), who: None });
    }

    fn tick(&mut self, after: Duration) {
        self.now += after;
        self.on(BookEvent::Tick);
        self.durable();
    }

    fn answered(&mut self, ask: Ask) -> Option<Result<JobState, String>> {
        let at = self.answers.iter().position(|(asked, _)| *asked == ask)?;
        Some(self.answers.remove(at).1.map(|standing| standing.state).map_err(|reason| reason.code))
    }

    fn state(&self, job: u128) -> Option<JobState> {
        self.book.record(JobId::from_u128(job)).map(|record| record.state)
    }

    fn places(&mut self) -> Vec<u128> {
        let places = self.others.extract_if(.., |effect| matches!(effect, BookEffect::Place { .. }));
        let job = |effect| if let BookEffect::Place { job, .. } = effect { job.as_u128() } else { unreachable!() };
        places.map(job).collect()
    }

    fn cancels(&mut self) -> usize {
        self.others.extract_if(.., |effect| matches!(effect, BookEffect::Cancel { .. })).count()
    }
}

fn done() -> Outcome {
    Outcome { result: Ok(Digest::of(b"7")), value: None, cancelled: false, used: Default::default() }
}

fn cancelled() -> Outcome {
    Outcome { cancelled: true, ..Outcome::failed(Reason::new("cancelled", "cancelled")) }
}

#[test]
fn nobody_is_told_of_a_job_that_is_not_durable_and_what_waits_goes_together() {
    let mut world = World::new();
    for job in 1..=3 {
        world.submit_as(job as Ask, record(job, "a"));
    }
    assert!(world.answers.is_empty() && world.places().is_empty());
    assert_eq!(world.under_way.as_ref().map(Vec::len), Some(1), "the first did not wait");
    world.durable();
    assert_eq!(world.sequence, 2, "the others waited, and went together");
    assert_eq!((1..=3).map(|ask| world.answered(ask)).collect::<Vec<_>>(), vec![Some(Ok(JobState::Queued)); 3]);
    assert_eq!(world.places(), [1, 2], "a node has two jobs");
}

#[test]
fn a_job_passes_its_states_and_the_next_one_has_its_place() {
    let mut world = World::new();
    (1..=3).for_each(|job| world.submit(job));
    assert_eq!(world.places(), [1, 2]);
    world.placed(1);
    assert_eq!(world.state(1), Some(JobState::Starting));
    world.started(1);
    assert_eq!(world.state(1), Some(JobState::Running));
    world.on(BookEvent::Committing { job: JobId::from_u128(1) });
    assert_eq!(world.state(1), Some(JobState::Running), "it is not durable");
    world.durable();
    assert_eq!(world.state(1), Some(JobState::Committing));
    world.ended(1, done());
    assert_eq!((world.state(1), world.places()), (Some(JobState::Succeeded), vec![3]));
    world.ended(1, cancelled());
    assert_eq!(world.state(1), Some(JobState::Succeeded), "it has ended once");
}

#[test]
fn a_tenant_whose_jobs_take_all_the_room_does_not_keep_those_of_another_one_from_starting() {
    let mut world = World::new();
    (1..=4).for_each(|job| world.submit(job));
    assert_eq!(world.places(), [1, 2], "there is room for two");
    for job in [11, 12] {
        world.submit_as(job as Ask, record(job, "c"));
        world.durable();
    }
    assert_eq!(world.places(), [11], "the first job of another tenant needs no room, the second one does");
    world.placed(1);
    world.started(1);
    world.ended(1, done());
    world.durable();
    assert_eq!(world.places(), [0; 0], "two are under way still");
    world.placed(2);
    world.started(2);
    world.ended(2, done());
    world.durable();
    assert_eq!(world.places(), [3], "there is room, and who has fewer under way comes first");
}

#[test]
fn no_more_jobs_of_a_tenant_are_under_way_than_it_may_have() {
    let mut world = World::new();
    for job in [1, 2] {
        world.submit_as(job as Ask, record(job, "b"));
        world.durable();
    }
    assert_eq!(world.places(), [1], "there is room, and the tenant may have one");
    world.placed(1);
    world.started(1);
    world.ended(1, done());
    world.durable();
    assert_eq!(world.places(), [2]);
}

#[test]
fn a_job_that_cannot_be_placed_does_not_keep_others_of_its_tenant_from_starting() {
    let mut world = World::new();
    for job in [1, 2] {
        world.submit_as(job as Ask, record(job, "b"));
        world.durable();
    }
    assert_eq!(world.places(), [1]);
    world.on(BookEvent::Placed { job: JobId::from_u128(1), answer: Err(Refusal::NoNodes) });
    assert_eq!(world.places(), [2], "the tenant may have one under way, and the first one waits a moment");
}

#[test]
fn jobs_that_are_accepted_at_once_are_no_more_than_a_tenant_may_have() {
    let mut world = World::new();
    for job in 1..=7 {
        world.submit_as(job as Ask, record(job, "a"));
    }
    world.durable();
    let refused = (1..=7).filter(|ask| world.answered(*ask) == Some(Err("quota".into()))).count();
    assert_eq!(refused, 2, "five of seven are accepted");
}

#[test]
fn a_key_stands_for_one_job() {
    let mut world = World::new();
    let keyed = |job| JobRecord { key: Some("k".into()), ..record(job, "a") };
    world.submit_as(1, keyed(1));
    world.submit_as(2, keyed(2));
    assert!(world.answers.is_empty(), "the first is not durable");
    world.durable();
    let first = |world: &mut World, ask| {
        let at = world.answers.iter().position(|(asked, _)| *asked == ask).unwrap();
        world.answers.remove(at).1.unwrap().job.as_u128()
    };
    assert_eq!((first(&mut world, 1), first(&mut world, 2)), (1, 1));
    world.submit_as(3, JobRecord { spec: Digest::of(b"another"), ..keyed(3) });
    let (_, refused) = world.answers.pop().unwrap();
    let refused = refused.unwrap_err();
    assert!(refused.code == "key_taken" && refused.message.contains(&JobId::from_u128(1).to_string()), "{refused:?}");
    // Another tenant's key is another one, and so is one of yesterday.
    world.submit_as(4, JobRecord { tenant: "b".into(), ..keyed(4) });
    world.durable();
    assert_eq!(world.answered(4), Some(Ok(JobState::Queued)));
    world.tick(Duration::from_millis(KEY_LASTS_MS));
    world.submit_as(5, keyed(5));
    world.durable();
    assert_eq!(first(&mut world, 5), 5);
}

#[test]
fn a_key_that_was_refused_stands_for_nothing() {
    let mut world = World::new();
    (1..=5).for_each(|job| world.submit(job));
    let keyed = JobRecord { key: Some("k".into()), ..record(6, "a") };
    world.submit_as(6, keyed.clone());
    assert_eq!(world.answered(6), Some(Err("quota".into())));
    world.ended(1, done());
    world.submit_as(7, keyed);
    world.durable();
    assert_eq!(world.answered(7), Some(Ok(JobState::Queued)));
}

#[test]
fn a_job_that_waits_is_cancelled_when_that_is_durable_and_never_started() {
    let mut world = World::new();
    (1..=3).for_each(|job| world.submit(job));
    world.places();
    world.cancel(9, 3);
    assert_eq!(world.answered(9), None);
    world.ended(1, done());
    assert_eq!((world.answered(9), world.state(3)), (Some(Ok(JobState::Cancelled)), Some(JobState::Cancelled)));
    assert!(world.places().is_empty());
    world.cancel(10, 3);
    assert_eq!(world.answered(10), Some(Ok(JobState::Cancelled)), "again");
    world.cancel(11, 77);
    assert_eq!(world.answered(11), Some(Err("unknown_job".into())));
}

#[test]
fn the_host_of_a_job_that_is_cancelled_is_told_until_it_is_over() {
    let mut world = World::new();
    world.submit(1);
    world.started(1);
    world.cancel(9, 1);
    assert_eq!(world.cancels(), 0, "it is not durable");
    world.durable();
    assert_eq!((world.cancels(), world.answered(9)), (1, Some(Ok(JobState::Running))));
    world.tick(SECOND);
    world.tick(SECOND);
    assert_eq!(world.cancels(), 2);
    world.ended(1, cancelled());
    assert_eq!(world.state(1), Some(JobState::Cancelled));
    world.tick(SECOND);
    assert_eq!(world.cancels(), 0);
}

#[test]
fn a_job_that_is_cancelled_while_it_starts_or_waits_a_moment_does_not_run() {
    let mut world = World::new();
    let job = JobId::from_u128(1);
    world.submit(1);
    world.placed(1);
    world.cancel(9, 1);
    world.durable();
    assert_eq!(world.answered(9), Some(Ok(JobState::Starting)), "its program may begin in this moment");
    assert_eq!(world.cancels(), 1, "so its node is told");
    world.on(BookEvent::TurnedAway { job });
    world.tick(HELD_FOR);
    assert_eq!((world.state(1), world.places()), (Some(JobState::Cancelled), vec![1]));

    world.submit(2);
    world.placed(2);
    world.on(BookEvent::TurnedAway { job: JobId::from_u128(2) });
    world.cancel(10, 2);
    world.durable();
    assert_eq!(world.answered(10), Some(Ok(JobState::Cancelled)), "it waits for its next try");
    world.tick(HELD_FOR);
    assert_eq!((world.state(2), world.places()), (Some(JobState::Cancelled), vec![2]));
}

#[test]
fn a_cancel_that_comes_while_a_job_commits_comes_to_nothing() {
    let mut world = World::new();
    world.submit(1);
    world.started(1);
    world.on(BookEvent::Committing { job: JobId::from_u128(1) });
    world.cancel(9, 1);
    world.durable();
    assert_eq!(world.answered(9), Some(Ok(JobState::Running)), "as it was when it came");
    world.ended(1, done());
    world.cancel(10, 1);
    assert_eq!(world.answered(10), Some(Ok(JobState::Succeeded)));
}

#[test]
fn a_job_whose_time_is_over_is_told_to_end_and_has_failed() {
    let mut world = World::new();
    world.submit_as(1, JobRecord { limit_ms: Some(3000), ..record(1, "a") });
    world.durable();
    world.started(1);
    world.tick(2 * SECOND);
    assert_eq!(world.cancels(), 0);
    world.tick(SECOND);
    assert_eq!(world.cancels(), 1);
    world.ended(1, cancelled());
    assert_eq!(world.state(1), Some(JobState::Failed));
}

#[test]
fn a_start_of_which_nothing_is_heard_and_one_that_is_turned_away_are_tried_again() {
    let mut world = World::new();
    world.submit(1);
    assert_eq!(world.places(), [1]);
    world.placed(1);
    world.tick(STARTS_IN);
    assert_eq!(world.state(1), Some(JobState::Queued));
    world.tick(HELD_FOR);
    assert_eq!(world.places(), [1]);
    world.on(BookEvent::TurnedAway { job: JobId::from_u128(1) });
    world.tick(SECOND / 2);
    assert!(world.places().is_empty(), "it waits a moment");
    world.tick(SECOND / 2);
    assert_eq!(world.places(), [1]);
    world.on(BookEvent::Placed { job: JobId::from_u128(1), answer: Err(Refusal::NoNodes) });
    world.tick(HELD_FOR);
    assert_eq!(world.places(), [1]);
}

#[test]
fn a_scheduler_that_succeeds_another_knows_every_job() {
    let mut world = World::new();
    (1..=4).for_each(|job| world.submit_as(job as Ask, JobRecord { key: Some(job.to_string()), ..record(job, "a") }));
    world.durable();
    world.started(1);
    world.started(2);
    world.ended(1, done());
    world.cancel(9, 4);
    world.durable();
    let mut next = World::after(world.journal);
    let states = (1..=4).map(|job| next.state(job)).collect::<Vec<_>>();
    let expected = [JobState::Succeeded, JobState::Running, JobState::Queued, JobState::Cancelled];
    assert_eq!(states, expected.map(Some));
    assert_eq!(next.places(), [3]);
    next.submit_as(5, JobRecord { key: Some("2".into()), ..record(5, "a") });
    assert_eq!(next.answered(5), Some(Ok(JobState::Running)), "the key stands for the job");
    // The one before had started job 3, which was not noted, and it has ended since.
    next.ended(3, done());
    assert_eq!(next.state(3), Some(JobState::Succeeded));
}

#[test]
fn what_comes_before_a_scheduler_knows_what_there_is_waits() {
    let mut world = World::new();
    world.book = Book::new(BookOptions::default(), TenantQuotas::default());
    world.submit_as(1, record(1, "a"));
    world.cancel(2, 7);
    assert!(world.answers.is_empty() && world.under_way.is_none());
    let accepted = Transition::Accepted(Box::new(record(7, "a")), Carried::Nowhere);
    world.sequence = 1;
    world.on(BookEvent::Loaded(Box::new(Found { transitions: vec![(1, accepted)], ended: Vec::new() })));
    world.durable();
    assert_eq!(world.answered(1), Some(Ok(JobState::Queued)));
    assert_eq!(world.answered(2), Some(Ok(JobState::Cancelled)));
}

#[test]
fn a_job_of_which_nothing_is_left_begins_anew_or_is_lost() {
    let mut world = World::new();
    world.submit(1);
    world.started(1);
    world.places();
    for _ in 0..MISSING_MAX {
        assert_eq!(world.state(1), Some(JobState::Running));
        world.on(BookEvent::Missing { job: JobId::from_u128(1) });
        world.durable();
    }
    assert_eq!((world.state(1), world.places()), (Some(JobState::Queued), vec![1]), "what it is to run with is known");
    for (_, transition) in &mut world.journal {
        if let Transition::Accepted(_, carried) = transition {
            *carried = Carried::Nowhere;
        }
    }
    let mut next = World::after(world.journal);
    for _ in 0..MISSING_MAX {
        next.on(BookEvent::Missing { job: JobId::from_u128(1) });
        next.durable();
    }
    assert_eq!(next.state(1), Some(JobState::Failed), "nothing is left");
}

#[test]
fn nothing_is_missing_of_a_job_that_waits() {
    let mut world = World::new();
    world.submit(1);
    for _ in 0..=MISSING_MAX {
        world.on(BookEvent::Missing { job: JobId::from_u128(1) });
    }
    assert_eq!((world.state(1), world.places()), (Some(JobState::Queued), vec![1]), "it is started once");
}

#[test]
fn a_job_that_is_handed_in_again_under_its_id_is_one_job_and_nobody_takes_another_ones() {
    let mut world = World::new();
    world.submit_as(1, record(1, "a"));
    world.submit_as(2, record(1, "a"));
    world.submit_as(3, record(1, "b"));
    assert_eq!(world.answered(3), Some(Err("key_taken".into())));
    world.durable();
    assert_eq!((world.answered(1), world.answered(2)), (Some(Ok(JobState::Queued)), Some(Ok(JobState::Queued))));
    assert_eq!(world.journal.len(), 1, "it is noted once");
    world.submit_as(4, JobRecord { spec: Digest::of(b"another"), ..record(1, "a") });
    assert_eq!(world.answered(4), Some(Err("key_taken".into())));
}

#[test]
fn a_journal_that_was_lost_begins_anew_with_what_is_known() {
    let mut world = World::new();
    world.submit(1);
    world.started(1);
    world.submit(2);
    world.submit_as(3, record(3, "a"));
    (world.under_way, world.journal, world.sequence) = (None, Vec::new(), 0);
    world.on(BookEvent::Lost);
    world.durable();
    assert_eq!(world.answered(3), Some(Ok(JobState::Queued)), "who waits is answered");
    let next = World::after(world.journal);
    assert_eq!(
        (1..=3).filter_map(|job| next.state(job)).collect::<Vec<_>>(),
        [JobState::Running, JobState::Queued, JobState::Queued]
    );
}

#[test]
fn what_is_over_goes_to_the_history_and_out_of_the_journal_and_an_old_job_is_noted_once_more() {
    let mut world = World::new();
    world.submit(1);
    world.started(1);
    let (mut trimmed, mut noted_once) = (0, 0);
    for job in 2..LAG_MAX as u128 + 200 {
        world.submit(job);
        world.started(job);
        world.ended(job, done());
        for effect in std::mem::take(&mut world.others) {
            match effect {
                BookEffect::Archive(jobs) => {
                    world.on(BookEvent::Archived(jobs.iter().map(|(record, _)| record.job).collect()));
                }
                BookEffect::Read(jobs) => {
                    assert!(matches!(jobs.as_slice(), [(job, noted)] if job.as_u128() == 1 && *noted > noted_once));
                    noted_once = jobs[0].1;
                    world.on(BookEvent::Read(vec![(JobId::from_u128(1), Carried::Here(Bodies::default()))]));
                    world.durable();
                }
                BookEffect::Trim(before) => trimmed = before,
                _ => {}
            }
        }
    }
    assert!(trimmed > LAG_MAX / 2, "{trimmed}");
    world.journal.retain(|(sequence, _)| *sequence >= trimmed);
    let next = World::after(world.journal);
    assert_eq!(next.state(1), Some(JobState::Running));
}
