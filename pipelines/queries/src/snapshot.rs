//! What people are shown of a query that answers early: a line of JSON for each look.
//!
//! `{"snapshot": 3, "final": false, "seconds": 0.8, "rows_seen": 81920, "blocks_seen": 12, "blocks": 800, "seed": 7, "bytes_seen": 1000000, "columns": ["city", "sum(price)"], "groups_seen": 7, "unmet_blocks": 12,
//! "chosen_by_estimates": true, "groups": [{"key": ["Oslo"], "values": [{"estimate": 12.5, "low": 11.0, "high": 14.0, "kind": "approximate", "level": 0.996, "reason": null}]}]}`: keys and values in the order of `columns`, first those of the key. A value
//! without bounds has nulls there, and says why. One that is no number (`min` of a text) has `kind` `"exact"` when all was read, and is null before. A value that is known without reading (`count(*)` of all rows of files that say
//! how many they have) is exact from the first look on.
//!
//! What a query does with groups when they are known (conditions of groups, the first ones in some order) is done with estimates until then: `chosen_by_estimates` says that other groups may be shown in the end. It is left
//! out where it is false.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::estimators::{Bounds, Estimate, Kind, NoBounds, relative_error};
use crate::stopping::Ended;

/// Groups that are shown, at most.
pub const SHOWN_MAX: usize = 1000;
/// Bytes of what is shown of them, at most: a snapshot fits a message.
pub const SHOWN_BYTES_MAX: usize = 160 << 10;

/// The answer as it looks after a part of the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its number, from 0; it rises from one to the next.
    pub snapshot: u64,
    /// Whether all was read, so that it is the answer.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// Since the query began.
    pub seconds: f64,
    /// Rows that were read, before any condition.
    pub rows_seen: u64,
    /// Blocks that were read: the first so many of the order that follows from the seed.
    pub blocks_seen: u64,
    /// How many there are.
    pub blocks: u64,
    /// The seed from which that order follows.
    #[serde(default)]
    pub seed: u64,
    /// Bytes that the values of these blocks take, decoded, about: by what files say of their sizes.
    pub bytes_seen: u64,
    /// Names of the columns: of the key, then of values.
    pub columns: Vec<String>,
    /// How many groups are known, whether or not they are shown.
    pub groups_seen: u64,
    /// A group that no block has that was read is in so many blocks at most, with the level of the look; null: nobody knows.
    pub unmet_blocks: Option<u64>,
    /// Which groups are shown follows from estimates: they had to meet a condition or to be among the first, or there are more than are shown or followed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chosen_by_estimates: bool,
    /// The groups that are shown.
    pub groups: Vec<ShownGroup>,
    /// Why the query has stopped behind this look, which is shown again with this: it is kept, and waits for who has it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Ended>,
}

/// A group of a [`Snapshot`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShownGroup {
    /// Its columns.
    pub key: Vec<Value>,
    /// What is said of it.
    pub values: Vec<ShownValue>,
}

/// A value of a [`ShownGroup`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShownValue {
    /// What it is most likely, or is; null: nobody knows.
    pub estimate: Value,
    /// What it is at least; `None`: nobody knows.
    pub low: Option<f64>,
    /// What it is at most; `None`: nobody knows.
    pub high: Option<f64>,
    /// What that rests on.
    pub kind: Option<ShownKind>,
    /// With which probability that holds.
    pub level: Option<f64>,
    /// Why there are no bounds.
    pub reason: Option<String>,
}

/// What is known of a value rests on this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShownKind {
    /// It is known: all was read, or it does not depend on that.
    Exact,
    /// See [`Kind::Guaranteed`].
    Guaranteed,
    /// See [`Kind::Approximate`].
    Approximate,
}

impl ShownValue {
    /// Half of the width of the bounds, as a part of the estimate; `None`: there are no bounds, or the estimate is zero and they are not.
    pub fn relative_error(&self) -> Option<f64> {
        let (low, high) = self.low.zip(self.high)?;
        relative_error(self.estimate.as_f64()?, (high - low) / 2.0)
    }

    /// A value that is known, as all was read.
    pub fn exact(value: Value) -> Self {
        let number = value.as_f64();
        Self {
            estimate: value,
            low: number,
            high: number,
            kind: Some(ShownKind::Exact),
            level: Some(1.0),
            reason: None,
        }
    }

    /// A value of which nothing is said before all was read.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self { estimate: Value::Null, low: None, high: None, kind: None, level: None, reason: Some(reason.into()) }
    }
}

