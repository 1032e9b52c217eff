//! The closing summaries of jobs, for people and for programs.

use std::{fmt, time::Duration};

use exobus_actors::protocol::host::JobEnd;
use exobus_queries::{online::Answered, snapshot::Snapshot};
use exobus_shuffle::{jobs::sort::SortReport, keyed::KeyedReport};
use exobus_tables::jobs::Rewritten;
use serde::Serialize;

use super::{
    estimates::{GROUPS_DRAWN, snapshot_table},
    text,
};
use crate::config::units::size;
use crate::objects::Usage;

/// Where a job ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name of the cluster; `None`: this process.
    pub cluster: Option<String>,
    /// How many nodes worked for it.
    pub nodes: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.cluster, self.nodes) {
            (None, _) => f.write_str("on this machine"),
            (Some(cluster), 1) => write!(f, "on 1 node of {cluster}"),
            (Some(cluster), nodes) => write!(f, "on {nodes} nodes of {cluster}"),
        }
    }
}

/// What any job did. As JSON, the keys are these names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobSummary {
    /// Rows that were read: records, or words.
    pub rows: u64,
    /// Bytes of the input files.
    pub bytes: u64,
    /// The name of the cluster that it ran on, none in one process.
    pub cluster: Option<String>,
    /// How many nodes worked for it.
    pub nodes: usize,
    /// From start to the last committed file, without making and validating data.
    pub seconds: f64,
    /// `bytes / seconds`, in powers of ten.
    pub gb_per_s: f64,
    /// The most anonymous and shared memory, summed over the nodes.
    pub peak_memory_bytes: u64,
    /// Bytes written to spill files.
    pub spilled_bytes: u64,
    /// Of those, bytes that were written although there was room in memory, since new memory is slower than the disk.
    pub spilled_early_bytes: u64,
    /// Sum of the hashes of the rows read, 32 hexadecimal digits; zero where rows are combined and only counted.
    pub row_hash_in: String,
    /// Sum of the hashes of the rows written; the same unless something is very wrong.
    pub row_hash_out: String,
    /// The strategy.
    pub strategy: String,
    /// Number of partitions.
    pub partitions: u32,
    /// Number of output files: one a partition, and more for those that were divided.
    pub files: u64,
    /// Control messages that nodes and Owner exchanged.
    pub control_messages: u64,
    /// Bytes of the Owner's tables at their largest.
    pub owner_bytes: u64,
    /// Requests of this process to object stores and web servers, and their bytes; none of a job on a cluster, where its nodes make them.
    pub requests: Option<Usage>,
}

impl JobSummary {
    /// Of a sort, from what the program and the nodes say.
    pub fn of_sort(report: &SortReport, end: &JobEnd, place: &Place, seconds: f64) -> Self {
        Self {
            rows: report.rows,
            bytes: report.bytes,
            row_hash_in: report.row_hash_in.to_string(),
            row_hash_out: report.row_hash_out.to_string(),
            strategy: report.strategy.name().to_owned(),
            partitions: report.partitions,
            files: report.files,
            owner_bytes: end.owner_bytes.max(report.owner_bytes),
            ..Self::of_nodes(end, place, seconds, report.bytes)
        }
    }

    /// What the nodes say; the rest is empty.
    fn of_nodes(end: &JobEnd, place: &Place, seconds: f64, bytes: u64) -> Self {
        Self {
            rows: 0,
            bytes,
            cluster: place.cluster.clone(),
            nodes: place.nodes,
            seconds,
            // No time at all has passed in tests only.
            gb_per_s: if seconds > 0.0 { bytes as f64 / 1e9 / seconds } else { 0.0 },
            peak_memory_bytes: end.nodes.values().map(|node| node.peak_memory_bytes).sum(),
            spilled_bytes: end.nodes.values().map(|node| node.spilled_bytes).sum(),
            spilled_early_bytes: end.nodes.values().map(|node| node.early_bytes).sum(),
            row_hash_in: String::new(),
            row_hash_out: String::new(),
            strategy: String::new(),
            partitions: 0,
            files: 0,
            control_messages: end.control_messages,
            owner_bytes: end.owner_bytes,
            requests: place.cluster.is_none().then(Usage::now),
        }
    }

    /// Three lines for people; `output` says where the files are.
    pub fn for_people(&self, place: &Place, output: &str) -> String {
        self.three_lines(
            place,
            &format!("sorted {} records", text::count(self.rows)),
            &format!("{} in {output}", self.files()),
            &format!("every record exactly once: hash {} of what was read and of what was written", self.row_hash_out),
        )
    }

