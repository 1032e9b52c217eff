//! What clients ask for on `api.<tenant>.result`, and how they are answered: JSON in, bytes with headers or JSON out. Pure.
//!
//! | request                                        | answer                                                                     |
//! |------------------------------------------------|----------------------------------------------------------------------------|
//! | `{"id", "file", "offset", "length"}`           | bytes of a file from `offset`, at most `length` of them, at most to the end of a member |
//! | `{"op": "stat", "id"}`                         | [`ResultInfo`]: its files, their sizes, until when it is there               |
//! | `{"op": "list"}`                               | [`ResultList`]: the results of the tenant                                     |
//! | `{"op": "ticket", "id", "file"}`               | [`TicketInfo`]: where its members are, and what opens the data ports there    |
//! | `{"op": "delete", "id"}`                       | `{"deleted": true}`                                                         |
//!
//! `file` is its name or its number from 0, which is the default, as are offset 0 and the greatest length. An answer without bytes says
//! that there are none at `offset` yet, or (`Exo-Complete: true`) that the file ends there.
//!
//! | header of bytes       | what                                                                         |
//! |-----------------------|------------------------------------------------------------------------------|
//! | `Exo-Hash`            | xxh3-128 of the bytes of this answer, 32 hexadecimal digits                    |
//! | `Exo-Offset`          | where in the file they begin                                                   |
//! | `Exo-Complete`        | `true`: nothing will be appended to the file; `false`: its job runs              |
//! | `Exo-Total`           | length of the file, where it is complete                                       |
//! | `Exo-Available`       | bytes that there are of it by now                                              |
//! | `Exo-File-Hash`       | xxh3-128 of the whole file, where it is complete and has one member             |
//! | `Exo-Member-Offset`, `Exo-Member-Bytes`, `Exo-Member-Hash` | the member that the bytes are of: where it begins in the file, its length, the xxh3-128 of all of it |
//!
//! What cannot be done is answered with the header `Exo-Error` (a code of [`Code`]) and `{"error": {"code", "message"}}`.

use std::fmt;

use bytes::Bytes;
use exobus_bus::{Message, Subject};
use serde::{Deserialize, Serialize};

use super::record::{FileKey, FileRecord, ResultRecord};
use crate::ids::JobId;

/// The verb of the door: the last token of its subject.
pub const VERB: &str = "result";
/// Most bytes that one request is answered with.
pub const LENGTH_MAX: u64 = 512 * 1024;
/// A request of more bytes is none.
pub const REQUEST_BYTES_MAX: usize = 4096;
/// Results in one list.
pub const LISTED_MAX: usize = 256;

/// Header: what went wrong, a [`Code`].
pub const ERROR: &str = "Exo-Error";
/// Header: xxh3-128 of the bytes of the answer.
pub const HASH: &str = "Exo-Hash";
/// Header: where in the file they begin.
pub const OFFSET: &str = "Exo-Offset";
/// Header: whether the file is complete.
pub const COMPLETE: &str = "Exo-Complete";
/// Header: length of a complete file.
pub const TOTAL: &str = "Exo-Total";
/// Header: bytes that there are by now.
pub const AVAILABLE: &str = "Exo-Available";
/// Header: xxh3-128 of a complete file of one member.
pub const FILE_HASH: &str = "Exo-File-Hash";
/// Header: where the member of these bytes begins in the file.
pub const MEMBER_OFFSET: &str = "Exo-Member-Offset";
/// Header: its length.
pub const MEMBER_BYTES: &str = "Exo-Member-Bytes";
/// Header: its xxh3-128.
pub const MEMBER_HASH: &str = "Exo-Member-Hash";

/// What is asked of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Bytes of a file.
    #[default]
    Read,
    /// What there is of it.
    Stat,
    /// Which results there are.
    List,
    /// What opens the data ports of the nodes that have it.
    Ticket,
    /// To go, now.
    Delete,
}

/// A request as it travels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What is asked.
    #[serde(default)]
    pub op: Op,
    /// Which result: the id of its job, 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Which file.
    #[serde(default)]
    pub file: FileKey,
    /// From where in it.
    #[serde(default)]
    pub offset: u64,
    /// At most so many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

