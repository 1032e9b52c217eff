//! What a node and its executor processes tell each other: frames of a length and MessagePack over a socket pair. Both ends
//! are the same binary, so nothing is versioned.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use exobus_store::ObjectMeta;
use exobus_store::lent::{LentBlock, LentError, LentStream, Loan, Place, Room, WriterStep};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ids::{Attempt, JobId, TaskId};
use crate::task::{Align, Consumed, Output, Returns, TaskFailure, TaskFigures};

/// A longer frame is a mistake: nothing is allocated for it.
const FRAME_MAX: usize = 1 << 30;
/// How long a side may wait before it looks whether it should go on.
pub(super) const TICK: Duration = Duration::from_millis(20);
/// Descriptors that come with the first message: the region, the calls, the control, the last path.
pub(super) const DESCRIPTORS: usize = 4;

/// What the node says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToChild {
    /// First of all.
    Start,
    /// Is it there?
    Ping,
    /// Run an attempt.
    Run(Box<Run>),
    /// To the last question.
    Answer(Answer),
}

/// An attempt.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Run {
    /// What it is called on the control socket: rises with each.
    pub(super) serial: u64,
    /// Folders that it is kept to; none: it may read and write everywhere.
    #[serde(with = "crate::paths")]
    pub(super) roots: Vec<PathBuf>,
    pub(super) function: String,
    pub(super) params: Bytes,
    pub(super) job: JobId,
    pub(super) task: TaskId,
    pub(super) attempt: Attempt,
    pub(super) returns: Returns,
    pub(super) target_bytes: u64,
    pub(super) align: Align,
    pub(super) args: Vec<LentArgument>,
    pub(super) scratch: Vec<(u32, Place)>,
    /// One for each stream.
    pub(super) windows: Vec<(u32, Place)>,
    /// Memory beside the store that is granted.
    pub(super) outside_bytes: u64,
}

/// An argument.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum LentArgument {
    Whole(Vec<LentBlock>),
    Stream(Vec<LentStream>),
    InPlace(Vec<LentInPlace>),
}

/// An object that is looked at where it lies.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LentInPlace {
    /// Its number in this attempt.
    pub(super) number: u32,
    pub(super) meta: Option<ObjectMeta>,
    pub(super) parts: (u64, u64),
}

/// The answer to a question.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Room(Room),
    Sealed(ObjectMeta),
    Chunk(Option<Place>),
    Scratch(u32, Place),
    Granted,
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    Failed(LentError),
}

/// What an executor process says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FromChild {
    /// Not used any more.
    pub(super) given_back: Vec<Loan>,
    pub(super) said: Said,
}

/// What an executor process says, and which of it is answered.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// It is there: once it has mapped the region, and when it is asked.
    Ready,
    /// Nothing but what was given back.
    Nothing,
    /// Answered by `Room`.
    Room { writer: u32, steps: Vec<WriterStep> },
    /// Answered by `Sealed`.
    Seal { writer: u32, steps: Vec<WriterStep> },
    /// Answered by `Chunk`.
    NextChunk { reader: u32 },
    /// Answered by `Scratch`.
    Scratch { bytes: u64 },
    /// So much more memory beside the store is wanted. Answered by `Granted`, also while no attempt runs.
    Outside { more_bytes: u64 },
    /// Answered by `Bytes`.
    ReadInPlace { number: u32, offset: u64, bytes: u64 },
    /// A stream has one more output.
    Yielded { index: u32, output: Output },
    /// The attempt is over.
    Finished(Result<Done, TaskFailure>),
}

/// What an attempt leaves behind that succeeded.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) outputs: Vec<Output>,
    pub(super) consumed: Vec<Consumed>,
    pub(super) figures: TaskFigures,
    pub(super) value: Option<Bytes>,
}

