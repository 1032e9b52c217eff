use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::ids::Epoch;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn node(name: &str) -> NodeId {
    NodeId::new(name)
}

/// A beat of a node that follows nobody.
pub(in crate::membership) fn beat(name: &str, incarnation: u64, sequence: u64) -> Beat {
    Beat::new(node(name), Incarnation(incarnation), sequence)
}

/// One node, fed by hand; its own echo comes back at once unless told otherwise.
struct Alone {
    state: State,
    echo: bool,
    log: Vec<(Duration, Effect)>,
}

impl Alone {
    fn new() -> Self {
        let state = State::new(node("me"), Incarnation(5), MembershipOptions::default(), Duration::ZERO);
        Self { state, echo: true, log: Vec::new() }
    }

    fn on(&mut self, at: Duration, event: MembershipEvent) {
        let mut effects = Vec::new();
        self.state.on(at, event, &mut effects);
        for effect in effects {
            if let Effect::Publish { incarnation, sequence, .. } = &effect
                && self.echo
            {
                let echo = beat("me", incarnation.0, *sequence);
                self.on(at, MembershipEvent::Beat(echo));
            }
            self.log.push((at, effect));
        }
    }

    /// Ticks up to and including `until`, each time the state asks for it.
    fn run(&mut self, until: Duration) {
        while let Some(at) = self.state.next_wakeup().filter(|at| *at <= until) {
            self.on(at, MembershipEvent::Tick);
        }
    }

    /// Beats of `name` every 500 ms in `from..to`, with ticks between; returns the next sequence.
    fn beats(&mut self, name: &str, incarnation: u64, mut sequence: u64, from: u64, to: u64) -> u64 {
        for at in (from..to).step_by(500) {
            self.run(ms(at));
            self.on(ms(at), MembershipEvent::Beat(beat(name, incarnation, sequence)));
            sequence += 1;
        }
        sequence
    }

    /// What was thought of `name`, and when, in order.
    fn story(&self, name: &str) -> Vec<(u64, u64, Health)> {
        let of_node = |(at, effect): &(Duration, Effect)| match effect {
            Effect::Changed { node, incarnation, health, .. } if node.as_str() == name => {
                Some((at.as_millis() as u64, incarnation.0, *health))
            }
            _ => None,
        };
        self.log.iter().filter_map(of_node).collect()
    }

    fn has(&self, wanted: impl Fn(&Effect) -> bool) -> bool {
        self.log.iter().any(|(_, effect)| wanted(effect))
    }
}

#[test]
fn a_silent_node_is_suspected_after_three_missed_beats_and_dead_after_three_seconds() {
    let mut world = Alone::new();
    world.beats("n1", 1, 1, 100, 2000);
    world.run(ms(10_000));
    // Heard last at 1600.
    assert_eq!(
        world.story("n1"),
        [(100, 1, Health::Alive), (1600 + 1750, 1, Health::Suspected), (1600 + 3000, 1, Health::Dead)]
    );
    assert!(!world.has(|effect| matches!(effect, Effect::Fence { .. } | Effect::BusSilent { .. })));
}

#[test]
fn a_suspected_node_that_is_heard_again_is_alive() {
    let mut world = Alone::new();
    let next = world.beats("n1", 1, 1, 0, 1000);
    world.beats("n1", 1, next, 2600, 4000);
    assert_eq!(
        world.story("n1"),
        [(0, 1, Health::Alive), (500 + 1750, 1, Health::Suspected), (2600, 1, Health::Alive)]
    );
}

/// A beat that says where the node listens.
fn beat_at(name: &str, incarnation: u64, sequence: u64) -> Beat {
    Beat { data_address: format!("{name}:1"), ..beat(name, incarnation, sequence) }
}

fn probes(world: &Alone, name: &str) -> Vec<u64> {
    let of_node = |(at, effect): &(Duration, Effect)| match effect {
        Effect::Probe { node, address, .. } if node.as_str() == name && *address == format!("{name}:1") => {
            Some(at.as_millis() as u64)
        }
        _ => None,
    };
    world.log.iter().filter_map(of_node).collect()
}

