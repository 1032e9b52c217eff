//! Sealed messages: what is said outside of sessions.
//!
//! | sealed   | bytes |
//! |----------|-------|
//! | message  | version, value, MAC |
//! | question | version, length of the asker's name, name, incarnation (8 bytes), challenge (16 bytes), value, MAC |
//! | answer   | version, `0`, length of the answerer's name, name, incarnation, value, MAC |
//! | denial   | version, `1`, the [`Denied`] |
//!
//! Values are in the [codec](crate::codec). The MAC is of the subject and of all bytes before it, that of an answer of the
//! asker's name and the challenge as well; it is verified before anything of the value is looked at.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::key::random;
use super::{Credentials, Denied, Key, MAC_BYTES, Role, Speaker, credentials::TokenKey};
use crate::codec::{self, CodecError};
use crate::session::Peer;
use crate::subject::{Subject, check_token};

/// The version of the layout, the first byte. Before 2 there were no MACs; the first byte was that of the codec.
const VERSION: u8 = 2;
const ANSWER: u8 = 0;
const DENIAL: u8 = 1;
const CHALLENGE_BYTES: usize = 16;
/// Largest question, sealed, in bytes. Anybody may send one, and it is looked at whole before anything of it is believed; those that there
/// are take a few hundred bytes.
pub const QUESTION_BYTES_MAX: usize = 4096;
/// Largest answer, sealed: the largest value, and what surrounds it.
pub(crate) const ANSWER_BYTES_MAX: usize = codec::SIZE_BYTES_MAX + 1024;

/// Why a sealed message was not opened.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The MAC is not what the token makes: nothing of it is known to be true.
    #[error("not authentic: who made it does not know the {}", .0.words().0)]
    NotAuthentic(Role),
    /// The same of a question, of which the asker is to be told why.
    #[error("not authentic: {0}")]
    NotBelieved(Denied),
    /// The cluster refuses this process, as far as one can believe whoever said so.
    #[error(transparent)]
    Denied(Denied),
    /// Too short, or parts of it that nothing produces.
    #[error("no sealed message: {0}")]
    Malformed(&'static str),
    /// Made by another release.
    #[error(
        "sealed message of version {found}, this release speaks {VERSION}: run one release on all nodes and clients"
    )]
    Version {
        /// The version found.
        found: u8,
    },
    /// Authentic, but not what was expected.
    #[error(transparent)]
    Value(#[from] CodecError),
}

impl MessageError {
    /// Whether nobody knows who made it: then it is a stranger's.
    pub fn is_strangers(&self) -> bool {
        !matches!(self, Self::Value(_))
    }
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Question {
    subject: Subject,
    from: String,
    challenge: [u8; CHALLENGE_BYTES],
}

/// A question that was asked by who may.
#[derive(Debug)]
pub struct Asked<T> {
    /// Who asks.
    pub speaker: Speaker,
    /// What.
    pub value: T,
    subject: Subject,
    challenge: [u8; CHALLENGE_BYTES],
}

/// The MAC of a sealed message: the subject, then `context` (which has a fixed form for each kind), then the bytes.
fn mac(key: &Key, subject: &Subject, context: &[&[u8]], bytes: &[u8]) -> [u8; MAC_BYTES] {
    key.derive(&[&[subject.as_str().as_bytes()], context].concat()).mac(&[bytes])
}

fn verifies(key: &Key, subject: &Subject, context: &[&[u8]], bytes: &[u8], found: &[u8]) -> bool {
    key.derive(&[&[subject.as_str().as_bytes()], context].concat()).verifies(&[bytes], found)
}

fn write_speaker(bytes: &mut Vec<u8>, who: &Peer) {
    bytes.push(u8::try_from(who.node.len()).expect("names of processes are tokens of subjects, which are short"));
    bytes.extend_from_slice(who.node.as_bytes());
    bytes.extend_from_slice(&who.incarnation.to_le_bytes());
}

fn read_speaker(bytes: &[u8]) -> Option<(Peer, &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(length))?;
    let (incarnation, rest) = rest.split_first_chunk::<8>()?;
    let node = std::str::from_utf8(name).ok().filter(|name| check_token(name).is_ok())?.to_owned();
    Some((Peer { node, incarnation: u64::from_le_bytes(*incarnation) }, rest))
}