/// One end of the socket that frames go over.
pub(super) struct Frames {
    stream: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Frames {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, incoming: Vec::new(), outgoing: Vec::new() }
    }

    /// Waits only a [`TICK`] before it asks whether to wait on.
    pub(super) fn with_ticks(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        Ok(Self::new(stream))
    }

    /// Sends a message. `go_on` is asked while the other side takes nothing.
    ///
    /// # Errors
    /// The other side is gone; `TimedOut`: not to go on.
    pub(super) fn send<T: Serialize>(&mut self, message: &T, go_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
        self.outgoing.clear();
        self.outgoing.extend([0; 4]);
        // With the names of fields: those that are left out where they say nothing would shift the others.
        rmp_serde::encode::write_named(&mut self.outgoing, message).map_err(io::Error::other)?;
        let length = self.outgoing.len() - 4;
        if length > FRAME_MAX {
            return Err(io::Error::other(format!("a message of {length} bytes")));
        }
        self.outgoing[..4].copy_from_slice(&(length as u32).to_le_bytes());
        let mut rest = &self.outgoing[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) => waits_on(error, go_on)?,
            }
        }
        Ok(())
    }

    /// The next message. `go_on` is asked while none comes.
    ///
    /// # Errors
    /// The other side is gone (`UnexpectedEof`), or talks nonsense; `TimedOut`: not to go on.
    pub(super) fn receive<T: DeserializeOwned>(&mut self, go_on: &mut dyn FnMut() -> bool) -> io::Result<T> {
        loop {
            if let Some((length, rest)) = self.incoming.split_first_chunk::<4>() {
                let length = u32::from_le_bytes(*length) as usize;
                if length > FRAME_MAX {
                    return Err(io::Error::other(format!("a message of {length} bytes")));
                }
                if let Some(message) = rest.get(..length) {
                    let message = rmp_serde::from_slice(message).map_err(io::Error::other);
                    self.incoming.drain(..4 + length);
                    return message;
                }
            }
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.incoming.extend_from_slice(&piece[..count]),
                Err(error) => waits_on(error, go_on)?,
            }
        }
    }
}

/// What the other side may say, from either end; what can be read can be written and read again.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_either(bytes: &[u8]) {
    fn read<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
        let Ok(message) = rmp_serde::from_slice::<T>(bytes) else { return };
        let again = rmp_serde::to_vec_named(&message).expect("it was read");
        assert!(rmp_serde::from_slice::<T>(&again).is_ok(), "what was written cannot be read");
    }
    read::<FromChild>(bytes);
    read::<ToChild>(bytes);
}

/// Messages of both sides: seeds for the above.
#[cfg(feature = "fuzzing")]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let failure = TaskFailure::new(crate::task::FailureKind::Error, "why");
    let said = [
        Said::Ready,
        Said::Nothing,
        Said::Room { writer: 1, steps: Vec::new() },
        Said::NextChunk { reader: 2 },
        Said::Scratch { bytes: 4096 },
        Said::Outside { more_bytes: 1 << 20 },
        Said::ReadInPlace { number: 3, offset: 64, bytes: 128 },
        Said::Finished(Err(failure)),
    ];
    let run = Run {
        roots: vec!["/data".into()],
        serial: 1,
        function: "f@1".to_owned(),
        params: Bytes::from_static(b"params"),
        job: JobId::from_u128(1),
        task: TaskId::from_u128(2),
        attempt: Attempt::nth(1),
        returns: Returns::One,
        target_bytes: 1 << 20,
        align: Align::SixtyFour,
        args: vec![LentArgument::InPlace(vec![LentInPlace { number: 0, meta: None, parts: (0, 1) }])],
        scratch: Vec::new(),
        windows: Vec::new(),
        outside_bytes: 0,
    };
    let told = [
        ToChild::Start,
        ToChild::Ping,
        ToChild::Run(Box::new(run)),
        ToChild::Answer(Answer::Chunk(None)),
        ToChild::Answer(Answer::Granted),
        ToChild::Answer(Answer::Bytes(vec![1, 2, 3])),
    ];
    let from = said.into_iter().map(|said| rmp_serde::to_vec_named(&FromChild { given_back: Vec::new(), said }));
    from.chain(told.iter().map(rmp_serde::to_vec_named)).map(|encoded| encoded.expect("it is small and flat")).collect()
}

/// An error that is none: it took long, or a signal came.
fn waits_on(error: io::Error, go_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if go_on() => Ok(()),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Err(io::ErrorKind::TimedOut.into()),
        _ => Err(error),
    }
}