#[test]
fn a_silent_node_is_probed_and_dead_at_once_when_nobody_listens_there() {
    let refused = |incarnation| MembershipEvent::Refused { node: node("n1"), incarnation: Incarnation(incarnation) };
    let mut world = Alone::new();
    world.run(ms(100));
    world.on(ms(100), MembershipEvent::Beat(beat_at("n1", 1, 1)));
    world.run(ms(900));
    assert_eq!(probes(&world, "n1"), [850]);
    // Of an earlier incarnation.
    world.on(ms(900), refused(0));
    assert_eq!(world.state.health(&node("n1")), Some(Health::Alive));
    world.on(ms(901), refused(1));
    assert_eq!(world.story("n1"), [(100, 1, Health::Alive), (901, 1, Health::Dead)]);
    world.run(ms(10_000));
    assert_eq!(probes(&world, "n1"), [850], "it is over");
    // Who answers, or does not, is dead when it has been silent for long.
    let mut world = Alone::new();
    world.run(ms(100));
    world.on(ms(100), MembershipEvent::Beat(beat_at("n1", 1, 1)));
    world.run(ms(10_000));
    assert_eq!(probes(&world, "n1"), [850, 1350, 1850, 2350, 2850]);
    assert_eq!(world.story("n1").last(), Some(&(3100, 1, Health::Dead)));
}

#[test]
fn a_node_that_is_heard_lives_whatever_a_probe_says() {
    let mut world = Alone::new();
    world.on(ms(0), MembershipEvent::Beat(beat_at("n1", 1, 1)));
    world.run(ms(800));
    assert_eq!(probes(&world, "n1"), [750]);
    world.on(ms(810), MembershipEvent::Beat(beat_at("n1", 1, 2)));
    world.on(ms(820), MembershipEvent::Refused { node: node("n1"), incarnation: Incarnation(1) });
    assert_eq!(world.state.health(&node("n1")), Some(Health::Alive));
    // Nor is anybody dead because the bus is away.
    let mut world = Alone::new();
    world.echo = false;
    world.on(ms(0), MembershipEvent::Beat(beat_at("n1", 1, 1)));
    world.run(ms(5000));
    world.on(ms(5000), MembershipEvent::Refused { node: node("n1"), incarnation: Incarnation(1) });
    assert_eq!(world.state.health(&node("n1")), Some(Health::Alive));
    assert_eq!(probes(&world, "n1"), [0; 0]);
    // Nor before it is known that the bus is away.
    let mut world = Alone::new();
    world.on(ms(0), MembershipEvent::Beat(beat_at("n1", 1, 1)));
    world.echo = false;
    world.run(ms(800));
    assert_eq!(probes(&world, "n1"), [0; 0]);
    world.on(ms(800), MembershipEvent::Refused { node: node("n1"), incarnation: Incarnation(1) });
    assert_eq!(world.state.health(&node("n1")), Some(Health::Alive));
}

#[test]
fn late_and_repeated_beats_change_nothing() {
    // (beat, counted as): after incarnation 3, sequence 10 was heard.
    let table = [
        (beat("n1", 2, 99), Counts { stale: 1, ..Counts::default() }),
        (beat("n1", 3, 10), Counts { repeated: 1, ..Counts::default() }),
        (beat("n1", 3, 9), Counts { repeated: 1, ..Counts::default() }),
        (beat("me", 4, 1), Counts { stale: 1, ..Counts::default() }),
        (beat("me", 5, 77), Counts { repeated: 1, ..Counts::default() }),
    ];
    for (late, counts) in table {
        let mut world = Alone::new();
        world.on(ms(0), MembershipEvent::Beat(beat("n1", 3, 10)));
        let (before, log) = (world.state.members(ms(0)), world.log.len());
        world.on(ms(0), MembershipEvent::Beat(late.clone()));
        assert_eq!(world.state.members(ms(0)), before, "{late:?}");
        assert_eq!(world.log.len(), log, "{late:?}");
        assert_eq!(world.state.counts(), counts, "{late:?}");
    }
}

#[test]
fn a_late_beat_does_not_prolong_an_incarnation() {
    let mut world = Alone::new();
    world.beats("n1", 2, 1, 0, 1000);
    for at in (1000..3600).step_by(100) {
        world.run(ms(at));
        world.on(ms(at), MembershipEvent::Beat(beat("n1", 1, at)));
        world.on(ms(at), MembershipEvent::Beat(beat("n1", 2, 1)));
    }
    assert_eq!(world.story("n1").last(), Some(&(3500, 2, Health::Dead)));
}

