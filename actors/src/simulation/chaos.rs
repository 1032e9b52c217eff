//! What goes wrong, and when: drawn once for each seed.

use std::time::Duration;

use super::dice::Dice;

/// Whom a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Node(usize),
    /// The node that hosts the job by then.
    Host,
    /// The node whose Scheduler acts by then.
    Scheduler,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A process is killed; so many of a thousand objects are on disk and stay. It is started again after a while.
    Crash { target: Target, keeps: u64, back: Duration },
    /// A process does nothing for a while.
    Freeze { target: Target, lasts: Duration },
    /// What a node says does not reach the bus, or what the bus has for it does not reach it.
    CutBus { target: Target, out: bool, back: bool, lasts: Duration },
    /// A node cannot fetch from another one; `both`: nor the other way round.
    CutPeers { from: usize, to: usize, both: bool, lasts: Duration },
    /// The bus's server loses power.
    Server { lasts: Duration },
    /// A node loses some of its objects: a disk fails.
    Lose { target: Target, per_mille: u64 },
    /// The process of an executor dies under an attempt, where one runs.
    Executor { target: Target },
    /// The client dies, and with it what it has asked; another one asks after a while.
    Client { lasts: Duration },
}

impl Fault {
    /// Whether attempts or objects may be lost with it.
    pub(super) fn costs_work(&self) -> bool {
        true
    }
}

/// The fate of a world.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Executors of each node.
    pub(super) nodes: Vec<usize>,
    pub(super) faults: Vec<(Duration, Fault)>,
    /// From then on nothing goes wrong any more, and what was broken is mended.
    pub(super) heals: Duration,
    /// Of a thousand frames and heartbeats so many get lost.
    pub(super) drops: u64,
    /// Of a thousand attempts so many fail.
    pub(super) failures: u64,
    /// Of a thousand attempts so many take very long.
    pub(super) stragglers: u64,
    /// Longest time that a task takes, milliseconds.
    pub(super) task_ms: u64,
    /// Whether the client asks again where its job is.
    pub(super) client_stays: bool,
}

impl Plan {
    /// `more` draws what came later, so that `dice` draws for each seed what it did.
    pub(super) fn draw(dice: &mut Dice, more: &mut Dice) -> Self {
        let count = 2 + dice.below(4) as usize;
        let nodes: Vec<usize> = (0..count).map(|_| 1 + dice.below(3) as usize).collect();
        let heals = dice.millis(3000..20_000);
        let mut faults = Vec::new();
        // One seed in ten shows that all is well where nothing goes wrong.
        let how_many = if dice.chance(100) { 0 } else { 1 + dice.below(7) };
        while (faults.len() as u64) < how_many {
            let at = Duration::from_millis(dice.between(300..heals.as_millis() as u64));
            let fault = Self::fault(count, dice);
            faults.push((at, fault));
            // Now and then another one comes while the first is being mended.
            if dice.chance(300) {
                let soon = at + dice.millis(1..4500);
                faults.push((soon.min(heals), Self::fault(count, dice)));
            }
        }
        if how_many > 0 {
            let at = |more: &mut Dice| more.millis(300..heals.as_millis() as u64);
            // A task under which three of them die is given up.
            for _ in 0..more.below(3) {
                let target =
                    if more.chance(300) { Target::Host } else { Target::Node(more.below(count as u64) as usize) };
                faults.push((at(more), Fault::Executor { target }));
            }
            if more.chance(300) {
                faults.push((more.millis(250..3000), Fault::Client { lasts: more.millis(50..8000) }));
            }
        }
        faults.sort_by_key(|(at, _)| *at);
        Self {
            nodes,
            faults,
            heals,
            drops: *dice.pick(&[0, 0, 5, 50]).expect("some"),
            failures: *dice.pick(&[0, 0, 0, 20]).expect("some"),
            stragglers: *dice.pick(&[0, 0, 30]).expect("some"),
            task_ms: *dice.pick(&[20, 200, 1500]).expect("some"),
            client_stays: dice.chance(500),
        }
    }

    fn fault(nodes: usize, dice: &mut Dice) -> Fault {
        let target = match dice.below(4) {
            0 => Target::Host,
            1 => Target::Scheduler,
            _ => Target::Node(dice.below(nodes as u64) as usize),
        };
        let lasts = match dice.below(3) {
            0 => dice.millis(50..1000),
            1 => dice.millis(1000..4000),
            _ => dice.millis(4000..12_000),
        };
        match dice.below(10) {
            0..=3 => {
                let keeps = *dice.pick(&[0, 0, 500, 1000]).expect("some");
                Fault::Crash { target, keeps, back: lasts }
            }
            4 | 5 => Fault::Freeze { target, lasts },
            6 => {
                let (out, back) = *dice.pick(&[(true, true), (true, false), (false, true)]).expect("some");
                Fault::CutBus { target, out, back, lasts }
            }
            7 => {
                let from = dice.below(nodes as u64) as usize;
                let to = (from + 1 + dice.below(nodes as u64 - 1) as usize) % nodes;
                Fault::CutPeers { from, to, both: dice.chance(500), lasts }
            }
            8 => Fault::Server { lasts },
            _ => Fault::Lose { target, per_mille: *dice.pick(&[100, 500, 1000]).expect("some") },
        }
    }
}
