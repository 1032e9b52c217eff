//! What is known of a result: its files, where their members are, and until when. Pure.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{CopyId, JobId, NodeId, as_bytes};

/// The version of records; a change of their types is another version.
///
/// 1: records had no version but the codec's, and no checksum. 2: this.
pub const RECORD_VERSION: u8 = 2;

/// The record of a result, as it stands in the bucket of results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultRecord {
    /// When it was begun, milliseconds since 1970 by the clock of the node that hosted the job.
    pub made_unix_ms: u64,
    /// Until when it is kept. While its job runs the time is renewed.
    pub until_unix_ms: u64,
    /// Its time is over: nothing of it is there any more.
    pub expired: bool,
    /// Its files, in the order in which the program began them.
    pub files: Vec<FileRecord>,
}

/// A file of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// What the program calls it; unique in its result.
    pub name: Arc<str>,
    /// Whether nothing more will be appended.
    pub complete: bool,
    /// What it consists of, in order.
    pub members: Vec<MemberRecord>,
}

/// A member of a file: the bytes of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// How many bytes.
    pub bytes: u64,
    /// The xxh3-128 of them.
    #[serde(with = "as_bytes")]
    pub hash: u128,
    /// The node that has them.
    pub node: NodeId,
    /// Under what number of the result that node keeps it. An object that was appended twice is kept once.
    pub kept: u64,
    /// What the copy was called in its job: files on disk may know it by that name alone.
    #[serde(with = "as_bytes")]
    pub copy: u128,
}

/// Which file of a result is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FileKey {
    /// The how manieth, from 0.
    Ordinal(u32),
    /// The one of this name.
    Name(String),
}

impl Default for FileKey {
    fn default() -> Self {
        Self::Ordinal(0)
    }
}

/// The number under which a member is kept that is the first of its object.
pub(crate) fn kept_number(file: u32, member: u32) -> u64 {
    u64::from(file) << 32 | u64::from(member)
}

/// What is called so in the store of the node that keeps it.
pub(crate) fn kept_name(job: JobId, kept: u64) -> CopyId {
    CopyId::new(job.result_group(), u128::from(kept))
}

/// What a member is called there while it is fetched and something else has its name; on disk it may be called so for good.
pub(crate) fn replacing_name(job: JobId, kept: u64) -> CopyId {
    CopyId::new(job.result_group(), REPLACING | u128::from(kept))
}

/// The number under which something in the group of a result is kept, or is going to be.
pub(crate) fn number_of(name: CopyId) -> Option<u64> {
    u64::try_from(name.bits & !REPLACING).ok()
}

/// No kept number.
const REPLACING: u128 = 1 << 64;

/// Where in a file an offset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePlace {
    /// In this member, which begins at this offset of the file.
    In {
        /// Which one.
        member: u32,
        /// Where it begins.
        begins: u64,
    },
    /// At the end of what there is.
    AtEnd,
    /// Behind it.
    Beyond,
}

impl FileRecord {
    /// Bytes that there are by now.
    pub fn bytes(&self) -> u64 {
        self.members.iter().map(|member| member.bytes).sum()
    }

    /// Where an offset is.
    pub fn place(&self, offset: u64) -> FilePlace {
        let mut begins = 0;
        for (index, member) in self.members.iter().enumerate() {
            if offset < begins + member.bytes {
                return FilePlace::In { member: index as u32, begins };
            }
            begins += member.bytes;
        }
        if offset == begins { FilePlace::AtEnd } else { FilePlace::Beyond }
    }
}

impl ResultRecord {
    /// A result without files.
    pub fn new(now_unix_ms: u64, until_unix_ms: u64) -> Self {
        Self { made_unix_ms: now_unix_ms, until_unix_ms, expired: false, files: Vec::new() }
    }

    /// Whether its time is over.
    pub fn is_over(&self, now_unix_ms: u64) -> bool {
        self.expired || self.until_unix_ms <= now_unix_ms
    }

