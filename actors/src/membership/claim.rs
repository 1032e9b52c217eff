//! Whether a process may take a node's name, decided without a clock and a bus.
//!
//! Of a name it is kept which process has it ([`Claim`]), under a key that is put under its expected revision: of two that want it one
//! gets it. Whether that process lives its heartbeats tell.
//!
//! | the key            | beats under the name                 | then                                            |
//! |--------------------|--------------------------------------|-------------------------------------------------|
//! | not there, or free | none                                 | it is taken                                     |
//! | another process's  | none for 3 s                         | it is taken: the others hold that one dead      |
//! | another process's  | none for a while, and nobody listens | it is taken: that process is gone               |
//! | whatever           | some                                 | waits, up to 4 s from the start; then refused   |
//! | says nothing       | none for 3 s                         | it is taken                                     |
//!
//! The key says nothing where there are no keys, where they were lost and made anew while nodes were there, and where its value is none
//! of ours. Whoever takes a name does so for an incarnation above all that the key tells of, whatever its clock says.
//!
//! A beat is one if it is later than those heard before it, and of no incarnation that the key says is over: what somebody recorded of a process
//! that is gone, and repeats, keeps nobody from its name.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::MembershipOptions;
use crate::protocol::membership::Beat;

use crate::ids::Incarnation;

/// How long a name that others have is waited for.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// Which process has a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The first incarnation of the process, ...
    pub born: Incarnation,
    /// ... and the one in which it said so.
    pub incarnation: Incarnation,
    /// Where its Transfer listens.
    pub data_address: String,
    /// For people: "process 4711 on host lab1".
    pub process: String,
}

impl Claim {
    /// Whether it is the same process, in whatever incarnation.
    pub fn is_of(&self, other: &Self) -> bool {
        (self.born, &self.process, &self.data_address) == (other.born, &other.process, &other.data_address)
    }
}

/// What is kept of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing: nobody has it.
    Nothing,
    /// Nothing, or nothing that could be believed: that says nothing.
    Unknown {
        /// The revision of its key, where it has one.
        revision: Option<u64>,
    },
    /// Who had it has given it back.
    Free {
        /// The last incarnation under it.
        last: Incarnation,
        /// The revision of its key.
        revision: u64,
    },
    /// It is somebody's.
    Claim {
        /// Whose.
        claim: Claim,
        /// The revision of its key.
        revision: u64,
    },
}

impl Kept {
    /// The first incarnation that is above all that this tells of.
    pub fn next_incarnation(&self) -> Incarnation {
        match self {
            Self::Nothing | Self::Unknown { .. } => Incarnation(0),
            Self::Free { last, .. } => Incarnation(last.0 + 1),
            Self::Claim { claim, .. } => Incarnation(claim.incarnation.0 + 1),
        }
    }

    /// Whether this incarnation may still be there.
    fn may_live(&self, incarnation: Incarnation) -> bool {
        match self {
            Self::Nothing | Self::Unknown { .. } => true,
            Self::Free { last, .. } => incarnation > *last,
            Self::Claim { claim, .. } => incarnation >= claim.incarnation,
        }
    }
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take the name: put the key, which has this revision, or none.
    Take(Option<u64>),
    /// Look whether anybody listens there.
    Probe(String),
    /// Nothing, for a while.
    Wait,
    /// The name is another process's, which lives.
    Refuse,
}

/// A process that wants a name.
#[derive(Clone, Debug)]
pub struct Claimant {
    options: MembershipOptions,
    began: Duration,
    /// When a beat under the name was heard last, or listening began.
    heard: Duration,
    /// The incarnation and the number of the latest one.
    latest: Option<(Incarnation, u64)>,
    probed: bool,
    /// Whether nobody listens where the process was that has it.
    refused: bool,
}

impl Claimant {
    /// One that listens from now on.
    pub fn new(options: MembershipOptions, now: Duration) -> Self {
        Self { options, began: now, heard: now, latest: None, probed: false, refused: false }
    }

    /// There was a beat under the name, of which this is kept.
    pub fn heard(&mut self, now: Duration, beat: &Beat, kept: &Kept) {
        let number = (beat.incarnation, beat.sequence);
        if beat.stopping || !kept.may_live(beat.incarnation) || self.latest.is_some_and(|latest| number <= latest) {
            return;
        }
        (self.heard, self.latest, self.refused, self.probed) = (now, Some(number), false, false);
    }

    /// Nobody listens where the process was that has the name.
    pub fn nobody_listens(&mut self) {
        self.refused = true;
    }

    /// Another process was faster.
    pub fn beaten(&mut self, now: Duration) {
        // It has not beaten yet, perhaps.
        (self.heard, self.refused, self.probed) = (now, false, false);
    }