/// Hands descriptors to the other side.
///
/// # Errors
/// What the system says.
pub(super) fn send_descriptors(socket: &UnixStream, descriptors: [BorrowedFd<'_>; DESCRIPTORS]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is space for them");
    rustix::net::sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes the descriptors that the other side hands over; they close on `execve`.
///
/// # Errors
/// What the system says; it sent others.
pub(super) fn receive_descriptors(socket: BorrowedFd<'_>) -> io::Result<[OwnedFd; DESCRIPTORS]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut received = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            received.extend(descriptors);
        }
    }
    received.try_into().map_err(|_| io::Error::other("the node sent other descriptors than expected"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Left;

    fn never() -> bool {
        false
    }

    #[test]
    fn frames_arrive_whole_and_in_order() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Frames::new(one), Frames::new(other));
        let long = Bytes::from(vec![7; 100_000]);
        let told = std::thread::scope(|scope| {
            scope.spawn(|| {
                for bytes in [Bytes::new(), long.clone(), Bytes::from_static(b"x")] {
                    one.send(&bytes, &mut never).unwrap();
                }
            });
            (0..3).map(|_| other.receive::<Bytes>(&mut never).unwrap().len()).collect::<Vec<_>>()
        });
        assert_eq!(told, [0, 100_000, 1]);
        drop(one);
        let error = other.receive::<Bytes>(&mut never).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn why_an_attempt_failed_arrives_with_all_that_it_needs() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Frames::new(one), Frames::new(other));
        let failure = TaskFailure { needs_bytes: 7, ..TaskFailure::new(crate::task::FailureKind::Denied, "why") };
        one.send(&FromChild { given_back: Vec::new(), said: Said::Finished(Err(failure.clone())) }, &mut never)
            .unwrap();
        let FromChild { said: Said::Finished(Err(arrived)), .. } = other.receive(&mut never).unwrap() else {
            panic!("it says something else")
        };
        assert_eq!(arrived, failure);
    }

    #[test]
    fn what_an_attempt_has_read_and_left_arrives() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Frames::new(one), Frames::new(other));
        let read = Output { bytes: 40, rows: 4, ..Output::default() };
        let consumed = [Left::Nothing, Left::Unread(read), Left::Missing(read)]
            .into_iter()
            .flat_map(|left| [true, false].map(|unsaid| Consumed { arg: 1, read, unsaid, left }))
            .collect();
        let done = Done {
            outputs: vec![read],
            consumed,
            figures: TaskFigures { args_bytes: 3, ..TaskFigures::default() },
            value: None,
        };
        let sent = done.consumed.clone();
        one.send(&FromChild { given_back: Vec::new(), said: Said::Finished(Ok(done)) }, &mut never).unwrap();
        let FromChild { said: Said::Finished(Ok(arrived)), .. } = other.receive(&mut never).unwrap() else {
            panic!("it says something else")
        };
        assert_eq!((arrived.consumed, arrived.figures.args_bytes), (sent, 3));
    }

    #[test]
    fn a_silent_side_is_waited_for_as_long_as_it_may_be() {
        let (one, _other) = UnixStream::pair().unwrap();
        let mut one = Frames::with_ticks(one).unwrap();
        let mut asked = 0;
        let mut three = || {
            asked += 1;
            asked < 3
        };
        assert_eq!(one.receive::<u32>(&mut three).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(asked, 3);
        let endless = Bytes::from(vec![0; 16 << 20]);
        assert_eq!(one.send(&endless, &mut never).unwrap_err().kind(), io::ErrorKind::TimedOut, "nobody reads");
    }

    #[test]
    fn a_frame_that_claims_too_much_is_refused() {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert!(Frames::new(other).receive::<Bytes>(&mut never).is_err());
    }

    #[test]
    fn descriptors_arrive_and_close_on_exec() {
        let (one, other) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        send_descriptors(&one, [file.as_fd(), one.as_fd(), one.as_fd(), one.as_fd()]).unwrap();
        for descriptor in receive_descriptors(other.as_fd()).unwrap() {
            let flags = rustix::io::fcntl_getfd(&descriptor).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }
}