impl From<&Estimate> for ShownValue {
    fn from(estimate: &Estimate) -> Self {
        let kind = |bounds: Bounds| match bounds.kind {
            _ if bounds.are_exact() => ShownKind::Exact,
            Kind::Guaranteed => ShownKind::Guaranteed,
            Kind::Approximate => ShownKind::Approximate,
        };
        let bounds = estimate.bounds.and_then(|bounds| match bounds.half_width().is_finite() {
            true => Ok(bounds),
            false => Err(NoBounds::NoNumber),
        });
        let why = bounds.err();
        let bounds = bounds.ok();
        let is_whole = |value: f64| value.fract() == 0.0 && value.abs() < 2_f64.powi(53);
        Self {
            estimate: match estimate.value {
                // What is known is shown as it is.
                value if bounds.is_some_and(|bounds| bounds.are_exact()) && is_whole(value) => {
                    Value::from(value as i64)
                }
                // NaN and infinities are null.
                value => Value::from(value),
            },
            low: bounds.map(|bounds| bounds.low),
            high: bounds.map(|bounds| bounds.high),
            kind: bounds.map(kind),
            level: bounds.map(|bounds| bounds.level),
            reason: why.map(|why| why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_snapshot_is_a_line_of_json() {
        let bounds = Ok(Bounds { low: 11.0, high: 14.0, kind: Kind::Approximate, level: 0.996 });
        let known = ShownValue::from(&Estimate { value: 12.5, bounds });
        let why = NoBounds::RareGroup { blocks: 3, least: 30 };
        let rare = ShownValue::from(&Estimate { value: f64::NAN, bounds: Err(why) });
        let group = ShownGroup { key: vec![json!("Oslo"), Value::Null], values: vec![known, rare] };
        let snapshot = Snapshot {
            snapshot: 3,
            seconds: 0.8,
            rows_seen: 81_920,
            blocks_seen: 12,
            blocks: 800,
            seed: 7,
            bytes_seen: 1_000_000,
            columns: ["city", "zone", "sum(price)", "avg(price)"].map(str::to_owned).to_vec(),
            groups_seen: 7,
            unmet_blocks: Some(12),
            groups: vec![group],
            ..Snapshot::default()
        };
        let line = serde_json::to_string(&snapshot).unwrap();
        let expected = json!({
            "snapshot": 3, "final": false, "seconds": 0.8, "rows_seen": 81_920, "blocks_seen": 12, "blocks": 800, "seed": 7, "bytes_seen": 1_000_000,
            "columns": ["city", "zone", "sum(price)", "avg(price)"],
            "groups_seen": 7,
            "unmet_blocks": 12,
            "groups": [{"key": ["Oslo", null], "values": [
                {"estimate": 12.5, "low": 11.0, "high": 14.0, "kind": "approximate", "level": 0.996, "reason": null},
                {"estimate": null, "low": null, "high": null, "kind": null, "level": null,
                 "reason": "3 of the blocks that were read have the group; bounds are given from 30 on"},
            ]}],
        });
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), expected);
        assert!(line.starts_with(r#"{"snapshot":3,"final":false,"seconds":0.8,"#) && !line.contains('\n'));
        assert_eq!(serde_json::from_str::<Snapshot>(&line).unwrap(), snapshot);
    }

    #[test]
    fn that_estimates_have_chosen_the_groups_is_said_where_it_is_so() {
        let line = |chosen_by_estimates| {
            let snapshot = Snapshot { chosen_by_estimates, ..Snapshot::default() };
            let line = serde_json::to_string(&snapshot).unwrap();
            assert_eq!(serde_json::from_str::<Snapshot>(&line).unwrap(), snapshot);
            line
        };
        assert!(line(true).contains(r#""chosen_by_estimates":true"#) && !line(false).contains("chosen"));
    }

    #[test]
    fn what_was_read_completely_is_exact_and_bounds_without_end_are_none() {
        let shown = |low, high, level| {
            let bounds = Ok(Bounds { low, high, kind: Kind::Approximate, level });
            ShownValue::from(&Estimate { value: 7.0, bounds })
        };
        assert_eq!((shown(7.0, 7.0, 1.0).kind, shown(7.0, 7.0, 1.0).estimate), (Some(ShownKind::Exact), json!(7)));
        assert_eq!(shown(7.0, 7.0, 0.95).kind, Some(ShownKind::Approximate));
        let endless = shown(0.0, f64::INFINITY, 0.95);
        assert_eq!((endless.low, endless.high, endless.kind), (None, None, None));
        assert!(endless.reason.is_some());
    }

    #[test]
    fn what_is_known_is_said_as_it_is() {
        let exact = |value| serde_json::to_value(ShownValue::exact(value)).unwrap();
        let said = json!({"estimate": 7, "low": 7.0, "high": 7.0, "kind": "exact", "level": 1.0, "reason": null});
        assert_eq!(exact(json!(7)), said);
        assert_eq!(exact(json!("Oslo"))["low"], Value::Null);
        assert_eq!(ShownValue::unknown("exact at the end").reason.as_deref(), Some("exact at the end"));
    }
}