#[test]
fn a_dead_incarnation_that_beats_again_stays_dead_and_is_told() {
    let mut world = Alone::new();
    let next = world.beats("n1", 1, 1, 0, 1000);
    world.run(ms(6000));
    assert_eq!(world.state.health(&node("n1")), Some(Health::Dead));
    let next = world.beats("n1", 1, next, 6000, 7000);
    assert_eq!(world.state.health(&node("n1")), Some(Health::Dead));
    let told = |effect: &Effect| matches!(effect, Effect::Publish { zombies, .. } if *zombies == [(node("n1"), Incarnation(1))]);
    assert!(world.has(told));
    world.beats("n1", 2, 1, 7000, 8000);
    assert_eq!(world.story("n1").last(), Some(&(7000, 2, Health::Alive)));
    // The old incarnation's late words do not count, and nobody is told any more.
    world.on(ms(7600), MembershipEvent::Beat(beat("n1", 1, next)));
    world.log.clear();
    world.run(ms(8000));
    assert!(!world.has(told));
}

#[test]
fn a_node_that_was_called_dead_takes_the_next_incarnation_once() {
    let mut world = Alone::new();
    world.run(ms(1000));
    for (sequence, teller) in ["n1", "n2", "n1"].into_iter().enumerate() {
        let told = Beat { zombies: vec![(node("me"), Incarnation(5))], ..beat(teller, 1, sequence as u64 + 1) };
        world.on(ms(1100), MembershipEvent::Beat(told));
    }
    let renewals: Vec<_> = world.log.iter().filter(|(_, effect)| matches!(effect, Effect::Renew { .. })).collect();
    assert_eq!(renewals, [&(ms(1100), Effect::Renew { incarnation: Incarnation(6), told_by: node("n1") })]);
    let published =
        |effect: &Effect| matches!(effect, Effect::Publish { incarnation: Incarnation(6), sequence: 1, .. });
    assert!(world.has(published), "the new incarnation is announced at once");
}

#[test]
fn a_restarted_node_is_alive_under_its_new_incarnation_without_a_death_between() {
    let mut world = Alone::new();
    world.beats("n1", 1, 1, 0, 1000);
    world.beats("n1", 2, 1, 1000, 2000);
    assert_eq!(world.story("n1"), [(0, 1, Health::Alive), (1000, 2, Health::Alive)]);
}

#[test]
fn silence_of_all_is_the_bus_and_nobody_is_dead() {
    let mut world = Alone::new();
    let mut next = world.beats("n1", 1, 1, 0, 5000);
    world.on(ms(4900), MembershipEvent::Beat(beat("n2", 1, 1)));
    world.echo = false;
    world.run(ms(34_900));
    assert!(world.has(|effect| matches!(effect, Effect::BusSilent { .. })));
    assert!(world.state.is_fenced(), "the others cannot hear this node either");
    world.echo = true;
    // n1 is back 2 s after the bus, n2 never.
    world.run(ms(37_000));
    next = world.beats("n1", 1, next, 37_000, 60_000);
    assert!(next > 50);
    let back_at = |effect: &Effect| matches!(effect, Effect::BusBack { .. });
    let bus_back_ms = world.log.iter().find(|(_, effect)| back_at(effect)).unwrap().0.as_millis() as u64;
    assert!((34_900..35_500).contains(&bus_back_ms));
    let deaths: Vec<_> = world.story("n1").into_iter().filter(|(_, _, health)| *health == Health::Dead).collect();
    assert_eq!(deaths, []);
    assert_eq!(world.story("n2").last(), Some(&(bus_back_ms + 3000, 1, Health::Dead)));
    assert!(!world.state.is_fenced());
    assert_eq!(world.state.incarnation(), Incarnation(5), "nobody called it dead: it keeps its incarnation");
}

#[test]
fn a_short_absence_of_the_bus_is_not_held_against_anybody() {
    let mut world = Alone::new();
    let next = world.beats("n1", 1, 1, 400, 5000);
    // Heard last at 4900; the bus is away until 7400, too short to be noticed; n1 is back after this node is.
    world.echo = false;
    world.run(ms(7400));
    world.echo = true;
    world.run(ms(8300));
    world.beats("n1", 1, next, 8300, 10_000);
    assert!(!world.has(|effect| matches!(effect, Effect::BusSilent { .. })));
    assert!(world.story("n1").iter().all(|(_, _, health)| *health != Health::Dead), "{:?}", world.story("n1"));
}