/// What went wrong, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// It is no request.
    BadRequest,
    /// There is no such result of this tenant.
    Unknown,
    /// The result has no such file.
    NoSuchFile,
    /// There is no such byte in the file, or not yet.
    OffsetBeyondEnd,
    /// More bytes were asked for than one answer has.
    LengthTooLarge,
    /// The time of the result is over.
    Expired,
    /// The bytes are gone for good.
    Lost,
    /// The node that has the bytes is not there.
    Unreachable,
    /// What is known of it is not read here: another release wrote it, say.
    Unreadable,
    /// Not now: ask again.
    Unavailable,
}

impl Code {
    /// As it stands in header and answer.
    pub fn token(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Unknown => "unknown",
            Self::NoSuchFile => "no_such_file",
            Self::OffsetBeyondEnd => "offset_beyond_end",
            Self::LengthTooLarge => "length_too_large",
            Self::Expired => "expired",
            Self::Lost => "lost",
            Self::Unreachable => "unreachable",
            Self::Unreadable => "unreadable",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Why a request is not answered with what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// For programs.
    pub code: Code,
    /// For people.
    pub message: String,
}

impl Refused {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Nothing of this id, as far as this tenant may know.
    pub(crate) fn unknown(id: &str) -> Self {
        Self::new(Code::Unknown, format!("no result {id} of this tenant: it was never there, or was deleted"))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code.token())
    }
}

/// A file of a result, for who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Its name.
    pub name: String,
    /// Bytes that there are of it.
    pub available: u64,
    /// Its length, where it is complete.
    pub total: Option<u64>,
    /// xxh3-128 of all of it, where it is complete and has one member.
    pub hash: Option<String>,
    /// Its members, in order.
    pub members: Vec<MemberInfo>,
}

/// A member of a file, for who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberInfo {
    /// Bytes.
    pub bytes: u64,
    /// xxh3-128 of them.
    pub hash: String,
}

/// A result, for who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultInfo {
    /// Its id: that of its job.
    pub id: String,
    /// When it was begun, milliseconds since 1970.
    pub made_unix_ms: u64,
    /// Until when it is there.
    pub until_unix_ms: u64,
    /// Its files; none in a list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileInfo>,
    /// How many files it has.
    pub file_count: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Whether its job may add to it still.
    pub complete: bool,
}

/// The results of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultList {
    /// The latest first.
    pub results: Vec<ResultInfo>,
    /// How many more there are; one that was changed in that moment may count twice.
    pub more: u64,
    /// Those of which nothing can be said but why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableResult>,
}

/// A result whose record another release wrote, say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableResult {
    /// Its id.
    pub id: String,
    /// For people: why its record is not read, and what to do.
    pub message: String,
}

/// What opens the data ports of nodes for a result, for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketInfo {
    /// What is shown there, as the token of a hello.
    pub ticket: String,
    /// Until when it is taken, milliseconds since 1970.
    pub until_unix_ms: u64,
    /// The group of the objects that it opens, 32 hexadecimal digits.
    pub group: String,
    /// The members of the file, in order.
    pub members: Vec<TicketMember>,
    /// Whether the file is complete.
    pub complete: bool,
}

/// Where a member of a file can be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketMember {
    /// The node.
    pub node: String,
    /// Where its data port listens.
    pub address: String,
    /// What it is called there, within the group, 32 hexadecimal digits.
    pub object: String,
    /// Bytes.
    pub bytes: u64,
    /// xxh3-128 of them.
    pub hash: String,
}

/// A request, if the payload is one.
///
/// # Errors
/// `BadRequest`, in words.
pub fn parse(payload: &[u8]) -> Result<Request, Refused> {
    if payload.is_empty() {
        let text = format!("a request is a JSON object of up to {REQUEST_BYTES_MAX} bytes");
        return Err(Refused::new(Code::BadRequest, text));
    }
    serde_json::from_slice(payload)
        .map_err(|error| Refused::new(Code::BadRequest, format!("the request is no JSON object of this form: {error}")))
}

impl Request {
    /// The job whose result it is.
    ///
    /// # Errors
    /// `BadRequest`: there is no id. `Unknown`: no job has such an id.
    pub fn job(&self) -> Result<JobId, Refused> {
        let id = self.id.as_deref().ok_or_else(|| Refused::new(Code::BadRequest, "the request names no id"))?;
        let is_id = id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
        id.parse().ok().filter(|_| is_id).ok_or_else(|| Refused::unknown(&shown(id)))
    }