    /// What is to be done, as this is kept of the name.
    pub fn step(&mut self, now: Duration, kept: &Kept) -> Step {
        let silent = now.saturating_sub(self.heard);
        let gone = silent >= self.options.dead_after || (self.refused && silent >= self.options.probe_after());
        match kept {
            Kept::Nothing if self.latest.is_none() || gone => Step::Take(None),
            Kept::Free { revision, .. } if self.latest.is_none() || gone => Step::Take(Some(*revision)),
            Kept::Unknown { revision } if gone => Step::Take(*revision),
            Kept::Claim { revision, .. } if gone => Step::Take(Some(*revision)),
            _ if now.saturating_sub(self.began) >= PATIENCE => Step::Refuse,
            Kept::Claim { claim, .. } if !self.probed && silent >= self.options.probe_after() => {
                self.probed = true;
                Step::Probe(claim.data_address.clone())
            }
            _ => Step::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn claim() -> Kept {
        let (born, process) = (Incarnation(7), "process 1 on h".to_owned());
        let claim = Claim { born, incarnation: born, data_address: "a:1".into(), process };
        Kept::Claim { claim, revision: 5 }
    }

    fn claimant() -> Claimant {
        Claimant::new(MembershipOptions::default(), ms(0))
    }

    fn beat(incarnation: u64, sequence: u64) -> Beat {
        Beat::new(NodeId::new("n1"), Incarnation(incarnation), sequence)
    }

    const FREE: Kept = Kept::Free { last: Incarnation(7), revision: 5 };
    const UNKNOWN: Kept = Kept::Unknown { revision: None };

    #[test]
    fn a_name_that_nobody_has_is_taken_at_once() {
        for (kept, take) in [(Kept::Nothing, None), (FREE, Some(5))] {
            assert_eq!(claimant().step(ms(1), &kept), Step::Take(take), "{kept:?}");
            // The keys were lost, and who has the name is about to say so again.
            let mut claimant = claimant();
            claimant.heard(ms(1), &beat(8, 1), &kept);
            assert_eq!(claimant.step(ms(2), &kept), Step::Wait, "{kept:?}");
        }
    }

    #[test]
    fn a_name_is_taken_for_an_incarnation_above_all_that_are_known() {
        for (kept, next) in [(Kept::Nothing, 0), (UNKNOWN, 0), (FREE, 8), (claim(), 8)] {
            assert_eq!(kept.next_incarnation(), Incarnation(next), "{kept:?}");
        }
    }

    #[test]
    fn a_name_whose_process_beats_is_waited_for_and_then_refused() {
        for kept in [claim(), UNKNOWN, Kept::Nothing, FREE] {
            let mut claimant = claimant();
            for (sequence, at) in (1..).zip((100..4000).step_by(500)) {
                claimant.heard(ms(at), &beat(8, sequence), &kept);
                assert_eq!(claimant.step(ms(at), &kept), Step::Wait, "{kept:?} at {at}");
            }
            assert_eq!(claimant.step(ms(4000), &kept), Step::Refuse, "{kept:?}");
        }
    }

    #[test]
    fn a_beat_that_is_repeated_shows_nobody_who_lives() {
        let mut claimant = claimant();
        let mut steps = Vec::new();
        for at in (0..4000).step_by(500) {
            claimant.heard(ms(at), &beat(7, 40), &claim());
            match claimant.step(ms(at), &claim()) {
                Step::Probe(_) => claimant.nobody_listens(),
                step => steps.push(step),
            }
        }
        assert!(!steps.contains(&Step::Refuse) && steps.contains(&Step::Take(Some(5))), "{steps:?}");
        // Nor do earlier ones after it, whoever listens.
        let mut claimant = Claimant::new(MembershipOptions::default(), ms(0));
        for (sequence, at) in (0..30).rev().zip((0..3000).step_by(100)) {
            claimant.heard(ms(at), &beat(7, sequence), &claim());
        }
        assert_eq!(claimant.step(ms(3000), &claim()), Step::Take(Some(5)));
    }

    #[test]
    fn beats_of_incarnations_that_are_over_and_of_a_process_that_stops_show_nobody() {
        let mut claimant = claimant();
        for sequence in 1..9 {
            claimant.heard(ms(10 * sequence), &beat(6, sequence), &claim());
            claimant.heard(ms(10 * sequence), &beat(7, sequence), &FREE);
            claimant.heard(ms(10 * sequence), &Beat { stopping: true, ..beat(8, sequence) }, &claim());
        }
        assert_eq!(claimant.step(ms(99), &FREE), Step::Take(Some(5)));
    }

    #[test]
    fn a_name_is_free_3_s_after_the_last_beat() {
        let damaged = Kept::Unknown { revision: Some(6) };
        for (kept, take) in [(claim(), Some(5)), (UNKNOWN, None), (damaged, Some(6))] {
            let mut claimant = claimant();
            claimant.heard(ms(900), &beat(8, 1), &kept);
            for at in (1000..3900).step_by(100) {
                assert!(!matches!(claimant.step(ms(at), &kept), Step::Take(_) | Step::Refuse), "{kept:?} at {at}");
            }
            assert_eq!(claimant.step(ms(3900), &kept), Step::Take(take), "{kept:?}");
        }
    }

    #[test]
    fn the_name_of_a_process_that_is_gone_is_free_sooner() {
        let mut claimant = claimant();
        assert_eq!(claimant.step(ms(749), &claim()), Step::Wait);
        assert_eq!(claimant.step(ms(750), &claim()), Step::Probe("a:1".into()));
        assert_eq!(claimant.step(ms(800), &claim()), Step::Wait, "once is enough");
        claimant.nobody_listens();
        let mut alive = claimant.clone();
        assert_eq!(claimant.step(ms(810), &claim()), Step::Take(Some(5)));
        alive.heard(ms(805), &beat(7, 1), &claim());
        assert_eq!(alive.step(ms(810), &claim()), Step::Wait, "it is there, whatever a firewall says");
        claimant.beaten(ms(820));
        assert_eq!(claimant.step(ms(830), &claim()), Step::Wait, "that one may be about to beat");
    }
}
