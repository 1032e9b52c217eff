use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// One candidate, fed by hand.
struct Alone {
    state: State,
    log: Vec<Effect>,
}

impl Alone {
    fn new() -> Self {
        Self { state: State::new(ElectionOptions::default(), 0, Epoch(0), ms(0)), log: Vec::new() }
    }

    /// The effects of this event alone.
    fn on(&mut self, at: u64, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.state.on(ms(at), event, &mut effects);
        self.log.extend(&effects);
        effects
    }

    fn answer(&mut self, at: u64, answer: Answer) -> Vec<Effect> {
        self.on(at, Event::Answered(answer))
    }

    /// Is the Scheduler of epoch 7 since 10, by a write that was begun at 0.
    fn leading() -> Self {
        let mut world = Self::new();
        assert_eq!(world.on(0, Event::Tick), [Effect::Create]);
        let lead = Effect::Lead { epoch: Epoch(7), until: ms(1500), succeeds: true };
        assert_eq!(world.answer(10, Answer::Written(7)), [lead]);
        world
    }
}

#[test]
fn who_makes_the_key_leads_under_its_revision_and_renews_at_its_own_last_one() {
    let mut world = Alone::leading();
    assert_eq!(world.state.next_wakeup(), Some(ms(400)));
    assert_eq!(world.on(400, Event::Tick), [Effect::Update(7)]);
    assert_eq!(world.answer(420, Answer::Written(9)), [Effect::Extend(ms(1900))]);
    assert_eq!(world.on(800, Event::Tick), [Effect::Update(9)]);
    assert_eq!(world.state.epoch(), Some(Epoch(7)), "renewals are the same epoch");
}

/// Of an emptied server, whose buckets begin anew, the first epochs may be lower.
#[test]
fn a_candidate_leads_above_what_its_process_has_heard_of_in_earlier_incarnations() {
    let mut world = Alone { state: State::new(ElectionOptions::default(), 0, Epoch(9), ms(0)), log: Vec::new() };
    assert_eq!(world.on(0, Event::Tick), [Effect::Create]);
    let lead = Effect::Lead { epoch: Epoch(10), until: ms(1500), succeeds: true };
    assert_eq!(world.answer(10, Answer::Written(1)), [lead]);
}

#[test]
fn writes_that_are_lost_again_and_again_while_questions_are_answered_are_not_stored() {
    let mut world = Alone::leading();
    assert_eq!(world.on(400, Event::Tick), [Effect::Update(7)]);
    world.answer(1400, Answer::Lost);
    assert_eq!(world.on(1650, Event::Tick), [Effect::StepDown(Why::RanOut), Effect::Look]);
    assert!(!world.state.stores_nothing());
    assert_eq!(world.answer(1651, Answer::NotOurs(None)), [Effect::Create]);
    assert!(!world.state.stores_nothing(), "one answer may have been lost");
    world.answer(2651, Answer::Lost);
    assert_eq!(world.on(2901, Event::Tick), [Effect::Look]);
    let mut held = world.state.clone();
    held.on(ms(2902), Event::Answered(Answer::NotOurs(Some(8))), &mut Vec::new());
    assert!(!held.stores_nothing(), "somebody has written meanwhile");
    assert_eq!(world.answer(2902, Answer::NotOurs(None)), [Effect::Create]);
    assert!(world.state.stores_nothing());
    let mut stored = world.state.clone();
    stored.on(ms(2903), Event::Answered(Answer::Written(9)), &mut Vec::new());
    assert!(!stored.stores_nothing());
    let mut refused = world.state.clone();
    refused.on(ms(2903), Event::Answered(Answer::Refused), &mut Vec::new());
    assert!(!refused.stores_nothing(), "somebody else's was stored");
    world.answer(3902, Answer::Lost);
    assert!(world.state.stores_nothing());
    world.on(4152, Event::Tick);
    world.answer(5152, Answer::Lost);
    assert!(!world.state.stores_nothing(), "the server is away");
}

