//! One connection from the asking side: hello, requests, and their answers.

use std::io;
use std::sync::Arc;

use exobus_store::{Block, Clock, CopyId, Fill, PartMeta, StoreError};

use super::copy::{self, CopyError, Target};
use super::error::{LinkError, PeerName, TransferError};
use super::fetch::Progress;
use super::link::Link;
use super::pool::Counters;
use super::server::BUSY;
use super::token::ClusterToken;
use super::wire::{self, AnswerHead, Hello, Item, Kind, Status};
use super::{ClientOptions, DirectoryList, FetchItem};

/// Read from the socket in pieces of this size.
pub(super) const CHUNK_BYTES: usize = 256 * 1024;

/// A connection whose peer has welcomed this node.
pub(super) struct Connection {
    link: Link,
    peer: PeerName,
}

/// The result for each item, in order, and whether the connection can be used again.
pub(super) type Fetched = (Vec<Result<Block, TransferError>>, bool);

impl Connection {
    /// Connects and introduces this node.
    ///
    /// # Errors
    /// `Unreachable`, `Refused`, `Busy`, or what happens to a connection.
    pub(super) fn open(
        peer: &PeerName,
        options: &ClientOptions,
        token: &ClusterToken,
        clock: Arc<dyn Clock>,
        progress: &Progress,
    ) -> Result<Self, TransferError> {
        let unreachable =
            |error: io::Error| TransferError::Unreachable { peer: peer.clone(), cause: error.to_string() };
        let socket = options.network.connect(&peer.address, options.connect).map_err(unreachable)?;
        let socket = match &options.tls {
            None => socket,
            Some(tls) => Arc::new(tls.ask(socket, &peer.node).map_err(|error| unreachable(io::Error::other(error)))?),
        };
        let mut link = Link::new(socket, clock, options.connect).map_err(unreachable)?;
        progress.holds(link.socket())?;
        let hello = Hello { token: token.expose(), from: &options.node, to: &peer.node };
        introduce(&mut link, &hello, options).map_err(|error| error.of(peer, 0))?.map_err(|reason| {
            match reason.strip_prefix(BUSY) {
                Some(_) => TransferError::Busy { peer: peer.clone(), reason },
                None => TransferError::Refused { peer: peer.clone(), reason },
            }
        })?;
        link.set_stall(options.stall);
        Ok(Self { link, peer: peer.clone() })
    }

    /// Whether the other side closed it meanwhile.
    pub(super) fn is_stale(&self) -> bool {
        self.link.is_stale()
    }

    /// Nothing is asked over it for a while.
    pub(super) fn rest(&self) {
        self.link.rest();
    }

    /// Lets `progress` shut this connection down.
    pub(super) fn held_by(&self, progress: &Progress) -> Result<(), TransferError> {
        progress.holds(self.link.socket())
    }

    /// Sends a request and waits for the first answer. After an error nothing has come, and another connection may be
    /// tried with the same items.
    pub(super) fn ask(&mut self, kind: Kind, items: &[Item]) -> Result<Option<AnswerHead>, TransferError> {
        self.link.begin();
        let request = wire::encode_request(kind, items);
        let sent = self.link.write(&request, &[]);
        let first = sent.and_then(|()| if items.is_empty() { Ok(None) } else { self.answer(0).map(Some) });
        first.map_err(|error| error.of(&self.peer, 0))
    }

    fn answer(&mut self, index: usize) -> Result<AnswerHead, LinkError> {
        let head = wire::decode_answer_head(&self.link.read_array::<{ wire::ANSWER_BYTES }>()?)?;
        match head.index as usize == index {
            true => Ok(head),
            false => Err(LinkError::Garbled(format!("answer {} came for item {index}", head.index))),
        }
    }