#[test]
fn a_fence_falls_at_three_seconds_and_lifts_within_a_second_of_being_heard() {
    let mut world = Alone::new();
    world.run(ms(2000));
    world.echo = false;
    world.run(ms(12_000));
    let at = |world: &Alone, wanted: fn(&Effect) -> bool| {
        world.log.iter().find(|(_, effect)| wanted(effect)).map(|(at, _)| at.as_millis() as u64)
    };
    assert_eq!(at(&world, |effect| matches!(effect, Effect::Fence { .. })), Some(2000 + 3000));
    world.echo = true;
    world.run(ms(14_000));
    let lifted = at(&world, |effect| matches!(effect, Effect::Unfence { .. })).unwrap();
    assert!((12_000..=13_000).contains(&lifted), "{lifted}");
}

#[test]
fn a_node_that_hears_others_but_not_itself_fences_itself_and_calls_nobody_dead() {
    let mut world = Alone::new();
    world.echo = false;
    world.beats("n1", 1, 1, 0, 6000);
    assert!(world.state.is_fenced());
    assert_eq!(world.story("n1"), [(0, 1, Health::Alive)]);
    assert!(!world.has(|effect| matches!(effect, Effect::BusSilent { .. })));
}

#[test]
fn a_node_that_was_frozen_fences_itself_and_calls_nobody_dead() {
    let mut world = Alone::new();
    world.beats("n1", 1, 1, 0, 2000);
    // Ten seconds without running; beats of n1 and own echoes wait in the queue, behind the tick or before it.
    for tick_first in [true, false] {
        let mut world = Alone { state: world.state.clone(), echo: false, log: Vec::new() };
        let thaw = ms(12_000);
        if tick_first {
            world.on(thaw, MembershipEvent::Tick);
        }
        for sequence in 5..25 {
            world.on(thaw, MembershipEvent::Beat(beat("n1", 1, sequence)));
        }
        world.on(thaw, MembershipEvent::Tick);
        assert!(world.state.is_fenced(), "tick first: {tick_first}");
        assert_eq!(world.state.health(&node("n1")), Some(Health::Alive), "tick first: {tick_first}");
        let beats = world.log.iter().filter(|(_, effect)| matches!(effect, Effect::Publish { .. })).count();
        assert_eq!(beats, 1, "missed beats are not made up for");
    }
}

#[test]
fn news_is_told_at_once_and_the_next_beat_is_in_its_time() {
    let mut world = Alone::new();
    world.run(ms(700));
    world.log.clear();
    world.on(ms(700), MembershipEvent::Speak);
    assert!(matches!(world.log[..], [(_, Effect::Publish { stopping: false, .. })]), "{:?}", world.log);
    assert_eq!(world.state.next_wakeup(), Some(ms(1000)));
    world.on(ms(800), MembershipEvent::Leave);
    world.log.clear();
    world.on(ms(900), MembershipEvent::Speak);
    assert_eq!(world.log, [], "who has left says nothing");
}

#[test]
fn goodbye_is_told_at_once_and_ends_the_beats() {
    let mut world = Alone::new();
    world.run(ms(700));
    world.on(ms(700), MembershipEvent::Leave);
    assert!(matches!(world.log.last(), Some((_, Effect::Publish { stopping: true, .. }))));
    assert_eq!(world.state.next_wakeup(), None);
    let mut other = Alone::new();
    other.on(ms(0), MembershipEvent::Beat(beat("n1", 1, 1)));
    other.on(ms(500), MembershipEvent::Beat(Beat { stopping: true, ..beat("n1", 1, 2) }));
    other.run(ms(9000));
    assert_eq!(other.story("n1"), [(0, 1, Health::Alive), (500, 1, Health::Left)]);
}

#[test]
fn a_second_process_under_the_same_name_is_noticed_by_the_older_one() {
    let mut world = Alone::new();
    world.on(ms(100), MembershipEvent::Beat(beat("me", 6, 1)));
    assert!(world.has(|effect| *effect == Effect::Impostor { incarnation: Incarnation(6) }));
}

#[test]
fn room_is_made_by_forgetting_the_dead_never_the_living() {
    let mut world = Alone::new();
    world.state.options.nodes_max = 2;
    world.on(ms(0), MembershipEvent::Beat(beat("a", 1, 1)));
    world.on(ms(0), MembershipEvent::Beat(beat("b", 1, 1)));
    world.on(ms(0), MembershipEvent::Beat(beat("c", 1, 1)));
    assert_eq!((world.state.health(&node("c")), world.state.counts().refused), (None, 1));
    world.on(ms(10), MembershipEvent::Beat(Beat { stopping: true, ..beat("a", 1, 2) }));
    world.on(ms(20), MembershipEvent::Beat(beat("c", 1, 1)));
    assert_eq!(world.state.health(&node("a")), None);
    assert_eq!(world.state.health(&node("c")), Some(Health::Alive));
}

