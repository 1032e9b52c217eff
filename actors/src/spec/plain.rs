//! MessagePack as JSON, for people and for programs that know no more of it.

use serde::de::DeserializeSeed as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::shown;
use super::value::Seed;

/// How deep lists and tables may be within each other: results may have more in them than specs, and a stack has an end.
const DEPTH_MAX: usize = 64;

/// Any value, as JSON. Bytes are text where they are UTF-8, else a list of numbers; keys of tables are texts; floats that JSON has not
/// are null.
#[derive(Clone, Debug, PartialEq)]
pub struct Plain(pub Value);

impl Plain {
    /// The value that some MessagePack is.
    ///
    /// # Errors
    /// It is none, or lists and tables are more than 64 deep within each other.
    pub fn of(bytes: &[u8]) -> Result<Self, rmp_serde::decode::Error> {
        rmp_serde::from_slice(bytes)
    }

    /// The same value with no text longer than errors show, and without control characters.
    #[must_use]
    pub fn shown(self) -> Self {
        Self(shorten(self.0))
    }
}

fn shorten(value: Value) -> Value {
    match value {
        Value::String(text) => shown(&text).into(),
        Value::Array(list) => list.into_iter().map(shorten).collect(),
        Value::Object(table) => table.into_iter().map(|(name, value)| (shown(&name), shorten(value))).collect(),
        value => value,
    }
}

impl Serialize for Plain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Seed { depth_left: DEPTH_MAX }.deserialize(from).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn any_messagepack_is_json() {
        let bytes = serde_bytes::ByteBuf::from(vec![0xff, 1]);
        let value = (1u8, -2i64, 0.5, "text", bytes, Some(true), None::<u8>, f64::NAN, [(7u8, "seven")]);
        let encoded = rmp_serde::to_vec_named(&value).unwrap();
        let plain = json!([1, -2, 0.5, "text", [255, 1], true, null, null, [[7, "seven"]]]);
        assert_eq!(Plain::of(&encoded).unwrap(), Plain(plain));
        let table = std::collections::BTreeMap::from([(7u8, "x".repeat(90))]);
        let encoded = rmp_serde::to_vec_named(&table).unwrap();
        let shown = json!({ "7": format!("{}\u{2026}", "x".repeat(39)) });
        assert_eq!(Plain::of(&encoded).unwrap().shown(), Plain(shown));
        assert!(Plain::of(b"\x92\x01").is_err());
        let deep = |depth: usize| [vec![0x91; depth], vec![7]].concat();
        assert!(Plain::of(&deep(64)).is_ok());
        assert!(Plain::of(&deep(65)).is_err() && Plain::of(&deep(100_000)).is_err());
    }
}