    fn three_lines(&self, place: &Place, did: &str, made: &str, proof: &str) -> String {
        let time = Duration::try_from_secs_f64(self.seconds).unwrap_or_default();
        let early = match self.spilled_early_bytes {
            0 => String::new(),
            early => format!(" ({} of it early: new memory is slower here than the disk)", text::bytes(early)),
        };
        let requests = self.requests.filter(|usage| usage.requests() > 0).map(|usage| {
            let (received, sent) = (text::bytes(usage.bytes_received), text::bytes(usage.bytes_sent));
            format!(", {} requests to object stores ({received} read, {sent} written)", text::count(usage.requests()))
        });
        format!(
            "{did}, {} in {} ({:.2} GB/s) {place}, {made}\n\
             memory {} at most, {} spilled{early}, {} control messages{}\n\
             {proof}",
            text::bytes(self.bytes),
            text::duration(time),
            self.gb_per_s,
            size(self.peak_memory_bytes),
            text::bytes(self.spilled_bytes),
            text::count(self.control_messages),
            requests.unwrap_or_default(),
        )
    }

    fn files(&self) -> String {
        format!("{} file{}", text::count(self.files), if self.files == 1 { "" } else { "s" })
    }
}

/// What a job over a table did. As JSON, the keys are these names and those of [`JobSummary`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableSummary {
    /// What any job says.
    #[serde(flatten)]
    pub job: JobSummary,
    /// Rows that were written.
    pub rows_out: u64,
    /// Bytes of the output files.
    pub output_bytes: u64,
}

/// What people call what a job did to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableWords {
    /// "sorted"
    pub did: &'static str,
    /// What rows became, where they are not written themselves: "groups".
    pub made: Option<&'static str>,
}

impl TableSummary {
    /// From what the program and the nodes say.
    pub fn new(report: &Rewritten, end: &JobEnd, place: &Place, seconds: f64) -> Self {
        let job = JobSummary {
            rows: report.rows_read,
            row_hash_in: report.row_hash_in.to_string(),
            row_hash_out: report.row_hash_out.to_string(),
            strategy: report.strategy.map_or(String::new(), |strategy| strategy.name().to_owned()),
            partitions: report.files as u32,
            files: report.files,
            owner_bytes: end.owner_bytes.max(report.owner_bytes),
            ..JobSummary::of_nodes(end, place, seconds, report.input_bytes)
        };
        Self { job, rows_out: report.rows, output_bytes: report.output_bytes }
    }

    /// Three lines for people; `output` says where the files are.
    pub fn for_people(&self, TableWords { did, made }: TableWords, place: &Place, output: &str) -> String {
        let (read, wrote) = (text::count(self.job.rows), text::count(self.rows_out));
        let hash = &self.job.row_hash_out;
        let (left, proof) = match (made, self.job.rows == self.rows_out) {
            (Some(made), _) => {
                let proof = format!(
                    "{read} were read and put together; hash {hash} of what became of them and of what was written"
                );
                (format!(", {wrote} {made} written"), proof)
            }
            (None, true) => (String::new(), format!("hash {hash} of what was read and of what was written")),
            (None, false) => (
                format!(", {wrote} of them stayed"),
                format!("hash {hash} of what was read, of what was written and left out"),
            ),
        };
        self.job.three_lines(
            place,
            &format!("{did} {read} rows{left}"),
            &format!("{} in {} in {output}", text::bytes(self.output_bytes), self.job.files()),
            &format!("every row exactly once: {proof}"),
        )
    }
}

/// What a query did that answers early.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnlineSummary {
    /// Why it ended, in words.
    pub ended: String,
    /// Looks that were shown, and blocks that were read and that there are.
    pub snapshots: u64,
    /// See there.
    pub blocks_seen: u64,
    /// See there.
    pub blocks: u64,
    /// The job, where it is kept and can go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_job: Option<String>,
    /// What was written, where everything was read.
    #[serde(flatten)]
    pub written: Option<TableSummary>,
}

impl OnlineSummary {
    /// From what the program and the nodes say.
    pub fn new(report: &Answered, end: &JobEnd, place: &Place, seconds: f64) -> Self {
        let Answered { ended, written, snapshot } = report;
        Self {
            ended: ended.to_string(),
            snapshots: snapshot.snapshot + 1,
            blocks_seen: snapshot.blocks_seen,
            blocks: snapshot.blocks,
            kept_job: None,
            written: written.as_ref().map(|written| TableSummary::new(written, end, place, seconds)),
        }
    }

    /// What was shown last as a table, and lines for people; `output` says where the files are.
    pub fn for_people(&self, last: &Snapshot, words: TableWords, place: &Place, output: &str) -> String {
        let table = snapshot_table(last, GROUPS_DRAWN, None);
        let said = match &self.written {
            Some(written) => written.for_people(words, place, output),
            None => {
                let (read, all) = (text::count(self.blocks_seen), text::count(self.blocks));
                format!("read {read} of {all} blocks in {:.1} s; nothing was written", last.seconds)
            }
        };
        format!("{table}\n{}\n{said}", self.ended)
    }
}