/// Several nodes around one bus with virtual time, a fixed delay per node, and cuts.
struct World {
    nodes: Vec<State>,
    delays: Vec<u64>,
    /// (at, receiver, beat), delivered in order.
    flying: BTreeSet<(u64, usize, u64)>,
    beats: Vec<Beat>,
    log: Vec<(u64, usize, Effect)>,
}

/// `node` neither sends nor receives in `from..to`.
#[derive(Clone, Debug)]
struct Cut {
    node: usize,
    from: u64,
    to: u64,
}

impl World {
    fn run(delays: Vec<u64>, cuts: &[Cut], until: u64) -> Self {
        let new = |at| State::new(node(&format!("n{at}")), Incarnation(1), MembershipOptions::default(), ms(0));
        let nodes = (0..delays.len()).map(new).collect();
        let mut world = Self { nodes, delays, flying: BTreeSet::new(), beats: Vec::new(), log: Vec::new() };
        let cut = |who: usize, at: u64| cuts.iter().any(|cut| cut.node == who && (cut.from..cut.to).contains(&at));
        for at in 0..until {
            while let Some((due, to, index)) = world.flying.first().copied().filter(|(due, ..)| *due <= at) {
                world.flying.pop_first();
                if !cut(to, due) {
                    let beat = world.beats[index as usize].clone();
                    world.on(at, to, MembershipEvent::Beat(beat), &cut);
                }
            }
            for who in 0..world.nodes.len() {
                if world.nodes[who].next_wakeup().is_some_and(|due| due <= ms(at)) {
                    world.on(at, who, MembershipEvent::Tick, &cut);
                }
            }
        }
        world
    }

    fn on(&mut self, at: u64, who: usize, event: MembershipEvent, cut: &impl Fn(usize, u64) -> bool) {
        let mut effects = Vec::new();
        self.nodes[who].on(ms(at), event, &mut effects);
        for effect in effects {
            if let Effect::Publish { incarnation, sequence, zombies, .. } = &effect
                && !cut(who, at)
            {
                let name = format!("n{who}");
                self.beats.push(Beat { zombies: zombies.clone(), ..beat(&name, incarnation.0, *sequence) });
                for to in 0..self.nodes.len() {
                    let due = at + self.delays[who] + self.delays[to] + 1;
                    self.flying.insert((due, to, self.beats.len() as u64 - 1));
                }
            }
            self.log.push((at, who, effect));
        }
    }