#[test]
fn a_write_that_was_found_is_stored_and_one_that_was_not_is_not() {
    for (found, stores_nothing) in [([8, 9], false), ([7, 7], true)] {
        let mut world = Alone::leading();
        let mut at = 400;
        for found in found {
            world.on(at, Event::Tick);
            world.answer(at + 100, Answer::Lost);
            assert_eq!(world.on(at + 350, Event::Tick), [Effect::Look]);
            world.answer(at + 360, Answer::Ours(found));
            at += 360;
        }
        assert_eq!(world.state.stores_nothing(), stores_nothing, "found {found:?}");
    }
}

#[test]
fn only_who_makes_the_key_for_the_first_time_ever_succeeds_nobody_whatever_it_has_heard() {
    for (revision, succeeds) in [(1, false), (2, true)] {
        let mut world = Alone::new();
        assert_eq!(world.on(0, Event::Tick), [Effect::Create]);
        let lead = Effect::Lead { epoch: Epoch(revision), until: ms(1500), succeeds };
        assert_eq!(world.answer(10, Answer::Written(revision)), [lead]);
    }
}

#[test]
fn the_others_try_until_the_key_is_gone() {
    let mut world = Alone::new();
    for at in [0, 250, 500] {
        assert_eq!(world.on(at, Event::Tick), [Effect::Create]);
        assert_eq!(world.answer(at, Answer::Refused), []);
        assert_eq!(world.state.next_wakeup(), Some(ms(at + 250)));
    }
    assert_eq!(world.on(750, Event::Heard(Epoch(5))), [Effect::Create]);
    let lead = Effect::Lead { epoch: Epoch(12), until: ms(2250), succeeds: true };
    assert_eq!(world.answer(760, Answer::Written(12)), [lead]);
}

#[test]
fn a_holder_that_cannot_renew_stops_a_ttl_after_its_last_write_was_begun() {
    let mut world = Alone::leading();
    assert_eq!(world.on(400, Event::Tick), [Effect::Update(7)]);
    assert_eq!(world.state.next_wakeup(), Some(ms(1500)), "no answer comes");
    assert_eq!(world.on(1499, Event::Tick), []);
    assert_eq!(world.on(1500, Event::Tick), [Effect::StepDown(Why::RanOut)]);
    assert_eq!(world.state.epoch(), None);
}

#[test]
fn a_frozen_holder_does_not_act_on_what_waited_for_it() {
    // A renewal was under way when the process froze, and its answer is the first thing that it sees.
    let mut world = Alone::leading();
    world.on(400, Event::Tick);
    let seen = world.answer(9000, Answer::Written(8));
    assert_eq!(seen, [Effect::StepDown(Why::RanOut), Effect::Update(8)]);
    // By now it is another's.
    assert_eq!(world.answer(9010, Answer::Refused), [Effect::Create]);
    assert_eq!(world.state.epoch(), None);
    // The same when time itself is the first thing: the clock jumps by an hour.
    let mut world = Alone::leading();
    assert_eq!(world.on(3_600_000, Event::Tick), [Effect::StepDown(Why::RanOut), Effect::Update(7)]);
}

#[test]
fn a_write_whose_answer_is_lost_is_looked_after_before_the_next() {
    let mut world = Alone::leading();
    world.on(400, Event::Tick);
    assert_eq!(world.answer(600, Answer::Lost), []);
    assert_eq!(world.state.epoch(), Some(Epoch(7)), "its time is not over");
    assert_eq!(world.on(850, Event::Tick), [Effect::Look]);
    assert_eq!(world.answer(860, Answer::Ours(8)), [Effect::Update(8)], "it was written");
    assert_eq!(world.answer(870, Answer::Written(9)), [Effect::Extend(ms(2360))]);
    // Lost again, and not written: the key has expired, and is another's.
    world.on(1260, Event::Tick);
    world.answer(1300, Answer::Lost);
    world.on(1550, Event::Tick);
    assert_eq!(world.answer(1560, Answer::NotOurs(None)), [Effect::StepDown(Why::Deposed), Effect::Create]);
}

#[test]
fn a_lease_that_is_found_to_be_held_lasts_no_longer_for_that() {
    let mut world = Alone::leading();
    world.on(400, Event::Tick);
    world.answer(600, Answer::Lost);
    assert_eq!(world.on(850, Event::Tick), [Effect::Look]);
    assert_eq!(world.answer(860, Answer::Ours(8)), [Effect::Update(8)]);
    assert_eq!(world.state.next_wakeup(), Some(ms(1500)), "when it was written is not known");
    assert_eq!(world.on(1500, Event::Tick), [Effect::StepDown(Why::RanOut)]);
}

