use super::*;
use crate::protocol::membership::Health;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn node() -> NodeId {
    NodeId::new("n1")
}

fn candidate() -> CampaignCore {
    CampaignCore::new((&node(), Incarnation(7)), "c", 0, Epoch(0), ms(0))
}

fn on(core: &mut CampaignCore, at: u64, event: CampaignEvent) -> Vec<CampaignEffect> {
    core.on(event, ms(at));
    core.effects()
}

fn written(revision: u64) -> CampaignEvent {
    CampaignEvent::Answered(Answer::Written(revision))
}

fn lost() -> CampaignEvent {
    CampaignEvent::Answered(Answer::Lost)
}

fn found(says: &str, revision: u64) -> CampaignEvent {
    CampaignEvent::Found(Some((says.as_bytes().to_vec(), revision)))
}

fn create() -> CampaignEffect {
    CampaignEffect::Ask(LeaseQuestion::Create("n1 7".to_owned(), 0), ANSWER_DEADLINE)
}

fn update(revision: u64) -> CampaignEffect {
    CampaignEffect::Ask(LeaseQuestion::Update("n1 7".to_owned(), 0, revision), ANSWER_DEADLINE)
}

fn look() -> CampaignEffect {
    CampaignEffect::Ask(LeaseQuestion::Look(0), ANSWER_DEADLINE)
}

fn elected(epoch: u64, until: Duration, succeeds: bool) -> CampaignEffect {
    CampaignEffect::Tell(SchedulerEvent::Elected { epoch: Epoch(epoch), until, succeeds })
}

/// All that is done when this node begins to act.
fn begins(epoch: u64, until: Duration, succeeds: bool) -> Vec<CampaignEffect> {
    let own = Leader { epoch: Epoch(epoch), node: node() };
    let [serve, follow] = [CampaignEffect::Serve(own.clone()), CampaignEffect::Follow(own)];
    vec![elected(epoch, until, succeeds), serve, follow, CampaignEffect::Speak]
}

/// All that is done when it ends.
fn ends() -> Vec<CampaignEffect> {
    vec![CampaignEffect::Withdraw, CampaignEffect::EndOwn, CampaignEffect::Tell(SchedulerEvent::StepDown)]
}

/// Is the Scheduler of epoch 1, by a write that was begun at 0.
fn leading() -> CampaignCore {
    let mut core = candidate();
    assert_eq!(on(&mut core, 0, CampaignEvent::Tick), [create()]);
    assert_eq!(on(&mut core, 10, written(1)), begins(1, ms(1500), false));
    core
}

#[test]
fn who_is_elected_says_so_when_that_begins_and_only_prolongs_it_then() {
    let mut core = leading();
    assert_eq!(core.next_wakeup(), Some(ms(400)));
    assert_eq!(on(&mut core, 20, CampaignEvent::Heard(Epoch(1))), [], "its own word");
    assert_eq!(on(&mut core, 400, CampaignEvent::Tick), [update(1)]);
    assert_eq!(on(&mut core, 410, written(2)), [elected(1, ms(1900), true)]);
}

#[test]
fn when_the_scheduler_steps_down_all_who_were_told_of_it_are_told() {
    let refused = || CampaignEvent::Answered(Answer::Refused);
    let missing = || CampaignEvent::Answered(Answer::Missing);
    let table: [(&str, u64, CampaignEvent, &[CampaignEffect]); 5] = [
        ("the lease is another's", 410, refused(), &[create()]),
        ("it ran out", 1500, CampaignEvent::Tick, &[]),
        ("a higher epoch was heard of", 410, CampaignEvent::Heard(Epoch(9)), &[]),
        ("this node stops", 410, CampaignEvent::Leave, &[CampaignEffect::Release(1)]),
        ("the server was emptied", 410, missing(), &[]),
    ];
    for (why, at, event, then) in table {
        let mut core = leading();
        assert_eq!(on(&mut core, 400, CampaignEvent::Tick), [update(1)]);
        let done = on(&mut core, at, event);
        let done: Vec<_> = done.iter().filter(|effect| !matches!(effect, CampaignEffect::Explain(_))).collect();
        assert_eq!(done, ends().iter().chain(then).collect::<Vec<_>>(), "{why}");
    }
}