    /// The directories that were asked for.
    pub(super) fn directories(
        &mut self,
        first: Option<AnswerHead>,
        items: &[Item],
    ) -> Result<DirectoryList, TransferError> {
        let mut first = first;
        let mut list = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let head = match first.take() {
                Some(head) => head,
                None => self.answer(index).map_err(|error| error.of(&self.peer, 0))?,
            };
            match self.directory(&head).map_err(|error| error.of(&self.peer, 0))? {
                Ok(parts) => list.push(parts),
                Err(reason) => {
                    return Err(TransferError::Failed { peer: self.peer.clone(), object: item.object, reason });
                }
            }
        }
        Ok(list)
    }

    fn directory(&mut self, head: &AnswerHead) -> Result<Result<Option<Vec<PartMeta>>, String>, LinkError> {
        if head.length > wire::DIRECTORY_BYTES_MAX {
            return Err(LinkError::Garbled(format!("a directory of {} bytes", head.length)));
        }
        let body = self.link.read_vec(head.length)?;
        head.verify(&body)?;
        Ok(match head.status {
            Status::Here => Ok(Some(wire::decode_parts(&body)?)),
            Status::Absent => Ok(None),
            Status::Failed => Err(String::from_utf8_lossy(&body).into_owned()),
        })
    }

    /// The bytes that were asked for, into the fills. What cannot be completed is dropped.
    pub(super) fn fetch(
        &mut self,
        first: Option<AnswerHead>,
        items: Vec<FetchItem>,
        progress: &Progress,
        counters: &Counters,
    ) -> Fetched {
        let mut first = first;
        let mut results = Vec::with_capacity(items.len());
        let mut broken: Option<TransferError> = None;
        for (index, item) in items.into_iter().enumerate() {
            if let Some(error) = &broken {
                results.push(Err(error.clone()));
                continue;
            }
            let head = match first.take() {
                Some(head) => Ok(head),
                None => self.answer(index),
            };
            let object = item.object;
            let outcome = match head {
                Ok(head) => self.receive(&head, item, progress),
                Err(error) => Err(Failure::Link(error)),
            };
            let error = match outcome {
                Ok(block) => {
                    counters.items.add(1);
                    results.push(Ok(block));
                    continue;
                }
                Err(Failure::Item(error)) => *error,
                Err(Failure::Link(error)) => {
                    let error = error.of(&self.peer, progress.bytes());
                    broken = Some(error.clone());
                    error
                }
                Err(Failure::Corrupt(cause)) => {
                    // The connection may be what garbles: nothing more comes over it.
                    let bytes = progress.bytes();
                    let rest = "closed by this node after corrupt bytes".to_owned();
                    broken = Some(TransferError::Interrupted { peer: self.peer.clone(), bytes, cause: rest });
                    TransferError::Corrupt { peer: self.peer.clone(), object, cause }
                }
            };
            let corrupt = matches!(error, TransferError::Corrupt { .. });
            (if corrupt { &counters.corrupt } else { &counters.failed }).add(1);
            results.push(Err(error));
        }
        (results, broken.is_none())
    }

    /// Whether the item's bytes follow.
    fn bytes_follow(&mut self, head: &AnswerHead, object: CopyId) -> Result<(), Failure> {
        let peer = self.peer.clone();
        match head.status {
            Status::Here => head.verify(&[])?,
            Status::Absent => {
                head.verify(&[])?;
                return Err(Failure::Item(Box::new(TransferError::Absent { peer, object })));
            }
            Status::Failed => {
                let body = self.link.read_vec(head.length)?;
                head.verify(&body)?;
                let reason = String::from_utf8_lossy(&body).into_owned();
                return Err(Failure::Item(Box::new(TransferError::Failed { peer, object, reason })));
            }
        }
        Ok(())
    }

    fn receive(&mut self, head: &AnswerHead, item: FetchItem, progress: &Progress) -> Result<Block, Failure> {
        let FetchItem { object, mut fill, .. } = item;
        self.bytes_follow(head, object)?;
        expect(head, fill.bytes())?;
        pour(&mut self.link, &mut fill, progress)?;
        fill.finish().map_err(|error| match error {
            StoreError::Corrupt { .. } => Failure::Corrupt(error.to_string()),
            StoreError::Incomplete { .. } => Failure::Link(LinkError::Garbled(error.to_string())),
            cause => Failure::Item(Box::new(TransferError::Store { object, cause })),
        })
    }

    /// Has the bytes that were asked for read by `pass`, which reads as many as the directory says. After an error the connection is of no
    /// use.
    pub(super) fn pass_on(
        &mut self,
        head: &AnswerHead,
        parts: &[PartMeta],
        object: CopyId,
        pass: impl FnOnce(&mut Link) -> Result<u64, PassError>,
    ) -> Result<u64, TransferError> {
        let range = wire::byte_range(parts);
        let begun = self.bytes_follow(head, object);
        let begun = begun.and_then(|()| Ok(expect(head, range.end - range.start)?));
        let failure = match begun.map(|()| pass(&mut self.link)) {
            Ok(Ok(bytes)) => return Ok(bytes),
            Ok(Err(PassError::Taken(error))) => {
                return Err(TransferError::Taken { object, cause: error.to_string() });
            }
            Ok(Err(PassError::Link(error))) => Failure::Link(error),
            Ok(Err(PassError::Corrupt(cause))) => Failure::Corrupt(cause),
            Err(failure) => failure,
        };
        Err(match failure {
            Failure::Item(error) => *error,
            Failure::Link(error) => error.of(&self.peer, 0),
            Failure::Corrupt(cause) => TransferError::Corrupt { peer: self.peer.clone(), object, cause },
        })
    }

    /// The bytes that were asked for, as a new object of this node's store. After an error the connection is of no
    /// use.
    pub(super) fn copy(
        &mut self,
        head: &AnswerHead,
        parts: &[PartMeta],
        target: &Target,
        progress: &Progress,
    ) -> Result<CopyId, TransferError> {
        let object = target.object;
        let range = wire::byte_range(parts);
        let begun = self.bytes_follow(head, object);
        let failure = match begun.and_then(|()| Ok(expect(head, range.end - range.start)?)) {
            Ok(()) => match copy::receive(&mut self.link, parts, target, progress) {
                Ok(copy) => return Ok(copy),
                Err(CopyError::Link(error)) => Failure::Link(error),
                Err(CopyError::Store(cause)) => Failure::Item(Box::new(TransferError::Store { object, cause })),
                Err(CopyError::Corrupt(cause)) => Failure::Corrupt(cause),
            },
            Err(failure) => failure,
        };
        Err(match failure {
            Failure::Item(error) => *error,
            Failure::Link(error) => error.of(&self.peer, progress.bytes()),
            Failure::Corrupt(cause) => TransferError::Corrupt { peer: self.peer.clone(), object, cause },
        })
    }
}

