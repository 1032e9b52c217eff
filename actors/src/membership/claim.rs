//! Whether a process may take a node's name, decided without a clock and a bus.
//!
//! Of a name it is kept which process has it ([`Claim`]), under a key that is put under its expected revision: of two that want it one
//! gets it. Whether that process lives its heartbeats tell.
//!
//! | the key            | beats under the name                 | then                                            |
//! |--------------------|--------------------------------------|-------------------------------------------------|
//! | not there          | none                                 | it is taken                                     |
//! | another process's  | none for 3 s                         | it is taken: the others hold that one dead      |
//! | another process's  | none for a while, and nobody listens | it is taken: that process is gone               |
//! | whatever           | some                                 | waits, up to 4 s from the start; then refused   |
//! | cannot be trusted  | none for 3 s                         | it is taken                                     |
//!
//! The key cannot be trusted where there are no keys, or where they were lost and made anew while nodes were there.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::MembershipOptions;
use crate::ids::Incarnation;

/// How long a name that others have is waited for.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// Which process has a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The first life of the process, ...
    pub born: Incarnation,
    /// ... and the one in which it said so.
    pub incarnation: Incarnation,
    /// Where its Transfer listens.
    pub data_address: String,
    /// For people: "process 4711 on host lab1".
    pub process: String,
}

impl Claim {
    /// Whether it is the same process, in whatever life.
    pub fn is_of(&self, other: &Self) -> bool {
        (self.born, &self.process, &self.data_address) == (other.born, &other.process, &other.data_address)
    }
}

/// What is kept of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing: nobody has it.
    Nothing,
    /// Nothing, and that says nothing.
    Unknown,
    /// It is somebody's.
    Claim {
        /// Whose.
        claim: Claim,
        /// The revision of its key.
        revision: u64,
    },
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
    beats: bool,
    probed: bool,
    /// Whether nobody listens where the process was that has it.
    refused: bool,
}

impl Claimant {
    /// One that listens from now on.
    pub fn new(options: MembershipOptions, now: Duration) -> Self {
        Self { options, began: now, heard: now, beats: false, probed: false, refused: false }
    }

    /// Somebody beats under the name, and does not say that it stops.
    pub fn heard(&mut self, now: Duration) {
        (self.heard, self.beats, self.refused, self.probed) = (now, true, false, false);
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
            Kept::Nothing if !self.beats || gone => Step::Take(None),
            Kept::Unknown if gone => Step::Take(None),
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

    #[test]
    fn a_name_that_nobody_has_is_taken_at_once() {
        assert_eq!(claimant().step(ms(1), &Kept::Nothing), Step::Take(None));
        // The keys were lost, and who has the name is about to say so again.
        let mut claimant = claimant();
        claimant.heard(ms(1));
        assert_eq!(claimant.step(ms(2), &Kept::Nothing), Step::Wait);
    }

    #[test]
    fn a_name_whose_process_beats_is_waited_for_and_then_refused() {
        for kept in [claim(), Kept::Unknown, Kept::Nothing] {
            let mut claimant = claimant();
            for at in (100..4000).step_by(500) {
                claimant.heard(ms(at));
                assert_eq!(claimant.step(ms(at), &kept), Step::Wait, "{kept:?} at {at}");
            }
            assert_eq!(claimant.step(ms(4000), &kept), Step::Refuse, "{kept:?}");
        }
    }

    #[test]
    fn a_name_is_free_3_s_after_the_last_beat() {
        for (kept, take) in [(claim(), Some(5)), (Kept::Unknown, None)] {
            let mut claimant = claimant();
            claimant.heard(ms(900));
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
        alive.heard(ms(805));
        assert_eq!(alive.step(ms(810), &claim()), Step::Wait, "it is there, whatever a firewall says");
        claimant.beaten(ms(820));
        assert_eq!(claimant.step(ms(830), &claim()), Step::Wait, "that one may be about to beat");
    }
}