#[test]
fn a_lost_answer_to_the_first_write_makes_nobody_lead_before_a_second_one_is_answered() {
    let mut world = Alone::new();
    world.on(0, Event::Tick);
    assert_eq!(world.answer(1000, Answer::Lost), []);
    assert_eq!(world.on(1250, Event::Tick), [Effect::Look]);
    assert_eq!(world.answer(1260, Answer::Ours(7)), [Effect::Update(7)]);
    let lead = Effect::Lead { epoch: Epoch(8), until: ms(2760), succeeds: true };
    assert_eq!(world.answer(1270, Answer::Written(8)), [lead]);
}

#[test]
fn an_answer_that_took_longer_than_the_lease_lasts_makes_nobody_lead() {
    let mut world = Alone::new();
    world.on(0, Event::Tick);
    assert_eq!(world.answer(1500, Answer::Written(7)), [Effect::Update(7)]);
    assert_eq!(world.state.epoch(), None);
}

#[test]
fn who_finds_the_key_taken_steps_down_at_once() {
    let mut world = Alone::leading();
    world.on(400, Event::Tick);
    assert_eq!(world.answer(410, Answer::Refused), [Effect::StepDown(Why::Deposed), Effect::Create]);
}

#[test]
fn a_higher_epoch_deposes_and_the_next_one_is_above_it() {
    let mut world = Alone::leading();
    assert_eq!(world.on(100, Event::Heard(Epoch(7))), [], "that is our own");
    assert_eq!(world.on(100, Event::Heard(Epoch(3))), [], "that one is over");
    let seen = world.on(100, Event::Heard(Epoch(90)));
    assert_eq!(seen, [Effect::StepDown(Why::Outranked), Effect::Update(7)], "is the lease still ours?");
    let lead = Effect::Lead { epoch: Epoch(91), until: ms(1600), succeeds: true };
    assert_eq!(world.answer(110, Answer::Written(8)), [lead], "the store was lost and counts from 1 again");
}

#[test]
fn who_leaves_gives_the_key_back_whatever_is_under_way() {
    let mut world = Alone::leading();
    assert_eq!(world.on(100, Event::Leave), [Effect::StepDown(Why::Leaving), Effect::Release(7)]);
    assert_eq!(world.state.next_wakeup(), None);
    let mut world = Alone::new();
    world.on(0, Event::Tick);
    assert_eq!(world.on(5, Event::Leave), []);
    assert_eq!(world.answer(10, Answer::Written(7)), [Effect::Release(7)]);
}

#[test]
fn a_bucket_that_is_missed_for_long_is_made_anew_and_gives_other_epochs() {
    let mut world = Alone::leading();
    assert_eq!(world.on(400, Event::Tick), [Effect::Update(7)]);
    assert_eq!(world.answer(410, Answer::Missing), [Effect::StepDown(Why::Emptied)]);
    assert!(world.state.is_emptied() && !world.state.stores_nothing());
    let mut at = 660;
    while at < 10_410 {
        assert_eq!(world.on(at, Event::Tick), [Effect::Look], "at {at}");
        assert_eq!(world.answer(at, Answer::Missing), []);
        at += 250;
    }
    assert_eq!(world.on(at, Event::Tick), [Effect::Look]);
    world.answer(at, Answer::Missing);
    assert_eq!(world.on(at + 250, Event::Tick), [Effect::Make]);
    assert_eq!(world.answer(at + 900, Answer::Lost), []);
    assert_eq!(world.on(at + 1150, Event::Tick), [Effect::Make], "that may not have been done");
    assert_eq!(world.answer(at + 1200, Answer::Made { base: 1 << 40 }), [Effect::Create]);
    let until = ms(at + 1200 + 1500);
    let lead = Effect::Lead { epoch: Epoch((1 << 40) + 1), until, succeeds: true };
    assert_eq!(world.answer(at + 1210, Answer::Written(1)), [lead]);
    assert!(!world.state.is_emptied());
}

