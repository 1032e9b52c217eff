//! How a session begins: hello, welcome, refusal, and what is proven by them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::super::frame::{
    Challenge, FrameError, HEADER_BYTES, Half, Header, Kind, challenge, is_authentic_greeting, seal, versions,
};
use super::super::outbox::Outbox;
use super::super::terms::{Effect, ResetReason};
use super::{HELLO_VERSION, Met, Phase, Session};

impl Session {
    /// Checks that a hello, or the answer to one of ours, comes from who knows the token.
    pub(super) fn check_greeting(&self, frame: &Bytes, answers: Option<&Challenge>) -> Result<(), FrameError> {
        if is_authentic_greeting(frame, self.opening.receiving(), answers) {
            return Ok(());
        }
        // Releases before version 2 had no challenge, and nothing to prove anything with.
        match challenge(frame) {
            Ok(_) => Err(FrameError::NotAuthentic),
            Err(_) => Err(FrameError::Release { theirs: versions(frame)?, ours: self.settings.versions }),
        }
    }

    /// Takes note of the half of the peer that sent an authentic greeting.
    pub(super) fn meet(&mut self, half: Half, challenge: Challenge, outbox: &mut Outbox, effects: &mut Vec<Effect>) {
        if half > self.seen {
            let same_process = half.incarnation == self.seen.incarnation;
            self.seen = half;
            self.met = None;
            outbox.meets(half.incarnation);
            match self.phase {
                Phase::Bound { .. } => {
                    let reason = if same_process { ResetReason::PeerForgot } else { ResetReason::NewIncarnation };
                    self.renew(outbox);
                    effects.push(Effect::Reset { incarnation: half.incarnation, reason });
                }
                Phase::Unsupported => self.phase = Phase::Idle,
                Phase::Idle | Phase::Greeting => {}
            }
        }
        if self.met.is_none() {
            let keys = self.opening.keys((self.me, &self.my_challenge), (half, &challenge));
            self.met = Some(Met { challenge, keys });
        }
    }

    pub(super) fn on_hello(
        &mut self,
        frame: &Bytes,
        header: &Header,
        outbox: &mut Outbox,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FrameError> {
        let theirs = versions(frame)?;
        let supported = common_version(self.settings.versions, theirs).is_some();
        let kind = if supported { Kind::Welcome } else { Kind::Refuse };
        self.send_versions(kind, header.from, self.met.as_ref().map(|met| &met.challenge), effects);
        if !supported {
            self.unsupported(header.from.incarnation, theirs, outbox, effects);
        }
        Ok(())
    }

    pub(super) fn unsupported(
        &mut self,
        incarnation: u64,
        theirs: (u16, u16),
        outbox: &mut Outbox,
        effects: &mut Vec<Effect>,
    ) {
        if self.phase != Phase::Unsupported {
            self.phase = Phase::Unsupported;
            self.retry_at = None;
            self.waiting_since = None;
            outbox.clear();
            effects.push(Effect::Unsupported { incarnation, theirs });
        }
    }

    pub(super) fn bind(&mut self, peer: Half, version: u8) {
        self.phase = Phase::Bound { peer, version };
        self.retry_at = None;
        self.timeouts = 0;
    }

    pub(super) fn say_hello(&mut self, effects: &mut Vec<Effect>) {
        self.counts.hellos_sent += 1;
        self.send_versions(Kind::Hello, Half::NONE, None, effects);
    }

    /// Tells somebody of a release that cannot prove anything what we speak, as it would hear from one that it can talk to. Anybody can
    /// have this said, to any half, so it answers no challenge and whoever can prove something does not believe it; and as often as is
    /// of use.
    pub(super) fn refuse_release(&mut self, now: Duration, to: Half, effects: &mut Vec<Effect>) {
        if self.release_answered_at.is_none_or(|at| now >= at + self.settings.retry_min / 2) {
            self.release_answered_at = Some(now);
            self.send_versions(Kind::Refuse, to, None, effects);
        }
    }

    /// `answers`: the challenge of the half that it is said to, where that has greeted.
    fn send_versions(&self, kind: Kind, to: Half, answers: Option<&Challenge>, effects: &mut Vec<Effect>) {
        let mut bytes = BytesMut::zeroed(HEADER_BYTES);
        // A welcome may come before we are bound, so it acknowledges nothing.
        Header { ack: 0, ..self.header(kind, HELLO_VERSION, to) }.write(&mut bytes);
        bytes.extend_from_slice(&self.settings.versions.0.to_le_bytes());
        bytes.extend_from_slice(&self.settings.versions.1.to_le_bytes());
        bytes.extend_from_slice(&self.my_challenge);
        seal(&mut bytes, self.opening.sending(), answers);
        effects.push(Effect::Send(bytes.freeze()));
    }

    /// Seals a frame as the peer would, whose end is `opening`: for what comes after authentication.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn seal_as_peer(&self, opening: &super::super::opening::Opening, mut frame: BytesMut) -> Bytes {
        let kind = frame.get(2).copied();
        match &self.met {
            _ if kind == Some(0) => seal(&mut frame, opening.sending(), None),
            _ if matches!(kind, Some(1 | 2)) => seal(&mut frame, opening.sending(), Some(&self.my_challenge)),
            Some(met) => seal(&mut frame, &met.keys.receiving, None),
            None => seal(&mut frame, opening.sending(), None),
        }
        frame.freeze()
    }
}

pub(super) fn common_version(ours: (u16, u16), theirs: (u16, u16)) -> Option<u8> {
    let highest = ours.1.min(theirs.1);
    (highest >= ours.0.max(theirs.0)).then(|| u8::try_from(highest).ok()).flatten()
}