    /// A file, and the how manieth it is.
    pub fn file(&self, key: &FileKey) -> Option<(u32, &FileRecord)> {
        let index = match key {
            FileKey::Ordinal(index) => *index as usize,
            FileKey::Name(name) => self.files.iter().position(|file| *file.name == **name)?,
        };
        self.files.get(index).map(|file| (index as u32, file))
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(FileRecord::bytes).sum()
    }

    /// Whether this node has anything of it.
    pub fn is_at(&self, node: &NodeId) -> bool {
        self.nodes().any(|at| at == node)
    }

    /// The nodes that have something of it; some several times.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeId> {
        self.files.iter().flat_map(|file| &file.members).filter(|member| member.bytes > 0).map(|member| &member.node)
    }

    /// What is kept under this number is at another node from now on. False: no member is kept so at `from`.
    pub fn moved(&mut self, kept: u64, from: &NodeId, to: &NodeId) -> bool {
        let members = self.files.iter_mut().flat_map(|file| &mut file.members);
        let mut moved = false;
        for member in members.filter(|member| member.kept == kept && member.node == *from) {
            member.node = to.clone();
            moved = true;
        }
        moved
    }

    /// Members, each kept number once.
    pub fn kept(&self) -> impl Iterator<Item = (u64, &MemberRecord)> {
        let mut seen = std::collections::BTreeSet::new();
        let members = self.files.iter().flat_map(|file| &file.members).filter(|member| member.bytes > 0);
        members.filter(move |member| seen.insert(member.kept)).map(|member| (member.kept, member))
    }

    /// Puts a member where it belongs; said again, nothing changes. A file may not be there yet. False, and nothing is put anywhere: an
    /// earlier member is not there.
    pub fn set_member(&mut self, (file, name): (u32, &Arc<str>), member: u32, record: MemberRecord) -> bool {
        self.begin_file(file, name);
        let members = &mut self.files[file as usize].members;
        let there = members.len();
        match members.get_mut(member as usize) {
            Some(known) => *known = record,
            None if there == member as usize => members.push(record),
            None => return false,
        }
        true
    }

    /// A file is there from now on, if it was not.
    pub fn begin_file(&mut self, file: u32, name: &Arc<str>) {
        while self.files.len() <= file as usize {
            let name = if self.files.len() == file as usize { name.clone() } else { Arc::default() };
            self.files.push(FileRecord { name, complete: false, members: Vec::new() });
        }
        self.files[file as usize].name = name.clone();
    }

    /// What stays of it when its time is over.
    pub fn expire(&mut self) {
        self.expired = true;
        self.files.clear();
    }
}

#[cfg(test)]
mod tests {
    use exobus_bus::codec;

    use super::*;
    use crate::protocol::results::{FILES_MAX, MEMBERS_MAX, NAME_BYTES_MAX};

    fn member(bytes: u64) -> MemberRecord {
        MemberRecord { bytes, hash: 1, node: NodeId::new("n1"), kept: bytes, copy: 2 }
    }

    fn file(bytes: &[u64]) -> FileRecord {
        FileRecord { name: "f".into(), complete: false, members: bytes.iter().copied().map(member).collect() }
    }

    #[test]
    fn an_offset_is_in_the_member_that_has_its_byte() {
        let check =
            |sizes: &[u64], offset, expected| assert_eq!(file(sizes).place(offset), expected, "{sizes:?} {offset}");
        check(&[], 0, FilePlace::AtEnd);
        check(&[], 1, FilePlace::Beyond);
        check(&[3, 0, 2], 0, FilePlace::In { member: 0, begins: 0 });
        check(&[3, 0, 2], 2, FilePlace::In { member: 0, begins: 0 });
        check(&[3, 0, 2], 3, FilePlace::In { member: 2, begins: 3 });
        check(&[3, 0, 2], 4, FilePlace::In { member: 2, begins: 3 });
        check(&[3, 0, 2], 5, FilePlace::AtEnd);
        check(&[3, 0, 2], 6, FilePlace::Beyond);
        check(&[0], 0, FilePlace::AtEnd);
    }

