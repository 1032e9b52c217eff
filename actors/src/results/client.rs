//! Results for clients: what any NATS client can do, in Rust.
//!
//! ```no_run
//! # async fn example(bus: exobus_bus::Bus) -> Result<(), Box<dyn std::error::Error>> {
//! use exobus_actors::results::ResultClient;
//! use exobus_bus::Subjects;
//!
//! let results = ResultClient::new(bus, Subjects::new("lab")?, "default");
//! for result in results.list().await?.results {
//!     let job = result.id.parse()?;
//!     let mut bytes = Vec::new();
//!     results.read_file(job, &0.into(), |piece| Ok(bytes.extend_from_slice(piece))).await?;
//! }
//! # Ok(())
//! # }
//! ```

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exobus_bus::{Bus, BusError, Message, Subjects};
use exobus_store::{Clock, CopyId};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::de::DeserializeOwned;
use twox_hash::XxHash3_128;

use super::record::FileKey;
use super::request::{self, Code, Op, Refused, Request, ResultInfo, ResultList, TicketInfo, hex};
use crate::ids::JobId;
use crate::transfer::tls::DataTls;
use crate::transfer::{ClientOptions, PeerName, TransferError, download};

/// How long one answer may take.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// How often what was not answered is asked again.
const TRIES: u32 = 5;
/// How long between two tries, and between two looks at a file that grows.
const AGAIN: Duration = Duration::from_millis(200);
/// Pieces of a file that are asked for at a time.
const PIECES: usize = 4;

/// Why a client does not get what it asked for.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The cluster says why.
    #[error("{0}")]
    Refused(Refused),
    /// The bus does not do what is asked; nobody answers.
    #[error("ask for a result")]
    Bus(#[from] BusError),
    /// The bytes, or what is said of them, are not what they should be.
    #[error("result {id}: {reason}")]
    Wrong {
        /// Which result.
        id: JobId,
        /// What is wrong.
        reason: String,
    },
    /// The data port of the node that has it does not give it.
    #[error("fetch a result from a node")]
    Transfer(#[source] Box<TransferError>),
    /// Who takes the bytes does not.
    #[error("write a result")]
    Take(#[source] io::Error),
}

impl ResultError {
    /// What the cluster says, for programs; `None`: it says nothing.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(refused) => Some(refused.code),
            _ => None,
        }
    }

    /// Whether it may be different in a moment.
    fn passes(&self) -> bool {
        match self {
            Self::Refused(refused) => refused.code == Code::Unavailable,
            Self::Bus(error) => matches!(error, BusError::TimedOut { .. } | BusError::NoResponders { .. }),
            _ => false,
        }
    }
}

/// Bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultPiece {
    /// The bytes; none: there are none at this offset yet, or the file ends here.
    pub bytes: Bytes,
    /// Where in the file they begin.
    pub offset: u64,
    /// Bytes that there are of the file by now.
    pub available: u64,
    /// Its length, where it is complete.
    pub total: Option<u64>,
}

impl From<u32> for FileKey {
    fn from(ordinal: u32) -> Self {
        Self::Ordinal(ordinal)
    }
}

impl From<&str> for FileKey {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

/// Asks for the results of a tenant.
#[derive(Clone)]
pub struct ResultClient {
    bus: Bus,
    subjects: Subjects,
    tenant: String,
    tls: Option<DataTls>,
}

impl std::fmt::Debug for ResultClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResultClient({} of {})", self.tenant, self.subjects.cluster())
    }
}

impl ResultClient {
    /// A client for a tenant of a cluster.
    pub fn new(bus: Bus, subjects: Subjects, tenant: &str) -> Self {
        Self { bus, subjects, tenant: tenant.to_owned(), tls: None }
    }

    /// The same for a cluster whose data connections have TLS: whom it believes to be a node.
    pub fn with_tls(self, tls: Option<DataTls>) -> Self {
        Self { tls, ..self }
    }

    async fn ask(&self, request: &Request) -> Result<Message, ResultError> {
        self.ask_counted(request).await.1
    }