    /// At most so many bytes are wanted.
    ///
    /// # Errors
    /// `LengthTooLarge`; `BadRequest`: none.
    pub fn length(&self) -> Result<u64, Refused> {
        match self.length {
            None => Ok(LENGTH_MAX),
            Some(0) => Err(Refused::new(Code::BadRequest, "a length of 0 asks for nothing")),
            Some(length) if length > LENGTH_MAX => {
                let text = format!("{length} bytes were asked for, one answer has up to {LENGTH_MAX}");
                Err(Refused::new(Code::LengthTooLarge, text))
            }
            Some(length) => Ok(length),
        }
    }
}

/// Of a text that somebody sent, so much as people want to read.
fn shown(text: &str) -> String {
    text.chars().take(40).map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// The file that is meant.
///
/// # Errors
/// `NoSuchFile`; `Expired`.
pub(crate) fn file_of<'a>(
    record: &'a ResultRecord,
    key: &FileKey,
    now_unix_ms: u64,
) -> Result<(u32, &'a FileRecord), Refused> {
    in_time(record, now_unix_ms)?;
    record.file(key).ok_or_else(|| {
        let wanted = match key {
            FileKey::Ordinal(index) => format!("file {index}"),
            FileKey::Name(name) => format!("file {:?}", shown(name)),
        };
        Refused::new(Code::NoSuchFile, format!("the result has no {wanted}; it has {} by now", record.files.len()))
    })
}

/// Whether the result is there still.
///
/// # Errors
/// `Expired`.
pub(crate) fn in_time(record: &ResultRecord, now_unix_ms: u64) -> Result<(), Refused> {
    match record.is_over(now_unix_ms) {
        true => Err(Refused::new(Code::Expired, "the time of the result is over: its bytes are gone")),
        false => Ok(()),
    }
}

/// A hash as it stands in headers and answers.
pub fn hex(hash: u128) -> String {
    format!("{hash:032x}")
}

pub(crate) fn file_hash(file: &FileRecord) -> Option<String> {
    let [member] = file.members.as_slice() else { return None };
    file.complete.then(|| hex(member.hash))
}

pub(crate) fn file_info(file: &FileRecord) -> FileInfo {
    let member = |member: &super::record::MemberRecord| MemberInfo { bytes: member.bytes, hash: hex(member.hash) };
    FileInfo {
        name: file.name.to_string(),
        available: file.bytes(),
        total: file.complete.then(|| file.bytes()),
        hash: file_hash(file),
        members: file.members.iter().map(member).collect(),
    }
}

pub(crate) fn info(job: JobId, record: &ResultRecord, with_files: bool) -> ResultInfo {
    ResultInfo {
        id: job.to_string(),
        made_unix_ms: record.made_unix_ms,
        until_unix_ms: record.until_unix_ms,
        files: if with_files { record.files.iter().map(file_info).collect() } else { Vec::new() },
        file_count: record.files.len() as u64,
        bytes: record.bytes(),
        complete: record.files.iter().all(|file| file.complete),
    }
}

/// An answer in JSON.
pub(crate) fn json(value: &impl Serialize) -> Message {
    Message::new(serde_json::to_vec(value).expect("plain data has a form in JSON"))
}

/// The answer to who is refused.
pub(crate) fn refusal(refused: &Refused) -> Message {
    let message = json(&serde_json::json!({ "error": refused }));
    message.with_header(ERROR, refused.code.token()).expect("a token is a value of a header")
}

/// What stands beside bytes.
pub(crate) fn answer(bytes: impl Into<Bytes>, headers: &[(&str, String)]) -> Message {
    headers.iter().fold(Message::new(bytes), |message, (name, value)| {
        message.with_header(name, value).expect("numbers and hashes are values of headers")
    })
}

/// The tenant that a subject of the door is of: `exo.v1.<cluster>.api.<tenant>.result`.
pub(crate) fn tenant_of(subject: &Subject) -> Option<&str> {
    subject.tokens().nth(4)
}

#[cfg(test)]
mod tests {
    use super::super::record::MemberRecord;
    use super::*;
    use crate::ids::NodeId;

