//! Settings of streams and consumers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::BusError;
use crate::subject::{Pattern, check_token};

/// Settings of a stream. They are fixed when it is made: opening it with others is refused, except for what the server
/// alone decides (replicas).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamConfig {
    /// A token; unique in the server's account, so it should name the cluster: [`durable_name`](crate::Subjects::durable_name).
    pub name: String,
    /// Subjects of its records. No two streams may share one, and plain messages should use others: a server stores
    /// whatever is published to them.
    pub subjects: Pattern,
    /// Most records; 0: as many as fit into `bytes_max`. Default 0.
    pub records_max: u64,
    /// Most bytes. A server reserves them, so all streams together must fit its `max_file_store`. Default 64 MiB.
    pub bytes_max: u64,
    /// How long a record is kept; zero: for ever. At least 100 ms. Default zero.
    pub age_max: Duration,
    /// Each record replaces the earlier one of its subject, also when the stream is full. Default no.
    pub last_of_subject_only: bool,
    /// Whether it is lost with its server: for what can be made again. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_memory: bool,
    /// For how long dedupe ids are remembered, at least; at most [`age_max`](Self::age_max) where that is set. After a restart only those of
    /// records that are still there. In process, the latest million per stream. Default 2 minutes.
    pub dedupe_window: Duration,
    /// When the last record of a subject expires, an [expiry marker](crate::streams::EXPIRY_MARKER) takes its place for this
    /// long, so that readers learn of it. Whole seconds; zero: none. Servers before 2.11 never write any. Default zero.
    pub expiry_markers: Duration,
}

impl StreamConfig {
    /// Defaults.
    pub fn new(name: &str, subjects: Pattern) -> Self {
        Self {
            name: name.to_owned(),
            subjects,
            records_max: 0,
            bytes_max: 64 * 1024 * 1024,
            age_max: Duration::ZERO,
            last_of_subject_only: false,
            in_memory: false,
            dedupe_window: Duration::from_secs(120),
            expiry_markers: Duration::ZERO,
        }
    }

    /// The same as a backend takes it: checked, the window within the age.
    pub(crate) fn checked(&self) -> Result<Self, BusError> {
        check_token(&self.name)?;
        let bad = |what: &str| Err(BusError::Config(format!("stream {}: {what}", self.name)));
        let aged = !self.age_max.is_zero();
        if self.bytes_max == 0 || self.bytes_max > i64::MAX as u64 || self.records_max > i64::MAX as u64 {
            return bad("bytes_max and records_max do not fit");
        }
        if aged && self.age_max < Duration::from_millis(100) {
            return bad("age_max is at least 100 ms");
        }
        if self.dedupe_window < Duration::from_millis(100) {
            return bad("dedupe_window is at least 100 ms");
        }
        if self.expiry_markers.subsec_nanos() != 0 {
            return bad("expiry_markers is whole seconds");
        }
        let dedupe_window = if aged { self.dedupe_window.min(self.age_max) } else { self.dedupe_window };
        Ok(Self { dedupe_window, ..self.clone() })
    }

    /// The first setting in which two differ, in words.
    pub(crate) fn difference(&self, asked: &Self) -> Option<String> {
        macro_rules! compare {
            ($($field:ident),*) => {
                $(if self.$field != asked.$field {
                    return Some(format!("{} is {:?}, not {:?}", stringify!($field), self.$field, asked.$field));
                })*
            };
        }
        compare!(
            subjects,
            records_max,
            bytes_max,
            age_max,
            last_of_subject_only,
            in_memory,
            dedupe_window,
            expiry_markers
        );
        None
    }
}

/// Settings of a durable consumer. Fixed when it is made, as a stream's are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumerConfig {
    /// A token; all who consume under one name share the records.
    pub name: String,
    /// Only records of these subjects; `None`: all.
    pub subjects: Option<Pattern>,
    /// How long a fetched record may go without acknowledgement before it is delivered again. Default 30 s.
    pub ack_wait: Duration,
    /// Most records delivered and not acknowledged; when there are so many, nothing new is delivered. Default 1024.
    pub unacked_max: usize,
}

impl ConsumerConfig {
    /// Defaults.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), subjects: None, ack_wait: Duration::from_secs(30), unacked_max: 1024 }
    }

    pub(crate) fn check(&self) -> Result<(), BusError> {
        check_token(&self.name)?;
        if self.unacked_max == 0 || self.unacked_max > 65_536 || self.ack_wait < Duration::from_millis(100) {
            let text = "unacked_max is 1 to 65536, ack_wait at least 100 ms";
            return Err(BusError::Config(format!("consumer {}: {text}", self.name)));
        }
        Ok(())
    }

    /// The first setting in which two differ, in words.
    pub(crate) fn difference(&self, asked: &Self) -> Option<String> {
        let differs = |what: &str, is: String, asked: String| Some(format!("{what} is {is}, not {asked}"));
        if self.subjects != asked.subjects {
            return differs("subjects", format!("{:?}", self.subjects), format!("{:?}", asked.subjects));
        }
        if self.ack_wait != asked.ack_wait {
            return differs("ack_wait", format!("{:?}", self.ack_wait), format!("{:?}", asked.ack_wait));
        }
        if self.unacked_max != asked.unacked_max {
            return differs("unacked_max", self.unacked_max.to_string(), asked.unacked_max.to_string());
        }
        None
    }
}