    /// Deaths seen: (when, by whom, of whom, of which incarnation).
    fn deaths(&self) -> Vec<(u64, usize, usize, u64)> {
        let death = |(at, who, effect): &(u64, usize, Effect)| match effect {
            Effect::Changed { node, incarnation, health: Health::Dead, .. } => {
                Some((*at, *who, node.as_str()[1..].parse().unwrap(), incarnation.0))
            }
            _ => None,
        };
        self.log.iter().filter_map(death).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// One node is cut off for a while: it is fenced before anybody calls it dead, and in the end everybody is alive
    /// to everybody, under one incarnation that all agree on.
    #[test]
    fn a_cut_off_node_is_fenced_before_it_is_called_dead_and_everybody_comes_back(
        delays in proptest::collection::vec(0_u64..100, 2..5),
        from in 1000_u64..4000,
        lasts in 0_u64..12_000,
    ) {
        let cut = Cut { node: 0, from, to: from + lasts };
        let world = World::run(delays, std::slice::from_ref(&cut), from + lasts + 9000);
        for (at, by, of, incarnation) in world.deaths() {
            prop_assert!(of == 0 || by == 0, "{of} was never cut, {by} called it dead");
            prop_assert!(of == 0, "a node without a bus called {of} dead at {at}");
            prop_assert_eq!(incarnation, 1, "dead once");
            let fence = |(when, who, effect): &(u64, usize, Effect)| {
                *who == 0 && *when <= at && matches!(effect, Effect::Fence { .. })
            };
            prop_assert!(world.log.iter().any(fence), "called dead at {at} without being fenced");
            prop_assert!((from + 2500..=from + 3300).contains(&at) || at > cut.to, "called dead at {at}");
        }
        let renewed = !world.deaths().is_empty();
        for (index, state) in world.nodes.iter().enumerate() {
            prop_assert!(!state.is_fenced(), "{index} is fenced still");
            for member in state.members(ms(0)) {
                prop_assert_eq!(member.health, Health::Alive);
                let cut_off = member.node == node("n0");
                prop_assert_eq!(member.incarnation.0, if cut_off && renewed { 2 } else { 1 });
            }
        }
    }

    /// The bus goes away for all: nobody dies, nobody changes incarnation, all are back within a second of its return
    /// (two beats, and the way there and back).
    #[test]
    fn a_bus_that_goes_away_for_all_kills_nobody(
        delays in proptest::collection::vec(0_u64..100, 1..5),
        from in 1000_u64..4000,
        lasts in 0_u64..40_000,
    ) {
        let cuts: Vec<_> = (0..delays.len()).map(|node| Cut { node, from, to: from + lasts }).collect();
        let world = World::run(delays, &cuts, from + lasts + 1700);
        prop_assert_eq!(world.deaths(), Vec::new());
        for state in &world.nodes {
            prop_assert_eq!(state.incarnation(), Incarnation(1));
            prop_assert!(!state.is_fenced());
        }
    }
}

#[test]
fn a_fence_lifts_after_the_echoes_of_two_beats_that_were_sent_since_and_come_in_time() {
    let mut world = Alone::new();
    world.echo = false;
    world.run(ms(4000));
    assert!(world.state.is_fenced());
    let since: Vec<u64> = world
        .log
        .iter()
        .filter_map(|(at, effect)| match effect {
            Effect::Publish { sequence, .. } if *at >= ms(3000) => Some(*sequence),
            _ => None,
        })
        .collect();
    let mut late = Alone { state: world.state.clone(), echo: false, log: Vec::new() };
    let mut echo = |at: u64, sequence| {
        world.on(ms(at), MembershipEvent::Beat(beat("me", 5, sequence)));
        world.state.is_fenced()
    };
    assert!(echo(4000, since[0] - 1), "the others may have heard this one before they called it dead");
    for _ in 0..3 {
        assert!(echo(4000, since[0]), "one is not enough, however often it comes");
    }
    assert!(!echo(4100, since[1]));
    for sequence in &since {
        late.on(ms(8000), MembershipEvent::Beat(beat("me", 5, *sequence)));
        assert!(late.state.is_fenced(), "that was long ago");
    }
}

#[test]
fn an_incarnation_is_over_when_it_is_dead_or_followed_by_another_and_not_after_a_goodbye() {
    let mut world = Alone::new();
    let over = |world: &Alone, name: &str, number| world.state.is_over(&node(name), Incarnation(number));
    world.beats("n1", 2, 1, 0, 1000);
    assert_eq!([1, 2, 3].map(|number| over(&world, "n1", number)), [true, false, false]);
    assert!(!over(&world, "nobody", 1));
    world.run(ms(6000));
    assert_eq!([1, 2, 3].map(|number| over(&world, "n1", number)), [true, true, false]);
    world.on(ms(6000), MembershipEvent::Beat(beat("n2", 1, 1)));
    world.on(ms(6100), MembershipEvent::Beat(Beat { stopping: true, ..beat("n2", 1, 2) }));
    assert!(!over(&world, "n2", 1), "what it said before may still come");
    let members = world.state.members(ms(6200));
    let told: Vec<_> = members.iter().map(|it| (it.node.as_str(), it.incarnation.0, it.health, it.silent_ms)).collect();
    assert_eq!(told, [("n1", 2, Health::Dead, 5700), ("n2", 1, Health::Left, 100)]);
}

#[test]
fn a_tick_that_comes_late_does_not_shift_the_beats() {
    let mut world = Alone::new();
    world.run(ms(400));
    world.on(ms(510), MembershipEvent::Tick);
    assert_eq!(world.state.next_wakeup(), Some(ms(1000)));
    // One by a whole beat: there are no two at once.
    world.on(ms(1500), MembershipEvent::Tick);
    assert_eq!(world.state.next_wakeup(), Some(ms(2000)));
}

#[test]
fn a_node_with_a_new_incarnation_says_so_at_once_and_beats_in_its_time() {
    let mut world = Alone::new();
    world.run(ms(1000));
    let told = Beat { zombies: vec![(node("me"), Incarnation(5))], ..beat("n1", 1, 1) };
    world.on(ms(1100), MembershipEvent::Beat(told));
    assert_eq!(world.state.next_wakeup(), Some(ms(1600)));
}

#[test]
fn only_who_is_dead_and_beats_is_told_so_and_that_is_counted() {
    let zombies =
        |world: &Alone| world.has(|effect| matches!(effect, Effect::Publish { zombies, .. } if !zombies.is_empty()));
    for (stopping, told) in [(false, true), (true, false)] {
        let mut world = Alone::new();
        world.on(ms(0), MembershipEvent::Beat(Beat { stopping, ..beat("n1", 1, 1) }));
        world.run(ms(6000));
        world.on(ms(6000), MembershipEvent::Beat(beat("n1", 1, 2)));
        world.run(ms(7000));
        assert_eq!((zombies(&world), world.state.counts().stale), (told, 1));
    }
}

#[test]
fn no_more_than_so_many_nodes_are_probed_at_a_time() {
    let mut world = Alone::new();
    world.run(ms(100));
    (0..40).for_each(|number| world.on(ms(100), MembershipEvent::Beat(beat_at(&format!("n{number}"), 1, 1))));
    world.run(ms(850));
    let probes = world.log.iter().filter(|(_, effect)| matches!(effect, Effect::Probe { .. })).count();
    assert_eq!(probes, PROBES_MAX as usize);
}

#[test]
fn whom_a_node_follows_is_heard_in_beats_that_are_new_and_in_no_other() {
    let mut alone = Alone::new();
    let (dead, other) = (Leader { epoch: Epoch(3), node: node("a") }, Leader { epoch: Epoch(4), node: node("b") });
    let told = |alone: &Alone| {
        let follows = |(_, effect): &(Duration, Effect)| match effect {
            Effect::Follows { node, leader } => Some((node.to_string(), leader.epoch.0)),
            _ => None,
        };
        alone.log.iter().filter_map(follows).collect::<Vec<_>>()
    };
    let says = |name: &str, incarnation, sequence, leader: &Leader| {
        MembershipEvent::Beat(Beat { leader: Some(leader.clone()), ..beat(name, incarnation, sequence) })
    };
    alone.on(ms(0), says("a", 2, 7, &dead));
    assert_eq!(told(&alone), [("a".to_owned(), 3)]);
    // What somebody has recorded and says again is no sign of life of the Scheduler.
    for at in 1..9 {
        alone.on(ms(at * 500), says("a", 2, 7, &dead));
        alone.on(ms(at * 500), says("a", 2, 6, &dead));
        alone.on(ms(at * 500), says("a", 1, 100 + at, &dead));
    }
    assert_eq!(told(&alone).len(), 1);
    alone.on(ms(4600), says("a", 2, 8, &other));
    assert_eq!(told(&alone).last(), Some(&("a".to_owned(), 4)));
    // Of its own beats the echo of one that waits for it, once.
    alone.echo = false;
    alone.on(ms(5000), MembershipEvent::Speak);
    let sequence = alone.state.sequence;
    for _ in 0..3 {
        alone.on(ms(5001), says("me", 5, sequence, &other));
    }
    assert_eq!(told(&alone).iter().filter(|(name, _)| name == "me").count(), 1);
}

#[test]
fn a_beat_tells_of_which_epoch_its_sender_has_heard_where_that_is_above_whom_it_follows() {
    let mut alone = Alone::new();
    let leader = Leader { epoch: Epoch(4), node: node("b") };
    let heard = |alone: &Alone| {
        let heard = |(_, effect): &(Duration, Effect)| match effect {
            Effect::Heard { epoch } => Some(epoch.0),
            _ => None,
        };
        alone.log.iter().filter_map(heard).collect::<Vec<_>>()
    };
    let beats = [(None, 0), (Some(leader.clone()), 4), (Some(leader), 5), (None, 6), (None, 6)];
    for (sequence, (leader, epoch)) in (1..).zip(beats) {
        let beat = Beat { leader, epoch: Epoch(epoch), ..beat("a", 1, sequence) };
        alone.on(ms(sequence * 500), MembershipEvent::Beat(beat.clone()));
        alone.on(ms(sequence * 500), MembershipEvent::Beat(beat));
    }
    assert_eq!(heard(&alone), [5, 6, 6], "whom nobody follows any more is told of, too");
}