    fn refused(payload: &str) -> Refused {
        parse(payload.as_bytes()).and_then(|request| request.job().and(request.length())).unwrap_err()
    }

    #[test]
    fn a_request_that_is_none_is_told_so_with_what_is_wrong() {
        for (payload, code, word) in [
            ("", Code::BadRequest, "up to 4096"),
            ("{", Code::BadRequest, "EOF"),
            ("[1,2", Code::BadRequest, "JSON"),
            (r#"{"id": 7}"#, Code::BadRequest, "string"),
            (r#"{"id": "x", "ofset": 7}"#, Code::BadRequest, "ofset"),
            (r#"{"offset": -1}"#, Code::BadRequest, "-1"),
            (r#"{"op": "steal"}"#, Code::BadRequest, "steal"),
            (r#"{}"#, Code::BadRequest, "no id"),
            (r#"{"id": "abc"}"#, Code::Unknown, "abc"),
            (r#"{"id": "+0000000000000000000000000000000"}"#, Code::Unknown, "no result"),
            (r#"{"id": "00000000000000000000000000000001", "length": 0}"#, Code::BadRequest, "0"),
            (r#"{"id": "00000000000000000000000000000001", "length": 524289}"#, Code::LengthTooLarge, "524288"),
        ] {
            let refused = refused(payload);
            assert_eq!(refused.code, code, "{payload}");
            assert!(refused.message.contains(word), "{payload}: {}", refused.message);
        }
    }

    #[test]
    fn of_a_text_that_somebody_sent_so_much_is_said_as_people_want_to_read() {
        let said = refused(&format!(r#"{{"id": "\u0007{}"}}"#, "x".repeat(1000))).message;
        assert!(said.contains("?xxx") && said.len() < 200, "{said}");
    }

    #[test]
    fn how_long_a_file_is_and_its_hash_are_said_when_it_is_complete() {
        let mut record = ResultRecord::new(1, 2);
        let member = |hash| MemberRecord { bytes: 3, hash, node: NodeId::new("n"), kept: 0, copy: 0 };
        record.set_member((0, &"rows".into()), 0, member(7));
        record.set_member((1, &"more".into()), 0, member(8));
        record.files[1].complete = true;
        let [rows, more] = &info(JobId::from_u128(7), &record, true).files[..] else { panic!("two files") };
        assert_eq!((rows.available, rows.total, rows.hash.as_ref()), (3, None, None));
        assert_eq!((more.available, more.total, more.hash.clone()), (3, Some(3), Some(hex(8))));
        assert!(!info(JobId::from_u128(7), &record, false).complete);
        record.files[0].complete = true;
        assert!(info(JobId::from_u128(7), &record, false).complete);
        record.set_member((0, &"rows".into()), 1, member(9));
        assert_eq!(file_hash(&record.files[0]), None, "of two members there is none");
        assert_eq!(parse(br#"{"id": "x", "length": 524288}"#).unwrap().length().unwrap(), LENGTH_MAX);
        let over = file_of(&record, &FileKey::default(), 2).unwrap_err();
        assert_eq!(over.code, Code::Expired);
    }

    #[test]
    fn a_subject_of_the_door_says_whose_it_is() {
        let subject = exobus_bus::Subjects::new("lab").unwrap().api("somebody", VERB).unwrap();
        assert_eq!(tenant_of(&subject), Some("somebody"));
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        let request = parse(br#"{"id": "00000000000000000000000000000001"}"#).unwrap();
        assert_eq!((request.op, request.offset, request.length().unwrap()), (Op::Read, 0, LENGTH_MAX));
        assert_eq!((request.file, request.id.is_some()), (FileKey::Ordinal(0), true));
        let named = parse(br#"{"id": "00000000000000000000000000000001", "file": "rows", "op": "stat"}"#).unwrap();
        assert_eq!((named.file, named.op), (FileKey::Name("rows".into()), Op::Stat));
    }

    #[test]
    fn codes_are_the_same_in_headers_and_answers() {
        for code in [
            Code::BadRequest,
            Code::Unknown,
            Code::NoSuchFile,
            Code::OffsetBeyondEnd,
            Code::LengthTooLarge,
            Code::Expired,
            Code::Lost,
            Code::Unreachable,
            Code::Unreadable,
            Code::Unavailable,
        ] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.token());
        }
    }
}
