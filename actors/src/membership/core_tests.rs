use super::*;
use crate::ids::Epoch;
use crate::membership::MembershipOptions;
use crate::membership::state::tests::beat;
use crate::protocol::membership::Beat;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// One effect in short.
fn said(effect: &MembershipEffect) -> String {
    match effect {
        MembershipEffect::After(delay, event) => format!("{event:?} in {delay:?}"),
        MembershipEffect::Know(members) => format!("knows {}", members.len()),
        MembershipEffect::Beat { incarnation, stopping, .. } => format!("beat of {}, last: {stopping}", incarnation.0),
        MembershipEffect::Meet(node, incarnation) => format!("meets {node} {}", incarnation.0),
        MembershipEffect::TellScheduler(SchedulerEvent::NodeDown { node, incarnation, reason }) => {
            format!("{node} {} down: {reason}", incarnation.0)
        }
        MembershipEffect::TellScheduler(_) => "tells the scheduler something else".to_owned(),
        MembershipEffect::Tell(change) => format!("{} {:?}", change.node, change.state),
        MembershipEffect::Probe(node, ..) => format!("probes {node}"),
        MembershipEffect::Gate(open) => format!("gate open: {open}"),
        MembershipEffect::Follows(node, leader) => format!("{node} follows {}", leader.node),
        MembershipEffect::Heard(epoch) => format!("heard of {}", epoch.0),
        MembershipEffect::Renew(renewal) => format!("renewed by {}", renewal.told_by),
        MembershipEffect::Fail(fatal) => format!("fails: {}", &fatal.reason[..24]),
    }
}

/// What comes of these events, which wait together.
fn on(core: &mut MembershipCore, at: u64, events: impl IntoIterator<Item = MembershipEvent>) -> Vec<String> {
    events.into_iter().for_each(|event| core.on(event, ms(at)));
    core.flush(ms(at));
    core.effects().iter().map(said).collect()
}

/// What comes of one beat.
fn hears(core: &mut MembershipCore, at: u64, beat: Beat) -> Vec<String> {
    on(core, at, [MembershipEvent::Beat(beat)])
}

/// Membership of node "me", incarnation 5, after its first tick.
fn membership() -> MembershipCore {
    let mut core =
        MembershipCore::new(State::new(NodeId::new("me"), Incarnation(5), MembershipOptions::default(), ms(0)));
    assert_eq!(on(&mut core, 0, []), ["Tick in 10ms", "knows 0"], "before any event");
    assert_eq!(on(&mut core, 10, [MembershipEvent::Tick]), ["Tick in 490ms", "knows 0", "beat of 5, last: false"]);
    core
}

#[test]
fn of_a_change_it_is_known_first_and_then_told() {
    let mut core = membership();
    let told = hears(&mut core, 20, beat("a", 1, 1));
    assert_eq!(told, ["knows 1", "meets a 1", "a Up"]);
    let told = on(&mut core, 20, [MembershipEvent::Beat(beat("b", 1, 1)), MembershipEvent::Beat(beat("c", 1, 1))]);
    assert_eq!(told, ["knows 3", "meets b 1", "b Up", "meets c 1", "c Up"], "all are known that came together");
    let left = Beat { stopping: true, ..beat("b", 1, 2) };
    assert_eq!(
        hears(&mut core, 520, left),
        ["knows 3", "meets b 1", "b 1 down: Left after 500ms of silence", "b Left"]
    );
    let refused = || MembershipEvent::Refused { node: NodeId::new("a"), incarnation: Incarnation(1) };
    assert_eq!(on(&mut core, 520, [refused()]), ["knows 3"], "it may be the wrong time to look");
    let dead = ["knows 3", "meets a 1", "a 1 down: Dead after 800ms of silence", "a Dead"];
    assert_eq!(on(&mut core, 820, [refused()]), dead);
    assert_eq!(hears(&mut core, 830, beat("a", 2, 1)), ["knows 3", "meets a 2", "a Up"]);
}

#[test]
fn whom_a_node_follows_is_passed_on() {
    let leader = Some(Leader { epoch: Epoch(3), node: NodeId::new("b") });
    let told = hears(&mut membership(), 20, Beat { leader, ..beat("a", 1, 1) });
    assert!(told.contains(&"a follows b".to_owned()), "{told:?}");
}

#[test]
fn a_node_that_nobody_hears_starts_nothing_until_it_is_heard_again() {
    let mut core = membership();
    let told: Vec<_> = (1..8).flat_map(|second| on(&mut core, second * 500, [MembershipEvent::Tick])).collect();
    let gates = |told: &[String]| told.iter().filter(|told| told.starts_with("gate")).cloned().collect::<Vec<_>>();
    assert_eq!(gates(&told), ["gate open: false"]);
    let echoes = |sequence| MembershipEvent::Beat(beat("me", 5, sequence));
    let told: Vec<_> = (9..16)
        .flat_map(|half| {
            [on(&mut core, half * 500, [MembershipEvent::Tick]), on(&mut core, half * 500, [echoes(half - 1)])]
        })
        .flatten()
        .collect();
    assert_eq!(gates(&told), ["gate open: true"]);
}

#[test]
fn an_incarnation_that_was_declared_dead_says_nothing_more() {
    let mut core = membership();
    let zombies = vec![(NodeId::new("me"), Incarnation(5))];
    core.on(MembershipEvent::Beat(Beat { zombies, ..beat("a", 1, 1) }), ms(20));
    core.on(MembershipEvent::Beat(beat("b", 1, 1)), ms(20));
    core.flush(ms(20));
    let effects = core.effects();
    let renewal = effects.iter().find_map(|effect| match effect {
        MembershipEffect::Renew(renewal) => Some(renewal),
        _ => None,
    });
    let Renewal { told_by, state } = renewal.unwrap();
    assert_eq!((told_by.as_str(), state.incarnation()), ("a", Incarnation(6)));
    assert_eq!(
        state.health(&NodeId::new("b")),
        Some(Health::Alive),
        "what came with that word is known to the next incarnation"
    );
    for event in [MembershipEvent::Tick, MembershipEvent::Speak, MembershipEvent::Leave] {
        assert_eq!(on(&mut core, 1000, [event]), [""; 0]);
    }
    let mut next = MembershipCore::new(state.clone());
    let told = on(&mut next, 1000, [MembershipEvent::Speak]);
    assert_eq!(told, ["Tick in 10ms", "knows 2", "beat of 6, last: false"]);
}

#[test]
fn a_node_whose_name_another_process_has_fails() {
    let told = hears(&mut membership(), 20, beat("me", 6, 1));
    assert_eq!(told, ["knows 0", "fails: the name me is taken: an"]);
}

#[test]
fn who_leaves_says_so_and_ticks_on_in_vain() {
    let mut core = membership();
    assert_eq!(on(&mut core, 20, [MembershipEvent::Leave]), ["knows 0", "beat of 5, last: true"]);
    assert_eq!(on(&mut core, 500, [MembershipEvent::Tick]), ["Tick in 500ms", "knows 0"]);
}