    #[test]
    fn members_stand_in_their_order_however_often_they_are_set() {
        let mut record = ResultRecord::new(1, 2);
        let name: Arc<str> = "f".into();
        for (index, bytes) in [(0, 3), (1, 4), (0, 3), (1, 5)] {
            record.set_member((0, &name), index, member(bytes));
        }
        assert_eq!(record.files, [file(&[3, 5])]);
        assert!(!record.set_member((0, &name), 3, member(6)), "the third one is not there");
        assert_eq!(record.files, [file(&[3, 5])]);
        record.begin_file(1, &"g".into());
        assert_eq!((record.file(&FileKey::Name("g".into())).unwrap().0, record.bytes()), (1, 8));
        assert!(record.file(&FileKey::Ordinal(2)).is_none());
        assert!(record.is_at(&NodeId::new("n1")) && !record.is_at(&NodeId::new("n2")));
    }

    #[test]
    fn what_moves_is_at_its_new_node_wherever_it_stands() {
        let (from, to) = (NodeId::new("n1"), NodeId::new("n2"));
        let mut record = ResultRecord::new(1, 2);
        record.set_member((0, &"f".into()), 0, member(3));
        record.set_member((1, &"g".into()), 0, member(3));
        record.set_member((1, &"g".into()), 1, member(4));
        assert_eq!(record.kept().map(|(kept, _)| kept).collect::<Vec<_>>(), [3, 4]);
        assert!(record.moved(3, &from, &to) && !record.moved(3, &from, &to));
        let nodes: Vec<_> = record.nodes().map(NodeId::as_str).collect();
        assert_eq!(nodes, ["n2", "n2", "n1"]);
        // Of a member without bytes nobody has anything.
        record.set_member((1, &"g".into()), 2, MemberRecord { node: NodeId::new("n3"), ..member(0) });
        assert!(!record.is_at(&NodeId::new("n3")) && record.kept().count() == 2);
        assert_eq!((kept_number(2, 3), kept_number(0, u32::MAX)), (2 << 32 | 3, u64::from(u32::MAX)));
    }

    /// Results that were kept when a release was replaced must be known for as long as it says that it knows them.
    #[test]
    fn the_stored_sample_is_what_is_written_and_read() {
        let mut record = ResultRecord::new(1_790_000_000_000, 1_790_003_600_000);
        record.set_member((0, &"rows".into()), 0, member(3));
        record.set_member((0, &"rows".into()), 1, MemberRecord { hash: u128::MAX, ..member(4) });
        record.files[0].complete = true;
        record.begin_file(1, &"rest".into());
        let stored = &include_bytes!("../../tests/samples/result-record-2.bin")[..];
        assert!(codec::encode_checked_as(RECORD_VERSION, &record).unwrap() == stored, "other bytes than in the sample");
        assert_eq!(codec::decode_checked_as::<ResultRecord>(2, stored).unwrap(), record);
        assert_eq!(RECORD_VERSION, 2, "another version has a sample of its own, and this one says that it is not read");
    }

    #[test]
    fn the_largest_record_fits_a_message() {
        let mut record = ResultRecord::new(u64::MAX, u64::MAX);
        for index in 0..FILES_MAX as u32 {
            record.begin_file(index, &"n".repeat(NAME_BYTES_MAX).as_str().into());
        }
        for index in 0..MEMBERS_MAX as u32 {
            let node = NodeId::new(&"n".repeat(64));
            let name = record.files[0].name.clone();
            record.set_member(
                (0, &name),
                index,
                MemberRecord { bytes: u64::MAX, hash: u128::MAX, node, kept: u64::MAX, copy: u128::MAX },
            );
        }
        let bytes = codec::encode_checked_as(RECORD_VERSION, &record).unwrap();
        assert_eq!(codec::decode_checked_as::<ResultRecord>(RECORD_VERSION, &bytes).unwrap(), record);
    }
}