#[test]
fn a_bucket_that_others_have_is_not_made() {
    let missing = |at| {
        let mut world = Alone::leading();
        world.on(400, Event::Tick);
        world.answer(400, Answer::Missing);
        for at in (650..at).step_by(250) {
            world.on(at, Event::Tick);
            world.answer(at, Answer::Missing);
        }
        world
    };
    // One that has it comes back, or somebody else has made it: it may be another one, whose epochs are to be learned.
    let mut world = missing(9000);
    assert_eq!(world.on(9150, Event::Tick), [Effect::Look]);
    assert_eq!(world.answer(9160, Answer::NotOurs(Some(3))), [Effect::Make], "to open it");
    assert!(!world.state.is_emptied());
    assert_eq!(world.answer(9170, Answer::Made { base: 100 }), [Effect::Create]);
    assert_eq!(world.answer(9180, Answer::Refused), []);
    // Who was frozen does not know what was in between.
    let mut world = missing(9000);
    world.on(60_000, Event::Tick);
    world.answer(60_010, Answer::Missing);
    assert_eq!(world.on(60_260, Event::Tick), [Effect::Look]);
    // Silence is no answer, for or against.
    let mut world = missing(9000);
    world.on(9150, Event::Tick);
    world.answer(10_150, Answer::Lost);
    assert_eq!(world.on(10_400, Event::Tick), [Effect::Look]);
    world.answer(10_410, Answer::Missing);
    assert_eq!(world.on(10_660, Event::Tick), [Effect::Make]);
}

/// A key with revisions that expires late, and candidates whose questions and answers take their time or are lost, and
/// which freeze.
struct World {
    candidates: Vec<State>,
    /// Revision, holder, and when it was written; as the server sees it.
    key: Option<(u64, usize, u64)>,
    revision: u64,
    /// How often its bucket was made, if it is there.
    made: Option<u64>,
    emptied: u64,
    late: u64,
    /// What arrives when: at the server (a question), or at a candidate (an answer).
    flying: BTreeMap<(u64, u64), (usize, Flight)>,
    sent: u64,
    leading: Vec<Option<(Epoch, u64)>>,
    epochs: Vec<Epoch>,
}

enum Flight {
    Asked(Effect),
    Answered(Answer),
    /// In a heartbeat.
    Heard(Epoch),
}

impl World {
    fn new(candidates: usize, late: u64) -> Self {
        Self {
            candidates: (0..candidates).map(|_| State::new(ElectionOptions::default(), 0, Epoch(0), ms(0))).collect(),
            key: None,
            revision: 0,
            made: Some(0),
            emptied: 0,
            late,
            flying: BTreeMap::new(),
            sent: 0,
            leading: vec![None; candidates],
            epochs: Vec::new(),
        }
    }

    fn fly(&mut self, due: u64, who: usize, what: Flight) {
        self.sent += 1;
        self.flying.insert((due, self.sent), (who, what));
    }

    /// What the server does at `at`, and says.
    fn served(&mut self, at: u64, who: usize, asked: Effect) -> Answer {
        if asked == Effect::Make {
            self.made.get_or_insert(self.emptied);
        }
        let Some(made) = self.made else { return Answer::Missing };
        let ttl = 1500 + self.late;
        self.key = self.key.filter(|(_, _, written)| at < written + ttl);
        let free = match (asked, self.key) {
            (Effect::Create, key) => key.is_none(),
            (Effect::Update(revision), key) => key.is_some_and(|(last, ..)| last == revision),
            (Effect::Release(revision), key) => {
                self.key = key.filter(|(last, ..)| *last != revision);
                return Answer::Lost;
            }
            (Effect::Make, _) => return Answer::Made { base: made << 32 },
            (Effect::Look, Some((revision, holder, _))) if holder == who => return Answer::Ours(revision),
            _ => return Answer::NotOurs(None),
        };
        if !free {
            return Answer::Refused;
        }
        self.revision += 1;
        self.key = Some((self.revision, who, at));
        Answer::Written(self.revision)
    }