/// Why bytes were not passed on to the end.
pub(super) enum PassError {
    /// The connection is of no use any more.
    Link(LinkError),
    /// The bytes are wrong.
    Corrupt(String),
    /// Who takes them does not.
    Taken(io::Error),
}

impl From<LinkError> for PassError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

/// Directories come from outside: a part that begins before the last one ended is no part.
pub(super) fn overlap() -> LinkError {
    LinkError::Garbled("parts of a directory overlap".to_owned())
}

/// Why an item did not come.
enum Failure {
    /// The connection is of no use any more.
    Link(LinkError),
    /// The bytes are wrong.
    Corrupt(String),
    /// Only this item is concerned.
    Item(Box<TransferError>),
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<wire::WireError> for Failure {
    fn from(error: wire::WireError) -> Self {
        Self::Link(error.into())
    }
}

/// Whether as many bytes come as the directory said.
fn expect(head: &AnswerHead, bytes: u64) -> Result<(), LinkError> {
    match head.length == bytes {
        true => Ok(()),
        false => Err(LinkError::Garbled(format!("{} bytes come, its directory said {bytes}", head.length))),
    }
}

/// Moves bytes from the socket to where they belong.
fn pour(link: &mut Link, fill: &mut Fill, progress: &Progress) -> Result<(), LinkError> {
    loop {
        let spare = fill.spare();
        if spare.is_empty() {
            return Ok(());
        }
        let most = spare.len().min(CHUNK_BYTES);
        let count = link.read(&mut spare[..most])?;
        fill.advance(count);
        progress.add(count as u64);
    }
}

/// Hello and welcome; `Err` of the inner: the reason of a refusal.
fn introduce(link: &mut Link, hello: &Hello<'_>, options: &ClientOptions) -> Result<Result<(), String>, LinkError> {
    link.write(&wire::encode_hello(hello), &[])?;
    let silent = || LinkError::Stalled { millis: options.connect.as_millis() as u64 };
    if !link.wait(options.connect)? {
        return Err(if link.is_stale() { LinkError::Ended } else { silent() });
    }
    let (refused, length) = wire::decode_welcome_head(&link.read_array::<{ wire::WELCOME_BYTES }>()?)?;
    let text = link.read_vec(length as u64)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(if refused { Err(text) } else { Ok(()) })
}