    /// How often it was asked, and what came of it in the end.
    async fn ask_counted(&self, request: &Request) -> (u32, Result<Message, ResultError>) {
        let subject = self.subjects.api(&self.tenant, request::VERB).map_err(BusError::from);
        let subject = match subject {
            Ok(subject) => subject,
            Err(error) => return (0, Err(error.into())),
        };
        let payload = serde_json::to_vec(request).expect("plain data has a form in JSON");
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match self.ask_once(subject.clone(), &payload).await {
                Err(error) if tries < TRIES && error.passes() => error,
                outcome => return (tries, outcome),
            };
            tracing::debug!(%error, "asked again for a result");
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn ask_once(&self, subject: exobus_bus::Subject, payload: &[u8]) -> Result<Message, ResultError> {
        let answer = self.bus.request(subject, Message::new(payload.to_vec()), ANSWER_DEADLINE).await?;
        if answer.headers.get(request::ERROR).is_none() {
            return Ok(answer);
        }
        #[derive(serde::Deserialize)]
        struct Told {
            error: Refused,
        }
        let told = serde_json::from_slice::<Told>(&answer.payload);
        Err(ResultError::Refused(told.map_or_else(
            |error| Refused { code: Code::Unavailable, message: format!("an answer that cannot be read: {error}") },
            |told| told.error,
        )))
    }

    async fn ask_for<T: DeserializeOwned>(&self, job: JobId, request: &Request) -> Result<T, ResultError> {
        let answer = self.ask(request).await?;
        serde_json::from_slice(&answer.payload)
            .map_err(|error| wrong(job, format!("the answer cannot be read: {error}")))
    }

    /// The results of the tenant, the latest first.
    ///
    /// # Errors
    /// See [`ResultError`].
    pub async fn list(&self) -> Result<ResultList, ResultError> {
        self.ask_for(JobId::from_u128(0), &Request { op: Op::List, ..Request::default() }).await
    }

    /// What there is of a result.
    ///
    /// # Errors
    /// See [`ResultError`].
    pub async fn stat(&self, job: JobId) -> Result<ResultInfo, ResultError> {
        self.ask_for(job, &of(job, Op::Stat, &FileKey::default())).await
    }

    /// Frees a result now. Where it was asked again since no answer came, one that is not there is taken for deleted.
    ///
    /// # Errors
    /// See [`ResultError`].
    pub async fn delete(&self, job: JobId) -> Result<(), ResultError> {
        match self.ask_counted(&of(job, Op::Delete, &FileKey::default())).await {
            (2.., Err(error)) if error.code() == Some(Code::Unknown) => Ok(()),
            (_, outcome) => outcome.map(drop),
        }
    }

    /// What opens the data ports of the nodes that have a file.
    ///
    /// # Errors
    /// See [`ResultError`].
    pub async fn ticket(&self, job: JobId, file: &FileKey) -> Result<TicketInfo, ResultError> {
        self.ask_for(job, &of(job, Op::Ticket, file)).await
    }

    /// Bytes of a file from `offset` on, `length` or fewer, compared with their hash.
    ///
    /// # Errors
    /// See [`ResultError`].
    pub async fn read(&self, job: JobId, file: &FileKey, offset: u64, length: u64) -> Result<ResultPiece, ResultError> {
        let request = Request { offset, length: Some(length), ..of(job, Op::Read, file) };
        let answer = self.ask(&request).await?;
        let number = |name: &str| answer.headers.get(name).and_then(|value| value.parse::<u64>().ok());
        let expected = answer.headers.get(request::HASH);
        if let Some(expected) = expected
            && expected != hex(XxHash3_128::oneshot(&answer.payload))
        {
            return Err(wrong(job, format!("the bytes at {offset} do not fit their hash")));
        }
        let said = (number(request::OFFSET), number(request::AVAILABLE), answer.payload.len() as u64 <= length);
        let (Some(begins), Some(available), true) = said else {
            return Err(wrong(job, "the answer does not say what it is".to_owned()));
        };
        let total = number(request::TOTAL);
        Ok(ResultPiece { bytes: answer.payload, offset: begins, available, total })
    }

    /// Gives all bytes of a file to `take`, in order, over the bus; of one whose job still adds to it, as they come, until it is complete.
    ///
    /// # Errors
    /// See [`ResultError`]; what `take` was given before is right.
    pub async fn read_file(
        &self,
        job: JobId,
        file: &FileKey,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, ResultError> {
        let mut done = 0;
        loop {
            // Where members end, answers end: the next request begins there.
            let info = self.stat(job).await?;
            let found = match file {
                FileKey::Ordinal(index) => info.files.get(*index as usize),
                FileKey::Name(name) => info.files.iter().find(|info| info.name == *name),
            };
            let Some(found) = found else {
                // Says that there is none, in its own words.
                self.read(job, file, 0, 1).await?;
                continue;
            };
            let mut pieces = Vec::new();
            let mut begins = 0;
            for member in &found.members {
                let end = begins + member.bytes;
                let mut at = done.max(begins);
                while at < end {
                    let length = (end - at).min(request::LENGTH_MAX);
                    pieces.push((at, length));
                    at += length;
                }
                begins = end;
            }
            let reads = pieces.into_iter().map(|(at, length)| self.read_all(job, file, at, length));
            let mut reads = stream::iter(reads).buffered(PIECES);
            while let Some(bytes) = reads.try_next().await? {
                take(&bytes).map_err(ResultError::Take)?;
                done += bytes.len() as u64;
            }
            if found.total.is_some() {
                return Ok(done);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn read_all(&self, job: JobId, file: &FileKey, offset: u64, length: u64) -> Result<Bytes, ResultError> {
        let piece = self.read(job, file, offset, length).await?;
        match piece.bytes.len() as u64 == length && piece.offset == offset {
            true => Ok(piece.bytes),
            false => {
                Err(wrong(job, format!("{} bytes came where {length} at {offset} were asked for", piece.bytes.len())))
            }
        }
    }

    /// Gives all bytes of a file to `take`, in order, straight from the data ports of the nodes that have it. `take` runs on a thread that
    /// may block.
    ///
    /// # Errors
    /// See [`ResultError`]; what `take` was given is right as far as the next error is not about it.
    pub async fn fetch_file(
        &self,
        job: JobId,
        file: &FileKey,
        clock: Arc<dyn Clock>,
        mut take: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Result<u64, ResultError> {
        let ticket = self.ticket(job, file).await?;
        if !ticket.complete {
            return Err(wrong(job, "its job still adds to it: it is read over the bus".to_owned()));
        }
        let options = ClientOptions { tls: self.tls.clone(), ..ClientOptions::default() };
        let fetch = move || {
            let mut done = 0;
            for member in ticket.members.iter().filter(|member| member.bytes > 0) {
                done += fetch_member((job, &ticket), member, &options, &clock, &mut take)?;
            }
            Ok(done)
        };
        let fetched = tokio::task::spawn_blocking(fetch).await;
        fetched.unwrap_or_else(|error| Err(wrong(job, format!("the thread that fetched it ended: {error}"))))
    }
}

/// All bytes of a member, compared with its hash.
fn fetch_member(
    (job, ticket): (JobId, &TicketInfo),
    member: &request::TicketMember,
    options: &ClientOptions,
    clock: &Arc<dyn Clock>,
    take: &mut impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<u64, ResultError> {
    let number =
        |text: &str| u128::from_str_radix(text, 16).map_err(|_| wrong(job, "a ticket that cannot be read".into()));
    let object = CopyId::new(number(&ticket.group)?, number(&member.object)?);
    let peer = PeerName { node: member.node.clone(), address: member.address.clone() };
    let (mut hasher, mut not_taken) = (XxHash3_128::new(), None);
    let downloaded = download(&peer, &ticket.ticket, object, options, clock.clone(), |piece| {
        hasher.write(piece);
        take(piece).map_err(|error| {
            let told = io::Error::from(error.kind());
            not_taken = Some(error);
            told
        })
    });
    let done = downloaded.map_err(|error| match not_taken {
        Some(error) => ResultError::Take(error),
        None => ResultError::Transfer(Box::new(error)),
    })?;
    match hex(hasher.finish_128()) == member.hash && done == member.bytes {
        true => Ok(done),
        false => Err(wrong(job, format!("what came from {peer} does not fit its hash"))),
    }
}

fn of(job: JobId, op: Op, file: &FileKey) -> Request {
    Request { op, id: Some(job.to_string()), file: file.clone(), ..Request::default() }
}

fn wrong(id: JobId, reason: String) -> ResultError {
    ResultError::Wrong { id, reason }
}

#[cfg(test)]
mod tests {
    use exobus_store::disk::MemoryDisk;
    use exobus_store::{RowHash, Store, StoreOptions, SystemClock, WriterOptions};

    use super::*;
    use crate::transfer::TransferServer;

    const JOB: JobId = JobId::from_u128(7);

    /// A client, whose requests get these answers in order, and the last one ever after.
    async fn answered(answers: Vec<Message>) -> ResultClient {
        let (bus, subjects) = (Bus::in_process(), Subjects::new("lab").unwrap());
        let door = subjects.every_api(request::VERB).unwrap();
        let mut requests = bus.subscribe(door, exobus_bus::SubscribeOptions::small(4096)).await.unwrap();
        tokio::spawn(async move {
            let mut next = answers.iter();
            let mut last = None;
            while let Some(delivery) = requests.recv().await {
                last = next.next().or(last);
                delivery.try_reply(last.unwrap().clone()).unwrap();
            }
        });
        ResultClient::new(bus, subjects, "t")
    }

    fn bytes(bytes: &'static [u8], offset: u64) -> Message {
        let headers = [
            (request::HASH, hex(XxHash3_128::oneshot(bytes))),
            (request::OFFSET, offset.to_string()),
            (request::AVAILABLE, "9".to_owned()),
        ];
        request::answer(bytes, &headers)
    }

    #[tokio::test]
    async fn an_answer_that_is_not_what_was_asked_for_is_refused() {
        let file = FileKey::default();
        let right = answered(vec![bytes(b"abc", 2)]).await.read(JOB, &file, 2, 3).await.unwrap();
        assert_eq!((&right.bytes[..], right.offset, right.available, right.total), (&b"abc"[..], 2, 9, None));
        let garbled = Message::new("abd").with_header(request::HASH, &hex(XxHash3_128::oneshot(b"abc"))).unwrap();
        for (answer, word) in [
            (garbled, "do not fit their hash"),
            (bytes(b"abcd", 2), "does not say what it is"),
            (Message::new("abc"), "does not say what it is"),
        ] {
            let error = answered(vec![answer]).await.read(JOB, &file, 2, 3).await.unwrap_err();
            assert!(matches!(&error, ResultError::Wrong { reason, .. } if reason.contains(word)), "{error}");
        }
        for answer in [bytes(b"ab", 2), bytes(b"abc", 3)] {
            let error = answered(vec![answer]).await.read_all(JOB, &file, 2, 3).await.unwrap_err();
            assert!(matches!(&error, ResultError::Wrong { reason, .. } if reason.contains("3 at 2")), "{error}");
        }
    }

    #[tokio::test]
    async fn what_may_be_different_in_a_moment_is_asked_again_and_nothing_else() {
        let refusal = |code| request::refusal(&Refused::new(code, "not now"));
        let client = answered(vec![refusal(Code::Unavailable), bytes(b"abc", 0)]).await;
        assert_eq!(client.read(JOB, &FileKey::default(), 0, 3).await.unwrap().bytes, "abc");
        let client = answered(vec![refusal(Code::Lost), bytes(b"abc", 0)]).await;
        assert_eq!(client.read(JOB, &FileKey::default(), 0, 3).await.unwrap_err().code(), Some(Code::Lost));
        let client = answered(vec![refusal(Code::Unavailable)]).await;
        assert_eq!(client.read(JOB, &FileKey::default(), 0, 3).await.unwrap_err().code(), Some(Code::Unavailable));
    }

    #[tokio::test]
    async fn what_is_not_there_when_it_is_asked_again_to_delete_it_was_deleted() {
        let refusal = |code| request::refusal(&Refused::new(code, "not now"));
        let client = answered(vec![refusal(Code::Unavailable), refusal(Code::Unknown)]).await;
        client.delete(JOB).await.unwrap();
        let client = answered(vec![refusal(Code::Unknown)]).await;
        assert_eq!(client.delete(JOB).await.unwrap_err().code(), Some(Code::Unknown), "it never was there");
        let client = answered(vec![refusal(Code::Unavailable), refusal(Code::Unknown)]).await;
        assert_eq!(client.stat(JOB).await.unwrap_err().code(), Some(Code::Unknown));
    }

    #[test]
    fn what_a_data_port_gives_is_compared_with_its_hash_and_who_does_not_take_it_is_told_why() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let options =
            StoreOptions { memory_bytes: 64 << 20, spill_dirs: vec!["/spill".into()], ..StoreOptions::default() };
        let store = Store::open(options, Arc::new(MemoryDisk::new()), clock.clone()).unwrap();
        let mut writer = store.writer(CopyId::new(7, 1), WriterOptions::default());
        writer.begin_part(None).unwrap();
        writer.write(b"bytes of a member").unwrap();
        writer.end_part(1, RowHash(0));
        writer.seal().unwrap();
        let token = "a token of the tests";
        let server = TransferServer::start("127.0.0.1:0".parse().unwrap(), token, store, clock.clone()).unwrap();
        let member = |bytes, hash| request::TicketMember {
            node: String::new(),
            address: server.address().to_string(),
            object: hex(1),
            bytes,
            hash: hex(hash),
        };
        let (ticket, group) = (token.to_owned(), hex(7));
        let ticket = TicketInfo { ticket, until_unix_ms: 0, group, members: Vec::new(), complete: true };
        let hash = XxHash3_128::oneshot(b"bytes of a member");
        let options = ClientOptions::default();
        let fetched = |member| fetch_member((JOB, &ticket), &member, &options, &clock, &mut |_: &[u8]| Ok(()));
        assert_eq!(fetched(member(17, hash)).unwrap(), 17);
        for wrong in [member(17, hash + 1), member(18, hash)] {
            let error = fetched(wrong).unwrap_err();
            assert!(matches!(&error, ResultError::Wrong { reason, .. } if reason.contains("hash")), "{error}");
        }
        let full = |_: &[u8]| Err(io::Error::from(io::ErrorKind::StorageFull));
        let error = fetch_member((JOB, &ticket), &member(17, hash), &options, &clock, &mut { full }).unwrap_err();
        assert!(matches!(&error, ResultError::Take(error) if error.kind() == io::ErrorKind::StorageFull), "{error}");
    }
}