    fn event(&mut self, at: u64, who: usize, event: Event, delay: u64) {
        let mut effects = Vec::new();
        self.candidates[who].on(ms(at), event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Lead { epoch, until, .. } => {
                    self.leading[who] = Some((epoch, until.as_millis() as u64));
                    self.epochs.push(epoch);
                    for other in (0..self.candidates.len()).filter(|other| *other != who) {
                        self.fly(at + 1, other, Flight::Heard(epoch));
                    }
                }
                Effect::Extend(until) => {
                    self.leading[who] = self.leading[who].map(|(epoch, _)| (epoch, until.as_millis() as u64));
                }
                Effect::StepDown(_) => self.leading[who] = None,
                asked => self.fly(at + delay, who, Flight::Asked(asked)),
            }
        }
    }

    /// How many act at `at`: those that have stepped down, or look at the clock and see that their time is over, do not.
    fn acting(&self, at: u64) -> usize {
        self.leading.iter().flatten().filter(|(_, until)| at < *until).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is slow, lost, frozen or emptied: never do two act at a time, epochs rise, and in the end one does.
    #[test]
    fn never_two_lead_and_in_the_end_one_does(
        seed in proptest::collection::vec((0_u64..400, 0_u64..400, 0_u64..10), 64),
        freezes in proptest::collection::vec((0_usize..3, 0_u64..15_000, 0_u64..5000), 0..6),
        late in 0_u64..1500,
        emptied in proptest::option::of(0_u64..15_000),
    ) {
        const CHAOS: u64 = 15_000;
        let mut world = World::new(3, late);
        let mut turn = 0;
        let end = CHAOS + if emptied.is_some() { 18_000 } else { 6000 };
        for at in 0..end {
            let calm = at >= CHAOS;
            if emptied == Some(at) {
                (world.key, world.revision, world.made, world.emptied) = (None, 0, None, 1);
            }
            let frozen = |who: usize| freezes.iter().any(|(of, from, lasts)| *of == who && (*from..from + lasts).contains(&at));
            while let Some((key, who)) = world.flying.first_key_value().map(|(key, (who, _))| (*key, *who)) {
                if key.0 > at {
                    break;
                }
                turn += 1;
                let (there, back, luck) = if calm { (1, 1, 9) } else { seed[turn % seed.len()] };
                let (_, flight) = world.flying.remove(&key).unwrap();
                match flight {
                    Flight::Asked(asked) => {
                        // Lost on the way there, or on the way back: a timeout says so after a second.
                        let answer = if luck == 0 { Answer::Lost } else { world.served(at, who, asked) };
                        let lost = luck <= 1 || answer == Answer::Lost;
                        if !matches!(asked, Effect::Release(_)) {
                            let (due, answer) = if lost { (at + 1000, Answer::Lost) } else { (at + back, answer) };
                            world.fly(due, who, Flight::Answered(answer));
                        }
                    }
                    Flight::Answered(_) | Flight::Heard(_) if frozen(who) => world.fly(at + 1, who, flight),
                    Flight::Heard(epoch) => world.event(at, who, Event::Heard(epoch), there),
                    Flight::Answered(answer) => world.event(at, who, Event::Answered(answer), there),
                }
            }
            for who in 0..3 {
                let due = world.candidates[who].next_wakeup().is_some_and(|due| due <= ms(at));
                if due && !frozen(who) {
                    world.event(at, who, Event::Tick, seed[turn % seed.len()].0);
                }
            }
            prop_assert!(world.acting(at) <= 1, "{} act at {at}: {:?}", world.acting(at), world.leading);
        }
        prop_assert_eq!(world.acting(end - 1), 1);
        prop_assert!(world.epochs.is_sorted_by(|a, b| a < b), "{:?}", world.epochs);
    }
}

#[test]
fn who_has_heard_of_an_epoch_succeeds_it_though_the_key_says_that_it_is_the_first() {
    // The bucket was made anew: its revisions begin again.
    let mut world = Alone::new();
    assert_eq!(world.on(0, Event::Heard(Epoch(7))), [Effect::Create]);
    let lead = Effect::Lead { epoch: Epoch(8), until: ms(1500), succeeds: true };
    assert_eq!(world.answer(10, Answer::Written(1)), [lead]);
}