/// What follows the version, and the version.
fn unversioned(bytes: &[u8]) -> Result<&[u8], MessageError> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((&found, _)) => Err(MessageError::Version { found }),
        None => Err(MessageError::Malformed("empty, or larger than any that is sealed")),
    }
}

fn split_mac(bytes: &[u8]) -> Result<(&[u8], &[u8; MAC_BYTES]), MessageError> {
    match bytes.split_last_chunk() {
        Some((said, mac)) if !said.is_empty() => Ok((said, mac)),
        _ => Err(MessageError::Malformed("shorter than a version and a MAC")),
    }
}

impl Credentials {
    /// Seals what a node publishes on a subject of its own.
    ///
    /// # Errors
    /// As [`codec::encode`].
    ///
    /// # Panics
    /// This process is no node.
    pub fn seal<T: Serialize>(&self, subject: &Subject, value: &T) -> Result<Bytes, CodecError> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&codec::encode(value)?);
        let mac = mac(&self.own_key(Role::Node).key, subject, &[b"message"], &bytes);
        bytes.extend_from_slice(&mac);
        Ok(bytes.into())
    }

    /// Opens what [`seal`](Self::seal) made for this subject.
    ///
    /// # Errors
    /// See [`MessageError`]; nothing of the bytes was believed then.
    pub fn unseal<T: DeserializeOwned>(&self, subject: &Subject, bytes: &[u8]) -> Result<T, MessageError> {
        self.unseal_or(subject, bytes, |_, _| MessageError::NotAuthentic(Role::Node))
    }

    /// The same of what the cluster keeps: where it is not authentic the error is `Denied`, and says what is wrong with the token of
    /// this process as the nodes would that have made it. That costs another look at the bytes.
    ///
    /// # Errors
    /// As [`unseal`](Self::unseal).
    pub fn unseal_kept<T: DeserializeOwned>(&self, subject: &Subject, bytes: &[u8]) -> Result<T, MessageError> {
        self.unseal_or(subject, bytes, |token, fits| MessageError::Denied(token.deny(fits).seen_from_there()))
    }

    fn unseal_or<T: DeserializeOwned>(
        &self,
        subject: &Subject,
        bytes: &[u8],
        refuse: impl FnOnce(&TokenKey, &dyn Fn(&Key) -> bool) -> MessageError,
    ) -> Result<T, MessageError> {
        unversioned(bytes)?;
        let (said, found) = split_mac(bytes)?;
        let token = self.of(Role::Node).ok_or(MessageError::Malformed("for nodes only"))?;
        let fits = |key: &Key| verifies(key, subject, &[b"message"], said, found);
        if !fits(&token.key) {
            return Err(refuse(token, &fits));
        }
        Ok(codec::decode(&said[1..])?)
    }

    /// Seals a question of `me`.
    ///
    /// # Errors
    /// As [`codec::encode`].
    ///
    /// # Panics
    /// This process does not know the token that goes with the name `me`.
    pub fn ask<T: Serialize>(&self, subject: &Subject, me: &Peer, value: &T) -> Result<(Question, Bytes), CodecError> {
        let challenge = random().to_le_bytes();
        let mut bytes = vec![VERSION];
        write_speaker(&mut bytes, me);
        bytes.extend_from_slice(&challenge);
        bytes.extend_from_slice(&codec::encode(value)?);
        let mac = mac(&self.own_key(Role::of(&me.node)).key, subject, &[b"question"], &bytes);
        bytes.extend_from_slice(&mac);
        Ok((Question { subject: subject.clone(), from: me.node.clone(), challenge }, bytes.into()))
    }

    /// Opens a question.
    ///
    /// # Errors
    /// See [`MessageError`]; of `NotBelieved` the asker may be [told](Self::deny).
    pub fn asked<T: DeserializeOwned>(&self, subject: &Subject, bytes: &[u8]) -> Result<Asked<T>, MessageError> {
        let malformed = || MessageError::Malformed("a question names its asker and has a challenge");
        unversioned(bytes)?;
        let (said, found) = split_mac(bytes)?;
        let (from, rest) = read_speaker(&said[1..]).ok_or_else(malformed)?;
        let (&challenge, value) = rest.split_first_chunk::<CHALLENGE_BYTES>().ok_or_else(malformed)?;
        let token = self.of(Role::of(&from.node)).ok_or(MessageError::Malformed("for nodes only"))?;
        let fits = |key: &Key| verifies(key, subject, &[b"question"], said, found);
        if !fits(&token.key) {
            return Err(MessageError::NotBelieved(token.deny(fits)));
        }
        let speaker = Speaker::proven(from.node, from.incarnation);
        Ok(Asked { speaker, value: codec::decode(value)?, subject: subject.clone(), challenge })
    }

    /// Seals an answer of `me`.
    ///
    /// # Errors
    /// As [`codec::encode`].
    pub fn answer<Q, T: Serialize>(&self, asked: &Asked<Q>, me: &Peer, value: &T) -> Result<Bytes, CodecError> {
        let mut bytes = vec![VERSION, ANSWER];
        write_speaker(&mut bytes, me);
        bytes.extend_from_slice(&codec::encode(value)?);
        let context = [b"answer", asked.speaker.name().as_bytes(), &asked.challenge];
        let mac = mac(&self.own_key(asked.speaker.role()).key, &asked.subject, &context, &bytes);
        bytes.extend_from_slice(&mac);
        Ok(bytes.into())
    }

    /// What is answered to who is not believed.
    pub fn deny(denied: Denied) -> Bytes {
        let mut bytes = vec![VERSION, DENIAL];
        bytes.extend_from_slice(&codec::encode(&denied).expect("it is small and flat"));
        bytes.into()
    }

    /// Opens the answer to a question.
    ///
    /// # Errors
    /// See [`MessageError`]: `Denied` where the cluster says that it does not believe this process.
    pub fn answered<T: DeserializeOwned>(&self, question: &Question, bytes: &[u8]) -> Result<T, MessageError> {
        let malformed = || MessageError::Malformed("an answer names who answers");
        match unversioned(bytes)?.split_first() {
            Some((&ANSWER, _)) => {}
            Some((&DENIAL, denied)) => {
                let denied = codec::decode(denied).map_err(|_| MessageError::Malformed("a denial without a reason"))?;
                return Err(MessageError::Denied(denied));
            }
            _ => return Err(malformed()),
        }
        let (said, found) = split_mac(bytes)?;
        let (_, value) = read_speaker(said.get(2..).ok_or_else(malformed)?).ok_or_else(malformed)?;
        let token = self.own_key(Role::of(&question.from));
        let context = [b"answer", question.from.as_bytes(), &question.challenge];
        if !verifies(&token.key, &question.subject, &context, said, found) {
            return Err(MessageError::NotAuthentic(token.role));
        }
        Ok(codec::decode(value)?)
    }

    fn own_key(&self, role: Role) -> &TokenKey {
        self.of(role).expect("a submitter speaks as a submitter only")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Why;
    use super::*;
    use crate::subject::Subjects;

    fn cluster() -> Credentials {
        Credentials::node(Some("the nodes' token of a test"), Some("the submitters' token of a test"))
    }

    fn peer(name: &str) -> Peer {
        Peer { node: name.to_owned(), incarnation: 7 }
    }

    fn beat(node: &str) -> Subject {
        Subjects::new("test").unwrap().node(node, "beat").unwrap()
    }

    fn place() -> Subject {
        Subjects::new("test").unwrap().ctl("scheduler", "where").unwrap()
    }

    #[test]
    fn a_sealed_message_opens_on_its_subject_under_its_token_and_whole() {
        let (nodes, value) = (cluster(), ("n1".to_owned(), 5_u64));
        let sealed = nodes.seal(&beat("n1"), &value).unwrap().to_vec();
        assert_eq!(nodes.unseal::<(String, u64)>(&beat("n1"), &sealed).unwrap(), value);
        let refused = |subject: &Subject, bytes: &[u8]| nodes.unseal::<(String, u64)>(subject, bytes).is_err();
        assert!(refused(&beat("n2"), &sealed), "on the subject of another node");
        let elsewhere = Subjects::new("other").unwrap().node("n1", "beat").unwrap();
        assert!(refused(&elsewhere, &sealed), "in another cluster");
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(refused(&beat("n1"), &flipped), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(refused(&beat("n1"), &sealed[..length]), "cut after {length} bytes");
        }
        let other = Credentials::node(Some("another token of some length"), Some("the submitters' token of a test"));
        let error = other.unseal::<(String, u64)>(&beat("n1"), &sealed).unwrap_err();
        assert!(matches!(&error, MessageError::NotAuthentic(Role::Node)), "{error}");
        assert_eq!(error.to_string(), "not authentic: who made it does not know the nodes' token");
    }

    /// What a cluster keeps (names of its nodes) was sealed by an earlier release.
    #[test]
    fn the_stored_sample_is_what_is_sealed_and_opened() {
        let stored = &include_bytes!("../../tests/samples/sealed-2.bin")[..];
        let (nodes, value) = (cluster(), ("n1".to_owned(), 5_u64));
        assert!(nodes.seal(&beat("n1"), &value).unwrap() == stored, "other bytes than in the sample");
        assert_eq!(nodes.unseal::<(String, u64)>(&beat("n1"), stored).unwrap(), value);
        let mut newer = stored.to_vec();
        newer[0] = VERSION + 1;
        let error = nodes.unseal::<(String, u64)>(&beat("n1"), &newer).unwrap_err().to_string();
        assert!(error.contains("version 3, this release speaks 2: run one release"), "{error}");
    }

    #[test]
    fn what_was_sealed_before_there_were_macs_is_refused_with_both_versions() {
        let old = codec::encode_checked(&("n1", 5_u64)).unwrap();
        let error = cluster().unseal::<(String, u64)>(&beat("n1"), &old).unwrap_err().to_string();
        assert_eq!(
            error,
            "sealed message of version 1, this release speaks 2: run one release on all nodes and clients"
        );
    }

    #[test]
    fn a_question_is_answered_once_and_to_who_asked() {
        let (nodes, submitter) = (cluster(), Credentials::submitter(Some("the submitters' token of a test")));
        for (credentials, name) in [(&nodes, "n2"), (&submitter, "client-1")] {
            let (question, bytes) = credentials.ask(&place(), &peer(name), &"where").unwrap();
            for length in 0..bytes.len() {
                assert!(nodes.asked::<String>(&place(), &bytes[..length]).is_err(), "cut after {length} bytes");
            }
            let asked = nodes.asked::<String>(&place(), &bytes).unwrap();
            assert_eq!((asked.speaker.name(), asked.value.as_str()), (name, "where"));
            let answer = nodes.answer(&asked, &peer("n1"), &42_u64).unwrap();
            assert_eq!(credentials.answered::<u64>(&question, &answer).unwrap(), 42);
            // The answer to one question is none to the next.
            let (next, _) = credentials.ask(&place(), &peer(name), &"where").unwrap();
            assert!(matches!(credentials.answered::<u64>(&next, &answer), Err(MessageError::NotAuthentic(_))));
            // A question is none on another subject, and no answer.
            let other = Subjects::new("test").unwrap().ctl("jobs", "list").unwrap();
            assert!(nodes.asked::<String>(&other, &bytes).is_err());
            assert!(credentials.answered::<String>(&question, &bytes).is_err());
        }
    }

    #[test]
    fn who_is_not_believed_hears_which_token_and_why() {
        let (nodes, open) = (cluster(), Credentials::open());
        let wrong = Credentials::node(Some("some other token of a test"), Some("some other token of a test"));
        let check = |service: &Credentials, asker: &Credentials, name: &str, expected: Why| {
            let (question, bytes) = asker.ask(&place(), &peer(name), &()).unwrap();
            let Err(MessageError::NotBelieved(denied)) = service.asked::<()>(&place(), &bytes) else {
                panic!("{name} is believed");
            };
            assert_eq!(denied, Denied { token: Role::of(name), why: expected });
            let told = asker.answered::<()>(&question, &Credentials::deny(denied)).unwrap_err();
            assert!(matches!(told, MessageError::Denied(told) if told == denied), "{told}");
        };
        for name in ["n2", "client-1"] {
            check(&nodes, &wrong, name, Why::Wrong);
            check(&nodes, &open, name, Why::Missing);
            check(&open, &nodes, name, Why::Unwanted);
        }
        let text = Denied { token: Role::Submitter, why: Why::Missing }.to_string();
        assert!(
            text.contains("asks for its submitters' token") && text.contains("security.submitters_token_file"),
            "{text}"
        );
    }
}