/// What a job over keyed rows did. As JSON, the keys are these names and those of [`JobSummary`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyedSummary {
    /// What any job says.
    #[serde(flatten)]
    pub job: JobSummary,
    /// Rows that the output stands for, counted from what was written; the same unless something is very wrong.
    pub rows_out: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Bytes of the output files.
    pub output_bytes: u64,
    /// Rows that were left when maps had combined theirs.
    pub shuffled_rows: u64,
}

/// What people call what a job did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedWords {
    /// "counted"
    pub did: &'static str,
    /// "words"
    pub rows: &'static str,
    /// "different"; `None` where every row is its own key and keeps its hash.
    pub keys: Option<&'static str>,
}

impl KeyedSummary {
    /// From what the program and the nodes say.
    pub fn new(report: &KeyedReport, end: &JobEnd, place: &Place, seconds: f64) -> Self {
        let job = JobSummary {
            rows: report.emitted.rows,
            row_hash_in: report.emitted.row_hash.to_string(),
            row_hash_out: report.reduced.row_hash.to_string(),
            strategy: report.strategy.name().to_owned(),
            partitions: report.partitions,
            files: u64::from(report.partitions),
            owner_bytes: end.owner_bytes.max(report.owner_bytes),
            ..JobSummary::of_nodes(end, place, seconds, report.input_bytes)
        };
        Self {
            job,
            rows_out: report.reduced.rows,
            keys: report.keys,
            output_bytes: report.output_bytes,
            shuffled_rows: report.shuffled.rows,
        }
    }

    /// Three lines for people; `output` says where the files are.
    pub fn for_people(&self, words: &KeyedWords, place: &Place, output: &str) -> String {
        let KeyedWords { did, rows, keys } = words;
        let read = text::count(self.job.rows);
        let distinct = keys.map(|keys| format!(", {} {keys}", text::count(self.keys))).unwrap_or_default();
        let proof = match keys {
            Some(_) => format!("{read} were read, counts of {} were written", text::count(self.rows_out)),
            None => format!("hash {} of what was read and of what was written", self.job.row_hash_out),
        };
        self.job.three_lines(
            place,
            &format!("{did} {read} {rows}{distinct}"),
            &format!("{} in {} in {output}", text::bytes(self.output_bytes), self.job.files()),
            &format!("every one of the {rows} exactly once: {proof}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_promised_keys() {
        let summary = JobSummary {
            rows: 10,
            bytes: 1000,
            cluster: None,
            nodes: 1,
            seconds: 0.5,
            gb_per_s: 2e-6,
            peak_memory_bytes: 1 << 20,
            spilled_bytes: 3_000_000,
            spilled_early_bytes: 0,
            row_hash_in: "0".repeat(32),
            row_hash_out: "0".repeat(32),
            strategy: "simple".into(),
            partitions: 1,
            files: 1,
            control_messages: 4,
            owner_bytes: 100,
            requests: None,
        };
        let json = serde_json::to_value(&summary).unwrap();
        let mut keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let mut promised: Vec<&str> =
            "rows bytes cluster nodes seconds gb_per_s peak_memory_bytes spilled_bytes spilled_early_bytes row_hash_in row_hash_out \
             strategy partitions files control_messages owner_bytes requests"
                .split_whitespace()
                .collect();
        promised.sort_unstable();
        assert_eq!(keys, promised);
        let here = Place { cluster: None, nodes: 1 };
        let text = summary.for_people(&here, "out");
        assert!(text.contains("3.00 MB spilled, 4 control messages"), "{text}");
        let early = JobSummary { spilled_early_bytes: 2_000_000, ..summary.clone() }.for_people(&here, "out");
        let why = "3.00 MB spilled (2.00 MB of it early: new memory is slower here than the disk), 4";
        assert!(early.contains(why), "{early}");
        let asked = Usage { reads: 7, writes: 3, deletes: 1, bytes_received: 2_000_000, ..Usage::default() };
        let asked = JobSummary { requests: Some(asked), ..summary.clone() }.for_people(&here, "out");
        let how_often = "4 control messages, 11 requests to object stores (2.00 MB read, 0 B written)\n";
        assert!(asked.contains(how_often), "{asked}");
        let line = |cluster: Option<&str>, nodes| {
            let place = Place { cluster: cluster.map(str::to_owned), nodes };
            summary.for_people(&place, "out").lines().next().unwrap().to_owned()
        };
        let done = "sorted 10 records, 1.00 kB in 0.50 s (0.00 GB/s)";
        assert_eq!(line(None, 1), format!("{done} on this machine, 1 file in out"));
        assert_eq!(line(Some("lab"), 3), format!("{done} on 3 nodes of lab, 1 file in out"));
        assert_eq!(line(Some("lab"), 1), format!("{done} on 1 node of lab, 1 file in out"));
    }
}