#[test]
fn the_lease_is_ours_only_where_it_says_this_incarnation() {
    for (event, then) in [
        (found("n1 7", 5), update(5)),
        (found("n1 6", 5), create()),
        (found("n2 7", 5), create()),
        (CampaignEvent::Found(None), create()),
        (lost(), look()),
    ] {
        let mut core = candidate();
        on(&mut core, 0, CampaignEvent::Tick);
        assert_eq!(on(&mut core, 1000, lost()), [], "it tries again a while later");
        assert_eq!(on(&mut core, 1250, CampaignEvent::Tick), [look()]);
        let mut effects = on(&mut core, 1300, event);
        effects.extend(on(&mut core, 1600, CampaignEvent::Tick));
        assert_eq!(effects, [then]);
    }
}

#[test]
fn who_looks_for_the_scheduler_in_vain_is_told_why_once_and_again_where_that_failed() {
    let mut core = candidate();
    let mut told = Vec::new();
    // Each write is lost, and it is found that nothing was written.
    for round in 0..5 {
        let at = round * 1000;
        for (later, event) in [(0, CampaignEvent::Tick), (10, lost()), (300, CampaignEvent::Tick)] {
            told.push((at + later, event));
        }
        told.push((at + 310, CampaignEvent::Found(None)));
        if round == 2 {
            told.push((at + 320, CampaignEvent::Unexplained));
        }
    }
    told.push((5010, written(3)));
    let mut explained = Vec::new();
    for (at, event) in told {
        for effect in on(&mut core, at, event) {
            if let CampaignEffect::Explain(told) = effect {
                explained.push((at, told.map(|told| (told.why.contains("stores nothing"), told.passes))));
            }
        }
    }
    let why = Some((true, false));
    assert_eq!(explained, [(1310, why), (3000, why), (5010, None)]);
}

#[test]
fn who_leaves_waits_for_its_question_and_gives_back_what_that_got() {
    let mut core = candidate();
    on(&mut core, 0, CampaignEvent::Tick);
    assert_eq!(on(&mut core, 5, CampaignEvent::Leave), []);
    assert!(!core.is_over());
    assert_eq!(on(&mut core, 10, written(1)), [CampaignEffect::Release(1)]);
    assert!(core.is_over());
}

#[test]
fn without_an_election_the_only_candidate_leads_above_all_it_hears_of() {
    let mut core = UnopposedCore::new(&node());
    core.on(None, Epoch(0), &[], 100);
    assert_eq!(core.effects(), begins(100, Duration::MAX, false));
    core.on(Some(&Leader { epoch: Epoch(100), node: node() }), Epoch(100), &[], 110);
    assert_eq!(core.effects(), []);
    // Its clock has gone back, or somebody whose clock goes ahead was the Scheduler before.
    core.on(Some(&Leader { epoch: Epoch(500), node: NodeId::new("n2") }), Epoch(500), &[], 120);
    assert_eq!(core.effects(), begins(501, Duration::MAX, true));
}

#[test]
fn without_an_election_it_fails_beside_another_scheduler_that_lives() {
    let n2 = Leader { epoch: Epoch(50), node: NodeId::new("n2") };
    for (health, fails) in
        [(Health::Alive, true), (Health::Suspected, true), (Health::Dead, false), (Health::Left, false)]
    {
        let member = Member {
            node: n2.node.clone(),
            incarnation: Incarnation(1),
            health,
            figures: Default::default(),
            data_address: String::new(),
            silent_ms: 0,
        };
        let mut core = UnopposedCore::new(&node());
        core.on(Some(&n2), n2.epoch, &[member], 100);
        let told = if fails {
            vec![CampaignEffect::Fail(second_scheduler(&n2.node))]
        } else {
            begins(100, Duration::MAX, true)
        };
        assert_eq!((core.effects(), core.is_over()), (told, fails), "{health:?}");
    }
}
